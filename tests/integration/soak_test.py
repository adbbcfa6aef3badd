#!/usr/bin/env python3
"""Many requests of every kind, with clients that leave and requests that are wrong: at the end the metrics add up, nothing
is left behind, and neither process has grown.

  TANDEM_SOAK_REQUESTS=200000 TANDEM_BIN_DIR=build/release/bin tests/integration/soak_test.py

Prompts come from a small set, so that all caches are full long before the memory is measured.
"""
import collections
import http.client
import json
import os
import pathlib
import random
import re
import statistics
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from histogram_counts import check_histogram_counts
from pair import LIMIT, Pair, bin_dir, wait_for

NUM_REQUESTS = int(os.environ.get("TANDEM_SOAK_REQUESTS", 5000))
NUM_CLIENTS = 8
NUM_SAMPLES = 60      # of the memory, over the whole run
WARM = 0.5            # the share of the run before memory counts
NOISE_BYTES = 1 << 20  # what the allocator may add at any time
MAX_RUNS = 4           # a leak shows in each; heaps that reach a new plateau once do not
WORDS = "the little fox went over a hill to find some water and met an old bear".split()
PROMPTS = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
ENDS = {"end_turn": "stop", "max_tokens": "length", "completed": "stop", "incomplete": "length"}


class Tally:
    """What the clients saw of all responses."""

    def __init__(self):
        self.lock = threading.Lock()
        self.statuses = collections.Counter()
        self.finishes = collections.Counter()
        self.prompt_tokens = self.output_tokens = self.num_tokenized = 0
        self.left_running = self.left = 0  # clients that left a stream that had begun; that left at all

    def finished(self, finishes, prompt_tokens, output_tokens):
        with self.lock:
            self.finishes.update(finishes)
            self.prompt_tokens += prompt_tokens * len(finishes)  # each choice is an engine request
            self.output_tokens += output_tokens

    def status(self, path, status):
        with self.lock:
            self.statuses[status] += 1
            self.num_tokenized += path == "/tokenize" and status == 200

    def gone(self, is_running):
        with self.lock:
            self.left += 1
            self.left_running += is_running


class Client:
    def __init__(self, server, tally, dice):
        self.tally, self.dice = tally, dice
        self.port = int(server.port_file.read_text())
        self.connection = None

    def send(self, path, body, headers=None, method="POST"):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})

    def ask(self, path, body, headers=None, method="POST"):
        self.send(path, body, headers, method)
        reply = self.connection.getresponse()
        text = reply.read()
        self.tally.status(path, reply.status)
        return reply.status, text

    def leave(self, is_running):
        self.connection.close()
        self.connection = None
        self.tally.gone(is_running)

    # ---- Kinds of requests ----

    def fields(self, **more):
        return {"model": "m", "max_tokens": self.dice.randrange(1, 9), "temperature": self.dice.choice((0, 1)), **more}

    def chat(self, **more):
        return self.fields(messages=[{"role": "user", "content": self.dice.choice(PROMPTS)}], **more)

    def completion(self, **more):
        return self.fields(prompt=self.dice.choice(PROMPTS), **more)

    def count(self, status, text):
        assert status == 200, text
        body = json.loads(text)
        usage = body["usage"]
        self.tally.finished([choice["finish_reason"] for choice in body["choices"]], usage["prompt_tokens"],
                            usage["completion_tokens"])

    def whole(self):
        self.count(*self.ask("/v1/completions", self.completion(
            temperature=1, n=self.dice.choice((1, 1, 3)), logprobs=self.dice.choice((None, 3)), stop=self.dice.choice((None, [" a", "e"])))))

    def whole_chat(self):
        self.count(*self.ask("/v1/chat/completions", self.chat(
            min_p=self.dice.choice((0, 0.1)), presence_penalty=self.dice.choice((0, 1)), logprobs=True, top_logprobs=2)))

    def streamed(self):
        path, body = self.dice.choice((("/v1/chat/completions", self.chat), ("/v1/completions", self.completion)))
        status, text = self.ask(path, body(stream=True, stream_options={"include_usage": True}))
        assert status == 200 and text.endswith(b"data: [DONE]\n\n"), text
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith(b"data: {")]
        finishes = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
        usage = events[-1]["usage"]
        self.tally.finished(finishes, usage["prompt_tokens"], usage["completion_tokens"])

    def messages(self):
        status, text = self.ask("/v1/messages", self.chat())
        assert status == 200, text
        body = json.loads(text)
        self.tally.finished([ENDS.get(body["stop_reason"], "stop")], body["usage"]["input_tokens"],
                            body["usage"]["output_tokens"])

    def response(self):
        body = {"model": "m", "input": self.dice.choice(PROMPTS), "max_output_tokens": 4, "store": True}
        status, text = self.ask("/v1/responses", body)
        assert status == 200, text
        body = json.loads(text)
        self.tally.finished([ENDS[body["status"]]], body["usage"]["input_tokens"], body["usage"]["output_tokens"])

    def constrained(self):
        constraint = self.dice.choice(({"choice": ["yes", "no"]}, {"regex": "[0-9]{1,3}"}, {"json_object": True}))
        self.count(*self.ask("/v1/completions", self.completion(structured_outputs=constraint)))

    def expired(self):
        status, text = self.ask("/v1/completions", self.completion() | {"max_tokens": 400, "ignore_eos": True},
                                {"X-Request-Timeout": "0.02"})
        if status == 200:
            self.count(status, text)
        else:
            assert status == 504, text
            self.tally.gone(False)

    def leave_a_stream(self):
        self.send("/v1/completions", self.completion() | {"max_tokens": 1500, "ignore_eos": True, "stream": True})
        self.connection.getresponse().readline()
        self.leave(True)

    def leave_at_once(self):
        self.send("/v1/chat/completions", self.chat() | {"max_tokens": 1500, "ignore_eos": True})
        self.leave(False)

    def wrong(self):
        body, statuses = self.dice.choice((
            (b"{", (400,)), (b'{"prompt": "\xff"}', (400,)), (self.completion(temperature=-1), (400,)),
            (self.completion() | {"model": "nobody"}, (404,)), (self.completion() | {"prompt": [10**9]}, (400,)),
            (self.completion() | {"prompt": "word " * 20000}, (400,)), (self.completion(logit_bias={"-1": 3}), (400,)),
            (self.completion(structured_outputs={"regex": "("}), (400,)), (self.completion(n=10**9), (400,))))
        status, text = self.ask("/v1/completions", body)
        assert status in statuses, text

    def other(self):
        path, body, method = self.dice.choice((
            ("/tokenize", {"prompt": self.dice.choice(PROMPTS)}, "POST"), ("/v1/models", b"", "GET"),
            ("/metrics", b"", "GET"), ("/nowhere", b"", "GET"), ("/v1/completions", b"", "GET")))
        self.ask(path, body, method=method)


KINDS = [Client.whole, Client.whole, Client.whole_chat, Client.streamed, Client.streamed, Client.messages, Client.response,
         Client.expired, Client.leave_a_stream, Client.leave_at_once, Client.wrong, Client.wrong, Client.other, Client.other]
COMPLETE_KINDS = [Client.whole, Client.whole_chat, Client.streamed, Client.messages, Client.response]


def resident_bytes(pid):
    """Of a process and all that it started; a process of a grammar may end meanwhile. Without shared memory: its size is
    fixed, and the pages of the flight recorder's ring come one by one."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    own = sum(int(number) * 1024 for number in re.findall(r"Rss(?:Anon|File):\s+(\d+)", status))
    return own + sum(map(resident_bytes, pair.children(pid).values()))


def growth(samples):
    """(bytes that the trend adds from the first to the last sample, what the samples scatter around it)."""
    slope, base = statistics.linear_regression(range(len(samples)), samples)
    scatter = statistics.pstdev(value - base - slope * i for i, value in enumerate(samples))
    return slope * (len(samples) - 1), scatter


class Soak(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"TANDEM_SEED={self.seed}")
        self.kinds = KINDS + ([Client.constrained] if (bin_dir() / "tandem-grammar").exists() else [])

    def run_clients(self, server, tally, kinds, num_requests, on_sample=None):
        left, errors, lock = [num_requests], [], threading.Lock()
        every = max(1, num_requests // NUM_SAMPLES)

        def run(number):
            client = Client(server, tally, random.Random(f"{self.seed} {number}"))
            while not errors:
                with lock:
                    if left[0] == 0:
                        break
                    left[0] -= 1
                    if on_sample and left[0] % every == 0:
                        on_sample()
                try:
                    client.dice.choice(kinds)(client)
                except (AssertionError, OSError, ValueError, http.client.HTTPException) as error:
                    errors.append(error)
            if client.connection is not None:
                client.connection.close()
        threads = [threading.Thread(target=run, args=(i,)) for i in range(NUM_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])

    def check_counts(self, server, tally):
        def ended(reason):
            return server.total("vllm:request_success_total", finished_reason=reason)
        for reason in ("stop", "length"):
            self.assertEqual(ended(reason), tally.finishes[reason], reason)
        self.assertEqual(ended("error"), 0)
        check_histogram_counts(self, server, ended("abort"))
        # An output is one token: there are no drafts, and no calls whose beginning is known.
        outputs = [server.total(f"vllm:{name}_seconds_count") for name in ("time_to_first_token", "inter_token_latency")]
        self.assertEqual(sum(outputs), server.total("vllm:generation_tokens_total"))
        # Aborted requests leave no sample, so the rest is what the responses reported.
        self.assertEqual(server.total("vllm:request_generation_tokens_sum"), tally.output_tokens)
        self.assertEqual(server.total("vllm:request_prompt_tokens_sum"), tally.prompt_tokens)
        # Who left a stream did it while it ran; who left earlier may have been gone before the engine was asked.
        self.assertLessEqual(tally.left_running, ended("abort"))
        self.assertLessEqual(ended("abort"), tally.left)
        self.assertEqual(server.total("http_requests_total", handler="/tokenize"), tally.num_tokenized)
        self.assertEqual(tally.statuses[500], 0)

    def check_exact_counters(self, server):
        """Without clients that leave, the counters of tokens themselves are the sums of usage."""
        names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
        before = [server.total(name) for name in names]
        tally = Tally()
        self.run_clients(server, tally, COMPLETE_KINDS, 200)
        self.assertEqual([server.total(name) - value for name, value in zip(names, before)],
                         [tally.prompt_tokens, tally.output_tokens])

    def test_metrics_add_up_and_memory_does_not_grow(self):
        with Pair("--served-model-name", "m", "--kv-cache-memory-bytes", "8M", "--api-server-count", 2,
                  "--enable-responses-api-store", "--max-stored-responses", 20, "--log-level", "WARNING") as server:
            pids = {name: server.pid_of(name) for name in ("tandem-frontend", "tandem-engine-core")}
            tally = Tally()
            # The processes' heaps grow in steps, the last ones late: a run with too much growth is repeated. What grows with
            # the requests grows in all runs.
            for _ in range(MAX_RUNS):
                grown = self.run_and_measure(server, tally, pids)
                if not grown:
                    break
            for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
                wait_for(lambda: server.total(gauge) == 0, f"{gauge} back at 0")
            print(dict(tally.statuses), dict(tally.finishes), f"left {tally.left}, {tally.left_running} of them a stream")
            self.check_counts(server, tally)
            self.check_exact_counters(server)
            self.assertEqual(grown, [])
            self.assertEqual({name: server.pid_of(name) for name in pids}, pids)

    def run_and_measure(self, server, tally, pids):
        """The processes of which more than noise was added by NUM_REQUESTS requests."""
        samples = {name: [] for name in pids}

        def sample():
            for name, pid in pids.items():
                samples[name].append(resident_bytes(pid))
        self.run_clients(server, tally, self.kinds, NUM_REQUESTS, sample)
        too_much = []
        for name, values in samples.items():
            grown, scatter = growth(values[int(WARM * len(values)):])
            print(f"{name}: {values[0] / 1e6:.1f} MB at first, {values[-1] / 1e6:.1f} MB at last, trend after "
                  f"{WARM:.0%} of {NUM_REQUESTS} requests {grown / 1e3:+.0f} kB, scatter {scatter / 1e3:.0f} kB")
            if grown >= max(NOISE_BYTES, 3 * scatter):
                too_much.append(name)
        return too_much


if __name__ == "__main__":
    unittest.main(verbosity=2)
