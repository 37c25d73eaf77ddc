"""The policy grr on two mounts: one group of jobs has its turn on both at a time, because the lock server runs the epochs."""
import collections
import contextlib
import subprocess
import sys
import threading

from harness import running, start_job, wait_until

JOBS = ["alpha", "beta", "gamma", "job1", "job2", "job3", "job4", "job5"]  # eight groups of the 64
# Four threads change a file's times again and again, and say so each time.
CHANGES = """
import os, sys, threading, time
def change():
    while True:
        os.utime(sys.argv[1])
        os.write(1, b"%d\\n" % time.monotonic_ns())
for _ in range(4):
    threading.Thread(target=change).start()
"""
SEEN = 150  # the last requests that are looked at


class Watched:
    """What ends on a mount, in order: when, and of which job."""

    def __init__(self):
        self.ends = collections.deque(maxlen=4 * SEEN)

    def take(self, job, process):
        while line := process.stdout.readline():
            self.ends.append((int(line), job))


def agreement(one, other):
    """Of the last requests that ended on one mount, how many were of the job that was served just then on the other."""
    theirs, mine = sorted(other.ends), sorted(one.ends)[-SEEN:]
    if len(mine) < SEEN or len(theirs) < SEEN:
        return 0
    place, same, seen = 0, 0, 0
    for when, job in mine:
        while place + 1 < len(theirs) and theirs[place + 1][0] <= when:
            place += 1
        if theirs[0][0] <= when <= theirs[-1][0]:
            near = {theirs[place][1], theirs[min(place + 1, len(theirs) - 1)][1]}
            same += job in near
            seen += 1
    return same / seen if seen > SEEN / 2 else 0


def watch(opened, qos, place):
    watched = Watched()
    for job in JOBS:
        path = qos.dir / f"{job}-{place}"
        path.touch()
        process = opened.enter_context(running(start_job(job, sys.executable, "-c", CHANGES, path, stdout=subprocess.PIPE)))
        threading.Thread(target=watched.take, args=(job, process), daemon=True).start()
    return watched


def test_one_group_has_its_turn_on_both_mounts(store, capped, cluster):
    """It takes a while until it is seen, on a busy machine. Without common epochs it is a quarter: two jobs are near, of eight."""
    both = cluster(store=capped(store, 400), options="nrs_policies=grr,slots=1,store=capped")
    with contextlib.ExitStack() as opened:
        first, second = (watch(opened, qos, place) for place, qos in enumerate(both.mounts))
        wait_until(lambda: agreement(first, second) > 0.5, what="a turn of the same jobs on both mounts")
