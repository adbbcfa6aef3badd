"""A `tandem serve` of one's own on a UNIX socket in a folder of mode 0700, and requests to it."""
import ctypes
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from typing import Any, Dict, List, Optional

from . import _programs
from ._private_folder import PrivateFolder

_PR_SET_PDEATHSIG = 1
_STOP_TIMEOUT_S = 30.0


class TandemError(Exception):
    """A request that was refused (with its HTTP status), or a server that cannot start or is gone (status 0)."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Server:
    """Ends with close(), or with this process, however that ends. Any thread."""

    def __init__(self, arguments: List[str], ready_timeout_s: float) -> None:
        self._private_folder = PrivateFolder()
        self._folder = self._private_folder.path
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._local = threading.local()
        try:
            self._start(arguments, ready_timeout_s)
        except BaseException:
            self.close()
            raise

    def _start(self, arguments: List[str], ready_timeout_s: float) -> None:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            notify.bind(str(self._folder / "notify"))
            argv = [_programs.program("tandem"), "serve", *arguments, "--uds", str(self._folder / "http")]
            started = threading.Event()
            # The kernel's signal at the parent's death is that of the thread which started the child.
            threading.Thread(target=self._run, args=(argv, started), daemon=True).start()
            started.wait()
            deadline = time.monotonic() + ready_timeout_s
            while True:
                if self._process is None or self._process.poll() is not None:
                    raise TandemError("the server cannot start: " + self._log_tail())
                if time.monotonic() > deadline:
                    raise TandemError(f"the server is not ready within {ready_timeout_s} s: " + self._log_tail())
                if select.select([notify], [], [], 0.2)[0] and b"READY=1" in notify.recv(4096).split(b"\n"):
                    return
        finally:
            notify.close()

    def _run(self, argv: List[str], started: threading.Event) -> None:
        libc = ctypes.CDLL(None)
        try:
            with open(self._folder / "log", "wb") as log:
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                    env=_programs.environment({"NOTIFY_SOCKET": str(self._folder / "notify")}),
                    preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM))
        except OSError as error:
            (self._folder / "log").write_text(str(error))
        started.set()
        if self._process is not None:
            self._process.wait()

    def _log_tail(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-3000:].strip()

    def post(self, path: str, body: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to a request; each thread keeps a connection of its own."""
        connection = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._local.connection = _Connection(str(self._folder / "http"))
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            content = reply.read()
        except (OSError, http.client.HTTPException) as error:
            self._local.connection = None
            raise TandemError(f"the server is gone: {error}") from error
        if reply.status == 200:
            found: Dict[str, Any] = json.loads(content)
            return found
        try:
            message = json.loads(content)["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = content.decode(errors="replace")
        raise TandemError(message, reply.status)

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._private_folder.remove()
