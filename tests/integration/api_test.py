#!/usr/bin/env python3
"""The frontend over an engine that makes up its tokens: every endpoint by the official client, bad input
beside running streams, clients that go away, an engine that dies, a full queue."""
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
import pair
from pair import Pair, wait_for

try:
    import msgpack  # noqa: F401  (the mock engine needs both)
    import openai
    import zmq  # noqa: F401
except ImportError as missing:
    pair.skip(f"{missing} (tests/run.sh installs it when PyPI responds)")

MODEL = TESTS / "golden" / "api" / "model"


class Frontend(Pair):
    """tandem-frontend with a mock engine; what reaches the engine is recorded."""

    def __init__(self, *flags, engine=(), model=MODEL, environment=None):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-test-")
        folder = pathlib.Path(self.folder.name)
        self.port_file, self.log_path, self.record = folder / "port", folder / "log", folder / "record"
        self.handshake = f"ipc://{folder}/wire/handshake"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [str(pair.bin_dir() / "tandem-frontend"), str(model), "--served-model-name", "m", "--host", "127.0.0.1",
                 "--port", "0", "--port-file", str(self.port_file), "--handshake-address", self.handshake, *flags],
                stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        self.engine = None
        wait_for(self.port_file.exists, "the frontend listens")
        self.start_engine(*engine)

    def start_engine(self, *flags):
        with open(self.log_path, "ab") as log:
            self.engine = subprocess.Popen(
                [sys.executable, str(TESTS / "support" / "mock_engine.py"), "--handshake", self.handshake, "--local",
                 "--record", str(self.record), *map(str, flags)], stdout=log, stderr=log)
        wait_for(lambda: self.get("/health")[0] == 200, "the engine is ready")

    def received(self, kind):
        """Bodies of the messages of one type (0 ADD, 1 ABORT) that the engine has got."""
        bodies = []
        for line in self.record.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                break  # still being written
            frames = [bytes.fromhex(frame) for frame in json.loads(line)["frames_hex"]]
            if frames[0] == bytes([kind]):
                bodies.append(msgpack.unpackb(frames[1], strict_map_key=False))
        return bodies

    def client(self):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=pair.LIMIT)

    def __exit__(self, failed, *rest):
        if self.engine is not None:
            self.engine.kill()
            self.engine.wait()
        self.notify = tempfile.TemporaryFile()
        super().__exit__(failed, *rest)


def long_stream(server, **fields):
    return server.client().completions.create(model="m", prompt="x", max_tokens=4000, stream=True, **fields)


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Frontend("--max-logprobs", "5")
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_stream_and_body_of_one_seed_are_equal(self):
        for kind in ("chat", "completion"):
            def ask(stream):
                extra = {"stream_options": {"include_usage": True}} if stream else {}
                if kind == "chat":
                    return self.client.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": "Say hi"}], max_tokens=30, seed=7,
                        stream=stream, **extra)
                return self.client.completions.create(
                    model="m", prompt="Say hi", max_tokens=30, seed=7, stream=stream, **extra)
            whole = ask(False)
            text, finish, usage = "", [], None
            for chunk in ask(True):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += (choice.delta.content if kind == "chat" else choice.text) or ""
                    finish += [choice.finish_reason] if choice.finish_reason else []
            choice = whole.choices[0]
            self.assertEqual(text, choice.message.content if kind == "chat" else choice.text)
            self.assertEqual(finish, [choice.finish_reason])
            self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
            self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
            self.assertEqual(whole.id.split("-")[0], "chatcmpl" if kind == "chat" else "cmpl")

    def test_several_prompts_and_choices_come_prompt_by_prompt(self):
        response = self.client.completions.create(
            model="m", prompt=[[5, 6], [7, 8, 9]], n=2, max_tokens=3, seed=1)
        self.assertEqual([choice.index for choice in response.choices], [0, 1, 2, 3])
        self.assertEqual(response.usage.prompt_tokens, 5)
        self.assertEqual(response.usage.completion_tokens, 12)
        seen = set()
        for chunk in self.client.completions.create(
                model="m", prompt=["a", "b"], n=2, max_tokens=3, stream=True):
            seen |= {choice.index for choice in chunk.choices if choice.finish_reason}
        self.assertEqual(seen, {0, 1, 2, 3})

    def test_logprobs_of_both_endpoints(self):
        chat = self.client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], max_tokens=3, logprobs=True, top_logprobs=2)
        self.assertEqual(len(chat.choices[0].logprobs.content), 3)
        self.assertLessEqual(len(chat.choices[0].logprobs.content[0].top_logprobs), 2)
        echo = self.client.completions.create(model="m", prompt="The quick", max_tokens=2, logprobs=1, echo=True)
        logprobs = echo.choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 6)
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertEqual(logprobs.text_offset[:4], [0, 3, 6, 8])
        self.assertTrue(echo.choices[0].text.startswith("The quick"))

    def test_newer_fields_go_through_the_official_client(self):
        ids = [331, 360, 335]
        completion = self.client.completions.create(
            model="m", prompt="x", max_tokens=2, logprobs=1,
            extra_body={"logprob_token_ids": ids, "return_tokens_as_token_ids": True})
        for top in completion.choices[0].logprobs.top_logprobs:
            self.assertLessEqual({f"token_id:{token}" for token in ids}, set(top))
        chat = self.client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], max_tokens=2, logprobs=True,
            extra_body={"logprob_token_ids": ids})
        for entry in chat.choices[0].logprobs.content:
            self.assertGreaterEqual(len(entry.top_logprobs), len(ids))
        repeated = self.client.completions.create(
            model="m", prompt="x", max_tokens=9, extra_body={
                "repetition_detection": {"max_pattern_size": 2, "min_count": 3},
                "vllm_xargs": {"mock_finish": "repetition"}})
        self.assertEqual(repeated.choices[0].finish_reason, "repetition")
        sent = self.server.received(0)[-1][3]
        self.assertEqual(sent["repetition_detection"]["min_count"], 3)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="m", prompt="x", extra_body={"logprob_token_ids": ids})
        self.assertEqual(caught.exception.body["param"], "logprob_token_ids")
        scored = self.client.completions.create(
            model="m", prompt=[331, 360, 335], max_tokens=1, extra_body={"prompt_logprobs": 1}).model_dump()
        self.assertIsNone(scored["choices"][0]["prompt_logprobs"][0])
        self.assertEqual(len(scored["choices"][0]["prompt_logprobs"]), 3)

    def test_a_stop_string_ends_the_choice_and_aborts_the_engine(self):
        tokens = [331, 360, 335, 79] * 8
        response = self.client.completions.create(
            model="m", prompt="x", max_tokens=60, stop=["ick"], extra_body={"vllm_xargs": {"mock_tokens": tokens}})
        self.assertEqual(response.choices[0].text, "The qu")
        self.assertEqual(response.choices[0].finish_reason, "stop")
        self.assertEqual(response.choices[0].stop_reason, "ick")

    def test_errors_reach_the_client_as_its_own_classes(self):
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="other", prompt="x")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="m", prompt=[1] * 9000)
        self.assertIn("maximum context length is 8192 tokens", str(caught.exception))
        for fields in ({"temperature": 3}, {"max_tokens": 9000}, {"logprobs": 6}, {"logit_bias": {"9999": 1}},
                       {"extra_body": {"stop_token_ids": [-1]}}, {"extra_body": {"structured_outputs": {}}}):
            with self.assertRaises(openai.BadRequestError):
                self.client.completions.create(model="m", prompt="x", **fields)
        with self.assertRaises(openai.BadRequestError):
            self.client.completions.create(
                model="m", prompt="x", extra_body={"vllm_xargs": {"mock_error": "validation_error|no|0"}})
        with self.assertRaises(openai.InternalServerError):
            self.client.completions.create(model="m", prompt="x", extra_body={"vllm_xargs": {"mock_finish": "error"}})

    def test_bad_bodies_get_400_and_disturb_no_other_request(self):
        running = long_stream(self.server)
        next(iter(running))
        for body in (b"", b"{", b"[]", b"null", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b'{"prompt": NaN}',
                     b"[" * 100_000, b'{"a":' * 100_000, b'{"prompt": "x", "prompt": "y"}', b'{"prompt": "x"} 5',
                     b'{"prompt": {}}', b'{"prompt": [[1], "a"]}', b'{"prompt": "x", "n": 1e999}'):
            for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
                status, response = self.server.post(path, body)
                self.assertEqual(status, 400, (path, body[:40], response))
                error = json.loads(response)["error"]
                self.assertEqual(error["code"], 400)
                self.assertTrue(error["message"])
        status, _ = self.server.post("/v1/completions", b"{}", **{"Content-Type": "text/plain"})
        self.assertEqual(status, 400)
        self.assertTrue(next(iter(running)).choices)
        running.close()

    def test_tokenize_and_detokenize_undo_each_other(self):
        text = "The quick brown fox, d\u00e9j\u00e0 vu"
        status, body = self.server.post("/tokenize", {"prompt": text, "return_token_strs": True})
        self.assertEqual(status, 200)
        tokens = json.loads(body)
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertEqual(len(tokens["token_strs"]), tokens["count"])
        status, body = self.server.post("/detokenize", {"tokens": tokens["tokens"]})
        self.assertEqual(json.loads(body)["prompt"], text)

    def test_a_model_is_found_by_its_name(self):
        self.assertEqual(self.client.models.retrieve("m").id, "m")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("org/other")
        self.assertEqual(caught.exception.body["type"], "NotFoundError")
        self.assertEqual(caught.exception.body["param"], "model")
        self.assertIn("`org/other`", caught.exception.body["message"])

    def test_a_turn_of_tool_calls_without_content_renders(self):
        call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        response = self.client.chat.completions.create(model="m", max_tokens=2, messages=[
            {"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "noon"}])
        self.assertEqual(response.usage.completion_tokens, 2)

    def test_a_retired_field_is_warned_of_once(self):
        for _ in range(3):
            self.client.completions.create(model="m", prompt="x", max_tokens=1, extra_body={"best_of": 1})
        self.server.wait_for_log("use n")
        self.assertEqual(self.server.log.count("best_of"), 1)

    def test_request_ids_go_through(self):
        status, body = self.server.post(
            "/v1/completions", {"prompt": "x", "max_tokens": 1, "request_id": "body"}, **{"X-Request-Id": "header"})
        self.assertEqual(json.loads(body)["id"], "cmpl-header")
        status, body = self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "request_id": "body"})
        self.assertEqual(json.loads(body)["id"], "cmpl-body")
        self.assertEqual(status, 200)

    def test_headers_that_cannot_be_read_are_refused_by_name(self):
        for name, value in (("X-Vllm-Priority", "high"), ("X-Vllm-Priority", "99999999999999999999"), ("X-Session-Id", "\xff"),
                            ("X-Session-Id", "s" * 257)):
            status, body = self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, **{name: value})
            self.assertEqual(status, 400, body)
            self.assertIn(name, json.loads(body)["error"]["message"])
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, **{"X-Vllm-Priority": "-3"})[0], 200)
        self.assertEqual(self.server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, **{"X-Session-Id": "s" * 256})[0], 200)

    def test_metrics_agree_with_usage(self):
        names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count",
                 "vllm:e2e_request_latency_seconds_count", "vllm:request_params_n_count")
        server = Frontend()
        try:
            response = server.client().completions.create(model="m", prompt=["a b", "c"], n=2, max_tokens=5)
            totals = [server.total(name) for name in names]
            # Each child is a request of its own, with its prompt; n is counted once per prompt.
            self.assertEqual(totals, [2 * response.usage.prompt_tokens, response.usage.completion_tokens, 4, 4, 2])
            self.assertEqual(server.total("vllm:request_success_total", finished_reason="length"), 4)
        finally:
            server.__exit__(False)


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


class ToolCalls(unittest.TestCase):
    """The official client sees reasoning, content and calls apart, whole and streamed."""

    TEXT = ('<think>The user asks for Oslo.</think>One moment: <tool_call>\n'
            '{"name": "get_weather", "arguments": {"city": "Osl\u00f8 \U0001f388"}}\n</tool_call>')

    @classmethod
    def setUpClass(cls):
        cls.server = Frontend("--tool-call-parser", "hermes", "--reasoning-parser", "qwen3").__enter__()
        cls.tokens = json.loads(cls.server.post("/tokenize", {"prompt": cls.TEXT, "add_special_tokens": False})[1])["tokens"]

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def create(self, tokens=None, **fields):
        tokens = self.tokens if tokens is None else tokens
        body = {"vllm_xargs": {"mock_tokens": tokens}, **fields.pop("extra_body", {})}
        return self.server.client().chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Weather?"}], max_tokens=200, tools=[WEATHER],
            extra_body=body, **fields)

    def check(self, reasoning, content, calls, finish_reason):
        self.assertEqual(reasoning, "The user asks for Oslo.")
        self.assertEqual(content, "One moment:")
        self.assertEqual([name for name, _ in calls], ["get_weather"])
        self.assertEqual(json.loads(calls[0][1]), {"city": "Osl\u00f8 \U0001f388"})
        self.assertEqual(finish_reason, "tool_calls")

    def test_whole(self):
        response = self.create()
        choice = response.choices[0]
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        self.check(choice.message.reasoning, choice.message.content, calls, choice.finish_reason)
        self.assertTrue(choice.message.tool_calls[0].id.startswith("chatcmpl-tool-"))
        self.assertGreater(response.usage.completion_tokens_details.reasoning_tokens, 0)

    def test_stream(self):
        reasoning, content, calls, reasons = "", "", [], []
        for chunk in self.create(stream=True):
            choice = chunk.choices[0]
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                if call.id:
                    self.assertEqual(call.index, len(calls))
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments or ""
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
        self.assertEqual(len(reasons), 1)
        self.check(reasoning, content, [tuple(call) for call in calls], reasons[0])

    def test_hidden_reasoning(self):
        message = self.create(extra_body={"include_reasoning": False}).choices[0].message
        self.assertIsNone(message.reasoning)
        self.assertEqual(message.content, "One moment:")

    def test_no_choice(self):
        message = self.create(tool_choice="none").choices[0].message
        self.assertIsNone(message.tool_calls)
        self.assertIn("<tool_call>", message.content)

    def test_forced_choice(self):
        for tool_choice, reason in (("required", "tool_calls"),
                                    ({"type": "function", "function": {"name": "get_weather"}}, "stop")):
            choice = self.create(tool_choice=tool_choice).choices[0]
            self.assertEqual(choice.message.tool_calls[0].function.name, "get_weather")
            self.assertEqual(choice.finish_reason, reason)

    def test_cut_call(self):
        choice = self.create(self.tokens[:-8], extra_body={}).choices[0]
        self.assertEqual(choice.message.tool_calls[0].function.name, "get_weather")


class Trouble(unittest.TestCase):
    def test_a_client_that_goes_away_is_aborted_in_every_state(self):
        with Frontend(engine=("--tokens-per-second", 20, "--max-num-seqs", 1)) as server:
            streaming = long_stream(server)
            next(iter(streaming))
            waiting = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=pair.LIMIT)
            body = json.dumps({"prompt": "x", "max_tokens": 4000})
            waiting.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            wait_for(lambda: len(server.received(0)) == 2, "the second request reaches the engine")
            waiting.close()
            wait_for(lambda: len(server.received(1)) == 1, "the waiting request is aborted")
            streaming.close()
            wait_for(lambda: len(server.received(1)) == 2, "the running request is aborted")
            aborted = [request_id for ids in server.received(1) for request_id in ids]
            self.assertEqual(sorted(aborted), sorted(add[0] for add in server.received(0)))
            wait_for(lambda: server.total("vllm:request_success_total", finished_reason="abort") == 2, "both are counted")
            # The server goes on.
            self.assertEqual(len(server.client().completions.create(model="m", prompt="x", max_tokens=2).choices), 1)

    def test_engine_death_ends_streams_with_an_error_and_a_new_engine_serves(self):
        with Frontend(engine=("--tokens-per-second", 50)) as server:
            stream = iter(long_stream(server))
            next(stream)
            whole = []
            thread = threading.Thread(target=lambda: whole.append(
                server.post("/v1/completions", {"prompt": "x", "max_tokens": 4000})))
            thread.start()
            wait_for(lambda: len(server.received(0)) == 2, "both requests reach the engine")
            server.engine.send_signal(signal.SIGKILL)
            server.engine.wait()
            with self.assertRaises(openai.APIError):
                for _ in stream:
                    pass
            thread.join(pair.LIMIT)
            status, body = whole[0]
            self.assertIn(status, (500, 503))
            self.assertEqual(json.loads(body)["error"]["code"], status)
            wait_for(lambda: server.get("/health")[0] == 503, "health reports it")
            self.assertIn(server.post("/v1/completions", {"prompt": "x"})[0], (500, 503))
            server.start_engine()
            self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 2})[0], 200)

    def test_a_full_queue_is_refused_with_retry_after(self):
        with Frontend("--max-num-queued-reqs", "2", engine=("--tokens-per-second", 20, "--max-num-seqs", 1)) as server:
            streams = [long_stream(server)]
            next(iter(streams[0]))
            connections = []
            for i in range(2):
                connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=pair.LIMIT)
                connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 4000}),
                                   {"Content-Type": "application/json"})
                connections.append(connection)
                wait_for(lambda: len(server.received(0)) == 2 + i, "the request waits in the engine")
            refused = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=pair.LIMIT)
            refused.request("POST", "/v1/completions", json.dumps({"prompt": "x"}), {"Content-Type": "application/json"})
            response = refused.getresponse()
            self.assertEqual(response.status, 503)
            self.assertTrue(response.getheader("Retry-After"))
            self.assertEqual(json.loads(response.read())["error"]["type"], "Service Unavailable")
            refused.close()
            self.assertEqual(server.total("vllm:admission_rejections_total", reason="max_num_queued_reqs"), 1)
            connections[0].close()
            wait_for(lambda: len(server.received(1)) == 1, "a waiting request leaves")
            for connection in connections:
                connection.close()
            streams[0].close()
            wait_for(lambda: server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200, "room again")


class HalfClosed(unittest.TestCase):
    """Clients that send a request and then shut down their writing side, as `nc -N` does."""

    @staticmethod
    def connect(server, head, body=b""):
        connection = socket.create_connection(("127.0.0.1", int(server.port_file.read_text())), pair.LIMIT)
        connection.sendall(f"{head} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection

    @staticmethod
    def read_to_end(connection):
        connection.shutdown(socket.SHUT_WR)
        with connection, connection.makefile("rb") as response:
            return response.read()

    def test_they_get_immediate_responses_and_their_generations_are_aborted(self):
        with Frontend(engine=("--tokens-per-second", "50")) as server:
            for head, body, status in (("GET /health", b"", 200), ("GET /metrics", b"", 200), ("GET /v1/models", b"", 200),
                                       ("POST /tokenize", b'{"prompt": "x"}', 200), ("POST /v1/completions", b"{", 400)):
                response = self.read_to_end(self.connect(server, head, body))
                self.assertTrue(response.startswith(b"HTTP/1.1 %d " % status), (head, response))
            body = b'{"prompt": "x", "max_tokens": 4000, "stream": true}'
            running = self.connect(server, "POST /v1/completions", body)
            response = running.recv(1)
            response += self.read_to_end(running)
            self.assertTrue(response.startswith(b"HTTP/1.1 200 "))
            self.assertNotIn(b"[DONE]", response)
            wait_for(lambda: len(server.received(1)) == 1, "the engine request is aborted")


if __name__ == "__main__":
    unittest.main(verbosity=2)
