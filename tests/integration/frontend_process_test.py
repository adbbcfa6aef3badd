#!/usr/bin/env python3
"""tandem-frontend as a process: how it starts, refuses, drains and ends; several network threads; the metrics
of preempted and cached requests. The engine makes up its tokens."""
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
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from api_test import MODEL, Frontend, long_stream, openai
from pair import LIMIT, bin_dir, wait_for


def run(*flags):
    """(exit code, log) of a frontend that is expected to exit by itself."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([str(bin_dir() / "tandem-frontend"), "--handshake-address", f"ipc://{folder}/h", *flags],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        return done.returncode, done.stdout


class Refusals(unittest.TestCase):
    def test_a_port_in_use_is_named_and_the_exit_code_is_1(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1])
            code, log = run(str(MODEL), "--host", "127.0.0.1", "--port", port)
        self.assertEqual(code, 1)
        self.assertIn(port, log)
        self.assertIn("in use", log)

    def test_bad_command_lines_are_exit_code_2_with_a_hint(self):
        for flags, words in (([], "model"), ([str(MODEL), "--max-conections", "5"], "--max-connections"),
                             ([str(MODEL), "--port", "99999"], "port")):
            with self.subTest(flags):
                code, log = run(*flags)
                self.assertEqual(code, 2)
                self.assertIn(words, log)

    def test_a_folder_that_is_no_model_is_refused_by_file_name(self):
        code, log = run("/no/such/model")
        self.assertEqual(code, 3)
        self.assertIn("/no/such/model", log)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text("{}")
            code, log = run(folder, "--port", "0", "--host", "127.0.0.1")
            self.assertEqual(code, 3)
            self.assertIn("tokenizer.json", log)
            pathlib.Path(folder, "tokenizer.json").write_text('{"model": ')
            code, log = run(folder, "--port", "0", "--host", "127.0.0.1")
            self.assertEqual(code, 3)
            self.assertIn("tokenizer.json", log)

    def test_a_folder_in_place_of_a_file_is_reported_as_one(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text("{}")
            pathlib.Path(folder, "tokenizer.json").mkdir()
            code, log = run(folder, "--port", "0", "--host", "127.0.0.1")
            self.assertEqual(code, 3)
            self.assertIn("tokenizer.json: is a folder, not a file", log)
            code, log = run(str(MODEL), "--port", "0", "--host", "127.0.0.1", "--chat-template", folder)
            self.assertEqual(code, 3)
            self.assertIn(f"{folder}: is a folder, not a file", log)

    def test_a_flag_without_its_value_is_named(self):
        for flags in (["--port"], ["--port="], ["--port", "--host", "127.0.0.1"]):
            with self.subTest(flags):
                code, log = run(str(MODEL), *flags)
                self.assertEqual(code, 2)
                self.assertIn("--port needs a value", log)

    def test_tls_files_that_do_not_fit_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "text")
            text.write_text("no certificate")
            for path, words in (("/no/such.pem", "No such file"), (folder, "is a folder"), (str(text), "is not a PEM file")):
                code, log = run(str(MODEL), "--port", "0", "--host", "127.0.0.1", "--ssl-certfile", path)
                self.assertEqual(code, 2)
                self.assertIn(f"--ssl-certfile: {path}: {words}", log)

    def test_help_lists_every_flag(self):
        code, text = run("--help")
        self.assertEqual(code, 0)
        for flag in ("--host", "--port", "--api-key", "--served-model-name", "--ssl-certfile", "--shutdown-timeout"):
            self.assertIn(flag, text)


class Hangs(unittest.TestCase):
    def test_a_stopped_engine_is_not_healthy_until_it_continues(self):
        with Frontend("--engine-hang-timeout", "5") as server:
            for _ in range(3):
                self.assertEqual(server.get("/health")[0], 200)
            server.engine.send_signal(signal.SIGSTOP)
            try:
                wait_for(lambda: server.get("/health")[0] == 503, "the hang is noticed")
                self.assertIn(b"has not answered", server.get("/health")[1])
                self.assertEqual(server.get("/ready")[0], 503)
            finally:
                server.engine.send_signal(signal.SIGCONT)
            wait_for(lambda: server.get("/health")[0] == 200, "it is healthy again")


def idle_connection(address):
    """One that has had a response: a drain closes it at once, a new one may still send its first request."""
    connection = http.client.HTTPConnection(*address, timeout=LIMIT)
    connection.request("GET", "/version")
    connection.getresponse().read()
    return connection.sock


class Activation(unittest.TestCase):
    def serve(self, listener, folder, *flags):
        return subprocess.Popen(
            ["/bin/sh", "-c", 'exec env LISTEN_PID=$$ LISTEN_FDS=1 "$@"', "sh", str(bin_dir() / "tandem-frontend"),
             str(MODEL), "--port", "1", "--handshake-address", f"ipc://{folder}/wire/handshake", *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            preexec_fn=lambda: (os.dup2(listener.fileno(), 3), os.set_inheritable(3, True)))

    def test_a_socket_that_systemd_opened_is_served(self):
        with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryDirectory() as folder:
            port = listener.getsockname()[1]
            frontend = self.serve(listener, folder)
            try:
                # Clients that connect before it listens wait in the socket's queue.
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/version", timeout=LIMIT) as reply:
                    self.assertEqual(reply.status, 200)
                frontend.send_signal(signal.SIGTERM)
                self.assertEqual(frontend.wait(LIMIT), 0)
            finally:
                frontend.kill()
                frontend.wait()

    def test_connections_made_during_a_drain_wait_for_the_next_process(self):
        with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryDirectory() as folder:
            listener.settimeout(LIMIT)
            frontend = self.serve(listener, folder, "--shutdown-timeout", "600")
            try:
                with socket.create_connection(listener.getsockname(), LIMIT) as asking, \
                        idle_connection(listener.getsockname()) as idle:
                    # Its body has not arrived, so the drain waits for it.
                    asking.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                                   b"Expect: 100-continue\r\n\r\n")
                    self.assertIn(b"100 Continue", asking.recv(100))
                    frontend.send_signal(signal.SIGTERM)
                    self.assertEqual(idle.recv(1), b"")  # the drain has begun
                    with socket.create_connection(listener.getsockname(), LIMIT) as late:
                        late.sendall(b"for the next")
                        following, _ = listener.accept()
                        with following:
                            self.assertEqual(following.recv(100), b"for the next")
                    asking.sendall(b"{}")
                    self.assertIn(b" 503 ", asking.recv(100))
                self.assertEqual(frontend.wait(LIMIT), 0)
            finally:
                frontend.kill()
                frontend.wait()


class Ends(unittest.TestCase):
    def test_term_lets_running_streams_end_and_exits_0(self):
        def post(port, **fields):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
            connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "x", **fields}),
                               {"Content-Type": "application/json"})
            return connection

        with Frontend("--shutdown-timeout", "60") as server:
            port = int(server.port_file.read_text())
            server.engine.send_signal(signal.SIGSTOP)  # running requests stay open until the engine continues
            stream = post(port, max_tokens=100, stream=True)
            wait_for(lambda: server.total("vllm:num_requests_waiting") == 1, "the request is sent")
            with idle_connection(("127.0.0.1", port)) as idle:
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(idle.recv(1), b"")  # an idle connection is closed at once
            # New connections, as probes and balancers make them.
            self.assertEqual(server.get("/health")[0], 200)
            self.assertEqual(server.get("/ready")[0], 503)
            self.assertEqual(server.total("vllm:request_success_total"), 0)
            refused = post(port).getresponse()
            self.assertEqual(refused.status, 503)
            self.assertEqual(refused.headers["retry-after"], "1")
            self.assertEqual(refused.headers["connection"], "close")
            self.assertIn(b"shutting down", refused.read())
            server.engine.send_signal(signal.SIGCONT)
            events = stream.getresponse().read()
            self.assertIn(b'"finish_reason":"length"', events)
            self.assertTrue(events.endswith(b"data: [DONE]\n\n"))
            # Requests without a pause do not keep it alive; its port is free afterwards.
            while server.get("/ready")[0] != 0:
                pass
            self.assertEqual(server.process.wait(LIMIT), 0)
            socket.create_server(("127.0.0.1", port)).close()

    def test_at_timeout_0_or_a_second_signal_running_requests_get_an_error_and_are_aborted(self):
        def ask(server, refused):
            try:
                server.client().completions.create(model="m", prompt="x", max_tokens=4000)
            except openai.APIStatusError as error:
                refused.append((error.status_code, error.body["message"]))

        for timeout, signals in (("0", 1), ("600", 2)):
            with self.subTest(timeout), Frontend("--shutdown-timeout", timeout,
                                                 engine=("--tokens-per-second", "50")) as server:
                stream = long_stream(server)
                next(iter(stream))
                refused = []
                asking = threading.Thread(target=ask, args=(server, refused))
                asking.start()
                wait_for(lambda: len(server.received(0)) == 2, "the engine has both")
                server.process.send_signal(signal.SIGTERM)
                if signals == 2:
                    wait_for(lambda: "[shutdown]" in server.log, "the first signal was seen")
                    server.process.send_signal(signal.SIGINT)
                with self.assertRaisesRegex(openai.APIError, "shutting down"):
                    for _ in stream:
                        pass
                asking.join()
                self.assertEqual(refused, [(503, "the server is shutting down")])
                self.assertEqual(server.process.wait(LIMIT), 0)
                wait_for(lambda: server.received(1), "the engine got the abort")

    def test_each_choice_of_a_killed_engine_counts_as_an_error(self):
        with Frontend(engine=("--tokens-per-second", "50")) as server:
            stream = long_stream(server, n=3)
            seen = set()
            while len(seen) < 3:
                seen.add(next(stream).choices[0].index)
            server.engine.kill()
            with self.assertRaises(openai.APIError):
                for _ in stream:
                    pass
            wait_for(lambda: server.total("vllm:request_success_total", finished_reason="error") == 3, "each is counted")
            self.assertEqual(server.total("vllm:request_success_total"), 3)

    def test_the_log_has_the_lines_that_people_look_for(self):
        with Frontend() as server:
            port = server.port_file.read_text().strip()
            for words in ("Available routes are:", "Route: /v1/chat/completions, Methods: POST",
                          f"Tandem frontend listening on http://127.0.0.1:{port}", "Application startup complete."):
                server.wait_for_log(words)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(LIMIT), 0)

    def test_probes_leave_no_line_in_the_log(self):
        with Frontend() as server:
            probes = ("/health", "/ready", "/metrics", "/version")
            for path in (*probes, "/v1/models"):
                self.assertEqual(server.get(path)[0], 200)
            wait_for(lambda: '"GET /v1/models HTTP/1.1" 200' in server.log, "the others have one")
            for path in probes:
                self.assertNotIn(f'"GET {path} ', server.log)


class Serves(unittest.TestCase):
    def ask(self, server, count, **fields):
        client = server.client()
        threads = [threading.Thread(target=client.completions.create, kwargs=dict(
            model="m", prompt="one two three", max_tokens=5, **fields)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_three_network_threads_share_one_metrics_page(self):
        with Frontend("--api-server-count", "3") as server:
            self.assertEqual(len([t for t in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/comm")
                                  if t.read_text().startswith("shard-")]), 3)
            self.ask(server, 12)
            # Another thread shows the page, maybe before the one that has sent a response counts it.
            wait_for(lambda: server.total("http_requests_total", handler="/v1/completions") == 12, "all are counted")
            self.assertEqual(server.total("vllm:request_success_total"), 12)
            self.assertEqual(server.total("vllm:generation_tokens_total"), 60)
            self.assertEqual(server.total("vllm:e2e_request_latency_seconds_count"), 12)

    def test_preempted_and_cached_requests_are_counted_as_such(self):
        with Frontend() as server:
            self.ask(server, 1, extra_body={"vllm_xargs": {"mock_preempt": 1, "mock_cached": 2}})
            self.assertEqual(server.total("vllm:num_preemptions_total"), 1)
            self.assertEqual(server.total("vllm:request_num_preemptions_sum"), 1)
            prompt = server.total("vllm:prompt_tokens_total")
            self.assertEqual(server.total("vllm:prompt_tokens_by_source_total", source="local_cache_hit"), 2)
            self.assertEqual(server.total("vllm:prompt_tokens_by_source_total", source="local_compute"), prompt - 2)
            self.assertEqual(server.total("vllm:request_prefill_kv_computed_tokens_sum"), prompt - 2)

    def test_guarded_routes_need_one_of_the_keys(self):
        with Frontend("--api-key", "a", "--api-key", "b") as server:
            body = {"model": "m", "prompt": "x", "max_tokens": 1}
            self.assertEqual(server.post("/v1/completions", body)[0], 401)
            self.assertEqual(server.get("/v1/models", Authorization="Bearer c")[0], 401)
            for key in "ab":
                self.assertEqual(server.post("/v1/completions", body, Authorization=f"Bearer {key}")[0], 200)
            self.assertEqual(server.get("/metrics")[0], 200)

    def test_statistics_can_be_turned_off(self):
        with Frontend("--disable-log-stats") as server:
            self.ask(server, 1)
            self.assertFalse([name for name in server.metrics() if name.startswith("vllm:")])

    def test_an_idle_frontend_sleeps(self):
        with Frontend() as server:
            stat = pathlib.Path(f"/proc/{server.process.pid}/stat")

            def ticks():
                fields = stat.read_text().rsplit(")", 1)[1].split()
                return int(fields[11]) + int(fields[12])
            def sleeps_for_2_s():
                before = ticks()
                with self.assertRaises(subprocess.TimeoutExpired):
                    server.process.wait(2)
                return ticks() - before <= 0.02 * 2 * os.sysconf("SC_CLK_TCK")
            wait_for(sleeps_for_2_s, "what it does after its start is over, and it sleeps")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=2)
