"""The history of the jobs: real work leaves rows in .qosfs/history, they outlive the mount, and their number is bounded
by history_days."""
import csv
import errno
import io
import os
import sqlite3
import subprocess
import sys
import time

import pytest

from harness import OTHER, USER, as_job, as_user, running, start_job, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

COLUMNS = ["time", "seconds", "job", "operations", "read_bytes", "write_bytes", "waits", "waited_us", "lent",
           "returned", "borrowed", "repaid"]


def rows(qos, job=None):
    """The history, or one job's; numbers as such."""
    reader = csv.DictReader(io.StringIO(qos.report("history")), strict=True)
    assert reader.fieldnames == COLUMNS
    found = [{name: value if name == "job" else float(value) for name, value in row.items()} for row in reader]
    return [row for row in found if job in (None, row["job"])]


def total(qos, job, series):
    return sum(row[series] for row in rows(qos, job))


def work(qos, job, times=1):
    """Writes and reads 1 MiB, so many times with what the mount already knows of."""
    as_job(job, "dd", "if=/dev/zero", f"of={qos.dir}/{job}", "bs=64K", "count=16", "status=none")
    as_job(job, "cat", qos.dir / job)
    qos.wait_booked(job, close=2 * times)


def test_rows_come_while_mounted(store, mount):
    qos = mount(store, "cache=none")
    assert rows(qos) == []
    qos.rule("start slow jobid={slow} rate=100 depth=1")
    began = time.time()
    work(qos, "quick")
    work(qos, "slow")
    wait_until(lambda: total(qos, "quick", "write_bytes") == total(qos, "quick", "read_bytes") == 1 << 20)
    for name in ("quick", "slow"):
        wait_until(lambda: total(qos, name, "operations") == qos.job(name)["requests"])
        assert all(row["seconds"] == 10 and row["time"] % 10 == 0 for row in rows(qos, name))
        assert all(began - 10 <= row["time"] <= time.time() for row in rows(qos, name))
    assert total(qos, "quick", "waits") == total(qos, "quick", "waited_us") == 0
    assert total(qos, "slow", "waits") == qos.job("slow")["waits"] > 0
    assert total(qos, "slow", "waited_us") == pytest.approx(qos.job("slow")["wait_time"] * 1e6, abs=len(rows(qos)))


def test_remount_keeps_them(store, mount):
    first = mount(store)
    work(first, "7")
    before = first.job("7")["requests"]
    first.unmount()
    second = mount(store, f"db={first.db}")
    assert total(second, "7", "operations") >= before
    assert total(second, "7", "write_bytes") == 1 << 20
    work(second, "7", times=2)
    second.unmount()
    third = mount(store, f"db={first.db}")
    assert total(third, "7", "write_bytes") == 2 << 20


def test_switched_off(store, mount):
    first = mount(store)
    work(first, "7")
    first.unmount()
    second = mount(store, f"db={first.db}")
    assert rows(second, "7")
    second.set("history_days", 0)
    work(second, "8")
    second.unmount()
    third = mount(store, f"db={first.db}")
    assert third.get("history_days") == "0" and rows(third) == []


def test_others_may_look(store, mount):
    """Everybody sees what the other reports show, and nobody writes it."""
    qos = mount(store)
    path = qos.dir / ".qosfs/history"
    assert as_user(USER, USER, [], path.read_text).startswith("time,")
    with pytest.raises(PermissionError):
        os.open(path, os.O_RDWR)


def test_hostile_job(store, mount):
    """No character of a JobID means anything in CSV."""
    first = mount(store)
    name = "a,b\"</script><img src=x onerror=alert(1)>"
    as_job(name, "touch", first.dir / "file")
    first.wait_booked(name)
    first.unmount()
    qos = mount(store, f"db={first.db}")
    assert {row["job"] for row in rows(qos) if "img" in row["job"]} == {
        r"a\x2Cb\x22\x3C/script\x3E\x3Cimg\x20src\x3Dx\x20onerror\x3Dalert\x281\x29\x3E"}


def test_damaged_while_mounted(store, mount):
    """A user that asks gets an error; the mount goes on."""
    qos = mount(store)
    qos.expects_log("database")
    work(qos, "7")
    wait_until(lambda: rows(qos, "7"))
    for path in (qos.db, f"{qos.db}-wal"):
        with open(path, "r+b") as file:
            file.write(os.urandom(os.path.getsize(path)))
    with pytest.raises(OSError):
        qos.report("history")
    (qos.dir / "still there").write_text("x")


def test_lent_and_borrowed(store, mount, capped):
    """What moved between the jobs is there, and a remount counts none of it again."""
    store = capped(store, 500)
    first = mount(store, "cache=none,adapt=fair,capacity=1,adapt_bytes=0")  # as LITTLE in test_adapt.py
    first.rule("start heavy jobid={heavy} weight=9")
    (first.dir / "file").write_bytes(b"x" * 65536)
    code = "import os, sys\nfile = os.open(sys.argv[1], os.O_RDONLY)\nwhile True: os.pread(file, 1, 0)"

    def has_moved():
        heavy, light = (first.job(name) and first.job(name)["share"] for name in ("heavy", "light"))
        return heavy and light and light["borrowed"] > 150 < heavy["lent"]
    with running(start_job("heavy", "sh", "-c", f"while cat {first.dir}/file; do sleep 1; done", stdout=subprocess.DEVNULL)), \
         running(start_job("light", sys.executable, "-c", code, first.dir / "file")):
        wait_until(has_moved, what="borrowing")
    first.unmount()
    second = mount(store, f"db={first.db}")
    given, taken = (sum(row[one] + row[other] for row in rows(second)) for one, other in (("lent", "repaid"), ("borrowed", "returned")))
    borrowed = sum(row["borrowed"] for row in rows(second))
    assert total(second, "light", "borrowed") > 100 < total(second, "heavy", "lent")
    assert given == pytest.approx(taken, rel=0.01)
    second.unmount()
    third = mount(store, f"db={first.db}")
    assert sum(row["borrowed"] for row in rows(third)) == pytest.approx(borrowed)


# Opens a report again and again, and keeps what it gets.
KEEPER = """
import sys
held = []
try:
    for _ in range(1000): held.append(open(sys.argv[1]))
except OSError as error:
    print(len(held), error.errno, flush=True)
sys.stdin.readline()
"""


def test_open_files_are_bounded(store, mount):
    """An ordinary user cannot fill the daemon's memory by opening a long history again and again, and leaves as much to
    others as that user has; root still reads."""
    first = mount(store)
    first.unmount()
    now = int(time.time()) // 300 * 300 - 7200
    with sqlite3.connect(first.db) as database:
        database.executemany("INSERT INTO history VALUES (300, ?, ?, 1, 0, 0, 0, 0, 0, 0, 0, 0)",
                             [(now - 300 * slice, f"{number:03}{'<' * 60}".encode())
                              for slice in range(100) for number in range(250)])
    database.close()
    qos = mount(store, f"db={first.db}")
    path = qos.dir / ".qosfs/history"
    size = len(path.read_text())
    most = (128 << 20) // size

    def keeping(user):
        return running(start_job("keeper", sys.executable, "-c", KEEPER, path, user=user, group=user, extra_groups=[],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def kept(keeper):
        count, error = map(int, keeper.stdout.readline().split())
        assert error == errno.ENOMEM
        return count

    def all_again():
        with keeping(OTHER) as other:
            return kept(other) == most // 2
    with keeping(USER) as keeper:
        assert kept(keeper) == most // 2
        with keeping(OTHER) as other:
            assert kept(other) == (most - most // 2) // 2
            assert len(path.read_text()) >= size
    wait_until(all_again, what="the end of what they had open")
