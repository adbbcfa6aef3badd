"""Writes the averaged weights of a checkpoint as a Hugging Face folder (bf16).

    python export.py --data DIR --out ../tandem-tiny
"""

import argparse
import json
import os

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from model import Model, Shape
from tokenizer import END_OF_TEXT, IM_END, IM_START

# A tool is one line, name(parameter: type, …) - description, so that a small model reads few tokens; calls are JSON in the
# form of the Hermes models.
CHAT_TEMPLATE = """
{%- set rest = messages -%}
{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if messages[0]['role'] == 'system' -%}
{{- messages[0]['content'] + '\\n\\n' -}}
{%- set rest = messages[1:] -%}
{%- endif -%}
{{- 'Tools:\\n' -}}
{%- for tool in tools -%}
{%- set function = tool['function'] -%}
{{- function['name'] + '(' -}}
{%- for name, value in ((function['parameters'] or {})['properties'] or {}).items() -%}
{{- name + ': ' + ((value['enum'] | join('|')) if value['enum'] else ((value['type'] or 'any') | string)) -}}
{{- '' if loop.last else ', ' -}}
{%- endfor -%}
{{- ')' + (' - ' + function['description'] if function['description'] else '') + '\\n' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in rest -%}
{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') -}}
{%- for call in message['tool_calls'] or [] -%}
{{- '\\n' if message['content'] or not loop.first else '' -}}
{{- '<tool_call>\\n{"name": "' + call['function']['name'] + '", "arguments": ' -}}
{{- (call['function']['arguments'] | tojson) + '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    tokenizer_path = os.path.join(arguments.data, "tokenizer.json")
    tokenizer = Tokenizer.from_file(tokenizer_path)
    end_of_text, im_start, im_end = (tokenizer.token_to_id(t) for t in (END_OF_TEXT, IM_START, IM_END))
    shape = Shape(vocab_size=tokenizer.get_vocab_size())
    saved = torch.load(os.path.join(arguments.data, "checkpoint.pt"), weights_only=True)
    model = Model(shape)
    model.load_state_dict(saved["average"])
    weights = {name: parameter.detach().to(torch.bfloat16).contiguous() for name,
        parameter in model.named_parameters()}
    save_file(weights, os.path.join(arguments.out, "model.safetensors"), metadata={"format": "pt"})
    with open(tokenizer_path, encoding="utf-8") as file:
        stored = json.load(file)
    with open(os.path.join(arguments.out, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(stored, file, ensure_ascii=False, separators=(",", ":"))
    write_json(arguments.out, "config.json", {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "eos_token_id": im_end,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.max_position_embeddings,
        "max_window_layers": shape.num_hidden_layers,
        "model_type": "qwen3",
        "num_attention_heads": shape.num_attention_heads,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_key_value_heads": shape.num_key_value_heads,
        "pad_token_id": end_of_text,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": shape.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocab_size,
    })
    special = {
        str(id_): {"content": content, "lstrip": False, "normalized": False, "rstrip": False,
                   "single_word": False, "special": True}
        for id_, content in ((end_of_text, END_OF_TEXT), (im_start, IM_START), (im_end, IM_END))}
    write_json(arguments.out, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": special,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": shape.max_position_embeddings,
        "chat_template": CHAT_TEMPLATE,
    })
    write_json(arguments.out, "generation_config.json", {
        "eos_token_id": [im_end, end_of_text],
        "pad_token_id": end_of_text,
    })
    for name in os.listdir(arguments.out):
        os.chmod(os.path.join(arguments.out, name), 0o644)
    size = sum(os.path.getsize(os.path.join(arguments.out, name)) for name in os.listdir(arguments.out))
    print(f"step {saved['step']}, {sum(p.numel() for p in model.parameters())} parameters, {size / 1e6:.2f} "
        f"MB")


if __name__ == "__main__":
    main()
