"""A frontend that tolerates nothing: each message that vllm-rs 0.33 would take for the engine's death fails the test.

Binds the three sockets in a folder, starts the real engine core and sends it requests in both
encodings: vllm-rs's (32-bit floats, every key) and Python's (64-bit floats, defaults left out).
Needs pyzmq and msgpack; shares no code with the C++ side.
"""
import os
import pathlib
import struct
import subprocess

import msgpack
import zmq

from pair import LIMIT

LIMIT_MS = LIMIT * 1000  # for one message
ADD, ABORT, UTILITY = b"\0", b"\1", b"\3"
READY_KEYS = """max_model_len num_gpu_blocks block_size dp_stats_address dtype vllm_version world_size
    data_parallel_size tensor_parallel_size pipeline_parallel_size decode_context_parallel_size
    data_parallel_rank max_num_seqs max_num_batched_tokens instance_id supports_lora max_loras""".split()
STATS_KEYS = """num_running_reqs num_waiting_reqs step_counter current_wave kv_cache_usage
    prefix_cache_stats kv_cache_eviction_events""".split()
CACHE_KEYS = "reset requests queries hits preempted_requests preempted_queries preempted_hits".split()


def unpack(data):
    return msgpack.unpackb(data, raw=False, strict_map_key=False)


def rust_params(**given):
    """SamplingParams as vllm-rs writes them."""
    params = {"temperature": 1.0, "watermarking": True, "top_p": 1.0, "top_k": 0, "max_tokens": 16,
              "min_tokens": 0, "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
              "repetition_penalty": 1.0, "stop_token_ids": [], "_all_stop_token_ids": [],
              "routed_experts_prompt_start": 0}
    return msgpack.packb({**params, **given}, use_single_float=True)


def python_params(**given):
    """SamplingParams as vLLM's Python frontend writes them."""
    return msgpack.packb({"stop": [], "stop_token_ids": [], "output_kind": 1, "skip_clone": True,
                          "bad_words": [], "skip_reading_prefix_cache": False, **given})


def add_body(request_id, prompt, packed_params, lora_request=None):
    before = [request_id, prompt, None]
    after = [None, 1234.5, lora_request] + [None] * 4 + [0, 0, 0, None, False, request_id, None, {}, False, None, None]
    return b"\xdc\x00\x16" + b"".join(map(msgpack.packb, before)) + packed_params + b"".join(
        map(msgpack.packb, after))


def check_logprobs(value, token_dtype):
    if value is None:
        return
    assert isinstance(value, list) and len(value) <= 5, value
    assert value[0][0] == token_dtype, value[0][0]
    assert len(value) < 4 or value[3] is None, "cu_counts is not nil"


def check_outputs(message):
    """Fails on what would make vllm-rs exit."""
    assert isinstance(message, list) and 2 <= len(message) <= 9, message
    message = message + [None] * (9 - len(message))
    outputs, stats, utility, finished = message[1], message[2], message[4], message[5]
    assert outputs or stats or utility or finished, "an empty message"
    assert message[6] is None and message[7] is None, "a wave word on an output socket"
    assert not (outputs and utility), "outputs together with a utility reply"
    assert isinstance(message[3], float) and message[3] > 0, "no timestamp"
    for output in outputs:
        assert isinstance(output, list) and len(output) == 19, output
        assert isinstance(output[0], str), output
        assert all(isinstance(t, int) and t >= 0 for t in output[1]), output
        assert output[5] in (None, 0, 1, 2, 3, 4), output
        check_logprobs(output[2], "<i4")
        check_logprobs(output[3], "int32")
    if stats is not None:
        assert all(key in stats for key in STATS_KEYS), stats
        assert all(key in stats["prefix_cache_stats"] for key in CACHE_KEYS), stats
    return message


class StrictFrontend:
    def __init__(self, folder):
        self.folder = folder
        self.context = zmq.Context()
        self.handshake = self._bind(zmq.ROUTER, "handshake")
        self.input = self._bind(zmq.ROUTER, "input")
        self.output = self._bind(zmq.PULL, "output")
        self.identity = None

    def _bind(self, kind, name):
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, LIMIT_MS)
        socket.bind(self.address(name))
        return socket

    def address(self, name):
        return f"ipc://{self.folder}/{name}"

    def meet(self, coordinator=(None, None)):
        """The whole handshake; returns the ready response."""
        self.identity, hello = self.handshake.recv_multipart()
        assert len(self.identity) == 2, self.identity
        self.hello = hello = unpack(hello)
        assert hello["status"] == "HELLO" and isinstance(hello["local"], bool), hello
        self.handshake.send_multipart([self.identity, msgpack.packb({
            "addresses": {"inputs": [self.address("input")], "outputs": [self.address("output")],
                          "coordinator_input": coordinator[0], "coordinator_output": coordinator[1],
                          "frontend_stats_publish_address": None},
            "parallel_config": {}})])
        identity, ready = self.input.recv_multipart()
        assert identity == self.identity
        ready = unpack(ready)
        assert all(key in ready for key in READY_KEYS), ready
        assert ready["dtype"] in ("float16", "bfloat16", "float32"), ready
        identity, last = self.handshake.recv_multipart()
        assert identity == self.identity and unpack(last)["status"] == "READY"
        return ready

    def send(self, kind, *frames):
        self.input.send_multipart([self.identity, kind, *frames])

    def add(self, request_id, prompt, packed_params, lora_request=None):
        self.send(ADD, add_body(request_id, prompt, packed_params, lora_request))

    def abort(self, *request_ids):
        self.send(ABORT, msgpack.packb(list(request_ids)))

    def receive(self):
        """One message, checked, and its extra frames."""
        body, *aux = self.output.recv_multipart()
        return check_outputs(unpack(body)), aux

    def is_silent(self, milliseconds=200):
        return self.output.poll(milliseconds) == 0

    def collect(self, *request_ids):
        """All outputs of some requests until each has ended: {id: [output, …]}."""
        found = {request_id: [] for request_id in request_ids}
        left = set(request_ids)
        while left:
            message, _ = self.receive()
            for output in message[1]:
                if output[0] in left:
                    found[output[0]].append(output)
                    if output[5] is not None:
                        left.discard(output[0])
            for request_id in message[5] or ():
                assert request_id not in left, f"{request_id} ended without a finish_reason"
        return found

    def call(self, call_id, method, args):
        """A utility call's (failure, value)."""
        self.send(UTILITY, msgpack.packb([0, call_id, method, args]))
        while True:
            message, _ = self.receive()
            if message[4] is not None and message[4][0] == call_id:
                _, failure, result = message[4]
                assert failure is not None or (len(result) == 2 and result[0] is None), result
                return failure, None if failure is not None else result[1]

    def close(self):
        self.context.destroy(linger=0)


def start_engine(frontend, model, *flags, **environment):
    binary = pathlib.Path(os.environ["TANDEM_BIN_DIR"]) / "tandem-engine-core"
    return subprocess.Popen([binary, "--model", model, "--threads", "1",
                             "--handshake-address", frontend.address("handshake"), *flags],
                            env={**os.environ, **environment})
