"""fcntl and flock locks between processes on different mounts of a store (docs/design/filelocks.md)."""
import contextlib
import errno
import fcntl
import os
import random
import re
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time

import pytest

from harness import as_job, is_stopped, running, stopped, wait_until
from twins import attempt

LEASE = 3  # s, where it has to end
KINDS = pytest.mark.parametrize("take", [fcntl.lockf, fcntl.flock])
TRY = fcntl.LOCK_NB
MOST_RANGES = 1023
MOST_WAITS = 7168  # of one job
MOST_LINES = 20  # of the log at once
LOST_FILES = MOST_LINES + 10


def flock_struct(kind, start, length):
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, start, length, 0)


def ofd_lock(file, kind, start, length):
    """A record lock of the open file, without waiting."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, flock_struct(kind, start, length))


def ofd_test(file, kind, start, length):
    """Whether another has something in the way."""
    return struct.unpack_from("h", fcntl.fcntl(file, fcntl.F_OFD_GETLK, flock_struct(kind, start, length)))[0]


@pytest.fixture
def pair(cluster):
    """Two mounts of a store with a file, and the file on each."""
    def make(**options):
        both = cluster(**options)
        (both.store.dir / "file").write_bytes(b"x" * 100)
        return both, *(mount.dir / "file" for mount in both.mounts)
    return make


@contextlib.contextmanager
def child(function):
    """Runs it in a process; yields (pid, ask), where ask() is its result if it has ended, else None."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            outcome = attempt(function)
            os.write(writer, str(outcome).encode())
        finally:
            os._exit(0)
    os.close(writer)
    status = []

    def ask():
        if not status and os.waitpid(pid, os.WNOHANG)[0] == pid:
            status.append(os.read(reader, 100).decode())
        return status[0] if status else None
    try:
        yield pid, ask
    finally:
        if not status:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(reader)


def take_and_leave(take, path, how=fcntl.LOCK_EX):
    def act():
        with open(path, "r+b") as file:
            take(file, how)
    return act


def wait_asleep(pid):
    wait_until(lambda: open(f"/proc/{pid}/wchan").read() not in ("0", ""), what="the child's sleep")
    wait_until(lambda: open(f"/proc/{pid}/stat").read().split()[2] in "SD", what="the child's sleep")


def wait_waiting(mount, enqueues):
    """Until the mount has asked the server once more: then the asker waits."""
    wait_until(lambda: mount.state()["server"]["enqueues"] > enqueues, what="the request")


def enqueues_of(mount):
    return mount.state()["server"]["enqueues"]


@KINDS
def test_a_latecomer_is_refused(pair, take):
    _, here, there = pair()
    with open(here, "r+b") as one, open(there, "r+b") as other:
        take(one, fcntl.LOCK_EX)
        assert attempt(take, other, fcntl.LOCK_EX | TRY) == errno.EAGAIN
        assert attempt(take, other, fcntl.LOCK_SH | TRY) == errno.EAGAIN
        take(one, fcntl.LOCK_SH)
        assert attempt(take, other, fcntl.LOCK_SH | TRY) is None
        assert attempt(take, one, fcntl.LOCK_EX | TRY) == errno.EAGAIN
        take(other, fcntl.LOCK_UN)
        assert attempt(take, one, fcntl.LOCK_EX | TRY) is None
    with open(there, "r+b") as other:  # the close was an unlock, of which close(2) does not wait for flock's
        wait_until(lambda: attempt(take, other, fcntl.LOCK_EX | TRY) is None, what="the unlock")


@pytest.mark.parametrize("flags, kind", [(os.O_RDONLY, fcntl.LOCK_SH), (os.O_WRONLY, fcntl.LOCK_EX), (os.O_RDWR, fcntl.LOCK_EX)])
def test_any_close_ends_record_locks(pair, flags, kind):
    """That of a copy of the descriptor too, also where it does not concern the store, which is told of none but the last case's."""
    both, here, there = pair()
    with open(os.open(here, flags), "rb", buffering=0) as one, open(there, "r+b") as other:
        fcntl.lockf(one, kind)
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY) == errno.EAGAIN
        os.close(os.dup(one.fileno()))
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY) is None
    stats = both.mounts[0].dir / ".qosfs/job_stats"
    if flags == os.O_RDWR:
        wait_until(lambda: "flush:" in stats.read_text(), what="the flush")
    else:
        assert "flush:" not in stats.read_text()


def test_ranges(pair):
    _, here, there = pair()
    with open(here, "r+b") as one, open(there, "r+b") as other:
        fcntl.lockf(one, fcntl.LOCK_EX, 10, 20)
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY, 10, 30) is None
        assert attempt(fcntl.lockf, other, fcntl.LOCK_SH | TRY, 1, 29) == errno.EAGAIN
        fcntl.lockf(one, fcntl.LOCK_UN, 5, 20)  # the rest stays
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY, 15, 10) is None
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY, 16, 10) == errno.EAGAIN
        found = fcntl.fcntl(other, fcntl.F_GETLK, flock_struct(fcntl.F_RDLCK, 20, 10))
        assert struct.unpack_from("h", found)[0] == fcntl.F_WRLCK
        found = fcntl.fcntl(other, fcntl.F_GETLK, flock_struct(fcntl.F_RDLCK, 40, 0))
        assert struct.unpack_from("h", found)[0] == fcntl.F_UNLCK


def test_the_pid_of_the_lock_holder(pair):
    """Of another mount's none is known; by open file descriptions the kernel tells none of any."""
    _, here, there = pair()
    with open(here, "r+b") as one, open(here, "r+b") as mine, open(there, "r+b") as other:
        ofd_lock(one, fcntl.F_WRLCK, 10, 20)
        pids = [struct.unpack_from("hhqqi", fcntl.fcntl(file, command, flock_struct(fcntl.F_RDLCK, 0, 0)))[4]
                for file in (mine, other) for command in (fcntl.F_GETLK, fcntl.F_OFD_GETLK)]
        assert pids == [os.getpid(), -1, 0, -1]


def test_so_many_ranges_of_one_file(pair):
    """As many as docs/design/filelocks.md says; a refused process keeps all that it had."""
    _, here, there = pair(lease=300)
    with open(here, "r+b") as one, open(there, "r+b") as other:
        for number in range(MOST_RANGES):
            fcntl.lockf(one, fcntl.LOCK_EX, 1, 2 * number)
        assert attempt(fcntl.lockf, one, fcntl.LOCK_EX, 1, 2 * MOST_RANGES) == errno.ENOLCK
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY, 1, 2 * MOST_RANGES - 2) == errno.EAGAIN
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY, 1, 2 * MOST_RANGES) is None
        fcntl.lockf(one, fcntl.LOCK_UN)
        assert attempt(fcntl.lockf, other, fcntl.LOCK_EX | TRY) is None


@pytest.fixture
def thousands_of_threads():
    """With small stacks; and while they wait for the interpreter none wakes every 5 ms to ask for it."""
    before = sys.getswitchinterval()
    threading.stack_size(1 << 16)
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(before)
    threading.stack_size(0)


def test_so_many_of_a_job_may_wait(pair, thousands_of_threads):
    """As many as docs/design/filelocks.md says. What does not wait goes on, and so do other jobs."""
    both, here, _ = pair(lease=300)
    (both.store.dir / "other").touch()
    both.mounts[0].expects_log("refused more \\(ENOLCK\\)")
    outcomes = []
    threads = []
    with open(here, "r+b") as waiting:
        with open(here, "r+b") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            while not outcomes and len(threads) < 2 * MOST_WAITS:
                threads.append(threading.Thread(target=lambda: outcomes.append(attempt(fcntl.flock, waiting, fcntl.LOCK_EX))))
                threads[-1].start()
            wait_until(lambda: len(outcomes) >= len(threads) - MOST_WAITS, timeout=60, what="the refusals")
            assert outcomes == [errno.ENOLCK] * (len(threads) - MOST_WAITS)
            assert attempt(fcntl.flock, waiting, fcntl.LOCK_EX | TRY) == errno.EAGAIN
            as_job("guest", "flock", both.mounts[0].dir / "other", "true")
        for thread in threads:
            thread.join()
        assert outcomes.count(None) == MOST_WAITS
        fcntl.flock(waiting, fcntl.LOCK_EX)


def test_within_one_mount(pair):
    """What the kernel did by itself the mount does now."""
    _, here, _ = pair()
    with open(here, "r+b") as one:
        fcntl.lockf(one, fcntl.LOCK_EX, 10, 20)

        def act():
            with open(here, "r+b") as mine:
                found = struct.unpack("hhqqi0q", fcntl.fcntl(mine, fcntl.F_GETLK, flock_struct(fcntl.F_RDLCK, 0, 0)))
                return found[0], found[2], found[3], found[4], attempt(fcntl.lockf, mine, fcntl.LOCK_SH | TRY)
        with child(act) as (_, ask):
            assert wait_until(ask) == str((fcntl.F_WRLCK, 20, 10, os.getpid(), errno.EAGAIN))
        open(here, "rb").close()  # closing any descriptor of the file drops the process's locks
        with child(lambda: fcntl.lockf(open(here, "r+b"), fcntl.LOCK_EX | TRY)) as (_, ask):
            assert wait_until(ask) == "None"


@KINDS
@pytest.mark.parametrize("place", ["here", "there"])
@pytest.mark.parametrize("left, wanted", [(fcntl.LOCK_UN, fcntl.LOCK_EX), (fcntl.LOCK_SH, fcntl.LOCK_SH)])
def test_waiting_ends_with_the_lock(pair, take, place, left, wanted):
    both, here, there = pair()
    waiter = both.mounts[1]
    with open(here, "r+b") as one:
        take(one, fcntl.LOCK_EX)
        before = enqueues_of(waiter)
        with child(take_and_leave(take, there if place == "there" else here, wanted)) as (pid, ask):
            if place == "there":
                wait_waiting(waiter, before)
            wait_asleep(pid)
            assert ask() is None
            for mount in both.mounts:
                os.listdir(mount.dir)  # they go on meanwhile
            take(one, left)
            assert wait_until(ask, what="the lock") == "None"


def test_waiting_for_part_of_what_another_awaits(pair):
    """Of a mount's processes one waits for bytes that are not free, the other for such that are."""
    both, here, there = pair()
    with open(here, "r+b") as one:
        fcntl.lockf(one, fcntl.LOCK_EX, 2, 0)
        before = enqueues_of(both.mounts[1])
        with child(take_and_leave(lambda file, how: fcntl.lockf(file, how, 8, 0), there)):
            wait_waiting(both.mounts[1], before)
            with child(take_and_leave(lambda file, how: fcntl.lockf(file, how, 1, 4), there)) as (_, ask):
                assert wait_until(ask, what="the free bytes") == "None"
            fcntl.lockf(one, fcntl.LOCK_UN)


def test_waiting_for_what_is_taken_meanwhile(pair):
    """A process with read locks that others wait for may still lock one of them to write, and gives it up before the
    other one."""
    both, here, there = pair(lease=600)
    with open(here, "r+b") as one, contextlib.ExitStack() as stack:
        fcntl.lockf(one, fcntl.LOCK_SH, 1, 4)
        fcntl.lockf(one, fcntl.LOCK_SH, 1, 6)
        for place in (4, 6):
            before = enqueues_of(both.mounts[1])
            _, ask = stack.enter_context(child(take_and_leave(lambda file, how, at=place: fcntl.lockf(file, how, 1, at), there)))
            wait_waiting(both.mounts[1], before)
        fcntl.lockf(one, fcntl.LOCK_EX | TRY, 1, 6)
        fcntl.lockf(one, fcntl.LOCK_UN, 1, 6)
        assert wait_until(ask, what="the lock") == "None"


@KINDS
def test_locks_end_with_their_process(pair, take):
    _, here, there = pair()
    reader, writer = os.pipe()

    def hold():
        file = open(here, "r+b")
        take(file, fcntl.LOCK_EX)
        os.write(writer, b"xx")  # one for the waiter, and one that stays
        signal.pause()
    with child(hold) as (pid, _), child(lambda: os.read(reader, 1) and take_and_leave(take, there)()) as (_, ask):
        wait_until(lambda: select.select([reader], [], [], 0)[0], what="the lock")
        assert attempt(take, open(there, "r+b"), fcntl.LOCK_EX | TRY) == errno.EAGAIN
        assert ask() is None
        os.kill(pid, signal.SIGKILL)
        assert wait_until(ask, what="the killed process's lock") == "None"
    os.close(reader)
    os.close(writer)


@KINDS
def test_a_signal_ends_the_waiting(pair, take):
    both, here, there = pair()

    def act():
        def stop(*_):
            raise InterruptedError(errno.EINTR, "")
        signal.signal(signal.SIGUSR1, stop)
        with open(there, "r+b") as file:
            take(file, fcntl.LOCK_EX)
    with open(here, "r+b") as one:
        take(one, fcntl.LOCK_EX)
        for number, outcome in ((signal.SIGUSR1, str(errno.EINTR)), (signal.SIGKILL, "")):
            before = enqueues_of(both.mounts[1])
            with child(act) as (pid, ask):
                wait_waiting(both.mounts[1], before)
                os.kill(pid, number)
                wait_until(lambda: ask() is not None, what="the waiter's end")
                assert ask() == outcome
    with open(there, "r+b") as other:  # nobody waits any more, and nothing was granted to the dead
        wait_until(lambda: attempt(take, other, fcntl.LOCK_EX | TRY) is None, what="the unlock")


def test_two_want_to_write_what_both_read(pair):
    """The later one is told at once."""
    both, here, there = pair()
    with open(here, "r+b") as one, open(there, "r+b") as other:
        fcntl.lockf(one, fcntl.LOCK_SH)
        fcntl.lockf(other, fcntl.LOCK_SH)
        before = enqueues_of(both.mounts[1])

        def act():
            with open(there, "r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_SH)
                os.write(writer, b"x")
                fcntl.lockf(file, fcntl.LOCK_EX)
        reader, writer = os.pipe()
        fcntl.lockf(other, fcntl.LOCK_UN)
        with child(act) as (_, ask):
            os.read(reader, 1)
            wait_waiting(both.mounts[1], before)
            # Which of them the server hears first is open.
            outcome = attempt(fcntl.lockf, one, fcntl.LOCK_EX)
            if outcome == errno.EDEADLK:
                fcntl.lockf(one, fcntl.LOCK_UN)
            assert {str(outcome), wait_until(ask, what="the other's end")} == {"None", str(errno.EDEADLK)}
        os.close(reader)
        os.close(writer)


def test_deadlock_within_a_mount(pair):
    both, here, _ = pair()
    second = both.mounts[0].dir / "second"
    second.write_bytes(b"")
    with open(here, "r+b") as one, open(second, "r+b") as two:
        fcntl.lockf(one, fcntl.LOCK_EX)

        def act():
            with open(second, "r+b") as mine:
                fcntl.lockf(mine, fcntl.LOCK_EX)
                os.write(writer, b"x")
                with open(here, "r+b") as theirs:
                    fcntl.lockf(theirs, fcntl.LOCK_EX)
        reader, writer = os.pipe()
        with child(act) as (pid, ask):
            os.read(reader, 1)
            wait_asleep(pid)
            # It may not be in the table yet: then this waits for it, and it is told.
            outcome = attempt(fcntl.lockf, two, fcntl.LOCK_EX)
            if outcome == errno.EDEADLK:
                fcntl.lockf(one, fcntl.LOCK_UN)
                assert wait_until(ask) == "None"
            else:
                assert (outcome, wait_until(ask)) == (None, str(errno.EDEADLK))
        os.close(reader)
        os.close(writer)


@KINDS
def test_a_lone_mount_asks_once(pair, take):
    both, here, _ = pair()
    with open(here, "r+b") as one:
        take(one, fcntl.LOCK_EX)
        take(one, fcntl.LOCK_UN)
        before = both.mounts[0].state()["server"]
        for _ in range(100):
            take(one, fcntl.LOCK_EX)
            take(one, fcntl.LOCK_UN)
        after = both.mounts[0].state()["server"]
    assert [after[name] - before[name] for name in ("enqueues", "cancels")] == [0, 0]


def test_a_process_with_a_shared_lock_keeps_it(pair):
    """A process that asks for it again does not give it up meanwhile to a waiter for all of it."""
    take = fcntl.flock
    _, here, _ = pair()
    with open(here, "r+b") as one:
        take(one, fcntl.LOCK_EX)  # so that its mount may give it to the other without the server
        take(one, fcntl.LOCK_SH)
        with child(take_and_leave(take, here)) as (pid, ask):
            wait_asleep(pid)
            assert attempt(take, one, fcntl.LOCK_SH | TRY) is None
            assert ask() is None
            take(one, fcntl.LOCK_UN)
            assert wait_until(ask, what="the lock") == "None"


def test_a_killed_mount_loses_its_locks(pair):
    take = fcntl.flock
    both, here, there = pair(lease=LEASE)
    one = open(here, "r+b")
    take(one, fcntl.LOCK_EX)
    both.expects_trouble()
    with child(take_and_leave(take, there)) as (_, ask):
        both.mounts[0].kill()
        with contextlib.suppress(OSError):
            one.close()
        assert wait_until(ask, what="the dead mount's lock") == "None"


def test_locks_outlive_the_server(pair):
    take = fcntl.flock
    both, here, there = pair(lease=60)  # no restart takes so long
    both.expects_trouble()
    with open(here, "r+b") as one, open(there, "r+b") as other:
        take(one, fcntl.LOCK_EX)
        with child(take_and_leave(take, there)) as (_, ask):
            both.server.kill()
            assert ask() is None
            both.server.start()
            both.wait_up()
            assert attempt(take, other, fcntl.LOCK_EX | TRY) == errno.EAGAIN
            one.write(b"y")
            one.flush()
            assert ask() is None
            take(one, fcntl.LOCK_UN)
            assert wait_until(ask, what="the lock") == "None"


def first_stopped(both):
    """For the time of the block, in which it is to lose its lease."""
    both.expects_trouble()
    return stopped(both.mounts[0].pid)


def test_a_process_that_was_stopped_for_too_long_is_told(pair):
    """It has lost its locks, and does not write as if it had them."""
    take = fcntl.lockf
    both, here, there = pair(lease=LEASE)
    with open(here, "r+b", buffering=0) as one, open(there, "r+b") as other:
        take(one, fcntl.LOCK_EX)
        with first_stopped(both):
            take(other, fcntl.LOCK_EX)  # when the lease is over
        assert attempt(os.pwrite, one.fileno(), b"stale!", 0) == errno.EIO
        assert there.read_bytes() == b"x" * 100
        both.wait_up()
        assert attempt(os.pwrite, one.fileno(), b"stale!", 0) == errno.EIO
        take(other, fcntl.LOCK_UN)
        with open(here, "r+b", buffering=0) as anew:  # it goes on with what it opens from now on
            assert attempt(take, anew, fcntl.LOCK_EX | TRY) is None
            assert attempt(os.pwrite, anew.fileno(), b"fresh!", 0) == 6


def test_the_log_names_what_was_locked_and_lost(pair):
    """But does not fill up with it."""
    both, here, there = pair(lease=LEASE)
    names = {str(both.store.dir / f"file{number}") for number in range(LOST_FILES)}
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(here.parent / f"file{number}", "w", encoding="ascii")) for number in range(LOST_FILES)]
        for file in files:
            fcntl.flock(file, fcntl.LOCK_EX)
        with first_stopped(both), open(there.parent / "file0", encoding="ascii") as other:
            fcntl.flock(other, fcntl.LOCK_SH)

        def told():
            return re.findall(r"(\S+): the locks on it \(1\) are lost", both.mounts[0].log)
        wait_until(lambda: len(told()) >= MOST_LINES, what="the log")
        for file in files:
            wait_until(lambda file=file: attempt(os.ftruncate, file.fileno(), 0) == errno.EIO, what="the loss")
        assert len(told()) == len(set(told())) and set(told()) < names


@KINDS
def test_what_was_locked_and_lost_is_not_changed(pair, take):
    """Nor read; by no call that goes by the open file."""
    both, here, there = pair(lease=LEASE)
    (both.store.dir / "more").write_bytes(b"m" * 50)
    with open(here, "r+b", buffering=0) as one, open(here.parent / "more", "r+b", buffering=0) as more, \
            open(there, "r+b", buffering=0) as other:
        take(one, fcntl.LOCK_EX)
        with first_stopped(both):
            take(other, fcntl.LOCK_EX)
            os.pwrite(other.fileno(), b"theirs", 0)
        file, second = one.fileno(), more.fileno()
        for action in (lambda: os.pread(file, 10, 0), lambda: os.pwrite(file, b"stale!", 0), lambda: os.ftruncate(file, 10),
                       lambda: os.posix_fallocate(file, 0, 200), lambda: os.copy_file_range(second, file, 50, 0, 0),
                       lambda: os.copy_file_range(file, second, 50, 0, 0)):
            assert attempt(action) == errno.EIO
        assert (both.store.dir / "file").read_bytes() == b"theirs" + b"x" * 94
        assert (both.store.dir / "more").read_bytes() == b"m" * 50


def test_a_record_lock_is_lost_to_the_whole_process(pair):
    """By whichever of its open files it was taken; another process goes on."""
    both, here, there = pair(lease=LEASE)
    go, tell = os.pipe()

    def write_when_told():
        with open(here, "r+b", buffering=0) as mine:
            os.read(go, 1)
            return os.pwrite(mine.fileno(), b"fresh!", 0)
    with child(write_when_told) as (_, ask), open(here, "r+b", buffering=0) as one, open(here, "r+b", buffering=0) as two, \
            open(here, "r+b", buffering=0) as three, open(there, "r+b") as other:
        fcntl.lockf(one, fcntl.LOCK_EX, 10, 0)
        fcntl.lockf(two, fcntl.LOCK_EX, 10, 10)
        with first_stopped(both):
            fcntl.lockf(other, fcntl.LOCK_EX)
        assert [attempt(os.pwrite, file.fileno(), b"stale!", 0) for file in (three, one, two)] == [errno.EIO] * 3
        os.write(tell, b"x")
        assert wait_until(ask, what="the other process's write") == "6"
    os.close(go)
    os.close(tell)


# On standard input: that it may begin.
CHANGE = """
import sqlite3, sys
sys.stdin.readline()
with sqlite3.connect(sys.argv[1], timeout=60) as connection:
    connection.executemany("insert into t values (?, ?)", [(number, "y" * 100) for number in range(200, 300)])
"""


def test_a_database_that_lost_its_locks_is_whole(cluster):
    """SQLite locks for all connections of a process by the open file of one of them."""
    both = cluster(lease=LEASE)
    first, second = both.mounts
    path = first.dir / "database"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table t (number integer primary key, text)")
        connection.executemany("insert into t values (?, ?)", [(number, "x" * 100) for number in range(200)])
    change = subprocess.Popen([sys.executable, "-c", CHANGE, second.dir / "database"], stdin=subprocess.PIPE, text=True)
    one, two = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))
    with running(change), contextlib.closing(one), contextlib.closing(two):
        for connection in one, two:
            connection.execute("begin")
            assert connection.execute("select count(*) from t").fetchone() == (200,)
        with first_stopped(both):
            change.communicate("begin\n")  # it can when the lease is over
            assert change.returncode == 0
        both.wait_up()
        with pytest.raises(sqlite3.OperationalError):
            two.execute("insert into t values (1000, 'stale')")
            two.execute("commit")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        assert connection.execute("select count(*) from t").fetchone() == (300,)


# --- circles ---

def server_metric(some, name):
    return int(re.search(rf"^qosfs_server_{name} (\d+)$", some.server.ctl("metrics"), re.MULTILINE)[1])


def wait_told(some, count):
    """Until the server knows of so many waiters that have locks."""
    wait_until(lambda: server_metric(some, "lock_waits") == count, what=f"the server's notice of {count} waits")


@contextlib.contextmanager
def locker(has, wants):
    """A process that locks files, then waits for another's lock when told to; yields (begin, ask)."""
    ready, is_ready = os.pipe()
    told, tell = os.pipe()

    def act():
        files = [open(path, "r+b") for path in (*has, wants)]
        for file in files[:-1]:
            fcntl.lockf(file, fcntl.LOCK_EX | TRY)
        os.write(is_ready, b"x")
        os.read(told, 1)
        fcntl.lockf(files[-1], fcntl.LOCK_EX)
    try:
        with child(act) as (_, ask):
            assert os.read(ready, 1) == b"x"
            yield lambda: os.write(tell, b"x"), ask
    finally:
        for fd in (ready, is_ready, told, tell):
            os.close(fd)


@pytest.fixture
def many(cluster):
    """Some mounts of a store with some files, and a function that names file n on mount m."""
    def make(**options):
        some = cluster(**options)
        for number in range(6):
            (some.store.dir / f"file{number}").write_bytes(b"")
        return some, lambda mount, number: some.mounts[mount].dir / f"file{number}"
    return make


@pytest.mark.parametrize("mounts", [2, 4])
def test_a_circle_over_mounts(many, mounts):
    """The process that closes it is told at once, and the others go on when that one has given up."""
    some, path = many(mounts=mounts)
    with contextlib.ExitStack() as stack:
        lockers = [stack.enter_context(locker([path(n, n)], path(n, (n + 1) % mounts))) for n in range(mounts)]
        for number, (begin, _) in enumerate(lockers[:-1]):
            begin()
            wait_told(some, number + 1)
        assert not any(ask() for _, ask in lockers)
        begin, ask = lockers[-1]
        begin()
        assert wait_until(ask, what="the deadlock") == str(errno.EDEADLK)
        for _, ask in lockers[:-1]:
            assert wait_until(ask, what="the lock") == "None"
    assert server_metric(some, "deadlocks_total") == 1
    wait_told(some, 0)


def test_a_circle_partly_within_a_mount(many):
    """The third waits for the second within their mount, and the second waits for the first beyond it."""
    some, path = many()
    with locker([path(0, 0)], path(0, 1)) as (first, ask_first), locker([path(1, 2)], path(1, 0)) as (second, ask_second), \
            locker([path(1, 1)], path(1, 2)) as (third, ask_third):
        third()
        wait_told(some, 1)
        second()
        wait_told(some, 2)
        first()
        assert wait_until(ask_first, what="the deadlock") == str(errno.EDEADLK)
        assert wait_until(ask_second, what="the first's lock") == "None"
        assert wait_until(ask_third, what="the second's lock") == "None"


def test_a_circle_of_mounts_is_none_of_processes(many):
    """Each mount waits for the other, but no process waits for itself."""
    some, path = many()
    with locker([path(0, 0)], path(0, 1)) as (first, ask_first), locker([path(1, 1)], path(1, 5)) as (holder, ask_holder), \
            locker([path(1, 2)], path(1, 0)) as (second, ask_second):
        first()
        second()
        wait_told(some, 2)
        assert server_metric(some, "deadlocks_total") == 0
        assert not ask_first() and not ask_second()
        holder()
        assert [wait_until(ask, what="the locks") for ask in (ask_holder, ask_first, ask_second)] == ["None"] * 3
    assert server_metric(some, "deadlocks_total") == 0


def test_mounts_that_read_for_one_another_are_no_circle(pair):
    """On each mount one process waits to write what it reads, which a process on the other mount reads that does not wait."""
    both, here, there = pair()

    def want_to_write(path, place):
        with open(path, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_SH, 1, place)
            fcntl.lockf(file, fcntl.LOCK_EX, 1, place)
    with open(here, "r+b") as one, open(there, "r+b") as other:
        fcntl.lockf(one, fcntl.LOCK_SH, 1, 10)
        fcntl.lockf(other, fcntl.LOCK_SH, 1, 0)
        with child(lambda: want_to_write(here, 0)) as (_, ask_first), child(lambda: want_to_write(there, 10)) as (_, ask_second):
            wait_told(both, 2)
            assert server_metric(both, "deadlocks_total") == 0
            assert not ask_first() and not ask_second()
            fcntl.lockf(one, fcntl.LOCK_UN)
            fcntl.lockf(other, fcntl.LOCK_UN)
            assert [wait_until(ask, what="the lock") for ask in (ask_first, ask_second)] == ["None"] * 2


def test_a_restarted_server_knows_the_waiters(many):
    some, path = many(lease=60)
    some.expects_trouble()
    with locker([path(0, 0)], path(0, 1)) as (first, ask_first), locker([path(1, 1)], path(1, 0)) as (second, ask_second):
        first()
        wait_told(some, 1)
        some.server.kill()
        some.server.start()
        wait_told(some, 1)
        second()
        assert wait_until(ask_second, what="the deadlock") == str(errno.EDEADLK)
        assert wait_until(ask_first, what="the lock") == "None"


# --- against the kernel ---

def random_moves(seed, files, steps):
    """Locks and unlocks of random files; their outcomes. OFD locks and flock: each open file is an owner."""
    chance = random.Random(seed)
    outcomes = []
    for _ in range(steps):
        file = chance.choice(files)
        if chance.random() < 0.2:
            outcomes.append(attempt(fcntl.flock, file, chance.choice([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN]) | TRY))
            continue
        kind = chance.choice([fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK, fcntl.F_UNLCK])
        start, length = chance.randrange(20), chance.choice([0, 1, 2, 5, 10])
        if kind != fcntl.F_UNLCK and chance.random() < 0.2:
            outcomes.append(("test", attempt(ofd_test, file, kind, start, length) != fcntl.F_UNLCK))
        else:
            outcomes.append(attempt(ofd_lock, file, kind, start, length))
    return outcomes


def play(seed, paths, steps):
    with contextlib.ExitStack() as stack:
        return random_moves(seed, [stack.enter_context(open(path, "r+b")) for path in paths], steps)


@pytest.mark.parametrize("mounts", [1, 3])
def test_as_the_kernel_does(cluster, mounts):
    """Random locks of open files on several mounts end as those of as many on the store do."""
    some = cluster(mounts=mounts)
    for name in ("here", "twin"):
        (some.store.dir / name).write_bytes(b"")
    seconds = float(os.environ.get("QOSFS_COHERENCE_SECONDS", 0))
    end = time.monotonic() + seconds
    seed = int(os.environ.get("QOSFS_SEED", 1))
    while True:
        print(f"QOSFS_SEED={seed}")
        expected = play(seed, [some.store.dir / "twin"] * 6, 400)
        assert play(seed, [some.mounts[i % mounts].dir / "here" for i in range(6)], 400) == expected
        assert {None, errno.EAGAIN, ("test", True), ("test", False)} == set(expected)
        if time.monotonic() >= end:
            break
        seed += 1


def closes_while_stopped(mount, path, flags):
    """Whether close(2) waits for the daemon."""
    def act():
        fd = os.open(path, flags)
        os.kill(mount.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(mount.pid), what="the daemon's stop")
        os.close(fd)
    with child(act) as (pid, ask):
        try:
            wait_until(lambda: is_stopped(mount.pid), what="the daemon's stop")
            wait_until(lambda: ask() is not None or "request_wait" in open(f"/proc/{pid}/wchan").read(), what="the close")
            return ask() is not None
        finally:
            os.kill(mount.pid, signal.SIGCONT)


@KINDS
def test_local_locks_hold_within_one_mount(pair, take):
    both, here, there = pair(options="locks=local")
    before = [enqueues_of(mount) for mount in both.mounts]
    with open(here, "r+b") as one, open(there, "r+b") as other:
        take(one, fcntl.LOCK_EX)
        assert attempt(take, other, fcntl.LOCK_EX | TRY) is None
        with child(lambda: take(open(here, "r+b"), fcntl.LOCK_EX | TRY)) as (_, ask):
            assert wait_until(ask) == str(errno.EAGAIN)
        after = [enqueues_of(mount) for mount in both.mounts]
    assert max(now - then for now, then in zip(after, before)) <= 2  # of the file and its folder, if any
    with child(lambda: take(open(here, "r+b"), fcntl.LOCK_EX | TRY)) as (_, ask):
        assert wait_until(ask) == "None"


@pytest.mark.parametrize("locks, waits", [("cluster", True), ("local", False)])
def test_local_locks_need_no_word_of_a_close(cluster, locks, waits):
    one = cluster(mounts=1, options=f"locks={locks}")
    mount, = one.mounts
    (mount.dir / "file").touch()
    assert closes_while_stopped(mount, mount.dir / "file", os.O_WRONLY) is not waits
