"""An OpenAI-like server that misbehaves on purpose, for tests of clients. Each request gets the
behaviour of its number (the digits at the end of X-Request-Id), or the default one; every response has three chunks.
Uses raw sockets, because a proper library would never send these bytes."""
import json
import re
import socket
import ssl
import struct
import threading

TEXTS = ["one", " two", " three"]
EVENT_STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text):
    data = text.encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(text):
    return "data: " + json.dumps({"id": "x", "choices": [{"index": 0, "text": text}]}) + "\n\n"


def usage(tokens=3, prompt=7):
    return "data: " + json.dumps({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}}) + "\n\n"


def page(status, text, content_type="application/json", extra=""):
    return (f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(text.encode())}\r\n{extra}\r\n"
            f"{text}").encode()


def good_bytes(with_usage=True):
    parts = [event(text) for text in TEXTS] + ([usage()] if with_usage else []) + ["data: [DONE]\n\n"]
    return EVENT_STREAM.encode() + b"".join(chunk(part) for part in parts) + b"0\r\n\r\n"


# Each writes one response and returns whether the connection stays open for the next request.
def good(conn):
    conn.sendall(good_bytes())
    return True


def no_usage(conn):
    conn.sendall(good_bytes(with_usage=False))
    return True


def byte_by_byte(conn):
    for byte in good_bytes():
        conn.sendall(bytes([byte]))
    return True


def odd_events(conn):
    """CRLF, no space after the colon, comments, an event of several lines."""
    stream = (": hello\r\n\r\n" + "event: x\r\nid: 5\r\n" + event(TEXTS[0]).replace("\n", "\r\n").replace("data: ", "data:") +
              'data: {"choices":\ndata: [{"text": " two"}]}\n\n' + event(TEXTS[2]) + ":\n\n" + usage() + "data:[DONE]\r\n\r\n")
    conn.sendall(EVENT_STREAM.encode() + chunk(stream) + b"0\r\n\r\n")
    return True


def closes_quietly(conn):
    """A complete response that promises keep-alive, on a connection that closes after it."""
    conn.sendall(good_bytes())
    return False


def until_close(conn):
    conn.sendall(("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + "".join(map(event, TEXTS)) + usage() +
                  "data: [DONE]\n\n").encode())
    return False


def reset_mid_stream(conn):
    conn.sendall(EVENT_STREAM.encode() + chunk(event(TEXTS[0])))
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def cut_mid_stream(conn):
    conn.sendall(EVENT_STREAM.encode() + chunk(event(TEXTS[0])) + b"20\r\nda")
    return False


def error_500(conn):
    conn.sendall(page("500 Internal Server Error", '{"error": {"message": "it broke"}}'))
    return True


def malformed(conn):
    conn.sendall(EVENT_STREAM.encode() + chunk(event(TEXTS[0])) + chunk('data: {"choices": [\n\n') + b"0\r\n\r\n")
    return True


def no_chunk(conn):
    conn.sendall(EVENT_STREAM.encode() + chunk(usage(0)) + chunk("data: [DONE]\n\n") + b"0\r\n\r\n")
    return True


def error_event(conn):
    conn.sendall(EVENT_STREAM.encode() + chunk(event(TEXTS[0])) +
                 chunk('data: {"error": {"message": "engine died"}}\n\n') + chunk("data: [DONE]\n\n") + b"0\r\n\r\n")
    return True


def vectors(conn):
    conn.sendall(page("200 OK", json.dumps({"data": [{"index": i, "embedding": [0.5]} for i in range(2)],
                                            "usage": {"prompt_tokens": 11, "total_tokens": 11}})))
    return True


class OddServer:
    """with OddServer({3: reset_mid_stream}, default=good) as server: … server.port, server.bodies, server.connections"""

    def __init__(self, behaviours=None, default=good, unready=0, certificate=None):
        self.behaviours, self.default, self.unready = behaviours or {}, default, unready
        self.bodies, self.heads, self.connections = [], [], 0
        self.hold = threading.Event()  # behaviours may wait for it
        self.tls = None
        if certificate:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn):
        try:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                conn = self.tls.wrap_socket(conn, server_side=True)
            with conn, conn.makefile("rb") as reader:
                while self._answer(conn, reader):
                    pass
        except OSError:
            pass

    def _answer(self, conn, reader):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = reader.readline()
            if not line:
                return False
            head += line
        length = re.search(rb"(?i)^content-length: (\d+)", head, re.M)
        body = reader.read(int(length.group(1))) if length else b""
        if self.unready > 0:
            self.unready -= 1
            if self.unready % 2:
                return False  # hangs up
            conn.sendall(page("503 Service Unavailable", "loading"))
            return True
        if head.startswith(b"GET /v1/models"):
            conn.sendall(page("200 OK", '{"data": [{"id": "odd-model"}]}'))
            return True
        self.heads.append(head.decode())
        self.bodies.append(json.loads(body))
        number = re.search(rb"(?i)x-request-id: [^\r]*?(\d+)\r", head)
        return self.behaviours.get(int(number.group(1)) if number else -1, self.default)(conn)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hold.set()
        self.listener.close()
