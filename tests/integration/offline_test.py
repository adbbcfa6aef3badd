#!/usr/bin/env python3
"""`tandem run-batch` and `tandem complete`: requests that run without a server of the user's."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import MODEL


def tandem(*args, stdin=""):
    return subprocess.run([pair.bin_dir() / "tandem", *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=4 * pair.LIMIT)


def line(custom_id, url="/v1/completions", **body):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}) + "\n"


class RunBatch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tandem-test-")
        self.addCleanup(folder.cleanup)
        self.input = pathlib.Path(folder.name) / "in.jsonl"
        self.output = pathlib.Path(folder.name) / "out.jsonl"

    def run_batch(self, *flags):
        return tandem("run-batch", "-i", self.input, "-o", self.output, "--model", MODEL, "--served-model-name", "m",
                      *flags)

    def results(self):
        return [json.loads(text) for text in self.output.read_text().splitlines()]

    def test_results_come_in_order_and_a_second_run_does_what_is_left(self):
        lines = [line(f"c{i}", model="m", prompt=f"Number {i}", max_tokens=1 + i % 5, temperature=0,
                      ignore_eos=True) for i in range(20)]
        lines += [line("chat", "/v1/chat/completions", model="m", max_tokens=4,
                       messages=[{"role": "user", "content": "Hello!"}]),
                  line("wrong", model="other", prompt="x"),
                  line("field", model="m", prompt="x", temperature=-1),
                  line("nowhere", "/v2/nothing", model="m"),
                  line("lacking", "/v1/embeddings", model="m", input="x"),
                  line("stream", model="m", prompt="x", stream=True),
                  line("large", model="m", prompt="x" * 5000)]
        self.input.write_text("".join(lines))
        done = self.run_batch("--max-inflight", 3, "--max-request-body-bytes", 4096)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("6 of them errors", done.stderr)
        first = self.results()
        self.assertEqual([r["custom_id"] for r in first], [json.loads(text)["custom_id"] for text in lines])
        for i, result in enumerate(first[:20]):
            self.assertEqual(result["response"]["status_code"], 200)
            self.assertEqual(result["response"]["body"]["usage"]["completion_tokens"], 1 + i % 5)
            self.assertIsNone(result["error"])
        by_id = {r["custom_id"]: r for r in first}
        self.assertEqual(by_id["chat"]["response"]["body"]["object"], "chat.completion")
        self.assertEqual(by_id["wrong"]["response"], {**by_id["wrong"]["response"], "status_code": 404, "body": None})
        self.assertEqual(by_id["wrong"]["error"]["error"]["type"], "NotFoundError")
        self.assertEqual(by_id["field"]["response"]["status_code"], 400)
        self.assertIn("not a supported endpoint", by_id["nowhere"]["error"])
        self.assertEqual(by_id["lacking"]["error"], "Model does not support endpoint: /v1/embeddings")
        self.assertEqual(by_id["lacking"]["response"]["status_code"], 400)
        self.assertIn("stream mode", by_id["stream"]["error"])
        self.assertIn("--max-request-body-bytes", by_id["large"]["error"])

        # As if the run had been killed while it wrote the seventh line.
        whole = self.output.read_text().splitlines(keepends=True)
        self.output.write_text("".join(whole[:6]) + whole[6][:40])
        again = self.run_batch()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("6 of 27 results already", again.stderr)
        second = self.results()
        self.assertEqual([r["custom_id"] for r in second], [r["custom_id"] for r in first])
        self.assertEqual([r["id"] for r in second[:6]], [r["id"] for r in first[:6]])
        texts = [[r["response"]["body"]["choices"][0]["text"] for r in results[:20]] for results in (first, second)]
        self.assertEqual(texts[0], texts[1])

        before = self.output.read_text()
        nothing = self.run_batch()
        self.assertEqual(nothing.returncode, 0, nothing.stderr)
        self.assertEqual(self.output.read_text(), before)

    def test_a_run_that_a_signal_ends_goes_on_where_it_was(self):
        self.input.write_text("".join(line(f"c{i}", model="m", prompt="Once", max_tokens=200, ignore_eos=True)
                                      for i in range(40)))
        command = [pair.bin_dir() / "tandem", "run-batch", "-i", self.input, "-o", self.output, "--model", MODEL,
                   "--served-model-name", "m", "--max-inflight", "2"]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number), tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
                self.output.unlink(missing_ok=True)
                run = subprocess.Popen(command, env={**os.environ, "XDG_RUNTIME_DIR": folder},
                                       stderr=subprocess.DEVNULL)
                pair.wait_for(lambda: self.output.exists() and self.results(), "a first result")
                run.send_signal(number)
                self.assertEqual(run.wait(pair.LIMIT), 128 + number)
                self.assertEqual(os.listdir(folder), [])
                self.assertEqual({r["response"]["status_code"] for r in self.results()}, {200})
                self.assertLess(len(self.results()), 40)
        done = self.run_batch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([r["response"]["status_code"] for r in self.results()], [200] * 40)

    def test_a_wrong_file_is_refused_before_anything_runs(self):
        self.input.write_text(line("a", model="m", prompt="x") + "no json\n")
        bad = self.run_batch()
        self.assertEqual(bad.returncode, 2)
        self.assertIn("Invalid request on line 2", bad.stderr)
        self.assertFalse(self.output.exists())
        self.input.write_text(line("a", model="m", prompt="x"))
        self.output.write_text("precious\n")
        other = self.run_batch()
        self.assertEqual(other.returncode, 2)
        self.assertIn("no result of a batch", other.stderr)
        self.assertEqual(self.output.read_text(), "precious\n")

    def test_bad_command_lines(self):
        self.input.write_text("")
        for flags, reason in ((("-i", self.input, "-o", self.input, "--model", MODEL), "same file"),
                              (("-i", "https://x.org/in", "-o", self.output, "--model", MODEL), "only files"),
                              (("-i", self.input, "--model", MODEL), "-o FILE is missing"),
                              (("-i", self.input, "-o", self.output), "no model"),
                              (("-i", self.input, "-o", self.output, "--model", MODEL, "--nope", 1), "--nope")):
            refused = tandem("run-batch", *flags)
            self.assertEqual(refused.returncode, 2, refused.stderr)
            self.assertIn(reason, refused.stderr)

    def test_a_server_that_does_not_start_is_reported(self):
        self.input.write_text(line("a", model="m", prompt="x"))
        failed = tandem("run-batch", "-i", self.input, "-o", self.output, "--model", self.input.parent)
        self.assertNotEqual(failed.returncode, 0)
        # Of its two processes either may be the first to miss its file.
        self.assertRegex(failed.stderr, "(config|tokenizer).json")


class Complete(unittest.TestCase):
    def test_the_text_is_continued_the_same_from_argument_and_standard_input(self):
        flags = ("--model", MODEL, "--max-tokens", 12, "--temperature", 0, "--ignore-eos")
        done = tandem("complete", "Once upon a time", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(done.stdout.strip()), 5)
        self.assertEqual(tandem("complete", "-", *flags, stdin="Once upon a time").stdout, done.stdout)
        chat = tandem("complete", "Hello!", "--chat", "--model", MODEL, "--temperature", 0)
        self.assertEqual(chat.returncode, 0, chat.stderr)
        self.assertTrue(chat.stdout.strip())

    def test_what_is_wrong_is_said_and_the_status_is_not_zero(self):
        for args, code, reason in ((("--model", MODEL), 2, "no text"), (("x",), 2, "no model"),
                                   (("x", "--model", MODEL, "--temperature", 9), 2, "temperature"),
                                   (("x", "--model", MODEL, "--max-tokens", 99999999), 1, "context length")):
            done = tandem("complete", *args)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    unittest.main()
