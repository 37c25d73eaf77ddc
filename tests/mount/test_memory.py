"""What the daemon holds: as much as the kernel remembers, and less when it forgets. bench/inodes is the long form."""
import os

import pytest

from harness import BUILD, as_job, drop_caches, wait_until

BYTES = 400  # that a known file may take


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
