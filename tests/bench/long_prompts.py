#!/usr/bin/env python3
"""What prompts of 1 MB cost other streams: gaps in them.

Streams of a fixed pace run over a mock engine, alone and then beside a client that posts one long prompt after another.
The prompts are cut to what fits (truncate_prompt_tokens), so each is tokenized whole; the mock engine ends them at once.

  tests/bench/long_prompts.py --bin build/release/bin --load build/release/bench/stream_load
"""
import argparse
import http.client
import json
import multiprocessing
import pathlib
import random
import subprocess
import sys
import time

import frontend_cost

MEGABYTE = 1 << 20


def prompts():
    rng = random.Random(1)
    words = (pathlib.Path(frontend_cost.ROOT) / "docs/design.md").read_text().split()
    return {
        "words": " ".join(rng.choices(words, k=MEGABYTE // 5))[:MEGABYTE],
        "one letter": "a" * MEGABYTE,
        "blanks": " " * MEGABYTE,
        "Chinese": "".join(chr(rng.randrange(0x4E00, 0x9FA5)) for _ in range(MEGABYTE // 3)),
    }


def post_until(done, port, text, times):
    """Runs in a process of its own; puts the seconds of each prompt into `times`."""
    body = json.dumps({"model": "m", "prompt": text, "max_tokens": 1, "truncate_prompt_tokens": 16})
    while not done.is_set():
        begin = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        if response.status != 200:
            times.put(f"HTTP {response.status}: {answer[:200]!r}")
            return
        times.put(time.monotonic() - begin)


def streams(options, port):
    out = subprocess.run([options.load, str(port), str(options.streams), str(options.tokens), "m"], check=True,
                         capture_output=True)
    return json.loads(out.stdout)["gap_ms"]


def streams_beside(options, port, text):
    done, times = multiprocessing.Event(), multiprocessing.Queue()
    client = multiprocessing.Process(target=post_until, args=(done, port, text, times))
    client.start()
    try:
        gaps = streams(options, port)
    finally:
        done.set()
    client.join()
    seconds = []
    while not times.empty():
        seconds.append(times.get())
    wrong = [each for each in seconds if isinstance(each, str)]
    if wrong or not seconds:
        raise SystemExit(f"a long prompt failed: {wrong or 'none was sent'}")
    return gaps, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(frontend_cost.ROOT / "build/release/bin"))
    parser.add_argument("--load", default=str(frontend_cost.ROOT / "build/release/bench/stream_load"))
    parser.add_argument("--model", default=str(frontend_cost.ROOT / "deploy/models/tandem-tiny"))
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=250, help="per stream")
    parser.add_argument("--rate", type=float, default=50, help="tokens per second and stream")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    port, processes = frontend_cost.start_pair("tandem", options, options.model)
    try:
        streams(options, port)  # warm up
        for name, text in prompts().items():
            for _ in range(options.rounds):
                alone = streams(options, port)
                beside, seconds = streams_beside(options, port, text)
                print(f"{name:10} gaps alone p50 {alone[0]:.2f} p99 {alone[1]:.2f} ms, beside {len(seconds)} prompts of "
                      f"{1e3 * sum(seconds) / len(seconds):.0f} ms each p50 {beside[0]:.2f} p99 {beside[1]:.2f} ms, "
                      f"ratio of p99 {beside[1] / alone[1]:.2f}", flush=True)
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
