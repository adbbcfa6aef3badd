#!/usr/bin/env python3
"""A decode step of a Llama-like model in PyTorch, replayed from a CUDA graph, to compare with the
figures of the cuda backend. Merged weights, scaled_dot_product_attention over a cache of fixed
length, greedy choice inside the graph; random bf16 weights."""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

SHAPES = {
    "0.6b": dict(hidden=1024, layers=28, heads=16, kv_heads=8, dim=128, inner=3072, vocab=151936),
    "1b": dict(hidden=2048, layers=16, heads=32, kv_heads=8, dim=64, inner=8192, vocab=128256),
    "8b": dict(hidden=4096, layers=32, heads=32, kv_heads=8, dim=128, inner=14336, vocab=128256),
    "tiny": dict(hidden=64, layers=2, heads=4, kv_heads=2, dim=16, inner=96, vocab=420),
}


class Decoder:
    def __init__(self, shape, batch, context, device):
        self.s = argparse.Namespace(**shape)
        s = self.s
        make = lambda *size: torch.randn(*size, device=device, dtype=torch.bfloat16) * 0.02
        q, kv = s.heads * s.dim, s.kv_heads * s.dim
        self.embedding = make(s.vocab, s.hidden)
        self.layers = [(make(q + 2 * kv, s.hidden), make(s.hidden, q), make(2 * s.inner, s.hidden),
                        make(s.hidden, s.inner)) for _ in range(s.layers)]
        self.norm = torch.ones(s.hidden, device=device, dtype=torch.bfloat16)
        self.cache = [(make(batch, s.kv_heads, context, s.dim), make(batch, s.kv_heads, context, s.dim))
                      for _ in range(s.layers)]
        self.cos = torch.ones(s.dim, device=device, dtype=torch.bfloat16)
        self.sin = torch.zeros(s.dim, device=device, dtype=torch.bfloat16)
        self.ids = torch.zeros(batch, device=device, dtype=torch.long)
        self.position = context - 1

    def rotate(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin

    def step(self):
        s, batch = self.s, self.ids.shape[0]
        x = self.embedding[self.ids]
        for (qkv, out, gate_up, down), (keys, values) in zip(self.layers, self.cache):
            y = F.rms_norm(x, (s.hidden,), self.norm) @ qkv.T
            q, k, v = y.view(batch, -1, s.dim).split([s.heads, s.kv_heads, s.kv_heads], 1)
            keys[:, :, self.position] = self.rotate(k)
            values[:, :, self.position] = v
            y = F.scaled_dot_product_attention(self.rotate(q).unsqueeze(2), keys, values,
                                               enable_gqa=True)
            x = x + y.reshape(batch, -1) @ out.T
            gate, up = (F.rms_norm(x, (s.hidden,), self.norm) @ gate_up.T).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ down.T
        self.ids.copy_((F.rms_norm(x, (s.hidden,), self.norm) @ self.embedding.T).argmax(-1))


def measure(shape, batch, context, device, steps):
    with torch.inference_mode():
        decoder = Decoder(shape, batch, context, device)
        run = decoder.step
        if device == "cuda":
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    decoder.step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                decoder.step()
            run = graph.replay
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", required=True)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not args.tiny else "cpu"
    cases = [("tiny", 1, 20)] if args.tiny else [(shape, batch, 512) for shape in ("0.6b", "1b", "8b")
                                                 for batch in (1, 32, 128)]
    rows = []
    for name, batch, context in cases:
        ms = measure(SHAPES[name], batch, context, device, 3 if args.tiny else 50)
        rows.append({"name": f"{name} decode B={batch} ctx {context} graph PyTorch", "value": ms, "unit": "ms"})
        print(f"{rows[-1]['name']:<46} {ms:14.3f} ms", flush=True)
        with open(args.json, "w") as out:  # after each row: a run may be ended before its time
            json.dump(rows, out)
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
