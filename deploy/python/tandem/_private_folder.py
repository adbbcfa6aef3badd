"""A folder of mode 0700 that goes with the process. What a process that was killed has left is removed by the next one
of the same user: a file in each folder is locked as long as its owner lives."""
import fcntl
import os
import pathlib
import stat
import tempfile
from typing import IO

_PREFIX = "tandem-llm-"
_LOCK = "lock"


def _remove(folder: pathlib.Path) -> None:
    """The lock last: a folder that has one can be removed by the next process if this one ends here."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == _LOCK):
        path.unlink(missing_ok=True)
    folder.rmdir()


def _remove_dead() -> None:
    for folder in pathlib.Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        try:
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            with open(folder / _LOCK, "rb+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
        except OSError:  # its owner lives, or it is another's
            continue


class PrivateFolder:
    def __init__(self) -> None:
        _remove_dead()
        while True:
            self.path = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock: IO[bytes] = open(self.path / _LOCK, "xb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.fstat(self._lock.fileno()).st_nlink > 0:
                return
            self._lock.close()  # another process has taken the folder for one that was left

    def remove(self) -> None:
        """A second time does nothing."""
        try:
            _remove(self.path)
        except OSError:
            pass
        self._lock.close()
