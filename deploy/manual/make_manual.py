#!/usr/bin/env python3
"""make_manual.py PROGRAMS OUT: man pages and shell completion from the flag tables of the programs in folder PROGRAMS,
laid out below OUT as below a prefix's share/."""
import pathlib
import sys

import commands
import completions
import man_pages


def main(programs, out):
    version = commands.printed(programs, ("tandem",), "--version").split()[1]
    found = list(commands.flatten(commands.read_all(programs)))
    man_pages.write(found, version, pathlib.Path(out) / "man")
    completions.write(found, pathlib.Path(out))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
