#!/usr/bin/env python3
"""What a router learns of the prefix cache: stored, removed and cleared blocks over a PUB socket,
numbered without gaps, and the same batches again from the replay socket."""
import json
import pathlib
import struct
import sys
import tempfile
import unittest
from typing import List, Optional, Union

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair

try:
    import msgpack
    import msgspec
    import zmq
    import strict_frontend
    from strict_frontend import StrictFrontend, rust_params
except ImportError as missing:
    pair.skip(f"{missing.name} is not installed (tests/run.sh installs it when PyPI answers)")

BLOCK = 32
TOPIC = "kv@here@tiny"


Hash = Union[int, bytes]


class Event(msgspec.Struct, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    """A map whose key "type" holds the name of the class."""


class BlockStored(Event):
    block_hashes: List[Hash]
    parent_block_hash: Optional[Hash]
    token_ids: List[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list] = None
    group_idx: Optional[int] = None
    kv_cache_spec_kind: Optional[str] = None
    kv_cache_spec_sliding_window: Optional[int] = None
    lookahead_token_ids: Optional[List[List[int]]] = None


class BlockRemoved(Event):
    block_hashes: List[Hash]
    medium: Optional[str]
    group_idx: Optional[int] = None


class AllBlocksCleared(Event):
    pass


class Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: List[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


DECODER = msgspec.msgpack.Decoder(Batch)


def decode(payload):
    """The batch; refuses unknown keys, missing ones and wrong types."""
    batch = DECODER.decode(payload)
    for event in msgpack.unpackb(payload)[1]:
        assert next(iter(event)) == "type", event  # readers that decide by the first key
        # What is beyond the cache has hashes alone.
        assert ("group_idx" in event) == (event.get("medium") == "GPU"), event
    return batch


class EngineWithEvents(unittest.TestCase):
    model = pair.MODEL
    # 8 blocks to hand out: the fourth prompt of two blocks and more makes room by eviction.
    num_blocks = 9
    max_model_len = 256
    flags = ()
    environment = {}
    config = {}

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        config = {"enable_kv_cache_events": True, "endpoint": f"ipc://{self.folder.name}/events",
                  "replay_endpoint": f"ipc://{self.folder.name}/replay", "topic": TOPIC, **self.config}
        self.context = zmq.Context()
        self.frontend = StrictFrontend(self.folder.name)
        self.engine = strict_frontend.start_engine(
            self.frontend, self.model, "--kv-events-config", json.dumps(config), "--block-size", str(BLOCK),
            "--num-gpu-blocks-override", str(self.num_blocks), "--max-model-len", str(self.max_model_len),
            *self.flags, **self.environment)
        self.ready = self.frontend.meet()
        self.subscriber = self.subscribe(config["endpoint"])
        self.replay = self.context.socket(zmq.DEALER)
        self.replay.setsockopt(zmq.RCVTIMEO, pair.LIMIT * 1000)
        self.replay.connect(config["replay_endpoint"])
        self.config = config
        self.wait_for_subscription()

    def subscribe(self, endpoint, **options):
        subscriber = self.context.socket(zmq.SUB)
        subscriber.setsockopt(zmq.RCVTIMEO, pair.LIMIT * 1000)
        for name, value in options.items():
            subscriber.setsockopt(getattr(zmq, name), value)
        subscriber.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        monitor = subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        subscriber.connect(endpoint)
        self.assertTrue(monitor.poll(pair.LIMIT * 1000))
        subscriber.disable_monitor()
        monitor.close()
        return subscriber

    def wait_for_subscription(self):
        """A connection is not yet a subscription: clears the empty cache until that arrives."""
        self.num_before = 0
        arrived = None
        while arrived != self.num_before - 1:
            self.num_before += 1
            self.assertEqual(self.frontend.call(self.num_before, "reset_prefix_cache", []), (None, True))
            while arrived != self.num_before - 1 and self.subscriber.poll(200):
                arrived, events, _ = self.receive()
                self.assertEqual(events, [AllBlocksCleared()])

    def tearDown(self):
        self.engine.terminate()
        self.engine.wait(pair.LIMIT)
        self.frontend.close()
        self.context.destroy(linger=0)
        self.folder.cleanup()

    def run_prompt(self, name, tokens):
        self.frontend.add(name, tokens, rust_params(temperature=0.0, max_tokens=2))
        return self.frontend.collect(name)

    def receive(self):
        """(sequence, events, payload) of one batch."""
        topic, sequence, payload = self.subscriber.recv_multipart()
        self.assertEqual(topic.decode(), TOPIC)
        batch = decode(payload)
        self.assertEqual(batch.data_parallel_rank, 0)
        return struct.unpack(">q", sequence)[0], batch.events, payload

    def replayed(self, first):
        self.replay.send_multipart([b"", struct.pack(">q", first)])
        found = []
        while True:
            empty, topic, sequence, payload = self.replay.recv_multipart()
            self.assertEqual(empty, b"")
            number = struct.unpack(">q", sequence)[0]
            if number == -1:
                self.assertEqual((topic, payload), (b"", b""))
                return found
            self.assertEqual(topic.decode(), TOPIC)
            found.append((number, payload))


class OffloadedBlocks(unittest.TestCase):
    def test_host_memory_and_files_are_named_too(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        events = {"enable_kv_cache_events": True, "endpoint": f"ipc://{folder}/events",
                  "replay_endpoint": f"ipc://{folder}/replay"}
        offloading = {"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 50_000_000,
            "secondary_tiers": [{"type": "fs", "root_dir": f"{folder}/files"}]}}
        server = self.enterContext(pair.Pair("--block-size", BLOCK, "--kv-events-config", json.dumps(events),
                                             "--kv-transfer-config", json.dumps(offloading)))
        context = zmq.Context()
        self.addCleanup(context.destroy, 0)
        replay = context.socket(zmq.DEALER)
        replay.setsockopt(zmq.RCVTIMEO, pair.LIMIT * 1000)
        self.addCleanup(replay.close, 0)
        replay.connect(events["replay_endpoint"])

        def stored():
            """What is stored where, after another step: that takes in what files have been written."""
            status, reply = server.post("/v1/completions", {"prompt": [7] * 70, "max_tokens": 2, "temperature": 0})
            self.assertEqual(status, 200, reply)
            replay.send_multipart([b"", struct.pack(">q", 0)])
            places = {"GPU": set(), "CPU": set(), "STORAGE": set()}
            while payload := replay.recv_multipart()[-1]:
                for event in decode(payload).events:
                    self.assertIsInstance(event, BlockStored)
                    places[event.medium].update(event.block_hashes)
            return places

        pair.wait_for(lambda: len(stored()["STORAGE"]) == 2, "files")
        places = stored()
        self.assertEqual(places["CPU"], places["GPU"])
        self.assertEqual(places["STORAGE"], places["GPU"])


class KvEvents(EngineWithEvents):
    def test_a_subscriber_can_follow_the_cache(self):
        self.assertEqual(self.ready["kv_events_config"],
                         {**self.config, "publisher": "zmq", "buffer_steps": 10000, "hwm": 100000,
                          "max_queue_size": 100000})
        batches = []
        prompts = [[10 + i] * 70 for i in range(5)]
        for i, prompt in enumerate(prompts):
            self.run_prompt(f"p{i}", prompt)
            batches.append(self.receive())
        stored = [next(e for e in events if isinstance(e, BlockStored)) for _, events, _ in batches]
        for event, prompt in zip(stored, prompts):
            self.assertEqual(event.token_ids, prompt[:2 * BLOCK])
            self.assertEqual(event.block_size, BLOCK)
            self.assertEqual(len(set(event.block_hashes)), 2)
            self.assertTrue(all(0 <= h < 1 << 64 for h in event.block_hashes))
            self.assertEqual((event.parent_block_hash, event.medium, event.extra_keys), (None, "GPU", [None, None]))
        # What is evicted was stored before and is stored no longer.
        cached = set()
        removed = 0
        for _, events, _ in batches:
            for event in events:
                for h in getattr(event, "block_hashes", []):
                    if isinstance(event, BlockStored):
                        self.assertNotIn(h, cached)
                        cached.add(h)
                    else:
                        cached.remove(h)
                        removed += 1
        self.assertGreater(removed, 0)
        self.assertLessEqual(len(cached), 8)

        # A longer prompt over a cached prefix names the block it continues.
        self.run_prompt("longer", prompts[-1][:64] + [99] * 40)
        batches.append(self.receive())
        longer = next(e for e in batches[-1][1] if isinstance(e, BlockStored))
        self.assertEqual(longer.parent_block_hash, stored[-1].block_hashes[-1])
        self.assertEqual(longer.token_ids, [99] * BLOCK)

        self.assertEqual(self.frontend.call(1000, "reset_prefix_cache", []), (None, True))
        batches.append(self.receive())
        self.assertEqual(batches[-1][1], [AllBlocksCleared()])

        first, end = self.num_before, self.num_before + len(batches)
        self.assertEqual([number for number, _, _ in batches], list(range(first, end)))
        self.assertEqual(self.replayed(first), [(number, payload) for number, _, payload in batches])
        self.assertEqual([number for number, _ in self.replayed(0)], list(range(end)))
        self.assertEqual(self.replayed(1000), [])

    def test_a_broken_replay_request_disturbs_nobody(self):
        self.replay.send_multipart([b"", b"abc"])
        self.replay.send_multipart([b"not empty", struct.pack(">q", 0)])
        self.replay.send_multipart([b"x"])
        self.run_prompt("p", [10] * 70)
        number, _, payload = self.receive()
        self.assertEqual(self.replayed(self.num_before), [(number, payload)])


class AHeadThatDrafts(EngineWithEvents):
    heads = pair.MODEL.parents[2] / "tests/golden/speculative"
    model = heads / "target"
    flags = ("--speculative-config", json.dumps({"model": str(heads / "eagle3"), "num_speculative_tokens": 2}))

    def test_a_block_is_known_by_the_token_after_it_too(self):
        prompt = [10] * BLOCK + [11] * BLOCK + [12] * 6
        self.run_prompt("p", prompt)
        stored = self.receive()[1][0]
        self.assertEqual(stored.token_ids, prompt[:2 * BLOCK])
        self.assertEqual(stored.lookahead_token_ids, [[11], [12]])
        # The second block is another one before another token.
        self.run_prompt("q", prompt[:2 * BLOCK] + [13] * 6)
        other = self.receive()[1][0]
        self.assertEqual(other.parent_block_hash, stored.block_hashes[0])
        self.assertEqual(other.lookahead_token_ids, [[13]])
        self.assertNotEqual(other.block_hashes[0], stored.block_hashes[1])


class Reset(EngineWithEvents):
    num_blocks = 65
    max_model_len = 2048
    num_tokens = 1500  # many more than are drawn while a call is on its way

    def call_while_running(self, call_id, args, tokens):
        """The answer of reset_prefix_cache; tokens that arrive meanwhile are appended."""
        self.frontend.send(strict_frontend.UTILITY,
                           msgpack.packb([0, call_id, "reset_prefix_cache", args]))
        while True:
            message, _ = self.frontend.receive()
            for output in message[1]:
                tokens += output[1]
                self.assertIsNone(output[5], "ended before the call was answered")
            if message[4] is not None:
                self.assertEqual(message[4][:2], [call_id, None])
                return message[4][2][1]

    def test_reset_with_and_without_running_requests(self):
        prompt = list(range(20, 90))
        params = rust_params(temperature=0.0, max_tokens=self.num_tokens, ignore_eos=True)
        self.frontend.add("a", prompt, params)
        tokens = self.frontend.receive()[0][1][0][1]
        # Blocks are held: refused, nothing changes.
        self.assertIs(self.call_while_running(2000, [False, False], tokens), False)
        # Running requests give theirs up, start over and go on where they were.
        self.assertIs(self.call_while_running(2001, [True, False], tokens), True)
        for output in self.frontend.collect("a")["a"]:
            tokens += output[1]
        self.assertEqual(len(tokens), self.num_tokens)

        # What was stored until the reset is stored again, and the rest behind it.
        before, after, num_cleared = [], [], 0
        while len(after) < (len(prompt) + self.num_tokens - 1) // BLOCK:
            for event in self.receive()[1]:
                if isinstance(event, BlockStored):
                    (after if num_cleared else before).extend(event.block_hashes)
                else:
                    self.assertEqual(event, AllBlocksCleared())
                    num_cleared += 1
        self.assertEqual(num_cleared, 1)
        self.assertGreaterEqual(len(before), 2)
        self.assertEqual(after[:len(before)], before)

        # Undisturbed it says the same; now its prompt is cached.
        self.frontend.add("b", prompt, params)
        again = [token for output in self.frontend.collect("b")["b"] for token in output[1]]
        self.assertEqual(again, tokens)


class SlowSubscriber(EngineWithEvents):
    config = {"hwm": 2}

    def test_a_subscriber_that_does_not_read_or_dies_holds_up_nobody(self):
        endpoint = self.ready["kv_events_config"]["endpoint"]
        slow = self.subscribe(endpoint, RCVHWM=1, RCVBUF=4096)
        for i in range(200):
            self.run_prompt(f"p{i}", [10 + i] * 70)
            number, _, _ = self.receive()
            self.assertEqual(number, self.num_before + i)
        slow.close(linger=0)
        self.run_prompt("last", [5] * 70)
        self.assertEqual(self.receive()[0], self.num_before + 200)


class RawHashes(EngineWithEvents):
    environment = {"VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "0", "PYTHONHASHSEED": "7"}
    hash_bytes = 32

    def test_hashes_are_whole_digests(self):
        self.run_prompt("p", [10] * 102)
        stored = self.receive()[1][0]
        self.assertEqual([(type(h), len(h)) for h in stored.block_hashes], [(bytes, self.hash_bytes)] * 3)
        self.run_prompt("longer", [10] * 96 + [11] * 40)
        longer = self.receive()[1][0]
        self.assertEqual(longer.parent_block_hash, stored.block_hashes[-1])
        if self.hash_bytes == 16:
            # xxh3_128 of the canonical CBOR of the seed "7", and of the first block on it.
            self.assertEqual(stored.block_hashes[0].hex(), "80f83227b8fc3bb11a832eb2ce46f603")
        else:
            self.assertEqual(stored.block_hashes[0].hex(), "d701612203f2d39afedc9e5126b28cdd14ad29b06570c8bd514d1e95d70938a9")


class RawXxhash(RawHashes):
    flags = ("--prefix-caching-hash-algo", "xxhash_cbor")
    hash_bytes = 16


class Window(EngineWithEvents):
    model = pair.ROOT / "tests" / "golden" / "models" / "mistral_swa"

    def test_blocks_of_a_model_with_a_window_say_so(self):
        self.run_prompt("p", [10] * 70)
        stored = self.receive()[1][0]
        self.assertEqual((stored.kv_cache_spec_kind, stored.kv_cache_spec_sliding_window),
                         ("sliding_window", 32))


if __name__ == "__main__":
    unittest.main()
