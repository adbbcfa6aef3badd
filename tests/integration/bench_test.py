#!/usr/bin/env python3
"""tandem bench: against servers that misbehave, and against the pair, whose own counts must agree."""
import base64
import json
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import odd_server
from odd_server import OddServer
from pair import LIMIT, MODEL, Pair, bin_dir, children, free_port, is_alive, wait_for


class Run:
    """One `tandem bench …` run to its end: code, out, err, and the JSON result when one was requested."""

    def __init__(self, what, *flags, env=None):
        with tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
            argv = [str(bin_dir() / "tandem"), "bench", what, *map(str, flags)]
            if what == "serve":
                argv += ["--save-result", "--save-detailed", "--result-dir", folder + "/new", "--result-filename", "r.json"]
            else:
                argv += ["--output-json", folder + "/r.json"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, env=env)
            self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
            found = list(pathlib.Path(folder).rglob("r.json"))
            self.json = json.loads(found[0].read_text()) if found else None


def serve(server, *flags):
    return Run("serve", "--port", server.port, "--skip-tokenizer-init", "--input-len", 4, "--output-len", 3, *flags)


def png_size(url):
    """(width, height) of a PNG in a data: URL, whose checksums and pixels are looked at."""
    kind, text = url.split(",")
    assert kind == "data:image/png;base64"
    data = base64.b64decode(text)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        chunks[name] = data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(name + chunks[name])
        at += 12 + size
    width, height, bits, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert (bits, color, len(pixels)) == (8, 2, height * (3 * width + 1)) and len(set(pixels)) > 200
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    return width, height


class OddServers(unittest.TestCase):
    def test_every_form_of_a_good_response_is_understood(self):
        kinds = [odd_server.good, odd_server.byte_by_byte, odd_server.odd_events, odd_server.no_usage,
                 odd_server.closes_quietly, odd_server.until_close]
        with OddServer(dict(enumerate(kinds))) as server:
            run = serve(server, "--num-prompts", len(kinds))
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(run.json["errors"], [""] * len(kinds))
        self.assertEqual(run.json["generated_texts"], ["one two three"] * len(kinds))
        self.assertEqual(run.json["output_lens"], [3] * len(kinds))
        self.assertEqual([len(itl) for itl in run.json["itls"]], [2] * len(kinds))
        self.assertEqual(run.json["input_lens"], [7, 7, 7, 4, 7, 7])  # the server's count, else ours
        self.assertEqual(run.json["model_id"], "odd-model")
        for ttft, itl, latency in zip(run.json["ttfts"], run.json["itls"], run.json["latencies"]):
            self.assertAlmostEqual(ttft + sum(itl), latency)

    def test_failures_are_counted_with_their_reason_and_leave_no_sample(self):
        kinds = {0: (odd_server.reset_mid_stream, "reset"), 1: (odd_server.cut_mid_stream, "in the middle"),
                 2: (odd_server.error_500, "HTTP 500 Internal Server Error: {\"error\": {\"message\": \"it broke\"}}"),
                 3: (odd_server.malformed, "malformed"), 4: (odd_server.no_chunk, "no chunk with choices"),
                 5: (odd_server.error_event, "engine died")}
        with OddServer({number: kind for number, (kind, _) in kinds.items()}) as server:
            run = serve(server, "--num-prompts", 8)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual((run.json["completed"], run.json["failed"]), (2, 6))
        for number, (_, words) in kinds.items():
            self.assertIn(words, run.json["errors"][number])
            self.assertIn(words, run.err)
            self.assertEqual(run.json["output_lens"][number], 0)
        self.assertEqual((run.json["total_output_tokens"], run.json["total_input_tokens"]), (6, 14))

    def test_all_failed_is_exit_status_1(self):
        with OddServer(default=odd_server.error_500) as server:
            run = serve(server, "--num-prompts", 3)
        self.assertEqual((run.code, run.json["failed"]), (1, 3))
        run = Run("serve", "--port", free_port(), "--model", "m", "--skip-tokenizer-init", "--num-prompts", 2)
        self.assertEqual(run.code, 1)
        self.assertIn("refused", run.err)

    def test_a_slow_start_is_waited_for(self):
        with OddServer(unready=5) as server:
            run = serve(server, "--num-prompts", 2, "--ready-check-timeout-sec", LIMIT)
            self.assertEqual((run.code, run.json["completed"]), (0, 2), run.err)
            self.assertEqual(len(server.bodies), 3)  # one of them the test request
        with OddServer(unready=10**6) as server:
            run = serve(server, "--num-prompts", 2, "--ready-check-timeout-sec", "0.5")
            self.assertEqual((run.code, run.json), (1, None))
            self.assertIn("/v1/models", run.err)

    def test_connections_are_used_again_and_replaced_when_the_server_closed_them(self):
        with OddServer() as server:
            run = serve(server, "--num-prompts", 5, "--max-concurrency", 1, "--model", "m")
            self.assertEqual((run.code, server.connections), (0, 1), run.err)
        with OddServer(default=odd_server.closes_quietly) as server:
            run = serve(server, "--num-prompts", 5, "--max-concurrency", 1, "--model", "m")
            self.assertEqual((run.code, run.json["completed"], server.connections), (0, 5, 5), run.err)

    def test_a_silent_server_is_given_up(self):
        def silent(_):
            server.hold.wait(LIMIT)
            return False

        with OddServer({1: silent}) as server:
            run = serve(server, "--num-prompts", 2, "--request-timeout-sec", "10")
        self.assertEqual((run.code, run.json["completed"]), (0, 1), run.err)
        self.assertIn("in time", run.json["errors"][1])

    def test_the_body_has_what_the_flags_request(self):
        with OddServer() as server:
            run = serve(server, "--num-prompts", 3, "--num-warmups", 2, "--header", "X-Team=blue", "--extra-body",
                        '{"seed": 5}', "--temperature", 0, "--request-id-prefix", "me-", "--served-model-name", "alias",
                        "--backend", "vllm")
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(len(server.bodies), 5)
        for body in server.bodies:
            self.assertEqual({key: body[key] for key in ("model", "max_tokens", "stream", "stream_options", "ignore_eos",
                                                         "temperature", "seed", "repetition_penalty")},
                             {"model": "alias", "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True},
                              "ignore_eos": True, "temperature": 0, "seed": 5, "repetition_penalty": 1})
            self.assertEqual(len(body["prompt"]), 4)
        self.assertTrue(all("X-Team: blue\r\n" in head for head in server.heads))
        ids = [line for head in server.heads for line in head.splitlines() if line.startswith("X-Request-Id: me-")]
        self.assertEqual(sorted(ids[2:]), [f"X-Request-Id: me-{i}" for i in range(3)])

    def test_vectors_have_a_latency_and_no_tokens(self):
        with OddServer({5: odd_server.error_500}, default=odd_server.vectors) as server:
            run = serve(server, "--num-prompts", 12, "--backend", "openai-embeddings", "--random-batch-size", 2)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(len(server.bodies), 6)
        self.assertTrue(all(len(body["input"]) == 2 and set(body) == {"model", "input", "truncate_prompt_tokens"}
                            for body in server.bodies))
        self.assertTrue(all(head.startswith("POST /v1/embeddings ") for head in server.heads))
        self.assertEqual((run.json["completed"], run.json["failed"]), (5, 1))
        self.assertEqual((run.json["total_input_tokens"], run.json["total_input_sequences"]), (55, 10))
        self.assertGreater(run.json["p99_e2el_ms"], 0)
        self.assertFalse({"mean_ttft_ms", "total_output_tokens", "output_throughput"} & set(run.json))
        self.assertIn("Input throughput (inputs/s):", run.out)
        self.assertNotIn("generated tokens", run.out)

    def test_images_are_real_ones(self):
        with OddServer() as server:
            run = serve(server, "--num-prompts", 2, "--backend", "openai-chat", "--dataset-name", "random-mm",
                        "--random-mm-base-items-per-request", 2, "--random-mm-bucket-config", "{(200, 150, 1): 1}")
        self.assertEqual(run.code, 0, run.err)
        for body in server.bodies:
            text, *images = body["messages"][0]["content"]
            self.assertEqual((text["type"], len(images)), ("text", 2))
            for image in images:
                self.assertEqual(png_size(image["image_url"]["url"]), (150, 200))

    def test_concurrency_is_a_limit_and_waiting_is_measured_apart(self):
        with OddServer() as server:
            run = serve(server, "--num-prompts", 20, "--max-concurrency", 2, "--request-rate", 2000,
                        "--percentile-metrics", "client_queue_time,e2el_including_client_queue,e2el")
            self.assertLessEqual(server.connections, 3)  # one more for /v1/models
        self.assertEqual(run.code, 0, run.err)
        self.assertIn("Client-side Queueing", run.out)
        self.assertGreaterEqual(run.json["mean_e2el_including_client_queue_ms"], run.json["mean_e2el_ms"])

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_https_checks_the_certificate_unless_insecure(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=odd",
                            "-keyout", folder + "/key", "-out", folder + "/cert"], check=True, capture_output=True)
            both = pathlib.Path(folder, "both.pem")
            both.write_text(pathlib.Path(folder, "key").read_text() + pathlib.Path(folder, "cert").read_text())
            with OddServer(default=odd_server.byte_by_byte, certificate=both) as server:
                flags = ("--base-url", f"https://127.0.0.1:{server.port}", "--model", "m", "--num-prompts", 3)
                run = serve(server, *flags, "--insecure")
                self.assertEqual((run.code, run.json["completed"]), (0, 3), run.err)
                run = serve(server, *flags)
                self.assertEqual((run.code, run.json["failed"]), (1, 3))
                self.assertIn("certificate", run.err)

    def test_bad_command_lines_are_exit_status_2(self):
        for flags, words in ((["--reqest-rate", "3"], "--request-rate"), (["--base-url", "ftp://x"], "base-url"),
                             (["--dataset-name", "custom", "--dataset-path", "/no/such", "--skip-tokenizer-init"], "/no/such"),
                             (["--model", "m"], "--tokenizer")):
            with self.subTest(flags):
                run = Run("serve", "--model", "m", *flags)
                self.assertEqual((run.code, run.json), (2, None))
                self.assertIn(words, run.err)
        with OddServer() as server:
            run = serve(server, "--num-prompts", 1, "--trust-remote-code", "--tokenizer-mode", "auto")
            self.assertEqual(run.code, 0, run.err)
            self.assertIn("--trust-remote-code has no effect", run.err)
        for what in ([], ["nothing"]):
            done = subprocess.run([str(bin_dir() / "tandem"), "bench", *what], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("throughput", done.stderr)


class RealPair(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def counts(self):
        return {name: self.server.total(name) for name in (
            "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
            "vllm:time_to_first_token_seconds_count")}

    def test_the_counts_of_client_and_server_are_equal(self):
        for flags in (["--input-len", 40, "--output-len", 9], ["--backend", "openai-chat", "--input-len", 40],
                      ["--dataset-name", "sonnet", "--input-len", 90, "--sonnet-prefix-len", 30, "--output-len", 12],
                      ["--dataset-name", "prefix_repetition", "--request-rate", 200, "--burstiness", "0.5",
                       "--prefix-repetition-prefix-len", 64, "--prefix-repetition-suffix-len", 8, "--output-len", 6]):
            with self.subTest(flags):
                before = self.counts()
                run = Run("serve", "--base-url", self.server.url, "--num-prompts", 20, "--output-len", 5, *flags)
                self.assertEqual((run.code, run.json["completed"]), (0, 20), run.err)
                after = self.counts()
                self.assertEqual([after[name] - before[name] for name in after],
                                 [run.json["total_input_tokens"], run.json["total_output_tokens"], 20, 20])

    def test_random_prompts_have_their_length_by_the_servers_count(self):
        run = Run("serve", "--base-url", self.server.url, "--num-prompts", 10, "--input-len", 50, "--output-len", 7)
        self.assertEqual(run.json["input_lens"], [50] * 10)
        self.assertEqual(run.json["output_lens"], [7] * 10)
        self.assertIn("Successful requests:                     10        \n", run.out)

    def test_latency_and_throughput_over_a_running_server(self):
        run = Run("latency", "--model", MODEL, "--base-url", self.server.url, "--batch-size", 3, "--input-len", 8,
                  "--output-len", 4, "--num-iters", 4, "--num-iters-warmup", 1)
        self.assertEqual((run.code, len(run.json["latencies"])), (0, 4), run.err)
        self.assertEqual(list(run.json["percentiles"]), ["10", "25", "50", "75", "90", "99"])
        before = self.counts()
        run = Run("throughput", MODEL, "--base-url", self.server.url, "--num-prompts", 30, "--input-len", 8,
                  "--output-len", 4)
        self.assertEqual((run.code, run.json["num_requests"], run.json["total_num_tokens"]), (0, 30, 30 * 12), run.err)
        self.assertEqual(self.counts()["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"], 120)


class OwnPair(unittest.TestCase):
    def test_latency_starts_a_server_and_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
            run = Run("latency", "--model", MODEL, "--batch-size", 2, "--input-len", 8, "--output-len", 4, "--num-iters", 2,
                      "--num-iters-warmup", 0, "--max-num-seqs", 4, env={"XDG_RUNTIME_DIR": folder})
            self.assertEqual((run.code, len(run.json["latencies"])), (0, 2), run.err)
            self.assertEqual(run.json["model_id"], str(MODEL))
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_a_signal_ends_the_server_too_and_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
            process = subprocess.Popen([str(bin_dir() / "tandem"), "bench", "latency", "--model", str(MODEL), "--num-iters",
                                        "1M", "--input-len", "4"], env={"XDG_RUNTIME_DIR": folder})
            try:
                wait_for(lambda: list(pathlib.Path(folder).glob("*/http")), "its server is up")
                server = children(process.pid)["tandem"]
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(LIMIT), 128 + signal.SIGINT)
                self.assertEqual(list(pathlib.Path(folder).iterdir()), [])
                wait_for(lambda: not is_alive(server), "the server has ended")
            finally:
                process.kill()
                process.wait()

    def test_a_server_that_cannot_start_is_reported_with_its_reason(self):
        run = Run("throughput", "--model", MODEL, "--num-prompts", 2, "--max-model-len", 10**9)
        self.assertEqual((run.code, run.json), (1, None))
        self.assertIn("max-model-len", run.err.replace("_", "-"))

    def test_bad_flags_are_refused_before_anything_starts(self):
        for flags, words in (([], "--model"), (["--model", MODEL, "--batch-sise", "3"], "--batch-size"),
                             (["--model", MODEL, "--max-num-seqs", "0"], "max-num-seqs")):
            with self.subTest(flags):
                run = Run("latency", *flags)
                self.assertEqual((run.code, run.json), (2, None))
                self.assertIn(words, run.err)


if __name__ == "__main__":
    unittest.main()
