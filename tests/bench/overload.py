#!/usr/bin/env python3
"""What --scheduling-policy does when more prompts arrive than are served: time to first token, of servers that differ in it alone.

  tests/bench/make_model --out models 160m
  TANDEM_BIN_DIR=build/release/bin tests/bench/overload.py models/160m

First finds how many requests a second are served when all are there at once; then sends them faster than that. Prompts have 50 to
1,950 tokens. Prints the medians over the rounds, and the median of the ratios to the first policy.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair, bin_dir

FIGURES = {"median_ttft_ms": "TTFT p50 ms", "mean_ttft_ms": "TTFT mean ms", "p99_ttft_ms": "TTFT p99 ms",
           "request_throughput": "requests/s"}


def bench(server, model, seed, prompts, rate):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "result.json"
        subprocess.run([bin_dir() / "tandem", "bench", "serve", "--port", server.port_file.read_text().strip(), "--model", "m", "--tokenizer",
                        model, "--num-prompts", str(prompts), "--request-rate", str(rate), "--input-len", "1000",
                        "--random-range-ratio", "0.95", "--output-len", "8", "--ignore-eos", "--temperature", "0", "--seed", str(seed),
                        "--percentile-metrics", "ttft", "--save-result", "--result-filename", out],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--policies", nargs="+", default=["fcfs", "shortest-prompt"])
    parser.add_argument("--load", type=float, default=1.3, help="requests that arrive to those that are served")
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Pair("--served-model-name", "m", "--max-model-len", 2048, "--kv-cache-memory-bytes", "1g",
                                            "--no-enable-prefix-caching", "--scheduling-policy", policy, model=options.model))
                   for policy in options.policies]
        served = bench(servers[0], options.model, 0, options.prompts, "inf")["request_throughput"]
        rate = options.load * served
        print(f"{served:.1f} requests/s are served, {rate:.1f} arrive")
        rounds = [[bench(server, options.model, seed, options.prompts, rate) for server in servers]
                  for seed in range(1, options.rounds + 1)]
    for key, label in FIGURES.items():
        sides = list(zip(*[[side[key] for side in one] for one in rounds]))
        texts = [f"{options.policies[0]}: {statistics.median(sides[0]):.1f}"]
        for policy, side in zip(options.policies[1:], sides[1:]):
            ratios = sorted(b / a for a, b in zip(sides[0], side))
            texts.append(f"{policy}: {statistics.median(side):.1f} ({statistics.median(ratios):.2f}: {ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(f"{label:12} " + "   ".join(texts), flush=True)


if __name__ == "__main__":
    main()
