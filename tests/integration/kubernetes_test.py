#!/usr/bin/env python3
"""The manifests of deploy/kubernetes: that they fit each other, that their command lines serve and their probes are met, and
that the series which autoscalers ask for are there. Schemas needs `kubernetes-validate` beside this Python for Kubernetes' own
kinds (build/venv/bin/pip install kubernetes-validate), and TANDEM_CRDS, a folder with the definitions of the custom ones.

Usage: kubernetes_test.py [unittest arguments]
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import ROOT, Pair, free_port
from replicas_test import make_keys

try:
    import yaml
except ImportError:
    pair.skip("there is no PyYAML")

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
DOCUMENTS = {path.name: list(yaml.safe_load_all(path.read_text())) for path in FILES}
ALL = [document for documents in DOCUMENTS.values() for document in documents]


def of_kind(kind):
    return [document for document in ALL if document["kind"] == kind]


def templates():
    """(name, pod template) of everything that makes pods."""
    for document in of_kind("Deployment"):
        yield document["metadata"]["name"], document["spec"]["template"]
    for document in of_kind("LeaderWorkerSet"):
        for key in ("leaderTemplate", "workerTemplate"):
            yield f"{document['metadata']['name']} {key}", document["spec"]["leaderWorkerTemplate"][key]


def server_of(template):
    container, = template["spec"]["containers"]
    return container


def flag(container, name):
    """The value of --NAME=value in its arguments."""
    return next((word.split("=", 1)[1] for word in container["args"] if word.startswith(f"--{name}=")), None)


class Manifests(unittest.TestCase):
    def test_each_file_is_in_the_readme(self):
        readme = (FOLDER / "README.md").read_text()
        self.assertEqual([path.name for path in FILES if f"[{path.name}]" not in readme], [])

    def test_selectors_find_pods(self):
        labels = [template["metadata"]["labels"] for _, template in templates()]
        for document in ALL:
            selector = document["spec"].get("selector")
            if selector is None:
                continue
            wanted = selector.get("matchLabels", selector)
            self.assertTrue(any(wanted.items() <= of.items() for of in labels), (document["kind"], wanted))

    def test_names_that_are_referred_to_exist(self):
        names = {(document["kind"], document["metadata"]["name"]) for document in ALL}
        for document in of_kind("HorizontalPodAutoscaler") + of_kind("ScaledObject"):
            target = document["spec"]["scaleTargetRef"]
            self.assertIn((target.get("kind", "Deployment"), target["name"]), names)
        for route in of_kind("HTTPRoute"):
            for rule in route["spec"]["rules"]:
                for backend in rule["backendRefs"]:
                    self.assertIn((backend["kind"], backend["name"]), names)
        ports = {port["name"] for _, template in templates() for port in server_of(template).get("ports", [])}
        for service in of_kind("Service"):
            for port in service["spec"]["ports"]:
                self.assertIn(port["targetPort"], ports)
        numbers = {port["containerPort"] for _, template in templates() for port in server_of(template).get("ports", [])}
        for pool in of_kind("InferencePool"):
            self.assertLessEqual({port["number"] for port in pool["spec"]["targetPorts"]}, numbers)

    # Its controller makes a headless Service of its name, unless there is one, for the addresses of its pods.
    def test_no_service_takes_the_name_of_a_leader_worker_set(self):
        sets = {document["metadata"]["name"] for document in of_kind("LeaderWorkerSet")}
        self.assertEqual(sets & {document["metadata"]["name"] for document in of_kind("Service")}, set())

    def test_volumes_are_mounted_and_nothing_else_is(self):
        for name, template in templates():
            spec = template["spec"]
            volumes = {volume["name"] for volume in spec["volumes"]}
            containers = spec["containers"] + spec.get("initContainers", [])
            self.assertEqual({mount["name"] for container in containers for mount in container["volumeMounts"]}, volumes,
                             name)

    def test_a_pod_has_the_time_that_its_shutdown_takes(self):
        for name, template in templates():
            container = server_of(template)
            sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            needed = sleep + 2 * int(flag(container, "shutdown-timeout")) + 10
            self.assertGreaterEqual(template["spec"]["terminationGracePeriodSeconds"], needed, name)

    def test_pods_are_restricted(self):
        """What the profile `restricted` of Kubernetes' pod security standards asks for."""
        for name, template in templates():
            spec = template["spec"]
            self.assertTrue(spec["securityContext"]["runAsNonRoot"], name)
            self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"}, name)
            for container in spec["containers"] + spec.get("initContainers", []):
                self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"], name)
                self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]}, name)
                self.assertEqual(container["resources"]["requests"], container["resources"]["limits"], name)


def variables(words, values):
    """$(NAME) as Kubernetes replaces it."""
    return [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], word) for word in words]


def local_words(container, replaced, values=None):
    """The container's arguments, some of them replaced, or left out where they are None."""
    words = []
    for word in variables(container["args"][1:], values or {}):
        name = word[2:].split("=", 1)[0]
        if name not in replaced:
            words.append(word)
        elif replaced[name] is not None:
            words.append(f"--{name}={replaced[name]}")
    return words


LOCAL = {"host": None, "port": None, "gpu-memory-utilization": None}
SMALL = ("--kv-cache-memory-bytes", str(16 << 20), "--threads", "1")


class Serving(unittest.TestCase):
    def check_probes(self, server, container):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            with self.subTest(probe=probe):
                self.assertEqual(container[probe]["httpGet"]["port"], "http")
                self.assertEqual(server.get(container[probe]["httpGet"]["path"])[0], 200)

    def test_the_servers_command_line_probes_and_series(self):
        container = server_of(of_kind("Deployment")[0]["spec"]["template"])
        with Pair(*local_words(container, LOCAL), *SMALL) as server:
            self.check_probes(server, container)
            model, = json.loads(server.get("/v1/models")[1])["data"]
            served = {re.split(r"[{ ]", series)[0] for series in server.metrics()}
            queries = [trigger["metadata"]["query"] for scaler in of_kind("ScaledObject")
                       for trigger in scaler["spec"]["triggers"]]
            self.assertEqual({name for query in queries for name in re.findall(r'model_name="(\w+)"', query)},
                             {model["id"]})
            series = {name for query in queries for name in re.findall(r"\b(?:vllm|tandem):\w+", query)}
            series |= {metric["pods"]["metric"]["name"].replace("vllm_", "vllm:", 1)
                       for scaler in of_kind("HorizontalPodAutoscaler") for metric in scaler["spec"]["metrics"]}
            self.assertGreaterEqual(len(series), 3)
            self.assertLessEqual(series, served)

    def test_replicas_over_hosts(self):
        """A group of two: the frontend's pod and one engine's, here on one address."""
        templates = of_kind("LeaderWorkerSet")[0]["spec"]["leaderWorkerTemplate"]
        leader, worker = server_of(templates["leaderTemplate"]), server_of(templates["workerTemplate"])
        self.assertEqual(int(flag(leader, "data-parallel-rpc-port")),
                         next(port["containerPort"] for port in leader["ports"] if port["name"] == "engines"))
        values = {"LWS_GROUP_SIZE": "2", "POD_IP": "127.0.0.1", "LWS_LEADER_ADDRESS": "127.0.0.1", "LWS_WORKER_INDEX": "1"}
        with tempfile.TemporaryDirectory() as folder:
            keys = make_keys(pathlib.Path(folder) / "keys")
            replaced = {**LOCAL, "tcp-keys": keys, "data-parallel-rpc-port": free_port()}
            with Pair(*local_words(leader, replaced, values), *SMALL, wait=False) as frontend, \
                    Pair(*local_words(worker, replaced, values), *SMALL):
                frontend.wait_ready()
                self.check_probes(frontend, leader)
                for rank in ("0", "1"):
                    status, body = frontend.post("/v1/completions", {"prompt": "A fox", "max_tokens": 2},
                                                 **{"X-data-parallel-rank": rank})
                    self.assertEqual(status, 200, body)


def closed(schema):
    """The schema without room for keys that it does not name, as the server's strict validation has it."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: value if key in ("enum", "default", "required", "example") else closed(value)
              for key, value in schema.items()}
    if "properties" in schema and schema.get("type") == "object" and "additionalProperties" not in schema \
            and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema["additionalProperties"] = False
    return schema


BUILT_IN = {"apps/v1", "v1", "policy/v1", "autoscaling/v2"}


class Schemas(unittest.TestCase):
    def test_kinds_of_kubernetes(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("there is no kubernetes-validate")
        checked = [document for document in ALL if document["apiVersion"] in BUILT_IN]
        self.assertGreaterEqual(len(checked), 5)
        for document in checked:
            with self.subTest(kind=document["kind"], name=document["metadata"]["name"]):
                kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)

    def test_custom_kinds(self):
        folder = os.environ.get("TANDEM_CRDS")
        if not folder:
            self.skipTest("TANDEM_CRDS names no folder of definitions")
        import jsonschema
        versions = {}
        for path in sorted(pathlib.Path(folder).glob("*.yaml")):
            for definition in yaml.safe_load_all(path.read_text()):
                spec = definition["spec"]
                for version in spec["versions"]:
                    key = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                    versions[key] = version["schema"]["openAPIV3Schema"]
        checked = [document for document in ALL if document["apiVersion"] not in BUILT_IN]
        self.assertGreaterEqual(len(checked), 4)
        for document in checked:
            with self.subTest(kind=document["kind"]):
                schema = closed(versions[document["apiVersion"], document["kind"]])
                # What every kind has, and definitions leave out.
                schema["properties"]["metadata"] = {"type": "object"}
                jsonschema.validate(document, schema)


if __name__ == "__main__":
    unittest.main(verbosity=2)
