"""An endpoint picker as llm-d's and the Gateway API inference extension's: it scrapes /metrics of each server every 50 ms and
sends a request to the one with the best sum of weighted scores. Scores lie between 0 and 1:

- queue: few waiting requests, between the fewest and the most of all servers;
- KV use: the free part of the KV cache;
- prefix: the part of the prompt that the server was sent before, in whole blocks of the text, as far as its cache reaches.

`Picker` decides and knows no network, so the simulation of a fleet (tests/bench/fleet.py) uses it as well; `Gateway` is a
proxy before real servers.
"""
import collections
import hashlib
import http.client
import http.server
import json
import random
import re
import threading

from pair import LIMIT

SCRAPE_S = 0.05
BLOCK_CHARS = 64  # of a prompt's text; some 16 tokens
MOST_BLOCKS = 256  # of a prompt that are looked at
DEFAULT_WEIGHTS = {"prefix": 3, "queue": 2, "kv": 2}
SERIES = {"vllm:num_requests_waiting": "waiting", "vllm:num_requests_running": "running", "vllm:kv_cache_usage_perc": "kv_use"}


def read_metrics(text):
    """What the scorers need of a server's /metrics, summed over its engines; KV use is their mean."""
    found = collections.defaultdict(list)
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        if name in SERIES:
            found[SERIES[name]].append(float(rest.rsplit(" ", 1)[1]))
        elif name == "vllm:cache_config_info":
            for label in ("block_size", "num_gpu_blocks"):
                value = re.search(rf'[{{,]{label}="(\d+)"', line)
                if value:
                    found[label].append(int(value.group(1)))
    numbers = {name: sum(values) for name, values in found.items()}
    if found["kv_use"]:
        numbers["kv_use"] /= len(found["kv_use"])
    if found["block_size"]:
        numbers["block_size"] = found["block_size"][0]
    return numbers


def blocks_of(text, model=""):
    """Names of the prompt's whole blocks: each covers all text before it."""
    hashes, last = [], model.encode()
    for begin in range(0, min(len(text) // BLOCK_CHARS, MOST_BLOCKS) * BLOCK_CHARS, BLOCK_CHARS):
        last = hashlib.blake2b(last + text[begin:begin + BLOCK_CHARS].encode(), digest_size=8).digest()
        hashes.append(last)
    return hashes


class Picker:
    def __init__(self, num_servers, weights=None, seed=0, capacity=31250):
        self.weights = DEFAULT_WEIGHTS if weights is None else weights
        self.rng = random.Random(seed)
        self.capacity = [capacity] * num_servers  # blocks
        self.kept = [collections.OrderedDict() for _ in range(num_servers)]  # of each server, the latest last
        self.holders = collections.defaultdict(int)  # block: bits of the servers that were sent it
        self._use(range(num_servers))
        self.loads = [{"waiting": 0, "kv_use": 0.0} for _ in range(num_servers)]

    def add_server(self):
        self.capacity.append(self.capacity[0])
        self.kept.append(collections.OrderedDict())
        self.loads.append({"waiting": 0, "kv_use": 0.0})
        self._use(self.usable | {len(self.loads) - 1})

    def update(self, loads):
        """{server: numbers of read_metrics}. A server that is missing cannot be reached."""
        self._use(loads)
        for server, numbers in loads.items():
            self.loads[server] = numbers
            if numbers.get("num_gpu_blocks"):
                tokens = numbers["num_gpu_blocks"] * numbers["block_size"]
                self.capacity[server] = max(1, tokens // (BLOCK_CHARS // 4))

    def _use(self, servers):
        self.usable = set(servers)
        self.usable_bits = sum(1 << server for server in self.usable)
        self.by_load = None  # (score, bits of the servers that have it), the best first; None: loads have changed

    def depths(self, blocks):
        """{server: how many of the first blocks it has}, without those that have none."""
        return {server: depth for depth, servers in self._holders_by_depth(blocks) for server in bits_of(servers) if depth}

    def pick(self, blocks):
        """The server for a prompt of such blocks, which it has from then on. None: there is none."""
        if not self.usable:
            return None
        weight, best, chosen = self.weights.get("prefix", 0), -1.0, 0
        for depth, servers in self._holders_by_depth(blocks if weight else []):
            score, some = self._best_of(servers)
            score += weight * depth / max(1, len(blocks))
            if score >= best:
                best, chosen = score, some | (chosen if score == best else 0)
        server = self.rng.choice(list(bits_of(chosen)))
        self._remember(server, blocks)
        return server

    def _holders_by_depth(self, blocks):
        """(depth, bits of the servers that have at least the first `depth` blocks), for each depth where these change."""
        left = self.usable_bits
        for depth, block in enumerate(blocks):
            have = left & self.holders.get(block, 0)
            if have != left:
                yield depth, left
            left = have
            if not left:
                return
        yield len(blocks), left

    def _best_of(self, servers):
        """The best score by load of those servers, and which of them have it."""
        if self.by_load is None:
            self._score_by_load()
        return next((score, some & servers) for score, some in self.by_load if some & servers)

    def _score_by_load(self):
        waiting = [self.loads[server]["waiting"] for server in self.usable]
        least, most = min(waiting), max(waiting)
        queue, kv = self.weights.get("queue", 0), self.weights.get("kv", 0)
        groups = collections.defaultdict(int)
        for server in self.usable:
            load = self.loads[server]
            score = queue * ((most - load["waiting"]) / (most - least) if most > least else 1) + kv * (1 - load["kv_use"])
            groups[score] |= 1 << server
        self.by_load = sorted(groups.items(), reverse=True)

    def _remember(self, server, blocks):
        kept, bit = self.kept[server], 1 << server
        for block in blocks:
            self.holders[block] |= bit
            kept[block] = None
            kept.move_to_end(block)
        while len(kept) > self.capacity[server]:
            block, _ = kept.popitem(last=False)
            self.holders[block] &= ~bit
            if not self.holders[block]:
                del self.holders[block]


def bits_of(number):
    """The places of its set bits."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def prompt_text(body):
    """The text that a request's KV is of: what comes first in it comes first here."""
    if "messages" in body:
        return "".join(f"{message['role']}\n{message['content']}\n" for message in body["messages"])
    return body["prompt"] if isinstance(body["prompt"], str) else json.dumps(body["prompt"])


class Gateway:
    """An HTTP proxy that asks a Picker. Use as a context manager; servers: (host, port) each."""

    def __init__(self, servers, weights=None, seed=0):
        self.servers, self.picker, self.lock = servers, Picker(len(servers), weights, seed), threading.Lock()
        self.num_scrapes, self.picks, self.ends, self.connections = 0, [], threading.Event(), {}
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                gateway.forward(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.threads = [threading.Thread(target=self.http.serve_forever), threading.Thread(target=self.scrape)]

    def __enter__(self):
        self.scrape_once()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.http.shutdown()
        for thread in self.threads:
            thread.join()
        self.http.server_close()
        for connection in self.connections.values():
            connection.close()

    def scrape(self):
        while not self.ends.wait(SCRAPE_S):
            self.scrape_once()

    def scrape_once(self):
        loads = {}
        for server, (host, port) in enumerate(self.servers):
            try:
                connection = self.connections.setdefault(server, http.client.HTTPConnection(host, port, timeout=LIMIT))
                connection.request("GET", "/metrics", headers={"Accept": "text/plain"})
                loads[server] = read_metrics(connection.getresponse().read().decode())
            except (OSError, http.client.HTTPException):
                self.connections.pop(server).close()
        with self.lock:
            self.picker.update(loads)
            self.num_scrapes += 1

    def forward(self, handler, body):
        with self.lock:
            request = json.loads(body)
            server = self.picker.pick(blocks_of(prompt_text(request), request.get("model", "")))
            self.picks.append(server)
        if server is None:
            return handler.send_error(503)
        connection = http.client.HTTPConnection(*self.servers[server], timeout=LIMIT)
        try:
            connection.request("POST", handler.path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException):
            return handler.send_error(502)
        finally:
            connection.close()
        handler.send_response(response.status)
        handler.send_header("Content-Type", response.headers["Content-Type"])
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
