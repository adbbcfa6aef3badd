#!/usr/bin/env python3
"""`tandem bench sweep` and `tandem bench tune` with real servers of the shipped model: results, resuming, and that no
server outlives them, however they end."""
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir, free_port, wait_for  # noqa: E402

TANDEM = str(bin_dir() / "tandem")


def run(*args, **more):
    return subprocess.run([TANDEM, "bench", *map(str, args)], capture_output=True, text=True, timeout=2 * LIMIT, **more)


def processes_with(word):
    """Ids of processes that have the word in their command line, except this one."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if word.encode() in pathlib.Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
            except OSError:
                pass
    return found


class Sweep(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="tandem-sweep-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        self.port = free_port()
        self.serve = f"{TANDEM} serve {MODEL} --host 127.0.0.1 --port {self.port} --kv-cache-memory-bytes 32M"
        self.bench = (f"{TANDEM} bench serve --port {self.port} --input-len 16 --output-len 8 --num-prompts 4 "
                      "--temperature 0")

    def sweep(self, *more, **options):
        return run("sweep", "serve", "--serve-cmd", self.serve, "--bench-cmd", self.bench, "--output-dir", self.folder,
                   "--experiment-name", "e", "--num-runs", "2", *more, **options)

    def test_results_plot_and_resume(self):
        lists = ("--serve-params", '[{"max_num_seqs": 1}, {"max_num_seqs": 4}]',
                 "--bench-params", '[{"max_concurrency": 1}, {"max_concurrency": 4}]')
        plot = self.folder / "plot.svg"
        done = self.sweep(*lists, "--plot", plot, "--after-bench-cmd", f"touch {self.folder}/after")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = json.loads((self.folder / "e" / "summary.json").read_text())
        self.assertEqual([(r["serve"]["max-num-seqs"], r["bench"]["max-concurrency"], r["run"]) for r in rows],
                         [(s, c, n) for s in ("1", "4") for c in ("1", "4") for n in (1, 2)])
        for row in rows:
            self.assertEqual((row["completed"], row["failed"], row["total_output_tokens"]), (4, 0, 32))
            self.assertEqual(json.loads(pathlib.Path(row["file"]).read_text())["output_throughput"],
                             row["output_throughput"])
        with open(self.folder / "e" / "summary.csv", newline="") as file:
            self.assertEqual(len(list(csv.DictReader(file))), 8)
        self.assertTrue((self.folder / "after").exists())
        lines = xml.etree.ElementTree.parse(plot).getroot().findall(".//{*}polyline")
        self.assertEqual(len(lines), 10)  # median and p99 of two latencies, one throughput, for two servers
        self.assertEqual(processes_with(f"--port\0{self.port}"), [])

        # Only the lost run is measured again; without --resume nothing is overwritten.
        lost, kept = pathlib.Path(rows[5]["file"]), pathlib.Path(rows[0]["file"])
        before = kept.read_bytes()
        lost.unlink()
        self.assertEqual(self.sweep(*lists).returncode, 2)
        done = self.sweep(*lists, "--resume")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("server: "), 1)
        self.assertTrue(lost.exists())
        self.assertEqual(kept.read_bytes(), before)
        self.assertEqual(len(json.loads((self.folder / "e" / "summary.json").read_text())), 8)

    def test_dry_run_starts_nothing(self):
        done = self.sweep("--dry-run", "--bench-params", '[{"request_rate": 2}]')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(self.serve, done.stdout)
        self.assertEqual(done.stdout.count("--request-rate 2"), 2)
        self.assertFalse((self.folder / "e").exists())

    def test_a_server_that_cannot_start(self):
        lists = ("--serve-params", '[{"max_num_seqs": -5}, {"max_num_seqs": 4}]')
        done = self.sweep(*lists)
        self.assertEqual(done.returncode, 1)
        self.assertIn("before it was ready", done.stderr)
        rows = json.loads((self.folder / "e" / "summary.json").read_text())
        self.assertEqual(len(rows), 2)
        done = self.sweep(*lists, "--resume", "--continue-on-error")
        self.assertEqual(done.returncode, 1)  # one of them failed still
        rows = json.loads((self.folder / "e" / "summary.json").read_text())
        self.assertEqual(["error" in row for row in rows], [True, True, False, False])

    def test_interrupted_it_ends_its_server(self):
        sweep = subprocess.Popen(
            [TANDEM, "bench", "sweep", "serve", "--serve-cmd", self.serve, "--bench-cmd",
             f"sh -c 'touch {self.folder}/begun; sleep 1000' --port {self.port}", "--output-dir", str(self.folder)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_for((self.folder / "begun").exists, "the bench of the sweep begins")
        self.assertNotEqual(processes_with(f"--port\0{self.port}"), [])
        sweep.send_signal(signal.SIGINT)
        _, errors = sweep.communicate(timeout=LIMIT)
        self.assertEqual(sweep.returncode, 130, errors)
        self.assertEqual(processes_with(f"--port\0{self.port}"), [])


class Plot(unittest.TestCase):
    def test_runs_appended_to_one_file(self):
        with tempfile.TemporaryDirectory(prefix="tandem-plot-") as folder, Pair() as server:
            plot = pathlib.Path(folder) / "plot.svg"
            for clients in (1, 2, 4):
                done = run("serve", "--base-url", server.url, "--tokenizer", MODEL, "--input-len", 16, "--output-len", 8,
                           "--num-prompts", 4, "--max-concurrency", clients, "--append-result", "--result-dir", folder,
                           "--result-filename", "runs.json", "--label", "ours", "--plot", plot)
                self.assertEqual(done.returncode, 0, done.stderr)
            lines = xml.etree.ElementTree.parse(plot).getroot().findall(".//{*}polyline")
            self.assertEqual([len(line.get("points").split()) for line in lines], [3] * 5)
            again = pathlib.Path(folder) / "again.svg"
            done = run("plot", "--results", f"{folder}/runs.json", "--output", again, "--title", "of <runs>")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("of &lt;runs&gt;", again.read_text())
            done = run("plot", "--results", plot, "--output", again)
            self.assertEqual(done.returncode, 1)
            self.assertIn("not the result of a bench", done.stderr)


class Tune(unittest.TestCase):
    def test_finds_flags_within_the_limits(self):
        with tempfile.TemporaryDirectory(prefix="tandem-tune-") as folder:
            path = pathlib.Path(folder) / "tune.json"
            done = run("tune", MODEL, "--slo", "e2el:p99:60000", "ttft:60000", "--max-num-seqs", "1", "8",
                       "--max-num-batched-tokens", "none", "--serve-flags", "--kv-cache-memory-bytes 32M", "--input-len", 16,
                       "--output-len", 8, "--num-prompts", 8, "--max-load", 4, "--output-json", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            result = json.loads(path.read_text())
            (best,) = [c for c in result["candidates"] if c["is_best"]]
            self.assertEqual(len(result["candidates"]), 2)
            self.assertIn("max-num-seqs", best["command"])
            self.assertIn(best["command"].split(" serve ")[1], done.stdout)
            loads = [trial["load"] for trial in best["trials"]]
            self.assertEqual(loads[0], 1)
            self.assertTrue(all(trial["within_limits"] for trial in best["trials"]))

    def test_limits_that_cannot_be_kept(self):
        done = run("tune", MODEL, "--slo", "e2el:mean:0.001", "--max-num-seqs", "8", "--max-num-batched-tokens", "none",
                   "--serve-flags", "--kv-cache-memory-bytes 32M", "--input-len", 16, "--output-len", 8, "--num-prompts", 4)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("beyond: mean e2el", done.stdout)
        self.assertIn("no candidate was measured within the limits", done.stdout)

    def test_time_is_bounded(self):
        done = run("tune", MODEL, "--max-minutes", "0.01", "--output-len", 1000, "--num-prompts", 100000, "--max-num-seqs", 4,
                   "--max-num-batched-tokens", "none", "--serve-flags", "--kv-cache-memory-bytes 32M")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no time left", done.stdout)

    def test_a_bad_command_line(self):
        for args, what in ((["--slo", "e2el:1"], "no model"), ([MODEL, "--slo", "latency:p99:5"], "--slo is 'latency:p99:5'"),
                           ([MODEL, "--search", "x"], "--search"), ([MODEL, "--min-load", 9, "--max-load", 3], "--max-load")):
            done = run("tune", *args)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    unittest.main()
