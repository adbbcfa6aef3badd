#!/usr/bin/env python3
"""Prompts of embeddings: those of a prompt's own tokens give the same response as the tokens, to the bit."""
import base64
import http.client
import json
import os
import pathlib
import signal
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair
from torch_file import torch_file

FLAGS = ("--enable-prompt-embeds", "--trust-request-chat-template", "--kv-cache-memory-bytes", "32M")
HIDDEN = json.loads((MODEL / "config.json").read_text())["hidden_size"]


def embedding_rows(ids):
    """The rows of the model's bf16 table, as bytes."""
    raw = (MODEL / "model.safetensors").read_bytes()
    header_size = struct.unpack("<Q", raw[:8])[0]
    begin = json.loads(raw[8:8 + header_size])["model.embed_tokens.weight"]["data_offsets"][0] + 8 + header_size
    return b"".join(raw[begin + id_ * HIDDEN * 2:begin + (id_ + 1) * HIDDEN * 2] for id_ in ids)


def as_float32(bf16):
    return b"".join(b"\0\0" + bf16[i:i + 2] for i in range(0, len(bf16), 2))


def encoded(ids, float32=False):
    rows = embedding_rows(ids)
    file = (torch_file(as_float32(rows), (len(ids), HIDDEN)) if float32
            else torch_file(rows, (len(ids), HIDDEN), "BFloat16Storage", 2))
    return base64.b64encode(file).decode()


def prompt_ids(pair, text):
    status, body = pair.post("/tokenize", {"prompt": text})
    assert status == 200, body
    return json.loads(body)["tokens"]


def complete(pair, **fields):
    status, body = pair.post("/v1/completions", {"max_tokens": 24, "temperature": 0, "logprobs": 2, **fields})
    assert status == 200, body
    return json.loads(body)


def shown(response):
    """What must not depend on how the prompt was given."""
    return [(c["text"], c["finish_reason"], c["logprobs"]) for c in response["choices"]]


def user(*parts):
    return [{"role": "user", "content": [p if isinstance(p, dict) else {"type": "text", "text": p} for p in parts]}]


def chat(pair, messages, **fields):
    status, body = pair.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1, "logprobs": True, **fields})
    assert status == 200, body
    return json.loads(body)


def spoken(response):
    """Token texts and logprobs of a chat's choices or of a completion's."""
    return [[(t["token"], t["logprob"]) for t in c["logprobs"]["content"]] if "message" in c
            else list(zip(c["logprobs"]["tokens"], c["logprobs"]["token_logprobs"])) for c in response["choices"]]


TEXT = "<|im_start|>user\nTell me a short story about a fox.<|im_end|>\n<|im_start|>assistant\n"
OTHER = "<|im_start|>user\nWhat is 7 plus 5?<|im_end|>\n<|im_start|>assistant\n"


class Embeddings(unittest.TestCase):
    def test_same_bits_as_tokens(self):
        # Steps of 16 tokens: a prompt is run in pieces, beside others.
        with Pair(*FLAGS, "--max-num-batched-tokens", 16, "--max-num-seqs", 8) as pair:
            ids, other = prompt_ids(pair, TEXT), prompt_ids(pair, OTHER)
            expected = shown(complete(pair, prompt=[ids, other]))
            for float32 in (False, True):
                with self.subTest(float32=float32):
                    # The second time the prefix cache has it.
                    for _ in range(2):
                        found = complete(pair, prompt_embeds=[encoded(ids, float32), encoded(other, float32)])
                        self.assertEqual(shown(found), expected)
                        self.assertEqual(found["usage"]["prompt_tokens"], len(ids) + len(other))
            mixed = complete(pair, prompt_embeds=encoded(other), prompt=ids)
            self.assertEqual(shown(mixed)[::-1], expected)
            seeded = dict(n=2, seed=5, temperature=0.8)
            self.assertEqual(shown(complete(pair, prompt_embeds=encoded(ids), **seeded)),
                             shown(complete(pair, prompt=ids, **seeded)))

    def test_same_bits_in_ranks_and_stages(self):
        with Pair(*FLAGS, "-tp", 2, "-pp", 2, "--threads", 1, "--max-num-batched-tokens", 16) as pair:
            ids, other = prompt_ids(pair, TEXT), prompt_ids(pair, OTHER)
            self.assertEqual(shown(complete(pair, prompt_embeds=[encoded(ids), encoded(other, True)])),
                             shown(complete(pair, prompt=[ids, other])))

    def test_parts_of_chats_have_the_bits_of_their_tokens(self):
        with Pair(*FLAGS, "--max-num-batched-tokens", 16, "--max-num-seqs", 8) as pair:
            rows = prompt_ids(pair, "fox and a hen")
            rendered = chat(pair, user("Tell me a story of a", "HERE", "."), return_prompt_text=True)["prompt_text"]
            before, after = rendered.split("HERE")
            ids = prompt_ids(pair, before) + rows + prompt_ids(pair, after)
            fields = dict(max_tokens=24, temperature=0)
            expected = spoken(complete(pair, prompt=ids, **fields))
            part = {"type": "prompt_embeds", "data": encoded(rows)}
            for _ in range(2):  # the second time the prefix cache has it
                found = chat(pair, user("Tell me a story of a", part, "."), **fields)
                self.assertEqual(spoken(found), expected)
                self.assertEqual(found["usage"]["prompt_tokens"], len(ids))
            other = {"type": "prompt_embeds", "data": encoded([id_ + 1 for id_ in rows])}
            shifted = prompt_ids(pair, before) + [id_ + 1 for id_ in rows] + prompt_ids(pair, after)
            self.assertEqual(spoken(chat(pair, user("Tell me a story of a", other, "."), **fields)),
                             spoken(complete(pair, prompt=shifted, **fields)))
            twice = chat(pair, user("HERE", "and", "HERE"), return_prompt_text=True)["prompt_text"].split("HERE")
            ids = [id_ for text in twice for id_ in rows + prompt_ids(pair, text)][len(rows):]
            seeded = dict(n=2, seed=5, temperature=0.8, max_tokens=12)
            self.assertEqual(spoken(chat(pair, user(part, "and", part), **seeded)),
                             spoken(complete(pair, prompt=ids, **seeded)))
            self.assert_chat_refusals(pair, part)

    def assert_chat_refusals(self, pair, part):
        wide = {"type": "prompt_embeds", "data": base64.b64encode(torch_file(b"\0" * 24, (2, 3))).decode()}
        cases = [({"echo": True}, [part], "echo"), ({"prompt_logprobs": 1}, [part], "prompt_logprobs"),
                 ({"return_prompt_text": True}, [part], "return_prompt_text"), ({}, [part, wide], "one type and row size"),
                 ({}, [wide], f"must be [tokens, {HIDDEN}]"),
                 ({}, [{"type": "prompt_embeds", "data": "!!"}], "not base64"),
                 ({"chat_template": "{{ messages | length }}"}, [part], "does not show prompt_embeds part 0")]
        for fields, parts, words in cases:
            with self.subTest(words=words):
                status, body = pair.post("/v1/chat/completions", {"messages": user(*parts), "max_tokens": 1, **fields})
                self.assertEqual(status, 400, body)
                self.assertIn(words, json.loads(body)["error"]["message"])
        status, body = pair.post("/tokenize", {"messages": user(part)})
        self.assertEqual(status, 400, body)
        self.assertIn("no tokens", json.loads(body)["error"]["message"])

    def test_cache_does_not_mix_prompts(self):
        with Pair(*FLAGS) as pair:
            ids = prompt_ids(pair, TEXT)
            other = [id_ + 1 for id_ in ids]
            first = complete(pair, prompt_embeds=encoded(ids))
            second = complete(pair, prompt_embeds=encoded(other))
            self.assertEqual(shown(second), shown(complete(pair, prompt=other)))
            self.assertNotEqual(shown(first), shown(second))

    def test_resumes_after_a_death(self):
        with Pair(*FLAGS) as pair:
            ids = prompt_ids(pair, TEXT)
            fields = dict(max_tokens=200, ignore_eos=True)
            expected = shown(complete(pair, prompt=ids, **fields))
            host = http.client.HTTPConnection(*pair.url.removeprefix("http://").split(":"), timeout=LIMIT)
            host.request("POST", "/v1/completions", json.dumps(
                {"prompt_embeds": encoded(ids), "temperature": 0, "stream": True, **fields}),
                {"Content-Type": "application/json"})
            reply = host.getresponse()
            first = reply.readline()
            os.kill(pair.pid_of("tandem-engine-core"), signal.SIGKILL)
            text = ""
            for line in [first, *reply]:
                if line.startswith(b"data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
            host.close()
            self.assertEqual(text, expected[0][0])
            self.assert_chat_resumes(pair, ids)

    def assert_chat_resumes(self, pair, ids):
        fields = dict(max_tokens=200, ignore_eos=True, temperature=0)
        messages = user("Tell me a", {"type": "prompt_embeds", "data": encoded(ids)})
        expected = chat(pair, messages, **fields)["choices"][0]["message"]["content"]
        host = http.client.HTTPConnection(*pair.url.removeprefix("http://").split(":"), timeout=LIMIT)
        host.request("POST", "/v1/chat/completions", json.dumps({"messages": messages, "stream": True, **fields}),
                     {"Content-Type": "application/json"})
        reply = host.getresponse()
        first = [reply.readline() for _ in range(3)]
        os.kill(pair.pid_of("tandem-engine-core"), signal.SIGKILL)
        text = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                       for line in [*first, *reply] if line.startswith(b"data: {"))
        host.close()
        self.assertEqual(text, expected)

    def test_refusals(self):
        with Pair(*FLAGS) as pair:
            good = encoded([1, 2, 3])
            cases = [({"prompt_embeds": "!!"}, "not base64"),
                     ({"prompt_embeds": base64.b64encode(b"junk").decode()}, "not a ZIP archive"),
                     ({"prompt_embeds": base64.b64encode(torch_file(b"\0" * 24, (2, 3))).decode()},
                      f"must be [tokens, {HIDDEN}]"),
                     ({"prompt_embeds": good, "echo": True}, "echo"),
                     ({"prompt_embeds": good, "prompt_logprobs": 1}, "prompt_logprobs"),
                     ({"prompt_embeds": 7}, "base64 string"), ({"prompt_embeds": []}, "must not be empty")]
            for fields, words in cases:
                with self.subTest(fields=str(fields)[:60]):
                    status, body = pair.post("/v1/completions", {"max_tokens": 1, **fields})
                    self.assertEqual(status, 400, body)
                    self.assertIn(words, json.loads(body)["error"]["message"])
            self.assertEqual(complete(pair, prompt="The fox", max_tokens=1)["usage"]["completion_tokens"], 1)

    def test_needs_the_flag(self):
        with Pair("--kv-cache-memory-bytes", "32M") as pair:
            status, body = pair.post("/v1/completions", {"prompt_embeds": encoded([1]), "max_tokens": 1})
            self.assertEqual(status, 400)
            self.assertIn("--enable-prompt-embeds", json.loads(body)["error"]["message"])


if __name__ == "__main__":
    unittest.main()
