"""Where the wheel's programs are, and the command `tandem` of the environment that it is installed in."""
import os
import pathlib
import sys
from typing import Dict, Optional

FOLDER = pathlib.Path(__file__).resolve().parent


def program(name: str) -> str:
    """TANDEM_BIN_DIR names another build's folder."""
    return str(pathlib.Path(os.environ.get("TANDEM_BIN_DIR") or FOLDER / "bin") / name)


def environment(more: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """This process's, with the libraries that the wheel's programs were linked with."""
    found = {**os.environ, **(more or {})}
    if not os.environ.get("TANDEM_BIN_DIR"):
        found["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(FOLDER / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    return found


def main() -> None:
    path = program("tandem")
    os.execve(path, [path, *sys.argv[1:]], environment())
