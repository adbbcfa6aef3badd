#!/usr/bin/env python3
"""What cpack makes, in a bare Debian 12: it installs, starts, upgrades without losing the configuration, and goes; and an
image that has it, where podman can start one.

Needs root, mmdebstrap and Debian's archive, and minutes: runs only with TANDEM_PACKAGES=1. TANDEM_PACKAGES=FILE.tar
takes that tarball of `mmdebstrap --variant=minbase bookworm FILE.tar` in place of a new one.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import pair
import systemd_machine
from pair import ROOT, free_port, wait_for

WANTED = os.environ.get("TANDEM_PACKAGES", "")
LIMIT = 600
# A host may forbid what podman asks for by itself: networks, and more open files than the caller has.
CONTAINER = ("--network", "host", "--ulimit", "nofile=1024:4096", "--ulimit", "nproc=1000:1000")
PREPARE = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'


def run(*argv, **options):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=LIMIT, **options)
    if done.returncode != 0:
        raise AssertionError(f"{argv}: status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def containerfile():
    """(instruction, rest) of the file's lines; continued ones are one."""
    text = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", "")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line and not line.startswith("#")]


class Container(unittest.TestCase):
    """What can be known of deploy/Containerfile without an image."""

    def test_what_it_copies_is_there_and_it_ends_in_our_command(self):
        steps = containerfile()
        stages = [rest.split(" AS ")[-1] for name, rest in steps if name == "FROM"]
        self.assertEqual([name for name, _ in steps].count("FROM"), 2)
        for name, rest in steps:
            self.assertIn(name, {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"})
            words = rest.split()
            if name == "COPY" and words[0].startswith("--from="):
                self.assertIn(words[0].removeprefix("--from="), stages)
            elif name == "COPY":
                for source in words[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)
        self.assertEqual(json.loads(dict(steps)["ENTRYPOINT"]), ["tandem", "serve"])
        presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
        preset = re.search(r"--preset (\S+)", " ".join(rest for name, rest in steps if name == "RUN")).group(1)
        self.assertIn(preset, [each["name"] for each in presets])


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for program in ("mmdebstrap", "cpack", "dpkg-deb", "dpkg-shlibdeps", "unshare"):
            if not shutil.which(program):
                raise unittest.SkipTest(f"there is no {program}")
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root can make a chroot")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.root = cls.folder / "root"
        tarball = cls.tarball = pathlib.Path(WANTED) if WANTED.endswith(".tar") else cls.folder / "bare.tar"
        if not tarball.exists():
            keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
            run("mmdebstrap", "--variant=minbase", "bookworm", tarball,
                f"deb [signed-by={keyring}] http://deb.debian.org/debian bookworm main")
        cls.root.mkdir()
        run("tar", "-C", cls.root, "--exclude=./dev/*", "-xf", tarball)
        shutil.copy("/etc/resolv.conf", cls.root / "etc/resolv.conf")
        run("cpack", "--config", pair.bin_dir().parent / "CPackConfig.cmake", "-B", cls.folder / "made")
        made = sorted((cls.folder / "made").glob("*.*deb"))
        cls.symbols, cls.package = sorted(made, key=lambda path: "dbgsym" not in path.name)
        cls.name = cls.package.name.split("_")[0]
        cls.chroot("apt-get", "update")
        cls.install(cls.package)

    @classmethod
    def inside(cls, *argv):
        """The command line that runs argv in the chroot, in namespaces of its own: nothing is left mounted."""
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", PREPARE, str(cls.root),
                *map(str, argv)]

    @classmethod
    def chroot(cls, *argv):
        return run(*cls.inside(*argv), env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8",
                                            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

    @classmethod
    def install(cls, package, *options):
        shutil.copy(package, cls.root / "tmp/new.deb")
        cls.chroot("apt-get", "install", "-y", "--no-install-recommends", *options, "/tmp/new.deb")

    def variant(self, version, conffile):
        """The same package with another version and another default configuration."""
        folder = self.folder / version
        run("dpkg-deb", "-R", self.package, folder)
        control = folder / "DEBIAN/control"
        control.write_text(re.sub(r"^Version: .*", f"Version: {version}", control.read_text(), flags=re.M))
        (folder / "etc/tandem/tandem.env").write_text(conffile)
        run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", folder, self.folder / f"{version}.deb")
        return self.folder / f"{version}.deb"

    def unit(self, name):
        return (self.root / f"usr/lib/systemd/system/{name}.service").read_text()

    def completes(self, port):
        """Waits until a server is ready, and asks it for a completion."""
        def ask(method, path, body=None):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                return reply.status, reply.read()
            except OSError as error:
                return 0, error
            finally:
                connection.close()
        wait_for(lambda: ask("GET", "/ready")[0] == 200, "it is ready")
        status, body = ask("POST", "/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 5}))
        self.assertEqual(status, 200, body)
        self.assertEqual(json.loads(body)["usage"]["completion_tokens"], 5)

    def serves(self, *commands):
        """Starts command lines in the chroot as the user tandem, asks for a completion and stops them by SIGTERM."""
        port_file = self.root / "run/tandem/port"
        port_file.unlink(missing_ok=True)
        user = ("setpriv", "--reuid=tandem", "--regid=tandem", "--clear-groups")
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": "/tmp", "XDG_STATE_HOME": "/var/lib/tandem"}
        with open(self.folder / "log", "wb") as log:
            processes = [subprocess.Popen(self.inside(*user, *command), env=environment, stdout=log, stderr=log)
                         for command in commands]
        try:
            wait_for(lambda: port_file.exists() and port_file.read_text().strip(), "the port")

            self.completes(int(port_file.read_text()))
            for process in processes:
                for child in pair.children(process.pid).values():  # unshare waits for it
                    os.kill(child, signal.SIGTERM)
            self.assertEqual([process.wait(LIMIT) for process in processes], [0] * len(processes),
                             (self.folder / "log").read_text()[-3000:])
        except AssertionError:
            print((self.folder / "log").read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def test_1_what_is_installed(self):
        self.assertEqual(self.chroot("dpkg-query", "-W", "-f", "${db:Status-Status} ${Conffiles}", self.name).split()[:2],
                         ["installed", "/etc/tandem/tandem.env"])
        self.assertIn("/usr/sbin/nologin", self.chroot("getent", "passwd", "tandem"))
        for path in ("share/man/man1/tandem-serve.1", "share/bash-completion/completions/tandem", "lib/sysusers.d/tandem.conf",
                     f"share/doc/{self.name}/copyright", "share/doc/tandem/docs/operator/hosts.md"):
            self.assertTrue((self.root / "usr" / path).exists(), path)
        self.assertRegex(self.chroot("tandem", "--version"), r"^tandem \d")
        self.assertEqual(self.chroot("bash", "-c", "source /usr/share/bash-completion/completions/tandem; COMP_WORDS=(tandem to);"
                                     " COMP_CWORD=1; _tandem; echo $COMPREPLY").strip(), "top")

    def test_2_units_name_what_is_there(self):
        for name in ("tandem-frontend", "tandem-engine-core", "tandem-engine-core@"):
            for path in re.findall(r"(?:ExecStart|TANDEM_MODEL|file://)=?(/\S+)", self.unit(name)):
                self.assertTrue((self.root / path.lstrip("/")).exists(), path)
            self.assertNotIn("/usr/local", self.unit(name))
        self.chroot("apt-get", "install", "-y", "--no-install-recommends", "systemd", "procps")
        done = subprocess.run(self.inside("systemd-analyze", "verify", "--man=no", "tandem-frontend.service",
                                          "tandem-engine-core.service", "tandem-engine-core@next.service"),
                              capture_output=True, text=True)
        self.assertEqual([line for line in done.stderr.splitlines() if "tandem" in line], [])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_3_it_starts_as_its_units_do(self):
        self.chroot("install", "-d", "-o", "tandem", "-m", "700", "/run/tandem", "/var/lib/tandem")
        commands = []
        for name, more in (("tandem-frontend", "--host 127.0.0.1 --port 0 --port-file /run/tandem/port"),
                           ("tandem-engine-core", "--kv-cache-memory-bytes 32M")):
            line = re.search(r"^ExecStart=(.*)$", self.unit(name), re.M).group(1)
            model = re.search(r"^Environment=TANDEM_MODEL=(.*)$", self.unit(name), re.M).group(1)
            line = line.replace("${TANDEM_MODEL}", model)
            commands.append(re.sub(r"\$TANDEM_\w+_ARGS", more, line).split())
        self.serves(*commands)

    def test_4_it_starts_as_a_container_does(self):
        # In a namespace of processes it is number 1, as in a container.
        steps = dict(containerfile())
        words = json.loads(steps["ENTRYPOINT"]) + json.loads(steps["CMD"])
        self.assertEqual(steps["USER"], "tandem")
        self.serves([*words, "--port", "0", "--port-file", "/run/tandem/port", "--kv-cache-memory-bytes", "32M"])

    def test_4_its_units_start_under_systemd(self):
        reason = systemd_machine.why_not()
        if reason:
            self.skipTest(reason)
        path = self.root / "etc/tandem/tandem.env"
        default = path.read_text()
        self.addCleanup(path.write_text, default)
        path.write_text(default + "TANDEM_FRONTEND_ARGS=--host 127.0.0.1 --port 0 --port-file /run/tandem/port\n"
                        "TANDEM_ENGINE_ARGS=--kv-cache-memory-bytes 32M\n")
        machine = systemd_machine.InstalledMachine(self.root)
        try:
            self.enterContext(machine)
        except OSError as error:
            self.skipTest(str(error))
        units = ("tandem-frontend", "tandem-engine-core")
        for unit in units:  # there is no journal
            machine.write(f"/run/units/{unit}.service.d/test.conf",
                          f"[Service]\nStandardOutput=append:/var/log/{unit}\nStandardError=append:/var/log/{unit}\n")
        machine.run("systemctl", "daemon-reload")
        started = machine.run("systemctl", "start", "tandem-frontend", check=False)
        self.assertEqual(started.returncode, 0, [started.stderr, *(machine.read(f"/var/log/{unit}") for unit in units)])
        self.completes(int(machine.read("/run/tandem/port")))
        machine.run("systemctl", "stop", "tandem-frontend")
        for unit in units:
            wait_for(lambda: machine.show(unit, "ActiveState") == "inactive", f"{unit} has stopped")
            self.assertEqual(machine.show(unit, "Result"), "success")

    def image(self):
        """podman with an image that the Containerfile's last stage makes of the package: a function from arguments to a
        command line. The first stage, which compiles, has the package alone."""
        if not shutil.which("podman"):
            self.skipTest("there is no podman")
        text = (ROOT / "deploy" / "Containerfile").read_text()
        bases = re.findall(r"^FROM (\S+)", text, re.M)
        context = self.folder / "context"
        context.mkdir()
        shutil.copy(self.package, context)
        (context / "Containerfile").write_text(f"FROM {bases[0]} AS build\nCOPY *.deb /packages/\n"
                                               + text[text.index(f"FROM {bases[1]}"):])
        problem = "there is no runc, and no crun"
        for runtime in filter(shutil.which, ("runc", "crun")):
            def podman(*argv):
                return ["podman", "--root", self.folder / "images", "--runroot", self.folder / "containers", "--storage-driver",
                        "vfs", "--runtime", runtime, *argv]
            run(*podman("import", self.tarball, bases[0]))
            started = subprocess.run([*map(str, podman("run", "--rm", *CONTAINER, bases[0], "true"))], capture_output=True, text=True)
            problem = started.stderr
            if started.returncode == 0:
                run(*podman("tag", *bases))
                # The driver vfs copies a layer whole, so there is one.
                run(*podman("build", "--layers=false", "--isolation", "chroot", "--network", "host", "--pull=never", "-t", "tandem",
                            context))
                return podman
        self.skipTest(f"podman cannot start a container: {problem}")

    def test_4_an_image_of_it_serves_and_drains(self):
        podman = self.image()
        readme = (ROOT / "deploy" / "kubernetes" / "README.md").read_text()
        command = re.search(r"&& podman run (.*)", readme).group(1).split()
        self.assertRegex(run(*podman("run", *CONTAINER, *command)), r"^tandem \d")
        port = free_port()
        model = json.loads(dict(containerfile())["CMD"])[0]
        run(*podman("run", "-d", "--name", "one", *CONTAINER, "tandem", model, "--host", "127.0.0.1", "--port", port,
                    "--kv-cache-memory-bytes", "32M", "--shutdown-timeout", "30"))
        self.addCleanup(run, *podman("rm", "-f", "one"))
        self.completes(port)
        self.assertIn("(tandem)", run(*podman("exec", "one", "id")))
        run(*podman("stop", "-t", LIMIT, "one"))
        self.assertEqual(run(*podman("inspect", "one", "--format", "{{.State.ExitCode}}")).strip(), "0",
                         run(*podman("logs", "one")))

    def test_5_symbols_belong_to_the_programs(self):
        shutil.copy(self.symbols, self.root / "tmp/symbols.deb")
        self.chroot("dpkg", "-i", "/tmp/symbols.deb")
        build_id = re.search(r"Build ID: (\w+)", run("readelf", "-n", self.root / "usr/bin/tandem-engine-core")).group(1)
        debug = self.root / f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
        self.assertIn(".debug_info", run("readelf", "-S", "-W", debug))
        self.assertNotIn(".debug_info", run("readelf", "-S", "-W", self.root / "usr/bin/tandem-engine-core"))
        self.chroot("dpkg", "-r", f"{self.name}-dbgsym")

    def test_6_an_upgrade_keeps_the_configuration(self):
        path = self.root / "etc/tandem/tandem.env"
        default, mine = path.read_text(), "TANDEM_MODEL=/srv/models/mine\n"
        user = self.chroot("id", "tandem")
        path.write_text(mine)
        self.install(self.variant("0.8", default))
        self.assertEqual(path.read_text(), mine)
        self.install(self.variant("0.9", default + "#new\n"), "-o", "Dpkg::Options::=--force-confold")
        self.assertEqual(path.read_text(), mine)
        self.assertEqual(path.with_name("tandem.env.dpkg-dist").read_text(), default + "#new\n")
        self.assertEqual(self.chroot("id", "tandem"), user)
        self.assertEqual(self.chroot("dpkg-query", "-W", "-f", "${Version}", self.name), "0.9")

    def test_7_removed_it_leaves_the_configuration_purged_nothing(self):
        files = [self.root / line.lstrip("/") for line in self.chroot("dpkg", "-L", self.name).split("\n") if line]
        state = self.root / "var/lib/tandem"
        state.mkdir(exist_ok=True)
        (state / "a.flight").write_text("x")
        self.chroot("apt-get", "remove", "-y", self.name)
        self.assertTrue((self.root / "etc/tandem/tandem.env").exists())
        self.assertFalse((self.root / "usr/bin/tandem").exists())
        self.chroot("apt-get", "purge", "-y", self.name)
        left = [path for path in files if path.is_symlink() or path.is_file()]
        self.assertEqual(left, [])
        for folder in ("etc/tandem", "var/lib/tandem", "usr/share/tandem"):
            self.assertFalse((self.root / folder).exists(), folder)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "Package" and not WANTED:
        pair.skip("TANDEM_PACKAGES is not set; see the test")
    unittest.main(verbosity=2)
