#!/usr/bin/env python3
"""Requests of every feature outlive what happens to their engine: under drawn requests an engine is killed, aborted, stopped or
swapped, or the frontend is replaced, at drawn moments, and every response equals that of an undisturbed server.
TANDEM_DEATHS sets how often for each feature (1); TANDEM_SEED repeats a run's choices."""
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mixed_load
from images_test import data_url, part, png, user
from mixed_load import Answer
from pair import LIMIT, MODEL, ROOT, Pair, child_processes, wait_for
from peft_adapter import write_adapter
from prompt_embeds_test import encoded

NUM_DEATHS = int(os.environ.get("TANDEM_DEATHS", "1"))
NUM_REQUESTS = 10  # at any time
HEADS = ROOT / "tests/golden/speculative"
GOLDENS = os.environ.get("TANDEM_GOLDENS")
FLAGS = ("--served-model-name", "m", "--kv-cache-memory-bytes", "32M", "--max-engine-restarts-per-request", 1000,
         "--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1")
SMALL_CACHE = ("--block-size", 32, "--max-model-len", 256, "--num-gpu-blocks-override", 24)
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def drafts(**config):
    return ("--speculative-config", json.dumps({"num_speculative_tokens": 3, "adaptive": False, **config}))


def connector(**config):
    return ("--kv-transfer-config", json.dumps({"kv_role": "kv_both", **config}))


def long_request(dice):
    """With one of a few prompts of four blocks, so that caches of all kinds have something to keep."""
    number = dice.randrange(6)
    body = {"model": "m", "prompt": [(7 * number + i * i) % 200 + 1 for i in range(140)], "ignore_eos": True,
            "max_tokens": dice.randint(20, 100), "temperature": dice.choice([0, 0.9]), "seed": dice.randrange(1 << 30),
            "logprobs": 1}
    return "/v1/completions", {**body, **(STREAM if dice.random() < 0.7 else {"n": 2 if body["temperature"] else 1})}


def request_of_an_adapter(dice):
    path, body = mixed_load.draw_request(dice)
    return path, {**body, "model": dice.choice("mab")}


def request_of_a_head(dice):
    """For the golden model that has heads, whose vocabulary is small."""
    path, body = long_request(dice)
    return path, {**body, "prompt": [dice.randrange(5, 300) for _ in range(dice.randint(3, 60))]}


def request_of_embeddings(dice):
    path, body = long_request(dice)
    del body["prompt"]
    begin = dice.randrange(5, 30)
    return path, {**body, "prompt_embeds": encoded(range(begin, begin + dice.randint(5, 60)))}


def request_with_an_image(dice):
    parts = [part(data_url(png(dice.randrange(4), 64, 64))) for _ in range(dice.randint(0, 2))]
    body = {"model": "m", "messages": user("word " * dice.randint(1, 8), *parts), "ignore_eos": True,
            "max_tokens": dice.randint(10, 60), "temperature": dice.choice([0, 0.9]), "seed": dice.randrange(1 << 30)}
    return "/v1/chat/completions", {**body, **(STREAM if dice.random() < 0.7 else {})}


def engines_of(server):
    """The process ids of all engine cores."""
    return sorted(pid for pid, words in child_processes(server.process.pid).items() if words[0].endswith("tandem-engine-core"))


class Deaths(unittest.TestCase):
    def setUp(self):
        self.seed = int(os.environ.get("TANDEM_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"TANDEM_SEED={self.seed}")
        self.dice = random.Random(self.seed)
        folder = tempfile.TemporaryDirectory(prefix="tandem-deaths-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def outlives(self, *flags, draw=mixed_load.draw_request, model=MODEL, happenings=("kill", "abort", "stop", "swap", "reload"),
                 used=None):
        """used: a metric that shows that the feature was at work."""
        with Pair(*FLAGS, *flags, "--engine-hang-timeout", 3, model=model) as server:
            answers = self.load_with_deaths(server, draw, happenings, used)
            num_refused = sum(answer.status == 503 for answer in answers)
            print(f"{len(answers) - num_refused} responses to compare, {num_refused} refused")
            for answer in answers:
                if answer.status == 503 and self.came_without_an_engine(answer):
                    continue
                self.assertEqual(answer.status, 200, answer.result)
            mixed_load.check_equal_to_undisturbed(self, server, [answer for answer in answers if answer.status == 200])

    @staticmethod
    def came_without_an_engine(answer):
        """Refused at once; a request that was taken in is resumed."""
        return answer.num_events == 0 and "Retry-After" in answer.headers

    def load_with_deaths(self, server, draw, happenings, used):
        answers = []

        def running():
            return [answer for answer in answers if answer.running()]

        def num_events():
            while len(running()) < NUM_REQUESTS:
                answers.append(Answer(server, *draw(self.dice)))
            return sum(answer.num_events for answer in answers)

        for _ in range(NUM_DEATHS):
            target = num_events() + self.dice.randrange(1, 200)
            wait_for(lambda: num_events() >= target, "events arrive")
            before = [(answer, answer.num_events) for answer in running()]
            self.disturb(server, self.dice.choice(happenings))
            # All that ran goes on before the next one: without outputs between two deaths requests become suspects, and
            # what is alone at a third is refused, which is tested elsewhere. A plain response shows nothing but its end.
            wait_for(lambda: all(not answer.running() or (answer.body.get("stream") and answer.num_events > events)
                                 for answer, events in before), "every request goes on")
            wait_for(lambda: server.get("/health")[0] == 200, "all engines are there again")
        if used:
            wait_for(lambda: num_events() and any(
                series.startswith(used) and value > 0 for series, value in server.metrics().items()), used)
        for answer in answers:
            answer.wait()
        return answers

    def disturb(self, server, what):
        print(what)
        if what in ("swap", "reload"):
            done = server.command(what)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return
        how = {"kill": signal.SIGKILL, "abort": signal.SIGABRT, "stop": signal.SIGSTOP}[what.removesuffix(" rank")]
        victim = self.dice.choice(engines_of(server))
        if what.endswith(" rank"):
            victim = self.dice.choice([pid for pid, words in child_processes(victim).items()
                                       if any(word.startswith("--worker-rank=") for word in words)])
        os.kill(victim, how)

    # ---- The features ----

    def test_adapters(self):
        flags = [f"{name}={write_adapter(self.folder / name, seed)}" for seed, name in enumerate("ab")]
        self.outlives("--enable-lora", "--max-loras", 2, "--lora-modules", *flags, draw=request_of_an_adapter)

    def test_drafts_of_tokens(self):
        for config in ({"method": "ngram", "prompt_lookup_min": 1}, {"method": "suffix"}):
            with self.subTest(config):
                self.outlives(*drafts(**config), used="vllm:spec_decode_num_accepted_tokens_total")

    def test_drafts_of_a_model(self):
        self.outlives(*drafts(model=str(MODEL)), used="vllm:spec_decode_num_accepted_tokens_total")

    def test_drafts_of_a_head(self):
        self.outlives(*drafts(model=str(HEADS / "eagle3")), model=HEADS / "target", draw=request_of_a_head,
                      used="vllm:spec_decode_num_accepted_tokens_total")

    def test_blocks_in_host_memory(self):
        config = connector(kv_connector="OffloadingConnector", kv_connector_extra_config={"cpu_bytes_to_use": 10_000_000})
        self.outlives(*SMALL_CACHE, *config, draw=long_request, used="vllm:kv_offload_store_bytes_total")

    def test_blocks_of_ranks_in_host_memory(self):
        config = connector(kv_connector="OffloadingConnector", kv_connector_extra_config={"cpu_bytes_to_use": 10_000_000})
        self.outlives(*SMALL_CACHE, *config, "-tp", 2, draw=long_request, happenings=("kill", "kill rank", "stop", "swap"),
                      used="vllm:external_prefix_cache_hits_total")

    def test_blocks_in_files(self):
        tier = {"type": "fs", "root_dir": str(self.folder), "evictor_args": {"max_storage_size_gb": 0.1}}
        config = connector(kv_connector="OffloadingConnector", kv_connector_extra_config={
            "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 10_000_000, "secondary_tiers": [tier]})
        self.outlives(*SMALL_CACHE, *config, draw=long_request, used="vllm:external_prefix_cache_hits_total")

    def test_prompts_in_a_shared_folder(self):
        config = connector(kv_connector="ExampleConnector", kv_connector_extra_config={"shared_storage_path": str(self.folder)})
        self.outlives(*SMALL_CACHE, *config, draw=long_request, used="vllm:external_prefix_cache_hits_total")

    def test_prefill_apart_from_decode(self):
        self.outlives(*SMALL_CACHE, "--prefill", 1, "--decode", 1, "--prefill-min-tokens", 64, draw=long_request,
                      happenings=("kill", "abort", "stop"), used="vllm:external_prefix_cache_hits_total")

    def test_replicas(self):
        self.outlives("--data-parallel-size", 2)

    def test_ranks(self):
        self.outlives("--tensor-parallel-size", 2)

    def test_small_integers_and_a_small_cache(self):
        self.outlives(*SMALL_CACHE, "--quantization", "int8", "--kv-cache-dtype", "int8", "--no-async-scheduling", draw=long_request,
                      used="vllm:num_preemptions_total")

    def test_prompts_of_embeddings(self):
        self.outlives("--enable-prompt-embeds", draw=request_of_embeddings)

    def test_images(self):
        if not GOLDENS:
            self.skipTest("TANDEM_GOLDENS is not set")
        self.outlives("--dtype", "float32", model=pathlib.Path(GOLDENS) / "vision/qwen3_5_vl", draw=request_with_an_image,
                      used="vllm:mm_cache_queries_total")


if __name__ == "__main__":
    unittest.main(verbosity=2)
