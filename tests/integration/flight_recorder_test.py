#!/usr/bin/env python3
"""The flight recorder of the real engine core: files on SIGUSR1, on a crash and by `tandem record`, and their replay."""
import itertools
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pair
from pair import bin_dir, wait_for
from prompt_embeds_test import encoded
from server import Server

HEADS = pair.MODEL.parents[2] / "tests/golden/speculative"  # with their target
FATAL_TOKEN = 77  # tests/support/engine_fault.cc


def replay(path, *flags, program="tandem-engine-core"):
    """(exit status, output) of a replay."""
    done = subprocess.run([bin_dir() / program, "--replay", path, *map(str, flags)], capture_output=True, text=True,
                          timeout=4 * pair.LIMIT)
    return done.returncode, done.stdout + done.stderr


class Recorded(Server):
    """With the files that its engine has written."""

    def files(self):
        return sorted((self.root / "state" / "tandem").glob("*.flight"), key=lambda path: path.stat().st_mtime)

    def write_file(self):
        """The file that the engine writes after SIGUSR1; the log names it when it is whole."""
        def written():
            return re.findall(r"\[flight recorder\] written to (\S+)", self.log_text())
        before = len(written())
        self.engines[0].send_signal(signal.SIGUSR1)
        wait_for(lambda: len(written()) > before, "a file")
        return pathlib.Path(written()[-1])

    def complete(self, prompt, max_tokens, **fields):
        return self.ask("POST", "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": max_tokens,
                                                     "ignore_eos": True, **fields})


# What a batch is made of; the seeds are fixed, so each run is the same.
KINDS = ({"temperature": 0}, {"temperature": 0.9, "seed": 5}, {"temperature": 1.2}, {"temperature": 0, "logprobs": 3},
         {"temperature": 0.8, "n": 2, "seed": 3}, {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3})


# A field that takes 9 kB of a recording and hardly any time: all ids but a few. Steps alone would take thousands to fill a ring.
LARGE = {"allowed_token_ids": list(range(3, 3000))}


def load(server, count, max_tokens=60, num_ids=500, **fields):
    """Requests of all kinds, many with the same beginning; returns once all have ended."""
    def ask(i):
        shared = [(j * 7 + i % 3) % num_ids + 5 for j in range(40 + i % 3 * 32)]
        statuses.append(server.complete([*shared, i % num_ids + 5], max_tokens + i % 9, **KINDS[i % len(KINDS)], **fields)[0])
    statuses = []
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


class FlightRecorder(unittest.TestCase):
    def check_equal(self, path, *flags):
        status, output = replay(path, *flags)
        self.assertEqual(status, 0, output)
        self.assertNotIn("DIFFERS", output)
        # The last step may be one that overlapped the end of all requests, and not over when the file was written.
        found = re.search(r"\[replay\] steps (\d+) to (\d+), ([\d,]+) tokens computed again and equal; "
                          r"(?:the end of the recording|the recorded process ended in step \2)$", output, re.M)
        self.assertTrue(found, output)
        return int(found[1]), int(found[2]), int(found[3].replace(",", ""))

    def test_a_mixed_load_is_replayed_bit_for_bit(self):
        with Recorded(engine_flags=("--max-num-seqs", 6, "--max-model-len", 256, "--num-gpu-blocks-override", 24)) as server:
            self.assertEqual(set(load(server, 18)), {200})
            path = server.write_file()
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            first, last, tokens = self.check_equal(path, "--replay-from", "first")
            self.assertEqual(first, 1)
            self.assertGreater(tokens, 18 * 60)
            self.assertEqual(self.check_equal(path, "--replay-from", "first", "--replay-tokens", "recorded"), (1, last, 0))
            # Without the text of a prompt, and with the ids of its tokens alone.
            self.assertNotIn(b"Once upon", path.read_bytes())
            status, output = replay(path, "--replay-from", "first", "--until-step", 10)
            self.assertEqual(status, 0, output)
            self.assertIn("stopped before step 10", output)
            self.assertRegex(output, r"RUNNING tokens \d+\+\d+ computed")

    def test_a_ring_that_ran_over_is_replayed_from_a_checkpoint(self):
        with Recorded(engine_flags=("--max-num-seqs", 6, "--flight-recorder-size", "1M", "--async-scheduling")) as server:
            for _ in range(40):
                self.assertEqual(set(load(server, 6, **LARGE)), {200})
                path = server.write_file()
                status, output = replay(path, "--replay-from", "first", "--until-step", 1)
                if "is after step" in output:  # the first one is gone
                    break
            self.assertEqual(status, 2, output)
            if self.check_equal(path, "--replay-from", "nearest")[2] == 0:  # it is the last one of all, and the next is far
                self.assertEqual(set(load(server, 1)), {200})
                path = server.write_file()
            for place in ("first", "nearest"):
                first, last, tokens = self.check_equal(path, "--replay-from", place)
                self.assertGreater(first, 1)
                self.assertGreaterEqual(last, first)
                self.assertGreater(tokens, 0)

    def test_a_running_engine_is_recorded_without_asking_it(self):
        with Recorded() as server:
            load(server, 3)
            server.engines[0].send_signal(signal.SIGSTOP)  # as one that hangs
            path = server.root / "copy.flight"
            words = [bin_dir() / "tandem", "record", "--pid", str(server.engines[0].pid), "--out", path]
            # A limit on files is like a full disk; Python ignores its signal.
            cut = subprocess.run(["prlimit", "--fsize=65536", *words], capture_output=True, text=True, timeout=pair.LIMIT,
                                 restore_signals=False)
            self.assertEqual((cut.returncode, path.exists()), (1, False), cut.stderr)
            self.assertIn("File too large", cut.stderr)
            done = subprocess.run(words, capture_output=True, text=True, timeout=pair.LIMIT)
            self.assertEqual((done.returncode, done.stdout.strip()), (0, str(path)), done.stderr)
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
            self.check_equal(path, "--replay-from", "first")
            again = subprocess.run(words, capture_output=True, text=True, timeout=pair.LIMIT)
            self.assertEqual(again.returncode, 1)
            self.assertIn("File exists", again.stderr)
            other = subprocess.run([bin_dir() / "tandem", "record", "--pid", str(os.getpid())], capture_output=True,
                                   text=True, timeout=pair.LIMIT)
            self.assertEqual(other.returncode, 1)
            self.assertIn("has no flight recorder", other.stderr)

    def test_requests_under_grammars_are_replayed_with_the_recorded_tokens(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}
        with Recorded(engine_flags=("--max-num-seqs", 6)) as server:
            others = threading.Thread(target=load, args=(server, 8))
            others.start()
            for i in range(4):
                status, body = server.complete([7 + i, 8, 9], 30, structured_outputs={"json": schema})
                if status != 200 and b"not supported" in body:
                    others.join()
                    self.skipTest("there is no tandem-grammar")
                self.assertEqual(status, 200, body)
            others.join()
            path = server.write_file()
            self.check_equal(path, "--replay-from", "first")
            self.check_equal(path, "--replay-from", "first", "--replay-tokens", "recorded")

    def test_drafts_are_replayed(self):
        config = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1, "adaptive": false}'
        for scheduling in ("--no-async-scheduling", "--async-scheduling"):
            with self.subTest(scheduling), Recorded(
                    engine_flags=("--max-num-seqs", 1, "--speculative-config", config, scheduling)) as server:
                self.assertEqual(set(load(server, 12)), {200})
                path = server.write_file()
                _, num_steps, _ = self.check_equal(path, "--replay-from", "first")
                # One request at a time: with fewer steps than outputs, drafts were accepted.
                num_outputs = sum((60 + i % 9) * KINDS[i % len(KINDS)].get("n", 1) for i in range(12))
                self.assertLess(num_steps, num_outputs)
                self.check_equal(path, "--replay-from", "first", "--replay-tokens", "recorded")

    def test_drafts_that_depend_on_more_than_tokens_are_replayed(self):
        # On a clock, and on earlier requests, which a replay from a checkpoint does not know. Overlapping steps do not
        # name their drafts.
        for config in ('{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}', '{"method": "suffix"}'):
            with self.subTest(config), Recorded(
                    engine_flags=("--max-num-seqs", 3, "--speculative-config", config, "--async-scheduling",
                                  "--flight-recorder-size", "1M")) as server:
                for _ in range(6):
                    self.assertEqual(set(load(server, 6, **LARGE)), {200})
                self.assertGreater(server.total("vllm:spec_decode_num_accepted_tokens_total"), 0)
                path = server.write_file()
                self.assertEqual(self.check_equal(path, "--replay-from", "first")[0], 1)
                self.assertGreater(self.check_equal(path, "--replay-from", "nearest")[0], 1)

    def test_drafts_of_a_head_are_replayed(self):
        for adaptive in (True, False):
            config = json.dumps({"model": str(HEADS / "eagle3"), "num_speculative_tokens": 3, "adaptive": adaptive})
            with self.subTest(config), Recorded(model=HEADS / "target",
                                                engine_flags=("--max-num-seqs", 3, "--speculative-config", config)) as server:
                self.assertEqual(set(load(server, 12, num_ids=300)), {200})
                if not adaptive:
                    self.assertGreater(server.total("vllm:spec_decode_num_accepted_tokens_total"), 0)
                path = server.write_file()
                self.check_equal(path, "--replay-from", "first")
                self.check_equal(path, "--replay-from", "first", "--replay-tokens", "recorded")

    def test_prompts_of_embeddings_are_replayed(self):
        def ask(i):
            statuses.append(server.ask("POST", "/v1/completions", {
                "model": "m", "prompt_embeds": encoded(range(5 + i, 25 + 9 * i)), "max_tokens": 60, "ignore_eos": True,
                **KINDS[i % len(KINDS)]})[0])
        with Recorded("--enable-prompt-embeds", engine_flags=("--enable-prompt-embeds", "--max-num-seqs", 3,
                                                              "--flight-recorder-size", "1M")) as server:
            for _ in range(40):
                statuses = []
                threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(statuses, [200] * 6)
                path = server.write_file()
                status, output = replay(path, "--replay-from", "first", "--until-step", 1)
                if "is after step" in output:  # the first checkpoint is gone, others are there
                    break
            self.assertEqual(status, 2, output)
            for place in ("first", "nearest"):
                self.check_equal(path, "--replay-from", place)

    def test_a_recording_of_a_gpu_needs_no_gpu(self):
        flags = ("--block-size", 32, "--no-async-scheduling", "--max-num-seqs", 4)
        with Recorded(engine_flags=flags) as server:
            load(server, 8)
            path = server.write_file()
            other = server.root / "gpu.flight"
            other.write_bytes(path.read_bytes().replace(b'"device": "cpu",', b'"device":"cuda",', 1))
            self.assertEqual(self.check_equal(other, "--replay-from", "first")[2], 0)

    def test_a_step_that_does_not_return_leaves_a_recording(self):
        with Recorded("--max-engine-restarts-per-request", 0, "--resume-timeout", 1,
                      engine_flags=("--execute-model-timeout-seconds", 0.002)) as server:
            def ask():
                for number in itertools.count():  # none of them finds a prefix in the cache
                    if server.engines[0].poll() is not None:
                        break
                    server.complete([(i + number) % 400 + 5 for i in range(1500)], 2, temperature=0)
            asking = threading.Thread(target=ask)
            asking.start()
            self.assertEqual(server.engines[0].wait(pair.LIMIT), 1)
            server.frontend.kill()
            asking.join()
            status, output = replay(server.files()[0], "--execute-model-timeout-seconds", 0)
            self.assertEqual(status, 0, output)
            self.assertRegex(output, r"written for: watchdog: step \d+ in \w+: 1 requests")
            fatal = int(re.search(r"watchdog: step (\d+)", output)[1])
            self.assertIn(f"[replay] steps 1 to {fatal}, ", output)

    def test_it_can_be_turned_off(self):
        with Recorded(engine_flags=("--no-flight-recorder",)) as server:
            self.assertEqual(server.complete([1, 2, 3], 5)[0], 200)
            server.engines[0].send_signal(signal.SIGUSR1)
            wait_for(lambda: "[state]" in server.log_text(), "the state is logged")
            self.assertEqual(server.files(), [])
            links = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{server.engines[0].pid}/fd").iterdir()]
            self.assertFalse([link for link in links if "flight" in link])

    def test_a_file_that_is_none_is_refused(self):
        status, output = replay(__file__)
        self.assertEqual(status, 2, output)
        self.assertIn("is no recording", output)


class Crash(unittest.TestCase):
    """An engine with a fault dies under load; its recording leads to the step."""

    def test_the_faulting_step_is_found(self):
        with Recorded("--max-engine-restarts-per-request", 0, engine_program="faulty/faulty-engine",
                      engine_flags=("--max-num-seqs", 8)) as server:
            others = threading.Thread(target=load, args=(server, 24, 120))
            others.start()
            wait_for(lambda: server.total("vllm:iteration_tokens_total_count") > 20 and
                     server.total("vllm:num_requests_running") > 3, "a load, and steps before the fatal one")
            server.complete([5, 6, FATAL_TOKEN], 40, temperature=0)
            self.assertEqual(server.engines[0].wait(pair.LIMIT), -signal.SIGABRT)
            server.frontend.kill()
            others.join()
            self.assertEqual(len(server.files()), 1, server.log_text())
            path = server.files()[0]
            self.assertIn(f"flight recording written: {path}", server.log_text())
            # Sound engine: the recording ends in the step that was fatal.
            status, output = replay(path)
            self.assertEqual(status, 0, output)
            self.assertIn("SIGABRT: abort, or a failed CHECK", output)
            step = int(re.search(r"\[replay\] steps \d+ to (\d+),", output)[1])
            self.assertGreater(step, 20)
            # The one with the fault fails in it again, and not before.
            before, output = replay(path, "--until-step", step, program="faulty/faulty-engine")
            self.assertEqual(before, 0, output)
            again, output = replay(path, "--until-step", step + 1, program="faulty/faulty-engine")
            self.assertEqual(again, -signal.SIGABRT, output)
            self.assertIn("the fault of the test", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
