#!/usr/bin/env python3
"""tests/tidy/clang_tidy.py in a small tree with a tool that finds the word BAD: what is examined, and when again."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tidy/clang_tidy.py"
TOOL = """#!/bin/sh
[ "$1" = --version ] && { echo version "$TOOL_VERSION"; exit; }
for source; do :; done
echo "$source" >>"$TOOL_LOG"
! grep -n BAD "$source" common/*.h
"""
NINJA = """rule cc
  command = g++ -I. -I../.. -MD -MF $out.d -c $in -o $out
  deps = gcc
  depfile = $out.d
"""


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "tree")
        self.build = self.root / "build/dev"
        self.write("tests/tidy/clang_tidy.py", SCRIPT.read_text())
        self.write(".clang-tidy", "Checks: '*'\n")
        self.write("common/a.h", "int A();\n")
        self.write("common/a.cc", '#include "common/a.h"\nint A() { return 1; }\n')
        self.write("common/b.cc", '#include "common/a.h"\nint B() { return A(); }\n')
        self.write("common/c.cc", "int C() { return 3; }\n")
        self.write("tests/t.cc", "int BAD() { return 3; }\n")  # not of a folder that is checked
        self.environment = {**os.environ, "XDG_CACHE_HOME": folder.name + "/cache", "TOOL_LOG": folder.name + "/log",
                            "TOOL_VERSION": "1", "JOBS": "1", "PATH": f"{folder.name}:{os.environ['PATH']}"}
        for name in ("clang-tidy", "clang-tidy-19"):
            tool = pathlib.Path(folder.name, name)
            tool.write_text(TOOL)
            tool.chmod(0o755)
        self.compile()
        self.commit("2020-01-01", "common/c.cc", "tests/t.cc")
        self.commit("2020-01-02", "common/a.cc", "common/a.h")
        self.commit("2020-01-03", "common/b.cc", ".clang-tidy", "tests/tidy/clang_tidy.py")

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words, **environment):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=self.root, check=True,
                       env={**os.environ, **environment}, capture_output=True)

    def commit(self, date, *paths):
        if not (self.root / ".git").exists():
            self.git("init", "-q", "-b", "main")
        self.git("add", *paths)
        self.git("commit", "-m", "x", GIT_COMMITTER_DATE=f"{date}T00:00:00Z", GIT_AUTHOR_DATE=f"{date}T00:00:00Z")

    def compile(self):
        sources = ["common/a.cc", "common/b.cc", "common/c.cc", "tests/t.cc"]
        self.build.mkdir(parents=True, exist_ok=True)
        edges = [f"build {source}.o: cc ../../{source}\n" for source in sources]
        (self.build / "build.ninja").write_text(NINJA + "".join(edges))
        (self.build / "compile_commands.json").write_text(json.dumps([
            {"directory": str(self.build), "file": str(self.root / source),
             "command": f"g++ -I{self.root} -o {source}.o -c {self.root / source}"} for source in sources]))
        subprocess.run(["ninja", "-C", self.build], check=True, capture_output=True)

    def run_script(self, *words, expected_status=0, **environment):
        """(what was examined, output)"""
        log = pathlib.Path(self.environment["TOOL_LOG"])
        log.write_text("")
        done = subprocess.run([sys.executable, self.root / "tests/tidy/clang_tidy.py", *words], cwd=self.root,
                              env={**self.environment, **environment}, capture_output=True, text=True)
        self.assertEqual(done.returncode, expected_status, done.stdout + done.stderr)
        return log.read_text().split(), done.stdout

    def test_what_changed_last_comes_first_and_what_is_clean_once(self):
        examined, output = self.run_script("--all")
        self.assertEqual(examined, ["common/b.cc", "common/a.cc", "common/c.cc"])
        self.assertIn("0 left unexamined", output)
        examined, output = self.run_script("--all")
        self.assertEqual(examined, [])
        self.assertIn("3 sources, 3 known to be clean", output)

    def test_a_change_is_examined_wherever_it_is_included(self):
        self.run_script("--all")
        self.write("common/a.h", "int A();  // changed\n")
        self.compile()
        self.assertEqual(self.run_script("--all")[0], ["common/a.cc", "common/b.cc"])
        self.write("common/c.cc", "int C() { return 4; }\n")
        self.assertEqual(self.run_script()[0], ["common/c.cc"])  # not yet compiled again
        self.assertEqual(self.run_script("--all", TOOL_VERSION="2")[0], ["common/a.cc", "common/c.cc", "common/b.cc"])
        self.write(".clang-tidy", "Checks: 'a*'\n")
        self.assertEqual(len(self.run_script("--all")[0]), 3)

    def test_the_tool_gets_no_precompiled_header_of_another_compiler(self):
        path = self.build / "compile_commands.json"
        path.write_text(path.read_text().replace(
            "g++ ", "g++ --param=ggc-min-heapsize=1 -fpch-preprocess -Winvalid-pch -include /x/cmake_pch.hxx -include y.h "))
        self.run_script("--all")
        for entry in json.loads((self.build / "clang_tidy/compile_commands.json").read_text()):
            self.assertTrue(entry["command"].startswith(f"g++ -include y.h -I{self.root}"), entry)

    def test_sources_that_are_compiled_together_are_examined_apart(self):
        united = self.build / "common/CMakeFiles/x.dir/Unity/unity_0_cxx.cxx"
        united.parent.mkdir(parents=True)
        united.write_text("".join(f'#include "{self.root}/{source}"\n' for source in ("common/a.cc", "common/c.cc")))
        (self.build / "compile_commands.json").write_text(json.dumps([
            {"directory": str(self.build), "file": str(united), "command": f"g++ -I{self.root} -o common/b.cc.o -c {united}"}]))
        examined, output = self.run_script("--all")
        self.assertEqual(sorted(examined), ["common/a.cc", "common/c.cc"])
        self.assertIn("2 sources, 0 known to be clean", output)
        entries = json.loads((self.build / "clang_tidy/compile_commands.json").read_text())
        self.assertEqual([entry["command"].split(" -c ")[1] for entry in entries], [entry["file"] for entry in entries])
        self.assertEqual(self.run_script("--all")[0], [])

    def test_findings_are_printed_fail_and_come_again(self):
        self.write("common/b.cc", "int BAD() { return 2; }\n")
        self.compile()
        for _ in range(2):
            examined, output = self.run_script("--all", expected_status=1)
            self.assertIn("common/b.cc", examined)
            self.assertIn("int BAD()", output)
            self.assertIn("1 with findings", output)
        self.assertEqual(examined, ["common/b.cc"])

    def test_a_limit_of_time_leaves_the_oldest_for_later(self):
        examined, output = self.run_script("--all", "--minutes", "0.000001")
        self.assertEqual(examined, ["common/b.cc"])
        self.assertIn("2 left unexamined", output)
        self.assertEqual(self.run_script("--all", "--minutes", "0.000001")[0], ["common/a.cc"])

    def test_another_checkout_of_the_same_tree_knows_what_is_clean(self):
        self.run_script("--all")
        other = self.root.parent / "other"
        shutil.copytree(self.root, other)
        shutil.rmtree(other / "build")
        self.root, self.build = other, other / "build/dev"
        self.compile()
        self.assertEqual(self.run_script("--all")[0], [])

    def test_what_was_not_compiled_is_examined_each_time(self):
        (self.build / ".ninja_deps").unlink()
        for _ in range(2):
            self.assertEqual(len(self.run_script("--all")[0]), 3)

    def test_a_header_is_checked_through_its_source(self):
        self.assertEqual(self.run_script("common/a.h")[0], ["common/a.cc"])
        self.assertEqual(self.run_script("common/a.h", "tests/t.cc")[0], [])
        self.write("common/a.h", "int A();  // changed\n")
        self.assertEqual(self.run_script()[0], ["common/a.cc"])


if __name__ == "__main__":
    unittest.main()
