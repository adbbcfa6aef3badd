#!/usr/bin/env python3
"""docs/experiments: the commands of each page run as written, and show what the page says.

Each page runs in namespaces of its own: its port 8000 is nobody else's, and no process outlives it. In place of
build/release are the programs of this build.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import ROOT

PAGES = ROOT / "docs" / "experiments"
LIMIT = 4 * pair.LIMIT  # seconds for a page
ISOLATED = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c"]
NUMBER = r"([0-9.]+)"


def commands(name):
    text = (PAGES / name).read_text()
    return "".join(re.findall(r"^```bash\n(.*?)^```$", text, re.S | re.M))


def transcript(page):
    """What the commands print, and the files that they leave: {name: text}."""
    with tempfile.TemporaryDirectory(prefix="tandem-experiments-") as folder:
        start = commands("README.md").replace("$PWD/build/release/bin", str(pair.bin_dir()))
        script = "ip link set lo up\nset -e\n" + start + commands(page)
        environment = {**os.environ, "TMPDIR": folder, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder}
        done = subprocess.run([*ISOLATED, script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
        files = {path.name: path.read_text(errors="replace") for path in pathlib.Path(folder).glob("tmp.*/*.*")
                 if path.is_file()}
        if done.returncode != 0:
            raise AssertionError(f"status {done.returncode}\n{done.stdout}\n{done.stderr}\n{files.get('serve.log', '')[-3000:]}")
        return done.stdout, files


class Experiments(unittest.TestCase):
    def number(self, pattern, text):
        found = re.search(pattern, text)
        self.assertIsNotNone(found, f"{pattern} in {text}")
        return float(found.group(1))

    def all_succeeded(self, files, *patterns):
        for name, text in files.items():
            if any(re.fullmatch(pattern, name) for pattern in patterns):
                self.assertEqual(self.number(r"Failed requests: +(\d+)", text), 0, name)

    def test_1_the_log_has_steps(self):
        printed, files = transcript("1-engine-log.md")
        self.all_succeeded(files, "bench.txt")
        self.assertGreaterEqual(len(re.findall("request scheduled .*cached_tokens=", printed)), 8, printed)
        preempted = re.findall(r"request preempted id=(\S+) computed_tokens=\d", printed)
        resumed = re.findall(r"request resumed after preemption id=(\S+)", printed)
        self.assertRegex(printed, r"request preempted id=\S+ computed_tokens=[1-9]")
        self.assertEqual(sorted(preempted), sorted(resumed))
        self.assertIn("waits for work", printed)
        self.assertGreater(len(re.findall(r"step requests=\d+ tokens=\d+ .*waiting=[1-9]", printed)), 1, printed)

    def test_2_hits_and_salts(self):
        printed, files = transcript("2-prefix-cache.md")
        self.all_succeeded(files, "with.txt", "again.txt", "without.txt")
        queries = self.number(r"prefix_cache_queries_total\S* " + NUMBER, printed)
        hits = self.number(r"prefix_cache_hits_total\S* " + NUMBER, printed)
        self.assertGreater(hits, 0.8 * queries)
        cached = [int(each) for each in re.findall(r"'cached_tokens': (\d+)", printed)]
        self.assertEqual((cached[0], cached[2]), (0, 0))
        self.assertGreater(cached[1], 0)

    def test_3_budgets(self):
        printed, files = transcript("3-chunked-prefill.md")
        self.all_succeeded(files, r"(stream|long)-.*\.txt")
        self.assertEqual(len(re.findall("P99 ITL", printed)), 3 + 4)

    def test_4_preemptions(self):
        printed, files = transcript("4-batch-size.md")
        self.all_succeeded(files, r"seqs-.*\.txt", "small.txt")
        self.assertEqual(len(re.findall("seqs-.*Output token throughput", printed)), 4)
        self.assertGreater(self.number(r"num_preemptions_total\S* " + NUMBER, printed), 0)

    @unittest.skipUnless(shutil.which("prometheus"), "there is no prometheus")
    def test_5_prometheus(self):
        printed, files = transcript("5-prometheus.md")
        self.all_succeeded(files, "bench.txt")
        self.assertEqual(len(re.findall(r"^\{.*=> [0-9.]+ @", printed, re.M)), 3, printed)

    def test_6_rates(self):
        printed, files = transcript("6-traffic.md")
        self.all_succeeded(files, r"rate-.*\.txt", "bursts.txt")
        self.assertEqual(len(re.findall("Request goodput", printed)), 3 + 2)

    def test_7_graphs(self):
        printed, _ = transcript("7-graphs.md")
        self.assertEqual(len(re.findall("Mean ITL", printed)), 3)

    @unittest.skipUnless((pair.bin_dir() / "tandem-grammar").exists(), "there are no grammars")
    def test_8_structured_output(self):
        printed, files = transcript("8-structured-output.md")
        self.all_succeeded(files, r"(plain|schema)-.*\.txt")
        self.assertIn("tandem-frontend", printed)
        self.assertIn("tandem-engine-core", printed)

    def test_every_page_is_listed_and_run(self):
        pages = {path.name for path in PAGES.glob("[0-9]*.md")}
        self.assertEqual(set(re.findall(r"\((\d\S*\.md)\)", (PAGES / "README.md").read_text())), pages)
        source = pathlib.Path(__file__).read_text()
        for page in pages:
            self.assertIn(f'transcript("{page}")', source)


if __name__ == "__main__":
    if subprocess.run([*ISOLATED, "ip link set lo up"], capture_output=True).returncode != 0:
        pair.skip("no namespaces: root, unshare and ip are needed")
    unittest.main(verbosity=2)
