#!/usr/bin/env python3
"""A fleet of many replicas behind an endpoint picker, simulated: hit rates, queues, times to first token, and what it costs to
grow. Needs no server; the same seed gives the same numbers.

  tests/bench/fleet.py --seconds 120 --warm 90    # the table of deploy/kubernetes/README.md, and one of growth
  tests/bench/fleet.py --svg fleet.svg            # a picture as well
  tests/bench/fleet.py --replicas 100 --seconds 300 --rate 0.2

A replica works as Tandem's scheduler does with its default flags: steps of a token for each running request and a chunk of the
oldest prompt, full blocks cached and the least recently used ones dropped, admission where a seat and blocks are free. Its steps
take as long as measured ones (StepTimes). The picker is that of the tests (tests/support/picker.py) and scrapes every 50 ms.
Clients are conversations: a system prompt that many share, then turns, of which each has all earlier ones as its prompt.
"""
import argparse
import collections
import dataclasses
import heapq
import itertools
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from picker import SCRAPE_S, Picker

BLOCK = 32  # tokens


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Of the 1.1b model in bf16 on two cores, by docs/developer/figures.md: 8 streams take 36 to 54 ms, for which the weights
    are read once; 3,072 tokens of a prompt take 8,123 ms."""
    least: float = 0.045  # s: the weights are read
    per_row: float = 8.123 / 3072  # s: arithmetic

    def of(self, rows):
        return max(self.least, self.per_row * rows)


@dataclasses.dataclass(frozen=True)
class Limits:
    num_blocks: int = 4096  # of the KV cache: 2.9 GB of the 1.1b model
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 2048


@dataclasses.dataclass(eq=False)
class Request:
    blocks: list  # names of the prompt's whole blocks
    num_tokens: int
    num_outputs: int
    arrived: float = 0.0
    left: int = 0  # tokens of the prompt to compute, then of the output
    num_hit: int = 0  # tokens
    held: list = dataclasses.field(default_factory=list)  # names of the blocks that it shares
    num_private: int = 0  # its other blocks
    first_token: float = 0.0
    ended: float = 0.0
    output_blocks: list = dataclasses.field(default_factory=list)


class Replica:
    """Time passes in stretches of equal steps: until a request ends, a prompt is computed, or one is admitted."""

    def __init__(self, times, limits):
        self.times, self.limits = times, limits
        self.waiting, self.decoding, self.prompt = collections.deque(), [], None
        self.cached = collections.OrderedDict()  # blocks that nobody holds, the latest last
        self.held = collections.Counter()  # how many requests have a block
        self.num_private = 0
        self.now = 0.0  # the begin of a step
        self.version = 0  # of the stretch

    def num_used(self):
        return len(self.held) + self.num_private

    def kv_use(self):
        return self.num_used() / self.limits.num_blocks

    def add(self, request, now):
        """Takes a request in at the begin of the next step."""
        if self.is_idle():
            self.now = max(self.now, now)
        self.waiting.append(request)

    def is_idle(self):
        return not self.decoding and self.prompt is None and not self.waiting

    def stretch(self):
        """(seconds of a step, number of steps, prompt tokens of each) until something changes; None: nothing is to be done."""
        self._admit()
        if self.prompt is None and not self.decoding:
            return None
        rows = len(self.decoding)
        chunk = min(self.prompt.left, self.limits.max_num_batched_tokens - rows) if self.prompt else 0
        num_steps = 1 if self.prompt else math.inf  # the last chunk may be a smaller one
        if self.prompt:
            num_steps = max(1, self.prompt.left // chunk)
        for request in self.decoding:
            num_steps = min(num_steps, request.left)
        return self.times.of(rows + chunk), num_steps, chunk

    def run(self, num_steps, seconds, chunk):
        """Returns the requests that ended."""
        self.now += num_steps * seconds
        for request in self.decoding:
            request.left -= num_steps
        if self.prompt:
            self.prompt.left -= num_steps * chunk
            if self.prompt.left == 0:
                self._begin_output()
        ended = [request for request in self.decoding if request.left == 0]
        self.decoding = [request for request in self.decoding if request.left > 0]
        for request in ended:
            request.ended = self.now
            self._release(request)
        return ended

    def _begin_output(self):
        request, self.prompt = self.prompt, None
        request.first_token, request.left = self.now, request.num_outputs - 1
        self.decoding.append(request)
        for block in request.blocks[request.num_hit // BLOCK:]:
            if block not in self.held and block not in self.cached:
                self._take(request, block)
                request.num_private -= 1
                self.num_private -= 1

    def _take(self, request, block):
        self.cached.pop(block, None)
        self.held[block] += 1
        request.held.append(block)

    def _admit(self):
        if self.prompt is not None or not self.waiting or len(self.decoding) >= self.limits.max_num_seqs:
            return
        request = self.waiting[0]
        most_hits = (request.num_tokens - 1) // BLOCK  # the last token is computed
        hits = list(itertools.takewhile(lambda block: block in self.held or block in self.cached, request.blocks[:most_hits]))
        num_private = (request.num_tokens + request.num_outputs + BLOCK - 1) // BLOCK - len(hits)
        num_taken = sum(block not in self.held for block in hits)
        if self.num_used() + num_taken + num_private > self.limits.num_blocks and self.decoding:
            return
        self.prompt = self.waiting.popleft()
        for block in hits:
            self._take(request, block)
        request.num_hit, request.num_private = len(hits) * BLOCK, num_private
        request.left = request.num_tokens - request.num_hit
        self.num_private += num_private
        self._evict()

    def _release(self, request):
        """The end of a prefix is to be dropped before its begin."""
        self.num_private -= request.num_private
        for block in reversed(request.output_blocks):
            if block not in self.held:
                self._cache(block)
        for block in reversed(request.held):
            self.held[block] -= 1
            if self.held[block] == 0:
                del self.held[block]
                self._cache(block)
        self._evict()

    def _cache(self, block):
        self.cached[block] = None
        self.cached.move_to_end(block)

    def _evict(self):
        while self.cached and len(self.cached) + self.num_used() > self.limits.num_blocks:
            self.cached.popitem(last=False)


@dataclasses.dataclass(frozen=True)
class Load:
    rate: float = 0.06  # conversations that begin, per second and replica
    num_groups: int = 200  # with a system prompt of their own, some far more used than others
    system_tokens: int = 800
    user_tokens: int = 120  # of a turn, mean
    output_tokens: int = 100
    turns: float = 4  # mean
    think_s: float = 20  # between an output and the next turn, mean


class Talk:
    """A conversation: its blocks are named by their owner and place."""

    def __init__(self, number, load, rng):
        self.number, self.load, self.rng = number, load, rng
        self.group = min(int(rng.paretovariate(0.8)) - 1, load.num_groups - 1)
        self.num_tokens = load.system_tokens
        self.turns_left = 1 + int(rng.expovariate(1 / (load.turns - 1)))

    def next_request(self, now):
        self.turns_left -= 1
        self.num_tokens += 8 + int(self.rng.expovariate(1 / self.load.user_tokens))
        num_outputs = 2 + int(self.rng.expovariate(1 / self.load.output_tokens))
        prompt = self.num_tokens
        self.num_tokens += num_outputs
        names = self.names(self.num_tokens // BLOCK)
        return Request(names[:prompt // BLOCK], prompt, num_outputs, now, output_blocks=names[prompt // BLOCK:])

    def names(self, count):
        num_shared = self.load.system_tokens // BLOCK
        return [(-1 - self.group, i) if i < num_shared else (self.number, i) for i in range(count)]


class Fleet:
    """Requests go to replicas as `weights` say: a Picker's, or None: to any."""

    def __init__(self, num_replicas, weights, load, seed, times=StepTimes(), limits=Limits()):
        self.rng, self.load, self.times, self.limits = random.Random(seed), load, times, limits
        self.replicas = [Replica(times, limits) for _ in range(num_replicas)]
        self.picker = Picker(num_replicas, weights or {}, seed, limits.num_blocks)
        self.is_picked = weights is not None
        self.num_ready = num_replicas
        self.events, self.order, self.num_talks = [], itertools.count(), 0
        self.scraped, self.ended = -SCRAPE_S, []
        self.base_rate = load.rate * num_replicas  # conversations per second
        self.rate_factor = lambda now: 1.0

    def at(self, time, what, *values):
        heapq.heappush(self.events, (time, next(self.order), what, values))

    def run(self, seconds):
        self.at(self.rng.expovariate(self.base_rate), self.begin_talk)
        while self.events and self.events[0][0] < seconds:
            now, _, what, values = heapq.heappop(self.events)
            what(now, *values)
        return self.ended

    def begin_talk(self, now):
        self.num_talks += 1
        self.send(now, Talk(self.num_talks, self.load, self.rng))
        self.at(now + self.rng.expovariate(self.base_rate * self.rate_factor(now)), self.begin_talk)

    def send(self, now, talk):
        request = talk.next_request(now)
        request.talk = talk
        replica = self.replicas[self.choose(now, request)]
        was_idle = replica.is_idle()
        replica.add(request, now)
        if was_idle:
            self.plan(replica)
        elif replica.prompt is None and len(replica.waiting) == 1:
            self.cut(replica, now)

    def choose(self, now, request):
        if not self.is_picked:
            return self.rng.randrange(self.num_ready)
        if now >= self.scraped + SCRAPE_S:
            self.scraped = now // SCRAPE_S * SCRAPE_S
            self.picker.update({number: {"waiting": len(replica.waiting), "kv_use": replica.kv_use()}
                                for number, replica in enumerate(self.replicas[:self.num_ready])})
        return self.picker.pick(request.blocks)

    def plan(self, replica):
        stretch = replica.stretch()
        if stretch is None:
            return
        replica.version += 1
        seconds, num_steps, chunk = stretch
        replica.planned = stretch
        self.at(replica.now + num_steps * seconds, self.end_stretch, replica, replica.version)

    def cut(self, replica, now):
        """Ends the stretch with the step that runs now, so that a prompt may begin."""
        seconds, num_steps, chunk = replica.planned
        so_far = min(num_steps, max(1, math.ceil((now - replica.now) / seconds - 1e-9)))
        if so_far < num_steps:
            replica.version += 1
            replica.planned = (seconds, so_far, chunk)
            self.at(replica.now + so_far * seconds, self.end_stretch, replica, replica.version)

    def end_stretch(self, now, replica, version):
        if version != replica.version:
            return
        seconds, num_steps, chunk = replica.planned
        for request in replica.run(num_steps, seconds, chunk):
            self.ended.append(request)
            if request.talk.turns_left > 0:
                self.at(now + self.rng.expovariate(1 / self.load.think_s), self.send, request.talk)
        self.plan(replica)

    # ---- growth ----

    def grow_by_queue(self, target, begin_s, every_s=15, most=10**9):
        """As an HPA on vllm:num_requests_waiting: more replicas, which are ready after begin_s, at most twice as many a minute."""
        self.hpa = {"target": target, "begin_s": begin_s, "every_s": every_s, "most": most, "asked": [(0, len(self.replicas))]}
        self.at(every_s, self.look_at_queues)

    def look_at_queues(self, now):
        hpa = self.hpa
        num_waiting = sum(len(replica.waiting) for replica in self.replicas[:self.num_ready])
        asked = hpa["asked"][-1][1]
        minute_ago = next(count for time, count in reversed(hpa["asked"]) if time <= max(0, now - 60))
        wanted = min(math.ceil(num_waiting / hpa["target"]), 2 * minute_ago, hpa["most"])
        if wanted > asked:
            hpa["asked"].append((now, wanted))
            self.at(now + hpa["begin_s"], self.become_ready, wanted)
        self.at(now + hpa["every_s"], self.look_at_queues)

    def become_ready(self, now, count):
        while self.num_ready < count:
            self.replicas.append(Replica(self.times, self.limits))
            self.picker.add_server()
            self.replicas[-1].now = now
            self.num_ready += 1


# ---- figures ----

POLICIES = {"any replica": None, "queue 2, KV use 2": {"queue": 2, "kv": 2},
            "prefix 3, queue 2, KV use 2": {"prefix": 3, "queue": 2, "kv": 2},
            "prefix 1, queue 2, KV use 2": {"prefix": 1, "queue": 2, "kv": 2}}
DEFAULT = "prefix 3, queue 2, KV use 2"
FOR_MANY = "prefix 1, queue 2, KV use 2"
GROWTH = 10.0  # times the load
DRAIN_S = 120  # so that all requests that count have ended


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else math.nan


def figures_of(requests, begin=0.0, end=math.inf):
    some = [request for request in requests if begin <= request.arrived < end]
    ttfts = [request.first_token - request.arrived for request in some]
    # Time between tokens of those that have some.
    gaps = [(request.ended - request.first_token) / (request.num_outputs - 1) for request in some if request.num_outputs > 1]
    return {"requests": len(some), "hit_rate": sum(r.num_hit for r in some) / max(1, sum(r.num_tokens for r in some)),
            "ttft_p50": quantile(ttfts, 0.5), "ttft_p99": quantile(ttfts, 0.99), "itl_mean": sum(gaps) / max(1, len(gaps))}


def steady(num_replicas, policy, options):
    fleet = Fleet(num_replicas, POLICIES[policy], Load(rate=options.rate), options.seed)
    fleet.run(options.warm + options.seconds + DRAIN_S)
    return figures_of(fleet.ended, options.warm, options.warm + options.seconds)


def growth(num_replicas, begin_s, options):
    """The load rises after the warm-up: TTFT of the requests of each 15 s, and how many replicas there are then."""
    fleet = Fleet(num_replicas, POLICIES[FOR_MANY], Load(rate=options.rate), options.seed)
    fleet.rate_factor = lambda now: GROWTH if now >= options.warm else 1.0
    fleet.grow_by_queue(target=4, begin_s=begin_s)
    sizes = []
    for time in range(options.warm, options.warm + options.seconds, 15):
        fleet.at(time, lambda now: sizes.append(fleet.num_ready))
    fleet.run(options.warm + options.seconds + DRAIN_S)
    windows = [figures_of(fleet.ended, options.warm + 15 * i, options.warm + 15 * (i + 1)) for i in range(len(sizes))]
    return sizes, windows


def print_steady(options, sizes):
    print("| replicas | requests go to | hit rate | TTFT p50 | TTFT p99 | time between tokens |\n|---|---|---|---|---|---|")
    rows = {}
    for size in sizes:
        for policy in POLICIES:
            rows[size, policy] = figures = steady(size, policy, options)
            print(f"| {size:,} | {policy} | {figures['hit_rate']:.2f} | {figures['ttft_p50']:.2f} s | {figures['ttft_p99']:.1f} s | "
                  f"{1e3 * figures['itl_mean']:.0f} ms |", flush=True)
    return rows


def print_growth(options):
    print("\n| a new replica is ready after | replicas at the end | TTFT p99 in the worst 15 s | in the median 15 s | until it is below 10 s again |\n"
          "|---|---|---|---|---|")
    for begin_s in (10, 60, 300):
        sizes, windows = growth(min(options.replicas, 20), begin_s, options)
        late = [i for i, window in enumerate(windows) if window["ttft_p99"] > 10]
        everything = [window["ttft_p99"] for window in windows]
        print(f"| {begin_s} s | {sizes[-1]:,} | {max(everything):.1f} s | {quantile(everything, 0.5):.1f} s | "
              f"{15 * (late[-1] + 1) if late else 0} s |", flush=True)


# ---- the picture ----

COLOURS = ["#8c959f", "#e0912f", "#4c8dd6", "#4fa66a"]


def svg_of(rows, sizes):
    width, height = 760, 250
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12" role="img" aria-label="Simulated fleets">',
           "<style>text{fill:#24292f}.small{font-size:10px}.line{stroke:#8c959f}path{fill:none;stroke-width:2}"
           "@media(prefers-color-scheme:dark){text{fill:#d0d7de}.line{stroke:#6e7681}}</style>"]

    def axes(left, right, title, ticks_x, ticks_y):
        out.append(f'<text x="{left}" y="16">{title}</text>')
        for place, label in ticks_x:
            out.append(f'<text x="{left + place * (right - left):.0f}" y="{height - 36}" text-anchor="middle" class="small">{label}</text>')
        for place, label in ticks_y:
            y = height - 50 - place * (height - 90)
            out.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="line" stroke-dasharray="1 4"/>')
            out.append(f'<text x="{left - 5}" y="{y + 4:.0f}" text-anchor="end" class="small">{label}</text>')

    def curve(left, right, points, colour, label, slot):
        places = [(left + x * (right - left), height - 50 - min(y, 1.02) * (height - 90)) for x, y in points]
        out.append(f'<path stroke="{colour}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) + '"/>')
        x, y = left - 20 + slot % 2 * ((right - left) / 2 + 8), height - 22 + slot // 2 * 14
        out.append(f'<rect x="{x:.0f}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
                   f'<text x="{x + 14:.0f}" y="{y}" class="small">{label}</text>')

    def at(size):
        return math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])

    axes(40, 350, "hit rate by number of replicas", [(at(size), f"{size:,}") for size in sizes],
         [(y / 4, f"{y / 4:.2f}") for y in range(5)])
    for i, policy in enumerate(POLICIES):
        curve(40, 350, [(at(size), rows[size, policy]["hit_rate"]) for size in sizes], COLOURS[i], policy, i)
    most = max(figures["ttft_p99"] for figures in rows.values())
    axes(440, 740, "TTFT p99 by number of replicas, s", [(at(size), f"{size:,}") for size in sizes],
         [(y / 4, f"{most * y / 4:.0f}") for y in range(5)])
    for i, policy in enumerate(POLICIES):
        curve(440, 740, [(at(size), rows[size, policy]["ttft_p99"] / most) for size in sizes], COLOURS[i], policy, i)
    return "\n".join([*out, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=Load.rate, help="conversations that begin, per second and replica")
    parser.add_argument("--warm", type=int, default=120, help="seconds that do not count")
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=pathlib.Path)
    options = parser.parse_args()
    sizes = [size for size in (10, 100) if size < options.replicas] + [options.replicas]
    rows = print_steady(options, sizes)
    if options.svg:
        options.svg.write_text(svg_of(rows, sizes))
    print_growth(options)


if __name__ == "__main__":
    main()
