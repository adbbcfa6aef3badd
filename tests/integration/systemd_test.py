#!/usr/bin/env python3
"""The systemd units: systemd-analyze finds no fault in them, and both services start.

No systemd runs the commands here (systemd_machine_test.py has one); the test starts both ExecStart lines as systemd would (environment file
values expanded, a runtime folder, NOTIFY_SOCKET) and waits for READY=1 of each.
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair

UNITS = pair.bin_dir().parent / "systemd"
NAMES = ("tandem-frontend", "tandem-engine-core")
INSTANCE = "tandem-engine-core@"


def unit_text(name):
    """The unit with the programs of this build in place of the installed ones."""
    text = (UNITS / f"{name}.service").read_text()
    return re.sub(r"(ExecStart=)\S*/", rf"\g<1>{pair.bin_dir()}/", text)


class Units(unittest.TestCase):
    def test_systemd_analyze_finds_nothing(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name in (*NAMES, INSTANCE):
                paths.append(f"{folder}/{name.replace('@', '@b')}.service")
                # The account and the documentation exist only on an installed host.
                text = re.sub(r"^(User|Group|Documentation)=.*\n", "", unit_text(name), flags=re.M)
                pathlib.Path(paths[-1]).write_text(text)
            result = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True)
            about_ours = [line for line in (result.stdout + result.stderr).splitlines() if "tandem" in line]
            self.assertEqual(about_ours, [])

    def test_both_are_confined(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        for name in (*NAMES, INSTANCE):
            with self.subTest(name):
                result = subprocess.run(
                    ["systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=20",
                     UNITS / f"{name}.service"], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_keys_are_for_the_frontend_alone(self):
        frontend, engine = map(unit_text, NAMES)
        self.assertIn("\nLoadCredential=api-keys\n", frontend)
        self.assertIn("\nExecReload=/bin/kill -HUP $MAINPID\n", frontend)
        self.assertNotIn("LoadCredential", engine)
        self.assertNotIn("frontend.env", engine)
        self.assertIn("\nInaccessiblePaths=-/etc/tandem -/etc/credstore -/run/credentials\n", engine)
        self.assertIn("\nUnsetEnvironment=TANDEM_API_KEY VLLM_API_KEY\n", engine)
        # Subscribers of --kv-events-config reach it over the network.
        self.assertNotIn("PrivateNetwork=yes", engine)

    def test_a_second_engine_core_takes_over_and_has_an_environment_of_its_own(self):
        engine, instance = unit_text(NAMES[1]), unit_text(INSTANCE)
        self.assertIn(" --take-over ", engine)
        life = r"# Stops .*\n(PartOf|StopWhenUnneeded)=.*\n"
        self.assertEqual(re.search(life, engine).group(1), "StopWhenUnneeded")
        self.assertEqual(re.search(life, instance).group(1), "PartOf")
        instance = re.sub(life, "", instance).replace("EnvironmentFile=-/etc/tandem/engine-core-%i.env\n", "")
        self.assertEqual(instance.replace("engine core %i:", "engine core:"), re.sub(life, "", engine))

    def test_both_start_and_report_ready(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            notify.bind(folder + "/notify")
            notify.settimeout(pair.LIMIT)
            notify.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            port_file = pathlib.Path(folder, "port")
            variables = {"TANDEM_MODEL": str(pair.MODEL),
                         "TANDEM_FRONTEND_ARGS": f"--host 127.0.0.1 --port 0 --port-file {port_file}",
                         "TANDEM_ENGINE_ARGS": "--max-num-seqs 8"}
            processes = []
            try:
                for name in NAMES:
                    line = re.search(r"^ExecStart=(.*)$", unit_text(name), re.M).group(1)
                    line = line.replace("/run/tandem", folder)
                    for variable, value in variables.items():
                        line = line.replace("${%s}" % variable, value).replace("$" + variable, value)
                    processes.append(subprocess.Popen(line.split(), env={
                        **os.environ, **variables, "NOTIFY_SOCKET": folder + "/notify"}))
                ready, extended = set(), set()
                while ready != {process.pid for process in processes}:
                    text, control, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(12))
                    sender = int.from_bytes(control[0][2][:4], "little")
                    if b"READY=1" in text.split(b"\n"):
                        ready.add(sender)
                    if text.startswith(b"EXTEND_TIMEOUT_USEC=") and sender not in ready:
                        extended.add(sender)
                self.assertEqual(len(extended), 1, "the engine core asks for time while it loads")
                with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text().strip()}/health") as reply:
                    self.assertEqual(reply.status, 200)
                for process in processes:
                    process.send_signal(signal.SIGTERM)
                    self.assertEqual(process.wait(pair.LIMIT), 0)
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
                notify.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
