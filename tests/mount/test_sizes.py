"""What one mount adds to a file, or cuts, another maps, sends and copies without asking for the size before. The system
calls mmap(2), sendfile(2), splice(2) and copy_file_range(2) ask the daemon for nothing. So the kernel must have been
told before the change returned."""
import ctypes
import os
import signal

import pytest

PAGE = 4096
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
PROT_READ, MAP_SHARED = 1, 1


def mapped(fd, offset):
    """The byte there in a mapping that no fstat(2) comes before (Python's own makes one); None where it is SIGBUS."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        start = offset - offset % PAGE
        place = LIBC.mmap(None, PAGE, PROT_READ, MAP_SHARED, fd, start)
        os.write(writes, ctypes.string_at(place + offset - start, 1))
        os._exit(0)
    os.close(writes)
    status = os.waitpid(child, 0)[1]
    data = os.read(reads, 1)
    os.close(reads)
    assert data or os.WTERMSIG(status) == signal.SIGBUS
    return data or None


def sent(fd, offset, target):
    assert os.sendfile(target, fd, offset, 1) == 1
    return os.pread(target, 1, os.lseek(target, 0, os.SEEK_CUR) - 1)


def spliced(fd, offset, _):
    reads, writes = os.pipe()
    assert os.splice(fd, writes, 1, offset_src=offset) == 1
    data = os.read(reads, 1)
    os.close(reads)
    os.close(writes)
    return data


def copied(fd, offset, target):
    assert os.copy_file_range(fd, target, 1, offset, 0) == 1
    return os.pread(target, 1, 0)


LOOKS = {
    "mmap": lambda fd, offset, target: mapped(fd, offset),
    "sendfile": sent,
    "splice": spliced,
    "copy_file_range": copied,
    "pread": lambda fd, offset, target: os.pread(fd, 1, offset),
    "end": lambda fd, offset, target: os.pread(fd, 1, os.lseek(fd, 0, os.SEEK_END) - 1),
}


def append(fd, size):
    path = f"/proc/self/fd/{fd}"
    with open(path, "ab", buffering=0) as file:
        file.write(b"x" * (size - os.fstat(fd).st_size))


def copy(fd, size):
    with open(f"/proc/self/fd/{fd}", "rb", buffering=0) as file:
        done = os.copy_file_range(file.fileno(), fd, PAGE, 0, size - PAGE)
    assert done == PAGE


GROWTHS = {
    "write": lambda fd, size: os.pwrite(fd, b"x" * (size - 1000), 1000),
    "append": append,
    "hole": lambda fd, size: os.pwrite(fd, b"x", size - 1),
    "truncate": os.ftruncate,
    "fallocate": lambda fd, size: os.posix_fallocate(fd, 0, size),
    "copy": copy,
}


def check(made, growth, look, sizes):
    first, second = (mount.dir for mount in made.mounts)
    mine = os.open(first / "file", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.pwrite(mine, b"x" * PAGE, 0)
    theirs = os.open(second / "file", os.O_RDWR)
    target = os.open(second / "target", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.pread(theirs, PAGE, 0)
    for size in sizes:
        GROWTHS[growth](mine, size)
        empty = growth in ("truncate", "fallocate")
        assert LOOKS[look](theirs, size - 1, target) == (b"\0" if empty else b"x"), f"{growth}, {look}, {size}"
    for fd in (mine, theirs, target):
        os.close(fd)


def sizes(count):
    """Also one byte beyond a page, of which the kernel takes what it is told of the end for the whole page."""
    return [(2 * number + 2) * PAGE + (number % 3) * 700 + number % 2 for number in range(count)]


@pytest.mark.parametrize("options", ["", "cache=none", "cache=always", "io_uring=auto"])
def test_growth_elsewhere(cluster, options):
    made = cluster(options=options)
    for growth in GROWTHS:
        for look in LOOKS:
            check(made, growth, look, sizes(6))


def test_growth_that_nobody_asks_for(cluster):
    """Several times in a row, with no call by the other mount between: only the last is looked at."""
    made = cluster()
    first, second = (mount.dir for mount in made.mounts)
    for number in range(30):
        name = f"file{number}"
        mine = os.open(first / name, os.O_RDWR | os.O_CREAT)
        os.pwrite(mine, b"x" * PAGE, 0)
        theirs = os.open(second / name, os.O_RDONLY)
        os.fstat(theirs)
        for size in sizes(5):
            os.pwrite(mine, b"x", size - 1)
        assert mapped(theirs, sizes(5)[-1] - 1) == b"x", number
        os.close(mine)
        os.close(theirs)


def test_growth_of_what_is_mapped(cluster):
    """The mapping is older than what it shows."""
    first, second = (mount.dir for mount in cluster().mounts)
    mine = os.open(first / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(mine, b"x" * PAGE, 0)
    theirs = os.open(second / "file", os.O_RDONLY)
    place = LIBC.mmap(None, 64 * PAGE, PROT_READ, MAP_SHARED, theirs, 0)
    os.close(theirs)
    for page in range(1, 64, 7):
        os.pwrite(mine, b"y" * PAGE, page * PAGE)
        child = os.fork()
        if child == 0:
            os._exit(ctypes.string_at(place + page * PAGE + 17, 1) != b"y")
        assert os.waitpid(child, 0)[1] == 0
    LIBC.munmap(place, 64 * PAGE)
    os.close(mine)


def test_what_was_cut_elsewhere(cluster):
    """SIGBUS, as on the store, and nothing of what was there."""
    first, second = (mount.dir for mount in cluster().mounts)
    mine = os.open(first / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(mine, b"x" * 16 * PAGE, 0)
    theirs = os.open(second / "file", os.O_RDONLY)
    assert os.pread(theirs, 16 * PAGE, 0) == b"x" * 16 * PAGE
    os.ftruncate(mine, 100)
    assert mapped(theirs, 8 * PAGE) is None
    assert mapped(theirs, 99) == b"x" and mapped(theirs, 100) == b"\0"
    os.pwrite(mine, b"y", 8 * PAGE)
    assert mapped(theirs, 8 * PAGE) == b"y" and mapped(theirs, 7 * PAGE) == b"\0"
    for fd in (mine, theirs):
        os.close(fd)
