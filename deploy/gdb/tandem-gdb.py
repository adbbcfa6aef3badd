"""Commands for gdb on either process of a running Tandem (or on a core file of one).

    gdb -p $(pgrep -f bin/tandem-engine-core) -x deploy/gdb/tandem-gdb.py
    (gdb) tandem requests     engine core: queues, requests and their blocks
    (gdb) tandem streams      frontend: running requests of each network shard
    (gdb) tandem threads      what each named thread is doing

They call nothing that locks or allocates in a thread of its own: gdb stops the process, runs a const method in
it, and lets it go on when you say so.
"""
import gdb


def frames_of_all_threads():
    chosen = gdb.selected_thread()
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None:
            yield thread, frame
            frame = frame.older()
    if chosen is not None:
        chosen.switch()


def object_in(function, *names):
    """Each (thread, value of the first of `names` that is readable) in frames of `function`."""
    for thread, frame in frames_of_all_threads():
        if frame.name() is None or function not in frame.name():
            continue
        frame.select()
        for name in names:
            try:
                value = gdb.parse_and_eval(name)
            except gdb.error:
                continue
            if not value.is_optimized_out:
                yield thread, value
                break


def text_of(value):
    return value["_M_dataplus"]["_M_p"].string(length=int(value["_M_string_length"]))


class Tandem(gdb.Command):
    """requests, streams or threads of a Tandem process."""

    def __init__(self):
        super().__init__("tandem", gdb.COMMAND_DATA, prefix=False)

    def complete(self, text, word):
        return [name for name in ("requests", "streams", "threads") if name.startswith(word)]

    def invoke(self, argument, from_tty):
        action = {"requests": self.requests, "streams": self.streams, "threads": self.threads}.get(argument.strip())
        if action is None:
            raise gdb.GdbError("tandem requests | streams | threads")
        action()

    def dump(self, function, *names):
        seen = set()
        for _, pointer in object_in(function, *names):
            if int(pointer) in seen:
                continue
            seen.add(int(pointer))
            print(text_of(gdb.parse_and_eval(f"(({pointer.type}){int(pointer)})->DebugString()")))
        if not seen:
            raise gdb.GdbError(f"no thread is in {function} with its object readable: is this the right process?")

    def requests(self):
        self.dump("tandem::RunEngineLoop", "engine")

    def streams(self):
        self.dump("tandem::RunShard", "shard")

    def threads(self):
        seen = set()
        for thread, frame in frames_of_all_threads():
            if thread.ptid not in seen and frame.name() and "tandem::" in frame.name():
                seen.add(thread.ptid)
                print(f"{thread.ptid[1]:8} {thread.name:16} {frame.name()}")


Tandem()
