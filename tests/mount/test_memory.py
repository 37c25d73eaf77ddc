"""What the daemon holds: as much as the kernel remembers, and less when it forgets. bench/inodes is the long form."""
import ctypes
import os
import resource
import struct

import pytest

from harness import as_job, drop_caches, is_sanitized, wait_until

BYTES = 400  # that a known file may take
IS_SANITIZED = is_sanitized()
COUNT = 20_000 if IS_SANITIZED else 50_000


def walk(qos):
    """Again, should somebody else on the machine make the kernel forget meanwhile."""
    def is_known():
        as_job("walker", "find", qos.dir, "-size", "+1k")
        return qos.state()["inodes"] > COUNT
    wait_until(is_known, what="knowing all")


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_forgotten_files_are_freed(store, mount):
    for folder in range(20):
        (store.dir / str(folder)).mkdir()
        for number in range(COUNT // 20):
            os.mknod(store.dir / str(folder) / str(number))
    qos = mount(store, "attr_timeout=1000,entry_timeout=1000")
    empty, few = qos.resident(), qos.store_descriptors()
    walk(qos)
    full = qos.resident()
    assert IS_SANITIZED or (full - empty) * 1024 / COUNT < BYTES

    def is_forgotten():
        drop_caches()
        return qos.state()["inodes"] < 100 and qos.store_descriptors() <= few + 2

    for _ in range(3):
        wait_until(is_forgotten, what="forgetting")
        assert IS_SANITIZED or qos.resident() < (empty + full) / 2
        walk(qos)
    assert IS_SANITIZED or qos.resident() < 1.5 * full


def getdents(folder, size):
    """getdents64(2): the names that it tells."""
    getdents64, buffer = 217 if os.uname().machine == "x86_64" else 61, ctypes.create_string_buffer(size)
    length = ctypes.CDLL(None, use_errno=True).syscall(getdents64, folder, buffer, size)
    assert length >= 0, os.strerror(ctypes.get_errno())
    names, start = [], 0
    while start < length:
        next_start = start + struct.unpack_from("=H", buffer, start + 16)[0]
        names.append(buffer[start + 19:next_start].partition(b"\0")[0].decode())
        start = next_start
    return names


@pytest.fixture
def many_descriptors():
    """As many as this process may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_many_directories_half_read(store, mount, many_descriptors):
    """What was told of them already and not asked for is a bounded part of them; each goes on where it was."""
    opened, kept = 3000, 32 << 20  # kept: QOS_DIR_STREAMS_KEPT * QOS_DIR_STREAM_BYTES
    names = {f"{number:0200}" for number in range(400)}
    for name in names:
        os.mknod(store.dir / name)
    qos = mount(store)
    empty = qos.resident()
    folders, seen = [os.open(qos.dir, os.O_RDONLY | os.O_DIRECTORY) for _ in range(opened)], []
    try:
        for folder in folders:
            seen.append(getdents(folder, 4096))
        assert IS_SANITIZED or (qos.resident() - empty) * 1024 < kept + opened * 1500
        for folder, told in [(folders[number], seen[number]) for number in (0, opened // 2, opened - 1)]:
            while more := getdents(folder, 4096):
                told += more
            assert sorted(set(told) - {".", ".."}) == sorted(names) and len(told) == len(names) + 2
    finally:
        for folder in folders:
            os.close(folder)
