#!/usr/bin/env python3
"""Outputs held to schemas, patterns and grammars: by the official client, with every sampling option, beside hostile
grammars, and while the processes that hold the grammars, or the engine, are killed."""
import http.client
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import Pair, wait_for
from resume_test import Answer
from server import Server

try:
    import openai
    import pydantic
except ImportError as missing:
    pair.skip(f"{missing} (tests/run.sh installs it when PyPI responds)")

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False}
PATTERN = "[a-f]{8}-[0-9]{40}"


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)


def descendants(pid, name):
    """Processes of this name below pid."""
    parents = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        own_name, fields = text[text.index("(") + 1:text.rindex(")")], text.rsplit(")", 1)[1].split()
        parents[int(stat.parent.name)] = (int(fields[1]), own_name, fields[0])
    below = {pid}
    while True:
        more = {child for child, (parent, _, _) in parents.items() if parent in below} - below
        if not more:
            return sorted(p for p in below if p in parents and parents[p][1] == name and parents[p][2] != "Z")
        below |= more


class OverHttp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair("--served-model-name", "m", "--structured-outputs-config",
                          json.dumps({"backend": "xgrammar", "disable_any_whitespace": True}))
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=pair.LIMIT)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def chat(self, extra_body=None, **fields):
        fields = {"max_tokens": 200, "seed": 5, "temperature": 1, **fields}
        return self.client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Who?"}], extra_body=extra_body, **fields)

    def text(self, constraint, **fields):
        choice = self.chat({"structured_outputs": constraint}, **fields).choices[0]
        self.assertEqual(choice.finish_reason, "stop")
        return choice.message.content

    def test_each_constraint_holds(self):
        compact = {"whitespace_pattern": ""}
        person = json.loads(self.text({"json": SCHEMA, **compact}))
        self.assertEqual(set(person), {"name", "age"})
        self.assertLessEqual(len(person["name"]), 12)
        spaced = self.text({"json": SCHEMA})  # by the server's default
        self.assertEqual(spaced, json.dumps(json.loads(spaced), ensure_ascii=False))
        self.assertRegex(self.text({"regex": PATTERN}), f"^{PATTERN}$")
        self.assertIn(self.text({"choice": ["yes, \"indeed\"", "no\nnever", "né"]}), ["yes, \"indeed\"", "no\nnever", "né"])
        self.assertRegex(self.text({"grammar": 'root ::= "<" item ("," item){1,5} ">"\nitem ::= [a-c] [0-9]'}),
                         r"^<[a-c][0-9](,[a-c][0-9]){1,5}>$")
        self.assertRegex(self.text({"grammar": 'start: "ab" /[0-9]{3}/'}), r"^ab[0-9]{3}$")
        tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
            {"type": "const_string", "value": "<out>"}, {"type": "regex", "pattern": "[xyz]{4}"},
            {"type": "const_string", "value": "</out>"}]}}
        self.assertRegex(self.text({"structural_tag": json.dumps(tag)}), r"^<out>[xyz]{4}</out>$")

    def test_rules_that_leave_no_token_together_are_no_fault_of_the_constraint(self):
        status, body = self.server.post("/v1/completions", {
            "model": "m", "prompt": "hi", "structured_outputs": {"regex": "a"}, "min_tokens": 5, "max_tokens": 8})
        error = json.loads(body)["error"]
        self.assertEqual((status, error["param"]), (400, None), error)
        self.assertIn("min_tokens", error["message"])

    def test_the_client_parses(self):
        response = self.client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": "Who?"}], response_format=Person, max_tokens=400,
            seed=3, temperature=0.7)
        self.assertIsInstance(response.choices[0].message.parsed, Person)
        json_object = self.chat(response_format={"type": "json_object"}, max_tokens=30)
        self.assertTrue(json_object.choices[0].message.content.lstrip().startswith("{"))

    def test_a_stream_is_the_whole_response(self):
        for fields in ({}, {"n": 2}, {"logprobs": True, "top_logprobs": 3}, {"temperature": 0},
                       {"presence_penalty": 1, "frequency_penalty": 1}, {"extra_body": {"repetition_penalty": 1.3}},
                       {"extra_body": {"min_tokens": 12}}, {"logit_bias": {"300": 50}}, {"stop": ["-1"]}):
            extra = {"structured_outputs": {"regex": PATTERN}, **fields.get("extra_body", {})}
            rest = {key: value for key, value in fields.items() if key != "extra_body"}
            whole = self.chat(extra, **rest)
            texts = [""] * len(whole.choices)
            for chunk in self.chat(extra, stream=True, **rest):
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
            for choice in whole.choices:
                self.assertEqual(choice.message.content, texts[choice.index], fields)
                if "stop" not in fields:
                    self.assertRegex(choice.message.content, f"^{PATTERN}$", fields)
                for token in choice.logprobs.content if choice.logprobs else ():
                    self.assertGreater(token.logprob, -100, "a token that the mask refuses was drawn")

    def test_runs_of_forced_tokens_are_tokens_as_others(self):
        # Control characters are tokens of one byte. With logprobs each token has a step of its own.
        run = "".join(chr(code) for code in range(1, 9))
        def steps():
            return self.server.total("vllm:iteration_tokens_total_count")
        for fields in ({}, {"stop": ["\x05"]}, {"max_tokens": 6}, {"stream": True}):
            body = {"model": "m", "prompt": "Who?", "max_tokens": 60, "seed": 5, "temperature": 1, "return_token_ids": True,
                    "stream_options": {"include_usage": True} if "stream" in fields else None,
                    "structured_outputs": {"regex": f"[a-c]{run}[a-c]{run}[x-z]"}, **fields}
            results = []
            for logprobs in (None, 1):
                before = steps()
                results.append(self.tokens_and_usage({**body, "logprobs": logprobs}) + (steps() - before,))
            (tokens, usage, few), (expected, expected_usage, many) = results
            self.assertEqual(tokens, expected, fields)
            self.assertEqual(usage["completion_tokens"], expected_usage["completion_tokens"], fields)
            self.assertEqual(usage["completion_tokens"], len(tokens), fields)
            self.assertLess(few, many, fields)

    def tokens_and_usage(self, body):
        status, reply = self.server.post("/v1/completions", body)
        self.assertEqual(status, 200, reply)
        if not body.get("stream"):
            answer = json.loads(reply)
            return answer["choices"][0]["token_ids"], answer["usage"]
        events = [json.loads(line[6:]) for line in reply.decode().split("\n\n") if line.startswith("data: {")]
        tokens = [token for event in events for choice in event["choices"] for token in choice["token_ids"]]
        return tokens, events[-1]["usage"]

    def test_every_invalid_spec_is_refused_with_a_reason(self):
        for constraint, reason in (
                ({"regex": "[0-9"}, "the regular expression is not valid: "),
                ({"regex": "a(?=b)"}, "the regular expression "),
                ({"regex": "(" * 100000 + "a"}, ""),
                ({"grammar": "root ::= missing"}, "\"missing\" is not defined"),
                ({"grammar": "no grammar at all"}, "the grammar is not valid"),
                ({"grammar": "é"}, "the grammar is not valid"),  # the message quotes half of it
                ({"json": {"type": "strange"}}, "the JSON schema is not valid"),
                ({"json": {"type": "object", "properties": {"a": {"not": {}}}}}, "\"not\" at #/properties/a"),
                ({"json": {"type": "number", "multipleOf": 0.3}}, "multipleOf"),
                ({"json": {"$ref": "#/nowhere"}}, "the JSON schema"),
                ({"json": {"enum": []}}, "the JSON schema"),
                ({"json": {"type": "string", "pattern": "^(?=a)a$"}}, "the JSON schema"),
                ({"structural_tag": "{\"type\": \"structural_tag\"}"}, "the structural tag"),
                ({"json": SCHEMA, "whitespace_pattern": "[ ]+"}, "whitespace_pattern is")):
            for stream in (False, True):
                with self.assertRaises(openai.BadRequestError, msg=str(constraint)[:200]) as caught:
                    list(self.chat({"structured_outputs": constraint}, stream=stream))
                self.assertIn(reason, caught.exception.message)
                self.assertEqual(caught.exception.param, "structured_outputs", str(constraint)[:200])
                self.assertNotIn(".cc", caught.exception.message)

    def test_the_refusal_of_a_tool_names_it(self):
        def tool(name, schema):
            return {"type": "function", "name": name, "strict": True,
                    "parameters": {"type": "object", "properties": {"x": schema}, "required": ["x"]}}
        good, bad = tool("good", {"type": "string"}), tool("bad", {"type": "strin"})
        asked = [{"role": "user", "content": "hi"}]

        def refusal(create, **fields):
            with self.assertRaises(openai.BadRequestError) as caught:
                create(model="m", **fields)
            return caught.exception.param, caught.exception.message

        def chat(*tools, **fields):
            return refusal(self.client.chat.completions.create, messages=asked, tools=[
                {"type": "function", "function": {k: v for k, v in each.items() if k != "type"}} for each in tools],
                **fields)
        json_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": good["parameters"]}}
        for field, fields in (("tools[1].function.parameters", {}),
                              ("tools[1].function.parameters", {"stream": True}),
                              ("tools[1].function.parameters", {"response_format": json_format}),
                              ("tools[1].function.parameters",
                               {"tool_choice": {"type": "function", "function": {"name": "bad"}}})):
            param, message = chat(good, bad, **fields)
            self.assertEqual(param, field, fields)
            self.assertIn("Invalid schema for function 'bad': ", message)
            self.assertIn("strin", message)
        json_format["json_schema"]["schema"] = bad["parameters"]
        param, message = chat(good, response_format=json_format)
        self.assertEqual(param, "response_format")
        self.assertNotIn("function", message)
        space = {"type": "namespace", "name": "s", "description": "", "tools": [good, bad]}
        param, message = refusal(self.client.responses.create, input="hi", tools=[{"type": "web_search"}, good, space])
        self.assertEqual(param, "tools[2].tools[1].parameters")
        self.assertIn("Invalid schema for function 's__bad': ", message)

    def test_a_hostile_grammar_disturbs_nobody(self):
        expected = self.text({"regex": PATTERN})
        hostile = [Answer(self, "/v1/completions", {
            "model": "m", "prompt": "x", "max_tokens": 4, "structured_outputs": constraint}) for constraint in (
                {"regex": "((a{1,2000}b{1,2000}){1,2000}c{1,2000}){1,2000}"},
                {"json": json.dumps({"enum": ["x" * 50 + str(i) for i in range(20000)]})},
                {"grammar": "root ::= " + " | ".join(f'"{i}" root root' for i in range(2000))})]
        for _ in range(5):
            self.assertEqual(self.text({"regex": PATTERN}), expected)
        for answer in hostile:
            answer.wait()
            self.assertIn(answer.status, (200, 400), answer.result)
        self.assertEqual(self.text({"regex": PATTERN}), expected)

    @staticmethod
    def connect():
        return http.client.HTTPConnection("127.0.0.1", int(OverHttp.server.port_file.read_text()), timeout=pair.LIMIT)


class OtherFolder(unittest.TestCase):
    def test_grammars_are_about_the_tokenizer_that_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in pair.MODEL.iterdir():
                if not file.name.startswith("tokenizer"):
                    (pathlib.Path(folder) / file.name).symlink_to(file)
            with Pair("--tokenizer", str(pair.MODEL), model=folder) as server:
                body = {"prompt": "a", "max_tokens": 9, "seed": 1, "structured_outputs": {"choice": ["qqz", "zzq"]}}
                status, reply = server.post("/v1/completions", body)
                self.assertEqual(status, 200, reply)
                self.assertIn(json.loads(reply)["choices"][0]["text"], ["qqz", "zzq"])


def structured_request(seed, i):
    constraint = [{"regex": "[a-f]{100}-[0-9]{60}"}, {"json": SCHEMA, "whitespace_pattern": ""},
                  {"grammar": 'root ::= ([a-z]{9} "\\n"){12}'}][i % 3]
    return {"model": "m", "prompt": f"Person {i}", "max_tokens": 250, "seed": seed + i, "temperature": 1, "stream": True,
            "logprobs": 1, "structured_outputs": constraint}


class Kills(unittest.TestCase):
    def run_all(self, server, disturb=lambda answers: None):
        answers = [Answer(server, "/v1/completions", structured_request(7, i)) for i in range(12)]
        disturb(answers)
        results = [answer.wait() for answer in answers]
        for answer, result in zip(answers, results):
            self.assertEqual(answer.status, 200, result)
            self.assertIsNone(result["error"])
        return results

    def test_streams_go_on_after_their_processes_were_killed(self):
        with Server() as server:
            expected = self.run_all(server)

            def kill_helpers(answers):
                wait_for(lambda: sum(answer.num_events for answer in answers) > 100, "tokens arrive")
                for pid in descendants(server.engines[0].pid, "tandem-grammar"):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass

            self.assertEqual(self.run_all(server, kill_helpers), expected)
            server.wait_for_log("tandem-grammar has ended")
            self.assertRegex(expected[0]["choices"][0]["text"], "^[a-f]{100}-[0-9]{60}$")

    def test_streams_go_on_after_their_engine_was_killed(self):
        with Server() as server:
            expected = self.run_all(server)

            def kill_engine(answers):
                wait_for(lambda: sum(answer.num_events for answer in answers) > 100, "tokens arrive")
                server.restart_engine()

            self.assertEqual(self.run_all(server, kill_engine), expected)
            self.assertEqual(set(server.outcomes()), {"resumed"})

    def test_nothing_is_left_after_the_engine(self):
        with Server() as server:
            self.run_all(server)
            helpers = descendants(server.engines[0].pid, "tandem-grammar")
            self.assertGreater(len(helpers), 3)
            server.kill_engine()
            wait_for(lambda: not any(pair.is_alive(pid) for pid in helpers), "the helpers end")


if __name__ == "__main__":
    unittest.main(verbosity=2)
