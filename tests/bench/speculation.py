#!/usr/bin/env python3
"""What speculative decoding gains where text repeats itself and costs where it does not: tokens/s with and without, in turns.

  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py models/160m
  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py deploy/models/tandem-tiny --tokens 512
  tests/bench/make_model --out models --drafter-layers 1 1.1b
  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py models/1.1b-pair --drafter models/1.1b-drafter
  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py models/1.1b --drafter models/1.1b-drafter  # mostly wrong

Two servers run side by side; the one that is not asked sleeps. Each round asks both for the same text and checks that it is the
same. Cases: "repeats", greedy text after a prompt that says one thing several times (models with random weights fall into
loops); "novel", text drawn at temperature 1, of which random weights repeat nothing. Prints for each case and number of
streams the medians over the rounds, the ratio with its spread, and how many drafts were right.
"""
import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair

SENTENCE = "Once there was a small fox who lived near the old mill, and every morning it ran to the river to look for fish. "
NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}'


def ask(server, case, streams, tokens, round_number):
    """Tokens per second, and the texts."""
    body = {"model": "m", "max_tokens": tokens, "ignore_eos": True, "min_tokens": tokens}
    if case == "repeats":
        body |= {"temperature": 0}
    else:
        body |= {"temperature": 1}
    # A prompt of its own for each stream and round, so that no cached prefix helps one side.
    bodies = [{**body, "seed": 100 * round_number + i,
               "prompt": f"Story {round_number} of reader {i}. " + (6 if case == "repeats" else 1) * SENTENCE}
              for i in range(streams)]
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        replies = list(pool.map(lambda one: server.post("/v1/completions", one), bodies))
    seconds = time.monotonic() - started
    choices = [json.loads(reply) for status, reply in replies if status == 200]
    assert [choice["usage"]["completion_tokens"] for choice in choices] == [tokens] * streams, replies[0]
    return streams * tokens / seconds, [choice["choices"][0]["text"] for choice in choices]


def drafts(server):
    """Verified and accepted so far."""
    series = server.metrics()
    return [sum(value for name, value in series.items() if name.startswith(f"vllm:spec_decode_num_{kind}_tokens_total"))
            for kind in ("draft", "accepted")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--config", default=NGRAM, help="--speculative-config of the second server")
    parser.add_argument("--drafter", help="folder of a draft model, in place of --config")
    parser.add_argument("--drafts", type=int, default=4, help="of the draft model in a step")
    parser.add_argument("--cases", nargs="+", default=["repeats", "novel"], choices=["repeats", "novel"])
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    if args.drafter:
        args.config = json.dumps({"model": args.drafter, "num_speculative_tokens": args.drafts})
    flags = ("--served-model-name", "m", "--max-model-len", 1024)
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(Pair(*flags, model=args.model))
        drafting = stack.enter_context(Pair(*flags, "--speculative-config", args.config, model=args.model))
        for case in args.cases:
            for streams in args.streams:
                rates, before = [], drafts(drafting)
                for number in range(args.rounds + 1):
                    sides = [ask(server, case, streams, args.tokens, number) for server in (plain, drafting)]
                    assert sides[0][1] == sides[1][1], "texts differ"
                    if number > 0:  # the first round warms up
                        rates.append([rate for rate, _ in sides])
                verified, accepted = (after - b for after, b in zip(drafts(drafting), before))
                ratios = sorted(b / a for a, b in rates)
                medians = [statistics.median(side) for side in zip(*rates)]
                print(f"{case}, {streams} streams: plain {medians[0]:.0f} tokens/s, drafting {medians[1]:.0f}, ratio "
                      f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}); {verified:.0f} drafts verified, "
                      f"{accepted:.0f} right", flush=True)


if __name__ == "__main__":
    main()
