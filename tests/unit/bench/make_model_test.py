#!/usr/bin/env python3
"""make_model: the tokenizer's promises, the weights' spread, and that both files of a model hold the same numbers."""
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import struct
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
loader = importlib.machinery.SourceFileLoader("make_model", str(BENCH / "make_model"))
make_model = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_model", loader))
loader.exec_module(make_model)


def bf16(data):
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def encode(word, ranks, tokens):
    """BPE of one word, by its definition."""
    parts = list(word)
    while True:
        pairs = [(ranks[pair], i) for i, pair in enumerate(zip(parts, parts[1:])) if pair in ranks]
        if not pairs:
            return [tokens[part] for part in parts]
        _, i = min(pairs)
        parts[i:i + 2] = [parts[i] + parts[i + 1]]


class Tokenizer(unittest.TestCase):
    def test_each_token_encodes_to_itself(self):
        for size in (2048, 32000):
            tokens, merges = make_model.vocabulary(size)
            self.assertEqual(len(tokens), size)
            self.assertEqual(len(set(tokens)), size)
            ids = {token: i for i, token in enumerate(tokens)}
            ranks = {pair: i for i, pair in enumerate(merges)}
            for token in tokens[len(make_model.SPECIALS)::7]:
                self.assertEqual(encode(token, ranks, ids), [ids[token]], token)

    def test_an_impossible_size(self):
        for size in (100, 10_000_000):
            with self.assertRaises(SystemExit):
                make_model.vocabulary(size)


class Weights(unittest.TestCase):
    def test_spread_and_seed(self):
        for spread in (0.5, 0.02, 0.003):
            values = bf16(b"".join(make_model.bf16_noise(7, "w", 50_000, spread)))
            self.assertEqual(len(values), 50_000)
            mean = sum(values) / len(values)
            deviation = math.sqrt(sum(value * value for value in values) / len(values))
            self.assertLess(abs(mean), 0.03 * spread)
            self.assertLess(abs(deviation / spread - 1), 0.05)
        first = b"".join(make_model.bf16_noise(7, "w", 100, 0.02))
        self.assertEqual(first, b"".join(make_model.bf16_noise(7, "w", 100, 0.02)))
        self.assertNotEqual(first, b"".join(make_model.bf16_noise(8, "w", 100, 0.02)))
        self.assertNotEqual(first, b"".join(make_model.bf16_noise(7, "v", 100, 0.02)))

    def test_parameters_of_the_real_shapes(self):
        for name, millions in (("160m", 124.7), ("0.5b", 494.0), ("1.1b", 1100.0), ("1b-a300m", 913.3)):
            self.assertAlmostEqual(make_model.num_parameters(make_model.SHAPES[name]) / 1e6, millions, delta=0.5)


class Files(unittest.TestCase):
    def test_both_hold_the_same_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            make_model.make("tiny", make_model.SHAPES["tiny"], out, 1, True)
            data = (out / "tiny" / "model.safetensors").read_bytes()
            size = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8:8 + size])
            self.assertEqual((8 + size) % 8, 0)
            body = data[8 + size:]
            config = json.loads((out / "tiny" / "config.json").read_text())
            self.assertEqual(header["lm_head.weight"]["shape"], [config["vocab_size"], config["hidden_size"]])
            self.assertEqual(max(entry["data_offsets"][1] for name, entry in header.items() if name[0] != "_"), len(body))

            gguf = (out / "tiny-bf16.gguf").read_bytes()
            self.assertEqual(gguf[:4], b"GGUF")
            down = body[slice(*header["model.layers.1.mlp.down_proj.weight"]["data_offsets"])]
            self.assertIn(down, gguf)
            # Row 1 of a query head of 16 moves to row 2, behind row 8, its partner.
            q = body[slice(*header["model.layers.0.self_attn.q_proj.weight"]["data_offsets"])]
            row = 2 * config["hidden_size"]
            rows = [q[i * row:(i + 1) * row] for i in (0, 8, 1, 9)]
            self.assertIn(b"".join(rows), gguf)
            self.assertNotIn(q, gguf)

    def test_experts_are_stacked(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            shape = make_model.SHAPES["tiny-moe"]
            make_model.make("tiny-moe", shape, out, 1, True)
            data = (out / "tiny-moe" / "model.safetensors").read_bytes()
            size = struct.unpack("<Q", data[:8])[0]
            header, body = json.loads(data[8:8 + size]), data[8 + size:]
            self.assertEqual(json.loads((out / "tiny-moe" / "config.json").read_text())["num_experts"], shape["experts"])
            gguf = (out / "tiny-moe-bf16.gguf").read_bytes()
            stack = b"".join(body[slice(*header[f"model.layers.1.mlp.experts.{e}.down_proj.weight"]["data_offsets"])]
                             for e in range(shape["experts"]))
            self.assertIn(stack, gguf)
            self.assertIn(b"blk.1.ffn_down_exps.weight", gguf)
            names = [name for name, _, _ in make_model.gguf_tensors(shape)]
            self.assertEqual(len(names), len(set(names)))


if __name__ == "__main__":
    unittest.main()
