"""Locks between the processes of a mount: kept by the kernel."""
import errno
import fcntl
import os

import pytest

from harness import USER, as_user, wait_until
from twins import attempt


def held_elsewhere(path, take):
    """The errno with which another process fails to take it, None if it can."""
    def act():
        with open(path, "r+b") as file:
            return attempt(take, file)
    return as_user(USER, USER, [], act)


def lock_range(kind, start=0, length=0):
    return lambda file: fcntl.lockf(file, kind | fcntl.LOCK_NB, length, start)


def lock_whole(kind):
    return lambda file: fcntl.flock(file, kind | fcntl.LOCK_NB)


@pytest.fixture
def path(store, mount):
    path = mount(store).dir / "file"
    path.write_bytes(b"x" * 100)
    path.chmod(0o666)
    return path


def test_posix_locks(path):
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 20)
        assert held_elsewhere(path, lock_range(fcntl.LOCK_EX, 25, 1)) == errno.EAGAIN
        assert held_elsewhere(path, lock_range(fcntl.LOCK_SH, 29, 5)) == errno.EAGAIN
        assert held_elsewhere(path, lock_range(fcntl.LOCK_EX, 30, 5)) is None
        fcntl.lockf(file, fcntl.LOCK_SH, 10, 20)
        assert held_elsewhere(path, lock_range(fcntl.LOCK_SH, 25, 1)) is None
        assert held_elsewhere(path, lock_range(fcntl.LOCK_EX, 25, 1)) == errno.EAGAIN
        fcntl.lockf(file, fcntl.LOCK_UN, 10, 20)
        assert held_elsewhere(path, lock_range(fcntl.LOCK_EX)) is None
        fcntl.lockf(file, fcntl.LOCK_EX)
        open(path, "rb").close()  # closing any descriptor of the file drops the process's locks
        assert held_elsewhere(path, lock_range(fcntl.LOCK_EX)) is None


def test_flock(path):
    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert held_elsewhere(path, lock_whole(fcntl.LOCK_EX)) == errno.EAGAIN
        assert held_elsewhere(path, lock_whole(fcntl.LOCK_SH)) == errno.EAGAIN
        fcntl.flock(file, fcntl.LOCK_SH)
        assert held_elsewhere(path, lock_whole(fcntl.LOCK_SH)) is None
    assert held_elsewhere(path, lock_whole(fcntl.LOCK_EX)) is None


@pytest.mark.parametrize("take", [fcntl.lockf, fcntl.flock])
def test_waiting_ends_when_the_lock_is_free(path, take):
    reader, writer = os.pipe()
    with open(path, "r+b") as file:
        take(file, fcntl.LOCK_EX)
        child = os.fork()
        if child == 0:
            with open(path, "r+b") as other:
                os.write(writer, b"trying")
                take(other, fcntl.LOCK_EX)
                os._exit(0)
        assert os.read(reader, 6) == b"trying"
        wait_until(lambda: open(f"/proc/{child}/stat").read().split()[2] == "S", what="the child's sleep")
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        path.read_bytes()  # the mount goes on meanwhile
        take(file, fcntl.LOCK_UN)
    assert os.waitpid(child, 0) == (child, 0)
    os.close(reader)
    os.close(writer)
