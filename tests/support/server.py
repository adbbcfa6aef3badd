"""tandem-frontend with any number of engine cores, without `tandem serve`: for tests that start, kill and stop the
processes themselves."""
import http.client
import json
import os
import pathlib
import resource
import signal
import ssl
import subprocess
import sys
import tempfile

from pair import LIMIT, MODEL, bin_dir, wait_for


class Server:
    """tandem-frontend and its engine cores, each of which the test starts, kills and starts again."""

    def __init__(self, *flags, num_engines=1, engine_flags=(), model=MODEL, environment=None,
                 engine_program="tandem-engine-core", programs=None, max_files=0):
        self.model, self.engine_program, self.max_files = model, engine_program, max_files
        self.programs = programs or bin_dir()
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-resume-")
        self.root = pathlib.Path(self.folder.name)
        self.environment = {"XDG_STATE_HOME": str(self.root / "state"), **(environment or {})}
        self.handshake = f"ipc://{self.root}/wire/handshake"
        self.engine_flags = engine_flags
        self.speaks_tls = "--ssl-certfile" in flags
        self.log = open(self.root / "log", "wb")
        self.frontend = self.run("tandem-frontend", "--served-model-name", "m", "--host", "127.0.0.1", "--port", "0",
                                 "--port-file", self.root / "port", "--data-parallel-size", num_engines, *flags)
        self.engines = [self.start_engine(i) for i in range(num_engines)]
        wait_for(lambda: (self.root / "port").exists(), "the port is open")
        self.port = int((self.root / "port").read_text())
        wait_for(lambda: self.ask("GET", "/health")[0] == 200, "the engines are ready")

    def run(self, program, *flags):
        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if self.max_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.max_files, self.max_files))
        return subprocess.Popen(
            [str(self.programs / program), str(self.model), "--handshake-address", self.handshake, *map(str, flags)],
            stdout=self.log, stderr=self.log, env={**os.environ, **self.environment}, preexec_fn=limit)

    def start_engine(self, index=0):
        return self.run(self.engine_program, "--data-parallel-rank", index, "--kv-cache-memory-bytes", "32M",
                        *self.engine_flags)

    def kill_engine(self, index=0, how=signal.SIGKILL):
        self.engines[index].send_signal(how)
        self.engines[index].wait(LIMIT)

    def restart_engine(self, index=0, how=signal.SIGKILL):
        self.kill_engine(index, how)
        self.engines[index] = self.start_engine(index)

    def connect(self):
        if self.speaks_tls:
            unchecked = ssl._create_unverified_context()
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LIMIT, context=unchecked)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def ask(self, method, path, body=None, **headers):
        """(status, body); (0, b"") when nobody responds."""
        connection = self.connect()
        try:
            connection.request(method, path, body and json.dumps(body),
                               {"Content-Type": "application/json", **headers})
            reply = connection.getresponse()
            self.headers = reply.headers
            return reply.status, reply.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def total(self, name, *labels):
        """Sum of a metric over its series with all these labels (name="value")."""
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if line.startswith(name + "{") and all(label in line for label in labels))

    def outcomes(self):
        names = ("resumed", "aborted", "too_many_restarts", "timeout", "ended_engine", "not_kept")
        counts = {name: self.total("tandem:requests_resumed_total", f'outcome="{name}"') for name in names}
        return {name: count for name, count in counts.items() if count}

    def log_text(self):
        return (self.root / "log").read_text(errors="replace")

    def wait_for_log(self, words):
        """Lines are written by threads of their own, so an answer may come before its line."""
        wait_for(lambda: words in self.log_text(), f"{words!r} in the log")

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        for process in [self.frontend, *self.engines]:
            process.kill()  # also ends one that is stopped
            process.wait()
        self.log.close()
        if failed:
            print(self.log_text()[-20000:], file=sys.stderr)
        self.folder.cleanup()
