#!/usr/bin/env python3
"""Spans of requests, as a collector gets them that decodes protobuf with OpenTelemetry's own messages: streams, whole
responses, several choices, requests that clients give up and that fail; collectors that are gone, slow or refuse."""
import http.client
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import LIMIT, MODEL, bin_dir, free_port, wait_for
from server import Server

try:
    from collector import Collector, attributes_of
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError as missing:
    pair.skip(f"{missing} (tests/run.sh installs it when PyPI responds)")

BODY = {"model": "m", "prompt": "One two three", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
LONG = {**BODY, "max_tokens": 1500}  # runs on while its client or its engine goes
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
PHASES = {"prepare", "queue", "prefill", "decode"}


def server_for(collector, *flags, **environment):
    return Server("--otlp-traces-endpoint", collector.url, *flags, environment={**QUICK, **environment})


def complete(server, body=BODY, **headers):
    return server.ask("POST", "/v1/completions", body, **headers)


def begin_stream(server, body=LONG, **headers):
    """A connection that has had its first event."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}),
                       {"Content-Type": "application/json", **headers})
    reply = connection.getresponse()
    assert reply.status == 200 and reply.readline().startswith(b"data: ")
    return connection, reply


class Spans(unittest.TestCase):
    def one(self, collector, name="llm_request"):
        span, = wait_for(lambda: collector.named(name), f"there is a span {name}")
        wait_for(lambda: {"queue", "prefill", "decode"} <= set(collector.children(span)), "its phases are there")
        return span

    def test_a_whole_response_and_its_phases(self):
        with Collector() as collector, server_for(collector, OTEL_SERVICE_NAME="svc",
                                                  OTEL_EXPORTER_OTLP_HEADERS="x-team=a%20b",
                                                  OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test") as server:
            wait_for(lambda: f"the collector at {collector.url} takes spans" in server.log_text(), "it has said so")
            status, reply = complete(server, {**BODY, "temperature": 0.5, "top_p": 0.9},
                                     **{"X-Request-Id": "abc", "traceparent": TRACEPARENT, "tracestate": "v=1"})
            self.assertEqual(status, 200)
            span = self.one(collector)
            self.assertEqual((span.trace_id.hex(), span.parent_span_id.hex()), (TRACE, PARENT))
            self.assertEqual((span.trace_state, span.kind, span.status.code), ("v=1", 2, 0))
            self.assertEqual(span.flags, 0x301)
            found = attributes_of(span)
            usage = json.loads(reply)["usage"]
            self.assertEqual(found["gen_ai.request.id"], "cmpl-abc-0")
            self.assertEqual(found["gen_ai.usage.prompt_tokens"], usage["prompt_tokens"])
            self.assertEqual(found["gen_ai.usage.completion_tokens"], 4)
            self.assertEqual((found["gen_ai.request.temperature"], found["gen_ai.request.top_p"]), (0.5, 0.9))
            self.assertEqual((found["gen_ai.request.max_tokens"], found["gen_ai.request.n"]), (4, 1))
            self.assertEqual((found["tandem.finish_reason"], found["tandem.choice"]), ("length", 0))
            whole_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
            self.assertAlmostEqual(found["gen_ai.latency.e2e"], whole_s, places=5)
            self.assertLessEqual(found["gen_ai.latency.time_to_first_token"], whole_s)
            parts = sum(found[f"gen_ai.latency.time_in_model_{each}"] for each in ("prefill", "decode"))
            self.assertAlmostEqual(found["gen_ai.latency.time_in_model_inference"], parts)
            phases = collector.children(span)
            self.assertEqual(set(phases), PHASES)
            for phase in phases.values():
                self.assertEqual((phase.trace_id, phase.kind), (span.trace_id, 1))
                self.assertLessEqual(span.start_time_unix_nano, phase.start_time_unix_nano)
                self.assertLessEqual(phase.start_time_unix_nano, phase.end_time_unix_nano)
                self.assertLessEqual(phase.end_time_unix_nano, span.end_time_unix_nano)
            self.assertEqual(phases["queue"].end_time_unix_nano, phases["prefill"].start_time_unix_nano)
            self.assertEqual(phases["prefill"].end_time_unix_nano, phases["decode"].start_time_unix_nano)
            self.assertEqual(collector.resources[0]["service.name"], "svc")
            self.assertEqual(collector.resources[0]["deployment.environment"], "test")
            self.assertEqual(collector.resources[0]["vllm.process_id"], str(server.frontend.pid))
            self.assertEqual(collector.scopes[0], "vllm.llm_engine")
            self.assertEqual(collector.headers[-1]["x-team"], "a b")
            self.assertEqual(collector.headers[-1]["Content-Type"], "application/x-protobuf")
            self.assertEqual(set(collector.paths), {"/v1/traces"})
            # The log's line of the request names its trace.
            wait_for(lambda: re.search(f"request finished id=cmpl-abc.* trace_id={TRACE}", server.log_text()), "the line")

    def test_streams_chats_and_several_choices(self):
        with Collector() as collector, server_for(collector) as server:
            connection, reply = begin_stream(server, BODY, traceparent=TRACEPARENT)
            reply.read()
            connection.close()
            span = self.one(collector)
            self.assertEqual(attributes_of(span)["gen_ai.usage.completion_tokens"], 4)
            self.assertNotIn("gen_ai.request.temperature", attributes_of(span))  # greedy
            collector.spans.clear()
            # Without a caller's span a trace begins, which the choices of a request share.
            self.assertEqual(complete(server, {**BODY, "n": 3, "temperature": 1})[0], 200)
            spans = wait_for(lambda: len(collector.named("llm_request")) == 3 and collector.named("llm_request"),
                             "each choice has a span")
            self.assertEqual({each.parent_span_id for each in spans}, {b""})
            self.assertEqual(len({each.trace_id for each in spans}), 1)
            self.assertNotEqual(spans[0].trace_id.hex(), TRACE)
            self.assertEqual(len({attributes_of(each)["gen_ai.request.id"] for each in spans}), 1)
            self.assertEqual({attributes_of(each)["tandem.choice"] for each in spans}, {0, 1, 2})
            self.assertEqual({attributes_of(each)["gen_ai.request.n"] for each in spans}, {3})
            collector.spans.clear()
            for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
                               ("/v1/messages", {"messages": [{"role": "user", "content": "Hello"}]}),
                               ("/v1/completions", {"prompt": "One", "use_beam_search": True, "n": 2})):
                with self.subTest(path):
                    status, reply = server.ask("POST", path, {"model": "m", "max_tokens": 3, **body})
                    self.assertEqual(status, 200, reply)
                    span, = wait_for(lambda: collector.named("llm_request"), "it has a span")
                    self.assertGreater(attributes_of(span)["gen_ai.usage.completion_tokens"], 0)
                    collector.spans.clear()

    def test_requests_that_clients_give_up_or_that_are_refused(self):
        with Collector() as collector, server_for(collector) as server:
            self.assertEqual(complete(server, {**BODY, "temperature": -1})[0], 400)
            connection, _ = begin_stream(server, traceparent=TRACEPARENT)
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            span = self.one(collector, "llm_request_aborted")
            self.assertEqual(span.trace_id.hex(), TRACE)
            self.assertEqual(attributes_of(span)["tandem.finish_reason"], "abort")
            self.assertGreater(attributes_of(span)["gen_ai.usage.completion_tokens"], 0)
            self.assertLessEqual({"prefill", "decode"}, set(collector.children(span)))
            self.assertEqual(span.status.code, 0)
            # Neither it nor the one that was refused is one of vLLM's spans.
            self.assertEqual(collector.named("llm_request"), [])

    def test_a_request_that_fails_says_why(self):
        with Collector() as collector, server_for(collector, "--max-engine-restarts-per-request", "0") as server:
            connection, reply = begin_stream(server)
            server.kill_engine()
            self.assertIn(b"error", reply.read())
            connection.close()
            span = self.one(collector)
            self.assertEqual(span.status.code, 2)
            self.assertIn("engine", span.status.message)
            self.assertEqual(attributes_of(span)["tandem.finish_reason"], "error")

    def test_a_request_that_survives_its_engine_has_one_span(self):
        with Collector() as collector, server_for(collector) as server:
            connection, reply = begin_stream(server)
            server.restart_engine()
            self.assertIn(b"[DONE]", reply.read())
            connection.close()
            span = self.one(collector)
            self.assertEqual(attributes_of(span)["gen_ai.usage.completion_tokens"], LONG["max_tokens"])
            self.assertEqual(set(collector.children(span)), PHASES)

    def test_ugly_headers_begin_a_trace_and_harm_nothing(self):
        with Collector() as collector, server_for(collector) as server:
            ugly = ["", "00", "x" * 8000, TRACEPARENT.upper(), TRACEPARENT + "-x", "00-" + "0" * 32 + "-" + PARENT + "-01",
                    "ff" + TRACEPARENT[2:], TRACEPARENT.replace("-", " ")]
            for value in ugly:
                self.assertEqual(complete(server, **{"traceparent": value, "tracestate": "=,;\xff"})[0], 200)
            spans = wait_for(lambda: len(collector.named("llm_request")) == len(ugly) and
                             collector.named("llm_request"), "each has a span")
            self.assertEqual({each.parent_span_id for each in spans}, {b""})
            self.assertEqual(len({each.trace_id for each in spans}), len(ugly))

    def test_samplers_decide(self):
        with Collector() as collector, server_for(collector, OTEL_TRACES_SAMPLER="parentbased_always_off") as server:
            self.assertEqual(complete(server)[0], 200)
            self.assertEqual(complete(server, traceparent=TRACEPARENT[:-1] + "0")[0], 200)
            self.assertEqual(complete(server, traceparent=TRACEPARENT)[0], 200)
            self.assertEqual(self.one(collector).trace_id.hex(), TRACE)
            self.assertEqual(len(collector.named("llm_request")), 1)

    def test_without_an_endpoint_one_warning_for_the_process(self):
        with Server() as server:
            for _ in range(3):
                self.assertEqual(complete(server, traceparent=TRACEPARENT)[0], 200)
            server.wait_for_log("a client sends traceparent, but traces are off")
            self.assertEqual(server.log_text().count("traces are off"), 1)

    def test_what_cannot_be_used_ends_the_start(self):
        for environment, flags, reason in (
                ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, ("--otlp-traces-endpoint", "http://a"), "http/protobuf"),
                ({}, ("--otlp-traces-endpoint", "grpc://a:4317"), "http/protobuf"),
                ({"OTEL_TRACES_SAMPLER": "mine"}, ("--otlp-traces-endpoint", "http://a"), "OTEL_TRACES_SAMPLER"),
                ({}, ("--log-format", "xml"), "--log-format")):
            with self.subTest(reason):
                done = subprocess.run([str(bin_dir() / "tandem"), "serve", MODEL, *flags, "--check-config"],
                                      env={**pair.os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual(done.returncode, 2, done)
                self.assertIn(reason, done.stderr)


class Collectors(unittest.TestCase):
    """Whatever a collector does, requests are served, lost spans are counted, and the end comes soon."""

    def lost(self, server, outcome):
        return server.total("tandem:trace_spans_total", f'outcome="{outcome}"')

    def end(self, server):
        server.frontend.send_signal(signal.SIGTERM)
        self.assertEqual(server.frontend.wait(LIMIT), 0)

    def test_one_that_is_gone(self):
        url = f"http://127.0.0.1:{free_port()}/v1/traces"
        with Server("--otlp-traces-endpoint", url, environment={**QUICK, "OTEL_BSP_MAX_QUEUE_SIZE": "10"}) as server:
            wait_for(lambda: f"the collector at {url} takes no spans: Connection refused" in server.log_text(), "it says so")
            for _ in range(4):
                self.assertEqual(complete(server)[0], 200)
            wait_for(lambda: self.lost(server, "queue_full") == 10, "half of them are lost")  # of five spans each
            self.assertEqual(self.lost(server, "exported"), 0)
            self.assertEqual(server.log_text().count("takes no spans"), 1)
            self.end(server)

    def test_one_that_comes_back_gets_what_waited(self):
        with Collector() as collector, server_for(collector) as server:
            for status in (503, 429):
                collector.status = status
                self.assertEqual(complete(server)[0], 200)
                wait_for(lambda: f"HTTP status {status}" in server.log_text(), "it is refused for now")
                collector.status = 200
                wait_for(lambda: len(collector.named("llm_request")) == 1, "the span comes later")
                wait_for(lambda: "takes spans again" in server.log_text(), "the log says so")
                collector.spans.clear()
            wait_for(lambda: self.lost(server, "exported") == 10, "all are counted")
            self.assertEqual(self.lost(server, "refused") + self.lost(server, "undelivered"), 0)

    def test_one_that_refuses(self):
        with Collector() as collector, server_for(collector) as server:
            collector.status = 400
            self.assertEqual(complete(server)[0], 200)
            wait_for(lambda: self.lost(server, "refused") == 5, "it is final")
            collector.status, collector.rejects = 200, 2
            self.assertEqual(complete(server)[0], 200)
            wait_for(lambda: self.lost(server, "refused") == 7, "a part of a batch")
            wait_for(lambda: self.lost(server, "exported") == 3, "the rest of it")
            server.wait_for_log("the collector refused 2 spans: too many")

    def test_one_that_is_slow_holds_up_nobody(self):
        with Collector() as collector, server_for(collector) as server:
            server.wait_for_log("takes spans")  # after the self-test
            collector.holds = True
            self.assertEqual(complete(server)[0], 200)
            wait_for(lambda: len(collector.requests) > 1, "it has the spans and says nothing")
            for _ in range(3):
                self.assertEqual(complete(server)[0], 200)
            self.end(server)  # though a request to the collector may take ten seconds

    def test_one_that_is_too_slow_is_given_up(self):
        with Collector() as collector, server_for(collector, OTEL_EXPORTER_OTLP_TIMEOUT="200") as server:
            wait_for(lambda: collector.requests, "the self-test is over")
            collector.holds = True
            self.assertEqual(complete(server)[0], 200)
            wait_for(lambda: "no reply in time" in server.log_text(), "the log says so")
            collector.holds = False
            wait_for(lambda: collector.named("llm_request"), "the next try succeeds")

    def test_what_is_queued_is_sent_at_the_end(self):
        with Collector() as collector, server_for(collector, OTEL_BSP_SCHEDULE_DELAY="600000") as server:
            self.assertEqual(complete(server)[0], 200)
            self.assertEqual(collector.spans, [])
            self.end(server)
            self.assertEqual(len(collector.named("llm_request")), 1)

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_one_that_speaks_tls_is_believed_by_its_certificate(self):
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = (pathlib.Path(folder, name) for name in ("cert.pem", "key.pem"))
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=here",
                            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True,
                           capture_output=True)
            with Collector(certificate, key) as collector:
                with server_for(collector, OTEL_EXPORTER_OTLP_CERTIFICATE=str(certificate)) as server:
                    self.assertEqual(complete(server)[0], 200)
                    wait_for(lambda: collector.named("llm_request"), "the span arrives")
                with server_for(collector) as server:
                    wait_for(lambda: "its certificate is not trusted" in server.log_text(), "nobody vouches for it")
                    self.assertEqual(complete(server)[0], 200)


class Exemplars(unittest.TestCase):
    def families(self, server):
        status, page = server.ask("GET", "/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        self.assertEqual(status, 200)
        self.assertEqual(server.headers["Content-Type"], "application/openmetrics-text; version=1.0.0; charset=utf-8")
        return {family.name: family for family in text_string_to_metric_families(page.decode())}

    def test_histograms_name_traces_where_openmetrics_is_asked_for(self):
        with Collector() as collector, server_for(collector) as server:
            before = self.families(server)
            self.assertEqual(before["vllm:generation_tokens"].type, "counter")
            self.assertEqual(complete(server, traceparent=TRACEPARENT)[0], 200)
            after = self.families(server)
            self.assertEqual({name for name in before if name.startswith("vllm:")},
                             {name for name in after if name.startswith("vllm:")})
            for name in ("vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds"):
                exemplars = [sample.exemplar for sample in after[name].samples if sample.exemplar]
                self.assertEqual([each.labels for each in exemplars], [{"trace_id": TRACE}])
                bucket = next(sample for sample in after[name].samples if sample.exemplar)
                self.assertLessEqual(exemplars[0].value, float(bucket.labels["le"]))
                self.assertFalse([sample for sample in before[name].samples if sample.exemplar])
            page = server.ask("GET", "/metrics")[1].decode()
            self.assertNotIn(" # {", page)
            self.assertNotIn("# EOF", page)

    def test_both_forms_have_the_same_series(self):
        with Server() as server:
            self.assertEqual(complete(server)[0], 200)
            # The engine replies to the first scrape with the phases of its start.
            text = wait_for(lambda: (page := server.ask("GET", "/metrics")[1].decode()) and "engine_startup_seconds{" in page and page,
                            "the engine has replied")
            named = set(re.findall(r"^([a-zA-Z0-9_:]+)(?=[ {])", text, re.M))
            samples = {sample.name for family in self.families(server).values() for sample in family.samples}
            self.assertEqual(named, samples)


if __name__ == "__main__":
    unittest.main()
