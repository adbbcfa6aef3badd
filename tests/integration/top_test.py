#!/usr/bin/env python3
"""`tandem top`: as plain text, and in a pseudo terminal over a server that works, is gone and comes back."""
import fcntl
import http.server
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import LIMIT, Pair, free_port, wait_for

KEY = "k3y"
STATE = {"version": "9", "model": "far", "uptime_s": 3, "num_requests": 0, "engines": [], "requests": []}


class Screen:
    """`tandem top` in a pseudo terminal; `text` is what a terminal would show."""

    def __init__(self, *flags, rows=24, columns=200, environment=None):
        self.parent, child = pty.openpty()
        self.modes = termios.tcgetattr(child)
        self.raw = b""
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            [pair.bin_dir() / "tandem", "top", "--interval", "0.1", *map(str, flags)], stdin=child, stdout=child,
            stderr=child, env={**os.environ, **(environment or {})},
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
        self.child = child

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        fcntl.ioctl(self.parent, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.parent], [], [], 0)[0]:
            piece = os.read(self.parent, 65536)
            if not piece:
                break
            self.raw += piece

    @property
    def lines(self):
        """Of the newest whole page; a page begins at the top left and ends by clearing what is below."""
        self.read()
        pages = re.findall(rb"\x1b\[H(.*?)\x1b\[J", self.raw, re.S)
        if not pages:
            return []
        return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", pages[-1]).decode().replace("\r", "").split("\n")

    def shows(self, text):
        return any(text in line for line in self.lines)

    def press(self, key):
        os.write(self.parent, key)

    def ended(self):
        """Its status; what it writes meanwhile is read, as a terminal does."""
        def status():
            self.read()
            code = self.process.poll()
            return None if code is None else (code,)
        code = wait_for(status, "top ends")[0]
        self.read()
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.child)
        os.close(self.parent)


def top(*flags, **environment):
    return subprocess.run([pair.bin_dir() / "tandem", "top", *map(str, flags)], capture_output=True, text=True,
                          timeout=LIMIT, env={**os.environ, **environment})


class Fake:
    """A server whose replies the test writes: {path: (status, bytes)}."""

    def __init__(self, replies):
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status, body = fake.replies[self.path]
                self.send_response(status)
                self.send_header("Content-Length", len(body))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        self.replies = replies
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class OverAServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair("--served-model-name", "m", "--enable-dashboard", "--api-key", KEY, "--max-num-seqs", 4,
                          "--server-dev-mode")
        cls.headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_once_prints_a_page_of_plain_text(self):
        self.server.post("/v1/completions", {"model": "m", "prompt": "Once", "max_tokens": 8, "ignore_eos": True},
                         **self.headers)
        wait_for(lambda: self.server.total("vllm:num_requests_running") == 0, "nothing runs")
        done = top("--once", "--url", self.server.url, "--api-key", KEY, "--interval", "0.1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("\x1b", done.stdout)
        self.assertRegex(done.stdout, r"^m  Tandem .*1 of 1 engines ready")
        self.assertRegex(done.stdout, r"\nTokens/s +\d+ generated")
        self.assertRegex(done.stdout, r"\n0 +ready +0 of 4 +0 +\[")

    def test_the_key_may_come_from_the_environment_and_is_asked_for(self):
        done = top("--once", "--url", self.server.url, "--interval", "0.1", TANDEM_API_KEY=KEY)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = top("--once", "--url", self.server.url)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--api-key", done.stderr)

    def test_live_requests_and_the_end(self):
        screen = Screen("--url", self.server.url, environment={"TANDEM_API_KEY": KEY})
        try:
            wait_for(lambda: screen.shows("1 of 1 engines ready"), "a page")
            connections = []
            for i in range(6):
                connection = self.server.connect()
                connection.request("POST", "/v1/completions", json.dumps(
                    {"model": "m", "prompt": f"Tale {i}", "max_tokens": 1500, "ignore_eos": True, "stream": True}),
                    {**self.headers, "X-Request-Id": f"tale-{i}"})
                connections.append(connection)
            wait_for(lambda: sum("decoding" in line for line in screen.lines) == 4, "four requests decode")
            wait_for(lambda: sum(" waiting  " in line and "tale-" in line for line in screen.lines) == 2, "two wait")
            wait_for(lambda: re.search(r"p50 [0-9.]+ m?s", "\n".join(screen.lines)), "percentiles")
            for connection in connections:
                connection.close()
            wait_for(lambda: not screen.shows("tale-"), "no request")
            screen.press(b"q")
            self.assertEqual(screen.ended(), 0)
            # The terminal is as it was: the first screen, the cursor, echo.
            self.assertTrue(screen.raw.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l"), screen.raw[-60:])
            self.assertEqual(termios.tcgetattr(screen.child), screen.modes)
        finally:
            screen.close()

    def test_a_smaller_terminal_shows_what_fits(self):
        screen = Screen("--url", self.server.url, "--interval", 60, "--api-key", KEY)
        try:
            wait_for(lambda: screen.shows("ENGINE"), "a page")
            screen.resize(3, 20)
            wait_for(lambda: len(screen.lines) == 3, "three lines, at once")
            self.assertLessEqual(max(map(len, screen.lines)), 20, screen.lines)
            screen.press(b"\x03")
            self.assertEqual(screen.ended(), 0)
        finally:
            screen.close()


class Servers(unittest.TestCase):
    def setUp(self):
        self.fake = Fake({"/metrics": (200, b""), "/dashboard/state": (200, json.dumps(STATE).encode())})
        self.addCleanup(self.fake.close)

    def test_bad_messages_are_named(self):
        for replies, expected in (
                ({"/dashboard/state": (200, b"<html>")}, "not the state of a Tandem server"),
                ({"/dashboard/state": (404, b"")}, "--enable-dashboard"),
                ({"/metrics": (500, b"")}, "/metrics: HTTP 500")):
            with self.subTest(expected):
                before = dict(self.fake.replies)
                self.fake.replies.update(replies)
                done = top("--once", "--url", self.fake.url, "--interval", "0.1")
                self.fake.replies.update(before)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(expected, done.stderr)

    def test_texts_of_the_server_do_not_command_the_terminal(self):
        evil = {**STATE, "model": "\x1b[2Jevil\x07"}
        self.fake.replies["/dashboard/state"] = (200, json.dumps(evil).encode())
        done = top("--once", "--url", self.fake.url, "--interval", "0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("?[2Jevil?"), done.stdout)

    def test_flags(self):
        self.assertEqual(top("--url", "ftp://x").returncode, 2)
        self.assertEqual(top("--intervall", "3").returncode, 2)
        self.assertEqual(top("--help").returncode, 0)

    def test_a_server_that_is_gone_is_awaited(self):
        screen = Screen("--url", f"http://127.0.0.1:{free_port()}")
        try:
            wait_for(lambda: screen.shows("trying again"), "the problem")
        finally:
            screen.close()
        screen = Screen("--url", self.fake.url)
        try:
            wait_for(lambda: screen.shows("far  Tandem 9"), "a page")
            before = dict(self.fake.replies)
            self.fake.replies["/metrics"] = (503, b"")
            wait_for(lambda: screen.shows("HTTP 503; trying again"), "the problem")
            self.assertTrue(screen.shows("far  Tandem 9"))  # what was known stays
            self.fake.replies.update(before)
            wait_for(lambda: not screen.shows("trying again"), "it goes on")
        finally:
            screen.close()

    def test_q_ends_while_a_server_is_silent(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            screen = Screen("--url", f"http://127.0.0.1:{silent.getsockname()[1]}")
            try:
                silent.settimeout(LIMIT)
                connection = silent.accept()[0]
                connection.recv(100)  # it has asked, and waits
                screen.press(b"q")
                self.assertEqual(screen.ended(), 0)
                connection.close()
            finally:
                screen.close()

    def test_into_a_pipe_one_page_after_another(self):
        process = subprocess.Popen([pair.bin_dir() / "tandem", "top", "--url", self.fake.url, "--interval", "0.1"],
                                   stdout=subprocess.PIPE, text=True)
        try:
            titles = 0
            while titles < 3:
                line = process.stdout.readline()
                self.assertNotIn("\x1b", line)
                titles += line.startswith("far  Tandem 9")
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.close()
            self.assertEqual(process.wait(LIMIT), -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main(verbosity=2)
