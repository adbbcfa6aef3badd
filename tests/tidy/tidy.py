#!/usr/bin/env python3
"""House rules that a machine can check: which file may include or use what, the README's tree, documents, formatting.

Prints each breach as file:line: rule, then the ten largest files. Exit status 1 on any breach.
"""
import pathlib
import re
import shutil
import subprocess
import sys

import ctest_names
import documents
import words

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_TREE_BYTES = 44 << 20
CODE_FOLDERS = ["common", "proto_msgpack", "frontend", "engine_core", "kernels", "grammar", "media", "gguf", "pooling", "deploy/cli"]

# (rule, pattern, path prefixes where the pattern may occur). Applies to C++ code outside tests.
RULES = [
    ("includes are full paths from the root", r'#include\s+"[^"]*\.\./', []),
    ("zmq.hpp only in proto_msgpack/wire_endpoint_socket, zmq.h nowhere", r'#include\s+<zmq', ["proto_msgpack/wire_endpoint_socket."]),
    ("msgpack only in the codec", r'#include\s+<msgpack', ["proto_msgpack/codec", "proto_msgpack/schema.h"]),
    ("Beast only under frontend/http and in HTTP clients", r'boost/beast',
     ["frontend/http/", "frontend/web/http_response", "deploy/cli/http_client"]),
    ("Asio only under frontend/net and frontend/http", r'boost/asio',
     ["frontend/net/", "frontend/http/", "frontend/web/http_response", "deploy/cli/http_client"]),
    ("CLI11 only in common/flags.cc", r'#include\s+<CLI/', ["common/flags.cc"]),
    ("yaml-cpp only in deploy/cli/config_file.cc", r'#include\s+<yaml-cpp/', ["deploy/cli/config_file.cc"]),
    ("spdlog only in common/log.cc", r'#include\s+<spdlog', ["common/log.cc"]),
    ("CUDA headers only in kernels/cuda", r'#include\s+<(cuda|cublas|nccl)', ["kernels/cuda/", "tests/support/cuda_emulation/"]),
    ("the CPU kernels are private to kernels", r'#include\s+"kernels/(cpu|cuda|reference)/', ["kernels/"]),
    ("the frontend does not include the engine", r'#include\s+"engine_core/', ["engine_core/", "deploy/cli/"]),
    ("the engine does not include the frontend", r'#include\s+"frontend/', ["frontend/", "grammar/compiler/", "deploy/cli/"]),
    ("libraries of image formats only in media/decoder", r'#include\s+<(png|jpeglib|jerror|webp/)', ["media/decoder/"]),
    ("xgrammar only in grammar/compiler", r'#include\s+<xgrammar/', ["grammar/compiler/"]),
    ("locks live in Mailbox and the compute pool", r'std::(mutex|shared_mutex|recursive_mutex|condition_variable)\b',
     ["common/mailbox.h", "kernels/"]),
    ("clocks are read through common/clock", r'(steady_clock|system_clock|high_resolution_clock)::now|\bclock_gettime\(',
     ["common/clock.cc", "common/thread_clock.cc", "frontend/net/", "frontend/http/"]),
    ("no project code throws", r'^[ \t]*throw\b', []),
    ("no sleeping", r'\b(sleep_for|sleep_until|usleep|nanosleep)\b', ["deploy/cli/"]),
    ("unfinished work is not left in the tree", r'\b(TODO|FIXME|XXX)\b', []),
]

# Only these start threads; everything else runs on those.
THREAD_HOMES = ["common/", "proto_msgpack/wire_endpoint", "proto_msgpack/kv_event_publisher", "frontend/net/", "engine_core/main.cc",
                "engine_core/engine_core", "engine_core/executor/watched_executor", "engine_core/adapters/adapter_loader",
                "engine_core/kv_remote/reader", "engine_core/kv_remote/server",
                "engine_core/run_worker", "engine_core/watchdog", "engine_core/workers/", "kernels/", "deploy/cli/", "frontend/main.cc",
                "frontend/tracing/span_exporter"]


def allowed(path, homes):
    return any(path.startswith(home) for home in homes)


def code_files(folders, suffixes=(".h", ".cc", ".cu", ".cuh")):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path


def without_comment(line):
    return line.split("//", 1)[0]


def check_lines(problems):
    threads = (f"threads are started only in {', '.join(THREAD_HOMES)}", r"\bstd::j?thread\b(?!::)", THREAD_HOMES)
    rules = [(what, re.compile(pattern, re.M), homes) for what, pattern, homes in [*RULES, threads]]
    for path in code_files(CODE_FOLDERS):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        code = re.sub("//.*", "", text)
        for what, pattern, homes in rules:
            source = text if "unfinished" in what else code
            if allowed(name, homes):
                continue
            for number in sorted({source.count("\n", 0, match.start()) + 1 for match in pattern.finditer(source)}):
                problems.append(f"{name}:{number}: {what}")


def check_headers(problems):
    for path in code_files(CODE_FOLDERS, (".h",)):
        name = str(path.relative_to(ROOT))
        lines = path.read_text().splitlines()
        if not lines or lines[0] != "#pragma once":
            problems.append(f"{name}:1: a header starts with #pragma once")
        elif not any(line.startswith("//") for line in lines[1:6]):
            problems.append(f"{name}:2: a header begins with a comment that describes it")


def check_readme_tree(problems):
    """Each folder drawn in the README's tree exists, and each module folder is drawn there."""
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"## The tree.*?```\n(.*?)```", readme, re.S)
    if not block:
        problems.append("README.md:1: no tree under '## The tree'")
        return
    drawn, stack = set(), []
    for line in block.group(1).splitlines():
        match = re.match(r"^( *)([a-z_]+)/(?=\s|$)", line)
        if not match:
            continue
        depth = len(match.group(1)) // 2
        stack = stack[:depth] + [match.group(2)]
        drawn.add("/".join(stack))
    for folder in sorted(drawn):
        if not (ROOT / folder).is_dir():
            problems.append(f"README.md:1: the tree draws {folder}/, which does not exist")
    for top in CODE_FOLDERS + ["tests", "deploy"]:
        for path in [ROOT / top] + sorted((ROOT / top).iterdir()):
            name = str(path.relative_to(ROOT))
            if not path.is_dir() or name in drawn or path.name.startswith((".", "__")):
                continue
            tracked = subprocess.run(["git", "ls-files", name], cwd=ROOT, capture_output=True, text=True).stdout
            if tracked:
                problems.append(f"README.md:1: the tree does not draw {name}/")


ASKS = "deploy/OPERATIONS.md"  # what operators ask for, with the tests that show it


def check_documents(problems):
    """Paths and links in documents exist, and documents list what users can set or see."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, text=True).stdout
    if not listed:
        print("this is not a git checkout: documents not checked")
        return
    tree = documents.Tree(name for name in listed.splitlines() if (ROOT / name).is_file())
    texts = {name: (ROOT / name).read_text() for name in sorted(tree.files) if name.endswith(".md")}

    def read(path):
        return texts.get(path) or (ROOT / path).read_text()

    for name, text in texts.items():
        for number, what in list(documents.check_paths(name, text, tree)) + list(documents.check_links(name, text, tree, read)):
            problems.append(f"{name}:{number}: {what}")
    for name, what in documents.check_listed(tree, read):
        problems.append(f"{name}:1: {what}")
    for number, what in ctest_names.check_asks(read(ASKS), ctest_names.ctest_names(tree.files, read), tree):
        problems.append(f"{ASKS}:{number}: {what}")


# They quote the words that others avoid.
DICTIONARIES = ["docs/style.md", "docs/glossary.md", "tests/tidy/words.py", "tests/unit/tidy/words_test.py"]


def check_words(problems):
    """Comments, names, messages and documents avoid what words.py lists. Recorded and training texts are exempt."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        path = ROOT / name
        is_text = path.suffix in (".h", ".cc", ".cu", ".cuh", ".def", ".py", ".sh", ".md", ".cmake") or path.name == "CMakeLists.txt"
        if not is_text or name in DICTIONARIES or name.startswith("deploy/models/train/") or not path.is_file():
            continue
        for number, what in words.check_words(path.read_text()):
            problems.append(f"{name}:{number}: {what}")


def check_format(problems):
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not tool:
        print("clang-format is not installed: formatting not checked")
        return
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
    if "version 14" not in version:
        print(f"formatting is defined by clang-format 14, this is {version.strip()}: not checked")
        return
    files = [str(path) for path in code_files(CODE_FOLDERS + ["tests"])]
    result = subprocess.run([tool, "--dry-run", "--ferror-limit=1"] + files, capture_output=True, text=True)
    for match in re.finditer(r"^(\S+?):(\d+):\d+: (?:error|warning): code should be clang-formatted", result.stderr, re.M):
        problems.append(f"{pathlib.Path(match.group(1)).relative_to(ROOT)}:{match.group(2)}: clang-format")


def check_tests(problems):
    for path in code_files(["tests"]):
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|(?<![\w.])sleep\(", without_comment(line)):
                problems.append(f"{name}:{number}: tests wait for conditions, never sleep")
        for case in ctest_names.catch_cases(path.read_text()):
            if re.search(r"[;\[\\]|^--", case):
                problems.append(f"{name}:1: ctest cannot pass the name of this case to Catch: {case}")


def check_size(problems):
    """A clone stays small: what is tracked, counted in blocks of the file system, so that many small files count as such."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    size = sum(-(-path.stat().st_size // 4096) * 4096 for path in paths if path.is_file())
    if size > MAX_TREE_BYTES:
        problems.append(f"tests/golden: the tracked tree takes {size / 2**20:.1f} MiB of {MAX_TREE_BYTES >> 20}")


def shared_types(path):
    """The classes, structs and enums that a file defines where other files may name them, with their namespaces.

    Relies on clang-format: namespaces are not indented and their ends carry their names.
    """
    spaces = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        opened = re.match(r"(?:inline )?namespace ?([\w:]*) \{$", line)
        if opened:
            spaces.append(opened.group(1))
        elif spaces and line.startswith("}  // namespace"):
            spaces.pop()
        # Neither declarations (;) nor specialisations and members of other types (< and :: after the name).
        match = re.match(r"(?:template <.*> )?(?:class|struct|union|enum(?: class)?) (?:alignas\(.*?\) )?(\w+)"
                         r"(?: final)?(?: : .*)?(?: \{.*)?$", line)
        if match and "" not in spaces:
            yield number, "::".join(spaces + [match.group(1)])


def check_type_names(problems):
    """To the linker two types of one name are one type, and it keeps the functions of either."""
    homes = {}
    for path in code_files(CODE_FOLDERS + ["tests"]):
        name = str(path.relative_to(ROOT))
        for number, type_name in shared_types(path):
            home = homes.setdefault(type_name, name)
            if home != name:
                problems.append(f"{name}:{number}: {type_name} is also defined in {home}")


def print_largest():
    sizes = sorted(((len(path.read_text().splitlines()), str(path.relative_to(ROOT)))
                    for path in code_files(CODE_FOLDERS)), reverse=True)
    print("largest files:")
    for lines, name in sizes[:10]:
        print(f"  {lines:5} {name}")


def main():
    problems = []
    check_lines(problems)
    check_headers(problems)
    check_readme_tree(problems)
    check_documents(problems)
    check_words(problems)
    check_format(problems)
    check_tests(problems)
    check_size(problems)
    check_type_names(problems)
    for problem in problems:
        print(problem)
    print_largest()
    print(f"{len(problems)} breaches")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
