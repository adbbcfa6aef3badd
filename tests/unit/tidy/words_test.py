#!/usr/bin/env python3
"""The words that tests/tidy/words.py avoids are found, and ordinary English is not."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tidy"))
import words  # noqa: E402


def found(text):
    return [(number, message.split('"')[1]) for number, message in words.check_words(text)]


class Words(unittest.TestCase):
    def test_things_that_speak_and_listen_are_found_with_their_line(self):
        self.assertEqual(found("// The sink is told about it.\n// Ok.\n// It tells whether it ended."),
                         [(1, "is told"), (3, "tells whether")])
        self.assertEqual(found("// Whoever hears of it"), [(1, "hears"), (1, "Whoever")])

    def test_numbers_have_names(self):
        self.assertEqual(found("// for so many rows"), [(1, "so many rows")])

    def test_identifiers_count_as_well(self):
        self.assertEqual(found("int32_t told_token_id = 0;"), [(1, "told_")])

    def test_people_may_tell_and_quotations_are_exempt(self):
        self.assertEqual(found("Tell me a story. That is so many-sided. The flag says so. `is told` is avoided."), [])


if __name__ == "__main__":
    unittest.main()
