#!/usr/bin/env python3
"""Fails when a hot kernel keeps vectors on the stack.

    spills.py <objdump> <object file>

gcc 12 puts an accumulator array into memory as soon as one loop over it is not unrolled. The kernel then
runs at a third of its speed with the same results, so only the machine code shows it.
"""
import re
import subprocess
import sys

HOT = re.compile(r"::(Linear|PanelTile|Int4Strip|TileScores|TileValues|Attention|SoftmaxStep"
                 r"|BeginRows|FetchTile|SoftmaxRows)<"
                 r"|::BlockTile<|::(LinearInt4|UnpackInt4)\(")
STACK_VECTOR = re.compile(r"%zmm\d+.*\(%r[sb]p|\(%r[sb]p.*%zmm\d+")


def main():
    objdump, path = sys.argv[1:]
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], check=True,
                          capture_output=True, text=True).stdout
    function, hot_functions, spills = "", 0, {}
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if head:
            function = head.group(1)
            hot_functions += bool(HOT.search(function))
        elif HOT.search(function) and STACK_VECTOR.search(line):
            spills[function] = spills.get(function, 0) + 1
    for function, count in spills.items():
        print(f"{count} vector accesses to the stack in {function}")
    if hot_functions == 0:
        print(f"no hot kernel found in {path}")
    return 1 if spills or hot_functions == 0 else 0


sys.exit(main())
