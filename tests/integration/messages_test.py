#!/usr/bin/env python3
"""Anthropic's API by its official client, over an engine that makes up its tokens."""
import json
import unittest

import api_test
import pair
from api_test import Frontend

try:
    import anthropic
except ImportError as missing:
    pair.skip(f"{missing} (tests/run.sh installs it when PyPI responds)")

HELLO = [{"role": "user", "content": "Weather?"}]
WEATHER = {"name": "get_weather", "description": "Weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def client_of(server, key="none"):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=pair.LIMIT)


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Frontend("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3").__enter__()
        cls.client = client_of(cls.server)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def tokens(self, text):
        body = self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]
        return {"vllm_xargs": {"mock_tokens": json.loads(body)["tokens"]}}

    def create(self, text, **fields):
        return self.client.messages.create(
            model="m", messages=HELLO, max_tokens=200, extra_body=self.tokens(text), **fields)

    def stream(self, text, **fields):
        """The message that the client puts together from the events."""
        with self.client.messages.stream(
                model="m", messages=HELLO, max_tokens=200, extra_body=self.tokens(text), **fields) as stream:
            return stream.get_final_message()

    def blocks(self, message):
        """Without ids and signatures, which are random."""
        return [block.model_dump(exclude={"id", "signature"}, exclude_none=True) for block in message.content]

    def test_stream_and_body_are_equal(self):
        texts = {
            "<think>The user greets me.</think>Hello! D\u00e9j\u00e0 vu \U0001f388\n": ("thinking", "text"),
            api_test.ToolCalls.TEXT: ("thinking", "text", "tool_use"),
            "<think>only</think>": ("thinking",),
        }
        for text, kinds in texts.items():
            whole, stream = self.create(text, tools=[WEATHER]), self.stream(text, tools=[WEATHER])
            self.assertEqual(tuple(block.type for block in whole.content[:len(kinds)]), kinds)
            self.assertEqual(self.blocks(whole), self.blocks(stream))
            self.assertEqual(whole.stop_reason, stream.stop_reason)
            self.assertEqual(whole.usage.output_tokens, stream.usage.output_tokens)
            self.assertEqual(whole.usage.input_tokens, stream.usage.input_tokens)

    def test_a_tool_call_and_its_result_make_a_round(self):
        message = self.create(api_test.ToolCalls.TEXT, tools=[WEATHER])
        self.assertEqual(message.stop_reason, "tool_use")
        call = message.content[-1]
        self.assertEqual((call.name, call.input), ("get_weather", {"city": "Osl\u00f8 \U0001f388"}))
        reply = self.client.messages.create(model="m", max_tokens=5, tools=[WEATHER], messages=[
            *HELLO, {"role": "assistant", "content": message.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}])
        self.assertEqual(reply.stop_reason, "max_tokens")
        self.assertEqual(reply.usage.output_tokens, 5)

    def test_a_stop_sequence_is_named(self):
        for send in (self.create, self.stream):
            message = send("</think>One two three", stop_sequences=["three", "x"])
            self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", "three"))
            self.assertEqual(message.content[0].text, "One two ")

    def test_counted_tokens_are_those_of_the_prompt(self):
        conversation = {"model": "m", "system": "Be kind.", "tools": [WEATHER], "messages": [
            *HELLO, {"role": "assistant", "content": "Where?"}, {"role": "user", "content": [
                {"type": "text", "text": "Oslo", "cache_control": {"type": "ephemeral"}}]}]}
        count = self.client.messages.count_tokens(**conversation)
        message = self.client.messages.create(max_tokens=1, **conversation)
        usage = message.usage
        self.assertEqual(usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens,
                         count.input_tokens)
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.count_tokens(model="other", messages=HELLO)

    def check_error(self, error, status, kind):
        self.assertEqual(error.status_code, status)
        self.assertEqual(error.body["type"], "error")
        self.assertEqual(error.body["error"]["type"], kind)
        self.assertTrue(error.body["error"]["message"])

    def test_errors_reach_the_client_as_its_own_classes(self):
        fields = {"model": "m", "messages": HELLO, "max_tokens": 5}
        bad = [{"max_tokens": 0}, {"extra_body": {"temperature": 3}}, {"extra_body": {"max_tokens": "x"}}, {"messages": []},
               {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
               {"tools": [{"type": "bash_20250124", "name": "bash"}]}, {"max_tokens": 9000},
               {"messages": [{"role": "user", "content": "word " * 20000}]}]
        for wrong in bad:
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.client.messages.create(**{**fields, **wrong})
            self.check_error(caught.exception, 400, "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.messages.create(**{**fields, "model": "other"})
        self.check_error(caught.exception, 404, "not_found_error")
        with self.assertRaises(anthropic.InternalServerError) as caught:
            self.client.messages.create(**fields, extra_body={"vllm_xargs": {"mock_finish": "error"}})
        self.check_error(caught.exception, 500, "api_error")
        for body in (b"", b"{", b"[]", b'{"max_tokens": NaN}', b"[" * 100_000, b'{"messages": "\xff"}'):
            for path in ("/v1/messages", "/v1/messages/count_tokens"):
                status, response = self.server.post(path, body)
                self.assertEqual((status, json.loads(response)["error"]["type"]), (400, "invalid_request_error"))

    def test_a_stream_that_fails_ends_with_an_error(self):
        fields = {"model": "m", "messages": HELLO, "max_tokens": 50,
                  "extra_body": {"vllm_xargs": {"mock_finish": "error"}}}
        with self.assertRaises(anthropic.APIError):
            with self.client.messages.stream(**fields) as stream:
                stream.get_final_message()


class Refusals(unittest.TestCase):
    """What never reaches a handler has Anthropic's form, too."""

    def test_keys_and_sizes(self):
        with Frontend("--api-key", "secret", "--max-request-body-bytes", "5000") as server:
            with self.assertRaises(anthropic.AuthenticationError) as caught:
                client_of(server, "wrong").messages.create(model="m", messages=HELLO, max_tokens=5)
            self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")
            client = client_of(server, "secret")  # the client sends it as X-Api-Key
            self.assertEqual(client.messages.create(model="m", messages=HELLO, max_tokens=5).usage.output_tokens, 5)
            bearer = anthropic.Anthropic(base_url=server.url, auth_token="secret", max_retries=0)
            self.assertEqual(bearer.messages.create(model="m", messages=HELLO, max_tokens=5).usage.output_tokens, 5)
            with self.assertRaises(anthropic.RequestTooLargeError) as caught:
                client.messages.create(model="m", messages=[{"role": "user", "content": "x" * 6000}], max_tokens=5)
            self.assertEqual(caught.exception.body["error"]["type"], "request_too_large")

    def test_without_an_engine(self):
        with Frontend() as server:
            server.engine.kill()
            server.engine.wait()
            pair.wait_for(lambda: server.get("/health")[0] == 503, "health reports it")
            with self.assertRaises(anthropic.APIStatusError) as caught:
                client_of(server).messages.create(model="m", messages=HELLO, max_tokens=5)
            self.assertIn(caught.exception.body["error"]["type"], ("overloaded_error", "api_error"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
