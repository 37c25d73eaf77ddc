"""Policies and slots under real programs: nothing lost, nothing let go early, no job in the way of another.

As in test_rules.py, a rule of one byte a second makes a job wait until the test lifts it. A store that hangs
is another mount with such a rule for one user.
"""
import json
import os
import subprocess

import pytest

from harness import OTHER, USER, as_job, run, start_job, thread_names, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

BLOCK = 4096
SPENT = "bps=1 depth=1:1"


def make_files(folder, count):
    for number in range(count):
        (folder / f"file{number}").write_bytes(bytes([number]) * BLOCK)
        (folder / f"file{number}").chmod(0o666)


def read(qos, number):
    return ["dd", f"if={qos.dir}/file{number}", f"bs={BLOCK}", "count=1", "status=none"]


def policies(qos):
    return {policy["name"]: (policy["state"], policy["queued"]) for policy in qos.state()["policies"]}


def test_switching_lets_nothing_go(store, mount):
    """What a policy held when it was left still waits for its tokens (docs/reference/rules.md, "Unlike Lustre")."""
    make_files(store.dir, 10)
    qos = mount(store, "cache=none")
    qos.rule(f"start tight jobid={{held}}&opcode={{read}} {SPENT}")
    as_job("held", *read(qos, 0))
    held = [start_job("held", *read(qos, n), stdout=subprocess.PIPE) for n in range(1, 10)]
    wait_until(lambda: qos.rule_state("tight")["waiting"] == 9, what="the reads")
    for name in ("fifo", "grr", "jrr"):
        qos.set("nrs_policies", name)
        assert policies(qos)["tbf"] == ("stopping", 9) and qos.rule_state("tight")["waiting"] == 9
        as_job("held", *read(qos, 0))  # a new one is the new policy's
    wait_until(lambda: policies(qos)["fifo"][0] == "stopped", what="the end of fifo")  # a reply comes before its end
    qos.set("nrs_policies", "tbf")
    assert policies(qos)["tbf"] == ("started", 9)
    late = start_job("held", *read(qos, 0), stdout=subprocess.PIPE)
    wait_until(lambda: policies(qos)["tbf"] == ("started", 10), what="the late read")
    qos.set("nrs_policies", "fifo")
    assert [process.poll() for process in [*held, late]] == [None] * 10
    qos.rule("stop tight")
    for number, process in zip([*range(1, 10), 0], [*held, late]):
        assert process.communicate(timeout=60)[0] == bytes([number]) * BLOCK
        assert process.returncode == 0
    wait_until(lambda: policies(qos)["tbf"][0] == "stopped", what="the end of tbf")


def test_switching_under_load(store, mount):
    """fio verifies what two jobs write while policies, slots and rules change under them."""
    qos = mount(store, "cache=none")
    qos.rule("start limited jobid={limited} rate=3000")
    fio = ["fio", "--rw=randwrite", "--bs=4k", "--size=4m", "--numjobs=3", "--verify=crc32c", "--do_verify=1",
           "--ioengine=psync", "--verify_fatal=1", "--output-format=json", "--loops=2", f"--directory={qos.dir}",
           "--verify_state_save=0"]
    jobs = [start_job(name, *fio, f"--name={name}", stdout=subprocess.PIPE) for name in ("limited", "free")]
    rounds = 0
    while any(job.poll() is None for job in jobs):
        qos.set("nrs_policies", ("fifo", "jrr", "tbf", "grr")[rounds % 4])
        qos.set("slots", (1, 2, 16)[rounds // 4 % 3])
        qos.rule(f"change limited rate={3000 + rounds}")
        rounds += 1
    for job in jobs:
        result = json.loads(job.stdout.read())
        job.stdout.close()
        assert job.returncode == 0
        assert all(one["error"] == 0 and one["write"]["total_ios"] == 2048 for one in result["jobs"])
    assert rounds > 10
    qos.set("nrs_policies", "tbf")
    left = {name: ("stopped", 0) for name in ("fifo", "grr", "jrr")}
    wait_until(lambda: policies(qos) == left | {"tbf": ("started", 0)},
               what="the end of all that waited")
    wait_until(lambda: all(job["waiting"] == 0 for job in qos.state()["jobs"]), what="the jobs' end")


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("policy", ["fifo", "grr", "jrr", "tbf"])
def test_few_slots(store, mount, slots, policy):
    make_files(store.dir, 8)
    qos = mount(store, f"cache=none,slots={slots},threads={slots + 1},policy={policy}")
    tree = store.dir / "tree"
    for number in range(20):
        (tree / str(number)).mkdir(parents=True)
    jobs = [start_job(f"job{n % 3}", "sh", "-c", f"cd {qos.dir} && for i in $(seq 20); do cat file{n} && find tree; done",
                      stdout=subprocess.PIPE) for n in range(8)]
    texts = [job.communicate(timeout=100)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * 8
    assert [text.count(bytes([n])) >= 20 * BLOCK for n, text in enumerate(texts)] == [True] * 8


def test_a_reply_holds_no_slot(store, mount):
    """A process that has its reply finds the slot free, also where it takes the CPU from the thread that replied."""
    make_files(store.dir, 1)
    pinned = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]
    qos = mount(store, "cache=none,slots=1", prefix=pinned)
    as_job("alone", *pinned, "chrt", "--fifo", "1",
           "dd", f"if={qos.dir}/file0", "of=/dev/null", "bs=1", f"count={BLOCK}", "status=none")
    job = qos.job("alone")
    assert job["operations"]["read"]["samples"] >= BLOCK
    assert job["waits"] == 0


def test_a_reply_needs_no_further_reader(store, mount):
    """The thread that replied reads next, also where the process that has its reply takes the CPU from it: no other is
    made for that."""
    make_files(store.dir, 1)
    pinned = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]
    qos = mount(store, "cache=none", prefix=pinned)
    as_job("alone", *pinned, "chrt", "--fifo", "1",
           "dd", f"if={qos.dir}/file0", "of=/dev/null", "bs=1", f"count={BLOCK}", "status=none")
    assert thread_names(qos.pid).count("reader") <= 8


@pytest.mark.parametrize("policy", ["fifo", "grr", "jrr", "tbf"])
def test_hanging_store_stops_one_job_alone(store, mount, new_store, policy):
    """All of a job's reads hang in the store. It does not get the last slot: another job goes on."""
    make_files(store.dir, 12)
    inner = mount(store, "cache=none")
    inner.rule(f"start hang uid={{{USER}}}&opcode={{read}} {SPENT} per=rule")
    as_job("x", *read(inner, 0), user=USER, group=USER)
    qos = mount(inner, f"cache=none,slots=4,threads=5,policy={policy}")
    hung = [start_job("hung", *read(qos, n), user=USER, group=USER, stdout=subprocess.PIPE) for n in range(10)]
    wait_until(lambda: inner.rule_state("hang")["waiting"] == 3 and qos.job("hung")["waiting"] == 7, what="the hanging reads")
    # What was answered a moment ago may still be about to give its slot back.
    wait_until(lambda: (qos.state()["slots"]["running"], qos.state()["slots"]["held"]) == (3, 7), what="three slots")
    for number in range(12):
        out = subprocess.run(read(qos, number), capture_output=True, check=True, timeout=60).stdout
        assert out == bytes([number]) * BLOCK
    run("ls", "-la", qos.dir, user=OTHER, group=OTHER)
    assert "hung" in qos.report("jobs") and "(slots)" in qos.report("jobs")
    hung.pop().kill()  # one that is held, or one in the store
    inner.rule("stop hang")
    for number, process in enumerate(hung):
        assert process.communicate(timeout=60)[0] == bytes([number]) * BLOCK
    wait_until(lambda: qos.state()["slots"]["held"] == 0, what="the end")
