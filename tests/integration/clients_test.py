#!/usr/bin/env python3
"""Clients that people build with, pointed at the frontend: langchain-openai, instructor, pydantic-ai, litellm. The engine's
replies are scripted. What each client sends is recorded in tests/cases/api/clients.txt."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up in the network
os.environ["LANGSMITH_TRACING"] = "false"
os.environ["OTEL_SDK_DISABLED"] = "true"
import pair
from scripted import ANSWER, Scripted, call

try:
    import instructor
    import litellm
    import openai
    import pydantic
    from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
except ImportError as missing:
    pair.skip(f"{missing} (tests/run.sh installs it when PyPI responds)")


litellm.suppress_debug_info = True


class City(pydantic.BaseModel):
    name: str
    people: int


# Under a format the text is the answer from its start: the end of reasoning is no token of this model.
OSLO = '{"name": "Oslo", "people": 700000}'


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"rain in {city}"


class LangChain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Scripted()
        cls.chat = ChatOpenAI(base_url=cls.server.url + "/v1", api_key="none", model="m", max_retries=0,
                              stream_usage=True, timeout=pair.LIMIT)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_invoke_and_stream_say_the_same(self):
        self.server.reply(ANSWER + "Hello there!", ANSWER + "Hello there!")
        whole = self.chat.invoke([("system", "Be kind."), ("human", "hi")])
        streamed = AIMessageChunk(content="")
        for chunk in self.chat.stream([("system", "Be kind."), ("human", "hi")]):
            streamed += chunk
        self.assertEqual(whole.content, "Hello there!")
        self.assertEqual(streamed.content, whole.content)
        self.assertEqual(whole.response_metadata["finish_reason"], "stop")
        self.assertEqual(whole.usage_metadata["total_tokens"],
                         whole.usage_metadata["input_tokens"] + whole.usage_metadata["output_tokens"])
        self.assertEqual(streamed.usage_metadata["output_tokens"], whole.usage_metadata["output_tokens"])

    def test_a_round_of_tools(self):
        for stream in (False, True):
            bound = self.chat.bind_tools([get_weather])
            messages = [HumanMessage("Weather in Oslo?")]
            self.server.reply(ANSWER + call("get_weather", city="Oslo"))
            if stream:
                asked = AIMessageChunk(content="")
                for chunk in bound.stream(messages):
                    asked += chunk
            else:
                asked = bound.invoke(messages)
            self.assertEqual([(each["name"], each["args"]) for each in asked.tool_calls],
                             [("get_weather", {"city": "Oslo"})])
            messages += [asked, ToolMessage(get_weather.invoke(asked.tool_calls[0]["args"]),
                                            tool_call_id=asked.tool_calls[0]["id"])]
            self.server.reply(ANSWER + "It rains.")
            self.assertEqual(bound.invoke(messages).content, "It rains.")
            self.assertIn("rain in Oslo", self.server.prompts()[-1])

    def test_structured_output_by_a_schema(self):
        self.server.reply(OSLO)
        city = self.chat.with_structured_output(City, method="json_schema").invoke("Oslo?")
        self.assertEqual(city, City(name="Oslo", people=700000))

    def test_structured_output_by_a_function(self):
        self.server.reply(ANSWER + call("City", name="Oslo", people=700000))
        city = self.chat.with_structured_output(City, method="function_calling").invoke("Oslo?")
        self.assertEqual(city, City(name="Oslo", people=700000))

    def test_logprobs(self):
        self.server.reply(ANSWER + "Hello!")
        message = self.chat.bind(logprobs=True, top_logprobs=2).invoke("hi")
        content = message.response_metadata["logprobs"]["content"]
        self.assertEqual(len(content[0]["top_logprobs"]), 2)

    def test_the_responses_api(self):
        chat = ChatOpenAI(base_url=self.server.url + "/v1", api_key="none", model="m", max_retries=0,
                          use_responses_api=True, timeout=pair.LIMIT)
        self.server.reply(ANSWER + "Hello!", ANSWER + "Hello!")
        self.assertEqual(chat.invoke("hi").text, "Hello!")
        self.assertEqual("".join(chunk.text for chunk in chat.stream("hi")), "Hello!")


class Instructor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Scripted()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def client(self, mode):
        return instructor.from_openai(self.server.client(), mode=mode)

    def test_a_model_is_read_from_json(self):
        for mode in (instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.MD_JSON):
            with self.subTest(mode):
                self.server.reply(f"{ANSWER}```json\n{OSLO}\n```" if mode == instructor.Mode.MD_JSON else OSLO)
                city = self.client(mode).chat.completions.create(
                    model="m", response_model=City, max_retries=0, messages=[{"role": "user", "content": "Oslo?"}])
                self.assertEqual(city.model_dump(), {"name": "Oslo", "people": 700000})

    def test_a_model_is_read_from_a_call(self):
        self.server.reply(ANSWER + call("City", name="Oslo", people=700000))
        city = self.client(instructor.Mode.TOOLS).chat.completions.create(
            model="m", response_model=City, max_retries=0, messages=[{"role": "user", "content": "Oslo?"}])
        self.assertEqual(city.model_dump(), {"name": "Oslo", "people": 700000})

    def test_a_wrong_answer_is_asked_for_again(self):
        self.server.reply('{"name": "Oslo", "people": "many"}', OSLO)
        city = self.client(instructor.Mode.JSON).chat.completions.create(
            model="m", response_model=City, max_retries=1, messages=[{"role": "user", "content": "Oslo?"}])
        self.assertEqual(city.people, 700000)
        self.assertIn("many", self.server.prompts()[-1])

    def test_a_partial_model_grows(self):
        self.server.reply(OSLO)
        *_, last = self.client(instructor.Mode.JSON).chat.completions.create_partial(
            model="m", response_model=City, max_retries=0, messages=[{"role": "user", "content": "Oslo?"}])
        self.assertEqual((last.name, last.people), ("Oslo", 700000))


class PydanticAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Scripted()
        cls.provider = OpenAIProvider(base_url=cls.server.url + "/v1", api_key="none")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def models(self):
        return OpenAIChatModel("m", provider=self.provider), OpenAIResponsesModel("m", provider=self.provider)

    def test_an_agent_calls_its_tool_and_answers(self):
        for model in self.models():
            with self.subTest(type(model).__name__):
                agent = Agent(model, instructions="Be kind.")
                seen = []

                @agent.tool_plain
                def get_weather(city: str) -> str:
                    """Weather of a city."""
                    seen.append(city)
                    return "rain"

                self.server.reply(ANSWER + call("get_weather", city="Oslo"), ANSWER + "It rains in Oslo.")
                result = agent.run_sync("Weather in Oslo?")
                self.assertEqual(result.output, "It rains in Oslo.")
                self.assertEqual(seen, ["Oslo"])
                self.assertGreater(result.usage.output_tokens, 0)
                self.assertIn("rain", self.server.prompts()[-1])

    def test_an_output_of_a_type(self):
        for model in self.models():
            with self.subTest(type(model).__name__):
                self.server.reply(OSLO)
                result = Agent(model, output_type=NativeOutput(City)).run_sync("Oslo?")
                self.assertEqual(result.output, City(name="Oslo", people=700000))

    def test_an_output_by_a_call(self):
        for model in self.models():
            with self.subTest(type(model).__name__):
                self.server.reply(ANSWER + call("final_result", name="Oslo", people=700000))
                result = Agent(model, output_type=City).run_sync("Oslo?")
                self.assertEqual(result.output, City(name="Oslo", people=700000))

    def test_a_stream(self):
        for model in self.models():
            with self.subTest(type(model).__name__):
                self.server.reply(ANSWER + "Hello there!")
                result = Agent(model).run_stream_sync("hi")
                self.assertEqual(list(result.stream_text())[-1], "Hello there!")


class LiteLlm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Scripted()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def complete(self, provider, **fields):
        return litellm.completion(
            model=f"{provider}/m", base_url=self.server.url + "/v1", api_key="none", num_retries=0, timeout=pair.LIMIT,
            messages=[{"role": "user", "content": "Weather in Oslo?"}], **fields)

    def test_text_reasoning_and_calls(self):
        for provider in ("openai", "hosted_vllm"):
            with self.subTest(provider):
                self.server.reply("<think>Look.</think>One moment. " + call("get_weather", city="Oslo"))
                tools = [{"type": "function", "function": {
                    "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
                message = self.complete(provider, tools=tools).choices[0].message
                self.assertEqual(message.content.strip(), "One moment.")
                self.assertEqual(message.tool_calls[0].function.arguments, '{"city": "Oslo"}')

    def test_a_stream_adds_up(self):
        for provider in ("openai", "hosted_vllm"):
            with self.subTest(provider):
                self.server.reply(ANSWER + "Hello there!")
                chunks = list(self.complete(provider, stream=True, stream_options={"include_usage": True}))
                text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
                self.assertEqual(text, "Hello there!")
                self.assertGreater(litellm.stream_chunk_builder(chunks).usage.completion_tokens, 0)

    def test_a_completion_of_text(self):
        self.server.reply("Once upon a time")
        response = litellm.text_completion(
            model="text-completion-openai/m", prompt="Tell: ", api_base=self.server.url + "/v1", api_key="none",
            max_tokens=20, num_retries=0)
        self.assertEqual(response.choices[0].text, "Once upon a time")

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(litellm.exceptions.BadRequestError):
            self.complete("openai", temperature=9)
        with self.assertRaises(litellm.exceptions.NotFoundError):
            litellm.completion(model="openai/other", base_url=self.server.url + "/v1", api_key="none", num_retries=0,
                               messages=[{"role": "user", "content": "x"}])


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)


class HeldToSchemas(unittest.TestCase):
    """Over the real engine, whose small model would not write JSON by itself."""

    @classmethod
    def setUpClass(cls):
        cls.server = pair.Pair("--served-model-name", "m", "--structured-outputs-config",
                               '{"disable_any_whitespace": true}')
        cls.url = cls.server.url + "/v1"

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def check(self, person):
        self.assertLessEqual(len(person.name), 12)
        self.assertIn(person.age, range(121))

    def test_openai(self):
        client = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=pair.LIMIT)
        completion = client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": "Who?"}], response_format=Person, max_tokens=200, seed=1)
        self.check(completion.choices[0].message.parsed)
        response = client.responses.parse(
            model="m", input="Who?", text_format=Person, max_output_tokens=200, extra_body={"seed": 2})
        self.check(response.output_parsed)

    def test_langchain(self):
        chat = ChatOpenAI(base_url=self.url, api_key="none", model="m", max_retries=0, seed=3, max_tokens=200,
                          timeout=pair.LIMIT)
        self.check(chat.with_structured_output(Person, method="json_schema").invoke("Who?"))

    def test_instructor(self):
        client = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0, timeout=pair.LIMIT)
        self.check(instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).chat.completions.create(
            model="m", response_model=Person, max_retries=0, max_tokens=200, seed=4,
            messages=[{"role": "user", "content": "Who?"}]))

    def test_pydantic_ai(self):
        provider = OpenAIProvider(base_url=self.url, api_key="none")
        agent = Agent(OpenAIChatModel("m", provider=provider), output_type=NativeOutput(Person), retries=0)
        self.check(agent.run_sync("Who?", model_settings={"max_tokens": 200, "seed": 5}).output)

    def test_litellm(self):
        response = litellm.completion(
            model="openai/m", base_url=self.url, api_key="none", num_retries=0, timeout=pair.LIMIT, max_tokens=200, seed=6,
            messages=[{"role": "user", "content": "Who?"}], response_format=Person)
        self.check(Person.model_validate_json(response.choices[0].message.content))


if __name__ == "__main__":
    unittest.main(verbosity=2)
