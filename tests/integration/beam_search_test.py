#!/usr/bin/env python3
"""Beam search over a real pair, beside the same search done by a client, one token at a time."""
import http.client
import json
import pathlib
import sys
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import MODEL, Pair, wait_for

FLAGS = ("--served-model-name", "m", "--max-model-len", "512", "--kv-cache-memory-bytes", str(32 << 20))
PROMPTS = ("Once upon a time", "The fox saw a")


def ask(server, path="/v1/completions", **fields):
    status, reply = server.post(path, {"model": "m", **fields})
    assert status == 200, reply
    return json.loads(reply)


def token_ids(server, prompt):
    status, reply = server.post("/tokenize", {"model": "m", "prompt": prompt})
    assert status == 200, reply
    return json.loads(reply)["tokens"]


def end_ids():
    config = json.loads((MODEL / "generation_config.json").read_text())
    ids = config["eos_token_id"]
    return set(ids if isinstance(ids, list) else [ids])


def search(server, prompt, width, max_tokens, penalty):
    """[(token ids, score)] of the best, by vLLM's definition."""
    ends = end_ids()
    live, found = [((), 0.0)], []
    for _ in range(max_tokens):
        longer = []
        for tokens, total in live:
            answer = ask(server, prompt=prompt + list(tokens), max_tokens=1, temperature=0, logprobs=2 * width,
                         return_tokens_as_token_ids=True)
            for name, logprob in answer["choices"][0]["logprobs"]["top_logprobs"][0].items():
                token = int(name.split(":")[1])
                (found if token in ends else longer).append(((*tokens, token), total + logprob))
        live = sorted(longer, key=lambda beam: -beam[1])[:width]

    def score(beam):
        tokens, total = beam
        return total / len(tokens) ** penalty
    best = sorted(found + live, key=score, reverse=True)[:width]
    return [(list(tokens), total) for tokens, total in best]


class BeamSearch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair(*FLAGS).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def test_the_server_finds_what_a_client_finds(self):
        for width, max_tokens, penalty in ((1, 6, 1.0), (3, 6, 1.0), (4, 5, -1.0), (2, 8, 2.0)):
            prompts = [token_ids(self.server, prompt) for prompt in PROMPTS]
            answer = ask(self.server, prompt=prompts, use_beam_search=True, n=width, max_tokens=max_tokens,
                         length_penalty=penalty, logprobs=2, return_token_ids=True)
            choices = answer["choices"]
            self.assertEqual([choice["index"] for choice in choices], list(range(2 * width)))
            num_tokens = 0
            for i, prompt in enumerate(prompts):
                for choice, (tokens, total) in zip(choices[i * width:], search(self.server, prompt, width, max_tokens,
                                                                               penalty)):
                    self.assertEqual(choice["token_ids"], tokens)
                    self.assertAlmostEqual(sum(choice["logprobs"]["token_logprobs"]), total, places=3)
                    self.assertTrue(all(2 <= len(top) <= 3 for top in choice["logprobs"]["top_logprobs"]))
                    self.assertEqual(choice["finish_reason"], "stop" if tokens[-1] in end_ids() else "length")
                    num_tokens += len(tokens)
            self.assertEqual(answer["usage"]["completion_tokens"], num_tokens)
            self.assertEqual(answer["usage"]["prompt_tokens"], sum(map(len, prompts)))

    def test_only_allowed_tokens_continue_a_beam(self):
        allowed = [79, 335, 400]
        answer = ask(self.server, prompt="Once upon a time", use_beam_search=True, n=3, max_tokens=4, return_token_ids=True,
                     allowed_token_ids=allowed, logprobs=1)
        self.assertEqual(len(answer["choices"]), 3)
        for choice in answer["choices"]:
            self.assertEqual(len(choice["token_ids"]), 4)
            self.assertLessEqual(set(choice["token_ids"]), set(allowed))
        # Of one token there is one output.
        [choice] = ask(self.server, prompt="Once upon a time", use_beam_search=True, n=3, max_tokens=4, return_token_ids=True,
                       allowed_token_ids=[79])["choices"]
        self.assertEqual(choice["token_ids"], [79] * 4)

    def test_a_text_to_stop_at_cuts_the_choices_that_have_it(self):
        fields = {"prompt": "Once upon a time", "use_beam_search": True, "n": 3, "max_tokens": 8}
        whole = ask(self.server, **fields)["choices"]
        text = whole[0]["text"]
        stop = text[len(text) // 2:][:3]
        for before, after in zip(whole, ask(self.server, **fields, stop=stop)["choices"]):
            self.assertEqual(after["text"], before["text"].split(stop)[0])
            self.assertEqual(after["stop_reason"], stop if stop in before["text"] else before["stop_reason"])

    def test_what_a_search_does_not_follow_has_no_effect_and_a_warning(self):
        fields = {"prompt": "Once upon a time", "use_beam_search": True, "n": 2, "max_tokens": 5}
        plain = ask(self.server, **fields)["choices"]
        self.assertEqual(ask(self.server, **fields, min_tokens=2, presence_penalty=2, logit_bias={"79": 100}, prompt_logprobs=1,
                             structured_outputs={"regex": "q+"})["choices"], plain)
        self.server.wait_for_log("structured_outputs have no effect beside it")

    def test_a_chat_has_the_best_beams_as_choices(self):
        answer = ask(self.server, "/v1/chat/completions", messages=[{"role": "user", "content": "Tell me a story."}],
                     use_beam_search=True, n=2, max_tokens=5)
        texts = [choice["message"]["content"] for choice in answer["choices"]]
        self.assertEqual(len(set(texts)), 2)
        self.assertTrue(all(texts))

    def test_texts_in_which_calls_are_looked_for_are_counted(self):
        def looked():
            return self.server.total("vllm:tool_call_parser_invocations_total", mode="non_streaming",
                                     request_type="chat_completions")
        before = looked()
        ask(self.server, "/v1/chat/completions", messages=[{"role": "user", "content": "Tell me a story."}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            use_beam_search=True, n=2, max_tokens=5)
        self.assertEqual(looked(), before + 2)

    def test_a_client_that_goes_away_ends_the_search(self):
        address = urllib.parse.urlsplit(self.server.url)
        connection = http.client.HTTPConnection(address.hostname, address.port)
        body = json.dumps({"model": "m", "prompt": "Once", "use_beam_search": True, "n": 8, "max_tokens": 400,
                           "ignore_eos": True})
        def ended(reason):
            return self.server.total("vllm:request_success_total", finished_reason=reason)
        before = ended("length")
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        wait_for(lambda: ended("length") > before, "the search runs")
        connection.close()
        wait_for(lambda: ended("abort") > 0, "the search ends")
        steps = ended("length")
        ask(self.server, prompt="Once", max_tokens=2, ignore_eos=True)
        self.assertEqual(ended("length"), steps + 1)


if __name__ == "__main__":
    unittest.main()
