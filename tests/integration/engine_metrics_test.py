#!/usr/bin/env python3
"""What /metrics shows of engines: requests that wait for a stopped one, facts about its cache, its process."""
import os
import pathlib
import re
import signal
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, ROOT, Pair, wait_for

WAITING = "vllm:num_requests_waiting"


def cache_labels(server):
    facts = wait_for(lambda: next((line for line in server.metrics()
                                   if line.startswith("vllm:cache_config_info") and "cache_dtype" in line), None),
                     "the engine has sent its facts")
    return dict(re.findall(r'(\w+)="([^"]*)"', facts))


class Engine(unittest.TestCase):
    def test_requests_wait_from_the_moment_they_are_sent(self):
        with Pair("--served-model-name", "m") as server:
            engine = server.pid_of("tandem-engine-core")
            os.kill(engine, signal.SIGSTOP)
            body = {"model": "m", "prompt": "one", "max_tokens": 2}
            replies = []
            threads = [threading.Thread(target=lambda: replies.append(server.post("/v1/completions", body)[0]))
                       for _ in range(2)]
            try:
                for thread in threads:
                    thread.start()
                wait_for(lambda: server.total(WAITING) == 2, "both wait")
                self.assertEqual(server.total("vllm:num_requests_running"), 0)
                self.assertEqual(server.total("vllm:num_requests_waiting_by_reason", reason="capacity"), 2)
                self.assertEqual(server.total("tandem:queued_requests"), 2)
                self.assertGreater(server.total("tandem:queued_prompt_tokens"), 0)
            finally:
                os.kill(engine, signal.SIGCONT)
            for thread in threads:
                thread.join(LIMIT)
            self.assertEqual(replies, [200, 200])
            wait_for(lambda: server.total(WAITING) == 0, "none waits")

    def test_the_cache_of_states_says_so(self):
        folder = ROOT / "tests" / "golden" / "models" / "qwen3_5_text"
        for flags, mode in (((), "align"), (("--no-enable-prefix-caching",), "none")):
            with Pair("--block-size", "64", "--tokenizer", MODEL, *flags, model=folder) as server:
                labels = cache_labels(server)
                self.assertEqual((labels["mamba_cache_mode"], labels["mamba_block_size"]), (mode, "64"))
                self.assertEqual((labels["mamba_cache_dtype"], labels["mamba_ssm_cache_dtype"]), ("float32", "float32"))
                self.assertEqual((labels["is_attention_free"], labels["enable_prefix_caching"]),
                                 ("False", str(mode == "align")))

    def test_the_cache_has_vllms_labels_and_the_process_its_numbers(self):
        with Pair("--served-model-name", "m", "--max-num-seqs", "7", "--block-size", "64") as server:
            labels = cache_labels(server)
            self.assertGreater(len(labels), 30)
            self.assertEqual((labels["mamba_cache_mode"], labels["mamba_block_size"]), ("none", "None"))
            self.assertEqual((labels["block_size"], labels["user_specified_block_size"]), ("64", "True"))
            self.assertEqual((labels["enable_prefix_caching"], labels["sliding_window"]), ("True", "None"))
            self.assertEqual(labels["engine"], "0")
            self.assertNotIn("model_name", labels)
            self.assertEqual(len([line for line in server.metrics() if line.startswith("vllm:cache_config_info")]), 1)
            self.assertEqual(server.total("tandem:max_num_seqs"), 7)
            resident = wait_for(lambda: server.total("tandem:engine_process_resident_memory_bytes"), "it has replied")
            status = pathlib.Path(f"/proc/{server.pid_of('tandem-engine-core')}/status").read_text()
            now = 1024 * int(re.search(r"VmRSS:\s+(\d+)", status).group(1))
            self.assertGreater(resident, now / 4)
            self.assertLess(resident, now * 4)
            self.assertGreater(server.total("tandem:engine_process_cpu_seconds_total"), 0)
            phases = {re.search('phase="([^"]*)"', line).group(1) for line in server.metrics()
                      if line.startswith("tandem:engine_startup_seconds{")}
            self.assertLessEqual({"device", "weights mapped", "weights packed", "KV cache"}, phases)


if __name__ == "__main__":
    unittest.main(verbosity=2)
