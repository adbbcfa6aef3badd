#!/usr/bin/env python3
"""Runs integration tests of the pair where a GPU is: --device auto makes the engines take it. Each class
in a process of its own, several at once; the result is a list to read, as some tests are about the CPU.

TANDEM_BIN_DIR names the programs. Exit status 1: a class failed.
"""
import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "integration"
FILES = """pair resume deaths_of_features swap reload speculation lora engine_lora sampling structured_outputs
    forced_calls kv_cache kv_events kv_offloading engine_metrics engine_wire thinking beam_search messages prompt_embeds
    pooling quantization gguf hard_text corrupted deadlines sleep operations async_scheduling api flight_recorder offline
    prefill_decode soak images""".split()


def classes(file):
    return re.findall(r"^class (\w+)\(unittest\.TestCase\)", file.read_text(), re.M)


def run(file, name, seconds):
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, file, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output, status = process.communicate(timeout=seconds)[0], process.returncode
    except subprocess.TimeoutExpired:
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
        output, status = process.communicate()[0], "time"
    return file, name, status, output.decode(errors="replace"), time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=90, help="for all of it")
    parser.add_argument("files", nargs="*", default=FILES)
    args = parser.parse_args()
    deadline = time.monotonic() + args.seconds
    work = [(FOLDER / f"{file}_test.py", name) for file in args.files for name in classes(FOLDER / f"{file}_test.py")]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(
            lambda each: run(*each, max(min(60.0, deadline - time.monotonic()), 0.1)), work))
    for file, name, status, output, _ in results:
        if status not in (0, "time"):
            print(f"\n---- {file.stem} {name}: status {status}\n{output[-2500:]}")
    print()
    num_failed = 0
    for file, name, status, output, seconds in results:
        skipped = re.search(r"SKIPPED: .*", output) if status == 0 else None
        verdict = "skipped" if skipped else "ok" if status == 0 else f"FAILED ({status})"
        num_failed += verdict.startswith("FAILED")
        print(f"{verdict:<14} {seconds:5.1f} s  {file.stem} {name} {skipped[0] if skipped else ''}")
    print(f"{len(results) - num_failed} of {len(results)} classes passed")
    sys.exit(1 if num_failed else 0)


if __name__ == "__main__":
    main()
