#!/usr/bin/env python3
"""Requests outlive their engine: engines are killed under a mixed load, and every response equals that of an
undisturbed run. TANDEM_KILLS sets the number of kills (20); TANDEM_SEED repeats a run's choices."""
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from histogram_counts import check_histogram_counts
from mixed_load import Answer, Load, check_equal_to_undisturbed
from pair import LIMIT, MODEL, wait_for
from server import Server

FATAL_TOKEN = 77  # tests/support/engine_fault.cc
NUM_KILLS = int(os.environ.get("TANDEM_KILLS", "20"))


class Resume(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"TANDEM_SEED={self.seed}")
        self.dice = random.Random(self.seed)

    def check_served(self, server, answers):
        num_refused = sum(answer.status == 503 for answer in answers)
        print(f"{len(answers) - num_refused} responses to compare, {num_refused} refused")
        # There was no engine when those came; of the others the metrics show that none failed.
        answers = [answer for answer in answers if answer.status != 503]
        for answer in answers:
            self.assertEqual(answer.status, 200, answer.result)
        check_equal_to_undisturbed(self, server, answers)

    def kill_under_load(self, server, num_kills):
        load = Load(server, self.dice)
        load.top_up()
        for _ in range(num_kills):
            # At any moment after the requests that the last kill hit have gone on; two kills without an output in
            # between would make suspects of them, which is tested elsewhere.
            target = load.num_events() + self.dice.randrange(1, 400)
            wait_for(lambda: load.num_events() >= target, "events arrive")
            engine = self.dice.randrange(len(server.engines))
            streams = load.open_streams()
            server.restart_engine(engine, self.dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGABRT]))
            wait_for(lambda: all(answer.num_events > before or not answer.running() for answer, before in streams),
                     "every stream goes on")
        return load.finish()

    def test_every_response_equals_that_of_an_undisturbed_run(self):
        with Server("--max-engine-restarts-per-request", 1000, "--tool-call-parser", "hermes",
                    "--reasoning-parser", "deepseek_r1") as server:
            answers = self.kill_under_load(server, NUM_KILLS)
            wait_for(lambda: server.total("tandem:engine_restarts_total") == NUM_KILLS, "the last engine is counted")
            self.assertEqual(set(server.outcomes()), {"resumed"})
            for answer in answers:
                self.assertIsNotNone(answer.status, answer.result)  # the client's time was over
            # Nothing that was computed twice is counted twice. A prompt counts for each of its choices.
            tokens = [(*answer.result["tokens"], answer.body.get("n", 1)) for answer in answers if answer.status == 200]
            self.assertEqual(server.total("vllm:prompt_tokens_total"), sum(prompt * n for prompt, _, n in tokens))
            self.assertEqual(server.total("vllm:generation_tokens_total"), sum(output for _, output, _ in tokens))
            check_histogram_counts(self, server, 0)
            self.check_served(server, answers)


class NetworkThreads(unittest.TestCase):
    """Each has clients of its own, and all of them use one engine."""

    def test_the_request_that_ends_its_engine_takes_nobody_of_another_thread_with_it(self):
        long = {"model": "m", "prompt": [5, 6, 7], "max_tokens": 800, "ignore_eos": True, "temperature": 1, "stream": True}
        with Server("--api-server-count", 3, engine_program="faulty/faulty-engine") as server:
            bodies = [{**long, "seed": seed} for seed in range(12)]
            expected = [answer.wait() for answer in [Answer(server, "/v1/completions", body) for body in bodies]]
            beside = [Answer(server, "/v1/completions", body) for body in bodies]
            wait_for(lambda: all(answer.num_events > 0 for answer in beside), "they run")
            cause = Answer(server, "/v1/completions", {**long, "prompt": [5, 6, FATAL_TOKEN], "max_tokens": 40})
            # Its first run, the next, and the one in which it is alone.
            for _ in range(3):
                self.assertEqual(server.engines[0].wait(LIMIT), -signal.SIGABRT)
                server.engines[0] = server.start_engine()
            self.assertEqual(cause.wait()["error"]["code"], 500, cause.result)
            self.assertEqual([answer.wait() for answer in beside], expected)
            wait_for(lambda: server.total("tandem:engine_restarts_total") == 3, "the last engine is counted")
            self.assertEqual(server.outcomes()["ended_engine"], 1)


class AnotherModel(unittest.TestCase):
    def test_an_engine_with_another_tokenizer_is_refused_and_goes_on_with_no_stream(self):
        stream = {"model": "m", "prompt": "Once", "max_tokens": 300, "temperature": 0, "ignore_eos": True, "stream": True}
        with tempfile.TemporaryDirectory() as folder, Server() as server:
            other = pathlib.Path(folder, "other")
            shutil.copytree(MODEL, other)
            (other / "tokenizer.json").write_text((MODEL / "tokenizer.json").read_text() + "\n")
            expected = Answer(server, "/v1/completions", stream).wait()
            answer = Answer(server, "/v1/completions", stream)
            wait_for(lambda: answer.num_events > 3, "the stream has begun")
            server.kill_engine()
            server.model = other
            self.assertEqual(server.start_engine().wait(LIMIT), 3)
            self.assertIn("restart the frontend, too", server.log_text())
            server.model = MODEL
            server.engines[0] = server.start_engine()
            self.assertEqual(answer.wait(), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
