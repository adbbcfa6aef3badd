#!/usr/bin/env python3
"""Models that make vectors, scores and classes, over a real pair: the numbers that sentence-transformers and
transformers recorded, through the routes of OpenAI's, Cohere's and Jina's APIs, and what is refused."""
import base64
import json
import math
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from goldens import read_goldens
from pair import LIMIT, ROOT, Pair, bin_dir, child_processes, wait_for

GOLDENS = pathlib.Path(os.environ.get("TANDEM_GOLDENS") or ROOT / "tests" / "golden") / "embedding"
FLAGS = ("--served-model-name", "m", "--dtype", "float32", "--kv-cache-memory-bytes", str(8 << 20))


def golden(model):
    return read_goldens(GOLDENS / model)


def tensors(model):
    """{name: list of rows of float32} of outputs.safetensors."""
    data = (GOLDENS / model / "outputs.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        numbers = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        columns = entry["shape"][-1]
        found[name] = [numbers[i:i + columns] for i in range(0, len(numbers), columns)]
    return found


class Case:
    def near(self, got, expected, delta=1e-4):
        self.assertEqual(len(got), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), delta)

    def ask(self, server, path, **body):
        status, reply = server.post(path, body)
        self.assertEqual(status, 200, reply)
        return json.loads(reply)

    def refuse(self, server, path, status, part, **body):
        got, reply = server.post(path, body)
        self.assertEqual(got, status, reply)
        self.assertIn(part, reply.decode())


class Embeddings(unittest.TestCase):
    near, ask, refuse = Case.near, Case.ask, Case.refuse

    @classmethod
    def setUpClass(cls):
        cls.cases, cls.outputs = golden("qwen3_embedding")["cases"], tensors("qwen3_embedding")
        cls.texts = [case["text"] for case in cls.cases]
        cls.server = Pair(*FLAGS, "--hf-overrides", '{"is_matryoshka": true}', model=GOLDENS / "qwen3_embedding")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(False)

    def test_vectors_are_those_of_sentence_transformers(self):
        answer = self.ask(self.server, "/v1/embeddings", model="m", input=self.texts)
        self.assertEqual(list(answer), ["id", "object", "created", "model", "data", "usage"])
        self.assertTrue(answer["id"].startswith("embd-"))
        num_tokens = sum(len(case["token_ids"]) for case in self.cases)
        self.assertEqual((answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"],
                          answer["usage"]["completion_tokens"]), (num_tokens, num_tokens, 0))
        for item, expected in zip(answer["data"], self.outputs["embeddings"]):
            self.near(item["embedding"], expected)
        self.assertEqual([item["index"] for item in answer["data"]], list(range(len(self.texts))))
        # Token ids, one text, and the bits of a batch and of one alone.
        ids = self.ask(self.server, "/v1/embeddings", input=[case["token_ids"] for case in self.cases])
        self.assertEqual(ids["data"], answer["data"])
        one = self.ask(self.server, "/v1/embeddings", input=self.texts[3])
        self.assertEqual(one["data"][0]["embedding"], answer["data"][3]["embedding"])
        ids = self.ask(self.server, "/v1/embeddings", input=self.cases[3]["token_ids"])
        self.assertEqual(ids["data"], one["data"])

    def test_forms_of_numbers(self):
        plain = self.ask(self.server, "/v1/embeddings", input=self.texts[0])["data"][0]["embedding"]
        for dtype, letter in (("float32", "f"), ("float16", "e")):
            for endianness, sign in (("little", "<"), ("big", ">")):
                text = self.ask(self.server, "/v1/embeddings", input=self.texts[0], encoding_format="base64",
                                embed_dtype=dtype, endianness=endianness)["data"][0]["embedding"]
                numbers = struct.unpack(f"{sign}{len(plain)}{letter}", base64.b64decode(text))
                self.near(numbers, plain, 1e-3 if letter == "e" else 1e-7)
        for dtype in ("fp8_e4m3", "fp8_e5m2"):
            text = self.ask(self.server, "/v1/embeddings", input=self.texts[0], encoding_format="base64",
                            embed_dtype=dtype)["data"][0]["embedding"]
            self.assertEqual(len(base64.b64decode(text)), len(plain))
        connection = self.server.connect()
        connection.request("POST", "/v1/embeddings", json.dumps(
            {"input": self.texts[:2], "encoding_format": "bytes"}), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        body = reply.read()
        self.assertEqual(reply.getheader("Content-Type"), "application/octet-stream")
        place = json.loads(reply.getheader("metadata"))["data"][1]
        self.near(struct.unpack(f"<{len(plain)}f", body[place["start"]:place["end"]]), self.outputs["embeddings"][1])

    def test_fewer_dimensions(self):
        for size in (16, 40):
            answer = self.ask(self.server, "/v1/embeddings", input=self.texts, dimensions=size)
            for i, item in enumerate(answer["data"]):
                self.near(item["embedding"], self.outputs[f"matryoshka{size}.{i}"][0])
        self.refuse(self.server, "/v1/embeddings", 400, "dimensions", input="a", dimensions=65)

    def test_cohere_and_scores_of_an_embedder(self):
        answer = self.ask(self.server, "/v2/embed", model="m", texts=self.texts[:2],
                          embedding_types=["float", "ubinary", "binary"])
        self.near(answer["embeddings"]["float"][1], self.outputs["embeddings"][1])
        signs = [int(number >= 0) for number in answer["embeddings"]["float"][1]]
        packed = [int("".join(map(str, signs[i:i + 8])), 2) for i in range(0, len(signs), 8)]
        self.assertEqual(answer["embeddings"]["ubinary"][1], packed)
        self.assertEqual(answer["embeddings"]["binary"][1], [byte - 128 for byte in packed])
        self.assertEqual(answer["texts"], self.texts[:2])
        prompted = self.ask(self.server, "/v2/embed", texts=["who repairs the bridge?"], input_type="search_query")
        self.near(prompted["embeddings"]["float"][0], self.outputs["query_with_prompt"][0])
        self.refuse(self.server, "/v2/embed", 400, "input_type", texts=["a"], input_type="clustering")
        scores = self.ask(self.server, "/score", text_1=self.texts[0], text_2=self.texts[1:3])["data"]
        for i, item in enumerate(scores, 1):
            cosine = sum(a * b for a, b in zip(self.outputs["embeddings"][0], self.outputs["embeddings"][i]))
            self.assertAlmostEqual(item["score"], cosine, delta=1e-4)

    def test_truncation(self):
        long = " ".join(self.texts) * 40
        self.refuse(self.server, "/v1/embeddings", 400, "maximum context length", input=long)
        cut = self.ask(self.server, "/v1/embeddings", input=long, truncate_prompt_tokens=-1)
        self.assertEqual(cut["usage"]["prompt_tokens"], 1024)
        # The special token at the end stays.
        short = self.ask(self.server, "/v1/embeddings", input=self.texts[1], truncate_prompt_tokens=5)["data"]
        ids = self.cases[1]["token_ids"]
        same = self.ask(self.server, "/v1/embeddings", input=ids[:4] + ids[-1:])["data"]
        self.assertEqual(short, same)
        left = self.ask(self.server, "/v1/embeddings", input=self.texts[1], truncate_prompt_tokens=5,
                        truncation_side="left")["data"]
        self.assertEqual(left, self.ask(self.server, "/v1/embeddings", input=ids[-5:])["data"])
        self.refuse(self.server, "/v1/embeddings", 400, "truncate_prompt_tokens", input="a",
                    truncate_prompt_tokens=1025)

    def test_hostile_inputs(self):
        for value in (None, 5, {}, {"a": 1}, [[]], [{}], ["a", 1], [1, "a"], [[1], "a"], True, [None], [1.5], [-1],
                      [1 << 40], [[1 << 70]], []):
            status, reply = self.server.post("/v1/embeddings", {"input": value})
            self.assertEqual(status, 400, (value, reply))
        self.refuse(self.server, "/v1/embeddings", 400, "at least one prompt", input=[])
        self.refuse(self.server, "/v1/embeddings", 400, "input has token id 99999", input=[99999])
        self.refuse(self.server, "/v1/embeddings", 400, "maximum context length", input="a" * (1 << 20))
        cut = self.ask(self.server, "/v1/embeddings", input="a" * (1 << 20), truncate_prompt_tokens=-1)
        self.assertEqual(cut["usage"]["prompt_tokens"], 1024)
        self.ask(self.server, "/v1/embeddings", input="")  # its special token alone
        self.refuse(self.server, "/v1/embeddings", 400, "no tokens", input="", add_special_tokens=False)
        for field, value in (("encoding_format", "hex"), ("encoding_format", 1), ("embed_dtype", "fp8"),
                             ("dimensions", 0), ("dimensions", "x"), ("truncation_side", "middle"),
                             ("truncate_prompt_tokens", -2), ("normalize", True), ("padding", "max_length"),
                             ("messages", [{"role": "user", "content": "a"}]), ("chat_template", 5),
                             ("late_chunking_params", {"chunk_size": 4}), ("data", "x")):
            self.refuse(self.server, "/v1/embeddings", 400, field.split("_")[0], **{"input": "a", field: value})
        for path in ("/v1/embeddings", "/pooling"):
            self.refuse(self.server, path, 400, "no chat template; send input", messages=[{"role": "user", "content": "a"}])
        self.refuse(self.server, "/v1/embeddings", 404, "does not exist", input="a", model="other")
        self.refuse(self.server, "/pooling", 400, "task", input="a", task="score")
        self.refuse(self.server, "/v1/embeddings", 400, "at most", input=["a"] * 2049)

    def test_other_routes(self):
        invoked = self.ask(self.server, "/invocations", input=self.texts[0])
        self.near(invoked["data"][0]["embedding"], self.outputs["embeddings"][0])
        score = {"queries": self.texts[0], "documents": self.texts[1]}
        self.assertEqual(*(self.ask(self.server, path, **score)["data"] for path in ("/invocations", "/score")))
        ranked = self.ask(self.server, "/invocations", query=self.texts[0], documents=self.texts[1:3])
        self.assertEqual(len(ranked["results"]), 2)
        self.refuse(self.server, "/invocations", 400, "'ScoreRequest', 'RerankRequest'", prompt="a")
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"):
            self.assertEqual(self.server.post(path, {"prompt": "a"})[0], 404, path)
        self.refuse(self.server, "/classify", 501, "does not support Classification", input="a")
        self.assertEqual(json.loads(self.server.get("/v1/models")[1])["data"][0]["max_model_len"], 1024)
        pooled = self.ask(self.server, "/pooling", input=self.texts[0])
        self.near(pooled["data"][0]["data"], self.outputs["embeddings"][0])
        self.assertEqual(pooled["data"][0]["object"], "pooling")
        document = json.loads(self.server.get("/openapi.json")[1])
        self.assertIn("/v1/embeddings", document["paths"])
        self.assertNotIn("/v1/completions", document["paths"])

    def test_metrics(self):
        names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:e2e_request_latency_seconds_count",
                 "vllm:time_to_first_token_seconds_count")
        before = [self.server.total(name) for name in names]
        self.ask(self.server, "/v1/embeddings", input=[[9, 8, 7], [9, 8]])
        after = [self.server.total(name) for name in names]
        self.assertEqual([b - a for a, b in zip(before, after)], [5, 0, 2, 2])
        self.assertGreater(self.server.total("vllm:request_success_total", finished_reason="stop"), 0)

    def test_langchain(self):
        try:
            from langchain_openai import OpenAIEmbeddings
        except ImportError:
            self.skipTest("langchain-openai is not here")
        client = OpenAIEmbeddings(base_url=self.server.url + "/v1", api_key="x", model="m", max_retries=0,
                                  check_embedding_ctx_length=False)
        for vector, expected in zip(client.embed_documents(self.texts), self.outputs["embeddings"]):
            self.near(vector, expected)
        self.near(client.embed_query(self.texts[0]), self.outputs["embeddings"][0])

    def test_llama_index(self):
        """What llama-index-embeddings-openai-like 0.4.0 sends. It is not installed: it brings 70 packages (nltk, SQLAlchemy,
        networkx, tiktoken …; 300 MB), and the openai client among them makes the body."""
        def vectors(body):
            answer = self.ask(self.server, "/v1/embeddings", **json.loads(body))
            return [struct.unpack(f"<{len(data) // 4}f", data)
                    for data in (base64.b64decode(item["embedding"]) for item in answer["data"])]
        texts = json.dumps(self.texts[:2])
        for vector, expected in zip(vectors('{"model":"m","input":%s,"encoding_format":"base64"}' % texts),
                                    self.outputs["embeddings"], strict=False):
            self.near(vector, expected)
        for i, vector in enumerate(vectors('{"model":"m","input":%s,"dimensions":16,"encoding_format":"base64"}' % texts)):
            self.near(vector, self.outputs[f"matryoshka16.{i}"][0])

    def test_openai_client(self):
        try:
            import openai
        except ImportError:
            self.skipTest("the openai client is not here")
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="x", max_retries=0)
        for encoding in ({}, {"encoding_format": "float"}):  # base64 where nothing is asked for
            answer = client.embeddings.create(model="m", input=self.texts, **encoding)
            for item, expected in zip(answer.data, self.outputs["embeddings"]):
                self.near(item.embedding, expected)
        with self.assertRaises(openai.BadRequestError):
            client.embeddings.create(model="m", input="a", dimensions=4000)

    def test_a_request_outlives_its_engine(self):
        expected = self.ask(self.server, "/v1/embeddings", input=self.texts)["data"]
        engine = self.server.pid_of("tandem-engine-core")
        os.kill(engine, signal.SIGSTOP)
        answers = []
        asker = threading.Thread(target=lambda: answers.append(
            self.server.post("/v1/embeddings", {"input": self.texts})))
        asker.start()
        wait_for(lambda: self.server.total("vllm:num_requests_waiting") == len(self.texts), "all texts are sent")
        os.kill(engine, signal.SIGKILL)
        asker.join(LIMIT)
        status, reply = answers[0]
        self.assertEqual(status, 200, reply)
        self.assertEqual(json.loads(reply)["data"], expected)


class LowerCase(unittest.TestCase):
    ask = Case.ask

    def test_texts_are_read_as_sentence_transformers_reads_them(self):
        def embedding(**body):
            return self.ask(server, "/v1/embeddings", **body)["data"][0]["embedding"]
        with tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
            model = shutil.copytree(GOLDENS / "qwen3_embedding", pathlib.Path(folder) / "m")
            files = model / "sentence_bert_config.json"
            files.chmod(0o644)
            files.write_text(json.dumps({**json.loads(files.read_text()), "do_lower_case": True}))
            with Pair(*FLAGS, model=model) as server:
                lower = embedding(input="the bridge, ας")
                self.assertEqual(embedding(input="The BRIDGE, ΑΣ"), lower)
                ids = self.ask(server, "/tokenize", prompt="The BRIDGE, ΑΣ")["tokens"]
                self.assertNotEqual(embedding(input=ids), lower)
                scores = self.ask(server, "/score", queries="A", documents=["THE BRIDGE", "the bridge"])["data"]
                self.assertEqual(scores[0]["score"], scores[1]["score"])
                prompted = self.ask(server, "/v2/embed", texts=["WHO?", "who?"], input_type="search_query")
                self.assertEqual(*prompted["embeddings"]["float"])


class Scores(unittest.TestCase):
    near, ask, refuse = Case.near, Case.ask, Case.refuse

    def check_scores(self, model, *flags):
        goldens = golden(model)
        queries = list(dict.fromkeys(case["query"] for case in goldens["cases"]))
        with Pair(*FLAGS, *flags, model=GOLDENS / model) as server:
            for query, best_first in zip(queries, goldens["rerank_order"]):
                cases = [case for case in goldens["cases"] if case["query"] == query]
                documents = [case["document"] for case in cases]
                scores = self.ask(server, "/score", queries=query, documents=documents)
                self.near([item["score"] for item in scores["data"]], [case["score"] for case in cases])
                self.assertEqual(scores["usage"]["prompt_tokens"], sum(len(case["token_ids"]) for case in cases))
                for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
                    reply = self.ask(server, path, model="m", query=query, documents=documents, top_n=4)
                    self.assertEqual([item["index"] for item in reply["results"]], best_first[:4])
                self.assertEqual(reply["results"][0]["document"], {"text": documents[best_first[0]],
                                                                   "multi_modal": None})
                self.assertEqual(set(reply["usage"]), {"prompt_tokens", "total_tokens"})
            pairs = self.ask(server, "/v1/score", data_1=[case["query"] for case in cases], data_2=documents)
            self.assertEqual(pairs["data"], scores["data"])
            self.refuse(server, "/score", 400, "1:1, 1:N or N:N", queries=["a", "b"], documents=["a", "b", "c"])
            self.refuse(server, "/score", 400, "At least one text element", queries=[], documents=["a"])
            self.refuse(server, "/score", 400, "At least one text_pair", queries=["a"], documents=[])
            self.refuse(server, "/score", 400, "max_tokens_per_query", queries="a", documents="b",
                        max_tokens_per_query=100000)
            self.refuse(server, "/v1/embeddings", 501, "does not support Embeddings", input="a")
            for body in ({"query": "a"}, {"query": 5, "documents": ["a"]}, {"query": "a", "documents": [5]},
                         {"query": ["a", "b"], "documents": ["a", "b"]}, {"query": "a", "documents": [{}]},
                         {"query": "a", "documents": ["b"], "top_n": -1}):
                self.assertEqual(server.post("/rerank", body)[0], 400, body)

    @unittest.skipUnless((GOLDENS / "qwen3_reranker").is_dir(), "a golden of the whole set (TANDEM_GOLDENS)")
    def test_qwen3_reranker(self):
        goldens = golden("qwen3_reranker")
        self.check_scores("qwen3_reranker", "--hf-overrides", json.dumps(goldens["hf_overrides"]),
                          "--chat-template", GOLDENS / "qwen3_reranker" / "score_template.jinja")

    @unittest.skipUnless((GOLDENS / "bert_cross_encoder").is_dir(), "a golden of the whole set (TANDEM_GOLDENS)")
    def test_a_pair_is_cut_and_its_special_tokens_stay(self):
        query, document = "how to bake bread", "bread is made of flour, water and salt"
        with Pair(*FLAGS, model=GOLDENS / "bert_cross_encoder") as server:
            def ask(**fields):
                reply = self.ask(server, "/score", queries=query, documents=document, **fields)
                return reply["data"][0]["score"], reply["usage"]["prompt_tokens"]

            whole, count = ask()
            self.assertEqual(ask(truncate_prompt_tokens=count), (whole, count))
            for side in ("left", "right"):
                self.assertEqual(ask(truncate_prompt_tokens=7, truncation_side=side)[1], 7)
            self.assertEqual(ask(truncate_prompt_tokens=7)[0], ask(truncate_prompt_tokens=7, truncation_side="right")[0])
            self.assertNotEqual(ask(truncate_prompt_tokens=7)[0], ask(truncate_prompt_tokens=7, truncation_side="left")[0])
            for most in (0, 1, 2):
                self.refuse(server, "/score", 400, "3 special tokens", queries=query, documents=document,
                            truncate_prompt_tokens=most)

    def test_cross_encoders(self):
        for model in ("bert_cross_encoder", "xlmr_reranker", "qwen3_seq_cls"):
            if (GOLDENS / model).is_dir():
                self.check_scores(model)


class Tokens(unittest.TestCase):
    """--pooler-config.task token_embed and token_classify: a row for each token."""
    near, ask, refuse = Case.near, Case.ask, Case.refuse

    def test_embeddings_of_tokens(self):
        cases, outputs = golden("qwen3_embedding")["cases"], tensors("qwen3_embedding")
        texts, count = [case["text"] for case in cases], len(cases[1]["token_ids"])
        with Pair(*FLAGS, "--pooler-config", '{"task":"token_embed"}', model=GOLDENS / "qwen3_embedding") as server:
            for path, key in (("/v1/embeddings", "embedding"), ("/pooling", "data"), ("/invocations", "embedding")):
                rows = self.ask(server, path, input=texts[1])["data"][0][key]
                self.assertEqual(len(rows), count)
                self.near(rows[-1], outputs["embeddings"][1])
            # What was computed for a longer text before is computed again.
            self.assertEqual(self.ask(server, "/pooling", input=[texts[1]] * 2)["data"][1]["data"], rows)
            raw = self.ask(server, "/pooling", input=texts[1], use_activation=False)["data"][0]["data"]
            for row, expected in zip(raw, outputs["hidden.1"], strict=True):
                self.near(row, expected)
            data = base64.b64decode(self.ask(server, "/pooling", input=texts[1], encoding_format="base64")["data"][0]["data"])
            self.near(struct.unpack(f"<{len(data) // 4}f", data), [number for row in rows for number in row], 1e-7)
            connection = server.connect()
            connection.request("POST", "/pooling", json.dumps({"input": texts[1], "encoding_format": "bytes"}),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            self.assertEqual(len(reply.read()), len(data))
            self.assertEqual(json.loads(reply.getheader("metadata"))["data"][0]["shape"], [count, len(rows[0])])
            self.refuse(server, "/v1/embeddings", 400, "encoding_format", input="a", encoding_format="base64")
            self.refuse(server, "/v2/embed", 501, "does not support Embeddings", texts=["a"])
            self.refuse(server, "/pooling", 400, "--pooler-config.task embed", input="a", task="embed")
            # Late interaction.
            tokens = [self.ask(server, "/pooling", input=text)["data"][0]["data"] for text in texts[:3]]
            expected = [sum(max(sum(x * y for x, y in zip(query, token)) for token in document) for query in tokens[0])
                        for document in tokens[1:]]
            scores = self.ask(server, "/score", queries=texts[0], documents=texts[1:3])
            self.near([item["score"] for item in scores["data"]], expected, 1e-3)
            self.assertEqual(scores["usage"]["prompt_tokens"], sum(map(len, tokens)))
            best = self.ask(server, "/rerank", query=texts[0], documents=texts[1:3], top_n=1)["results"][0]
            self.assertEqual(best["index"], expected.index(max(expected)))
            self.assertAlmostEqual(best["relevance_score"], max(expected), delta=1e-3)
            self.refuse(server, "/score", 400, "too many to be compared", queries="a " * 900,
                        documents=["a " * 900] * 2000)
            self.refuse(server, "/v1/embeddings", 400, "tokens are allowed in a request", input=["a " * 900] * 2000)

    def test_classes_of_tokens(self):
        with Pair(*FLAGS, "--pooler-config", '{"task":"token_classify"}', model=GOLDENS / "xlmr_classify3") as server:
            answer = self.ask(server, "/pooling", input="the bridge")
            rows = answer["data"][0]["data"]
            self.assertEqual(len(rows), answer["usage"]["prompt_tokens"])
            for row in rows:
                self.assertAlmostEqual(sum(row), 1, delta=1e-5)
            self.assertEqual(self.ask(server, "/invocations", input="the bridge")["data"], answer["data"])
            self.refuse(server, "/classify", 501, "does not support Classification", input="a")
            self.refuse(server, "/score", 501, "does not support Score", queries="a", documents="b")
            self.refuse(server, "/v1/embeddings", 501, "does not support Embeddings", input="a")


class Heads(unittest.TestCase):
    """Classifiers made of an embedder: its states are recorded, and their heads are computed here."""
    near, ask, refuse = Case.near, Case.ask, Case.refuse
    TEXT = 1

    @classmethod
    def setUpClass(cls):
        cls.golden, cls.states = golden("modernbert_cls"), tensors("modernbert_cls")[f"hidden.{cls.TEXT}"]
        cls.text, cls.size = cls.golden["cases"][cls.TEXT]["text"], len(cls.states[0])
        numbers = random.Random(7)
        cls.weights = {name: [[numbers.uniform(-0.3, 0.3) for _ in range(cls.size)] for _ in range(rows)]
                       for name, rows in (("head.dense.weight", cls.size), ("classifier.weight", 3))}
        cls.weights["head.norm.weight"] = [numbers.uniform(0.5, 1.5) for _ in range(cls.size)]
        cls.weights["classifier.bias"] = [0.25, -0.5, 0.125]

    def write_model(self, folder, architecture, **config):
        """The embedder's tensors below `model.`, as classifiers are saved, and the heads'."""
        model = pathlib.Path(folder) / "m"
        model.mkdir()
        source = GOLDENS / "modernbert_cls"
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(source / name, model / name)
        labels = {str(i): label for i, label in enumerate("abc")}
        (model / "config.json").write_text(json.dumps({
            **json.loads((source / "config.json").read_text()), "architectures": [architecture], "id2label": labels, **config}))
        data = (source / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        body = data[8 + size:]
        header = {"model." + name: entry for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
        for name, values in self.weights.items():
            rows = values if isinstance(values[0], list) else [values]
            packed = b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)
            shape = [len(rows), len(rows[0])] if isinstance(values[0], list) else [len(values)]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(packed)]}
            body += packed
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        return model

    def logits(self, state):
        def times(name, x):
            return [sum(a * b for a, b in zip(row, x)) for row in self.weights[name]]
        x = [value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in times("head.dense.weight", state)]
        mean = sum(x) / self.size
        scale = 1 / math.sqrt(sum((value - mean) ** 2 for value in x) / self.size + self.golden_eps())
        x = [(value - mean) * scale * weight for value, weight in zip(x, self.weights["head.norm.weight"])]
        return [value + bias for value, bias in zip(times("classifier.weight", x), self.weights["classifier.bias"])]

    def golden_eps(self):
        return json.loads((GOLDENS / "modernbert_cls" / "config.json").read_text())["norm_eps"]

    def test_modern_bert_classifies(self):
        mean = [sum(column) / len(self.states) for column in zip(*self.states)]
        for pooling, state in (("mean", mean), ("cls", self.states[0])):
            with tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
                model = self.write_model(folder, "ModernBertForSequenceClassification", classifier_pooling=pooling)
                with Pair(*FLAGS, model=model) as server:
                    answer = self.ask(server, "/classify", input=self.text, use_activation=False)["data"][0]
                    self.near(answer["probs"], self.logits(state), 1e-3)

    def test_tokens_are_classified(self):
        with tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
            with Pair(*FLAGS, model=self.write_model(folder, "ModernBertForTokenClassification")) as server:
                rows = self.ask(server, "/pooling", input=self.text, use_activation=False)["data"][0]["data"]
                for row, state in zip(rows, self.states, strict=True):
                    self.near(row, self.logits(state), 1e-3)
                self.refuse(server, "/classify", 501, "does not support Classification", input="a")


class Classes(unittest.TestCase):
    near, ask, refuse = Case.near, Case.ask, Case.refuse

    def test_labels_and_probabilities(self):
        goldens = golden("xlmr_classify3")
        with Pair(*FLAGS, model=GOLDENS / "xlmr_classify3") as server:
            answer = self.ask(server, "/classify", input=[case["text"] for case in goldens["cases"]])
            for item, case in zip(answer["data"], goldens["cases"]):
                self.near(item["probs"], case["score"])
                self.assertEqual((item["label"], item["num_classes"]), (case["label"], 3))
            raw = self.ask(server, "/classify", input=goldens["cases"][0]["text"], use_activation=False)
            self.near(raw["data"][0]["probs"], goldens["cases"][0]["logits"])
            self.refuse(server, "/score", 501, "does not support Score", queries="a", documents="b")
            self.refuse(server, "/classify", 400, "maximum context length", input="river " * 300)
            cut = self.ask(server, "/classify", input="river " * 300, truncate_prompt_tokens=-1)
            self.assertEqual(cut["usage"]["prompt_tokens"], 256)


class Ranks(unittest.TestCase):
    ask = Case.ask

    def check(self, model, path, *flags):
        texts = [case["text"] for case in golden(model)["cases"][:6]]
        results = []
        for more in ((), flags):
            with Pair(*FLAGS, "--threads", "1", *more, model=GOLDENS / model) as server:
                results.append(self.ask(server, path, model="m", input=texts)["data"])
                if not more:
                    continue
                worker = next(pid for pid, words in child_processes(server.pid_of("tandem-engine-core")).items()
                              if any(word.startswith("--worker-rank=") for word in words))
                os.kill(worker, signal.SIGKILL)
                wait_for(lambda: server.total("tandem:engine_restarts_total") == 1, "the next engine serves")
                results.append(self.ask(server, path, model="m", input=texts)["data"])
        self.assertEqual(results[1], results[0])
        self.assertEqual(results[2], results[0])

    def test_an_encoder_in_ranks(self):
        self.check("modernbert_cls", "/v1/embeddings", "-tp", "2")

    def test_a_classifier_in_stages(self):
        self.check("xlmr_classify3", "/classify", "-pp", "2")

    def test_a_decoder_in_both(self):
        self.check("qwen3_embedding", "/v1/embeddings", "-tp", "2", "-pp", "2")


class Generators(unittest.TestCase):
    refuse = Case.refuse

    def test_a_model_that_generates(self):
        with Pair("--served-model-name", "m", "--kv-cache-memory-bytes", str(32 << 20)) as server:
            for path in ("/v1/embeddings", "/score", "/rerank", "/classify", "/pooling", "/v2/embed"):
                self.assertEqual(server.post(path, {"input": "a"})[0], 404, path)

    def test_any_decoder_embeds(self):
        with Pair("--served-model-name", "m", "--kv-cache-memory-bytes", str(32 << 20), "--runner", "pooling",
                  "--convert", "embed") as server:
            status, reply = server.post("/v1/embeddings", {"input": ["Once upon a time", "a"]})
            self.assertEqual(status, 200, reply)
            for item in json.loads(reply)["data"]:
                self.assertAlmostEqual(sum(number * number for number in item["embedding"]), 1, delta=1e-4)
            # A conversation is the text that the model's template makes of it.
            messages = [{"role": "user", "content": "Hello"}]
            chat = {"messages": messages, "add_generation_prompt": False}
            ids = json.loads(server.post("/tokenize", chat)[1])["tokens"]
            vectors = [json.loads(server.post("/v1/embeddings", body)[1])["data"]
                       for body in ({"messages": messages}, {"input": messages}, {"input": ids})]
            self.assertEqual(vectors[0], vectors[2])
            self.assertEqual(vectors[1], vectors[2])
            self.refuse(server, "/v1/embeddings", 400, "The model does not support Matryoshka", input="a", dimensions=8)

    def test_files_that_are_wrong_are_the_models_whichever_process_finds_it(self):
        with tempfile.TemporaryDirectory(prefix="tandem-test-") as folder:
            model = shutil.copytree(GOLDENS / "qwen3_embedding", pathlib.Path(folder) / "m")
            for path in (model, model / "modules.json"):
                path.chmod(0o755)
            (model / "modules.json").write_text("[5]")
            for program in ("tandem-frontend", "tandem-engine-core"):
                done = subprocess.run([bin_dir() / program, model, "--handshake-address", f"ipc://{folder}/h"],
                                      capture_output=True, text=True, timeout=LIMIT)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn("modules.json must be a list of objects", done.stdout + done.stderr)

    def test_what_is_not_built_is_refused_by_name(self):
        for flags in (("--device", "cuda", "-tp", "2"), ("--enable-prompt-embeds",)):
            with Pair("--runner", "pooling", *flags, wait=False) as server:
                self.assertNotEqual(server.process.wait(LIMIT), 0)
                self.assertIn("is not built for models that make vectors", server.log)


if __name__ == "__main__":
    unittest.main()
