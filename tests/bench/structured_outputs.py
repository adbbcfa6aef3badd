#!/usr/bin/env python3
"""What a JSON schema costs: the same number of tokens for 8 requests at a time, with a schema and without, in turns; and the
time to the first token without a schema, with one that is new to the server, and with the same one again.

  TANDEM_BIN_DIR=build/release/bin tests/bench/structured_outputs.py models/160m
  … structured_outputs.py models/160m --only-first-token
  … structured_outputs.py models/160m --llama-server PATH/llama-server --gguf models/160m-bf16.gguf

Prints medians over the rounds: tokens per second, and CPU time per token of the engine and its helpers, which a busy machine
disturbs less. The schema describes a long list of small objects, so that every output has max_tokens tokens. Beside the times
to the first token stands what the same schemas take to compile alone, by bench_grammars of the same build. llama.cpp's
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
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare_sides  # noqa: E402
from pair import Pair, bin_dir  # noqa: E402

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

    def first_token_ms(self, schema):
        """From the request to the first event of its stream; no other request runs."""
        body = {"model": "m", "prompt": PROMPT, "max_tokens": 4, "ignore_eos": True, "temperature": 1, "seed": 1,
                "stream": True}
        if schema:
            body["structured_outputs"] = {"json": schema}
        connection = self.server.connect()
        connection.connect()
        with contextlib.closing(connection):
            started = time.monotonic()
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            line = reply.readline()
            milliseconds = (time.monotonic() - started) * 1e3
            assert reply.status == 200 and line.startswith(b"data: {") and b'"error"' not in line, (reply.status, line)
            reply.read()
        return milliseconds

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


def numbered_schema(i):
    """Nothing of it but what all schemas share is known from another number."""
    return {"type": "object", "properties": {
        f"name_{i}": {"type": "string"}, f"age_{i}": {"type": "integer", "minimum": 0, "maximum": 130 + i},
        f"tags_{i}": {"type": "array", "items": {"enum": [f"red_{i}", "green", "blue"]}},
        f"place_{i}": {"type": "object", "properties": {"street": {"type": "string"}, "number": {"type": ["integer", "null"]}},
                       "required": ["street"]}},
        "required": [f"name_{i}", f"age_{i}", f"tags_{i}"]}


def numbered_output(i):
    return json.dumps({f"name_{i}": "Ann", f"age_{i}": 40, f"tags_{i}": ["blue"]})


def report_compile_time(model, count, scratch):
    """Of the same schemas without a server."""
    program = bin_dir().parent / "bench" / "bench_grammars"
    if not program.exists():
        return print(f"compile time: {program} is not there")
    cases = [{"name": str(i), "type": "json_schema", "spec": numbered_schema(i), "accept": [numbered_output(i)]}
             for i in range(count)]
    (scratch / "cases.json").write_text(json.dumps({"cases": cases}))
    vocab_size = json.loads((pathlib.Path(model) / "config.json").read_text())["vocab_size"]
    done = subprocess.run([program, model, str(vocab_size), scratch / "cases.json"], capture_output=True, text=True, check=True)
    print(f"alone, a vocabulary of {vocab_size}: {done.stdout.splitlines()[-1]}")


def settle(server):
    """After its first schema tandem-grammar makes masks of common rules ready, for some seconds."""
    cpu, since = server.cpu_seconds(), time.monotonic()
    while time.monotonic() - since < 1:
        time.sleep(0.05)
        if server.cpu_seconds() != cpu:
            cpu, since = server.cpu_seconds(), time.monotonic()


def report_first_tokens(server, count):
    kinds = {"without a schema": lambda i: None, "with a new schema": numbered_schema, "with the same schema again": numbered_schema}
    server.first_token_ms(numbered_schema(-1))
    settle(server)
    times = {name: [] for name in kinds}
    for i in range(count):
        for name, schema in kinds.items():
            times[name].append(server.first_token_ms(schema(i)))
    for name, values in times.items():
        added = statistics.median(value - free for value, free in zip(values, times["without a schema"]))
        values = sorted(values)
        print(f"time to first token {name}: p50 {statistics.median(values):.2f} ms ({values[count // 10]:.2f} to "
              f"{values[-1 - count // 10]:.2f}), {added:+.2f} (p50 of the differences)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--first-tokens", type=int, default=100, help="schemas whose first tokens are timed")
    parser.add_argument("--only-first-token", action="store_true")
    parser.add_argument("--llama-server", type=pathlib.Path)
    parser.add_argument("--gguf", type=pathlib.Path, help="the same model for llama-server")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="structured-")))
        ours = Ours(stack.enter_context(Pair("--served-model-name", "m", "--max-model-len", 1024, model=args.model)))
        cases = {"free": (ours, False), "with a schema": (ours, True)}
        report_first_tokens(ours, args.first_tokens)
        if args.only_first_token:
            return report_compile_time(args.model, args.first_tokens, scratch)
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
        report_compile_time(args.model, args.first_tokens, scratch)
    report(rounds, "with a schema", "free")
    if args.llama_server:
        report(rounds, "llama.cpp with a schema", "llama.cpp free")
        report(rounds, "with a schema", "llama.cpp with a schema")


if __name__ == "__main__":
    main()
