#!/usr/bin/env python3
"""A model split over processes: the same responses as from one, and what happens when one of them dies or hangs.

Usage: workers_test.py [unittest arguments]
"""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from mixed_load import Answer
from pair import LIMIT, Pair, bin_dir, child_processes, is_alive, programs_with_engine, wait_for
from peft_adapter import matrix_shapes, write_adapter
from speculation_test import HEADS, STORY, bodies, choices, text_of

ONE_THREAD = ("--threads", "1")
STREAM = {"prompt": STORY, "max_tokens": 300, "temperature": 0.6, "seed": 5, "ignore_eos": True, "stream": True}


def workers_of(engine):
    """{command name: pid} of an engine core's children that are workers."""
    return {pathlib.Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid, words in child_processes(engine).items()
            if any(word.startswith("--worker-rank=") for word in words)}


class Responses(unittest.TestCase):
    def check(self, *flags):
        with Pair(*ONE_THREAD) as whole, Pair(*ONE_THREAD, *flags) as split:
            for body in bodies():
                with self.subTest(body=body):
                    self.assertEqual(choices(split, body), choices(whole, body))
            self.assertEqual(text_of(split, STREAM), text_of(whole, STREAM))

    def test_tensor_parallel(self):
        self.check("--tensor-parallel-size", "2")

    # With random weights. Of two stages one has the layers that keep all and the other those that keep recent tokens.
    def test_groups_of_layers(self):
        states = {"architectures": ["Qwen3_5ForCausalLM"], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                  "linear_key_head_dim": 32, "linear_value_head_dim": 32,
                  "layer_types": ["linear_attention"] * 2 + ["full_attention"] * 2}
        windows = {"architectures": ["Olmo3ForCausalLM"], "use_sliding_window": True, "sliding_window": 24,
                   "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2}
        for config in (states, windows):
            overrides = json.dumps({**config, "num_hidden_layers": 4})
            flags = (*ONE_THREAD, "--load-format", "dummy", "--hf-overrides", overrides)
            with Pair(*flags) as whole:
                wanted = [choices(whole, body) for body in bodies()]
            for split_flags in (("-tp", "2"), ("-pp", "2")):
                with self.subTest(config=config, flags=split_flags), Pair(*flags, *split_flags) as split:
                    self.assertIn("blocks of 2 groups of layers", split.log)
                    self.assertEqual([choices(split, body) for body in bodies()], wanted)

    def check_adapters(self, *split_flags):
        with tempfile.TemporaryDirectory(prefix="tandem-lora-") as folder:
            paths = {name: write_adapter(pathlib.Path(folder) / name, seed) for seed, name in enumerate(("a", "b"), 1)}
            flags = (*ONE_THREAD, "--enable-lora", "--lora-modules", f"a={paths['a']}", "--enable-runtime-lora", "--max-loras", "2")
            body = {"prompt": STORY, "max_tokens": 30, "temperature": 0, "ignore_eos": True}
            with Pair(*flags) as whole, Pair(*flags, *split_flags) as split:
                for server in (whole, split):
                    self.assertEqual(server.post("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(paths["b"])})[0], 200)
                bodies = [body, {**body, "model": "a"}, {**body, "model": "b"}]
                texts = [choices(whole, each) for each in bodies]
                self.assertEqual(len({text[0][0]["text"] for text in texts}), 3)
                with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
                    self.assertEqual(list(pool.map(lambda each: choices(split, each), bodies)), texts)
                self.assertEqual(split.post("/v1/unload_lora_adapter", {"lora_name": "b"})[0], 200)
                status, reply = split.post("/v1/load_lora_adapter", {"lora_name": "c", "lora_path": folder})
                self.assertEqual(status, 404, reply)
                self.check_refusals(split, pathlib.Path(folder))
                self.assertEqual(choices(split, bodies[1]), texts[1])

    # In whichever part of the model the mistake is.
    def check_refusals(self, server, folder):
        layers = 1 + max(int(name.split(".")[2]) for name in matrix_shapes() if name.startswith("model.layers."))
        for layer in (0, layers - 1):
            name = f"model.layers.{layer}.self_attn.q_proj"
            path = write_adapter(folder / f"short-{layer}", 3, changes={name: {"rows": -1}})
            status, reply = server.post("/v1/load_lora_adapter", {"lora_name": "d", "lora_path": str(path)})
            self.assertEqual(status, 400, reply)
            self.assertIn(f"{name}.lora_B has shape", str(reply))
        path = write_adapter(folder / "absent", 3, changes={name: {"name": f"model.layers.{layers}.self_attn.q_proj"}})
        status, reply = server.post("/v1/load_lora_adapter", {"lora_name": "d", "lora_path": str(path)})
        self.assertEqual(status, 400, reply)
        self.assertIn(f"the model has no module model.layers.{layers}.self_attn.q_proj", str(reply))

    def test_adapters_that_are_loaded_and_unloaded(self):
        self.check_adapters("-tp", "2")

    def test_adapters_in_stages(self):
        self.check_adapters("-pp", "2")

    def test_drafts_of_several_ranks(self):
        ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}
        heads = {name: {"method": name, "model": str(HEADS / name), "num_speculative_tokens": 3} for name in ("eagle", "eagle3")}
        with Pair(*ONE_THREAD, model=HEADS / "target") as whole:
            for flags, config in ((("-tp", "2"), heads["eagle3"]), (("-pp", "2"), heads["eagle"]), (("-pp", "2"), ngram)):
                drafts = ("--speculative-config", json.dumps({**config, "adaptive": False}))
                with Pair(*ONE_THREAD, *flags, *drafts, model=HEADS / "target") as split:
                    for body in bodies():
                        with self.subTest(flags=flags, method=config["method"], body=body):
                            self.assertEqual(choices(split, body), choices(whole, body))
                    self.assertGreater(split.total("vllm:spec_decode_num_accepted_tokens_total"), 0)

    def test_pipeline_parallel(self):
        self.check("-pp", "2")

    def test_both(self):
        self.check("-tp", "2", "-pp", "2")


class Standing(unittest.TestCase):
    """Ranks that live and wait for ever within a step (tests/support/engine_fault.cc). The limit of a step is 1,800 s."""
    BLOCKS_OTHERS, BLOCKS_OUTPUT_RANK, AWAITS_NOTHING, COMPUTES_LONG = 79, 80, 81, 82
    STANDS = r"rank \d \(\w+, pid \d+\) stands still: for 1000 ms it has neither computed nor waited for another rank, in step \d+"

    def check(self, token, reason, *flags):
        with tempfile.TemporaryDirectory(prefix="workers-", dir=bin_dir()) as folder, \
                Pair(*ONE_THREAD, *flags, programs=programs_with_engine(folder, "faulty/faulty-engine")) as server:
            whole = text_of(server, STREAM)
            causes = []
            at_20 = lambda: causes.append(Answer(server, "/v1/completions", {"prompt": [token] * 3, "max_tokens": 5}))
            self.assertEqual(text_of(server, STREAM, at_20=at_20), whole)
            causes[0].wait()
            self.assertEqual(causes[0].status, 500, causes[0].result)
            # Its first run, the next, and the one in which it was alone.
            lines = re.findall(r"FATAL .*the model has lost a rank: (.*)", server.log)
            self.assertEqual(len(lines), 3, server.log)
            for line in lines:
                self.assertRegex(line, reason)

    def test_a_rank_that_blocks(self):
        self.check(self.BLOCKS_OTHERS, r"^" + self.STANDS.replace(r"rank \d \(\w+", r"rank 1 \(TP1"), "-tp", "2")

    def test_the_engine_cores_rank_that_blocks(self):
        self.check(self.BLOCKS_OUTPUT_RANK, r"^" + self.STANDS.replace(r"rank \d \(\w+", r"rank 1 \(PP1"), "-pp", "2")

    def test_ranks_that_wait_for_each_other(self):
        self.check(self.AWAITS_NOTHING, r"^all ranks have waited for each other for 1000 ms: rank 0 \(PP0\) at step \d+, "
                   r"waits for the next step; rank 1 \(PP1\) at step \d+, waits for the stage before$", "-pp", "2")

    def test_a_rank_that_computes_is_waited_for(self):
        """For more than twice the time without a sign of life."""
        with tempfile.TemporaryDirectory(prefix="workers-", dir=bin_dir()) as folder, \
                Pair(*ONE_THREAD, "-pp", "2", "--engine-hang-timeout", "2",
                     programs=programs_with_engine(folder, "faulty/faulty-engine")) as server:
            engine = server.pid_of("tandem-engine-core")
            self.assertEqual(server.post("/v1/completions", {"prompt": [self.COMPUTES_LONG] * 3, "max_tokens": 5})[0], 200)
            self.assertEqual(server.pid_of("tandem-engine-core"), engine)
            self.assertNotIn("FATAL", server.log)
            self.assertNotIn("sign of life", server.log)


class Processes(unittest.TestCase):
    def setUp(self):
        self.server = Pair(*ONE_THREAD, "-tp", "2", "-pp", "2")
        self.addCleanup(self.server.__exit__, False)
        self.engine = self.server.pid_of("tandem-engine-core")

    def test_names(self):
        self.assertEqual(sorted(workers_of(self.engine)), ["tandem-PP0_TP0", "tandem-PP0_TP1", "tandem-PP1_TP1"])
        names = {name.read_text().strip() for name in pathlib.Path(f"/proc/{self.engine}/task").glob("*/comm")}
        self.assertIn("worker-watch", names)

    def test_a_rank_that_dies_ends_the_engine_and_streams_go_on(self):
        whole = text_of(self.server, STREAM)
        worker = workers_of(self.engine)["tandem-PP0_TP1"]
        self.assertEqual(text_of(self.server, STREAM, at_20=lambda: os.kill(worker, signal.SIGKILL)), whole)
        line = wait_for(lambda: re.search(r"FATAL .*the model has lost a rank: (.*)", self.server.log), "the log has the reason")
        self.assertRegex(line[1], r"rank 1 \(PP0_TP1, pid \d+\) was killed by signal 9 .*, in step \d+")
        self.assertNotEqual(self.server.pid_of("tandem-engine-core"), self.engine)

    def test_a_rank_that_is_stopped_counts_as_lost(self):
        whole = text_of(self.server, STREAM)
        worker = workers_of(self.engine)["tandem-PP1_TP1"]
        self.assertEqual(text_of(self.server, STREAM, at_20=lambda: os.kill(worker, signal.SIGSTOP)), whole)
        words = r"FATAL .*rank 3 \(PP1_TP1, pid \d+\) has given no sign of life for 1000 ms, in step \d+"
        wait_for(lambda: re.search(words, self.server.log), "the log has the reason")
        wait_for(lambda: not is_alive(worker), "the stopped process is gone")

    def test_a_rank_that_dies_while_nothing_runs_is_replaced_with_its_engine(self):
        worker = workers_of(self.engine)["tandem-PP0_TP0"]
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: self.server.total("tandem:engine_restarts_total") == 1, "the next engine serves")
        self.assertFalse(is_alive(self.engine))
        self.assertTrue(text_of(self.server, {**STREAM, "max_tokens": 5}))

    def test_a_recording_is_replayed_by_one_process(self):
        self.assertTrue(text_of(self.server, STREAM))
        file = self.server.write_recording(self.engine)
        replay = subprocess.run([bin_dir() / "tandem-engine-core", "--replay", file], capture_output=True, text=True,
                                timeout=LIMIT)
        self.assertEqual(replay.returncode, 0, replay.stdout)
        self.assertRegex(replay.stdout, r"[1-9]\d* tokens computed again and equal")

    def test_no_worker_outlives_its_engine(self):
        workers = workers_of(self.engine).values()
        os.kill(self.engine, signal.SIGKILL)
        wait_for(lambda: not any(map(is_alive, workers)), "the workers are gone")

    def test_workers_end_with_an_engine_that_ends_in_order(self):
        workers = workers_of(self.engine).values()
        os.kill(self.engine, signal.SIGTERM)
        wait_for(lambda: not any(map(is_alive, workers)), "the workers are gone")
        self.assertNotIn("lost a rank", self.server.log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
