#!/usr/bin/env python3
"""Device time of a step by kernel, as Nsight Compute (ncu) sees each alone: profile.py FIGURES."""
import collections
import csv
import io
import re
import subprocess
import sys

METRICS = {"gpu__time_duration.sum": "us", "dram__throughput.avg.pct_of_peak_sustained_elapsed": "% of DRAM"}
# Shape, requests, and tokens of each in a step.
STEPS = [("8b", 1, 1), ("8b", 32, 1), ("8b", 1, 2048), ("8b-int4", 8, 1), ("0.6b", 1, 1)]


def short(name):
    name = re.sub(r"\(.*$|void |tandem::|\(anonymous namespace\)::|<unnamed>::", "", name)
    return name if len(name) < 90 else name[:87] + "..."


def profile(figures, shape, requests, tokens):
    ncu = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
           "--profile-from-start", "off",
           "--metrics", ",".join(METRICS)]
    done = subprocess.run(ncu + [figures, "--json=/dev/null", f"--steps={requests}x{tokens}", shape],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        print("\n".join(lines[-10:]))
        return False
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))[1:]  # the first has the units
    times, calls, share = collections.Counter(), collections.Counter(), collections.Counter()
    for row in rows:
        name = short(row["Kernel Name"])
        microseconds = float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3
        times[name] += microseconds
        calls[name] += 1
        share[name] += microseconds * float(row["dram__throughput.avg.pct_of_peak_sustained_elapsed"])
    total = sum(times.values())
    print(f"\n{shape}, {requests} requests x {tokens} tokens: {total:.0f} us of kernels in a step")
    for name, value in times.most_common(14):
        print(f"{100 * value / total:5.1f}% {value:9.1f} us {calls[name]:4} calls "
              f"{share[name] / value:5.1f}% of DRAM  {name}")
    sys.stdout.flush()
    return True


if __name__ == "__main__":
    sys.exit(0 if all([profile(sys.argv[1], *step) for step in STEPS]) else 1)
