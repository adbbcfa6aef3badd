#!/usr/bin/env python3
"""Servers behind an endpoint picker that works as llm-d's (tests/support/picker.py): what it decides, and that it finds in our
/metrics, scraped every 50 ms, what it decides by.

Usage: picker_test.py [unittest arguments]
"""
import contextlib
import http.client
import json
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, Pair, wait_for
from picker import BLOCK_CHARS, Gateway, Picker, blocks_of, read_metrics

NUM_SERVERS = 2


def text_of(seed, num_blocks):
    return "".join(f"{seed} {i} ".ljust(BLOCK_CHARS, "x") for i in range(num_blocks))


def blocks(seed, num_blocks):
    return blocks_of(text_of(seed, num_blocks))


def loads(*waiting, kv_use=0.0):
    return {server: {"waiting": number, "kv_use": kv_use} for server, number in enumerate(waiting)}


class Decisions(unittest.TestCase):
    def test_the_shortest_queue_is_picked(self):
        picker = Picker(3)
        picker.update(loads(4, 0, 2))
        self.assertEqual([picker.pick(blocks(seed, 4)) for seed in range(10)], [1] * 10)

    def test_the_emptiest_cache_is_picked_among_equal_queues(self):
        picker = Picker(2)
        picker.update({0: {"waiting": 1, "kv_use": 0.9}, 1: {"waiting": 1, "kv_use": 0.1}})
        self.assertEqual(picker.pick(blocks(0, 4)), 1)

    def test_a_prompt_goes_where_its_begin_was_sent(self):
        picker = Picker(8, seed=1)
        picker.update(loads(*[0] * 8))
        first = picker.pick(blocks("a", 4))
        for turn in range(5, 20):
            self.assertEqual(picker.pick(blocks("a", turn)), first)

    def test_a_long_queue_outweighs_a_short_prefix(self):
        picker = Picker(2)
        picker.update(loads(0, 0))
        holder = picker.pick(blocks("a", 2))
        queues = [0, 0]
        queues[holder] = 9
        picker.update(loads(*queues))
        self.assertEqual(picker.pick(blocks("a", 20)), 1 - holder)  # a tenth of it is there

    def test_of_two_holders_the_one_with_more_is_picked(self):
        picker = Picker(3)
        picker.update({0: {"waiting": 0, "kv_use": 0}})
        picker.pick(blocks("a", 4))
        picker.update({2: {"waiting": 0, "kv_use": 0}})
        picker.pick(blocks("a", 8))
        picker.update(loads(0, 0, 0))
        self.assertEqual(picker.depths(blocks("a", 10)), {0: 4, 2: 8})
        self.assertEqual(picker.pick(blocks("a", 10)), 2)

    def test_what_a_cache_cannot_hold_is_forgotten(self):
        picker = Picker(1, capacity=6)
        picker.update(loads(0))
        picker.pick(blocks("a", 4))
        picker.pick(blocks("b", 4))
        self.assertEqual(picker.depths(blocks("b", 4)), {0: 4})
        self.assertEqual(picker.depths(blocks("a", 4)), {})  # its first blocks have gone
        picker.update({0: {"waiting": 0, "kv_use": 0, "num_gpu_blocks": 2, "block_size": 32}})
        self.assertEqual(picker.capacity, [2 * 32 // (BLOCK_CHARS // 4)])

    def test_a_server_that_is_gone_is_not_picked(self):
        picker = Picker(2)
        picker.update({1: {"waiting": 50, "kv_use": 1.0}})
        self.assertEqual(picker.pick(blocks("a", 4)), 1)
        picker.update({})
        self.assertIsNone(picker.pick(blocks("a", 4)))


class Servers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.servers = [cls.stack.enter_context(Pair("--served-model-name", "m", "--threads", "1", "--max-num-seqs", "2",
                                                    "--num-gpu-blocks-override", "80", "--max-model-len", "1024"))
                       for _ in range(NUM_SERVERS)]
        cls.addClassCleanup(cls.stack.close)

    def gateway(self):
        return Gateway([(server.host, int(server.port_file.read_text())) for server in self.servers])

    def ask(self, gateway, prompt, max_tokens=2):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT)
        connection.request("POST", "/v1/completions", json.dumps(
            {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}))
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        self.assertEqual(response.status, 200, body)
        return body

    @staticmethod
    def wait_idle(gateway):
        """The picker knows that nothing runs."""
        seen = gateway.num_scrapes
        wait_for(lambda: gateway.num_scrapes > seen + 1 and
                 not any(load["waiting"] or load["running"] for load in gateway.picker.loads), "the servers are idle")

    def hits(self):
        return sum(server.total("vllm:prefix_cache_hits_total") for server in self.servers)

    def test_metrics_have_what_the_scorers_read(self):
        def numbers():
            return read_metrics(self.servers[0].get("/metrics")[1].decode())
        wait_for(lambda: not numbers()["running"] and not numbers()["kv_use"], "requests of other tests have ended")
        self.assertEqual(numbers(), {"waiting": 0, "running": 0, "kv_use": 0.0, "block_size": 32, "num_gpu_blocks": 80})

    def test_conversations_find_their_prefix_and_servers_share_them(self):
        with self.gateway() as gateway:
            before, turns = self.hits(), 4
            talks = [f"{number} " + text_of(number, 6) for number in range(8)]
            for turn in range(turns):
                for number, talk in enumerate(talks):
                    self.wait_idle(gateway)
                    self.ask(gateway, talk + text_of(f"{number} {turn}", turn))
            picks = [gateway.picks[number::len(talks)] for number in range(len(talks))]
            self.assertEqual([len(set(of_talk)) for of_talk in picks], [1] * len(talks), picks)
            self.assertEqual(len({of_talk[0] for of_talk in picks}), NUM_SERVERS, picks)
            self.assertGreater(self.hits() - before, 0)
            self.assertGreater(gateway.num_scrapes, 3)

    def test_a_server_with_a_queue_is_passed_over(self):
        with self.gateway() as gateway:
            busy = self.servers[0]
            threads = [threading.Thread(target=busy.post, args=("/v1/completions", {
                "model": "m", "prompt": f"{i}", "max_tokens": 900, "ignore_eos": True})) for i in range(8)]
            for thread in threads:
                thread.start()
            wait_for(lambda: gateway.picker.loads[0]["waiting"] > 0, "the queue shows")
            for number in range(4):
                self.ask(gateway, text_of(f"new {number}", 3))
                if not gateway.picker.loads[0]["waiting"]:
                    break  # the queue has gone meanwhile
                self.assertEqual(gateway.picks[-1], 1)
            for thread in threads:
                thread.join()


class Death(unittest.TestCase):
    def test_a_server_that_ends_gets_nothing_more(self):
        with contextlib.ExitStack() as stack:
            pairs = [stack.enter_context(Pair("--served-model-name", "m", "--threads", "1")) for _ in range(2)]
            gateway = stack.enter_context(Gateway([(pair.host, int(pair.port_file.read_text())) for pair in pairs]))
            pairs[0].process.terminate()
            pairs[0].process.wait(LIMIT)
            wait_for(lambda: gateway.picker.usable == {1}, "the picker notices")
            with gateway.lock:
                self.assertEqual({gateway.picker.pick(blocks(seed, 3)) for seed in range(8)}, {1})


if __name__ == "__main__":
    unittest.main(verbosity=2)
