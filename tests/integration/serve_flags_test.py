#!/usr/bin/env python3
"""`tandem serve` and its flags: a file of them, where values come from, what is refused, and lines about requests."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir, wait_for


def serve(*words):
    """(exit code, output, errors) of a `tandem serve` that ends by itself."""
    done = subprocess.run([str(bin_dir() / "tandem"), "serve", *map(str, words)], capture_output=True, text=True,
                          timeout=LIMIT)
    return done.returncode, done.stdout, done.stderr


class CheckConfig(unittest.TestCase):
    def test_a_file_a_command_line_and_what_becomes_of_them(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "serve.yaml")
            file.write_text(f"model: {MODEL}\nport: 9000\nhost: localhost\ncompilation-config: {{level: 3}}\n"
                            "trust-remote-code: true\ncollect-detailed-traces: [model, worker]\n")
            code, out, errors = serve("--config", file, "--port=9001", "--check-config")
            self.assertEqual(code, 0, errors)
            self.assertIn("port: 9001  # command line\n", out)
            self.assertIn(f'host: "localhost"  # {file}:3\n', out)
            self.assertIn("max-model-len: null  # default\n", out)
            self.assertIn("--trust-remote-code has no effect: ", errors)
            self.assertIn("--collect-detailed-traces has no effect: ", errors)
            # What it prints is such a file.
            file.write_text(out)
            code, again, errors = serve("--config", file, "--check-config")
            self.assertEqual(code, 0, errors)
            without_origin = [[line.split("  # ")[0] for line in text.splitlines()] for text in (out, again)]
            self.assertEqual(*without_origin)

    def test_what_is_wrong_is_exit_code_2_or_3_with_a_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "serve.yaml")
            file.write_text("prot: 1\n")
            for words, code, reason in (
                    ((MODEL, "--config", file), 2, f"{file}:1: unknown flag --prot; did you mean --port?"),
                    ((MODEL, "--lora-modules", "x", "--check-config"), 2, "--lora-modules x: must be name=path"),
                    ((MODEL, "--enable-elastic-ep", "--check-config"), 2, "--enable-elastic-ep cannot be done"),
                    ((MODEL, "--fingerprint-mode", "custom", "--check-config"), 2, "--fingerprint-value"),
                    ((MODEL, "--ssl-cert-reqs", "2", "--check-config"), 2, "--ssl-ca-certs"),
                    # What only one of the processes can judge: values of JSON, files, and what the model allows.
                    ((MODEL, "--speculative-config", '{"method": "magic"}', "--check-config"), 2, "magic"),
                    ((MODEL, "--kv-transfer-config", '{"kv_connector": "NixlConnector"}', "--check-config"), 2, "NixlConnector"),
                    ((MODEL, "--compilation-config.cudagraph_mode=SOME", "--check-config"), 2, "SOME"),
                    ((MODEL, "--kv-cache-dtype", "fp7", "--check-config"), 2, "--kv-cache-dtype fp7: must be one of auto"),
                    ((MODEL, "--hf-overrides", "{", "--check-config"), 3, "--hf-overrides"),
                    ((MODEL, "--settings-file", "/nowhere", "--check-config"), 2, "/nowhere"),
                    ((MODEL, "--chat-template", "/nowhere", "--check-config"), 3, "--chat-template: /nowhere"),
                    ((MODEL, "--tool-call-parser", "mine", "--check-config"), 3, "--tool-call-parser"),
                    ((MODEL, "--ssl-certfile", "/nowhere", "--ssl-keyfile", "/nowhere", "--check-config"), 2, "/nowhere"),
                    (("/nowhere", "--check-config"), 3, "/nowhere: no such folder"),
                    (("org/model", "--download-dir", folder, "--check-config"), 2, "`tandem pull org/model` downloads it")):
                with self.subTest(reason):
                    done = serve(*words)
                    self.assertEqual(done[0], code, done)
                    self.assertIn(reason, done[2])
                    self.assertEqual(done[1], "")

    def test_variables_that_nothing_reads_are_named(self):
        environment = {**os.environ, "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "1", "VLLM_MAX_N_SEQUENCES": "9"}
        words = [bin_dir() / "tandem", "serve", MODEL, "--check-config"]
        for flag, code in ((), 0), (("--fail-on-environ-validation",), 2):
            run = subprocess.run([*words, *flag], env=environment, capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(run.returncode, code, run.stderr)
            self.assertRegex(run.stderr, "environment: .*VLLM_KEEP_ALIVE_ON_ENGINE_DEATH.* no effect")
            self.assertNotIn("VLLM_MAX_N_SEQUENCES", run.stderr)


    def test_variables_say_where_lines_go_and_what_they_begin_with(self):
        words = [bin_dir() / "tandem-engine-core", MODEL, "--handshake-address", "ipc:///nowhere/x", "--block-size", "3"]
        for stream, shown, other in (("stdout", "stdout", "stderr"), ("ext://sys.stderr", "stderr", "stdout")):
            environment = {**os.environ, "VLLM_LOGGING_PREFIX": "[here] ", "VLLM_LOGGING_STREAM": stream}
            run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(run.returncode, 2, run)
            self.assertRegex(getattr(run, shown), r"(?m)^\[here\] \(EngineCore pid=\d+\) ERROR .* --block-size 3: must be")
            self.assertEqual(getattr(run, other), "")
        run = subprocess.run(words, env={**os.environ, "TANDEM_LOGGING_STREAM": "syslog"}, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(run.returncode, 2, run)
        self.assertIn("LOGGING_STREAM is 'syslog', must be ext://sys.stdout or ext://sys.stderr", run.stdout + run.stderr)


class Requests(unittest.TestCase):
    def test_lines_about_requests_have_prompts_at_debug_only(self):
        body = {"model": "m", "prompt": "A secret of one's own", "max_tokens": 3, "temperature": 0.5, "seed": 7}
        flags = ("--served-model-name", "m", "--enable-log-requests", "--enable-log-outputs", "--max-log-len", "8")
        with Pair(*flags) as server:
            status, reply = server.post("/v1/completions", body, **{"X-Request-Id": "abc"})
            self.assertEqual(status, 200)
            wait_for(lambda: "request output id=cmpl-abc" in server.log, "the output is logged")
            line = next(line for line in server.log.splitlines() if "request received id=cmpl-abc" in line)
            self.assertIn("max_tokens=3 temperature=0.5 seed=7", line)
            self.assertNotIn("secret", server.log)
            shown = server.log.split("request output id=cmpl-abc")[1].split("text=")[1].splitlines()[0]
            text = json.loads(shown.removesuffix("…"))
            self.assertLessEqual(len(text), 8)
            self.assertTrue(json.loads(reply)["choices"][0]["text"].strip().startswith(text.strip()[:3]))
            config = next(line for line in server.log.splitlines() if "[config] " in line)
            self.assertIn("max-log-len=8 (command line)", config)
            self.assertNotIn("environment", config)  # nothing was given there
        with Pair(*flags, "--log-level", "DEBUG") as server:
            self.assertEqual(server.post("/v1/completions", body)[0], 200)
            wait_for(lambda: "request prompt id=" in server.log, "the prompt is logged")
            server.wait_for_log('text="A secret"…')

    def test_a_proxy_may_leave_its_path(self):
        with Pair("--served-model-name", "m", "--root-path", "/llm") as server:
            for path in ("/v1/models", "/llm/v1/models"):
                self.assertEqual(json.loads(server.get(path)[1])["data"][0]["id"], "m")
            self.assertEqual(json.loads(server.get("/llm/openapi.json")[1])["servers"], [{"url": "/llm"}])


if __name__ == "__main__":
    unittest.main(verbosity=2)
