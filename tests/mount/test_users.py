"""What one user can take of the mount is bounded, however many jobs that user claims to be.

The user forges up to a thousand JobIDs, and tries to take it all; another user works.
"""
import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys

import pytest

from harness import BUILD, EXTRA_OPTIONS, OTHER, USER, Store, as_job, is_stopped, run, running, start_job, thread_names, umount, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

JOBS = 1000
MIB = 1 << 20
REQUEST = 1536 + 8192 * ("io_uring=on" in EXTRA_OPTIONS)  # fs/daemon/mount.c, fs/transport/uring.h: what each takes that waits


def guest(qos, *command):
    return as_job("guest", *command, user=OTHER, group=OTHER, extra_groups=[], timeout=60)


@pytest.fixture
def forged_jobs(world):
    """The program, where the user can reach it."""
    return shutil.copy(BUILD / "tests/mount/forged-jobs", world.folder("forged"))


@contextlib.contextmanager
def forging(program, operation, path, count=JOBS):
    with running(start_job("12345678", program, str(count), operation, path, user=USER, group=USER, extra_groups=[],
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as hog:
        yield hog


def end(hog):
    said, _ = hog.communicate("end\n", timeout=60)
    assert hog.returncode == 0
    return said


def test_slots(store, mount, new_store, forged_jobs):
    """All that the user reads hangs in the store: two jobs' worth of it at a time."""
    below = new_store("tmpfs")
    (below.dir / "file").write_bytes(bytes(4096))
    (store.dir / "file").write_text("fine")
    inner = mount(below)
    slow = store.dir / "slow"
    slow.mkdir()
    run("mount", "--bind", inner.dir, slow)
    try:
        qos = mount(store, "cache=none,slots=16,threads=32")
        with forging(forged_jobs, "read", qos.dir / "slow/file", 400) as hog:
            assert hog.stdout.readline() == "ready\n"
            os.kill(inner.pid, signal.SIGSTOP)
            try:
                wait_until(lambda: is_stopped(inner.pid), what="the stop")
                hog.stdin.write("go\n")
                hog.stdin.flush()
                wait_until(lambda: qos.state()["slots"]["running"] == 28, what="the hanging requests")
                for _ in range(5):
                    assert guest(qos, "cat", qos.dir / "file") == "fine"
                wait_until(lambda: qos.state()["slots"]["running"] == 28, what="the end of the guest's requests")
            finally:
                os.kill(inner.pid, signal.SIGCONT)
            assert end(hog) == "0\n"
        wait_until(lambda: qos.state()["slots"]["running"] == 0, what="the end")
    finally:
        umount(slow, 2)


def test_memory(store, mount, forged_jobs):
    """All that the user reads waits: there is room for some of another user's."""
    most = MIB * 15 // 16 // REQUEST
    (store.dir / "file").write_bytes(bytes(4096))
    qos = mount(store, "cache=none,parked_mib=1")
    qos.rule(f"start tight uid={{{USER}}}&opcode={{read}} bps=1 depth=1:1 per=rule")
    qos.rule("start slow jobid={guest}&opcode={read} rate=2 depth=1:1")
    qos.expects_log("so many of its requests")
    with forging(forged_jobs, "read", qos.dir / "file") as hog:
        assert hog.stdout.readline() == "ready\n"
        hog.stdin.write("go\n")
        hog.stdin.flush()
        wait_until(lambda: qos.state()["refused"] == JOBS - 1 - most, timeout=60, what="refusals")
        assert qos.state()["parked_bytes"] == most * REQUEST
        guest(qos, "dd", f"if={qos.dir}/file", "of=/dev/null", "bs=1024", "iflag=direct")
        assert qos.job("guest")["waits"] > 0 == qos.job("guest")["refused"]
        qos.rule("stop tight")
        assert end(hog) == f"{JOBS - 1 - most}\n"
    wait_until(lambda: qos.state()["parked_bytes"] == 0, what="the end")


KNOW = """
import os, sys
known = 0
try:
    for number in range(int(sys.argv[2])):
        os.stat(f"{sys.argv[1]}-{number}")
        known += 1
except OSError as error:
    print(known, error.errno)
try:
    open(f"{sys.argv[1]}-new", "w")
except OSError as error:
    print(error.errno)
"""


def test_known_files(mount, small, store):
    """The user walks through a store that has no file handles; the kernel keeps all that was seen."""
    timeouts = "attr_timeout=1000,entry_timeout=1000"
    for number in range(300):
        (store.dir / f"his-{number}").touch()
    for number in range(5):
        (store.dir / f"other-{number}").write_text("fine")
    store.dir.chmod(0o777)
    qos = small(Store(mount(store, timeouts).dir, "qosfs"), timeouts)
    qos.expects_log("at most 225 files|too many files at once")
    said = as_job("hog", sys.executable, "-c", KNOW, qos.dir / "his", "300", user=USER, group=USER, extra_groups=[])
    known, error, *made = said.split()
    assert 225 * 15 // 16 - 5 <= int(known) <= 225 * 15 // 16 + 1 and [error, *made] == [str(errno.EMFILE)] * 2
    assert not (store.dir / "his-new").exists()
    for number in range(5):
        assert guest(qos, "cat", qos.dir / f"other-{number}") == "fine"


def test_open_files(store, small, forged_jobs):
    """The user opens as many files as possible."""
    left = 300 - 300 // 8 - 150
    (store.dir / "file").write_text("fine")
    qos = small(store)
    qos.expects_log(f"user {USER}: the jobs of this user have|job .*: it has")
    with forging(forged_jobs, "open", qos.dir / "file", 100) as hog:
        assert hog.stdout.readline().split() == [str(15 * (left - 1) // 16 + 1), str(errno.EMFILE)]
        for _ in range(5):
            assert guest(qos, "cat", qos.dir / "file") == "fine"
        end(hog)
    assert qos.log.count(f"user {USER}: the jobs of this user have") == 1 and "too many files at once" not in qos.log


REPORTS = ("job_stats", "jobs", "rules", "shares", "metrics", "state.json", "status.json", "rules.json", "jobs.json", "history")
XATTRS = ("user.qosfs.nrs_tbf_rule", "user.qosfs.nrs_policies")

# So many threads open each of the files again and again, or read the xattr, and each tells of the first time.
ASK_FOR_REPORTS = """
import os, sys, threading
def read(name):
    if name.startswith("user."):
        assert os.getxattr(sys.argv[1], name)
    else:
        with open(f"{sys.argv[1]}/.qosfs/{name}") as file: assert file.read(64)
def read_on(name):
    read(name)
    os.write(1, b".")
    while True: read(name)
for name in sys.argv[3:]:
    for _ in range(int(sys.argv[2])): threading.Thread(target=read_on, args=[name]).start()
"""


def test_reports(store, mount, forged_jobs, of_connection):
    """The user has many jobs, and asks for all reports on them at once, for ever: one thread makes them, those that
    wait take none, and what others are told is new."""
    (store.dir / "file").write_bytes(bytes(4096))
    qos = mount(store)
    qos.rule("start known jobid={guest} rate=1000")
    with forging(forged_jobs, "read", qos.dir / "file", 1000) as hog:
        assert hog.stdout.readline() == "ready\n"
        hog.stdin.write("go\n")
        assert end(hog) == "0\n"
    rates = itertools.count(1001)

    def few_read():
        rate = next(rates)
        qos.rule(f"change known rate={rate}")
        assert qos.rule_state("known")["rate"] == rate
        return thread_names(qos.pid).count("reader") < of_connection(qos, "waiting") / 4
    with running(start_job("hog", sys.executable, "-c", ASK_FOR_REPORTS, qos.dir, "50", *REPORTS, user=USER, group=USER, extra_groups=[],
                           stdout=subprocess.PIPE)) as hog:
        assert hog.stdout.read(50 * len(REPORTS)) == b"." * 50 * len(REPORTS)
        for _ in range(10):
            wait_until(few_read, what="few readers, each time")
        assert hog.poll() is None


def test_xattrs(store, mount):
    """The same by xattr, where a text of 1.2 MB is made each time: most of those that ask would have a reader for it."""
    qos = mount(store)
    for number in range(100):
        qos.rule(f"start rule{number} jobid={{{' '.join(f'job{number}.{i}' for i in range(1200))}}} rate=1")
    qos.rule("start known jobid={guest} rate=1000")
    rates = itertools.count(1001)

    def few_read():
        rate = next(rates)
        qos.rule(f"change known rate={rate}")
        assert f"\nknown jobid={{guest}} {rate}," in os.getxattr(qos.dir, XATTRS[0]).decode()
        return thread_names(qos.pid).count("reader") < 20
    with running(start_job("hog", sys.executable, "-c", ASK_FOR_REPORTS, qos.dir, "50", *XATTRS, user=USER, group=USER, extra_groups=[],
                           stdout=subprocess.PIPE)) as hog:
        assert hog.stdout.read(50 * len(XATTRS)) == b"." * 50 * len(XATTRS)
        wait_until(lambda: all(few_read() for _ in range(5)), what="few readers, so often one after the other")
        assert hog.poll() is None
