#!/usr/bin/env python3
"""The routes of TANDEM_SERVER_DEV_MODE over a real pair: caches, pause, sleep, what the server runs with."""
import http.client
import json
import os
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, Pair, wait_for

FLAGS = ("--served-model-name", "m", "--max-model-len", "2048", "--kv-cache-memory-bytes", str(32 << 20))
STORY = "Once upon a time, there was a little fox who lived in the woods. " * 8
ROUTES = [("POST", "/reset_prefix_cache"), ("POST", "/reset_mm_cache"), ("POST", "/reset_encoder_cache"),
          ("POST", "/abort_requests"), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/is_paused"), ("POST", "/sleep"), ("POST", "/wake_up"),
          ("POST", "/release_kv_cache_memory"),
          ("GET", "/server_info")]


class Stream:
    """An answer that has begun; its events come when they are read."""

    def __init__(self, server, max_tokens, **fields):
        self.connection = http.client.HTTPConnection(server.url[7:], timeout=LIMIT)
        self.connection.request("POST", "/v1/completions", json.dumps(
            {"model": "m", "prompt": "A", "stream": True, "max_tokens": max_tokens, "ignore_eos": True,
             "temperature": 0, **fields}), {"Content-Type": "application/json"})
        self.reply = self.connection.getresponse()
        assert self.reply.readline().startswith(b"data: ")

    def rest(self):
        events = [line[6:] for line in self.reply.read().splitlines() if line.startswith(b"data: ")]
        assert events[-1] == b"[DONE]", events[-1]
        return [json.loads(event) for event in events[:-1]]

    def close(self):
        self.reply.close()
        self.connection.close()


class Dev(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["VLLM_SERVER_DEV_MODE"] = "1"
        cls.server = Pair(*FLAGS)
        del os.environ["VLLM_SERVER_DEV_MODE"]
        cls.addClassCleanup(cls.server.__exit__, False)

    def call(self, path, status=200):
        got, body = self.server.post(path, b"")
        self.assertEqual(got, status, body)
        return json.loads(body) if body else None

    def ask(self, path, status=200):
        got, body = self.server.get(path)
        self.assertEqual(got, status, body)
        return json.loads(body)

    def complete(self, **fields):
        status, body = self.server.post("/v1/completions", {
            "model": "m", "prompt": STORY, "max_tokens": 4, "temperature": 0, **fields})
        return status, json.loads(body)

    def hits(self):
        """Prompt tokens of one more answer that come from the prefix cache."""
        status, answer = self.complete()
        self.assertEqual(status, 200)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def stream(self, *args, **fields):
        stream = Stream(self.server, *args, **fields)
        self.addCleanup(stream.close)
        return stream

    def test_the_prefix_cache_is_empty_after_a_reset(self):
        self.hits()
        self.assertGreater(self.hits(), 64)
        self.assertEqual(self.call("/reset_prefix_cache"), {"success": True})
        self.assertEqual(self.hits(), 0)
        self.assertGreater(self.hits(), 64)

    def test_a_cache_in_use_is_reset_only_when_running_requests_may_be_preempted(self):
        whole = self.stream(1200)
        expected = [event["choices"][0]["text"] for event in whole.rest()]
        stream = self.stream(1200)
        self.assertEqual(self.call("/reset_prefix_cache"), {"success": False})
        self.assertEqual(self.call("/reset_prefix_cache?reset_running_requests=true"), {"success": True})
        events = stream.rest()
        self.assertEqual([event["choices"][0]["text"] for event in events], expected)
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")

    def test_there_is_no_external_cache_to_reset(self):
        self.assertEqual(self.call("/reset_prefix_cache?reset_external=true"), {"success": False})
        self.assertIsNone(self.call("/reset_mm_cache"))
        self.assertIsNone(self.call("/reset_encoder_cache"))

    def test_a_pause_that_keeps_stops_and_resumes_the_same_answer(self):
        before = self.server.total("vllm:generation_tokens_total")
        stream = self.stream(1900)
        self.assertEqual(self.call("/pause?mode=keep"), {"status": "paused"})
        self.addCleanup(self.call, "/resume")
        self.assertEqual(self.ask("/is_paused"), {"is_paused": True})
        self.assertEqual(self.ask("/is_sleeping"), {"is_sleeping": True})
        generated = self.server.total("vllm:generation_tokens_total")
        self.assertLess(generated - before, 1900)
        for _ in range(20):  # each a round trip through the engine's loop
            self.ask("/is_paused")
        self.assertEqual(self.server.total("vllm:generation_tokens_total"), generated)
        self.assertEqual(self.call("/resume"), {"status": "resumed"})
        self.assertEqual(self.ask("/is_paused"), {"is_paused": False})
        self.assertEqual(stream.rest()[-1]["choices"][0]["finish_reason"], "length")

    def test_a_pause_aborts_what_runs_and_new_requests_wait(self):
        stream = self.stream(1900)
        self.assertEqual(self.call("/pause"), {"status": "paused"})
        self.addCleanup(self.call, "/resume")
        self.assertEqual(stream.rest()[-1]["choices"][0]["finish_reason"], "abort")
        answers = []
        waiter = threading.Thread(target=lambda: answers.append(self.complete()))
        waiter.start()
        wait_for(lambda: self.server.total("vllm:num_requests_waiting") == 1, "the new request waits")
        self.assertEqual(answers, [])
        self.call("/resume")
        waiter.join()
        self.assertEqual(answers[0][0], 200)

    def test_a_pause_that_waits_refuses_new_requests(self):
        stream = self.stream(1900)
        paused = []
        waiter = threading.Thread(target=lambda: paused.append(self.call("/pause?mode=wait")))
        waiter.start()
        self.addCleanup(self.call, "/resume")
        wait_for(lambda: self.ask("/is_paused")["is_paused"], "the pause has begun")
        status, answer = self.complete()
        self.assertEqual((status, answer["error"]["type"]), (503, "ServiceUnavailableError"))
        self.assertEqual(paused, [])  # something still runs
        self.assertEqual(stream.rest()[-1]["choices"][0]["finish_reason"], "length")
        waiter.join()
        self.assertEqual(paused, [{"status": "paused"}])
        self.assertEqual(self.complete()[0], 503)
        self.call("/resume")
        self.assertEqual(self.complete()[0], 200)

    def test_a_client_that_leaves_a_pause_leaves_nothing_behind(self):
        stream = self.stream(1900)
        connection = http.client.HTTPConnection(self.server.url[7:], timeout=LIMIT)
        connection.request("POST", "/pause?mode=wait")
        wait_for(lambda: self.ask("/is_paused")["is_paused"], "the pause has begun")
        connection.close()
        self.call("/resume")
        self.assertEqual(stream.rest()[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(self.complete()[0], 200)

    def test_level_0_sleeps_and_the_other_levels_say_why_not(self):
        self.assertEqual(self.call("/sleep?level=0"), {"status": "sleeping", "level": 0})
        self.addCleanup(self.call, "/wake_up")
        self.assertEqual(self.ask("/is_sleeping"), {"is_sleeping": True})
        self.assertEqual(self.server.total("vllm:engine_sleep_state", sleep_state="awake"), 0)
        self.assertEqual(self.call("/wake_up"), {"status": "awake", "tags": None})
        self.assertEqual(self.ask("/is_sleeping"), {"is_sleeping": False})
        self.assertEqual(self.server.total("vllm:engine_sleep_state", sleep_state="awake"), 1)
        self.call("/sleep?level=0&mode=keep")
        self.assertEqual(self.call("/wake_up?tags=weights&tags=scheduling"),
                         {"status": "awake", "tags": ["weights", "scheduling"]})
        for path in ("/sleep", "/sleep?level=1", "/sleep?level=2&mode=keep"):
            error = self.call(path, status=501)["error"]
            self.assertEqual((error["type"], error["param"]), ("NotImplementedError", "level"))
            self.assertIn("--enable-sleep-mode", error["message"])
        self.assertEqual(self.ask("/is_sleeping"), {"is_sleeping": False})
        self.assertEqual(self.complete()[0], 200)
        self.assertGreaterEqual(
            self.server.total("vllm:sleep_mode_operation_duration_seconds_count", operation="sleep"), 2)
        self.assertEqual(self.server.total("vllm:sleep_mode_operations_in_flight"), 0)

    def abort(self, body=None, status=200, path="/abort_requests"):
        got, answer = self.server.post(path, b"" if body is None else body)
        self.assertEqual(got, status, answer)
        return json.loads(answer)

    def test_aborted_requests_end_with_what_they_have_and_the_others_go_on(self):
        named = self.stream(1900, request_id="first", n=2, temperature=1)
        other = self.stream(1900)
        self.assertEqual(self.abort({"request_ids": ["cmpl-first", "cmpl-nobody"]}), {"status": "aborted", "aborted": 2})
        ends = {event["choices"][0]["index"]: event["choices"][0]["finish_reason"]
                for event in named.rest() if event["choices"] and event["choices"][0]["finish_reason"]}
        self.assertEqual(ends, {0: "abort", 1: "abort"})
        self.assertEqual(self.abort({"request_ids": ["cmpl-first"]})["aborted"], 0)
        second = self.stream(1900, request_id="second")
        self.assertEqual(self.abort({"request_ids": ["cmpl-second"]}, path="/inference/v1/abort_requests")["aborted"], 1)
        self.assertEqual(second.rest()[-1]["choices"][0]["finish_reason"], "abort")
        self.assertEqual(other.rest()[-1]["choices"][0]["finish_reason"], "length")

    def test_without_names_all_requests_are_aborted_and_new_ones_are_served(self):
        for body in (None, {}, {"request_ids": None}, {"request_ids": []}):
            streams = [self.stream(1900) for _ in range(3)]
            before = self.server.total("vllm:request_success_total", finished_reason="abort")
            self.assertEqual(self.abort(body)["aborted"], 3)
            for stream in streams:
                self.assertEqual(stream.rest()[-1]["choices"][0]["finish_reason"], "abort")
            self.assertEqual(self.server.total("vllm:request_success_total", finished_reason="abort"), before + 3)
            wait_for(lambda: self.server.total("vllm:num_requests_running") == 0, "the engine has dropped them")
        self.assertEqual(self.complete()[0], 200)

    def test_bad_names_of_requests_are_refused(self):
        for body in ({"request_ids": "cmpl-1"}, {"request_ids": [1]}, b"[1]", b"{"):
            self.assertIn("error", self.abort(body, status=400))

    def test_what_a_parameter_may_not_be_is_named(self):
        for path, parameter in (("/pause?mode=later", "mode"), ("/sleep?level=3", "level"), ("/sleep?level=x", "level"),
                                ("/sleep?level=0&mode=no", "mode"), ("/wake_up?tags=weight", "tags"), ("/pause?clear_cache=perhaps", "clear_cache"),
                                ("/reset_prefix_cache?reset_external=2", "reset_external")):
            error = self.call(path, status=400)["error"]
            self.assertEqual(error["param"], parameter, path)
        self.assertEqual(self.ask("/is_paused"), {"is_paused": False})
        self.ask("/server_info?config_format=xml", status=400)

    def test_server_info_shows_flags_and_the_engine(self):
        info = self.ask("/server_info?config_format=json")
        self.assertEqual(info["vllm_config"]["served-model-name"], "m")
        self.assertEqual(info["vllm_config"]["engine.0"]["max_model_len"], 2048)
        self.assertEqual(info["vllm_env"]["VLLM_SERVER_DEV_MODE"], "1")
        self.assertIn("os", info["system_env"])
        self.assertIn("served-model-name=m", self.ask("/server_info")["vllm_config"])


class Guarded(unittest.TestCase):
    def test_without_dev_mode_there_are_no_such_routes(self):
        with Pair(*FLAGS) as server:
            for method, path in ROUTES:
                status, _ = server.post(path, b"") if method == "POST" else server.get(path)
                self.assertEqual(status, 404, path)
            self.assertEqual(server.get("/is_sleeping")[1], b'{"is_sleeping":false}')

    def test_dev_routes_need_the_key_and_do_not_show_it(self):
        with Pair(*FLAGS, "--server-dev-mode", "--api-key", "quiet-word") as server:
            for method, path in ROUTES:
                status, _ = server.post(path, b"") if method == "POST" else server.get(path)
                self.assertEqual(status, 401, path)
            self.assertEqual(server.get("/is_sleeping"), (200, b'{"is_sleeping":false}'))
            status, body = server.get("/server_info", Authorization="Bearer quiet-word")
            self.assertEqual(status, 200)
            self.assertNotIn(b"quiet-word", body)

    def test_a_waiting_pause_does_not_hold_up_the_end(self):
        with Pair(*FLAGS, "--server-dev-mode") as server:
            stream = Stream(server, 1900)
            connection = http.client.HTTPConnection(server.url[7:], timeout=LIMIT)
            connection.request("POST", "/pause?mode=wait")
            wait_for(lambda: json.loads(server.get("/is_paused")[1])["is_paused"], "the pause has begun")
            self.assertEqual(server.stop(), 0)
            stream.close()
            connection.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
