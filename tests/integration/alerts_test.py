#!/usr/bin/env python3
"""The alerts name metrics that a server has, and are what Prometheus understands."""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import ROOT, Pair

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"


class Alerts(unittest.TestCase):
    def test_each_metric_of_an_alert_is_there_from_the_first_scrape(self):
        named = set(re.findall(r"(?:vllm|tandem):\w+", RULES.read_text()))
        self.assertIn("vllm:corrupted_requests_total", named)
        with Pair("--served-model-name", "m") as server:
            shown = {series.partition("{")[0] for series in server.metrics()}
        self.assertEqual(named - shown, set())

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_promtool_accepts_the_rules(self):
        check = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
