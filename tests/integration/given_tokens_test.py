#!/usr/bin/env python3
"""Tokens that a request to /inference/v1/generate gives: those whose logprobs it wants at each place of its prompt, and
those that it wants as outputs."""
import base64
import json
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair

PROMPT = [5, 300, 41, 7, 300, 41, 99, 1000, 12, 6, 7]


def read_npy(text):
    """The rows of a matrix of float32, as numpy.save writes it."""
    data = base64.b64decode(text)
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    size = struct.unpack("<H", data[8:10])[0]
    assert (10 + size) % 64 == 0
    header = eval(data[10:10 + size], {"__builtins__": {}})
    assert header["descr"] == "<f4" and header["fortran_order"] is False
    rows, columns = header["shape"]
    values = struct.unpack(f"<{rows * columns}f", data[10 + size:])
    return [list(values[i * columns:(i + 1) * columns]) for i in range(rows)]


class GivenTokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A prompt takes several steps.
        cls.server = Pair("--enable-trace-replay", "--max-logprobs", "-1", "--max-num-batched-tokens", "8", "--max-num-seqs", "4")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def generate(self, tokens, **params):
        status, body = self.server.post("/inference/v1/generate", {
            "token_ids": tokens, "sampling_params": {"temperature": 0, **params}})
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def all_logprobs(self, tokens):
        """Of each place but the last: token id → logprob."""
        response = self.generate(tokens, max_tokens=1, prompt_logprobs=-1)
        return [{int(id): entry["logprob"] for id, entry in place.items()} for place in response["prompt_logprobs"][1:]]

    def assert_scores(self, rows, ids, places):
        self.assertEqual([len(row) for row in rows], [max(map(len, ids))] * len(ids))
        for row, chosen, place in zip(rows, ids, places, strict=True):
            for i, score in enumerate(row):
                if i < len(chosen) and chosen[i] >= 0:
                    self.assertAlmostEqual(score, place[chosen[i]], places=3)
                else:
                    self.assertEqual(score, float("-inf"))

    def test_chosen_tokens_are_scored_at_each_place(self):
        places = self.all_logprobs(PROMPT)
        ids = [[7 * i + j for j in range(1 + i % 3)] for i in range(len(PROMPT) - 1)]
        ids[2] = [9, -1, 4]
        self.generate(PROMPT, max_tokens=1)  # its prefix is cached; scores are computed in any case
        for params in ({}, {"prompt_logprobs": 2}, {"n": 2, "temperature": 1}):
            response = self.generate(PROMPT, max_tokens=2, prompt_logprob_token_ids=ids, **params)
            self.assert_scores(read_npy(response["prompt_token_id_logprobs"]), ids, places)
            self.assertEqual(response["prompt_logprobs"] is None, "prompt_logprobs" not in params)

    def test_chosen_tokens_are_scored_from_a_place_on(self):
        response = self.generate(PROMPT, max_tokens=1, prompt_logprob_token_ids=[[3, 8]] * 2, prompt_logprob_start=8)
        rows = read_npy(response["prompt_token_id_logprobs"])
        self.assert_scores(rows, [[3, 8]] * 2, self.all_logprobs(PROMPT)[8:])

    def test_without_chosen_tokens_there_are_no_scores(self):
        self.assertIsNone(self.generate(PROMPT, max_tokens=1)["prompt_token_id_logprobs"])

    def test_outputs_that_are_given_have_the_logprobs_of_the_model(self):
        end = self.server.post("/tokenize", {"prompt": "<|im_end|>", "add_special_tokens": False})
        given = [17, *json.loads(end[1])["tokens"], 900, 17, 2, 41]
        response = self.generate(PROMPT, trace_decode_token_ids=given, logprobs=0, stop_token_ids=[900], temperature=0.7)
        [choice] = response["choices"]
        self.assertEqual((choice["token_ids"], choice["finish_reason"]), (given, "length"))
        places = self.all_logprobs(PROMPT + given)[len(PROMPT) - 1:]
        for token, entry, place in zip(given, choice["logprobs"]["content"], places, strict=True):
            self.assertEqual(entry["token_id"], token)
            self.assertAlmostEqual(entry["logprob"], place[token], places=3)

    def test_fewer_outputs_than_are_given(self):
        [choice] = self.generate(PROMPT, trace_decode_token_ids=[17, 900, 2], max_tokens=2)["choices"]
        self.assertEqual(choice["token_ids"], [17, 900])


class WithDrafts(unittest.TestCase):
    def test_drafts_are_held_to_the_outputs_that_are_given(self):
        drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
        with Pair("--enable-trace-replay", "--speculative-config", json.dumps(drafts)) as server:
            given = [41, 99, 1000, 12, 5, 300, 41, 7, 300, 41, 99, 2]
            status, body = server.post("/inference/v1/generate", {
                "token_ids": PROMPT, "sampling_params": {"trace_decode_token_ids": given}})
            self.assertEqual(status, 200, body)
            self.assertEqual(json.loads(body)["choices"][0]["token_ids"], given)


class WithoutTheFlag(unittest.TestCase):
    def test_outputs_are_not_taken(self):
        with Pair() as server:
            status, body = server.post("/inference/v1/generate", {
                "token_ids": PROMPT, "sampling_params": {"trace_decode_token_ids": [17]}})
            self.assertEqual(status, 400, body)
            self.assertIn(b"--enable-trace-replay", body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
