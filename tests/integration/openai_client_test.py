#!/usr/bin/env python3
"""The official OpenAI client: /v1/responses streamed and whole, its accumulators and its tool runner, chat's stream
helper. The engine's replies are scripted."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from scripted import ANSWER, MODEL, Frontend, Scripted, call

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
                              ({"input": "x", "tools": [{"type": "no_such_tool"}]}, "tools")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.client.responses.create(model="m", **fields)
            self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.create(model="m", input="x", previous_response_id="resp_none")


class StoredResponses(unittest.TestCase):
    """With a store, on three network threads: each connection may be another thread's."""

    @classmethod
    def setUpClass(cls):
        cls.server = Scripted("--enable-responses-api-store", "--api-server-count", "3", "--max-stored-responses", "20")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def client(self):
        return self.server.client()  # a connection of its own

    def test_a_conversation_goes_on_from_any_thread(self):
        self.server.reply("<think>Greet.</think>Hello Bob!")
        response = self.client().responses.create(model="m", input="I am Bob.", instructions="Be kind.")
        for turn in range(6):
            self.assertEqual(self.client().responses.retrieve(response.id).to_dict(), response.to_dict())
            self.server.reply(ANSWER + f"Turn {turn}.")
            response = self.client().responses.create(
                model="m", input=f"Question {turn}?", previous_response_id=response.id)
            self.assertEqual(response.output_text, f"Turn {turn}.")
        prompt = self.server.prompts()[-1]
        places = [prompt.index(text) for text in ("I am Bob.", "Hello Bob!", "Question 0?", "Turn 0.", "Question 5?")]
        self.assertEqual(places, sorted(places))
        self.assertNotIn("Be kind.", prompt)  # instructions are of their own response only

    def test_a_call_and_its_output_go_on_too(self):
        for stream in (False, True):
            self.server.reply(ANSWER + call("get_weather", city="Oslo"))
            first = self.client().responses.create(model="m", input="Weather?", tools=[WEATHER], stream=stream)
            if stream:
                first = list(first)[-1].response
            self.server.reply(ANSWER + "It rains.")
            output = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "rain"}
            second = self.client().responses.create(
                model="m", input=[output], tools=[WEATHER], previous_response_id=first.id)
            self.assertEqual(second.output_text, "It rains.")
            self.assertIn("rain", self.server.prompts()[-1])

    def test_in_the_background(self):
        self.server.reply(ANSWER + "Done.")
        queued = self.client().responses.create(model="m", input="hi", background=True)
        self.assertEqual(queued.status, "queued")
        self.assertEqual(queued.output, [])
        pair.wait_for(lambda: self.client().responses.retrieve(queued.id).status == "completed", "the response ends")
        ended = self.client().responses.retrieve(queued.id)
        self.assertEqual(ended.output_text, "Done.")
        self.assertGreater(ended.usage.output_tokens, 0)
        self.assertTrue(ended.background)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().responses.cancel(queued.id)
        self.assertIn("Cannot cancel a synchronous response.", caught.exception.message)

    def test_events_of_the_background_can_be_read_again(self):
        self.server.reply("<think>Look.</think>Two things.\n" + call("get_weather", city="Oslo"))
        events = list(self.client().responses.create(
            model="m", input="hi", tools=[WEATHER], background=True, stream=True))
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.completed")
        response_id = events[0].response.id
        for after in (None, 0, 3, len(events) - 2, len(events) + 7):
            extra = {} if after is None else {"starting_after": after}
            again = list(self.client().responses.retrieve(response_id, stream=True, **extra))
            self.assertEqual([event.to_dict() for event in again],
                             [event.to_dict() for event in events[0 if after is None else after + 1:]])

    def test_deleted_and_unknown_responses_are_404(self):
        self.server.reply(ANSWER + "Hello!")
        response = self.client().responses.create(model="m", input="hi")
        self.client().responses.delete(response.id)
        for ask in (lambda: self.client().responses.retrieve(response.id),
                    lambda: self.client().responses.delete(response.id),
                    lambda: self.client().responses.cancel(response.id),
                    lambda: self.client().responses.retrieve("resp_none", stream=True),
                    lambda: self.client().responses.create(model="m", input="x", previous_response_id=response.id)):
            with self.assertRaises(openai.NotFoundError) as caught:
                ask()
            self.assertIn("not found", caught.exception.message)
            self.assertEqual(caught.exception.param, "response_id")

    def test_what_must_not_be_stored_is_not(self):
        self.server.reply(ANSWER + "Hello!")
        response = self.client().responses.create(model="m", input="hi", store=False)
        with self.assertRaises(openai.NotFoundError):
            self.client().responses.retrieve(response.id)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().responses.create(model="m", input="hi", store=False, background=True)
        self.assertEqual(caught.exception.param, "background")

    def test_beam_search_has_no_background(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client().responses.create(model="m", input="hi", background=True, extra_body={"use_beam_search": True})
        self.assertEqual(caught.exception.param, "use_beam_search")

    def test_queries_that_make_no_sense_are_400(self):
        self.server.reply(ANSWER + "Hello!")
        response = self.client().responses.create(model="m", input="hi")
        for query in ("?stream=maybe", "?starting_after=3", "?stream=true&starting_after=x", "?stream=true"):
            self.assertEqual(self.server.get(f"/v1/responses/{response.id}{query}")[0], 400)


class LongResponses(unittest.TestCase):
    """Responses that run until something ends them."""

    def setUp(self):
        self.server = Frontend("--enable-responses-api-store", "--api-server-count", "2",
                               engine=("--tokens-per-second", "100"))
        self.addCleanup(self.server.__exit__, False)

    def running(self, **fields):
        response = self.server.client().responses.create(
            model="m", input="hi", max_output_tokens=4000, background=True, **fields)
        return response

    def status(self, response_id):
        return self.server.client().responses.retrieve(response_id).status

    def aborted(self, number=1):
        return sum(len(ids) for ids in self.server.received(1)) == number

    def test_cancelled_in_the_background(self):
        response = self.running()
        pair.wait_for(lambda: self.status(response.id) == "in_progress", "it runs")
        with self.assertRaises(openai.BadRequestError):
            self.server.client().responses.create(model="m", input="x", previous_response_id=response.id)
        cancelled = self.server.client().responses.cancel(response.id)
        self.assertEqual(cancelled.status, "cancelled")
        self.assertGreater(len(cancelled.output_text), 0)
        self.assertEqual(self.server.client().responses.retrieve(response.id).to_dict(), cancelled.to_dict())
        pair.wait_for(self.aborted, "the engine gets the abort")

    def test_a_client_that_leaves_ends_nothing_in_the_background(self):
        stream = self.running(stream=True)
        first = next(iter(stream))
        stream.close()
        response_id = first.response.id
        events = self.server.client().responses.retrieve(response_id, stream=True, starting_after=5)
        numbers = [next(events).sequence_number for _ in range(10)]
        self.assertEqual(numbers, list(range(6, 16)))
        self.assertEqual(self.status(response_id), "in_progress")
        self.server.client().responses.delete(response_id)
        pair.wait_for(self.aborted, "the engine gets the abort")
        for _ in events:  # ends
            pass

    def test_a_failed_engine_fails_the_response(self):
        response = self.running()
        pair.wait_for(lambda: self.status(response.id) == "in_progress", "it runs")
        self.server.engine.kill()
        pair.wait_for(lambda: self.status(response.id) == "failed", "it fails")
        self.assertEqual(self.server.client().responses.retrieve(response.id).error.code, "server_error")


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


class DescribedFormat(unittest.TestCase):
    """A checkpoint that describes its format in tokenizer_config.json."""
    FLAGS = ("--tool-call-parser", "hf", "--reasoning-parser", "hf")
    TEMPLATE = {"start_anchor": "<|im_start|>assistant\n", "fields": {
        "thinking": {"open": "[think]", "close": "[/think]"},
        "tool_calls": {"open_pattern": r"\[call (?P<name>\w+)\]", "close": "[/call]", "repeats": True, "content": "kv-lines",
                       "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}},
        "content": {}}}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tandem-test-")
        model = pathlib.Path(cls.folder.name) / "model"
        shutil.copytree(MODEL, model)
        path = model / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "response_template": cls.TEMPLATE}))
        cls.server = Scripted(parsers=cls.FLAGS, model=model)
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)
        cls.folder.cleanup()

    def ask(self, **fields):
        return self.client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], **fields)

    def test_thinking_content_and_calls(self):
        text = "[think]Look.[/think]One moment. [call get_weather]\ncity: Oslo\n[/call][call now][/call]"
        self.server.reply(text, text)
        whole = self.ask(tools=[CHAT_WEATHER])
        message = whole.choices[0].message
        self.assertEqual((message.reasoning, message.content.strip()), ("Look.", "One moment."))
        self.assertEqual([(each.function.name, json.loads(each.function.arguments)) for each in message.tool_calls],
                         [("get_weather", {"city": "Oslo"}), ("now", {})])
        self.assertEqual(whole.choices[0].finish_reason, "tool_calls")
        self.assertGreater(whole.usage.completion_tokens_details.reasoning_tokens, 0)
        deltas = [chunk.choices[0].delta for chunk in self.ask(tools=[CHAT_WEATHER], stream=True)]
        self.assertEqual("".join(getattr(delta, "reasoning", None) or "" for delta in deltas), "Look.")
        self.assertEqual("".join(delta.content or "" for delta in deltas), message.content)
        calls = [each.function for delta in deltas for each in delta.tool_calls or ()]
        self.assertEqual([(each.name, json.loads(each.arguments)) for each in calls],
                         [("get_weather", {"city": "Oslo"}), ("now", {})])

    def test_without_tools_a_call_is_text(self):
        self.server.reply("[call now][/call]")
        self.assertEqual(self.ask().choices[0].message.content, "[call now][/call]")

    def test_nothing_makes_sure_of_a_call(self):
        for fields in ({"tool_choice": "required"}, {"parallel_tool_calls": False}):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.ask(tools=[CHAT_WEATHER], **fields)
            self.assertIn("cannot guarantee", str(refused.exception))

    def test_a_checkpoint_without_one_is_refused_at_start(self):
        done = subprocess.run([pair.bin_dir() / "tandem-frontend", MODEL, *self.FLAGS], capture_output=True, text=True,
                              timeout=pair.LIMIT)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("needs a response_template in the model's tokenizer_config.json", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
