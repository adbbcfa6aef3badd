#!/usr/bin/env python3
"""`tandem pack MODEL OUT` and `tandem serve OUT`: the same answers, from a folder without weights to pack."""
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, ROOT, bin_dir, free_port, wait_for

GGUF = ROOT / "tests" / "golden" / "quantized" / "gguf_llama_q4_0" / "model.gguf"


def run_program(name, *words):
    run = subprocess.run([bin_dir() / name, *map(str, words)], capture_output=True, text=True, timeout=LIMIT)
    return run.returncode, run.stdout + run.stderr


def new_folder(test):
    folder = tempfile.TemporaryDirectory(prefix="tandem-pack-")
    test.addCleanup(folder.cleanup)
    return pathlib.Path(folder.name) / "out"


def pack(test, model, *flags):
    code, log = run_program("tandem", "pack", model, test.out, *flags)
    test.assertEqual(code, 0, log)
    test.assertIn("[startup] packed in", log)


class Answers(unittest.TestCase):
    def setUp(self):
        self.out = new_folder(self)

    def answers(self, model, *flags):
        with Pair("--served-model-name", "m", *flags, model=model) as server:
            status, reply = server.post("/v1/completions", {"model": "m", "prompt": "Hello", "temperature": 0,
                                                            "max_tokens": 16, "logprobs": 3, "ignore_eos": True})
            self.assertEqual(status, 200, reply)
            choice = json.loads(reply)["choices"][0]
            status, reply = server.post("/v1/chat/completions", {
                "model": "m", "temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]})
            return choice["text"], choice["logprobs"]["token_logprobs"], status, json.loads(reply).get("choices")

    def test_a_folder(self):
        pack(self, MODEL, "--quantization", "int8")
        self.assertEqual([path.name for path in self.out.rglob("*.safetensors")], [])
        self.assertEqual(self.answers(self.out), self.answers(MODEL, "--quantization", "int8"))

    def test_a_gguf_file(self):
        pack(self, GGUF)
        self.assertEqual({path.name for path in self.out.iterdir()}, {"model.tandem", "tokenizer.gguf"})
        self.assertEqual(self.answers(self.out), self.answers(GGUF))


class Refusals(unittest.TestCase):
    def setUp(self):
        self.out = new_folder(self)

    def test_what_does_not_fit_is_refused(self):
        model = self.out.parent / "model"
        shutil.copytree(MODEL, model)
        pack(self, model)
        for flags, why in ((["--dtype", "float32"], "was packed with bfloat16"),
                           (["--quantization", "int4"], "was packed with auto"),
                           (["--device", "reference"], "was packed with cpu"),
                           (["--tensor-parallel-size", "2"], "a packed model is whole"),
                           (["--load-format", "safetensors"], "folder of packed matrices"),
                           (["--pack-to", self.out.parent / "again"], "is packed already")):
            code, log = run_program("tandem-engine-core", self.out, *flags)
            self.assertIn(code, (2, 3), log)
            self.assertIn(why, log)
        for words, why in ((["--tensor-parallel-size", "2"], "a model is packed whole"),
                           (["--device", "cuda"], "packed for the cpu alone"),
                           (["--load-format", "dummy"], "there is nothing to pack"),
                           ([], "is there already")):
            code, log = run_program("tandem", "pack", model, self.out, *words)
            self.assertNotEqual(code, 0, log)
            self.assertIn(why, log)
        self.assertEqual(run_program("tandem", "pack", model)[0], 2)
        code, log = run_program("tandem", "pack", model, self.out.parent / "embedder", "--runner", "pooling",
                                     "--convert", "embed")
        self.assertEqual(code, 2, log)
        self.assertIn("such models are not packed", log)
        weights = next(model.glob("*.safetensors"))
        os.utime(weights, (1, 1))
        code, log = run_program("tandem-engine-core", self.out)
        self.assertEqual(code, 3)
        self.assertIn("has changed since", log)

    def test_what_fails_leaves_nothing(self):
        model = self.out.parent / "model"
        shutil.copytree(MODEL, model)
        weights = next(model.glob("*.safetensors"))
        os.truncate(weights, weights.stat().st_size // 2)
        code, log = run_program("tandem", "pack", model, self.out)
        self.assertEqual(code, 3, log)
        self.assertEqual(list(self.out.glob("*")), [])

    def test_a_signal_ends_it_and_the_next_one_begins_anew(self):
        model = self.out.parent / "model"
        model.mkdir()
        os.mkfifo(model / "config.json")  # which is read for ever
        for command in (("tandem", "pack", model, self.out), ("tandem-engine-core", "--replay", model / "config.json")):
            with self.subTest(command[1]):
                run = subprocess.Popen([bin_dir() / command[0], *map(str, command[1:])])
                self.addCleanup(run.kill)
                with open(wait_for(lambda: self.writer_of(model / "config.json"), "it reads"), "wb"):
                    run.send_signal(signal.SIGINT)
                    self.assertEqual(run.wait(LIMIT), -signal.SIGINT)
        # As a killed one leaves it.
        self.out.mkdir()
        for name in ("model.tandem.unfinished", "model.tandem.part", "config.json"):
            (self.out / name).write_text("a part")
        pack(self, MODEL)
        self.assertEqual(json.loads((self.out / "config.json").read_text()),
                         json.loads((MODEL / "config.json").read_text()))
        self.assertEqual([path.name for path in self.out.glob("model.tandem*")], ["model.tandem"])

    @staticmethod
    def writer_of(fifo):
        """Once a process reads it."""
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None

    def test_two_at_once_are_refused(self):
        self.out.mkdir()
        with open(self.out / "model.tandem.unfinished", "wb") as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            code, log = run_program("tandem", "pack", MODEL, self.out)
        self.assertNotEqual(code, 0)
        self.assertIn("is written by another packing", log)

    def test_a_flipped_bit_ends_the_engine_and_no_other_starts(self):
        pack(self, MODEL)
        code, log = run_program("tandem", "pack", "--verify", self.out)
        self.assertEqual(code, 0, log)
        self.assertIn("have their hashes", log)
        with Pair(model=self.out) as server:
            server.wait_for_log("have their hashes (read in")
        file = self.out / "model.tandem"
        with open(file, "r+b") as bytes_of_it:
            bytes_of_it.seek(4096 + 77)
            byte = bytes_of_it.read(1)[0]
            bytes_of_it.seek(4096 + 77)
            bytes_of_it.write(bytes([byte ^ 4]))
        code, log = run_program("tandem", "pack", "--verify", file)
        self.assertEqual(code, 3, log)
        self.assertIn("bytes at 4096 do not have their hash", log)
        self.assertFalse((self.out / "model.tandem.damaged").exists())
        path = self.out.parent / "log"
        with open(path, "w") as lines:
            serve = subprocess.Popen([bin_dir() / "tandem", "serve", self.out, "--port", str(free_port())], stdout=lines,
                                     stderr=lines)
        self.addCleanup(serve.kill)
        wait_for(lambda: "the model was not what was packed" in path.read_text(), "it is noticed")
        serve.terminate()
        serve.wait(LIMIT)
        self.assertIn("Engine core ready", path.read_text())
        self.assertIn("bytes at 4096 do not have their hash", path.read_text())
        code, log = run_program("tandem-engine-core", self.out)
        self.assertEqual(code, 3, log)
        self.assertIn("its bytes did not have their hashes when it was served", log)
        for words in ([], [self.out, self.out]):
            self.assertEqual(run_program("tandem", "pack", "--verify", *words)[0], 2)
        self.assertEqual(run_program("tandem", "pack", "--verify", MODEL)[0], 3)

    def test_damaged_files_are_refused(self):
        pack(self, MODEL)
        file = self.out / "model.tandem"
        whole = file.read_bytes()
        for damaged, why in ((whole[:-1], "truncated"), (whole[:5000], "truncated"), (whole[:20], "no file of packed"),
                             (b"", "empty"), (b"GGUF" + whole[4:], "no file of packed"),
                             (whole[:-9] + b"?" + whole[-8:], "does not have its hash")):
            file.write_bytes(damaged)
            code, log = run_program("tandem-engine-core", self.out)
            self.assertEqual(code, 3, log)
            self.assertIn(why, log)


if __name__ == "__main__":
    unittest.main()
