#!/usr/bin/env python3
"""The rules of tests/tidy/documents.py find what is wrong, and nothing else."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tidy"))
import documents  # noqa: E402

FILES = ["README.md", "docs/user/api.md", "frontend/config.h", "frontend/config.cc", "frontend/openai/chat_request.h",
         "tests/run.sh"]
TREE = documents.Tree(name for name in FILES)


def wrong_paths(text, name="docs/user/api.md"):
    return [message for _, message in documents.check_paths(name, text, TREE)]


class Paths(unittest.TestCase):
    def test_a_path_that_does_not_exist_is_found_with_its_line(self):
        text = "ok `frontend/config.h`\n\nthe rows are in `frontend/openai/chat_request.cc`"
        self.assertEqual(list(documents.check_paths("README.md", text, TREE)),
                         [(3, "names frontend/openai/chat_request.cc, which does not exist")])

    def test_files_folders_pairs_and_patterns_exist(self):
        self.assertEqual(wrong_paths("`frontend/openai`, `frontend/`, `frontend/config`, `frontend/openai/*_request.h`"), [])
        self.assertEqual(wrong_paths("`*_request.h`, `run.sh`, `frontend/config.{h,cc}`"), [])

    def test_patterns_and_braces_must_match_something(self):
        self.assertEqual(wrong_paths("`frontend/openai/*_response.h`"),
                         ["names frontend/openai/*_response.h, which does not exist"])
        self.assertEqual(wrong_paths("`frontend/config.{h,py}`"), ["names frontend/config.py, which does not exist"])

    def test_a_source_file_may_be_named_alone(self):
        self.assertEqual(wrong_paths("`chat_request.h` but not `chat_reply.h`"), ["names chat_reply.h, which does not exist"])

    def test_commands_in_code_are_read_word_by_word(self):
        self.assertEqual(wrong_paths("```\ntests/run.sh --port 1\ntests/go.sh\n```"), ["names tests/go.sh, which does not exist"])
        self.assertEqual(wrong_paths("    tests/go.sh release"), ["names tests/go.sh, which does not exist"])

    def test_placeholders_built_files_urls_and_prose_are_skipped(self):
        self.assertEqual(wrong_paths("`frontend/<name>.cc`, `frontend/…`, `build/dev/bin/tandem`, `/v1/models`, "
                                     "`ipc:///run/x`, `config.json`, frontend/nowhere"), [])

    def test_paths_may_be_relative_to_the_document(self):
        self.assertEqual(wrong_paths("`../../README.md`"), [])
        self.assertEqual(wrong_paths("`../nothing.md`"), ["names ../nothing.md, which does not exist"])


class Links(unittest.TestCase):
    def wrong(self, text):
        pages = {"README.md": "# Tandem\n## What it promises\n"}
        return [message for _, message in documents.check_links("docs/user/api.md", text, TREE, pages.get)]

    def test_links_lead_to_files_and_headings(self):
        self.assertEqual(self.wrong("[a](../../README.md#what-it-promises) [b](https://example.org/x)"), [])
        self.assertEqual(self.wrong("[a](../flags.md)"), ["links to docs/flags.md, which does not exist"])
        self.assertEqual(self.wrong("[a](../../README.md#limits)"), ["links to README.md#limits, which is no heading there"])


class Listed(unittest.TestCase):
    def wrong(self, document):
        pages = {"docs/user/api.md": document, "frontend/openai/chat_request.h": '    {"messages", &Parse},\n    {"echo",\n'}
        rows = [("API field", "frontend/openai/*_request.h", r'^\s*\{"(\w+)",', "docs/user/api.md")]
        return [message for _, message in documents.check_listed(TREE, pages.get, rows)]

    def test_each_row_is_listed(self):
        self.assertEqual(self.wrong("| `messages`, `echo` | |"), [])
        self.assertEqual(self.wrong("| `messages` | echo |"), ["does not list the API field echo"])

    def test_a_route_that_is_a_prefix_may_name_its_rest(self):
        pages = {"docs/user/api.md": "`GET /v1/models/NAME`", "frontend/config.cc": '"/v1/models/*" "/v1/engines/*"'}
        rows = [("route", "frontend/config.cc", r'"(/[a-z0-9_/]+)\*?"', "docs/user/api.md")]
        messages = [message for _, message in documents.check_listed(TREE, pages.get, rows)]
        self.assertEqual(messages, ["does not list the route /v1/engines/"])

    def test_rows_that_moved_away_are_noticed(self):
        rows = [("route", "frontend/api/routes.cc", r'"(/\w+)"', "docs/user/api.md")]
        messages = [message for _, message in documents.check_listed(TREE, {"docs/user/api.md": ""}.get, rows)]
        self.assertEqual(len(messages), 1)
        self.assertIn("no route found", messages[0])


if __name__ == "__main__":
    unittest.main()
