#!/usr/bin/env python3
"""The pair as its users meet it: the shipped model, the official client, /metrics, kill -9."""
import json
import os
import pathlib
import pty
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import MODEL, Pair, is_alive, wait_for

try:
    import openai
except ImportError:
    pair.skip("the openai package is not installed (tests/run.sh installs it when PyPI can be reached)")

NAME = "tandem-tiny"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
HELLO = [{"role": "user", "content": "Hello!"}]


class Terminal(unittest.TestCase):
    def test_a_bar_while_the_model_loads_on_a_terminal(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        with tempfile.TemporaryDirectory(prefix="tandem-bar-") as folder:
            server = subprocess.Popen(
                [pair.bin_dir() / "tandem", "serve", MODEL, "--port", "0", "--kv-cache-memory-bytes", "16M"],
                stdout=subprocess.PIPE, stderr=theirs, text=True,
                env={**os.environ, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder})
            os.close(theirs)
            log = ""
            try:
                while "startup complete" not in log:
                    line = server.stdout.readline()
                    self.assertTrue(line, log)
                    log += line
                drawn = os.read(ours, 1 << 16).decode()
            finally:
                server.terminate()
                server.communicate(timeout=pair.LIMIT)
        self.assertRegex(drawn, r"\r\x1b\[K\[[#.]{30}\] layer 1 of \d+, .* GiB/s")
        self.assertTrue(drawn.endswith("\r\x1b[K"), drawn)
        self.assertNotIn("[startup] weights: layer", log)


def client_of(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=pair.LIMIT)


def slow_request(server, **fields):
    """A stream that runs for a long time unless it is stopped."""
    return client_of(server).completions.create(
        model=NAME, prompt="Once upon a time", max_tokens=1500, stream=True, temperature=0,
        extra_body={"ignore_eos": True}, **fields)


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair("--served-model-name", NAME)
        cls.client = client_of(cls.server)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_a_stream_has_the_text_and_usage_of_a_plain_response(self):
        whole = self.client.chat.completions.create(model=NAME, messages=HELLO, temperature=0)
        text, finish, usage = "", None, None
        for chunk in self.client.chat.completions.create(
                model=NAME, messages=HELLO, temperature=0, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
                finish = chunk.choices[0].finish_reason or finish
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertTrue(text.strip())
        self.assertEqual(finish, "stop")
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens, whole.usage.prompt_tokens)

    def test_shipped_model_gives_its_ten_recorded_replies(self):
        cases = json.loads((MODEL / "greedy_answers.json").read_text())
        self.assertEqual(len(cases), 10)
        for case in cases:
            with self.subTest(case["messages"][-1]["content"]):
                reply = self.client.chat.completions.create(
                    model=NAME, messages=case["messages"], temperature=0, max_tokens=400)
                self.assertEqual(reply.choices[0].message.content, case["text"])
                self.assertEqual(reply.choices[0].finish_reason, "stop")

    def test_shipped_model_calls_a_tool_and_uses_its_result(self):
        messages = [{"role": "user", "content": "What is the weather in Paris?"}]
        ask = dict(model=NAME, tools=[WEATHER], temperature=0)
        choice = self.client.chat.completions.create(messages=messages, **ask).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call, = choice.message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))
        arguments = ""
        for chunk in self.client.chat.completions.create(messages=messages, stream=True, **ask):
            for part in chunk.choices[0].delta.tool_calls or []:
                arguments += part.function.arguments or ""
        self.assertEqual(arguments, call.function.arguments)
        messages += [choice.message.model_dump(exclude_none=True), {
            "role": "tool", "tool_call_id": call.id, "content": "21 degrees and sunny"}]
        last = self.client.chat.completions.create(messages=messages, **ask).choices[0]
        self.assertEqual(last.message.content, "It is 21 degrees and sunny in Paris.")
        chat = self.client.chat.completions.create(messages=[{"role": "user", "content": "Who are you?"}], **ask)
        self.assertIn("I am the small model", chat.choices[0].message.content)

    def test_the_log_says_which_parsers_the_template_has_chosen(self):
        self.server.wait_for_log("tool call parser: hermes (from the chat template)")

    def test_shipped_model_answers_in_json(self):
        reply = self.client.chat.completions.create(model=NAME, temperature=0, messages=[
            {"role": "user", "content": "Anna is 31 years old and lives in Berlin. Answer as JSON with name, age, city."}])
        self.assertEqual(json.loads(reply.choices[0].message.content), {"name": "Anna", "age": 31, "city": "Berlin"})

    def test_the_readme_s_commands_get_what_it_shows(self):
        readme = (pair.ROOT / "README.md").read_text()
        blocks = readme[readme.index("## 60 seconds"):].split("```")
        commands, shown = blocks[3], blocks[5].strip().splitlines()
        curls = [shlex.split(part) for part in commands.replace("\\\n", " ").split("\ncurl ")[1:]]
        bodies = [(words[0], words[words.index("-d") + 1]) for words in curls if "-d" in words]
        self.assertEqual([url for url, _ in bodies], ["http://127.0.0.1:8000/v1/chat/completions"] * 3)
        answers = []
        for _, body in bodies:
            # A sampled story may lack its fox.
            status, stream = self.server.post("/v1/chat/completions", {"temperature": 0, **json.loads(body)})
            self.assertEqual(status, 200, stream)
            content, name, arguments = "", "", ""
            for line in stream.splitlines():
                if not line.startswith(b"data: {"):
                    continue
                delta = json.loads(line[6:])["choices"][0]["delta"]
                content += delta.get("content") or ""
                for call in delta.get("tool_calls") or []:
                    name += call["function"].get("name") or ""
                    arguments += call["function"].get("arguments") or ""
            answers.append(f"{name} {arguments}" if name else content)
        self.assertIn("fox", answers[0])
        self.assertEqual(answers[1:], shown)
        for words in curls:
            if "-d" not in words:
                path = words[0].split("\n")[0].removeprefix("http://127.0.0.1:8000")
                self.assertEqual(self.server.get(path)[0], 200, path)

    def test_metrics_agree_with_usage(self):
        names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
        before = [self.server.total(name) for name in names]
        successes = self.server.total("vllm:request_success_total", finished_reason="stop")
        ttft = self.server.total("vllm:time_to_first_token_seconds_count")
        used = [0, 0]
        for question in ("Hello!", "What is 7 plus 5?", "Thanks!"):
            usage = self.client.chat.completions.create(
                model=NAME, messages=[{"role": "user", "content": question}], temperature=0).usage
            used[0] += usage.prompt_tokens
            used[1] += usage.completion_tokens
        self.assertEqual([self.server.total(name) - b for name, b in zip(names, before)], used)
        self.assertEqual(self.server.total("vllm:request_success_total", finished_reason="stop") - successes, 3)
        self.assertEqual(self.server.total("vllm:time_to_first_token_seconds_count") - ttft, 3)
        wait_for(lambda: self.server.total("vllm:num_requests_running") == 0, "running gauge back at 0")
        wait_for(lambda: self.server.total("vllm:kv_cache_usage_perc") == 0, "cache usage back at 0")

    def test_same_seed_same_tokens_in_any_batch(self):
        def ask():
            return self.client.completions.create(
                model=NAME, prompt="The little", max_tokens=40, temperature=1, seed=7)
        alone = ask()
        self.assertTrue(alone.system_fingerprint.endswith("-batch-invariant"), alone.system_fingerprint)
        crowd = [slow_request(self.server, seed=i) for i in range(5)]
        for stream in crowd:
            next(iter(stream))
        beside = ask()
        for stream in crowd:
            stream.close()
        self.assertEqual(alone.choices[0].text, beside.choices[0].text)

    def test_each_of_n_choices_is_what_its_seed_gives_alone(self):
        fields = {"model": NAME, "prompt": ["Once upon a time", "There was"], "temperature": 1, "max_tokens": 12}
        together = self.client.completions.create(**fields, n=3, seed=40)
        self.assertEqual(len(together.choices), 6)
        for i, choice in enumerate(together.choices):
            alone = self.client.completions.create(**{**fields, "prompt": fields["prompt"][i // 3]}, seed=40 + i % 3)
            self.assertEqual(choice.text, alone.choices[0].text)
        texts = {choice.text for choice in self.client.completions.create(**fields, n=8).choices}
        self.assertGreater(len(texts), 8)  # without a seed they are drawn apart

    def test_request_of_a_disconnected_client_is_aborted(self):
        aborted = self.server.total("vllm:request_success_total", finished_reason="abort")
        stream = slow_request(self.server)
        next(iter(stream))
        stream.close()
        wait_for(lambda: self.server.total("vllm:request_success_total", finished_reason="abort") == aborted + 1,
                 "it counts as aborted")
        wait_for(lambda: self.server.total("vllm:num_requests_running") == 0, "request left the engine")

    def test_bad_input_gets_an_error_and_harms_nothing_else(self):
        engine, frontend = self.server.pid_of("tandem-engine-core"), self.server.pid_of("tandem-frontend")
        chat = {"model": NAME, "messages": HELLO}
        completion = {"model": NAME, "prompt": "x"}
        cases = [
            ("/v1/chat/completions", b"{", 400), ("/v1/chat/completions", b"[" * 100000, 400),
            ("/v1/chat/completions", b'{"model": "\xff"}', 400), ("/v1/chat/completions", {"model": NAME}, 400),
            ("/v1/chat/completions", {**chat, "model": "nobody"}, 404),
            ("/v1/chat/completions", {**chat, "temperature": "hot"}, 400),
            ("/v1/chat/completions", {**chat, "top_p": 3}, 400),
            ("/v1/chat/completions", {**chat, "messages": [{"role": "user", "content": 5}]}, 400),
            ("/v1/completions", {**completion, "prompt": [1, 10**9]}, 400),
            ("/v1/completions", {**completion, "prompt": [-1]}, 400),
            ("/v1/completions", {**completion, "stop_token_ids": [10**9]}, 400),
            ("/v1/completions", {**completion, "logit_bias": {"99999999": 1}}, 400),
            ("/v1/completions", {**completion, "n": 10**9}, 400),
            ("/v1/completions", {**completion, "max_tokens": 0}, 400),
            ("/nowhere", {}, 404),
        ]
        for path, body, expected in cases:
            with self.subTest(str(body)[:60]):
                status, reply = self.server.post(path, body)
                self.assertEqual(status, expected, reply)
                if expected != 404 or path != "/nowhere":
                    error = json.loads(reply)["error"]
                    self.assertEqual(error["code"], expected)
                    self.assertTrue(error["message"])
        status, reply = self.server.post("/v1/completions", {**completion, "prompt": "word " * 20000})
        self.assertEqual(status, 400)
        self.assertIn("maximum context length is", json.loads(reply)["error"]["message"])
        self.assertEqual(self.server.pid_of("tandem-engine-core"), engine)
        self.assertEqual(self.server.pid_of("tandem-frontend"), frontend)
        self.assertEqual(self.server.get("/health")[0], 200)

    def test_terminal_chat_reaches_the_server(self):
        talk = subprocess.run([pair.bin_dir() / "tandem", "chat", "--url", self.server.url, "--temperature", "0"],
                              input="Hello!\n", capture_output=True, text=True, timeout=pair.LIMIT)
        self.assertEqual(talk.returncode, 0, talk.stderr)
        whole = self.client.chat.completions.create(model=NAME, messages=HELLO, temperature=0)
        self.assertEqual(talk.stdout.strip(), whole.choices[0].message.content.strip())


class Lives(unittest.TestCase):
    """The death and restart of each process."""

    def test_killed_engine_comes_back_and_goes_on(self):
        with Pair("--served-model-name", NAME) as server:
            undisturbed = "".join(chunk.choices[0].text for chunk in slow_request(server))
            stream = slow_request(server)
            text = next(iter(stream)).choices[0].text
            engine = server.pid_of("tandem-engine-core")
            os.kill(engine, signal.SIGKILL)
            for chunk in stream:
                text += chunk.choices[0].text
            self.assertEqual(text, undisturbed)
            wait_for(lambda: (server.pid_of("tandem-engine-core") or engine) != engine, "a new engine process")
            wait_for(lambda: server.get("/health")[0] == 200, "healthy again")
            reply = client_of(server).chat.completions.create(model=NAME, messages=HELLO, temperature=0)
            self.assertEqual(reply.choices[0].finish_reason, "stop")

    def test_killed_frontend_comes_back_with_the_same_engine(self):
        with Pair("--served-model-name", NAME) as server:
            frontend, engine = server.pid_of("tandem-frontend"), server.pid_of("tandem-engine-core")
            os.kill(frontend, signal.SIGKILL)
            wait_for(lambda: (server.pid_of("tandem-frontend") or frontend) != frontend, "a new frontend process")
            wait_for(lambda: server.get("/health")[0] == 200, "healthy again")
            reply = client_of(server).chat.completions.create(model=NAME, messages=HELLO, temperature=0)
            self.assertEqual(reply.choices[0].finish_reason, "stop")
            self.assertEqual(server.pid_of("tandem-engine-core"), engine)

    def test_killed_supervisor_leaves_no_process(self):
        with Pair() as server:
            left = list(pair.children(server.process.pid).values())
            self.assertEqual(len(left), 2)
            server.process.kill()
            server.process.wait()
            wait_for(lambda: not any(map(is_alive, left)), "both processes gone")

    def test_most_network_threads_start(self):
        with Pair("--api-server-count", 256) as server:
            self.assertEqual(server.get("/health")[0], 200)

    def test_gauges_of_a_dead_engine_are_0(self):
        with Pair("--served-model-name", NAME) as server:
            streams = [slow_request(server) for _ in range(3)]
            for stream in streams:
                next(iter(stream))
            wait_for(lambda: server.total("vllm:num_requests_running") == 3, "three requests run")
            engine = server.pid_of("tandem-engine-core")
            os.kill(engine, signal.SIGKILL)
            wait_for(lambda: server.total("vllm:num_requests_running") == 0, "gauge at 0")
            wait_for(lambda: server.total("vllm:kv_cache_usage_perc") == 0, "usage at 0")

    def test_stopped_child_does_not_delay_the_shutdown(self):
        with Pair() as server:
            left = list(pair.children(server.process.pid).values())
            os.kill(server.pid_of("tandem-engine-core"), signal.SIGSTOP)
            self.assertEqual(server.stop(), 0)
            self.assertFalse(any(map(is_alive, left)))

    def test_sigterm_ends_with_status_0(self):
        with Pair() as server:
            left = list(pair.children(server.process.pid).values())
            self.assertEqual(server.stop(), 0)
            self.assertFalse(any(map(is_alive, left)))


class FirstProcess(Pair):
    """As the first process of a container it is the parent of processes that have lost theirs."""

    def command_line(self, *words):
        pr_set_child_subreaper = 36
        become = f"import ctypes, os, sys; ctypes.CDLL(None).prctl({pr_set_child_subreaper}, 1); os.execv(sys.argv[1], sys.argv[1:])"
        return [sys.executable, "-c", become, *super().command_line(*words)]


class InContainer(unittest.TestCase):
    @unittest.skipUnless((pair.bin_dir() / "tandem-grammar").exists(), "there are no grammars")
    def test_what_a_killed_engine_leaves_is_reaped(self):
        with FirstProcess("--served-model-name", NAME) as server:
            status, body = server.post("/v1/completions", {"model": NAME, "prompt": "a", "max_tokens": 4,
                                                           "structured_outputs": {"choice": ["yes", "no"]}})
            self.assertEqual(status, 200, body)
            engine = server.pid_of("tandem-engine-core")
            helper = wait_for(lambda: pair.children(engine).get("tandem-grammar"), "the engine's helper runs")
            os.kill(engine, signal.SIGKILL)
            wait_for(lambda: not pathlib.Path(f"/proc/{helper}").exists(), "the helper is no zombie")
            wait_for(lambda: server.total("tandem:engine_restarts_total") == 1, "the engine is back")


class Starts(unittest.TestCase):
    """A pair that cannot start logs why and exits with a non-zero status."""

    def refused(self, *flags, model=MODEL):
        with Pair(*flags, model=model, wait=False) as server:
            status = server.process.wait(pair.LIMIT)
            self.assertNotEqual(status, 0)
            return server.log

    def test_missing_model(self):
        self.assertIn("/nowhere/at/all", self.refused(model="/nowhere/at/all"))

    def test_truncated_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in MODEL.iterdir():
                if file.is_file():
                    data = file.read_bytes()
                    if file.suffix == ".safetensors":
                        data = data[:len(data) // 2]
                    (pathlib.Path(folder) / file.name).write_bytes(data)
            self.assertIn("model.safetensors", self.refused(model=folder))

    def test_unknown_flag_is_refused_with_a_hint(self):
        self.assertIn("did you mean --max-num-seqs?", self.refused("--max-num-seq", "3"))

    def test_layouts_that_this_command_cannot_start(self):
        for flags, why in ((("-dp", "2", "-dpl", "3"), "--data-parallel-size 2 has ranks up to 1"),
                           (("--data-parallel-rank", "1"), "--data-parallel-size 1 has ranks up to 0"),
                           (("--handshake-address", "ipc:///x/y"), "--handshake-address: ")):
            with self.subTest(flags):
                self.assertIn(why, self.refused(*flags))

    def test_more_memory_than_there_is(self):
        self.assertIn("--kv-cache-memory-bytes", self.refused("--kv-cache-memory-bytes", str(2**63 - 1)))

    def test_context_longer_than_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in MODEL.iterdir():
                if file.is_file():
                    (pathlib.Path(folder) / file.name).write_bytes(file.read_bytes())
            config = json.loads((MODEL / "config.json").read_text())
            (pathlib.Path(folder) / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2**31}))
            self.assertIn("--max-model-len", self.refused(model=folder))

    def test_generation_config_that_is_not_there(self):
        self.assertIn("--generation-config /nope", self.refused("--generation-config", "/nope"))

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.assertIn(port, self.refused("--port", port))


if __name__ == "__main__":
    unittest.main(verbosity=2)
