#!/usr/bin/env python3
"""Random small models of each architecture of random_configs.py: `tandem serve` against transformers in float32.

  tests/interop/random_models_test.py [ARCHITECTURES [SEEDS]]    a regular expression, and 7 or 7-20

A model's config, weights, type, files and the server's flags are drawn from its architecture's name and a seed. Prompts
are sent three times: fresh, again, and with their outputs appended, so that the cache has part of them. Logprobs of
prompts and outputs, and greedy choices, are compared with those of one forward pass over all tokens.

TANDEM_SEED is the first seed, TANDEM_CASES the number of seeds (1). It needs torch and transformers, of this Python, of
the one that TANDEM_TRANSFORMERS names, or of a venv (5 GB):
  python3 -m venv build/interop/transformers
  build/interop/transformers/bin/pip install transformers==5.24.0 torch==2.13.0
"""
import concurrent.futures
import copy
import importlib.util
import json
import math
import os
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from random_configs import CONFIGS, VOCAB, Dice

PYTHON = os.environ.get("TANDEM_TRANSFORMERS", pair.ROOT / "build/interop/transformers/bin/python")
if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
    if not os.access(PYTHON, os.X_OK):
        pair.skip(f"{PYTHON or sys.executable} has no torch and transformers; the commands are in {__file__}")
    os.execve(PYTHON, [PYTHON, *sys.argv], {**os.environ, "TANDEM_TRANSFORMERS": ""})  # that one, and no further

import torch
import transformers
from safetensors.torch import load_file, save_file

TOLERANCE = 2e-3  # of logprobs: two orders of float32 sums
# A router, and an indexer of keys, chooses: of two nearly equal candidates another order of sums may choose the other,
# and the logprobs of that token differ. Up to this many of 512 may; a defect shows in more.
NEAR_TIES = 5
NUM_OUTPUTS = 14
# What transformers saves under names of its own, and the keys that published configs have.
PUBLISHED_KEYS = {"full_attn_idxs": "layer_types", "hybrid_override_pattern": "layers_block_type"}


def named_weights(model):
    return [*model.named_parameters(), *((name, buffer) for name, buffer in model.named_buffers() if "bias" in name)]


def fill(model, dice):
    """Weights of a size at which all layers count and logits are far from flat. A_log stays as its class sets it."""
    generator = torch.Generator().manual_seed(dice.randrange(1 << 30))
    for name, weight in named_weights(model):
        if name.endswith("A_log"):
            continue
        mean = 0.0
        if name.endswith((".D", "dt_bias", "sinks")):
            deviation = 1.0
        elif re.search(r"embed|wte", name):
            deviation = 0.6
        elif weight.ndim >= 2:
            deviation = 0.2 if weight.ndim > 2 else 1.1 / math.sqrt(weight.shape[-1])
        elif "bias" in name:
            deviation = 0.1 if re.search("e_score|expert_bias", name) else 0.2
        else:  # norms and scales
            mean, deviation = 1.0, 0.2
        weight.copy_(mean + deviation * torch.randn(weight.shape, generator=generator))
    model.tie_weights()


def make_model(name, config, dtype, dice):
    """A float32 model whose weights are numbers of `dtype`."""
    of_class = getattr(transformers, name)
    hf_config = of_class.config_class.from_dict(copy.deepcopy(config))
    hf_config._attn_implementation = hf_config._experts_implementation = "eager"
    model = of_class(hf_config).eval().float()
    fill(model, dice)
    for _, weight in named_weights(model):
        weight.copy_(weight.to(dtype).float())
    return model


def as_transformers_4(config, dice):
    """The spelling of the config.json of most published models."""
    rope = config.get("rope_parameters")
    if rope and "rope_type" in rope:  # else one for each kind of layers, which has no older spelling
        del config["rope_parameters"]
        kind = rope.pop("rope_type")
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        config["rope_scaling"] = None if kind == "default" else rope | {dice.pick("type", "rope_type"): kind}
    config["torch_dtype"] = config.pop("dtype")


def save(model, name, config, dtype, folder, dice):
    copy.deepcopy(model).to(dtype).save_pretrained(folder, max_shard_size=dice.pick("5GB", "100KB"))
    if name == "KimiLinearForCausalLM":
        publish_kimi(folder)
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    for key, own_key in PUBLISHED_KEYS.items():
        if key in config and dice.maybe():
            saved.pop(own_key, None)
            saved[key] = config[key]
    if dice.maybe(0.3):
        saved = without_defaults(saved, model.config_class().to_dict())
    if dice.maybe():
        as_transformers_4(saved, dice)
    path.write_text(json.dumps(saved, indent=1))


def without_defaults(config, defaults):
    """As older files are, but with all sizes, and with ropes, whose defaults are not the same in all versions."""
    def is_kept(key, value):
        is_size = isinstance(value, int) and not isinstance(value, bool)
        return is_size or key in ("architectures", "model_type", "dtype", "rope_parameters")
    return {key: value for key, value in config.items()
            if is_kept(key, value) or key not in defaults or defaults[key] != value}


def publish_kimi(folder):
    """Published dense layers are called `mlp`, and decays are float32."""
    def renamed(text):
        return re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", text)
    for file in folder.glob("*.safetensors"):
        save_file({renamed(name): weight.float() if name.endswith(("A_log", "dt_bias")) else weight
                   for name, weight in load_file(file).items()}, file)
    for file in folder.glob("*.index.json"):
        file.write_text(renamed(file.read_text()))


def is_divisible(config):
    """Whether two ranks can share the heads: each KV head goes to one rank, or a single one to both."""
    heads = [config.get(key, 2) for key in ("num_attention_heads", "n_head", "linear_num_key_heads")]
    kv_heads = [config.get(key, 2) for key in ("num_key_value_heads", "num_kv_heads", "num_global_key_value_heads")]
    heads.append(config.get("linear_attn_config", {}).get("num_heads", 2))
    return all(n % 2 == 0 for n in heads) and all(n == 1 or n % 2 == 0 for n in kv_heads)


def has_two_stages(config):
    """Whether a layer remains before the last stage, which has those whose KV its last layers read."""
    shared = config.get("num_kv_shared_layers", 0)
    own = config["layer_types"][:-shared] if shared else []
    return not shared or min(len(own) - 1 - own[::-1].index(kind) for kind in set(config["layer_types"][-shared:])) > 0


def draw_flags(config, dice):
    flags = ["--max-num-batched-tokens", dice.pick("32", "48", "100", "512")]
    ranks = dice.random()
    if ranks < 0.25 and is_divisible(config):
        flags += ["-tp", "2"]
    elif 0.25 <= ranks < 0.4 and has_two_stages(config):
        flags += ["-pp", "2"]
    if dice.maybe(0.3):
        flags += ["--block-size", dice.pick("32", "64")]
    if dice.maybe(0.2):
        flags += ["--no-enable-prefix-caching"]
    if dice.maybe(0.2):
        flags += ["--max-num-seqs", dice.pick("1", "2")]
    return flags


def draw_prompts(dice):
    """Short, of many chunks, one that shares the beginning of another, and of more than one block."""
    one, other = (dice.choices(range(5, VOCAB), k=k) for k in (150, 40))
    return [one[:9], one, one[:128] + other[:21], other]


def complete(server, prompt, **more):
    status, reply = server.post("/v1/completions", {
        "prompt": prompt, "max_tokens": NUM_OUTPUTS, "temperature": 0, "ignore_eos": True, "logprobs": 1,
        "return_token_ids": True, **more})
    assert status == 200, reply
    choice, = json.loads(reply)["choices"]
    return choice


def serve(folder, flags, prompts):
    """(kind, prompt, choice) of each request."""
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool, pair.Pair(
            "--dtype", "float32", "--max-model-len", "256", "--kv-cache-memory-bytes", "64M", "--tokenizer", pair.MODEL,
            *flags, model=folder) as server:
        def send(kind, prompts, **more):
            choices = list(pool.map(lambda prompt: complete(server, prompt, **more), prompts))
            return [(kind, *each) for each in zip(prompts, choices)]
        fresh = send("fresh", prompts, prompt_logprobs=0)
        again = send("again", prompts)
        return fresh + again + send("extended", [prompt + choice["token_ids"] + [7, 8] for _, prompt, choice in again])


def differences(model, kind, prompt, choice):
    """(token, difference) of each logprob, and of a greedy choice the amount by which another one is better."""
    output = choice["token_ids"]
    rows = choice["prompt_logprobs"] if kind == "fresh" else []
    assert len(output) == NUM_OUTPUTS and (kind != "fresh" or len(rows) == len(prompt)), choice
    logits = model(torch.tensor([prompt + output]), use_cache=False).logits[0]
    expected = torch.log_softmax(logits.float(), -1)
    for i, row in enumerate(rows[1:], 1):  # the first token has none
        yield f"prompt token {i}", abs(row[str(prompt[i])]["logprob"] - float(expected[i - 1, prompt[i]]))
    for i, (token, logprob) in enumerate(zip(output, choice["logprobs"]["token_logprobs"])):
        row = expected[len(prompt) + i - 1]
        yield f"output token {i}", max(abs(logprob - float(row[token])), float(row.max() - row[token]))


def chooses(config):
    """Whether it has a router or an indexer."""
    return "index_topk" in config or any("experts" in key for key in config)


def examine(name, config, dtype, flags, dice):
    """(kind of request, length of its prompt, token, difference) of each logprob."""
    model = make_model(name, config, dtype, dice)
    with tempfile.TemporaryDirectory(prefix="tandem-random-") as folder:
        save(model, name, config, dtype, pathlib.Path(folder), dice)
        responses = serve(folder, flags, draw_prompts(dice))
    if name == "Cohere2ForCausalLM":
        model.config.sliding_window += 1  # vLLM's window, and so ours, has one more token than that of transformers
    return [(kind, len(prompt), token, difference) for kind, prompt, choice in responses
            for token, difference in differences(model, kind, prompt, choice)]


def passes(name, seed):
    dice = Dice(f"{name} {seed}")
    config = CONFIGS[name](dice)
    dtype = dice.pick(torch.float32, torch.bfloat16, torch.float16)
    flags = draw_flags(config, dice)
    case = f"{name} {seed}, {dtype}, {' '.join(flags)}"
    try:
        found = examine(name, config, dtype, flags, dice)
    except Exception as error:  # of any library; the other models have their turn
        print(f"FAILED {case}: {type(error).__name__} {error}\n  {json.dumps(config)}", flush=True)
        return False
    wrong = [each for each in found if not each[-1] <= TOLERANCE]  # NaN is wrong, too
    passed = not wrong or chooses(config) and len(wrong) <= NEAR_TIES
    verdict = "equal" if not wrong else "near ties" if passed else "DIFFERS"
    worst = max(difference for *_, difference in found)
    print(f"{verdict} {case}: {len(wrong)} of {len(found)} logprobs, at most {worst:.2g}", flush=True)
    for kind, length, token, difference in wrong[:5]:
        print(f"  {kind}, prompt of {length}, {token}: {difference:.2g}")
    if wrong:
        print(f"  {json.dumps(config)}", flush=True)
    return passed


def main():
    pattern, seeds = [*sys.argv[1:], "", ""][:2]
    if seeds:
        first, last = int(seeds.split("-")[0]), int(seeds.split("-")[-1])
    else:
        first = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
        last = first + int(os.environ.get("TANDEM_CASES", 1)) - 1
    print(f"TANDEM_SEED={first}", flush=True)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    names = [name for name in CONFIGS if re.search(pattern, name)]
    results = [passes(name, seed) for seed in range(first, last + 1) for name in names]
    print(f"{len(results)} models, {results.count(False)} of them wrong")
    sys.exit(not all(results) or not results)


if __name__ == "__main__":
    main()
