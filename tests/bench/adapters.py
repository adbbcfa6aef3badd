#!/usr/bin/env python3
"""What LoRA adapters cost: tokens/s of streams that each have an adapter of their own, and of the same streams without, in turns.

  tests/bench/make_model --out models --adapters 8 1.1b
  TANDEM_BIN_DIR=build/release/bin tests/bench/adapters.py models/1.1b models/1.1b-adapters/*
  TANDEM_BIN_DIR=build/release/bin tests/bench/adapters.py models/1.1b models/1.1b-adapters/* --flags --quantization int8

One server serves both; each round asks it twice. Prints the medians over the rounds and the ratio with its spread.
"""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair


def ask(server, models, tokens, round_number):
    """Tokens per second of one stream for each model."""
    bodies = [{"model": model, "max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True, "temperature": 0,
               "prompt": f"Story {round_number} of reader {i}: once there was a fox."} for i, model in enumerate(models)]
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
        replies = list(pool.map(lambda one: server.post("/v1/completions", one), bodies))
    seconds = time.monotonic() - started
    counts = [json.loads(reply)["usage"]["completion_tokens"] for status, reply in replies if status == 200]
    assert counts == [tokens] * len(models), replies[0]
    return len(models) * tokens / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("adapters", nargs="+", help="PEFT folders, one for each stream")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="more flags of tandem serve")
    args = parser.parse_args()
    names = [f"adapter-{i}" for i in range(len(args.adapters))]
    modules = [f"{name}={pathlib.Path(folder).resolve()}" for name, folder in zip(names, args.adapters)]
    with Pair("--served-model-name", "m", "--max-model-len", 1024, "--enable-lora", "--max-loras", len(names), "--max-lora-rank",
              64, "--lora-modules", *modules, *args.flags, model=args.model) as server:
        rates = []
        for number in range(args.rounds + 1):
            sides = [ask(server, models, args.tokens, number) for models in (["m"] * len(names), names)]
            if number > 0:  # the first round warms up
                rates.append(sides)
    ratios = sorted(b / a for a, b in rates)
    medians = [statistics.median(side) for side in zip(*rates)]
    print(f"{len(names)} streams: base {medians[0]:.1f} tokens/s, an adapter each {medians[1]:.1f}, ratio "
          f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)


if __name__ == "__main__":
    main()
