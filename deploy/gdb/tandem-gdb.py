"""Commands for gdb on either process of a running Tandem, or on a core file of one.

    gdb -p $(pgrep -f bin/tandem-engine-core) -x deploy/gdb/tandem-gdb.py
    gdb bin/tandem-engine-core core.123 -x deploy/gdb/tandem-gdb.py
    (gdb) tandem requests     engine core: queues, requests and their blocks
    (gdb) tandem streams      frontend: engines and running requests of each network shard
    (gdb) tandem threads      what each named thread is doing
    (gdb) tandem record FILE  engine core: its flight recording, also out of a core file

A flight recording is replayed under gdb without the process that made it:

    gdb bin/tandem-engine-core -x deploy/gdb/tandem-gdb.py
    (gdb) tandem replay FILE [flags]   begins, and stops before the first step
    (gdb) tandem step [N]              goes on, and stops before step N, or before the next one

The first four read memory and call nothing in the process, so that a core file is as good as a process. They need the programs'
debug information (release and dev builds have it for the parts that are read here).
"""
import os
import struct

import gdb

# The flight recorder's memory: engine_core/recorder/flight_ring.h.
MAGIC = b"TNDMFLT1"
HEAD_BYTES = 64 << 10
REASON_AT = 36


# ---- Containers of the standard library ----

def pointer_in(owner):
    """What a unique_ptr points at: it is its pointer and nothing else."""
    kind = owner.type.strip_typedefs().template_argument(0)
    if kind.code == gdb.TYPE_CODE_ARRAY:
        kind = kind.target()
    return owner.address.cast(kind.pointer().pointer()).dereference()


def text_of(value):
    return value["_M_dataplus"]["_M_p"].string(errors="replace", length=int(value["_M_string_length"]))


def items(vector):
    data = vector["_M_impl"]
    for i in range(int(data["_M_finish"] - data["_M_start"])):
        yield data["_M_start"][i]


def size(vector):
    return int(vector["_M_impl"]["_M_finish"] - vector["_M_impl"]["_M_start"])


def pairs(unordered_map):
    """(key, value) of each node: the link to the next one, the key, the value."""
    kind = unordered_map.type.strip_typedefs()
    key_type, value_type = kind.template_argument(0), kind.template_argument(1)
    node = unordered_map["_M_h"]["_M_before_begin"]["_M_nxt"]
    while int(node) != 0:
        key = int(node) + node.type.sizeof
        yield (gdb.Value(key).cast(key_type.pointer()).dereference(),
               gdb.Value(key + key_type.sizeof).cast(value_type.pointer()).dereference())
        node = node.dereference()["_M_nxt"]


def pointers_in_order(tree):
    """Of a set of pointers: each node is followed by its value."""
    pointer_type = tree.type.strip_typedefs().template_argument(0)

    def visit(node):
        if int(node) == 0:
            return
        yield from visit(node.dereference()["_M_left"])
        value = int(node) + node.dereference().type.sizeof
        yield gdb.Value(value).cast(pointer_type.pointer()).dereference()
        yield from visit(node.dereference()["_M_right"])
    return visit(tree["_M_t"]["_M_impl"]["_M_header"]["_M_parent"])


# ---- Threads ----

def frames_of_all_threads():
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None:
            yield thread, frame
            frame = frame.older()


def find_variables(function, name):
    """A variable in each frame of a function, in the threads that run it."""
    for _, frame in frames_of_all_threads():
        if frame.name() is None or not frame.name().endswith(function):
            continue
        frame.select()
        try:
            value = frame.read_var(name)
        except ValueError:
            continue
        if not value.is_optimized_out:
            yield value


def find_variable(function, name, why_not):
    for value in find_variables(function, name):
        return value
    raise gdb.GdbError(why_not)


# ---- The engine core ----

def word(enumerator):
    """tandem::wire::RequestStatus::kRunning → Running"""
    return str(enumerator).rsplit("::k", 1)[-1]


def waiting(queue):
    queue = pointer_in(queue).dereference()
    queue = queue.cast(queue.dynamic_type)
    if queue.type.name.endswith("FcfsQueue"):
        request = queue["first_"]
        while int(request) != 0:
            yield request
            request = request.dereference()["next_waiting"]
    else:
        yield from pointers_in_order(queue["requests_"])


def blocks(request, cache):
    if word(request["status"]) == "Running":
        row = int(request["slot"])
        num_groups = int(cache["num_groups_"])
        table = pointer_in(cache["tables_"]) + row * int(cache["max_places_"]) * num_groups
        num_places = int(cache["rows_"]["_M_impl"]["_M_start"][row]["num_places"])
        return [int(table[i]) for i in range(num_places * num_groups)]
    return [int(block) for block in items(request["held"]["table"])] if request["holds_blocks"] else []


def request_line(request, cache):
    num_prompt_tokens = int(request["num_prompt_tokens"])
    line = (f"  {text_of(request['wire']['request_id'])} {word(request['status'])} "
            f"tokens {num_prompt_tokens}+{size(request['token_ids']) - num_prompt_tokens} "
            f"computed {int(request['num_computed_tokens'])} slot {int(request['slot'].cast(gdb.lookup_type('int')))} "
            f"preempted {int(request['num_preemptions'])}")
    held = blocks(request, cache)
    return line + (" blocks " + " ".join(map(str, held)) if held else "")


def engine_core():
    """Of the process's loop, or of a replay."""
    for replayed in find_variables("ReplayedExecutor::Submit", "this"):
        return replayed.dereference()["engine_"].dereference()
    return find_variable("RunEngineLoop", "engine", "no engine loop here: is this the engine core?").dereference()


def requests():
    engine = engine_core()
    scheduler, cache = engine["scheduler_"], engine["kv_cache_"]
    table = scheduler["parts_"]["requests"]
    running = list(items(table["running_"]))
    queued = [*waiting(table["holding_"]), *waiting(table["waiting_"])]
    num_blocks = size(cache["pool_"]["blocks_"]) - 1  # without the null block
    print(f"steps {int(scheduler['num_steps_'])}, running {len(running)}, waiting {len(queued)}, "
          f"blocks held {num_blocks - int(cache['pool_']['num_free_'])} of {num_blocks}")
    for request in running + queued:
        print(request_line(request.dereference(), cache))


def record(path):
    """Copies the ring's memory; deploy/cli/record.cc does it for a running process."""
    if not path:
        raise gdb.GdbError("tandem record FILE")
    try:
        folder = gdb.parse_and_eval("'tandem::(anonymous namespace)::caught_for'")["_M_b"]["_M_p"]
    except gdb.error:
        raise gdb.GdbError("no flight recorder here: is this the engine core?") from None
    if int(folder) == 0:
        raise gdb.GdbError("its flight recorder is off, or has no folder")
    memory = int(folder.dereference()["ring_"].dereference()["memory_"])
    read = gdb.selected_inferior().read_memory
    head = bytearray(read(memory, HEAD_BYTES))
    num_segments, _, segment_bytes, num_begun = struct.unpack_from("=IIQQ", head, len(MAGIC))
    if head[:len(MAGIC)] != MAGIC:
        raise gdb.GdbError("its flight recorder is of another version")
    written = "gdb".encode()
    head[REASON_AT:REASON_AT + len(written) + 1] = written + b"\0"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(head)
        for i in range(max(0, num_begun - num_segments), num_begun):
            at = memory + HEAD_BYTES + i % num_segments * (16 + segment_bytes)
            sequence, size = struct.unpack("=QQ", bytes(read(at, 16)))
            file.write(struct.pack("=QQ", sequence, size) + bytes(read(at + 16, size)))
    print(f"written to {path}")


# ---- Replays ----

steps = None  # the breakpoint before each step


def replay(arguments):
    global steps
    if not arguments:
        raise gdb.GdbError("tandem replay FILE [flags]")
    gdb.execute(f"set args --replay {arguments}")
    steps = gdb.Breakpoint("TandemReplayStep", internal=True)
    gdb.execute("run")
    print_step()


def step(number):
    if steps is None:
        raise gdb.GdbError("tandem replay FILE comes first")
    steps.condition = f"step >= {int(number)}" if number else None
    gdb.execute("continue")
    print_step()


def print_step():
    if gdb.selected_inferior().pid == 0:
        print("the replay has ended")
    elif gdb.newest_frame().name().endswith("TandemReplayStep"):
        print(f"before step {int(gdb.newest_frame().read_var('step'))}")


# ---- The frontend ----

def stream_line(request_id, running):
    engine = int(running["engine_index"])
    num_emitted = int(running["request"]["own"]["num_prior_output_tokens"]) + size(running["emitted"])
    return (f"  {text_of(request_id)} engine {engine if engine >= 0 else 'none'} "
            f"prompt {int(running['num_prompt_tokens'])} emitted {num_emitted}")


def streams():
    clients = find_variable("::Serve", "clients", "no network shards here: is this the frontend?")
    for owner in items(clients):
        client = pointer_in(owner).dereference()
        running = list(pairs(client["running_"]["running_"]))
        print(f"client {int(client['options_']['client_index'])}: {len(running)} running")
        for i, engine in enumerate(items(client["health_"]["engines_"])):
            state = "hung" if engine["hung"] else "ready" if engine["connected"] else "not ready"
            num_in_flight = int(client["running_"]["num_per_engine_"]["_M_impl"]["_M_start"][i])
            print(f"  engine {i} {state}, {num_in_flight} in flight")
        for request_id, request in running:
            print(stream_line(request_id, request))


# ---- Either ----

def threads():
    seen = set()
    for thread, frame in frames_of_all_threads():
        if thread.ptid not in seen and frame.name() and "tandem::" in frame.name():
            seen.add(thread.ptid)
            # A core file has no names of threads.
            print(f"{thread.ptid[1] or thread.ptid[0]:8} {thread.name or '':16} {frame.name()}")


class Tandem(gdb.Command):
    """requests, streams or threads of a Tandem process; record FILE; replay FILE, step N."""

    ACTIONS = {"requests": requests, "streams": streams, "threads": threads}
    WITH_ARGUMENT = {"record": record, "replay": replay, "step": step}

    def __init__(self):
        super().__init__("tandem", gdb.COMMAND_DATA, prefix=False)

    def complete(self, text, word):
        return [name for name in (*self.ACTIONS, *self.WITH_ARGUMENT) if name.startswith(text)]

    def invoke(self, argument, from_tty):
        name, _, rest = argument.strip().partition(" ")
        if name in self.WITH_ARGUMENT:
            return self.WITH_ARGUMENT[name](rest.strip())
        action = self.ACTIONS.get(argument.strip())
        if action is None:
            raise gdb.GdbError(" | ".join(f"tandem {name}" for name in (*self.ACTIONS, *self.WITH_ARGUMENT)))
        action()


Tandem()
