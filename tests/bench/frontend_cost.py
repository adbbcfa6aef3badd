#!/usr/bin/env python3
"""CPU that a frontend spends per streamed token, over a mock engine, at a fixed pace.

Runs our frontend and, with --peer, vLLM's Rust frontend (the `vllm-rs` program of the vllm wheel) in turns, over
the same mock engine and client, and prints both and their ratio:

  tests/bench/frontend_cost.py --bin build/release/bin --load build/release/bench/stream_load --peer /path/to/vllm-rs

The mock engine needs the msgpack and pyzmq packages (build/venv has them).
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def resident_mb(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def wait_healthy(port, process):
    pause = threading.Event()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
                if reply.status == 200:
                    return
        except OSError:
            pass
        pause.wait(0.05)
    raise SystemExit("a frontend did not become healthy")


def command(kind, options, model, handshake_port, port):
    if kind == "tandem":
        return [f"{options.bin}/tandem-frontend", model, "--handshake-address", f"tcp://127.0.0.1:{handshake_port}",
                "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m", "--disable-uvicorn-access-log"]
    return [options.peer, "serve", model, "--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1",
            "--data-parallel-rpc-port", str(handshake_port), "--port", str(port), "--served-model-name", "m"]


def start_pair(kind, options, model):
    """(port, [frontend, mock engine]): the caller ends the processes."""
    handshake_port, port = free_port(), free_port()
    with open(os.environ.get("FRONTEND_COST_LOG", os.devnull), "ab") as log:
        frontend = subprocess.Popen(command(kind, options, model, handshake_port, port), stdout=log, stderr=log,
                                    env={**os.environ, "HF_HUB_OFFLINE": "1"})
        engine = subprocess.Popen([sys.executable, str(ROOT / "tests/support/mock_engine.py"), "--handshake",
                                   f"tcp://127.0.0.1:{handshake_port}", "--tokens-per-second", str(options.rate),
                                   "--max-num-seqs", "2048", "--quiet"], stdout=log, stderr=log)
    try:
        wait_healthy(port, frontend)
    except BaseException:
        frontend.kill()
        engine.kill()
        raise
    return port, [frontend, engine]


def measure(kind, options, model):
    port, processes = start_pair(kind, options, model)
    frontend = processes[0]
    try:
        idle_mb = resident_mb(frontend.pid)
        load = [options.load, str(port)]
        subprocess.run([*load, "16", "32", "m"], check=True, stdout=subprocess.DEVNULL)  # warm up
        before = cpu_seconds(frontend.pid)
        out = subprocess.run([*load, str(options.streams), str(options.tokens), "m"], check=True, capture_output=True)
        spent = cpu_seconds(frontend.pid) - before
        result = json.loads(out.stdout)
        tokens = options.streams * options.tokens
        return {"us_per_token": 1e6 * spent / tokens, "tokens_per_s": tokens / result["seconds"],
                "gap_ms": result["gap_ms"], "idle_mb": idle_mb}
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--load", default=str(ROOT / "build/release/bench/stream_load"))
    parser.add_argument("--peer", help="path of vllm-rs; without it only ours is measured")
    parser.add_argument("--model", default=str(ROOT / "deploy/models/tandem-tiny"))
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=400, help="per stream")
    parser.add_argument("--rate", type=float, default=50, help="tokens per second and stream")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    kinds = ["tandem"] + (["vllm-rs"] if options.peer else [])
    results = {kind: [] for kind in kinds}
    for number in range(options.rounds):
        for kind in kinds:
            result = measure(kind, options, options.model)
            results[kind].append(result)
            print(f"round {number + 1} {kind:8} {result['us_per_token']:6.1f} us/token  "
                  f"{result['tokens_per_s']:7.0f} tokens/s  gaps p50 {result['gap_ms'][0]:.1f} "
                  f"p99 {result['gap_ms'][1]:.1f} ms  idle {result['idle_mb']:.0f} MB", flush=True)
    for kind in kinds:
        costs = sorted(result["us_per_token"] for result in results[kind])
        print(f"{kind:8} median {statistics.median(costs):.1f} us/token, {costs[0]:.1f} to {costs[-1]:.1f}")
    if options.peer:
        ratio = (statistics.median(r["us_per_token"] for r in results["vllm-rs"]) /
                 statistics.median(r["us_per_token"] for r in results["tandem"]))
        print(f"vllm-rs / tandem: {ratio:.2f}")


if __name__ == "__main__":
    main()
