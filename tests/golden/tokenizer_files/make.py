"""Makes the folders of this one: small tokenizers in files other than tokenizer.json, and the ids
that the real libraries give for the texts of ../tokenizers/texts.json.

    pip install transformers==5.23.0 tokenizers==0.23.3 mistral-common==1.13.1
    python3 make.py

<name>/goldens.json.gz: a list of variants; each is a folder with `files` (name: path from here) and
`config`, the content of tokenizer_config.json, and `json_files` (name: content). Per variant:
bos, eos: the tokens that its templates get;
encode: [text or number of a text, ids without special tokens, ids with them; left out if equal];
decode: [ids, text with special tokens, text without; left out if equal].
"""
import base64
import gzip
import io
import json
import os
import random
import shutil
import tempfile

from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, BertTokenizer, GPT2Tokenizer
from transformers.integrations.mistral.tokenizer import MistralConverter

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = json.load(open(HERE + "/../tokenizers/texts.json"))["texts"]
OWN = ["<|endoftext|> a<|endoftext|>b", "<s>x</s> [INST] y[/INST]z <SPECIAL_22> <SPECIAL_40>",
       "[CLS] a [MASK] b[SEP]", "<new>x <new> y", "a" * 300, " " * 70, "\ufffd\ufffd x", "\u00e9" * 9,
       "<unk> <pad>", "HELLO W\u00d6RLD \u4e2d\u6587 caf\u00e9"]
TEKKEN_SPLIT = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
                r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_bytes(size, split=None):
    tokenizer = Tokenizer(models.BPE())
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    steps = [pre_tokenizers.Split(Regex(split), "isolated"), to_bytes] if split else [to_bytes]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return tokenizer


def dump(path, value):
    """A path of .gz is compressed, without the time of day."""
    with gzip.GzipFile(path, "wb", mtime=0) if path.endswith(".gz") else open(path, "wb") as file:
        out = io.TextIOWrapper(file, write_through=True)
        json.dump(value, out, separators=(",", ":"))
        out.write("\n")


def record(tokenizer, texts, numbers):
    """tokenizer: encode(text, with special tokens), decode(ids, without special tokens)."""
    rng = random.Random(14)
    encode, decode = [], []
    for key, text in [*((n, TEXTS[n]) for n in numbers), *((t, t) for t in texts)]:
        bare, special = tokenizer.encode(text, False), tokenizer.encode(text, True)
        encode.append([key, bare] if bare == special else [key, bare, special])
        if len(encode) % 8 == 0 or isinstance(key, str):
            ids = rng.sample(special, len(special)) if len(special) < 60 else special[:20]
            whole, short = tokenizer.decode(ids, False), tokenizer.decode(ids, True)
            decode.append([ids, whole] if whole == short else [ids, whole, short])
    return {"encode": encode, "decode": decode}


class Backend:
    """Of transformers; decoding by the library below it, which tidies nothing."""

    def __init__(self, tokenizer):
        self.tokenizer, self.backend = tokenizer, tokenizer.backend_tokenizer

    def encode(self, text, special):
        return self.tokenizer.encode(text, add_special_tokens=special)

    def decode(self, ids, skip):
        return self.backend.decode(ids, skip_special_tokens=skip)


def variant(files, config, json_files=None, load=AutoTokenizer, texts=OWN, numbers=()):
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files.items():
            shutil.copy(os.path.join(HERE, path), os.path.join(folder, name))
        dump(folder + "/tokenizer_config.json", config)
        for name, content in (json_files or {}).items():
            dump(os.path.join(folder, name), content)
        loaded = load.from_pretrained(folder)
    made = {"files": files, "config": config, "bos": loaded.bos_token, "eos": loaded.eos_token,
            **record(Backend(loaded), texts, numbers)}
    if json_files:
        made["json_files"] = json_files
    return made


class Tekken:
    """MistralConverter's ids, which are mistral-common's where a text names no special token."""

    def __init__(self, path):
        self.converted = MistralConverter(path).converted()
        self.tekken = Tekkenizer.from_file(path)
        self.special = [self.converted.id_to_token(i) for i in range(self.tekken.num_special_tokens)]

    def encode(self, text, special):
        ids = self.converted.encode(text, add_special_tokens=False).ids
        if not any(token in text for token in self.special):
            assert ids == self.tekken.encode(text, bos=False, eos=False), text
        return [self.tekken.bos_id] * special + ids

    def decode(self, ids, skip):
        return self.converted.decode(ids, skip_special_tokens=skip)


def make_tekken():
    folder = HERE + "/tekken"
    os.makedirs(folder, exist_ok=True)
    spelled = json.loads(train_bytes(620, TEKKEN_SPLIT).to_str())["model"]
    alphabet = decoders.ByteLevel()
    byte_of = {}
    characters = pre_tokenizers.ByteLevel.alphabet()
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    byte_of = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    assert set(byte_of) == set(characters) and alphabet
    tokens = [bytes([b]) for b in range(256)]
    for left, right in spelled["merges"]:
        tokens.append(bytes(byte_of[c] for c in left + right))
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(),
              "token_str": None if b"\xff" in token else token.decode(errors="replace")}
             for rank, token in enumerate(tokens)]
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
             "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
             "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
             "[TOOL_CONTENT]"]
    num_special = 24
    dump(folder + "/tekken.json", {
        "config": {"pattern": TEKKEN_SPLIT, "num_vocab_tokens": len(vocab),
                   "default_vocab_size": num_special + len(vocab) - 12,
                   "default_num_special_tokens": num_special, "version": "v7"},
        "vocab": vocab,
        "special_tokens": [{"rank": rank, "token_str": name, "is_control": True}
                           for rank, name in enumerate(names)]})
    made = {"files": {"tekken.json": "tekken/tekken.json"}, "config": {}, "bos": "<s>",
            "eos": "</s>",
            **record(Tekken(folder + "/tekken.json"), OWN, range(len(TEXTS)))}
    dump(folder + "/goldens.json.gz", [made])


def make_bpe():
    folder = HERE + "/vocab_and_merges"
    os.makedirs(folder, exist_ok=True)
    model = json.loads(train_bytes(500).to_str())["model"]
    vocab = dict(model["vocab"]) | {"<|endoftext|>": len(model["vocab"])}
    dump(folder + "/vocab.json", vocab)
    with open(folder + "/merges.txt", "w") as out:
        out.write("#version: 0.2\n")
        out.writelines(f"{left} {right}\n" for left, right in model["merges"])
    files = {"vocab.json": "vocab_and_merges/vocab.json", "merges.txt": "vocab_and_merges/merges.txt"}
    some = range(0, len(TEXTS), 4)
    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    dump(folder + "/goldens.json.gz", [
        variant(files, {}, load=GPT2Tokenizer, numbers=range(len(TEXTS))),
        variant(files, {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True,
                        "add_prefix_space": True, **end}, numbers=some),
        variant(files, {"tokenizer_class": "Qwen2Tokenizer"}, numbers=some),
        variant(files, {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {
            str(len(vocab)): {"content": "<new>", "special": False, "normalized": False,
                              "lstrip": False, "rstrip": True, "single_word": False},
            str(len(vocab) - 1): {"content": "<|endoftext|>", "special": True, "normalized": False,
                                  "lstrip": False, "rstrip": False, "single_word": False}}}),
        variant(files, {"tokenizer_class": "GPT2Tokenizer"},
                {"special_tokens_map.json": {"bos_token": "<|endoftext|>", "pad_token": {
                    "content": "<new>", "lstrip": True, "rstrip": False, "normalized": False,
                    "single_word": False}},
                 "added_tokens.json": {"<new>": len(vocab)}}),
    ])


def make_word_piece():
    folder = HERE + "/vocab_txt"
    os.makedirs(folder, exist_ok=True)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        TEXTS + [text.lower() for text in TEXTS],
        trainers.WordPieceTrainer(vocab_size=900, show_progress=False, special_tokens=[
            "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    by_id = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    with open(folder + "/vocab.txt", "w") as out:
        out.writelines(token + "\n" for token in by_id)
    files = {"vocab.txt": "vocab_txt/vocab.txt"}
    some = range(0, len(TEXTS), 4)
    dump(folder + "/goldens.json.gz", [
        variant(files, {}, load=BertTokenizer, numbers=range(len(TEXTS))),
        variant(files, {"tokenizer_class": "BertTokenizer", "do_lower_case": False,
                        "tokenize_chinese_chars": False}, numbers=some),
        variant(files, {"tokenizer_class": "BertTokenizer", "strip_accents": False}, numbers=some),
    ])


def make_flags():
    """Beside a tokenizer.json: its post-processor counts and not add_bos_token or add_eos_token;
    special tokens are those that the other files name."""
    os.makedirs(HERE + "/config_flags", exist_ok=True)
    generic = {"tokenizer_class": "PreTrainedTokenizerFast"}
    ends = {"llama2": ["LlamaTokenizerFast", "<s>", "</s>"],
            "gpt2": ["PreTrainedTokenizerFast", "<|endoftext|>", "<|endoftext|>"]}
    made = []
    for name, (kind, bos, eos) in ends.items():
        for flags in [{"add_bos_token": True, "add_eos_token": True}, {"add_bos_token": False}]:
            config = {"tokenizer_class": kind, **flags, "bos_token": bos, "eos_token": eos}
            made.append(variant({"tokenizer.json": f"../tokenizers/{name}/tokenizer.json"}, config,
                                texts=["", "Hello world"]))
    name = {"tokenizer.json": "../tokenizers/llama2/tokenizer.json"}
    made.append(variant(name, {**generic, "bos_token": "<unk>"},
                        {"special_tokens_map.json": {"bos_token": {"content": "</s>"},
                                                     "eos_token": "<s>"}},
                        texts=["Hello world"]))
    made.append(variant(name, {**generic, "bos_token": "<s>", "added_tokens_decoder": {}},
                        {"special_tokens_map.json": {"bos_token": "</s>"}}, texts=["Hello world"]))
    made.append(variant(name, {**generic, "bos_token": "\u2581the", "eos_token": "</s>",
                               "additional_special_tokens": ["swrd", "\u2581and"]},
                        texts=["in the \u2581the x", "swrd and\u2581and swrd <tool_call>"]))
    dump(HERE + "/config_flags/goldens.json.gz", made)


if __name__ == "__main__":
    make_tekken()
    make_bpe()
    make_word_piece()
    make_flags()
