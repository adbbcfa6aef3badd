#!/usr/bin/env python3
"""compare: the figures it computes from runs, and that what it starts is stopped, resumed and ended."""
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import compare_report  # noqa: E402
import compare_sides  # noqa: E402

loader = importlib.machinery.SourceFileLoader("compare", str(pathlib.Path(compare_report.__file__).parent / "compare"))
compare = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare", loader))
loader.exec_module(compare)

CONFIG = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4,
          "intermediate_size": 2048, "vocab_size": 32000}


def run(side, number, case="c8", **figures):
    return {"model": "160m", "case": case, "round": number, "side": side, **figures}


def result(runs):
    cases = {"c1": {"kind": "decode", "clients": 1, "input": 128, "output": 64, "what": "1 client"},
             "c8": {"kind": "decode", "clients": 8, "input": 128, "output": 64, "what": "8 clients"},
             "p512": {"kind": "prefill", "clients": 1, "input": 512, "output": 1, "what": "prompt of 512"}}
    return {"meta": {"machine": "2 CPUs", "rounds": 3, "cases": cases, "configs": {"160m": CONFIG},
                     "against": {"vllm": "tandem", "llama-bf16": "tandem"}}, "runs": runs}


class Report(unittest.TestCase):
    def test_ratios_are_taken_within_a_round(self):
        ours = {i: run("tandem", i, tok_s=rate, ttft_ms=10) for i, rate in enumerate((100, 200, 400))}
        peer = {i: run("vllm", i, tok_s=rate, ttft_ms=30) for i, rate in enumerate((50, 100, 100))}
        rate = compare_report.ratio(ours, peer, "tok_s", True)
        self.assertEqual((rate.median, rate.low), (2, 2))
        self.assertAlmostEqual(rate.high, 3.6)
        self.assertEqual(compare_report.ratio(ours, peer, "ttft_ms", False).median, 3)
        del peer[0], peer[1]
        self.assertEqual(compare_report.ratio(ours, peer, "tok_s", True).median, 4)
        self.assertIsNone(compare_report.ratio(ours, {}, "tok_s", True))
        self.assertIsNone(compare_report.ratio(ours, peer, "prefill_tok_s", True))

    def test_percentile(self):
        self.assertEqual(compare_report.percentile([3, 1, 2], 0.5), 2)
        self.assertAlmostEqual(compare_report.percentile([1, 2], 0.9), 1.9)
        self.assertEqual(compare_report.percentile([7], 0.1), 7)

    def test_shares_of_the_ceilings(self):
        sizes = compare_report.model_sizes(CONFIG)
        # Three matrices of 768 x 2048, q and o of 768 x 768, k and v of 768 x 256, twelve times.
        self.assertEqual(sizes["body"], 12 * (3 * 768 * 2048 + 2 * 768 * 768 + 2 * 768 * 256))
        self.assertEqual(sizes["head"], 768 * 32000)
        self.assertEqual(sizes["kv_per_token"], 2 * 12 * 4 * 64)
        step = 2 * (sizes["body"] + sizes["head"]) / 50e9
        self.assertAlmostEqual(compare_report.bandwidth_share(sizes, 0, 1e3 * step, 50e9), 1)
        self.assertGreater(compare_report.bandwidth_share(sizes, 160, 1e3 * step, 50e9), 1)
        self.assertAlmostEqual(compare_report.prefill_share(sizes, 0, 1e12 / (2 * sizes["body"]), 1e12), 1)
        self.assertAlmostEqual(compare_report.prefill_share(sizes, 512, 1, 2 * sizes["body"] + 12 * 768 * 1024), 1)

    def goal(self, runs, name):
        value = result(runs)
        table = compare_report.group(value["runs"])
        return [row for row in compare_report.goals("160m", table, value["meta"]) if row[0] == name]

    def test_goals(self):
        runs = []
        for i in range(3):
            runs += [run("tandem", i, tok_s=150, ttft_ms=100, itl_ms=10), run("vllm", i, tok_s=100, ttft_ms=100, itl_ms=11),
                     run("llama-bf16", i, tok_s=100, ttft_ms=100, itl_ms=11),
                     run("tandem", i, "p512", prefill_tok_s=1500, ttft_ms=10, ceilings={"bf16_flops": 1e12}),
                     run("llama-bf16", i, "p512", prefill_tok_s=1000, ttft_ms=15),
                     run("llama-f16", i, "p512", prefill_tok_s=1250, ttft_ms=12)]
        (c6,) = self.goal(runs, "C6")
        self.assertEqual((c6[3].median, c6[5]), (1.5, True))
        (c3,) = self.goal(runs, "C3")
        self.assertFalse(c3[5])
        (c1,) = self.goal(runs, "C1")  # against the better of the two
        self.assertEqual(c1[2:], ("llama-f16", c1[3], 1.4, False))
        self.assertAlmostEqual(c1[3].median, 1.2)
        self.assertEqual(len(self.goal(runs, "C7")), 1)
        slower_first_token = [{**r, "ttft_ms": 130} if r["side"] == "tandem" else r for r in runs]
        self.assertFalse(self.goal(slower_first_token, "C6")[0][5])

    def test_markdown(self):
        runs = [run(side, i, tok_s=rate, ttft_ms=5, itl_ms=None, itl_p99_ms=None, prefill_tok_s=None, foreign_cpus=0.3 * i)
                for i in range(3) for side, rate in (("tandem", 1234.5), ("vllm", 617.25))]
        text = compare_report.markdown(result(runs))
        self.assertIn("| 8 clients | tandem | 1,234 | 5.00 | – | – | – | 2 of 3 |", text)
        self.assertIn("| 8 clients | tandem / vllm | 2.00 (2.00–2.00) | 1.00 (1.00–1.00) | – | – | – |", text)
        self.assertIn("| C6 | 8 streams, bf16 | vllm, TTFT 1.00 (1.00–1.00) | 2.00 (2.00–2.00) | 1.3 | yes |", text)


class Runs(unittest.TestCase):
    CASE = {"kind": "decode", "clients": 2, "input": 128, "output": 64, "prompts": 4}

    def result(self, **other):
        return {"completed": 4, "failed": 0, "total_output_tokens": 256, "generated_texts": ["a"] * 4, **other}

    def test_incomplete_work_is_not_a_figure(self):
        compare.check_result("x", self.CASE, self.result(), 4)
        for other, what in (({"failed": 1, "completed": 3}, "3 of 4 requests"), ({"total_output_tokens": 200}, "requested 256"),
                            ({"generated_texts": ["", "", "", "a"]}, "have no text"), ({"generated_texts": []}, "have no text")):
            with self.assertRaisesRegex(SystemExit, what):
                compare.check_result("x", self.CASE, self.result(**other), 4)

    def test_a_comparison_continues_from_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "r.json"
            first = compare.Result(path)
            first.value["runs"].append(run("tandem", 0))
            first.save()
            again = compare.Result(path)
            self.assertTrue(again.has("160m", "c8", 0, "tandem"))
            for key in (("0.5b", "c8", 0, "tandem"), ("160m", "c1", 0, "tandem"), ("160m", "c8", 1, "tandem"), ("160m", "c8", 0, "x")):
                self.assertFalse(again.has(*key))
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [path])

    def test_prompts_of_each_kind(self):
        words = compare.client_flags(self.CASE, 7, 4)
        self.assertEqual(words[words.index("--seed") + 1], "7")
        self.assertEqual(words[words.index("--random-input-len") + 1], "128")
        words = compare.client_flags(compare.CASES["prefix"], 7, 2)  # a warm-up smaller than the number of prefixes
        self.assertEqual(words[words.index("--prefix-repetition-num-prefixes") + 1], "2")
        self.assertEqual(words[words.index("--prefix-repetition-suffix-len") + 1], "64")


def state(pid):
    return compare_sides.stat_fields(pid)[0]


def wait_for(condition):
    pause, deadline = threading.Event(), time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        pause.wait(0.01)


# A server of two processes; the second leaves the first's process group, as the children of `tandem serve` do.
SERVER = """
import http.server, os, sys, subprocess
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self): self.send_response(200); self.end_headers()
    def log_message(self, *_): pass
child = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.setpgid(0, 0))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Servers(unittest.TestCase):
    def test_all_processes_stop_resume_and_end(self):
        with tempfile.TemporaryDirectory() as folder:
            side = compare_sides.Side("s", [sys.executable, "-c", SERVER, "{port}"])
            with compare_sides.Server(side, pathlib.Path(folder) / "log") as server:
                server.wait_ready()
                pids = compare_sides.family(server.process.pid)
                self.assertEqual(len(pids), 2)
                server.pause()
                wait_for(lambda: all(state(pid) == "T" for pid in pids))
                meter = compare_sides.LoadMeter(server)
                self.assertEqual(meter.stop()["server_cpu_s"], 0)
                server.resume()
                wait_for(lambda: all(state(pid) != "T" for pid in pids))
                meter = compare_sides.LoadMeter(server)
                wait_for(lambda: server.cpu_seconds() - meter.before[3] > 0.1)
                self.assertGreater(meter.stop()["server_cpu_s"], 0)
                server.pause()  # must not keep it from ending

            def is_gone(pid):
                try:
                    return state(pid) == "Z"
                except OSError:
                    return True
            wait_for(lambda: all(is_gone(pid) for pid in pids))

    def test_a_server_that_ends_early_is_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            side = compare_sides.Side("s", [sys.executable, "-c", "import sys; sys.exit('no such model')"])
            with compare_sides.Server(side, pathlib.Path(folder) / "log") as server:
                with self.assertRaisesRegex(SystemExit, "no such model"):
                    server.wait_ready()

    def test_load_of_others_is_seen(self):
        class Nobody:
            def cpu_seconds(self):
                return 0.0
        busy = os.fork()
        if busy == 0:
            while True:
                pass
        try:
            meter = compare_sides.LoadMeter(Nobody())
            wait_for(lambda: int(compare_sides.stat_fields(busy)[11]) > 20)
            self.assertGreater(meter.stop()["foreign_cpus"], 0.1)
        finally:
            os.kill(busy, signal.SIGKILL)
            os.waitpid(busy, 0)


if __name__ == "__main__":
    unittest.main()
