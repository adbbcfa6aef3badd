#!/usr/bin/env python3
"""build_wheel.py PROGRAMS OUT: the wheel tandem-serve with the programs of folder PROGRAMS and the libraries that they
are linked with, except glibc and the compiler's, which every Linux of its age has. Needs pip and PyPI (pyproject.toml)."""
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

NAMES = ("tandem", "tandem-bench", "tandem-hub", "tandem-offline", "tandem-frontend", "tandem-engine-core", "tandem-grammar",
         "tandem-media")
SYSTEM = re.compile(r"(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libgcc_s|libstdc\+\+|linux-vdso)[-.]")


def libraries(program):
    """{name: path} of what the loader would load for it."""
    lines = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^\s*(\S+) => (\S+) \(", lines, re.M))
    return {name: path for name, path in found.items() if not SYSTEM.match(name)}


def main(programs, out):
    source = pathlib.Path(__file__).resolve().parent
    libc, version = platform.libc_ver()
    tag = f"manylinux_{version.replace('.', '_')}_{platform.machine()}" if libc == "glibc" else f"linux_{platform.machine()}"
    with tempfile.TemporaryDirectory(prefix="tandem-wheel-") as folder:
        stage = pathlib.Path(folder, "stage")
        shutil.copytree(source, stage, ignore=shutil.ignore_patterns("__pycache__", "build_wheel.py"))
        for name in ("bin", "lib"):
            (stage / "tandem" / name).mkdir()
        for name in NAMES:
            program = pathlib.Path(programs, name)
            if name == "tandem-grammar" and not program.exists():
                continue
            subprocess.run(["strip", "-o", stage / "tandem/bin" / name, program], check=True)
            (stage / "tandem/bin" / name).chmod(0o755)
            for library, path in libraries(program).items():
                shutil.copy(path, stage / "tandem/lib" / library)
        (stage / "setup.cfg").write_text(f"[bdist_wheel]\npython_tag = py3\nplat_name = {tag}\n")
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--disable-pip-version-check",
                        "-w", out, stage], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
