#!/usr/bin/env python3
"""What the pair says of its KV cache under traffic whose effects are known to the block: counts in
/metrics, residency of blocks, and where routers find the events."""
import json
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import Pair, wait_for

BLOCK = 32
SIZES = ("--block-size", BLOCK, "--max-model-len", 160)


def complete(server, *prompts, max_tokens=2):
    """Completions of lists of token ids; returns how many tokens came."""
    status, body = server.post("/v1/completions", {
        "model": str(pair.MODEL), "prompt": list(prompts), "max_tokens": max_tokens, "temperature": 0,
        "ignore_eos": True})
    assert status == 200, body
    return json.loads(body)["usage"]["completion_tokens"]


def prompt_of(number, length=70):
    return [100 + number] * length


class Counts(unittest.TestCase):
    def test_queries_and_hits_are_the_tokens_looked_up_and_found(self):
        with Pair(*SIZES) as server:
            names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
                     "vllm:prompt_tokens_cached_total")
            def counts():
                return [server.total(name) for name in names]
            complete(server, prompt_of(1))
            self.assertEqual(counts(), [70, 0, 0])
            complete(server, prompt_of(1))
            self.assertEqual(counts(), [140, 64, 64])
            # A full hit leaves the last token to compute, so its block is not one.
            complete(server, prompt_of(1, 64))
            self.assertEqual(counts(), [204, 96, 96])
            complete(server, prompt_of(1, 40) + [7] * 30)
            self.assertEqual(counts(), [274, 128, 128])
            self.assertEqual(server.total("vllm:prompt_tokens_cached_by_source_total", source="device"), 128)
            # What was looked up under the older names is the same.
            self.assertEqual(server.total("vllm:gpu_prefix_cache_queries_total"), 274)
            self.assertEqual(server.total("vllm:gpu_prefix_cache_hits_total"), 128)

    def test_without_prefix_caching_nothing_is_looked_up(self):
        with Pair(*SIZES, "--no-enable-prefix-caching") as server:
            complete(server, prompt_of(1))
            complete(server, prompt_of(1))
            self.assertEqual(server.total("vllm:prefix_cache_queries_total"), 0)
            self.assertEqual(server.total("vllm:prefix_cache_hits_total"), 0)

    def test_two_requests_that_do_not_fit_preempt_once(self):
        # 5 blocks; each request ends with 4. The one admitted last gives way when the sixth is needed
        # and fits again only when the other has ended.
        with Pair(*SIZES, "--num-gpu-blocks-override", 6) as server:
            self.assertEqual(complete(server, prompt_of(1, 30), prompt_of(2, 30), max_tokens=80), 160)
            self.assertEqual(server.total("vllm:num_preemptions_total"), 1)
            self.assertEqual(server.total("vllm:request_num_preemptions_sum"), 1)
            self.assertEqual(server.total("vllm:request_num_preemptions_count"), 2)
            # Looked up once each: what a resumed request finds of its own does not count.
            self.assertEqual(server.total("vllm:prefix_cache_queries_total"), 60)
            self.assertEqual(server.total("vllm:prefix_cache_hits_total"), 0)
            self.assertEqual(server.total("vllm:prompt_tokens_total"), 60)
            self.assertEqual(server.total("vllm:generation_tokens_total"), 160)
            for gauge in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
                wait_for(lambda: server.total(gauge) == 0, f"{gauge} back at 0")

    def test_usage_counts_held_blocks_only(self):
        with Pair(*SIZES, "--num-gpu-blocks-override", 6) as server:
            seen = set()
            done = threading.Event()
            def run():
                complete(server, prompt_of(1, 65), max_tokens=31)
                done.set()
            wait_for(lambda: server.total("vllm:kv_cache_usage_perc") == 0, "nothing held")
            while not seen - {0}:
                done.clear()
                thread = threading.Thread(target=run)
                thread.start()
                while not done.is_set():
                    seen.add(server.total("vllm:kv_cache_usage_perc"))
                thread.join()
            self.assertEqual(seen - {0}, {3 / 5})
            wait_for(lambda: server.total("vllm:kv_cache_usage_perc") == 0, "nothing held")


class Residency(unittest.TestCase):
    def counts(self, server):
        return [server.total(f"vllm:kv_block_{name}_seconds_count")
                for name in ("lifetime", "idle_before_evict", "reuse_gap")]

    def test_every_life_of_a_block_is_told_once_when_it_ends(self):
        with Pair(*SIZES, "--num-gpu-blocks-override", 9, "--kv-cache-metrics",
                  "--kv-cache-metrics-sample", 1) as server:
            # Each prompt takes 3 of the 8 blocks: two are kept for reuse, the third is the next
            # one's first. All 8 are in use after the fourth.
            for number in range(3):
                complete(server, prompt_of(number))
            self.assertEqual(self.counts(server), [2, 2, 0])
            for number in range(3, 5):
                complete(server, prompt_of(number))
            self.assertEqual(self.counts(server), [3 * 5 - 8, 3 * 5 - 8, 0])
            # Three hits of two blocks; each time a third is taken.
            for _ in range(3):
                complete(server, prompt_of(4))
            self.assertEqual(self.counts(server), [3 * 5 - 8 + 3, 3 * 5 - 8 + 3, 0])
            # Their gaps are reported when they are evicted: two for each.
            for number in range(5, 9):
                complete(server, prompt_of(number))
            self.assertEqual(self.counts(server), [3 * 9 - 8 + 3, 3 * 9 - 8 + 3, 4])

    def test_series_exist_only_when_asked_for(self):
        with Pair(*SIZES) as server:
            complete(server, prompt_of(1))
            self.assertEqual([s for s in server.metrics() if "kv_block" in s], [])


class Events(unittest.TestCase):
    def test_sources_are_the_endpoints_as_they_came_to_be(self):
        config = {"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:*", "topic": "kv@pod@tiny"}
        with Pair(*SIZES, "--kv-events-config", json.dumps(config)) as server:
            status, body = server.get("/kv_event_sources")
            self.assertEqual(status, 200)
            source = json.loads(body)["0"]
            self.assertRegex(source["endpoint"], r"^tcp://127\.0\.0\.1:[1-9][0-9]+$")
            self.assertEqual(source["topic"], "kv@pod@tiny")
            self.assertTrue(source["enable_kv_cache_events"])
            self.assertIsNone(source["replay_endpoint"])

    def test_without_events_there_are_no_sources(self):
        with Pair(*SIZES) as server:
            self.assertEqual(server.get("/kv_event_sources"), (200, b"{}"))


if __name__ == "__main__":
    unittest.main()
