#!/usr/bin/env python3
"""`tandem swap`: engine cores are replaced under a mixed load; no request is refused or lost, and every response equals
that of an undisturbed run. TANDEM_SWAPS sets the number of swaps (20); TANDEM_SEED repeats a run's choices."""
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from mixed_load import Load, check_equal_to_undisturbed
from pair import LIMIT, MODEL, Pair, child_processes, free_port, is_alive, wait_for

NUM_SWAPS = int(os.environ.get("TANDEM_SWAPS", "20"))
FLAGS = ("--served-model-name", "m", "--kv-cache-memory-bytes", "32M")


def engines(pair):
    """The process ids of all engine cores."""
    return {pid for pid, words in child_processes(pair.process.pid).items() if "tandem-engine-core" in words[0]}


class UnderLoad(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"TANDEM_SEED={self.seed}")
        self.dice = random.Random(self.seed)

    def swap_under_load(self, pair):
        load = Load(pair, self.dice, always_takes=True)
        for _ in range(NUM_SWAPS):
            target = load.num_events() + self.dice.randrange(1, 400)
            wait_for(lambda: load.num_events() >= target, "events arrive")
            before = engines(pair)
            swapped = pair.command("swap")
            self.assertEqual(swapped.returncode, 0, swapped.stdout + swapped.stderr)
            self.assertEqual(len(engines(pair)), 1)
            self.assertFalse(before & engines(pair))
            streams = load.open_streams()
            wait_for(lambda: all(answer.num_events > events or not answer.running() for answer, events in streams),
                     "every stream goes on")
        return load.finish()

    def test_every_response_equals_that_of_an_undisturbed_run(self):
        with Pair(*FLAGS, "--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1") as pair:
            frontend = pair.pid_of("tandem-frontend")
            answers = self.swap_under_load(pair)
            self.assertEqual(pair.total("tandem:engine_swaps_total"), NUM_SWAPS)
            self.assertGreater(pair.total("tandem:requests_moved_total"), NUM_SWAPS)
            # A swap is no death.
            for series in ("tandem:engine_restarts_total", "tandem:requests_resumed_total"):
                self.assertEqual(pair.total(series), 0, series)
            print(f"{len(answers)} responses to compare")
            for answer in answers:
                self.assertEqual(answer.status, 200, answer.result)
            check_equal_to_undisturbed(self, pair, answers)
            self.assertEqual(pair.pid_of("tandem-frontend"), frontend)


class Command(unittest.TestCase):
    def complete(self, pair, **fields):
        status, body = pair.post("/v1/completions", {"model": "m", "prompt": "Once", "max_tokens": 4, **fields})
        self.assertEqual(status, 200, body)
        return json.loads(body)["choices"][0]

    def refused(self, pair, status, text, *words):
        before = engines(pair)
        swapped = pair.command("swap", *words)
        self.assertEqual(swapped.returncode, status, swapped.stdout + swapped.stderr)
        self.assertIn(text, swapped.stderr)
        self.assertEqual(engines(pair), before)
        self.complete(pair)

    def test_what_cannot_serve_leaves_the_old_engine_serving(self):
        with Pair(*FLAGS) as pair, tempfile.TemporaryDirectory() as folder:
            self.refused(pair, 2, "did you mean --max-num-seqs?", "--max-num-seq", 3)
            self.refused(pair, 2, "--max-num-seqs is", "--max-num-seqs", 0)
            self.refused(pair, 2, "--port is the frontend's", "--port", 1)
            self.refused(pair, 2, "--handshake-address: ", "--handshake-address", "ipc:///tmp/x/y")
            self.refused(pair, 2, "unexpected argument '/b'", MODEL, "/b")
            self.refused(pair, 2, "magic", "--speculative-config.method", "magic")
            self.refused(pair, 3, "/no/such", "--model", "/no/such")
            self.refused(pair, 1, "is no `tandem serve`", "--server", os.getpid())
            self.refused(pair, 2, "must be a process id", "--server", "x")
            other = pathlib.Path(folder, "other")
            shutil.copytree(MODEL, other)
            (other / "tokenizer.json").write_text((MODEL / "tokenizer.json").read_text() + "\n")
            self.refused(pair, 3, "the tokenizer in the model's folder is not that", "--model", other)
            self.assertEqual(pair.total("tandem:engine_swaps_total"), 0)

    def test_a_server_without_free_file_numbers_refuses_with_a_reason(self):
        with Pair(*FLAGS) as pair:
            server = pair.process.pid
            before = resource.prlimit(server, resource.RLIMIT_NOFILE)
            def first_free():
                used = {int(path.name) for path in pathlib.Path(f"/proc/{server}/fd").iterdir()}
                return next(number for number in range(before[1]) if number not in used)
            # A file may be open for a moment, as the socket of READY=1.
            free = min(first_free() for _ in range(500))
            for num_free, reason in ((0, "may have no more files open (ulimit -n)"), (1, "Too many open files")):
                with self.subTest(num_free=num_free):
                    # Numbers below the first free one are all in use.
                    resource.prlimit(server, resource.RLIMIT_NOFILE, (free + num_free, before[1]))
                    self.refused(pair, 1, reason)
            resource.prlimit(server, resource.RLIMIT_NOFILE, before)
            swapped = pair.command("swap")
            self.assertEqual(swapped.returncode, 0, swapped.stderr)

    def test_flags_stay_until_they_are_changed(self):
        with Pair(*FLAGS, "--max-num-seqs", 4) as pair, tempfile.TemporaryDirectory() as folder:
            shutil.copytree(MODEL, pathlib.Path(folder, "weights"))
            run = subprocess.run(pair.command_line("swap", "weights", "--max-num-seqs=3", "--server", pair.process.pid),
                                 cwd=folder, env=pair.environment, timeout=LIMIT)
            self.assertEqual(run.returncode, 0)
            swapped = pair.command("swap", "--max-model-len", 128, "--speculative-config.method=ngram",
                                   "--speculative-config.num_speculative_tokens=2", "--trust-remote-code")
            self.assertEqual(swapped.returncode, 0, swapped.stderr)
            self.assertIn("--trust-remote-code has no effect: ", swapped.stderr)
            os.kill(pair.pid_of("tandem-engine-core"), signal.SIGKILL)
            wait_for(lambda: pair.total("tandem:engine_restarts_total") == 1, "it is started again")
            words = child_processes(pair.process.pid)[pair.pid_of("tandem-engine-core")]
            for flag in (["--model", f"{folder}/weights"], ["--max-num-seqs=3"], ["--max-model-len", "128"],
                         ['--speculative-config={"method":"ngram","num_speculative_tokens":2}'],
                         ["--kv-cache-memory-bytes", "32M"]):
                self.assertIn("\0".join(flag), "\0".join(words))
            self.assertNotIn(str(MODEL), words)
            self.assertEqual(json.loads(pair.get("/v1/models")[1])["data"][0]["max_model_len"], 128)

    def test_a_request_that_the_new_engine_cannot_finish_ends_where_it_runs(self):
        with Pair(*FLAGS) as pair:
            long = {"max_tokens": 1000, "ignore_eos": True, "temperature": 0}
            expected = self.complete(pair, **long)
            running = []
            thread = threading.Thread(target=lambda: running.append(self.complete(pair, **long)))
            before = engines(pair)
            thread.start()
            wait_for(lambda: pair.total("vllm:num_requests_running") == 1, "it runs")
            self.assertEqual(pair.command("swap", "--max-model-len", 64).returncode, 0)
            self.assertFalse(before & engines(pair))  # the command waits for the end of the old one
            thread.join(LIMIT)
            self.assertEqual(running, [expected])
            self.assertEqual(pair.total("tandem:requests_moved_total"), 0)
            self.assertEqual(pair.post("/v1/completions", {"model": "m", "prompt": "Once", "max_tokens": 300})[0], 400)

    def test_the_end_of_the_command_takes_the_swap_back(self):
        with Pair(*FLAGS) as pair:
            before = engines(pair)
            swap = subprocess.Popen(pair.command_line("swap"), env=pair.environment, stdout=subprocess.PIPE, text=True)
            line = swap.stdout.readline()
            self.assertIn("is starting", line)
            starting = int(line.split()[2])
            os.kill(starting, signal.SIGSTOP)
            if engines(pair) >= before | {starting}:  # it was stopped before it took over
                again = pair.command("swap")
                self.assertEqual((again.returncode, again.stderr), (1, "tandem swap: another swap is under way\n"))
                swap.kill()
                wait_for(lambda: not is_alive(starting), "the new engine is gone")
                self.assertEqual(engines(pair), before)
            else:
                os.kill(starting, signal.SIGCONT)
            swap.kill()
            swap.wait()
            swap.stdout.close()
            self.complete(pair)

    def test_an_engine_that_dies_while_its_successor_starts_is_succeeded(self):
        with Pair(*FLAGS) as pair:
            old = pair.pid_of("tandem-engine-core")
            swap = subprocess.Popen(pair.command_line("swap"), env=pair.environment, stdout=subprocess.PIPE, text=True)
            swap.stdout.readline()
            with contextlib.suppress(ProcessLookupError):  # its successor has started already
                os.kill(old, signal.SIGKILL)
            self.assertEqual(swap.wait(LIMIT), 0)
            swap.stdout.close()
            wait_for(lambda: pair.get("/health")[0] == 200, "the new one serves")
            self.complete(pair)
            self.assertEqual(len(engines(pair)), 1)

    def test_an_engine_that_dies_after_its_successor_has_come_is_succeeded(self):
        with Pair(*FLAGS) as pair:
            old = pair.pid_of("tandem-engine-core")
            os.kill(old, signal.SIGSTOP)  # it cannot report that another one has taken over
            swap = subprocess.Popen(pair.command_line("swap"), env=pair.environment, stdout=subprocess.PIPE, text=True)
            wait_for(lambda: pair.total("tandem:engine_swaps_total") == 1, "the new one serves")
            self.complete(pair)
            os.kill(old, signal.SIGKILL)
            self.assertEqual(swap.wait(LIMIT), 0)
            self.assertIn("has taken over", swap.stdout.read())
            swap.stdout.close()
            self.assertEqual(pair.command("swap").returncode, 0)  # nothing is under way any more
            self.assertEqual(len(engines(pair)), 1)
            self.complete(pair)

    def test_a_swap_that_no_frontend_carries_out_is_given_up(self):
        flags = ("--headless", "--data-parallel-size", 2, "--data-parallel-size-local", 1, "--data-parallel-start-rank", 1,
                 "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", free_port())
        with Pair(*FLAGS, *flags, "--engine-hang-timeout", 3) as other:
            before = engines(other)
            swapped = other.command("swap")
            self.assertEqual(swapped.returncode, 1, swapped.stdout + swapped.stderr)
            self.assertIn("the frontend has not let the one before go", swapped.stderr)
            self.assertEqual(engines(other), before)
            other.wait_for_log("[swap] given up")

    def test_without_a_server_it_says_so(self):
        with Pair(*FLAGS) as pair:
            pair.stop()
            swapped = pair.command("swap")
            self.assertEqual(swapped.returncode, 1)
            self.assertIn("no `tandem serve` of this user runs", swapped.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
