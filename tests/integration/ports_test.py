#!/usr/bin/env python3
"""The pair's only network port is that of HTTP, it connects to nowhere, and its own sockets are closed to other users."""
import pathlib
import re
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from pair import Pair

SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


def processes(pid):
    """A process and all that it started."""
    return [pid] + [each for child in pair.children(pid).values() for each in processes(child)]


def network_sockets():
    """{inode: (local port, remote port)} of every TCP, UDP and raw socket of this network."""
    found = {}
    for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        for line in pathlib.Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            found[fields[9]] = tuple(int(fields[i].rsplit(":", 1)[1], 16) for i in (1, 2))
    return found


def socket_inodes(pid):
    links = (link.readlink() for link in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    return re.findall(r"socket:\[(\d+)\]", " ".join(map(str, links)))


class Ports(unittest.TestCase):
    def test_http_is_the_only_port_and_nothing_is_connected_to(self):
        with Pair("--served-model-name", "m") as server:
            port = int(server.port_file.read_text())
            body = {"model": "m", "prompt": "x", "max_tokens": 4}
            self.assertEqual(server.post("/v1/completions", body)[0], 200)
            # This one starts tandem-grammar, where it was built.
            self.assertIn(server.post("/v1/completions", {**body, "structured_outputs": {"json": SCHEMA}})[0], (200, 400))
            with socket.create_connection(("127.0.0.1", port), pair.LIMIT):
                known = network_sockets()
                names = [(pid, known[inode]) for pid in processes(server.process.pid)
                         for inode in socket_inodes(pid) if inode in known]
            self.assertIn((port, 0), [ports for _, ports in names])
            self.assertEqual({(pid, ports) for pid, ports in names if ports[0] != port}, set())

    def test_own_sockets_are_closed_to_other_users(self):
        with Pair() as server:
            root = pathlib.Path(server.folder.name)
            folders = {path.parent for path in root.rglob("*") if path.is_socket()} - {root}
            self.assertTrue(folders)
            for folder in folders:
                self.assertEqual(folder.stat().st_mode & 0o077, 0, folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
