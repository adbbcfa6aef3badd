#!/usr/bin/env python3
"""What a scrape of /metrics costs the frontend, with every series that a server can have.

  TANDEM_BIN_DIR=build/release/bin tests/bench/scrape_time.py

Prints CPU time of the frontend per scrape, the shortest wall time, and the page's size, as text and as OpenMetrics with
exemplars; for one engine and for several.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair, wait_for

NUM_SCRAPES = 300
TICK = os.sysconf("SC_CLK_TCK")
FORMS = {"text": "*/*", "OpenMetrics": "application/openmetrics-text"}


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def everything_on(num_engines, folder):
    offloading = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 16 << 20,
        "secondary_tiers": [{"type": "fs", "root_dir": folder}]}}
    return ("--data-parallel-size", num_engines, "--kv-cache-memory-bytes", "8M", "--threads", 1,
            "--kv-transfer-config", json.dumps(offloading), "--kv-cache-metrics", "--kv-cache-metrics-sample", 1,
            "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 8}',
            "--enable-lora", "--show-hidden-metrics-for-version", "0.32",
            "--otlp-traces-endpoint", "http://127.0.0.1:9/v1/traces")


def use_it(server):
    """Each kind of route, so that their series are there."""
    for number in range(8):
        body = {"prompt": f"Tale number {number} begins", "max_tokens": 16, "ignore_eos": True}
        assert server.post("/v1/completions", body)[0] == 200
    chat = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
    for path, body in (("/v1/chat/completions", chat), ("/v1/responses", {"input": "Hello!", "max_output_tokens": 4}),
                       ("/v1/messages", {**chat, "model": "m"}), ("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]}),
                       ("/v1/completions", {"prompt": 1.5}), ("/nowhere", {})):
        server.post(path, body)
    server.get("/v1/models")


def measure(server, accept):
    """(CPU milliseconds, shortest wall milliseconds, bytes, exemplars)"""
    frontend = server.pid_of("tandem-frontend")
    connection = server.connect()
    shortest, before = float("inf"), cpu_seconds(frontend)
    for _ in range(NUM_SCRAPES):
        begin = time.monotonic()
        connection.request("GET", "/metrics", headers={"Accept": accept})
        page = connection.getresponse().read()
        shortest = min(shortest, time.monotonic() - begin)
    spent = cpu_seconds(frontend) - before
    connection.close()
    return 1000 * spent / NUM_SCRAPES, 1000 * shortest, len(page), page.count(b"trace_id=")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", type=int, nargs="?", default=4, help="the larger number of engines")
    options = parser.parse_args()
    for num_engines in (1, options.engines):
        with tempfile.TemporaryDirectory(prefix="tandem-kv-") as folder, \
                Pair("--served-model-name", "m", *everything_on(num_engines, folder)) as server:
            use_it(server)
            wait_for(lambda: any("kv_fetch_by_stage" in name for name in server.metrics()), "all series")
            for form, accept in FORMS.items():
                cpu, wall, num_bytes, num_exemplars = measure(server, accept)
                print(f"{num_engines} engines, {form}: {cpu:.2f} ms CPU, {wall:.2f} ms at least, {num_bytes} bytes, "
                      f"{num_exemplars} exemplars")


if __name__ == "__main__":
    main()
