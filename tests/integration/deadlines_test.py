#!/usr/bin/env python3
"""Requests whose time is over, waits that would be too long, and keys with too many requests. The engine makes up its
tokens, some of them slowly; where nothing may come at all it is stopped."""
import http.client
import json
import pathlib
import re
import signal
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from api_test import Frontend
from pair import LIMIT, wait_for

SLOW = ("--tokens-per-second", "20")
COMPLETION = {"model": "m", "prompt": "one two three", "max_tokens": 4000}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4000}


def ask(server, path, body, **headers):
    """(status, headers, body)"""
    connection = http.client.HTTPConnection("127.0.0.1", int(server.port_file.read_text()), timeout=LIMIT)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, reply.headers, text


def events(text):
    return [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: {")]


class Deadlines(unittest.TestCase):
    def test_expiry_before_the_first_token_is_504_and_the_engine_gets_an_abort(self):
        with Frontend() as server:
            server.engine.send_signal(signal.SIGSTOP)
            for body in ({**COMPLETION, "n": 2}, {**COMPLETION, "stream": True}):
                status, _, text = ask(server, "/v1/completions", body, **{"Request-Timeout-Ms": "200"})
                self.assertEqual(status, 504, text)
                self.assertEqual(json.loads(text)["error"]["type"], "TimeoutError")
            status, _, text = ask(server, "/v1/messages", CHAT, **{"X-Request-Timeout": "0.2"})
            self.assertEqual((status, json.loads(text)["type"]), (504, "error"))
            self.assertEqual(server.total("tandem:requests_expired_total", stage="queue"), 3)
            wait_for(lambda: len(re.findall(r"request expired id=\S+ prompt_tokens=\d+\n", server.log)) == 4,
                     "a line for each choice")
            server.engine.send_signal(signal.SIGCONT)
            wait_for(lambda: sum(map(len, server.received(1))) == 4, "the engine got the aborts")
            self.assertEqual(ask(server, "/v1/completions", {**COMPLETION, "max_tokens": 2})[0], 200)

    def test_expiry_after_it_ends_the_response_as_max_tokens_does(self):
        # Time enough for a first token, and for far fewer than it asks for.
        with Frontend("--request-timeout", "8", engine=SLOW) as server:
            usage = {"stream": True, "stream_options": {"include_usage": True}}
            # The server's limit counts where the client asks for more.
            status, _, text = ask(server, "/v1/completions", {**COMPLETION, **usage, "n": 2},
                                  **{"X-Request-Timeout": "1000"})
            self.assertEqual(status, 200)
            self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
            finishes = [choice for event in events(text) for choice in event["choices"] if choice["finish_reason"]]
            self.assertEqual([choice["finish_reason"] for choice in finishes], ["length", "length"])
            self.assertEqual({choice["stop_reason"] for choice in finishes}, {"request_timeout"})
            num_tokens = events(text)[-1]["usage"]["completion_tokens"]
            self.assertTrue(2 <= num_tokens < 2 * COMPLETION["max_tokens"], num_tokens)

            status, _, text = ask(server, "/v1/chat/completions", CHAT)
            choice = json.loads(text)["choices"][0]
            self.assertEqual((status, choice["finish_reason"], choice["stop_reason"]), (200, "length", "request_timeout"))
            self.assertTrue(choice["message"]["content"])
            self.assertEqual(server.total("tandem:requests_expired_total", stage="decode"), 2)
            self.assertEqual(server.total("vllm:request_success_total", finished_reason="length"), 3)
            wait_for(lambda: sum(map(len, server.received(1))) == 3, "the engine got the aborts")
            wait_for(lambda: server.total("vllm:num_requests_running") == 0, "nothing runs")

    def test_a_request_in_time_is_not_touched(self):
        with Frontend("--request-timeout", "1000") as server:
            status, _, text = ask(server, "/v1/completions", {**COMPLETION, "max_tokens": 5},
                                  **{"Request-Timeout-Ms": "900000"})
            self.assertEqual((status, json.loads(text)["usage"]["completion_tokens"]), (200, 5))
            self.assertEqual(server.total("tandem:requests_expired_total"), 0)

    def test_what_is_no_time_is_refused(self):
        with Frontend() as server:
            for name in ("Request-Timeout-Ms", "X-Request-Timeout"):
                for value in ("soon", "0", "-1", "nan"):
                    status, _, text = ask(server, "/v1/completions", COMPLETION, **{name: value})
                    self.assertEqual(status, 400, (name, value))
                    self.assertIn(name.lower(), json.loads(text)["error"]["message"])


class Queues(unittest.TestCase):
    def refused(self, server):
        """The response to a request that is refused with 503, else None."""
        response = ask(server, "/v1/completions", COMPLETION, **{"Request-Timeout-Ms": "100"})
        return response if response[0] == 503 else None

    def test_a_predicted_wait_that_is_too_long_is_refused(self):
        with Frontend("--max-ttft", "0.05", engine=("--max-num-seqs", "1")) as server:
            # What a token in the queue costs is learned from requests that had to wait.
            server.engine.send_signal(signal.SIGSTOP)
            asking = [threading.Thread(target=ask, args=(server, "/v1/completions", {**COMPLETION, "max_tokens": 2}))
                      for _ in range(2)]
            for thread in asking:
                thread.start()
            wait_for(lambda: server.total("vllm:num_requests_waiting") == 2, "both are in the queue")
            # They wait at least until the time of a third one is over.
            self.assertEqual(ask(server, "/v1/completions", COMPLETION, **{"X-Request-Timeout": "0.5"})[0], 504)
            server.engine.send_signal(signal.SIGCONT)
            for thread in asking:
                thread.join()
            server.engine.send_signal(signal.SIGSTOP)
            try:
                waiting = threading.Thread(target=ask, args=(
                    server, "/v1/completions", {"model": "m", "prompt": [5] * 4000, "max_tokens": 2}))
                waiting.start()
                wait_for(lambda: server.total("vllm:num_requests_waiting") == 1, "it is in the queue")
                status, headers, text = wait_for(lambda: self.refused(server), "the queue is too long")
                self.assertGreater(int(headers["Retry-After"]), 1)
                self.assertIn(b"first token", text)
                self.assertEqual(server.total("vllm:admission_rejections_total", reason="max_ttft"), 1)
            finally:
                server.engine.send_signal(signal.SIGCONT)
            waiting.join()
            # The queue is empty: there is nothing to wait for.
            self.assertEqual(ask(server, "/v1/completions", {**COMPLETION, "max_tokens": 2})[0], 200)


class Keys(unittest.TestCase):
    def test_one_key_cannot_take_every_place(self):
        with Frontend("--api-key", "a", "b", "--max-requests-per-key", "1", engine=SLOW) as server:
            port = int(server.port_file.read_text())
            held = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
            held.request("POST", "/v1/completions", json.dumps({**COMPLETION, "stream": True}),
                         {"Content-Type": "application/json", "Authorization": "Bearer a"})
            stream = held.getresponse()
            self.assertEqual(stream.status, 200)
            short = {**COMPLETION, "max_tokens": 2}
            status, headers, text = ask(server, "/v1/completions", short, Authorization="Bearer a")
            self.assertEqual((status, headers["Retry-After"]), (429, "1"))
            self.assertIn("1 open requests", json.loads(text)["error"]["message"])
            # The same key under its other name.
            self.assertEqual(ask(server, "/v1/completions", short, **{"X-Api-Key": "a"})[0], 429)
            self.assertEqual(ask(server, "/v1/completions", short, Authorization="Bearer b")[0], 200)
            self.assertEqual(ask(server, "/v1/completions", short, Authorization="Bearer b")[0], 200)
            self.assertEqual(ask(server, "/v1/completions", short)[0], 401)
            self.assertEqual(server.get("/v1/models", Authorization="Bearer a")[0], 200)
            stream.close()
            held.close()
            wait_for(lambda: ask(server, "/v1/completions", short, Authorization="Bearer a")[0] == 200,
                     "its place is free again")


if __name__ == "__main__":
    unittest.main(verbosity=2)
