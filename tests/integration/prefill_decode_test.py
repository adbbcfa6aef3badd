#!/usr/bin/env python3
"""`tandem serve --prefill 1 --decode 1`: prompts are computed by one engine and decoded by another, with the bits of
one engine, whatever dies meanwhile.

Usage: prefill_decode_test.py [unittest arguments]
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir, is_alive, wait_for
from peft_adapter import write_adapter
from replicas_test import engines_of
from speculation_test import text_of

SIZES = ("--block-size", "32", "--max-model-len", "1024", "--num-gpu-blocks-override", "512", "--threads", "1")
ROLES = ("--prefill", "1", "--decode", "1", "--prefill-min-tokens", "64")
PREFILL, DECODE = 0, 1


def prompt_of(number, length=300):
    return [(7 * number + i * i) % 200 + 1 for i in range(length)]


def bodies():
    """[(name, body)]: what has to be equal to one engine's."""
    base = {"model": str(MODEL), "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    return [("greedy", {**base, "prompt": prompt_of(1), "logprobs": 2}),
            ("seeded", {**base, "prompt": prompt_of(2), "temperature": 0.9, "seed": 3, "logprobs": 1}),
            ("two choices", {**base, "prompt": prompt_of(3), "temperature": 0.9, "seed": 4, "n": 2, "logprobs": 1}),
            ("two prompts", {**base, "prompt": [prompt_of(4), prompt_of(5)]}),
            ("a stop string", {**base, "prompt": prompt_of(6), "max_tokens": 40, "stop": ["e"]}),
            ("penalties", {**base, "prompt": prompt_of(7), "repetition_penalty": 1.3, "presence_penalty": 0.4}),
            ("structured", {**base, "prompt": prompt_of(8), "ignore_eos": False,
                            "structured_outputs": {"regex": "[a-d]{4} [0-9]{3}"}}),
            ("its prompt's logprobs", {**base, "prompt": prompt_of(9), "prompt_logprobs": 1}),
            ("one token", {**base, "prompt": prompt_of(10), "max_tokens": 1}),
            ("a short prompt", {**base, "prompt": prompt_of(11, 40)})]


def complete(server, body):
    status, response = server.post("/v1/completions", body)
    assert status == 200, response
    return json.loads(response)


def answer(server, body):
    response = complete(server, body)
    return response["choices"], response["usage"]["prompt_tokens"], response["usage"]["completion_tokens"]


def stream_of(number, max_tokens=300):
    return {"prompt": prompt_of(number), "max_tokens": max_tokens, "temperature": 0.6, "seed": 5, "ignore_eos": True,
            "stream": True}


def count(server, name, engine, **labels):
    return server.total(name, engine=str(engine), **labels)


class Roles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Pair(*SIZES) as server:
            cls.expected = [answer(server, body) for _, body in bodies()]
            cls.streamed = text_of(server, stream_of(20))
        cls.server = Pair(*SIZES, *ROLES)
        cls.addClassCleanup(cls.server.__exit__, False)

    def test_answers_are_those_of_one_engine(self):
        for (name, body), expected in zip(bodies(), self.expected):
            with self.subTest(name):
                self.assertEqual(answer(self.server, body), expected)
        self.assertEqual(text_of(self.server, stream_of(20)), self.streamed)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            again = list(pool.map(lambda body: answer(self.server, body[1]), bodies()))
        self.assertEqual(again, self.expected)
        warnings = [line for line in self.server.log.splitlines() if "WARNING" in line]
        self.assertEqual([line for line in warnings if "KV of request" in line or "their KV to nobody" in line], [])

    def test_each_engine_counts_what_it_did(self):
        server = self.server
        source = "vllm:prompt_tokens_by_source_total"
        series = [(source, {"source": "local_compute"}), (source, {"source": "external_kv_transfer"}),
                  ("vllm:request_success_total", {}), ("vllm:generation_tokens_total", {}),
                  ("vllm:time_to_first_token_seconds_count", {}), ("vllm:request_prefill_time_seconds_count", {})]

        def counts():
            return [[count(server, name, engine, **labels) for name, labels in series] for engine in (PREFILL, DECODE)]

        before = counts()
        response = complete(server, {"prompt": prompt_of(30), "max_tokens": 5, "temperature": 0, "ignore_eos": True})
        self.assertEqual(response["usage"]["prompt_tokens"], 300)
        self.assertEqual(response["usage"]["completion_tokens"], 5)
        self.assertEqual(response["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertIsNone(response["kv_transfer_params"])
        gained = [[after - was for after, was in zip(*both)] for both in zip(counts(), before)]
        self.assertEqual(gained, [[300, 0, 0, 0, 0, 0], [12, 288, 1, 5, 1, 1]])
        # The second time the prefill engine has most of the prompt, which is what the response shows.
        response = complete(server, {"prompt": prompt_of(30), "max_tokens": 1, "temperature": 0})
        self.assertEqual(response["usage"]["prompt_tokens_details"]["cached_tokens"], 288)
        wait_for(lambda: count(server, "vllm:kv_cache_usage_perc", PREFILL) == 0, "the leases have ended")
        num_ended = server.total("vllm:request_success_total")
        wait_for(lambda: server.log.count("request finished") >= num_ended, "a line for each request")
        self.assertEqual(server.log.count("request finished"), num_ended)

    def test_one_that_its_client_left_ends_where_it_is(self):
        for tokens in (0, 5):
            connection = self.server.connect()
            connection.request("POST", "/v1/completions", json.dumps(stream_of(40 + tokens, 700)),
                               {"Content-Type": "application/json"})
            if tokens > 0:
                connection.getresponse().read(50)
            connection.close()
        wait_for(lambda: self.server.total("vllm:num_requests_running") == 0 and
                 self.server.total("vllm:num_requests_waiting") == 0, "nothing runs")

    def test_what_does_not_fit_is_refused_by_name(self):
        for flags, word in ((("--prefill", "1"), "need each other"), (("--decode", "2"), "need each other"),
                            ((*ROLES, "--data-parallel-size", "2"), "--data-parallel-size"),
                            ((*ROLES, "--headless"), "--headless"),
                            ((*ROLES, "--kv-transfer-config", "{}"), "--kv-transfer-config"),
                            (("--prefill-engines", "1"), "--prefill-engines 1: must be less")):
            run = subprocess.run([str(bin_dir() / "tandem"), "serve", str(MODEL), "--check-config", *flags],
                                 capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(run.returncode, 2, flags)
            self.assertIn(word, run.stderr)


class Overload(unittest.TestCase):
    """Of 64 blocks an engine has 32 for prompts of others; a prompt has 10, 9 of which are handed over."""
    SMALL = ("--block-size", "32", "--max-model-len", "512", "--num-gpu-blocks-override", "64", "--threads", "1")
    NUM_REQUESTS = 30  # five times what the decoding engine has room for
    NUM_AHEAD = 3      # prompts that the prefill engine has room for

    @staticmethod
    def body(number):
        return {"prompt": prompt_of(100 + number, 310), "max_tokens": 9, "temperature": 0, "ignore_eos": True}

    @classmethod
    def setUpClass(cls):
        with Pair(*cls.SMALL) as server:
            cls.expected = [answer(server, cls.body(number)) for number in range(cls.NUM_REQUESTS)]

    def test_nothing_is_lost_when_engines_die_while_prompts_wait(self):
        with Pair(*self.SMALL, *ROLES) as server, concurrent.futures.ThreadPoolExecutor(self.NUM_REQUESTS) as pool:
            for died in (DECODE, PREFILL):
                engines = engines_of(server)
                os.kill(engines[DECODE], signal.SIGSTOP)
                answers = [pool.submit(answer, server, self.body(number)) for number in range(self.NUM_REQUESTS)]
                wait_for(lambda: count(server, "vllm:num_requests_waiting", PREFILL) == self.NUM_REQUESTS - self.NUM_AHEAD,
                         "prompts wait")
                os.kill(engines[died], signal.SIGKILL)
                if died != DECODE:
                    os.kill(engines[DECODE], signal.SIGCONT)
                self.assertEqual([each.result() for each in answers], self.expected)
                wait_for(lambda: f"engine {died} is back" in server.log, "it is started again")

    def test_no_prompt_is_computed_twice(self):
        with Pair(*self.SMALL, *ROLES) as server, concurrent.futures.ThreadPoolExecutor(self.NUM_REQUESTS) as pool:
            decoding = engines_of(server)[DECODE]
            os.kill(decoding, signal.SIGSTOP)
            self.addCleanup(lambda: is_alive(decoding) and os.kill(decoding, signal.SIGCONT))
            left = [self.leave_later(server, number) for number in range(50, 54)]
            answers = [pool.submit(answer, server, self.body(number)) for number in range(self.NUM_REQUESTS)]

            def waiting(engine):
                return count(server, "vllm:num_requests_waiting", engine)

            num_all = self.NUM_REQUESTS + len(left)
            wait_for(lambda: waiting(DECODE) == self.NUM_AHEAD, "as many are handed over as there is room for")
            wait_for(lambda: waiting(PREFILL) == num_all - self.NUM_AHEAD, "the others wait")
            for connection in left:
                connection.close()
            # Else the engine may run one of them before it gets the abort.
            wait_for(lambda: server.total("vllm:request_success_total", finished_reason="abort") == len(left),
                     "the frontend has aborted them")
            os.kill(decoding, signal.SIGCONT)
            self.assertEqual([each.result() for each in answers], self.expected)
            source = "vllm:prompt_tokens_by_source_total"
            self.assertEqual(count(server, source, DECODE, source="local_compute"), 22 * self.NUM_REQUESTS)
            self.assertEqual(count(server, source, DECODE, source="external_kv_transfer"), 288 * self.NUM_REQUESTS)
            self.assertEqual(server.total("vllm:num_preemptions_total"), 0)
            wait_for(lambda: count(server, "vllm:kv_cache_usage_perc", PREFILL) == 0, "all leases have ended")
            for words in ("KV of request", "had to make room", "expired without", "prefill failed"):
                self.assertNotIn(words, server.log)

    def leave_later(self, server, number):
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**self.body(number), "stream": True}),
                           {"Content-Type": "application/json"})
        return connection


class Adapters(unittest.TestCase):
    def test_prompts_of_adapters_are_handed_over(self):
        with tempfile.TemporaryDirectory() as folder:
            path = write_adapter(pathlib.Path(folder) / "a", 1)
            flags = (*SIZES, "--enable-lora", "--enable-runtime-lora", "--served-model-name", "m",
                     "--lora-modules", f"a={path}")
            asked = [{**body, "model": "a"} for _, body in bodies()[:4]]
            with Pair(*flags) as server:
                expected = [answer(server, body) for body in asked]
                base = answer(server, {**asked[0], "model": "m"})
            self.assertNotEqual(base, expected[0])
            with Pair(*flags, *ROLES) as server:
                def loaded():
                    return count(server, "vllm:external_prefix_cache_hits_total", DECODE)

                self.assertEqual([answer(server, body) for body in asked], expected)
                self.assertEqual(loaded(), 5 * 288)  # choices read a prompt once
                self.assertEqual(answer(server, {**asked[0], "model": "m"}), base)
                self.assertEqual(loaded(), 6 * 288)
                # Other weights of the name, of which both engines have no block.
                write_adapter(path, 2)
                self.assertEqual(server.post("/v1/load_lora_adapter", {
                    "lora_name": "a", "lora_path": str(path), "load_inplace": True})[0], 200)
                other = answer(server, asked[0])
                self.assertNotIn(other, (base, expected[0]))
                self.assertEqual(loaded(), 7 * 288)
                self.assertNotIn("KV of request", server.log)


class Swaps(unittest.TestCase):
    def test_both_roles_are_replaced_and_hand_over_goes_on(self):
        with Pair(*SIZES, *ROLES) as server:
            whole = text_of(server, stream_of(1))
            expected = [answer(server, body) for _, body in bodies()]
            for swap in (1, 2, 3):  # the third prefill engine has the first one's address again
                before = engines_of(server)
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    answers, swapped = [], []

                    def at_20():
                        answers.extend(pool.submit(answer, server, body) for _, body in bodies())
                        swapped.append(server.command("swap"))

                    self.assertEqual(text_of(server, stream_of(1), at_20=at_20), whole)
                    self.assertEqual((swapped[0].returncode, swapped[0].stderr), (0, ""))
                    self.assertEqual([each.result() for each in answers], expected)
                self.assertFalse(set(engines_of(server).values()) & set(before.values()))
                for engine in (PREFILL, DECODE):
                    self.assertEqual(count(server, "tandem:engine_swaps_total", engine), swap)
                loaded = count(server, "vllm:external_prefix_cache_hits_total", DECODE)
                answer(server, {"prompt": prompt_of(60 + swap), "max_tokens": 2, "temperature": 0})
                self.assertEqual(count(server, "vllm:external_prefix_cache_hits_total", DECODE), loaded + 288)
            self.assertEqual(server.total("tandem:requests_resumed_total"), 0)
            for words, refusal in ((("--kv-transfer-config", "{}"), "choose the KV connector"),
                                   (("--no-enable-prefix-caching",), "from one prefix cache to another")):
                swap = server.command("swap", *words)
                self.assertEqual(swap.returncode, 2, swap.stdout)
                self.assertIn(refusal, swap.stderr)


class Deaths(unittest.TestCase):
    def test_nothing_is_lost_when_either_engine_dies(self):
        with Pair(*SIZES, *ROLES) as server:
            whole = text_of(server, stream_of(1))
            first = engines_of(server)
            # The one that decodes: its stream goes on, first where the prompt was computed.
            self.assertEqual(text_of(server, stream_of(1), at_20=lambda: os.kill(first[DECODE], signal.SIGKILL)), whole)
            wait_for(lambda: "engine 1 is back" in server.log, "it is started again")
            # The one that computes prompts, while some are under way.
            expected = [answer(server, body) for _, body in bodies()]
            second = engines_of(server)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = [pool.submit(answer, server, body) for _, body in bodies()]
                os.kill(second[PREFILL], signal.SIGKILL)
                self.assertEqual([each.result() for each in answers], expected)
                self.assertEqual(server.get("/health")[0], 200)
            wait_for(lambda: "engine 0 is back" in server.log, "it is started again")
            loaded = count(server, "vllm:external_prefix_cache_hits_total", DECODE)
            self.assertEqual(text_of(server, stream_of(50)), text_of(server, stream_of(50)))
            self.assertGreater(count(server, "vllm:external_prefix_cache_hits_total", DECODE), loaded)


if __name__ == "__main__":
    unittest.main(verbosity=2)
