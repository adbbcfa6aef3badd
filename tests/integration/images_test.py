#!/usr/bin/env python3
"""Images in requests: all APIs and limits, over tandem-media and an engine that makes up its tokens; which URLs are
fetched and which are not; and recorded texts of whole models, where TANDEM_GOLDENS has them."""
import base64
import http.server
import json
import os
import pathlib
import shutil
import socket
import struct
import sys
import tempfile
import threading
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from api_test import MODEL, Frontend, openai
from goldens import read_goldens
from pair import LIMIT, Pair, bin_dir, wait_for
from server import Server

NUM_TOKENS = 4  # of an image
BEGIN, ROW, END = 0, 1, 2  # tokens of the small model
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' }}{% if m.content is string %}{{ m.content }}{% else %}"
            "{% for c in m.content %}{% if c.type == 'image' %}<|begin|>{% else %}{{ c.text }}{% endif %}{% endfor %}"
            "{% endif %}{% endfor %}")


def make_model(folder):
    """The small model's tokenizer, with Gemma 3's images: 16 x 16 pixels in patches of 4, 4 tokens each."""
    for name in ("tokenizer.json", "generation_config.json"):
        shutil.copy(MODEL / name, folder)
    config = json.loads((MODEL / "config.json").read_text())
    config.update(model_type="gemma3", mm_tokens_per_image=NUM_TOKENS, image_token_index=ROW, boi_token_index=BEGIN,
                  eoi_token_index=END, vision_config={"image_size": 16, "patch_size": 4})
    tokenizer = json.loads((MODEL / "tokenizer_config.json").read_text())
    tokenizer["chat_template"] = TEMPLATE
    preprocessor = {"do_resize": True, "do_rescale": True, "do_normalize": True, "image_mean": [0.5] * 3,
                    "image_std": [0.5] * 3, "resample": 2, "rescale_factor": 1 / 255, "size": {"height": 16, "width": 16},
                    "image_processor_type": "Gemma3ImageProcessor"}
    for name, content in (("config", config), ("tokenizer_config", tokenizer), ("preprocessor_config", preprocessor)):
        (pathlib.Path(folder) / f"{name}.json").write_text(json.dumps(content))
    return folder


def png(red, width=8, height=8):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([red, 0, 255]) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def data_url(image):
    return "data:image/png;base64," + base64.b64encode(image).decode()


def part(url, **more):
    return {"type": "image_url", "image_url": {"url": url}, **more}


def user(*parts):
    return [{"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}]


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tandem-images-")
        model = pathlib.Path(cls.folder.name) / "model"
        model.mkdir()
        files = pathlib.Path(cls.folder.name) / "files"
        files.mkdir()
        (files / "a.png").write_bytes(png(9))
        cls.files = files
        cls.server = Frontend("--limit-mm-per-prompt", '{"image": 3}', "--max-image-bytes", "100K", "--server-dev-mode",
                              "--enable-responses-api-store",
                              "--allowed-local-media-path", str(files), "--max-request-body-bytes", "300K",
                              model=make_model(model))
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)
        cls.folder.cleanup()

    def post(self, path, body):
        status, text = self.server.post(path, {"model": "m", **body})
        return status, json.loads(text)

    def chat(self, *parts, **more):
        return self.post("/v1/chat/completions", {"messages": user(*parts), "max_tokens": 2, **more})

    def refused(self, *parts, **more):
        status, body = self.chat(*parts, **more)
        self.assertEqual(status, 400, body)
        return body["error"]["message"]

    def sent(self):
        """What the engine got last: (prompt ids, images)."""
        request = self.server.received(0)[-1]
        return request[1], request[2] or []

    def counts(self):
        text = self.server.get("/metrics")[1]
        text = text if isinstance(text, str) else text.decode()
        return [sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))
                for name in ("vllm:mm_cache_queries_total", "vllm:mm_cache_hits_total")]

    def test_an_image_reaches_the_engine_in_its_place_and_is_prepared_once(self):
        before = self.counts()
        response = self.client.chat.completions.create(
            model="m", messages=user("a", part(data_url(png(1))), "b", part(data_url(png(2)))), max_tokens=2, n=2)
        self.assertEqual(response.usage.prompt_tokens_details.multimodal_tokens, {"image": 2 * NUM_TOKENS})
        ids, images = self.sent()
        self.assertEqual(response.usage.prompt_tokens, len(ids))
        self.assertEqual([image["modality"] for image in images], ["image", "image"])
        for image in images:
            place = image["mm_position"]
            self.assertEqual(place["length"], NUM_TOKENS)
            self.assertEqual(ids[place["offset"] - 1:place["offset"] + NUM_TOKENS + 1], [BEGIN] + [ROW] * NUM_TOKENS + [END])
            pixels = image["data"]["pixel_values"]["data"]
            self.assertEqual(pixels[:2], ["float32", [1, 3, 16, 16]])
        self.assertNotEqual(images[0]["identifier"], images[1]["identifier"])
        self.assertEqual(self.server.received(0)[-2][2][0]["identifier"], images[0]["identifier"])
        self.chat(part(data_url(png(2))))
        self.assertEqual(self.sent()[1][0]["identifier"], images[1]["identifier"])
        after = self.counts()
        self.assertEqual([after[0] - before[0], after[1] - before[1]], [3, 1])

    def test_every_api_takes_images(self):
        _, expected = self.chat(part(data_url(png(3)))), self.sent()
        one = expected[1][0]["identifier"]
        url = data_url(png(3))
        source = {"type": "base64", "media_type": "image/png", "data": url.split(",")[1]}
        for path, body in (
                ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}),
                ("/v1/messages", {"messages": user({"type": "image", "source": source}), "max_tokens": 2}),
                ("/invocations", {"messages": user(part(url)), "max_tokens": 2}),
                ("/v1/chat/completions/batch", {"messages": [user(part(url))], "max_tokens": 2})):
            with self.subTest(path):
                status, response = self.post(path, body)
                self.assertEqual(status, 200, response)
                self.assertEqual(self.sent()[1][0]["identifier"], one)
        results = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "r"}, {"type": "image", "source": source}]}, {"type": "text", "text": "x"}]}]
        status, response = self.post("/v1/messages", {"messages": results, "max_tokens": 2})
        self.assertEqual(status, 200, response)
        ids, images = self.sent()
        self.assertEqual([image["identifier"] for image in images], [one])
        status, counted = self.post("/v1/messages/count_tokens", {"messages": results})
        self.assertEqual((status, counted["input_tokens"]), (200, len(ids)))
        messages = user("a", part(url))
        status, tokens = self.post("/tokenize", {"messages": messages})
        self.assertEqual(status, 200, tokens)
        status, refused = self.post("/tokenize", {"messages": user(part(f"file://{self.files}/a.png"))})
        self.assertEqual((status, refused["error"]["param"]), (400, "image_url"))
        self.chat("a", part(url))
        self.assertEqual(tokens["tokens"], self.sent()[0])
        status, rendered = self.post("/v1/chat/completions/render", {"messages": messages})
        self.assertEqual(status, 200, rendered)
        self.assertEqual(rendered["token_ids"], tokens["tokens"])
        self.assertEqual(rendered["features"]["mm_hashes"], {"image": [one]})
        place = self.sent()[1][0]["mm_position"]
        self.assertEqual(rendered["features"]["mm_placeholders"],
                         {"image": [{"offset": place["offset"], "length": NUM_TOKENS}]})

    def test_a_stored_response_is_continued_with_its_images(self):
        first = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": data_url(png(6))}]}],
                 "max_output_tokens": 2}
        status, response = self.post("/v1/responses", first)
        self.assertEqual(status, 200, response)
        one = self.sent()[1][0]["identifier"]
        more = {"previous_response_id": response["id"], "input": [{"role": "user", "content": [
            {"type": "input_text", "text": "and"}, {"type": "input_image", "image_url": data_url(png(7))}]}]}
        status, response = self.post("/v1/responses", {**more, "max_output_tokens": 2})
        self.assertEqual(status, 200, response)
        ids, images = self.sent()
        self.assertEqual([image["identifier"] == one for image in images], [True, False])
        status, rendered = self.post("/v1/responses/render", more)
        self.assertEqual((status, rendered.get("token_ids")), (200, ids), rendered)

    def test_files_uuids_and_salts(self):
        self.assertEqual(self.chat(part(f"file://{self.files}/a.png"))[0], 200)
        one = self.sent()[1][0]["identifier"]
        self.assertIn("must be a subpath", self.refused(part("file:///etc/passwd")))
        self.assertEqual(self.chat(part(data_url(png(9))), cache_salt="s")[0], 200)
        self.assertNotEqual(self.sent()[1][0]["identifier"], one)
        alone = {"type": "image_url", "image_url": None, "uuid": "u"}
        self.assertIn("no image is kept with the uuid u", self.refused(alone))
        self.assertIn("uuid must not be empty", self.refused(part(data_url(png(9)), uuid="")))
        self.assertEqual(self.chat(part(data_url(png(9)), uuid="u"))[0], 200)
        named = self.sent()[1][0]["identifier"]
        self.assertEqual(self.chat(alone)[0], 200)
        self.assertEqual(self.sent()[1][0]["identifier"], named)
        self.assertEqual(self.server.post("/reset_mm_cache", {})[0], 200)
        self.assertIn("no image is kept", self.refused(alone))

    def test_what_is_wrong_is_said(self):
        image = part(data_url(png(4)))
        self.assertIn("At most 3 image(s)", self.refused(image, image, image, image))
        self.assertIn("--max-image-bytes", self.refused(part(data_url(bytes(103_000)))))
        self.assertIn("--allowed-media-domains", self.refused(part("https://example.com/i.png")))
        self.assertIn("base64", self.refused(part("data:image/png;base64,%%%")))
        self.assertIn("image placeholders", self.refused("<|begin|>", image))
        self.assertIn("--trust-request-mm-kwargs", self.refused(image, mm_processor_kwargs={"do_resize": True}))
        self.assertIn("not available with images", self.refused(image, truncate_prompt_tokens=4))
        for broken in (b"", b"GIF89a", png(5)[:60], b"\x89PNG\r\n\x1a\n" + bytes(50), b"\xff\xd8\xff" + bytes(30)):
            with self.subTest(broken[:12]):
                self.refused(part(data_url(broken)))
        status, body = self.server.post("/v1/chat/completions", {"messages": user(part(data_url(bytes(300_000))))})
        self.assertEqual(status, 413)
        self.assertIn("--max-request-body-bytes", str(body))
        self.assertEqual(self.chat(image)[0], 200)  # and it goes on


class Batches(unittest.TestCase):
    """The images of all conversations of one request."""

    def test_they_count_together_and_each_conversation_gets_its_own(self):
        with tempfile.TemporaryDirectory(prefix="tandem-images-") as folder:
            server = Frontend("--max-image-input-bytes", "10K", model=make_model(folder))  # 3 KiB each
            try:
                images = [part(data_url(png(red))) for red in range(4)]
                conversations = [user(images[0], images[1]), user("x"), user(images[2]), user(images[3])]
                path = "/v1/chat/completions/batch"
                status, body = server.post(path, {"messages": conversations, "max_tokens": 2})
                self.assertEqual(status, 400, body)
                self.assertIn("--max-image-input-bytes", str(body))
                self.assertEqual(server.post(path, {"messages": conversations[:3], "max_tokens": 2})[0], 200)
                got = [[image["identifier"] for image in request[2] or []] for request in server.received(0)[-3:]]
                self.assertEqual([len(each) for each in got], [2, 0, 1])
                for image, identifier in zip(images, got[0] + got[2]):
                    server.post("/v1/chat/completions", {"messages": user(image), "max_tokens": 2})
                    self.assertEqual(server.received(0)[-1][2][0]["identifier"], identifier)
            finally:
                server.__exit__(False)


class Texts(unittest.TestCase):
    """A model of texts, and one that is served as such."""

    def test_images_are_refused(self):
        with tempfile.TemporaryDirectory(prefix="tandem-images-") as folder:
            bare = pathlib.Path(folder) / "bare"
            bare.mkdir()
            (make_model(bare) / "preprocessor_config.json").unlink()
            for flags, model, message, reason in (
                    ((), MODEL, f"{MODEL} is not a multimodal model", "the model takes no images"),
                    ((), bare, f"{bare} is not a multimodal model", "the model's folder has no preprocessor_config.json"),
                    (("--language-model-only",), make_model(folder), "At most 0 image(s)", None)):
                server = Frontend(*flags, model=model)
                try:
                    if reason:
                        server.wait_for_log(f"images are refused: {reason}")
                    status, body = server.post("/v1/chat/completions", {"messages": user(part(data_url(png(1))))})
                    self.assertEqual(status, 400)
                    self.assertIn(message, str(body))
                    self.assertEqual(server.post("/v1/chat/completions", {"messages": user("x"), "max_tokens": 2})[0], 200)
                finally:
                    server.__exit__(False)


class WebServer:
    """Sends an image, redirects as /to?<URL> says, or keeps quiet; counts what it was asked for."""

    def __init__(self, host="127.0.0.1"):
        outer = self
        self.paths, self.gone = [], threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.paths.append(self.path)
                if self.path == "/quiet":
                    self.connection.settimeout(LIMIT)
                    if self.connection.recv(1) == b"":
                        outer.gone.set()
                    return
                self.send_response(302 if self.path.startswith("/to?") else 200 if self.path == "/i.png" else 404)
                if self.path.startswith("/to?"):
                    self.send_header("Location", self.path[4:])
                self.end_headers()
                if self.path == "/i.png":
                    self.wfile.write(png(7))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.url = f"http://{host}:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Urls(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-images-")
        self.web = WebServer()
        self.server = None

    def tearDown(self):
        if self.server is not None:
            self.server.__exit__(False)
        self.web.close()
        self.folder.cleanup()

    def start(self, *flags):
        self.server = Frontend(*flags, model=make_model(self.folder.name))

    def chat(self, url):
        status, body = self.server.post("/v1/chat/completions", {"messages": user(part(url)), "max_tokens": 2})
        return status, str(body)

    def test_allowed_names_do_not_lead_into_private_networks(self):
        hosts = ["127.0.0.1", "localhost", "::1", "0.0.0.0", "169.254.169.254", "::ffff:127.0.0.1"]
        self.start("--allowed-media-domains", *hosts)
        for host in hosts:
            with self.subTest(host):
                name = f"[{host}]" if ":" in host else host
                status, body = self.chat(f"http://{name}:{self.web.port}/i.png")
                self.assertEqual(status, 400, body)
                self.assertIn("loopback", body)
        for url in (f"http://2130706433:{self.web.port}/", f"http://127.0.0.1@x:{self.web.port}/", "http://127.1/",
                    f"http://127.0.0.1.:{self.web.port}/i.png", "gopher://127.0.0.1/", "HTTP://LOCALHOSt/i.png"):
            with self.subTest(url):
                self.assertEqual(self.chat(url)[0], 400)
        self.assertEqual(self.web.paths, [])

    def test_redirects_are_followed_when_allowed_and_checked_at_each_hop(self):
        self.start("--allowed-media-domains", "127.0.0.1", "--no-media-egress-block-private")
        url = self.web.url
        self.assertEqual(self.chat(f"{url}/i.png")[0], 200)
        status, body = self.chat(f"{url}/to?{url}/i.png")
        self.assertEqual(status, 422)
        self.assertIn("--media-url-allow-redirects", body)
        status, body = self.chat(f"{url}/none")
        self.assertEqual(status, 422)
        self.assertIn("HTTP 404", body)
        self.assertEqual(self.web.paths.count("/i.png"), 1)
        self.server.__exit__(False)
        self.start("--allowed-media-domains", "127.0.0.1", "--no-media-egress-block-private", "--media-url-allow-redirects")
        self.assertEqual(self.chat(f"{url}/to?{url}/i.png")[0], 200)
        for target in (f"http://localhost:{self.web.port}/i.png", "http://169.254.169.254/latest/", "file:///etc/passwd"):
            with self.subTest(target):
                before = len(self.web.paths)
                self.assertEqual(self.chat(f"{url}/to?{target}")[0], 400)
                self.assertEqual(len(self.web.paths), before + 1)

    def test_a_fetch_ends_with_its_request_or_its_client(self):
        self.start("--allowed-media-domains", "127.0.0.1", "--no-media-egress-block-private", "--image-fetch-timeout",
                   str(10 * LIMIT))
        status, body = self.server.post(
            "/v1/chat/completions", {"messages": user(part(self.web.url + "/quiet"))}, **{"x-request-timeout": "0.1"})
        self.assertEqual(status, 504, body)
        self.assertTrue(self.web.gone.wait(LIMIT))
        self.web.gone.clear()
        asked = len(self.web.paths)
        body = json.dumps({"messages": user(part(self.web.url + "/quiet"))}).encode()
        with socket.create_connection(("127.0.0.1", int(self.server.port_file.read_text()))) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
            wait_for(lambda: len(self.web.paths) > asked, "the image is fetched")
        self.assertTrue(self.web.gone.wait(LIMIT), "the fetch ends with its client")


class WholeModels(unittest.TestCase):
    """Recorded greedy tokens of the families, with their files, through HTTP and an engine."""

    def check_family(self, name, *flags, programs=None):
        if "TANDEM_GOLDENS" not in os.environ:
            self.skipTest("TANDEM_GOLDENS is not set")
        root = pathlib.Path(os.environ["TANDEM_GOLDENS"]) / "vision"
        goldens = read_goldens(root / name)
        with Pair("--served-model-name", "m", "--dtype", "float32", "--kv-cache-memory-bytes", "32M", *flags, model=root / name,
                  programs=programs) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=LIMIT)
            num_compared = 0
            for case in goldens["cases"]:
                files = iter(case["images"])
                content = [piece if piece["type"] == "text" else part(data_url((root / "images" / next(files)).read_bytes()))
                           for piece in case["content"]]
                response = client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": content}], temperature=0,
                    max_tokens=len(case["greedy_ids"]), extra_body={"return_token_ids": True, "ignore_eos": True})
                self.assertEqual(response.prompt_token_ids, case["prompt_ids"])
                # Up to a token that was nearly another one.
                close = [i for i, margin in enumerate(case["greedy_margins"]) if margin < 0.02]
                sure = close[0] if close else len(case["greedy_ids"])
                self.assertEqual(response.choices[0].token_ids[:sure], case["greedy_ids"][:sure], case["index"])
                num_compared += sure
            self.assertGreater(num_compared, 60)

    def test_a_stream_outlives_its_engine_with_its_images(self):
        if "TANDEM_GOLDENS" not in os.environ:
            self.skipTest("TANDEM_GOLDENS is not set")
        root = pathlib.Path(os.environ["TANDEM_GOLDENS"]) / "vision"
        body = {"messages": user("a", part(data_url((root / "images" / "b_photo.jpg").read_bytes()))), "temperature": 0,
                "max_tokens": 400, "ignore_eos": True, "return_token_ids": True}
        server = Server(model=root / "qwen3_5_vl", engine_flags=("--dtype", "float32"))
        try:
            status, whole = server.ask("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 200, whole)
            connection = server.connect()
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}),
                               {"Content-Type": "application/json"})
            stream, ids = connection.getresponse(), []
            while not stream.closed:
                line = stream.readline()
                if not line or line.startswith(b"data: [DONE]"):
                    break
                if not line.startswith(b"data: "):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    if not ids and choice.get("token_ids"):
                        server.restart_engine()
                    ids += choice.get("token_ids") or []
            connection.close()
            self.assertEqual(ids, json.loads(whole)["choices"][0]["token_ids"])
            self.assertEqual(server.total("tandem:requests_resumed_total", 'outcome="resumed"'), 1)
        finally:
            server.__exit__(False)

    def test_prefixes_are_shared_by_equal_images_alone(self):
        if "TANDEM_GOLDENS" not in os.environ:
            self.skipTest("TANDEM_GOLDENS is not set")
        model = pathlib.Path(os.environ["TANDEM_GOLDENS"]) / "vision" / "qwen3_vl"
        with Pair("--served-model-name", "m", "--kv-cache-memory-bytes", "32M", model=model) as server:
            def cached(red):
                status, body = server.post("/v1/chat/completions", {
                    "messages": user(part(data_url(png(red, 64, 64))), "word " * 40), "max_tokens": 2})
                self.assertEqual(status, 200, body)
                return json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"]
            self.assertEqual(cached(1), 0)
            self.assertGreaterEqual(cached(1), 32)
            self.assertEqual(cached(2), 0)
        with Pair("--served-model-name", "m", "--kv-cache-memory-bytes", "32M", "--language-model-only", model=model) as server:
            status, body = server.post("/v1/chat/completions", {"messages": user(part(data_url(png(1))))})
            self.assertEqual(status, 400)
            self.assertIn(b"At most 0 image(s)", body)
            self.assertEqual(server.post("/v1/chat/completions", {"messages": user("x"), "max_tokens": 2})[0], 200)

    def test_qwen3_5_vl(self):
        self.check_family("qwen3_5_vl")

    def test_qwen3_vl(self):
        self.check_family("qwen3_vl")

    def test_qwen3_vl_on_an_emulated_gpu(self):
        with tempfile.TemporaryDirectory(prefix="device-", dir=bin_dir()) as folder:
            for name in ("tandem", "tandem-frontend", "tandem-media", "emulated/emulated-engine"):
                of_pair = "tandem-engine-core" if "/" in name else name
                os.link(bin_dir() / name, pathlib.Path(folder) / of_pair)
            self.check_family("qwen3_vl", "--device", "cuda", "--threads", "1", "--max-model-len", "256", "--max-num-seqs", "4",
                              "--max-num-batched-tokens", "32", "--compilation-config", '{"cudagraph_capture_sizes": [1, 2]}',
                              programs=pathlib.Path(folder))

    def test_qwen2_5_vl(self):
        self.check_family("qwen2_5_vl")

    def test_gemma3_mm(self):
        self.check_family("gemma3_mm")


if __name__ == "__main__":
    unittest.main(verbosity=2)
