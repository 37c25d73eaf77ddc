"""A throttled job never holds what another job waits for.

No test of that measures time: under a rule of one byte a second, a job that has moved some KiB is in debt for hours or days, and
so would be a job that waits for it. A job that ends has not waited.

The limit comes first: beyond a debt of two seconds the requests of a throttled job wait with the kernel's locks, and others wait for
as many of them as were queued before. Tests of that have a rule of some operations a second, so that this ends, and see that no
more than the rule's is let through.
"""
import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from faulty import HANG
from harness import USER, as_job, is_stopped, run, running, start_job, thread_states, wait_idle, wait_until

# Makes and removes a file of its own in the folder for ever, with 16 threads.
CHURN = """
import os, sys, threading
def churn(number):
    while True:
        name = f"{sys.argv[1]}/hog-{number}"
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        os.unlink(name)
threads = [threading.Thread(target=churn, args=(number,)) for number in range(16)]
for thread in threads: thread.start()
"""

# Looks, makes, renames and removes in the folder.
GUEST = """
import os, sys
for number in range(100):
    name = f"{sys.argv[1]}/guest-{number}"
    os.path.exists(name)
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    os.rename(name, name + "-new")
    os.listdir(sys.argv[1])
    os.unlink(name + "-new")
"""

PATIENCE = 120  # seconds, for a guest on a busy machine


ROOT = {}
SOMEBODY = {"user": USER, "group": USER, "extra_groups": []}


def as_guest(qos, *command):
    """Runs a program of a job that no rule bounds: it ends, by itself."""
    with start_job("guest", *command) as guest:
        try:
            assert guest.wait(PATIENCE) == 0
        except subprocess.TimeoutExpired:
            lift(qos)  # it cannot be killed where it waits for a lock of the kernel's
            raise


def lift(qos, name="hog"):
    with contextlib.suppress(OSError):  # it may be gone, and the mount too
        qos.rule(f"stop {name}")


@contextlib.contextmanager
def throttled(qos, hog):
    """A program that ends with the block, and so does the rule `hog`: what the kernel waits for in its place ends with that alone."""
    try:
        yield hog
    finally:
        hog.kill()
        lift(qos)
        hog.wait()


@pytest.mark.parametrize("hog", [ROOT, SOMEBODY], ids=["owner", "other"])
@pytest.mark.parametrize("options", ["", "cache=always"])
def test_a_throttled_job_blocks_nobody_in_a_shared_folder(store, mount, options, hog):
    """Its requests hold the folder's lock in the kernel: parked, each would stop the others for as long as it waits. Where
    the folder is not the hog's, the kernel asks for its ACL under that lock too."""
    qos = mount(store, options)
    qos.rule("start hog jobid={hog} bps=1")
    as_job("hog", "dd", "if=/dev/zero", f"of={qos.dir}/spent", "bs=64K", "count=1", "status=none", **hog)
    with throttled(qos, start_job("hog", sys.executable, "-c", CHURN, str(qos.dir), **hog)):
        wait_until(lambda: qos.job("hog")["waiting"] == 16, what="all before the toll")
        as_guest(qos, sys.executable, "-c", GUEST, qos.dir)


def test_debt_by_writes_blocks_nobody_in_a_shared_folder(store, mount):
    """If a process makes files when its job has just come into debt by a write, the kernel asks for the folder's
    attributes under its lock, and the process has passed no pay point."""
    qos = mount(store)
    qos.rule("start hog jobid={slow*} bps=1")
    for turn in range(4):
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(running(start_job(f"slow{turn}", "dd", "if=/dev/zero", f"of={qos.dir}/{turn}-{number}",
                                                             "bs=64K", "count=2", stderr=subprocess.DEVNULL))) for number in range(6)]

            def are_in_debt():
                """But for those that were let go, as ls was taken to wait for their files."""
                as_guest(qos, "ls", "-l", qos.dir)
                left = sum(writer.poll() is None for writer in writers)
                job = qos.job(f"slow{turn}")
                return job and job["write_bytes"] > 0 and job["waiting"] == left
            wait_until(are_in_debt, 2 * PATIENCE, what="all to be in debt")
        as_guest(qos, "touch", qos.dir / f"guest-{turn}")


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("conditions, hog", [
    ("jobid={hog}", SOMEBODY), ("opcode={create unlink}", ROOT), ("opcode={create}", ROOT)])
def test_a_job_pays_its_debt(store, mount, conditions, hog):
    """What goes at once is paid for: after the first burst the job gets what its rule allows, and no more."""
    qos = mount(store)
    qos.rule(f"start limit {conditions} rate=50")
    with running(start_job("hog", sys.executable, "-c", CHURN, str(qos.dir), **hog)):
        wait_until(lambda: qos.job("hog") and qos.job("hog")["waits"] >= 16, what="the end of the burst")
        start, before = time.monotonic(), qos.rule_state("limit")["requests"]
        wait_until(lambda: qos.rule_state("limit")["requests"] - before > 200, timeout=60)
        assert (qos.rule_state("limit")["requests"] - before) / (time.monotonic() - start) < 50 * 2


# Reads so much at once, past the page cache, that the job, under a rule of one byte a second, waits for days with all
# that follows, but for what moves no bytes and holds a lock. Then 16 threads hammer for ever.
HOG = """
import mmap, os, sys, threading
path, way, flags = sys.argv[1], compile(sys.argv[2], "way", "exec"), int(sys.argv[3])
def open_file(number):
    return os.open(path.replace("%d", str(number)), flags)
files = [open_file(number) for number in range(16)]
os.preadv(os.open(path.replace("%d", "0"), os.O_RDONLY | os.O_DIRECT), [mmap.mmap(-1, 1 << 18)], 0)
def hammer(number):
    values = {"os": os, "mmap": mmap, "path": path, "number": number, "fd": files[number]}
    while True:
        exec(way, values)
for number in range(16): threading.Thread(target=hammer, args=(number,)).start()
"""

# Does the steps, one a line.
STEPS = """
import mmap, os, sys
path = sys.argv[1]
for step in sys.argv[2].splitlines() * 3: exec(step)
"""
USE_FILE = """
fd = os.open(path, os.O_RDWR)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
os.pread(fd, 1 << 20, 0)
os.pwrite(fd, b"x" * 10000, 3)
os.fsync(fd)
os.ftruncate(fd, 1 << 20)
os.chmod(path, 0o644)
os.setxattr(path, "user.x", b"y")
mmap.mmap(fd, 1 << 20)[1 << 19]
os.stat(path)
os.close(fd)
"""
READ_DIRECTLY = """
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
os.preadv(fd, [mmap.mmap(-1, 1 << 16)], 0)
os.close(fd)
"""


def start_hog(qos, name, way, flags=os.O_RDWR, limit="bps=1"):
    qos.rule(f"start hog jobid={{hog}} {limit}")
    return throttled(qos, start_job("hog", sys.executable, "-c", HOG, qos.dir / name, way, flags))


@contextlib.contextmanager
def held_to(qos, rate, depth, threads=17):
    """The rule `hog` lets through what it says: in each window at most what its rate brings in that and two seconds more."""
    began, before = time.monotonic(), qos.rule_state("hog")["requests"]
    yield
    count = qos.rule_state("hog")["requests"] - before
    assert count <= rate * (time.monotonic() - began + 2) + depth + threads


def wait_parked(qos, count):
    wait_until(lambda: qos.job("hog") and qos.job("hog")["waiting"] >= count, PATIENCE, f"{count} requests that wait")


def is_in_debt(qos, start):
    """Whether the hog, under the rule since `start`, is to wait for hours yet."""
    return qos.rule_state("hog")["bytes"] > time.monotonic() - start + 3600


def take_steps(qos, name, steps):
    as_guest(qos, sys.executable, "-c", STEPS, qos.dir / name, steps)


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("is_shared_before", [True, False])
@pytest.mark.parametrize("way", [
    "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.pread(fd, 4096, number * 65536)",
    "os.pwrite(fd, b'x' * 64, number * 4096); os.fstat(fd)",
    "os.fsync(fd); os.fstat(fd)",
    "os.ftruncate(fd, 1 << 20); os.fstat(fd)",
    "os.posix_fallocate(fd, 0, 1 << 20); os.fstat(fd)",
    "os.lseek(fd, 0, os.SEEK_DATA); os.fstat(fd)",
    "os.lseek(fd, 0, os.SEEK_END); os.fstat(fd)",
    "import fcntl; fcntl.ioctl(fd, 0x40086602, bytes(4)); os.fstat(fd)",  # FS_IOC_SETFLAGS
    "os.chmod(path, 0o640); os.fstat(fd)"])
def test_a_throttled_job_blocks_nobody_on_a_shared_file(store, mount, way, is_shared_before):
    """The kernel holds a lock of the file, or of its pages: such requests go into debt, while another job has it open, or come to the
    bound on that."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    with contextlib.ExitStack() as stack:
        if is_shared_before:
            stack.enter_context(open(qos.dir / "file", "rb"))
        stack.enter_context(start_hog(qos, "file", way, limit="rate=200 depth=5"))
        wait_until(lambda: qos.job("hog") and qos.job("hog")["waits"] >= 16, PATIENCE, "requests that waited")
        with held_to(qos, 200, 5):
            take_steps(qos, "file", USE_FILE)


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("way", ["os.chmod(other, 0o640)", "os.truncate(other, 1 << 20)", "os.utime(other)"])
def test_a_throttled_job_that_names_a_file_blocks_nobody_that_opens_it(store, mount, way):
    """If a request waits with the lock of a file that its job has not open, it goes as another job opens the file, be
    it the only one."""
    qos = mount(store)
    for name in ("file", "hogs"):
        (store.dir / name).write_bytes(bytes(1 << 20))
    with start_hog(qos, "hogs", f"other = path.replace('hogs', 'file'); {way}"):
        wait_parked(qos, 1)
        take_steps(qos, "file", "fd = os.open(path, os.O_RDWR)\nos.pwrite(fd, b'x', 0)\nos.fsync(fd)\nos.close(fd)")


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_throttled_job_that_owes_all_it_may_slows_others_alone(store, mount):
    """It does nothing but write to a shared file, and so pays nothing, until it owes two seconds; jobs behind its lock then go on at
    its rate."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    with open(qos.dir / "file", "rb"), start_hog(qos, "file", "os.pwrite(fd, bytes(4096), 0)", limit="bps=256K"):
        wait_parked(qos, 1)
        began, before = time.monotonic(), qos.rule_state("hog")["bytes"]
        take_steps(qos, "file", "fd = os.open(path, os.O_RDWR)\nos.pwrite(fd, b'x', 0)\nos.close(fd)")
        took = time.monotonic() - began
        assert qos.rule_state("hog")["bytes"] - before <= (256 << 10) * (took + 2.1) + 17 * 4096


MOVE = """
import os, sys
while True:
    os.rename(sys.argv[1] + "/d1/x", sys.argv[1] + "/d2/y")
    os.rename(sys.argv[1] + "/d2/y", sys.argv[1] + "/d1/x")
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_throttled_job_that_owes_all_it_may_stops_no_renames(store, mount):
    """From a folder to another: for that the kernel takes a mutex that the whole mount shares, and looks up both names."""
    qos = mount(store, "attr_timeout=3600,entry_timeout=3600")
    (store.dir / "file").write_bytes(bytes(1 << 20))
    for name in ("d1", "d2", "e1", "e2"):
        (store.dir / name).mkdir()
    for path in (store.dir / "d1" / "x", store.dir / "e1" / "b"):
        path.touch()
    as_job("guest", "ls", "-l", *(qos.dir / name for name in ("d1", "d2", "e1", "e2")))
    start = time.monotonic()
    with open(qos.dir / "file", "rb"), start_hog(qos, "file", "os.pwrite(fd, b'x' * (1 << 20), 0)"):  # of four minutes
        wait_parked(qos, 1)
        with running(start_job("hog", sys.executable, "-c", MOVE, qos.dir)):
            wait_parked(qos, 2)
            as_job("guest", "mv", qos.dir / "e1" / "b", qos.dir / "e2" / "b", timeout=PATIENCE)
            assert is_in_debt(qos, start)
            assert "rename" in qos.job("hog")["operations"]


# Has the file in memory and has written to it, waits for a line, and changes more pages than its job may owe for: the last
# of them wait for days.
WRITER = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(fd, 0)
pages[::4096]
os.pwrite(fd, b"x" * 64, 0)
print("ready", flush=True)
sys.stdin.readline()
for place in range(0, len(pages), 4096): pages[place] = 1
pages.flush()
"""
LOOK = "[entry.stat() for entry in os.scandir(path)]\nos.close(os.open(path + '/new', os.O_CREAT | os.O_WRONLY))"


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_throttled_job_blocks_nobody_that_looks_at_its_file(store, mount):
    """On news of a file the kernel drops its pages, and waits for those that are written, with the directory's lock."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(20 << 20))
    command = sys.executable, "-c", WRITER, qos.dir / "file"
    with throttled(qos, start_job("hog", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as hog:
        hog.stdout.readline()
        qos.rule("start hog jobid={hog} bps=1")
        print(file=hog.stdin, flush=True)
        wait_parked(qos, 1)
        wait_idle(hog.pid, qos.pid)  # all are: what comes more than some seconds after the look would be parked then
        take_steps(qos, "", LOOK)


# Writes into a page that the kernel does not have. Waits for a line, comes into debt, and reads another page.
WRITE_ONE = """
import os, sys
os.pwrite(os.open(sys.argv[1] + "/file", os.O_RDWR), b"x" * 64, 100)
"""


@pytest.mark.parametrize("look", ["os.stat(path + '/file')", "[entry.stat() for entry in os.scandir(path)]",
                                  "os.close(os.open(path + '/file', os.O_RDONLY))"])
def test_a_look_at_a_file_waits_for_no_write(faulty, mount, look):
    """That keeps a page of it while it is in the store: for the mount's own changes, and while it makes one, the kernel drops no
    pages."""
    qos = mount(faulty, "attr_timeout=0")
    (faulty.behind / "file").write_bytes(bytes(1 << 20))
    faulty.fail("write", HANG)
    with start_job("hog", sys.executable, "-c", WRITE_ONE, qos.dir) as hog:
        try:
            wait_until(lambda: faulty.hanging(), what="a write in the store")
            os.utime(faulty.behind / "file", (1, 1))
            with start_job("guest", sys.executable, "-c", STEPS, qos.dir, look) as guest:
                assert guest.wait(PATIENCE) == 0
            assert faulty.hanging()
        finally:
            faulty.mend()
        assert hog.wait(PATIENCE) == 0


# Has the file in memory, waits for a line, and changes each page of it, so often.
MAPPER = """
import mmap, os, sys
pages = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 0)
pages[::4096]
print("ready", flush=True)
sys.stdin.readline()
for turn in range(int(sys.argv[2])):
    for place in range(0, len(pages), 4096): pages[place] = 1
    pages.flush()
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_changed_pages_of_a_throttled_job_leave_room_for_others(store, mount):
    """A mount has only so much room for pages that are changed or being written back, of whichever file."""
    qos = mount(store)
    for name, size in (("hogs", 128 << 20), ("file", 64 << 20)):
        (store.dir / name).touch()
        os.truncate(store.dir / name, size)
    command = sys.executable, "-c", MAPPER
    with running(start_job("hog", *command, qos.dir / "hogs", 1, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as hog:
        hog.stdout.readline()
        qos.rule("start hog jobid={hog} bps=512K")
        print(file=hog.stdin, flush=True)
        wait_parked(qos, 1)
        as_job("guest", *command, qos.dir / "file", "16", input="\n", timeout=PATIENCE)
        assert qos.job("hog")["waiting"] > 0  # its fsync, for what it owes


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_file_of_its_own_is_throttled_as_ever(store, mount):
    """Nobody else has it open: its writes wait, and no debt is made."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    os.utime(store.dir / "file", (1, 1))
    with start_hog(qos, "file", "os.pwrite(fd, b'x' * 64, number * 4096)"):
        wait_parked(qos, 1)
        take_steps(qos, "", "os.listdir(path)")
        assert "write" not in qos.job("hog")["operations"]


@contextlib.contextmanager
def start_hog_of_its_own_file(qos, way, limit="bps=1"):
    """Begins when it waits, and the kernel believes no name of the file any more."""
    def is_asked_for():
        as_job("looker", "stat", qos.dir / "file")
        return "lookup" in qos.job("looker")["operations"]
    with start_hog(qos, "file", way, limit=limit):
        wait_parked(qos, 1)
        wait_until(is_asked_for, what="the end of what the kernel was told of the name")
        yield


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("step", [
    "os.chmod(path, 0o640)", "os.truncate(path, 5)", "os.utime(path)", "os.setxattr(path, 'user.x', b'y')",
    "os.link(path, path + '-new')", "os.unlink(path)", "os.rename(path, path + '-new')"])
@pytest.mark.parametrize("way", [
    "os.pwrite(fd, b'x' * 64, number * 4096)", "os.fsync(fd)", "os.chmod(path, 0o600)"])
def test_a_look_up_by_name_does_not_wait_for_a_throttled_job(store, mount, way, step):
    """No job but the hog has the file open, so that its requests wait with the lock that others want as well. A look-up of the name
    boosts them, and those that come then."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    with start_hog_of_its_own_file(qos, way, "rate=4 depth=1"), held_to(qos, 4, 1):
        as_guest(qos, sys.executable, "-c", f"import os, sys; path = sys.argv[1]; {step}", qos.dir / "file")


# 1,500 threads look at the file again and again, and boost what waits there.
CROWD = """
import os, sys, threading, time
def look_on(barrier):
    os.stat(sys.argv[1])
    barrier.wait()
    while True:
        time.sleep(1)
        os.stat(sys.argv[1])
threading.stack_size(1 << 16)
barrier = threading.Barrier(1501)
for _ in range(1500): threading.Thread(target=look_on, args=[barrier]).start()
barrier.wait()
print("ready", flush=True)
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("who", [{}, {"user": USER, "group": USER, "extra_groups": []}], ids=["root", "user"])
def test_a_crowd_keeps_no_place_from_a_look_up_by_name(store, mount, who):
    """Another job's crowd at the file neither keeps the guest waiting, nor lets more of the hog go than its rule allows."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    with start_hog_of_its_own_file(qos, "os.pwrite(fd, b'x' * 64, number * 4096)", "rate=4 depth=1"), held_to(qos, 4, 1):
        with running(start_job("crowd", sys.executable, "-c", CROWD, qos.dir / "file", stdout=subprocess.PIPE, text=True, **who)) as crowd:
            assert crowd.stdout.readline() == "ready\n"
            as_job("guest", sys.executable, "-c", "import os, sys; os.chmod(sys.argv[1], 0o640)", qos.dir / "file")


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("way, step", [
    ("os.setxattr(os.path.dirname(path), 'user.x', b'y')", "os.close(os.open(path + '-new', os.O_CREAT | os.O_WRONLY))"),
    ("try: os.removexattr(os.path.dirname(path), 'user.x')\nexcept OSError: pass", "os.listdir(os.path.dirname(path))"),
    ("os.setxattr(fd, 'user.x', b'y')", "os.fsync(fd)"),
    ("os.pread(fd, 1, 0); os.lseek(fd, 0, os.SEEK_END)", "os.fsync(fd)")])
def test_a_request_for_attributes_under_a_lock_does_not_wait(store, mount, way, step):
    """The kernel asks by GETATTR, as for stat(2), in the middle of a call that has taken the lock of the folder or file."""
    qos = mount(store, "attr_timeout=0")
    (store.dir / "file").write_bytes(bytes(1 << 20))
    start = time.monotonic()
    with open(qos.dir / "file", "r+b"), start_hog(qos, "file", way):
        wait_until(lambda: qos.job("hog") and is_in_debt(qos, start), what="the hog's debt")
        for _ in range(3):
            as_guest(qos, sys.executable, "-c", f"import os, sys; path = sys.argv[1]; fd = os.open(path, os.O_RDWR); {step}",
                     qos.dir / "file")


# Removes a file; once it is told to, it comes into debt meanwhile, and says so.
REMOVER = """
import mmap, os, sys, threading
debt = os.open(sys.argv[1] + "/debt", os.O_RDONLY | os.O_DIRECT)
threading.Thread(target=os.unlink, args=(sys.argv[1] + "/folder/file",)).start()
sys.stdin.readline()
os.preadv(debt, [mmap.mmap(-1, 1 << 16)], 0)
print(flush=True)
"""


def test_a_job_that_came_into_debt_in_the_wait_for_a_folder_does_not_wait_in_it(faulty, mount):
    """Nobody has changed it, and it has no toll; the kernel asks for its attributes under its lock."""
    qos = mount(faulty, "attr_timeout=0,entry_timeout=3600")
    (faulty.behind / "debt").write_bytes(bytes(1 << 20))
    (faulty.behind / "folder").mkdir()
    (faulty.behind / "folder" / "file").touch()
    os.stat(qos.dir / "folder" / "file")
    faulty.fail("getattr", HANG, "none")

    def has_come():
        job = qos.job("hog")
        return job["waiting"] > 0 or "unlink" in job["operations"]
    with running(start_job("another", "test", "-e", qos.dir / "folder" / "none")):
        wait_until(lambda: faulty.hanging(), what="a look-up with the folder's lock")
        command = sys.executable, "-c", REMOVER, qos.dir
        with throttled(qos, start_job("hog", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as hog:
            try:
                wait_until(lambda: sorted(thread_states(hog.pid)) == ["D", "S"], PATIENCE, what="the hog to wait for the lock")
                qos.rule("start hog jobid={hog} bps=1")
                print(file=hog.stdin, flush=True)
                hog.stdout.readline()
                faulty.mend()
                wait_until(has_come, what="the hog to have the lock")
                as_guest(qos, "touch", qos.dir / "folder" / "new")
            finally:
                faulty.mend()


# Two threads write, of which one waits for the other. Once it is told to, it comes into debt meanwhile, and says so.
WRITERS = """
import mmap, os, sys, threading
fd = os.open(sys.argv[1] + "/file", os.O_WRONLY)
debt = os.open(sys.argv[1] + "/debt", os.O_RDONLY | os.O_DIRECT)
for number in range(2):
    threading.Thread(target=os.pwrite, args=(fd, b"x", number * 4096)).start()
sys.stdin.readline()
os.preadv(debt, [mmap.mmap(-1, 1 << 16)], 0)
print(flush=True)
"""


def test_a_look_up_by_name_waits_for_no_write_that_comes_later(faulty, mount):
    """The guest looks the name up while nothing waits with the file's lock, and stands behind a write that comes to wait."""
    qos = mount(faulty, "entry_timeout=0")
    for name in ("file", "debt"):
        (faulty.behind / name).write_bytes(bytes(1 << 20))
    os.utime(faulty.behind / "file", (1, 1))
    os.stat(qos.dir / "file")  # so that it is no news to the guest
    faulty.fail("write", HANG)
    command = sys.executable, "-c", WRITERS, qos.dir
    with throttled(qos, start_job("hog", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as hog:
        try:
            wait_until(lambda: sorted(thread_states(hog.pid)) == ["D", "S", "S"] and faulty.hanging(), PATIENCE, what="the writes")
            qos.rule("start hog jobid={hog} rate=1 depth=1")
            print(file=hog.stdin, flush=True)
            hog.stdout.readline()
            with start_job("guest", "chmod", "640", qos.dir / "file") as guest:
                wait_until(lambda: set(thread_states(guest.pid)) == {"D"}, PATIENCE, what="the guest to wait for the lock")
                faulty.mend()
                try:
                    assert guest.wait(PATIENCE) == 0
                finally:
                    lift(qos)
        finally:
            faulty.mend()


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_look_lets_nothing_go_beyond_the_bound(store, mount):
    """By name or in a list, as another job or as its own: the hog owes more than two seconds."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    with start_hog_of_its_own_file(qos, "os.stat(path) if number == 0 else os.pwrite(fd, b'x' * 64, number * 4096)"):
        for _ in range(1000):
            os.stat(qos.dir / "file")
            assert [entry.stat().st_size for entry in os.scandir(qos.dir) if entry.name == "file"] == [1 << 20]
        assert "write" not in qos.job("hog")["operations"]


# What it changed itself is news to it as well.
REWRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b'x' * 64, 0)
print(flush=True)
sys.stdin.readline()
os.stat(sys.argv[1])
for number in range(64):
    os.pwrite(fd, b'x' * 64, number * 4096)
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_job_that_looks_at_its_own_file_is_throttled_as_ever(store, mount):
    """The kernel does not wait for the pages that a thread writes when it has looked: no debt is made."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    command = sys.executable, "-c", REWRITER, qos.dir / "file"
    with running(start_job("hog", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as hog:
        hog.stdout.readline()
        qos.rule("start hog jobid={hog}&opcode={write} rate=20")
        print(file=hog.stdin, flush=True)
        wait_until(lambda: qos.job("hog")["wait_time"] >= 1, what="the writes to wait as long as the rule says")


# Comes into debt by reads of the file's beginning; then reads what is appended, as soon as it has seen that.
FOLLOW = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
def read_ahead():
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.pread(fd, 1 << 16, 0)
read_ahead()
size = os.fstat(fd).st_size
print(flush=True)
for line in sys.stdin:
    while (now := os.fstat(fd).st_size) == size:
        pass
    print(len(os.pread(fd, 1 << 20, size)), flush=True)
    read_ahead()
    size = now
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_throttled_job_reads_what_others_append(store, mount):
    """The kernel takes the size from an answer only where it was told nothing of the file since it asked."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 17))
    qos.rule("start slow jobid={slow} rate=20")
    command = sys.executable, "-c", FOLLOW, qos.dir / "file"
    with running(start_job("slow", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as slow:
        slow.stdout.readline()
        for length in [5000, 1, 70000, 300]:
            with open(store.dir / "file", "ab") as file:
                file.write(b"x" * length)
            print(file=slow.stdin, flush=True)
            assert int(slow.stdout.readline()) == length


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_throttled_job_blocks_nobody_at_a_symbolic_link(store, mount):
    """The kernel locks its page while it reads the link."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    (store.dir / "link").symlink_to("file")
    with start_hog(qos, "file", "os.readlink(os.path.dirname(path) + '/link')", limit="rate=20 depth=1"):
        wait_until(lambda: qos.job("hog") and qos.job("hog")["waits"] >= 16, PATIENCE, "requests that waited")
        with held_to(qos, 20, 1):
            take_steps(qos, "link", "os.stat(path)")


# Opens a file of the job's own, asks for its attributes and writes it, as each thread of a program may; so many threads, for ever.
SHARERS = """
import os, sys, threading
def write(number):
    fd = os.open(sys.argv[1], os.O_RDWR)
    os.fstat(fd)
    while True: os.pwrite(fd, bytes(4096), number * 4096)
for number in range(int(sys.argv[2])): threading.Thread(target=write, args=(number,)).start()
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("threads", [1, 16])
def test_threads_of_one_job_do_not_boost_one_another(store, mount, threads):
    """They sleep for the lock of the file that they share, and are held to their rule."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    qos.rule("start hog jobid={hog} rate=100 depth=10")
    with running(start_job("hog", sys.executable, "-c", SHARERS, qos.dir / "file", threads)):
        wait_until(lambda: qos.job("hog") and qos.job("hog")["waits"] > 0, PATIENCE, "writes that wait")
        with held_to(qos, 100, 10, threads):
            before = qos.rule_state("hog")["requests"]
            wait_until(lambda: qos.rule_state("hog")["requests"] >= before + 300, PATIENCE, "300 writes")


AHEAD = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
for page in range(256): os.posix_fadvise(file, page << 16, 4096, os.POSIX_FADV_WILLNEED)
print("asked", flush=True)
os.pread(file, 1, 255 << 16)
sys.stdin.readline()
view = mmap.mmap(file, 0, prot=mmap.PROT_READ)
for page in range(256): os.write(1, view[page << 16:][:8] if page % 2 else os.pread(file, 8, page << 16))
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("is_shared_before", [False, True])
def test_read_ahead_of_a_thread_keeps_nobody_from_a_file(store, mount, is_shared_before):
    """A thread may ask for 256 pages and wait for none. What others wait for is its last two, and it reads what is there."""
    content = os.urandom(16 << 20)
    (store.dir / "file").write_bytes(content)
    qos = mount(store)
    qos.rule("start hog jobid={hog} rate=10 depth=3")
    with contextlib.ExitStack() as opened:
        if is_shared_before:
            opened.enter_context(open(qos.dir / "file", "rb"))
        with running(start_job("hog", sys.executable, "-c", AHEAD, qos.dir / "file", stdin=subprocess.PIPE, stdout=subprocess.PIPE)) as hog:
            assert hog.stdout.readline() == b"asked\n"
            before = qos.rule_state("hog")["requests"]
            with open(qos.dir / "file", "rb", buffering=0) as file:
                for page in [200, 255, 3, 100]:
                    file.seek(page << 16)
                    assert file.read(8) == content[page << 16:][:8]
            # The debt of 2 s may have gone, and what the thread waited for, while the machine was busy.
            assert qos.rule_state("hog")["requests"] - before < 100
            assert qos.job("hog")["waiting"] < 10
            qos.rule("stop hog")
            read, _ = hog.communicate(b"\n", PATIENCE)
            assert read == b"".join(content[page << 16:][:8] for page in range(256))


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_parked_read_ahead_leaves_room_for_others(store, mount):
    """The kernel sends only so many read-ahead requests at a time, and those that wait count."""
    qos = mount(store)
    for number in range(16):
        (store.dir / f"hog-{number}").write_bytes(bytes(1 << 20))
    (store.dir / "file").write_bytes(bytes(1 << 20))
    way = "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); [os.pread(fd, 65536, 65536 * i) for i in range(16)]"
    with start_hog(qos, "hog-%d", way):
        wait_parked(qos, 16)
        take_steps(qos, "file", USE_FILE)


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_direct_reads_wait_without_a_lock(store, mount):
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(1 << 20))
    with start_hog(qos, "file", "os.preadv(fd, [mmap.mmap(-1, 4096)], 0)", os.O_RDONLY | os.O_DIRECT):
        wait_parked(qos, 16)
        take_steps(qos, "file", READ_DIRECTLY)
        take_steps(qos, "file", USE_FILE)


@pytest.fixture
def hanging(store, new_store, mount):
    """A file of the store that can be made to hang: another qosfs, with a stopped daemon."""
    lower = mount(new_store("tmpfs"))
    (lower.dir / "file").write_bytes(bytes(1 << 20))
    (store.dir / "hung").mkdir()
    run("mount", "--bind", lower.dir, store.dir / "hung")
    yield lower
    os.kill(lower.pid, signal.SIGCONT)
    run("umount", "-l", store.dir / "hung")


# Opens the file, says so, and reads it with 32 threads when it is told to.
READER = """
import mmap, os, sys, threading
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
print("open", flush=True)
sys.stdin.readline()
def read(number):
    os.preadv(fd, [mmap.mmap(-1, 4096)], 4096 * number)
for number in range(32): threading.Thread(target=read, args=(number,)).start()
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_file_that_hangs_in_the_store_takes_its_job_alone(store, hanging, mount):
    qos = mount(store, "slots=8")
    (store.dir / "file").write_bytes(bytes(1 << 20))
    hog = start_job("hog", sys.executable, "-c", READER, qos.dir / "hung" / "file", stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, text=True)
    with running(hog):
        hog.stdout.readline()
        os.kill(hanging.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: is_stopped(hanging.pid), what="the stop")
            print(file=hog.stdin, flush=True)
            wait_until(lambda: qos.job("hog")["running"] == 7, what="a job's share of the slots")
            take_steps(qos, "file", USE_FILE)
            assert qos.job("hog")["running"] == 7
        finally:
            os.kill(hanging.pid, signal.SIGCONT)
        hog.wait()
