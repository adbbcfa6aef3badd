#!/usr/bin/env python3
"""How long a model takes to load, and how much memory: from `tandem serve` to the first /health 200.

  TANDEM_BIN_DIR=build/release/bin tests/bench/load_time.py MODEL [--rounds 5] [-- flags of tandem serve]

The files are read once first, so that they come from the page cache. Wall time covers the whole start;
CPU time, peak memory and the phases from the log are the engine core's. Packed weights are assumed to
be as large as the files, which is true without --quantization and with the dtype of the files. MODEL is a folder, a GGUF
file or what `tandem pack` made.
"""
import argparse
import os
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair, wait_for

TICK = os.sysconf("SC_CLK_TCK")


def weight_files(model):
    path = pathlib.Path(model)
    if path.is_file():
        return [path]
    return [file for kind in ("*.safetensors", "*.gguf", "*.tandem") for file in sorted(path.glob(kind))]


def warm(model):
    for path in weight_files(model):
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def engine_figures(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return {"user s": int(fields[11]) / TICK, "system s": int(fields[12]) / TICK,
            "peak MB": int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024 / 1e6,
            "resident MB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024 / 1e6}


def one_start(model, flags):
    begin = time.monotonic()
    with Pair(*flags, model=model, wait=False) as server:
        wait_for(lambda: server.port_file.exists() and server.get("/health")[0] == 200, "/health", 600)
        figures = {"health s": time.monotonic() - begin}
        figures |= engine_figures(server.pid_of("tandem-engine-core"))
        for phase, ms in re.findall(r"\[startup\] (.+?) in ([\d.]+) ms", server.log):
            figures[phase + " s"] = float(ms) / 1e3
        figures["engine s"] = float(re.search(r"Engine core ready in ([\d.]+)", server.log)[1])
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, flags = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1:]

    warm(options.model)
    rounds = [one_start(options.model, flags) for _ in range(options.rounds)]
    for name in rounds[0]:
        values = [one[name] for one in rounds]
        print(f"{name}: best {min(values):.3f}, median {statistics.median(values):.3f}, worst {max(values):.3f}")
    megabytes = sum(path.stat().st_size for path in weight_files(options.model)) / 1e6
    worst = max(one["peak MB"] for one in rounds)
    print(f"files {megabytes:.0f} MB, peak {worst / megabytes:.3f} of them")


if __name__ == "__main__":
    main()
