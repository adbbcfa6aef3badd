"""Trains the small model on the CPU for a given time.

    python train.py --data DIR --minutes 60          # DIR/tokenizer.json must exist; checkpoints go to DIR/checkpoint.pt
    python train.py --data DIR --weights FOLDER --steps 800 --rate 0.4     # goes on from an exported folder
Run again to go on from the checkpoint; the learning rate follows the share of the minutes (or steps) that is used up, so the
end is known beforehand whatever else the machine does. Each worker is a process with one thread and its share of the rows: they
meet twice a step, where threads of one process would meet at every operation and wait for whichever the system held up. Matrices are trained by Muon (an orthogonalised momentum step), the embedding
and the norms by AdamW. An average of the last weights is kept beside them; that average is what is exported.
"""

import argparse
import copy
import os
import random
import tempfile
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import distributed, multiprocessing
from tokenizers import Tokenizer

import generate
from model import Model, Shape
from tokenizer import END_OF_TEXT, IM_END, IM_START

TOKENS_PER_STEP = 4096
ROW_TOKENS, LONG_ROW_TOKENS, LONG_EVERY = 512, 2048, 8
PROMPT_WEIGHT = 0.1  # of the user's tokens; the assistant's are what the model must learn
MUON_RATE, ADAM_RATE = 0.015, 2.5e-3
WARMUP_STEPS, DECAY_FROM = 60, 0.35
AVERAGE = 0.997


def answer_weight(text):
    """Short answers count more per token than stories. Sums, calls and JSON most: one wrong digit is a wrong answer."""
    if text[:1] in "{[<" or text[:1].isdigit() and len(text) < 40:
        return 4.0
    return 1.0 if len(text) > 200 else 2.0


class Encoder:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.end_of_text, self.im_start, self.im_end = (tokenizer.token_to_id(t) for t in (END_OF_TEXT,
            IM_START, IM_END))
        self.newline = self.ids("\n")

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def document(self, document):
        """(ids, weights): the weight of predicting each id."""
        if isinstance(document, str):
            ids = self.ids(document) + [self.end_of_text]
            return ids, [1.0] * len(ids)
        ids, weights = [], []
        for message in document:
            head = [self.im_start] + self.ids(message["role"]) + self.newline
            body = self.ids(message["content"]) + [self.im_end]
            weight = answer_weight(message["content"]) if message["role"] == "assistant" else PROMPT_WEIGHT
            ids += head + body + self.newline
            weights += [0.0] * len(head) + [weight] * len(body) + [0.0]
        return ids + [self.end_of_text], weights + [0.0]


def batch(rng, encoder, tokens, row_tokens):
    """Rows of whole conversations; each row starts with the first token of one, only the last is cut."""
    rows, row_weights = [], []
    for _ in range(tokens // row_tokens):
        ids, weights = [], []
        while len(ids) <= row_tokens:
            more_ids, more_weights = encoder.document(generate.document(rng))
            ids += more_ids
            weights += more_weights
        rows.append(ids[:row_tokens + 1])
        row_weights.append(weights[:row_tokens + 1])
    ids = torch.tensor(rows)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), torch.tensor(row_weights)[:, 1:].contiguous()


def orthogonalise(update):
    """Newton-Schulz: pushes the singular values of each [rows, columns] matrix of the stack towards 1."""
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.mT if tall else x).float()


def sum_over_workers(tensors, workers):
    if workers == 1:
        return
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    distributed.all_reduce(flat)
    at = 0
    for tensor in tensors:
        tensor.copy_(flat[at:at + tensor.numel()].view_as(tensor))
        at += tensor.numel()


class Muon:
    """The workers share the orthogonalising: each handles every n-th matrix of n workers, then the updates are summed."""

    def __init__(self, parameters, worker, workers, momentum=0.95, decay=0.02):
        self.worker, self.workers = worker, workers
        self.parameters = list(parameters)
        self.momentum, self.decay = momentum, decay
        self.buffers = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.groups = {}
        for index, parameter in enumerate(self.parameters):
            self.groups.setdefault(tuple(parameter.shape), []).append(index)

    @torch.no_grad()
    def step(self, rate):
        for buffer, parameter in zip(self.buffers, self.parameters):
            buffer.lerp_(parameter.grad, 1 - self.momentum)
        updates = [torch.zeros(0)] * len(self.parameters)
        for members in self.groups.values():
            mine = members[self.worker::self.workers]
            found = orthogonalise(torch.stack([
                torch.lerp(self.parameters[index].grad, self.buffers[index], self.momentum) for index in mine]))
            for index, update in zip(mine, found):
                updates[index] = update
        updates = [update if update.numel() else torch.zeros_like(parameter)
                   for update, parameter in zip(updates, self.parameters)]
        sum_over_workers(updates, self.workers)
        for parameter, update in zip(self.parameters, updates):
            scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
            parameter.mul_(1 - rate * self.decay).add_(update, alpha=-rate * scale)


def exported_weights(folder):
    return {name: tensor.float() for name, tensor in load_file(os.path.join(folder, "model.safetensors")).items()}


def rate_at(step, progress):
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return warm * (1.0 if progress < DECAY_FROM else max(0.0, (1.0 - progress) / (1.0 - DECAY_FROM)))


def train(worker, arguments):
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    if arguments.workers > 1:
        os.setsid()  # where the system shares the CPU by session, each worker counts as one
        distributed.init_process_group("gloo", init_method="file://" + arguments.meeting, rank=worker,
                                       world_size=arguments.workers)
    tokenizer = Tokenizer.from_file(os.path.join(arguments.data, "tokenizer.json"))
    encoder = Encoder(tokenizer)
    model = Model(Shape(vocab_size=tokenizer.get_vocab_size()))
    if arguments.weights:
        model.load_state_dict(exported_weights(arguments.weights))
    average = copy.deepcopy(model)
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or "embed" in name]
    muon = Muon(matrices, worker, arguments.workers)
    adam = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    path = os.path.join(arguments.data, "checkpoint.pt")
    step, tokens, seconds = 0, 0, 0.0
    if os.path.exists(path):
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        average.load_state_dict(saved["average"])
        adam.load_state_dict(saved["adam"])
        for buffer, value in zip(muon.buffers, saved["muon"]):
            buffer.copy_(value)
        step, tokens, seconds = saved["step"], saved["tokens"], saved["seconds"]
    rng = random.Random((arguments.seed * 1000003 + step) * 64 + worker)

    def save():
        torch.save(dict(model=model.state_dict(), average=average.state_dict(), adam=adam.state_dict(),
                        muon=muon.buffers, step=step, tokens=tokens, seconds=seconds), path + ".new")
        os.replace(path + ".new", path)

    recent, last = [], time.monotonic()
    while (progress := step / arguments.steps if arguments.steps else seconds / (arguments.minutes * 60)) < 1:
        long = step % LONG_EVERY == LONG_EVERY - 1
        ids, targets, weights = batch(rng, encoder, TOKENS_PER_STEP // arguments.workers,
                                      LONG_ROW_TOKENS if long else ROW_TOKENS)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        losses = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
        weights = weights.flatten()
        loss = (losses * weights).sum() / weights.sum()
        (loss / arguments.workers).backward()
        sum_over_workers([parameter.grad for parameter in model.parameters()], arguments.workers)
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        rate = arguments.rate * rate_at(step, progress)
        muon.step(MUON_RATE * rate)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        adam.step()
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            keep = min(AVERAGE, step / (step + 20))
            for kept, parameter in zip(average.parameters(), model.parameters()):
                kept.lerp_(parameter, 1 - keep)
        step += 1
        tokens += TOKENS_PER_STEP
        now = time.monotonic()
        # All workers must agree on the time, or one would stop before the other.
        clock = torch.tensor([now - last])
        sum_over_workers([clock], arguments.workers)
        seconds, last = seconds + clock.item() / arguments.workers, now
        answers = weights >= 1.0
        recent.append(losses[answers].mean().item())
        if worker == 0 and step % 50 == 0:
            print(f"step {step} minutes {seconds / 60:.1f} rate {rate:.3f} answer loss {sum(recent) / len(recent):.4f} "
                  f"tokens {tokens / 1e6:.2f}M", flush=True)
            recent = []
        if worker == 0 and step % 100 == 0:
            save()
    if worker == 0:
        save()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", type=int, help="end after these steps instead of minutes")
    parser.add_argument("--weights", help="an exported folder to start from")
    parser.add_argument("--rate", type=float, default=1.0, help="factor of both learning rates")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.workers == 1:
        train(0, arguments)
        return
    arguments.meeting = tempfile.mktemp()
    multiprocessing.spawn(train, args=(arguments,), nprocs=arguments.workers)


if __name__ == "__main__":
    main()
