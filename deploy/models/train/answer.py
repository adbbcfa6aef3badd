"""Greedy answers of the exported folder, by our own float32 forward over its upcast bf16 weights.

    python answer.py FOLDER "Tell me a story about a fox."        # one prompt
    python answer.py FOLDER --file prompts.txt                    # a prompt per line
    python answer.py FOLDER --goldens fixed_prompts.json --out greedy_answers.json
"""

import argparse
import json
import os

import jinja2
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from model import Model, Shape


class Chat:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        with open(os.path.join(folder, "tokenizer_config.json")) as file:
            self.template = jinja2.Environment(trim_blocks=True,
                lstrip_blocks=True).from_string(json.load(file)["chat_template"])
        with open(os.path.join(folder, "generation_config.json")) as file:
            self.stop_ids = json.load(file)["eos_token_id"]
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        fields = {field: config[field] for field in Shape.__dataclass_fields__}
        self.model = Model(Shape(**fields)).float().eval()
        weights = {name: tensor.float() for name, tensor in load_file(os.path.join(folder,
            "model.safetensors")).items()}
        self.model.load_state_dict(weights)

    def render(self, messages):
        return self.template.render(messages=messages, add_generation_prompt=True)

    @torch.no_grad()
    def answer(self, messages, max_tokens=400):
        prompt_ids = self.tokenizer.encode(self.render(messages), add_special_tokens=False).ids
        ids, margins = list(prompt_ids), []
        while len(ids) - len(prompt_ids) < max_tokens:
            best = self.model(torch.tensor([ids]))[0, -1].topk(2)
            margins.append(round((best.values[0] - best.values[1]).item(), 5))
            ids.append(best.indices[0].item())
            if ids[-1] in self.stop_ids:
                break
        output_ids = ids[len(prompt_ids):]
        stopped = output_ids[-1] in self.stop_ids
        text = self.tokenizer.decode(output_ids[:-1] if stopped else output_ids)
        return dict(prompt_ids=prompt_ids, output_ids=output_ids, margins=margins, text=text,
            finish_reason="stop" if stopped else "length")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("prompt", nargs="*")
    parser.add_argument("--file", help="prompts, one per line; ' || ' separates the user's turns of one "
        "conversation")
    parser.add_argument("--goldens", help="JSON list of {name, messages}")
    parser.add_argument("--out")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    chat = Chat(arguments.folder)
    if arguments.goldens:
        with open(arguments.goldens) as file:
            prompts = json.load(file)
        rows = []
        for prompt in prompts:
            answer = chat.answer(prompt["messages"])
            rows.append(dict(name=prompt["name"], messages=prompt["messages"],
                prompt=chat.render(prompt["messages"]), **answer,
                             smallest_margin=min(answer["margins"])))
            print(f"{prompt['name']}: margin {rows[-1]['smallest_margin']:.3f}, {len(answer['output_ids'])} "
                f"tokens, {answer['finish_reason']}\n  {answer['text']}")
        with open(arguments.out, "w") as file:
            file.write("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")
        return
    lines = list(arguments.prompt)
    if arguments.file:
        with open(arguments.file) as file:
            lines += [line.rstrip("\n") for line in file if line.strip()]
    for line in lines:
        messages = []
        for user in line.split(" || "):
            if user.startswith("[system] "):
                messages.append({"role": "system", "content": user[9:]})
                continue
            messages.append({"role": "user", "content": user})
            answer = chat.answer(messages)
            messages.append({"role": "assistant", "content": answer["text"]})
            print(f"> {user}\n  {answer['text']}{'' if answer['finish_reason'] == 'stop' else ' [cut]'}   "
                f"({min(answer['margins']):.2f})", flush=True)
        print()


if __name__ == "__main__":
    main()
