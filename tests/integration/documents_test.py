#!/usr/bin/env python3
"""The commands that documents show: flags, routes, files, units and presets that they name are there.

Those of docs/experiments run as written (experiments_test.py), those at the README's begin too (pair_test.py). Of the
others, `tandem serve` is checked by --check-config with the shipped model in place of the reader's.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import LIMIT, MODEL, ROOT, Pair

DOCUMENTS = sorted(path for pattern in ("README.md", "docs/*/*.md", "deploy/*.md", "deploy/*/*.md") for path in ROOT.glob(pattern)
                   if path.parent.name != "experiments")
# Programs that only other machines have, or that would change this one.
ELSEWHERE = {"apt-get", "cpack", "kubectl", "pip", "podman", "serve", "ssh"}
SHELLS = {"sh", "bash"}


def run(*argv, **options):
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=LIMIT, **options)


def blocks(text):
    """(language, text) of code blocks; that of one that is indented is None."""
    fenced = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
    yield from fenced.findall(text)
    for block in re.findall(r"(?:^ {4}\S.*\n(?:^ {4}.*\n|^\n(?= {4}))*)", fenced.sub("", text), re.M):
        yield None, re.sub(r"^ {4}", "", block, flags=re.M)


def words_of(line):
    """The words of each program of a line, without variables that are set before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    command, commands = [], []
    for word in lexer:
        if word in ("&&", "||", "|", ";", "&"):
            commands.append(command)
            command = []
        elif command or not re.match(r"[A-Z_]+=", word):
            command.append(word)
    return [each for each in [*commands, command] if each]


def logical_lines(block):
    """Lines, with those that follow a backslash or lie within quotes."""
    line = ""
    for part in block.splitlines():
        line += part.rstrip()
        if line.endswith("\\"):
            line = line[:-1] + " "
            continue
        try:
            shlex.split(line, comments=True)
        except ValueError:  # an open quote
            line += " "
            continue
        yield line
        line = ""


def shown_commands():
    """(where, words) of each command in a block, and of `tandem …` in the text."""
    for path in DOCUMENTS:
        text = path.read_text()
        where = str(path.relative_to(ROOT))
        for language, block in blocks(text):
            if language not in (None, "", *SHELLS):
                continue
            for line in logical_lines(block):
                for words in words_of(line):
                    if language in SHELLS or words[0] in CHECKS or is_ours(words[0]):
                        yield where, words
        for span in re.findall(r"`([^`\n]+)`", text):
            if not re.match(r"tandem(-[a-z-]+)? |([A-Z_]+=\S+ )*(tests|build/release)/bench/[\w.]+ ", span):
                continue
            try:
                yield where, ["text", *words_of(span.replace("…", "").replace(r"\|", "|"))[0]]
            except ValueError:  # an open quote: a part of a command
                continue


def is_ours(word):
    return re.match(r"(deploy|tests|build)/", word) is not None


@functools.cache
def help_of(*command):
    done = run(pair.bin_dir() / command[0], *command[1:], "--help")
    return done.stdout + done.stderr


# What a command must be like: a function of its words, which returns what is wrong with it.

def flags_are_known(words):
    """Of the programs and commands that have tables of flags. A word of a command ends at a flag."""
    command = [words[0]]
    for word in words[1:]:
        if len(command) == (3 if command[1:2] == ["bench"] else 2) or words[0] != "tandem" or not re.fullmatch("[a-z-]+", word):
            break
        if word.startswith("-"):
            break
        command.append(word)
    if command[1:3] == ["bench", "sweep"]:
        command.append("serve")
    if words[0] == "tandem" and len(command) == 1:
        return None
    takes_serves_flags = command[1:2] == ["serve"] or command[1:] in (["complete"], ["run-batch"], ["bench", "latency"],
                                                                     ["bench", "throughput"], ["swap"], ["reload"])
    known = help_of(*command) + (help_of("tandem", "serve") if takes_serves_flags else "")
    for word in words[len(command):]:
        name = re.match(r"--(?:no-)?([a-z][a-z0-9-]*)", word)
        if name and name.group(1) != "help" and not re.search(rf"--(?:\[no-\]|no-)?{re.escape(name.group(1))}\b", known):
            return f"{' '.join(command)} has no {word}"
        if word.startswith("tandem "):
            return flags_are_known(shlex.split(word))
    return None


def serve_would_start(words, folder):
    """`tandem serve …` with the shipped model; keys are made."""
    words = [word for word in words if word not in ("MODEL", "OUT")]
    arguments, keys = [], folder / "keys"
    positional = True
    for i, word in enumerate(words[2:], 2):
        if word.startswith("#"):
            break
        if positional and not word.startswith("-") and i == 2:
            continue  # the model
        positional = False
        arguments.append(str(keys) if words[i - 1] == "--tcp-keys" else word)
    # Of the reader's host and model.
    for flag in ("--cpu-bind", "--max-model-len"):
        if flag in arguments:
            at = arguments.index(flag)
            arguments[at:at + 2] = []
    done = run(pair.bin_dir() / "tandem", "serve", MODEL, *arguments, "--check-config", cwd=folder)
    return None if done.returncode == 0 else done.stderr.strip()


def file_is_there(words):
    path = words[0] if is_ours(words[0]) else words[1]
    if path.startswith("build/"):
        name = pathlib.Path(path).name
        made = {"tandem", "tandem-engine-core", "tandem-frontend"}
        if name in made or list((ROOT / "tests").rglob(f"{name.split('_', 1)[-1]}*")) or name in cmake_text():
            return None
    elif (ROOT / path).exists():
        return None
    return f"{path} is not there"


@functools.cache
def help_of_tool(path):
    return run(sys.executable, ROOT / path, "--help").stdout


def tool_takes_flags(words):
    """Of a Python program of tests/bench; of a benchmark, whether its filter chooses anything."""
    for word in words[1:]:
        if word == "--":
            break
        if word.startswith("--benchmark_filter="):
            program = pair.bin_dir().parent / "bench" / pathlib.Path(words[0]).name
            listed = run(program, "--benchmark_list_tests=true", word) if program.exists() else None
            if listed and "Failed to match" in listed.stdout + listed.stderr:
                return f"{word} chooses no benchmark"
        name = re.match(r"--[a-z][a-z0-9-]*(?=$|=)", word)
        if name and words[0].startswith("tests/") and not re.search(rf"(?<![\w-]){name[0]}(?![\w-])", help_of_tool(words[0])):
            return f"{words[0]} has no {word}"
    return None


@functools.cache
def cmake_text():
    return "\n".join(path.read_text() for pattern in ("CMakeLists.txt", "cmake/*.cmake", "tests/*.cmake", "tests/*/CMakeLists.txt")
                     for path in ROOT.glob(pattern))


def cmake_knows(words):
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    for before, word in zip(words, words[1:]):
        if before == "--preset" and word not in [each["name"] for each in presets]:
            return f"there is no preset {word}"
        option = re.match(r"-D(TANDEM_\w+)=", word)
        if option and option.group(1) not in cmake_text():
            return f"there is no option {option.group(1)}"
    return None


def ctest_finds(words):
    if "-R" not in words:
        return None
    build = pair.bin_dir().parent
    if not (build / "CTestTestfile.cmake").exists():
        return None
    done = run("ctest", "--test-dir", build, "-N", "-R", words[words.index("-R") + 1])
    return None if re.search(r"Total Tests: [1-9]", done.stdout) else "no test has that name"


def unit_is_there(words):
    for word in words[2:]:
        name = re.sub(r"@.*", "", word)
        if not word.startswith("-") and not (ROOT / "deploy/systemd" / f"{name}.service.in").exists():
            return f"there is no unit {word}"
    return None


CHECKS = {"cmake": cmake_knows, "ctest": ctest_finds, "systemctl": unit_is_there, "python3": file_is_there,
          "tandem": flags_are_known, "tandem-engine-core": flags_are_known, "tandem-frontend": flags_are_known,
          "curl": None, **dict.fromkeys(ELSEWHERE)}


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = list(shown_commands())

    def no_problem(self, where, words, problem):
        with self.subTest(where=where, command=shlex.join(words)):
            self.assertIsNone(problem)

    def test_flags_files_units_and_presets_are_there(self):
        self.assertGreater(len(self.commands), 100)
        for where, words in self.commands:
            if words[0] == "text":
                words = words[1:]
            name = pathlib.Path(words[0]).name if words[0].startswith("build/release/bin/") else words[0]
            if is_ours(words[0]):
                self.no_problem(where, words, file_is_there(words))
            if "/bench/" in words[0]:
                self.no_problem(where, words, tool_takes_flags(words))
            if name in CHECKS:
                if CHECKS[name]:
                    self.no_problem(where, words, CHECKS[name]([name, *words[1:]]))
            elif not is_ours(words[0]):
                self.assertIn(words[0], {"cat", "mkdir", "export"}, f"{where}: nothing checks {shlex.join(words)}")

    def test_servers_would_start(self):
        with tempfile.TemporaryDirectory(prefix="tandem-documents-") as folder:
            folder = pathlib.Path(folder)
            self.assertEqual(run(pair.bin_dir() / "tandem", "keys", folder / "keys").returncode, 0)
            servers = {shlex.join(words): (where, words) for where, words in self.commands
                       if words[0].split("/")[-1] == "tandem" and words[1:2] == ["serve"]}
            self.assertGreater(len(servers), 12)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                found = pool.map(lambda command: serve_would_start(command[1], folder), servers.values())
                for (where, words), problem in zip(servers.values(), found):
                    self.no_problem(where, words, problem)

    def test_routes_are_there_and_bodies_are_json(self):
        calls = [(where, words) for where, words in self.commands if words[0] == "curl"]
        self.assertGreater(len(calls), 10)
        with Pair("--server-dev-mode", environment={"TANDEM_ALLOW_RUNTIME_LORA_UPDATING": "1"}) as server:
            server.wait_for_log("Tandem frontend listening on ")  # after the routes
            routes = {line.split("Route: ")[1].split(",")[0] for line in server.log.splitlines() if "] Route: /" in line}
        for where, words in calls:
            with self.subTest(where=where, command=shlex.join(words)):
                urls = [word for word in words if re.match(r"(https?://)?(127\.0\.0\.1|localhost)[:/]", word)]
                self.assertEqual(len(urls), 1)
                path = urllib.parse.urlsplit(urls[0] if "://" in urls[0] else "http://" + urls[0]).path
                self.assertTrue(any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route), path) for route in routes), path)
                for before, word in zip(words, words[1:]):
                    if before == "-d" and not word.startswith("@"):
                        json.loads(word)


if __name__ == "__main__":
    unittest.main(verbosity=2)
