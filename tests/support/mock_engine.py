#!/usr/bin/env python3
"""A stand-in for the engine process: it implements the wire and makes up the tokens.

For tests of the frontend and for measuring what the frontend alone costs. Needs
pyzmq and msgpack; shares no code with the C++ side, so it also checks the codec.
It connects to a frontend's handshake socket, replies to utility calls, takes ADD/ABORT,
and streams made-up tokens: one EngineCoreOutputs message per step and client,
covering every running request.

A request can steer its own outputs through `vllm_xargs` (wire: extra_args):
  mock_tokens [ids]   the tokens to emit, then EOS (finish "stop")
  mock_finish         stop | length | abort | error | repetition, on the last token
  mock_stop_reason    int or str put in stop_reason
  mock_error          "code|message|retryable(0/1)": end with an error output
  mock_cached N       claim N cached prompt tokens
  mock_preempt 1      add a PREEMPTED event and a second SCHEDULED
Without mock_tokens a request takes the next unread line of the file --replies, if there is one: a
JSON list of token ids.
"""
import argparse
import collections
import json
import random
import signal
import struct
import sys
import time

import msgpack
import zmq

ADD, ABORT, START_DP_WAVE, UTILITY = 0, 1, 2, 3
QUEUED, SCHEDULED, PREEMPTED = 1, 2, 3
FINISH = {"stop": 0, "length": 1, "abort": 2, "error": 3, "repetition": 4}
EXT_RAW_VIEW = 3
INLINE_LIMIT = 256            # bytes; larger arrays travel as extra frames

pack = msgpack.packb


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def unpack(b):
    return msgpack.unpackb(b, raw=False, strict_map_key=False)


def array(dtype, shape, fmt, values, aux):
    """ndarray / tensor triple; `aux` collects the out-of-line buffers."""
    data = struct.pack("<%d%s" % (len(values), fmt), *values)
    if len(data) < INLINE_LIMIT:
        return [dtype, shape, msgpack.ExtType(EXT_RAW_VIEW, data)]
    aux.append(data)
    return [dtype, shape, len(aux)]


class Request:
    __slots__ = ("id", "ext_id", "client", "prompt", "left", "made", "rng", "head",
                 "arrived", "scheduled", "logprobs", "prompt_logprobs", "stops", "eos",
                 "xargs", "script", "simple", "first_step", "lp_ids")

    def __init__(self, f, opt):
        sp = f[3] or {}
        self.id, self.client = f[0], f[11] if len(f) > 11 else 0
        self.ext_id = f[16] if len(f) > 16 else None
        self.prompt = f[1] or []
        self.left = sp.get("max_tokens", 16)
        self.made = 0
        self.rng = random.Random(sp.get("seed") if sp.get("seed") is not None else self.id)
        self.arrived = now()
        self.scheduled = None
        self.logprobs = sp.get("logprobs")
        self.lp_ids = sp.get("logprob_token_ids")
        self.prompt_logprobs = sp.get("prompt_logprobs")
        self.stops = set(sp.get("stop_token_ids") or ())
        self.eos = sp.get("_eos_token_id")
        self.xargs = sp.get("extra_args") or {}
        self.script = self.xargs.get("mock_tokens")
        if isinstance(self.script, str):
            self.script = [int(x) for x in self.script.split(",") if x]
        self.simple = (self.logprobs is None and self.lp_ids is None and
                       self.prompt_logprobs is None and not self.stops and
                       not self.xargs)
        # bytes of an output up to the first token: array(19), id, array header follows
        self.head = b"\xdc\x00\x13" + pack(self.id)
        self.first_step = -1


class Engine:
    def __init__(self, opt):
        self.opt = opt
        self.ctx = zmq.Context()
        self.identity = struct.pack("<H", opt.engine_index)
        self.waiting = collections.deque()
        self.running = {}
        self.by_id = {}
        self.finished = collections.defaultdict(set)      # client -> ids
        self.steps = self.tokens = 0
        self.step_times = []
        self.req_log = []
        self.stats_new = [0, 0, 0]                        # requests, queries, hits
        self.stop = False
        self.sleeping = self.paused = False
        self.weights = "default"
        self.loras = {}
        self.rec_in = open(opt.record, "w") if opt.record else None
        self.rec_out = open(opt.record_out, "w") if opt.record_out else None
        self.replies = open(opt.replies) if opt.replies else None
        self.vocab = self._vocab()
        self.tok_bytes = {t: pack(t) for t in self.vocab}
        # what follows new_token_ids in a plain output: 11 nils, 0 NaNs, 5 nils
        self.tail = b"\xc0" * 11 + b"\x00" + b"\xc0" * 5

    def _vocab(self):
        lo, hi = (int(x) for x in self.opt.token_range.split(":"))
        return list(range(lo, hi))

    # ---- startup -------------------------------------------------------
    def socket(self, kind, addr, linger, identity=None):
        s = self.ctx.socket(kind)
        s.setsockopt(zmq.LINGER, linger)
        s.setsockopt(zmq.RCVHWM, 0)
        s.setsockopt(zmq.SNDHWM, self.opt.sndhwm if kind == zmq.PUSH else 0)
        if identity is not None:
            s.setsockopt(zmq.IDENTITY, identity)
        s.connect(addr)
        return s

    def status(self, word):
        return pack({"status": word, "local": self.opt.local, "headless": not self.opt.local})

    def ready_response(self):
        o = self.opt
        return {
            "max_model_len": o.max_model_len, "num_gpu_blocks": o.num_gpu_blocks,
            "block_size": o.block_size, "dp_stats_address": self.addr.get("frontend_stats_publish_address"),
            "dtype": "bfloat16", "vllm_version": "0.33.0", "world_size": 1,
            "data_parallel_size": 1, "tensor_parallel_size": 1, "pipeline_parallel_size": 1,
            "decode_context_parallel_size": 1, "data_parallel_rank": o.engine_index,
            "max_num_seqs": o.max_num_seqs, "max_num_batched_tokens": 8192,
            "instance_id": "mock-%d" % o.engine_index, "supports_lora": o.lora, "max_loras": 4 if o.lora else 0,
            "mamba_block_size": None, "kv_cache_size_tokens": o.num_gpu_blocks * o.block_size,
            "kv_cache_max_concurrency": o.num_gpu_blocks * o.block_size / o.max_model_len,
            "kv_events_config": None, "weight_transfer_backend": None, "enable_sleep_mode": True,
            "supports_draft_weight_updates": False, "effective_attention_block_size": o.block_size,
            "coord_store_port": 0, "coordinator_input_address": None,
            "coordinator_output_address": None,
        }

    def connect(self):
        hs = self.socket(zmq.DEALER, self.opt.handshake, 5000, self.identity)
        hs.send(self.status("HELLO"))
        init = unpack(hs.recv())
        self.log("init", init)
        self.init, self.addr = init, init["addresses"]
        self.ins = [self.socket(zmq.DEALER, a, 0, self.identity) for a in self.addr["inputs"]]
        for s in self.ins:
            s.send(pack(self.ready_response()))
        self.outs = [self.socket(zmq.PUSH, a, 4000) for a in self.addr["outputs"]]
        self.co_sub = self.co_push = None
        if self.addr.get("coordinator_input"):            # names are from the engine's side
            self.co_sub = self.socket(zmq.XSUB, self.addr["coordinator_input"], 0)
            self.co_sub.send(b"\x01")
            got = self.co_sub.recv()
            assert got == b"READY", got
            self.co_push = self.socket(zmq.PUSH, self.addr["coordinator_output"], 4000)
        hs.send(self.status("READY"))
        self.hs = hs
        self.log("connected", self.addr)

    def log(self, *a):
        if not self.opt.quiet:
            print("[mock %d]" % self.opt.engine_index, *a, file=sys.stderr, flush=True)

    # ---- input ---------------------------------------------------------
    def handle(self, frames):
        kind = frames[0][0]
        body = unpack(frames[1])
        if self.rec_in:
            self.rec_in.write(json.dumps({
                "t": time.time(), "type": kind, "frames_hex": [x.hex() for x in frames],
                "decoded": body}, default=lambda x: x.hex() if isinstance(x, bytes) else repr(x)) + "\n")
            self.rec_in.flush()
        if kind == ADD:
            r = Request(body, self.opt)
            if r.script is None and self.replies is not None:
                self.script(r)
            self.by_id[r.id] = r
            self.waiting.append(r)
        elif kind == ABORT:
            for rid in body:
                r = self.by_id.pop(rid, None)
                if r is None:
                    continue
                self.running.pop(rid, None)
                self.waiting = collections.deque(w for w in self.waiting if w is not r)
                self.finished[r.client].add(rid)
            if not self.running:
                self.flush_finished()
        elif kind == UTILITY:
            client, call, method, args = body
            self.log("utility", method, args)
            fail, result = None, None
            try:
                result = self.utility(method, args)
            except Exception as e:
                fail = "%s: %s" % (type(e).__name__, e)
            reply = [call, fail, None if fail else [None, result]]
            self.send(client, [pack([self.opt.engine_index, [], None, now(), reply, None, None, None, None])])
        else:
            self.log("request type", kind, body)

    def script(self, r):
        line = self.replies.readline()
        if line:
            r.script, r.simple = json.loads(line), False

    def utility(self, m, a):
        if m == "get_supported_tasks":
            return ["generate"]
        if m == "is_sleeping":
            return self.sleeping
        if m in ("sleep", "wake_up"):
            self.sleeping = m == "sleep"
            return None if m == "sleep" else True
        if m in ("pause_scheduler", "pause_generation"):
            self.paused = True
            return None
        if m in ("resume_scheduler", "resume_generation"):
            self.paused = False
            return None
        if m == "is_scheduler_paused":
            return self.paused
        if m == "set_weight_version":
            self.weights = a[0]
            return None
        if m == "get_weight_version":
            return self.weights
        if m in ("reset_prefix_cache", "pin_lora"):
            return True
        if m == "add_lora":
            self.loras[a[0][1]] = a[0]
            return True
        if m == "remove_lora":
            return self.loras.pop(a[0], None) is not None
        if m == "list_loras":
            return sorted(self.loras)
        if m == "collective_rpc":
            return [None]
        if m in ("reset_mm_cache", "reset_encoder_cache", "profile", "release_kv_cache_memory",
                 "execute_dummy_batch", "save_sharded_state"):
            return None
        raise NotImplementedError("no utility method " + m)

    # ---- output --------------------------------------------------------
    def send(self, client, frames):
        if self.rec_out:
            self.rec_out.write(json.dumps({"t": time.time(), "client": client,
                                           "frames_hex": [bytes(x).hex() for x in frames]}) + "\n")
            self.rec_out.flush()
        self.outs[client].send_multipart(frames, copy=True)

    def sched_stats(self):
        n, q, h = self.stats_new
        self.stats_new = [0, 0, 0]
        used = sum((len(r.prompt) + r.made) for r in self.running.values()) if len(self.running) < 64 \
            else len(self.running) * 64
        return {
            "num_running_reqs": len(self.running), "num_waiting_reqs": len(self.waiting),
            "num_skipped_waiting_reqs": 0, "num_kv_fetch_reqs_by_stage": {}, "step_counter": 0, "current_wave": 0,
            "kv_cache_usage": min(1.0, used / max(1, self.opt.num_gpu_blocks * self.opt.block_size)),
            "iteration_details": None,
            "prefix_cache_stats": {"reset": False, "requests": n, "queries": q, "hits": h,
                                   "preempted_requests": 0, "preempted_queries": 0, "preempted_hits": 0,
                                   "hits_by_source": {}},
            "connector_prefix_cache_stats": None, "kv_cache_eviction_events": [],
            "spec_decoding_stats": None, "kv_connector_stats": None, "ec_connector_stats": None,
            "waiting_lora_adapters": {}, "running_lora_adapters": {}, "cudagraph_stats": None,
            "perf_stats": None}

    def flush_finished(self):
        for c, ids in self.finished.items():
            if ids:
                self.send(c, [pack([self.opt.engine_index, [], self.sched_stats(), now(), None,
                                    sorted(ids), None, None, None])])
        self.finished.clear()

    def pick(self, r, k):
        """The next k tokens of a request and whether its script ended."""
        if r.script is not None:
            part = list(r.script[r.made:r.made + k])
            if len(part) < k and r.made + len(part) >= len(r.script) and r.eos is not None:
                part.append(r.eos)
            return part or [r.eos or 0]
        if self.opt.mode == "echo" and r.prompt:
            p, n = r.prompt, len(r.prompt)
            return [p[(r.made + i) % n] for i in range(k)]
        if self.opt.mode == "fixed":
            return [self.vocab[(r.made + i) % len(self.vocab)] for i in range(k)]
        return [self.vocab[int(r.rng.random() * len(self.vocab))] for _ in range(k)]

    def slow_output(self, r, toks, aux, first):
        """The general form: a full 19-element list. Returns (list, finished)."""
        o = [None] * 19
        finish = stop = None
        cut = []
        for t in toks:
            cut.append(t)
            r.made += 1
            r.left -= 1
            if t == r.eos:
                finish = 0
            elif t in r.stops:
                finish, stop = 0, t
            elif r.left <= 0:
                finish = 1
            if finish is not None:
                break
        if r.xargs.get("mock_error") and first:
            code, msg, retry = r.xargs["mock_error"].split("|")
            cut, finish = [], 3
            o[18] = {"code": code, "message": msg, "retryable": retry == "1"}
        if finish is not None and "mock_finish" in r.xargs:
            finish = FINISH[r.xargs["mock_finish"]]
        if finish is not None and "mock_stop_reason" in r.xargs:
            stop = r.xargs["mock_stop_reason"]
        o[0], o[1], o[5], o[6], o[13] = r.id, cut, finish, stop, 0
        if (r.logprobs is not None or r.lp_ids) and cut:
            k = 0 if r.logprobs is None else self.opt.vocab_size if r.logprobs < 0 else r.logprobs
            o[2] = self.logprob_rows(cut, k, aux, True, r.lp_ids)
        if first:
            ev = [{"type": QUEUED, "timestamp": r.arrived}, {"type": SCHEDULED, "timestamp": r.scheduled}]
            if r.xargs.get("mock_preempt"):
                ev += [{"type": PREEMPTED, "timestamp": now()}, {"type": SCHEDULED, "timestamp": now()}]
            o[7] = ev
            n, c = len(r.prompt), int(r.xargs.get("mock_cached", 0))
            o[11] = {"num_prompt_tokens": n, "num_computed_tokens": n - c, "num_cached_tokens": c,
                     "num_local_cached_tokens": c, "num_external_cached_tokens": 0,
                     "num_cache_creation_tokens": n - c}
            self.stats_new[0] += 1
            self.stats_new[1] += n
            self.stats_new[2] += c
            if r.prompt_logprobs is not None and len(r.prompt) > 1:
                k = self.opt.vocab_size if r.prompt_logprobs < 0 else r.prompt_logprobs
                o[3] = self.logprob_rows(r.prompt[1:], k, aux, False, None)
        if finish is not None and r.xargs.get("kv_transfer_params"):
            o[8] = {"do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [1, 2],
                    "remote_engine_id": "mock", "remote_host": "127.0.0.1", "remote_port": 1}
        return o, finish is not None

    def logprob_rows(self, toks, k, aux, lists, ids):
        rows, cols = len(toks), (len(ids) if ids else k) + 1
        tid, lp, rank = [], [], []
        for i, t in enumerate(toks):
            top = ids if ids else [v for v in range(self.opt.vocab_size)][:k]
            tid += [t] + list(top)
            lp += [-0.5 - i * 0.125] + [-0.5 - 0.25 * j for j in range(cols - 1)]
            rank.append(1 + i)
        d = ("<i4", "<f4", "<i8") if lists else ("int32", "float32", "int64")
        out = [array(d[0], [rows, cols], "i", tid, aux), array(d[1], [rows, cols], "f", lp, aux),
               array(d[2], [rows], "q", rank, aux), None]
        return out if lists else out + [None]

    def step(self):
        opt = self.opt
        while self.waiting and len(self.running) < opt.max_num_seqs:
            r = self.waiting.popleft()
            r.scheduled = now()
            r.first_step = self.steps
            self.running[r.id] = r
        if not self.running:
            return
        k = opt.tokens_per_message
        parts = collections.defaultdict(list)
        aux = collections.defaultdict(list)
        done = []
        nv, vocab, tok_bytes, tail = len(self.vocab), self.vocab, self.tok_bytes, self.tail
        fast = opt.mode in ("random", "fixed") and k == 1
        fixed = opt.mode == "fixed"
        for r in self.running.values():
            if fast and r.simple and r.made and r.left > 1:
                t = vocab[r.made % nv] if fixed else vocab[int(r.rng.random() * nv)]
                r.made += 1
                r.left -= 1
                parts[r.client].append(r.head + b"\x91" + tok_bytes[t] + tail)
                self.tokens += 1
                continue
            o, fin = self.slow_output(r, self.pick(r, k), aux[r.client], r.made == 0)
            self.tokens += len(o[1])
            parts[r.client].append(pack(o))
            if fin:
                done.append(r)
        for r in done:
            del self.running[r.id]
            self.by_id.pop(r.id, None)
            self.finished[r.client].add(r.id)
            if opt.step_log:
                self.req_log.append((r.ext_id or r.id, r.first_step, self.steps))
        stats = pack(self.sched_stats()) if not opt.no_stats else b"\xc0"
        sent_at = now()
        for c, outs in parts.items():
            n = len(outs)
            head = bytes([0x90 | n]) if n < 16 else b"\xdc" + struct.pack(">H", n)
            fin = sorted(self.finished.pop(c, ()))
            body = b"".join([b"\x99", pack(opt.engine_index), head, *outs, stats, pack(now()),
                             b"\xc0", pack(fin) if fin else b"\xc0", b"\xc0\xc0",
                             pack(self.weights)])
            stats = b"\xc0"                                 # only the first client gets them
            self.send(c, [body] + aux[c])
        self.steps += 1
        if opt.step_log:
            self.step_times.append(sent_at)
        if self.finished and any(self.finished.values()):
            self.flush_finished()
        if opt.die_after and self.tokens >= opt.die_after:
            self.log("dying after", self.tokens, "tokens")
            for s in self.outs:
                s.send(b"ENGINE_CORE_DEAD")
            self.stop = True

    # ---- main loop -----------------------------------------------------
    def run(self):
        poller = zmq.Poller()
        for s in self.ins:
            poller.register(s, zmq.POLLIN)
        if self.co_sub:
            poller.register(self.co_sub, zmq.POLLIN)
        rate = self.opt.tokens_per_second
        gap = self.opt.tokens_per_message / rate if rate else 0.0
        due = now()
        published = 0.0
        while not self.stop:
            busy = (self.running or self.waiting) and not self.paused
            wait = 200
            if busy:
                left = due - now()
                # poll() has 1 ms grain: sleep the coarse part there, spin-sleep the rest
                wait = max(0, int(left * 1000))
            for s, _ in poller.poll(wait):
                while True:
                    try:
                        frames = s.recv_multipart(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    if s is self.co_sub:
                        self.log("coordinator", [f.hex() for f in frames])
                        continue
                    self.handle(frames)
            if (self.running or self.waiting) and not self.paused:
                t = now()
                if t < due:
                    if due - t < 0.0015:
                        time.sleep(max(0.0, due - t))
                    else:
                        continue
                self.step()
                t = now()
                due = due + gap if t - due < 0.5 and due + gap > t - 0.5 else t
                if not busy:
                    due = t + gap
            if self.co_push and now() - published > 0.1:
                published = now()
                st = self.sched_stats()
                self.co_push.send(pack([self.opt.engine_index, [], st, now(), None, None, None, None, None]))
        if self.opt.step_log:
            with open(self.opt.step_log, "w") as f:
                json.dump({"step_times": self.step_times, "requests": self.req_log}, f)
        self.ctx.destroy(linger=2000)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--handshake", default="tcp://127.0.0.1:29550")
    p.add_argument("--engine-index", type=int, default=0)
    p.add_argument("--local", action="store_true", help="send local=true, headless=false in HELLO")
    p.add_argument("--tokens-per-second", type=float, default=0, help="per request; 0 = as fast as possible")
    p.add_argument("--tokens-per-message", type=int, default=1)
    p.add_argument("--mode", choices=["random", "fixed", "echo"], default="random")
    p.add_argument("--token-range", default="290:500", help="lo:hi of the ids to emit")
    p.add_argument("--vocab-size", type=int, default=512)
    p.add_argument("--max-num-seqs", type=int, default=1024)
    p.add_argument("--max-model-len", type=int, default=8192)
    p.add_argument("--num-gpu-blocks", type=int, default=4096)
    p.add_argument("--block-size", type=int, default=16)
    p.add_argument("--lora", action="store_true", help="announce LoRA support")
    p.add_argument("--die-after", type=int, default=0, help="send ENGINE_CORE_DEAD after N tokens and exit")
    p.add_argument("--sndhwm", type=int, default=0, help="output queue limit in messages (0 = none)")
    p.add_argument("--no-stats", action="store_true", help="send nil scheduler_stats")
    p.add_argument("--record", help="JSONL of the messages received")
    p.add_argument("--record-out", help="JSONL of the messages sent")
    p.add_argument("--replies", help="token ids of the requests to come, one JSON list per line")
    p.add_argument("--step-log", help="JSON of step times and request steps, written at exit")
    p.add_argument("--quiet", action="store_true")
    opt = p.parse_args()
    e = Engine(opt)

    def stop(*_):
        e.stop = True
    e.connect()                        # until here the default handlers end the process
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    e.run()


if __name__ == "__main__":
    main()
