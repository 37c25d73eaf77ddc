"""What rules do to real programs: which one waits, which does not, and when the wait ends.

No test here measures time. A rule of one byte a second lets one read of some KiB pass and is then in debt for an hour.
Whatever waits for it waits until the test lifts the rule, and whatever ends did not have to wait.
"""
import os
import socket
import subprocess
import sys

import pytest

from harness import USER, as_job, job_environment, start_job, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

BLOCK = 4096
SPENT = "bps=1 depth=1:1"  # one request passes, and leaves a debt of an hour


@pytest.fixture
def qos(store, mount):
    qos = mount(store, "cache=none")
    for name in ("file", "other"):
        (store.dir / name).write_bytes(b"x" * BLOCK)
        (store.dir / name).chmod(0o666)
    return qos


def reading(qos, name="file"):
    return ["dd", f"if={qos.dir / name}", "of=/dev/null", f"bs={BLOCK}", "count=1", "status=none"]


def writing(qos, name="file"):
    return ["dd", "if=/dev/zero", f"of={qos.dir / name}", f"bs={BLOCK}", "count=1", "conv=notrunc", "status=none"]


def begin(qos, name, job, command, **identity):
    """Starts a program: it, and whether it waits for the rule."""
    before = qos.rule_state(name)["waiting"]
    process = start_job(job, *command, **identity)
    wait_until(lambda: process.poll() is not None or qos.rule_state(name)["waiting"] > before, what="going or waiting")
    return process, process.poll() is None


def lift(qos, command, processes):
    """Lifts the rule: all that waited ends well."""
    qos.rule(command)
    assert [process.wait(60) for process in processes] == [0] * len(processes)


def identity(user, group):
    return {"user": user, "group": group, "extra_groups": []}


SAME = identity(USER, USER)
PROBES = {  # when `spender` of USER has read: the job, its user, and what it does; they share nothing else
    "job": ("spender", identity(20001, 20001), reading),
    "uid": ("a", identity(USER, 20002), reading),
    "gid": ("b", identity(20003, USER), reading),
    "none": ("c", identity(20004, 20004), reading),
    "write": ("spender", SAME, writing),
}


@pytest.mark.parametrize("per, waiting", [
    ("jobid", {"job", "write"}),
    ("uid", {"uid", "write"}),
    ("gid", {"gid", "write"}),
    ("rule", {"job", "uid", "gid", "none", "write"}),
    ("jobid+opcode", {"job"}),
])
def test_per_says_which_requests_share_a_bucket(qos, per, waiting):
    for name in PROBES:  # a file each, so that no lock of the kernel's makes one wait for another
        (qos.store.dir / name).write_bytes(b"x" * BLOCK)
        (qos.store.dir / name).chmod(0o666)
    qos.rule(f"start r opcode={{data}} {SPENT} per={per}")
    as_job("spender", *reading(qos), **SAME)
    found, processes = set(), []
    for name, (job, who, action) in PROBES.items():
        process, is_waiting = begin(qos, "r", job, action(qos, name), **who)
        processes.append(process)
        if is_waiting:
            found.add(name)
    lift(qos, "stop r", processes)
    assert found == waiting


HOST = socket.gethostname()


@pytest.mark.parametrize("conditions, matches", [
    ("jobid={node[10-19].a}", True),
    ("jobid={node[1-2].a}", False),
    ("jobid={x *12.a}", True),
    (f"host={{{HOST}}}", True),
    (f"host={{{HOST}x}}", False),
    ("uid={12000-12005}", True),
    ("uid={12000}", False),
    ("gid={[12001-12001]}", True),
    ("opcode={read}", True),
    ("opcode={data}&uid={0}", False),
    ("uid={0},opcode={data}&jobid={node*}", True),
    ("uid={0}&jobid={node*}", False),
    (r"jobid={node12\.a}", True),
])
def test_conditions(qos, conditions, matches):
    qos.rule(f"start r {conditions} rate=none")
    as_job("node12.a", *reading(qos), **SAME)
    assert (qos.rule_state("r")["requests"] > 0) == matches


def test_newest_first_and_rank(qos):
    qos.rule("start a jobid={j} rate=none")
    qos.rule("start b jobid={j*} rate=none")
    as_job("j", *reading(qos))
    assert qos.rule_state("a")["requests"] == 0 and qos.rule_state("b")["requests"] > 0
    qos.rule("change a rank=b")
    before = qos.rule_state("b")["requests"]
    as_job("j", *reading(qos))
    assert qos.rule_state("a")["requests"] > 0
    assert qos.rule_state("b")["requests"] - before <= 1, "the first program's close may come late"


def test_default_bounds_what_nothing_else_matches(qos):
    qos.rule("start free jobid={free} rate=none")
    qos.rule(f"change default {SPENT}")
    as_job("any", *reading(qos))
    process, is_waiting = begin(qos, "default", "any", reading(qos))
    assert is_waiting
    as_job("free", *reading(qos))
    lift(qos, "change default bps=none", [process])


@pytest.mark.parametrize("command", ["change above rank=tight", "change tight bps=100M", "stop tight"])
def test_change_reaches_what_waits(qos, command):
    """A rank, a rate and a stop reach those that are queued already (docs/reference/rules.md, "Unlike Lustre")."""
    qos.rule("start above jobid={j} rate=none")
    qos.rule(f"start tight jobid={{j}}&opcode={{data}} {SPENT}")
    as_job("j", *reading(qos))
    process, is_waiting = begin(qos, "tight", "j", reading(qos))
    assert is_waiting
    lift(qos, command, [process])


def test_expiry_lets_go_what_waits(qos):
    qos.rule(f"start soon jobid={{j}}&opcode={{data}} {SPENT}")
    as_job("j", *reading(qos))
    process, is_waiting = begin(qos, "soon", "j", reading(qos))
    assert is_waiting
    lift(qos, "change soon expire=1s", [process])
    wait_until(lambda: [rule["name"] for rule in qos.state()["rules"]] == ["default"], what="the expiry")
    assert qos.job("j")["wait"][0]["rule"] == "soon"


def test_dry_run_delays_nothing(qos):
    qos.rule(f"start dry jobid={{j}}&opcode={{data}} {SPENT} dryrun=1")
    for _ in range(5):
        as_job("j", *reading(qos))
    state = qos.rule_state("dry")
    assert state["requests"] == 5 and state["dryrun_waits"] == 4 and state["waits"] == 0
    assert qos.job("j")["waits"] == 0
    qos.rule("change dry dryrun=0")
    process, is_waiting = begin(qos, "dry", "j", reading(qos))
    if not is_waiting:  # its bucket was full again
        process, is_waiting = begin(qos, "dry", "j", reading(qos))
    assert is_waiting
    lift(qos, "change dry dryrun=1", [process])


# A job in debt for an hour: whatever of this had to wait would never end.
CLOSER = """
import fcntl, os, sys
folder, file = sys.argv[1:]
directory = os.open(folder, os.O_RDONLY)
first = os.open(file, os.O_RDWR)
second = os.dup(first)
fcntl.lockf(first, fcntl.LOCK_EX)
fcntl.flock(directory, fcntl.LOCK_EX)
os.write(first, b"x" * 4096)
print("wrote", flush=True)
fcntl.lockf(first, fcntl.LOCK_UN)
fcntl.flock(directory, fcntl.LOCK_UN)
os.close(second)
os.close(first)
os.close(directory)
"""


def test_what_must_not_wait_does_not(qos):
    """flush, release, releasedir and unlocking of a job in debt, and the end of a process with open files."""
    qos.rule(f"start tight jobid={{j}} {SPENT}")
    closer = ["timeout", "60", sys.executable, "-c", CLOSER, qos.dir, qos.dir / "file"]
    assert as_job("j", *closer) == "wrote\n"
    process, is_waiting = begin(qos, "tight", "j", ["ls", qos.dir], stdout=subprocess.DEVNULL)
    assert is_waiting, "the debt is there"
    lift(qos, "stop tight", [process])
    wait_until(lambda: qos.job("j")["operations"]["flush"]["samples"] >= 2, what="the flushes")


def test_killed_while_it_waits(qos):
    qos.rule(f"start tight jobid={{j}} {SPENT}")
    as_job("j", *reading(qos))
    processes = [begin(qos, "tight", "j", reading(qos))[0] for _ in range(5)]
    for process in processes:
        process.kill()
    assert [process.wait(60) for process in processes] == [-9] * 5
    wait_until(lambda: qos.rule_state("tight")["waiting"] == 0, what="the end of the waits")


def test_reason_is_there_for_a_shell(qos):
    """setfattr says the errno, and last_error why."""
    for command, errno_words, reason in (
            ("start x colour={red}", "Invalid argument", "colour"),
            ("start sixteencharacter jobid={a}", "File name too long", "sixteencharacter"),
            ("start default jobid={a}", "File exists", "default"),
            ("stop nothing", "No such file or directory", "nothing"),
            ("stop default", "Operation not permitted", "default")):
        done = subprocess.run(["setfattr", "-n", "user.qosfs.nrs_tbf_rule", "-v", command, qos.dir],
                              capture_output=True, text=True, env=job_environment(None, LC_ALL="C"))
        assert done.returncode != 0 and errno_words in done.stderr, command
        assert reason in qos.get("last_error")
    assert [rule["name"] for rule in qos.state()["rules"]] == ["default"]
    assert not [name for name in os.listxattr(qos.store.dir) if "qosfs" in name]
