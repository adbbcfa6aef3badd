"""The tables of `compare`: medians, ratios with their spread, and the goals. Pure functions over the result's JSON.

A run is one side's result of one case in one round. Ratios are taken within a round and are above 1 where ours is better:
ours / peer for rates, peer / ours for times.
"""
import collections
import statistics

# (key, heading, whether more is better)
RATES = [("tok_s", "tok/s", True), ("ttft_ms", "TTFT ms", False), ("itl_ms", "ITL ms", False),
         ("itl_p99_ms", "ITL p99 ms", False), ("prefill_tok_s", "prefill tok/s", True)]
LOADED_CPUS = 0.1


def percentile(values, share):
    """Linear between neighbours, as numpy's default."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


class Ratio:
    """Median of the rounds' ratios and their p10 and p90."""

    def __init__(self, values):
        self.median, self.low, self.high = statistics.median(values), percentile(values, 0.1), percentile(values, 0.9)

    def __str__(self):
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def group(runs):
    """{(model, case): {side: {round: run}}}, in the order of the runs."""
    table = collections.OrderedDict()
    for run in runs:
        sides = table.setdefault((run["model"], run["case"]), collections.OrderedDict())
        sides.setdefault(run["side"], {})[run["round"]] = run
    return table


def side_median(rounds, key):
    values = [run[key] for run in rounds.values() if run.get(key)]
    return statistics.median(values) if values else None


def ratio(ours, peer, key, more_is_better):
    """Ratio over the rounds that both have; None when there is none."""
    values = []
    for number, run in ours.items():
        a, b = run.get(key), peer.get(number, {}).get(key)
        if a and b:
            values.append(a / b if more_is_better else b / a)
    return Ratio(values) if values else None


def model_sizes(config):
    """Counts of a Llama-shaped config.json: body (matrices of all layers that a token multiplies), head, and KV elements per
    token."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    head_dim = config.get("head_dim") or hidden // heads
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    mlp = 3 * hidden * config["intermediate_size"]
    if "num_experts" in config:
        mlp = hidden * (3 * config["num_experts_per_tok"] * config["moe_intermediate_size"] + config["num_experts"])
    body = layers * (attention + mlp)
    return {"body": body, "head": hidden * config["vocab_size"], "kv_per_token": 2 * layers * kv_heads * head_dim,
            "attention_width": layers * heads * head_dim}


def bandwidth_share(sizes, context, tpot_ms, bytes_per_second):
    """Share of the DRAM bandwidth that one bf16 stream uses: weights and KV once per step."""
    step_bytes = 2 * (sizes["body"] + sizes["head"] + sizes["kv_per_token"] * context)
    return step_bytes / (tpot_ms / 1e3) / bytes_per_second


def prefill_share(sizes, prompt, tok_s, flops_per_second):
    """Share of the bf16 peak that a prefill uses; the head computes one row only."""
    return tok_s * (2 * sizes["body"] + 4 * sizes["attention_width"] * prompt / 2) / flops_per_second


LEAST_STREAMED_BYTES = 1e8  # a smaller model may fit a cache, which would not measure DRAM


def shares(model, table, meta):
    """[(case, side, what, Ratio)]: how close each bf16 side comes to the machine's ceilings, measured beside it."""
    found = []
    for (of_model, case), sides in table.items():
        config, info = meta["configs"].get(of_model), meta["cases"][case]
        if of_model != model or config is None:
            continue
        sizes = model_sizes(config)
        for side, rounds in sides.items():
            if any(kind in side for kind in ("int8", "int4", "q8_0", "q4_0")):
                continue
            decode, prefill = [], []
            for run in rounds.values():
                ceilings = run.get("ceilings") or {}
                streams = info["clients"] == 1 and info["output"] > 8 and 2 * sizes["body"] > LEAST_STREAMED_BYTES
                if streams and run.get("tpot_ms") and ceilings.get("read_bytes_per_s"):
                    context = info["input"] + info["output"] / 2
                    decode.append(bandwidth_share(sizes, context, run["tpot_ms"], ceilings["read_bytes_per_s"]))
                if info["kind"] == "prefill" and run.get("prefill_tok_s") and ceilings.get("bf16_flops"):
                    prefill.append(prefill_share(sizes, info["input"], run["prefill_tok_s"], ceilings["bf16_flops"]))
            if decode:
                found.append((case, side, "of DRAM bandwidth", Ratio(decode)))
            if prefill:
                found.append((case, side, "of bf16 peak", Ratio(prefill)))
    return found


# The goals: (name, what, case, ours, peers of which the best counts, key, more is better, must).
GOALS = [
    ("C1", "prefill, bf16", "p512", "tandem", ["llama-bf16", "llama-f16"], "prefill_tok_s", True, 1.4),
    ("C1", "prefill, bf16", "p2048", "tandem", ["llama-bf16", "llama-f16"], "prefill_tok_s", True, 1.4),
    ("C1", "prefill, bf16", "p512", "tandem", ["vllm"], "prefill_tok_s", True, 1.0),
    ("C1", "prefill, bf16", "p2048", "tandem", ["vllm"], "prefill_tok_s", True, 1.0),
    ("C2", "one stream, bf16", "c1", "tandem", ["llama-bf16"], "tpot_ms", False, 1.0),
    ("C3", "8 streams, bf16", "c8", "tandem", ["llama-bf16"], "tok_s", True, 2.0),
    ("C3", "32 streams, bf16", "c32", "tandem", ["llama-bf16"], "tok_s", True, 2.0),
    ("C4", "prefill, int8", "p512", "tandem-int8", ["llama-q8_0"], "prefill_tok_s", True, 2.5),
    ("C4", "prefill, int8", "p2048", "tandem-int8", ["llama-q8_0"], "prefill_tok_s", True, 2.5),
    ("C5", "one stream, int4", "c1", "tandem-int4", ["llama-q4_0"], "tpot_ms", False, 1.2),
    ("C5", "8 streams, int4", "c8", "tandem-int4", ["llama-q4_0"], "tok_s", True, 1.8),
    ("C6", "8 streams, bf16", "c8", "tandem", ["vllm"], "tok_s", True, 1.3),
    ("C6", "16 streams, bf16", "c16", "tandem", ["vllm"], "tok_s", True, 1.3),
    ("C6", "32 streams, bf16", "c32", "tandem", ["vllm"], "tok_s", True, 1.3),
]
SHARE_GOALS = {"of DRAM bandwidth": 0.85, "of bf16 peak": 0.70}


def goals(model, table, meta):
    """[(name, what, against, Ratio, must, held)]; C6 also wants TTFT and ITL that are not worse."""
    rows = []
    for name, what, case, ours, peers, key, more, must in GOALS:
        sides = table.get((model, case), {})
        if ours not in sides:
            continue
        candidates = [(ratio(sides[ours], sides[peer], key, more), peer) for peer in peers if peer in sides]
        candidates = [(value, peer) for value, peer in candidates if value is not None]
        if not candidates:
            continue
        value, peer = min(candidates, key=lambda item: item[0].median)
        held, note = value.median >= must, ""
        if name == "C6":
            others = {heading: ratio(sides[ours], sides[peer], key2, False)
                      for key2, heading in (("ttft_ms", "TTFT"), ("itl_ms", "ITL"))}
            note = ", " + ", ".join(f"{heading} {value2}" for heading, value2 in others.items() if value2)
            held = held and all(value2.median >= 1 for value2 in others.values() if value2)
        unit = "" if case[0] == "c" else f", {case[1:]} tokens"
        rows.append((name, what + unit, f"{peer}{note}", value, must, held))
    for case, side, what, value in shares(model, table, meta):
        if side == "tandem":
            unit = "one stream" if case[0] == "c" else f"prefill, {meta['cases'][case]['input']} tokens"
            rows.append(("C7", unit, what, value, SHARE_GOALS[what], value.median >= SHARE_GOALS[what]))
    return rows


def number(value):
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def markdown_table(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def ceilings_line(table, model):
    reads, flops = [], []
    for (of_model, _), sides in table.items():
        for rounds in sides.values() if of_model == model else ():
            for run in rounds.values():
                if run.get("ceilings"):
                    reads.append(run["ceilings"]["read_bytes_per_s"] / 1e9)
                    flops.append(run["ceilings"]["bf16_flops"] / 1e9)
    if not reads:
        return ""
    return (f"Ceilings measured between the runs: {statistics.median(reads):.1f} GB/s DRAM read ({percentile(reads, 0.1):.1f}–"
            f"{percentile(reads, 0.9):.1f}), {statistics.median(flops):.0f} GFLOP/s bf16 ({percentile(flops, 0.1):.0f}–"
            f"{percentile(flops, 0.9):.0f}).\n")


def markdown(result):
    meta, table = result["meta"], group(result["runs"])
    out = [f"{meta['machine']}. {meta['rounds']} rounds, sides in turn within each; medians, spread p10–p90.\n"]
    for model in dict.fromkeys(of_model for of_model, _ in table):
        rows, ratios = [], []
        for (of_model, case), sides in table.items():
            if of_model != model:
                continue
            what = meta["cases"][case]["what"]
            for side, rounds in sides.items():
                loaded = sum((run.get("foreign_cpus") or 0) > LOADED_CPUS for run in rounds.values())
                rows.append([what, side] + [number(side_median(rounds, key)) for key, _, _ in RATES] +
                            [f"{loaded} of {len(rounds)}"])
                against = meta["against"].get(side)
                if against in sides:
                    cells = [ratio(sides[against], rounds, key, more) for key, _, more in RATES]
                    ratios.append([what, f"{against} / {side}"] + [str(cell) if cell else "–" for cell in cells])
        out.append(f"### {model}\n")
        out.append(ceilings_line(table, model))
        out.append(markdown_table(["case", "side"] + [heading for _, heading, _ in RATES] + ["loaded rounds"], rows) + "\n")
        if ratios:
            out.append("Ratios, above 1 where ours is better:\n")
            out.append(markdown_table(["case", "sides"] + [heading.removesuffix(" ms") for _, heading, _ in RATES],
                                      ratios) + "\n")
        near = shares(model, table, meta)
        if near:
            out.append(markdown_table(["case", "side", "share", ""], [
                [meta["cases"][case]["what"], side, f"{100 * value.median:.0f}% ({100 * value.low:.0f}–{100 * value.high:.0f}%)",
                 what] for case, side, what, value in near]) + "\n")
        held = goals(model, table, meta)
        if held:
            out.append(markdown_table(["goal", "what", "against", "figure", "must", "held"], [
                [name, what, peer, value, must, "yes" if ok else "no"] for name, what, peer, value, must, ok in held]) + "\n")
    return "\n".join(part for part in out if part)
