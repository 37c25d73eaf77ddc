"""What the mount tests are built from; conftest.py makes fixtures of it and tells how they are used."""
import collections
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import tempfile
import time
import traceback

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("QOSFS_BUILD", REPOSITORY / "build")).resolve()
RING_SWITCH = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
EXTRA_OPTIONS = os.environ.get("QOSFS_OPTIONS", "")  # of every mount, such as io_uring=on

PROGRAMS = ("mount.qosfs", "umount.fuse.qosfs", "tools/qosfsctl", "tests/stress/stress")

# Two ordinary users. They exist in the private namespace alone (fusermount3 wants names).
USER, OTHER = 12001, 12002

TIMEOUT = 30  # seconds that any condition may take on a slow machine, under a sanitizer
# What programs are told when the daemon goes; the last one where requests come by io_uring.
GONE = re.compile("|".join(map(os.strerror, (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED))))
JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID")

CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_FORCE, MNT_DETACH = 1, 2

BAD_LOG = re.compile(r"\b(WARNING|ERROR|CRITICAL|Sanitizer|runtime error)\b|Sanitizer:", re.IGNORECASE)


def check_log(who, log, expected):
    """No line of it tells of trouble, but for those that match one of the `expected` patterns."""
    bad = [line for line in log.splitlines() if BAD_LOG.search(line) and not any(pattern.search(line) for pattern in expected)]
    assert not bad, f"{who} complained:\n" + "\n".join(bad) + f"\nin full:\n{log}"


_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, *names):
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), *map(str, names))


def bind_mount(source, target):
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None), target)


def mount_syscall(source, target, kind, options, flags=0):
    """mount(2)"""
    words = [os.fsencode(word) for word in (source, target, kind)]
    _check(_libc.mount(*words, flags, os.fsencode(options)), target)


def umount(path, flags=0):
    """umount2(2)"""
    _check(_libc.umount2(os.fsencode(path), flags), path)


def of_threads(pid, name):
    """That file of /proc of each thread, by the thread's number; without those that end meanwhile."""
    texts = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            texts[task] = pathlib.Path(f"/proc/{pid}/task/{task}/{name}").read_text().strip()
    return texts


def thread_states(pid):
    """As in ps(1): a letter for each."""
    return [stat.rpartition(")")[2].split()[0] for stat in of_threads(pid, "stat").values()]


def thread_names(pid):
    return list(of_threads(pid, "comm").values())


def is_running(pid):
    """Whether the process is there and no zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_stopped(pid):
    """SIGSTOP has reached all its threads."""
    return set(thread_states(pid)) == {"T"}


@contextlib.contextmanager
def stopped(pid):
    """For the time of the block: no thread does anything in it, such as to give up what the mount has."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(pid), what=f"the stop of {pid}")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_idle(*pids):
    """Until none of their threads has anything to do: between two looks none has run, and none wants to."""
    def look():
        threads = [one for pid in pids for one in of_threads(pid, "status").items()]
        return [(task, [line for line in status.splitlines() if line.startswith(("State", "voluntary", "nonvoluntary"))])
                for task, status in threads]

    def is_idle():
        before = look()
        return look() == before and not any("R (running)" in state for _, (state, *_) in before)
    wait_until(is_idle, what="idle threads")


def run(*command, **options):
    """Runs a program that must succeed; its standard output."""
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_until(predicate, timeout=TIMEOUT, what="the condition"):
    """Polls until `predicate` holds, and returns its value. No test sleeps otherwise."""
    deadline = time.monotonic() + timeout
    while not (value := predicate()):
        assert time.monotonic() < deadline, f"{what} did not come true within {timeout} s"
        time.sleep(0.005)
    return value


def as_user(uid, gid, groups, function):
    """Runs `function` in a child process as that user; its result, or its exception, comes back here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            answer = (True, function())
        except BaseException as error:  # whatever it is, the parent raises it
            answer = (False, error)
        try:
            data = pickle.dumps(answer)
        except Exception:
            data = pickle.dumps((False, RuntimeError(f"{answer[1]!r}\n{traceback.format_exc()}")))
        with open(writer, "wb") as pipe:
            pipe.write(data)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0 and data, f"the child of as_user ended with status {status:#x}"
    succeeded, value = pickle.loads(data)
    if succeeded:
        return value
    raise value


def job_environment(jobid, **more):
    """An environment that names the job, or none with None."""
    environment = {name: value for name, value in os.environ.items() if name not in JOB_VARIABLES}
    if jobid is not None:
        environment["SLURM_JOB_ID"] = str(jobid)
    return environment | more


def as_job(jobid, *command, **options):
    """Runs a program as that job; its standard output. Options as for subprocess.run (user=, input= ...)."""
    options.setdefault("env", job_environment(jobid))
    return run(*command, **options)


def start_job(jobid, *command, **options):
    """Starts a program as that job, in the background; the Popen. The test waits for it."""
    options.setdefault("env", job_environment(jobid))
    return subprocess.Popen([str(word) for word in command], **options)


def error_of(function, *arguments):
    """The errno with which it fails, or None where it works."""
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return None


def outcome_of(function, *arguments, **options):
    """The value, or the name of the errno with which it fails."""
    try:
        return function(*arguments, **options)
    except OSError as error:
        return errno.errorcode[error.errno]


def is_sanitized():
    """Whether the build has AddressSanitizer, which keeps memory that was freed."""
    return b"__asan_init" in (BUILD / "mount.qosfs").read_bytes()


def drop_caches():
    """The kernel forgets the files that nobody uses; not while a benchmark needs that it knows them (bench/shared.py, caches_kept())."""
    with open("/proc/sys/vm/drop_caches", "wb", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b"2")


def query(database, command, *values):
    """The rows of a database that a daemon may be using."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(command, values).fetchall()


def saved_requests(database, job):
    """How many requests of the job the database knows of."""
    rows = query(database, "SELECT requests FROM job WHERE id = ?", job.encode())
    return rows[0][0] if rows else 0


@contextlib.contextmanager
def running(process):
    """A process that ends with the block, whatever becomes of it."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class World:
    """The private mount namespace of this run, with a file system of its own for all that tests make."""

    def __init__(self):
        if os.geteuid() != 0:
            raise RuntimeError("the mount tests must be run by root")
        if not os.path.exists("/dev/fuse"):
            raise RuntimeError("there is no /dev/fuse: the mount tests need it (modprobe fuse)")
        for program in PROGRAMS:
            if not (BUILD / program).exists():
                raise RuntimeError(f"{BUILD / program} is missing: build first, or set QOSFS_BUILD")
        # A run in the background may have inherited these as ignored, and would hand that down.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        _check(_libc.unshare(CLONE_NEWNS), "unshare")
        _check(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "/")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="qosfs-test-"))
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "qosfs-test", self.root)
        self._count = 0
        self._own_mount_table()
        self._open_fuse()
        self._add_users()
        # Where the build lies ordinary users may have no access.
        self.programs = self.root / "programs"
        self.programs.mkdir()
        for program in PROGRAMS:
            shutil.copy(BUILD / program, self.programs)
        self._stores = {}

    def _own_mount_table(self):
        """Of mount(8): the machine's is not to have entries of mounts that tests have made."""
        table = pathlib.Path("/run/mount")
        table.mkdir(exist_ok=True)
        bind_mount(self.folder("run-mount"), table)

    def _open_fuse(self):
        """Ordinary users may mount too, wherever /dev/fuse is root's."""
        node = self.root / "fuse"
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(10, 229))
        node.chmod(0o666)
        bind_mount(node, "/dev/fuse")

    def _add_users(self):
        for name, lines in (("passwd", "qosfs-{0}:x:{0}:{0}::/:/bin/sh\n"), ("group", "qosfs-{0}:x:{0}:\n")):
            original = pathlib.Path("/etc", name)
            extended = self.root / name
            extended.write_text(original.read_text() + lines.format(USER) + lines.format(OTHER))
            bind_mount(extended, original)

    def folder(self, name, mode=0o755):
        """A new empty folder."""
        self._count += 1
        path = self.root / f"{name}-{self._count}"
        path.mkdir()
        path.chmod(mode)
        return path

    def store(self, kind):
        """A folder of a file system of that kind, which anyone may write to."""
        if kind not in self._stores:
            self._stores[kind] = self._make_store(kind)
        path = pathlib.Path(tempfile.mkdtemp(prefix="store-", dir=self._stores[kind]))
        path.chmod(0o1777)
        return path

    def _make_store(self, kind):
        path = self.folder(kind)
        if kind in ("tmpfs", "ramfs"):
            run("mount", "-t", kind, "-o", "mode=0755", "qosfs-store", path)
        elif kind == "ext4":
            image = self.root / "ext4.image"
            with open(image, "wb") as file:
                file.truncate(2 << 30)
            run("mkfs.ext4", "-q", "-E", "root_owner=0:0", image)
            run("mount", "-t", "ext4", "-o", "loop,acl,user_xattr", image, path)
        elif kind == "btrfs":
            image = self.root / "btrfs.image"
            with open(image, "wb") as file:
                file.truncate(256 << 20)
            run("mkfs.btrfs", "-q", image)
            run("mount", "-t", "btrfs", "-o", "loop", image, path)
        else:
            raise ValueError(kind)
        return path

    def close(self):
        """The rest goes with the namespace."""
        os.chdir("/")
        umount(self.root, MNT_DETACH)
        self.root.rmdir()


@contextlib.contextmanager
def ring_switched(on):
    """Switches FUSE over io_uring on or off in the kernel meanwhile, for new mounts. One run of the tests at a time."""
    with open(RING_SWITCH) as switch:
        fcntl.flock(switch, fcntl.LOCK_EX)
        before = RING_SWITCH.read_text()
        RING_SWITCH.write_text("Y" if on else "N")
        try:
            yield
        finally:
            RING_SWITCH.write_text(before)


class Store(collections.namedtuple("Store", "dir kind")):
    """A place to mount over: `dir`, a Path, and `kind`, 'tmpfs', 'ramfs', 'ext4' or 'btrfs'."""


class Mount:
    """A mounted qosfs: see conftest.py."""

    def __init__(self, world, store, options, user, arguments, place, prefix=()):
        self.store = store
        self.dir = place or world.folder("mnt", 0o755)
        self.user = user
        self.exit_status = None
        self.db = world.folder("db") / "qosfs.db"
        self._expected = [re.compile("files of .* can be known at a time")]
        self._log_path = world.folder("log") / "stderr"
        self._ctl = world.programs / "qosfsctl"
        self._stress = world.programs / "stress"
        identity = {}
        if user is not None:
            identity = {"user": user, "group": user, "extra_groups": []}
            for path in filter(None, (place is None and self.dir, self.db.parent)):
                os.chown(path, user, user)
        words = ["foreground", *filter(None, [EXTRA_OPTIONS, options])]
        if not re.search(r"(^|,)db=", options):
            words.append(f"db={self.db}")
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *prefix, world.programs / "mount.qosfs", store.dir,
                 self.dir, *arguments, "-o", ",".join(words)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=job_environment(None, **SANITIZERS),
                start_new_session=True, **identity)
        self.pid = self._process.pid

    # --- what tests use ---

    @property
    def log(self):
        """All that the daemon has said so far."""
        return self._log_path.read_text(errors="replace")

    def ctl(self, *arguments, check=True, **options):
        """Runs qosfsctl on this mount: its output, or with check=False the CompletedProcess."""
        command = [str(word) for word in (self._ctl, "--mount", self.dir, *arguments)]
        options.setdefault("env", job_environment(None, **SANITIZERS))
        if check:
            return run(*command, **options)
        return subprocess.run(command, text=True, capture_output=True, **options)

    def report(self, name):
        """The text of a file in .qosfs."""
        return (self.dir / ".qosfs" / name).read_text()

    def start_stress(self, jobid, seconds, seed, folder=".", processes=4, **options):
        """tests/stress/stress.c as that job, in the background; stderr says what it finds."""
        return start_job(jobid, self._stress, self.dir / folder, seconds, processes, seed, stderr=subprocess.PIPE,
                         text=True, start_new_session=True, **options)

    def state(self):
        """.qosfs/state.json, parsed."""
        return json.loads(self.report("state.json"))

    def job(self, jobid):
        """The job's part of state(), or None."""
        return next((job for job in self.state()["jobs"] if job["id"] == str(jobid)), None)

    def rule_state(self, name):
        """The rule's part of state()."""
        return next(rule for rule in self.state()["rules"] if rule["name"] == name)

    def resident(self):
        """The daemon's memory, KiB."""
        return int(re.search(r"VmRSS:\s*(\d+)", pathlib.Path(f"/proc/{self.pid}/status").read_text())[1])

    def cpu_time(self):
        """The CPU time that the daemon has taken so far, seconds; None where it has ended."""
        try:
            fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def store_descriptors(self):
        """How many files of the store the daemon holds open."""
        count = 0
        for link in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                count += os.readlink(link).startswith(str(self.store.dir))
        return count

    def wait_booked(self, jobid, **operations):
        """Waits until all that the job did is in its totals: with a lock server a write is booked after its reply, and
        a close comes when its program may be gone. So many of these `operations`, which hold no slot, and none that does."""
        def is_booked():
            job = self.job(jobid)
            booked = {name: value["samples"] for name, value in job["operations"].items()} if job else {}
            return job and job["running"] == 0 and operations.items() <= booked.items()
        wait_until(is_booked, what=f"the last request of job {jobid}")

    def rule(self, command):
        """Gives a rule command, by xattr."""
        os.setxattr(self.dir, "user.qosfs.nrs_tbf_rule", command.encode())

    def set(self, name, value):
        """Sets a tunable, by xattr."""
        os.setxattr(self.dir, f"user.qosfs.{name}", str(value).encode())

    def get(self, name):
        """Reads a tunable or another of our xattrs as text."""
        return os.getxattr(self.dir, f"user.qosfs.{name}").decode()

    def expects_log(self, pattern):
        """Lines of the log that match are no failure."""
        self._expected.append(re.compile(pattern))

    def is_mounted(self):
        with open("/proc/self/mountinfo") as table:
            return any(line.split()[4] == str(self.dir) for line in table)

    def is_dead(self):
        """Whether the mount is there without its daemon."""
        def ask():
            try:
                os.statvfs(self.dir)  # no cache answers
            except OSError as error:
                return GONE.search(str(error)) is not None
            return False
        return ask() if self.user is None else as_user(self.user, self.user, [], ask)

    def wait_mounted(self):
        def ready():
            assert self._process.poll() is None, \
                f"mount.qosfs ended with {self._process.returncode}:\n{self.log}"
            # Over a dead mount: it goes before the new one comes.
            return self.is_mounted() and not self.is_dead() and self.is_mounted()
        wait_until(ready, what="the mount")

    def unmount(self):
        """Unmounts, waits for the daemon to end, and demands a clean end. May be repeated."""
        if self.exit_status is not None:
            return
        if self.is_mounted():
            wait_until(self._try_unmount, what=f"unmounting {self.dir} (busy)")
        self._wait_exit()
        assert self.exit_status == 0, f"the daemon ended with {self.exit_status}:\n{self.log}"
        check_log("the daemon", self.log, self._expected)

    def kill(self, number=signal.SIGKILL, clear=True):
        """Ends the daemon by a signal, SIGKILL as a crash would, and clears the dead mount away. It must not have ended before."""
        early = self._process.poll()
        self._process.send_signal(number)
        self._wait_exit(frees=number == signal.SIGKILL and clear)
        if clear and self.is_mounted():
            umount(self.dir, MNT_DETACH)
        assert early is None, f"the daemon had ended with {early}:\n{self.log}"
        self._check_sanitizers()

    def wait_failed(self):
        """Waits until the daemon has refused to mount."""
        self._wait_exit()
        assert not self.is_mounted()
        assert self.exit_status != 0, f"the mount was expected to fail:\n{self.log}"
        self._check_sanitizers()

    # --- what the fixture uses ---

    def abort(self):
        """Ends a daemon that hangs: whatever waits for it gets an error."""
        self._process.kill()

    def finish(self):
        """The end of a test: nothing stays behind, whatever the test did."""
        try:
            self.unmount()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            if self.is_mounted():
                umount(self.dir, MNT_DETACH)

    def _try_unmount(self):
        try:
            umount(self.dir)
        except OSError as error:
            # As when a program of the test is just ending; as when the daemon was quicker.
            if error.errno not in (errno.EBUSY, errno.EINVAL):
                raise
        return not self.is_mounted()

    def _wait_exit(self, frees=False):
        """With `frees`, if the kernel waits for an answer of a killed daemon, it is ended as docs/design/coherence.md says."""
        def has_ended():
            if self._process.poll() is None and frees and self._waits_for_itself():
                with contextlib.suppress(OSError):  # busy, but what waits has ended
                    umount(self.dir, MNT_FORCE)
            return self._process.poll() is not None
        try:
            wait_until(has_ended, what="the end of the daemon")
        except AssertionError:
            raise AssertionError(f"the daemon does not end:\n{self.threads()}\n{self.log}") from None
        self.exit_status = self._process.returncode

    def _waits_for_itself(self):
        """Killed while it dropped pages: the kernel waits for its answer to a READ (docs/design/coherence.md, the last limits)."""
        alive = [line.split()[1:3] for line in self.threads().splitlines() if int(line.split()[0]) != self.pid]
        return len(alive) == 1 and alive[0][0] == "pages" and "folio" in alive[0][1]

    def threads(self):
        """Where the daemon's threads are, for the report of one that hangs."""
        names, places, calls = (of_threads(self.pid, name) for name in ("comm", "wchan", "syscall"))
        return "\n".join(f"{task} {name} {places.get(task)} {calls.get(task)}" for task, name in names.items())

    def _check_sanitizers(self):
        assert "Sanitizer" not in self.log and "runtime error" not in self.log, self.log


SANITIZERS = {
    # TLS modules have thread-local variables, at which the search for leaks stumbles without the last.
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:exitcode=99:intercept_tls_get_addr=0",
    "LSAN_OPTIONS": f"print_suppressions=0:suppressions={REPOSITORY}/tests/mount/lsan.supp",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
    "TSAN_OPTIONS": f"exitcode=99:second_deadlock_stack=1:suppressions={REPOSITORY}/tests/mount/tsan.supp",
    # GLib hands pieces of memory from thread to thread under locks that ThreadSanitizer does not see.
    "G_SLICE": "always-malloc",
}


def preload(library):
    """LD_PRELOAD of a daemon that is to have that library of tests/mount. A sanitizer's wants to be the first."""
    sanitizers = re.findall(r"=> (\S*lib[a-z]+san\S*)", run("ldd", BUILD / "mount.qosfs"))
    return " ".join([*sanitizers, str(BUILD / f"tests/mount/lib{library}.so")])


# --- mounting by hand ---

USAGE, FAILED = 1, 32  # exit codes, as mount(8) has them


def mount_qosfs(world, *arguments, **options):
    """Runs mount.qosfs to its end. Its output must end too: the daemon does not keep it."""
    options.setdefault("env", job_environment(None, **SANITIZERS))
    return subprocess.run([str(word) for word in (world.programs / "mount.qosfs", *arguments)], text=True,
                          capture_output=True, timeout=TIMEOUT, **options)


def entry(path, pid="self"):
    """The line of mountinfo for a mountpoint, split, or None; the last where several are stacked."""
    lines = [line.split() for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    return next((line for line in reversed(lines) if line[4] == str(path)), None)


def daemon_of(path):
    """The daemon's process id, by the report of the mount."""
    return int(re.search(r'"pid":(\d+)', (path / ".qosfs/state.json").read_text())[1])


@contextlib.contextmanager
def bound(source, target):
    """`source` lies over `target`."""
    bind_mount(source, target)
    try:
        yield
    finally:
        umount(target, MNT_DETACH)
