#!/usr/bin/env python3
"""What operators do to the processes and see of them: signals, exit statuses, keys, engines that are gone or stopped."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir, children, wait_for
from server import Server

BODY = {"model": "m", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
LONG = {**BODY, "max_tokens": 400, "ignore_eos": True}


def complete(server, body=BODY, **headers):
    return server.ask("POST", "/v1/completions", body, **headers)


class Asking(threading.Thread):
    """A completion that is asked for in a thread of its own."""

    def __init__(self, server, body):
        super().__init__()
        self.server, self.body, self.status, self.text = server, body, None, None
        self.start()

    def run(self):
        self.status, reply = complete(self.server, self.body)
        self.text = json.loads(reply)["choices"][0]["text"] if self.status == 200 else reply

    def wait(self):
        self.join(LIMIT)
        assert not self.is_alive(), "no response"
        return self.status, self.text


class Signals(unittest.TestCase):
    def test_hangup_and_user_signals_end_neither_process(self):
        with Server() as server:
            for process in (server.frontend, server.engines[0]):
                for number in (signal.SIGHUP, signal.SIGUSR1):
                    process.send_signal(number)
            server.engines[0].send_signal(signal.SIGUSR2)  # a frontend hands over then
            # The last one is answered with the state of each process.
            wait_for(lambda: server.log_text().count("[state]") == 2, "both log their state")
            server.wait_for_log("engine 0 ready, 0 in flight")
            wait_for(lambda: re.search(r"\[state\] steps \d+, running 0, waiting 0", server.log_text()), "its counts")
            self.assertEqual(complete(server)[0], 200)
            for process in (server.frontend, server.engines[0]):
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(LIMIT), 0)

    def test_hangup_of_the_command_reaches_the_frontend_and_ends_nothing(self):
        with Pair() as pair:
            pair.process.send_signal(signal.SIGHUP)
            wait_for(lambda: "[reload]" in pair.log, "the frontend reads its keys again")
            pair.process.send_signal(signal.SIGUSR1)
            wait_for(lambda: pair.log.count("[state]") == 2, "both log their state")
            self.assertEqual(pair.get("/health")[0], 200)
            self.assertEqual(pair.stop(), 0)

    def test_signals_that_are_sent_together_are_one(self):
        with Pair("--served-model-name", "m", "--shutdown-timeout", LIMIT) as pair:
            replies = []
            engine = pair.pid_of("tandem-engine-core")
            os.kill(engine, signal.SIGSTOP)  # the request is open until it continues
            asking = threading.Thread(target=lambda: replies.append(pair.post("/v1/completions", LONG)))
            asking.start()
            wait_for(lambda: pair.total("vllm:num_requests_waiting") == 1, "it is sent")
            for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
                pair.process.send_signal(number)
            os.kill(engine, signal.SIGCONT)
            asking.join(LIMIT)
            self.assertEqual(replies[0][0], 200)
            self.assertEqual(pair.process.wait(LIMIT), 0)
            self.assertNotIn("second signal", pair.log)

    def test_requests_outlive_an_engine_that_is_ended_in_order(self):
        with Server() as server:
            body = {**LONG, "max_tokens": 1000}  # none ends before the last one runs
            undisturbed = Asking(server, body).wait()
            asking = [Asking(server, body) for _ in range(3)]
            wait_for(lambda: server.total("vllm:num_requests_running") == 3, "they run")
            server.restart_engine(how=signal.SIGTERM)
            self.assertEqual([each.wait() for each in asking], [undisturbed] * 3)
            self.assertEqual(server.outcomes(), {"resumed": 3})

    def test_signals_to_the_command_end_no_process_that_only_starts(self):
        with Pair(wait=False) as pair:
            wait_for(lambda: children(pair.process.pid), "a process is started")
            starting = threading.Thread(target=pair.wait_ready, daemon=True)
            starting.start()

            def ends_after_signals():
                for number in (signal.SIGHUP, signal.SIGUSR1):
                    pair.process.send_signal(number)
                return not starting.is_alive() or pair.process.poll() is not None

            wait_for(ends_after_signals, "it is ready")
            self.assertIsNone(pair.process.poll())
            self.assertEqual(pair.get("/health")[0], 200)


class LogReaders(unittest.TestCase):
    """A server whose log cannot be written, or is not read."""

    def test_the_server_outlives_who_reads_its_log(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        for log in (os.fdopen(write_end, "wb"), open("/dev/full", "wb")):
            with self.subTest(log.name), log, self.server(log) as server:
                self.lose_an_engine(server, signal.SIGKILL)

    def test_nobody_waits_for_a_reader_that_stops_reading(self):
        read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(write_end, b"\n"):
                pass
        os.set_blocking(write_end, True)
        with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb") as log:
            with self.server(log) as server:
                self.assertEqual(self.status_of(server, "POST", "/v1/completions", BODY), 200)
                self.lose_an_engine(server, signal.SIGABRT)  # which has last words to write
                self.assertEqual(self.status_of(server, "POST", "/v1/completions", BODY), 200)
                lines = threading.Thread(target=lambda: setattr(self, "lines", reader.read().decode()))
                lines.start()
            log.close()
            lines.join()
        self.assertEqual(self.lines.count('"POST /v1/completions HTTP/1.1" 200'), 2, self.lines.strip())
        self.assertIn("Application startup complete.", self.lines)

    def test_a_log_that_is_cut_to_nothing_begins_anew(self):
        with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder, "log"), "wb") as log:
            with self.server(log) as server:
                path = pathlib.Path(log.name)
                wait_for(lambda: b"Application startup complete." in path.read_bytes(), "it has a log")
                os.truncate(path, 0)  # as logrotate's copytruncate does
                self.lose_an_engine(server, signal.SIGKILL)
                self.assertNotIn(b"\0", path.read_bytes())

    def test_a_server_may_be_started_without_standard_files(self):
        with self.server(None) as server:
            for pid in (server.pid, *children(server.pid).values()):
                self.assertEqual([os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)], ["/dev/null"] * 3)

    @contextlib.contextmanager
    def server(self, log):
        def close_standard_files():
            for number in range(3):
                os.close(number)
        with tempfile.TemporaryDirectory() as folder:
            port = pathlib.Path(folder, "port")
            server = subprocess.Popen(
                [bin_dir() / "tandem", "serve", MODEL, "--served-model-name", "m", "--host", "127.0.0.1", "--port", "0",
                 "--port-file", port],
                stdout=log, stderr=log, preexec_fn=None if log else close_standard_files,
                env={**os.environ, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder})
            server.port = port
            try:
                wait_for(port.exists, "the port is open")
                wait_for(lambda: self.status_of(server, "GET", "/health") == 200, "it serves")
                yield server
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(LIMIT), 0)
            finally:
                server.kill()
                server.wait()

    def lose_an_engine(self, server, how):
        engine = children(server.pid)["tandem-engine-core"]
        os.kill(engine, how)
        wait_for(lambda: children(server.pid).get("tandem-engine-core", engine) != engine, "it is started again")
        wait_for(lambda: self.status_of(server, "GET", "/health") == 200, "it serves")

    @staticmethod
    def status_of(server, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", int(server.port.read_text()), timeout=LIMIT)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()


class Shortages(unittest.TestCase):
    """What a host may lack for a while ends no process."""

    def test_an_engine_that_cannot_be_started_now_is_started_later(self):
        with tempfile.TemporaryDirectory(prefix="shortages-", dir=bin_dir()) as folder:
            programs = pathlib.Path(folder)
            for name in ("tandem", "tandem-frontend", "tandem-engine-core"):
                os.link(bin_dir() / name, programs / name)
            with Pair("--served-model-name", "m", programs=programs) as pair:
                engine, away = programs / "tandem-engine-core", programs / "away"
                frontend = pair.pid_of("tandem-frontend")
                engine.rename(away)
                os.kill(pair.pid_of("tandem-engine-core"), signal.SIGKILL)
                wait_for(lambda: f"run {engine}: No such file" in pair.log, "it cannot be started")
                away.rename(engine)
                wait_for(lambda: pair.get("/health")[0] == 200, "it serves again")
                self.assertEqual(pair.pid_of("tandem-frontend"), frontend)

    def test_a_limit_on_the_size_of_files_is_like_a_full_disk(self):
        with Pair("--served-model-name", "m") as pair:
            engine = pair.pid_of("tandem-engine-core")
            resource.prlimit(engine, resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
            self.assertEqual(pair.post("/v1/completions", BODY)[0], 200)
            os.kill(engine, signal.SIGUSR1)
            wait_for(lambda: "File too large" in pair.log, "the recording cannot be written")
            self.assertEqual(pair.post("/v1/completions", BODY)[0], 200)
            self.assertEqual(pair.pid_of("tandem-engine-core"), engine)


class WithoutProc(Server):
    """Its engine core sees an empty folder in place of /proc."""
    SHELL = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")

    @classmethod
    def is_possible(cls):
        return subprocess.run([*cls.SHELL, "true"], capture_output=True).returncode == 0

    def run(self, program, *flags):
        if program != self.engine_program:
            return super().run(program, *flags)
        words = [self.programs / program, self.model, "--handshake-address", self.handshake, *flags]
        return subprocess.Popen([*self.SHELL, *map(str, words)], stdout=self.log, stderr=self.log,
                                env={**os.environ, **self.environment})


class Proc(unittest.TestCase):
    def test_an_engine_serves_where_proc_is_not_mounted(self):
        if not WithoutProc.is_possible():
            self.skipTest("this user may not mount file systems")
        with WithoutProc() as server:
            self.assertEqual(complete(server)[0], 200)


class ExitStatuses(unittest.TestCase):
    def status_of(self, program, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_RUNTIME_DIR": folder}
            return subprocess.run([str(bin_dir() / program), *map(str, arguments)], env=environment, timeout=LIMIT,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode

    def test_a_model_that_cannot_be_loaded_is_3_whoever_finds_it(self):
        with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as half:
            # Neither process can load the second one, for different reasons.
            pathlib.Path(half, "config.json").write_text((MODEL / "config.json").read_text())
            pathlib.Path(half, "tokenizer.json").write_text("{")
            for model in ("/no/such/folder", empty, half):
                for program in ("tandem-frontend", "tandem-engine-core"):
                    with self.subTest(program, model=model):
                        self.assertEqual(self.status_of(program, model), 3)
                for _ in range(3):
                    with self.subTest("tandem serve", model=model):
                        self.assertEqual(self.status_of("tandem", "serve", model, "--port", 0), 3)

    def test_a_bad_command_line_is_2(self):
        for program in (("tandem-frontend",), ("tandem-engine-core",), ("tandem", "serve")):
            for words in ((), (MODEL, "--no-such-flag"), (MODEL, "--log-level", "LOUD")):
                with self.subTest(program, words=words):
                    self.assertEqual(self.status_of(*program, *words), 2)
        for words in (("--api-key-file", "/no/such/file"), ("--settings-file", "/no/such/file"),
                      ("--ssl-certfile", "/no/such/file"),
                      ("--tcp-keys", "/no/such/folder", "--handshake-address", "tcp://127.0.0.1:0")):
            for check in ((), ("--check-config",)):
                self.assertEqual(self.status_of("tandem-frontend", MODEL, *words, *check), 2, words)


class OpenFiles(unittest.TestCase):
    def test_connections_leave_what_an_engine_needs(self):
        patient = ("--http-timeout-head", 600, "--http-timeout-keep-alive", 600)
        with Server(*patient, max_files=160) as server, contextlib.ExitStack() as opened:
            server.wait_for_log("--max-connections is 78, not 16384: this process may have 160 files open")
            connections = [opened.enter_context(socket.create_connection(("127.0.0.1", server.port), LIMIT))
                           for _ in range(200)]
            kept, refused = connections[0], connections[-1]
            self.assertTrue(refused.recv(100).startswith(b"HTTP/1.1 503"))
            server.restart_engine()
            wait_for(lambda: server.log_text().count("Engine core ready") == 2, "an engine comes")
            self.assertIsNone(server.frontend.poll())
            wait_for(lambda: self.asks(kept).startswith(b"HTTP/1.1 200"), "it is met")

    def asks(self, connection):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        return connection.recv(4096)

    def test_too_few_for_one_connection_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(["prlimit", "--nofile=80", bin_dir() / "tandem-frontend", MODEL], capture_output=True,
                                 text=True, timeout=LIMIT, env={**os.environ, "XDG_RUNTIME_DIR": folder})
        self.assertEqual(run.returncode, 1)
        self.assertIn("may have 80 files open, and needs 82 besides", run.stdout + run.stderr)


class Keys(unittest.TestCase):
    def shown(self, pid):
        """What other programs of the same user can read about a process."""
        return b"".join(pathlib.Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))

    def test_keys_are_in_no_command_line_and_no_environment(self):
        server = Server("--api-key", "secret-a", "secret-b", "--port", "0", environment={"VLLM_API_KEY": "secret-c"})
        with server:
            self.assertEqual(complete(server, Authorization="Bearer secret-a")[0], 200)
            self.assertEqual(complete(server, Authorization="Bearer secret-b")[0], 200)
            self.assertEqual(complete(server, Authorization="Bearer secret-c")[0], 401)  # the flag has precedence
            self.assertNotIn(b"secret", self.shown(server.frontend.pid))
        with Server() as server:
            server.wait_for_log("no API key: every client is served")
        with Server(environment={"TANDEM_API_KEY": "secret-d"}) as server:
            self.assertEqual(complete(server)[0], 401)
            self.assertEqual(complete(server, Authorization="Bearer secret-d")[0], 200)
            self.assertNotIn(b"secret", self.shown(server.frontend.pid))

    def test_the_command_passes_them_on_unseen(self):
        with Pair("--served-model-name", "m", "--api-key", "secret-a", "secret-b", "--max-num-seqs", 4) as pair:
            for key in ("secret-a", "secret-b"):
                self.assertEqual(pair.post("/v1/completions", BODY, Authorization=f"Bearer {key}")[0], 200)
            self.assertEqual(pair.post("/v1/completions", BODY)[0], 401)
            for pid in (pair.process.pid, pair.pid_of("tandem-frontend"), pair.pid_of("tandem-engine-core")):
                self.assertNotIn(b"secret", self.shown(pid))

    def test_keys_share_no_cached_prefix(self):
        body = {"model": "m", "prompt": list(range(40, 104)), "max_tokens": 1}
        def cached(server, key, **extra):
            status, reply = server.post("/v1/completions", dict(body, **extra), Authorization=f"Bearer {key}")
            self.assertEqual(status, 200, reply)
            return json.loads(reply)["usage"]["prompt_tokens_details"]["cached_tokens"]
        with Pair("--served-model-name", "m", "--api-key", "a", "b", "--enable-prompt-tokens-details", "--cache-salt-by-api-key",
                  "--max-num-seqs", 4) as server:
            self.assertEqual([cached(server, key) > 0 for key in "abab"], [False, False, True, True])
            self.assertEqual([cached(server, "a", cache_salt=salt) > 0 for salt in "xyx"], [False, False, True])
        refused = subprocess.run([bin_dir() / "tandem", "serve", MODEL, "--cache-salt-by-api-key"], capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("--cache-salt-by-api-key needs --api-key", refused.stderr)

    def test_hangup_reads_the_key_file_again(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "keys")
            file.write_text("old\nboth\n")
            with Server("--api-key-file", file) as server:
                server.wait_for_log("API keys: 2")
                def accepted():
                    return {key for key in ("old", "both", "new")
                            if complete(server, Authorization=f"Bearer {key}")[0] == 200}
                self.assertEqual(accepted(), {"old", "both"})
                file.write_text("# from today on\nboth\nnew\n")
                server.frontend.send_signal(signal.SIGHUP)
                wait_for(lambda: accepted() == {"both", "new"}, "the new keys count")
                def refused(words):
                    server.frontend.send_signal(signal.SIGHUP)
                    wait_for(lambda: f"everything stays as it was: --api-key-file: {file}: {words}" in server.log_text(),
                             "it is refused")
                    self.assertEqual(accepted(), {"both", "new"})

                # A file without keys must not open the server, nor one of zeros, as a crash leaves it, lock all out.
                file.write_text("")
                refused("has no key")
                file.write_bytes(b"old\n" + bytes(100))
                refused("line 2: no header can carry such a key")
                # Nobody waits for one who writes.
                file.unlink()
                os.mkfifo(file)
                refused("is no file, and is not read again")

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_hangup_reads_certificates_again(self):
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = (pathlib.Path(folder, name) for name in ("cert.pem", "key.pem"))

            def make():
                subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
                                "/CN=localhost", "-keyout", key, "-out", certificate], check=True, capture_output=True)
                return certificate.read_text()

            first = make()
            with Server("--ssl-certfile", certificate, "--ssl-keyfile", key) as server:
                def shown():
                    return ssl.get_server_certificate(("127.0.0.1", server.port))
                self.assertEqual(shown(), first)
                old = ssl._create_unverified_context().wrap_socket(
                    socket.create_connection(("127.0.0.1", server.port), LIMIT))
                second = make()
                server.frontend.send_signal(signal.SIGHUP)
                wait_for(lambda: shown() == second, "new connections get the new certificate")
                with old:  # goes on with the old one
                    old.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                    self.assertTrue(old.recv(100).startswith(b"HTTP/1.1 "))
                key.write_text("no key")
                server.frontend.send_signal(signal.SIGHUP)
                wait_for(lambda: "everything stays as it was: --ssl-keyfile" in server.log_text(), "it is refused")
                self.assertEqual(shown(), second)

    def test_hangup_reads_the_settings_file_again(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "settings")
            file.write_text("log-level: ERROR\n")
            with Server("--settings-file", file, "--max-num-queued-reqs", "100") as server:
                self.assertEqual(complete(server)[0], 200)
                self.assertNotIn("APIServer pid=%d) INFO" % server.frontend.pid, server.log_text())
                file.write_text("# a quiet night\nlog-level: INFO\nmax-num-queued-reqs: 1\nrequest-timeout: 15\n")
                server.frontend.send_signal(signal.SIGHUP)
                wait_for(lambda: "[reload] API keys" in server.log_text(), "it is read again")
                wait_for(lambda: "[reload] log level INFO" in server.log_text(), "the engine core follows")
                self.assertEqual(complete(server)[0], 200)
                server.wait_for_log("request finished")
                server.engines[0].send_signal(signal.SIGSTOP)
                waiting = Asking(server, LONG)
                wait_for(lambda: server.total("vllm:num_requests_waiting") == 1, "it waits")
                self.assertEqual(complete(server)[0], 503)
                self.assertEqual(waiting.wait()[0], 504)
                server.engines[0].send_signal(signal.SIGCONT)
                for text, words in (("port: 1\n", "line 1: --port is for the command line only"),
                                    ("log-level: INFO\nmax-ttft: soon\n", "line 2: --max-ttft is 'soon'")):
                    file.write_text(text)
                    server.frontend.send_signal(signal.SIGHUP)
                    wait_for(lambda: words in server.log_text(), "it is refused")
                file.unlink()
                server.frontend.send_signal(signal.SIGHUP)
                wait_for(lambda: "No such file" in server.log_text(), "it is refused")
                self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_what_routers_poll_needs_no_key(self):
        with Server("--api-key", "k") as server:
            for path in ("/health", "/ready", "/version", "/load", "/metrics", "/is_sleeping", "/kv_event_sources"):
                self.assertEqual(server.ask("GET", path)[0], 200, path)
            self.assertEqual(server.ask("POST", "/tokenize", {"prompt": "a"})[0], 200)
            self.assertEqual(server.ask("POST", "/detokenize", {"tokens": [5]})[0], 200)
            for path in ("/v1/completions", "/invocations", "/inference/v1/generate"):
                self.assertEqual(server.ask("POST", path, BODY)[0], 401, path)
            self.assertEqual(server.ask("GET", "/v1/models")[0], 401)


class OneOfTwoEngines(unittest.TestCase):
    def test_a_dead_one_does_not_make_the_service_unhealthy(self):
        with Server("--served-model-name", "m", num_engines=2) as server:
            server.kill_engine(1)
            wait_for(lambda: "engine 1 " in server.log_text(), "the death is noticed")
            for path in ("/health", "/ready", "/v1/models"):
                self.assertEqual(server.ask("GET", path)[0], 200, path)
            self.assertEqual(complete(server)[0], 200)
            server.kill_engine(0)
            for path in ("/health", "/ready", "/v1/models"):
                wait_for(lambda: server.ask("GET", path)[0] == 503, path)
            server.engines[1] = server.start_engine(1)
            wait_for(lambda: server.ask("GET", "/health")[0] == 200, "one serves again")
            self.assertEqual(complete(server)[0], 200)

    def test_requests_of_a_stopped_one_go_on_with_the_other(self):
        with Server("--served-model-name", "m", "--engine-hang-timeout", "4", num_engines=2) as server:
            expected = Asking(server, LONG).wait()
            self.assertEqual(expected[0], 200)
            server.engines[0].send_signal(signal.SIGSTOP)
            # Both engines get some.
            asking = [Asking(server, LONG) for _ in range(4)]
            for each in asking:
                self.assertEqual(each.wait(), expected)
            self.assertEqual(set(server.outcomes()), {"resumed"})
            server.wait_for_log("engine 0 has not answered for")
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            server.engines[0].send_signal(signal.SIGCONT)
            wait_for(lambda: "engine 0 is back" in server.log_text(), "it is back")
            # It has dropped what others finished meanwhile, and takes requests.
            asking = [Asking(server, BODY) for _ in range(4)]
            self.assertEqual({each.wait()[0] for each in asking}, {200})


class OneStoppedEngine(unittest.TestCase):
    def test_requests_do_not_wait_for_ever(self):
        with Server("--served-model-name", "m", "--engine-hang-timeout", "4", "--resume-timeout", "1") as server:
            server.engines[0].send_signal(signal.SIGSTOP)
            status, text = Asking(server, LONG).wait()
            self.assertEqual(status, 503, text)
            self.assertIn(b"has not answered", text)
            self.assertEqual(server.ask("GET", "/health")[0], 503)
            self.assertEqual(complete(server)[0], 503)
            server.engines[0].send_signal(signal.SIGCONT)
            wait_for(lambda: server.ask("GET", "/health")[0] == 200, "it is healthy again")
            self.assertEqual(complete(server)[0], 200)


if __name__ == "__main__":
    unittest.main(verbosity=2)
