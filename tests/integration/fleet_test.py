#!/usr/bin/env python3
"""The simulated fleet of tests/bench/fleet.py: its replicas' stretches of steps against single steps, their cache, and growth.

Usage: fleet_test.py [unittest arguments]
"""
import pathlib
import random
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bench"))
import fleet
from fleet import BLOCK, Fleet, Limits, Load, Replica, Request, StepTimes

TIMES = StepTimes(least=0.03, per_row=0.002)


def request(name, num_tokens, num_outputs, arrived=0.0):
    blocks = [(name, i) for i in range((num_tokens + num_outputs) // BLOCK)]
    return Request(blocks[:num_tokens // BLOCK], num_tokens, num_outputs, arrived, output_blocks=blocks[num_tokens // BLOCK:])


def run_all(replica, single_steps=False):
    """Runs until nothing is left; the requests in the order of their ends."""
    ended = []
    while (stretch := replica.stretch()) is not None:
        seconds, num_steps, chunk = stretch
        ended += replica.run(1 if single_steps else num_steps, seconds, chunk)
        assert replica.num_used() + len(replica.cached) <= max(replica.limits.num_blocks, replica.num_used())
    return ended


class Replicas(unittest.TestCase):
    def test_stretches_are_their_single_steps(self):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng, sides = random.Random(seed), []
        requests = [(rng.randrange(5), rng.randrange(1, 900), rng.randrange(1, 60)) for _ in range(60)]
        for single_steps in (False, True):
            replica = Replica(TIMES, Limits(num_blocks=200, max_num_seqs=6, max_num_batched_tokens=128))
            for values in requests:
                replica.add(request(*values), 0.0)
            ended = run_all(replica, single_steps)
            sides.append([(r.blocks, r.num_hit, round(r.first_token, 6), round(r.ended, 6)) for r in ended])
            self.assertEqual(len(ended), len(requests))
            self.assertEqual((replica.num_private, len(replica.held)), (0, 0))
        self.assertEqual(*sides)

    def test_one_request_takes_its_steps(self):
        replica = Replica(TIMES, Limits(max_num_batched_tokens=100))
        replica.add(request("a", 250, 5), 1.0)
        ended, = run_all(replica)
        self.assertAlmostEqual(ended.first_token, 1.0 + 0.2 + 0.2 + 0.1)  # chunks of 100, 100, 50
        self.assertAlmostEqual(ended.ended, ended.first_token + 4 * 0.03)

    def test_a_prefix_is_shared_while_it_is_held_and_found_later(self):
        replica = Replica(TIMES, Limits())
        for num_outputs in (40, 2):
            replica.add(request("a", 320, num_outputs), 0.0)
        first, second = sorted(run_all(replica), key=lambda r: r.first_token)
        self.assertEqual((first.num_hit, second.num_hit), (0, 9 * BLOCK))  # its last token is computed
        replica.add(request("a", 330, 2), replica.now)
        again, = run_all(replica)
        self.assertEqual(again.num_hit, 10 * BLOCK)

    def test_the_end_of_a_prefix_is_dropped_first(self):
        replica = Replica(TIMES, Limits(num_blocks=20))
        replica.add(request("a", 10 * BLOCK, 1), 0.0)
        run_all(replica)
        replica.add(request("b", 14 * BLOCK - 1, 1), replica.now)
        run_all(replica)
        self.assertEqual(sorted(i for name, i in replica.cached if name == "a"), list(range(6)))


class Fleets(unittest.TestCase):
    def run_fleet(self, policy, seed=3, rate=0.05):
        simulated = Fleet(12, fleet.POLICIES[policy], Load(rate=rate), seed)
        simulated.run(300)
        return simulated

    def test_the_same_seed_gives_the_same_numbers(self):
        first, second = (fleet.figures_of(self.run_fleet(fleet.DEFAULT).ended) for _ in range(2))
        self.assertEqual(first, second)
        self.assertGreater(first["requests"], 300)

    def test_prefixes_are_found_more_often_with_the_picker(self):
        rates = [fleet.figures_of(self.run_fleet(policy).ended)["hit_rate"] for policy in ("any replica", fleet.DEFAULT)]
        self.assertGreater(rates[1], 1.4 * rates[0])

    def test_a_fleet_grows_by_its_queue(self):
        simulated = Fleet(4, fleet.POLICIES[fleet.DEFAULT], Load(rate=2.0), 1)
        simulated.grow_by_queue(target=4, begin_s=20, most=10)
        simulated.run(200)
        asked = simulated.hpa["asked"]
        self.assertEqual(asked[0], (0, 4))
        self.assertLessEqual(asked[1][1], 8)  # at most twice as many in a minute
        self.assertEqual(simulated.num_ready, 10)
        self.assertGreater(len(simulated.replicas[9].cached) + simulated.replicas[9].num_used(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
