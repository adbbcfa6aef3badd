#!/usr/bin/env python3
"""The official OpenAI client: /v1/responses streamed and whole, its accumulators and its tool runner, chat's stream
helper. The engine's replies are scripted."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from scripted import ANSWER, Scripted, call

import openai
from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner

WEATHER = {"type": "function", "name": "get_weather", "description": "Weather of a city.", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
CHAT_WEATHER = {"type": "function", "function": {k: WEATHER[k] for k in ("name", "description", "parameters")}}


class ResponsesApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Scripted("--max-logprobs", "5")
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_a_text(self):
        self.server.reply("<think>Greet.</think>Hello!")
        response = self.client.responses.create(model="m", input="hi", instructions="Be kind.", metadata={"k": "v"})
        self.assertEqual(response.output_text, "Hello!")
        self.assertEqual([item.type for item in response.output], ["reasoning", "message"])
        self.assertEqual(response.output[0].content[0].text, "Greet.")
        self.assertEqual(response.status, "completed")
        self.assertEqual(response.metadata, {"k": "v"})
        self.assertEqual(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)
        self.assertGreater(response.usage.output_tokens_details.reasoning_tokens, 0)
        self.assertTrue(response.id.startswith("resp_"))
        self.assertIn("Be kind.", self.server.prompts()[-1])

    def test_a_stream_accumulates_to_its_last_response(self):
        self.server.reply("<think>Look.</think>Two things.\n" + call("get_weather", city="Oslo") + call("now"))
        with self.client.responses.stream(model="m", input="hi", tools=[WEATHER]) as stream:
            events = list(stream)
            final = stream.get_final_response()
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.completed")
        self.assertEqual([item.type for item in final.output], ["reasoning", "message", "function_call", "function_call"])
        self.assertEqual(final.output[2].name, "get_weather")
        self.assertEqual(final.output[2].arguments, '{"city": "Oslo"}')
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, final.output_text)
        self.server.reply("<think>Look.</think>Two things.\n" + call("get_weather", city="Oslo") + call("now"))
        whole = self.client.responses.create(model="m", input="hi", tools=[WEATHER])
        self.assertEqual([self.without_ids(item) for item in whole.output],
                         [self.without_ids(item) for item in events[-1].response.output])

    @staticmethod
    def without_ids(item):
        shown = item.to_dict()
        for part in shown.get("content") or []:
            part.pop("parsed", None)
        return {key: value for key, value in shown.items() if key not in ("id", "call_id", "parsed_arguments")}

    def test_what_a_limit_cuts_off_is_incomplete(self):
        for stream in (False, True):
            self.server.reply(ANSWER + "Hello, how can I help?")
            response = self.client.responses.create(model="m", input="hi", max_output_tokens=6, stream=stream)
            if stream:
                events = list(response)
                self.assertEqual(events[-1].type, "response.incomplete")
                response = events[-1].response
            self.assertEqual(response.status, "incomplete")
            self.assertEqual(response.incomplete_details.reason, "max_output_tokens")
            self.assertEqual(response.output[-1].status, "incomplete")
            self.assertEqual(response.max_output_tokens, 6)

    def test_logprobs(self):
        self.server.reply(ANSWER + "Hello!")
        response = self.client.responses.create(
            model="m", input="hi", include=["message.output_text.logprobs"], top_logprobs=2)
        logprobs = response.output[0].content[0].logprobs
        self.assertIn("Hello!", "".join(entry.token for entry in logprobs))
        self.assertEqual(len(logprobs[0].top_logprobs), 2)

    def test_a_round_of_a_function_a_custom_tool_and_a_namespace(self):
        tools = [WEATHER, {"type": "custom", "name": "sh", "description": "A shell."},
                 {"type": "namespace", "name": "fs", "description": "Files.",
                  "tools": [{"type": "function", "name": "ls", "parameters": {"type": "object"}}]}]
        self.server.reply(ANSWER + call("get_weather", city="Oslo") + call("sh", input="ls -l") + call("fs__ls"))
        first = self.client.responses.create(model="m", input="hi", tools=tools)
        weather, shell, files = first.output
        self.assertEqual((weather.type, weather.arguments), ("function_call", '{"city": "Oslo"}'))
        self.assertEqual((shell.type, shell.name, shell.input), ("custom_tool_call", "sh", "ls -l"))
        self.assertEqual((files.name, files.namespace), ("ls", "fs"))
        self.server.reply(ANSWER + "It rains.")
        outputs = [{"type": "function_call_output", "call_id": weather.call_id, "output": "rain"},
                   {"type": "custom_tool_call_output", "call_id": shell.call_id, "output": "total 0"},
                   {"type": "function_call_output", "call_id": files.call_id, "output": "a b"}]
        second = self.client.responses.create(
            model="m", tools=tools, input=[{"role": "user", "content": "hi"}, *first.output, *outputs])
        self.assertEqual(second.output_text, "It rains.")

    def test_the_tool_runner_runs_to_the_end(self):
        def weather(arguments):
            self.assertEqual(arguments, {"city": "Oslo"})
            return "rain"

        for stream in (False, True):
            runner = ResponsesToolRunner(functions=[RegisteredFunction(WEATHER, weather)])
            self.server.reply("<think>Look.</think>" + call("get_weather", city="Oslo"), ANSWER + "It rains in Oslo.")
            response = runner.run(
                self.client, {"model": "m", "input": [{"role": "user", "content": "Weather in Oslo?"}], "store": False},
                max_steps=3, stream=stream)
            self.assertEqual(response.output_text, "It rains in Oslo.")
            self.assertIn("rain", self.server.prompts()[-1])

    def test_errors_are_the_clients_own(self):
        for fields, param in (({"input": []}, "input"), ({"input": "x", "background": True}, "background"),
                              ({"input": "x", "tools": [{"type": "web_search"}]}, "tools")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.client.responses.create(model="m", **fields)
            self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.create(model="m", input="x", previous_response_id="resp_none")


class ChatHelpers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Scripted()
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_the_stream_helper_accumulates_text_and_calls(self):
        self.server.reply(ANSWER + "One moment. " + call("get_weather", city="Oslo"))
        with self.client.chat.completions.stream(
                model="m", messages=[{"role": "user", "content": "x"}], tools=[CHAT_WEATHER]) as stream:
            kinds = {event.type for event in stream}
            message = stream.get_final_completion().choices[0].message
        self.assertIn("tool_calls.function.arguments.done", kinds)
        self.assertEqual(message.content.strip(), "One moment.")
        self.assertEqual(message.tool_calls[0].function.arguments, '{"city": "Oslo"}')

    def test_parse_reads_the_arguments_of_calls(self):
        strict = {"type": "function", "function": {
            **CHAT_WEATHER["function"], "strict": True,
            "parameters": {**WEATHER["parameters"], "additionalProperties": False}}}
        self.server.reply(ANSWER + call("get_weather", city="Oslo"))
        completion = self.client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": "x"}], tools=[strict])
        self.assertEqual(completion.choices[0].message.tool_calls[0].function.parsed_arguments, {"city": "Oslo"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
