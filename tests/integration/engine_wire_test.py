#!/usr/bin/env python3
"""The engine core behind a strict frontend of another make: start-up, both spellings of requests,
everything vllm-rs was ever recorded to send, and frontends that come and go."""
import gzip
import json
import pathlib
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
import pair

try:
    import strict_frontend
    import zmq
    from strict_frontend import ABORT, UTILITY, StrictFrontend, python_params, rust_params
except ImportError as missing:
    pair.skip(f"{missing.name} is not installed (tests/run.sh installs it when PyPI answers)")


class WakeUps:
    """Of all threads of a process, from now on."""

    def __init__(self, pid):
        self.pid, self.begin, self.before = pid, time.monotonic(), self.count(pid)

    @staticmethod
    def count(pid):
        texts = [path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
        return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)

    def rate_over(self, seconds):
        """In a second; None: so much time has not passed."""
        passed = time.monotonic() - self.begin
        return (self.count(self.pid) - self.before) / passed if passed >= seconds else None


class EngineWire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.frontend = StrictFrontend(cls.folder.name)
        cls.addClassCleanup(lambda: cls.frontend.close())  # the one there is by then
        cls.engine = strict_frontend.start_engine(cls.frontend, pair.MODEL)
        cls.addClassCleanup(cls.engine.wait, pair.LIMIT)
        cls.addClassCleanup(cls.engine.terminate)
        cls.ready = cls.frontend.meet()

    def tokens(self, outputs):
        return [token for output in outputs for token in output[1]]

    def test_both_spellings_of_a_request_give_the_same_tokens(self):
        self.frontend.add("rust", [5, 6, 7, 8], rust_params(temperature=0.0, max_tokens=12))
        self.frontend.add("python", [5, 6, 7, 8], python_params(temperature=0.0, max_tokens=12))
        found = self.frontend.collect("rust", "python")
        for request_id, outputs in found.items():
            self.assertEqual(len(self.tokens(outputs)), 12, request_id)
            self.assertEqual(outputs[-1][5], 1)
            self.assertEqual([event["type"] for event in outputs[0][7]], [1, 2])
            self.assertEqual(outputs[0][11]["num_prompt_tokens"], 4)
            self.assertTrue(all(output[11] is None for output in outputs[1:]))
        self.assertEqual(self.tokens(found["rust"]), self.tokens(found["python"]))

    def test_an_idle_engine_says_nothing(self):
        self.frontend.add("last", [5, 6], rust_params(temperature=0.0, max_tokens=2))
        self.frontend.collect("last")
        while not self.frontend.is_silent():
            self.frontend.receive()
        self.assertTrue(self.frontend.is_silent(500))

    def test_an_abort_ends_a_request_without_an_output(self):
        self.frontend.add("endless", [5, 6], rust_params(max_tokens=1000, seed=1))
        message, _ = self.frontend.receive()
        self.frontend.abort("endless", "unknown")
        while "endless" not in (message[5] or ()):
            message, _ = self.frontend.receive()
            self.assertTrue(all(output[5] is None for output in message[1] if output[0] == "endless"))

    def test_logprobs_of_sampled_and_prompt_tokens_have_their_shapes(self):
        self.frontend.add("logprobs", [5, 6, 7], rust_params(temperature=0.0, max_tokens=2, logprobs=3,
                                                             prompt_logprobs=1))
        outputs = self.frontend.collect("logprobs")["logprobs"]
        for output in outputs:
            ids, values, ranks, _ = output[2]
            self.assertEqual((ids[1], values[1], ranks[1]), ([1, 4], [1, 4], [1]))
        self.assertEqual(outputs[0][3][0][1], [2, 2])
        self.assertIsNone(outputs[1][3])

    def test_every_recorded_request_of_vllm_rs_is_answered(self):
        sent = 0
        with gzip.open(TESTS / "golden" / "wire" / "requests.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                for message in record["messages"]:
                    frames = [bytes.fromhex(frame) for frame in message["frames_hex"]]
                    if frames[0] in (ABORT, UTILITY):
                        continue
                    with self.subTest(record["name"]):
                        self.frontend.send(*frames)
                        request_id = message["decoded"][0]
                        if message["decoded"][3].get("max_tokens", 16) > 1000:
                            self.frontend.abort(request_id)
                        self.ended(request_id)
                        sent += 1
        self.assertGreater(sent, 70)

    def ended(self, request_id):
        while True:
            message, _ = self.frontend.receive()
            for output in message[1]:
                if output[0] == request_id and output[5] is not None:
                    if output[5] == 3:
                        self.assertTrue(output[18]["code"])
                        self.assertTrue(output[18]["message"])
                    return
            if request_id in (message[5] or ()):
                return

    def test_every_recorded_utility_call_is_answered(self):
        self.assertEqual(self.frontend.call(1 << 63, "get_supported_tasks", []), (None, ["generate"]))
        self.assertEqual(self.frontend.call(2, "is_sleeping", []), (None, False))
        with gzip.open(TESTS / "golden" / "wire" / "requests.jsonl.gz", "rt", encoding="utf-8") as lines:
            for call_id, line in enumerate(lines, 100):
                record = json.loads(line)
                for message in record["messages"]:
                    if message["frames_hex"][0] != "03":
                        continue
                    with self.subTest(record["name"]):
                        _, _, method, args = message["decoded"]
                        failure, _ = self.frontend.call(call_id, method, args)
                        self.assertTrue(failure is None or failure)
        # Whatever was paused or put to sleep above is awake again.
        for call_id, (method, args) in enumerate([("wake_up", [None]), ("resume_scheduler", [])], 500):
            self.frontend.call(call_id, method, args)
        self.assertEqual(self.frontend.call(600, "make_coffee", [])[1], None)
        self.assertIn("make_coffee", self.frontend.call(601, "make_coffee", [])[0])

    def test_a_frontend_that_vanishes_is_forgotten_and_the_next_one_is_met(self):
        cls = type(self)
        cls.frontend.add("orphan", [5, 6], rust_params(max_tokens=1500, seed=1))
        cls.frontend.receive()
        cls.frontend.close()
        cls.frontend = StrictFrontend(cls.folder.name)
        ready = cls.frontend.meet()
        self.assertEqual(ready["instance_id"], cls.ready["instance_id"])
        cls.frontend.add("next", [5, 6], rust_params(temperature=0.0, max_tokens=3))
        cls.frontend.collect("next")
        message = None
        while not cls.frontend.is_silent():
            message, _ = cls.frontend.receive()
        if message is not None and message[2] is not None:
            self.assertEqual(message[2]["num_running_reqs"], 0)

    def test_an_engine_without_a_frontend_wakes_rarely_and_meets_the_next_one(self):
        cls = type(self)
        cls.frontend.close()
        rates = [WakeUps(cls.engine.pid)]

        def wakes_rarely():
            rate = rates[0].rate_over(0.5)
            if rate is not None:
                rates[0] = WakeUps(cls.engine.pid)
                rates.append(rate)
            return rate is not None and rate < 30

        pair.wait_for(wakes_rarely, "it wakes rarely")
        print("wake-ups in a second:", *(f"{rate:.0f}" for rate in rates[1:]))
        cls.frontend = StrictFrontend(cls.folder.name)
        self.assertEqual(cls.frontend.meet()["instance_id"], cls.ready["instance_id"])


class Coordinator(unittest.TestCase):
    """vLLM's data-parallel coordinator: it waits for one subscription of each engine, then tells clients their loads."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.frontend = StrictFrontend(folder.name)
        self.addCleanup(self.frontend.close)
        self.words = self.frontend._bind(zmq.XPUB, "words")
        self.reports = self.frontend._bind(zmq.PULL, "reports")

    def test_an_engine_subscribes_and_reports_its_loads(self):
        engine = strict_frontend.start_engine(self.frontend, pair.MODEL, "--data-parallel-rank", "1", "--headless")
        self.addCleanup(engine.wait, pair.LIMIT)
        self.addCleanup(engine.terminate)
        ready = self.frontend.meet((self.frontend.address("words"), self.frontend.address("reports")))
        self.assertEqual((self.frontend.identity, ready["data_parallel_rank"]), (b"\x01\x00", 1))
        # Of an engine elsewhere vLLM's Python frontend takes nothing else.
        self.assertEqual(self.frontend.hello, {"status": "HELLO", "local": False, "headless": True})
        self.assertEqual(self.words.recv(), b"\x01")
        self.words.send(b"READY")
        self.words.send_multipart([b"\x02", strict_frontend.msgpack.packb([0, 0])])  # START_DP_WAVE: for mixtures
        self.frontend.add("one", [5, 6], rust_params(temperature=0.0, max_tokens=9))
        self.assertEqual(len(self.tokens(self.frontend.collect("one")["one"])), 9)
        loads = []
        while not loads or loads[-1] != (0, 0):
            report = strict_frontend.unpack(self.reports.recv())
            self.assertEqual((report[0], report[1]), (1, []))
            loads.append((report[2]["num_waiting_reqs"], report[2]["num_running_reqs"]))
        self.assertEqual(loads, [(0, 1), (0, 0)])

    def tokens(self, outputs):
        return [token for output in outputs for token in output[1]]


if __name__ == "__main__":
    unittest.main(verbosity=2)
