"""Where memory is short the cache of credits shrinks, and comes back: the machine's memory, or that of the daemon's cgroup."""
import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

from harness import run, running, wait_until

FILES = 500

# Maps a file and writes to its pages, more of them than may be in memory.
HOG = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    pages = mmap.mmap(file.fileno(), 0)
    while True:
        for offset in range(0, len(pages), 4096):
            pages[offset] = 1
"""


def entering(*cgroups):
    """The words that run a command in these."""
    joins = "".join(f"echo $$ >{cgroup}/cgroup.procs && " for cgroup in cgroups)
    return ["sh", "-c", f"{joins} exec \"$@\"", "sh"]


@contextlib.contextmanager
def made(parent):
    """A new cgroup there, for as long as the block."""
    path = pathlib.Path(parent, f"qosfs-test-{os.getpid()}")
    path.mkdir()
    try:
        yield path
    finally:
        wait_until(lambda: not (path / "cgroup.procs").read_text(), what="the cgroup's end")
        path.rmdir()


@pytest.fixture
def unified():
    """A cgroup of version 2 that tells of its memory's pressure."""
    for parent in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if pathlib.Path(parent, "cgroup.controllers").exists() and os.access(parent, os.W_OK):
            with made(parent) as path:
                if not (path / "memory.pressure").exists():
                    pytest.skip("this kernel has no pressure stall information")
                yield path
            return
    pytest.skip("no hierarchy of cgroups, version 2, that root may write to")


@pytest.fixture
def narrow():
    """A cgroup of 24 MiB of memory."""
    if pathlib.Path("/sys/fs/cgroup/memory/cgroup.procs").exists():
        parent, limit = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
    else:
        parent, limit = "/sys/fs/cgroup", "memory.max"
        with contextlib.suppress(OSError):
            pathlib.Path(parent, "cgroup.subtree_control").write_text("+memory")
    if not os.access(parent, os.W_OK) or not os.access("/proc/pressure/memory", os.W_OK):
        pytest.skip("no cgroups of memory that root may write to, or no pressure stall information")
    with made(parent) as path:
        if not (path / limit).exists():
            pytest.skip("cgroups do not bound memory here")
        (path / limit).write_text(str(24 << 20))
        yield path


def watched(mount):
    """The inodes of the files of pressure that the daemon has open, beside the machine's."""
    files = [path for path in pathlib.Path(f"/proc/{mount.pid}/fd").iterdir() if os.readlink(path).endswith("memory.pressure")]
    return [os.stat(path).st_ino for path in files]


def test_the_cgroup_is_watched(unified, cluster, mount):
    one = cluster(mounts=0)
    inside = mount(one.store, f"server=unix:{one.server.socket}", prefix=entering(unified))
    assert watched(inside) == [os.stat(unified / "memory.pressure").st_ino]
    inside.unmount()


def test_the_cgroup_of_a_container_is_watched(unified, cluster, mount, world):
    """There it is called /, and is found below /sys/fs/cgroup."""
    one = cluster(mounts=0)
    shared = world.folder("shared")
    run("mount", "--bind", "--make-shared", shared, shared)
    place = shared / "mount"
    place.mkdir()
    container = ["unshare", "--cgroup", "--mount", "--propagation", "unchanged",
                 "sh", "-c", "mount -t cgroup2 cgroup /sys/fs/cgroup && exec \"$@\"", "sh"]
    inside = mount(one.store, f"server=unix:{one.server.socket}", place=place, prefix=[*entering(unified), *container])
    assert watched(inside) == [os.stat(unified / "memory.pressure").st_ino]
    inside.unmount()
    run("umount", shared)


def test_the_cache_shrinks_and_comes_back(narrow, cluster, new_store):
    one = cluster(mounts=1, server_options=("--group", "1"))
    only, = one.mounts
    for number in range(FILES):
        (one.store.dir / str(number)).touch()

    def credits_():
        return only.state()["server"]["credits"]

    def look():
        for number in range(FILES):
            os.stat(only.dir / str(number))
        return credits_() >= FILES
    wait_until(look, what="credits on all files")
    file = new_store("ext4").dir / "file"
    with open(file, "wb") as made_:
        made_.truncate(96 << 20)
    with contextlib.ExitStack() as hogs:
        for _ in range(3):
            hogs.enter_context(running(subprocess.Popen([*entering(narrow), sys.executable, "-c", HOG, file])))
        wait_until(lambda: credits_() < FILES // 2, what="a smaller cache")
    wait_until(look, what="credits on all files again")
