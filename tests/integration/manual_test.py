#!/usr/bin/env python3
"""Man pages and shell completion, as the build makes them: tools that read them find no fault, and shells complete."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import LIMIT, wait_for

SHARE = pair.bin_dir().parent / "manual"
PAGES = sorted(SHARE.glob("man/man*/*"))
BASH = SHARE / "bash-completion" / "completions" / "tandem"
ZSH = SHARE / "zsh" / "vendor-completions" / "_tandem"
FISH = SHARE / "fish" / "vendor_completions.d" / "tandem.fish"


def environment(**more):
    return {**os.environ, "PATH": f"{pair.bin_dir()}:{os.environ['PATH']}", **more}


def run(*argv, **more):
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=LIMIT, env=environment(**more))


def table(*words):
    return json.loads(run(pair.bin_dir() / words[0], *words[1:], "--help=@json").stdout)["flags"]


class ManPages(unittest.TestCase):
    def test_each_command_and_program_has_one(self):
        names = {path.name for path in PAGES}
        self.assertLessEqual({"tandem.1", "tandem-serve.1", "tandem-top.1", "tandem-bench.1", "tandem-bench-serve.1",
                              "tandem-bench-sweep-serve.1", "tandem-complete.1", "tandem-frontend.8",
                              "tandem-engine-core.8"}, names)
        usage = run(pair.bin_dir() / "tandem", "--help").stdout
        for command in re.findall(r"^  (\S+)", usage, re.M):
            self.assertIn(f"tandem-{command}.1", names)

    def test_readers_find_no_fault(self):
        for path in PAGES:
            with self.subTest(path.name):
                done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path, LC_ALL="C.UTF-8", MANROFFSEQ="")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                if shutil.which("mandoc"):
                    done = run("mandoc", "-T", "lint", "-W", "warning", path)
                    lines = [line for line in done.stdout.splitlines() if "missing date" not in line
                             and "lower case character in document title" not in line]
                    self.assertEqual(lines, [])

    @unittest.skipUnless(shutil.which("man"), "there is no man")
    def test_a_page_shows_every_flag_with_its_text(self):
        shown = run("man", "-l", SHARE / "man" / "man1" / "tandem-serve.1", LC_ALL="C.UTF-8", MANWIDTH="1000",
                    MAN_KEEP_FORMATTING="").stdout
        flags = table("tandem", "serve")
        self.assertGreater(len(flags), 50)
        text = " ".join(shown.split())
        for flag in flags:
            self.assertRegex(shown, rf"--{flag['name']}[ ,\n]")
            # A line may be broken after a hyphen.
            words = " ".join(flag["help"].replace("…", "...").split())
            self.assertIn(re.sub(r"\s", "", words).rstrip("."), re.sub(r"\s", "", text))

    def test_lists_what_refers_to_pages_that_are_there(self):
        names = {path.name for path in PAGES}
        for path in PAGES:
            for name, section in re.findall(r"^\.BR (\S+) \((\d)\)", path.read_text(), re.M):
                self.assertIn(f"{name.replace(chr(92), '')}.{section}", names)


class Bash(unittest.TestCase):
    """In a real interactive bash."""

    def complete(self, line):
        """The words that bash offers for the end of a line."""
        words = [part for word in line.split(" ") for part in re.findall(r"=|[^=]+", word)]
        if line.endswith(" "):
            words.append("")
        script = f'source {BASH}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE=x; _tandem; ' \
                 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = run("bash", "--norc", "-c", script, "_", *words)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands_flags_and_values(self):
        self.assertIn("serve", self.complete("tandem "))
        self.assertEqual(self.complete("tandem to"), ["top"])
        self.assertEqual(self.complete("tandem serve --max-num-se"), ["--max-num-seqs"])
        self.assertEqual(self.complete("tandem bench sw"), ["sweep"])
        self.assertIn("--num-prompts", self.complete("tandem bench serve --num"))
        self.assertIn("--dry-run", self.complete("tandem bench sweep serve --dry"))
        self.assertIn("bfloat16", self.complete("tandem serve --dtype "))
        self.assertEqual(self.complete("tandem serve --dtype=bfl"), ["bfloat16"])
        self.assertEqual(self.complete("tandem serve some/model --scheduling_policy=pr"), ["priority"])
        self.assertIn("--no-enable-prefix-caching", self.complete("tandem serve --no-enable-p"))
        self.assertIn("--handshake-address", self.complete("tandem-engine-core --hand"))
        self.assertEqual(self.complete("tandem serve "), [])  # the rest is for file names

    def test_every_flag_of_every_command_is_offered(self):
        for words in (("tandem", "serve"), ("tandem", "top"), ("tandem", "bench", "serve"), ("tandem-frontend",)):
            offered = set(self.complete(" ".join(words) + " --"))
            for flag in table(*words):
                self.assertIn("--" + flag["name"], offered)

    def test_tab_in_a_terminal(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment(PS1="$ ", TERM="dumb"))
        screen = b""

        def shows(text):
            nonlocal screen
            while select.select([terminal], [], [], 0)[0]:
                screen += os.read(terminal, 65536)
            return text in screen
        try:
            os.write(terminal, f"bind 'set enable-bracketed-paste off'; source {BASH}; echo 'loa''ded'\n".encode())
            wait_for(lambda: shows(b"loaded"), "the completion is loaded")
            os.write(terminal, b"tandem serve --scheduling-pol\t")
            wait_for(lambda: shows(b"tandem serve --scheduling-policy "), "the flag")
            os.write(terminal, b"pri\t")
            wait_for(lambda: shows(b"--scheduling-policy priority"), "its value")
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(terminal)


class OtherShells(unittest.TestCase):
    @unittest.skipUnless(shutil.which("fish"), "there is no fish")
    def test_fish(self):
        def complete(line):
            script = f"source {FISH}; complete -C {json.dumps(line)}"
            done = run("fish", "--no-config", "-c", script, HOME="/nonexistent")
            return [row.split("\t")[0] for row in done.stdout.splitlines()]
        self.assertEqual(complete("tandem to"), ["top"])
        self.assertIn("--max-num-seqs", complete("tandem serve --max-num-s"))
        self.assertIn("priority", complete("tandem serve --scheduling-policy "))
        self.assertIn("--num-prompts", complete("tandem bench serve --num-p"))

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], environment(PS1="$ ", TERM="dumb"))
        screen = b""

        def shows(text):
            nonlocal screen
            while select.select([terminal], [], [], 0)[0]:
                screen += os.read(terminal, 65536)
            return text in screen
        try:
            os.write(terminal, f"unsetopt zle_bracketed_paste; fpath=({ZSH.parent} $fpath); autoload -U compinit; "
                               "compinit -u -D; echo loa''ded\n".encode())
            wait_for(lambda: shows(b"\nloaded"), "the completion is loaded")
            os.write(terminal, b"tandem serve --scheduling-pol\t")
            wait_for(lambda: shows(b"--scheduling-policy"), "the flag")
            os.write(terminal, b"pri\t")
            wait_for(lambda: re.search(rb"--scheduling-policy[ =]*priority", screen) or shows(b""), "its value")
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(terminal)


if __name__ == "__main__":
    unittest.main(verbosity=2)
