"""Adaptive sharing on real mounts: how much each job gets, what may be set, and what is refused.

The stores serve so few operations a second that all jobs wait, whatever the machine could do. Shares are of the operations that were
counted, over some hundreds of them; how long these took does not matter.
"""
import contextlib
import errno
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
import yaml

from harness import (TIMEOUT, USER, as_user, job_environment, of_threads, query, running, saved_requests, start_job,
                     wait_until)

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

# Bytes are free: each request costs one. The capacity is more than is ever measured, and so is what is reported. There are fewer slots
# than processes of a hungry job: they wait where shares count, however many the store seems to need on a busy machine.
SLOTS = 8
FAIR = f"cache=none,adapt=fair,capacity=1000,adapt_bytes=0,slots={SLOTS}"
# Told less than any machine serves: what a job gets beside an idle one of a larger weight is borrowed, however little it is.
LITTLE = FAIR.replace("capacity=1000", "capacity=1")


def reader(qos, job, processes=4, **more):
    """A job that reads without end, one request for each process at a time."""
    path = qos.store.dir / f"{job}.data"
    if not path.exists():
        path.write_bytes(bytes(1 << 20))
    return start_job(job, "fio", f"--name={job}", f"--filename={qos.dir / path.name}", "--rw=randread", "--bs=4k", "--size=1m",
                     "--ioengine=psync", "--time_based", "--runtime=600", f"--numjobs={processes}", "--thread", "--output=/dev/null",
                     **more)


@contextlib.contextmanager
def readers(qos, start=reader, **processes):
    """As many processes as said of each job, while the block runs."""
    with contextlib.ExitStack() as stack:
        for job, count in processes.items():
            stack.enter_context(running(start(qos, job, count)))
        wait_until(lambda: all(requests(qos, job) for job in processes), what="all readers")
        yield


# So many threads read the file without end. A store that serves 150 a second takes two for as many: also a busy machine lets one look
# meanwhile.
CROWDED = 300
CROWD = """
import os, sys, threading
file = os.open(sys.argv[1], os.O_RDONLY)
def read():
    while os.pread(file, 4096, 0): pass
for _ in range(int(sys.argv[2])): threading.Thread(target=read).start()
"""


def crowd(qos, job, threads):
    """A job that always has some requests waiting; it starts sooner than as many processes of a reader."""
    (qos.store.dir / job).write_bytes(bytes(4096))
    return start_job(job, sys.executable, "-c", CROWD, qos.dir / job, str(threads))


def requests(qos, job):
    job = qos.job(job)
    return job["requests"] if job else 0


def parts(qos, *jobs, count=500):
    """What part of the next `count` requests or more each of the jobs got."""
    before = {job: requests(qos, job) for job in jobs}

    def served():
        now = {job: requests(qos, job) - before[job] for job in jobs}
        return now if sum(now.values()) >= count else None
    now = wait_until(served, what=f"{count} requests")
    return [now[job] / sum(now.values()) for job in jobs]


def contended_parts(qos, *jobs, count=400):
    """What part each of the jobs got of the next `count` requests or more that were served while all of them had some waiting: of
    such times in which all together got fewer than waited of each at their beginning (how many each got is no part of
    that: it would choose those in which the larger share was small). On a busy machine others have what a job does not
    ask for."""
    got = dict.fromkeys(jobs, 0)
    last = None

    def served():
        nonlocal last
        now = {job["id"]: job for job in qos.state()["jobs"] if job["id"] in jobs}
        more = {job: now[job]["requests"] - last[job]["requests"] for job in jobs} if last else {}
        if last and all(sum(more.values()) + SLOTS < last[job]["waiting"] for job in jobs):
            for job in jobs:
                got[job] += more[job]
        last = now
        return sum(got.values()) >= count
    wait_until(served, 3 * TIMEOUT, what=f"{count} requests while all wait")
    return [got[job] / sum(got.values()) for job in jobs]


# --- how much each job gets ---

def test_shares_by_weight(store, mount, capped):
    qos = mount(capped(store, 150), FAIR)
    qos.rule("start heavy jobid={heavy} weight=3")
    with readers(qos, crowd, heavy=CROWDED, light=CROWDED):
        heavy, _ = contended_parts(qos, "heavy", "light")
    assert heavy == pytest.approx(0.75, abs=0.08)


def test_paper_allocates_by_weight(store, mount):
    """It holds no job in a period after one in which the job sent nothing, as may happen on a busy machine: so what it
    allocates is looked at, not what was served."""
    qos = mount(store, FAIR.replace("fair,capacity=1000", "paper,capacity=300,adapt_period=500ms"))
    qos.rule("start heavy jobid={heavy} weight=3")

    def allocated():
        part = {share["job_id"]: share["allocation"] for share in yaml.safe_load(qos.report("shares"))["shares"]}
        heavy, light = part.get("heavy", 0), part.get("light", 0)
        return light and 0.65 < heavy / (heavy + light) < 0.85
    with readers(qos, heavy=16, light=16):
        wait_until(allocated, what="three quarters for the heavy one")


def test_what_is_idle_is_lent(store, mount, capped):
    """A job that could have nine tenths asks for nothing: the other job has all of it."""
    qos = mount(capped(store, 300), LITTLE)
    qos.rule("start heavy jobid={heavy} weight=9")
    with readers(qos, heavy=1, light=8):
        pass
    with readers(qos, light=16):
        wait_until(lambda: qos.job("light")["operation_rate"] > 75, what="more than a tenth of the store")


def test_a_reservation_comes_before_shares(store, mount, capped):
    qos = mount(capped(store, 150), FAIR)
    qos.rule("start reserved jobid={reserved} min=800")
    with readers(qos, crowd, reserved=CROWDED, free=CROWDED):
        reserved, _ = contended_parts(qos, "reserved", "free", count=150)
    assert reserved > 0.6  # nine tenths, less at times on a busy machine; a half without


def test_a_ceiling_stands_whatever_the_weight(store, mount, capped):
    qos = mount(capped(store), FAIR)
    qos.rule("start ruled jobid={ruled} weight=9 rate=1")
    with readers(qos, ruled=2, free=16):
        ruled, _ = parts(qos, "ruled", "free")
    assert ruled < 0.2


@pytest.mark.parametrize("mode", ["fair", "paper"])
def test_an_idle_mount_sleeps(store, mount, mode):
    """Periods end while jobs take part alone: once these are gone, no thread counts them. What is looked at every few seconds may be."""
    qos = mount(store, FAIR.replace("fair", mode) + ",adapt_period=5ms")
    with readers(qos, one=1, another=8):
        pass

    def wakes():
        return sum(int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])
                   for status in of_threads(qos.pid, "status").values())
    since, before = time.monotonic(), wakes()

    def has_slept():
        nonlocal since, before
        now, count = time.monotonic(), wakes()
        if count - before >= 50:
            since, before = now, count
        return now - since >= 1
    wait_until(has_slept, what="200 periods in which the daemon wakes up less than 50 times")


# --- settings ---

@pytest.mark.parametrize("option, mode", [("adapt", "fair"), ("adapt=fair", "fair"), ("adapt=paper", "paper"), ("adapt=off", "off"),
                                          ("cache=none", "off")])
def test_option(store, mount, option, mode):
    assert mount(store, option).get("adapt") == mode


@pytest.mark.parametrize("option", ["adapt=on", "capacity=0", "capacity=10K", "capacity=-1MB/s", "adapt_period=1ms",
                                    "adapt_period=11s", "adapt_bytes=2T"])
def test_bad_option_is_refused(store, mount, option):
    assert option.partition("=")[0] in mount(store, option, expect_failure=True).log


def test_settings_persist(store, mount):
    first = mount(store)
    settings = {"adapt": "fair", "capacity": "200MB/s", "adapt_period": "20ms", "adapt_bytes": "1M"}
    for name, value in settings.items():
        first.set(name, value)
    first.unmount()
    second = mount(store, f"db={first.db}")
    assert {name: second.get(name) for name in settings} == settings


@pytest.mark.parametrize("name, value, code", [
    ("adapt", "on", errno.EINVAL),
    ("adapt", "", errno.EINVAL),
    ("capacity", "0", errno.ERANGE),
    ("capacity", "-1", errno.ERANGE),
    ("capacity", "999999999999", errno.ERANGE),
    ("capacity", "10K", errno.EINVAL),
    ("capacity", "0MB/s", errno.ERANGE),
    ("adapt_period", "4ms", errno.ERANGE),
    ("adapt_period", "11s", errno.ERANGE),
    ("adapt_period", "soon", errno.EINVAL),
    ("adapt_bytes", "2T", errno.ERANGE),
    ("adapt_bytes", "-1", errno.EINVAL),
    ("adapt_metadata", "0", errno.ERANGE),
    ("adapt_metadata", "1e3", errno.EINVAL),
])
def test_bad_setting_changes_nothing_and_says_why(store, mount, name, value, code):
    qos = mount(store, FAIR)
    before = qos.state()["tunables"]
    with pytest.raises(OSError) as caught:
        qos.set(name, value)
    assert caught.value.errno == code
    assert name in qos.get("last_error")
    assert qos.state()["tunables"] == before


@pytest.mark.parametrize("weight", ["0", "-1", "10001", "heavy"])
def test_bad_weight_changes_nothing_and_says_why(store, mount, weight):
    qos = mount(store, FAIR)
    qos.rule("start some jobid={some} weight=5")
    before = qos.get("nrs_tbf_rule")
    with pytest.raises(OSError) as caught:
        qos.rule(f"change some weight={weight}")
    assert caught.value.errno in (errno.EINVAL, errno.ERANGE)
    assert "weight" in qos.get("last_error")
    assert qos.get("nrs_tbf_rule") == before


def test_switching_under_load(store, mount):
    """fio verifies what two jobs write while the sharing changes under them: nothing is lost, and nothing stays behind."""
    qos = mount(store, "cache=none")
    fio = ["fio", "--rw=randwrite", "--bs=4k", "--size=1m", "--numjobs=3", "--verify=crc32c", "--do_verify=1", "--ioengine=psync",
           "--verify_fatal=1", "--output-format=json", "--loops=2", f"--directory={qos.dir}", "--verify_state_save=0"]
    jobs = [start_job(name, *fio, f"--name={name}", stdout=subprocess.PIPE) for name in ("one", "other")]
    rounds = 0
    while any(job.poll() is None for job in jobs):
        qos.set("adapt", ("fair", "paper", "off")[rounds % 3])
        qos.set("capacity", ("auto", "3000", "20000", "50MB/s")[rounds % 4])
        qos.set("adapt_period", ("5ms", "100ms")[rounds % 2])
        qos.set("slots", (1, 4, 64)[rounds // 3 % 3])
        rounds += 1
    for job in jobs:
        result = json.loads(job.stdout.read())
        job.stdout.close()
        assert job.returncode == 0
        assert all(part["error"] == 0 for part in result["jobs"])
    assert rounds > 10
    slots = wait_until(lambda: (lambda slots: slots if not slots["running"] else None)(qos.state()["slots"]), what="the last request")
    assert slots["held"] == 0


# --- what is told of it ---

def test_reports(store, mount, capped):
    """A job that uses less than its share lends to one that wants more, and all reports agree on which they are."""
    qos = mount(capped(store), FAIR)
    assert yaml.safe_load(as_user(USER, USER, [], lambda: qos.report("shares")))["adapt"] == "fair"
    qos.rule("start heavy jobid={heavy} weight=9")

    def in_balance():
        report = yaml.safe_load(as_user(USER, USER, [], lambda: qos.report("shares")))
        records, allocations = (sum(part[what] for part in report["shares"]) for what in ("record", "allocation"))
        return report if (records, allocations) == (pytest.approx(0, abs=1), pytest.approx(report["capacity"], abs=5)) else None
    with readers(qos, heavy=1, light=8):
        pass
    with readers(qos, light=8):
        wait_until(lambda: share(qos, "light")["borrowed"] > 100, what="borrowing")
        report = wait_until(in_balance, what="shares between which no period ended")
        state = qos.state()
        metrics = qos.report("metrics")
        table = qos.ctl("jobs")
        why = qos.ctl("why", "light")
        status = qos.ctl("status")
    assert report["told"] == 1000 and report["capacity_is"] == ("told" if report["capacity"] == 1000 else "estimated") and report["period"] == 0.1
    shares = {part["job_id"]: part for part in report["shares"]}
    assert shares["heavy"]["weight"] == 9 and shares["light"]["weight"] == 1
    weights = sum(part["weight"] for part in shares.values())  # this process takes part, too
    assert shares["heavy"]["entitlement"] == pytest.approx(9 * report["capacity"] / weights, rel=0.02)
    assert shares["heavy"]["record"] > 0 > shares["light"]["record"]
    assert shares["heavy"]["lent"] > shares["heavy"]["borrowed"]
    measured = {"capacity": 0, "told": True, "depth": 0}  # the store may have been measured by then
    assert state["adapt"] | measured == {"mode": "fair", "told_capacity": 1000, "reserved": 0, "period": 0.1, "members": len(shares)} | measured
    assert 'qosfs_job_weight{job="heavy"} 9' in metrics and 'qosfs_adapt_info{mode="fair"} 1' in metrics
    assert "RECORD" in table and "sharing   fair" in status
    assert "It borrowed" in why and "still owes" in why
    qos.ctl("clear", "light")
    assert share(qos, "light")["borrowed"] < shares["light"]["borrowed"] and share(qos, "light")["record"] < 0
    qos.set("adapt", "off")
    assert yaml.safe_load(qos.report("shares")) == {"adapt": "off"}
    assert "RECORD" not in qos.ctl("jobs") and "qosfs_job_weight" not in qos.report("metrics")
    assert qos.job("heavy")["share"] is None


def share(qos, job):
    return qos.job(job)["share"]


@pytest.mark.parametrize("mode", ["fair", "paper"])
def test_weight_is_the_number_of_nodes(store, mount, mode):
    """Without a weight in a rule."""
    qos = mount(store, FAIR.replace("fair", mode))
    with running(reader(qos, "wide", env=job_environment("wide", SLURM_JOB_NUM_NODES="3"))), running(reader(qos, "narrow")):
        wait_until(lambda: qos.job("narrow") and share(qos, "narrow") and qos.job("wide") and share(qos, "wide"), what="both jobs")
        assert [share(qos, job)["weight"] for job in ("wide", "narrow")] == [3, 1]
        qos.rule("start narrow jobid={narrow} weight=6")
        wait_until(lambda: share(qos, "narrow")["weight"] == 6, what="the new weight")


# --- what stays ---

def saved_shares(path):
    rows = query(path, "SELECT id, record, lent, borrowed FROM share")
    return {bytes(name).decode(): (record, lent, borrowed) for name, record, lent, borrowed in rows}


def sum_of_records(qos):
    return sum(part["record"] for part in yaml.safe_load(qos.report("shares"))["shares"])


def lend(qos):
    """The job `light` borrows from `heavy`, which did something and is idle."""
    qos.rule("start heavy jobid={heavy} weight=9")
    with readers(qos, heavy=1):
        pass
    with readers(qos, light=8):
        # What runs this test may have lent something, too.
        wait_until(lambda: share(qos, "light")["borrowed"] > 200 and share(qos, "heavy")["lent"] > 200, what="borrowing")


@pytest.mark.parametrize("end", ["unmount", "kill"])
def test_records_and_totals_stay(store, mount, capped, end):
    """After a remount and a crash; records decay, and so are less than they were, but not nothing."""
    store = capped(store)
    first = mount(store, LITTLE)
    lend(first)
    nothing = (0, 0, 0)
    wait_until(lambda: saved_shares(first.db).get("light", nothing)[2] > 200e6 and saved_shares(first.db).get("heavy", nothing)[1] > 200e6,
               what="saving them")
    before = {job: share(first, job) for job in ("heavy", "light")}
    first.unmount() if end == "unmount" else first.kill(signal.SIGKILL)
    second = mount(store, f"db={first.db}," + LITTLE)
    after = {job: share(second, job) for job in ("heavy", "light")}
    for job, name in (("heavy", "lent"), ("light", "borrowed")):
        assert after[job][name] == pytest.approx(before[job][name], rel=0.5) and after[job][name] >= 200
    assert after["heavy"]["record"] > 20 and after["light"]["record"] < -20
    wait_until(lambda: abs(sum_of_records(second)) < 1, what="records that fit together")


def test_paper_counts_and_keeps_what_was_lent(store, mount):
    first = mount(store, FAIR.replace("fair,capacity=1000", "paper,capacity=300"))
    first.rule("start heavy jobid={heavy} weight=9 rate=20")
    with readers(first, heavy=1, light=8):
        wait_until(lambda: share(first, "light")["borrowed"] > 200, what="borrowing")
    first.unmount()
    second = mount(store, f"db={first.db}," + FAIR.replace("fair", "paper"))
    assert share(second, "light")["borrowed"] > 200 and share(second, "heavy")["lent"] > 0
    assert share(second, "heavy")["record"] > 0 > share(second, "light")["record"]


def test_a_crash_loses_periods_and_not_seconds(store, mount):
    """What is in the database while the daemon runs is what a crash leaves: shares are saved in each period of 100 ms, and so
    often between two saves of the totals, every 5 s."""
    first = mount(store, LITTLE)
    first.rule("start heavy jobid={heavy} weight=9 rate=5")
    first.rule("start light jobid={light} rate=200")
    shares, totals = [], []

    def look():
        for seen, now in (shares, saved_shares(first.db).get("light", (0, 0, 0))[2]), (totals, saved_requests(first.db, "light")):
            if now not in seen:
                seen.append(now)
        return len(shares) > 12
    with readers(first, heavy=1, light=8):
        wait_until(look, 3 * TIMEOUT, what="saving them a dozen times")
        assert shares == sorted(shares) and len(totals) < len(shares) / 2, (shares, totals)
        first.kill(signal.SIGKILL)
    second = mount(store, f"db={first.db}," + LITTLE)
    assert share(second, "light")["borrowed"] >= shares[-1] // 1e6


@pytest.mark.parametrize("damage, words", [
    ("UPDATE share SET record = 9223372036854775807 WHERE id = CAST('heavy' AS BLOB)", "out of range"),
    ("UPDATE share SET lent = -5 WHERE id = CAST('heavy' AS BLOB)", "negative"),
])
def test_damaged_record_is_refused_and_the_mount_goes_on(store, mount, capped, damage, words):
    store = capped(store)
    first = mount(store, LITTLE)
    lend(first)
    first.unmount()
    with sqlite3.connect(first.db) as database:
        assert database.execute(damage).rowcount == 1
    database.close()
    second = mount(store, f"db={first.db}," + LITTLE)
    second.expects_log(f'"heavy".*{words}')
    assert re.search(f'"heavy".*{words}', second.log)
    assert share(second, "heavy") is None
    assert share(second, "light")["borrowed"] > 0
    with readers(second, light=2):  # and the records are balanced again
        wait_until(lambda: abs(sum_of_records(second)) < 1, what="writing off what nobody lent")


def test_what_is_said_and_not_there_is_told(store, mount):
    """A capacity that the store has not, and reservations of more than there is."""
    qos = mount(store, "adapt=fair,capacity=1000000,slots=4,cache=none")
    said = qos.ctl("rule", "start", "a", "jobid={light}", "min=900000", check=False)
    assert said.returncode == 0 and not said.stderr
    said = qos.ctl("rule", "start", "b", "jobid={heavy}", "min=200000", check=False)
    assert said.returncode == 0 and "warning: the rules reserve 1100000 op/s" in said.stderr
    with readers(qos, crowd, heavy=50, light=50):
        def status():
            text = qos.ctl("status")
            return "less than the 1000000 op/s" in text and "are reserved (min=), more than the store has" in text
        wait_until(status, what="what the status says")
