#!/usr/bin/env python3
"""Two engines that share a folder of KV: one computes prompts, the other one decodes them, with the bits of one
engine alone. What proxies send to either is taken."""
import base64
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import Pair

SIZES = ("--block-size", 32, "--max-model-len", 160, "--num-gpu-blocks-override", 12)


def sharing(path, role, policy="fail", **extra):
    return ("--kv-transfer-config", json.dumps({
        "kv_connector": "ExampleConnector", "kv_role": role, "engine_id": "engine-p", "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {"shared_storage_path": str(path), **extra}}))


def prompt_of(number, length=140):
    return [(7 * number + i * i) % 200 + 1 for i in range(length)]


def complete(server, number, length=140, **more):
    status, body = server.post("/v1/completions", {
        "model": str(pair.MODEL), "prompt": prompt_of(number, length), "max_tokens": 8, "temperature": 0,
        "ignore_eos": True, "logprobs": 1, **more})
    assert status == 200, body
    return json.loads(body)


def bits(response):
    return response["choices"][0]["text"], response["choices"][0]["logprobs"]["token_logprobs"]


def image(red):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes([red, 0, 255]) * 64) * 64
    png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)) +
           chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()}}


def files(path):
    return sorted(str(file.relative_to(path)) for file in pathlib.Path(path).rglob("*") if file.is_file())


def goldens_of(*proxies):
    """[(name, legs)] of the requests that went to both engines, the prefill first."""
    root = os.environ.get("TANDEM_GOLDENS")
    found = []
    for proxy in proxies if root else ():
        for line in (pathlib.Path(root) / "pd_proxies" / f"{proxy}.jsonl").read_text().splitlines():
            case = json.loads(line)
            legs = [leg for leg in case["engine_requests"] if leg["method"] == "POST"]
            if [leg["engine"] for leg in legs] == ["prefill", "decode"]:
                found.append((f"{proxy} {case['name']}", legs))
    return found


PREFILL = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
           "remote_host": None, "remote_port": None}


class SharedFolder(unittest.TestCase):
    def test_one_prefills_and_the_other_decodes_with_the_bits_of_one_engine(self):
        with tempfile.TemporaryDirectory() as folder:
            with Pair(*SIZES) as server:
                alone = [bits(complete(server, number)) for number in range(3)]
            with Pair(*SIZES, *sharing(folder, "kv_producer")) as prefill, \
                    Pair(*SIZES, *sharing(folder, "kv_consumer")) as decode:
                # A proxy's prefill: the KV is there when it responds, and its params name the engine.
                for number in range(2):
                    response = complete(prefill, number, max_tokens=1, max_completion_tokens=1, stream=False,
                                        kv_transfer_params=PREFILL)
                    params = response["kv_transfer_params"]
                    self.assertTrue(params["do_remote_prefill"])
                    self.assertEqual((params["remote_engine_id"], params["remote_num_tokens"]), ("engine-p", 128))
                    response = complete(decode, number, kv_transfer_params=params)
                    self.assertEqual(bits(response), alone[number])
                    self.assertIsNone(response["kv_transfer_params"])
                # Without params, as llm-d's shared-storage mode has it.
                self.assertIsNone(complete(prefill, 2, max_tokens=1)["kv_transfer_params"])
                self.assertEqual(bits(complete(decode, 2)), alone[2])
                self.assertEqual(decode.total("vllm:external_prefix_cache_hits_total"), 3 * 128)
                self.assertEqual(decode.total("vllm:prompt_tokens_by_source_total", source="external_kv_transfer"),
                                 3 * 128)
                self.assertEqual(prefill.total("vllm:external_prefix_cache_hits_total"), 0)
            names = files(folder)
            self.assertEqual(len({name.split("/")[1] for name in names}), 3)
            self.assertEqual({name.split("/")[2] for name in names},
                             {f"model.layers.{i}.self_attn.attn.safetensors" for i in range(len(names) // 3)})

    def test_ranks_share_it_with_engines_that_have_others(self):
        flags = (*SIZES, "--threads", 1)
        with Pair(*flags) as server:
            alone = [bits(complete(server, number)) for number in range(2)]
        with tempfile.TemporaryDirectory() as folder:
            with Pair(*flags, "-tp", 2, *sharing(folder, "kv_producer")) as prefill:
                complete(prefill, 0, max_tokens=1)
            with Pair(*flags, "-tp", 2, "-pp", 2, *sharing(folder, "kv_both")) as both:
                self.assertEqual(bits(complete(both, 0)), alone[0])
                self.assertEqual(both.total("vllm:external_prefix_cache_hits_total"), 128)
                complete(both, 1, max_tokens=1, kv_transfer_params=PREFILL)
            with Pair(*flags, *sharing(folder, "kv_consumer")) as decode:
                for number in range(2):
                    self.assertEqual(bits(complete(decode, number)), alone[number])
                self.assertEqual(decode.total("vllm:external_prefix_cache_hits_total"), 2 * 128)
            # Files of ranks are those of one engine.
            with tempfile.TemporaryDirectory() as second, Pair(*flags, *sharing(second, "kv_producer")) as server:
                for number in range(2):
                    complete(server, number, max_tokens=1)
                self.assertEqual(files(folder), files(second))
                for name in files(second):
                    self.assertEqual((pathlib.Path(folder) / name).read_bytes(), (pathlib.Path(second) / name).read_bytes())

    def test_the_two_legs_of_proxies(self):
        """What proxies sent for one client's request (goldens/pd_proxies), with prompts of several blocks."""
        captures = goldens_of("llm-d-nixlv2", "llm-d-shared-storage", "toy", "vllm-router")
        if not captures:
            self.skipTest("TANDEM_GOLDENS is not set")
        with tempfile.TemporaryDirectory() as folder, \
                Pair(*SIZES, *sharing(folder, "kv_producer")) as prefill, \
                Pair(*SIZES, *sharing(folder, "kv_consumer")) as decode:
            num_loaded = 0
            for number, (name, legs) in enumerate(captures):
                params = None
                for leg in legs:
                    body = {**leg["body"], "model": str(pair.MODEL)}
                    words = f"{number} " + "tell me about it " * 8
                    if "prompt" in body:
                        body["prompt"] = words
                    else:
                        body["messages"] = [{"role": "user", "content": words}]
                    passes_params = "kv_transfer_params" in body
                    if passes_params and leg["engine"] == "decode":
                        body["kv_transfer_params"] = params
                    server = prefill if leg["engine"] == "prefill" else decode
                    headers = {key: value for key, value in leg["headers"] if key.lower() != "content-type"}
                    status, response = server.post(leg["path"], body, **headers)
                    self.assertEqual(status, 200, (name, leg, response))
                    if passes_params and leg["engine"] == "prefill":
                        params = json.loads(response)["kv_transfer_params"]
                        self.assertTrue(params["do_remote_prefill"], name)
                loaded = decode.total("vllm:external_prefix_cache_hits_total")
                self.assertGreater(loaded, num_loaded, name)
                num_loaded = loaded

    def test_a_prefill_has_its_params_in_every_form_of_the_api(self):
        words = "tell me about it " * 12
        chat = {"messages": [{"role": "user", "content": words}], "max_tokens": 1}
        forms = {"/v1/completions": {"prompt": words, "max_tokens": 1}, "/v1/chat/completions": chat,
                 "/v1/messages": {**chat, "model": str(pair.MODEL)}, "/v1/responses": {"input": words, "max_output_tokens": 1},
                 "/inference/v1/generate": {"token_ids": prompt_of(0), "sampling_params": {"max_tokens": 1}}}
        with tempfile.TemporaryDirectory() as folder, Pair(*SIZES, *sharing(folder, "kv_producer")) as prefill:
            for path, body in forms.items():
                status, response = prefill.post(path, {**body, "kv_transfer_params": PREFILL})
                self.assertEqual(status, 200, response)
                self.assertTrue(json.loads(response)["kv_transfer_params"]["do_remote_prefill"], path)
                status, response = prefill.post(path, body)
                self.assertEqual(status, 200, response)
                self.assertIsNone(json.loads(response).get("kv_transfer_params"), path)
            for path in ("/v1/completions", "/v1/chat/completions"):
                status, response = prefill.post(path, {**forms[path], "stream": True, "kv_transfer_params": PREFILL})
                self.assertEqual(status, 200, response)
                chunks = [json.loads(line[6:]) for line in response.decode().splitlines() if line.startswith("data: {")]
                self.assertTrue(chunks[-1]["kv_transfer_params"]["do_remote_prefill"], path)
                self.assertEqual([chunk for chunk in chunks[:-1] if chunk.get("kv_transfer_params")], [], path)

    def test_images_are_part_of_what_is_found(self):
        if "TANDEM_GOLDENS" not in os.environ:
            self.skipTest("TANDEM_GOLDENS is not set")
        model = pathlib.Path(os.environ["TANDEM_GOLDENS"]) / "vision" / "qwen3_vl"

        def look(server, red, max_tokens):
            status, body = server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": [image(red), {"type": "text", "text": "word " * 40}]}],
                "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "logprobs": True})
            self.assertEqual(status, 200, body)
            return [one["logprob"] for one in json.loads(body)["choices"][0]["logprobs"]["content"]]
        with tempfile.TemporaryDirectory() as folder, \
                Pair("--kv-cache-memory-bytes", "32M", *sharing(folder, "kv_producer"), model=model) as prefill, \
                Pair("--kv-cache-memory-bytes", "32M", *sharing(folder, "kv_consumer"), model=model) as decode:
            alone = look(prefill, 1, 8)
            self.assertEqual(look(decode, 1, 8), alone)
            loaded = decode.total("vllm:external_prefix_cache_hits_total")
            self.assertGreater(loaded, 32)
            look(decode, 2, 1)
            self.assertEqual(decode.total("vllm:external_prefix_cache_hits_total"), loaded)

    def test_what_cannot_be_loaded_follows_the_policy(self):
        with tempfile.TemporaryDirectory() as folder:
            with Pair(*SIZES, *sharing(folder, "kv_both", subfolder="")) as prefill:
                computed = bits(complete(prefill, 0))
                pair.wait_for(lambda: list(pathlib.Path(folder).glob("[0-9a-f]*/*")), "its files")
            spoiled = pathlib.Path(folder) / files(folder)[-1]
            os.truncate(spoiled, 200)
            with Pair(*SIZES, *sharing(folder, "kv_consumer", subfolder="")) as decode:
                status, body = decode.post("/v1/completions", {"model": str(pair.MODEL), "prompt": prompt_of(0)})
                self.assertEqual(status, 500, body)
                decode.wait_for_log("could not be loaded")
                decode.wait_for_log("is cut short")
                # Another engine has computed it, says a proxy, but nobody has.
                status, body = decode.post("/v1/completions", {
                    "model": str(pair.MODEL), "prompt": prompt_of(5), "kv_transfer_params": {"do_remote_prefill": True}})
                self.assertEqual(status, 500, body)
                self.assertEqual(bits(complete(decode, 0)), computed)
            with Pair(*SIZES, *sharing(folder, "kv_both", "recompute", subfolder="")) as decode:
                self.assertEqual(bits(complete(decode, 0)), computed)
                pair.wait_for(lambda: spoiled.stat().st_size > 200, "good files in the place of the bad ones")

    def test_what_is_not_built_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            for flags, word in (((*sharing(folder, "kv_both"), "--kv-cache-dtype", "int8"), "int8"),
                                (sharing("/proc/none", "kv_both"), "/proc/none")):
                with Pair(*flags, wait=False) as server:
                    self.assertNotEqual(server.process.wait(pair.LIMIT), 0)
                    self.assertIn(word, server.log)


if __name__ == "__main__":
    unittest.main()
