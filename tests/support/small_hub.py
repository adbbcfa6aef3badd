"""A hub of models on this host, as Hugging Face's and ModelScope's look to a client, that misbehaves as a test asks.

    with SmallHub() as hub:
        hub.add("org/name", {"config.json": b"{}", "model.safetensors": b"..."}, large={"model.safetensors"})
        subprocess.run([..., env={**os.environ, **hub.environment(cache)}])
        hub.requests        # what came: method, path, headers
"""
import hashlib
import http.server
import json
import pathlib
import socketserver
import ssl
import subprocess
import tempfile
import threading
import urllib.parse

from pair import LIMIT


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def make_certificates(folder):
    """A CA and a certificate for localhost and 127.0.0.1 by it: (CA's file, certificate's file, key's file)."""
    folder = pathlib.Path(folder)
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "ca.key",
            "-out", "ca.pem", "-days", "2", "-subj", "/CN=test CA")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem",
            "-out", "request.pem", "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", "certificate.pem", "-days", "2", "-extfile", "names")
    return folder / "ca.pem", folder / "certificate.pem", folder / "key.pem"


class Model:
    def __init__(self, files, large, commit):
        self.files, self.large, self.commit = files, large, commit

    def oid(self, path):
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if path in self.large else git_hash(data)

    def tree(self):
        entries = [{"type": "directory", "path": "folder", "size": 0, "oid": "0" * 40}]
        for path, data in self.files.items():
            entry = {"type": "file", "path": path, "size": len(data), "oid": git_hash(data)}
            if path in self.large:
                entry["lfs"] = {"oid": self.oid(path), "size": len(data), "pointerSize": 134}
            entries.append(entry)
        return entries


class SmallHub:
    """Knobs, read at each request:
    token: that requests must carry. cut: bytes after which a file's connection ends, so often. late: 429s before
    anything is served. ranges: whether ranges are served. storage: another server to redirect large files to.
    tree: replaces the list of files. reply(handler, path): responds itself where it returns True."""

    def __init__(self, certificates=None, storage=None, page_size=1000):
        self.models, self.requests = {}, []
        self.token, self.cut, self.late, self.ranges, self.tree = None, [], [], True, None
        self.storage, self.page_size, self.reply = storage, page_size, lambda handler, path: False
        self.changed = threading.Condition()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.serve(self)

            do_HEAD = do_GET

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass  # a client that went away

        self.server = Server(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        if certificates:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates[1], certificates[2])
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{self.scheme}://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def add(self, name, files, large=(), revision="main", commit=None):
        commit = commit or hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        model = Model(files, set(large), commit)
        self.models[name, revision] = self.models[name, commit] = model
        return model

    def environment(self, cache, **more):
        return {"HF_ENDPOINT": self.url, "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache) + "-home",
                "MODELSCOPE_ENDPOINT": self.url, "MODELSCOPE_CACHE": str(cache), "no_proxy": "",
                "HF_TOKEN": "", "HF_HUB_OFFLINE": "", **more}

    def paths(self, word=""):
        with self.changed:
            return [path for path, _ in self.requests if word in path]

    def wait_for_requests(self, count, word, limit=LIMIT):
        with self.changed:
            return self.changed.wait_for(lambda: sum(word in path for path, _ in self.requests) >= count, limit)

    # ---- what is served ----

    def serve(self, handler):
        with self.changed:
            self.requests.append((handler.path, {**handler.headers, ":method": handler.command}))
            self.changed.notify_all()
        path = urllib.parse.urlsplit(handler.path)
        query = urllib.parse.parse_qs(path.query)
        parts = [urllib.parse.unquote(part) for part in path.path.strip("/").split("/")]
        if self.reply(handler, handler.path):
            return
        if self.late:
            self.send(handler, 429, b"", **{"Retry-After": str(self.late.pop())})
        elif parts[0] == "stored":
            self.send_file(handler, self.stored(parts[1]))
        elif self.token and f"Bearer {self.token}" != handler.headers.get("Authorization"):
            self.send(handler, 401, b"")
        elif parts[:2] == ["api", "models"] and parts[4] == "revision":
            model = self.models.get(("/".join(parts[2:4]), "/".join(parts[5:])))
            code = "RepoNotFound" if not any(key[0] == "/".join(parts[2:4]) for key in self.models) else "RevisionNotFound"
            self.send_json(handler, {"id": "/".join(parts[2:4]), "sha": model.commit}) if model else self.send(handler, 404, b"", **{"X-Error-Code": code})
        elif parts[:2] == ["api", "models"] and parts[4] == "tree":
            self.send_tree(handler, self.models["/".join(parts[2:4]), parts[5]], query)
        elif parts[:3] == ["api", "v1", "models"]:
            self.serve_model_scope(handler, "/".join(parts[3:5]), query, parts[5:])
        elif parts[2] == "resolve":
            model = self.models.get(("/".join(parts[:2]), parts[3]))
            self.resolve(handler, model, "/".join(parts[4:]))
        else:
            self.send(handler, 404, b"")

    def stored(self, oid):
        for model in self.models.values():
            for path, data in model.files.items():
                if model.oid(path) == oid:
                    return data
        return None

    def resolve(self, handler, model, path):
        if model is None or path not in model.files:
            return self.send(handler, 404, b"")
        head = {"X-Repo-Commit": model.commit, "ETag": f'"{model.oid(path)}"', "X-Linked-Etag": f'"{model.oid(path)}"',
                "X-Linked-Size": str(len(model.files[path]))}
        if path in model.large:
            # As the hub: to another host for what is large, else to another path of its own.
            return self.send(handler, 302, b"moved", Location=f"{self.storage or ''}/stored/{model.oid(path)}", **head)
        return self.send_file(handler, model.files[path], **head)

    def send_tree(self, handler, model, query):
        tree = self.tree if self.tree is not None else model.tree()
        first = int(query.get("cursor", ["0"])[0])
        more = {}
        if first + self.page_size < len(tree):
            base = handler.path.split("&cursor")[0]
            more["Link"] = f'<{self.url}{base}&cursor={first + self.page_size}>; rel="next"'
        self.send_json(handler, tree[first:first + self.page_size], **more)

    def serve_model_scope(self, handler, name, query, rest):
        model = self.models.get((name, query["Revision"][0]))
        if model is None:
            return self.send(handler, 404, b"")
        if rest == ["repo", "files"]:
            files = [{"Path": path, "Type": "blob", "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}
                     for path, data in model.files.items()]
            return self.send_json(handler, {"Code": 200, "Data": {"Files": files}, "Success": True})
        return self.send_file(handler, model.files[query["FilePath"][0]])

    def send_file(self, handler, data, **headers):
        if data is None:
            return self.send(handler, 404, b"")
        begin, end, status = 0, len(data), 200
        wanted = handler.headers.get("Range")
        if wanted and self.ranges:
            first, last = wanted.removeprefix("bytes=").split("-")
            begin, end, status = int(first), min(int(last) + 1, len(data)), 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        return self.send(handler, status, data[begin:end], self.cut.pop() if self.cut else None, **headers)

    def send_json(self, handler, value, **headers):
        self.send(handler, 200, json.dumps(value).encode(), **headers)

    def send(self, handler, status, body, cut=None, **headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            handler.close_connection = True
            handler.connection.close()
