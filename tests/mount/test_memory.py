"""What the daemon holds: as much as the kernel remembers, and less when it forgets. bench/inodes is the long form."""
import os
import pathlib

import pytest

from harness import BUILD, as_job, wait_until

BYTES = 400  # that a known file may take


def resident(qos):
    """KiB"""
    with open(f"/proc/{qos.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def store_descriptors(store, qos):
    """How many files of the store the daemon holds open."""
    links = []
    for fd in pathlib.Path(f"/proc/{qos.pid}/fd").iterdir():
        try:
            links.append(os.readlink(fd))
        except FileNotFoundError:
            pass
    return sum(link.startswith(str(store.dir)) for link in links)


def drop_caches():
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")


IS_SANITIZED = b"__asan_init" in (BUILD / "mount.qosfs").read_bytes()  # memory that was freed is kept there
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
    empty, few = resident(qos), store_descriptors(store, qos)
    walk(qos)
    full = resident(qos)
    assert IS_SANITIZED or (full - empty) * 1024 / COUNT < BYTES

    def is_forgotten():
        drop_caches()
        return qos.state()["inodes"] < 100 and store_descriptors(store, qos) <= few + 2

    for _ in range(3):
        wait_until(is_forgotten, what="forgetting")
        assert IS_SANITIZED or resident(qos) < (empty + full) / 2
        walk(qos)
    assert IS_SANITIZED or resident(qos) < 1.5 * full
