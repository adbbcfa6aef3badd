"""Trains an EAGLE head for the shipped model: one layer that guesses the tokens after the next one from the model's last states.

    python eagle.py ../tandem-tiny --out DIR --steps 200
The model itself stays as it is. The text is that of generate.py, drawn anew in every step; what is learned is the model's own
next-token distribution and its state at each position. The first guess reads the model's state, later ones the head's own, so
the head is run a few times over the same text (`--guesses`), each time on what it said the time before. At the end prints how
often the j-th guess is the model's likeliest token over text that was not trained on.
"""

import argparse
import json
import os
import random
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn

from model import Attention, Mlp, Model, RmsNorm, Shape
from train import Encoder, Muon, batch, exported_weights

ROW_TOKENS = 512
MUON_RATE, ADAM_RATE = 0.02, 2e-3
WARMUP_STEPS, DECAY_FROM = 10, 0.4
STATE_WEIGHT = 0.2
PROMPT_WEIGHT = 0.1  # of the guesses after tokens of a prompt: only answers are drafted


class Layer(nn.Module):
    """Llama's, without the norm at its input."""

    def __init__(self, shape):
        super().__init__()
        self.self_attn = Attention(shape)
        self.self_attn.q_norm = self.self_attn.k_norm = nn.Identity()
        self.mlp = Mlp(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(x, cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Head(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.fc = nn.Linear(2 * shape.hidden_size, shape.hidden_size, bias=False)
        self.layers = nn.ModuleList([Layer(shape)])
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.005 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02)

    def forward(self, embedded, states, cos, sin):
        """Position p: the embedding of token p + 1 and the state of p, [batch, tokens, hidden] -> a guess of the state of p + 1."""
        return self.layers[0](self.fc(torch.cat([embedded, states], dim=-1)), cos, sin)


def states_of(model, ids):
    """After the last norm."""
    x = model.model.embed_tokens(ids)
    for layer in model.model.layers:
        x = layer(x, model.cos[:ids.shape[1]], model.sin[:ids.shape[1]])
    return model.model.norm(x)


def guesses(model, head, ids, num_guesses):
    """For j = 0, 1, …: guesses of the states at positions j + 1, j + 2, …, each from states up to j positions earlier that are true;
    and the true ones there."""
    with torch.no_grad():
        true = states_of(model, ids)
        embedded = model.model.embed_tokens(ids)
    tokens = ids.shape[1]
    states = true[:, :-1]
    for j in range(num_guesses):
        guess = head(embedded[:, 1:], states, model.cos[:tokens - 1], model.sin[:tokens - 1])
        yield guess[:, j:], true[:, j + 1:]
        # The state that was guessed for a position is what its next guess reads.
        states = torch.cat([true[:, :1], guess[:, :-1]], dim=1)


def rights(model, head, rng, encoder, num_guesses):
    """Of the j-th guess the share that is the model's likeliest token, in answers."""
    right, total = torch.zeros(num_guesses), torch.zeros(num_guesses)
    with torch.no_grad():
        for _ in range(8):
            ids, _, weights = batch(rng, encoder, 4 * ROW_TOKENS, ROW_TOKENS)
            for j, (guess, true) in enumerate(guesses(model, head, ids, num_guesses)):
                table = model.model.embed_tokens.weight
                counted = weights[:, j + 1:] >= 1
                same = F.linear(guess, table).argmax(-1) == F.linear(true, table).argmax(-1)
                right[j] += same[counted].sum()
                total[j] += counted.sum()
    return (right / total).tolist()


def export(folder, head, shape):
    os.makedirs(folder, exist_ok=True)
    weights = {name: parameter.detach().to(torch.bfloat16).contiguous() for name, parameter in head.named_parameters()}
    save_file(weights, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
            "head_dim": shape.head_dim, "hidden_act": "silu", "hidden_size": shape.hidden_size,
            "intermediate_size": shape.intermediate_size, "max_position_embeddings": shape.max_position_embeddings,
            "num_attention_heads": shape.num_attention_heads, "num_hidden_layers": 1,
            "num_key_value_heads": shape.num_key_value_heads, "rms_norm_eps": shape.rms_norm_eps,
            "rope_scaling": None, "rope_theta": shape.rope_theta, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16", "vocab_size": shape.vocab_size}, file, indent=2)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="an exported folder")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=4096, help="of a step")
    parser.add_argument("--guesses", type=int, default=3, help="that are trained; later ones are made the same way")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    encoder = Encoder(Tokenizer.from_file(os.path.join(arguments.model, "tokenizer.json")))
    model = Model(Shape(vocab_size=encoder.tokenizer.get_vocab_size())).requires_grad_(False)
    model.load_state_dict(exported_weights(arguments.model))
    head = Head(model.shape)
    muon = Muon([p for p in head.parameters() if p.dim() == 2], 0, 1)
    adam = torch.optim.AdamW([p for p in head.parameters() if p.dim() == 1], betas=(0.9, 0.95), weight_decay=0.0)
    table = model.model.embed_tokens.weight
    rng = random.Random(arguments.seed)
    for step in range(arguments.steps):
        ids, _, weights = batch(rng, encoder, arguments.tokens, ROW_TOKENS)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = 0
            for j, (guess, true) in enumerate(guesses(model, head, ids, arguments.guesses)):
                # weights[p] is that of the token after position p.
                counted = weights[:, j + 1:].clamp(PROMPT_WEIGHT, 1).flatten()
                with torch.no_grad():
                    wanted = F.linear(true, table).float().softmax(-1).flatten(0, 1)
                logits = F.linear(guess, table).float().flatten(0, 1)
                losses = F.cross_entropy(logits, wanted, reduction="none")
                losses = losses + STATE_WEIGHT * F.smooth_l1_loss(guess.float(), true.float(), reduction="none").mean(-1).flatten()
                loss = loss + (losses * counted).sum() / counted.sum()
        loss.backward()
        left = 1 - step / arguments.steps
        rate = min(1, (step + 1) / WARMUP_STEPS, left / (1 - DECAY_FROM))
        muon.step(MUON_RATE * rate)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        adam.step()
        head.zero_grad(set_to_none=True)
        if step % 10 == 9:
            print(f"step {step + 1}, {(step + 1) * arguments.tokens / 1e3:.0f}k tokens, {time.process_time():.0f} s of CPU, loss "
                  f"{loss.item() / arguments.guesses:.3f}", flush=True)
            export(arguments.out, head, model.shape)
    export(arguments.out, head, model.shape)
    shares = rights(model, head, random.Random(arguments.seed + 1000), encoder, 5)
    print(f"{sum(p.numel() for p in head.parameters())} parameters, {time.process_time():.0f} s of CPU; right of the guesses 1 to 5: "
          + ", ".join(f"{share:.3f}" for share in shares))


if __name__ == "__main__":
    main()
