"""A throttled job never holds what another job waits for."""
import contextlib
import sys
import time

import pytest

from harness import as_job, start_job, wait_until

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

# Looks, makes, renames and removes in the folder, and prints the longest that one of these took, in s.
GUEST = """
import os, sys, time
longest = 0
for number in range(100):
    name = f"{sys.argv[1]}/guest-{number}"
    for step in (lambda: os.path.exists(name), lambda: os.close(os.open(name, os.O_CREAT | os.O_WRONLY)),
                 lambda: os.rename(name, name + "-new"), lambda: os.listdir(sys.argv[1]),
                 lambda: os.unlink(name + "-new")):
        start = time.monotonic()
        step()
        longest = max(longest, time.monotonic() - start)
print(longest)
"""


@contextlib.contextmanager
def running(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("options", ["", "cache=always"])
def test_a_throttled_job_blocks_nobody_in_a_shared_folder(store, mount, options):
    """Its requests hold the folder's lock in the kernel: parked, each would stop the others for as long as it waits."""
    qos = mount(store, options)
    qos.rule("start hog jobid={hog} rate=10")
    with running(start_job("hog", sys.executable, "-c", CHURN, str(qos.dir))):
        # All stand before the toll; at 10 op/s, whoever waited behind one of them would wait for a second.
        wait_until(lambda: qos.job("hog") and qos.job("hog")["waiting"] == 16)
        assert float(as_job("guest", sys.executable, "-c", GUEST, str(qos.dir))) < 0.5


def counted(qos, rule):
    return next(each["requests"] for each in qos.state()["rules"] if each["name"] == rule)


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("conditions", ["jobid={hog}", "opcode={create unlink}", "opcode={create}"])
def test_a_job_pays_its_debt(store, mount, conditions):
    """What goes at once is paid for: after the first burst the job gets what its rule allows, and no more."""
    qos = mount(store)
    qos.rule(f"start limit {conditions} rate=50")
    with running(start_job("hog", sys.executable, "-c", CHURN, str(qos.dir))):
        wait_until(lambda: qos.job("hog") and qos.job("hog")["waiting"] == 16)
        start, before = time.monotonic(), counted(qos, "limit")
        wait_until(lambda: counted(qos, "limit") - before > 200, timeout=60)
        rate = (counted(qos, "limit") - before) / (time.monotonic() - start)
        assert 50 / 2 < rate < 50 * 2
