#!/usr/bin/env python3
"""Writes models.json.gz: what HF transformers computes for small models whose weights both sides make up from the
tensors' names (tests/support/engine/made_weights.h), in float32 on the CPU.

    python make.py        # needs torch and transformers; written with 5.24.0

Each case: config.json as it is published, and for two prompts every STRIDE-th logit after the last token.
"""
import gzip
import json
import pathlib
import re

import numpy
import torch
import transformers

SEED = 20
STRIDE = 4
LENGTHS = (17, 90)
MASK = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def mix_all(x):
    x = x + numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def made(name, shape):
    """As MadeWeights: vectors and norms near 1, all others around 0."""
    key = SEED
    for byte in name.encode():
        key = mix(key ^ byte)
    count = int(numpy.prod(shape))
    with numpy.errstate(over="ignore"):
        words = mix_all(numpy.uint64(key) + numpy.arange(count, dtype=numpy.uint64))
    level = (words & numpy.uint64(0xFF)).astype(numpy.int64)
    is_norm = len(shape) == 1 or "norm" in name
    numbers = (256 + (level - 128) / 2) / 256 if is_norm else (level - 128) / 512
    return torch.tensor(numbers.astype(numpy.float32)).bfloat16().float().reshape(shape)


def experts(up="up_proj", gate="gate_proj", down="down_proj"):
    """Of a stack of experts as transformers keeps it, the tensors of a checkpoint that has them apart."""
    def fill(name, shape):
        prefix = name.rsplit(".", 1)[0]
        if name.endswith("gate_up_proj"):
            half = (shape[1] // 2, shape[2])
            return torch.stack([torch.cat([made(f"{prefix}.{e}.{gate}.weight", half), made(f"{prefix}.{e}.{up}.weight", half)])
                                for e in range(shape[0])])
        part = up if name.endswith("up_proj") else down
        return torch.stack([made(f"{prefix}.{e}.{part}.weight", tuple(shape[1:])) for e in range(shape[0])])
    return fill


def stacked(name, shape):
    return torch.stack([made(f"{name}.{e}", tuple(shape[1:])) for e in range(shape[0])])


BASE = dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False)

LATENT = BASE | dict(
    num_key_value_heads=4, rms_norm_eps=1e-6, q_lora_rank=40, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=16,
    v_head_dim=20, first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
    moe_intermediate_size=32, norm_topk_prob=True, routed_scaling_factor=1.5, scoring_func="sigmoid",
    topk_method="noaux_tc", index_head_dim=32, index_topk=24)


# transformers renames what checkpoints have.
GRANITE = [(r"experts\.gate_up_proj", "input_linear.weight"), (r"experts\.down_proj", "output_linear.weight"),
           (r"router\.weight", "router.layer.weight")]


def case(architecture, keys, fill=None, renames=(), name=None, hf=None):
    return dict(name=name or architecture, architecture=architecture, keys=keys, fill=fill, renames=renames, hf=hf or {})


CASES = [
    case("ArceeForCausalLM", BASE | dict(hidden_act="relu2", rms_norm_eps=1e-5)),
    case("CohereForCausalLM", BASE | dict(layer_norm_eps=1e-5, logit_scale=0.5, tie_word_embeddings=True)),
    case("CohereForCausalLM", BASE | dict(layer_norm_eps=1e-4, logit_scale=0.5, rope_theta=10000.0, use_qk_norm=True),
         name="Cohere with norms of heads"),
    case("CwmForCausalLM", BASE | dict(
        head_dim=16, sliding_window=16, layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        rope_parameters=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, rope_theta=10000.0,
                             original_max_position_embeddings=64))),
    case("Ernie4_5ForCausalLM", BASE | dict(head_dim=16, rope_theta=500000.0, tie_word_embeddings=True)),
    case("GlmForCausalLM", BASE | dict(head_dim=16, attention_bias=True, partial_rotary_factor=0.5, rope_theta=10000.0)),
    case("GraniteMoeForCausalLM", BASE | dict(
        num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=2.0, logits_scaling=3.0, residual_multiplier=0.7,
        attention_multiplier=0.2), stacked, GRANITE),
    case("GraniteMoeSharedForCausalLM", BASE | dict(
        num_local_experts=6, num_experts_per_tok=2, embedding_multiplier=2.0, logits_scaling=3.0, residual_multiplier=0.7,
        attention_multiplier=0.2, shared_intermediate_size=80), stacked, GRANITE),
    case("HunYuanMoEV1ForCausalLM", BASE | dict(
        head_dim=16, num_experts=6, moe_topk=[2, 2, 2], num_shared_expert=[1, 1, 1], rope_theta=10000.0,
        tie_word_embeddings=True), experts(), hf=dict(moe_topk=2)),
    case("Lfm2MoeForCausalLM", BASE | dict(
        norm_eps=1e-5, conv_L_cache=3, layer_types=["conv", "full_attention", "conv"], num_dense_layers=1, num_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True, use_expert_bias=True,
        routed_scaling_factor=1.5, rope_theta=1000000.0, tie_word_embeddings=True), experts("w3", "w1", "w2")),
    case("NemotronHForCausalLM", BASE | dict(
        num_hidden_layers=4, hybrid_override_pattern="ME*E", n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
        moe_intermediate_size=32, moe_shared_expert_intermediate_size=48, moe_latent_size=40, norm_topk_prob=True,
        routed_scaling_factor=1.5, n_group=1, topk_group=1, mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=16,
        n_groups=2, conv_kernel=4, head_dim=16, layer_norm_epsilon=1e-5, mlp_hidden_act="relu2", chunk_size=16),
        experts(), [(r"^model\.", "backbone.")], name="Nemotron 3 with latents of experts"),
    case("Qwen2MoeForCausalLM", BASE | dict(
        num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48,
        norm_topk_prob=False, mlp_only_layers=[1], use_sliding_window=False), experts()),
    case("DeepseekV32ForCausalLM", LATENT | dict(
        num_hidden_layers=3, n_group=3, topk_group=2, index_n_heads=16, rope_theta=10000.0,
        rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32, beta_slow=1, mscale=1.0,
                          mscale_all_dim=1.0)), experts()),
    case("GlmMoeDsaForCausalLM", LATENT | dict(
        num_hidden_layers=5, n_group=1, topk_group=1, index_n_heads=14, index_topk_freq=3, index_skip_topk_offset=2,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)), experts()),
    case("Lfm2ForCausalLM", BASE | dict(
        norm_eps=1e-5, conv_L_cache=3, conv_bias=True, layer_types=["conv", "full_attention", "conv"],
        block_auto_adjust_ff_dim=False, rope_theta=1000000.0, tie_word_embeddings=True), name="LFM2 with biases"),
    case("PhimoeForCausalLM", BASE | dict(
        num_local_experts=4, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True, rms_norm_eps=1e-5,
        router_jitter_noise=0.01, input_jitter_noise=0.0, sliding_window=None, tie_word_embeddings=True),
        experts("w3", "w1", "w2"),
        [(r"\.mlp\.", ".block_sparse_moe."), (r"\.router\.", ".gate.")], name="Phi-3.5-MoE, tied, with a bias of its head"),
]


def fill_weights(model, spec):
    tied = spec["keys"].get("tie_word_embeddings", spec["keys"].get("tie_embedding", False))
    state = model.state_dict()
    for name, old in state.items():
        stored = name
        for pattern, to in spec["renames"]:
            stored = re.sub(pattern, to, stored)
        shape = tuple(old.shape)
        if stored == "lm_head.weight" and tied:
            continue
        if len(shape) == 3 and shape[1] == 1:  # a convolution, whose channels are read one by one
            new = stacked(stored, shape)
        elif len(shape) == 3:
            new = spec["fill"](stored, shape)
        else:
            new = made(stored, shape)
        assert new.shape == old.shape, (name, new.shape, old.shape)
        old.copy_(new)


def run(spec, prompts):
    keys = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2) | spec["keys"] | spec["hf"]
    model_class = getattr(transformers, spec["architecture"])
    config = model_class.config_class.from_dict(dict(keys))
    config._attn_implementation = "eager"
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "eager"
    model = model_class(config).eval().float()
    with torch.no_grad():
        fill_weights(model, spec)
        return [model(torch.tensor([prompt]), use_cache=False).logits[0, -1].tolist() for prompt in prompts]


def main():
    torch.set_num_threads(1)
    cases = []
    for number, spec in enumerate(CASES):
        prompts = [[3 + (7 * number + 31 * i + i * i) % 250 for i in range(length)] for length in LENGTHS]
        logits = run(spec, prompts)
        config = {"architectures": [spec["architecture"]], "torch_dtype": "bfloat16"} | spec["keys"]
        cases.append(dict(name=spec["name"], config=config, prompts=[
            dict(prompt_ids=p, logits=[round(x, 5) for x in row[::STRIDE]]) for p, row in zip(prompts, logits)]))
        spread = numpy.std(logits[1])
        print(f"{spec['name']}: logits of standard deviation {spread:.2f}")
        assert numpy.isfinite(spread) and spread > 0.1
    text = json.dumps(dict(seed=SEED, stride=STRIDE, cases=cases), separators=(",", ":")) + "\n"
    path = pathlib.Path(__file__).with_name("models.json.gz")
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
