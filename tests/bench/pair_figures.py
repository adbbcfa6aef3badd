#!/usr/bin/env python3
"""Start-up time, idle CPU and memory of the pair with the shipped model, and tokens per second of one stream.

  TANDEM_BIN_DIR=build/release/bin tests/bench/pair_figures.py [--rounds 5] [--idle-seconds 20]
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_mb(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def one_stream(server, tokens=1000):
    """Tokens per second of one streamed completion, first token excluded."""
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True, "temperature": 0,
                       "stream": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", data=body,
                                     headers={"Content-Type": "application/json"})
    stamps = []
    with urllib.request.urlopen(request) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                stamps.append(time.monotonic())
    return (len(stamps) - 1) / (stamps[-1] - stamps[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=20)
    options = parser.parse_args()

    starts = []
    for _ in range(options.rounds):
        begin = time.monotonic()
        with Pair():
            starts.append(time.monotonic() - begin)
    print(f"start to ready: median {1e3 * statistics.median(starts):.0f} ms, "
          f"{1e3 * min(starts):.0f} to {1e3 * max(starts):.0f}")

    with Pair() as server:
        pids = {name: server.pid_of(name) for name in ("tandem-frontend", "tandem-engine-core")}
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        threading.Event().wait(options.idle_seconds)
        for name, pid in pids.items():
            share = 100 * (cpu_seconds(pid) - before[name]) / options.idle_seconds
            print(f"{name}: idle {share:.2f}% of a core over {options.idle_seconds:.0f} s, {resident_mb(pid):.1f} MB")
        rates = [one_stream(server) for _ in range(options.rounds)]
        print(f"one stream: median {statistics.median(rates):.0f} tokens/s")
        for name, pid in pids.items():
            print(f"{name}: {resident_mb(pid):.1f} MB after {options.rounds} streams")


if __name__ == "__main__":
    main()
