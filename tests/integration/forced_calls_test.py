#!/usr/bin/env python3
"""Calls that tool_choice forces, in formats with and without a grammar of their own, through every API; and what holds
only after the reasoning."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import MODEL, Pair

FLAGS = ("--served-model-name", "m", "--max-model-len", "1024", "--kv-cache-memory-bytes", str(32 << 20),
         "--structured-outputs-config", json.dumps({"disable_any_whitespace": True}))
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["city", "days"],
          "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 3}}}
FUNCTION = {"name": "get_weather", "description": "Weather", "strict": True, "parameters": SCHEMA}
OTHER = {"name": "now", "strict": True, "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": function} for function in (FUNCTION, OTHER)]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
MESSAGES = [{"role": "user", "content": "What is the weather?"}]
# The shipped model would fill the JSON of a call with blanks, which a tag allows.
NO_BLANKS = {str(token_id): -100 for word, token_id in
             json.loads((MODEL / "tokenizer.json").read_text())["model"]["vocab"].items() if not word.strip("ĠĊĉč")}


def ask(server, path="/v1/chat/completions", **fields):
    status, reply = server.post(path, {"model": "m", **fields})
    assert status == 200, reply
    return json.loads(reply)


def chat(server, **fields):
    return ask(server, messages=MESSAGES, tools=TOOLS, max_tokens=300, logit_bias=NO_BLANKS, **fields)["choices"][0]


def stream_calls(server, **fields):
    """[(name, arguments)] that the deltas of a stream add up to."""
    status, reply = server.post("/v1/chat/completions", {"model": "m", "messages": MESSAGES, "tools": TOOLS,
                                                         "max_tokens": 300, "logit_bias": NO_BLANKS, "stream": True,
                                                         **fields})
    assert status == 200, reply
    calls = []
    for line in reply.decode().split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for delta in json.loads(line[6:])["choices"][0]["delta"].get("tool_calls", ()):
            if delta["index"] == len(calls):
                calls.append([delta["function"]["name"], ""])
            calls[-1][1] += delta["function"].get("arguments", "")
    return [tuple(call) for call in calls]


class ForcedCalls(unittest.TestCase):
    def assertCalls(self, calls, names=("get_weather", "now")):
        self.assertGreaterEqual(len(calls), 1)
        for name, text in calls:
            self.assertIn(name, names)
            arguments = json.loads(text)
            if name == "now":
                self.assertEqual(arguments, {})
                continue
            self.assertIn(arguments["city"].strip(), ("Oslo", "Rome"))  # XML has blanks around a value
            self.assertIn(arguments["days"], (1, 2, 3))
            self.assertEqual(len(arguments), 2)

    def test_a_model_that_knows_no_tools_calls_them(self):
        for parser in ("hermes", "qwen3_coder", "deepseek_v31", "pythonic", "mistral"):
            with self.subTest(parser), Pair(*FLAGS, "--tool-call-parser", parser) as server:
                for seed in range(3):
                    fields = {"seed": seed, "parallel_tool_calls": False}
                    for tool_choice, reason in (("required", "tool_calls"), (NAMED, "stop")):
                        if parser == "mistral" and tool_choice == "required":
                            continue  # its list may have any number of calls, and this model finds no end
                        choice = chat(server, tool_choice=tool_choice, **fields)
                        message = choice["message"]
                        calls = [(call["function"]["name"], call["function"]["arguments"])
                                 for call in message["tool_calls"]]
                        self.assertEqual(len(calls), 1)
                        self.assertCalls(calls, ("get_weather",) if tool_choice == NAMED else ("get_weather", "now"))
                        self.assertEqual(choice["finish_reason"], reason)
                        streamed = stream_calls(server, tool_choice=tool_choice, **fields)
                        self.assertEqual([(name, json.loads(text)) for name, text in streamed],
                                         [(name, json.loads(text)) for name, text in calls])

    def test_gemma4_calls_by_name(self):
        # This model finds no end of the texts in the arguments.
        with Pair(*FLAGS, "--tool-call-parser", "gemma4") as server:
            for tool_choice, names in (("required", ("get_weather", "now")), (NAMED, ("get_weather",))):
                fields = dict(tool_choice=tool_choice, parallel_tool_calls=False, seed=1)
                call, = chat(server, **fields)["message"]["tool_calls"]
                self.assertIn(call["function"]["name"], names)
                self.assertTrue(call["function"]["arguments"].startswith("{"))
                self.assertEqual(stream_calls(server, **fields),
                                 [(call["function"]["name"], call["function"]["arguments"])])

    def test_every_api_forces_them(self):
        with Pair(*FLAGS, "--tool-call-parser", "hermes") as server:
            response = ask(server, "/v1/responses", input="What is the weather?", tool_choice="required",
                           max_output_tokens=300, logit_bias=NO_BLANKS, temperature=0,
                           tools=[{"type": "function", **FUNCTION}], parallel_tool_calls=False)
            self.assertCalls([(item["name"], item["arguments"]) for item in response["output"]])
            # Its fields cannot forbid blanks, so the call may be cut off.
            message = ask(server, "/v1/messages", messages=MESSAGES, max_tokens=300, temperature=0,
                          tools=[{"name": "get_weather", "strict": True, "input_schema": SCHEMA}],
                          tool_choice={"type": "any", "disable_parallel_tool_use": True})
            self.assertEqual([block["type"] for block in message["content"]], ["tool_use"])
            self.assertEqual(message["content"][0]["name"], "get_weather")

    def test_without_a_parser_they_are_refused(self):
        with Pair(*FLAGS, "--tool-call-parser", "none") as server:
            status, reply = server.post("/v1/chat/completions", {"model": "m", "messages": MESSAGES, "tools": TOOLS,
                                                                 "tool_choice": "required"})
            self.assertEqual(status, 400)
            self.assertIn("requires --tool-call-parser to be set", json.loads(reply)["error"]["message"])


def thinking_model(folder):
    """The shipped model with two rare words renamed to reasoning marks, the first of which its prompts end with."""
    folder = pathlib.Path(folder)
    for file in MODEL.iterdir():
        (folder / file.name).symlink_to(file)
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    words = {token_id: word for word, token_id in tokenizer["model"]["vocab"].items()}
    for token_id, mark in ((3070, "<think>"), (3071, "</think>")):
        word = words[token_id]
        del tokenizer["model"]["vocab"][word]
        tokenizer["model"]["merges"] = [merge for merge in tokenizer["model"]["merges"] if
                                        "".join(merge if isinstance(merge, list) else merge.split(" ")) != word]
        tokenizer["model"]["vocab"][mark] = token_id
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": token_id, "content": mark,
                                          "special": False})
    config = json.loads((MODEL / "tokenizer_config.json").read_text())
    config["chat_template"] += "{{ '<think>' }}"
    for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (folder / name).unlink()
        (folder / name).write_text(json.dumps(value))
    return folder


class AfterReasoning(unittest.TestCase):
    def test_a_format_holds_after_the_reasoning_that_a_budget_ends(self):
        format = {"type": "json_schema", "json_schema": {"name": "w", "schema": SCHEMA}}
        with tempfile.TemporaryDirectory() as folder:
            for flags in ((), ("--async-scheduling",)):
                with Pair(*FLAGS, "--tool-call-parser", "hermes", *flags, model=thinking_model(folder)
                          if not flags else folder) as server:
                    self.check(server, format)

    def check(self, server, format):
        free = ask(server, messages=MESSAGES, max_tokens=12, temperature=0, ignore_eos=True, return_token_ids=True)
        for budget in (0, 1, 6):
            for fields in ({}, {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}):
                answer = ask(server, messages=MESSAGES, max_tokens=300, temperature=0, thinking_token_budget=budget,
                             return_token_ids=True, **(fields or {"response_format": format}))
                choice = answer["choices"][0]
                ids = choice["token_ids"]
                self.assertEqual(ids[:budget + 1], free["choices"][0]["token_ids"][:budget] + [3071])
                self.assertEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], budget)
                self.assertEqual(bool(choice["message"]["reasoning"]), budget > 0)
                if fields:
                    self.assertEqual(len(choice["message"]["tool_calls"]), 1)
                else:
                    self.assertEqual(set(json.loads(choice["message"]["content"])), {"city", "days"})
        # Without reasoning to show there is none.
        hidden = dict(max_tokens=300, temperature=0, include_reasoning=False)
        answer = ask(server, messages=MESSAGES, response_format=format, return_token_ids=True, **hidden)
        self.assertNotIn(3071, answer["choices"][0]["token_ids"])
        self.assertEqual(set(json.loads(answer["choices"][0]["message"]["content"])), {"city", "days"})
        self.assertEqual(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)
        call, = ask(server, messages=MESSAGES, tools=TOOLS, tool_choice="required", parallel_tool_calls=False,
                    logit_bias=NO_BLANKS, **hidden)["choices"][0]["message"]["tool_calls"]
        self.assertIn(call["function"]["name"], ("get_weather", "now"))
        item, = ask(server, "/v1/responses", input="What is the weather?", max_output_tokens=300, temperature=0,
                    include_reasoning=False, text={"format": {"type": "json_schema", "name": "w", "schema": SCHEMA}},
                    )["output"]
        self.assertEqual(set(json.loads(item["content"][0]["text"])), {"city", "days"})
        # Its tokens are not shown either.
        free = ask(server, messages=MESSAGES, thinking_token_budget=6, return_token_ids=True, logprobs=True,
                   ignore_eos=True, **{**hidden, "max_tokens": 12})
        choice = free["choices"][0]
        self.assertEqual(len(choice["token_ids"]), 12 - 6 - 1)
        self.assertEqual(len(choice["logprobs"]["content"]), 12 - 6 - 1)
        self.assertEqual(free["usage"]["completion_tokens"], 12)
        self.assertEqual(free["usage"]["completion_tokens_details"]["reasoning_tokens"], 6)


class MarkersOfTheTemplate(unittest.TestCase):
    """A template that has marks only to drop them from the history, before a model that does not think."""

    TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
                "{% endfor %}<|im_start|>assistant\n")

    def test_its_answers_are_content(self):
        format = {"type": "json_schema", "json_schema": {"name": "w", "schema": SCHEMA}}
        with Pair(*FLAGS, "--chat-template", self.TEMPLATE) as server:
            server.wait_for_log("reasoning parser: deepseek_r1 (from the chat template)")
            message = ask(server, messages=MESSAGES, max_tokens=12, temperature=0)["choices"][0]["message"]
            self.assertIsNone(message["reasoning"])
            self.assertTrue(message["content"])
            answer = ask(server, messages=MESSAGES, max_tokens=300, temperature=0, response_format=format)
            self.assertEqual(set(json.loads(answer["choices"][0]["message"]["content"])), {"city", "days"})
            blocks = ask(server, "/v1/messages", messages=MESSAGES, max_tokens=12, temperature=0)["content"]
            self.assertEqual([block["type"] for block in blocks], ["text"])


if __name__ == "__main__":
    unittest.main()
