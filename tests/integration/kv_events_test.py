#!/usr/bin/env python3
"""What a router learns of the prefix cache: stored, removed and cleared blocks over a PUB socket,
numbered without gaps, and the same batches again from the replay socket."""
import json
import pathlib
import struct
import sys
import tempfile
import unittest
from dataclasses import dataclass
from typing import List, Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair

try:
    import msgpack
    import zmq
    import strict_frontend
    from strict_frontend import StrictFrontend, rust_params
except ImportError as missing:
    pair.skip(f"{missing.name} is not installed (tests/run.sh installs it when PyPI answers)")

BLOCK = 32
TOPIC = "kv@here@tiny"


@dataclass
class BlockStored:
    block_hashes: List[int]
    parent_block_hash: Optional[int]
    token_ids: List[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list]
    group_idx: int
    kv_cache_spec_kind: str


@dataclass
class BlockRemoved:
    block_hashes: List[int]
    medium: Optional[str]
    group_idx: int


@dataclass
class AllBlocksCleared:
    pass


KINDS = {kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)}


def decode(payload):
    """(Unix time, events, rank); refuses unknown keys and missing ones."""
    ts, events, rank = msgpack.unpackb(payload)
    assert isinstance(ts, float), ts
    decoded = []
    for event in events:
        assert next(iter(event)) == "type", event
        fields = dict(event)
        decoded.append(KINDS[fields.pop("type")](**fields))
    return ts, decoded, rank


class KvEvents(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        config = {"enable_kv_cache_events": True, "endpoint": f"ipc://{self.folder.name}/events",
                  "replay_endpoint": f"ipc://{self.folder.name}/replay", "topic": TOPIC}
        self.context = zmq.Context()
        self.frontend = StrictFrontend(self.folder.name)
        # 8 blocks to hand out: the fourth prompt of two blocks and more makes room by eviction.
        self.engine = strict_frontend.start_engine(
            self.frontend, pair.MODEL, "--kv-events-config", json.dumps(config), "--block-size", str(BLOCK),
            "--num-gpu-blocks-override", "9", "--max-model-len", "256")
        self.ready = self.frontend.meet()
        self.subscriber = self.context.socket(zmq.SUB)
        self.subscriber.setsockopt(zmq.RCVTIMEO, pair.LIMIT * 1000)
        self.subscriber.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
        monitor = self.subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.subscriber.connect(config["endpoint"])
        self.assertTrue(monitor.poll(pair.LIMIT * 1000))
        self.replay = self.context.socket(zmq.DEALER)
        self.replay.setsockopt(zmq.RCVTIMEO, pair.LIMIT * 1000)
        self.replay.connect(config["replay_endpoint"])
        self.config = config
        self.wait_for_subscription()

    def wait_for_subscription(self):
        """A connection is not yet a subscription: clears the empty cache until that is heard."""
        self.num_before = 0
        number = -1
        while number != self.num_before - 1:
            self.num_before += 1
            self.assertEqual(self.frontend.call(self.num_before, "reset_prefix_cache", []), (None, True))
            while number != self.num_before - 1 and self.subscriber.poll(200):
                number, events, _ = self.receive()
                self.assertEqual(events, [AllBlocksCleared()])

    def tearDown(self):
        self.engine.terminate()
        self.engine.wait(pair.LIMIT)
        self.frontend.close()
        self.context.destroy(linger=0)
        self.folder.cleanup()

    def run_prompt(self, name, tokens):
        self.frontend.add(name, tokens, rust_params(temperature=0.0, max_tokens=2))
        self.frontend.collect(name)

    def receive(self):
        """(sequence, events, payload) of one batch."""
        topic, sequence, payload = self.subscriber.recv_multipart()
        self.assertEqual(topic.decode(), TOPIC)
        _, events, rank = decode(payload)
        self.assertEqual(rank, 0)
        return struct.unpack(">q", sequence)[0], events, payload

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

        # A longer prompt over a cached prefix says what it continues.
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


if __name__ == "__main__":
    unittest.main()
