#!/usr/bin/env python3
"""What the guard of the figures calls worse."""
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import guard


def summary(median, low=None, high=None):
    return {"median": median, "low": low or median, "high": high or median}


class Guard(unittest.TestCase):
    def test_worse_is_beyond_the_tolerance_and_out_of_the_stored_spread(self):
        cost = guard.Row("cost", None, 0.1)
        share = guard.Row("share", None, 0.1, more_is_better=True)
        for row, stored, now, worse in [(cost, summary(10), summary(10.9), False), (cost, summary(10), summary(11.1), True),
                                        (cost, summary(10, 9, 12), summary(11.9), False), (cost, summary(10, 9, 12), summary(12.1), True),
                                        (cost, summary(10), summary(1), False), (share, summary(10), summary(100), False),
                                        (share, summary(0.9), summary(0.82), False), (share, summary(0.9), summary(0.8), True),
                                        (share, summary(0.9, 0.7, 1), summary(0.71), False)]:
            with self.subTest(row=row.name, stored=stored, now=now):
                self.assertEqual(guard.is_worse(row, stored, now), worse)

    def test_a_round_gives_every_row_a_number_and_the_table_names_what_is_worse(self):
        class Round(dict):
            def __missing__(self, name):
                return dict.fromkeys(("cpu_time", "ceiling", "to_bf16", "to_base", "p50_us", "p99_us", "ns", "ms"), 2.0)
        now = {row.name: guard.summary([row.value(Round())]) for row in guard.ROWS}
        self.assertEqual(len(now), len(guard.ROWS))
        stored = {name: dict(one) for name, one in now.items()}
        self.assertEqual(guard.table(stored, now)[1], [])
        name = guard.ROWS[0].name
        stored[name] = summary(9)
        lines, worse = guard.table(stored, now)
        self.assertEqual(worse, [name])
        self.assertIn("worse", lines[1])
        del stored[name]  # a new row has nothing to be held to
        self.assertEqual(guard.table(stored, now)[1], [])

    def test_every_row_is_stored(self):
        if not guard.STORED.exists():
            self.skipTest("no numbers are stored")
        for machine, rows in guard.json.loads(guard.STORED.read_text()).items():
            self.assertEqual(set(rows), {row.name for row in guard.ROWS}, machine)

    def test_every_benchmark_of_a_row_is_there_and_chosen(self):
        bench = pathlib.Path(os.environ.get("TANDEM_BIN_DIR", guard.ROOT / "build/dev/bin")).parent / "bench"
        if not (bench / "bench_kernels").exists():
            self.skipTest("the benchmarks are not built")

        class Round(dict):
            def __missing__(self, name):
                self[name] = dict.fromkeys(("cpu_time", "ceiling", "to_bf16", "to_base", "p50_us", "p99_us", "ns", "ms"), 2.0)
                return self[name]
        asked = Round()
        for row in guard.ROWS:
            row.value(asked)
        listed = {name for binary, names in guard.BINARIES.items() for name in subprocess.run(
            [bench / binary, "--benchmark_list_tests=true", f"--benchmark_filter={'|'.join(names)}"], check=True, capture_output=True,
            text=True).stdout.splitlines()}
        self.assertEqual(set(asked) - listed, {"streamed token", "start"})

    def test_what_is_missing_is_named_before_anything_runs(self):
        for words, named in ((["--build", "/no/such/build"], "/no/such/build/bench/bench_kernels"), (["--rounds", "0"], "--rounds")):
            with mock.patch.object(sys, "argv", ["guard.py", *words]), contextlib.redirect_stderr(io.StringIO()) as told, \
                    self.assertRaises(SystemExit) as ended:
                guard.main()
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(named, told.getvalue())

    def test_the_note_says_whose_numbers_are_stored(self):
        self.assertEqual(guard.note(guard.machine(), {"a": 1}), "")
        self.assertIn("--save", guard.note(guard.machine(), {}))
        self.assertIn("another machine: Xeon", guard.note("Xeon", {"a": 1}))

    def test_a_machine_is_held_to_its_own_numbers(self):
        numbers = {"one": {"a": 1}, "two": {"a": 2}}
        self.assertEqual(guard.stored_of(numbers, "two"), ("two", {"a": 2}))
        self.assertEqual(guard.stored_of(numbers, "three"), ("one", {"a": 1}))
        self.assertEqual(guard.stored_of({}, "three"), ("three", {}))


if __name__ == "__main__":
    unittest.main()
