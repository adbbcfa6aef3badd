#!/usr/bin/env python3
"""Sleep beside KV connectors: the cache's memory goes, what stands elsewhere stays and is loaded after the wake-up, with
the bits that computing gives."""
import json
import pathlib
import shutil
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from kv_tandem_test import bits, complete, prefill_for_others, tandem
from pair import MODEL, wait_for
from sleep_test import Server, own_memory
from workers_test import workers_of

SIZES = ("--enable-sleep-mode", "--server-dev-mode", "--threads", "1", "--block-size", 32, "--max-model-len", 160)
# Each prompt takes all 5 blocks of the cache.
SMALL = (*SIZES, "--num-gpu-blocks-override", 6)
PROMPTS = range(3)


def host_memory():
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"cpu_bytes_to_use": 10_000_000}}


def files_below_host_memory(folder):
    return {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 10_000_000,
        "secondary_tiers": [{"type": "fs", "root_dir": folder}]}}


def shared_folder(folder):
    return {"kv_connector": "ExampleConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"shared_storage_path": folder}}


def both(folder):
    return {"kv_connector": "MultiConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"connectors": [host_memory(), shared_folder(folder)]}}


def answers(server):
    return [bits(complete(server, number, model=server.model_name)) for number in PROMPTS]


class Asleep(Server):
    def __init__(self, *flags, connector=None, **more):
        transfer = ("--kv-transfer-config", json.dumps(connector)) if connector else ()
        super().__init__(*flags, *transfer, **more)
        self.model_name = str(more.get("model", MODEL))

    def nap(self, level, mode="abort"):
        self.call(f"/sleep?level={level}&mode={mode}")
        self.call("/wake_up")

    def hits(self):
        return self.total("vllm:external_prefix_cache_hits_total")


class Connectors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Asleep(*SMALL) as server:
            cls.computed = answers(server)

    def check(self, connector, *flags):
        with Asleep(*SMALL, *flags, connector=connector) as server:
            self.assertEqual(answers(server), self.computed)
            for level, mode in ((1, "abort"), (2, "wait"), (1, "keep")):
                server.nap(level, mode)
                before = server.hits()
                self.assertEqual(answers(server), self.computed, (level, mode))
                self.assertEqual(server.hits() - before, 128 * len(PROMPTS), (level, mode))

    def test_what_is_in_host_memory_stays(self):
        self.check(host_memory())

    def test_also_with_ranks(self):
        self.check(host_memory(), "-tp", 2, "-pp", 2)

    def test_what_is_in_files_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, connector in (("shared", shared_folder), ("below", files_below_host_memory), ("both", both)):
                with self.subTest(name):
                    self.check(connector(f"{folder}/{name}"))

    def test_other_weights_are_refused_and_the_former_ones_return(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model"
            shutil.copytree(MODEL, model)
            file = next(model.glob("*.safetensors"))
            former = file.read_bytes()
            with Asleep(*SMALL, connector=host_memory(), model=model) as server:
                expected = answers(server)
                server.call("/sleep?level=2")
                file.unlink()  # the engine's mapping stays whole
                file.write_bytes(former[:-1] + bytes([former[-1] ^ 1]))
                self.assertIn("other weights", json.dumps(server.call("/wake_up", status=500)))
                self.assertTrue(server.is_sleeping())
                file.write_bytes(former)
                server.call("/wake_up")
                before = server.hits()
                self.assertEqual(answers(server), expected)
                self.assertEqual(server.hits() - before, 128 * len(PROMPTS))
                # Level 1 reads none of them.
                server.call("/sleep?level=1")
                file.unlink()
                server.call("/wake_up")
                self.assertEqual(answers(server), expected)


class Memory(unittest.TestCase):
    def check(self, connector, *flags):
        with Asleep(*SIZES, "--kv-cache-memory-bytes", 64 << 20, *flags, connector=connector) as server:
            engine = server.pid_of("tandem-engine-core")
            processes = [engine, *workers_of(engine).values()]

            def memory():
                return sum(map(own_memory, processes))
            expected = [bits(complete(server, number)) for number in range(60)]
            awake = memory()
            server.call("/sleep?level=1&mode=wait")
            asleep = memory()
            print(f"{flags}: {awake >> 10} KiB awake, {asleep >> 10} KiB asleep")
            server.call("/wake_up?tags=weights")
            self.assertTrue(server.is_sleeping())
            with_weights = memory()
            server.call("/wake_up?tags=kv_cache")
            self.assertEqual([bits(complete(server, number)) for number in range(60)], expected)
            # Some 8,500 tokens of 3 KiB each.
            self.assertLess(with_weights, awake - (16 << 20))

    def test_the_cache_is_given_back(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(shared_folder(folder))

    def test_that_of_ranks_and_one_that_others_map(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(shared_folder(folder), "-tp", 2)
            config = json.loads(tandem("kv_producer", listen=f"unix:{folder}/kv")[1])
            self.check(config)


class BetweenEngines(unittest.TestCase):
    def test_a_holder_sleeps_when_its_kv_has_been_read(self):
        with tempfile.TemporaryDirectory() as folder, \
                Asleep(*SIZES, "--num-gpu-blocks-override", 24,
                       *tandem("kv_producer", listen=f"unix:{folder}/kv", lease_s=600)) as holder, \
                Asleep(*SIZES, "--num-gpu-blocks-override", 24, *tandem("kv_consumer")) as reader:
            alone = [bits(complete(reader, number)) for number in PROMPTS]
            reader.call("/reset_prefix_cache")
            params = [prefill_for_others(holder, number) for number in PROMPTS]
            reader.nap(1)
            asleep = threading.Thread(target=lambda: holder.call("/sleep?level=1"))
            asleep.start()
            wait_for(holder.is_sleeping, "the holder's pause")
            for number in PROMPTS:
                self.assertTrue(asleep.is_alive())
                self.assertEqual(bits(complete(reader, number, kv_transfer_params=params[number])), alone[number])
            asleep.join()
            self.assertEqual(reader.hits(), 128 * len(PROMPTS))
            self.assertEqual(holder.state(), "weights_offloaded")
            holder.call("/wake_up")
            reader.call("/reset_prefix_cache")
            self.assertEqual(bits(complete(reader, 0, kv_transfer_params=prefill_for_others(holder, 0))), alone[0])
            self.assertEqual(reader.hits(), 128 * (len(PROMPTS) + 1))


if __name__ == "__main__":
    unittest.main(verbosity=2)
