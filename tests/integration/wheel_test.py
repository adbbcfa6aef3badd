#!/usr/bin/env python3
"""The wheel tandem-serve in a fresh venv: its command, and tandem.LLM. Needs PyPI for the backend that builds it."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import venv

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from goldens import read_goldens
from pair import LIMIT, MODEL, ROOT, wait_for

FLAGS = 'kv_cache_memory_bytes="32M", max_num_seqs=8'


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-wheel-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        script = ROOT / "deploy" / "python" / "build_wheel.py"
        done = subprocess.run([sys.executable, "-B", script, pair.bin_dir(), cls.folder / "made"], capture_output=True,
                              text=True, timeout=4 * LIMIT)
        if done.returncode != 0:
            if "No matching distribution" in done.stderr or "Could not find a version" in done.stderr:
                pair.skip("pip cannot fetch what builds the wheel")
            raise AssertionError(done.stderr)
        cls.wheel, = (cls.folder / "made").glob("*.whl")
        venv.create(cls.folder / "venv", with_pip=True)
        cls.python = cls.folder / "venv/bin/python"
        subprocess.run([cls.folder / "venv/bin/pip", "install", "-q", "--no-index", cls.wheel], check=True, timeout=4 * LIMIT)
        cls.environment = {name: value for name, value in os.environ.items() if name not in ("TANDEM_BIN_DIR", "PYTHONPATH")}
        (cls.folder / "run").mkdir()
        cls.environment["TMPDIR"] = cls.environment["XDG_RUNTIME_DIR"] = str(cls.folder / "run")

    def start(self, script, **options):
        head = f"import json, os, sys\nfrom tandem import LLM, SamplingParams, TandemError\nMODEL = {str(MODEL)!r}\n"
        return subprocess.Popen([self.python, "-c", head + script], env=self.environment, cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, **options)

    def run_script(self, script):
        """What the script prints, as JSON."""
        process = self.start(script)
        text = process.communicate(timeout=2 * LIMIT)[0]
        self.assertEqual(process.returncode, 0)
        return json.loads(text)

    def left(self):
        """Processes that run programs of the venv."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.folder / "venv/lib").encode() in path.read_bytes().split(b"\0")[0]:
                    found.append(int(path.parent.name))
            except OSError:
                pass
        return found

    def test_the_wheel_is_for_this_platform_and_has_the_programs(self):
        self.assertRegex(self.wheel.name, r"^tandem_serve-\d.*-py3-none-manylinux_\d+_\d+_\w+\.whl$")
        done = subprocess.run([self.folder / "venv/bin/tandem", "--version"], capture_output=True, text=True,
                              env=self.environment)
        self.assertRegex(done.stdout, r"^tandem \d")
        # Every library that is not the system's comes from the wheel.
        package, = (self.folder / "venv/lib").glob("python*/site-packages/tandem")
        libraries = subprocess.run(["ldd", package / "bin/tandem-frontend"], capture_output=True, text=True,
                                   env={**self.environment, "LD_LIBRARY_PATH": str(package / "lib")}).stdout
        for line in libraries.splitlines():
            if "libzmq" in line or "libssl" in line:
                self.assertIn(str(package / "lib"), line)

    def test_generate_and_chat(self):
        before = set((self.folder / "run").iterdir())
        found = self.run_script(f"""
with LLM(MODEL, {FLAGS}) as llm:
    greedy = SamplingParams(temperature=0, max_tokens=12)
    prompts = [f"Tale {{i}} begins" for i in range(40)]
    many = llm.generate(prompts, greedy)
    ids = many[0].prompt_token_ids
    one = llm.generate(ids, greedy)
    params = [SamplingParams(temperature=0, max_tokens=i + 1, ignore_eos=True) for i in range(3)]
    lengths = [len(each.outputs[0].token_ids) for each in llm.generate(prompts[:3], params)]
    both = llm.generate("Once", SamplingParams(n=2, seed=1, temperature=1.0, max_tokens=4))
    talk = [{{"role": "user", "content": "What is 7 plus 5?"}}]
    chats = llm.chat([talk, talk], SamplingParams(temperature=0, max_tokens=30))
    print(json.dumps([[each.prompt for each in many] == prompts, one[0].outputs[0].text == many[0].outputs[0].text,
                      one[0].prompt, lengths, [each.index for each in both[0].outputs], len(llm.generate([])),
                      [each.outputs[0].text for each in chats], chats[0].outputs[0].message["role"]]))
""")
        self.assertEqual(found, [True, True, None, [1, 2, 3], [0, 1], 0, ["7 plus 5 is 12."] * 2, "assistant"])
        self.assertEqual(self.left(), [])
        self.assertEqual(set((self.folder / "run").iterdir()), before)

    def test_embed_and_score(self):
        model = ROOT / "tests" / "golden" / "embedding" / "qwen3_embedding"
        cases = read_goldens(model)["cases"][:3]
        texts, ids = [case["text"] for case in cases], [case["token_ids"] for case in cases]
        found = self.run_script(f"""
with LLM({str(model)!r}, {FLAGS}, dtype="float32", hf_overrides={{"is_matryoshka": True}}) as llm:
    many, one = llm.embed({texts!r}), llm.embed({ids[1]!r})
    print(json.dumps([many, llm.embed({ids!r}) == many, one == many[1:2], len(llm.embed("x", dimensions=16)[0]),
                      llm.embed([]), llm.score({texts[0]!r}, {texts!r})]))
""")
        vectors, same, alone, size, none, scores = found
        self.assertEqual((same, alone, size, none), (True, True, 16, []))
        for vector, score in zip(vectors, scores, strict=True):
            self.assertAlmostEqual(score, sum(a * b for a, b in zip(vectors[0], vector, strict=True)), delta=1e-5)
        self.assertAlmostEqual(scores[0], 1, delta=1e-5)

    def test_what_is_refused_is_an_error_and_harms_nothing_else(self):
        found = self.run_script(f"""
errors = []
def failure(call):
    try:
        call()
    except (TandemError, ValueError) as error:
        errors.append([type(error).__name__, getattr(error, "status", None), str(error)])
llm = LLM(MODEL, {FLAGS})
failure(lambda: llm.generate(["x", "y"], SamplingParams(temperature=-1)))
failure(lambda: llm.generate(["x", "y"], [SamplingParams()]))
fine = len(llm.generate("x", SamplingParams(temperature=0))[0].outputs[0].token_ids)
llm.close()
failure(lambda: llm.generate("x"))
failure(lambda: LLM("/nonexistent"))
failure(lambda: LLM(MODEL, max_num_seq=3))
print(json.dumps([fine, errors]))
""")
        self.assertGreater(found[0], 0)
        bad, count, closed, model, flag = found[1]
        self.assertEqual(bad[:2], ["TandemError", 400])
        self.assertIn("temperature", bad[2])
        self.assertEqual(count[0], "ValueError")
        self.assertEqual(closed[:2], ["TandemError", 0])
        self.assertIn("/nonexistent", model[2])
        self.assertIn("did you mean --max-num-seqs", flag[2])
        self.assertEqual(self.left(), [])

    @unittest.skipUnless(shutil.which("mypy"), "there is no mypy")
    def test_its_types_are_whole_and_reach_the_caller(self):
        script = self.folder / "typed.py"
        script.write_text("""from tandem import LLM, SamplingParams
with LLM("m", max_model_len=4096) as llm:
    text: str = llm.generate(["a"], SamplingParams(temperature=0))[0].outputs[0].text
    vectors: list[list[float]] = llm.embed("a")
    count: int = llm.chat([{"role": "user", "content": "a"}])[0].outputs[0].text
""")
        done = subprocess.run(["mypy", "--strict", "--python-executable", self.python, "--cache-dir", self.folder / "mypy", script],
                              cwd=self.folder, capture_output=True, text=True, timeout=4 * LIMIT)
        self.assertRegex(done.stdout, r"^typed.py:5: error: .*\bstr\b.*\bint\b.*\nFound 1 error in 1 file")

    def test_a_killed_process_takes_its_engine_along(self):
        process = self.start(f"""
llm = LLM(MODEL, {FLAGS})
print("ready", flush=True)
sys.stdin.read()
""", stdin=subprocess.PIPE)
        try:
            self.assertEqual(process.stdout.readline(), "ready\n")
            self.assertGreaterEqual(len(self.left()), 3)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        wait_for(lambda: not self.left(), "its processes end")
        folders = list((self.folder / "run").glob("tandem-llm-*"))
        self.assertEqual(len(folders), 1)
        # The next one removes what it has left, but not the folder of one that lives.
        self.run_script(f"""
with LLM(MODEL, {FLAGS}) as one:
    with LLM(MODEL, {FLAGS}) as other:
        print(len(one.generate("x")))
""")
        self.assertEqual(list((self.folder / "run").glob("tandem-*")), [])

    def test_no_network_port_is_opened(self):
        process = self.start(f"""
llm = LLM(MODEL, {FLAGS})
print("ready", flush=True)
sys.stdin.read()
""", stdin=subprocess.PIPE)
        try:
            self.assertEqual(process.stdout.readline(), "ready\n")
            for pid in self.left():
                sockets = {os.readlink(each) for each in pathlib.Path(f"/proc/{pid}/fd").iterdir()
                           if os.path.islink(each) and os.readlink(each).startswith("socket:")}
                for table in ("tcp", "tcp6"):
                    for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                        self.assertNotIn(f"socket:[{line.split()[9]}]", sockets)
        finally:
            process.communicate("")
        wait_for(lambda: not self.left(), "its processes end")


if __name__ == "__main__":
    unittest.main(verbosity=2)
