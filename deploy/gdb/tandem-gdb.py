"""Commands for gdb on either process of a running Tandem (or on a core file of one).

    gdb -p $(pgrep -f bin/tandem-engine-core) -x deploy/gdb/tandem-gdb.py
    (gdb) tandem requests     engine core: queues, requests and their blocks
    (gdb) tandem streams      frontend: running requests of each network shard
    (gdb) tandem threads      what each named thread is doing

They call nothing that locks: gdb stops the process, runs a const method in one of its threads, and the process
resumes when you continue or detach.
"""
import gdb


def frames_of_all_threads():
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None:
            yield thread, frame
            frame = frame.older()


def find_frame(function):
    """Selects the frame of a function in the thread that runs it; False when no thread does."""
    for _, frame in frames_of_all_threads():
        if frame.name() is not None and frame.name().endswith(function):
            frame.select()
            return True
    return False


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

    def requests(self):
        if not find_frame("tandem::RunEngineLoop"):
            raise gdb.GdbError("no engine loop here: is this the engine core?")
        print(text_of(gdb.parse_and_eval("engine->scheduler_.DebugString()")))

    def streams(self):
        if not find_frame("::Serve"):
            raise gdb.GdbError("no network shards here: is this the frontend?")
        shards = gdb.parse_and_eval("clients._M_impl")
        for i in range(int(shards["_M_finish"] - shards["_M_start"])):
            # A unique_ptr is its pointer and nothing else.
            client = f"(*(tandem::EngineClient**)&clients._M_impl._M_start[{i}])"
            print(text_of(gdb.parse_and_eval(f"{client}->DebugString()")))

    def threads(self):
        seen = set()
        for thread, frame in frames_of_all_threads():
            if thread.ptid not in seen and frame.name() and "tandem::" in frame.name():
                seen.add(thread.ptid)
                print(f"{thread.ptid[1]:8} {thread.name:16} {frame.name()}")


Tandem()
