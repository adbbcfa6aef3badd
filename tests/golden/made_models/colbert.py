#!/usr/bin/env python3
"""Writes colbert.json: the rows that ColBERT's classes make for the tokens of a text, in float32. Weights are made up of their
names as in make.py, but biases are around 0, or all rows would be nearly equal.

    python colbert.py     # needs torch and transformers; written with 5.19.0

The states are transformers' (Jina's XLM-R by JinaEmbeddingsV3Model, whose checkpoint has other names); then the projection,
and each row has length 1.
"""
import json
import pathlib

import numpy
import torch
import transformers

from make import SEED, mix, mix_all

SIZES = dict(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
             max_position_embeddings=66, pad_token_id=1)
DIM = 8
CASES = [
    ("HF_ColBERT", "BertModel", dict(type_vocab_size=2, layer_norm_eps=1e-12)),
    ("ColBERTModernBertModel", "ModernBertModel", dict(
        norm_eps=1e-5, local_attention=8, global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0)),
    ("ColBERTJinaRobertaModel", "JinaEmbeddingsV3Model", dict(
        type_vocab_size=1, layer_norm_eps=1e-5, position_embedding_type="rotary", rotary_emb_base=20000.0)),
]
JINA = {"self_attn.o_proj": "mixer.out_proj", "post_attention_layernorm": "norm1", "post_mlp_layernorm": "norm2",
        "embeddings.LayerNorm": "emb_ln"}


def made(name, shape):
    key = SEED
    for byte in name.encode():
        key = mix(key ^ byte)
    with numpy.errstate(over="ignore"):
        words = mix_all(numpy.uint64(key) + numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint64))
    level = (words & numpy.uint64(0xFF)).astype(numpy.int64) - 128
    is_scale = len(shape) == 1 and not name.endswith(".bias")
    numbers = (256 + level / 2) / 256 if is_scale else level / 512
    return torch.tensor(numbers.astype(numpy.float32)).bfloat16().float().reshape(shape)


def jinas(name, shape):
    """By the names of published checkpoints, which have queries, keys and values as one matrix."""
    name = name.replace("layers.", "encoder.layers.") if name.startswith("layers.") else name
    for ours, theirs in JINA.items():
        name = name.replace(ours, theirs)
    for part, letter in enumerate("qkv"):
        if f"self_attn.{letter}_proj" in name:
            whole = made(name.replace(f"self_attn.{letter}_proj", "mixer.Wqkv"), (3 * shape[0], *shape[1:]))
            return whole[part * shape[0]:(part + 1) * shape[0]]
    return made(name, shape)


def rows_of(architecture, class_name, keys, ids):
    model_class = getattr(transformers, class_name)
    hf = {key: value for key, value in keys.items() if key not in ("rotary_emb_base", "position_embedding_type")}
    if "rotary_emb_base" in keys:
        hf["rope_parameters"] = dict(rope_type="default", rope_theta=keys["rotary_emb_base"])
    config = model_class.config_class(**SIZES, **hf, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2)
    config._attn_implementation = "eager"
    pooled = {} if class_name == "ModernBertModel" else dict(add_pooling_layer=False)
    model = model_class(config, **pooled).eval().float()
    fill = jinas if class_name.startswith("Jina") else made
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(fill(name, tuple(tensor.shape)))
        states = model(torch.tensor([ids])).last_hidden_state[0]
        rows = states @ made("linear.weight", (DIM, SIZES["hidden_size"])).T
        return torch.nn.functional.normalize(rows, dim=1)


def main():
    torch.set_num_threads(1)
    ids = [3 + (31 * i + i * i) % 120 for i in range(20)]
    cases = []
    for architecture, class_name, keys in CASES:
        rows = rows_of(architecture, class_name, keys, ids)
        print(f"{architecture}: cosine of the first and the last row {float(rows[0] @ rows[-1]):.3f}")
        cases.append(dict(config={"architectures": [architecture], "dim": DIM} | SIZES | keys,
                          rows=[round(x, 5) for x in rows[::4].flatten().tolist()]))
    text = json.dumps(dict(seed=SEED, prompt_ids=ids, every=4, cases=cases), separators=(",", ":")) + "\n"
    pathlib.Path(__file__).with_name("colbert.json").write_text(text)


if __name__ == "__main__":
    main()
