"""What one job can take of the mount is bounded: threads, slots, memory. Each test tries to take it all.

A folder of the store that hangs is another mount with a stopped daemon.
"""
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys

import pytest

import harness
from harness import (BUILD, EXTRA_OPTIONS, RING_SWITCH, USER, as_job, as_user, is_stopped, of_threads, ring_switched, run, running, start_job, thread_names,
                     umount, wait_until)

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

BY_RING = "io_uring=on" in EXTRA_OPTIONS
COUNT = 120  # of what a job lets hang: several times the threads, and more than memory has room for
MIB = 1 << 20

# Opens files of the folder, tells so, and when asked does what hangs.
HOG = """
import ctypes, mmap, os, sys, threading
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
elif operation == "write":
    data, refused = mmap.mmap(-1, 1 << 20), [] # begins with a page: one request each
    def write(file):
        try: assert os.pwrite(file, data, 0) == len(data)
        except OSError as error: refused.append(error.errno)
    writers = [threading.Thread(target=write, args=[file]) for file in files]
    for writer in writers: writer.start()
elif operation == "mkdir": # the kernel locks each folder
    for file in files: threading.Thread(target=lambda file=file: os.mkdir("new", dir_fd=file)).start()
print("done", flush=True)
sys.stdin.readline()
if operation == "write":
    for writer in writers: writer.join()
    print(*refused)
"""


@contextlib.contextmanager
def hanging(qos, operation, jobs=1, count=COUNT):
    """As many jobs do `operation` on files of `slow`, each `count` times at once."""
    inner = qos.inner
    hogs = [start_job(f"hog{number}", sys.executable, "-c", HOG, operation, f"{qos.dir}/slow", str(count),
                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for number in range(jobs)]
    try:
        for hog in hogs:
            assert hog.stdout.readline() == "ready\n"
        os.kill(inner.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(inner.pid), what="the stop")
        for hog in hogs:
            hog.stdin.write("go\n")
            hog.stdin.flush()
            assert hog.stdout.readline() == "done\n"
        yield
    finally:
        os.kill(inner.pid, signal.SIGCONT)
        qos.said = [hog.communicate("end\n", timeout=60)[0].split() for hog in hogs]
    assert all(hog.returncode == 0 for hog in hogs)


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
def test_what_hangs_in_the_store_leaves_threads(stoppable, of_connection, operation):
    """Closes and what holds a lock do not wait; all the more must they not take every thread that reads requests."""
    qos = stoppable("cache=always,slots=16,threads=32")
    assert as_job("guest", "cat", qos.dir / "file") == "fine"
    with hanging(qos, operation):
        def is_full():
            job = qos.job("hog0")
            return job and job["running"] == 14 and job["waiting"] > COUNT - 30
        wait_until(is_full, what="the hanging requests")
        if operation == "release": # those that wait are no more the kernel's: it has room for so many
            wait_until(lambda: of_connection(qos, "waiting") <= 14 + 8, what="the early answers")
        for _ in range(20):
            assert as_job("guest", "cat", qos.dir / "file", timeout=60) == "fine"
    wait_until(lambda: qos.job("hog0")["running"] == qos.job("hog0")["waiting"] == 0, what="the end")


def test_jobs_that_hang_leave_slots(stoppable):
    """Two jobs could fill the slots between them: what has hung for 5 s takes none from the others."""
    qos = stoppable("cache=always,slots=16,threads=32")
    with hanging(qos, "close", jobs=2):
        wait_until(lambda: [qos.job(hog)["running"] for hog in ("hog0", "hog1")] == [14, 14], what="the hanging requests")
        for _ in range(20):
            assert as_job("guest", "cat", qos.dir / "file", timeout=60) == "fine"
        assert 28 - 16 < qos.state()["slots"]["stalled"] <= 28
    wait_until(lambda: qos.state()["slots"]["running"] == 0, what="the end")
    assert qos.state()["slots"]["stalled"] == 0


def in_the_kernel(pid):
    """How many threads wait for a request there."""
    return sum(place.startswith("fuse_dev_") for place in of_threads(pid, "wchan").values())


@pytest.mark.skipif(BY_RING, reason="it counts the readers of /dev/fuse")
def test_few_readers_wait_in_the_kernel(stoppable):
    """Of the many that requests which hang take, so many wait for others when these are answered; the rest is parked, or ends."""
    qos = stoppable("cache=always,slots=64")

    def readers():
        return thread_names(qos.pid).count("reader")
    with hanging(qos, "close"):
        wait_until(lambda: readers() > 56 + 8, what="a reader for each")
        assert as_job("guest", "cat", qos.dir / "file", timeout=60) == "fine"
    wait_until(lambda: qos.job("hog0")["running"] == qos.job("hog0")["waiting"] == 0, what="the end")
    assert as_job("guest", "cat", qos.dir / "file") == "fine"
    wait_until(lambda: in_the_kernel(qos.pid) == len(os.sched_getaffinity(0)) + 2 < readers(), what="the readers to be parked")
    for _ in range(4000 * len(os.sched_getaffinity(0))): # one at a time takes three
        os.statvfs(qos.dir)
    wait_until(lambda: in_the_kernel(qos.pid) == 3, what="all but three to be parked")


@pytest.mark.skipif(BY_RING, reason="it counts the readers of /dev/fuse")
def test_readers_are_bounded(stoppable):
    """The closes of many jobs hang, more than there may be readers: no more of these than allowed, with those for what has no slot;
    and one is left for further requests."""
    qos = stoppable("cache=always,slots=127,threads=128")
    with hanging(qos, "close", jobs=8):
        wait_until(lambda: sum(qos.state()["slots"][where] for where in ("running", "passing", "held")) == 8 * COUNT, what="all closes")
        assert 127 < thread_names(qos.pid).count("reader") <= 128 + 320


@pytest.mark.skipif(BY_RING, reason="it counts the readers of /dev/fuse")
def test_two_readers_are_left(stoppable):
    """Of three, two hang in the store: the third is not the only one that waits for requests."""
    qos = stoppable("cache=always")
    with hanging(qos, "close", count=2):
        wait_until(lambda: sum("request_wait" in place for place in of_threads(qos.pid, "wchan").values()) == 2, what="two that hang")
        wait_until(lambda: in_the_kernel(qos.pid) >= 2, what="two that are left to read")


# --- closes that nobody waits for ---

FORGOTTEN = 400  # more than there are threads


def test_forgetting_takes_no_readers(store, mount, world, monkeypatch):
    """The kernel forgets removed files, and their last close hangs."""
    flag = world.folder("flag") / "hang"
    names = [f"file-{number}" for number in range(FORGOTTEN)]
    for name in ("file", *names):
        (store.dir / name).write_text("fine")
    with monkeypatch.context() as patch:
        patch.setitem(harness.SANITIZERS, "LD_PRELOAD", harness.preload("hanging-close"))
        patch.setitem(harness.SANITIZERS, "HANGING_CLOSE", str(flag))
        qos = mount(store, "cache=none,threads=3,slots=2")
    known = [os.open(qos.dir / name, os.O_PATH) for name in names]
    for name in names:
        os.unlink(store.dir / name)
    flag.touch()
    try:
        for name, fd in zip(names, known):
            os.close(fd)
            assert not (qos.dir / name).exists()
        wait_until(lambda: qos.state()["inodes"] <= 2, what="the forgetting")
        assert as_job("guest", "cat", qos.dir / "file", timeout=60) == "fine"
        assert len(os.listdir(f"/proc/{qos.pid}/fd")) > FORGOTTEN
        assert len(os.listdir(f"/proc/{qos.pid}/task")) < FORGOTTEN / 4  # readers that wait, closers
    finally:
        flag.unlink()
    wait_until(lambda: len(os.listdir(f"/proc/{qos.pid}/fd")) < 50, what="the closes")


# --- the naming of callers ---

ASKS = 400  # more than there are readers


def test_a_caller_that_cannot_be_named(stoppable):
    """Its environment is locked for ever: it is named without it after a second, and nobody waits for that."""
    qos = stoppable("cache=none,slots=16,threads=32")
    inner = qos.inner
    with running(start_job("stuck", BUILD / "tests/mount/stuck-caller", inner.dir / "file-0", qos.dir / "file", str(ASKS),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as caller:
        assert caller.stdout.read(6) == b"ready\n"
        os.kill(inner.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: is_stopped(inner.pid), what="the stop")
            caller.stdin.write(b"\n")
            caller.stdin.flush()
            for _ in range(20):
                assert as_job("guest", "cat", qos.dir / "file", user=USER, group=USER, timeout=60) == "fine"
            assert qos.job("guest")["operations"]["open"]["samples"] == 20
            assert caller.stdout.read(ASKS) == b"." * ASKS
            assert qos.job("stuck") is None and qos.job("stuck-caller.0")
        finally:
            os.kill(inner.pid, signal.SIGCONT)


# --- memory ---

REQUEST, ENTRY = 1536, 8192  # fs/daemon/mount.c, fs/transport/uring.h: what each takes that waits; over io_uring, besides


def parked(qos):
    return qos.state()["parked_bytes"]


def written(folder):
    return sum(file.stat().st_size == MIB for file in folder.iterdir() if file.name.startswith("file-"))


# Writes MIB to each of so many files at once.
WRITERS = """
import mmap, os, sys, threading
folder, count, data = sys.argv[1], int(sys.argv[2]), mmap.mmap(-1, 1 << 20)
files = [os.open(f"{folder}/file-{number}", os.O_CREAT | os.O_WRONLY) for number in range(count)]
def write(file):
    while os.pwrite(file, data, 0) != len(data): raise SystemError
writers = [threading.Thread(target=write, args=[file]) for file in files]
for writer in writers: writer.start()
"""


def test_data_that_waits_is_bounded(store, mount):
    """Half of the memory is used up: the data is written at once, and its writers wait for the answer all the same."""
    qos = mount(store, "cache=none,parked_mib=64")
    qos.rule("start tight jobid={hog}&opcode={write} bps=1 depth=1:1")
    with running(start_job("hog", sys.executable, "-c", WRITERS, qos.dir, "51")) as hog:
        wait_until(lambda: qos.job("hog") and qos.job("hog")["waiting"] == 50, what="the writers")
        wait_until(lambda: written(store.dir) == 51 - parked(qos) // MIB, what="what is not in memory")
        assert 27 <= parked(qos) // MIB <= 50 - 8
        assert qos.job("hog")["parked_bytes"] == parked(qos)
        qos.rule("stop tight")
        assert hog.wait(60) == 0
    wait_until(lambda: qos.job("hog")["running"] == 0 and parked(qos) == 0, what="the end")
    assert written(store.dir) == 51 and qos.state()["refused"] == 0


def test_a_store_that_hangs_does_not_fill_memory(stoppable):
    """At the bound writes fail: those of the job, and none that was acknowledged. The requests take the 56th MiB."""
    qos = stoppable("cache=none,slots=16,threads=32,parked_mib=64")
    qos.expects_log("job hog0: the store does not take its writes")
    with hanging(qos, "write"):
        wait_until(lambda: qos.state()["refused"] == COUNT - 14 - 55 - 8, what="refusals")
        assert parked(qos) == 55 * MIB + (55 + 8) * (REQUEST + BY_RING * ENTRY)
        as_job("guest", "dd", "if=/dev/zero", f"of={qos.dir}/new", "bs=1M", "count=20")
    wait_until(lambda: parked(qos) == 0, what="the end")
    assert qos.said == [[str(errno.ENOMEM)] * (COUNT - 14 - 55 - 8)]
    assert written(qos.inner.store.dir) == 14 + 55 + 8


# So many threads read the file once.
CROWD = """
import os, sys, threading
file, refused = os.open(sys.argv[1], os.O_RDONLY), []
def read():
    try: os.pread(file, 4096, 0)
    except OSError as error: refused.append(error.errno)
crowd = [threading.Thread(target=read) for _ in range(int(sys.argv[2]))]
for thread in crowd: thread.start()
for thread in crowd: thread.join()
print(*refused)
"""
CROWDED = 700  # more than 1 MiB has room for


@pytest.mark.parametrize("io_uring, size", [("off", REQUEST), ("on", REQUEST + ENTRY)])
def test_requests_that_wait_are_bounded(store, mount, io_uring, size):
    """And with them the entries of io_uring: beyond that they fail, and what others have to wait for does not."""
    if io_uring == "on" and not RING_SWITCH.exists():
        pytest.skip("this kernel has no FUSE over io_uring")
    (store.dir / "file").write_bytes(bytes(4096))
    most = MIB * 7 // 8 // size
    with ring_switched(io_uring == "on"):
        qos = mount(store, f"cache=none,parked_mib=1,io_uring={io_uring}")
    qos.rule("start tight jobid={hog}&opcode={read} bps=1 depth=1:1")
    qos.rule("start slow jobid={guest}&opcode={read} rate=2 depth=1:1")
    qos.expects_log("job hog: so many of its requests wait")
    as_job("hog", "dd", f"if={qos.dir}/file", "of=/dev/null", "bs=4096", "count=1")
    with running(start_job("hog", sys.executable, "-c", CROWD, qos.dir / "file", str(CROWDED), stdout=subprocess.PIPE, text=True)) as hog:
        wait_until(lambda: qos.state()["refused"] == CROWDED - most, what="refusals")
        assert parked(qos) == qos.job("hog")["parked_bytes"] == most * size
        as_job("guest", "dd", f"if={qos.dir}/file", "of=/dev/null", "bs=1024", "iflag=direct", timeout=60)
        assert qos.job("guest")["waits"] > 0 == qos.job("guest")["refused"]
        qos.rule("stop tight")
        assert hog.communicate(timeout=60)[0].split() == [str(errno.ENOMEM)] * (CROWDED - most)
    wait_until(lambda: parked(qos) == 0, what="the end")


# --- descriptors for open files ---

# Opens files, new and old, and folders until that fails; then what is refused has done nothing.
OPENER = """
import itertools, os, sys
folder, name = sys.argv[1:]
ways = [("file", os.O_RDONLY), (".", os.O_RDONLY | os.O_DIRECTORY), (name + "-{}", os.O_CREAT | os.O_RDWR)]
held = []
try:
    for path, flags in itertools.cycle(ways):
        held.append(os.open(f"{folder}/{path}".format(len(held)), flags))
except OSError as error:
    print(len(held), error.errno, flush=True)
for path, flags in (("refused", os.O_CREAT | os.O_WRONLY), ("file", os.O_TRUNC | os.O_WRONLY), (".", os.O_TMPFILE | os.O_WRONLY)):
    try: os.close(os.open(f"{folder}/{path}", flags))
    except OSError as error: print(error.errno, flush=True)
sys.stdin.readline()
"""


def most_of(left):
    """How many a job opens that has opened none (fs/store/open_file.h)."""
    return 7 * (left - 1) // 8 + 1


@pytest.mark.parametrize("user", [0, USER])
def test_open_files_are_bounded(store, small, user):
    """Jobs that open files without end leave some of the daemon's descriptors to others, also two of them."""
    def by_user(function):
        return as_user(user, user, [], function)

    def hogging(jobid):
        return running(start_job(jobid, sys.executable, "-c", OPENER, qos.dir, jobid, user=user, group=user, extra_groups=[],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def guest(*command):
        wait_until(lambda: not is_open("guest"), what="what the guest had open")
        return as_job("guest", *command, user=user, group=user, extra_groups=[])

    def is_open(jobid):
        return (by_user(lambda: qos.job(jobid)) or {"open_files": 0})["open_files"]

    (store.dir / "file").write_text("fine")
    for path in (store.dir, store.dir / "file"):
        os.chown(path, user, user)
    qos = small(store, user=user or None)
    qos.expects_log("at most 225 files|job hog.: it has")
    left = 300 - 300 // 8 - (225 if user else 150)
    with hogging("hog1") as hog:
        opened = most_of(left)
        assert hog.stdout.readline().split() == [str(opened), str(errno.EMFILE)]
        assert [hog.stdout.readline() for _ in range(3)] == [f"{errno.EMFILE}\n"] * 3
        assert (store.dir / "file").read_text() == "fine" and not (store.dir / "refused").exists()
        with hogging("hog2") as other:
            assert other.stdout.readline().split() == [str(most_of(left - opened)), str(errno.EMFILE)]
            assert guest("cat", qos.dir / "file") == "fine"
        wait_until(lambda: not is_open("hog2"), what="the end of one")
        assert "refused" not in guest("ls", qos.dir)
        guest("touch", qos.dir / "refused")
        assert is_open("hog1") == opened
        why = by_user(lambda: qos.ctl("why", "hog1"))
        assert f"4 opens failed (EMFILE), as the daemon keeps some descriptors for other jobs; it has {opened} files open." in why
    wait_until(lambda: not is_open("hog1"), what="the end")
    assert qos.log.count("job hog1: it has") == 1 and "too many files at once" not in qos.log


# --- the kernel's room for requests in the background ---

MORE = 100


def share(number):
    return number - number // 8


def test_the_background_is_bounded(world, store, mount, of_connection):
    """Reads that a job does not wait for: at the kernel's bound nobody's read-ahead would go on. An ordinary user's mount
    has less room."""
    def by_user(function):
        return as_user(USER, USER, [], function)

    def user_job(jobid, *command, **options):
        return start_job(jobid, *command, user=USER, group=USER, extra_groups=[], stdout=subprocess.PIPE, text=True, **options)

    (store.dir / "file").write_bytes(os.urandom(4 * MIB))
    os.chown(store.dir, USER, USER)
    reader = shutil.copy(BUILD / "tests/mount/async-io", world.folder("reader"))
    qos = mount(store, user=USER)
    most = share(share(of_connection(qos, "max_background")))
    by_user(lambda: qos.rule("start tight jobid={hog}&opcode={read} bps=1 depth=1:1"))
    qos.expects_log("job hog: so many of its reads and writes wait")
    with running(user_job("hog", reader, "read", qos.dir / "file", 1 + most + MORE)) as hog:
        assert hog.stdout.readline() == "asked\n"
        wait_until(lambda: by_user(qos.state)["refused"] == MORE, what="refusals")
        with running(user_job("guest", "cmp", qos.dir / "file", store.dir / "file")) as guest:
            assert guest.wait(60) == 0
        by_user(lambda: qos.rule("stop tight"))
        assert hog.communicate(timeout=60)[0].split() == [str(1 + most), *[str(errno.ENOMEM)] * MORE]


# --- the kernel's room for reading ahead ---

AHEAD = 4500

READ_AHEAD = """
import os, sys
for number in range(int(sys.argv[2])):
    file = os.open(f"{sys.argv[1]}/ahead-{number}", os.O_RDONLY)
    os.posix_fadvise(file, 0, 4096, os.POSIX_FADV_WILLNEED)
    os.close(file)
"""


def test_reading_ahead_is_bounded(store, mount):
    """What the kernel reads ahead waits for the job's tokens, but for the first, and leaves the kernel room for others."""
    for number in range(AHEAD):
        (store.dir / f"ahead-{number}").write_bytes(b"x" * 4096)
    (store.dir / "file").write_bytes(os.urandom(4 * MIB))
    qos = mount(store)
    qos.rule("start tight jobid={hog}&opcode={read} bps=1 depth=1:1")
    as_job("hog", sys.executable, "-c", READ_AHEAD, qos.dir, str(AHEAD))
    wait_until(lambda: qos.job("hog")["waiting"] == AHEAD - 1, what="the read-ahead")
    qos.wait_booked("hog", read=1)
    as_job("guest", "cmp", qos.dir / "file", store.dir / "file", timeout=60)
    qos.rule("stop tight")
    qos.wait_booked("hog", read=AHEAD)
