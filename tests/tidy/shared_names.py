#!/usr/bin/env python3
"""Fails when both libraries define a name of the CUDA backend.

    shared_names.py <nm> <emulated library> <real library>

In one program the linker would use one of the two definitions for both. Inline functions from headers
of the rest of the project are in both libraries too, but are the same there, so they do not count.
"""
import re
import subprocess
import sys

OF_THE_BACKEND = re.compile("cuda|cublas|flashinfer|launch", re.IGNORECASE)


def defined(nm, library):
    text = subprocess.run([nm, "--defined-only", library], check=True, capture_output=True,
                          text=True).stdout
    words = [line.split() for line in text.splitlines()]
    return {w[2]: w[1] for w in words if len(w) == 3 and w[1] in "TDBRWVu"}


def main():
    nm, emulated, real = sys.argv[1:]
    ours, theirs = defined(nm, emulated), defined(nm, real)
    shared = [name for name in sorted(ours.keys() & theirs.keys())
              if ours[name] in "TDBR" or OF_THE_BACKEND.search(name)]
    for name in shared:
        print(f"both libraries define {name}")
    print(f"{len(ours)} and {len(theirs)} names, {len(shared)} shared")
    return bool(shared) or not ours or not theirs


if __name__ == "__main__":
    sys.exit(main())
