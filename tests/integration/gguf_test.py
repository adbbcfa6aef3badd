#!/usr/bin/env python3
"""`tandem serve model.gguf`: weights, config, tokenizer and chat template come from the one file."""
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from goldens import read_goldens
from pair import LIMIT, MODEL, Pair, ROOT, bin_dir

FOLDER = ROOT / "tests" / "golden" / "quantized" / "gguf_llama_q4_0"
GGUF = FOLDER / "model.gguf"
TIE = 4e-3  # between logits, within which float32 may choose either token


class Gguf(unittest.TestCase):
    def post(self, server, path, **body):
        status, reply = server.post(path, {"model": "m", "temperature": 0, **body})
        self.assertEqual(status, 200, reply)
        return json.loads(reply)

    def test_one_file_is_a_model(self):
        with Pair("--served-model-name", "m", "--dtype", "float32", "--quantization", "none",
                  model=GGUF) as server:
            for prompt in read_goldens(FOLDER)["prompts"]:
                choice = self.post(server, "/v1/completions", prompt=prompt["prompt_ids"], ignore_eos=True,
                                   max_tokens=len(prompt["greedy_ids"]), return_token_ids=True)["choices"][0]
                for found, expected, margin in zip(choice["token_ids"], prompt["greedy_ids"],
                                                   prompt["greedy_margins"]):
                    if margin < TIE:
                        break
                    self.assertEqual(found, expected, prompt["index"])
            described = json.loads((FOLDER / "gguf.json").read_text())
            for text, ids in described["encode"]:
                self.assertEqual(self.post(server, "/tokenize", prompt=text, add_special_tokens=False)["tokens"], ids)
            messages = [{"role": "user", "content": "hi"}]
            tokens = self.post(server, "/tokenize", messages=messages)["tokens"]
            text = self.post(server, "/detokenize", tokens=tokens)["prompt"]
            self.assertEqual(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
            answer = self.post(server, "/v1/chat/completions", messages=messages, max_tokens=8)
            self.assertEqual(answer["usage"]["prompt_tokens"], len(tokens))
            # The process of the grammars reads the file's tokenizer too.
            answer = self.post(server, "/v1/chat/completions", messages=messages, max_tokens=8,
                               structured_outputs={"choice": ["yes", "no"]})
            self.assertIn(answer["choices"][0]["message"]["content"], ("yes", "no"))

    def test_ranks_share_the_file(self):
        def tokens(*flags):
            with Pair("--served-model-name", "m", *flags, model=GGUF) as server:
                return self.post(server, "/v1/completions", prompt=[5, 6, 7, 8], ignore_eos=True, max_tokens=24,
                                 return_token_ids=True)["choices"][0]["token_ids"]

        alone = tokens()
        self.assertEqual(len(alone), 24)
        self.assertEqual(tokens("--tensor-parallel-size", "2"), alone)
        self.assertEqual(tokens("--pipeline-parallel-size", "2"), alone)

    def test_another_tokenizer(self):
        with Pair("--served-model-name", "m", "--tokenizer", MODEL, model=GGUF) as server:
            self.assertNotEqual(self.post(server, "/tokenize", prompt="Hello world")["count"], 8)

    def test_what_is_no_such_file_is_refused(self):
        for words, why in ((["--load-format", "safetensors", GGUF], "is a GGUF file"),
                           (["--load-format", "gguf", MODEL], "is no .gguf file"),
                           ([FOLDER / "absent.gguf"], "no such file"),
                           ([GGUF, "--quantization", "gptq"], "does not match")):
            run = subprocess.run([bin_dir() / "tandem-engine-core", *map(str, words)],
                                 capture_output=True, text=True, timeout=LIMIT)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(why, run.stderr + run.stdout)


if __name__ == "__main__":
    unittest.main()
