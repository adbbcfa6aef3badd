#!/usr/bin/env python3
"""The shipped units under a real systemd: start, keys, SIGHUP, watchdog, another frontend, another engine, stop.

systemd is process 1 of a PID namespace (tests/support/systemd_machine.py). Of the units only three lines differ
from those of a host: where the log goes, a watchdog of 5 s, and an option of sanitizers.
"""
import http.client
import json
import pathlib
import socket
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
import systemd_machine

FRONTEND, ENGINE, NEXT = "tandem-frontend", "tandem-engine-core", "tandem-engine-core@next"
ENVIRONMENT = """TANDEM_FRONTEND_ARGS=--host 127.0.0.1 --port 0 --port-file /run/tandem/port --served-model-name tiny{}
TANDEM_ENGINE_ARGS=--max-num-seqs 8
"""
# LeakSanitizer, in a build that has it, traces its process, which the units' filter of system calls denies.
ADDED = """[Service]
Environment=ASAN_OPTIONS=detect_leaks=0
StandardOutput=append:/var/log/{0}
StandardError=append:/var/log/{0}
WatchdogSec=5
"""
KEY = "sk-credential"
PROMPT = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.machine = systemd_machine.Machine(pair.bin_dir().parent)
        try:
            cls.enterClassContext(cls.machine)
        except OSError as error:
            pair.skip(str(error))
        machine = cls.machine
        machine.write("/etc/tandem/tandem.env", ENVIRONMENT.format(""))
        machine.write("/etc/credstore/api-keys", KEY, mode="600")
        for name in (FRONTEND, ENGINE, NEXT.replace("next", "")):
            machine.write(f"/etc/systemd/system/{name}.service.d/test.conf", ADDED.format(name))
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "enable", FRONTEND, ENGINE)
        machine.run("systemctl", "start", FRONTEND)

    def tearDown(self):
        if self._outcome and not self._outcome.success:
            for name in (FRONTEND, ENGINE, NEXT.replace("next", "")):
                print(f"--- {name}\n{self.machine.read('/var/log/' + name)}", file=sys.stderr)

    def complete(self, key=KEY):
        """A completion's text, or the status of its refusal."""
        port = self.machine.read("/run/tandem/port").strip()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions", json.dumps(PROMPT).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer " + key})
        try:
            with urllib.request.urlopen(request, timeout=pair.LIMIT) as reply:
                return json.load(reply)["choices"][0]["text"]
        except urllib.error.HTTPError as error:
            return error.code

    def answers(self, key=KEY):
        return isinstance(self.complete(key), str)

    def pid(self, unit):
        return self.machine.show(unit, "MainPID")

    def test_1_started_means_that_requests_are_served(self):
        self.assertEqual(self.machine.show(FRONTEND, "ActiveState"), "active")
        self.assertEqual(self.machine.show(ENGINE, "StatusText").split()[0], "serving")
        self.assertTrue(self.answers())
        status = self.machine.read(f"/proc/{self.pid(ENGINE)}/status")
        self.assertRegex(status, r"CapEff:\s+0+\n")
        self.assertRegex(status, r"NoNewPrivs:\s+1\n")

    def test_2_keys_are_a_credential_that_the_frontend_alone_sees(self):
        self.assertEqual(self.complete("sk-other"), 401)
        credential = "/root/run/credentials/tandem-frontend.service/api-keys"
        self.assertEqual(self.machine.read(f"/proc/{self.pid(FRONTEND)}{credential}"), KEY)
        self.assertEqual(self.machine.read(f"/proc/{self.pid(ENGINE)}{credential}"), "")
        self.assertEqual(self.machine.read(f"/proc/{self.pid(ENGINE)}/root/etc/credstore/api-keys"), "")

    def test_3_an_engine_that_is_stopped_is_killed_and_started_again(self):
        expected, pid, restarts = self.complete(), self.pid(ENGINE), int(self.machine.show(ENGINE, "NRestarts"))
        self.machine.run("systemctl", "kill", "--kill-whom=main", "--signal=STOP", ENGINE)
        # It waits for the engine, and needs the one that comes after it.
        self.assertEqual(self.complete(), expected)
        self.assertEqual(int(self.machine.show(ENGINE, "NRestarts")), restarts + 1)
        self.assertNotEqual(self.pid(ENGINE), pid)

    def test_3_a_frontend_that_is_killed_is_started_again_and_the_engine_core_stays(self):
        expected, engine = self.complete(), self.pid(ENGINE)
        pid = self.pid(FRONTEND)
        self.machine.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", FRONTEND)
        pair.wait_for(lambda: self.pid(FRONTEND) not in ("0", pid) and
                      self.machine.show(FRONTEND, "ActiveState") == "active", "another frontend")
        self.assertEqual(self.complete(), expected)
        self.assertEqual(self.pid(ENGINE), engine)

    def test_4_another_frontend_takes_over_and_is_the_units_main_process(self):
        expected, pid = self.complete(), self.pid(FRONTEND)
        restarts = self.machine.show(FRONTEND, "NRestarts")
        self.machine.run("systemctl", "kill", "--kill-whom=main", "--signal=USR2", FRONTEND)
        pair.wait_for(lambda: self.pid(FRONTEND) not in ("0", pid), "the next frontend is the main process")
        self.assertEqual(self.complete(), expected)
        pair.wait_for(lambda: not self.machine.read(f"/proc/{pid}/cmdline"), "the one before ends")
        self.assertEqual(self.machine.show(FRONTEND, "ActiveState"), "active")
        self.assertEqual(self.machine.show(FRONTEND, "NRestarts"), restarts)

    def test_5_a_second_unit_takes_over_and_the_first_one_comes_back(self):
        expected = self.complete()
        for unit, other in ((NEXT, ENGINE), (ENGINE, NEXT)):
            with self.subTest(unit):
                self.machine.run("systemctl", "start", unit)
                self.assertEqual(self.complete(), expected)
                pair.wait_for(lambda: self.machine.show(other, "ActiveState") == "inactive", "the one before has left")
                self.assertEqual(self.machine.show(other, "Result"), "success")
                self.assertEqual(self.complete(), expected)

    def test_6_what_cannot_start_is_not_tried_again(self):
        self.machine.write("/etc/tandem/engine-core-next.env", "TANDEM_MODEL=/no/such/model\n")
        self.assertNotEqual(self.machine.run("systemctl", "start", NEXT, check=False).returncode, 0)
        self.assertEqual(self.machine.show(NEXT, "ExecMainStatus"), "3")
        self.assertEqual(self.machine.show(NEXT, "ActiveState"), "failed")
        self.assertTrue(self.answers())

    def test_7_a_reload_reads_a_file_of_keys_again(self):
        self.machine.write("/etc/tandem/keys", "sk-first")
        self.machine.write("/etc/tandem/tandem.env", ENVIRONMENT.format(" --api-key-file /etc/tandem/keys"))
        self.machine.run("systemctl", "restart", FRONTEND)
        pid = self.pid(FRONTEND)
        self.assertTrue(self.answers("sk-first"))
        self.assertEqual(self.complete("sk-second"), 401)
        self.machine.write("/etc/tandem/keys", "sk-second")
        self.machine.run("systemctl", "reload", FRONTEND)
        pair.wait_for(lambda: self.answers("sk-second"), "the key that was added")
        self.assertEqual(self.complete("sk-first"), 401)
        self.assertEqual(self.pid(FRONTEND), pid)

    def test_8_stop_ends_both_in_order(self):
        self.machine.run("systemctl", "stop", FRONTEND)
        for unit in (FRONTEND, ENGINE):  # the second, because nothing wants it any more
            pair.wait_for(lambda: self.machine.show(unit, "ActiveState") == "inactive", f"{unit} has stopped")
            self.assertEqual(self.machine.show(unit, "Result"), "success")

    def test_9_a_socket_of_systemd_stays_open_over_a_restart(self):
        self.machine.write("/etc/systemd/system/tandem-frontend.socket", "[Socket]\nListenStream=/run/http.sock\n")
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "start", "tandem-frontend.socket")
        self.health_by_socket()  # starts both units
        pair.wait_for(lambda: self.health_by_socket() == 200, "the pair that the first connection started")
        pid = self.pid(FRONTEND)
        restart = subprocess.Popen(self.machine.command("systemctl", "restart", FRONTEND))
        while restart.poll() is None:
            self.assertIn(self.health_by_socket(), (200, 503))  # 503: the next frontend has not met the engine yet
        self.assertEqual(restart.returncode, 0)
        self.assertNotEqual(self.pid(FRONTEND), pid)
        self.assertEqual(self.health_by_socket(), 200)

    def health_by_socket(self):
        """The status of /health over a new connection, which is never refused."""
        connection = http.client.HTTPConnection("machine", timeout=pair.LIMIT)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(pair.LIMIT)
        try:
            connection.sock.connect(f"/proc/{self.machine.init}/root/run/http.sock")
            connection.request("GET", "/health")
            return connection.getresponse().status
        finally:
            connection.close()


if __name__ == "__main__":
    reason = systemd_machine.why_not()
    if reason:
        pair.skip(reason)
    unittest.main(verbosity=2)
