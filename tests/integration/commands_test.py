#!/usr/bin/env python3
"""The commands of the documents run as written, but for folders, ports and sizes that are the reader's.

A server of a document starts, serves and stops; what talks to a server gets one that has what its document is about.
documents_test.py finds them and looks at all that are not run; those of docs/experiments run in experiments_test.py.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import pair
from documents_test import DOCUMENTS, SHELLS, blocks, logical_lines
from pair import LIMIT, MODEL, ROOT, Pair, free_port
from peft_adapter import write_adapter

# What runs elsewhere: how its line begins, and where that is.
ELSEWHERE = {
    r"deploy/quickstart|tests/|build/dev/|cmake|ctest|[A-Z_]+=": "builds and tests",
    r"cpack|apt-get": "package_test.py",
    r"pip|python3 deploy/python": "wheel_test.py",
    r"systemctl": "systemd_machine_test.py",
    r"kubectl|podman": "kubernetes_test.py has what they start",
    r"serve run": "ray_test.py",
    r"tandem serve MODEL .*--data-parallel-address": "replicas_test.py, on two hosts",
    r"tandem serve Qwen|tandem bench serve .*random-mm": "images_test.py, bench_test.py",
    r"build/release/bin/tandem chat": "pair_test.py, in a terminal",
}
KINDS = {
    "server": r"(build/release/bin/)?tandem serve ",
    "client": r"curl |tandem (top|swap|reload|bench serve)\b",
    "offline": r"cat .*\| tandem|find |tandem (complete|run-batch|pack|keys|bench sweep)\b",
    "replay": r"tandem-engine-core --replay",
}
# What stands for the reader's; FOLDER is the test's, PORT a free one.
HERE = (
    (r"\s+#\s.*$", ""),
    (r"\[--[^\]]*\]", ""),
    (r"build/release/bin/", ""),
    (r'(?<=")tandem serve MODEL(?=")', "tandem serve MODEL --port PORT --kv-cache-memory-bytes 32M"),
    (r'(?<=")tandem bench serve', "tandem bench serve --port PORT"),
    (r"--plot load.svg", "--plot load.svg --num-runs 1"),
    (r"/srv/models/\w+|/path/to/hf-folder|deploy/models/tandem-tiny|\bMODEL\b", str(MODEL)),
    (r"\bOUT\b|\bchat\.jinja\b", r"FOLDER/\g<0>"),
    (r"/srv/|/etc/tandem/|/run/tandem/", "FOLDER/"),
    (r"\bFILE\b", "FOLDER/recording"),
    (r"--until-step \d+", "--until-step 2"),
    (r"--kv-offloading-size 16", "--kv-offloading-size 0.1"),
    (r"--num-prompts \d+", "--num-prompts 4"),
    (r"--prefix-repetition-num-prefixes \d+", "--prefix-repetition-num-prefixes 2"),
    (r"--max-model-len 4k|, max_model_len=4096", ""),
    (r"--cpu-bind \S+", ""),
    (r"--random-batch-size \d+", "--random-batch-size 2"),
    (r"--input-len \d+", "--input-len 10"),
)
EMBEDDER = ROOT / "tests/golden/embedding/qwen3_embedding"
# The server of a client's command: a pattern of "document: line", the model and flags.
SERVERS = (
    (r"/(sleep|wake_up)\b", MODEL, ("--server-dev-mode", "--enable-sleep-mode")),
    (r"adapters\.md:", MODEL, ("--enable-lora", "--enable-runtime-lora", "--lora-modules", "sql=FOLDER/adapters/sql")),
    (r"openai-embeddings|vllm-rerank", EMBEDDER, ("--dtype", "float32")),
    (r"unix:", MODEL, ("--uds", "FOLDER/http.sock", "--enable-dashboard")),
    (r"", MODEL, ()),
)
SMALL = ("--kv-cache-memory-bytes", "32M")


def shown_lines():
    """(document, line) of each command in a block."""
    ours = re.compile("|".join(KINDS.values()))
    for path in DOCUMENTS:
        for language, block in blocks(path.read_text()):
            for line in logical_lines(block):
                line = line.strip()
                elsewhere = any(re.match(pattern, line) for pattern in ELSEWHERE)
                if not elsewhere and (language in SHELLS or ours.match(line)):
                    yield str(path.relative_to(ROOT)), line


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tandem-commands-")))
        for i, name in enumerate(("sql", "sql-2", "de")):
            write_adapter(cls.folder / "adapters" / name, i)
        (cls.folder / "kv").mkdir()
        (cls.folder / "story.txt").write_text("Once upon a time")
        tokenizer = json.loads((MODEL / "tokenizer_config.json").read_text())
        (cls.folder / "chat.jinja").write_text(tokenizer["chat_template"])
        cls.lines = list(shown_lines())

    def here(self, text):
        for pattern, replacement in HERE:
            text = re.sub(pattern, replacement, text, flags=re.M)
        return text.replace("FOLDER", str(self.folder)).replace("--port PORT", f"--port {free_port()}")

    def of_kind(self, kind):
        found = [(where, line) for where, line in self.lines if re.match(KINDS[kind], line)]
        self.assertGreater(len(found), 2)
        return found

    def shell(self, line, environment=None):
        """Runs a line as a reader's shell would; what it prints."""
        path = f"{pair.bin_dir()}:{os.environ['PATH']}"
        environment = environment or {**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "XDG_STATE_HOME": str(self.folder)}
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, env={**environment, "PATH": path}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * LIMIT)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout + done.stderr

    def test_each_command_has_a_kind(self):
        for where, line in self.lines:
            self.assertTrue(any(re.match(pattern, line) for pattern in KINDS.values()), f"{where}: {line}")

    def test_1_commands_without_a_server(self):
        page = (ROOT / "docs/user/offline.md").read_text()
        requests = next(block for _, block in blocks(page) if block.startswith('{"custom_id"'))
        (self.folder / "in.jsonl").write_text(self.here(requests))
        for where, line in self.of_kind("offline"):
            with self.subTest(where=where, line=line):
                self.shell(self.here(line))
        reply = json.loads((self.folder / "out.jsonl").read_text())
        self.assertEqual((reply["custom_id"], reply["response"]["status_code"]), ("a", 200))

    def test_2_servers(self):
        documents = {line: where for where, line in self.of_kind("server")}  # each command once
        for line, where in documents.items():
            with self.subTest(where=where, line=line):
                _, _, model, *flags = shlex.split(re.sub(r"--(port|host) \S+", "", self.here(line)))
                with Pair(*flags, *(() if "--num-gpu-blocks-override" in flags else SMALL), model=model) as server:
                    self.assertEqual(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 3})[0], 200)
                    self.assertEqual(server.stop(), 0)

    def test_3_commands_that_talk_to_a_server(self):
        by_server = {}
        for where, line in self.of_kind("client"):
            number = next(i for i, row in enumerate(SERVERS) if re.search(row[0], f"{where}: {line}"))
            by_server.setdefault(number, []).append((where, line))
        self.assertEqual(set(by_server), set(range(len(SERVERS))))
        for number, lines in by_server.items():
            _, model, flags = SERVERS[number]
            lines.sort(key=lambda each: "tandem reload" in each[1])  # which renames the model
            with Pair("--served-model-name", "tandem-tiny", model, *SMALL, *map(self.here, flags), model=model) as server:
                for where, line in lines:
                    with self.subTest(where=where, line=line):
                        self.assertTrue(self.shell(self.to(server, self.here(line)), server.environment))

    def to(self, server, line):
        """The line for a server that is not on port 8000."""
        line = re.sub(r"^curl ", "curl -sS --fail-with-body ", line)
        if re.match("tandem top(?!.*--once)", line):
            line += " | head -5"  # else it goes on until somebody ends it
        if "unix:" in line:
            return line
        for flag, value in (("--port", "8000"), ("--num-prompts", "8")):
            if "tandem bench serve" in line and flag not in line:
                line += f" {flag} {value}"
        port = server.url.rsplit(":", 1)[1]
        return re.sub(r"(localhost:|127\.0\.0\.1:|--port )8000\b", rf"\g<1>{port}", line)

    def test_4_recordings_are_replayed(self):
        with Pair("--served-model-name", "m", *SMALL) as server:
            self.assertEqual(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 8})[0], 200)
            engine = server.pid_of("tandem-engine-core")
            recorded = server.command("record", "--pid", engine, "--out", self.folder / "recording")
            self.assertEqual(recorded.returncode, 0, recorded.stderr)
        for where, line in self.of_kind("replay"):
            with self.subTest(where=where, line=line):
                self.assertIn("step", self.shell(self.here(line)))

    def test_5_python(self):
        page = (ROOT / "docs/user/python.md").read_text()
        code = next(block for _, block in blocks(page) if block.startswith("from tandem import"))
        (self.folder / "example.py").write_text(self.here(code))
        printed = self.shell(f"PYTHONPATH={ROOT}/deploy/python {sys.executable} -B example.py",
                             {**os.environ, "XDG_RUNTIME_DIR": str(self.folder)})
        self.assertGreater(len(printed.splitlines()), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
