#!/usr/bin/env python3
"""What speculative decoding gains where text repeats itself and costs where it does not: tokens/s with and without, in turns.

  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py models/160m
  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py deploy/models/tandem-tiny --tokens 512
  tests/bench/make_model --out models --drafter-layers 1 1.1b
  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py models/1.1b-pair --drafter models/1.1b-drafter
  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py models/1.1b --drafter models/1.1b-drafter  # mostly wrong
  tests/bench/widen_model deploy/models/tandem-tiny models/tandem-wide --layers 12 --intermediate 3200
  TANDEM_BIN_DIR=build/release/bin tests/bench/speculation.py models/tandem-wide --cases chat noise \
      --config '{"method": "eagle", "model": "models/eagle-wide", "num_speculative_tokens": 4}'

Two servers run side by side; the one that is not asked sleeps. Each round asks both for the same text and checks that it is the
same. Cases: "repeats", greedy text after a prompt that says one thing several times (models with random weights fall into
loops); "novel", text drawn at temperature 1, of which random weights repeat nothing; "chat", greedy answers of a model that was
trained, to questions of the kind that the shipped one knows, as long as they are; "noise", text drawn at temperature 2, which
no trained model's drafts are made for. Prints for each case and number of streams the medians over the rounds, the ratio with
its spread, that of the engine core's CPU time per token (which other programs disturb less), and how many drafts were right.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair

SENTENCE = "Once there was a small fox who lived near the old mill, and every morning it ran to the river to look for fish. "
HEROES = "fox owl bear rabbit hedgehog dragon cat mouse frog duck pirate robot turtle wolf squirrel horse bee penguin".split()
CHATS = ["Tell me a story about a {}.", "Tell me a long story about a {} and a friend.", "Write a story about a brave {}.",
         "Please tell me a story about a {} who is lost."]
TEMPERATURES = {"repeats": 0, "novel": 1, "chat": 0, "noise": 2}
NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}'


def body_of(case, number, i, tokens):
    """A prompt of its own for each round and stream, so that no cached prefix helps one side."""
    body = {"model": "m", "max_tokens": tokens, "temperature": TEMPERATURES[case], "seed": 100 * number + i}
    if case == "chat":
        question = CHATS[number % len(CHATS)].format(HEROES[(7 * number + i) % len(HEROES)])
        return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": question}]}
    prompt = f"Story {number} of reader {i}. " + (6 if case == "repeats" else 1) * SENTENCE
    return "/v1/completions", {**body, "prompt": prompt, "ignore_eos": True, "min_tokens": tokens}


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(server, case, streams, tokens, number):
    """Tokens per second, the same per second of the engine core's CPU time, and the texts."""
    bodies = [body_of(case, number, i, tokens) for i in range(streams)]
    engine = server.pid_of("tandem-engine-core")
    started, cpu = time.monotonic(), cpu_seconds(engine)
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        replies = list(pool.map(lambda one: server.post(*one), bodies))
    seconds, cpu = time.monotonic() - started, cpu_seconds(engine) - cpu
    assert all(status == 200 for status, _ in replies), replies[0]
    replies = [json.loads(reply) for _, reply in replies]
    counts = [reply["usage"]["completion_tokens"] for reply in replies]
    assert case == "chat" or counts == [tokens] * streams, counts
    choices = [reply["choices"][0] for reply in replies]
    return sum(counts) / seconds, sum(counts) / max(cpu, 1e-3), [choice["message"]["content"] if case == "chat" else choice["text"] for choice in choices]


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
    parser.add_argument("--cases", nargs="+", default=["repeats", "novel"], choices=sorted(TEMPERATURES))
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
                rounds, before = [], drafts(drafting)
                for number in range(args.rounds + 1):
                    sides = [ask(server, case, streams, args.tokens, number) for server in (plain, drafting)]
                    assert sides[0][2] == sides[1][2], "texts differ"
                    if number > 0:  # the first round warms up
                        rounds.append(sides)
                verified, accepted = (after - b for after, b in zip(drafts(drafting), before))
                ratios, by_cpu = (sorted(b[i] / a[i] for a, b in rounds) for i in (0, 1))
                medians = [statistics.median(side[0] for side in sides) for sides in zip(*rounds)]
                print(f"{case}, {streams} streams: plain {medians[0]:.0f} tokens/s, drafting {medians[1]:.0f}, ratio "
                      f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), by CPU time "
                      f"{statistics.median(by_cpu):.3f} ({by_cpu[0]:.3f} to {by_cpu[-1]:.3f}); {verified:.0f} drafts verified, "
                      f"{accepted:.0f} right", flush=True)


if __name__ == "__main__":
    main()
