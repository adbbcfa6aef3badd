"""A network namespace that stands for another host, for the integration tests."""
import os
import subprocess

from pair import LIMIT, Pair


class PairIn(Pair):
    """In a network namespace; `host` is an address that it has there."""

    def __init__(self, namespace, *flags, host=Pair.host, **rest):
        self.namespace, self.host = namespace, host
        super().__init__(*flags, **rest)

    def command_line(self, *words):
        return ["ip", "netns", "exec", self.namespace, *super().command_line(*words)]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=LIMIT)


def other_host(test):
    """(its namespace, this host's address, its address), until the test ends; skips it where there can be none."""
    namespace, net = f"tandem-{os.getpid()}", os.getpid() % (1 << 15)  # of the range for tests between networks
    here, there = (f"198.{18 + (net >> 14)}.{net >> 6 & 255}.{(net & 63) * 4 + i}" for i in (1, 2))
    inside, outside = f"tdm{os.getpid() % 100000}i", f"tdm{os.getpid() % 100000}o"
    try:
        ip("netns", "add", namespace)
        test.addCleanup(ip, "netns", "delete", namespace)
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", namespace)
        ip("address", "add", here + "/30", "dev", outside)
        ip("link", "set", outside, "up")
        ip("-n", namespace, "address", "add", there + "/30", "dev", inside)
        ip("-n", namespace, "link", "set", inside, "up")
    except (OSError, subprocess.SubprocessError) as why:
        test.skipTest(f"no network namespace can be made here: {why}")
    return namespace, here, there
