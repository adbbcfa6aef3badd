#!/usr/bin/env python3
"""A real Prometheus scrapes a server under load: every panel of the dashboards and every recording rule has values,
every alert is one that Prometheus understands, and each has its lines in the runbook."""
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import LIMIT, ROOT, Pair, free_port, wait_for

if not shutil.which("prometheus") or not shutil.which("promtool"):
    pair.skip("prometheus is not installed (deploy/install_dependencies.sh --tests installs it)")

DASHBOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
RULES = ROOT / "deploy" / "prometheus"
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]


def panels(path):
    return [panel for panel in json.loads(path.read_text())["panels"] if panel["type"] != "row"]


def concrete(expression):
    """A panel's expression as Grafana sends it, over a time that a test has."""
    for variable, value in (("$__rate_interval", "10s"), ("$model", ".+"), ("$engine", ".+"), ("[5m]", "[10s]")):
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def recorded():
    """{name: expression} of the recording rules; promtool has checked that the file is YAML of this form."""
    return dict(re.findall(r"- record: (\S+)\s+expr: (.+)", (RULES / "rules.yml").read_text()))


class Prometheus:
    def __init__(self, target):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-prometheus-")
        self.address = f"127.0.0.1:{free_port()}"  # Prometheus cannot report a port of its own choice
        config = pathlib.Path(self.folder.name, "prometheus.yml")
        config.write_text("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                          f"rule_files: ['{RULES}/rules.yml', '{RULES}/alerts.yml']\n"
                          f"scrape_configs: [{{job_name: tandem, static_configs: [{{targets: ['{target}']}}]}}]\n")
        self.log = open(pathlib.Path(self.folder.name, "log"), "wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder.name}/data",
             f"--web.listen-address={self.address}"], stdout=self.log, stderr=self.log)

    def get(self, path, **query):
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}?{urllib.parse.urlencode(query)}",
                                        timeout=LIMIT) as reply:
                return json.loads(reply.read())["data"]
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise AssertionError(error.read().decode()) from None
        except OSError:
            pass
        return None  # it is still starting

    def has_value(self, expression):
        data = self.get("/api/v1/query", query=expression)
        return bool(data) and any(not math.isnan(float(one["value"][1])) for one in data["result"])

    def close(self):
        self.process.terminate()
        self.process.wait(LIMIT)
        self.log.close()
        self.folder.cleanup()


class Load:
    """Requests of each kind, one after the other, until it is closed."""

    def __init__(self, server):
        self.server, self.over = server, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        hello = [{"role": "user", "content": "Hello! " * 40}]
        while not self.over.is_set():
            for body in ({"stream": True}, {}, {"tools": TOOLS}):
                self.server.post("/v1/chat/completions", {"model": "m", "messages": hello, "max_tokens": 12, **body})
            self.over.wait(0.05)

    def close(self):
        self.over.set()
        self.thread.join(LIMIT)


class Dashboards(unittest.TestCase):
    def test_each_panel_and_rule_has_values_under_load(self):
        wanted = {f"{path.stem}: {panel['title']}: {target['legendFormat']}": concrete(target["expr"])
                  for path in DASHBOARDS for panel in panels(path) for target in panel["targets"]}
        wanted.update({f"rule {name}": concrete(expression) for name, expression in recorded().items()})
        self.assertGreater(len(wanted), 50)
        with Pair("--served-model-name", "m", "--tool-call-parser", "hermes", "--kv-offloading-size", 0.01) as server:
            prometheus, load = Prometheus(server.url.removeprefix("http://")), Load(server)
            try:
                for what, expression in wanted.items():
                    with self.subTest(what):
                        wait_for(lambda: prometheus.has_value(expression), f"{what} ({expression}) has a value")
                for name in recorded():
                    wait_for(lambda: prometheus.get("/api/v1/query", query=name)["result"], f"{name} is recorded")
                def alerts_once_evaluated():
                    alerts = [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]
                              if rule["type"] == "alerting"]
                    return all(rule["health"] != "unknown" for rule in alerts) and alerts
                alerts = wait_for(alerts_once_evaluated, "there are alerts, and each was evaluated")
                for rule in alerts:
                    self.assertEqual((rule["health"], rule.get("lastError")), ("ok", None), rule["name"])
            finally:
                load.close()
                prometheus.close()

    def test_panels_have_titles_descriptions_and_places_of_their_own(self):
        for path in DASHBOARDS:
            places, titles = set(), set()
            for panel in panels(path):
                with self.subTest(panel["title"]):
                    self.assertTrue(panel["description"])
                    place = (panel["gridPos"]["x"], panel["gridPos"]["y"])
                    self.assertNotIn(place, places)
                    self.assertNotIn(panel["title"], titles)
                    places.add(place)
                    titles.add(panel["title"])

    def test_promtool_accepts_the_rules(self):
        for words in (["check", "rules", str(RULES / "rules.yml"), str(RULES / "alerts.yml")], ["check", "config", "--syntax-only", str(RULES / "prometheus.yml")]):
            check = subprocess.run(["promtool", *words], capture_output=True, text=True)
            self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    def test_each_alert_has_its_lines_in_the_runbook(self):
        text = (RULES / "alerts.yml").read_text()
        names = re.findall(r"- alert: (\w+)", text)
        runbook = (ROOT / "deploy" / "OPERATIONS.md").read_text().split("\n## Runbook\n")[1]
        for name in names:
            with self.subTest(name):
                self.assertIn(f"deploy/OPERATIONS.md#{name.lower()}", text)
                self.assertIn(f"\n### {name}\n", runbook)
        self.assertEqual(sorted(re.findall(r"\n### (\w+)\n", runbook)), sorted(names))


if __name__ == "__main__":
    unittest.main(verbosity=2)
