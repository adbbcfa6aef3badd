#!/usr/bin/env python3
"""A model that makes NaN of one token: a request with that token ends with an error and is counted, the
requests beside it get the bits they get alone."""
import json
import pathlib
import shutil
import struct
import sys
import tempfile
import threading
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
from pair import Pair, wait_for

MODEL = TESTS / "golden" / "models" / "llama_plain"  # its head does not share the embedding
TOKENIZER = TESTS / "golden" / "api" / "model"
POISON = 77
FLAGS = ("--served-model-name", "m", "--max-model-len", "256", "--kv-cache-memory-bytes", str(16 << 20))


def poisoned_model(folder):
    """A copy whose embedding of POISON is NaN."""
    model = pathlib.Path(folder) / "model"
    shutil.copytree(MODEL, model)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, model)
    path = model / "model.safetensors"
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    header_bytes = struct.unpack("<Q", data[:8])[0]
    tensor = json.loads(data[8:8 + header_bytes])["model.embed_tokens.weight"]
    assert tensor["dtype"] == "BF16", tensor
    row_bytes = tensor["shape"][1] * 2
    begin = 8 + header_bytes + tensor["data_offsets"][0] + POISON * row_bytes
    data[begin:begin + row_bytes] = b"\xc0\x7f" * tensor["shape"][1]
    path.write_bytes(data)
    return model


def ask(server, prompt, **fields):
    return server.post("/v1/completions", {
        "model": "m", "prompt": prompt, "max_tokens": 8, "temperature": 0, "return_token_ids": True, **fields})


def healthy(server, seed, **fields):
    """Tokens and logprobs of a request that never meets the poison."""
    status, body = ask(server, [3 + seed, 20, 30, 40 + seed], max_tokens=100, ignore_eos=True, temperature=0.9,
                       seed=seed, logprobs=2, logit_bias={str(POISON): -100}, **fields)
    assert status == 200, body
    choice = json.loads(body)["choices"][0]
    assert POISON not in choice["token_ids"]
    return choice["token_ids"], choice["logprobs"]


class Corrupted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tandem-test-")
        self.addCleanup(folder.cleanup)
        self.server = Pair(*FLAGS, model=poisoned_model(folder.name))
        self.addCleanup(self.server.__exit__, False)

    def test_only_the_request_with_nan_ends_with_an_error(self):
        alone = [healthy(self.server, seed) for seed in range(4)]
        self.assertEqual(self.server.total("vllm:corrupted_requests_total"), 0)

        beside = [None] * 4

        def run(seed):
            beside[seed] = healthy(self.server, seed)
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
        before = self.server.total("vllm:generation_tokens_total")
        for thread in threads:
            thread.start()
        wait_for(lambda: self.server.total("vllm:generation_tokens_total") > before, "the others run")
        status, body = ask(self.server, [5, POISON, 6, 7])
        for thread in threads:
            thread.join()

        self.assertEqual(status, 500)
        self.assertEqual(json.loads(body)["error"]["type"], "InternalServerError")
        self.assertEqual(beside, alone)
        self.assertEqual(self.server.total("vllm:corrupted_requests_total"), 1)
        self.assertEqual(self.server.total("vllm:request_success_total", finished_reason="error"), 1)
        self.server.wait_for_log("values that are not finite")

    def test_what_nan_left_in_the_cache_is_not_used_again(self):
        prefix = list(range(100, 164))  # two blocks before the poison
        status, _ = ask(self.server, prefix + [POISON, 5])
        self.assertEqual(status, 500)
        self.assertEqual(ask(self.server, prefix + [6, 5])[0], 200)
        self.assertEqual(ask(self.server, prefix + [POISON, 5])[0], 500)
        self.assertEqual(self.server.total("vllm:corrupted_requests_total"), 2)

    def test_a_stream_ends_with_an_error_event_when_the_poison_is_drawn(self):
        status, body = ask(self.server, [5, 6, 7], stream=True, logit_bias={str(POISON): 100})
        self.assertEqual(status, 200)
        events = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual(json.loads(events[0])["choices"][0]["token_ids"], [POISON])
        self.assertEqual(json.loads(events[-2])["error"]["code"], 500)
        self.assertEqual(events[-1], "[DONE]")

    def test_prompt_logprobs_of_nan_are_an_error(self):
        self.assertEqual(ask(self.server, [5, 6, POISON], prompt_logprobs=1)[0], 500)
        self.assertEqual(self.server.total("vllm:corrupted_requests_total"), 1)

    def test_a_failed_choice_ends_the_others(self):
        self.assertEqual(ask(self.server, [POISON, 6], n=3, temperature=1)[0], 500)
        ends = {reason: self.server.total("vllm:request_success_total", finished_reason=reason)
                for reason in ("error", "abort", "stop", "length")}
        self.assertEqual(ends, {"error": 1, "abort": 2, "stop": 0, "length": 0})


if __name__ == "__main__":
    unittest.main(verbosity=2)
