#!/usr/bin/env python3
"""KV blocks in host memory behind a small KV cache: what is loaded gives the tokens that computing gives,
and is counted."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import Pair

SIZES = ("--block-size", 32, "--max-model-len", 160, "--num-gpu-blocks-override", 6)
OFFLOADING = json.dumps({"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
                         "kv_connector_extra_config": {"cpu_bytes_to_use": 10_000_000}})


def prompt_of(number):
    return [(7 * number + i * i) % 200 + 1 for i in range(140)]


def complete(server, number):
    status, body = server.post("/v1/completions", {
        "model": str(pair.MODEL), "prompt": prompt_of(number), "max_tokens": 8, "temperature": 0, "ignore_eos": True,
        "logprobs": 1})
    assert status == 200, body
    choice = json.loads(body)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def rounds(server):
    return [complete(server, number) for _ in range(2) for number in range(3)]


class Offloading(unittest.TestCase):
    def test_what_comes_from_host_memory_changes_no_bit(self):
        with Pair(*SIZES) as server:
            computed = rounds(server)
            self.assertEqual(server.total("vllm:external_prefix_cache_queries_total"), 0)
        with Pair(*SIZES, "--kv-transfer-config", OFFLOADING) as server:
            for name in ("kv_offload_load_bytes_total", "num_requests_kv_fetch_by_stage"):
                pair.wait_for(lambda: any(name in series for series in server.metrics()),
                              "the series are there before the first request")
            self.assertEqual(rounds(server), computed)
            # Each prompt takes all 5 blocks of the cache, so its second time finds 128 tokens in host memory alone.
            self.assertEqual(server.total("vllm:external_prefix_cache_hits_total"), 3 * 128)
            self.assertGreater(server.total("vllm:external_prefix_cache_queries_total"), 3 * 128)
            self.assertEqual(server.total("vllm:prompt_tokens_cached_total"), 3 * 128)
            block_bytes = server.total("vllm:kv_offload_store_bytes_total") / (3 * 4)
            self.assertEqual(server.total("vllm:kv_offload_load_bytes_total"), 3 * 4 * block_bytes)
            self.assertEqual(server.total("vllm:kv_offload_load_size_count"), 3)
            self.assertEqual(server.total("vllm:kv_offload_size_count"), 6)
            self.assertGreater(server.total("vllm:kv_offload_load_time_total"), 0)
            self.assertEqual(server.total("vllm:kv_offload_config_info"), 1)
            self.assertEqual(server.total("vllm:prompt_tokens_cached_by_source_total", source="host"), 3 * 128)
            self.assertEqual(server.total("vllm:num_requests_kv_fetch_by_stage", stage="in_progress"), 0)

    def test_ranks_have_the_bits_of_one_and_as_many_hits(self):
        with Pair(*SIZES, "--threads", 1) as server:
            computed = rounds(server)
        sizes = []
        for flags in (("-tp", 2), ("-pp", 2), ("-tp", 2, "-pp", 2)):
            with self.subTest(flags), Pair(*SIZES, *flags, "--threads", 1, "--kv-transfer-config", OFFLOADING) as server:
                self.assertEqual(rounds(server), computed)
                self.assertEqual(server.total("vllm:external_prefix_cache_hits_total"), 3 * 128)
                self.assertEqual(server.total("vllm:kv_offload_load_size_count"), 3)
                sizes.append(server.total("vllm:kv_offload_load_bytes_total"))
        self.assertEqual(sizes, sizes[:1] * 3)

    # With random weights.
    def test_latents_windows_and_shared_layers(self):
        for name, flags in (("deepseek_v2", ()), ("deepseek_v2", ("-tp", 2, "-pp", 2)), ("mistral_swa", ())):
            config = json.loads((pair.ROOT / "tests/golden/models" / name / "config.json").read_text())
            del config["vocab_size"]
            dummy = (*SIZES, "--threads", 1, "--load-format", "dummy", "--hf-overrides", json.dumps(config))
            with self.subTest(name, flags=flags):
                with Pair(*dummy) as server:
                    computed = rounds(server)
                with Pair(*dummy, *flags, "--kv-transfer-config", OFFLOADING) as server:
                    self.assertEqual(rounds(server), computed)
                    self.assertEqual(server.total("vllm:external_prefix_cache_hits_total"), 3 * 128)

    def test_an_engine_that_starts_again_finds_its_blocks_in_files(self):
        with tempfile.TemporaryDirectory(prefix="tandem-kv-") as folder:
            tier = {"type": "fs", "root_dir": folder, "evictor_args": {"max_storage_size_gb": 0.1}}
            config = json.dumps({"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {
                "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 50_000_000, "secondary_tiers": [tier]}})
            with Pair(*SIZES, "--kv-transfer-config", config) as server:
                computed = [complete(server, number) for number in range(3)]
                pair.wait_for(lambda: len(list(pathlib.Path(folder).rglob("*.bin"))) == 3 * 4, "all blocks are in files")
            # Ranks divide a block otherwise: their files are others.
            ranks = ("-tp", 2, "--threads", 1)
            with Pair(*SIZES, *ranks, "--kv-transfer-config", config) as server:
                self.assertEqual([complete(server, number) for number in range(3)], computed)
                self.assertEqual(server.total("vllm:external_prefix_cache_hits_total"), 0)
                pair.wait_for(lambda: len(list(pathlib.Path(folder).rglob("*.bin"))) == 6 * 4, "all blocks are in files")
            with Pair(*SIZES, *ranks, "--kv-transfer-config", config) as server:
                self.assertEqual([complete(server, number) for number in range(3)], computed)
                self.assertEqual(server.total("vllm:external_prefix_cache_hits_total"), 3 * 128)
            with Pair(*SIZES, "--kv-transfer-config", config) as server:
                self.assertEqual([complete(server, number) for number in range(3)], computed)
                self.assertEqual(server.total("vllm:external_prefix_cache_hits_total"), 3 * 128)
                self.assertGreater(server.total("vllm:kv_offload_tiering_read_bytes_total", tier="1:fs"), 0)
                self.assertEqual(server.total("vllm:prompt_tokens_cached_by_source_total", source="disk"), 3 * 128)
                self.assertEqual(server.total("vllm:kv_offload_tiering_promotion_job_failures_total"), 0)

    def test_a_connector_that_is_not_built_is_refused_by_name(self):
        with Pair("--kv-transfer-config", '{"kv_connector": "NixlConnector"}', wait=False) as server:
            self.assertNotEqual(server.process.wait(pair.LIMIT), 0)
            self.assertIn("NixlConnector", server.log_path.read_text())


if __name__ == "__main__":
    unittest.main()
