"""The servers that `compare` measures: how each is started, stopped while others run, and what CPU it used.

A Side is a description; a Server is one running. All processes of a server share its session (or descend from its first
process), whatever process groups they make, so they are found in /proc.
"""
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from pair import free_port  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")


class Side:
    """command: a list with {port}, or None for a server that runs already at base_url. against: the side that its figures
    are compared with; None for ours. served_as: the model's name at that server; empty for the first it lists."""

    def __init__(self, name, command=None, base_url=None, env=None, against=None, served_as="", ready_s=600):
        self.name, self.command, self.base_url = name, command, base_url
        self.env, self.against, self.served_as, self.ready_s = env or {}, against, served_as, ready_s


def preset_sides(options, model):
    """Sides of one model folder: ours in each requested quantization or of each GGUF file, and the peers whose programs were
    given."""
    context, slots, threads = options.context, options.slots, options.threads
    lora = ["--enable-lora", "--max-lora-rank", 64, "--lora-modules", f"adapter={options.adapter.resolve()}"] if options.adapter else []
    served_as = "adapter" if options.adapter else ""
    sides = []

    def add_ours(name, served, *flags):
        command = [str(options.bin / "tandem"), "serve", str(served), "--host", "127.0.0.1", "--port", "{port}",
                   "--max-model-len", context, "--max-num-seqs", slots, "--threads", threads,
                   "--kv-cache-memory-bytes", options.kv_bytes, "--disable-uvicorn-access-log", *flags]
        sides.append(Side(name, command + lora + options.tandem_flags, served_as=served_as))

    files = {kind: model.parent / f"{model.name}-{kind}.gguf" for kind in options.gguf}
    if options.same_file:
        for kind, path in files.items():
            if path.exists():
                add_ours(f"tandem-{kind}", path)
    else:
        for quantization in options.quantization:
            if quantization == "none":
                add_ours("tandem", model)
            else:
                add_ours(f"tandem-{quantization}", model, "--quantization", quantization)
    ours = {side.name for side in sides}
    if options.llama_server:
        for kind, path in files.items():
            against = {"q8_0": "tandem-int8", "q4_0": "tandem-int4"}.get(kind, "tandem")
            if options.same_file:
                against = f"tandem-{kind}"
            if not path.exists() or against not in ours:
                print(f"no side llama-{kind}: needs {path} and {against}", flush=True)
                continue
            adapter = ["--lora", str(options.adapter / "adapter-bf16.gguf")] if options.adapter else []
            # One cache for the contexts of all slots; dropped prompts are not saved.
            sides.append(Side(f"llama-{kind}", [
                str(options.llama_server), "-m", str(path), "--host", "127.0.0.1", "--port", "{port}", "-c",
                context * slots, "-np", slots, "-t", threads, "-tb", threads, "--cache-ram", 0, *adapter, *options.llama_flags],
                against=against))
    if options.vllm and "tandem" in ours:
        sides.append(Side("vllm", [
            str(options.vllm), "serve", str(model), "--host", "127.0.0.1", "--port", "{port}", "--dtype", "bfloat16",
            "--max-model-len", context, "--max-num-seqs", slots, "--disable-uvicorn-access-log", *lora, *options.vllm_flags],
            against="tandem", served_as=served_as, ready_s=1800, env={
                "VLLM_CPU_KVCACHE_SPACE": str(max(1, options.kv_bytes >> 30)), "VLLM_CPU_OMP_THREADS_BIND": options.cpus,
                "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
                "PATH": f"{options.vllm.absolute().parent}:{os.environ['PATH']}"}))  # it compiles at start
    return sides


def stat_fields(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def family(leader):
    """The processes of a session and all descendants of its leader."""
    parents, found = {}, {leader}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = stat_fields(entry)
        except OSError:
            continue  # it has ended since
        parents[int(entry)] = int(fields[1])
        if int(fields[3]) == leader:
            found.add(int(entry))
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found}
        grown = not children <= found
        found |= children
    return found


class Server:
    """A running side. Use as a context manager: every process it started ends with it."""

    def __init__(self, side, log_path):
        self.side, self.process, self.url = side, None, side.base_url
        if side.command is None:
            return
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = [str(word).replace("{port}", str(port)) for word in side.command]
        print(f"starting {side.name}: {' '.join(argv)}", flush=True)
        self.log_path = log_path
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            start_new_session=True, env={**os.environ, **side.env})

    def wait_ready(self):
        deadline = time.monotonic() + self.side.ready_s
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                tail = self.log_path.read_text(errors="replace")[-2000:]
                raise SystemExit(f"{self.side.name} ended before it was ready:\n{tail}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                    if reply.status == 200:
                        return
            except OSError:
                pass
            select.select([], [], [], 0.1)  # unlike a lock, it can be interrupted by a signal handler's exception
        raise SystemExit(f"{self.side.name} was not ready within {self.side.ready_s} s; its log is {self.log_path}")

    def signal(self, number):
        if self.process is None or self.process.poll() is not None:
            return
        for pid in family(self.process.pid):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def cpu_seconds(self):
        """Of all its processes; None for a server that we did not start."""
        if self.process is None:
            return None
        total = 0
        for pid in family(self.process.pid):
            try:
                fields = stat_fields(pid)
                total += int(fields[11]) + int(fields[12])
            except OSError:
                pass
        return total / TICK

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is None or self.process.poll() is not None:
            return
        members = family(self.process.pid)
        self.resume()
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            pass
        for pid in members | family(self.process.pid):
            try:
                if pid == self.process.pid or os.getsid(pid) == self.process.pid:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


class LoadMeter:
    """CPUs that other processes used during a run: all busy time of the machine, stolen time included, less our own."""

    def __init__(self, server):
        self.server = server
        self.before = self.sample()

    def sample(self):
        fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        busy = sum(fields) - fields[3] - fields[4]  # all but idle and iowait
        times = os.times()
        client = times.user + times.system + times.children_user + times.children_system
        return time.monotonic(), busy / TICK, client, self.server.cpu_seconds()

    def stop(self):
        """wall_s, client_cpu_s, server_cpu_s and foreign_cpus; the last two None for a server that is not ours."""
        began, busy, client, server = self.before
        ended, busy_end, client_end, server_end = self.sample()
        wall = max(ended - began, 1e-9)
        usage = {"wall_s": wall, "client_cpu_s": client_end - client, "server_cpu_s": None, "foreign_cpus": None}
        if server is not None:
            usage["server_cpu_s"] = server_end - server
            own = usage["client_cpu_s"] + usage["server_cpu_s"]
            usage["foreign_cpus"] = max(0.0, (busy_end - busy - own) / wall)
        return usage
