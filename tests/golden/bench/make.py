#!/usr/bin/env python3
"""Writes report.txt and result.json: what a bench of three requests must print and save, computed with numpy and
the field names and formats that vLLM's bench has. Shares no code with the C++ side. Needs numpy."""
import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
DURATION, RATE, CONCURRENCY = 2.0, 4.0, 2
PERCENTS = [50, 99, 99.9]
GOOD = {"ttft": 0.150, "e2el": 1.0}
REQUESTS = [{"start": 10 + 0.25 * i, "queue": 0.125 * i, "ttft": 0.125 + 0.125 * i, "itl": [0.25, 0.5],
             "prompt": 7, "output": 3} for i in range(2)]


def main():
    for r in REQUESTS:
        r["latency"] = r["ttft"] + sum(r["itl"])
    done, failed = len(REQUESTS), 1
    total_in, total_out = sum(r["prompt"] for r in REQUESTS), sum(r["output"] for r in REQUESTS)
    good = sum(r["ttft"] <= GOOD["ttft"] and r["latency"] <= GOOD["e2el"] for r in REQUESTS)
    first = min(r["start"] for r in REQUESTS)
    chunks, alive = np.zeros(4), np.zeros(4)
    for r in REQUESTS:
        for t in np.cumsum([r["start"] + r["ttft"], *r["itl"]]):
            chunks[int(t - first)] += 1
        for second in range(int(r["start"] - first), int(r["start"] + r["latency"] - first) + 1):
            alive[second] += 1
    samples = {
        "ttft": ("TTFT", "Time to First Token", [r["ttft"] for r in REQUESTS]),
        "tpot": ("TPOT", "Time per Output Token (excl. 1st token)",
                 [(r["latency"] - r["ttft"]) / (r["output"] - 1) for r in REQUESTS]),
        "itl": ("ITL", "Inter-token Latency", sum((r["itl"] for r in REQUESTS), [])),
        "e2el": ("E2EL", "End-to-end Latency", [r["latency"] for r in REQUESTS]),
        "client_queue_time": ("Client Queue Time", "Client-side Queueing", [r["queue"] for r in REQUESTS]),
        "e2el_including_client_queue": ("E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency",
                                        [r["latency"] + r["queue"] for r in REQUESTS]),
    }
    numbers = {
        "duration": DURATION, "completed": done, "failed": failed, "total_input_tokens": total_in,
        "total_output_tokens": total_out, "request_throughput": done / DURATION, "request_goodput": good / DURATION,
        "output_throughput": total_out / DURATION, "total_token_throughput": (total_in + total_out) / DURATION,
        "latencies": [r["latency"] for r in REQUESTS] + [0.0], "queue_times": [r["queue"] for r in REQUESTS] + [0.0],
        "max_output_tokens_per_s": float(chunks.max()), "max_concurrent_requests": int(alive.max()), "rtfx": 0.0}
    lines = ["{:=^50}".format(" Serving Benchmark Result ")]
    for label, value in [
            ("Successful requests:", done), ("Failed requests:", failed), ("Maximum request concurrency:", CONCURRENCY),
            ("Request rate configured (RPS):", RATE), ("Benchmark duration (s):", DURATION),
            ("Total input tokens:", total_in), ("Total generated tokens:", total_out),
            ("Request throughput (req/s):", numbers["request_throughput"]),
            ("Request goodput (req/s):", numbers["request_goodput"]),
            ("Output token throughput (tok/s):", numbers["output_throughput"]),
            ("Peak output token throughput (tok/s):", numbers["max_output_tokens_per_s"]),
            ("Peak concurrent requests:", float(alive.max())),
            ("Total token throughput (tok/s):", numbers["total_token_throughput"])]:
        lines.append(f"{label:<40} " + (f"{value:<10.2f}" if isinstance(value, float) else f"{value:<10}"))
    for name, (title, heading, values) in samples.items():
        ms = np.array(values) * 1000
        lines.append(f"{heading:-^50}")
        numbers[f"mean_{name}_ms"], numbers[f"median_{name}_ms"] = float(ms.mean()), float(np.median(ms))
        numbers[f"std_{name}_ms"] = float(ms.std())
        lines += [f"{f'Mean {title} (ms):':<40} {ms.mean():<10.2f}", f"{f'Median {title} (ms):':<40} {np.median(ms):<10.2f}"]
        for p in PERCENTS:
            numbers[f"p{p}_{name}_ms"] = float(np.percentile(ms, p))
            lines.append(f"{f'P{p} {title} (ms):':<40} {np.percentile(ms, p):<10.2f}")
    lines.append("=" * 50)
    (HERE / "report.txt").write_text("\n".join(lines) + "\n")
    head = {"date": "", "endpoint_type": "openai", "backend": "openai", "label": None, "model_id": "/models/small",
            "tokenizer_id": "/models/small", "num_prompts": 3, "commit": "abc", "note": "a=b", "request_rate": RATE,
            "burstiness": 1.0, "max_concurrency": CONCURRENCY}
    (HERE / "result.json").write_text(json.dumps({**head, **numbers, "client_cpu_seconds": 0.25}, indent=1) + "\n")


if __name__ == "__main__":
    main()
