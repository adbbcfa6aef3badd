#!/usr/bin/env python3
"""Several engine cores behind one frontend: who gets a request, what the death of one of them does, and engines that
another command starts.

Usage: replicas_test.py [unittest arguments]
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from mixed_load import Load, check_equal_to_undisturbed
from pair import LIMIT, MODEL, Pair, bin_dir, child_processes, free_port, wait_for
from speculation_test import STORY, text_of
from two_hosts import PairIn, other_host

TWO = ("--data-parallel-size", "2")
NUM_SWAPS = int(os.environ.get("TANDEM_SWAPS", "4"))
SHORT = {"prompt": STORY, "max_tokens": 4, "temperature": 0}
STREAM = {"prompt": STORY, "max_tokens": 300, "temperature": 0.6, "seed": 5, "ignore_eos": True, "stream": True}


def engines_of(server):
    """{rank: pid} of the engine cores of a `tandem serve`."""
    found = {}
    for pid, words in child_processes(server.process.pid).items():
        ranks = [word.split("=")[1] for word in words if word.startswith("--data-parallel-rank=")]
        if ranks and words[0].endswith("tandem-engine-core"):
            found[int(ranks[-1])] = pid
    return found


def served(server):
    """Finished requests of each engine, by its label."""
    return {rank: server.total("vllm:request_success_total", engine=str(rank)) for rank in (0, 1)}


class Replicas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair(*TWO)
        cls.addClassCleanup(cls.server.__exit__, False)

    def complete(self, **headers):
        status, body = self.server.post("/v1/completions", SHORT, **headers)
        return status, body.decode()

    def test_equal_loads_take_turns(self):
        before = served(self.server)
        for _ in range(6):
            self.assertEqual(self.complete()[0], 200)
        self.assertEqual({rank: served(self.server)[rank] - before[rank] for rank in (0, 1)}, {0: 3, 1: 3})

    def test_the_header_names_the_engine(self):
        for rank in (1, 0):
            before = served(self.server)
            for _ in range(3):
                self.assertEqual(self.complete(**{"X-data-parallel-rank": str(rank)})[0], 200)
            self.assertEqual(served(self.server)[rank] - before[rank], 3)
        for bad in ("2", "-1", "one", "0.5"):
            status, body = self.complete(**{"X-data-parallel-rank": bad})
            self.assertEqual(status, 400, bad)
            self.assertIn("must be in [0, 1]", body)

    def test_engines_share_the_host_and_have_their_labels(self):
        wait_for(lambda: re.search(r"engine core 0 pid \d+, engine core 1 pid \d+\)", self.server.log), "both are named")
        num_cpus = len(os.sched_getaffinity(0))
        threads = re.findall(r"(\d+) threads?\b", self.server.log)
        self.assertGreaterEqual(len(threads), 2, self.server.log)
        self.assertEqual({int(number) for number in threads}, {max(1, num_cpus // 2)})
        for rank in (0, 1):
            self.assertGreater(self.server.total("vllm:cache_config_info", engine=str(rank)), 0)

    def test_a_reload_keeps_both_engines(self):
        engines = engines_of(self.server)
        result = self.server.command("reload")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(engines_of(self.server), engines)
        for rank in (0, 1):
            self.assertEqual(self.complete(**{"X-data-parallel-rank": str(rank)})[0], 200)
        result = self.server.command("reload", "--data-parallel-size", "3")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("--data-parallel-size: which engines there are", result.stderr + result.stdout)


class Swaps(unittest.TestCase):
    """`tandem swap` of several engine cores, one after another. TANDEM_SEED repeats a run's choices."""

    def test_all_are_replaced_and_streams_go_on(self):
        with Pair(*TWO) as server:
            whole = text_of(server, STREAM)
            engines = engines_of(server)
            swaps, texts = [], []
            streams = [threading.Thread(target=lambda: texts.append(text_of(server, STREAM))) for _ in range(3)]
            for stream in streams:
                stream.start()
            swap = lambda: swaps.append(server.command("swap", "--max-num-seqs", "64"))
            self.assertEqual(text_of(server, STREAM, at_20=swap), whole)
            for stream in streams:
                stream.join(LIMIT)
            self.assertEqual((swaps[0].returncode, swaps[0].stderr), (0, ""))
            self.assertEqual(re.findall(r"engine core (\d) \d+ (is starting|has taken over)", swaps[0].stdout),
                             [(rank, what) for rank in "01" for what in ("is starting", "has taken over")])
            self.assertEqual(texts, [whole] * 3)
            after = engines_of(server)
            self.assertEqual(sorted(after), [0, 1])
            self.assertFalse(set(after.values()) & set(engines.values()))
            self.assertEqual(server.total("tandem:requests_resumed_total"), 0)
            for rank in (0, 1):
                self.assertEqual(server.total("tandem:engine_swaps_total", engine=str(rank)), 1)
                self.assertEqual(server.post("/v1/completions", SHORT, **{"X-data-parallel-rank": str(rank)})[0], 200)
                self.assertIn(b"--max-num-seqs\x0064", pathlib.Path(f"/proc/{after[rank]}/cmdline").read_bytes())

    def test_one_that_cannot_be_replaced_stays_and_the_command_says_what_was_done(self):
        with Pair(*TWO) as server, socket.create_server(("127.0.0.1", free_port())) as taken:
            before = engines_of(server)
            swap = server.command("swap", "--model", "/nonexistent")
            self.assertEqual(swap.returncode, 3, swap.stderr)
            self.assertNotIn("were replaced", swap.stderr)
            self.assertEqual(engines_of(server), before)
            self.assertIn("--cpu-bind: several", server.command("swap", "--cpu-bind", "0").stderr)
            # Each rank adds itself to the port.
            events = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{taken.getsockname()[1] - 1}"}
            swap = server.command("swap", "--kv-events-config", json.dumps(events))
            self.assertEqual(swap.returncode, 2, swap.stdout)
            self.assertIn("the new engine core 1 exited with status 2", swap.stderr)
            self.assertIn("1 of 2 engine cores were replaced, the others stay as they are", swap.stderr)
            after = engines_of(server)
            self.assertNotEqual(after[0], before[0])
            self.assertEqual(after[1], before[1])
            for rank in (0, 1):
                self.assertEqual(server.post("/v1/completions", SHORT, **{"X-data-parallel-rank": str(rank)})[0], 200)

    def test_under_load_and_deaths_nothing_is_lost(self):
        seed = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"TANDEM_SEED={seed}")
        dice = random.Random(seed)
        with Pair(*TWO, "--served-model-name", "m", "--kv-cache-memory-bytes", "32M",
                  "--max-engine-restarts-per-request", "1000") as server:
            load = Load(server, dice, always_takes=True)

            def events_pass(most):
                target = load.num_events() + dice.randrange(1, most)
                wait_for(lambda: load.num_events() >= target, "events arrive")

            for _ in range(NUM_SWAPS):
                events_pass(400)
                before = set(engines_of(server).values())
                swap = subprocess.Popen(server.command_line("swap"), env=server.environment, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                events_pass(200)
                killed = dice.choice(list(engines_of(server).values()))  # one that serves, or one that loads
                os.kill(killed, signal.SIGKILL)
                report = swap.communicate(timeout=LIMIT)[0]
                streams = load.open_streams()
                wait_for(lambda: all(answer.num_events > events or not answer.running() for answer, events in streams),
                         "every stream goes on")
                if swap.returncode != 0:  # it was a new one, and the command says so
                    self.assertRegex(report, r"the new engine core \d was killed")
                    again = server.command("swap")
                    self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
                wait_for(lambda: len(engines_of(server)) == 2, "both are there")
                self.assertFalse(before & set(engines_of(server).values()))
            answers = load.finish()
            print(f"{len(answers)} responses to compare")
            for answer in answers:
                self.assertEqual(answer.status, 200, answer.result)
            check_equal_to_undisturbed(self, server, answers)


class Deaths(unittest.TestCase):
    def test_streams_go_on_with_the_other_engine_and_the_dead_one_comes_back(self):
        with Pair(*TWO) as server:
            stream = {**STREAM, "max_tokens": 1000}  # it runs until its engine is found
            whole = text_of(server, stream)
            engines = engines_of(server)
            self.assertEqual(sorted(engines), [0, 1])
            wait_for(lambda: server.total("vllm:num_requests_running") == 0, "both are idle")
            statuses = []

            def busy_engines():
                return [rank for rank in (0, 1)
                        if server.total("vllm:num_requests_running", engine=str(rank)) > 0]

            def kill():
                busy, = wait_for(busy_engines, "one of them runs the stream")
                os.kill(engines[busy], signal.SIGKILL)
                statuses.append(server.get("/health")[0])

            self.assertEqual(text_of(server, stream, at_20=kill), whole)
            self.assertEqual(statuses, [200])
            self.assertEqual(server.total("tandem:requests_resumed_total", outcome="resumed"), 1)
            wait_for(lambda: len(engines_of(server)) == 2 and engines_of(server) != engines, "it is started again")
            for rank in (0, 1):
                wait_for(lambda: server.post("/v1/completions", SHORT, **{"X-data-parallel-rank": str(rank)})[0] == 200,
                         f"engine {rank} serves")

    def test_an_engine_that_cannot_start_again_ends_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copytree(MODEL, pathlib.Path(folder) / "model")
            with Pair(*TWO, model=model) as server:
                for weights in model.glob("*.safetensors"):
                    weights.unlink()
                os.kill(engines_of(server)[1], signal.SIGKILL)
                wait_for(lambda: "others serve without it" in server.log, "it is given up")
                self.assertEqual(server.get("/health")[0], 200)
                self.assertEqual(server.post("/v1/completions", SHORT)[0], 200)
                status, body = server.post("/v1/completions", SHORT, **{"X-data-parallel-rank": "1"})
                self.assertEqual(status, 503, body)


class Headless(unittest.TestCase):
    def test_engines_of_another_command(self):
        shared = (*TWO, "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1",
                  "--data-parallel-rpc-port", str(free_port()), "--threads", "1")
        with Pair(*shared, wait=False) as head, \
                Pair(*shared, "--headless", "--data-parallel-start-rank", "1") as other:
            head.wait_ready()
            self.assertEqual((sorted(engines_of(head)), sorted(engines_of(other))), ([0], [1]))
            self.assertIn("the frontend is another command's", other.command("reload").stderr)
            self.assertIsNone(other.pid_of("tandem-frontend"))
            for rank in (0, 1):
                status, _ = head.post("/v1/completions", SHORT, **{"X-data-parallel-rank": str(rank)})
                self.assertEqual(status, 200)
                self.assertEqual(served(head)[rank], 1)
            self.assertNotIn("have different models", head.log)
            whole = text_of(head, STREAM)
            kill = lambda: os.kill(engines_of(other)[1], signal.SIGKILL)
            self.assertEqual(text_of(head, STREAM, at_20=kill), whole)

    def test_an_engine_of_another_model_is_named(self):
        shared = (*TWO, "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1",
                  "--data-parallel-rpc-port", str(free_port()), "--threads", "1")
        with Pair(*shared, wait=False) as head, \
                Pair(*shared, "--headless", "--data-parallel-start-rank", "1", "--load-format", "dummy"):
            head.wait_ready()
            head.wait_for_log("have different models")

    def test_an_engine_without_a_frontend_says_so(self):
        address = ("--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(free_port()))
        with Pair(*TWO, "--headless", "--data-parallel-size-local", "1", *address) as engine:
            engine.wait_for_log(f"no frontend has responded at tcp://127.0.0.1:{address[3]}")


def make_keys(folder):
    run = subprocess.run([str(bin_dir() / "tandem"), "keys", str(folder)], capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stderr
    return folder


class Keys(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_only_engines_with_keys_of_the_set_are_let_in(self):
        ours, theirs = make_keys(self.folder / "ours"), make_keys(self.folder / "theirs")
        mixed = self.folder / "mixed"  # strangers that know the frontend's public key
        mixed.mkdir()
        lines = {"ours": (ours / "engine.keys").read_text().splitlines(),
                 "theirs": (theirs / "engine.keys").read_text().splitlines()}
        stranger = [line for line in lines["theirs"] if line.startswith("own-")]
        stranger += [line for line in lines["ours"] if line.startswith("peer-")]
        (mixed / "engine.keys").touch(mode=0o600)
        (mixed / "engine.keys").write_text("\n".join(stranger) + "\n")
        shared = (*TWO, "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1",
                  "--data-parallel-rpc-port", str(free_port()), "--threads", "1")
        headless = ("--headless", "--data-parallel-start-rank", "1", "--tcp-keys")
        with Pair(*shared, "--tcp-keys", ours, wait=False) as head:
            with Pair(*shared, *headless, mixed, wait=False):
                wait_for(lambda: "is refused: its key is not of the set" in head.log, "the stranger is refused")
            with Pair(*shared, *headless, ours):
                head.wait_ready()
                status, body = head.post("/v1/completions", SHORT, **{"X-data-parallel-rank": "1"})
                self.assertEqual(status, 200, body)

    def test_plain_tcp_to_other_hosts_is_refused_unless_asked_for(self):
        shared = ("--data-parallel-size", "2", "--data-parallel-size-local", "1", "--data-parallel-address", "10.1.2.3")
        run = subprocess.run([str(bin_dir() / "tandem"), "serve", str(MODEL), *shared], capture_output=True, text=True,
                             timeout=LIMIT, env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder)})
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("--insecure-tcp", run.stderr + run.stdout)


class TwoHosts(unittest.TestCase):
    """Engines in a network namespace of their own stand for those of another host."""

    def test_streams_of_an_engine_elsewhere_go_on_here(self):
        namespace, here, _ = other_host(self)
        with tempfile.TemporaryDirectory() as folder:
            keys = make_keys(pathlib.Path(folder) / "keys")
            shared = (*TWO, "--data-parallel-size-local", "1", "--data-parallel-address", here,
                      "--data-parallel-rpc-port", str(free_port()), "--threads", "1", "--tcp-keys", keys)
            with Pair(*shared, wait=False) as head, \
                    PairIn(namespace, *shared, "--headless", "--data-parallel-start-rank", "1") as other:
                head.wait_ready()
                elsewhere = {"X-data-parallel-rank": "1"}
                self.assertEqual(head.post("/v1/completions", SHORT, **elsewhere)[0], 200)
                self.assertEqual(served(head)[1], 1)
                whole = text_of(head, STREAM)
                wait_for(lambda: head.total("vllm:num_requests_running") == 0, "both are idle")

                def kill():
                    for pid in engines_of(other).values():
                        os.kill(pid, signal.SIGKILL)

                self.assertEqual(text_of(head, STREAM, at_20=kill), whole)
                wait_for(lambda: head.post("/v1/completions", SHORT, **elsewhere)[0] == 200, "it is back")


class Routing(unittest.TestCase):
    """16 prefixes that 4 requests each share, one request after the other, in an order that does not repeat."""

    def hit_rate(self, *flags):
        order = [group for group in range(16) for _ in range(4)]
        random.Random(7).shuffle(order)
        with Pair("--data-parallel-size", "4", "--threads", "1", *flags) as server:
            for number, group in enumerate(order):
                prompt = [40 + group] * 128 + [20 + number] * 8
                status, body = server.post("/v1/completions", {**SHORT, "prompt": prompt})
                self.assertEqual(status, 200, body)
            hits = server.total("vllm:prefix_cache_hits_total")
            return hits / server.total("vllm:prefix_cache_queries_total")

    def test_requests_go_where_their_prefix_is(self):
        by_load, by_prefix = self.hit_rate(), self.hit_rate("--data-parallel-routing", "prefix")
        print(f"hit rate {by_load:.3f} by load, {by_prefix:.3f} by prefix")
        self.assertGreater(by_prefix, 1.5 * by_load)
        self.assertAlmostEqual(by_prefix, 3 / 4 * 128 / 136, places=3)  # all but the first request of each prefix
        self.assertEqual(by_prefix, self.hit_rate("--data-parallel-routing", "prefix", "--api-server-count", "2"))


class External(unittest.TestCase):
    def test_a_rank_of_its_own(self):
        with Pair(*TWO, "--data-parallel-rank", "1", "--threads", "1") as server:
            self.assertEqual(list(engines_of(server)), [1])
            for rank, expected in (("0", 400), ("1", 200)):
                status, body = server.post("/v1/completions", SHORT, **{"X-data-parallel-rank": rank})
                self.assertEqual(status, expected, body)
            self.assertEqual(server.total("vllm:request_success_total", engine="1"), 1)
            self.assertNotIn('engine="0"', server.get("/metrics")[1].decode())


if __name__ == "__main__":
    unittest.main(verbosity=2)
