#!/usr/bin/env python3
"""What a JSON schema costs: the same number of tokens for 8 requests at a time, with a schema and without, in turns.

  TANDEM_BIN_DIR=build/release/bin tests/bench/structured_outputs.py models/160m

Prints medians over the rounds: tokens per second, and CPU time per token of the engine and its helpers, which a busy machine
disturbs less. The schema describes an endless list of small objects, so that every output has max_tokens tokens.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair

SCHEMA = {"type": "array", "minItems": 1000, "items": {
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                                     "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}},
    "required": ["name", "age", "tags"]}}


def cpu_seconds(pid):
    """Of a process and all below it."""
    total = 0.0
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            total += sum(cpu_seconds(int(child)) for child in task.read_text().split())
    except OSError:
        pass
    return total


def run(server, streams, tokens, structured):
    body = {"model": "m", "prompt": "A list of people:", "max_tokens": tokens, "ignore_eos": True, "temperature": 1}
    if structured:
        body["structured_outputs"] = {"json": SCHEMA, "disable_any_whitespace": True}
    engine = server.pid_of("tandem-engine-core")
    started, cpu = time.monotonic(), cpu_seconds(engine)
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        replies = list(pool.map(lambda i: server.post("/v1/completions", {**body, "seed": i}), range(streams)))
    seconds, cpu = time.monotonic() - started, cpu_seconds(engine) - cpu
    counts = [json.loads(reply)["usage"]["completion_tokens"] for status, reply in replies if status == 200]
    assert counts == [tokens] * streams, counts
    return streams * tokens / seconds, cpu * 1e6 / (streams * tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with Pair("--served-model-name", "m", "--max-model-len", 1024, model=args.model) as server:
        for structured in (False, True):
            run(server, args.streams, args.tokens, structured)
        rounds = [[run(server, args.streams, args.tokens, structured) for structured in (False, True)]
                  for _ in range(args.rounds)]
    for name, unit, i in (("tokens/s", "", 0), ("CPU of a token", " us", 1)):
        free, held = (statistics.median(one[side][i] for one in rounds) for side in (0, 1))
        ratios = sorted(one[1][i] / one[0][i] for one in rounds)
        print(f"{name}: free {free:.0f}{unit}, with a schema {held:.0f}{unit}, ratio {statistics.median(ratios):.3f} "
              f"({ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    main()
