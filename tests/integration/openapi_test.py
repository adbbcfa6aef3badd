#!/usr/bin/env python3
"""/openapi.json is true: schemathesis derives requests from it, good and bad ones, and checks that every response is one
that the document promises; bad ones are refused. /docs needs nothing but the document."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from scripted import Frontend

SCHEMATHESIS = pathlib.Path(sys.executable).parent / "schemathesis"
SEED = 20240607
SECONDS = 40  # of fuzzing; the other phases are short

FLAGS = ("--enable-responses-api-store", "--enable-tokenizer-info-endpoint", "--trust-request-chat-template")


class Document(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Frontend(*FLAGS, engine=("--max-model-len", "96"))
        cls.document = json.loads(cls.server.get("/openapi.json")[1])

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_every_route_of_the_log_is_in_it(self):
        self.server.wait_for_log("Tandem frontend listening on ")  # after the routes
        routes = re.findall(r"Route: (\S+), Methods: (\S+)", self.server.log)
        self.assertGreater(len(routes), 20)
        for path, method in routes:
            path = path.replace(":path}", "}").rstrip("*")
            self.assertIn(method.lower(), self.document["paths"].get(path, {}), path)

    def test_what_it_refers_to_exists(self):
        schemas = self.document["components"]["schemas"]
        for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(self.document)):
            self.assertIn(name, schemas)
        chat = schemas["ChatCompletionRequest"]
        self.assertEqual(chat["required"], ["messages"])
        self.assertEqual(chat["properties"]["temperature"]["anyOf"][0], {"type": "number", "minimum": 0, "maximum": 2})
        for name, schema in schemas.items():
            for field, row in schema.get("properties", {}).items():
                if name.endswith("Request") and name != "AbortRequest":
                    self.assertTrue(row.get("description"), f"{name}.{field}")

    def test_the_page_loads_nothing_else(self):
        status, page = self.server.get("/docs")
        self.assertEqual(status, 200)
        text = page.decode()
        self.assertIn("openapi.json", text)
        self.assertEqual(re.findall(r"https?://|//[a-z]+\.|@import|src=|<link", text), [])

    def test_schemathesis_finds_nothing(self):
        if not SCHEMATHESIS.exists():
            pair.skip("schemathesis (tests/run.sh installs it when PyPI responds)")
        print(f"seed {SEED}")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [str(SCHEMATHESIS), "run", self.server.url + "/openapi.json", "--phases", "examples,coverage,fuzzing",
                 "--max-examples", "3", "--max-time", str(SECONDS), "--workers", "1", "--seed", str(SEED), "--no-color",
                 "--continue-on-failure", "--request-timeout", str(pair.LIMIT), "--exclude-checks", "positive_data_acceptance,ignored_auth"],
                cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=6 * pair.LIMIT)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:])
        tested = re.search(r"Test cases:\s+(\d+) generated", done.stdout)
        self.assertGreater(int(tested.group(1)), len(self.document["paths"]))  # how many more: the machine's speed
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertNotRegex(self.server.log, r"\bERROR\b")


class NoDocument(unittest.TestCase):
    def test_a_flag_takes_it_away(self):
        with Frontend("--disable-fastapi-docs") as server:
            for path in ("/openapi.json", "/docs", "/tokenizer_info"):
                self.assertEqual(server.get(path)[0], 404)


if __name__ == "__main__":
    unittest.main(verbosity=2)
