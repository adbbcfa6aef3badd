#!/usr/bin/env python3
"""Runs each test case of some programs in a process of its own, several at once: after a fault in one,
the device is of no use to its process, but to all others.

A case that fails runs again under compute-sanitizer, if that is there and the time allows; with
--sanitizer all cases run under that tool of it. Exit status 1: a case failed, or did not run.
"""
import argparse
import concurrent.futures
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

SANITIZED_AT_MOST = 6
SANITIZER = ["compute-sanitizer", "--print-limit", "3", "--show-backtrace", "device"]


def call(command, seconds):
    """Exit status, or "time", and output."""
    try:
        done = subprocess.run(command, timeout=max(seconds, 0.1), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as ended:
        return "time", (ended.stdout or b"").decode(errors="replace")


class Cases:
    def __init__(self, args):
        self.args = args
        self.prefix = shlex.split(args.prefix)
        self.deadline = time.monotonic() + args.seconds

    def left(self):
        return self.deadline - time.monotonic()

    def names(self, program):
        """Catch2 returns the number of names."""
        _, listed = call([*self.prefix, program, "--list-test-names-only"], 20)
        return [line for line in listed.splitlines() if line.strip()]

    def command(self, program, name):
        tool = self.args.sanitizer
        sanitizer = [*SANITIZER, "--tool", tool, "--error-exitcode", "9"] if tool else []
        return [*sanitizer, *self.prefix, program, re.sub(r"([\\,\[\]*~\"])", r"\\\1", name)]

    def run(self, program, name):
        begin = time.monotonic()
        if self.left() < 1:
            status, output = "not run", ""
        else:
            status, output = call(self.command(program, name), min(self.left(), self.args.case_seconds))
        if status == 0 and "No test cases matched" in output:
            status = "not found"
        return program, name, status, output, time.monotonic() - begin

    def sanitize(self, failed):
        if self.args.sanitizer or not shutil.which(SANITIZER[0]):
            return
        for program, name, status, *_ in failed[:SANITIZED_AT_MOST]:
            if status == "not run" or self.left() < 5:
                continue
            _, output = call(SANITIZER + self.command(program, name), min(self.left(), 40))
            print(f"\n---- {name}, by {SANITIZER[0]}\n{output[:4000]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120, help="for all of it")
    parser.add_argument("--case-seconds", type=float, default=60)
    parser.add_argument("--sanitizer", metavar="TOOL", help="memcheck, racecheck, synccheck or initcheck")
    parser.add_argument("--prefix", default="", help="command that starts a program")
    args = parser.parse_args()
    cases = Cases(args)
    work = [(program, name) for program in args.programs for name in cases.names(program)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda each: cases.run(*each), work))
    failed = [result for result in results if result[2] != 0]
    for program, name, status, output, _ in failed:
        if status != "not run":
            print(f"\n---- {name}: status {status}\n{output[-3000:]}")
    cases.sanitize(failed)
    print()
    for program, name, status, output, seconds in results:
        skipped = re.search(r"SKIPPED.*", output) if status == 0 else None
        verdict = "skipped" if skipped else "ok" if status == 0 else f"FAILED ({status})"
        print(f"{verdict:<12} {seconds:5.1f} s  {name}{': ' + skipped[0] if skipped else ''}")
    print(f"{len(results) - len(failed)} of {len(results)} cases passed")
    sys.exit(0 if results and not failed else 1)


if __name__ == "__main__":
    main()
