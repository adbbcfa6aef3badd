#!/usr/bin/env python3
"""LoRA adapters in the engine core's process, asked for by a frontend of another make: recorded outputs beside the base's,
calls that manage adapters, folders that are wrong, and weights that are replaced while they are served."""
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "support"))
import pair
from goldens import read_goldens

try:
    import strict_frontend
    from strict_frontend import StrictFrontend, python_params
except ImportError as missing:
    pair.skip(f"{missing.name} is not installed (tests/run.sh installs it when PyPI answers)")

MODEL = TESTS / "golden" / "models" / "llama_plain"
ADAPTER = TESTS / "golden" / "lora" / "llama_plain-regex_layers"
OTHER = TESTS / "golden" / "lora" / "llama_plain-embed_lm_head"


def golden(folder, index=2):
    prompt = read_goldens(folder)["prompts"][index]
    return prompt["prompt_ids"], prompt["greedy_ids"][:12]


def lora(name, lora_id, folder, load_inplace=False):
    return [name, lora_id, str(folder), None, load_inplace, False]


class EngineLora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.frontend = StrictFrontend(cls.folder.name)
        cls.addClassCleanup(cls.frontend.close)
        cls.engine = strict_frontend.start_engine(
            cls.frontend, MODEL, "--dtype", "float32", "--no-flight-recorder", "--enable-lora", "--max-loras", "2",
            "--max-cpu-loras", "3")
        cls.addClassCleanup(cls.engine.wait, pair.LIMIT)
        cls.addClassCleanup(cls.engine.terminate)
        cls.ready = cls.frontend.meet()

    def ask(self, request_id, prompt, lora_request=None):
        self.frontend.add(request_id, prompt, python_params(temperature=0.0, max_tokens=12, ignore_eos=True), lora_request)

    def tokens(self, outputs):
        return [token for output in outputs for token in output[1]]

    def copy_of(self, folder, name):
        copy = pathlib.Path(self.folder.name, name)
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        return copy

    def test_the_ready_message_says_how_many_fit(self):
        self.assertEqual((self.ready["supports_lora"], self.ready["max_loras"]), (True, 2))

    def test_base_and_adapters_write_their_own_text_in_one_batch(self):
        folders = {"base": (MODEL, None), "one": (ADAPTER, lora("one", 11, ADAPTER)), "two": (OTHER, lora("two", 12, OTHER))}
        for request_id, (folder, lora_request) in folders.items():
            self.ask(request_id, golden(folder)[0], lora_request)
        found = self.frontend.collect(*folders)
        for request_id, (folder, _) in folders.items():
            self.assertEqual(self.tokens(found[request_id]), golden(folder)[1], request_id)

    def test_calls_add_list_and_remove(self):
        self.assertEqual(self.frontend.call(1, "add_lora", [lora("called", 21, ADAPTER)]), (None, True))
        self.assertIn(21, self.frontend.call(2, "list_loras", [])[1])
        self.assertEqual(self.frontend.call(3, "remove_lora", [21]), (None, True))
        self.assertEqual(self.frontend.call(4, "remove_lora", [21]), (None, False))
        self.assertNotIn(21, self.frontend.call(5, "list_loras", [])[1])

    def test_a_folder_that_is_wrong_fails_its_requests_and_calls_with_the_reason(self):
        nowhere = self.folder.name + "/nowhere"
        failure, _ = self.frontend.call(1, "add_lora", [lora("x", 31, nowhere)])
        self.assertEqual(failure, f"Loading lora x failed: No adapter found for {nowhere}")
        bad = self.copy_of(ADAPTER, "bad")
        config = json.loads((bad / "adapter_config.json").read_text())
        (bad / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
        failure, _ = self.frontend.call(2, "add_lora", [lora("bad", 32, bad)])
        self.assertIn("DoRA", failure)
        prompt, expected = golden(MODEL)
        self.ask("bad", prompt, lora("bad", 32, bad))
        self.ask("good", prompt)
        found = self.frontend.collect("bad", "good")
        self.assertEqual(self.tokens(found["good"]), expected)
        error = found["bad"][-1][18]
        self.assertEqual(error["code"], "validation_error")
        self.assertIn("DoRA", error["message"])

    def test_weights_that_are_replaced_in_place_are_served_from_then_on(self):
        served = self.copy_of(ADAPTER, "served")
        self.assertEqual(self.frontend.call(1, "add_lora", [lora("served", 41, served)]), (None, True))
        self.ask("before", golden(ADAPTER)[0], lora("served", 41, served))
        self.assertEqual(self.tokens(self.frontend.collect("before")["before"]), golden(ADAPTER)[1])
        self.copy_of(OTHER, "served")
        self.assertEqual(self.frontend.call(2, "add_lora", [lora("served", 41, served)]), (None, True))  # nothing is read
        self.ask("still", golden(ADAPTER)[0], lora("served", 41, served))
        self.assertEqual(self.tokens(self.frontend.collect("still")["still"]), golden(ADAPTER)[1])
        self.assertEqual(self.frontend.call(3, "add_lora", [lora("served", 41, served, load_inplace=True)]), (None, True))
        self.ask("after", golden(OTHER)[0], lora("served", 41, served))
        self.assertEqual(self.tokens(self.frontend.collect("after")["after"]), golden(OTHER)[1])


class EngineWithoutLora(unittest.TestCase):
    def test_requests_with_an_adapter_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            frontend = StrictFrontend(folder)
            self.addCleanup(frontend.close)
            engine = strict_frontend.start_engine(frontend, MODEL, "--no-flight-recorder")
            self.addCleanup(engine.wait, pair.LIMIT)
            self.addCleanup(engine.terminate)
            self.assertEqual(frontend.meet()["supports_lora"], False)
            frontend.add("a", [5, 6], python_params(max_tokens=2), lora("x", 1, ADAPTER))
            error = frontend.collect("a")["a"][-1][18]
            self.assertIn("--enable-lora", error["message"])
            self.assertIn("--enable-lora", frontend.call(1, "add_lora", [lora("x", 1, ADAPTER)])[0])


if __name__ == "__main__":
    unittest.main()
