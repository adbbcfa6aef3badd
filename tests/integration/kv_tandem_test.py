#!/usr/bin/env python3
"""Two engines, one of which prefills for the other one: the decoding one reads the KV from the first one's cache, over
a unix socket and over tcp, with the bits of one engine alone."""
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import Pair
from two_hosts import PairIn, other_host

SIZES = ("--block-size", 32, "--max-model-len", 160, "--num-gpu-blocks-override", 24)
PREFILL = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
           "remote_host": None, "remote_port": None}


def tandem(role, policy="fail", **extra):
    return ("--kv-transfer-config", json.dumps({
        "kv_connector": "TandemConnector", "kv_role": role, "engine_id": "engine-p", "kv_load_failure_policy": policy,
        "kv_connector_extra_config": extra}))


def prompt_of(number, length=140):
    return [(7 * number + i * i) % 200 + 1 for i in range(length)]


def ask(server, number, **more):
    status, body = server.post("/v1/completions", {
        "model": str(pair.MODEL), "prompt": prompt_of(number), "max_tokens": 8, "temperature": 0, "ignore_eos": True,
        "logprobs": 1, **more})
    return status, json.loads(body)


def complete(server, number, **more):
    status, response = ask(server, number, **more)
    assert status == 200, response
    return response


def prefill_for_others(server, number):
    return complete(server, number, max_tokens=1, kv_transfer_params=PREFILL)["kv_transfer_params"]


def bits(response):
    return response["choices"][0]["text"], response["choices"][0]["logprobs"]["token_logprobs"]


class TandemConnector(unittest.TestCase):
    def test_one_prefills_and_the_other_decodes_with_the_bits_of_one_engine(self):
        with Pair(*SIZES) as server:
            alone = [bits(complete(server, number)) for number in range(3)]
        with tempfile.TemporaryDirectory() as folder:
            for listen in (f"unix:{folder}/kv", "tcp://127.0.0.1:0"):
                with Pair(*SIZES, *tandem("kv_producer", listen=listen)) as prefill, \
                        Pair(*SIZES, *tandem("kv_consumer")) as decode:
                    for number in range(3):
                        params = prefill_for_others(prefill, number)
                        self.assertTrue(params["do_remote_prefill"])
                        self.assertEqual((params["remote_engine_id"], params["remote_num_tokens"]), ("engine-p", 128))
                        self.assertEqual(len(params["remote_block_ids"][0]), 4)
                        response = complete(decode, number, kv_transfer_params=params)
                        self.assertEqual(bits(response), alone[number], listen)
                        self.assertIsNone(response["kv_transfer_params"])
                    self.assertEqual(decode.total("vllm:external_prefix_cache_hits_total"), 3 * 128)
                    # Read blocks are released: with all three leases kept, half of the cache would be taken.
                    pair.wait_for(lambda: prefill.total("vllm:kv_cache_usage_perc") == 0, "released blocks")

    def test_ranks_read_from_ranks(self):
        flags = (*SIZES, "--threads", 1)
        with Pair(*flags) as server:
            alone = [bits(complete(server, number)) for number in range(2)]
        with tempfile.TemporaryDirectory() as folder:
            for listen, ranks in ((f"unix:{folder}/kv", ("-tp", 2)), ("tcp://127.0.0.1:0", ("-tp", 2, "-pp", 2))):
                with self.subTest(listen), Pair(*flags, *ranks, *tandem("kv_producer", listen=listen)) as prefill, \
                        Pair(*flags, *ranks, *tandem("kv_consumer")) as decode:
                    for number in range(2):
                        response = complete(decode, number, kv_transfer_params=prefill_for_others(prefill, number))
                        self.assertEqual(bits(response), alone[number])
                    self.assertEqual(decode.total("vllm:external_prefix_cache_hits_total"), 2 * 128)
                    pair.wait_for(lambda: prefill.total("vllm:kv_cache_usage_perc") == 0, "released blocks")

    def test_what_cannot_be_read_follows_the_policy(self):
        with tempfile.TemporaryDirectory() as folder, \
                Pair(*SIZES, *tandem("kv_both", listen=f"unix:{folder}/d")) as decode, \
                Pair(*SIZES, *tandem("kv_both", "recompute", listen=f"unix:{folder}/r")) as recompute:
            with Pair(*SIZES, *tandem("kv_producer", listen=f"unix:{folder}/p")) as prefill:
                alone = [bits(complete(prefill, number)) for number in range(2)]
                params = prefill_for_others(prefill, 0)
                # The ticket of another prompt.
                self.assertEqual(ask(decode, 1, kv_transfer_params=params)[0], 500)
                decode.wait_for_log("other blocks were computed there")
                params = [prefill_for_others(prefill, number) for number in (0, 1)]
                os.kill(prefill.pid_of("tandem-engine-core"), signal.SIGKILL)
                self.assertEqual(ask(decode, 0, kv_transfer_params=params[0])[0], 500)
                pair.wait_for(lambda: "could not be read" in decode.log, "a reason")
                self.assertEqual(bits(complete(recompute, 1, kv_transfer_params=params[1])), alone[1])
            # Params that are not ours.
            self.assertEqual(ask(decode, 5, kv_transfer_params={"do_remote_prefill": True})[0], 500)
            decode.wait_for_log("lack remote_host")
            self.assertEqual(bits(complete(decode, 0)), alone[0])

    def test_what_is_refused_gives_its_kv_up(self):
        with tempfile.TemporaryDirectory() as folder, \
                Pair(*SIZES, *tandem("kv_producer", listen=f"unix:{folder}/p", lease_s=600)) as prefill, \
                Pair(*SIZES, *tandem("kv_consumer")) as decode:
            for number, refusal in enumerate(({"max_tokens": 1000}, {"model": "another"})):
                params = prefill_for_others(prefill, number)
                status, response = ask(decode, number, kv_transfer_params=params, **refusal)
                self.assertIn(status, (400, 404), response)
                pair.wait_for(lambda: prefill.total("vllm:kv_cache_usage_perc") == 0, "its blocks are free")

    def test_prompts_and_choices_of_one_request(self):
        """Params are of one prompt: those of several have none, and those of its choices are one lease's."""
        with tempfile.TemporaryDirectory() as folder, \
                Pair(*SIZES, *tandem("kv_producer", listen=f"unix:{folder}/p", lease_s=600)) as prefill, \
                Pair(*SIZES, *tandem("kv_consumer")) as decode:
            several = {"prompt": [prompt_of(0), prompt_of(1)]}
            response = complete(prefill, 0, max_tokens=1, kv_transfer_params=PREFILL, **several)
            self.assertIsNone(response["kv_transfer_params"])
            params = prefill_for_others(prefill, 2)
            complete(decode, 0, kv_transfer_params=params, **several)
            complete(decode, 2, kv_transfer_params=params)
            choices = {"n": 3, "temperature": 1, "seed": 1}
            params = complete(prefill, 3, max_tokens=1, kv_transfer_params=PREFILL, **choices)["kv_transfer_params"]
            complete(decode, 3, kv_transfer_params=params, **choices)
            pair.wait_for(lambda: prefill.total("vllm:kv_cache_usage_perc") == 0, "its blocks are free")

    def test_a_holder_that_stops_waits_for_its_readers(self):
        with tempfile.TemporaryDirectory() as folder, Pair(*SIZES, *tandem("kv_consumer")) as decode:
            flags = (*SIZES, *tandem("kv_producer", listen=f"unix:{folder}/p", lease_s=3600), "--shutdown-timeout")
            with Pair(*flags, 60) as prefill:
                alone = bits(complete(prefill, 0))
                params = prefill_for_others(prefill, 0)
                prefill.process.send_signal(signal.SIGTERM)
                pair.wait_for(lambda: "the KV of 1 for others" in prefill.log, "it waits")
                response = complete(decode, 0, kv_transfer_params=params)
                self.assertEqual(bits(response), alone)
                self.assertEqual(prefill.process.wait(pair.LIMIT), 0)
            with Pair(*flags, 1) as prefill:  # nobody reads
                prefill_for_others(prefill, 1)
                prefill.process.send_signal(signal.SIGTERM)
                self.assertEqual(prefill.process.wait(pair.LIMIT), 0)

    def test_kv_crosses_a_network(self):
        namespace, here, there = other_host(self)
        with Pair(*SIZES, *tandem("kv_producer", listen=f"tcp://{here}:0", insecure_tcp=True)) as prefill, \
                PairIn(namespace, *SIZES, *tandem("kv_consumer", insecure_tcp=True), host=there) as decode:
            alone = bits(complete(prefill, 0))
            params = prefill_for_others(prefill, 0)
            self.assertEqual(params["remote_host"], here)
            self.assertEqual(bits(complete(decode, 0, kv_transfer_params=params)), alone)
            self.assertEqual(decode.total("vllm:external_prefix_cache_hits_total"), 128)
            pair.wait_for(lambda: prefill.total("vllm:kv_cache_usage_perc") == 0, "released blocks")

    def test_another_model_is_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder, \
                Pair(*SIZES, *tandem("kv_producer", listen=f"unix:{folder}/p")) as prefill, \
                Pair("--max-model-len", 160, "--num-gpu-blocks-override", 24, "--block-size", 64,
                     *tandem("kv_consumer")) as decode:
            params = prefill_for_others(prefill, 0)
            self.assertEqual(ask(decode, 0, kv_transfer_params=params)[0], 500)
            decode.wait_for_log("--block-size: 32 there and 64 here")
            with Pair(*SIZES, "-tp", 2, *tandem("kv_consumer")) as ranks:
                self.assertEqual(ask(ranks, 0, kv_transfer_params=params)[0], 500)
                ranks.wait_for_log("tp2' here")

    def test_what_is_not_built_or_not_safe_is_refused_by_name(self):
        for flags, word in ((tandem("kv_both", listen="tcp://192.0.2.1:1"), "insecure_tcp"),
                            (tandem("kv_both", listen="unix:/proc/none/x"), "/proc/none/x"),
                            (tandem("kv_producer"), "listen")):
            with Pair(*flags, wait=False) as server:
                self.assertNotEqual(server.process.wait(pair.LIMIT), 0)
                self.assertIn(word, server.log)


if __name__ == "__main__":
    unittest.main()
