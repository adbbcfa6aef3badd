#!/usr/bin/env python3
"""A pair that schedules a step ahead answers as one that does not: the same tokens, logprobs and ends, in a crowd, in a
KV cache too small for it, with stops, aborts and a client that goes away in the middle."""
import concurrent.futures
import http.client
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, Pair, wait_for

FLAGS = ("--served-model-name", "m", "--max-model-len", "512", "--block-size", "32", "--max-num-batched-tokens", "96",
         "--max-num-seqs", "6")
PROMPTS = ["Once upon a time", "Tell me a story about a fox.", "What is 2 + 3?", "The old clock", "Hello", "A boat on the sea"]


def bodies():
    for i, prompt in enumerate(PROMPTS * 3):
        body = {"model": "m", "prompt": prompt, "max_tokens": 24 + 7 * (i % 5), "seed": i, "temperature": 0.9 * (i % 3),
                "logprobs": 2, "return_token_ids": True}
        if i % 4 == 1:
            body["stop"] = ["."]
        if i % 4 == 2:
            body |= {"min_tokens": 20, "frequency_penalty": 0.3, "repetition_penalty": 1.1}
        if i % 4 == 3:
            body |= {"ignore_eos": True, "top_p": 0.9, "top_k": 40}
        yield body


def answers(server):
    def ask(body):
        status, reply = server.post("/v1/completions", body)
        assert status == 200, reply
        reply = json.loads(reply)
        choice = reply["choices"][0]
        usage = {name: reply["usage"][name] for name in ("prompt_tokens", "completion_tokens")}
        return choice["text"], choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["finish_reason"], usage

    with concurrent.futures.ThreadPoolExecutor(18) as pool:
        return list(pool.map(ask, bodies()))


def leave_in_the_middle(server):
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=LIMIT)
    connection.request("POST", "/v1/completions", json.dumps(
        {"model": "m", "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True}),
        {"Content-Type": "application/json"})
    reply = connection.getresponse()
    assert reply.status == 200
    reply.read(200)
    connection.close()


class AsyncScheduling(unittest.TestCase):
    def test_answers_do_not_depend_on_it(self):
        with Pair(*FLAGS, "--num-gpu-blocks-override", "64") as server:
            expected = answers(server)
        # 16 blocks hold one long request and little else: requests are preempted and resumed.
        for blocks in ("64", "17"):
            with self.subTest(blocks=blocks), Pair(*FLAGS, "--num-gpu-blocks-override", blocks,
                                                   "--async-scheduling") as server:
                leave_in_the_middle(server)
                self.assertEqual(answers(server), expected)
                wait_for(lambda: server.total("vllm:num_requests_running") == 0, "the left request to end")
                wait_for(lambda: server.total("vllm:kv_cache_usage_perc") == 0, "its blocks to be free")


if __name__ == "__main__":
    unittest.main()
