#!/usr/bin/env python3
"""Writes variants.json.gz: what HF transformers computes for folders of tests/golden/models whose
config.json says something else. Weights are the folder's, compute is float32 on the CPU.

    python make_variants.py        # needs torch and transformers; written with 5.19.0

Each case: the folder, keys set and keys removed, the longest request the engine is loaded for, and
for two prompts every STRIDE-th logit after the last token.
"""
import gzip
import json
import os
import pathlib
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
STRIDE = 8
OLD_ROPE = ["rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern"]
SHORT = [1.0, 1.1, 1.3, 1.6, 2.0, 2.5, 3.1, 3.8]
LONG = [1.0, 1.5, 2.5, 4.0, 6.0, 9.0, 13.0, 18.0]


def case(name, base, set_keys, remove=(), max_model_len=256, lengths=(17, 100)):
    return dict(name=name, base=base, set=set_keys, remove=list(remove),
                max_model_len=max_model_len, lengths=lengths)


CASES = [
    case("gpt2 unscaled attention", "gpt2", {"scale_attn_weights": False}),
    case("gpt2 attention scaled by layer", "gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    case("gpt2 defaults", "gpt2", {}, ["layer_norm_epsilon", "activation_function"]),
    case("qwen2 window from a layer on", "qwen2",
         {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    case("qwen2 window that is off", "qwen2", {"use_sliding_window": False, "sliding_window": 16}),
    case("qwen2 window by layer types", "qwen2",
         {"use_sliding_window": True, "sliding_window": 16,
          "layer_types": ["sliding_attention", "full_attention"]}),
    case("qwen3 window from a layer on", "qwen3",
         {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 0}),
    case("qwen3_moe window in all layers", "qwen3_moe",
         {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    case("qwen3_moe weights as they come, by sparse step", "qwen3_moe",
         {"norm_topk_prob": False, "mlp_only_layers": [], "decoder_sparse_step": 2}),
    case("mixtral window, one expert", "mixtral", {"sliding_window": 16, "num_experts_per_tok": 1}),
    case("llama does not look at a window", "llama_tied", {"sliding_window": 8}),
    case("gemma2 layer types", "gemma2",
         {"layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                          "full_attention"]}),
    case("gemma3 ropes by layer type", "gemma3_text",
         {"rope_parameters": {
             "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100000.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}},
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                          "full_attention"]}, OLD_ROPE),
    case("gemma3 scaled rope in windows", "gemma3_text",
         {"rope_parameters": {
             "full_attention": {"rope_type": "default", "rope_theta": 30000.0},
             "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7000.0}},
          "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                          "full_attention"]}, OLD_ROPE),
    case("gemma3 defaults", "gemma3_text", {}, OLD_ROPE),
    case("linear in transformers 5's spelling", "llama_rope_linear",
         {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}},
         OLD_ROPE),
    case("llama3 in transformers 5's spelling", "llama_rope_llama3",
         {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 4.0, "rope_theta": 20000.0,
                              "original_max_position_embeddings": 64}}, OLD_ROPE),
    case("yarn in transformers 5's spelling", "llama_rope_yarn",
         {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 20000.0,
                              "original_max_position_embeddings": 64, "beta_fast": 16.0}},
         OLD_ROPE),
    case("dynamic within the trained length", "llama_tied",
         {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    case("longrope, short lists", "phi3",
         {"rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
          "original_max_position_embeddings": 128}, max_model_len=128),
    case("longrope, long lists", "phi3",
         {"rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
          "original_max_position_embeddings": 64}, lengths=(65, 120)),
    case("longrope in transformers 5's spelling, partial rotation", "phi3_partial_rotary",
         {"rope_parameters": {"rope_type": "longrope", "short_factor": SHORT[:6],
                              "long_factor": LONG[:6], "rope_theta": 10000.0,
                              "partial_rotary_factor": 0.75, "attention_factor": 1.3},
          "original_max_position_embeddings": 64},
         OLD_ROPE + ["partial_rotary_factor"], lengths=(65, 120)),
]


def run(folder, prompt):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model(torch.tensor([prompt])).logits[0, -1].tolist()


def main():
    result = []
    for number, spec in enumerate(CASES):
        base = HERE.parent / "models" / spec["base"]
        config = json.loads((base / "config.json").read_text())
        for key in spec["remove"]:
            config.pop(key, None)
        config.update(spec["set"])
        prompts = []
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            os.symlink(base / "model.safetensors", pathlib.Path(folder, "model.safetensors"))
            for length in spec["lengths"]:
                prompt = [3 + (7 * number + 31 * i + i * i) % (config["vocab_size"] - 3)
                          for i in range(length)]
                logits = run(folder, prompt)[::STRIDE]
                prompts.append({"prompt_ids": prompt, "logits": [round(x, 5) for x in logits]})
        result.append({key: spec[key] for key in ("name", "base", "set", "remove", "max_model_len")}
                      | {"prompts": prompts})
        print(spec["name"], len(prompts))
    lines = ",\n".join(json.dumps(one) for one in result)
    text = '{"stride": %d, "cases": [\n%s\n]}\n' % (STRIDE, lines)
    (HERE / "variants.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


main()
