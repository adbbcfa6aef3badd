"""tandem-frontend over a mock engine whose replies are texts that a test chooses."""
import json
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "integration"))
from api_test import MODEL, Frontend  # noqa: F401

ANSWER = "</think>"  # a text begins with reasoning until this
PARSERS = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice", "--reasoning-parser", "qwen3")


class Scripted(Frontend):
    """Each request's output is the next text of `reply`, else made up."""

    def __init__(self, *flags, parsers=PARSERS, **more):
        super().__init__(*parsers, *flags, **more)

    def start_engine(self, *flags):
        self.replies = pathlib.Path(self.folder.name) / "replies"
        self.replies.touch()
        super().start_engine("--replies", self.replies, *flags)

    def reply(self, *texts):
        for text in texts:
            status, body = self.post("/tokenize", {"prompt": text, "add_special_tokens": False})
            assert status == 200, body
            with open(self.replies, "a") as file:
                file.write(json.dumps(json.loads(body)["tokens"]) + "\n")

    def prompts(self):
        """The texts of the prompts that reached the engine, oldest first."""
        return [json.loads(self.post("/detokenize", {"tokens": add[1]})[1])["prompt"] for add in self.received(0)]


def call(name, /, **arguments):
    """A tool call as the model writes it."""
    return f'<tool_call>\n{json.dumps({"name": name, "arguments": arguments})}\n</tool_call>'
