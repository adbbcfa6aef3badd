#!/usr/bin/env python3
"""clang-tidy with the checks of .clang-tidy over what differs from main, over files, or over the whole tree.

    tests/tidy/clang_tidy.py [--all | FILE …] [--minutes N]

A header is checked through the source of its name. A source that is clean is not examined again until something changes that
its findings depend on: its bytes, those of the files that it includes, its compile command, .clang-tidy or the tool. Ninja
knows what a compiled source includes; one that was not compiled is examined each time. Clean sources are remembered in
~/.cache/tandem/clang-tidy, by hash.

--minutes (TANDEM_TIDY_MINUTES): begins no further source after so much CPU time and prints how many are left; those that
changed last come first. 0: no limit.
BUILD names the build folder (build/dev), JOBS how many run at once. Exit status 1 on any finding.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKED = re.compile(r"(common|proto_msgpack|frontend|engine_core|kernels|grammar|media|gguf|pooling|deploy/cli)/.*\.cc$")
KEPT_DAYS = 30  # a clean source that nobody asked for that long is forgotten


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.splitlines()


# ---- What is checked, in which order ----


def sources_apart(entry):
    """An entry for each source that this one's file includes, where it unites several (preset ci); else the entry."""
    united = os.path.join(entry["directory"], entry["file"])
    if "/Unity/unity_" not in united:
        return [entry]
    sources = re.findall(r'^#include "(.*\.cc)"$', pathlib.Path(united).read_text(), re.MULTILINE)
    return [{**entry, "file": source, "command": entry["command"].replace(f" -c {entry['file']}", f" -c {source}")}
            for source in sources]


def compile_commands(build):
    """{source, from the root: entry}: the sources that this build compiles; the CUDA backend is not everywhere."""
    commands = {}
    for united in json.loads((build / "compile_commands.json").read_text()):
        for entry in sources_apart(united):
            path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT)
            if CHECKED.match(path):
                commands[path] = entry
    return commands


def write_for_clang(commands, folder):
    """A compilation database of these entries, without gcc's precompiled headers (preset ci), which clang cannot read."""
    folder.mkdir(exist_ok=True)
    gcc_only = re.compile(r" (?:-fpch-preprocess|-Winvalid-pch|--param=\S+|-include \S*/cmake_pch\.\S+)")
    entries = [{**entry, "command": gcc_only.sub("", entry["command"])} for entry in commands.values()]
    (folder / "compile_commands.json").write_text(json.dumps(entries))


def sources_of(files):
    return {re.sub(r"\.h$", ".cc", file) for file in files}


def changed_files():
    base = (git("merge-base", "HEAD", "main") or git("rev-parse", "HEAD^"))[0]
    return git("diff", "--name-only", "--diff-filter=d", base, "--", "*.cc", "*.h")


def last_changes(log, uncommitted=()):
    """{source: a number that is larger the later it or its header changed}, from `git log --format=@%ct --name-only`."""
    changes, stamp = {}, 0
    for line in log:
        if line.startswith("@"):
            stamp = int(line[1:])
        elif line:
            for source in sources_of([line]):
                changes[source] = max(changes.get(source, 0), stamp)
    changes.update(dict.fromkeys(sources_of(uncommitted), sys.maxsize))
    return changes


def newest_first(sources):
    changes = last_changes(git("log", "--format=@%ct", "--name-only", "--", "*.cc", "*.h"),
                           git("diff", "--name-only", "HEAD", "--", "*.cc", "*.h"))
    return sorted(sources, key=lambda source: (-changes.get(source, 0), source))


# ---- What is known to be clean ----


def parse_deps(text):
    """{object: files that it was compiled from}, from the output of `ninja -t deps`."""
    deps, files = {}, []
    for line in text.splitlines():
        if line.startswith("    "):
            files.append(line.strip())
        elif ": #deps " in line:
            files = deps[line.split(": #deps ")[0]] = []
    return deps


class CleanSources:
    """Hashes of sources without a finding, as empty files in a folder."""

    def __init__(self, folder, build, common):
        self.folder, self.build, self.common = folder, build, common
        self.hashes = {}
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True)
        self.deps = parse_deps(done.stdout)

    def file_hash(self, path):
        if path not in self.hashes:
            self.hashes[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self.hashes[path]

    def key(self, entry):
        """None: what the source includes is not known."""
        target = re.search(r" -o (\S+)", entry["command"])
        files = self.deps.get(target[1]) if target else None
        if not files:
            return None
        digest = hashlib.sha256(self.common)
        # Two checkouts of one tree have the same hashes.
        digest.update(entry["command"].replace(str(ROOT), "").encode())
        try:
            for path in sorted({pathlib.Path(os.path.normpath(os.path.join(self.build, file))) for file in files}):
                name = os.path.relpath(path, ROOT) if path.is_relative_to(ROOT) else str(path)
                digest.update(f"\0{name}\0{self.file_hash(path)}".encode())
        except OSError:
            return None  # one of them is gone
        return digest.hexdigest()

    def has(self, key):
        if key is None or not (self.folder / key).exists():
            return False
        os.utime(self.folder / key)
        return True

    def add(self, key):
        if key is not None:
            (self.folder / key).touch()

    def forget_old(self):
        for path in self.folder.iterdir():
            if path.stat().st_mtime < time.time() - KEPT_DAYS * 86400:
                path.unlink(missing_ok=True)


# ---- The run ----


def cpu_minutes():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def examine(tool, database, source):
    """What the tool reports; empty: nothing."""
    done = subprocess.run([tool, "-p", database, "--quiet", "--extra-arg=-Wno-unknown-warning-option", source], cwd=ROOT,
                          capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    return done.stdout.strip() or done.stderr.strip() or f"{source}: status {done.returncode}"


def run(tool, build, commands, clean, sources, minutes):
    """Whether there was no finding. Prints findings as they come."""
    keys = {source: clean.key(commands[source]) for source in sources}
    waiting = [source for source in sources if not clean.has(keys[source])]
    print(f"{len(sources)} sources, {len(sources) - len(waiting)} known to be clean", flush=True)
    begin, num_examined, with_findings = cpu_minutes(), 0, []
    database = build / "clang_tidy"
    write_for_clang(commands, database)

    def next_source(source):
        return None if minutes and cpu_minutes() - begin >= minutes else examine(tool, database, source)

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        for source, report in zip(waiting, pool.map(next_source, waiting)):
            if report is None:
                continue
            num_examined += 1
            if report:
                with_findings.append(source)
                print(report, flush=True)
            else:
                clean.add(keys[source])
    print(f"{num_examined} examined in {cpu_minutes() - begin:.1f} min of CPU time, {len(with_findings)} with findings, "
          f"{len(waiting) - num_examined} left unexamined")
    return not with_findings


def main():
    parser = argparse.ArgumentParser(description="clang-tidy over changed files, files, or the tree")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("TANDEM_TIDY_MINUTES") or 0))
    parser.add_argument("--if-asked", action="store_true", help="nothing, unless TANDEM_TIDY_MINUTES is set")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    if options.if_asked and "TANDEM_TIDY_MINUTES" not in os.environ:
        print("SKIPPED: TANDEM_TIDY_MINUTES is not set (of CPU time; 0: all sources)")
        return 0
    build = ROOT / os.environ.get("BUILD", "build/dev")
    tool = shutil.which("clang-tidy-19") or shutil.which("clang-tidy")
    if not tool:
        print("SKIPPED: clang-tidy is not installed (apt-get install clang-tidy)")
        return 0
    if not (build / "compile_commands.json").exists():
        print(f"SKIPPED: no {build}/compile_commands.json (cmake --preset dev)")
        return 0
    commands = compile_commands(build)
    wanted = set(commands) if options.all else sources_of(
        [os.path.relpath(file, ROOT) for file in options.files] or changed_files())
    version = subprocess.run([tool, "--version"], capture_output=True).stdout
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tandem/clang-tidy"
    clean = CleanSources(cache, build, version + (ROOT / ".clang-tidy").read_bytes())
    clean.forget_old()
    return 0 if run(tool, build, commands, clean, newest_first(wanted & set(commands)), options.minutes) else 1


if __name__ == "__main__":
    sys.exit(main())
