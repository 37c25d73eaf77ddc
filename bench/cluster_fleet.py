"""Twenty mounts on one store that counts for itself: what bench/cluster budget measures on.

Problem: a rule for all mounts must be judged by figures that qosfs has no part in. The store is an ext4 on a loop device over a file in a tmpfs, and the
kernel counts what is read from the device.

Constraint: a mount reads its store through the page cache, without O_DIRECT. So a read of a program need not be a read of the device, and the kernel
may read ahead.

Solution: files have blocks that were written. This program empties the store's page cache ten times a second; more often would be worse, because a page
that goes before it was copied is read again. The load reads every other block, so that the kernel never sees a sequence. Then a read is one read of
the device: bench/cluster budget compares the device's count with fio's. The file in the tmpfs has holes, so it takes no memory.

Some mounts have a network namespace, a host name and a certificate of their own, and reach the server by TCP with TLS. Everything ends with the program,
even if it is killed: the mounts are in its mount namespace, and each process gets SIGKILL when it dies.

Limit: it needs root, loop devices and network namespaces.
"""
import contextlib
import json
import mmap
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from shared import TOP, unmount, wait_for

MOUNTS, REMOTE = 20, 5  # the last ones are remote
TICK = 0.1  # s between two looks at the store's counters
MIB = 1 << 20
JOB = "bench"
PORT = 7989
PATIENCE = 60
PARENT = ["setpriv", "--pdeathsig", "KILL"]


def networks(build):
    """The namespaces and certificates of the tests (tests/mount/cluster.py)."""
    os.environ["QOSFS_BUILD"] = build
    sys.path.append(str(TOP / "tests" / "mount"))
    import cluster  # pylint: disable=import-outside-toplevel
    return cluster.Network(), cluster.Certificates


class Store(threading.Thread):
    """The store, and a thread that looks at its counters and empties its cache."""

    def __init__(self, folder, megabytes):
        super().__init__(daemon=True)
        self.folder, self.bytes = pathlib.Path(folder), megabytes * MIB
        self.where, self.samples, self.ending = self.folder / "store", [], threading.Event()
        self.is_mounted, self.files = [], []
        for name in ("memory", "store"):
            (self.folder / name).mkdir()

    def make(self):
        image = self.folder / "memory" / "image"
        self._mount("-t", "tmpfs", "-o", "size=2g", "tmpfs", image.parent)
        image.touch()
        os.truncate(image, MOUNTS * self.bytes + 1024 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-T", "largefile", image], check=True)
        done = subprocess.run(["losetup", "--find", "--show", image], text=True, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench/cluster: no loop device, so the store cannot count: {done.stderr.strip()}")
        self.device = pathlib.Path("/sys/block", pathlib.Path(done.stdout.strip()).name)
        try:
            self._mount("-o", "noatime", done.stdout.strip(), self.where)
        finally:  # it goes with its last user
            subprocess.run(["losetup", "--detach", done.stdout.strip()], check=True)
        for number in range(MOUNTS):
            self._write(f"{self.where}/{number}")
            subprocess.run(["fallocate", "--dig-holes", image], check=True)
        self.start()

    def _mount(self, *words):
        subprocess.run(["mount", *words], check=True)
        self.is_mounted.append(words[-1])

    def _write(self, path):
        """Blocks that the kernel knows to have been written, for it reads no others."""
        self.files.append(os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT))
        with mmap.mmap(-1, MIB) as zeros:
            for _ in range(self.bytes // MIB):
                os.write(self.files[-1], zeros)
        os.fsync(self.files[-1])

    def read_ahead(self, kilobytes):
        """As much as a request, at most, has to be read at once; with 0 each page by itself."""
        (self.device / "queue" / "read_ahead_kb").write_text(str(kilobytes))

    def look(self):
        """The time, reads that ended, bytes that were read, reads that were merged into others."""
        words = [int(word) for word in (self.device / "stat").read_text().split()]
        return time.monotonic(), words[0], words[2] * 512, words[1]

    def run(self):
        due = time.monotonic()
        while not self.ending.is_set():
            self.samples.append(self.look())
            for file in self.files:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            due = max(due + TICK, time.monotonic())
            time.sleep(max(0, due - time.monotonic()))

    def between(self, begin, end):
        return [sample for sample in self.samples if begin <= sample[0] <= end]

    def close(self):
        self.ending.set()
        if self.is_alive():
            self.join()
        for file in self.files:
            os.close(file)
        for path in reversed(self.is_mounted):
            unmount(path)


class Mount:
    """One of the mounts. `prefix`: the words that run a command in its namespaces."""

    def __init__(self, fleet, number, prefix, options):
        self.fleet, self.number, self.prefix, self.options = fleet, number, prefix, options
        self.where = fleet.folder / f"mount{number}"
        self.where.mkdir()
        self.daemon = None

    def start(self):
        with open(f"{self.where}.log", "ab") as log:
            self.daemon = subprocess.Popen(
                [*PARENT, *self.prefix, f"{self.fleet.build}/mount.qosfs", self.fleet.store.where, self.where, "-o",
                 f"foreground,db={self.where}.db,{self.options}"], stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def wait_up(self):
        wait_for(lambda: os.path.ismount(self.where) or self.daemon.poll() is not None, f"mount {self.number}")
        if self.daemon.poll() is not None:
            sys.exit(f"bench/cluster: no mount:\n{pathlib.Path(f'{self.where}.log').read_text()}")
        wait_for(lambda: self.state()["server"]["state"] == "up", f"mount {self.number} to reach its server")

    def state(self):
        return json.loads((self.where / ".qosfs/state.json").read_text())

    def rule(self, command):
        os.setxattr(self.where, "user.qosfs.nrs_tbf_rule", command.encode())

    def kill(self):
        self.daemon.kill()
        self.daemon.wait(PATIENCE)

    def again(self):
        """After kill()."""
        subprocess.run(["umount", "--lazy", self.where], check=True)
        self.start()
        self.wait_up()

    def close(self):
        if self.daemon is None:
            return
        self.daemon.send_signal(signal.SIGCONT)
        if self.daemon.poll() is None and os.path.ismount(self.where):
            unmount(self.where)
            self.daemon.wait(PATIENCE)
        elif os.path.ismount(self.where):
            subprocess.run(["umount", "--lazy", self.where], check=True)
        self.daemon.kill()
        self.daemon.wait(PATIENCE)


class Fleet:
    """The store, the server and the mounts."""

    def __init__(self, build, folder, megabytes):
        self.build, self.folder = build, pathlib.Path(folder)
        self.store = Store(self.folder, megabytes)
        self.network, self.server, self.mounts = None, None, []
        self.control = self.folder / "control.sock"

    def start(self):
        self.store.make()
        self.network, make = networks(self.build)
        (self.folder / "keys").mkdir()
        certificates = make(self.folder / "keys")
        self._start_server(certificates)
        for number in range(MOUNTS):
            self.mounts.append(self._new_mount(number, certificates))
            self.mounts[-1].start()
        for mount in self.mounts:
            mount.wait_up()

    def _start_server(self, certificates):
        certificate, key = certificates.make("server", self.network.address)
        (self.folder / "database").mkdir()
        with open(self.folder / "server.log", "ab") as log:
            self.server = subprocess.Popen(
                [*PARENT, *self.network.enter, f"{self.build}/server/qosfs-server", "--database", self.folder / "database",
                 "--listen", f"unix:{self.folder}/server.sock", "--listen", f"tcp:{self.network.address}:{PORT}", "--tls-ca",
                 self.folder / "keys" / "ca.crt", "--tls-cert", certificate, "--tls-key", key, "--control", self.control],
                stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        wait_for(lambda: self.server.poll() is not None or self.ctl("server", "status").returncode == 0, "the server")
        if self.server.poll() is not None:
            sys.exit("bench/cluster: the server did not start:\n" + (self.folder / "server.log").read_text())

    def _new_mount(self, number, certificates):
        if number < MOUNTS - REMOTE:
            return Mount(self, number, [], f"server=unix:{self.folder}/server.sock")
        words = self.network.add()
        certificate, key = certificates.make(f"node{number}")
        named = [*words, "unshare", "--uts", "sh", "-c", f'hostname node{number} && exec "$@"', "sh"]
        return Mount(self, number, named, f"server={self.network.address}:{PORT},server_ca={self.folder}/keys/ca.crt,"
                                          f"server_cert={certificate},server_key={key}")

    def ctl(self, *words):
        return subprocess.run([f"{self.build}/tools/qosfsctl", *words, "--socket", self.control], capture_output=True, text=True, check=False)

    def cluster_rule(self, *words):
        """A command on the rules of the cluster, which all mounts have put in force when this returns."""
        done = self.ctl("cluster", "rule", *words)
        if done.returncode != 0:
            sys.exit(f"bench/cluster: cluster rule {' '.join(words)}: {done.stderr.strip()}")
        wait_for(lambda: json.loads(self.ctl("cluster", "status", "--json").stdout)["mounts_behind"] == 0, "the mounts to have the rule")

    def path(self, number):
        return str(self.mounts[number].where / str(number))

    def switch(self, number, is_on):
        """The network of a remote mount."""
        self.network.switch(self.mounts[number].prefix[:4], is_on)

    def cpu(self):
        """CPU seconds so far: of the mounts, of the server."""
        def used(process):
            with contextlib.suppress(FileNotFoundError):
                words = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            return 0
        return sum(used(mount.daemon) for mount in self.mounts), used(self.server)

    def close(self):
        for mount in self.mounts:
            mount.close()
        if self.server:
            self.server.terminate()
            self.server.wait(PATIENCE)
        if self.network:
            self.network.close()
        self.store.close()


@contextlib.contextmanager
def fleet_of(build, megabytes):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="qosfs-cluster-") as folder:
        fleet = Fleet(build, folder, megabytes)
        try:
            fleet.start()
            yield fleet
        finally:
            fleet.close()


class Hunger:
    """bench-hunger: readers of all files that are switched on and off."""

    def __init__(self, fleet, size, threads):
        self.process = subprocess.Popen([*PARENT, f"{fleet.build}/bench/bench-hunger", str(size), str(threads), *map(fleet.path, range(MOUNTS))],
                                        text=True, env={**os.environ, "SLURM_JOB_ID": JOB}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        start_new_session=True)
        self.records = []  # (time, reads that have ended, of each file)
        self._line()

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("bench/cluster: bench-hunger has ended")
        return line

    def _say(self, words):
        print(words, file=self.process.stdin, flush=True)

    def on(self, number):
        """When it began, s."""
        self._say(f"+{number}")
        return int(self._line()) / 1e9

    def off(self, number):
        self._say(f"-{number}")

    def record(self, seconds, step=0.01):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._say("?")
            moment, *counts = map(int, self._line().split())
            self.records.append((moment / 1e9, counts))
            time.sleep(step)

    def at(self, moment, numbers):
        """Reads of these files that had ended by then, between the looks as if they came evenly."""
        records = self.records
        low, high = 0, len(records) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if records[middle][0] <= moment else (low, middle)
        (before, old), (after, new) = records[low], records[high]
        part = min(1, max(0, (moment - before) / (after - before)))
        return sum(old[number] + part * (new[number] - old[number]) for number in numbers)

    def rate(self, begin, end, numbers):
        return (self.at(end, numbers) - self.at(begin, numbers)) / (end - begin)

    def close(self):
        self.process.kill()
        self.process.communicate()
