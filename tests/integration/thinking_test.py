#!/usr/bin/env python3
"""thinking_token_budget over a real pair: the end of the reasoning is forced, and nothing else changes."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair

FLAGS = ("--served-model-name", "m", "--max-model-len", "512", "--kv-cache-memory-bytes", str(32 << 20))
# The shipped model does not reason, so words of its stories stand for the marks.
BEGIN, END = " fox", " The end of it."
CONFIG = ("--reasoning-config", json.dumps({"reasoning_start_str": BEGIN, "reasoning_end_str": END}))
PROMPT = "Once there was a little fox"


def tokens_of(server, text):
    return json.loads(server.post("/tokenize", {"model": "m", "prompt": text, "add_special_tokens": False})[1])["tokens"]


def generate(server, **fields):
    status, reply = server.post("/v1/completions", {"model": "m", "prompt": PROMPT, "temperature": 0, "max_tokens": 24,
                                                    "ignore_eos": True, "return_token_ids": True, **fields})
    assert status == 200, reply
    return json.loads(reply)["choices"][0]["token_ids"]


class ThinkingBudget(unittest.TestCase):
    def test_the_end_is_forced_when_the_budget_is_used_up(self):
        answers = []
        for flags in ((), ("--async-scheduling",)):
            with Pair(*FLAGS, *CONFIG, *flags) as server:
                end = tokens_of(server, END)
                self.assertEqual(tokens_of(server, PROMPT)[-1:], tokens_of(server, BEGIN))
                free = generate(server)
                self.assertEqual(generate(server, thinking_token_budget=-1), free)
                self.assertEqual(generate(server, thinking_token_budget=1000), free)
                for budget in (0, 1, 2, 7):
                    answer = generate(server, thinking_token_budget=budget)
                    self.assertEqual(answer[:budget + len(end)], free[:budget] + end)
                    self.assertEqual(len(answer), 24)
                    answers.append(answer)
                sampled = {"temperature": 1, "seed": 3, "logprobs": 1}
                self.assertEqual(generate(server, thinking_token_budget=3, **sampled)[3:3 + len(end)], end)
        self.assertEqual(answers[:4], answers[4:])

    def test_a_budget_without_marks_is_refused(self):
        with Pair(*FLAGS) as server:
            status, reply = server.post("/v1/completions", {"model": "m", "prompt": PROMPT, "thinking_token_budget": 5})
            self.assertEqual(status, 400)
            self.assertIn("reasoning_config is not configured", json.loads(reply)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
