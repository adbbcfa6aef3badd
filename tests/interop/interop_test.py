#!/usr/bin/env python3
"""vLLM 0.33's own Rust frontend over our engine core, beside our own frontend over the same engine.

Every case of CASES goes to both, whole and as a stream; text, usage, finish and stop reasons and
logprobs must be equal, also of requests drawn from seeds. So must the answers of the dev routes. The rest
are lives: disconnects, restarts. tests/interop/run.sh finds the frontend's binary and names it in TANDEM_VLLM_RS.

Where vllm-rs has less, nothing is asked of it: n, several prompts of one request,
spaces_between_special_tokens and echo of a truncated prompt are refused, bad_words of completions are
not sent to the engine. Where it differs from vLLM's Python server we follow the latter: text parts of
one message are joined by a line break.
"""
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import MODEL, Pair, wait_for

PEER_BINARY = os.environ.get("TANDEM_VLLM_RS", "")
if not os.access(PEER_BINARY, os.X_OK):
    pair.skip("TANDEM_VLLM_RS names no vllm-rs (tests/interop/run.sh gets it)")

ENGINE_FLAGS = ["--max-num-batched-tokens", "128", "--kv-cache-memory-bytes", str(128 << 20)]
TOLERANCE = 1e-4  # of logprobs
STORY = "Once upon a time, there was a little fox who lived in the woods."
CHAT = [{"role": "user", "content": "Tell me a short story about a fox."}]


def free_port():
    """A port below the ephemeral range, so that no outgoing connection takes it meanwhile."""
    for port in range(20000 + os.getpid() % 5000, 32000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in free_port.given:
                free_port.given.add(port)
                return port
    raise AssertionError("no free port")


free_port.given = set()


class Peer(Pair):
    """vllm-rs and our engine core, each of which can be started again by itself."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-test-")
        self.log_path = pathlib.Path(self.folder.name) / "log"
        self.log_path.touch()
        self.port, self.handshake_port = free_port(), free_port()
        self.frontend = self.engine = None
        try:
            self.start_frontend()
            self.start_engine()
            self.wait_ready()
        except BaseException:
            self.__exit__(True)
            raise

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start_frontend(self):
        self.frontend = self.spawn(
            PEER_BINARY, "serve", MODEL, "--host", "127.0.0.1", "--port", self.port, "--served-model-name", "m",
            "--data-parallel-size-local", 0, "--data-parallel-address", "127.0.0.1",
            "--data-parallel-rpc-port", self.handshake_port, HF_HUB_OFFLINE="1", VLLM_SERVER_DEV_MODE="1")

    def start_engine(self):
        self.engine = self.spawn(
            pair.bin_dir() / "tandem-engine-core", MODEL, *ENGINE_FLAGS,
            "--handshake-address", f"tcp://127.0.0.1:{self.handshake_port}")

    def spawn(self, *argv, **variables):
        with open(self.log_path, "ab") as log:
            return subprocess.Popen([str(arg) for arg in argv], stdout=log, stderr=log, env={**os.environ, **variables})

    def wait_ready(self):
        def answers():
            for process in (self.frontend, self.engine):
                assert process.poll() is None, f"{process.args[0]} ended with {process.returncode}"
            return self.get("/v1/models")[0] == 200
        wait_for(answers, "vllm-rs answers")

    def __exit__(self, failed, *_):
        for process in (self.frontend, self.engine):
            if process is not None:
                process.kill()
                process.wait()
        if failed:
            print(self.log, file=sys.stderr)
        self.folder.cleanup()


def ours(*flags):
    return Pair("--served-model-name", "m", *ENGINE_FLAGS, *flags)


def chat(**fields):
    return "/v1/chat/completions", {"messages": CHAT, "max_tokens": 24, "temperature": 0, **fields}


def completion(**fields):
    return "/v1/completions", {"prompt": STORY, "max_tokens": 24, "temperature": 0, **fields}


def sampled(make, **fields):
    return make(temperature=0.9, seed=1234, **fields)


CASES = {
    "chat, greedy": chat(),
    "chat, several turns": chat(messages=[
        {"role": "system", "content": "You tell stories."}, *CHAT, {"role": "assistant", "content": "A fox ran."},
        {"role": "user", "content": "And then?"}]),
    "chat, up to the end of text": chat(max_tokens=400),
    "chat, a seed": sampled(chat),
    "chat, a seed and every filter": sampled(chat, top_k=40, top_p=0.9, min_p=0.02),
    "chat, penalties": sampled(chat, presence_penalty=0.7, frequency_penalty=0.5, repetition_penalty=1.2),
    "chat, logprobs": chat(logprobs=True, top_logprobs=5),
    "chat, logprobs of the drawn alone": sampled(chat, logprobs=True),
    "chat, stop string": chat(max_tokens=100, stop=["fox"]),
    "chat, stop string kept": chat(max_tokens=100, stop=["fox"], include_stop_str_in_output=True),
    "chat, bad words": chat(bad_words=["a", " fox", "was", "clever fox", "."], max_tokens=60),
    "chat, max_completion_tokens": chat(max_tokens=None, max_completion_tokens=9),
    "greedy": completion(),
    "tokens for a prompt": completion(prompt=[331, 360, 335, 79, 412]),
    "a seed": sampled(completion),
    "a negative seed": completion(temperature=1.0, seed=-5),
    "the default temperature": completion(temperature=None, seed=7),
    "top_k": sampled(completion, top_k=5),
    "top_k off": sampled(completion, top_k=-1),
    "top_p": sampled(completion, top_p=0.6),
    "min_p": sampled(completion, min_p=0.1),
    "hot": completion(temperature=1.9, seed=99),
    "every filter": sampled(completion, top_k=50, top_p=0.95, min_p=0.01),
    "presence penalty": completion(presence_penalty=1.5, max_tokens=60),
    "frequency penalty": completion(frequency_penalty=1.1, max_tokens=60),
    "repetition penalty": completion(repetition_penalty=1.3, max_tokens=60),
    "logit bias": completion(logit_bias={"335": 8.0, "79": -100}),
    "logprobs": completion(logprobs=3),
    "logprobs of the drawn alone": sampled(completion, logprobs=0),
    "logprobs of an echoed prompt": completion(logprobs=2, echo=True),
    "logprobs of asked tokens": sampled(completion, logprobs=1, logprob_token_ids=[335, 79, 3000]),
    "chat, logprobs of asked tokens": chat(logprobs=True, top_logprobs=1, logprob_token_ids=[360, 335, 79, 412]),
    "more prompt logprobs than logprobs": completion(logprobs=1, prompt_logprobs=3),
    "chat, prompt logprobs": chat(prompt_logprobs=1),
    "an answer that repeats itself": completion(
        prompt="a", max_tokens=400, allowed_token_ids=[335, 79, 360], ignore_eos=True,
        repetition_detection={"max_pattern_size": 8, "min_pattern_size": 1, "min_count": 3}),
    "chat, an answer that repeats itself": chat(
        max_tokens=200, allowed_token_ids=[335], repetition_detection={"max_pattern_size": 4, "min_count": 5}),
    "echo": completion(echo=True),
    "prompt logprobs": completion(prompt_logprobs=2),
    "prompt logprobs of several chunks": completion(prompt=STORY * 20, prompt_logprobs=1, max_tokens=4),
    "stop string": completion(max_tokens=100, stop=["the", "zzz"]),
    "stop string kept": completion(max_tokens=100, stop="mother", include_stop_str_in_output=True),
    "stop string over tokens": completion(max_tokens=100, stop=[" time", " named ", "as a"]),
    "stop string after min_tokens": completion(max_tokens=60, stop=["."], min_tokens=30),
    "stop tokens": completion(max_tokens=100, stop_token_ids=list(range(300, 420))),
    "end of text": completion(max_tokens=600),
    "end of text ignored": completion(max_tokens=500, ignore_eos=True),
    "min_tokens": completion(prompt="The end.", max_tokens=80, min_tokens=70),
    "special tokens shown": completion(prompt="The end.", max_tokens=80, ignore_eos=True, skip_special_tokens=False),
    "allowed tokens": completion(allowed_token_ids=list(range(200, 900)), max_tokens=30),
    "one token": completion(max_tokens=1),
    "prompt of several chunks": completion(prompt=STORY * 40),
    "prompt cut at the left": completion(prompt=STORY * 10, truncate_prompt_tokens=37),
    "priority of no scheduling policy": completion(priority=0),
    "salted cache": completion(cache_salt="salt"),
}
NUM_DRAWN = 150


def drawn_case(seed):
    """Any fields that both frontends know, most of them at once."""
    draw = random.Random(seed)
    some_tokens = lambda most: draw.sample(range(3, 3072), draw.randint(1, most))
    optional = {
        "temperature": lambda: draw.choice([0, 0.3, 0.7, 1, 1.3, 2]),
        "top_k": lambda: draw.choice([-1, 0, 1, 3, 50, 3072]),
        "top_p": lambda: draw.choice([0.1, 0.5, 0.9, 0.99, 1.0]),
        "min_p": lambda: draw.choice([0, 0.01, 0.1, 0.5, 1]),
        "presence_penalty": lambda: draw.uniform(-2, 2),
        "frequency_penalty": lambda: draw.uniform(-2, 2),
        "repetition_penalty": lambda: draw.uniform(0.5, 2),
        "logit_bias": lambda: {str(token): draw.uniform(-100, 100) for token in some_tokens(5)},
        "allowed_token_ids": lambda: some_tokens(1500),
        "stop": lambda: draw.sample(["the", " a", "e", "o w", ". ", "ing", "\n", "he s", "s"], draw.randint(1, 4)),
        "stop_token_ids": lambda: some_tokens(300),
        "min_tokens": lambda: draw.randint(0, 20),
        "include_stop_str_in_output": lambda: True,
        "ignore_eos": lambda: True,
        "skip_special_tokens": lambda: False,
    }
    fields = {name: make() for name, make in optional.items() if draw.random() < 0.25}
    fields.setdefault("temperature", draw.choice([0, 0.8, 1.3, 2]))
    fields.update(seed=draw.randrange(-2**63, 2**63), max_tokens=draw.choice([20, 21, 40, 100]))
    if draw.random() < 0.5:
        fields["prompt"] = draw.choice([STORY, STORY * draw.randint(1, 40), "é ü 漢字 🦊 fox", "x", " ", "The  end. \n\n A",
                                        "<|im_end|> hello", some_tokens(300)])
        if draw.random() < 0.4:
            fields.update(logprobs=draw.choice([0, 1, 5, 20]), echo=draw.random() < 0.3)
        return "/v1/completions", fields
    fields["messages"] = draw.choice([CHAT, [{"role": "user", "content": "é ü 漢字 🦊 fox"}], [
        {"role": "system", "content": "s"}, {"role": "user", "content": "<|im_start|> user "},
        {"role": "assistant", "content": "yes"}, {"role": "user", "content": " go "}]])
    if draw.random() < 0.4:
        fields.update(logprobs=True, top_logprobs=draw.choice([0, 1, 5, 20]))
    return "/v1/chat/completions", fields


def without_nameless(logprobs):
    """Leaves out what two tokens of one text say. A token that is a part of a character: its bytes are the
    token's own in our answers, as the field is meant; vLLM's are those of U+FFFD. Where several tokens
    have one text, a completion's top_logprobs hold one of them; vLLM's two frontends do not agree which."""
    for entry in logprobs.get("top_logprobs") or []:
        for text in [text for text in entry or {} if text == "" or "\ufffd" in text]:
            del entry[text]
    for entry in logprobs.get("content") or []:
        for token in [entry, *entry["top_logprobs"]]:
            if "\ufffd" in token["token"]:
                token["bytes"] = None
    return logprobs


def choice_facts(choice):
    """What must be equal, of a whole choice or of a stream's event."""
    message = choice.get("message") or choice.get("delta")
    return {"text": choice.get("text") if message is None else message.get("content"),
            "logprobs": choice.get("logprobs") and without_nameless(choice["logprobs"]),
            **{key: choice.get(key) for key in ("finish_reason", "stop_reason", "prompt_logprobs")}}


def join(pieces):
    """The whole of a choice from its events."""
    whole = {"text": "", "logprobs": None, "finish_reason": None, "stop_reason": None, "prompt_logprobs": None}
    for piece in pieces:
        whole["text"] += piece["text"] or ""
        for key in ("finish_reason", "stop_reason", "prompt_logprobs"):
            whole[key] = piece[key] if piece[key] is not None else whole[key]
        if piece["logprobs"] is not None:
            whole["logprobs"] = whole["logprobs"] or {}
            for key, values in piece["logprobs"].items():
                whole["logprobs"].setdefault(key, []).extend(values or [])
    return whole


def usage_facts(usage):
    return {key: usage[key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")}


def ask(server, path, body, stream):
    body = {key: value for key, value in body.items() if value is not None}
    if not stream:
        status, reply = server.post(path, {"model": "m", **body})
        assert status == 200, f"{status} {reply.decode()}"
        reply = json.loads(reply)
        return {"choices": [choice_facts(choice) for choice in sorted(reply["choices"], key=lambda c: c["index"])],
                "usage": usage_facts(reply["usage"])}
    status, reply = server.post(
        path, {"model": "m", "stream": True, "stream_options": {"include_usage": True}, **body})
    assert status == 200, f"{status} {reply.decode()}"
    lines = [line[6:] for line in reply.decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines[-1]
    pieces, usage = {}, None
    for event in map(json.loads, lines[:-1]):
        assert "error" not in event, event
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            pieces.setdefault(choice["index"], []).append(choice_facts(choice))
    return {"choices": [join(pieces[index]) for index in sorted(pieces)], "usage": usage_facts(usage)}


def differences(mine, theirs, where="answer"):
    """Lines that tell where two answers differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        found = [f"{where}: ours has {sorted(mine)}, theirs {sorted(theirs)}"] if mine.keys() != theirs.keys() else []
        for key in mine.keys() & theirs.keys():
            found += differences(mine[key], theirs[key], f"{where}.{key}")
        return found
    if isinstance(mine, list) and isinstance(theirs, list):
        if len(mine) != len(theirs):
            return [f"{where}: ours has {len(mine)} items, theirs {len(theirs)}: {mine!r:.300} / {theirs!r:.300}"]
        return [line for index, both in enumerate(zip(mine, theirs)) for line in differences(*both, f"{where}[{index}]")]
    if isinstance(mine, float) and isinstance(theirs, (float, int)):
        return [] if math.isclose(mine, theirs, rel_tol=0, abs_tol=TOLERANCE) else [f"{where}: ours {mine}, theirs {theirs}"]
    return [] if mine == theirs else [f"{where}: ours {mine!r:.300}, theirs {theirs!r:.300}"]


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.peer = Peer()
        cls.addClassCleanup(cls.peer.__exit__, False)
        cls.ours = ours()
        cls.addClassCleanup(cls.ours.__exit__, False)

    def compare(self, path, body):
        whole = ask(self.peer, path, body, False)
        for stream in (False, True):
            if stream and "prompt_logprobs" in body:
                continue  # refused by both
            mine = ask(self.ours, path, body, stream)
            theirs = ask(self.peer, path, body, True) if stream else whole
            if stream and "prompt" in body:
                # In streams of completions vllm-rs counts text_offset from what it has let go, not from the
                # text, and leaves out the logprobs of an echoed prompt; ours are those of the whole answer.
                for choice, same in zip(theirs["choices"], whole["choices"]):
                    choice["logprobs"] = same["logprobs"]
            found = differences(mine, theirs)
            self.assertFalse(found, "\n".join([f" stream={stream}", *found[:12]]))

    def test_both_frontends_give_equal_answers(self):
        for name, case in CASES.items():
            with self.subTest(case=name):
                self.compare(*case)

    def test_both_frontends_give_equal_answers_to_drawn_requests(self):
        for seed in range(NUM_DRAWN):
            with self.subTest(seed=seed):
                self.compare(*drawn_case(seed))

    def test_twenty_at_once_give_equal_answers(self):
        cases = [completion(prompt=STORY + f" Number {index} was", temperature=0.8, seed=index, max_tokens=40)
                 for index in range(20)]
        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            mine, theirs = ([*threads.map(lambda case: ask(server, *case, True), cases)]
                            for server in (self.ours, self.peer))
        self.assertEqual(differences(mine, theirs), [])


class DevRoutes(unittest.TestCase):
    """What operators call, over both frontends and an engine each: equal answers, equal effects."""
    CALLS = [
        ("GET", "/is_sleeping"), ("GET", "/is_paused"), ("POST", "/reset_prefix_cache"),
        ("POST", "/reset_prefix_cache?reset_running_requests=true"), ("POST", "/reset_prefix_cache?reset_external=true"),
        ("POST", "/reset_mm_cache"), ("POST", "/reset_encoder_cache"),
        *[call for mode in ("keep", "wait", "abort") for call in (
            ("POST", f"/pause?mode={mode}&clear_cache=false"), ("GET", "/is_paused"), ("GET", "/is_sleeping"),
            ("POST", "/resume"), ("GET", "/is_paused"))],
        *[call for mode in ("keep", "abort") for call in (
            ("POST", f"/sleep?level=0&mode={mode}"), ("GET", "/is_sleeping"), ("GET", "/is_paused"),
            ("POST", "/wake_up?tags=weights&tags=scheduling"), ("GET", "/is_sleeping"))],
        ("POST", "/wake_up"), ("POST", "/resume")]
    REFUSED = [("/pause?mode=later", 400, "mode"), ("/sleep?level=7", 400, "level")]

    @classmethod
    def setUpClass(cls):
        cls.peer = Peer()
        cls.addClassCleanup(cls.peer.__exit__, False)
        cls.ours = ours("--server-dev-mode")
        cls.addClassCleanup(cls.ours.__exit__, False)

    def both(self, method, path):
        return [server.get(path) if method == "GET" else server.post(path, {}) for server in (self.ours, self.peer)]

    def test_equal_answers(self):
        for method, path in self.CALLS:
            with self.subTest(path):
                mine, theirs = self.both(method, path)
                self.assertEqual(mine, theirs)
                self.assertEqual(mine[0], 200)

    def test_equal_refusals(self):
        for path, status, parameter in self.REFUSED:
            with self.subTest(path):
                for found, body in self.both("POST", path):
                    self.assertEqual((found, json.loads(body)["error"]["param"]), (status, parameter))
        # Both say why the engine does not give its memory back; vllm-rs knows no 501.
        for (found, body), status in zip(self.both("POST", "/sleep?level=1"), (501, 500)):
            self.assertEqual(found, status)
            self.assertIn("level 1", json.loads(body)["error"]["message"])

    def test_an_answer_goes_on_behind_a_pause_and_a_reset(self):
        path, body = completion(max_tokens=1500, ignore_eos=True)
        expected = ask(self.ours, path, body, False)
        for server in (self.ours, self.peer):
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                before = server.total("vllm:generation_tokens_total")
                answer = thread.submit(ask, server, path, body, True)
                wait_for(lambda: server.total("vllm:generation_tokens_total") > before, "the answer has begun")
                for call in ("/reset_prefix_cache?reset_running_requests=true", "/pause?mode=keep", "/resume"):
                    self.assertEqual(server.post(call, {})[0], 200)
                self.assertEqual(differences(answer.result(), expected), [])

    def test_a_pause_that_waits_refuses_and_one_that_aborts_ends(self):
        path, body = completion(max_tokens=4)
        for server in (self.ours, self.peer):
            self.assertEqual(server.post("/pause?mode=wait", {})[0], 200)
            status, reply = server.post(path, {"model": "m", **body})
            self.assertEqual((status, json.loads(reply)["error"]["type"]), (503, "ServiceUnavailableError"))
            server.post("/resume", {})
            before = server.total("vllm:generation_tokens_total")
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                answer = thread.submit(ask, server, *completion(max_tokens=1900, ignore_eos=True), True)
                wait_for(lambda: server.total("vllm:generation_tokens_total") > before, "the answer has begun")
                server.post("/pause?mode=abort", {})
                self.assertEqual(answer.result()["choices"][0]["finish_reason"], "abort")
            server.post("/resume", {})
            self.assertEqual(differences(ask(server, path, body, False), ask(self.ours, path, body, False)), [])


class Lives(unittest.TestCase):
    def setUp(self):
        self.peer = Peer()
        self.addCleanup(lambda: self.peer.__exit__(False))

    def ask(self):
        return ask(self.peer, *completion(max_tokens=8), False)["choices"][0]["text"]

    def running(self):
        return self.peer.total("vllm:num_requests_running")

    def open_stream(self, max_tokens):
        """A stream that has begun."""
        connection = http.client.HTTPConnection("127.0.0.1", self.peer.port, timeout=pair.LIMIT)
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": "m", "prompt": "A", "stream": True, "max_tokens": max_tokens, "ignore_eos": True}),
            {"Content-Type": "application/json"})
        reply = connection.getresponse()
        self.assertTrue(reply.readline().startswith(b"data: "))
        return connection, reply

    def post(self, path):
        status, body = self.peer.post(path, {})
        self.assertEqual(status, 200, body)
        return json.loads(body) if body else None

    def test_a_client_that_goes_away_frees_the_engine(self):
        streams = [self.open_stream(2000) for _ in range(4)]
        wait_for(lambda: self.running() == 4, "four requests run")
        generated = self.peer.total("vllm:generation_tokens_total")
        for connection, reply in streams:
            reply.close()
            connection.close()
        wait_for(lambda: self.running() == 0, "the engine is idle again")
        self.assertLess(self.peer.total("vllm:generation_tokens_total") - generated, 4 * 1900)
        self.assertTrue(self.ask())

    def test_dev_routes_reach_the_engine(self):
        self.assertEqual(json.loads(self.peer.get("/is_sleeping")[1]), {"is_sleeping": False})
        path, body = completion(prompt=STORY * 8, max_tokens=1)

        def hits():
            """What the prefix cache gives to one more answer."""
            before = self.peer.total("vllm:prefix_cache_hits_total")
            num_asked = self.peer.total("vllm:prefix_cache_queries_total")
            ask(self.peer, path, body, False)
            # It counts a step's statistics apart from the answer.
            wait_for(lambda: self.peer.total("vllm:prefix_cache_queries_total") > num_asked, "the answer is counted")
            return self.peer.total("vllm:prefix_cache_hits_total") - before

        self.assertEqual(hits(), 0)
        self.assertGreater(hits(), 64)
        self.post("/reset_prefix_cache")
        self.assertEqual(hits(), 0)
        self.assertGreater(hits(), 64)

    def test_a_cache_in_use_is_reset_when_running_requests_may_be_preempted(self):
        connection, reply = self.open_stream(300)
        self.post("/reset_prefix_cache?reset_running_requests=true")
        lines = [line for line in reply.read().splitlines() if line.startswith(b"data: ")]
        connection.close()
        self.assertEqual(lines[-1], b"data: [DONE]")
        self.assertEqual(json.loads(lines[-2][6:])["choices"][0]["finish_reason"], "length")

    def test_a_paused_engine_keeps_its_requests(self):
        connection, reply = self.open_stream(1900)
        self.post("/pause?mode=keep")
        self.assertEqual(json.loads(self.peer.get("/is_paused")[1]), {"is_paused": True})

        def stands_still():
            before = self.peer.total("vllm:generation_tokens_total")
            for _ in range(50):
                self.peer.get("/is_paused")
            return self.peer.total("vllm:generation_tokens_total") == before

        wait_for(stands_still, "nothing is generated")
        self.assertLess(self.peer.total("vllm:generation_tokens_total"), 1900)
        self.post("/resume")
        self.assertEqual(reply.read().splitlines()[-2], b"data: [DONE]")
        connection.close()
        self.assertEqual(self.peer.total("vllm:generation_tokens_total"), 1900)

    def test_an_idle_connection_stays(self):
        # vllm-rs dies of a ZMTP ping, as libzmq's heartbeats send them.
        began = time.monotonic()
        wait_for(lambda: time.monotonic() > began + 12, "a while without requests")
        self.assertTrue(self.ask())

    def test_the_engine_serves_the_next_frontend(self):
        before = self.ask()
        connection, reply = self.open_stream(2000)
        self.addCleanup(lambda: (reply.close(), connection.close()))
        self.peer.frontend.kill()
        self.peer.frontend.wait()
        self.peer.start_frontend()
        self.peer.wait_ready()
        self.assertEqual(self.ask(), before)
        self.assertEqual(self.running(), 0)

    def test_an_engine_that_ends_says_so_and_another_serves_the_next_frontend(self):
        before = self.ask()
        connection, reply = self.open_stream(2000)
        self.peer.engine.send_signal(signal.SIGTERM)
        self.assertEqual(self.peer.engine.wait(pair.LIMIT), 0)
        self.assertNotIn(b'"finish_reason":"length"', reply.read())  # ends, and not as if it were whole
        connection.close()
        self.peer.frontend.kill()
        self.peer.frontend.wait()
        self.peer.start_frontend()
        self.peer.start_engine()
        self.peer.wait_ready()
        self.assertEqual(self.ask(), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
