#!/usr/bin/env python3
"""Sampling through the API over a real pair: what each field does to an answer, the four logprobs modes,
load reports, timings, and metrics that agree with usage."""
import http.client
import json
import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import LIMIT, Pair, wait_for

FLAGS = ("--served-model-name", "m", "--max-model-len", "1024", "--kv-cache-memory-bytes", str(32 << 20))
VOCAB = 3072
LOWEST = -9999.0


def ask(server, path="/v1/completions", **fields):
    body = {"model": "m", "max_tokens": 8, "temperature": 0, **fields}
    if path == "/v1/completions":
        body.setdefault("prompt", "Once upon a time")
    status, reply = server.post(path, body)
    assert status == 200, reply
    return json.loads(reply)


def first_row(server, **fields):
    """{token id: number} of the first position, the whole vocabulary, and the drawn token."""
    answer = ask(server, max_tokens=1, logprobs=-1, return_tokens_as_token_ids=True, return_token_ids=True, **fields)
    choice = answer["choices"][0]
    row = {int(name.split(":")[1]): value for name, value in choice["logprobs"]["top_logprobs"][0].items()}
    assert len(row) == VOCAB
    return row, choice["token_ids"][0]


def log_softmax(row):
    most = max(row.values())
    total = math.log(sum(math.exp(value - most) for value in row.values() if value != LOWEST)) + most
    return {token: value if value == LOWEST else value - total for token, value in row.items()}


class Modes(unittest.TestCase):
    FIELDS = {"temperature": 0.5, "seed": 5, "top_k": 20, "logit_bias": {"335": 3.0}, "bad_words": ["."],
              "allowed_token_ids": list(range(200, 900))}

    def assertRowsAlmostEqual(self, found, expected):
        for token, value in expected.items():
            self.assertAlmostEqual(found[token], value, delta=2e-3, msg=f"token {token}")

    def test_the_four_modes_say_what_follows_from_the_logits(self):
        rows = {}
        for mode in ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"):
            with Pair(*FLAGS, "--max-logprobs", "-1", "--logprobs-mode", mode) as server:
                rows[mode] = first_row(server, **self.FIELDS)
                prompt = ask(server, prompt_logprobs=0, max_tokens=1)["choices"][0]["prompt_logprobs"][1:]
                rows[mode] += ([next(iter(entry.values()))["logprob"] for entry in prompt],)
        logits = rows["raw_logits"][0]
        self.assertRowsAlmostEqual(rows["raw_logprobs"][0], log_softmax(logits))

        expected = {token: value / 0.5 if 200 <= token < 900 else LOWEST for token, value in logits.items()}
        expected[335] += 3.0 / 0.5
        processed = rows["processed_logits"][0]
        banned = [token for token in range(200, 900) if processed[token] == LOWEST]
        kept = sorted((token for token in processed if processed[token] != LOWEST), key=expected.get)
        self.assertEqual(len(kept), 20)
        for token in kept:
            self.assertAlmostEqual(processed[token], expected[token], delta=2e-3)
        # What is missing is below the kept ones, but for the bad word.
        self.assertLessEqual(sum(expected[token] > expected[kept[0]] for token in banned), 1)
        self.assertRowsAlmostEqual(rows["processed_logprobs"][0], log_softmax(processed))

        self.assertEqual(len({drawn for _, drawn, _ in rows.values()}), 1)  # no mode changes a draw
        # Nothing is drawn at a prompt's positions, so processed is raw there.
        self.assertEqual(rows["raw_logits"][2], rows["processed_logits"][2])
        self.assertEqual(rows["raw_logprobs"][2], rows["processed_logprobs"][2])
        self.assertLess(max(rows["raw_logprobs"][2]), 0)


class Fields(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Pair(*FLAGS, "--enable-per-request-metrics", "--max-logprobs", "5")
        cls.addClassCleanup(cls.server.__exit__, False)

    def choice(self, **fields):
        return ask(self.server, return_token_ids=True, **fields)["choices"][0]

    def test_an_answer_that_repeats_itself_ends(self):
        rule = {"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 5}
        choice = self.choice(max_tokens=100, allowed_token_ids=[335], repetition_detection=rule)
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("repetition", "repetition_detected"))
        self.assertEqual(choice["token_ids"], [335] * 5)
        choice = self.choice(max_tokens=20, allowed_token_ids=[335])
        self.assertEqual((choice["finish_reason"], len(choice["token_ids"])), ("length", 20))

    def test_logprobs_of_asked_tokens(self):
        ids = [335, 79, 3000]
        choice = self.choice(max_tokens=3, logprobs=0, logprob_token_ids=ids, return_tokens_as_token_ids=True)
        for token, top in zip(choice["token_ids"], choice["logprobs"]["top_logprobs"]):
            self.assertEqual(set(top), {f"token_id:{token_id}" for token_id in [token, *ids]})
        answer = ask(self.server, "/v1/chat/completions", messages=[{"role": "user", "content": "Hi"}], logprobs=True,
                     logprob_token_ids=ids, max_tokens=2)
        for entry in answer["choices"][0]["logprobs"]["content"]:
            self.assertEqual(len(entry["top_logprobs"]), 4)
            self.assertEqual(entry["top_logprobs"][0]["token"], entry["token"])

    def test_scores_are_the_probabilities_of_labels(self):
        labels, items = [335, 79, 3000], ["Once upon a time", "there was a", "x"]
        ids = [json.loads(self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1])["tokens"]
               for text in ["Read: ", *items]]
        expected = []
        for item in ids[1:]:
            choice = self.choice(prompt=ids[0] + item, max_tokens=1, logprobs=0, logprob_token_ids=labels,
                                 return_tokens_as_token_ids=True)
            top = choice["logprobs"]["top_logprobs"][0]
            expected.append([math.exp(top[f"token_id:{label}"]) for label in labels])
        body = {"query": "Read: ", "items": items, "label_token_ids": labels, "add_special_tokens": False}
        for softmax in (True, False):
            status, reply = self.server.post("/generative_scoring", {**body, "apply_softmax": softmax})
            self.assertEqual(status, 200, reply)
            for entry, probabilities in zip(json.loads(reply)["data"], expected, strict=True):
                self.assertAlmostEqual(entry["score"], probabilities[0] / (sum(probabilities) if softmax else 1), delta=1e-6)
        # Cut at the end.
        status, reply = self.server.post("/generative_scoring", {**body, "items": [[79] * 1023]})
        self.assertEqual(status, 200, reply)
        self.assertEqual(json.loads(reply)["usage"]["prompt_tokens"], 1023)

    def test_decisions_are_the_probabilities_of_labels_as_replies(self):
        state = "The sun is shining and the birds sing."

        def decide(path, **body):
            status, reply = self.server.post(path, body)
            self.assertEqual(status, 200, reply)
            return json.loads(reply)

        def labels_of(question, labels):
            ids = [json.loads(self.server.post("/tokenize", {"prompt": label})[1])["tokens"] for label in labels]
            prompt = json.loads(self.server.post("/tokenize", {"messages": [
                {"role": "user", "content": f"{state}\n\n{question}"}]})[1])["tokens"]
            choice = self.choice(prompt=prompt, max_tokens=1, logprobs=0, logprob_token_ids=[i for i, in ids],
                                 return_tokens_as_token_ids=True)
            top = choice["logprobs"]["top_logprobs"][0]
            return [math.exp(top[f"token_id:{i}"]) for i, in ids]

        reply = decide("/v1/decisions", input=state, questions=[
            {"type": "predicate", "instructions": "Is it raining?"},
            {"type": "choice", "instructions": "What is it like?", "name": "weather",
             "choices": [{"value": "fine", "description": "dry"}, {"value": "bad"}, {"value": False}]}])
        predicate, choice = reply["answers"]
        no, yes = labels_of("Question: Is it raining?\nA: false\nB: true\nAnswer with the letter of one option only.", "AB")
        self.assertAlmostEqual(predicate["probability"], yes / (no + yes), delta=1e-6)
        masses = labels_of('Question: What is it like?\nA: "fine" - dry\nB: "bad"\nC: false\n'
                           "Answer with the letter of one option only.", "ABC")
        for entry, mass in zip(choice["probabilities"], masses, strict=True):
            self.assertAlmostEqual(entry["probability"], mass / sum(masses), delta=1e-6)
        self.assertEqual(choice["choice"], ["fine", "bad", False][masses.index(max(masses))])
        self.assertAlmostEqual(choice["confidence"], max(masses), delta=1e-6)
        self.assertEqual(reply["usage"]["output_tokens"], 2)

        reply = decide("/v1/systemone", state=state, questions={
            "rain": {"type": "noul", "instructions": "Is it raining?", "criteria": {"true": "it is wet"}}})
        masses = labels_of("Question: Is it raining?\nyes: it is wet\nno\nAnswer with yes or no only.", ["yes", "no"])
        self.assertAlmostEqual(reply["answers"]["rain"]["noul"], masses[0] / sum(masses), delta=1e-6)
        self.assertAlmostEqual(reply["diagnostics"]["rain"]["label_mass"], sum(masses), delta=1e-6)

    def test_masks_and_bias(self):
        self.assertEqual(self.choice(logit_bias={"79": 100}, max_tokens=3)["token_ids"], [79] * 3)
        self.assertLessEqual(set(self.choice(allowed_token_ids=[79, 335, 400], temperature=1.5, seed=1,
                                             max_tokens=30, ignore_eos=True)["token_ids"]), {79, 335, 400})
        word, _ = self.word_of_one_token()
        self.assertNotIn(word, self.choice(max_tokens=40, bad_words=[word])["text"].split())
        stopped = self.choice(max_tokens=40, stop_token_ids=[self.choice(max_tokens=3)["token_ids"][2]])
        self.assertEqual((stopped["finish_reason"], len(stopped["token_ids"])), ("stop", 3))
        kept = self.choice(max_tokens=40, min_tokens=9, stop_token_ids=stopped["token_ids"][2:])
        self.assertGreaterEqual(len(kept["token_ids"]), 9)

    def test_masks_that_leave_no_token_are_the_clients_error_and_no_corruption(self):
        word, token = self.word_of_one_token()
        status, body = self.server.post("/v1/completions", {
            "model": "m", "prompt": [5], "allowed_token_ids": [token], "bad_words": [word]})
        self.assertEqual(status, 400, body)
        self.assertIn("no token is left", json.loads(body)["error"]["message"])
        self.assertEqual(self.server.total("vllm:corrupted_requests_total"), 0)

    def word_of_one_token(self):
        """Of the greedy answer: a word that is one token at the start of a text and one after a blank."""
        def tokens(text):
            return json.loads(self.server.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1])["tokens"]
        for word in self.choice(max_tokens=60)["text"].split():
            if word.isalpha() and len(tokens(word)) == len(tokens(" " + word)) == 1:
                return word, tokens(" " + word)[0]
        self.fail("the greedy answer has no such word")

    def test_load_is_reported_in_the_form_that_is_asked_for(self):
        def header(form, **fields):
            connection = http.client.HTTPConnection(self.server.url[7:], timeout=LIMIT)
            self.addCleanup(connection.close)
            connection.request("POST", "/v1/completions", json.dumps(
                {"model": "m", "prompt": "A", "max_tokens": 1, **fields}),
                {"Content-Type": "application/json", **({"endpoint-load-metrics-format": form} if form else {})})
            reply = connection.getresponse()
            reply.read()
            return reply.getheader("endpoint-load-metrics")
        self.assertRegex(header("TEXT"), r"^TEXT named_metrics\.kv_cache_usage_perc=\d\.\d+(e-\d+)?, "
                                         r"named_metrics\.num_requests_waiting=0\.0$")
        report = header("json")
        self.assertEqual(report[:5], "JSON ")
        self.assertEqual(set(json.loads(report[5:])["named_metrics"]), {"kv_cache_usage_perc", "num_requests_waiting"})
        for form, fields in ((None, {}), ("BINARY", {}), ("TEXT", {"stream": True}), ("TEXT", {"temperature": 9})):
            self.assertIsNone(header(form, **fields))

    def test_timings_of_a_single_answer(self):
        answer = ask(self.server, max_tokens=30, ignore_eos=True)
        metrics, tokens = answer["metrics"], answer["usage"]["completion_tokens"]
        self.assertAlmostEqual(metrics["mean_itl_ms"], metrics["generation_time_ms"] / (tokens - 1), places=6)
        self.assertAlmostEqual(metrics["tokens_per_second"] / 1e3 * (
            metrics["time_to_first_token_ms"] + metrics["generation_time_ms"]), tokens, places=3)
        self.assertGreaterEqual(metrics["queue_time_ms"], 0)
        self.assertIsNone(ask(self.server, n=2, temperature=1)["metrics"])
        status, body = self.server.post("/v1/completions", {
            "model": "m", "prompt": "A", "stream": True, "stream_options": {"include_usage": True}})
        events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
        self.assertEqual(status, 200)
        self.assertIn("mean_itl_ms", events[-1]["metrics"])


class Truth(unittest.TestCase):
    COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_prompt_tokens_sum",
                "vllm:request_generation_tokens_sum", "vllm:request_prompt_tokens_count",
                "vllm:time_to_first_token_seconds_count", "vllm:request_params_n_sum")

    def ends(self, server):
        return {reason: int(server.total("vllm:request_success_total", finished_reason=reason))
                for reason in ("stop", "length", "abort", "error", "repetition")}

    def test_counters_are_what_the_answers_say(self):
        with Pair(*FLAGS) as server:
            prompt = generated = choices = requests = 0
            ends = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
            for fields in ({}, {"n": 3, "temperature": 1, "seed": 3}, {"prompt": ["A fox", "The bear"], "n": 2,
                           "temperature": 1.2}, {"max_tokens": 200}, {"stop": ["a"], "max_tokens": 60},
                           {"max_tokens": 90, "allowed_token_ids": [335],
                            "repetition_detection": {"max_pattern_size": 2, "min_count": 3}}, {"prompt_logprobs": 1}):
                answer = ask(server, **fields)
                prompts = len(fields["prompt"]) if isinstance(fields.get("prompt"), list) else 1
                # Each choice is a request of its own to the engine, with its prompt.
                prompt += answer["usage"]["prompt_tokens"] * fields.get("n", 1)
                generated += answer["usage"]["completion_tokens"]
                choices += len(answer["choices"])
                requests += prompts * fields.get("n", 1)
                for choice in answer["choices"]:
                    ends[choice["finish_reason"]] += 1
            for refused in ({"temperature": 9}, {"prompt": [1] * 2000}, {"model": "other"}, {"max_tokens": 0}):
                status, _ = server.post("/v1/completions", {"model": "m", "prompt": "x", **refused})
                self.assertGreaterEqual(status, 400)
            self.assertEqual([server.total(name) for name in self.COUNTERS],
                             [prompt, generated, prompt, generated, choices, choices, requests])
            self.assertEqual(self.ends(server), ends)

            connection = http.client.HTTPConnection(server.url[7:], timeout=LIMIT)
            connection.request("POST", "/v1/completions", json.dumps(
                {"model": "m", "prompt": "A", "n": 2, "temperature": 1, "stream": True, "max_tokens": 900,
                 "ignore_eos": True}), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            reply.readline()
            reply.close()
            connection.close()
            ends["abort"] += 2
            wait_for(lambda: self.ends(server) == ends, "both choices are counted as aborted")
            self.assertEqual(server.total("vllm:request_prompt_tokens_count"), choices)  # no length of an abort
            wait_for(lambda: server.total("vllm:num_requests_running") == 0, "the engine is idle")


if __name__ == "__main__":
    unittest.main(verbosity=2)
