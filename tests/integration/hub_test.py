#!/usr/bin/env python3
"""`tandem pull`, `list`, `rm` and `serve org/name` against a small hub: what is fetched, the cache's layout, what goes
wrong on the way, and what a hostile hub may try."""
import hashlib
import http.server
import json
import os
import pathlib
import pty
import random
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir
from small_hub import SmallHub, git_hash, make_certificates

SEED = random.randrange(1 << 30)
print(f"seed {SEED}")
RANDOM = random.Random(SEED)
NAME = "org/some.model-1"
FILES = {"config.json": b'{"a": 1}', "tokenizer.json": b"{}", "chat_template.jinja": b"{{ x }}", "README.md": b"read me",
         "model.safetensors": RANDOM.randbytes(300_000), "pytorch_model.bin": b"not wanted", "onnx/model.onnx": b"nor this",
         "empty.txt": b""}
LARGE = {"model.safetensors", "pytorch_model.bin"}
WANTED = {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors", "empty.txt"}
WEIGHTS_HASH = hashlib.sha256(FILES["model.safetensors"]).hexdigest()


def clean_environment():
    names = ("proxy", "HF_", "HUGGING", "MODELSCOPE", "SSL_CERT", "OFFLINE")
    return {name: value for name, value in os.environ.items() if not any(word.lower() in name.lower() for word in names)}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tandem-hub-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.cache = self.root / "cache"

    def hub(self, **options):
        hub = SmallHub(**options)
        hub.__enter__()
        self.addCleanup(hub.__exit__)
        return hub

    def command(self, hub, *words, **environment):
        return subprocess.Popen([str(bin_dir() / "tandem"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**clean_environment(), **hub.environment(self.cache), **environment})

    def run_tandem(self, hub, *words, **environment):
        process = self.command(hub, *words, **environment)
        out, errors = process.communicate(timeout=LIMIT)
        return process.returncode, out, errors

    def pull(self, hub, name=NAME, *words, **environment):
        """The path that a successful pull prints."""
        code, out, errors = self.run_tandem(hub, "pull", name, *words, **environment)
        self.assertEqual(code, 0, errors)
        return pathlib.Path(out.strip())

    def refusal(self, hub, *words, name=NAME, **environment):
        code, out, errors = self.run_tandem(hub, "pull", name, *words, **environment)
        self.assertNotEqual(code, 0, out + errors)
        self.assertGreaterEqual(code, 0, "killed by a signal")
        self.assertEqual(out, "")
        return errors

    def check_whole(self, path, files=WANTED):
        self.assertEqual({str(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir()}, set(files))
        for name in files:
            self.assertEqual((path / name).read_bytes(), FILES[name], name)

    def leftovers(self):
        return [str(path) for path in self.cache.rglob("*") if ".tandem" in path.name]


class Pulls(Case):
    def test_what_is_needed_is_there_and_nothing_else(self):
        hub = self.hub(page_size=3)
        model = hub.add(NAME, FILES, LARGE)
        path = self.pull(hub)
        repository = self.cache / "models--org--some.model-1"
        self.assertEqual(path, repository / "snapshots" / model.commit)
        self.check_whole(path)
        self.assertEqual((repository / "refs" / "main").read_text(), model.commit)
        self.assertEqual(os.readlink(path / "model.safetensors"), f"../../blobs/{WEIGHTS_HASH}")
        self.assertEqual(os.readlink(path / "config.json"), f"../../blobs/{git_hash(FILES['config.json'])}")
        self.assertEqual(self.leftovers(), [])
        # Again: only the lists are asked for.
        before = len(hub.requests)
        self.assertEqual(self.pull(hub), path)
        self.assertFalse([one for one, _ in hub.requests[before:] if "resolve" in one])

    def test_revisions_by_name_and_flag(self):
        hub = self.hub()
        new = hub.add(NAME, FILES, LARGE)
        old = hub.add(NAME, {**FILES, "config.json": b"{}"}, LARGE, revision="refs/pr/1")
        self.assertEqual(self.pull(hub, NAME + ":refs/pr/1").name, old.commit)
        self.assertEqual(self.pull(hub, NAME, "--revision", new.commit).name, new.commit)
        self.assertIn("no such revision", self.refusal(hub, name=NAME + ":v9"))
        self.assertIn("has revision v1, --revision is v2", self.refusal(hub, "--revision", "v2", name=NAME + ":v1"))
        self.assertIn("is no name of a model", self.refusal(hub, name="../../etc"))
        # One of them is removed, by either spelling.
        for words in ((NAME + ":refs/pr/1",), (NAME, "--revision", new.commit)):
            self.assertEqual(self.run_tandem(hub, "list")[1].count(NAME), 2 if words[0] != NAME else 1)
            code, out, errors = self.run_tandem(hub, "rm", *words)
            self.assertEqual((code, errors), (0, ""))
        self.assertEqual(self.run_tandem(hub, "list")[1], "")
        self.assertEqual(self.run_tandem(hub, "rm", NAME + ":a", "--revision", "b")[0], 2)

    def test_a_name_of_one_part(self):
        hub = self.hub()
        model = hub.add("old-org/gpt2", FILES, LARGE)
        hub.reply = lambda handler, path: path.startswith("/api/models/gpt2/") and (
            hub.send(handler, 307, b"", Location=path.replace("gpt2", "old-org/gpt2")) or True) or (
            path.startswith("/gpt2/resolve/") and (
                hub.send(handler, 307, b"", Location="/old-org" + path) or True))
        path = self.pull(hub, "gpt2")
        self.assertEqual(path, self.cache / "models--gpt2" / "snapshots" / model.commit)
        self.check_whole(path)
        self.assertRegex(self.run_tandem(hub, "list")[1], "^gpt2 ")
        self.assertEqual(self.run_tandem(hub, "rm", "gpt2")[0], 0)
        self.assertEqual(list(self.cache.glob("models--*")), [])

    def test_shards_that_the_index_names(self):
        hub = self.hub()
        index = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})
        hub.add(NAME, {"config.json": b"{}", "model.safetensors.index.json": index.encode(), "consolidated.safetensors": b"x",
                       "model-00001-of-00002.safetensors": b"one", "model-00002-of-00002.safetensors": b"two"})
        names = {file.name for file in self.pull(hub).iterdir()}
        self.assertEqual(names, {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors"})
        hub.add("org/bad", {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"a": "../../x"}}'})
        self.assertIn("names a file that the hub does not list", self.refusal(hub, name="org/bad"))

    def test_gguf_by_quant(self):
        hub = self.hub()
        files = {"m-Q4_K_M.gguf": b"q4", "m-Q8_0.gguf": b"q8", "big/m-Q6_K-00001-of-00002.gguf": b"6a", "README.md": b"",
                 "big/m-Q6_K-00002-of-00002.gguf": b"6b", "m-BF16.gguf": b"bf", "mmproj-Q8_0.gguf": b"no"}
        hub.add(NAME, files)
        self.assertEqual(self.pull(hub).name, "m-Q4_K_M.gguf")
        self.assertEqual(self.pull(hub, NAME + ":q8_0").read_bytes(), b"q8")
        path = self.pull(hub, NAME + ":Q6_K")
        self.assertEqual(path.name, "m-Q6_K-00001-of-00002.gguf")
        self.assertEqual((path.parent / "m-Q6_K-00002-of-00002.gguf").read_bytes(), b"6b")
        self.assertEqual(path.read_bytes(), b"6a")
        self.assertIn("no GGUF file of F16, only BF16, Q4_K_M, Q6_K, Q8_0", self.refusal(hub, name=NAME + ":F16"))
        code, out, _ = self.run_tandem(hub, "list")
        self.assertEqual(code, 0)
        self.assertEqual([line.split()[0] for line in out.splitlines()], [f"{NAME}:{quant}" for quant in ("Q4_K_M", "Q6_K", "Q8_0")])
        self.assertEqual(json.loads(self.run_tandem(hub, "list", "--json")[1])[1],
                         {"name": f"{NAME}:Q6_K", "revision": "main", "bytes": 4, "has_weights": True})
        self.assertEqual(self.run_tandem(hub, "rm", NAME + ":Q6_K")[0], 0)
        self.assertFalse(path.exists())
        self.assertEqual(len(list((self.cache / "models--org--some.model-1" / "blobs").iterdir())), 2)
        code, out, _ = self.run_tandem(hub, "rm", NAME)
        self.assertEqual((code, list(self.cache.glob("models--*"))), (0, []), out)
        self.assertIn("is not in", self.run_tandem(hub, "rm", NAME)[2])

    def test_weights_that_are_not_read(self):
        hub = self.hub()
        hub.add(NAME, {"config.json": b"{}", "pytorch_model.bin": b"x"})
        self.assertIn("neither safetensors nor GGUF files but pytorch_model.bin", self.refusal(hub))
        self.assertEqual([file.name for file in self.pull(hub, NAME, "--tokenizer-only").iterdir()], ["config.json"])

    def python(self, hub, script, **environment):
        """The lines that a script prints with huggingface_hub as h and the model's name as NAME."""
        hub.storage = hub.url.replace("127.0.0.1", "localhost")  # of large files it wants redirects to another host
        try:
            import huggingface_hub  # noqa: F401
        except ImportError as missing:
            self.skipTest(f"SKIPPED: {missing}")
        done = subprocess.run([sys.executable, "-c", f"import huggingface_hub as h\nNAME = {NAME!r}\n{script}"],
                              capture_output=True, text=True, timeout=LIMIT,
                              env={**clean_environment(), **hub.environment(self.cache, **environment)})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_python_reads_what_was_pulled(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        path = self.pull(hub)
        lines = self.python(hub, "print(h.snapshot_download(NAME, local_files_only=True))\n"
                                 "print(h.hf_hub_download(NAME, 'model.safetensors', local_files_only=True))\n"
                                 "cache = h.scan_cache_dir()\n"
                                 "print([(repo.repo_id, repo.nb_files, sorted(repo.refs)) for repo in cache.repos], "
                                 "len(cache.warnings))\n", HF_HUB_OFFLINE="1")
        self.assertEqual(lines, [str(path), str(path / "model.safetensors"), f"[('{NAME}', {len(WANTED)}, ['main'])] 0"])
        # With the hub in reach it sees that nothing is missing.
        before = len(hub.requests)
        self.assertEqual(self.python(hub, f"print(h.snapshot_download(NAME, allow_patterns={sorted(WANTED)}))"), [str(path)])
        self.assertEqual([one for one, head in hub.requests[before:] if head[":method"] == "GET" and "/api/" not in one], [])

    def test_what_python_has_downloaded_is_not_downloaded_again(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        path = self.python(hub, f"print(h.snapshot_download(NAME, allow_patterns={sorted(WANTED)}))")[0]
        before = len(hub.requests)
        self.assertEqual(str(self.pull(hub)), path)
        self.check_whole(pathlib.Path(path))
        self.assertEqual([one for one, _ in hub.requests[before:] if "/api/" not in one], [])

    def test_a_bar_on_a_terminal_and_lines_elsewhere(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        code, _, errors = self.run_tandem(hub, "pull", NAME)
        self.assertEqual(code, 0)
        self.assertEqual({line.split()[0] for line in errors.splitlines()}, WANTED - {"empty.txt"})
        self.assertNotIn("\x1b", errors)
        terminal, other = pty.openpty()
        environment = {**clean_environment(), **hub.environment(self.root / "second")}
        process = subprocess.Popen([str(bin_dir() / "tandem"), "pull", NAME], stdout=subprocess.PIPE, stderr=other, env=environment)
        os.close(other)
        shown = b""
        try:
            while piece := os.read(terminal, 65536):
                shown += piece
        except OSError:
            pass  # the other end is closed
        process.communicate(timeout=LIMIT)
        os.close(terminal)
        self.assertRegex(shown.decode(), r"\r\x1b\[K\[[#.]{30}\] .* of 293\.0 KiB, ")

    def test_model_scope(self):
        hub = self.hub()
        hub.add(NAME, FILES, revision="master")
        hub.token = None
        path = self.pull(hub, VLLM_USE_MODELSCOPE="True", MODELSCOPE_API_TOKEN="ms-1")
        self.assertEqual(path, self.cache / "models/org--some.model-1/snapshots/master")
        self.check_whole(path)
        self.assertEqual({head.get("Cookie") for _, head in hub.requests}, {"m_session_id=ms-1"})
        self.assertTrue(all(one.startswith("/api/v1/models/") for one in hub.paths()))


class Trouble(Case):
    def test_cut_connections_go_on_where_they_were(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        hub.cut = [RANDOM.randrange(1, 5000) for _ in range(5)]
        self.check_whole(self.pull(hub, NAME, "--part-size", "65536"))
        self.assertEqual(hub.cut, [])

    def test_many_connections_take_parts(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        self.check_whole(self.pull(hub, NAME, "--part-size", "8192", "--connections", "7"))
        ranges = [head["Range"] for one, head in hub.requests if WEIGHTS_HASH in one]
        self.assertEqual(sorted(ranges), sorted(f"bytes={at}-{min(at + 8192, 300_000) - 1}" for at in range(0, 300_000, 8192)))

    def test_a_hub_without_ranges(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        hub.ranges = False
        self.check_whole(self.pull(hub, NAME, "--part-size", "8192"))

    def test_429_is_waited_for(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        hub.late = [0, 1]
        code, _, errors = self.run_tandem(hub, "pull", NAME)
        self.assertEqual(code, 0, errors)
        self.assertIn("responds with status 429; trying again in 1 s", errors)
        hub.late = [100000]
        self.assertIn("responds with status 429 and asks to wait 100,000 s", self.refusal(hub))

    def test_who_may_not_read(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        hub.token = "right"
        self.assertIn("or is private: check the name, or set HF_TOKEN", self.refusal(hub))
        self.assertIn("does not accept the token (HF_TOKEN)", self.refusal(hub, HF_TOKEN="wrong"))
        self.check_whole(self.pull(hub, HF_TOKEN="right"))
        # The flag's token has precedence.
        self.assertIn("does not accept the token",
                      self.refusal(hub, "--hf-token", "wrong", HF_TOKEN="right"))
        self.pull(hub, NAME, "--hf-token=right", HF_TOKEN="wrong")
        home = pathlib.Path(str(self.cache) + "-home")
        home.mkdir()
        (home / "token").write_text("right\n")
        self.pull(hub)
        # Of a file's environment, which no shell has read.
        (home / "token").rename(home / "other")
        self.pull(hub, HOME=str(home), HF_TOKEN_PATH="~/other")
        path = self.pull(hub, HOME=str(home), HF_HUB_CACHE="~/hub", HF_TOKEN="right")
        self.assertEqual(path.parents[2], home / "hub")
        (home / "other").rename(home / "token")
        self.assertIn("printable ASCII", self.refusal(hub, HF_TOKEN="a b"))
        hub.reply = lambda handler, path: hub.send(handler, 403, b"", **{"X-Error-Code": "GatedRepo"}) or True
        self.assertIn("is gated: accept its conditions", self.refusal(hub))
        hub.reply = lambda handler, path: hub.send(handler, 403, b"") or True
        self.assertIn("refuses access; the token (HF_TOKEN) may not", self.refusal(hub))
        (home / "token").unlink()
        self.assertIn("refuses access; set HF_TOKEN to a token that may read it", self.refusal(hub))
        hub.reply, hub.token = lambda handler, path: False, None
        self.assertIn("org/nobody in revision main does not exist at", self.refusal(hub, name="org/nobody"))

    def test_a_wrong_hash_is_refused_and_leaves_nothing(self):
        hub = self.hub()
        model = hub.add(NAME, dict(FILES), LARGE)
        right = model.tree()
        hub.tree = right
        model.files["config.json"] = b'{"a": 2}'
        self.assertIn("config.json: its bytes hash to", self.refusal(hub))
        self.assertFalse((self.cache / "models--org--some.model-1" / "refs").exists())
        self.assertEqual([path for path in self.leftovers() if git_hash(FILES["config.json"]) in path], [])
        model.files["config.json"] = FILES["config.json"]
        self.check_whole(self.pull(hub))

    def test_killed_in_the_middle_it_goes_on(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        stop, served = threading.Event(), []

        def reply(handler, path):
            if "stored" in path:
                served.append(handler.headers["Range"])
                if len(served) > 20:
                    stop.wait(LIMIT)
            return False
        hub.reply = reply
        process = self.command(hub, "pull", NAME, "--part-size", "4096", "--connections", "2")
        self.assertTrue(hub.wait_for_requests(22, "stored"))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # Pythons' libraries do not see half a model.
        self.assertFalse(list(self.cache.glob("models--*/snapshots/*")))
        stop.set()
        hub.reply, before = lambda handler, path: False, len(hub.requests)
        self.check_whole(self.pull(hub, NAME, "--part-size", "4096"))
        again = [head["Range"] for one, head in hub.requests[before:] if "stored" in one]
        self.assertEqual(len(set(again) & set(served[:18])), 0, "parts that were there are not fetched again")
        self.assertEqual(self.leftovers(), [])

    def test_two_processes_share_the_work(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        processes = [self.command(hub, "pull", NAME, "--part-size", "4096") for _ in range(3)]
        outcomes = [process.communicate(timeout=LIMIT) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0, 0, 0], outcomes)
        self.check_whole(pathlib.Path(outcomes[0][0].strip()))
        ranges = [head["Range"] for one, head in hub.requests if WEIGHTS_HASH in one]
        self.assertEqual(len(ranges), len(set(ranges)), "each part was fetched once")

    def test_the_disk_has_no_room(self):
        hub = self.hub()
        model = hub.add(NAME, FILES, LARGE)
        hub.tree = model.tree()
        for entry in hub.tree:
            if entry["path"] == "model.safetensors":
                entry["lfs"]["size"] = 1 << 43
        errors = self.refusal(hub)
        self.assertIn("are missing, and", errors)
        self.assertIn("HF_HUB_CACHE names another folder", errors)

    def test_nobody_is_there(self):
        with SmallHub() as hub:
            hub.add(NAME, FILES)
        self.assertIn("Connection refused", self.refusal(hub))
        self.assertIn("HF_HUB_OFFLINE is set", self.refusal(hub, HF_HUB_OFFLINE="1"))


class Hostile(Case):
    def test_names_hashes_and_sizes_of_the_list(self):
        hub = self.hub()
        model = hub.add(NAME, {"config.json": b"{}"})
        good = {"type": "file", "path": "a.json", "size": 2, "oid": "0" * 40}
        for change, reason in (({"path": "../../../escaped.json"}, "could leave its folder"),
                               ({"path": "/etc/escaped.json"}, "could leave its folder"),
                               ({"path": "a//b"}, "could leave its folder"),
                               ({"path": "a\n.json"}, "could leave its folder"),
                               ({"path": "x" * 300 + ".json"}, "could leave its folder"),
                               ({"oid": "../../../escaped"}, "without a hash"),
                               ({"oid": None}, "without a hash"),
                               ({"lfs": {"oid": "0" * 40, "size": 1}}, "without a hash"),
                               ({"size": -5}, "a size that cannot be"),
                               ({"size": 1 << 62}, "a size that cannot be"),
                               ({"size": 1.5e300}, "a size that cannot be"),
                               ({"path": "config.json"}, "twice")):
            with self.subTest(reason, change=change):
                hub.tree = model.tree() + [{**good, **change}]
                self.assertIn(reason, self.refusal(hub))
        self.assertEqual([path for path in self.root.rglob("*escaped*")], [])

    def test_lists_without_an_end(self):
        hub = self.hub()
        hub.add(NAME, FILES)
        for body, reason in ((b"[" * 100_000, "is not JSON"), (b"{}", "is no list"), (b"[1]", "has other things in it"),
                             (b" " * (40 << 20), "is larger than")):
            with self.subTest(reason):
                hub.reply = lambda handler, path: "/tree/" in path and (hub.send(handler, 200, body) or True)
                self.assertIn(reason, self.refusal(hub))
        hub.reply = lambda handler, path: "/tree/" in path and (
            hub.send(handler, 200, b"[]", Link=f'<{path}>; rel="next"') or True)
        self.assertIn("has no end", self.refusal(hub))
        hub.reply = lambda handler, path: "/tree/" in path and (
            hub.send(handler, 200, b"[]", Link='<http://localhost:1/x>; rel="next"') or True)
        self.assertIn("on another server", self.refusal(hub))
        hub.reply = lambda handler, path: "/revision/" in path and (hub.send_json(handler, {"sha": "../../x"}) or True)
        self.assertIn("names no commit", self.refusal(hub))

    def test_redirects(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        for location, reason in (("/api/models/loop", "redirects more than 10 times"), ("ftp://x/y", "must begin with http"),
                                 ("", "an empty Location")):
            with self.subTest(reason):
                hub.reply = lambda handler, path: hub.send(handler, 302, b"", Location=location) or True
                self.assertIn(reason, self.refusal(hub))
        for headers in ({}, {"Location": "/api/models/loop"}):  # the hub's fault, and not the command line's
            hub.reply = lambda handler, path: hub.send(handler, 302, b"", **headers) or True
            self.assertEqual(self.run_tandem(hub, "pull", NAME)[0], 1)

    def test_the_token_stays_with_its_hub(self):
        storage = self.hub()
        hub = self.hub(storage=storage.url)
        storage.models = hub.models
        hub.add(NAME, FILES, LARGE)
        hub.token = "secret"
        self.check_whole(self.pull(hub, HF_TOKEN="secret"))
        self.assertTrue(storage.requests)
        self.assertFalse([head for _, head in storage.requests if "secret" in str(head)])

    def test_files_that_lie_about_their_size(self):
        hub = self.hub()
        model = hub.add(NAME, dict(FILES), LARGE)
        hub.tree = model.tree()
        model.files["config.json"] += b" "
        self.assertIn("the hub sends 9 bytes of a file of 8", self.refusal(hub))
        model.files["config.json"] = FILES["config.json"]

        def reply(handler, path):
            if "config.json" not in path:
                return False
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            handler.wfile.write(b"40\r\n" + b"x" * 64 + b"\r\n0\r\n\r\n")
            return True
        hub.reply = reply
        self.assertIn("sends more bytes than the file has", self.refusal(hub))
        hub.reply = lambda handler, path: "stored" in path and (
            hub.send(handler, 206, b"x" * 4096, **{"Content-Range": "bytes 7-4102/300000"}) or True)
        elsewhere = ("--download-dir", str(self.root / "elsewhere"))  # the weights may have come before the refusals
        self.assertIn("the hub sends 'bytes 7-4102/300000'", self.refusal(hub, "--part-size", "4096", *elsewhere))


class Ways(Case):
    def test_tls_is_checked(self):
        certificates = make_certificates(self.root)
        hub = self.hub(certificates=certificates)
        hub.add(NAME, FILES, LARGE)
        self.check_whole(self.pull(hub, SSL_CERT_FILE=str(certificates[0])))
        self.assertIn("its certificate is not trusted", self.refusal(hub, "--revision", "other"))
        # A certificate by the right CA for another host.
        named = hub.url.replace("127.0.0.1", "127.0.0.2")
        self.assertIn("127.0.0.2", self.refusal(hub, HF_ENDPOINT=named, SSL_CERT_FILE=str(certificates[0])))
        # From TLS nobody is sent to plain http.
        plain = self.hub()
        hub.storage, hub.models["org/b", "main"] = plain.url, hub.models[NAME, "main"]
        hub.add("org/b", {"config.json": b"{}", "model.safetensors": b"b"}, {"model.safetensors"})
        self.assertIn("is refused: it leaves TLS", self.refusal(hub, name="org/b", SSL_CERT_FILE=str(certificates[0])))
        self.assertEqual(plain.requests, [])

    def test_proxies_of_the_environment(self):
        certificates = make_certificates(self.root)
        with_tls = self.hub(certificates=certificates)
        with_tls.add(NAME, FILES, LARGE)
        with Proxy() as proxy:
            trust = {"SSL_CERT_FILE": str(certificates[0])}
            self.check_whole(self.pull(with_tls, HTTPS_PROXY=proxy.url.replace("//", "//me:p%40ss@"), **trust))
            self.assertTrue(proxy.lines)
            self.assertEqual({line.split()[0] for line in proxy.lines}, {"CONNECT"})
            self.assertEqual(set(proxy.credentials), {"Basic bWU6cEBzcw=="})
            count = len(proxy.lines)
            self.pull(with_tls, HTTPS_PROXY=proxy.url, NO_PROXY="example.org,127.0.0.1", **trust)
            self.assertEqual(len(proxy.lines), count)
            self.assertIn("cannot be used: it must be http://", self.refusal(with_tls, HTTPS_PROXY="socks5://x:1", **trust))
            plain = self.hub()
            plain.add(NAME, FILES, LARGE)
            self.pull(plain, NAME, "--download-dir", str(self.root / "other"), http_proxy=proxy.url)
            self.assertTrue(proxy.lines[-1].startswith("GET http://127.0.0.1:"))


class Serving(Case):
    def files(self):
        return {file.name: file.read_bytes() for file in pathlib.Path(MODEL).iterdir() if file.is_file()}

    def test_a_model_that_is_asked_for_by_name_is_downloaded_once(self):
        hub = self.hub()
        hub.add("org/tiny", self.files(), {"model.safetensors"})
        environment = {**hub.environment(self.cache), "NO_PROXY": "*"}
        with Pair(model="org/tiny", environment=environment) as server:
            self.assertEqual(json.loads(server.get("/v1/models")[1])["data"][0]["id"], "org/tiny")
        count = len(hub.requests)
        self.assertTrue(count)
        with Pair(model="org/tiny", environment={**environment, "HF_HUB_OFFLINE": "1"}) as server:
            self.assertEqual(server.get("/health")[0], 200)
        self.assertEqual(len(hub.requests), count)

    def test_a_running_server_gets_a_model_by_name(self):
        hub = self.hub()
        hub.add("org/tiny", self.files(), {"model.safetensors"})
        with Pair("--served-model-name", "m", environment={**hub.environment(self.cache), "NO_PROXY": "*"}) as server:
            for words in (("--model", "org/tiny"), ("--model=org/tiny",)):
                swapped = server.command("swap", *words)
                self.assertEqual(swapped.returncode, 0, swapped.stdout + swapped.stderr)
                self.assertEqual(server.get("/health")[0], 200)
            refused = server.command("swap", "--model", "org/nobody")
            self.assertEqual(refused.returncode, 3, refused.stdout)
            self.assertIn("org/nobody cannot be downloaded", refused.stderr)
        self.assertEqual(len(hub.paths("/config.json")), 1)

    def test_nothing_is_downloaded_where_it_is_forbidden_or_not_asked_for(self):
        hub = self.hub()
        hub.add(NAME, FILES, LARGE)
        for words, environment, reason in (((NAME,), {"HF_HUB_OFFLINE": "1"}, "`tandem pull org/some.model-1` downloads it"),
                                           ((NAME, "--check-config"), {}, "is neither a folder nor in"),
                                           (("/no/where",), {}, "/no/where"), (("./org/name",), {}, "name")):
            with self.subTest(words):
                code, out, errors = self.run_tandem(hub, "serve", *words, **environment)
                self.assertNotEqual(code, 0)
                self.assertIn(reason, out + errors)
        self.assertEqual(hub.requests, [])
        code, _, errors = self.run_tandem(hub, "serve", "org/nobody")
        self.assertEqual(code, 2, errors)
        self.assertIn("org/nobody in revision main does not exist", errors)
        self.assertIn("org/nobody cannot be downloaded", errors)


class Proxy:
    """Tunnels, and plain requests of one connection each."""

    def __init__(self):
        self.lines, self.credentials = [], []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def pipe(self, upstream):
                def copy(source, sink):
                    try:
                        while data := source.recv(65536):
                            sink.sendall(data)
                        sink.shutdown(1)
                    except OSError:
                        pass
                there = threading.Thread(target=copy, args=(self.connection, upstream), daemon=True)
                there.start()
                copy(upstream, self.connection)
                there.join()

            def note(self):
                proxy.lines.append(self.requestline)
                if credentials := self.headers.get("Proxy-Authorization"):
                    proxy.credentials.append(credentials)

            def do_CONNECT(self):
                self.note()
                host, port = self.path.rsplit(":", 1)
                with socket.create_connection((host, int(port))) as upstream:
                    self.send_response(200, "Connection established")
                    self.end_headers()
                    self.pipe(upstream)
                self.close_connection = True

            def do_GET(self):
                self.note()
                url = urllib.parse.urlsplit(self.path)
                with socket.create_connection((url.hostname, url.port)) as upstream:
                    target = url.path + ("?" + url.query if url.query else "")
                    head = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
                    upstream.sendall(f"GET {target} HTTP/1.1\r\n{head}\r\n".encode())
                    self.pipe(upstream)
                self.close_connection = True

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
