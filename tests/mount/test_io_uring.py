"""FUSE over io_uring, docs/design/io_uring.md. All that the other tests ask of a mount holds there too: the long form is
`QOSFS_OPTIONS=io_uring=on pytest tests/mount`."""
import contextlib
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from harness import RING_SWITCH, TIMEOUT, USER, Store, as_job, of_threads, ring_switched, run, running, start_job, thread_names, thread_states, umount, wait_until

pytestmark = [
    pytest.mark.parametrize("store", ["tmpfs"], indirect=True),
    pytest.mark.skipif(not RING_SWITCH.exists(), reason="this kernel has no FUSE over io_uring"),
]

BLOCK = 4096
MNT_FORCE, MNT_DETACH = 1, 2
CPUS = sorted(os.sched_getaffinity(0))

# So many threads read the file once, all on one CPU.
CROWD = """
import os, sys, threading
path, threads, cpu = sys.argv[1:]
os.sched_setaffinity(0, [int(cpu)])
fd = os.open(path, os.O_RDONLY)
def read():
    try:
        os.pread(fd, 4096, 0)
    except OSError as error:
        print(error.errno)
crowd = [threading.Thread(target=read) for _ in range(int(threads))]
for thread in crowd: thread.start()
for thread in crowd: thread.join()
"""

# So many threads write so much to the file once; before, 1 byte takes all tokens. With O_APPEND they do so under the kernel's
# lock of it.
WRITERS = """
import os, sys, threading
path, threads, size, flags = sys.argv[1], *map(int, sys.argv[2:])
fd = os.open(path, os.O_WRONLY | flags)
os.write(fd, b"x")
for number in range(threads):
    threading.Thread(target=os.pwrite, args=(fd, b"x" * size, number * size)).start()
"""

# Reads, looks, makes and removes on each CPU in turn.
GUEST = """
import os, sys
top, cpus = sys.argv[1], [int(cpu) for cpu in sys.argv[2:]]
for number in range(200):
    os.sched_setaffinity(0, [cpus[number % len(cpus)]])
    with open(f"{top}/guest-{number}", "wb") as file:
        file.write(b"x" * 4096)
    assert open(f"{top}/guest-{number}", "rb").read() == b"x" * 4096
    os.unlink(f"{top}/guest-{number}")
"""


@pytest.fixture
def ring(store, mount):
    """A factory of mounts with io_uring=on."""
    (store.dir / "file").write_bytes(b"x" * BLOCK)

    def make(options="", store=store):
        return mount(store, ",".join(filter(None, ["io_uring=on,cache=none", options])))
    with ring_switched(True):
        yield make


def readers(qos):
    """How many ring readers there are, by CPU."""
    names = thread_names(qos.pid)
    return {name: names.count(name) for name in names if name.startswith("ring-")}


def waiting(qos):
    return qos.rule_state("tight")["waiting"]


def crowd(qos, threads, cpu=CPUS[0], job="crowd"):
    """Starts a job; its reads park for good, all of them seen by the scheduler; `threads` readers at once."""
    qos.rule(f"start tight jobid={{{job}}}&opcode={{read}} bps=1 depth=1:1")
    as_job(job, "dd", f"if={qos.dir / 'file'}", "of=/dev/null", f"bs={BLOCK}", "count=1", "status=none")
    process = start_job(job, sys.executable, "-c", CROWD, qos.dir / "file", str(threads), str(cpu), stdout=subprocess.PIPE, text=True)
    wait_until(lambda: waiting(qos) == threads, what=f"{threads} parked requests")
    return process


def guest(qos):
    """Another job works with a file; it would wait for good for what the crowd holds."""
    as_job("guest", sys.executable, "-c", GUEST, qos.dir, *map(str, CPUS), timeout=2 * TIMEOUT)


def test_only_where_the_kernel_offers_it(store, mount):
    with ring_switched(False):
        refused = mount(store, "io_uring=on", expect_failure=True)
        assert "option io_uring=on: FUSE over io_uring is switched off in the kernel; echo Y >" in refused.log
        assert list(refused.db.parent.glob(f"{refused.db.name}*")) == []  # nothing is left
        qos = mount(store, "io_uring=auto")
        assert readers(qos) == {}
        (qos.dir / "file").write_text("classic")


def test_requests_come_by_the_ring(store, mount):
    with ring_switched(True):
        qos = mount(store, "io_uring=auto,io_uring_depth=3")
        wait_until(lambda: set(readers(qos)) >= {f"ring-{cpu}" for cpu in CPUS}, what="the readers")
        data = os.urandom(5 << 20)
        (qos.dir / "large").write_bytes(data)
        assert (store.dir / "large").read_bytes() == data
        assert (qos.dir / "large").read_bytes() == data
        os.setxattr(qos.dir / "large", "user.long", data[:60000])
        assert os.getxattr(store.dir / "large", "user.long") == data[:60000]
        run("taskset", "-c", str(CPUS[-1]), "cp", qos.dir / "large", qos.dir / "copy")
        for number in range(300):
            (qos.dir / f"{number:0200}").touch()
        assert len(os.listdir(qos.dir)) == 302
        assert max(readers(qos).values()) < 20


@pytest.mark.skipif(tuple(int(part) for part in os.uname().release.split(".")[:2]) < (6, 15), reason="an older kernel counts all that wait in an io_uring")
def test_a_wait_for_requests_is_no_wait_for_a_disk(ring):
    """Else an idle mount shows in `top` as waiting for a disk on all CPUs, and in /proc/pressure/io."""
    depth = 16
    qos = ring(f"io_uring_depth={depth}")
    for cpu in CPUS:
        wait_until(lambda cpu=cpu: run("taskset", "-c", str(cpu), "stat", qos.dir) and readers(qos)[f"ring-{cpu}"] >= depth, what="the readers")

    def waiting_for_disks():
        return next(int(line.split()[1]) for line in pathlib.Path("/proc/stat").read_text().splitlines() if line.startswith("procs_blocked"))
    wait_until(lambda: waiting_for_disks() < depth, what="fewer that wait for disks than readers at one CPU")


def test_an_ordinary_user_mounts_so_too(store, mount):
    with ring_switched(True):
        qos = mount(store, "io_uring=on", user=USER)
        run("cp", "/etc/passwd", qos.dir / "copy", user=USER, group=USER)
        assert (store.dir / "copy").read_bytes() == pathlib.Path("/etc/passwd").read_bytes()


def test_parked_requests_take_no_entries_from_others(ring):
    """Far more of them than there were entries, all on one CPU: each reaches the scheduler, although its queue was
    empty when most were made, and the other job goes on there."""
    qos = ring()
    guest(qos)
    job = crowd(qos, 400)
    guest(qos)
    assert waiting(qos) == 400
    qos.rule("stop tight")  # all at once
    assert job.communicate(timeout=30)[0] == ""
    guest(qos)


def test_a_burst_of_one_thread(ring):
    """Asynchronous reads: none of the readers runs before all are made, so that most wait in the kernel's queue."""
    qos = ring("slots=4")
    qos.rule("start tight jobid={burst}&opcode={read} rate=1 depth=1:1")
    with open(qos.dir / "file", "wb") as file:
        file.truncate(1 << 20)
    burst = start_job("burst", "fio", "--name=burst", f"--filename={qos.dir / 'file'}", "--rw=randread", "--bs=4k", "--direct=1",
                      "--ioengine=libaio", "--iodepth=200", "--iodepth_batch=200", "--size=1m", f"--cpus_allowed={CPUS[0]}",
                      "--allow_file_create=0", "--thread", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: waiting(qos) >= 199, what="the burst")
    guest(qos)
    qos.rule("stop tight")
    assert burst.wait(30) == 0


def test_more_come_back_than_readers_may_be(ring):
    """Then one reader takes the entries of many."""
    qos = ring("slots=2,threads=3")
    for _ in range(2):
        job = crowd(qos, 400)
        assert waiting(qos) == 400
        qos.rule("stop tight")
        assert job.communicate(timeout=30)[0] == ""
        assert max(readers(qos).values()) <= 3 + 320
    guest(qos)


def test_memory_of_parked_requests_is_small(ring):
    qos = ring()
    before = qos.resident()
    job = crowd(qos, 400)
    assert qos.resident() - before < 400 * 64  # entries have 1 MiB of addresses each
    job.kill()
    job.communicate(timeout=30)


def test_data_of_parked_writes_is_kept_once(ring):
    """Their entries keep none of it."""
    qos = ring()
    qos.rule("start tight jobid={writers} bps=1 depth=1:1")
    os.truncate(qos.dir / "file", 40 << 20)  # writes beyond the end would go one by one
    before = qos.resident()
    with running(start_job("writers", sys.executable, "-c", WRITERS, qos.dir / "file", "40", str(1 << 20), "0")):
        wait_until(lambda: waiting(qos) == 40, what="the writes")
        assert qos.resident() - before < 60 << 10


def test_a_kill_ends_parked_requests(ring):
    qos = ring()
    job = crowd(qos, 50)
    job.kill()
    job.communicate(timeout=TIMEOUT)
    wait_until(lambda: waiting(qos) == 0, what="the end of the wait")
    guest(qos)


def test_a_kill_ends_what_is_asked_for_after_it(ring):
    """One write waits; the others wait for the file's lock, and each is asked for when the one before was answered: with the
    signal pending, of which the kernel then tells nothing."""
    qos = ring()
    qos.rule("start tight jobid={writers} bps=1 depth=1:1")
    writers = start_job("writers", sys.executable, "-c", WRITERS, qos.dir / "file", "16", str(BLOCK), str(os.O_APPEND))

    def at_the_lock():
        return thread_states(writers.pid).count("D")
    wait_until(lambda: at_the_lock() == 15, what="the lock to be waited for")
    writers.kill()
    writers.wait(TIMEOUT)
    wait_until(lambda: waiting(qos) == 0, what="the end of the wait")


@pytest.mark.parametrize("how", ["force", "lazy", "signal"])
def test_the_end_with_parked_requests(ring, how):
    qos = ring()
    job = crowd(qos, 50)
    if how == "signal":
        qos.kill(signal.SIGTERM)
        assert qos.exit_status == 0
    else:
        with contextlib.suppress(OSError):  # by force: EBUSY, but it ends all requests
            umount(qos.dir, MNT_FORCE if how == "force" else MNT_DETACH)
        if how == "lazy":  # the mount lives until its last user has gone
            job.kill()
    job.communicate(timeout=30)
    qos.unmount()


def test_the_end_while_the_history_is_waited_for(ring):
    """The database's thread answers a process that opens it, as late as another program lets it."""
    qos = ring()
    qos.expects_log("database is locked")
    with contextlib.closing(sqlite3.connect(qos.db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        def is_held_up():
            as_job("one", "touch", qos.dir / "file")  # there is something to save
            names, places = of_threads(qos.pid, "comm"), of_threads(qos.pid, "wchan")
            return any(name == "database" and "nanosleep" in places.get(thread, "") for thread, name in names.items())
        wait_until(is_held_up, what="the database's wait")
        with running(subprocess.Popen(["cat", qos.dir / ".qosfs/history"], stdout=subprocess.PIPE)) as reader:
            wait_until(lambda: "request_wait" in pathlib.Path(f"/proc/{reader.pid}/wchan").read_text(), what="the open")
            os.kill(qos.pid, signal.SIGTERM)
            wait_until(lambda: not any(name.startswith("ring-") for name in thread_names(qos.pid)), what="the readers' end")
            other.execute("ROLLBACK")
            reader.communicate(timeout=TIMEOUT)
    qos.unmount()


def test_a_store_that_hangs_holds_up_nobody_else(ring, mount, new_store):
    """The reads of one file hang in the store, one for each of many readers of each CPU; a store that hangs is a mount
    below, in which reads of that file wait."""
    base = new_store("tmpfs")
    (base.dir / "file").write_bytes(b"x" * BLOCK)
    below = mount(base, "cache=none,slots=64")
    below.rule(f"start stuck opcode={{read}}&uid={{{USER}}} bps=1 depth=1:1 per=rule")
    qos = ring(store=Store(below.dir, "qosfs"))
    script = f"import os, sys; os.setgid({USER}); os.setuid({USER}); exec(sys.argv.pop(1))"
    as_job("first", sys.executable, "-c", script, CROWD, qos.dir / "file", "1", str(CPUS[0]))
    stuck = [start_job(f"stuck{cpu}", sys.executable, "-c", script, CROWD, qos.dir / "file", "10", str(cpu)) for cpu in CPUS]

    def held():
        return below.rule_state("stuck")["waiting"]
    wait_until(lambda: held() == 10 * len(CPUS), what="the store to hang")
    guest(qos)
    assert held() == 10 * len(CPUS)
    below.rule("stop stuck")
    for job in stuck:
        assert job.wait(30) == 0
