"""At a pay point a job in debt waits before it takes a lock (fs/isolate/pay_point.h)."""
import contextlib
import subprocess
import sys

import pytest

from faulty import HANG
from harness import BUILD, as_job, running, start_job, thread_states, wait_until

LOAD = BUILD / "bench/bench-load"
RATE, DEPTH, WORKERS = 100, 8, 16


@pytest.mark.skipif(not LOAD.exists(), reason="a build without it")
@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("way", ["cached", "io_uring"])
def test_a_job_that_only_renames_does_not_use_the_whole_debt(store, mount, way):
    """Else each of its renames would wait with the folder's lock. A worker of io_uring pays, too, although nobody can
    read its system call."""
    qos = mount(store)
    with running(start_job("hog", LOAD, way, "rename", WORKERS, "threads", "shared", "none", 4096, 0, qos.dir, 100000,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as hog:
        assert hog.stdout.readline() == "ready\n"
        qos.rule(f"start hog jobid={{hog}} rate={RATE} depth={DEPTH}")
        start, excess = qos.state()["now"], []
        print(file=hog.stdin, flush=True)

        def has_worked():
            state = qos.state()
            requests = next(rule["requests"] for rule in state["rules"] if rule["name"] == "hog")
            excess.append(requests - RATE * (state["now"] - start))
            return requests >= 4 * RATE
        wait_until(has_worked, what="some renames")
        qos.rule("stop hog")
    # The debt may be of 2 s. The program opens its files, and each worker has two renames under way by then.
    assert max(excess) < RATE


LOOKER = """
import os, sys, threading
def make(number):
    while True:
        os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"f{number}")
os.chdir(sys.argv[1])
sys.stdin.readline()
for number in range(2): threading.Thread(target=make, args=(number,), daemon=True).start()
for number in range(int(sys.argv[2])): os.stat(".")
os._exit(0)
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_stat_of_a_pay_point_is_charged(store, mount):
    """The job asks for it, and no other job."""
    qos = mount(store, "attr_timeout=0")
    looks = 100
    (store.dir / "folder").mkdir()
    with running(start_job("hog", sys.executable, "-c", LOOKER, qos.dir / "folder", looks, stdin=subprocess.PIPE, text=True)) as hog:
        qos.rule(f"start hog jobid={{hog}} rate={RATE} depth=3")
        print(file=hog.stdin, flush=True)
        assert hog.wait(60) == 0
    wait_until(lambda: qos.job("hog")["waiting"] == 0, what="the last of the requests")
    done = {name: values["samples"] for name, values in qos.job("hog")["operations"].items()}
    names = sum(done.get(name, 0) for name in ("create", "unlink", "close"))
    assert names > 0
    assert qos.rule_state("hog")["requests"] >= 0.97 * (names + looks)


MAKER = """
import os, sys, threading
def make(number):
    while True:
        os.close(os.open(f"{sys.argv[1]}/f{number}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"{sys.argv[1]}/f{number}")
for number in range(4): threading.Thread(target=make, args=(number,)).start()
"""
LOOKS = "import os, sys\nfor _ in range(int(sys.argv[2])): os.stat(sys.argv[1])"


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_another_jobs_stat_costs_it_nothing(store, mount):
    """The kernel would believe what it was told, if the job in debt were not there."""
    qos = mount(store)
    looks = 3000
    (store.dir / "folder").mkdir()
    for job in ("hog", "guest"):
        qos.rule(f"start {job} jobid={{{job}}} rate=20")
    with running(start_job("hog", sys.executable, "-c", MAKER, qos.dir / "folder")):
        wait_until(lambda: qos.rule_state("hog")["waiting"] > 0, what="a job in debt")
        as_job("guest", sys.executable, "-c", LOOKS, qos.dir / "folder", looks, timeout=60)
    assert qos.job("guest")["operations"]["getattr"]["samples"] > looks / 2
    assert qos.rule_state("guest")["requests"] < 20


READER = """
import os, sys, threading
files = os.open(sys.argv[1], os.O_RDONLY)
def read(first):
    for page in range(int(sys.argv[2])):
        os.pread(files, 4096, (first * 1000 + page) * 4096)
threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("read", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])): os.pread(files, 4096, 0)
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_cached_reads_pay_no_more_when_nobody_shares_the_file(store, mount):
    """Another job has had it open, and so the reader was in debt at it: that passes."""
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(4096 * 5000))
    with running(start_job("reader", sys.executable, "-c", READER, qos.dir / "file", 15, 100000, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)) as reader:
        with open(qos.dir / "file", "rb"):  # by a job of its own
            qos.rule("start reader jobid={reader} rate=20")
            assert reader.stdout.readline() == "read\n"
        reader.communicate("go\n", timeout=60)  # at 20 each second it would take 83 minutes
        assert reader.returncode == 0


CROWD = """
import os, sys, threading
def make(number):
    while True:
        os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"f{number}")
os.chdir(sys.argv[1])
sys.stdin.readline()
for number in range(int(sys.argv[2])): threading.Thread(target=make, args=(number,)).start()
"""


def test_a_queue_for_a_folder_ends(faulty, mount):
    """All threads queue for the folder's lock before the first of them meets the bound. One that has paid and stands in the queue for 9 s
    is not to pay again when it has the lock, or the queue would go on for ever."""
    threads, rate = 40, 10
    qos = mount(faulty)
    (faulty.behind / "folder").mkdir()
    faulty.fail("getattr", HANG, "none")
    with contextlib.ExitStack() as stack:
        stack.callback(faulty.mend)
        stack.enter_context(running(start_job("another", "test", "-e", qos.dir / "folder/none")))
        wait_until(lambda: faulty.hanging(), what="a look-up with the folder's lock")
        command = sys.executable, "-c", CROWD, qos.dir / "folder", threads
        hog = stack.enter_context(running(start_job("hog", *command, stdin=subprocess.PIPE, text=True)))
        qos.rule(f"start hog jobid={{hog}} rate={rate} depth=3")
        print(file=hog.stdin, flush=True)
        wait_until(lambda: thread_states(hog.pid).count("D") == threads, what="a queue for the lock")
        guest = stack.enter_context(running(start_job("guest", "touch", qos.dir / "folder/guest")))
        wait_until(lambda: "D" in thread_states(guest.pid), what="the guest behind it")
        faulty.mend()
        assert guest.wait(60) == 0
        before = qos.rule_state("hog")["requests"]
        # A creat(2) and its close are three operations, and the debt may be of 2 s.
        assert before <= 3 * threads + 3 * rate
        for number in range(4):
            as_job("guest", "touch", qos.dir / f"folder/guest-{number}")
        assert qos.rule_state("hog")["requests"] - before <= 2 * threads
