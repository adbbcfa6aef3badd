#!/usr/bin/env python3
"""An engine whose executor hangs: the watcher ends it, and the next engine serves. The request that makes it hang
each time is refused in the end, the others go on."""
import json
import os
import pathlib
import sys
import tempfile
import threading
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
from pair import Pair, bin_dir, wait_for

MODEL = TESTS / "golden" / "api" / "model"
HANGS_IN_SUBMIT, HANGS_IN_COLLECT = 77, 78
FLAGS = ("--served-model-name", "m", "--max-model-len", "256", "--execute-model-timeout-seconds", "0.5")


def pair_with_hanging_engine(folder):
    """The real command and frontend with the engine core of tests/support/hanging_engine.cc."""
    programs = pathlib.Path(folder)
    for name, source in (("tandem", "tandem"), ("tandem-frontend", "tandem-frontend"),
                         ("tandem-engine-core", "hanging/hanging-engine")):
        os.link(bin_dir() / source, programs / name)
    return programs


class Watchdog(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="watchdog-", dir=bin_dir())
        self.addCleanup(folder.cleanup)
        self.server = Pair(*FLAGS, model=MODEL, programs=pair_with_hanging_engine(folder.name))
        self.addCleanup(self.server.__exit__, False)

    def ask(self, prompt, **fields):
        return self.server.post("/v1/completions", {
            "model": "m", "prompt": prompt, "max_tokens": 8, "ignore_eos": True, **fields})

    def check(self, token, call):
        self.assertEqual(self.ask([1, 2, 3])[0], 200)
        undisturbed = self.ask([1, 2, 3, 4], max_tokens=200, return_token_ids=True)
        engine = self.server.pid_of("tandem-engine-core")
        beside = []
        other = threading.Thread(target=lambda: beside.extend(
            self.ask([1, 2, 3, 4], max_tokens=200, return_token_ids=True)))
        other.start()
        status, body = self.ask([4, 5, token])
        other.join()
        self.assertEqual(status, 500, body)
        self.assertTrue(json.loads(body)["error"]["message"])
        # Its first run, the next, and the one in which it was alone.
        fatal = [line for line in self.server.log.splitlines() if " FATAL " in line]
        self.assertEqual(len(fatal), 3, self.server.log)
        self.assertRegex(fatal[2], rf"step \d+ in {call}: 1 requests \(1 of them new\), 3 tokens, not back after 0.5 s")
        wait_for(lambda: self.server.log.count("engine core exited with status 1") == 3, "the supervisor notices")
        wait_for(lambda: self.server.pid_of("tandem-engine-core") not in (None, engine), "a new engine")
        wait_for(lambda: self.server.get("/health")[0] == 200, "healthy again")
        self.assertEqual(self.ask([1, 2, 3])[0], 200)
        self.assertEqual(beside[0], 200, beside)
        self.assertEqual(json.loads(beside[1])["choices"], json.loads(undisturbed[1])["choices"])

    def test_an_executor_that_hangs_in_submit(self):
        self.check(HANGS_IN_SUBMIT, "Submit")

    def test_an_executor_that_hangs_in_collect(self):
        self.check(HANGS_IN_COLLECT, "Collect")


if __name__ == "__main__":
    unittest.main(verbosity=2)
