#!/usr/bin/env python3
"""One frontend takes over from another under a mixed load: no connection is refused, and every response equals that of an
undisturbed run. TANDEM_RELOADS sets the number of reloads (20); TANDEM_SEED repeats a run's choices."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from mixed_load import Answer, Load, check_equal_to_undisturbed
from pair import LIMIT, MODEL, Pair, bin_dir, child_processes, free_port, is_alive, programs_with_engine, wait_for
from server import Server

NUM_RELOADS = int(os.environ.get("TANDEM_RELOADS", "20"))
FLAGS = ("--served-model-name", "m", "--kv-cache-memory-bytes", "32M")
SHORT = {"model": "m", "prompt": "Once", "max_tokens": 4, "temperature": 0}
LONG = {"model": "m", "prompt": "Once", "max_tokens": 40, "ignore_eos": True, "temperature": 0, "stream": True}


class Knocking(threading.Thread):
    """Short requests one after another. reuses: over one connection for as long as the server keeps it."""

    def __init__(self, server, reuses):
        super().__init__()
        self.server, self.reuses = server, reuses
        self.is_over = threading.Event()
        self.num_served, self.failures = 0, []
        self.start()

    def run(self):
        connection = self.server.connect()
        while not self.is_over.is_set():
            try:
                connection.request("POST", "/v1/completions", json.dumps(SHORT), {"Content-Type": "application/json"})
                reply = connection.getresponse()
                body = reply.read()
                if reply.status != 200:
                    self.failures.append((reply.status, body))
                self.num_served += 1
                if self.reuses and not reply.will_close:
                    continue
            except OSError as error:
                self.failures.append(repr(error))
            except http.client.HTTPException as error:
                self.failures.append(repr(error))
            connection.close()
            connection = self.server.connect()
        connection.close()

    def stop(self):
        self.is_over.set()
        self.join(LIMIT)
        assert not self.is_alive(), "a short request does not end"
        return self.failures


class Scraping(threading.Thread):
    """Reads /metrics all the time: no counter may fall. keeps: over one connection for as long as the server keeps it."""

    def __init__(self, server, keeps):
        super().__init__()
        self.server, self.keeps = server, keeps
        self.is_over = threading.Event()
        self.num_pages, self.failures = 0, []
        self.start()

    def run(self):
        connection, before = self.server.connect(), {}
        while not self.is_over.is_set():
            connection.request("GET", "/metrics")
            page = counters(connection.getresponse().read().decode())
            if not self.keeps:
                connection.close()  # the next request opens another one
            self.failures += [f"{name}: {before[name]}, then {page.get(name)}" for name in before
                              if page.get(name, 0) < before[name]]
            before = page
            self.num_pages += 1
        connection.close()

    def stop(self):
        self.is_over.set()
        self.join(LIMIT)
        assert not self.is_alive(), "a page does not come"
        return self.failures


def counters(page):
    """{series: value} of the counters and histograms on a page, apart from those of processes."""
    found, kind = {}, ""
    for line in page.splitlines():
        if line.startswith("# TYPE"):
            kind = line.rsplit(" ", 1)[1]
        elif kind in ("counter", "histogram", "summary") and "process_cpu" not in line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            found[series] = float(value)
    return found


class UnderLoad(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"TANDEM_SEED={self.seed}")
        self.dice = random.Random(self.seed)

    def reload_under_load(self, pair):
        load, reloads = Load(pair, self.dice, always_takes=True), []
        for i in range(NUM_RELOADS):
            target = load.num_events() + self.dice.randrange(1, 400)
            wait_for(lambda: load.num_events() >= target, "events arrive")
            reload = subprocess.Popen(pair.command_line("reload"), env=pair.environment, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
            reloads.append(reload)
            # Requests end and begin meanwhile. The next reload may come before the one before has ended its own.
            wait_for(lambda: load.num_events() is not None
                     and (reload.poll() is not None or pair.log.count("] serving") > i), "another one serves")
        answers = load.finish()
        for reload in reloads:
            text = reload.communicate(timeout=LIMIT)[0]
            self.assertEqual(reload.returncode, 0, text)
            self.assertIn("has taken over", text)
        self.assertEqual(len(frontends(pair)), 1)
        return answers

    def check_counters(self, pair, answers, num_short):
        """The page of the last frontend has what all of them served."""
        tokens = [(*answer.result["tokens"], answer.body.get("n", 1)) for answer in answers]
        prompt = sum(prompt * n for prompt, _, n in tokens)
        output = sum(output for _, output, _ in tokens)
        output += num_short * SHORT["max_tokens"]
        for series in ("vllm:generation_tokens_total", "vllm:request_generation_tokens_sum"):
            wait_for(lambda: pair.total(series) >= output, f"the counts of all: {pair.total(series)} of {output}")
            self.assertEqual(pair.total(series), output)
        self.assertGreater(pair.total("vllm:prompt_tokens_total"), prompt)
        num_completions = num_short + sum(answer.path == "/v1/completions" for answer in answers)
        wait_for(lambda: pair.total("http_requests_total", handler="/v1/completions", status="2xx") == num_completions,
                 f"{num_completions} completions are counted")

    def test_every_response_equals_that_of_an_undisturbed_run(self):
        with Pair(*FLAGS, "--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1",
                  "--api-server-count", "2") as pair:
            engine = pair.pid_of("tandem-engine-core")
            knocking = [Knocking(pair, reuses) for reuses in (False, True)]
            scraping = [Scraping(pair, keeps) for keeps in (False, True)]
            try:
                answers = self.reload_under_load(pair)
            finally:
                failures = [failure for each in knocking + scraping for failure in each.stop()]
            self.assertEqual(failures, [])
            self.assertGreater(min(each.num_pages for each in scraping), NUM_RELOADS)
            self.check_counters(pair, answers, sum(each.num_served for each in knocking))
            self.assertGreater(min(each.num_served for each in knocking), NUM_RELOADS)
            print(f"{len(answers)} responses to compare, {sum(each.num_served for each in knocking)} short requests")
            for answer in answers:
                self.assertEqual(answer.status, 200, answer.result)
            check_equal_to_undisturbed(self, pair, answers)
            self.assertEqual(pair.pid_of("tandem-engine-core"), engine)
            for series in ("tandem:engine_restarts_total", "tandem:requests_resumed_total"):
                self.assertEqual(pair.total(series), 0, series)


class Together(unittest.TestCase):
    """A stream stays with the frontend that has it while other things happen."""
    # Longer than the model's, so that a stream of 9,000 tokens does not end while the test runs.
    CONTEXT = ("--max-model-len", 10000, "--hf-overrides", '{"max_position_embeddings": 10000}')

    def setUp(self):
        self.pair = Pair(*FLAGS, *self.CONTEXT)
        self.addCleanup(lambda: self.pair.__exit__(None))
        self.expected = Answer(self.pair, "/v1/completions", LONG).wait()
        self.old = self.pair.pid_of("tandem-frontend")
        self.stream = Answer(self.pair, "/v1/completions", {**LONG, "max_tokens": 9000})
        wait_for(lambda: self.stream.num_events > 3, "the stream has begun")

    def begin_reload(self, *flags):
        """A `tandem reload` whose new frontend serves; it still waits for the end of the one before."""
        reload = subprocess.Popen(self.pair.command_line("reload", *flags), env=self.pair.environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(reload.stdout.close)
        text = ""
        while "has taken over" not in text:
            line = reload.stdout.readline()
            self.assertTrue(line, text)
            text += line
        self.assertTrue(is_alive(self.old))
        return reload

    def goes_on(self):
        events = self.stream.num_events
        wait_for(lambda: self.stream.num_events > events + 3, "the stream goes on")

    def check_new(self):
        self.assertEqual(Answer(self.pair, "/v1/completions", LONG).wait(), self.expected)

    def finish(self, reload):
        self.goes_on()
        text = self.stream.leave()["choices"][0]["text"]
        self.assertEqual(reload.wait(LIMIT), 0)
        self.assertFalse(is_alive(self.old))
        undisturbed = Answer(self.pair, "/v1/completions", {**LONG, "max_tokens": self.stream.num_events + 5}).wait()
        self.assertGreater(len(text), 10)
        self.assertEqual(undisturbed["choices"][0]["text"][:len(text)], text)

    def kill_engine(self):
        before = self.pair.pid_of("tandem-engine-core")
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: self.pair.pid_of("tandem-engine-core") not in (None, before), "it is started again")

    def test_an_engine_that_dies_just_after_a_reload(self):
        reload = self.begin_reload()
        self.kill_engine()
        self.goes_on()
        wait_for(lambda: self.pair.get("/health")[0] == 200, "the new frontend has met it")
        self.check_new()
        self.finish(reload)
        self.assertEqual(self.pair.total("tandem:engine_restarts_total"), 1)

    def test_a_reload_and_then_a_swap(self):
        reload = self.begin_reload()
        swapped = self.pair.command("swap")
        self.assertEqual(swapped.returncode, 0, swapped.stdout + swapped.stderr)
        self.goes_on()
        self.check_new()
        self.finish(reload)
        self.assertEqual(self.pair.total("tandem:engine_swaps_total"), 1)

    def test_a_swap_and_then_a_reload(self):
        swapped = self.pair.command("swap")
        self.assertEqual(swapped.returncode, 0, swapped.stdout + swapped.stderr)
        reload = self.begin_reload()
        self.kill_engine()
        self.goes_on()
        self.check_new()
        self.finish(reload)

    def test_a_reload_and_another_one(self):
        first = self.begin_reload()
        second = self.begin_reload("--served-model-name", "m", "again")
        self.assertEqual(json.loads(self.pair.get("/v1/models")[1])["data"][1]["id"], "again")
        self.assertEqual(second.wait(LIMIT), 0)  # the second frontend had nothing left to do
        self.kill_engine()
        self.goes_on()
        self.check_new()
        self.finish(first)

    def test_the_end_of_the_server_ends_both(self):
        reload = self.begin_reload()
        both = frontends(self.pair)
        self.assertEqual(len(both), 2)
        self.assertEqual(self.pair.stop(), 0)
        self.assertFalse(any(map(is_alive, both)))
        self.assertIn("shutting down", json.dumps(self.stream.wait()))
        self.assertEqual(reload.wait(LIMIT), 0)

    def test_the_new_frontend_dies_and_is_started_again(self):
        reload = self.begin_reload()
        (new,) = frontends(self.pair) - {self.old}
        os.kill(new, signal.SIGKILL)
        wait_for(lambda: self.pair.get("/health")[0] == 200, "another one serves")
        self.goes_on()
        self.check_new()
        self.finish(reload)

    def test_metrics_go_on_and_show_the_engine(self):
        self.assertEqual(self.pair.total("vllm:request_success_total"), 1)
        reload = self.begin_reload()
        self.assertEqual(self.pair.total("vllm:request_success_total"), 1)
        wait_for(lambda: self.pair.total("vllm:num_requests_running") == 1, "the old frontend's request is shown")
        self.check_new()
        self.assertEqual(self.pair.total("vllm:request_success_total"), 2)
        self.finish(reload)
        wait_for(lambda: self.pair.total("vllm:num_requests_running") == 0, "nothing runs")


class FatalRequest(unittest.TestCase):
    """A request ends its engine each time (tests/support/engine_fault.cc) while two frontends serve, and takes nobody of either
    with it."""
    FATAL_TOKEN = 77

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="reload-", dir=bin_dir())
        self.addCleanup(folder.cleanup)
        self.pair = Pair(*FLAGS, "--server-dev-mode", "--enable-server-load-tracking",
                         programs=programs_with_engine(folder.name, "faulty/faulty-engine"))
        self.addCleanup(lambda: self.pair.__exit__(None))

    def begin(self, bodies):
        answers = [Answer(self.pair, "/v1/completions", body) for body in bodies]
        wait_for(lambda: json.loads(self.pair.get("/load")[1])["server_load"] == len(bodies), "the frontend has them")
        return answers

    def check(self, *, is_old):
        long = {"model": "m", "prompt": [5, 6, 7], "max_tokens": 300, "temperature": 1, "ignore_eos": True, "stream": True}
        bodies = [{**long, "seed": seed} for seed in range(6)]
        fatal = {**long, "prompt": [5, 6, self.FATAL_TOKEN]}
        expected = [Answer(self.pair, "/v1/completions", body).wait() for body in bodies]
        self.assertEqual(self.pair.post("/pause?mode=keep", b"")[0], 200)  # until all are there
        of_old = self.begin(bodies[:3] + [fatal] * is_old)
        reload = subprocess.Popen(self.pair.command_line("reload"), env=self.pair.environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(reload.kill)
        self.pair.wait_for_log("] serving")
        of_new = self.begin(bodies[3:] + [fatal] * (not is_old))
        self.assertEqual(self.pair.post("/resume", b"")[0], 200)
        answers = of_old + of_new
        (cause,) = [answer for answer in answers if answer.body is fatal]
        answers.remove(cause)
        self.assertEqual(cause.wait()["error"]["code"], 500, cause.result)
        self.assertEqual([answer.wait() for answer in answers], expected)
        self.assertEqual(reload.wait(LIMIT), 0)
        self.assertEqual(self.pair.log.count("request refused"), 1)

    def test_of_the_old_frontend(self):
        self.check(is_old=True)

    def test_of_the_new_frontend(self):
        self.check(is_old=False)


def frontends(pair):
    """The process ids of all frontends."""
    return {pid for pid, words in child_processes(pair.process.pid).items() if "tandem-frontend" in words[0]}


class Command(unittest.TestCase):
    def complete(self, pair):
        status, body = pair.post("/v1/completions", SHORT)
        self.assertEqual(status, 200, body)
        return json.loads(body)["choices"][0]

    def refused(self, pair, status, text, *words):
        before = frontends(pair)
        run = pair.command("reload", *words)
        self.assertEqual(run.returncode, status, run.stdout + run.stderr)
        self.assertIn(text, run.stderr)
        self.assertEqual(frontends(pair), before)
        self.complete(pair)

    def test_what_cannot_serve_leaves_the_old_frontend_serving(self):
        with Pair(*FLAGS) as pair, socket.create_server(("127.0.0.1", 0)) as other:
            self.refused(pair, 2, "did you mean --served-model-name?", "--served-model-nam", "x")
            self.refused(pair, 2, "--api-server-count is", "--api-server-count", 0)
            self.refused(pair, 2, "--max-num-seqs is the engine core's", "--max-num-seqs", 1)
            self.refused(pair, 2, "--handshake-address: ", "--handshake-address", "ipc:///tmp/x/y")
            self.refused(pair, 2, "/no/such: No such file", "--settings-file", "/no/such")
            self.refused(pair, 3, "no such folder", "--model", "/no/such")
            self.refused(pair, 3, "no/such", "--chat-template", "no/such")
            self.refused(pair, 1, "its address stays", "--port", other.getsockname()[1])
            self.refused(pair, 1, "its address stays", "--uds", pair.folder.name + "/http")
            # Engines that start find the old one.
            os.kill(pair.pid_of("tandem-engine-core"), signal.SIGKILL)
            wait_for(lambda: pair.total("tandem:engine_restarts_total") == 1, "it is started again")
            self.complete(pair)

    def test_flags_stay_until_they_are_changed(self):
        with Pair("--served-model-name", "m", "--api-key", "secret-a") as pair:
            key = {"Authorization": "Bearer secret-a"}
            self.assertEqual(pair.command("reload", "--served-model-name", "n").returncode, 0)
            self.assertEqual(json.loads(pair.get("/v1/models", **key)[1])["data"][0]["id"], "n")
            self.assertEqual(pair.get("/v1/models")[0], 401)
            self.assertEqual(pair.command("reload", "--api-key", "secret-b").returncode, 0)
            self.assertEqual(pair.get("/v1/models", **key)[0], 401)
            os.kill(pair.pid_of("tandem-frontend"), signal.SIGKILL)
            wait_for(lambda: pair.get("/health")[0] == 200, "it is started again")
            models = pair.get("/v1/models", Authorization="Bearer secret-b")[1]
            self.assertEqual(json.loads(models)["data"][0]["id"], "n")
            for pid in (pair.process.pid, pair.pid_of("tandem-frontend")):
                for name in ("cmdline", "environ"):
                    self.assertNotIn(b"secret", pathlib.Path(f"/proc/{pid}/{name}").read_bytes())

    def test_a_signal_does_the_same(self):
        with Pair(*FLAGS) as pair:
            for target in ("command", "frontend"):
                with self.subTest(target):
                    before = pair.pid_of("tandem-frontend")
                    os.kill(pair.process.pid if target == "command" else before, signal.SIGUSR2)
                    wait_for(lambda: frontends(pair) and not is_alive(before), "another one serves")
                    self.complete(pair)
            self.assertEqual(pair.stop(), 0)

    def stand_by(self, pair):
        """A reload whose new frontend waits for the engine, which is stopped: (command, pid)."""
        engine = pair.pid_of("tandem-engine-core")
        os.kill(engine, signal.SIGSTOP)
        self.addCleanup(lambda: is_alive(engine) and os.kill(engine, signal.SIGCONT))
        reload = subprocess.Popen(pair.command_line("reload"), env=pair.environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(reload.communicate)
        line = reload.stdout.readline()
        self.assertIn("is starting", line)
        wait_for(lambda: "standing by" in pair.log, "it stands by")
        return reload, int(line.split()[1]), lambda: os.kill(engine, signal.SIGCONT)

    def test_a_frontend_that_dies_before_it_serves(self):
        with Pair(*FLAGS) as pair:
            before = pair.pid_of("tandem-frontend")
            reload, new, let_go = self.stand_by(pair)
            os.kill(new, signal.SIGKILL)
            self.assertEqual(reload.wait(LIMIT), 137)
            let_go()
            self.complete(pair)
            self.assertEqual(frontends(pair), {before})
            self.assertEqual(pair.command("reload").returncode, 0)
            self.complete(pair)

    def test_the_end_of_the_command_takes_the_reload_back(self):
        with Pair(*FLAGS) as pair:
            reload, new, let_go = self.stand_by(pair)
            reload.kill()
            wait_for(lambda: not is_alive(new), "the new frontend is gone")
            let_go()
            self.complete(pair)

    def test_a_frontend_that_dies_while_its_successor_stands_by_is_succeeded(self):
        with Pair(*FLAGS) as pair:
            reload, new, let_go = self.stand_by(pair)
            (before,) = frontends(pair) - {new}
            os.kill(before, signal.SIGKILL)
            let_go()
            self.assertEqual(reload.wait(LIMIT), 0)
            self.complete(pair)
            self.assertEqual(frontends(pair), {new})


class ByHand(unittest.TestCase):
    """Without `tandem serve` the frontend starts the next one itself."""

    def next_pid(self, server):
        """Of the frontend that serves after a SIGUSR2, once the one before has ended."""
        found = wait_for(lambda: re.findall(r"process (\d+) serves", server.log_text()), "another one serves")
        return int(found[-1])

    def reload(self, server):
        """Returns the process id of the next frontend, which ends with the test."""
        server.frontend.send_signal(signal.SIGUSR2)
        self.assertEqual(server.frontend.wait(LIMIT), 0)
        new = self.next_pid(server)
        self.addCleanup(lambda: is_alive(new) and os.kill(new, signal.SIGKILL))
        self.assertEqual(server.ask("POST", "/v1/completions", SHORT)[0], 200)
        return new

    def test_a_new_program_at_the_same_path(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder)
            for program in ("tandem-frontend", "tandem-engine-core", "tandem-grammar"):
                shutil.copy(bin_dir() / program, programs)
            with Server(programs=programs) as server:
                shutil.copy(bin_dir() / "tandem-frontend", programs / "new")
                os.replace(programs / "new", programs / "tandem-frontend")
                self.assertTrue(os.readlink(f"/proc/{server.frontend.pid}/exe").endswith(" (deleted)"))
                new = self.reload(server)
                self.assertEqual(os.readlink(f"/proc/{new}/exe"), str(programs / "tandem-frontend"))
                # The next one, too, can be replaced.
                os.kill(new, signal.SIGUSR2)
                wait_for(lambda: not is_alive(new), "it has ended")
                self.assertNotEqual(self.next_pid(server), new)
                self.assertEqual(server.ask("POST", "/v1/completions", SHORT)[0], 200)
                os.kill(self.next_pid(server), signal.SIGKILL)

    def test_systemd_gets_the_new_main_process(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(folder + "/notify")
            notify.settimeout(LIMIT)
            # Full, and read late: nobody waits for room, and what matters arrives.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler, contextlib.suppress(BlockingIOError):
                filler.setblocking(False)
                while True:
                    filler.sendto(b"STATUS=full", folder + "/notify")
            # As a unit's main process has it.
            lines = []
            with Server(environment={"NOTIFY_SOCKET": folder + "/notify", "WATCHDOG_USEC": "60000000"}) as server:
                server.frontend.send_signal(signal.SIGUSR2)
                new = self.next_pid(server)
                self.addCleanup(lambda: is_alive(new) and os.kill(new, signal.SIGKILL))
                while f"MAINPID={new}" not in lines:
                    lines.extend(notify.recv(4096).decode().split("\n"))
                self.assertEqual(server.frontend.wait(LIMIT), 0)
                self.assertIn("READY=1", lines)
                self.assertNotIn("STOPPING=1", lines)

    def test_keys_are_passed_on_unseen(self):
        with Server("--api-key", "secret-a", "secret-b", environment={"VLLM_API_KEY": "secret-c"}) as server:
            server.frontend.send_signal(signal.SIGUSR2)
            self.assertEqual(server.frontend.wait(LIMIT), 0)
            new = self.next_pid(server)
            self.addCleanup(lambda: is_alive(new) and os.kill(new, signal.SIGKILL))
            for key, status in (("secret-a", 200), ("secret-b", 200), ("secret-c", 401)):
                self.assertEqual(server.ask("GET", "/v1/models", Authorization=f"Bearer {key}")[0], status)
            for name in ("cmdline", "environ"):
                self.assertNotIn(b"secret", pathlib.Path(f"/proc/{new}/{name}").read_bytes())

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = (pathlib.Path(folder, name) for name in ("cert.pem", "key.pem"))
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
                            "/CN=localhost", "-keyout", key, "-out", certificate], check=True, capture_output=True)
            with Server("--ssl-certfile", certificate, "--ssl-keyfile", key) as server:
                knocking = Knocking(server, reuses=True)
                self.reload(server)
                self.assertEqual(knocking.stop(), [])

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/http"

            class OverUnix(http.client.HTTPConnection):
                def connect(self):
                    self.sock = socket.socket(socket.AF_UNIX)
                    self.sock.settimeout(LIMIT)
                    self.sock.connect(path)

            class UnixServer(Server):
                def connect(self):
                    return OverUnix("localhost")

            with UnixServer("--uds", path) as server:
                knocking = Knocking(server, reuses=False)
                new = self.reload(server)
                self.assertEqual(knocking.stop(), [])
                os.kill(new, signal.SIGTERM)
                wait_for(lambda: not is_alive(new), "it ends")
                self.assertFalse(os.path.exists(path))

    def test_two_engines(self):
        with Server(num_engines=2) as server:
            self.reload(server)
            for index in (0, 1):
                server.restart_engine(index)
            wait_for(lambda: server.total("tandem:engine_restarts_total") == 2, "they are back")
            self.assertEqual(server.ask("POST", "/v1/completions", SHORT)[0], 200)

    def test_engines_over_tcp_stay_with_their_frontend(self):
        port = free_port()

        class OverTcp(Server):
            def run(self, program, *flags):
                self.handshake = f"tcp://127.0.0.1:{port}"
                return super().run(program, *flags)

        with OverTcp() as server:
            server.frontend.send_signal(signal.SIGUSR2)
            wait_for(lambda: "only frontends that meet their engines at an ipc://" in server.log_text(), "it is refused")
            self.assertEqual(server.ask("POST", "/v1/completions", SHORT)[0], 200)
            run = subprocess.run([str(bin_dir() / "tandem-frontend"), str(MODEL), "--take-over", "--handshake-address",
                                  server.handshake], capture_output=True, text=True, timeout=LIMIT)
            self.assertEqual(run.returncode, 1)
            self.assertIn("--take-over: only frontends", run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
