"""Trains the byte-level BPE on generated text and writes tokenizer.json.

    python tokenizer.py --out FILE

The split is the Llama-3 kind with single digits, so that a number is spelled and sums can be learned digit by digit.
"""

import argparse
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import generate

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+")
VOCAB_SIZE = 3072


def texts(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        document = generate.document(rng)
        yield document if isinstance(document, str) else "\n".join(message["content"] for message in document)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--documents", type=int, default=60000)
    arguments = parser.parse_args()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=[END_OF_TEXT, IM_START, IM_END],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts(arguments.documents, seed=7), trainer)
    tokenizer.save(arguments.out, pretty=False)
    print(f"{tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
