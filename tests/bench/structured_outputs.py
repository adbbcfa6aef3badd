#!/usr/bin/env python3
"""What a JSON schema costs: the same number of tokens for 8 requests at a time, with a schema and without, in turns.

  TANDEM_BIN_DIR=build/release/bin tests/bench/structured_outputs.py models/160m
  … structured_outputs.py models/160m --llama-server PATH/llama-server --gguf models/160m-bf16.gguf

Prints medians over the rounds: tokens per second, and CPU time per token of the engine and its helpers, which a busy machine
disturbs less. The schema describes a long list of small objects, so that every output has max_tokens tokens. llama.cpp's
server gets the same schema as its json_schema and keeps its own defaults for everything else but the temperature; the
server that is not measured is stopped.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare_sides  # noqa: E402
from pair import Pair  # noqa: E402

SCHEMA = {"type": "array", "minItems": 200, "items": {
    "type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                                     "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}},
    "required": ["name", "age", "tags"]}}
PROMPT = "A list of people:"


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


class Ours:
    def __init__(self, server):
        self.server = server

    def cpu_seconds(self):
        return cpu_seconds(self.server.pid_of("tandem-engine-core"))

    def generate(self, seed, tokens, structured):
        """The number of tokens that a request got."""
        body = {"model": "m", "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "temperature": 1, "seed": seed}
        if structured:
            body["structured_outputs"] = {"json": SCHEMA, "disable_any_whitespace": True}
        status, reply = self.server.post("/v1/completions", body)
        assert status == 200, reply
        return json.loads(reply)["usage"]["completion_tokens"]

    def running(self):
        return contextlib.nullcontext()  # it sleeps when it has nothing to do


class Llama:
    def __init__(self, server):
        self.server = server

    def cpu_seconds(self):
        return self.server.cpu_seconds()

    def generate(self, seed, tokens, structured):
        body = {"prompt": PROMPT, "n_predict": tokens, "ignore_eos": True, "temperature": 1, "seed": seed,
                "cache_prompt": False}
        if structured:
            body["json_schema"] = SCHEMA
        request = urllib.request.Request(self.server.url + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.load(reply)["tokens_predicted"]

    @contextlib.contextmanager
    def running(self):
        self.server.resume()
        try:
            yield
        finally:
            self.server.pause()


def run(side, streams, tokens, structured):
    """Tokens per second, and microseconds of CPU time per token."""
    with side.running(), concurrent.futures.ThreadPoolExecutor(streams) as pool:
        started, cpu = time.monotonic(), side.cpu_seconds()
        counts = list(pool.map(lambda seed: side.generate(seed, tokens, structured), range(streams)))
        seconds, cpu = time.monotonic() - started, side.cpu_seconds() - cpu
    assert counts == [tokens] * streams, counts
    return streams * tokens / seconds, cpu * 1e6 / (streams * tokens)


def report(rounds, name, against):
    for what, unit, i in (("tokens/s", "", 0), ("CPU of a token", " us", 1)):
        values, others = ([one[side][i] for one in rounds] for side in (name, against))
        ratios = sorted(value / other for value, other in zip(values, others))
        print(f"{what}: {against} {statistics.median(others):.0f}{unit}, {name} {statistics.median(values):.0f}{unit}, "
              f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--gguf", type=pathlib.Path, help="the same model for llama-server")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="structured-")))
        ours = Ours(stack.enter_context(Pair("--served-model-name", "m", "--max-model-len", 1024, model=args.model)))
        cases = {"free": (ours, False), "with a schema": (ours, True)}
        if args.llama_server:
            threads = len(os.sched_getaffinity(0))
            server = stack.enter_context(compare_sides.Server(compare_sides.Side("llama", [
                args.llama_server, "-m", args.gguf, "--host", "127.0.0.1", "--port", "{port}", "-c", 1024 * args.streams,
                "-np", args.streams, "-t", threads, "-tb", threads, "--cache-ram", 0]), scratch / "llama.log"))
            server.wait_ready()
            cases |= {"llama.cpp free": (Llama(server), False), "llama.cpp with a schema": (Llama(server), True)}
        for side, structured in cases.values():
            run(side, args.streams, args.tokens, structured)
        rounds = [{name: run(side, args.streams, args.tokens, structured) for name, (side, structured) in cases.items()}
                  for _ in range(args.rounds)]
    report(rounds, "with a schema", "free")
    if args.llama_server:
        report(rounds, "llama.cpp with a schema", "llama.cpp free")
        report(rounds, "with a schema", "llama.cpp with a schema")


if __name__ == "__main__":
    main()
