#!/usr/bin/env python3
"""deploy/gdb's commands, in batch mode: on both live processes under load, and on core files of them."""
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import ROOT, bin_dir, wait_for
from server import Server

if not shutil.which("gdb"):
    pair.skip("gdb is not installed")

SCRIPT = ROOT / "deploy" / "gdb" / "tandem-gdb.py"
NUM_RUNNING, NUM_WAITING = 2, 3
NUM_STEPS = 10  # that the engine has done at least, more than a replay looks at


def gdb(cache, target, *commands):
    """What gdb prints. In the folder `cache` it keeps an index of each program's symbols, which take it most of the time."""
    words = ["gdb", "-batch", "-nx", "-iex", f"set index-cache directory {cache}", "-iex", "set index-cache enabled on",
             *map(str, target), "-x", str(SCRIPT)]
    for command in commands:
        words += ["-ex", command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=4 * pair.LIMIT)
    return done.stdout + done.stderr


class Gdb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tandem-gdb-")
        cls.server = Server("--served-model-name", "m", "--engine-hang-timeout", 0, engine_flags=("--max-num-seqs", NUM_RUNNING))
        cls.streams = []
        for i in range(NUM_RUNNING + NUM_WAITING):
            connection = cls.server.connect()
            connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "Once", "max_tokens": 1900, '
                               '"ignore_eos": true, "stream": true}',
                               {"Content-Type": "application/json", "X-Request-Id": f"one-{i}"})
            cls.streams.append(connection)
        def num_steps():
            return cls.server.total("vllm:iteration_tokens_total_count")
        wait_for(lambda: cls.server.total("vllm:num_requests_waiting") == NUM_WAITING, "requests are sent")
        # A request counts as waiting from then on; the step after the one under way has taken it in.
        enough = max(NUM_STEPS, num_steps() + 2)
        wait_for(lambda: num_steps() >= enough, "requests run and wait")
        # Stopped, so that what gdb finds does not change.
        cls.server.engines[0].send_signal(signal.SIGSTOP)
        cls.pids = {"tandem-frontend": cls.server.frontend.pid, "tandem-engine-core": cls.server.engines[0].pid}

    @classmethod
    def tearDownClass(cls):
        for connection in cls.streams:
            connection.close()
        cls.server.__exit__(False)
        cls.folder.cleanup()

    def gdb(self, *words):
        return gdb(self.folder.name + "/symbols", *words)

    def check_requests(self, text):
        self.assertRegex(text, rf"steps [1-9]\d*, running {NUM_RUNNING}, waiting {NUM_WAITING}, blocks held [1-9]\d* of")
        self.assertEqual(text.count(" Running tokens "), NUM_RUNNING, text)
        self.assertEqual(text.count(" Waiting tokens "), NUM_WAITING, text)
        self.assertRegex(text, r"one-\S+ Running tokens [1-9]\d*\+\d+ computed [1-9]\d* slot [01] preempted 0 blocks [1-9]")

    def check_streams(self, text):
        self.assertIn(f"client 0: {NUM_RUNNING + NUM_WAITING} running", text)
        self.assertIn(f"engine 0 ready, {NUM_RUNNING + NUM_WAITING} in flight", text)
        self.assertRegex(text, r"one-\S+ engine 0 prompt [1-9]\d* emitted [1-9]")

    def test_live_processes_and_their_core_files(self):
        for program, command, check in (("tandem-engine-core", "tandem requests", self.check_requests),
                                        ("tandem-frontend", "tandem streams", self.check_streams)):
            core = f"{self.folder.name}/{program}.core"
            other = "tandem streams" if program == "tandem-engine-core" else "tandem requests"
            with self.subTest(program, of="process"):
                text = self.gdb(["-p", self.pids[program]], command, "echo NEXT\n", other, f"generate-core-file {core}")
                check(text.split("NEXT")[0])
                self.assertIn("is this the ", text.split("NEXT")[1])  # of the wrong program
                self.assertTrue(pathlib.Path(core).exists(), text)
            with self.subTest(program, of="core"):
                text = self.gdb([bin_dir() / program, core], command, "echo NEXT\n", "tandem threads")
                check(text.split("NEXT")[0])
                self.assertIn("tandem::", text.split("NEXT")[1])

    def test_recordings_out_of_processes_and_core_files_are_replayed_step_by_step(self):
        engine = bin_dir() / "tandem-engine-core"
        core = f"{self.folder.name}/recorded.core"
        self.assertIn("is this the ", self.gdb(["-p", self.pids["tandem-frontend"]], f"tandem record {core}.flight"))
        self.gdb(["-p", self.pids["tandem-engine-core"]], f"generate-core-file {core}", f"tandem record {core}.flight")
        self.gdb([engine, core], f"tandem record {core}.again.flight")
        of_process, of_core = (pathlib.Path(f"{core}{end}").read_bytes() for end in (".flight", ".again.flight"))
        self.assertGreater(len(of_process), 64 << 10)
        self.assertEqual(of_process, of_core)
        text = self.gdb([engine], f"tandem replay {core}.flight --replay-from first", "tandem step 7", "tandem requests",
                   "tandem step", "tandem step 1000000")
        for expected in (r"^before step 1$", r"^before step 7$", rf"^steps 7, running [1-{NUM_RUNNING}], waiting \d",
                         r" Running tokens [1-9]\d*\+\d+ computed ", r"^before step 8$", r"^the replay has ended$",
                         r"tokens computed again and equal; the end of the recording"):
            self.assertRegex(text, re.compile(expected, re.M))


if __name__ == "__main__":
    unittest.main(verbosity=2)
