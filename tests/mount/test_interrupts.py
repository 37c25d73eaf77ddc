"""Signals to programs with a waiting request: what ends a program ends the wait, anything else changes nothing.

As in test_rules.py, a job in debt waits for an hour or until the test lifts the rule. So what ends was ended by
the signal.
"""
import contextlib
import errno
import os
import signal
import subprocess
import sys

import pytest

from harness import BUILD, TIMEOUT, as_job, of_threads, running, start_job, umount, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

BLOCK = 4096
MNT_FORCE = 1
OPERATIONS = ["read", "write", "stat", "open", "readdir"]

# Python's own functions repeat what fails with EINTR; the C library's do not.
CLIENT = """
import ctypes, os, signal, sys
operation, top, restart = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
libc.opendir.restype = ctypes.c_void_p
path = os.fsencode(top + "/file")
fd = os.open(path, os.O_RDWR)
buffer = ctypes.create_string_buffer(4096)
calls = {
    "read": lambda: libc.pread(fd, buffer, 4096, 0),
    "write": lambda: libc.pwrite(fd, buffer, 4096, 0),
    "stat": lambda: libc.stat(path, buffer),
    "open": lambda: min(libc.open(path, os.O_RDONLY), 0),
    "readdir": lambda: 0 if libc.opendir(os.fsencode(top)) else -1,
}
for number in (signal.SIGUSR1, signal.SIGCHLD):
    signal.signal(number, lambda *_: print("handled", flush=True))
    signal.siginterrupt(number, restart == "interrupt")
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("ready", flush=True)
sys.stdin.readline()
result = calls[operation]()
error = ctypes.get_errno() if result < 0 else 0
print("ended", result, error, flush=True)
"""


class Waiting:
    """A program of job j; its `operation` waits."""

    def __init__(self, qos, operation, restart="interrupt"):
        self.process = start_job("j", sys.executable, "-c", CLIENT, operation, qos.dir, restart,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._qos = qos

    def begin(self):
        before = waiting(self._qos)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        wait_until(lambda: waiting(self._qos) > before, what="waiting")

    def signal_is_pending(self, number):
        with open(f"/proc/{self.process.pid}/status") as status:
            masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigPnd:", "ShdPnd:"))]
        return any(mask >> (number - 1) & 1 for mask in masks)

    def end(self):
        """Soon: by the rule it would wait for more than an hour."""
        return self.process.communicate(timeout=TIMEOUT)[0].splitlines()


def waiting(qos):
    return qos.rule_state("tight")["waiting"]


def begin(qos, *clients):
    """Brings job j into debt, and then makes its programs wait."""
    for client in clients:
        assert client.process.stdout.readline() == "ready\n"
    qos.rule("start tight jobid={j} bps=1 depth=1:1")
    as_job("j", "dd", f"if={qos.dir / 'file'}", "of=/dev/null", f"bs={BLOCK}", "count=1", "status=none")
    for client in clients:
        client.begin()


@pytest.fixture
def qos(store, mount):
    (store.dir / "file").write_bytes(b"x" * BLOCK)
    return mount(store, "cache=none")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGALRM])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_ends_a_program_ends_the_wait(store, qos, operation, number):
    client = Waiting(qos, operation)
    begin(qos, client)
    client.process.send_signal(number)
    client.end()
    assert client.process.returncode == -number
    wait_until(lambda: waiting(qos) == 0, what="the end of the wait")
    assert os.listdir(store.dir) == ["file"]
    assert (store.dir / "file").read_bytes() == b"x" * BLOCK


@pytest.mark.parametrize("restart", ["interrupt", "restart"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_handlers_see_no_eintr(qos, operation, restart):
    """With SA_RESTART and without: file systems do not return EINTR, and programs do not expect it."""
    client = Waiting(qos, operation, restart)
    begin(qos, client)
    for number in (signal.SIGUSR1, signal.SIGCHLD, signal.SIGWINCH):
        client.process.send_signal(number)
    wait_until(lambda: client.signal_is_pending(signal.SIGUSR1), what="the signal")
    assert waiting(qos) == 1
    qos.rule("stop tight")
    result = str(BLOCK) if operation in ("read", "write") else "0"
    lines = client.end()
    assert sorted(lines) == [f"ended {result} 0", "handled", "handled"]
    assert client.process.returncode == 0


@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_after_a_signal_that_changed_nothing(qos, operation):
    """The kernel tells of an interrupt once: the second signal must be found."""
    client = Waiting(qos, operation)
    begin(qos, client)
    client.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: client.signal_is_pending(signal.SIGUSR1), what="the signal")
    client.process.kill()
    client.end()
    assert client.process.returncode == -signal.SIGKILL
    wait_until(lambda: waiting(qos) == 0, what="the end of the wait")


PAGES = 8
ASYNC = 50  # reads of one program that does not wait for them


def direct_reader(qos, how):
    """A program of job j, by itself or asking in the kernel's background; its direct reads wait."""
    if how == "asynchronous":
        command = [BUILD / "tests/mount/async-io", "read", qos.dir / "file", str(ASYNC)]
    else:
        command = ["dd", f"if={qos.dir / 'file'}", "of=/dev/null", "iflag=direct", f"bs={BLOCK}", "status=none"]
    return start_job("j", *command, stdout=subprocess.PIPE)


@pytest.mark.parametrize("cache", ["auto", "none"])
@pytest.mark.parametrize("how, number", [("asynchronous", signal.SIGKILL), ("asynchronous", signal.SIGTERM),
                                         ("direct", signal.SIGKILL)])
def test_a_kill_ends_direct_reads(store, mount, how, number, cache):
    """The kernel tells of no signal for what it sends in the background, and the program's exit waits for it."""
    (store.dir / "file").write_bytes(b"x" * BLOCK * PAGES)
    qos = mount(store, f"cache={cache}")
    qos.rule("start tight jobid={j}&opcode={read} bps=1 depth=1:1")
    as_job("j", "dd", f"if={qos.dir / 'file'}", "of=/dev/null", f"bs={BLOCK}", "count=1", "status=none")
    with running(direct_reader(qos, "asynchronous")) as other, running(direct_reader(qos, how)) as victim:
        try:
            wait_until(lambda: waiting(qos) == ASYNC + (ASYNC if how == "asynchronous" else 1), what="waiting")
            victim.send_signal(number)
            assert victim.wait(TIMEOUT) == -number
            wait_until(lambda: waiting(qos) == ASYNC, what="the end of the wait")
        finally:
            qos.rule("stop tight")
        assert other.communicate(timeout=60)[0].split() == [b"asked", str(ASYNC).encode()]


def ring(qos, *words):
    return start_job("j", BUILD / "tests/mount/ring-io", *words, qos.dir / "file", PAGES, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@contextlib.contextmanager
def no_tokens(store, mount, cache):
    (store.dir / "file").write_bytes(b"x" * BLOCK * PAGES)
    qos = mount(store, f"cache={cache}")
    qos.rule("start tight jobid={j}&opcode={read write} bps=1 depth=1:1")
    as_job("j", "dd", f"if={qos.dir / 'file'}", "of=/dev/null", f"bs={BLOCK}", "count=1", "status=none", "iflag=direct")
    try:
        yield qos
    finally:
        qos.rule("stop tight")


@pytest.mark.parametrize("cache", ["auto", "none"])
@pytest.mark.parametrize("who", ["alone", "thread", "workers"])
@pytest.mark.parametrize("way", ["read direct", "write direct", "read cached"])
def test_a_kill_ends_what_io_uring_was_asked_for(store, mount, way, who, cache):
    """The program's exit does not wait for it, so that nothing of the program is left to look at."""
    with no_tokens(store, mount, cache) as qos, running(ring(qos, *way.split(), who)) as victim:
        assert victim.stdout.readline() == b"asked\n"
        wait_until(lambda: waiting(qos) > (0 if "cached" in way else PAGES - 1), what="waiting")
        victim.kill()
        assert victim.wait(TIMEOUT) == -signal.SIGKILL
        wait_until(lambda: waiting(qos) == 0, what="the end of the wait")


@pytest.mark.parametrize("way", ["alone", "thread", "workers"])
def test_a_kill_ends_what_io_uring_was_asked_for_though_no_parent_looks(store, mount, way):
    """The kernel tells how a process ended when its parent has asked; until then its threads may have gone already."""
    with no_tokens(store, mount, "auto") as qos, running(ring(qos, "write", "direct", way)) as victim:
        assert victim.stdout.readline() == b"asked\n"
        wait_until(lambda: waiting(qos) == PAGES, what="waiting")
        victim.kill()
        wait_until(lambda: waiting(qos) == 0, what="the end of the wait")
        assert victim.wait(TIMEOUT) == -signal.SIGKILL


def test_what_a_program_has_asked_io_uring_for_when_it_ends_is_served(store, mount):
    """It may mean its writes. Another one, killed later, shows that the daemon has looked."""
    with no_tokens(store, mount, "auto") as qos, running(ring(qos, "write", "direct", "alone")) as writer:
        assert writer.stdout.readline() == b"asked\n"
        wait_until(lambda: waiting(qos) == PAGES, what="waiting")
        writer.stdin.close()
        assert writer.wait(TIMEOUT) == 0
        with running(ring(qos, "read", "direct", "alone")) as victim:
            assert victim.stdout.readline() == b"asked\n"
            wait_until(lambda: waiting(qos) == 2 * PAGES, what="the other's")
            victim.kill()
            wait_until(lambda: waiting(qos) <= PAGES, what="the end of the other's wait")
        assert waiting(qos) == PAGES
    wait_until(lambda: (store.dir / "file").read_bytes() == bytes(BLOCK * PAGES), what="the writes")


MANY = 3000

# As many threads that read, and when asked each has a signal that changes nothing; or processes with waiting direct reads.
HOG = """
import mmap, os, signal, sys, threading
kind, path, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
signal.signal(signal.SIGUSR1, lambda *_: None)
fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if kind == "processes" else 0))
threading.stack_size(65536)
threads = [threading.Thread(target=os.pread, args=[fd, 1, 0], daemon=True) for _ in range(count)] if kind == "threads" else []
for thread in threads: thread.start()
for _ in range(count if kind == "processes" else 0):
    if os.fork() == 0:
        os.preadv(fd, [mmap.mmap(-1, 4096)], 0)
        os._exit(0)
print("asked", flush=True)
sys.stdin.readline()
for thread in threads: signal.pthread_kill(thread.ident, signal.SIGUSR1)
print("told", flush=True)
sys.stdin.readline()
"""


def reads_of_the_watch(qos):
    watch = next(thread for thread, name in of_threads(qos.pid, "comm").items() if name == "interrupts")
    return int(of_threads(qos.pid, "io")[watch].split("syscr:")[1].split()[0])


def waiting_of(qos, job):
    return qos.job(job)["waiting"]


@contextlib.contextmanager
def hog(qos, kind, count):
    """Job hog, with all its requests waiting and watched, and job guest in debt."""
    qos.rule("start tight jobid={hog guest}&opcode={read} bps=1 depth=1:1")
    for job in ("hog", "guest"):
        as_job(job, "dd", f"if={qos.dir / 'file'}", "of=/dev/null", f"bs={BLOCK}", "count=1", "status=none")
    process = start_job("hog", sys.executable, "-c", HOG, kind, qos.dir / "file", count, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        text=True, start_new_session=True)
    try:
        assert process.stdout.readline() == "asked\n"
        wait_until(lambda: waiting_of(qos, "hog") == count, what="the hog")
        before = reads_of_the_watch(qos)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "told\n"
        wait_until(lambda: reads_of_the_watch(qos) > before + 4 * count, what="looks at all")
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)


def reads_until_a_guest_ends(qos, number, *options):
    """It waits, is told to end, and does."""
    with running(start_job("guest", "dd", f"if={qos.dir / 'file'}", "of=/dev/null", f"bs={BLOCK}", "status=none", *options)) as guest:
        wait_until(lambda: waiting_of(qos, "guest") == 1, what="the guest")
        before = reads_of_the_watch(qos)
        guest.send_signal(number)
        assert guest.wait(TIMEOUT) == -number
        reads = reads_of_the_watch(qos) - before
    wait_until(lambda: waiting_of(qos, "guest") == 0, what="the end of the wait")
    return reads


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_does_not_wait_for_looks_at_others(qos, number):
    """However many signals another job has pending: it is looked at at once, and not at all of them first."""
    with hog(qos, "threads", MANY) as process:
        wait_until(lambda: reads_until_a_guest_ends(qos, number) < MANY, timeout=60, what="a kill before looks at all others")
        assert waiting_of(qos, "hog") == MANY
        process.kill()
        wait_until(lambda: waiting_of(qos, "hog") == 0, timeout=60, what="the end of the hog")


def test_a_kill_beside_many_processes_with_direct_reads(qos):
    """Each of these is looked at, as the kernel may not tell of their signals."""
    with hog(qos, "processes", MANY // 6):
        for number in (signal.SIGKILL, signal.SIGTERM):
            reads_until_a_guest_ends(qos, number, "iflag=direct")
        with running(start_job("guest", BUILD / "tests/mount/async-io", "read", qos.dir / "file", ASYNC, stdout=subprocess.PIPE)) as guest:
            wait_until(lambda: waiting_of(qos, "guest") == ASYNC, what="the guest")
            guest.kill()
            assert guest.wait(TIMEOUT) == -signal.SIGKILL
    wait_until(lambda: waiting_of(qos, "hog") == waiting_of(qos, "guest") == 0, timeout=60, what="the end of all")


# Each of so many threads makes as many direct reads.
READERS = """
import mmap, os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
def read():
    for _ in range(int(sys.argv[3])):
        assert os.preadv(fd, [mmap.mmap(-1, 4096)], 0) == 4096
threads = [threading.Thread(target=read) for _ in range(int(sys.argv[2]))]
for thread in threads: thread.start()
"""


def test_requests_of_one_process_are_watched_together(qos):
    """However many wait one after another, the process is looked at now and then, and not for each of them."""
    threads, each = 64, 20
    qos.rule("start slow jobid={j} rate=1000")  # each waits for longer than it takes until its own look would come
    before = reads_of_the_watch(qos)
    as_job("j", sys.executable, "-c", READERS, qos.dir / "file", threads, each)
    assert 0 < reads_of_the_watch(qos) - before < threads * each


def test_forced_unmount_answers_every_kind(qos):
    clients = [Waiting(qos, operation) for operation in OPERATIONS]
    begin(qos, *clients)
    with pytest.raises(OSError) as caught:  # the connection has ended, the programs still hold the mount
        umount(qos.dir, MNT_FORCE)
    assert caught.value.errno in (errno.EBUSY, errno.EINVAL)  # the daemon may be quicker to detach it
    for client in clients:
        assert client.end()[-1] in (f"ended -1 {errno.ENOTCONN}", f"ended -1 {errno.ECONNABORTED}")
    qos.unmount()
    assert qos.exit_status == 0


def test_storm_of_kills_leaves_nothing(store, qos):
    """Killed before, in and after their waits, again and again: no request, inode lock or descriptor stays."""
    before = qos.store_descriptors()
    for number in range(4):
        clients = [Waiting(qos, operation) for operation in OPERATIONS]
        begin(qos, *clients)
        for client in clients[number:]:
            client.process.kill()
        qos.rule("stop tight")
        for client in clients[:number]:
            client.process.kill()
        for client in clients:
            client.end()
    wait_until(lambda: qos.state()["jobs"] and qos.job("j")["waiting"] == 0 == qos.job("j")["running"], what="the end")
    as_job("k", "rm", "-f", qos.dir / "new", qos.dir / "file")
    wait_until(lambda: qos.store_descriptors() == before, what="the end of all descriptors")
    assert os.listdir(store.dir) == []
