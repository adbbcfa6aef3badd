#!/usr/bin/env python3
"""NVIDIA Dynamo's KV indexer, of ai-dynamo on PyPI, over the KV events of our server.

It runs from build/routers/dynamo (or TANDEM_ROUTERS/dynamo):
  python3 -m venv build/routers/dynamo && build/routers/dynamo/bin/pip install ai-dynamo-runtime==1.6.1
  build/routers/dynamo/bin/pip install --no-deps ai-dynamo==1.6.1
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import ROOT, Pair, free_port, wait_for

PYTHON = pathlib.Path(os.environ.get("TANDEM_ROUTERS") or ROOT / "build" / "routers") / "dynamo/bin/python"
BLOCK = 32


class Dynamo(unittest.TestCase):
    def call(self, path, body=None):
        """The response, or None while nobody responds."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body and json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=pair.LIMIT) as reply:
                return json.loads(reply.read())
        except OSError:
            return None

    def matched(self, token_ids):
        """Tokens of the prompt that the indexer believes to be in our cache."""
        found = self.call("/query", {"token_ids": token_ids, "model_name": "m"})
        return found["instances"].get("1", {}).get("longest_matched", 0)

    def test_it_finds_what_our_cache_has_and_forgets_what_it_lost(self):
        for encoding in ("map", "array"):
            with self.subTest(encoding), tempfile.TemporaryFile() as log:
                events, self.port = free_port(), free_port()
                config = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{events}", "encoding": encoding}
                with Pair("--served-model-name", "m", "--kv-cache-memory-bytes", "32M", "--server-dev-mode",
                          "--kv-events-config", json.dumps(config)) as server:
                    indexer = subprocess.Popen(
                        [PYTHON, "-m", "dynamo.indexer", "--block-size", str(BLOCK), "--port", str(self.port), "--threads", "1",
                         "--model-name", "m", "--workers", f"1=tcp://127.0.0.1:{events}"], stdout=log, stderr=log)
                    try:
                        wait_for(lambda: self.call("/workers"), "the indexer")
                        self.follows(server)
                    except AssertionError:
                        log.seek(0)
                        print(log.read().decode(errors="replace")[-3000:], file=sys.stderr)
                        raise
                    finally:
                        indexer.kill()
                        indexer.wait()

    def follows(self, server):
        prompts = [f"{word} upon a time there was a fox who " * 12 for word in ("Once", "Twice")]
        tokens = [json.loads(server.post("/tokenize", {"prompt": prompt})[1])["tokens"] for prompt in prompts]
        whole = [len(each) // BLOCK * BLOCK for each in tokens]

        def is_known():  # a subscriber that has just come may miss the first events
            server.post("/reset_prefix_cache", {})
            server.post("/v1/completions", {"prompt": prompts[0], "max_tokens": 1})
            return self.matched(tokens[0]) == whole[0]
        wait_for(is_known, "the first prompt is known")
        self.assertEqual(self.matched(tokens[1]), 0)
        server.post("/v1/completions", {"prompt": prompts[1], "max_tokens": 1})
        wait_for(lambda: self.matched(tokens[1]) == whole[1], "the second prompt is known")
        self.assertEqual(self.matched(tokens[0]), whole[0])
        self.assertEqual(server.post("/reset_prefix_cache", {})[0], 200)
        wait_for(lambda: self.matched(tokens[0]) == self.matched(tokens[1]) == 0, "what the cache lost is forgotten")


if __name__ == "__main__":
    if not PYTHON.exists():
        pair.skip(f"{PYTHON} is not there; tests/interop/dynamo_test.py has the command")
    unittest.main(verbosity=2)
