#!/usr/bin/env python3
"""Processes that hang, and devices that fail. An engine whose executor hangs is ended by its own watcher, a process without a
sign of life by `tandem serve`, and one whose executor returns an error ends itself; the next one serves. The request that
is the cause each time is refused in the end, the others go on. A step that only takes long is no hang."""
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
from mixed_load import Answer
from pair import Pair, bin_dir, programs_with_engine, wait_for

MODEL = TESTS / "golden" / "api" / "model"
HANGING_ENGINE = "hanging/hanging-engine"  # tests/support/hanging_engine.cc
FAULTY_ENGINE, BLOCKING_TOKEN = "faulty/faulty-engine", 78  # tests/support/engine_fault.cc
HANGS_IN_SUBMIT, HANGS_IN_COLLECT, COMPUTES_LONG, FAILS_IN_SUBMIT, FAILS_IN_COLLECT = 77, 78, 79, 80, 81
FLAGS = ("--served-model-name", "m", "--max-model-len", "256", "--execute-model-timeout-seconds")
NUM_CHOICES = 7  # of the requests beside a failing device
HANG_S = 2  # a busy machine may not give a process its turn for one
SILENCE = f"has given no sign of life for {HANG_S} s: killing it"


class Watchdog(unittest.TestCase):
    step_timeout = HANG_S
    flags = ()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="watchdog-", dir=bin_dir())
        self.addCleanup(folder.cleanup)
        self.server = Pair(*FLAGS, self.step_timeout, *self.flags, model=MODEL,
                           programs=programs_with_engine(folder.name, HANGING_ENGINE))
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
        self.assertRegex(fatal[2], rf"step \d+ in {call}: 1 requests \(1 of them new\), 3 tokens, not back after {HANG_S} s")
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


class Supervised(Watchdog):
    """Nothing in the engine limits a step, `tandem serve` does."""
    step_timeout = 0
    flags = ("--engine-hang-timeout", HANG_S)

    test_an_executor_that_hangs_in_submit = test_an_executor_that_hangs_in_collect = None

    def test_a_step_that_never_ends(self):
        status, body = self.ask([4, 5, HANGS_IN_COLLECT])
        self.assertEqual(status, 500, body)
        wait_for(lambda: self.server.log.count("engine core " + SILENCE) == 3, "three ends are logged")
        wait_for(lambda: self.server.get("/health")[0] == 200, "healthy again")
        self.assertEqual(self.ask([1, 2, 3])[0], 200)

    def test_a_step_that_takes_long_is_no_hang(self):
        engine = self.server.pid_of("tandem-engine-core")
        self.assertEqual(self.ask([1, 2, COMPUTES_LONG])[0], 200)  # 3 s
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertEqual(self.server.pid_of("tandem-engine-core"), engine)
        self.assertNotIn("sign of life", self.server.log)


class DeviceErrors(Watchdog):
    """The executor returns an error, as that of a device that has failed; requests of every form go on with the next engine."""
    test_an_executor_that_hangs_in_submit = test_an_executor_that_hangs_in_collect = None

    def check(self, token, call):
        long = {"model": "m", "prompt": [1, 2, 3, 4], "max_tokens": 200, "ignore_eos": True, "return_token_ids": True}
        # In all NUM_CHOICES choices.
        bodies = [long, {**long, "stream": True}, {**long, "n": 3, "seed": 5, "temperature": 1},
                  {**long, "stream": True, "n": 2, "stop": ["\u20ac\u20ac"]}]
        undisturbed = [Answer(self.server, "/v1/completions", body).wait() for body in bodies]
        # Held until all are there: they share the steps before the one that fails.
        engine = self.server.pid_of("tandem-engine-core")
        os.kill(engine, signal.SIGSTOP)
        cause = Answer(self.server, "/v1/completions", {**long, "prompt": [4, 5, token]})
        beside = [Answer(self.server, "/v1/completions", body) for body in bodies]
        wait_for(lambda: self.server.total("vllm:num_requests_waiting") == 1 + NUM_CHOICES, "all are sent")
        os.kill(engine, signal.SIGCONT)
        cause.wait()
        self.assertEqual(cause.status, 500, cause.result)
        self.assertEqual([answer.wait() for answer in beside], undisturbed)
        self.assertEqual({answer.status for answer in beside}, {200})
        # Its first run, the next, and the one in which it was alone.
        lost = f"the executor is lost: INTERNAL: the device has failed in {call}"
        wait_for(lambda: self.server.log.count(lost) == 3, "three ends are logged")
        wait_for(lambda: self.server.log.count("engine core exited with status 1") == 3, "the supervisor notices")
        wait_for(lambda: self.server.get("/health")[0] == 200, "healthy again")
        self.assertEqual(self.ask([1, 2, 3])[0], 200)
        self.assertEqual(self.server.total("tandem:engine_restarts_total"), 3)
        self.assertGreaterEqual(self.server.total("tandem:requests_resumed_total", outcome="resumed"), 2 * NUM_CHOICES)

    def test_a_device_that_fails_in_submit(self):
        self.check(FAILS_IN_SUBMIT, "Submit")

    def test_a_device_that_fails_in_collect(self):
        self.check(FAILS_IN_COLLECT, "Collect")


class Blocked(unittest.TestCase):
    """The real engine, whose loop waits for ever within a step while its process lives. The limit of a step is 1,800 s."""

    def test_it_is_found_and_other_streams_go_on(self):
        long = {"model": "m", "prompt": [1, 2, 3, 4], "max_tokens": 300, "temperature": 1, "ignore_eos": True, "stream": True}
        with tempfile.TemporaryDirectory(prefix="watchdog-", dir=bin_dir()) as folder, \
                Pair("--served-model-name", "m", programs=programs_with_engine(folder, FAULTY_ENGINE)) as server:
            bodies = [{**long, "seed": seed} for seed in range(3)]
            undisturbed = [Answer(server, "/v1/completions", body).wait() for body in bodies]
            beside = [Answer(server, "/v1/completions", body) for body in bodies]
            cause = Answer(server, "/v1/completions", {**long, "prompt": [4, 5, BLOCKING_TOKEN]})
            self.assertEqual(cause.wait()["error"]["code"], 500, cause.result)
            self.assertEqual([answer.wait() for answer in beside], undisturbed)
            # Its first run, the next, and the one in which it was alone.
            fatal = [line for line in server.log.splitlines() if " FATAL " in line]
            self.assertEqual(len(fatal), 3, server.log)
            for line in fatal:
                self.assertRegex(line, r"the executor does not answer: step \d+ in (Submit|Collect): \d+ requests.*, stands still: "
                                       r"for 1000 ms no thread of the process has done anything")


class Stopped(unittest.TestCase):
    """The real engine, stopped with SIGSTOP while it generates."""

    def test_a_stopped_engine_is_replaced_and_its_streams_go_on(self):
        body = {"model": "m", "prompt": "Once", "max_tokens": 1000, "temperature": 0, "ignore_eos": True}
        with Pair("--served-model-name", "m", "--engine-hang-timeout", HANG_S) as server:
            undisturbed = server.post("/v1/completions", body)
            self.assertEqual(undisturbed[0], 200)
            engine = server.pid_of("tandem-engine-core")
            replies = []
            asking = [threading.Thread(target=lambda: replies.append(server.post("/v1/completions", body)))
                      for _ in range(3)]
            for thread in asking:
                thread.start()
            wait_for(lambda: server.total("vllm:num_requests_running") > 0, "requests run")
            os.kill(engine, signal.SIGSTOP)
            for thread in asking:
                thread.join()
            texts = {json.loads(reply)["choices"][0]["text"] for _, reply in [undisturbed, *replies]}
            self.assertEqual(len(texts), 1, replies)
            server.wait_for_log("engine core " + SILENCE)
            wait_for(lambda: server.pid_of("tandem-engine-core") not in (None, engine), "a new engine")

    def test_a_stopped_frontend_is_replaced(self):
        with Pair("--served-model-name", "m", "--engine-hang-timeout", HANG_S, "--api-server-count", "3") as server:
            frontend, engine = server.pid_of("tandem-frontend"), server.pid_of("tandem-engine-core")
            os.kill(frontend, signal.SIGSTOP)
            wait_for(lambda: server.pid_of("tandem-frontend") not in (None, frontend), "a new frontend")
            wait_for(lambda: server.get("/health")[0] == 200, "healthy again")
            server.wait_for_log("frontend " + SILENCE)
            self.assertEqual(server.pid_of("tandem-engine-core"), engine)


if __name__ == "__main__":
    unittest.main(verbosity=2)
