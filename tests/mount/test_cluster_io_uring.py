"""Mounts that share a store, over io_uring. All that test_coherence.py, test_cluster_locks.py and test_agree.py ask holds there
too: the long form is `QOSFS_OPTIONS=io_uring=on pytest` of them."""
import errno
import fcntl
import os
import signal

import pytest

from harness import RING_SWITCH, is_stopped, ring_switched, wait_until
from test_cluster_locks import child, wait_asleep
from test_coherence import check_each_change
from twins import attempt

pytestmark = pytest.mark.skipif(not RING_SWITCH.exists(), reason="this kernel has no FUSE over io_uring")


@pytest.fixture
def ring(cluster):
    """A cluster of two mounts with io_uring=on."""
    with ring_switched(True):
        yield cluster(options="io_uring=on")


def test_each_change_is_seen(ring):
    check_each_change(ring)


def wchan(pid):
    with open(f"/proc/{pid}/wchan") as file:
        return file.read()


@pytest.mark.parametrize("number, outcome", [(signal.SIGUSR1, str(errno.EINTR)), (signal.SIGKILL, "")])
@pytest.mark.parametrize("take", [fcntl.lockf, fcntl.flock])
def test_a_signal_that_comes_before_the_request(ring, take, number, outcome):
    """The daemon is stopped as a process asks for a lock, and gets the request only after the process's signal. The
    kernel tells nothing of that signal."""
    (ring.store.dir / "file").write_bytes(b"x")
    here, there = (mount.dir / "file" for mount in ring.mounts)
    daemon = ring.mounts[1].pid
    reader, writer = os.pipe()

    def act():
        def stop(*_):
            raise InterruptedError(errno.EINTR, "")
        signal.signal(signal.SIGUSR1, stop)
        with open(there, "r+b") as file:
            os.read(reader, 1)
            take(file, fcntl.LOCK_EX)
    with open(here, "r+b") as one:
        take(one, fcntl.LOCK_EX)
        with child(act) as (pid, ask):
            wait_until(lambda: "pipe" in wchan(pid), what="the child's read")
            os.kill(daemon, signal.SIGSTOP)
            try:
                wait_until(lambda: is_stopped(daemon), what="the daemon's stop")
                os.write(writer, b"x")
                wait_until(lambda: "pipe" not in wchan(pid), what="the child's way on")
                wait_asleep(pid)
                os.kill(pid, number)
            finally:
                os.kill(daemon, signal.SIGCONT)
            try:
                wait_until(lambda: ask() is not None, what="the waiter's end")
            finally:
                take(one, fcntl.LOCK_UN)
            assert ask() == outcome
    with open(there, "r+b") as other:  # nobody waits any more, and nothing was granted to the dead
        assert attempt(take, other, fcntl.LOCK_EX | fcntl.LOCK_NB) is None
    os.close(reader)
    os.close(writer)
