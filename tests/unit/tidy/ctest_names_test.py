#!/usr/bin/env python3
"""The names of tests are those that ctest has, and a table that names others is found."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tidy"))
import ctest_names  # noqa: E402
import documents  # noqa: E402

FILES = {
    "tests/area.cmake": 'tandem_test(unit_x LABEL unit\n  SRCS unit/a_test.cc\n  DEPS x)\n'
                        'python_test(pair pair_test.py)\npython_test_classes(kinds kinds_test.py)\n',
    "tests/CMakeLists.txt": "add_test(NAME tidy COMMAND python)\n",
    "tests/unit/a_test.cc": 'TEST_CASE("one thing") {}\nTEST_CASE(\n    "a long \\"name\\" "\n    "goes on") {}\n',
    "tests/pair_test.py": "class A(unittest.TestCase):\n    def test_it(self):\n",
    "tests/kinds_test.py": "class B(unittest.TestCase):\n    def test_b(self):\nclass C(unittest.TestCase):\n",
}
NAMES = ctest_names.ctest_names(set(FILES), FILES.get)
TREE = documents.Tree(FILES)


def table(*rows):
    return "| ask | what | how | shown by |\n|---|---|---|---|\n" + "".join(
        f"| {number} | x | y | {shown} |\n" for number, shown in rows)


class Names(unittest.TestCase):
    def test_of_every_kind(self):
        self.assertEqual(NAMES, {"unit_x", "unit_x:one thing", 'unit_x:a long "name" goes on', "tidy", "pair", "pair.test_it",
                                 "kinds_B", "kinds_B.test_b", "kinds_C", "kinds_C.test_b"})


class Asks(unittest.TestCase):
    def wrong(self, *rows):
        return [message for _, message in ctest_names.check_asks(table(*rows), NAMES, TREE)]

    def test_all_asks_with_tests_and_paths_are_right(self):
        rows = [(number, "`unit_x:one thing`, `tests/pair_test.py`") for number in range(1, 41)]
        self.assertEqual(self.wrong(*rows), [])
        rows[3] = (4, "no test: it is about another place")
        self.assertEqual(self.wrong(*rows), [])

    def test_what_is_missing_is_found(self):
        self.assertIn("names unit_x:two things, which is neither a test nor a path", self.wrong((1, "`unit_x:two things`")))
        self.assertIn("has ask 3 where 2 belongs", self.wrong((1, "`tidy`"), (3, "`tidy`")))
        self.assertIn("ends at ask 1 of 40", self.wrong((1, "`tidy`")))
        self.assertIn('shows ask 1 by nothing; name a test, or write "no test" and why', self.wrong((1, "all is well")))


if __name__ == "__main__":
    unittest.main()
