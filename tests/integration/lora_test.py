#!/usr/bin/env python3
"""LoRA adapters: loaded at start and while the server runs, chosen by `model`, replaced, unloaded, and kept through the
death of an engine, a swap and a reload. The pair computes; the last class has a frontend over a mock engine."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from api_test import Frontend  # skips without the clients
from pair import LIMIT, MODEL, Pair, free_port, wait_for
from peft_adapter import write_adapter

import openai

PROMPT = "Once upon a time there was a small town by the sea, and in it lived"
FLAGS = ("--kv-cache-memory-bytes", "32M", "--enable-lora", "--max-cpu-loras", "4", "--served-model-name", "m")
TWO_AT_ONCE = (*FLAGS, "--max-loras", "2")
AT_RUN_TIME = (*TWO_AT_ONCE, "--enable-runtime-lora")


class Folders:
    """Adapter folders that end with the test."""

    def __init__(self, test):
        folder = tempfile.TemporaryDirectory(prefix="tandem-lora-")
        test.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def __call__(self, name, seed, **config):
        return write_adapter(self.root / name, seed, **config)


def complete(server, model, prompt=PROMPT, max_tokens=24, **fields):
    status, body = server.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": max_tokens,
                                                   "temperature": 0, "ignore_eos": True, **fields})
    assert status == 200, body
    reply = json.loads(body)
    assert reply["model"] == model, reply
    return reply["choices"][0]["text"]


def load(server, name, path, **fields):
    return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **fields})


def unload(server, name):
    return server.post("/v1/unload_lora_adapter", {"lora_name": name})


def cards(server):
    status, body = server.get("/v1/models")
    assert status == 200, body
    return {card["id"]: card for card in json.loads(body)["data"]}


def series(server):
    """The labels and the value of vllm:lora_requests_info, of which there is one."""
    (line,) = [line for line in server.get("/metrics")[1].decode().splitlines()
               if line.startswith("vllm:lora_requests_info{")]
    labels, value = line[len("vllm:lora_requests_info"):].rsplit(" ", 1)
    return dict(part.split("=", 1) for part in labels.strip("{}").replace('",', '"\n').split("\n")), float(value)


class Serving(unittest.TestCase):
    def setUp(self):
        self.folder = Folders(self)

    def test_adapters_of_the_start_in_every_api(self):
        a, b = self.folder("a", 1), self.folder("b", 2, modules=("o_proj", "gate_proj", "up_proj"), r=4, use_rslora=True)
        module = json.dumps({"name": "org/b", "path": str(b), "base_model_name": "alias"})
        with Pair("--lora-modules", f"a={a}", module, *FLAGS, "alias", "--max-loras", "2", "--api-server-count", "2",
                  "--enable-log-requests") as server:
            self.assertEqual(list(cards(server)), ["m", "alias", "a", "org/b"])
            self.assertEqual({name: (card["parent"], card["root"]) for name, card in cards(server).items()},
                             {"m": (None, str(MODEL)), "alias": (None, str(MODEL)), "a": ("m", str(a)),
                              "org/b": ("alias", str(b))})
            self.assertEqual(json.loads(server.get("/v1/models/org/b")[1])["root"], str(b))
            texts = [complete(server, model) for model in ("m", "a", "org/b")]
            self.assertEqual(len(set(texts)), 3)
            self.assertEqual(texts, [complete(server, model) for model in ("m", "a", "org/b")])
            self.assertEqual(texts[0], complete(server, "alias"))
            with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=LIMIT) as client:
                self.assertEqual([model.id for model in client.models.list()], ["m", "alias", "a", "org/b"])
                chat = client.chat.completions.create(model="a", max_tokens=8, temperature=0,
                                                      messages=[{"role": "user", "content": "Hi"}])
                self.assertEqual(chat.model, "a")
                stream = client.completions.create(model="a", prompt=PROMPT, max_tokens=24, temperature=0, stream=True,
                                                   extra_body={"ignore_eos": True})
                chunks = list(stream)
                self.assertEqual("".join(chunk.choices[0].text for chunk in chunks), texts[1])
                self.assertEqual({chunk.model for chunk in chunks}, {"a"})
                response = client.responses.create(model="a", input="Hi", max_output_tokens=8, temperature=0)
                self.assertEqual(response.model, "a")
                with self.assertRaises(openai.NotFoundError) as unknown:
                    client.completions.create(model="c", prompt="x", max_tokens=1)
                self.assertIn("`c` does not exist", str(unknown.exception))
            ids = json.loads(server.post("/tokenize", {"model": "a", "prompt": PROMPT})[1])["tokens"]
            for path, body in (("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}),
                               ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Hi"}]}),
                               ("/invocations", {"prompt": "x", "max_tokens": 1}),
                               ("/detokenize", {"tokens": ids})):
                status, reply = server.post(path, {"model": "a", **body})
                self.assertEqual(status, 200, reply)
                self.assertEqual(server.post(path, {"model": "c", **body})[0], 404, path)
            status, reply = server.post("/inference/v1/generate", {
                "model": "a", "token_ids": ids, "sampling_params": {"temperature": 0, "max_tokens": 24,
                                                                   "ignore_eos": True}})
            generated = json.loads(reply)["choices"][0]["token_ids"]
            self.assertEqual(json.loads(server.post("/detokenize", {"tokens": generated})[1])["prompt"], texts[1])
            beams = [server.post("/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 8, "n": 2,
                                                     "use_beam_search": True}) for model in ("m", "a")]
            self.assertEqual([status for status, _ in beams], [200, 200])
            self.assertNotEqual(*[json.loads(body)["choices"][0]["text"] for _, body in beams])
            server.wait_for_log(' lora="a" ')
            self.assertEqual(server.post("/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 1})[0], 200)

    def test_a_batch_of_the_model_and_adapters_equals_each_alone(self):
        adapters = {name: self.folder(name, seed) for seed, name in enumerate("abc")}
        with Pair("--lora-modules", *(f"{name}={path}" for name, path in adapters.items()), *TWO_AT_ONCE) as server:
            models = ["m", "a", "b", "m", "c", "a", "c", "b"]  # three adapters, of which two run together
            prompts = [f"{i} {PROMPT}" for i in range(len(models))]
            alone = [complete(server, *each) for each in zip(models, prompts)]
            with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
                together = list(pool.map(lambda each: complete(server, *each), zip(models, prompts)))
            self.assertEqual(together, alone)

    def test_load_unload_and_load_again(self):
        a, b = self.folder("a", 1), self.folder("b", 2)
        with Pair(*AT_RUN_TIME, "--api-server-count", "2") as server:
            base = complete(server, "m")
            self.assertEqual(load(server, "x", a), (200, b"Success: LoRA adapter 'x' added successfully."))
            with_a = complete(server, "x")
            self.assertNotEqual(with_a, base)
            status, body = load(server, "x", b)
            self.assertEqual((status, json.loads(body)["error"]["type"]), (400, "InvalidUserInput"))
            # Another name for the same folder is the same adapter.
            self.assertEqual(load(server, "y", a)[0], 200)
            self.assertEqual(complete(server, "y"), with_a)
            self.assertEqual(list(cards(server)), ["m", "x", "y"])
            self.assertEqual(unload(server, "x"), (200, b"Success: LoRA adapter 'x' removed successfully."))
            self.assertEqual(unload(server, "x")[0], 404)
            self.assertEqual(list(cards(server)), ["m", "y"])
            # Over several connections, and so over both network threads.
            for _ in range(8):
                self.assertEqual(server.post("/v1/completions", {"model": "x", "prompt": "x", "max_tokens": 1})[0], 404)
            write_adapter(a, 3)
            self.assertEqual(load(server, "x", a)[0], 200)
            self.assertNotIn(complete(server, "x"), (with_a, base))
            self.assertEqual(complete(server, "m"), base)

    def test_in_place_new_weights_are_used_at_once_and_no_old_block(self):
        a = self.folder("a", 1)
        with Pair("--lora-modules", f"a={a}", *AT_RUN_TIME, "--block-size", "32") as server:
            prompt = PROMPT * 8  # several blocks, which the prefix cache keeps
            before = complete(server, "a", prompt)
            write_adapter(a, 2)
            self.assertEqual(complete(server, "a", prompt), before)
            self.assertEqual(load(server, "a", a, load_inplace=True)[0], 200)
            after = complete(server, "a", prompt)
            self.assertNotEqual(after, before)
            self.assertEqual(load(server, "fresh", self.folder("other", 2))[0], 200)
            self.assertEqual(complete(server, "fresh", prompt), after)
            # A bad one changes nothing.
            (a / "adapter_config.json").write_text("{}")
            status, body = load(server, "a", a, load_inplace=True)
            self.assertEqual(status, 400, body)
            self.assertEqual(complete(server, "a", prompt), after)

    def test_a_bad_adapter_is_the_clients_error_and_harms_nobody(self):
        good = self.folder("good", 1)
        bad = {"dora": self.folder("dora", 1, use_dora=True), "rank": self.folder("rank", 1, rank=32),
               "empty": self.folder.root, "truncated": self.folder("truncated", 1)}
        weights = bad["truncated"] / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:5000])
        with Pair(*AT_RUN_TIME) as server:
            self.assertEqual(load(server, "good", good)[0], 200)
            expected = complete(server, "good")
            for name, path in bad.items():
                status, body = load(server, name, path)
                error = json.loads(body)["error"]
                self.assertEqual(status, 404 if name == "empty" else 400, body)
                self.assertIn("No adapter found for" if name == "empty" else "Call to add_lora method failed: ",
                              error["message"])
                self.assertEqual(server.post("/v1/completions", {"model": name, "prompt": "x"})[0], 404)
            self.assertIn("32", json.loads(load(server, "rank", bad["rank"])[1])["error"]["message"])
            self.assertEqual(load(server, "absent", "/nowhere")[0], 404)
            self.assertEqual(list(cards(server)), ["m", "good"])
            self.assertEqual(complete(server, "good"), expected)

    def test_which_adapters_have_requests(self):
        a, b = self.folder("a", 1), self.folder("b", 2)
        with Pair("--lora-modules", f"a={a}", f"b={b}", *FLAGS) as server:
            labels, _ = series(server)
            self.assertEqual(labels, {"max_lora": '"1"', "running_lora_adapters": '""', "waiting_lora_adapters": '""'})
            streams = []

            def read(model):
                connection = server.connect()
                streams.append(connection)
                connection.request("POST", "/v1/completions", json.dumps({
                    "model": model, "prompt": PROMPT, "max_tokens": 1500, "ignore_eos": True, "stream": True}),
                    {"Content-Type": "application/json"})
                return connection.getresponse()

            running = read("a")
            running.readline()
            waiting = threading.Thread(target=read, args=("b",))
            waiting.start()
            labels, value = wait_for(lambda: series(server)[0]["waiting_lora_adapters"] == '"b"' and series(server),
                                     "the other adapter waits")
            self.assertEqual(labels["running_lora_adapters"], '"a"')
            self.assertLess(abs(time.time() - value), LIMIT)
            running.close()
            streams[0].close()
            wait_for(lambda: series(server)[0]["running_lora_adapters"] == '"b"', "it runs")
            waiting.join(LIMIT)
            for connection in streams:
                connection.close()
            wait_for(lambda: series(server)[0] == {"max_lora": '"1"', "running_lora_adapters": '""',
                                                   "waiting_lora_adapters": '""'}, "none has requests")
            # Without --enable-runtime-lora.
            self.assertEqual(load(server, "c", a), (404, b'{"detail":"Not Found"}'))


class Folder(unittest.TestCase):
    """A folder of adapters that requests name before anybody has loaded them."""

    def setUp(self):
        self.folder = Folders(self)
        self.cache = self.folder.root / "cache"

    def ask(self, server, model, path="/v1/completions", **fields):
        return server.post(path, {"model": model, "prompt": "x", "max_tokens": 1, **fields})

    def test_an_adapter_is_loaded_when_a_request_names_it(self):
        self.folder("cache/a", 1)
        self.folder("cache/b", 2)
        with Pair("--lora-resolver-cache-dir", self.cache, *AT_RUN_TIME, "--api-server-count", "2") as server:
            self.assertEqual(load(server, "same", self.cache / "a")[0], 200)
            expected = complete(server, "same")
            self.assertEqual(list(cards(server)), ["m", "same"])
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                texts = list(pool.map(lambda _: complete(server, "a"), range(8)))
            self.assertEqual(set(texts), {expected})
            self.assertEqual(list(cards(server)), ["m", "same", "a"])
            self.assertEqual(cards(server)["a"]["root"], str(self.cache / "a"))
            messages = [{"role": "user", "content": "Hi"}]
            self.assertEqual(server.post("/v1/chat/completions", {"model": "b", "messages": messages, "max_tokens": 1})[0], 200)
            # Unloaded, it is read again; what is there by then counts.
            self.assertEqual(unload(server, "a")[0], 200)
            write_adapter(self.cache / "a", 2)
            self.assertEqual(complete(server, "a"), complete(server, "b"))
            done = subprocess.run(server.command_line("reload"), env=server.environment, timeout=LIMIT)
            self.assertEqual(done.returncode, 0)
            self.assertEqual(set(cards(server)), {"m", "same", "a", "b"})

    def test_names_that_are_none_of_its_folders_are_unknown(self):
        self.folder("cache/a", 1)
        self.folder("outside", 1)
        self.folder("cache/.hidden", 1)
        self.folder("cache/deep/b", 1)
        with Pair("--lora-resolver-cache-dir", self.cache, *TWO_AT_ONCE) as server:
            for name in ("../outside", "a/../../outside", str(self.folder.root / "outside"), "..", ".", ".hidden", "deep", "deep/b",
                         "a/", "./a", "~", "a\0", "a\n", "\u202ea", "x" * 300, "%2e%2e/outside", "nothing"):
                with self.subTest(name=name):
                    status, body = self.ask(server, name)
                    self.assertEqual(status, 404, body)
                    self.assertIn("does not exist", json.loads(body)["error"]["message"])
            self.assertEqual(list(cards(server)), ["m"])
            self.assertEqual(self.ask(server, "a")[0], 200)

    def test_a_bad_adapter_is_the_clients_error_with_the_reason(self):
        self.folder("cache/dora", 1, use_dora=True)
        weights = self.folder("cache/cut", 1) / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:5000])
        with Pair("--lora-resolver-cache-dir", self.cache, *TWO_AT_ONCE) as server:
            for name, reason in (("dora", "use_dora"), ("cut", "adapter_model.safetensors")):
                for _ in range(2):
                    status, body = self.ask(server, name)
                    self.assertEqual(status, 400, body)
                    error = json.loads(body)["error"]
                    self.assertIn(reason, error["message"])
                    self.assertEqual(error["param"], "model")
            self.assertEqual(list(cards(server)), ["m"])
        with Pair("--lora-resolver-cache-dir", self.cache, "--served-model-name", "m") as server:
            status, body = self.ask(server, "dora")
            self.assertEqual(status, 400, body)
            self.assertIn("--enable-lora", json.loads(body)["error"]["message"])


class Lives(unittest.TestCase):
    """Adapters and the processes that come and go."""

    def setUp(self):
        self.folder = Folders(self)

    def stream(self, server, model, on_event, **fields):
        """The text of a stream; on_event(n) after each event."""
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({
            "model": model, "prompt": PROMPT, "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True,
            **fields}), {"Content-Type": "application/json"})
        text, num_events = "", 0
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            self.assertNotIn("error", event)
            text += event["choices"][0]["text"]
            num_events += 1
            on_event(num_events)
        connection.close()
        return text

    def test_an_engine_dies_during_a_stream_with_an_adapter(self):
        with Pair("--lora-modules", f"a={self.folder('a', 1)}", *AT_RUN_TIME) as server:
            self.assertEqual(load(server, "b", self.folder("b", 2))[0], 200)
            for model in ("a", "b"):
                undisturbed = self.stream(server, model, lambda n: None)

                def kill(n):
                    if n == 20:
                        os.kill(server.pid_of("tandem-engine-core"), signal.SIGKILL)

                before = server.total("tandem:engine_restarts_total")
                self.assertEqual(self.stream(server, model, kill), undisturbed)
                # A slow reader may have had all events in its socket by then.
                wait_for(lambda: server.total("tandem:engine_restarts_total") == before + 1, "the engine is back")
            self.assertEqual(list(cards(server)), ["m", "a", "b"])

    def events(self, server, model, at_20):
        """All events of a long stream; at_20 is called after the 20th."""
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({
            "model": model, "prompt": PROMPT, "max_tokens": 1500, "temperature": 0, "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"})
        events = []
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                events.append(json.loads(line[6:]))
                if len(events) == 20:
                    at_20()
        connection.close()
        return events

    def test_no_output_goes_on_with_other_weights(self):
        a = self.folder("a", 1)
        with Pair("--lora-modules", f"a={a}", *AT_RUN_TIME) as server:
            text = lambda events: "".join(event["choices"][0]["text"] for event in events if "choices" in event)
            whole = text(self.events(server, "a", lambda: None))

            def replace():
                write_adapter(a, 2)
                self.assertEqual(load(server, "a", a, load_inplace=True)[0], 200)

            def replace_and_swap():
                replace()
                self.assertEqual(server.command("swap").returncode, 0)

            def replace_and_kill():
                replace()
                os.kill(server.pid_of("tandem-engine-core"), signal.SIGKILL)

            self.assertEqual(text(self.events(server, "a", replace_and_swap)), whole)
            write_adapter(a, 1)
            self.assertEqual(load(server, "a", a, load_inplace=True)[0], 200)
            events = self.events(server, "a", replace_and_kill)
            self.assertIn("was loaded again meanwhile", events[-1]["error"]["message"])
            self.assertTrue(whole.startswith(text(events)))
            wait_for(lambda: server.get("/health")[0] == 200, "the engine is back")
            self.assertNotEqual(text(self.events(server, "a", lambda: None)), whole)

    def test_no_output_goes_on_with_files_that_nobody_has_loaded(self):
        a = self.folder("a", 1)
        with Pair("--lora-modules", f"a={a}", *AT_RUN_TIME) as server:
            text = lambda events: "".join(event["choices"][0]["text"] for event in events if "choices" in event)
            whole = text(self.events(server, "a", lambda: None))

            def overwrite_and_swap():
                write_adapter(a, 2)
                self.assertEqual(server.command("swap").returncode, 0)

            def kill():
                os.kill(server.pid_of("tandem-engine-core"), signal.SIGKILL)

            # Its engine has them still. The next one has what is there now.
            self.assertEqual(text(self.events(server, "a", overwrite_and_swap)), whole)
            server.wait_for_log("adapter has other files than were loaded")
            events = self.events(server, "a", kill)
            self.assertIn("its files were changed", events[-1]["error"]["message"])
            wait_for(lambda: server.get("/health")[0] == 200, "the engine is back")
            self.assertEqual(load(server, "a", a, load_inplace=True)[0], 200)
            changed = text(self.events(server, "a", lambda: None))
            self.assertEqual(text(self.events(server, "a", kill)), changed)

    def test_adapters_survive_a_swap_and_a_reload(self):
        with Pair("--lora-modules", f"a={self.folder('a', 1)}", f"gone={self.folder('gone', 9)}", *AT_RUN_TIME,
                  "--api-server-count", "2") as server:
            self.assertEqual(load(server, "b", self.folder("b", 2))[0], 200)
            self.assertEqual(unload(server, "gone")[0], 200)
            expected = {model: complete(server, model) for model in ("m", "a", "b")}
            for command in ("swap", "reload", "reload"):
                undisturbed = self.stream(server, "b", lambda n: None)
                done = []

                def replace(n):
                    if n == 20:
                        done.append(subprocess.Popen(server.command_line(command), env=server.environment))

                self.assertEqual(self.stream(server, "b", replace), undisturbed)
                self.assertEqual(done[0].wait(LIMIT), 0)
                self.assertEqual(list(cards(server)), ["m", "a", "b"])
                self.assertEqual({model: complete(server, model) for model in expected}, expected)
            # The next process goes on with what the one before had begun.
            self.assertEqual(load(server, "a", self.folder("a", 1))[0], 400)
            self.assertEqual(load(server, "c", self.folder("c", 3))[0], 200)
            self.assertEqual(unload(server, "b")[0], 200)
            self.assertEqual(server.post("/v1/completions", {"model": "b", "prompt": "x"})[0], 404)
            self.assertEqual(server.command("reload").returncode, 0)
            self.assertEqual(list(cards(server)), ["m", "a", "c"])

    def test_an_unload_does_not_end_requests(self):
        with Pair("--lora-modules", f"a={self.folder('a', 1)}", *AT_RUN_TIME) as server:
            undisturbed = self.stream(server, "a", lambda n: None)
            gone = []
            self.assertEqual(self.stream(server, "a", lambda n: n == 10 and gone.append(unload(server, "a")[0])),
                             undisturbed)
            self.assertEqual(gone, [200])

    def test_a_start_that_cannot_have_its_adapters_ends_with_the_reason(self):
        bad = self.folder("bad", 1, use_dora=True)
        for flags, status, reason in (
                (("--lora-modules", f"x={bad}", *FLAGS), 3, "--lora-modules x: "),
                (("--lora-modules", "x=/nowhere", *FLAGS), 3, "No adapter found for /nowhere"),
                (("--lora-modules", "x=/nowhere", "--served-model-name", "m"), 3, "--enable-lora turns them on"),
                (("--lora-modules", "m=/nowhere", *FLAGS), 2, "m is a name of the model itself"),
                (("--lora-modules", "x", *FLAGS), 2, "--lora-modules x: must be name=path")):
            with self.subTest(reason), Pair(*flags, wait=False) as server:
                self.assertEqual(server.process.wait(LIMIT), status, server.log)
                self.assertIn(reason, server.log)


class SeveralEngines(unittest.TestCase):
    def test_a_load_in_place_changes_all_of_them_or_none(self):
        folder = Folders(self)
        roots = [folder.root / str(rank) for rank in (0, 1)]
        for root in roots:
            write_adapter(root / "a", 1)
        path = "/proc/self/cwd/a"  # of each engine another folder
        flags = (*AT_RUN_TIME, "--data-parallel-size", "2", "--data-parallel-size-local", "1", "--data-parallel-address",
                 "127.0.0.1", "--data-parallel-rpc-port", str(free_port()), "--threads", "1")
        with contextlib.ExitStack() as stack:
            with contextlib.chdir(roots[0]):
                server = stack.enter_context(Pair(*flags, wait=False))
            with contextlib.chdir(roots[1]):
                stack.enter_context(Pair(*flags, "--headless", "--data-parallel-start-rank", "1"))
            server.wait_ready()

            def texts():
                bodies = [server.post("/v1/completions", {"model": "a", "prompt": PROMPT, "max_tokens": 24, "temperature": 0,
                                                          "ignore_eos": True}, **{"X-data-parallel-rank": str(rank)})
                          for rank in (0, 1)]
                self.assertEqual([status for status, _ in bodies], [200, 200], bodies)
                return [json.loads(body)["choices"][0]["text"] for _, body in bodies]

            self.assertEqual(load(server, "a", path)[0], 200)
            before = texts()
            self.assertEqual(before[0], before[1])
            write_adapter(roots[0] / "a", 2)
            (roots[1] / "a" / "adapter_config.json").write_text("{}")
            status, body = load(server, "a", path, load_inplace=True)
            self.assertEqual(status, 400, body)
            self.assertEqual(texts(), before)
            write_adapter(roots[1] / "a", 2)
            self.assertEqual(load(server, "a", path, load_inplace=True)[0], 200)
            after = texts()
            self.assertEqual(after[0], after[1])
            self.assertNotEqual(after, before)


class OverAMockEngine(unittest.TestCase):
    """What reaches an engine of vLLM's kind."""

    def added(self, server):
        return [call[3][0] for call in server.received(3) if call[2] == "add_lora"]

    def test_requests_and_calls_have_vllms_form(self):
        with Frontend("--lora-modules", "a=/p/a", "--enable-runtime-lora", engine=("--lora",)) as server:
            self.assertEqual(self.added(server), [["a", 1, "/p/a", None, False, False]])
            client = server.client()
            client.completions.create(model="a", prompt="x", max_tokens=2, n=2)
            client.completions.create(model="m", prompt="x", max_tokens=2)
            self.assertEqual([add[6] for add in server.received(0)], [["a", 1, "/p/a", None, False, False]] * 2 + [None])
            self.assertEqual(load(server, "b", "/p/b", is_3d_lora_weight=True)[0], 200)
            self.assertEqual(load(server, "b", "/p/b2", load_inplace=True)[0], 200)
            self.assertEqual(self.added(server)[1:], [["b", 2, "/p/b", None, False, True],
                                                      ["b", 2, "/p/b2", None, True, False]])
            self.assertEqual(unload(server, "a")[0], 200)
            self.assertEqual([call[3] for call in server.received(3) if call[2] == "remove_lora"], [[1]])
            # An engine that is back is sent what is served.
            server.engine.kill()
            server.engine.wait()
            wait_for(lambda: server.get("/health")[0] == 503, "it is gone")
            self.assertEqual(load(server, "c", "/p/c")[0], 503)
            server.start_engine("--lora")
            wait_for(lambda: self.added(server) == [["b", 2, "/p/b2", None, False, False]], "it has it again")

    def test_an_engine_without_adapters(self):
        with Frontend("--enable-runtime-lora") as server:
            status, body = load(server, "a", "/p/a")
            self.assertEqual(status, 400)
            self.assertIn("--enable-lora turns them on", json.loads(body)["error"]["message"])
            self.assertNotIn("vllm:lora_requests_info{", server.get("/metrics")[1].decode())
        with Frontend("--lora-info-always") as server:
            labels, value = series(server)
            self.assertEqual(labels, {"max_lora": '"0"', "running_lora_adapters": '""', "waiting_lora_adapters": '""'})
            self.assertAlmostEqual(value, time.time(), delta=LIMIT)

    def test_bodies_that_are_wrong(self):
        with Frontend("--enable-runtime-lora", engine=("--lora",)) as server:
            for body, param in ((b"{", "body"), ({}, "body.lora_name"), ({"lora_name": "a"}, "body.lora_path"),
                                ({"lora_name": 5, "lora_path": "x"}, "body.lora_name"),
                                ({"lora_name": "a", "lora_path": "x", "load_inplace": "maybe"}, "body.load_inplace"),
                                ({"lora_name": "a" * 513, "lora_path": "x"}, "lora_name")):
                status, reply = server.post("/v1/load_lora_adapter", body)
                self.assertEqual((status, json.loads(reply)["error"]["param"]), (400, param), reply)
            self.assertEqual(server.post("/v1/unload_lora_adapter", {})[0], 400)
            self.assertEqual(self.added(server), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
