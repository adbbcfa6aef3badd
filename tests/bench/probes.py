#!/usr/bin/env python3
"""How long a health probe takes: on an idle server, and while it serves streams and prompts that need all of its CPUs.

  tests/bench/make_model --out models 160m
  TANDEM_BIN_DIR=build/release/bin tests/bench/probes.py models/160m --threads 1

The load is `tandem bench serve` without pauses: --streams requests at a time, each a prompt and its tokens. A probe is a GET
/health, on one connection that stays open and on a new one each time, one every --interval seconds. --threads is the engine's: with
fewer threads than CPUs, the rest of the machine is the frontend's, the load's and the probe's.
"""
import argparse
import contextlib
import http.client
import pathlib
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair, bin_dir


def probe(connection):
    """Milliseconds until the whole response is here."""
    begin = time.monotonic()
    connection.request("GET", "/health")
    response = connection.getresponse()
    response.read()
    assert response.status == 200, response.status
    return 1e3 * (time.monotonic() - begin)


def probes(port, seconds, interval):
    """{kind: milliseconds of each probe}"""
    times, end, pause = {"open connection": [], "new connection": []}, time.monotonic() + seconds, threading.Event()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as kept:
        probe(kept)
        while time.monotonic() < end:
            times["open connection"].append(probe(kept))
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as new:
                times["new connection"].append(probe(new))
            pause.wait(interval)
    return times


def report(name, times):
    for kind, milliseconds in times.items():
        ordered = sorted(milliseconds)
        at = {f"p{100 * q:g}": ordered[int(q * (len(ordered) - 1))] for q in (0.5, 0.99, 0.999, 1)}
        print(f"{name:10} {kind:16} {len(ordered)} probes, ms: " + ", ".join(f"{label} {ms:.2f}" for label, ms in at.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1, help="of the engine")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--interval", type=float, default=0.01)
    options = parser.parse_args()
    with Pair("--served-model-name", "m", "--max-model-len", 2048, "--kv-cache-memory-bytes", "1g", "--threads", options.threads,
              model=options.model) as server:
        port = int(server.port_file.read_text())
        report("idle", probes(port, options.seconds / 3, options.interval))
        load = subprocess.Popen([bin_dir() / "tandem", "bench", "serve", "--port", str(port), "--model", "m", "--tokenizer", options.model,
                                 "--num-prompts", "100000", "--max-concurrency", str(options.streams), "--input-len", "512",
                                 "--output-len", "64", "--ignore-eos", "--temperature", "0"], stdout=subprocess.DEVNULL)
        try:
            probes(port, 5, options.interval)  # until the load is even
            report("under load", probes(port, options.seconds, options.interval))
            assert load.poll() is None, "the load ended early"
        finally:
            load.kill()
            load.wait()


if __name__ == "__main__":
    main()
