#!/usr/bin/env python3
"""deploy/ray/serve_app.py in a real Ray Serve on this host. TANDEM_RAY names a Python that has ray[serve], else build/ray has one:
  python3 -m venv build/ray && build/ray/bin/pip install 'ray[serve]==2.60.0'

Usage: ray_test.py [unittest arguments]
"""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import MODEL, ROOT, bin_dir, free_port, is_alive, wait_for

PYTHON = pathlib.Path(os.environ.get("TANDEM_RAY") or ROOT / "build" / "ray" / "bin" / "python3")
if not PYTHON.exists():
    pair.skip(f"{PYTHON} is not there; tests/integration/ray_test.py has the command")
LIMIT = 180  # Ray takes its time to start

DRIVER = """
import sys
import ray
from ray import serve
import serve_app
ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, object_store_memory=80 << 20)
try:
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
except TimeoutError:  # of a busy host: what it has begun goes on
    serve.start()
serve.run(serve_app.app({"model": sys.argv[2], "flags": sys.argv[3], "program": sys.argv[4]}))
print("READY", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""


def processes(program):
    """Pids of the processes of a program."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].decode(errors="replace") == str(program):
            found.append(int(folder.name))
    return found


class RayServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tdr-"))
        cls.port = free_port()
        # A name that no other test's server has.
        program = pathlib.Path(folder) / "tandem"
        program.symlink_to(bin_dir() / "tandem")
        cls.program = program
        cls.log = open(pathlib.Path(folder) / "log", "w+")
        flags = "--served-model-name m --threads 1 --kv-cache-memory-bytes 16M --shutdown-timeout 0 --server-dev-mode"
        cls.driver = subprocess.Popen(
            [PYTHON, "-c", DRIVER, str(cls.port), MODEL, flags, program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=cls.log, text=True,
            env={**os.environ, "RAY_TMPDIR": folder, "TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0",
                 "PYTHONPATH": str(ROOT / "deploy" / "ray"),  # of the actors, too
                 # A busy host is slow to start them.
                 "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60"})
        cls.addClassCleanup(cls.end)
        while line := cls.driver.stdout.readline():
            if line.strip() == "READY":
                return
        cls.log.seek(0)
        raise AssertionError(cls.log.read()[-5000:])

    @classmethod
    def end(cls):
        servers = processes(cls.program)
        cls.driver.stdin.close()
        cls.driver.wait(LIMIT)
        cls.driver.stdout.close()
        cls.log.close()
        wait_for(lambda: not any(map(is_alive, servers)), "the server has ended with its replica", LIMIT)

    def setUp(self):
        self.connections = []

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        self.addCleanup(connection.close)
        self.connections.append(connection)
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **headers})
        return connection.getresponse()

    def test_responses_errors_and_headers_pass_through(self):
        models = self.ask("GET", "/v1/models")
        self.assertEqual((models.status, json.loads(models.read())["data"][0]["id"]), (200, "m"))
        body = {"model": "m", "prompt": "A fox", "max_tokens": 5, "temperature": 0}
        reply = self.ask("POST", "/v1/completions", body, **{"X-Request-Id": "mine"})
        self.assertEqual(reply.status, 200)
        self.assertEqual(json.loads(reply.read())["usage"]["completion_tokens"], 5)
        refused = self.ask("POST", "/v1/completions", {**body, "max_tokens": -1})
        self.assertEqual(refused.status, 400)
        self.assertIn("max_tokens", json.loads(refused.read())["error"]["message"])
        self.assertEqual(self.ask("GET", "/metrics").status, 200)

    def test_a_stream_comes_piece_by_piece(self):
        body = {"model": "m", "prompt": "A fox", "max_tokens": 300, "ignore_eos": True, "stream": True}
        reply = self.ask("POST", "/v1/completions", body)
        self.assertEqual(reply.getheader("content-type").split(";")[0], "text/event-stream")
        self.assertTrue(reply.readline().startswith(b"data: "))
        rest = reply.read().splitlines()
        self.assertEqual(rest[-2], b"data: [DONE]")

    def test_a_client_that_leaves_ends_its_request(self):
        body = {"model": "m", "prompt": "A fox", "max_tokens": 1900, "ignore_eos": True, "stream": True}
        reply = self.ask("POST", "/v1/completions", body)
        self.assertTrue(reply.readline().startswith(b"data: "))
        self.assertEqual(self.ask("POST", "/pause?mode=keep").status, 200)  # or it might be over before
        self.addCleanup(self.ask, "POST", "/resume")
        reply.close()
        self.connections[0].close()

        def aborted():
            lines = self.ask("GET", "/metrics").read().decode().splitlines()
            return any('finished_reason="abort"' in line and line.split()[-1] != "0.0" for line in lines
                       if line.startswith("vllm:request_success_total"))
        wait_for(aborted, "the engine has dropped it")

    def test_a_replica_whose_server_dies_is_replaced(self):
        server, = processes(self.program)
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: [pid for pid in processes(self.program) if pid != server], "another server starts", LIMIT)
        wait_for(lambda: self.ask("GET", "/health").status == 200, "and serves", LIMIT)


if __name__ == "__main__":
    unittest.main(verbosity=2)
