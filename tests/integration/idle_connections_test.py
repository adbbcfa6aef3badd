#!/usr/bin/env python3
"""What an idle connection costs the frontend, by its resident memory; what it costs the kernel is printed beside it.

  TANDEM_CONNECTIONS=10000 TANDEM_BIN_DIR=build/release/bin tests/integration/idle_connections_test.py

Each connection has asked once, so that it is a kept-alive one. The small number of the test suite finds buffers that stay,
not the last byte.
"""
import os
import pathlib
import re
import resource
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
from server import Server

NUM_CONNECTIONS = int(os.environ.get("TANDEM_CONNECTIONS", 1500))
NUM_FIRST = 200  # these fill what is allocated once
MAX_BYTES = 3 << 10
REQUEST = (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
           % (len(b'{"prompt": ""}') + 2000, b'{"prompt": "%s"}' % (b"x" * 2000)))


def resident_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024


def kernel_bytes():
    meminfo = pathlib.Path("/proc/meminfo").read_text()
    return int(re.search(r"Slab:\s+(\d+)", meminfo)[1]) * 1024


class Idle(unittest.TestCase):
    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = NUM_CONNECTIONS + NUM_FIRST + 300
        if hard != resource.RLIM_INFINITY and hard < needed:
            pair.skip(f"needs {needed} descriptors, {hard} are allowed")
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

    def connect(self, server, count):
        """Connections, one after another, that have had the response to a request."""
        connections = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", server.port), pair.LIMIT)
            connections.append(connection)
            connection.sendall(REQUEST)
            response = b""
            while not response.endswith(b"}"):
                part = connection.recv(1 << 16)
                self.assertTrue(part, response)
                response += part
            self.assertTrue(response.startswith(b"HTTP/1.1 200 "), response)
        return connections

    def test_each_takes_at_most_3_kb(self):
        with Server("--http-timeout-keep-alive", 3600, "--max-connections", NUM_CONNECTIONS + NUM_FIRST + 100,
                    "--disable-uvicorn-access-log") as server:
            connections = self.connect(server, NUM_FIRST)
            before, kernel_before = resident_bytes(server.frontend.pid), kernel_bytes()
            connections += self.connect(server, NUM_CONNECTIONS)
            each = (resident_bytes(server.frontend.pid) - before) / NUM_CONNECTIONS
            kernel = (kernel_bytes() - kernel_before) / NUM_CONNECTIONS
            print(f"{NUM_CONNECTIONS} idle connections: {each:.0f} bytes of the frontend each; the kernel's slabs grew by "
                  f"{kernel:.0f} for both ends")
            self.assertLess(each, MAX_BYTES)
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            for connection in connections:
                connection.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
