#!/usr/bin/env python3
"""Sleep of a whole server (--enable-sleep-mode): memory goes back to the host, and the same answers come after it.

Usage: sleep_test.py [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir, wait_for
from peft_adapter import write_adapter
from speculation_test import STORY, text_of
from workers_test import workers_of

KV_BYTES = 16 << 20
FLAGS = ("--enable-sleep-mode", "--server-dev-mode", "--threads", "1", "--kv-cache-memory-bytes", str(KV_BYTES))
BODY = {"prompt": STORY, "max_tokens": 40, "temperature": 0.6, "seed": 5, "ignore_eos": True, "logprobs": 2}
STREAM = {"prompt": STORY, "max_tokens": 300, "temperature": 0.6, "seed": 5, "ignore_eos": True, "stream": True}
# 27 million weights that are made up, in matrices of bf16: some 50 MiB.
LARGE = {"hidden_size": 768, "num_hidden_layers": 3, "intermediate_size": 3072, "num_attention_heads": 12,
         "num_key_value_heads": 12, "head_dim": 64}
WEIGHTS_BYTES = 2 * 3 * (4 * 768 * 768 + 3 * 768 * 3072)


def own_memory(pid):
    """Bytes that only this process has, or that it shares with processes of its model; not the pages of files."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))


class Server(Pair):
    def call(self, path, status=200):
        got, body = self.post(path, b"")
        assert got == status, (path, got, body)
        return json.loads(body)

    def answer(self, **fields):
        status, body = self.post("/v1/completions", {**BODY, **fields})
        assert status == 200, body
        return json.loads(body)["choices"]

    def is_sleeping(self):
        return json.loads(self.get("/is_sleeping")[1])["is_sleeping"]

    def state(self):
        return next(state for state in ("awake", "weights_offloaded", "discard_all")
                    if self.total("vllm:engine_sleep_state", sleep_state=state) == 1)


class Memory(unittest.TestCase):
    def check(self, *flags):
        with Server(*FLAGS, "--load-format", "dummy", "--hf-overrides", json.dumps(LARGE), "--max-model-len", "512",
                    *flags) as server:
            engine = server.pid_of("tandem-engine-core")
            processes = [engine, *workers_of(engine).values()]

            def memory():
                return sum(map(own_memory, processes))
            prompt = [331 + i % 50 for i in range(400)]
            before = server.answer(prompt=prompt)
            awake = memory()
            kv_bytes = 3 * 2 * 2 * 768 * len(prompt)  # keys and values of each layer
            for level in (1, 2):
                server.call(f"/sleep?level={level}")
                asleep = memory()
                self.assertLess(asleep, awake - WEIGHTS_BYTES - kv_bytes)
                self.assertEqual(server.call("/wake_up?tags=weights"), {"status": "sleeping", "tags": ["weights"]})
                self.assertGreater(memory(), asleep + WEIGHTS_BYTES)
                self.assertEqual(server.call("/wake_up?tags=kv_cache")["status"], "awake")
                self.assertEqual(server.answer(prompt=prompt), before)
                print(f"level {level}: {awake >> 20} MiB awake, {asleep >> 20} MiB asleep, {memory() >> 20} MiB afterwards")
                # Nothing is left of the first model beside the second. The cache takes what was touched, or all of it
                # where the host had huge pages for it, then or now.
                self.assertLess(memory(), awake + KV_BYTES + WEIGHTS_BYTES // 10)

    def test_one_process(self):
        self.check()

    def test_ranks(self):
        self.check("-tp", "2", "-pp", "2")


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(*FLAGS)
        cls.addClassCleanup(cls.server.__exit__, False)

    def test_states_and_metrics(self):
        server = self.server
        self.assertEqual(server.state(), "awake")
        for level, state in ((1, "weights_offloaded"), (2, "discard_all")):
            self.assertEqual(server.call(f"/sleep?level={level}"), {"status": "sleeping", "level": level})
            self.assertEqual(server.state(), state)
            self.assertTrue(server.is_sleeping())
            self.assertEqual(server.get("/health")[0], 200)
            self.assertIn("/wake_up", server.call("/resume", status=500)["error"]["message"])
            self.assertEqual(server.call("/wake_up?tags=scheduling")["status"], "sleeping")
            self.assertEqual(server.state(), state)
            self.assertEqual(server.call("/wake_up?tags=everything", status=400)["error"]["param"], "tags")
            self.assertEqual(server.call("/wake_up"), {"status": "awake", "tags": None})
            self.assertEqual(server.state(), "awake")
            self.assertFalse(server.is_sleeping())

    def test_a_lighter_sleep_gives_nothing_back_to_an_engine(self):
        server = self.server
        server.call("/sleep?level=2")
        for level in (1, 0):
            server.call(f"/sleep?level={level}")
            self.assertEqual(server.state(), "discard_all")
        server.call("/wake_up")
        self.assertEqual(server.state(), "awake")

    def test_a_request_waits_until_the_engine_is_awake_and_finds_no_old_prefix(self):
        server = self.server
        expected = server.answer()
        server.call("/sleep")
        answers = []
        waiter = threading.Thread(target=lambda: answers.append(server.answer()))
        waiter.start()
        wait_for(lambda: server.total("vllm:num_requests_waiting") == 1, "the request waits")
        self.assertEqual(answers, [])
        hits = server.total("vllm:prefix_cache_hits_total")
        server.call("/wake_up")
        waiter.join()
        self.assertEqual(answers, [expected])
        self.assertEqual(server.total("vllm:prefix_cache_hits_total"), hits)

    def test_streams_end_or_go_on_by_the_mode(self):
        server = self.server
        whole = text_of(server, STREAM)
        self.addCleanup(server.call, "/wake_up")
        for mode in ("keep", "wait"):
            def doze():
                server.call(f"/sleep?level=2&mode={mode}")
                server.call("/wake_up")
            self.assertEqual(text_of(server, STREAM, at_20=doze), whole, mode)
        self.assertTrue(whole.startswith(text_of(server, STREAM, at_20=lambda: server.call("/sleep"))))

    def test_the_next_frontend_knows_that_the_engine_sleeps(self):
        server = self.server
        server.call("/sleep?level=2")
        self.addCleanup(server.call, "/wake_up")
        reload = server.command("reload")
        self.assertEqual(reload.returncode, 0, reload.stderr)
        wait_for(lambda: server.state() == "discard_all", "the next frontend shows it")
        self.assertTrue(server.is_sleeping())

    def test_the_kv_cache_alone(self):
        server = self.server
        expected = server.answer()
        self.assertIn("/pause", server.call("/release_kv_cache_memory", status=500)["error"]["message"])
        server.call("/pause?mode=keep")
        self.assertEqual(server.call("/release_kv_cache_memory"), {"status": "kv_cache_released"})
        self.assertEqual(server.call("/wake_up?tags=kv_cache")["status"], "awake")
        self.assertEqual(server.answer(), expected)
        self.assertEqual(server.total("vllm:sleep_mode_operation_duration_seconds_count",
                                      operation="release_kv_cache_memory"), 2)

    def test_a_recording_with_a_sleep_is_replayed(self):
        server = self.server
        text_of(server, STREAM, at_20=lambda: (server.call("/sleep?level=1&mode=keep"), server.call("/wake_up")))
        file = server.write_recording(server.pid_of("tandem-engine-core"))
        replay = subprocess.run([bin_dir() / "tandem-engine-core", "--replay", file], capture_output=True, text=True,
                                timeout=LIMIT)
        self.assertEqual(replay.returncode, 0, replay.stdout)
        self.assertRegex(replay.stdout, r"[1-9]\d* tokens computed again and equal")


class Folders(unittest.TestCase):
    def setUp(self):
        self.server = Server(*FLAGS, model=self.copy_of(MODEL))
        self.addCleanup(self.server.__exit__, False)

    def copy_of(self, model):
        folder = tempfile.TemporaryDirectory(prefix="tandem-sleep-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "model"
        shutil.copytree(model, self.folder)
        return self.folder

    def test_level_1_keeps_the_files_that_it_had_and_level_2_reads_those_that_are_there(self):
        server, file = self.server, next(self.folder.glob("*.safetensors"))
        expected = server.answer()
        kept = file.with_suffix(".kept")
        file.rename(kept)
        server.call("/sleep?level=1")
        server.call("/wake_up")
        self.assertEqual(server.answer(), expected)
        server.call("/sleep?level=2")
        server.call("/wake_up", status=500)
        self.assertTrue(server.is_sleeping())
        self.assertEqual(server.state(), "discard_all")
        kept.rename(file)
        server.call("/wake_up")
        self.assertEqual(server.answer(), expected)

    def test_a_wake_up_that_fails_keeps_the_files_of_level_1(self):
        drafter = pathlib.Path(self.copy_of(MODEL))
        drafts = {"method": "draft_model", "model": str(drafter), "num_speculative_tokens": 2, "adaptive": False}
        for flags in ((), ("-tp", "2")):
            model = self.copy_of(MODEL)
            with self.subTest(flags=flags), Server(*FLAGS, "--speculative-config", json.dumps(drafts), *flags,
                                                   model=model) as server:
                expected = server.answer()
                server.call("/sleep?level=1")
                for folder in (drafter, model):
                    file = next(folder.glob("*.safetensors"))
                    file.rename(file.with_suffix(".kept"))
                server.call("/wake_up", status=500)
                self.assertTrue(server.is_sleeping())
                kept = next(drafter.glob("*.kept"))
                kept.rename(kept.with_suffix(".safetensors"))
                # The model's own file is still away.
                server.call("/wake_up")
                self.assertEqual(server.answer(), expected)

    def test_an_engine_that_is_killed_while_it_sleeps_is_replaced_by_one_that_sleeps(self):
        server = self.server
        whole = text_of(server, STREAM)
        for level, state in ((1, "weights_offloaded"), (2, "discard_all")):
            server.call(f"/sleep?level={level}&mode=keep")
            texts = []
            stream = threading.Thread(target=lambda: texts.append(text_of(server, STREAM)))
            stream.start()
            wait_for(lambda: server.total("vllm:num_requests_waiting") == 1, "the stream waits")
            os.kill(server.pid_of("tandem-engine-core"), signal.SIGKILL)
            server.wait_for_log(f"sleeps at level {level}, as the one before it did")
            self.assertEqual(server.state(), state)
            self.assertTrue(server.is_sleeping())
            self.assertEqual(server.call("/wake_up")["status"], "awake")
            stream.join()
            self.assertEqual(texts, [whole])
            self.assertEqual(server.state(), "awake")

    def test_one_that_is_killed_after_a_wake_up_that_failed_is_replaced_by_one_that_is_awake(self):
        server, file = self.server, next(self.folder.glob("*.safetensors"))
        server.call("/sleep?level=2")
        kept = file.rename(file.with_suffix(".kept"))
        server.call("/wake_up", status=500)
        self.assertEqual(server.state(), "discard_all")
        kept.rename(file)
        os.kill(server.pid_of("tandem-engine-core"), signal.SIGKILL)
        wait_for(lambda: server.total("tandem:engine_restarts_total") == 1, "the engine is back")
        wait_for(lambda: server.state() == "awake", "it has reported that it is awake")
        self.assertFalse(server.is_sleeping())


class Refusals(unittest.TestCase):
    def test_what_cannot_sleep_is_refused_by_name(self):
        engine = subprocess.run([bin_dir() / "tandem-engine-core", MODEL, "--handshake-address", "ipc:///nowhere",
                                 "--enable-sleep-mode", "--device", "cuda"], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(engine.returncode, 2, engine.stderr)
        self.assertIn("--enable-sleep-mode", engine.stdout + engine.stderr)


class Guests(unittest.TestCase):
    def check(self, *flags):
        drafts = {"method": "draft_model", "model": str(MODEL), "num_speculative_tokens": 2, "adaptive": False}
        with tempfile.TemporaryDirectory(prefix="tandem-lora-") as folder:
            a, b = (write_adapter(pathlib.Path(folder) / name, seed) for seed, name in enumerate("ab", 1))
            with Server(*FLAGS, "--enable-lora", "--lora-modules", f"a={a}", "--enable-runtime-lora", "--max-cpu-loras", "2",
                        "--speculative-config", json.dumps(drafts), *flags) as server:
                before = [server.answer(), server.answer(model="a")]
                self.assertNotEqual(before[0], before[1])
                for level in (1, 2):
                    server.call(f"/sleep?level={level}")
                    if level == 1:
                        status, reply = server.post("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": str(b)})
                        self.assertEqual(status, 200, reply)
                    server.call("/wake_up")
                    self.assertEqual([server.answer(), server.answer(model="a")], before)
                self.assertNotIn(server.answer(model="b"), before)
                self.assertGreater(server.total("vllm:spec_decode_num_accepted_tokens_total"), 0)

    def test_adapters_and_a_drafter_sleep_with_their_model(self):
        self.check()

    def test_and_with_ranks(self):
        self.check("-tp", "2")


if __name__ == "__main__":
    unittest.main(verbosity=2)
