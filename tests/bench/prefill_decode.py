#!/usr/bin/env python3
"""What prompts cost those who are reading, and a first token on an idle server: one engine beside --prefill 1 --decode 1.

  tests/bench/make_model --out models 160m
  TANDEM_BIN_DIR=build/release/bin tests/bench/prefill_decode.py models/160m --threads 1 --thresholds 32 128 512

Servers take turns: one engine whose steps nothing but --max-num-batched-tokens bounds, one with the default of --max-step-ms, one
for each --long-prefill-token-threshold, and two engines of one role each. --threads is each engine's, so a pair has twice the CPU time of one engine; "first token" compares the path alone.
Prints medians over the rounds, and for each server the median of its ratios to the first one.
"""
import argparse
import contextlib
import json
import pathlib
import random
import statistics
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair
from step_time import report

STREAMS = 8


def stream(server, number, end, gaps):
    """Reads one stream until the time `end`; appends the milliseconds between its events."""
    body = {"model": "m", "prompt": [number + 1] * 16, "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(server.url + "/v1/completions", data=json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    while time.monotonic() < end:
        with urllib.request.urlopen(request) as response:
            last = None
            for line in response:
                now = time.monotonic()
                if now >= end:
                    return
                if not line.startswith(b"data: {"):
                    continue
                if last is not None:
                    gaps.append(1e3 * (now - last))
                last = now


def beside_prompts(server, seed, length, seconds):
    """8 streams, and prompts that share nothing, one after another, for `seconds`."""
    vocab_size = json.loads((pathlib.Path(server.tokenizer) / "config.json").read_text())["vocab_size"]
    end, gaps, num_prompts, rng = time.monotonic() + seconds, [], 0, random.Random(seed)
    threads = [threading.Thread(target=stream, args=(server, i, end, gaps)) for i in range(STREAMS)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        ids = [rng.randrange(vocab_size // 2) for _ in range(length)]
        status, response = server.post("/v1/completions", {"model": "m", "prompt": ids, "max_tokens": 1, "temperature": 0})
        assert status == 200, response
        num_prompts += 1
    for thread in threads:
        thread.join()
    gaps.sort()
    return {"output_throughput": len(gaps) / seconds, "median_itl_ms": gaps[len(gaps) // 2],
            "p99_itl_ms": gaps[len(gaps) * 99 // 100], "prompts_per_s": num_prompts / seconds}


def first_token(server, seed, length):
    """An idle server's time for a prompt and one token."""
    vocab_size = json.loads((pathlib.Path(server.tokenizer) / "config.json").read_text())["vocab_size"]
    rng, seconds = random.Random(f"first {seed}"), []  # unlike those of the other load, which are cached
    for _ in range(3):
        ids = [rng.randrange(vocab_size // 2) for _ in range(length)]
        begin = time.monotonic()
        status, response = server.post("/v1/completions", {"model": "m", "prompt": ids, "max_tokens": 1, "temperature": 0})
        seconds.append(time.monotonic() - begin)
        assert status == 200, response
    return {"median_ttft_ms": 1e3 * statistics.median(seconds)}


def sides(options):
    named = {"one engine": ["--max-step-ms", 0], "default limit": []}
    for threshold in options.thresholds:
        named[f"threshold {threshold}"] = ["--long-prefill-token-threshold", threshold]
    return {**named, "two roles": ["--prefill", 1, "--decode", 1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--thresholds", type=int, nargs="*", default=[128])
    parser.add_argument("--prompt", type=int, default=3584, help="tokens")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=40, help="of the load with streams, in each round")
    parser.add_argument("--kv-cache-memory-bytes", default="1g")
    options = parser.parse_args()
    loads = {f"beside prompts of {options.prompt}": lambda *load: beside_prompts(*load, options.seconds),
             f"first token of {options.prompt}": first_token}
    with contextlib.ExitStack() as stack:
        servers = []
        for flags in sides(options).values():
            server = stack.enter_context(Pair("--served-model-name", "m", "--max-model-len", options.prompt + 512,
                                              "--kv-cache-memory-bytes", options.kv_cache_memory_bytes, "--threads",
                                              options.threads, *flags, model=options.model))
            server.tokenizer = options.model
            servers.append(server)
        for name, load in loads.items():
            rounds = [[load(server, seed, options.prompt) for server in servers] for seed in range(options.rounds + 1)]
            report(name, list(sides(options)), rounds[1:])  # the first round warms up


if __name__ == "__main__":
    main()
