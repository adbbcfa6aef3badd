#!/usr/bin/env python3
"""The shipped model with integer weights and an integer KV cache still answers as it does in bfloat16."""
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir

CASES = json.loads((MODEL / "greedy_answers.json").read_text())


def answers(*flags):
    """The answers to the ten questions whose bfloat16 answers ship with the model."""
    with Pair("--served-model-name", "m", *flags) as server:
        choices = []
        for case in CASES:
            status, body = server.post("/v1/chat/completions", {
                "model": "m", "messages": case["messages"], "temperature": 0, "max_tokens": 400})
            assert status == 200, body
            choices += json.loads(body)["choices"]
        return choices


class Quantized(unittest.TestCase):
    def check(self, least_equal, *flags):
        found = answers(*flags)
        equal = sum(answer["message"]["content"] == case["text"] for answer, case in zip(found, CASES))
        print(*flags, f"{equal} of {len(CASES)} answers are bfloat16's")
        for answer in found:
            self.assertEqual(answer["finish_reason"], "stop", answer)
        self.assertGreaterEqual(equal, least_equal, found)

    def test_int8(self):
        self.check(7, "--quantization", "int8")

    def test_int4(self):
        self.check(3, "--quantization", "int4")

    def test_int4_in_wide_groups(self):
        self.check(2, "--quantization", "int4-g128")

    def test_int8_kv_cache(self):
        self.check(8, "--kv-cache-dtype", "int8")

    def test_int4_kv_cache(self):
        self.check(8, "--kv-cache-dtype", "int4")

    def test_fp8_kv_cache(self):
        self.check(8, "--kv-cache-dtype", "fp8")

    def test_unknown_names_list_the_known(self):
        for flag, name, word in (("--quantization", "hqq", "int8 int4"),
                                 ("--kv-cache-dtype", "fp8_e5m2", "auto int8 int4 fp8")):
            run = subprocess.run([bin_dir() / "tandem-engine-core", MODEL, flag, name],
                                 capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(run.returncode, 2)
            self.assertIn(word, run.stderr + run.stdout)


if __name__ == "__main__":
    unittest.main()
