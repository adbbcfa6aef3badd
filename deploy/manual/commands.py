"""The commands of our programs with their flag tables, as the programs themselves print them."""
import dataclasses
import json
import pathlib
import re
import subprocess


GROUPS = {("tandem", "bench"), ("tandem", "bench", "sweep")}  # what only starts other commands


@dataclasses.dataclass
class Command:
    words: tuple  # ("tandem", "bench", "serve")
    summary: str  # one line
    about: str = ""  # what --help begins with
    flags: list = dataclasses.field(default_factory=list)  # as of common/flag_json.h
    subcommands: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return " ".join(self.words)

    @property
    def page(self):
        return "-".join(self.words)


def printed(programs, words, *arguments):
    argv = [str(pathlib.Path(programs) / words[0]), *words[1:], *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr}")
    return done.stdout


def summaries(usage):
    """{command: what it does} of lines like "  serve     MODEL [flags]: start and watch"."""
    rows = re.findall(r"^  (\S+)\s+(.*)$", usage, re.M)
    return {name: text.split(": ", 1)[-1] for name, text in rows}


def read_command(programs, words, summary):
    command = Command(words, summary)
    subcommands = summaries(printed(programs, words, "--help")) if words in GROUPS else {}
    if not subcommands:
        table = json.loads(printed(programs, words, "--help=@json"))
        command.about, command.flags = table["about"], table["flags"]
    for name, line in subcommands.items():
        command.subcommands.append(read_command(programs, (*words, name), line))
    return command


def read_all(programs):
    """`tandem` with its subcommands, then the two programs that it starts."""
    tandem = Command(("tandem",), "an LLM server: start it, talk to it, measure it")
    for name, line in summaries(printed(programs, ("tandem",), "--help")).items():
        tandem.subcommands.append(read_command(programs, ("tandem", name), line))
    return [tandem,
            read_command(programs, ("tandem-frontend",), "Tandem's frontend: the OpenAI API over HTTP"),
            read_command(programs, ("tandem-engine-core",), "Tandem's engine core: scheduler, KV cache and model")]


def flatten(commands):
    for command in commands:
        yield command
        yield from flatten(command.subcommands)
