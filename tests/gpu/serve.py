#!/usr/bin/env python3
"""Serves the shipped model with the engine on the device: checks its fixed outputs, then runs many
streams at once; then serves a model of a larger shape with random weights, for the rate of its streams.

TANDEM_BIN_DIR names the programs, stream_load beside them is the client of the larger model. Exit status 1: an output was wrong, or the engine died.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import MODEL, Pair, bin_dir

NAME = "tandem-tiny"


def ask(server, path, **fields):
    body = json.dumps({"model": NAME, **fields}).encode()
    request = urllib.request.Request(server.url + path, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        if not fields.get("stream"):
            return json.load(reply)
        lines = [line[6:] for line in reply.read().decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


def check_fixed_answers(server):
    wrong = 0
    for case in json.loads((MODEL / "greedy_answers.json").read_text()):
        reply = ask(server, "/v1/chat/completions", messages=case["messages"], temperature=0, max_tokens=400)
        if reply["choices"][0]["message"]["content"] != case["text"]:
            wrong += 1
            print("expected", repr(case["text"]), "got", repr(reply["choices"][0]["message"]["content"]))
    print(f"fixed answers: {10 - wrong} of 10")
    return wrong == 0


def check_streams(server, count, max_tokens):
    """All at once, each to its last token, half of them greedy."""
    def run(i):
        chunks = ask(server, "/v1/completions", prompt=f"The {i} little", max_tokens=max_tokens, stream=True,
                     temperature=0.7 * (i % 2), seed=i, ignore_eos=True, stream_options={"include_usage": True})
        return chunks[-1]["usage"]["completion_tokens"]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        tokens = list(pool.map(run, range(count)))
    seconds = time.monotonic() - begin
    print(f"{count} streams of {max_tokens} tokens: {sum(tokens) / seconds:.0f} tokens/s")
    return tokens == [max_tokens] * count


SCHEMA = {"type": "object", "required": ["name", "age", "tags"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
    "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3}}}


def check_schema(server, count):
    """JSON by a schema, greedy and not, at once: masks go to the device."""
    def run(i):
        reply = ask(server, "/v1/chat/completions", messages=[{"role": "user", "content": f"Describe number {i}."}],
                    temperature=i % 2, seed=i, max_tokens=200,
                    response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}})
        value = json.loads(reply["choices"][0]["message"]["content"])
        return (sorted(value) == ["age", "name", "tags"] and len(value["name"]) <= 12 and 0 <= value["age"] <= 99
                and all(tag in ("red", "green") for tag in value["tags"]))
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        good = list(pool.map(run, range(count)))
    print(f"JSON by a schema: {sum(good)} of {count}")
    return all(good)


# Of Qwen3-0.6B, with the vocabulary of the shipped tokenizer's model.
LARGER = {"hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
          "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936}


def measure_larger(device, counts, max_tokens):
    shape = LARGER if device == "cuda" else {"hidden_size": 128, "vocab_size": 151936}
    with Pair("--served-model-name", NAME, "--device", device, "--load-format", "dummy", "--dtype", "bfloat16",
              "--max-num-seqs", "256", "--hf-overrides", json.dumps(shape)) as server:
        port = server.url.rsplit(":", 1)[1]
        for count in counts:
            done = subprocess.run([bin_dir() / "stream_load", port, str(count), str(max_tokens), NAME],
                                  stdout=subprocess.PIPE, text=True, timeout=60)
            print(f"a larger model, {count} streams of {max_tokens} tokens: {done.stdout.strip()}", flush=True)
            if done.returncode != 0:
                print(server.log[-3000:])
                return False
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=1, help="devices, or processes, that share the model")
    args = parser.parse_args()
    good = True
    for flags in (["--dtype", "float32"], ["--dtype", "bfloat16"], ["--dtype", "bfloat16", "--enforce-eager"]):
        print("==", *flags, flush=True)
        begin = time.monotonic()
        with Pair("--served-model-name", NAME, "--device", args.device,
                  "--tensor-parallel-size", str(args.ranks), *flags) as server:
            print(f"ready after {time.monotonic() - begin:.2f} s")
            if "float32" in flags:
                good &= check_fixed_answers(server)
            good &= check_streams(server, args.streams, args.tokens)
            if (bin_dir() / "tandem-grammar").exists():
                good &= check_schema(server, args.streams)
            print("\n".join(line for line in server.log.splitlines() if "[startup]" in line))
    if args.ranks == 1:
        good &= measure_larger(args.device, [1, 64, 256] if args.device == "cuda" else [2], args.tokens)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
