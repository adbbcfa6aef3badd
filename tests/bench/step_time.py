#!/usr/bin/env python3
"""What --max-step-ms does: pauses between tokens, throughput and time to first token, of servers that differ in it alone.

  tests/bench/make_model --out models 160m
  TANDEM_BIN_DIR=build/release/bin tests/bench/step_time.py models/160m --limits 0 auto

Two loads, on each server in turns: streams of a closed loop, each with a prompt of 128 tokens before 64 of its own; and 8 that
decode while prompts of 2,048 tokens arrive one after another, whose TTFT is shown there. Prints the medians over the rounds, and for each server the
median of its ratios to the first one.
"""
import argparse
import contextlib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair, bin_dir

FIGURES = {"output_throughput": "tokens/s", "median_itl_ms": "ITL p50 ms", "p99_itl_ms": "ITL p99 ms",
           "median_ttft_ms": "TTFT p50 ms", "prompts_per_s": "prompts/s"}


def bench(server, seed, streams, prompts, input_len, output_len):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "result.json"
        subprocess.run([bin_dir() / "tandem", "bench", "serve", "--port", server.port_file.read_text().strip(), "--model", "m", "--tokenizer",
                        server.tokenizer, "--num-prompts", str(prompts), "--max-concurrency", str(streams), "--input-len",
                        str(input_len), "--output-len", str(output_len), "--ignore-eos", "--temperature", "0", "--seed", str(seed),
                        "--percentile-metrics", "ttft,itl", "--save-result", "--result-filename", out],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def closed_loop(server, seed, streams):
    return bench(server, seed, streams, 3 * streams, 128, 64)


def read_tokens(server, ids, done, arrivals):
    """Reads a stream until done, and when each of its tokens came."""
    with contextlib.closing(server.connect()) as connection:
        body = {"model": "m", "prompt": ids, "max_tokens": 2000, "temperature": 0, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        while not done.is_set():
            line = response.readline()
            assert line, "a stream ended too early"
            if line.startswith(b"data: {"):
                arrivals.append(time.monotonic())


def beside_prompts(server, seed, length, seconds):
    """8 streams, and prompts that share nothing, one after another; the first seconds of both are not counted."""
    vocab_size = json.loads((pathlib.Path(server.tokenizer) / "config.json").read_text())["vocab_size"]
    rng, done, arrivals, prompts = random.Random(seed), threading.Event(), [[] for _ in range(8)], []

    def ids(count):
        return [rng.randrange(vocab_size // 2) for _ in range(count)]

    threads = [threading.Thread(target=read_tokens, args=(server, ids(32), done, arrivals[i])) for i in range(8)]
    for thread in threads:
        thread.start()
    begin = time.monotonic() + 4
    while time.monotonic() < begin + seconds:
        sent = time.monotonic()
        status, _ = server.post("/v1/completions", {"model": "m", "prompt": ids(length), "max_tokens": 1, "temperature": 0})
        assert status == 200, status
        prompts.append((sent, time.monotonic()))
    done.set()
    for thread in threads:
        thread.join()
    prompts = [(first, last) for first, last in prompts if first >= begin]
    begin, end = prompts[0][0], prompts[-1][1]
    counted = [[at for at in stream if begin <= at <= end] for stream in arrivals]
    gaps = sorted(after - before for stream in counted for before, after in zip(stream, stream[1:]))
    return {"output_throughput": sum(map(len, counted)) / (end - begin), "median_itl_ms": 1e3 * gaps[len(gaps) // 2],
            "p99_itl_ms": 1e3 * gaps[len(gaps) * 99 // 100],
            "median_ttft_ms": 1e3 * statistics.median(last - first for first, last in prompts),
            "prompts_per_s": len(prompts) / (end - begin)}


def report(name, limits, rounds):
    for key, label in FIGURES.items():
        if key not in rounds[0][0]:
            continue
        sides = list(zip(*[[side[key] for side in one] for one in rounds]))
        texts = []
        for limit, side in zip(limits, sides):
            ratios = sorted(b / a for a, b in zip(sides[0], side) if a > 0)
            spread = f" ({statistics.median(ratios):.2f}: {ratios[0]:.2f} to {ratios[-1]:.2f})" if ratios and side is not sides[0] else ""
            texts.append(f"{limit}: {statistics.median(side):.2f}{spread}")
        print(f"{name:24} {label:12} " + "   ".join(texts), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--limits", nargs="+", default=["0", "auto"])
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--prompt", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=20, help="beside prompts, of each server and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kv-cache-memory-bytes", default="1g")
    options = parser.parse_args()
    loads = {f"{n} streams": lambda server, seed, n=n: closed_loop(server, seed, n) for n in options.streams}
    loads[f"beside prompts of {options.prompt}"] = lambda server, seed: beside_prompts(server, seed, options.prompt, options.seconds)
    with contextlib.ExitStack() as stack:
        servers = []
        for limit in options.limits:
            server = stack.enter_context(Pair("--served-model-name", "m", "--max-model-len", options.prompt + 512, "--kv-cache-memory-bytes",
                                              options.kv_cache_memory_bytes, "--max-step-ms", limit, model=options.model))
            server.tokenizer = options.model
            servers.append(server)
        for name, load in loads.items():
            rounds = [[load(server, seed) for server in servers] for seed in range(options.rounds + 1)]
            report(name, options.limits, rounds[1:])  # the first round warms up


if __name__ == "__main__":
    main()
