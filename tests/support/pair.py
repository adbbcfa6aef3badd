"""Starts `tandem serve` on a free port and waits for conditions, for the integration tests.

Readiness comes the way systemd gets it: READY=1 on NOTIFY_SOCKET. Nothing here sleeps for a fixed
time; `wait_for` checks again until a condition holds or a generous limit has passed.
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "deploy" / "models" / "tandem-tiny"
LIMIT = 300  # seconds; enough for a debug build on a slow and loaded machine

# Under nohup, and in a shell's background, they are ignored, and would be by each process that a test starts.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def bin_dir():
    return pathlib.Path(os.environ["TANDEM_BIN_DIR"])


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(0)


def wait_for(condition, what, limit=LIMIT):
    """Returns the first true value of condition()."""
    pause = threading.Event()
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit} s")
        pause.wait(0.01)


def free_port():
    """A port that is free and stays so: below those that the kernel gives to connections and to `--port 0`, which other
    tests open all the time."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10000, max(low, 20000))
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def child_processes(pid):
    """Direct children of a process: {pid: the words of its command line}."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            for child in task.read_text().split():
                with contextlib.suppress(OSError):  # and so may a child
                    found[int(child)] = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
    return found


def children(pid):
    """Direct children of a process: {command name: pid}."""
    return {os.path.basename(words[0]): child for child, words in child_processes(pid).items()}


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def programs_with_engine(folder, engine):
    """Fills a folder of bin_dir()'s file system with the real command and frontend and an engine core of a test."""
    programs = pathlib.Path(folder)
    for name, source in (("tandem", "tandem"), ("tandem-frontend", "tandem-frontend"), ("tandem-engine-core", engine)):
        os.link(bin_dir() / source, programs / name)
    return programs


class Pair:
    """One `tandem serve`. Use as a context manager; its log is printed when a test fails."""
    host = "127.0.0.1"
    limit = LIMIT  # seconds for a response

    def __init__(self, *flags, model=MODEL, wait=True, programs=None, environment=None):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-test-")
        self.port_file = pathlib.Path(self.folder.name) / "port"
        self.log_path = pathlib.Path(self.folder.name) / "log"
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.folder.name + "/notify")
        self.programs = programs or bin_dir()
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": self.folder.name,
                            "XDG_STATE_HOME": self.folder.name + "/state", **(environment or {})}
        argv = self.command_line("serve", model, "--host", self.host, "--port", "0", "--port-file", self.port_file,
                                 *flags)
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, env={
                **self.environment, "NOTIFY_SOCKET": self.folder.name + "/notify"})
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.__exit__(True)
                raise

    def wait_ready(self):
        def is_ready():
            while select.select([self.notify], [], [], 0)[0]:
                if b"READY=1" in self.notify.recv(4096).split(b"\n"):
                    return True
            assert self.process.poll() is None, f"it ended with status {self.process.returncode}"
            return False
        wait_for(is_ready, "it is ready")

    @property
    def url(self):
        return f"http://{self.host}:{self.port_file.read_text().strip()}"

    def connect(self):
        return http.client.HTTPConnection(self.host, int(self.port_file.read_text()), timeout=LIMIT)

    def command(self, *words):
        """Runs `tandem` with these words, beside the server: the finished process with its output."""
        return subprocess.run(self.command_line(*words), env=self.environment, capture_output=True, text=True,
                              timeout=LIMIT)

    def command_line(self, *words):
        return [str(self.programs / "tandem"), *map(str, words)]

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def write_recording(self, engine):
        """The file that an engine core's flight recorder writes; the log names it when it is whole."""
        os.kill(engine, signal.SIGUSR1)
        return wait_for(lambda: re.search(r"\[flight recorder\] written to (\S+)", self.log), "the recording is written")[1]

    def wait_for_log(self, words):
        """Lines are written by threads of their own, so an answer may come before its line."""
        wait_for(lambda: words in self.log, f"{words!r} in the log")

    def pid_of(self, name):
        return children(self.process.pid).get(name)

    def get(self, path, **headers):
        return self._open(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path, body, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._open(urllib.request.Request(
            self.url + path, data=data, headers={"Content-Type": "application/json", **headers}))

    def _open(self, request):
        """(status, body) whatever the status; (0, b"") when no server responds."""
        try:
            with urllib.request.urlopen(request, timeout=self.limit) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def metrics(self):
        """{series as printed, labels included: value}."""
        status, body = self.get("/metrics")
        assert status == 200, status
        series = {}
        for line in body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                series[name] = float(value)
        return series

    def total(self, name, **labels):
        """Sum of a metric over the series whose labels include the given ones."""
        total, found = 0.0, False
        for series, value in self.metrics().items():
            base, _, rest = series.partition("{")
            if base == name and all(f'{k}="{v}"' in rest for k, v in labels.items()):
                total, found = total + value, True
        assert found, f"no series {name} {labels}"
        return total

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT)

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if failed:
            print(self.log, file=sys.stderr)
        self.notify.close()
        self.folder.cleanup()
