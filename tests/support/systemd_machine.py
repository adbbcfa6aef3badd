"""A systemd of its own for a test: process 1 of a PID namespace, with what `cmake --install` would put on a host.

Needs root, cgroup2, overlayfs and systemd; where one of them is missing, why_not() names it. The network is the
host's, everything that is written (units, users, keys, state) is in memory, and the end of the machine is the end of
each process in it.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pair

SYSTEMD = "/lib/systemd/systemd"
# Of the host's units only what a start needs: the targets, without anything that they start.
TARGETS = "sysinit basic sockets timers paths slices shutdown umount local-fs swap network multi-user".split()
# Not that of the build: the units are to follow it.
PREFIX = "/usr/tandem"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# $1: where the build was installed. Mounts are shared below the machine, because systemd mounts credentials in a
# helper process and they reach the service from there.
BOOT = r"""
set -eu
mount --make-rprivate /
mount --make-rshared /
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/etc /run/work /run/none /run/lock
mount -t overlay -o "lowerdir=$1/usr:/usr" overlay /usr
mount -t overlay -o "lowerdir=/etc,upperdir=/run/etc,workdir=/run/work" overlay /etc
mount -t tmpfs -o mode=755 tmpfs /etc/systemd
mkdir -p /etc/systemd/system /etc/tandem /etc/credstore
for target in $TARGETS; do cp "/lib/systemd/system/$target.target" /etc/systemd/system; done
systemd-sysusers "$PREFIX/lib/sysusers.d/tandem.conf"
mount -t tmpfs -o mode=755 tmpfs /var
mkdir -p /var/lib /var/log /var/tmp
chmod 1777 /var/tmp
mount -t tmpfs -o mode=1777 tmpfs /tmp
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export container=tandem SYSTEMD_UNIT_PATH=/etc/systemd/system:$PREFIX/lib/systemd/system
export SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none
exec "$SYSTEMD" --system --unit=multi-user.target
"""

# $1: a Debian with systemd and with what is to be tried, installed. Its root is the machine's; of its units only the
# targets and ours are known.
BOOT_ROOT = r"""
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs sys
mkdir -p run/lock run/none run/units sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
for target in $TARGETS; do cp "usr/lib/systemd/system/$target.target" run/units; done
cp usr/lib/systemd/system/tandem-* run/units
pivot_root . .
umount -l .
cd /
mount --make-rshared /
export container=tandem SYSTEMD_UNIT_PATH=/run/units
export SYSTEMD_GENERATOR_PATH=/run/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none
exec "$SYSTEMD" --system --unit=multi-user.target
"""


def cgroup2():
    """Where cgroup2 is mounted; None if nowhere."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        words = line.split()
        if words[2] == "cgroup2":
            return pathlib.Path(words[1])
    return None


def why_not():
    """What is missing for a machine; empty if nothing that can be seen without trying."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.access(SYSTEMD, os.X_OK):
        return "systemd is not installed"
    for tool in ("unshare", "nsenter", "systemctl", "systemd-sysusers", "cmake"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    if cgroup2() is None:
        return "cgroup2 is not mounted"
    if "overlay" not in pathlib.Path("/proc/filesystems").read_text():
        return "the kernel has no overlayfs"
    return ""


class Machine:
    """Use as a context manager; an OSError says why it cannot boot here."""

    def __init__(self, build):
        self.build = build
        self.folder = tempfile.TemporaryDirectory(prefix="tandem-machine-")
        self.cgroup = cgroup2() / f"tandem-test-{os.getpid()}"
        self.boot_log = pathlib.Path(self.folder.name, "boot.log")
        self.outer = None
        self.init = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def boot(self):
        """The script that boots it, and its argument."""
        stage = self.folder.name + "/stage"
        subprocess.run(["cmake", "--install", self.build, "--prefix", PREFIX], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DESTDIR": stage})
        return BOOT, stage

    def start(self):
        script, argument = self.boot()
        self.cgroup.mkdir()
        with open(self.boot_log, "wb") as log:
            self.outer = subprocess.Popen(
                ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', self.cgroup,
                 "unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup", "--uts", "--ipc",
                 "sh", "-c", script, "boot", argument],
                stdout=log, stderr=log, env={"PATH": PATH, "TARGETS": " ".join(TARGETS), "SYSTEMD": SYSTEMD,
                                         "PREFIX": PREFIX})
        pair.wait_for(self.is_up, "a systemd that responds")

    def is_up(self):
        if self.outer.poll() is not None:
            raise OSError("the machine does not boot: " + self.boot_log.read_text(errors="replace").strip())
        self.init = pair.children(self.outer.pid).get("systemd")
        return self.init and self.run("systemctl", "is-active", "multi-user.target", check=False).stdout == "active\n"

    def command(self, *words):
        """The command line that runs a command inside."""
        return ["nsenter", "-t", str(self.init), "-m", "-p", "-C", "-i", "-u", "env", "-i", "PATH=" + PATH, *map(str, words)]

    def run(self, *words, check=True):
        """Runs a command inside."""
        result = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=2 * pair.LIMIT)
        if check and result.returncode != 0:
            raise AssertionError(f"{words}: status {result.returncode}\n{result.stdout}{result.stderr}")
        return result

    def read(self, path):
        """A file's text; empty if there is no such file."""
        return self.run("cat", path, check=False).stdout

    def write(self, path, text, mode="644"):
        self.run("sh", "-c", 'mkdir -p "$(dirname "$0")" && printf %s "$1" >"$0" && chmod "$2" "$0"', path, text, mode)

    def show(self, unit, name):
        """One property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()

    def __exit__(self, *_):
        if self.outer:
            self.outer.send_signal(signal.SIGKILL)  # --kill-child: process 1 dies with it, and all others with that
            self.outer.wait()
        if self.cgroup.exists():
            pair.wait_for(self.is_empty, "no process is left in the machine")
            for path, _, _ in os.walk(self.cgroup, topdown=False):
                os.rmdir(path)
        self.folder.cleanup()

    def is_empty(self):
        return "populated 0" in (self.cgroup / "cgroup.events").read_text()


class InstalledMachine(Machine):
    """One whose root is a folder: what is written stays there."""

    def __init__(self, root):
        super().__init__(build=None)
        self.root = root

    def boot(self):
        return BOOT_ROOT, str(self.root)
