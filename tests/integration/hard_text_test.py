#!/usr/bin/env python3
"""The ugliest text in every place that takes some: halves of characters, NUL, marks of order and of direction, runs of
combining marks, U+FFFD, special tokens, a megabyte of one letter. Whatever it is, a request is served or refused with
400, a response is UTF-8 and JSON, a stream adds up to the response in one body, and both processes live on.
TANDEM_SEED repeats a run, TANDEM_CASES sets its length."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair

# As the bytes of a JSON string. The first ones are halves of characters.
HALVES = [r"\ud83d", r"\ude00", r"\udfff\ud800"]
WHOLE = [r"\ud83d\ude00", r"\u0000", r"\ufeff", r"\r\n", r"\u202e", r"\u200f\u200e", r"e\u0301\u0301\u0301\u0301", r"\ufffd",
         r"\u2028\u2029", r"\u0085", r"\u007f", r"\uffff", r"\u001b[31m", "", " ", r"\n\n", r"\\", r"\"", "{{ 7 * 7 }}",
         "{% for a in b %}", "<|im_end|>", "<|im_start|>", "<think>", "</think>", "<tool_call>", "[TOOL_CALLS]", "日本語", "ß",
         "data: [DONE]", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "a\u0327" * 40, "x" * 3000, "null", "0", "-1", "$ref", "#"]
PIECES = HALVES + WHOLE


class Texts:
    """Hard texts by number: `new` gives the name that stands for one in a body, `fill` puts them in."""

    def __init__(self, dice):
        self.dice, self.drawn = dice, []
        self.pieces = PIECES if dice.random() < 0.1 else WHOLE

    def new(self, pieces=None):
        self.drawn.append("".join(self.dice.choices(pieces or self.pieces, k=self.dice.randrange(5))))
        return f"@{len(self.drawn) - 1}@"

    def fill(self, body):
        text = json.dumps(body, ensure_ascii=False)
        for number, drawn in enumerate(self.drawn):
            text = text.replace(f"@{number}@", drawn)
        return text.encode()


def has_half(body):
    """Whether a text of the body has half a character."""
    return any("\ud800" <= letter <= "\udfff" for letter in json.dumps(json.loads(body), ensure_ascii=False))


def tool(texts):
    return {"type": "function", "function": {
        "name": texts.new() if texts.dice.random() < 0.3 else "f", "description": texts.new(),
        "parameters": {"type": "object", "properties": {texts.new(): {"type": "string", "enum": ["a" + texts.new()]},
                                                        "n": {"type": "integer", "description": texts.new()}}}}}


def conversation(texts):
    parts = [{"type": "text", "text": texts.new()}, {"type": "text", "text": texts.new()}]
    return [{"role": "system", "content": texts.new()}, {"role": "user", "content": parts, "name": texts.new()},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": texts.new(), "type": "function", "function": {
                    "name": texts.new(), "arguments": texts.dice.choice(["{}", '{"a": 1}', "{\"a\": \"" + texts.new(WHOLE) + "\"}"])}}]},
            {"role": "tool", "tool_call_id": texts.new(), "content": texts.new()},
            {"role": "user", "content": texts.new()}]


def shared(texts):
    """Some fields that all generations have."""
    fields = {"max_tokens": 12, "temperature": 2, "seed": texts.dice.randrange(1 << 30), "ignore_eos": texts.dice.random() < 0.5}
    extra = {
        "stop": lambda: [texts.new(), "q" + texts.new()],
        "logit_bias": lambda: {texts.new(["1", "2", "-1", "999999", r"\u0000", "\uff11", " 3", "1e1", "", r"\ud83d"]): 5},
        "bad_words": lambda: [texts.new()],
        "cache_salt": lambda: "s" + texts.new(),
        "user": lambda: texts.new(),
        "request_id": lambda: texts.new(),
        "skip_special_tokens": lambda: False,
        "include_stop_str_in_output": lambda: True,
        "vllm_xargs": lambda: {texts.new(): texts.new()},
        "structured_outputs": lambda: texts.dice.choice([
            {"choice": ["a" + texts.new(), texts.new()]}, {"regex": texts.new()}, {"grammar": "root ::= \"" + texts.new() + "\""},
            {"json": {"type": "object", "properties": {texts.new(): {"enum": [texts.new(), 1]}}, "additionalProperties": False}},
            {"json": {"type": "string", "pattern": "^" + texts.new() + "$"}},
            {"json": {"const": texts.new()}}]),
    }
    for name in texts.dice.sample(sorted(extra), texts.dice.randrange(4)):
        fields[name] = extra[name]()
    return fields


def chat(texts):
    body = {"messages": conversation(texts), **shared(texts)}
    if texts.dice.random() < 0.5:
        body["tools"] = [tool(texts)]
        body["tool_choice"] = texts.dice.choice(["auto", "none", "required", {"type": "function", "function": {"name": "f"}}])
    if texts.dice.random() < 0.3:
        body["chat_template_kwargs"] = {texts.new(): texts.new(), "enable_thinking": texts.new()}
    if texts.dice.random() < 0.3:
        body["documents"] = [{"title": texts.new(), "text": texts.new()}]
    return "/v1/chat/completions", body


def completion(texts):
    prompt = texts.dice.choice([texts.new(), [texts.new(), "a" + texts.new()]])
    return "/v1/completions", {"prompt": prompt, "echo": texts.dice.random() < 0.3, **shared(texts)}


def message(texts):
    content = [{"type": "text", "text": texts.new()}, {"type": "tool_result", "tool_use_id": "t" + texts.new(), "content": texts.new()}]
    return "/v1/messages", {
        "max_tokens": 12, "system": texts.new(), "temperature": 1, "stop_sequences": ["s" + texts.new()],
        "messages": [{"role": "user", "content": texts.new()},
                     {"role": "assistant", "content": [{"type": "tool_use", "id": "t" + texts.new(), "name": texts.new(),
                                                        "input": {texts.new(): texts.new()}}]},
                     {"role": "user", "content": content}]}


def response(texts):
    items = [{"role": "user", "content": texts.new()},
             {"type": "function_call", "call_id": texts.new(), "name": texts.new(), "arguments": texts.new()},
             {"type": "function_call_output", "call_id": texts.new(), "output": texts.new()},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": texts.new()}]}]
    body = {"input": texts.dice.choice([texts.new(), items]), "instructions": texts.new(), "max_output_tokens": 12,
            "temperature": 2, "seed": texts.dice.randrange(1 << 30), "metadata": {texts.new(): texts.new()}}
    if texts.dice.random() < 0.3:
        body["text"] = {"format": {"type": "json_schema", "name": "n" + texts.new(), "schema": {"enum": [texts.new()]}}}
    return "/v1/responses", body


def whole_of(path, body):
    """What of a response in one body a stream must add up to."""
    if path == "/v1/messages":
        return [{key: block[key] for key in ("type", "text", "name", "input") if key in block} for block in body["content"]]
    if path == "/v1/responses":
        return [content.get("text") for item in body["output"] for content in item.get("content") or []]
    choices = []
    for choice in body["choices"]:
        shown = choice.get("message", choice)
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in shown.get("tool_calls") or []]
        choices.append((shown.get("content", shown.get("text")) or "", shown.get("reasoning") or "", calls, choice["finish_reason"]))
    return choices


def sum_of(path, events):
    if path == "/v1/messages":
        blocks = []
        for event in events:
            if event["type"] == "content_block_start":
                block = event["content_block"]
                blocks.append({key: block[key] for key in ("type", "text", "name", "input") if key in block})
            elif event["type"] == "content_block_delta" and "text" in event["delta"]:
                blocks[-1]["text"] += event["delta"]["text"]
        return blocks
    if path == "/v1/responses":
        return [content.get("text") for event in events if event["type"] in ("response.completed", "response.incomplete")
                for item in event["response"]["output"] for content in item.get("content") or []]
    choices = {}
    for event in events:
        for choice in event["choices"]:
            text, reasoning, calls, finish = choices.setdefault(choice["index"], ["", "", [], None])
            delta = choice.get("delta", choice)
            for call in delta.get("tool_calls") or []:
                if call["index"] == len(calls):
                    calls.append([call["function"]["name"], ""])
                calls[call["index"]][1] += call["function"].get("arguments") or ""
            choices[choice["index"]] = [text + (delta.get("content", delta.get("text")) or ""), reasoning + (delta.get("reasoning") or ""),
                                        calls, choice.get("finish_reason") or finish]
    return [(text, reasoning, [tuple(call) for call in calls], finish) for _, (text, reasoning, calls, finish) in sorted(choices.items())]


class HardText(unittest.TestCase):
    def test_every_api_serves_or_refuses_it(self):
        seed = int(os.environ.get("TANDEM_SEED", random.randrange(1 << 32)))
        print("seed", seed)
        dice = random.Random(seed)
        counts = {200: 0, 400: 0}
        with pair.Pair("--max-num-seqs", "8") as server:
            for case in range(int(os.environ.get("TANDEM_CASES", 120))):
                texts = Texts(dice)
                path, body = dice.choice([chat, chat, completion, message, response])(texts)
                with self.subTest(seed=seed, case=case, path=path):
                    status = self.ask(server, texts, path, body)
                    counts[status] += 1
                    # Half a character is no text, wherever it stands.
                    if has_half(texts.fill(body)):
                        self.assertEqual(status, 400, texts.fill(body))
            self.assertEqual(server.get("/health")[0], 200)
            self.assertNotIn("tandem-engine-core ended", server.log)
            print(counts)
            for status, count in counts.items():
                self.assertGreater(count, 0, status)

    def ask(self, server, texts, path, body):
        status, reply = server.post(path, texts.fill(body))
        reply = json.loads(reply.decode("utf-8", errors="strict"))
        self.assertIn(status, (200, 400), (reply, texts.fill(body)))
        if status == 400:
            self.assertTrue(reply["error"]["message"], reply)
            return status
        if body.get("echo") or path in ("/v1/messages", "/v1/responses") and "seed" not in body:
            return status  # Anthropic's API has no seed
        status, stream = server.post(path, texts.fill({**body, "stream": True}))
        self.assertEqual(status, 200)
        lines = [line[6:] for line in stream.decode("utf-8", errors="strict").split("\n") if line.startswith("data: ")]
        events = [json.loads(line) for line in lines if line != "[DONE]"]
        self.assertEqual(sum_of(path, events), whole_of(path, reply), texts.fill(body))
        return status

    def test_a_megabyte_of_one_letter_is_refused_or_served(self):
        long = "a" * 1_000_000
        user = [{"role": "user", "content": "hi"}]
        bodies = [
            ("/v1/completions", {"prompt": long}), ("/v1/completions", {"prompt": "a", "stop": long}),
            ("/v1/completions", {"prompt": "a", "bad_words": [long]}), ("/v1/completions", {"prompt": "a", "structured_outputs": {"choice": [long]}}),
            ("/v1/completions", {"prompt": "a", "structured_outputs": {"regex": long}}),
            ("/v1/completions", {"prompt": "a", "structured_outputs": {"json": {"enum": [long]}}}),
            ("/v1/completions", {"prompt": "a", "structured_outputs": {"json": {"type": "object", "properties": {long: {}}}}}),
            ("/v1/completions", {"prompt": "a", "logit_bias": {long: 1}}), ("/v1/completions", {"prompt": "a", "cache_salt": long}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": long}]}),
            ("/v1/chat/completions", {"messages": user, "chat_template_kwargs": {long: long}}),
            ("/v1/chat/completions", {"messages": user, "tools": [{"type": "function", "function": {"name": long}}]}),
            ("/v1/chat/completions", {"messages": [*user, {"role": "assistant", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": long})}}]}]}),
            ("/v1/messages", {"max_tokens": 4, "messages": user, "system": long}),
            ("/v1/responses", {"input": long}), ("/v1/responses", {"input": "a", "metadata": {"a": long}}),
            ("/tokenize", {"prompt": long})]
        # A grammar may take ten seconds of CPU time before it is refused: one does, the clients of the others wait for one.
        grammars = [body for _, body in bodies if "structured_outputs" in body]
        with pair.Pair() as server:
            for path, body in bodies:
                with self.subTest(path=path, fields=list(body)):
                    if "tokens" not in path and path not in ("/tokenize", "/v1/responses", "/v1/messages"):
                        body["max_tokens"] = 4
                    is_left = body in grammars[1:]
                    status, reply = server.post(path, body, **({"X-Request-Timeout": "1"} if is_left else {}))
                    self.assertIn(status, (200, 400, 504) if is_left else (200, 400), reply[:500])
                    reply = json.loads(reply)
                    if status != 200:
                        self.assertLess(len(reply["error"]["message"]), 2000)
            self.assertEqual(server.get("/health")[0], 200)

    def test_files_of_requests_have_a_line_for_each_request(self):
        def line(number, text):
            return ('{"custom_id": "%d", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a%s", "max_tokens": 4}}'
                    % (number, text)).encode()

        texts = [text for text in WHOLE if len(text) < 1000]  # a longer one is no prompt of this model
        lines = [line(number, text) for number, text in enumerate(texts)]
        with tempfile.TemporaryDirectory() as folder:
            source, target = pathlib.Path(folder) / "in.jsonl", pathlib.Path(folder) / "out.jsonl"
            source.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines) + b"\r\n\r\n")
            run = subprocess.run([str(pair.bin_dir() / "tandem"), "run-batch", "-i", str(source), "-o", str(target), "--model", str(pair.MODEL)],
                                 capture_output=True, text=True, timeout=pair.LIMIT)
            self.assertEqual(run.returncode, 0, run.stderr)
            results = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
            self.assertEqual([result["custom_id"] for result in results], [str(number) for number in range(len(texts))])
            for result in results:
                self.assertEqual(result["response"]["status_code"], 200, result)
            # A half of a character, and bytes that are no text, are named with their line.
            for wrong in (line(7, HALVES[0]), line(7, "") + b"\xff", b"\x00", line(7, "")[:-3]):
                source.write_bytes(lines[0] + b"\n" + wrong + b"\n")
                target.unlink(missing_ok=True)
                run = subprocess.run([str(pair.bin_dir() / "tandem"), "run-batch", "-i", str(source), "-o", str(target), "--model", str(pair.MODEL)],
                                     capture_output=True, text=True, timeout=pair.LIMIT)
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn("line 2", run.stderr)


if __name__ == "__main__":
    unittest.main()
