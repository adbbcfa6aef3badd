#!/usr/bin/env python3
"""Conversations that come back when the KV cache has lost them: time to their next token with their prefix computed again, copied
from host memory, and read from files.

  tests/bench/make_model --out models 1.1b
  TANDEM_BIN_DIR=build/release/bin tests/bench/offloading.py models/1.1b

The KV cache has room for two of the conversations. Each is had once, and then in the same order each comes back with --turn new
tokens, so the cache never has it. "files" is started again before they come back, once all of them are written; the page cache has
them still. Every response is compared with the first server's. Prints medians and ratios, and the
tokens that came from outside of the cache.
"""
import argparse
import contextlib
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair, wait_for

GIB = 1 << 30
BLOCK = 32
HITS = "vllm:external_prefix_cache_hits_total"


def kv_bytes(model, tokens):
    """Of bf16 K and V."""
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    heads = config.get("num_key_value_heads", config["num_attention_heads"])
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * 2 * config["num_hidden_layers"] * heads * size * tokens


def flags_of_files(folder, memory):
    tier = {"type": "fs", "root_dir": folder, "evictor_args": {"max_storage_size_gb": 16}}
    config = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
              "kv_connector_extra_config": {"cpu_bytes_to_use": memory, "spec_name": "TieringOffloadingSpec", "secondary_tiers": [tier]}}
    return ["--kv-transfer-config", json.dumps(config)]


def next_token(server, prompt):
    begin = time.monotonic()
    status, response = server.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1})
    assert status == 200, response
    choice = json.loads(response)["choices"][0]
    return 1e3 * (time.monotonic() - begin), (choice["text"], choice["logprobs"]["token_logprobs"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--conversations", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=3072, help="of a conversation when it comes back")
    parser.add_argument("--turn", type=int, default=16, help="new tokens")
    options = parser.parse_args()
    rng = random.Random(1)
    prompts = [[rng.randrange(1000, 20000) for _ in range(options.tokens)] for _ in range(options.conversations)]
    cache = 2 * kv_bytes(options.model, options.tokens + 64)
    everything = (options.conversations + 1) * kv_bytes(options.model, options.tokens)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-kv-"))
        kinds = {"computed": [], "host memory": ["--kv-offloading-size", f"{everything / GIB:.3f}"],
                 "files": flags_of_files(folder, everything)}

        def start(flags):
            return Pair("--served-model-name", "m", "--max-model-len", options.tokens + 64, "--kv-cache-memory-bytes", cache, "--block-size", BLOCK,
                        *flags, model=options.model)
        first = None
        for kind, flags in kinds.items():
            with contextlib.ExitStack() as lives:
                server = lives.enter_context(start(flags))
                for prompt in prompts:
                    next_token(server, prompt[:-options.turn])
                if kind == "files":
                    num_blocks = options.conversations * ((options.tokens - options.turn) // BLOCK)
                    wait_for(lambda: len(list(pathlib.Path(folder).rglob("*.bin"))) >= num_blocks, "files of all blocks")
                    lives.close()
                    server = lives.enter_context(start(flags))
                    next_token(server, prompts[0][:256])  # its first step
                hits = server.total(HITS)
                times, responses = zip(*[next_token(server, prompt) for prompt in prompts])
                hits = server.total(HITS) - hits
            first = first or (times, responses)
            assert responses == first[1], f"{kind}: {responses}"
            ratios = sorted(a / b for a, b in zip(first[0], times))
            print(f"{kind:12} next token after {statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f}), "
                  f"{statistics.median(ratios):.1f} times sooner ({ratios[0]:.1f} to {ratios[-1]:.1f}); "
                  f"{hits / options.conversations:.0f} tokens of each came from outside of the cache", flush=True)


if __name__ == "__main__":
    main()
