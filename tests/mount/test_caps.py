"""What one job can take of the mount is bounded: threads, slots, memory. Each test tries to take it all.

A folder of the store that hangs is another mount whose daemon is stopped.
"""
import contextlib
import os
import signal
import subprocess
import sys

import pytest

from harness import as_job, run, start_job, umount, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

COUNT = 60  # of what a job lets hang, several times the threads

# Opens files of the folder, tells so, and when asked does what hangs.
HOG = """
import ctypes, os, sys, threading
operation, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
kind, flags = ("folder", os.O_RDONLY) if operation == "mkdir" else ("file", os.O_RDWR)
files = [os.open(f"{folder}/{kind}-{number}", flags) for number in range(count)]
if operation == "release": # a mapping holds the file after its close()
    maps = [libc.mmap(None, 4096, 1, 1, file, 0) for file in files]
    for file in files: os.close(file)
print("ready", flush=True)
sys.stdin.readline()
if operation == "release": # which the kernel does not wait for
    for each in maps: libc.munmap(each, 4096)
elif operation == "close":
    for file in files: threading.Thread(target=os.close, args=[file]).start()
elif operation == "mkdir": # the kernel locks each folder
    for file in files: threading.Thread(target=lambda file=file: os.mkdir("new", dir_fd=file)).start()
print("done", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def hanging(qos, operation, jobs=1):
    """As many jobs do `operation` on files of `slow`, each COUNT times at once."""
    inner = qos.inner
    hogs = [start_job(f"hog{number}", sys.executable, "-c", HOG, operation, f"{qos.dir}/slow", str(COUNT),
                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for number in range(jobs)]
    try:
        for hog in hogs:
            assert hog.stdout.readline() == "ready\n"
        os.kill(inner.pid, signal.SIGSTOP)
        for hog in hogs:
            hog.stdin.write("go\n")
            hog.stdin.flush()
            assert hog.stdout.readline() == "done\n"
        yield
    finally:
        os.kill(inner.pid, signal.SIGCONT)
        for hog in hogs:
            hog.communicate("end\n", timeout=60)
            assert hog.returncode == 0


@pytest.fixture
def stoppable(store, mount, new_store):
    """A mount, `slow` in it can be stopped: a factory."""
    slow = store.dir / "slow"

    def make(options):
        below = new_store("tmpfs")
        for number in range(COUNT):
            (below.dir / f"file-{number}").write_bytes(bytes(4096))
            (below.dir / f"folder-{number}").mkdir()
        (store.dir / "file").write_text("fine")
        inner = mount(below)
        slow.mkdir()
        run("mount", "--bind", inner.dir, slow)
        qos = mount(store, options)
        qos.inner = inner
        return qos

    yield make
    umount(slow, 2)


@pytest.mark.parametrize("operation", ["close", "release", "mkdir"])
def test_what_hangs_in_the_store_leaves_threads(stoppable, operation):
    """Closes and what holds a lock do not wait; all the more must they not take every thread that reads requests."""
    qos = stoppable("cache=always,slots=16,threads=32")
    with hanging(qos, operation):
        def is_full():
            job = qos.job("hog0")
            return job and job["running"] == 14 and job["waiting"] > COUNT - 40
        wait_until(is_full, what="the hanging requests")
        for _ in range(20):
            assert as_job("guest", "cat", qos.dir / "file", timeout=60) == "fine"
    wait_until(lambda: qos.job("hog0")["running"] == qos.job("hog0")["waiting"] == 0, what="the end")
