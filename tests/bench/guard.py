#!/usr/bin/env python3
"""The few ratios that matter, beside those of the last release: what a change has cost, in one table and five minutes.

  build/venv/bin/python tests/bench/guard.py                # this build against tests/bench/guard.json
  build/venv/bin/python tests/bench/guard.py --save         # this build's numbers become the ones to hold on such a machine

Kernels as shares of the ceilings that the same run measures; CPU times in units of a SHA-256 block hash of the same round, or as
ratios, so that they mean something on another machine; best is to --save there before the change. A row is worse if its median
is, by more than the row's tolerance and out of the stored spread. Exit status 1 if any is, 2 without what it needs. On a quiet
machine, over the preset `release`.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STORED = HERE / "guard.json"

HASH = "HashBlock/block_size:32/xxhash:0"
STEP = "DecodeStep/running:256/block_size:32/caching:1/recorder_mib:{}/iterations:20000"


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    value: object       # of a round: a number from {benchmark: its results}
    tolerance: float    # as a share
    more_is_better: bool = False


def counter(benchmark, key):
    return lambda round_: round_[benchmark][key]


def over(benchmark, key, other, other_key):
    return lambda round_: round_[benchmark][key] / round_[other][other_key]


def linear(name, weights, rows):
    return Row(f"{name} product, rows: {rows}, of the ceiling", counter(f"BM_Linear/{weights}/m:{rows}/n:5632/k:2048/real_time", "ceiling"),
               0.1, more_is_better=True)


ROWS = [
    *[linear("bf16", "bf16", rows) for rows in (1, 8, 32, 512)],
    *[linear("int8", "int8", rows) for rows in (1, 32)],
    linear("int4", "int4_g32", 1),
    Row("attention, 16 requests of 512, of the ceiling",
        counter("BM_Attention/bf16/requests:16/queries:1/context:512/dim:64/real_time", "ceiling"), 0.1, more_is_better=True),
    Row("attention, a prompt of 512, of the ceiling",
        counter("BM_Attention/bf16/requests:1/queries:512/context:512/dim:128/real_time", "ceiling"), 0.1, more_is_better=True),
    Row("Q4_K product of 1 row, to bf16", counter("BM_BlockLinear/q4_k/m:1/n:5632/k:2048/manual_time", "to_bf16"), 0.1,
        more_is_better=True),
    Row("product with 8 adapters, to without", counter("BM_AdaptedLinear/bf16/m:8/n:2048/k:5632/manual_time", "to_base"), 0.1,
        more_is_better=True),
    Row("step of 256 requests, in block hashes", over(STEP.format(0), "cpu_time", HASH, "cpu_time"), 0.1),
    Row("the same: p99 to p50", over(STEP.format(0), "p99_us", STEP.format(0), "p50_us"), 0.5),
    Row("the same with the flight recorder, to without", over(STEP.format(32), "cpu_time", STEP.format(0), "cpu_time"), 0.1),
    Row("decoding a step of 256, to the parser alone", over("StepOurs/256", "cpu_time", "StepParserAlone/256", "cpu_time"), 0.1),
    Row("an event of a chat, in block hashes", over("StreamToken/chat", "cpu_time", HASH, "cpu_time"), 0.1),
    Row("a chat of 100 tokens prepared, in block hashes", over("PrepareChat/100", "cpu_time", HASH, "cpu_time"), 0.1),
    Row("/metrics of 8 engines, to prometheus-cpp", over("Ours/8", "cpu_time", "Library/8", "cpu_time"), 0.1),
    Row("CPU of a streamed token, 256 at 50/s, in block hashes", over("streamed token", "ns", HASH, "cpu_time"), 0.2),
    Row("start to ready, shipped model, ms", counter("start", "ms"), 0.5),
]
BINARIES = {
    "bench_kernels": ["BM_Linear/bf16/m:(1|8|32|512)/n:5632/k:2048/", "BM_Linear/int8/m:(1|32)/n:5632/", "BM_Linear/int4_g32/m:1/n:5632/",
                      "BM_Attention/bf16/requests:16/queries:1/context:512/dim:64", "BM_Attention/bf16/requests:1/queries:512/context:512",
                      "BM_BlockLinear/q4_k/m:1/", "BM_AdaptedLinear/bf16/m:8/n:2048/k:5632"],
    "bench_scheduler": ["DecodeStep/running:256/block_size:32/caching:1", "HashBlock/block_size:32/xxhash:0"],
    "bench_msgpack": ["StepOurs/256", "StepParserAlone/256"],
    "bench_api": ["StreamToken/chat", "PrepareChat/100$"],
    "bench_exposition": ["(Ours|Library)/8"],
}


def run_benchmarks(folder):
    results = {}
    for binary, names in BINARIES.items():
        out = subprocess.run([folder / binary, f"--benchmark_filter={'|'.join(names)}", "--benchmark_format=json"], check=True,
                             capture_output=True, text=True).stdout
        for result in json.JSONDecoder().raw_decode(out[out.index("{"):])[0]["benchmarks"]:
            scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[result["time_unit"]]
            results[result["name"]] = result | {"cpu_time": scale * result["cpu_time"]}
    return results


def run_round(build):
    sys.path[:0] = [str(HERE), str(ROOT / "tests/support")]
    import frontend_cost
    from pair import Pair
    results = run_benchmarks(build / "bench")
    options = argparse.Namespace(bin=str(build / "bin"), load=str(build / "bench/stream_load"), streams=256, tokens=200, rate=50)
    cost = frontend_cost.measure("tandem", options, str(ROOT / "deploy/models/tandem-tiny"))
    results["streamed token"] = {"ns": 1e3 * cost["us_per_token"]}
    begin = time.monotonic()
    with Pair():
        results["start"] = {"ms": 1e3 * (time.monotonic() - begin)}
    return results


def summary(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def is_worse(row, stored, now):
    """now and stored: see summary."""
    if row.more_is_better:
        return now["median"] < min(stored["median"] * (1 - row.tolerance), stored["low"])
    return now["median"] > max(stored["median"] * (1 + row.tolerance), stored["high"])


def table(stored, now):
    """(lines, the names of what is worse)"""
    lines, worse = [f"{'':58} {'stored':>24} {'now':>24}  ratio"], []
    for row in ROWS:
        cells = [f"{one['median']:9.3g} ({one['low']:.3g}–{one['high']:.3g})" if one else "–" for one in (stored.get(row.name), now[row.name])]
        line = f"{row.name:58} {cells[0]:>24} {cells[1]:>24}"
        if row.name in stored:
            line += f"  {now[row.name]['median'] / stored[row.name]['median']:.2f}"
            if is_worse(row, stored[row.name], now[row.name]):
                worse.append(row.name)
                line += "  worse"
        lines.append(line)
    return lines, worse


def machine():
    cpus = pathlib.Path("/proc/cpuinfo").read_text()
    name = next((line.split(":")[1].strip() for line in cpus.splitlines() if line.startswith("model name")), platform.machine())
    return f"{name}, {len(os.sched_getaffinity(0))} CPUs"


def missing_programs(build):
    programs = [build / "bench" / name for name in (*BINARIES, "stream_load")] + [build / "bin/tandem"]
    return [str(program) for program in programs if not os.access(program, os.X_OK)]


def note(stored_machine, stored):
    """Of what the numbers are held to; empty: this machine's own."""
    if not stored:
        return "No numbers are stored yet: --save stores these."
    if stored_machine == machine():
        return ""
    return (f"The stored numbers are of another machine: {stored_machine}; this is {machine()}. Ratios carry over roughly: to see what a "
            "change costs here, run the tree before it with --save.")


def stored_of(numbers, name):
    """(machine, its rows): those of this machine, or else of the first one that is stored."""
    if not numbers or name in numbers:
        return name, numbers.get(name, {})
    return next(iter(numbers.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="folder of a build, with bin and bench")
    parser.add_argument("--rounds", type=int, default=5, help="a minute each; the table has their medians and spreads")
    parser.add_argument("--save", action="store_true", help="the numbers of this build become the ones to hold")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if missing := missing_programs(options.build):
        parser.error(f"there is no {', no '.join(missing)}: build the preset first, with libbenchmark-dev installed")
    os.environ["TANDEM_BIN_DIR"] = str(options.build / "bin")
    rounds = [run_round(options.build) for _ in range(options.rounds)]
    now = {row.name: summary([row.value(one) for one in rounds]) for row in ROWS}
    numbers = json.loads(STORED.read_text()) if STORED.exists() else {}
    stored_machine, stored = stored_of(numbers, machine())
    lines, worse = table(stored, now)
    print("\n".join(lines))
    if about := note(stored_machine, stored):
        print(about)
    if options.save:
        numbers[machine()] = {name: {key: float(f"{value:.4g}") for key, value in one.items()} for name, one in now.items()}
        STORED.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
