"""Speculative decoding through the whole server: the same texts as without, also after a death, its series, and flags that are refused.

Usage: speculation_test.py [unittest arguments]
"""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, MODEL, Pair, bin_dir, wait_for

CONFIG = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 3}
HEADS = MODEL.parents[2] / "tests/golden/speculative"  # with their target
STORY = "One day a fox met a bear. The fox said hello to the bear. The bear said hello to the fox. One day a fox met"


def write_medusa(folder, hidden_size, num_heads):
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": num_heads, "original_lm_head": True}))
    size = 4 * hidden_size * hidden_size
    header = json.dumps({f"{i}.0.linear.weight": {"dtype": "F32", "shape": [hidden_size, hidden_size],
                                                  "data_offsets": [i * size, (i + 1) * size]} for i in range(num_heads)}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(num_heads * size))


def write_mtp(folder, config):
    """A layer that passes on the embedding of its token: attention and MLP add nothing."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q_size, kv_size = (config[key] * head_dim for key in ("num_attention_heads", "num_key_value_heads"))
    shapes = {**{norm: [hidden] for norm in ("enorm", "hnorm", "shared_head.norm", "input_layernorm", "post_attention_layernorm")},
              "eh_proj": [hidden, 2 * hidden], "self_attn.q_proj": [q_size, hidden], "self_attn.k_proj": [kv_size, hidden],
              "self_attn.v_proj": [kv_size, hidden], "self_attn.o_proj": [hidden, q_size],
              "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden], "mlp.down_proj": [hidden, inner]}
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = math.prod(shape)
        numbers = [1.0] * count if len(shape) == 1 else [0.0] * count
        if name == "eh_proj":
            for i in range(hidden):
                numbers[2 * hidden * i + i] = 1.0
        header[f"model.layers.{config['num_hidden_layers']}.{name}.weight"] = {
            "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *numbers)
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)


def bodies():
    base = {"prompt": STORY, "max_tokens": 60}
    yield {**base, "temperature": 0}
    yield {**base, "temperature": 0, "logprobs": 3, "ignore_eos": True}
    yield {**base, "temperature": 0.7, "seed": 7, "n": 2, "min_p": 0.02}
    yield {**base, "temperature": 0, "frequency_penalty": 0.4, "min_tokens": 30, "stop": ["bear."]}
    yield {**base, "temperature": 0, "logit_bias": {"20": 3.0}, "prompt_logprobs": 1}
    yield {**base, "temperature": 0, "structured_outputs": {"regex": "(hello |fox ){3,20}"}}
    yield {**base, "temperature": 0.8, "seed": 5, "structured_outputs": {"regex": "((hello to the |said )?(fox|bear)[.] ?){9}"}}
    yield {**base, "temperature": 0, "structured_outputs": {"json": {"type": "array", "items": {"const": "fox"}, "minItems": 5, "maxItems": 9}}}
    yield {**base, "temperature": 0, "use_beam_search": True, "n": 2, "max_tokens": 10}


def choices(server, body):
    status, reply = server.post("/v1/completions", body)
    assert status == 200, reply
    reply = json.loads(reply)
    return reply["choices"], reply["usage"]["completion_tokens"]


def text_of(server, body, at_20=None):
    """Of a stream. at_20: called once, after 20 events."""
    request = urllib.request.Request(server.url + "/v1/completions", data=json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    text, num_events = "", 0
    with urllib.request.urlopen(request, timeout=LIMIT) as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            text += "".join(choice["text"] for choice in json.loads(line[6:])["choices"])
            num_events += 1
            if num_events == 20 and at_20 is not None:
                at_20()
    return text


class Speculation(unittest.TestCase):
    def test_the_same_texts(self):
        with Pair() as plain:
            self.assertNotIn("spec_decode", plain.get("/metrics")[1].decode())
            for config in (CONFIG, {"method": "suffix", "num_speculative_tokens": 4}):
                with Pair("--speculative-config", json.dumps({**config, "adaptive": False})) as drafting:
                    for body in bodies():
                        with self.subTest(method=config["method"], body=body):
                            self.assertEqual(choices(drafting, body), choices(plain, body))
                    drafted = drafting.total("vllm:spec_decode_num_draft_tokens_total")
                    accepted = drafting.total("vllm:spec_decode_num_accepted_tokens_total")
                    self.assertGreater(accepted, 0)
                    self.assertGreater(drafted, accepted)
                    self.assertEqual(drafting.total("vllm:spec_decode_num_accepted_tokens_per_pos_total"), accepted)

    def test_series_are_there_before_the_first_draft(self):
        with Pair("--speculative-config", json.dumps({**CONFIG, "num_speculative_tokens": 3})) as server:
            def drafts():
                return {name: value for name, value in server.metrics().items() if name.startswith("vllm:spec_decode")}
            wait_for(drafts, "the engine has said that it speculates")
            self.assertEqual(set(drafts().values()), {0})
            self.assertEqual(len([name for name in drafts() if "accepted_tokens_per_pos_total" in name]), 3)

    def test_metrics_of_a_request(self):
        flags = ("--speculative-config", json.dumps({**CONFIG, "adaptive": False}), "--per-request-spec-decode-metrics")
        body = {"prompt": STORY, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
        with Pair(*flags, "detailed") as server:
            metrics = json.loads(server.post("/v1/completions", body)[1])["metrics"]["speculative_decoding"]
            self.assertEqual(metrics["num_draft_tokens"], server.total("vllm:spec_decode_num_draft_tokens_total"))
            self.assertEqual(metrics["num_accepted_draft_tokens"], server.total("vllm:spec_decode_num_accepted_tokens_total"))
            self.assertEqual(metrics["num_spec_steps"], sum(metrics["acceptance_histogram"]))
            self.assertEqual(len(metrics["acceptance_histogram"]), 5)
            self.assertEqual(sum(metrics["per_step_accepted"]), metrics["num_accepted_draft_tokens"])
            self.assertEqual(sum(metrics["per_step_drafted"]), metrics["num_draft_tokens"])
            self.assertAlmostEqual(metrics["mean_acceptance_length"],
                                   1 + metrics["num_accepted_draft_tokens"] / metrics["num_spec_steps"])
            self.assertIsNone(json.loads(server.post("/v1/completions", {**body, "n": 2, "temperature": 0.5})[1])["metrics"])

    def test_a_model_that_drafts(self):
        # The model itself is nearly always right, whatever is sampled greedily.
        config = json.dumps({"model": str(MODEL), "num_speculative_tokens": 3, "adaptive": False})
        with Pair() as plain, Pair("--speculative-config", config) as drafting:
            for body in bodies():
                with self.subTest(body=body):
                    self.assertEqual(choices(drafting, body), choices(plain, body))
            self.assertGreater(drafting.total("vllm:spec_decode_num_accepted_tokens_total"),
                               drafting.total("vllm:spec_decode_num_draft_tokens_total") / 2)

    def test_heads_over_the_hidden_states(self):
        with Pair(model=HEADS / "target") as plain:
            for method in ("eagle", "eagle3"):
                config = json.dumps({"method": method, "model": str(HEADS / method), "num_speculative_tokens": 3, "adaptive": False})
                with Pair("--speculative-config", config, model=HEADS / "target") as drafting:
                    for body in bodies():
                        with self.subTest(method=method, body=body):
                            self.assertEqual(choices(drafting, body), choices(plain, body))
                    drafted = drafting.total("vllm:spec_decode_num_draft_tokens_total")
                    accepted = drafting.total("vllm:spec_decode_num_accepted_tokens_total")
                    self.assertGreater(accepted, 0)
                    self.assertGreater(drafted, accepted)
                    self.assertEqual(drafting.total("vllm:spec_decode_num_accepted_tokens_per_pos_total"), accepted)

    def test_the_layer_that_predicts_further_ahead(self):
        with tempfile.TemporaryDirectory() as folder, Pair(model=HEADS / "target") as plain:
            write_mtp(pathlib.Path(folder), json.loads((HEADS / "target" / "config.json").read_text()))
            config = json.dumps({"method": "deepseek_mtp", "model": folder, "num_speculative_tokens": 2, "adaptive": False})
            with Pair("--speculative-config", config, model=HEADS / "target") as drafting:
                for body in bodies():
                    with self.subTest(body=body):
                        self.assertEqual(choices(drafting, body), choices(plain, body))
                self.assertGreater(drafting.total("vllm:spec_decode_num_draft_tokens_total"), 0)

    def test_medusas_heads(self):
        # Heads of zeros over the target's table guess that the newest token comes again.
        with tempfile.TemporaryDirectory() as folder, Pair(model=HEADS / "target") as plain:
            write_medusa(pathlib.Path(folder), hidden_size=64, num_heads=2)
            config = {"method": "medusa", "model": folder, "num_speculative_tokens": 2, "adaptive": False}
            with Pair("--speculative-config", json.dumps(config), model=HEADS / "target") as drafting:
                for body in bodies():
                    with self.subTest(body=body):
                        self.assertEqual(choices(drafting, body), choices(plain, body))
                self.assertGreater(drafting.total("vllm:spec_decode_num_draft_tokens_total"), 0)
            run = subprocess.run([bin_dir() / "tandem-engine-core", HEADS / "target", "--speculative-config",
                                  json.dumps({**config, "num_speculative_tokens": 3}), "--handshake-address", "ipc:///nowhere/socket"],
                                 capture_output=True, text=True, timeout=LIMIT)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("must be at most the number of heads, 2", run.stdout + run.stderr)

    def test_a_request_outlives_its_engine_and_its_head(self):
        config = json.dumps({"model": str(HEADS / "eagle3"), "num_speculative_tokens": 3, "adaptive": False})
        body = {"prompt": STORY, "max_tokens": 200, "temperature": 0.5, "seed": 3, "ignore_eos": True, "stream": True}
        with Pair(model=HEADS / "target") as plain, \
                Pair("--speculative-config", config, model=HEADS / "target") as drafting:
            whole = text_of(plain, body)
            self.assertEqual(text_of(drafting, body, at_20=lambda: os.kill(drafting.pid_of("tandem-engine-core"), 9)), whole)
            # A slow reader may have had all events in its socket by then.
            wait_for(lambda: drafting.total("tandem:engine_restarts_total") == 1, "the engine is back")

    def test_asynchronous_scheduling_and_streams(self):
        flags = ("--async-scheduling", "--speculative-config", json.dumps(CONFIG))
        body = {"prompt": STORY, "max_tokens": 80, "temperature": 0, "ignore_eos": True, "stream": True}
        with Pair() as plain, Pair(*flags) as drafting:
            text = text_of(plain, body)
            self.assertTrue(text)
            self.assertEqual(text_of(drafting, body), text)

    def test_a_request_outlives_its_engine(self):
        body = {"prompt": STORY, "max_tokens": 400, "temperature": 0.5, "seed": 3, "ignore_eos": True, "stream": True}
        with Pair() as plain, Pair("--speculative-config", json.dumps({**CONFIG, "adaptive": False})) as drafting:
            whole = text_of(plain, body)
            self.assertEqual(text_of(drafting, body, at_20=lambda: os.kill(drafting.pid_of("tandem-engine-core"), 9)), whole)
            # A slow reader may have had all events in its socket by then.
            wait_for(lambda: drafting.total("tandem:engine_restarts_total") == 1, "the engine is back")

    def test_what_is_not_built_is_refused_by_name(self):
        for config, words in (({"method": "medusa", "num_speculative_tokens": 2}, "method medusa needs a model"),
                              ({"method": "mtp"}, "has no tensor model.layers.6.eh_proj.weight"),
                              ({"method": "eagle3", "num_speculative_tokens": 2}, "needs a model"),
                              ({"model": str(HEADS / "eagle3"), "num_speculative_tokens": 2}, "hidden_size"),
                              ({"model": str(MODEL.parents[2] / "tests/golden/models/llama_plain"), "num_speculative_tokens": 2},
                               "vocabulary"),
                              ({**CONFIG, "nonsense": 1}, "nonsense")):
            run = subprocess.run([bin_dir() / "tandem-engine-core", MODEL, "--speculative-config", json.dumps(config),
                                  "--handshake-address", "ipc:///nowhere/socket"], capture_output=True, text=True, timeout=LIMIT)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("--speculative-config", run.stdout + run.stderr)
            self.assertIn(words, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
