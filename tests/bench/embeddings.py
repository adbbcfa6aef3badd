#!/usr/bin/env python3
"""Texts per second through /v1/embeddings of a running server, and of sentence-transformers over the same model where
it is installed (--beside): rounds of both in turn, so that a noisy host disturbs both alike.

    build/release/bin/tandem serve MODEL --host 127.0.0.1 --port 8000
    python3 tests/bench/embeddings.py http://127.0.0.1:8000 --beside MODEL
"""
import argparse
import concurrent.futures
import json
import random
import statistics
import time
import urllib.request

WORDS = "river bridge engineer captain harbor winter silver quiet old repairs watches letters market garden stone".split()


def make_texts(count, num_words, seed):
    dice = random.Random(seed)
    return [" ".join(dice.choice(WORDS) for _ in range(num_words)) for _ in range(count)]


def through_server(url, texts, batch, streams):
    def ask(part):
        body = json.dumps({"input": part, "encoding_format": "base64"}).encode()
        request = urllib.request.Request(url + "/v1/embeddings", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            assert len(json.load(reply)["data"]) == len(part)

    parts = [texts[i:i + batch] for i in range(0, len(texts), batch)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        list(pool.map(ask, parts))
    return len(texts) / (time.monotonic() - begin)


def beside(model, texts, batch):
    begin = time.monotonic()
    model.encode(texts, batch_size=batch)
    return len(texts) / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--beside", help="the model's folder, for sentence-transformers")
    parser.add_argument("--backend", default="torch", choices=["torch", "onnx"], help="of sentence-transformers")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    other = None
    if options.beside:
        from sentence_transformers import SentenceTransformer
        other = SentenceTransformer(options.beside, backend=options.backend, device="cpu")
    ours, theirs = [], []
    for number in range(options.rounds):
        texts = make_texts(options.texts, options.words, options.seed + number)
        ours.append(through_server(options.url, texts, options.batch, options.streams))
        line = f"round {number}: {ours[-1]:.1f} texts/s"
        if other is not None:
            theirs.append(beside(other, texts, options.batch))
            line += f", sentence-transformers ({options.backend}) {theirs[-1]:.1f}, ratio {ours[-1] / theirs[-1]:.2f}"
        print(line)
    print(f"median {statistics.median(ours):.1f} texts/s")
    if theirs:
        print(f"median of ratios {statistics.median(a / b for a, b in zip(ours, theirs)):.2f}")


if __name__ == "__main__":
    main()
