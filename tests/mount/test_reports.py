"""The files of .qosfs after real work, read by the parsers that others use for these formats."""
import collections
import math
import os
import re
import sqlite3
import sys
import threading

import pytest
import yaml

from harness import as_job, start_job, wait_until
from prometheus import parse_metrics

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

WORK = """
import os, sys
path = sys.argv[1]
with open(path, "wb", buffering=0) as file:
    for _ in range(8):
        file.write(b"x" * 4096)
with open(path, "rb", buffering=0) as file:
    while file.read(65536):
        pass
os.rename(path, path + ".new")
os.unlink(path + ".new")
"""


@pytest.fixture
def busy(store, mount):
    """A mount on which two jobs worked, and one of them had to wait."""
    qos = mount(store, "cache=none")
    qos.rule("start slow jobid={slow} rate=50 depth=1")
    for job in ("slow", "quick:1"):
        as_job(job, sys.executable, "-c", WORK, qos.dir / f"file-{job}")
        qos.wait_booked(job, close=2)
    return qos


def test_job_stats(busy):
    stats = yaml.safe_load(busy.report("job_stats"))["job_stats"]
    jobs = {job["job_id"]: job for job in stats}
    for name in ("slow", "quick:1"):
        job = jobs[name]
        assert job["write_bytes"]["samples"] == 8
        assert job["write_bytes"]["sum"] == 8 * 4096
        assert job["write_bytes"]["min"] == job["write_bytes"]["max"] == 4096
        assert job["write_bytes"]["sumsq"] == 8 * 4096**2
        assert job["write_bytes"]["hist"] == {"4K": 8}
        assert job["write_bytes"]["unit"] == "bytes" and job["write"]["unit"] == "usecs"
        assert job["read_bytes"]["sum"] == 8 * 4096
        assert job["write"]["samples"] == 8
        assert job["rename"]["samples"] == job["unlink"]["samples"] == 1
        assert "hist" not in job["write"]
        for time in ("snapshot_time", "start_time", "elapsed_time"):
            assert re.fullmatch(r"\d+\.\d{9} secs\.nsecs", job[time])
    # An exporter's view: a line of Lustre's own, column by column.
    line = (f"\n  write_bytes:     {{ samples: {8:11}, unit: bytes, min: {4096:8}, max: {4096:8}, sum: {32768:16}, "
            f"sumsq: {134217728:18}, hist: {{ 4K: 8 }} }}\n")
    assert busy.report("job_stats").count(line) == 2


def test_state(busy):
    state = busy.state()
    assert state["source"] == str(busy.store.dir) and state["mountpoint"] == str(busy.dir)
    assert state["pid"] == busy.pid
    assert state["started"] <= state["now"]
    assert [rule["name"] for rule in state["rules"]] == ["slow", "default"]
    rule = state["rules"][0]
    assert rule["rate"] == 50 and rule["conditions"] == "jobid={slow}" and rule["expires_in"] is None
    assert rule["requests"] > 10 and rule["waits"] > 0 and rule["waited"] > 0
    slow, quick = busy.job("slow"), busy.job("quick:1")
    assert slow["waits"] == rule["waits"] and slow["wait_time"] == pytest.approx(rule["waited"], rel=0.01)
    (wait,) = [wait for wait in slow["wait"] if wait["rule"] == "slow"]
    assert wait["count"] == rule["waits"] and wait["longest"] <= wait["waited"]
    assert state["started"] <= wait["first"] <= wait["last"] <= state["now"]
    assert quick["waits"] == 0 and quick["wait"] == []
    assert quick["read_bytes"] == quick["write_bytes"] == 8 * 4096
    assert quick["operations"]["write"]["samples"] == 8
    assert 0 < slow["store_time"] < 60
    assert state["jobs"] == sorted(state["jobs"], key=lambda job: -job["seen"])


def test_tables(busy):
    header, *lines = busy.report("jobs").splitlines()
    assert header.split()[:3] == ["JOB", "NODES", "OP/S"]
    row = next(line for line in lines if line.startswith("slow"))
    assert " slow " in row[5:], "limited by its rule"
    assert "32.0 KiB" in row
    header, first, last = busy.report("rules").splitlines()
    assert header.split()[0] == "RULE"
    assert first.startswith("slow") and "rate=50" in first and first.endswith("jobid={slow}")
    assert last.startswith("default")


def test_waiting_shows_while_it_lasts(store, mount):
    qos = mount(store, "cache=none")
    qos.rule("start stuck jobid={stuck} rate=1 depth=1")
    process = start_job("stuck", "ls", "-l", qos.dir, stdout=-1)
    try:
        wait_until(lambda: (job := qos.job("stuck")) and job["waiting"], what="the wait")
        assert qos.state()["rules"][0]["waiting"] >= 1
        assert re.search(r"^stuck .* stuck ", qos.report("jobs"), re.MULTILINE)
        assert "qosfs_rule_waiting{rule=\"stuck\"} 1" in qos.report("metrics")
    finally:
        qos.rule("stop stuck")
        assert process.wait(60) == 0
        process.stdout.close()


# --- Prometheus ---

def check_histogram(name, samples):
    groups = collections.defaultdict(list)
    for (sample, labels), value in samples.items():
        if sample == name + "_bucket":
            bounds = [float(bound) for label, bound in labels if label == "le"]
            groups[tuple(pair for pair in labels if pair[0] != "le")].append((bounds[0], value))
    for labels, buckets in groups.items():
        assert buckets == sorted(buckets), "bounds and counts grow"
        assert [count for _, count in buckets] == sorted(count for _, count in buckets)
        assert buckets[-1][0] == math.inf
        assert buckets[-1][1] == samples[name + "_count", labels]
        assert samples[name + "_sum", labels] >= 0


def test_metrics(busy):
    families = parse_metrics(busy.report("metrics"))
    for name, (kind, samples) in families.items():
        if kind == "histogram":
            check_histogram(name, samples)
    jobs = families["qosfs_job_write_bytes_total"][1]
    assert jobs["qosfs_job_write_bytes_total", (("job", "quick:1"),)] == 8 * 4096
    waits = families["qosfs_rule_waits_total"][1]["qosfs_rule_waits_total", (("rule", "slow"),)]
    assert waits == busy.job("slow")["waits"] > 0
    assert families["qosfs_wait_seconds"][1]["qosfs_wait_seconds_count", ()] == waits
    writes = families["qosfs_operation_seconds"][1]["qosfs_operation_seconds_count", (("operation", "write"),)]
    assert writes == 16
    assert families["qosfs_info"][0] == "gauge"


def test_metrics_are_bounded(store, mount):
    qos = mount(store, "cache=none,metrics_top_jobs=3")
    for number in range(8):
        as_job(f"job{number}", "touch", qos.dir / "file")
    samples = parse_metrics(qos.report("metrics"))["qosfs_job_requests_total"][1]
    assert len(samples) == 4
    total = sum(job["requests"] for job in qos.state()["jobs"])
    assert samples["qosfs_job_requests_total", (("job", "other"),)] >= 5, "one of each that is not named, at least"
    assert 8 <= sum(samples.values()) <= total


def test_hostile_job_names(store, mount):
    """Whatever a job is called, every report stays well formed."""
    qos = mount(store, "cache=none")
    qos.expects_log("JobID longer than 63 bytes")
    names = ['a"b', "back\\slash", "new\nline", "tab\there", "colon: {x}", "@at", "x" * 200, "ä", "- 1", "other", "#"]
    for name in names:
        as_job(name, "touch", qos.dir / "file")
    state = {job["id"] for job in qos.state()["jobs"]}
    assert {'a"b', "back\\slash", "colon: {x}", "@at", "x" * 63, "ä", "- 1", "other", "#"} <= state
    listed = yaml.safe_load(qos.report("job_stats"))["job_stats"]
    assert len(listed) >= len(names)
    assert {'a"b', "colon: {x}", "@at"} <= {job["job_id"] for job in listed}
    parse_metrics(qos.report("metrics"))
    lines = qos.report("jobs").splitlines()
    assert len(lines) == len(qos.state()["jobs"]) + 1
    assert all(line.isprintable() for line in lines)


def overtakes(qos, short, long):
    """Whether the short report is read, from its begin to its end, while somebody waits for the long one."""
    waits, is_over = threading.Event(), threading.Event()

    def open_long():
        waits.set()
        os.close(os.open(qos.dir / ".qosfs" / long, os.O_RDONLY))
        is_over.set()
    other = threading.Thread(target=open_long)
    other.start()
    waits.wait()
    reads = 0
    while not is_over.is_set():
        qos.report(short)
        reads += not is_over.is_set()
    other.join()
    return reads > 1  # the first may have been before the other's open


def test_ten_thousand_jobs_and_a_thousand_rules(store, mount):
    """Every report is whole, the metrics are bounded, and requests go on."""
    first = mount(store, "cache=none")
    as_job("job0", "sh", "-c", f"for i in 1 2 3; do echo >> {first.dir}/file; cat {first.dir}/file; done")
    first.unmount()
    with sqlite3.connect(first.db) as database:
        columns = "nodes, started, seen, store_time, wait_time, requests, waits, errors"
        database.execute(f"""
            WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 9999)
            INSERT INTO job (id, {columns})
            SELECT CAST('job' || n AS BLOB), {columns} FROM number, job WHERE id = CAST('job0' AS BLOB)""")
        columns = "name, samples, minimum, maximum, sum, sum_of_squares, histogram"
        database.execute(f"""
            INSERT INTO job_counter (job, {columns})
            SELECT other.job, {columns} FROM job AS other, job_counter AS counter
            JOIN job AS one ON one.job = counter.job AND one.id = CAST('job0' AS BLOB)
            WHERE other.id LIKE 'job%' AND other.id != one.id""")
        database.executemany("INSERT INTO rule (position, name, command) VALUES (?, ?, ?)",
                             [(1000 + n, f"r{n}", f"start r{n} jobid={{job{n}.*}} rate={n + 1}") for n in range(1000)])
        database.execute("UPDATE rule SET position = 9999 WHERE name = 'default'")
    database.close()

    qos = mount(store, f"db={first.db},cache=none")
    texts = {name: qos.report(name) for name in ("job_stats", "jobs", "rules", "metrics", "state.json")}
    names = [f"job{n}" for n in range(10000)]
    assert set(re.findall(r"^- job_id: +(job\d+)$", texts["job_stats"], re.MULTILINE)) == set(names)
    assert set(re.findall(r"^job\d+", texts["jobs"], re.MULTILINE)) == set(names)
    assert len(texts["rules"].splitlines()) == 1002
    families = parse_metrics(texts["metrics"])
    assert len(families["qosfs_job_requests_total"][1]) == 51
    assert len(families["qosfs_rule_requests_total"][1]) == 1001
    assert len(texts["metrics"]) < 2 << 20
    wait_until(lambda: overtakes(qos, "status.json", "state.json"), what="a short report that is not behind the long one")
    as_job("job7.a", "cat", qos.dir / "file")
    assert next(rule["requests"] for rule in qos.state()["rules"] if rule["name"] == "r7") > 0
