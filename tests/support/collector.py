"""An OpenTelemetry collector for tests: keeps the spans that it is sent over HTTP, and misbehaves when told to."""
import http.server
import ssl
import threading

from pair import LIMIT
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (ExportTraceServiceRequest,
                                                                      ExportTraceServiceResponse)


def value_of(value):
    """An AnyValue as Python's."""
    return getattr(value, value.WhichOneof("value"))


def attributes_of(message):
    return {each.key: value_of(each.value) for each in message.attributes}


class Collector:
    """Use as a context manager. `status` is that of its replies; `holds` keeps requests waiting until `let_go` is set."""

    def __init__(self, certificate=None, key=None):
        self.requests, self.spans, self.resources, self.scopes, self.headers, self.paths = [], [], [], [], [], []
        self.status, self.holds, self.rejects, self.reply_headers = 200, False, 0, {}
        self.let_go = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                collector.take(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.scheme = "https" if certificate else "http"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server.server_address[1]}/v1/traces"

    def take(self, handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(body)  # raises where it is not protobuf
        self.requests.append(request)
        self.headers.append(handler.headers)
        self.paths.append(handler.path)
        if self.holds:
            self.let_go.wait(LIMIT)
        if self.status == 200:
            for resource in request.resource_spans:
                self.resources.append(attributes_of(resource.resource))
                for scope in resource.scope_spans:
                    self.scopes.append(scope.scope.name)
                    self.spans.extend(scope.spans)
        reply = ExportTraceServiceResponse()
        if self.rejects:
            reply.partial_success.rejected_spans = self.rejects
            reply.partial_success.error_message = "too many"
        data = reply.SerializeToString()
        try:
            handler.send_response(self.status)
            for name, value in {"Content-Type": "application/x-protobuf", **self.reply_headers}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except OSError:
            pass  # it gave up

    def named(self, *names):
        return [span for span in list(self.spans) if span.name in names]

    def children(self, span):
        return {each.name: each for each in list(self.spans) if each.parent_span_id == span.span_id}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.let_go.set()
        self.server.shutdown()
        self.server.server_close()
