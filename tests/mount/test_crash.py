"""The daemon is killed at work: what is left, and the next mount."""
import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from harness import GONE, USER, as_user, saved_requests, start_job, wait_until

pytestmark = pytest.mark.parametrize("user", [None, USER])

# Appends numbers, and tells each when it is on the disk.
APPEND = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
number = 0
while True:
    os.write(fd, b"%15d\\n" % number)
    os.fsync(fd)
    print(number, flush=True)
    number += 1
"""


def check_database(path):
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("PRAGMA integrity_check").fetchall()


def test_killed_under_load(store, mount, user):
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}

    def as_mounter(function):
        return as_user(user or 0, user or 0, [], function)

    def set_rules(qos):
        qos.rule("start slow jobid={slow} rate=2 depth=1")
        qos.rule("start other jobid={x y} bps=3M rank=slow")
        qos.set("slots", 17)

    os.chown(store.dir, user or 0, user or 0)
    first = mount(store, user=user)
    as_mounter(lambda: set_rules(first))
    rules = as_mounter(first.state)["rules"]
    for job in ("quick", "slow"):
        as_mounter((first.dir / job).mkdir)
    programs = [first.start_stress(job, 600, 1, job, **identity) for job in ("quick", "slow")]
    writer = start_job("writer", sys.executable, "-c", APPEND, first.dir / "log", stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, **identity)
    wait_until(lambda: (as_mounter(lambda: first.job("slow")) or {}).get("waiting", 0), what="one that waits")
    wait_until(lambda: saved_requests(first.db, "writer") > 0, what="saving the totals")
    first.kill(signal.SIGKILL, clear=False)

    # Nobody hangs, and the place says what has happened.
    told, reason = writer.communicate()
    # EIO: the kernel's own word for the one request that it was handing to the daemon as that died.
    assert GONE.search(reason) or os.strerror(errno.EIO) in reason, reason
    for program in programs:
        program.communicate()
    with pytest.raises(OSError) as caught:
        as_mounter(lambda: os.statvfs(first.dir))
    assert caught.value.errno == errno.ENOTCONN

    # What was on the disk is there.
    last = int(told.split()[-1])
    lines = (store.dir / "log").read_text().splitlines()
    assert [int(line) for line in lines[:last + 1]] == list(range(last + 1))

    # The next mount finds the place, the rules and the totals.
    saved = saved_requests(first.db, "writer")
    second = mount(store, f"db={first.db}", user=user, place=first.dir)
    state = as_mounter(second.state)
    assert [(rule["name"], rule["conditions"], rule["options"]) for rule in state["rules"]] == \
        [(rule["name"], rule["conditions"], rule["options"]) for rule in rules]
    assert state["tunables"]["slots"] == "17"
    assert as_mounter(lambda: second.job("writer"))["requests"] == saved
    assert (store.dir / "log").read_text().splitlines() == as_mounter((second.dir / "log").read_text).splitlines()
    second.unmount()
    assert check_database(first.db) == [("ok",)]
