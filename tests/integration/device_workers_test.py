#!/usr/bin/env python3
"""A model split over GPUs, which are emulated here: one worker process for each, NCCL's place taken by a library of the tests.

Usage: device_workers_test.py [unittest arguments]
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir, wait_for
from speculation_test import choices, text_of
from workers_test import workers_of

# Few tokens and graphs of few sizes: emulated devices are slow.
FLAGS = ("--threads", "1", "--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "4", "--max-num-batched-tokens", "32",
         "--kv-cache-memory-bytes", "8M")
DEVICES = ("--device", "cuda", "--compilation-config", '{"cudagraph_capture_sizes": [1, 2]}')
BODY = {"prompt": "One day a fox met a bear. The fox said", "temperature": 0, "max_tokens": 12, "ignore_eos": True}


class Devices(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="devices-", dir=bin_dir())
        self.addCleanup(folder.cleanup)
        self.programs = pathlib.Path(folder.name)
        for name, source in (("tandem", "tandem"), ("tandem-frontend", "tandem-frontend"),
                             ("tandem-engine-core", "emulated/emulated-engine")):
            os.link(bin_dir() / source, self.programs / name)

    def start(self, *flags):
        server = Pair(*FLAGS, *DEVICES, *flags, programs=self.programs)
        self.addCleanup(server.__exit__, False)
        return server

    def test_two_devices_give_the_texts_of_a_cpu(self):
        server = self.start("--tensor-parallel-size", "2")
        self.assertEqual(list(workers_of(server.pid_of("tandem-engine-core"))), ["tandem-TP1"])
        server.wait_for_log("ranks joined")
        bodies = [BODY, {**BODY, "n": 2, "temperature": 0.7, "seed": 3, "logprobs": 1}]
        with Pair(*FLAGS) as whole:
            for body in bodies:
                with self.subTest(body=body):
                    texts = [[choice["text"] for choice in choices(each, body)[0]] for each in (server, whole)]
                    self.assertEqual(*texts)

    def test_a_rank_that_dies_ends_the_engine_and_streams_go_on(self):
        server = self.start("--tensor-parallel-size", "2")
        engine = server.pid_of("tandem-engine-core")
        stream = {**BODY, "max_tokens": 60, "stream": True}
        whole = text_of(server, stream)
        worker = workers_of(engine)["tandem-TP1"]
        self.assertEqual(text_of(server, stream, at_20=lambda: os.kill(worker, signal.SIGKILL)), whole)
        line = wait_for(lambda: re.search(r"FATAL .*the model has lost a rank: (.*)", server.log), "the log has the reason")
        self.assertRegex(line[1], r"rank 1 \(TP1, pid \d+\) was killed by signal 9 .*, in step \d+")
        self.assertNotEqual(server.pid_of("tandem-engine-core"), engine)

    def test_too_few_devices_are_an_error_that_names_their_number(self):
        done = subprocess.run([self.programs / "tandem-engine-core", MODEL, *FLAGS, *DEVICES, "-tp", "8",
                               "--hf-overrides", '{"num_attention_heads": 8, "num_key_value_heads": 8}'],
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--tensor-parallel-size 8: needs as many CUDA devices, there are 4", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
