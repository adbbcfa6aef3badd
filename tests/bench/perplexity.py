#!/usr/bin/env python3
"""The perplexity of a text under GGUF files, or folders, beside llama.cpp's over the same files.

  TANDEM_BIN_DIR=build/release/bin tests/bench/perplexity.py TEXT MODEL... [--llama-perplexity PATH]
      [--context 512] [--chunks 20] [-- flags of tandem serve]

The text is cut as llama-perplexity cuts it: chunks of --context tokens, the first of each replaced by the model's
begin token where it adds one, and the second half of each chunk is scored. Ours are the log probabilities that the
server reports for prompts.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import Pair


def post(server, path, **body):
    status, reply = server.post(path, {"model": "m", **body})
    if status != 200:
        raise SystemExit(f"{path}: {status} {reply[:500]}")
    return json.loads(reply)


def chunks_of(server, text, context, most):
    """Lists of token ids; a rest that is no whole chunk is left out."""
    ids = post(server, "/tokenize", prompt=text, add_special_tokens=True)["tokens"]
    plain = post(server, "/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    begin = ids[:1] if ids != plain else None
    chunks = [ids[at:at + context] for at in range(0, len(ids) - context + 1, context)][:most]
    return [begin + chunk[1:] if begin else chunk for chunk in chunks]


def scored(server, chunk):
    """Log probabilities of the second half's tokens."""
    choice = post(server, "/v1/completions", prompt=chunk, max_tokens=1, temperature=0,
                  prompt_logprobs=0)["choices"][0]
    places = range(len(chunk) // 2 + 1, len(chunk))
    return [choice["prompt_logprobs"][at][str(chunk[at])]["logprob"] for at in places]


def ours(model, text, options, flags):
    with Pair("--served-model-name", "m", "--max-model-len", options.context + 1, *flags, model=model) as server:
        chunks = chunks_of(server, text, options.context, options.chunks)
        if not chunks:
            raise SystemExit(f"the text has less than {options.context} tokens")
        logprobs = [value for chunk in chunks for value in scored(server, chunk)]
    return math.exp(-sum(logprobs) / len(logprobs)), len(chunks)


def llamas(model, text_path, num_chunks, options):
    # Its estimate after each chunk; it may end before its log has the last ones.
    run = subprocess.run([options.llama_perplexity, "-m", model, "-f", text_path, "-c", str(options.context), "-b",
                          str(options.context), "--chunks", str(num_chunks + 2)], capture_output=True, text=True)
    found = re.search(rf"\[{num_chunks}\]([\d.]+)", run.stdout + run.stderr)
    if not found:
        raise SystemExit(f"{options.llama_perplexity} prints no estimate for {num_chunks} chunks of {model}, with a text of "
                         f"{num_chunks + 2} or more:\n{run.stderr[-2000:]}")
    return float(found[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--llama-perplexity")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=20)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, flags = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1:]

    text = pathlib.Path(options.text).read_text()
    for model in options.models:
        found, num_chunks = ours(model, text, options, flags)
        line = f"{model}: {found:.4f} over {num_chunks} chunks of {options.context}"
        if options.llama_perplexity and model.endswith(".gguf"):
            other = llamas(model, options.text, num_chunks, options)
            line += f"; llama.cpp {other:.4f}, ours {100 * (found / other - 1):+.2f}%"
        print(line, flush=True)


if __name__ == "__main__":
    main()
