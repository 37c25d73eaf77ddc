"""Rules of the cluster at a real server, by qosfsctl and its control socket."""
import json
import subprocess

import pytest

from harness import BUILD, SANITIZERS, TIMEOUT, job_environment
from wire import WELCOME, hello

OK, FAILED, USAGE, NOT_FOUND = range(4)


def ctl(server, *words, status=OK):
    done = subprocess.run([BUILD / "tools/qosfsctl", "cluster", *words, "--socket", server.control], text=True, capture_output=True, timeout=TIMEOUT,
                          check=False, env=job_environment(None, **SANITIZERS))
    assert done.returncode == status, done
    assert (done.stderr == "") == (status == OK), done
    return done.stdout if status == OK else done.stderr


@pytest.fixture
def cluster(server):
    return server()


def test_rules(cluster):
    assert ctl(cluster, "rule", "start", "big", "jobid={*}", "bps=200M") == ""
    assert ctl(cluster, "rule", "start", "backup", "jobid={backup.* b}&uid={7}", "bps=500M", "per=rule", "share=hard", "expire=2h") == ""
    assert ctl(cluster, "rule", "change", "big", "bps=400M") == ""
    listed = ctl(cluster, "rule", "list").splitlines()
    assert [line.split()[0] for line in listed] == ["RULE", "backup", "big"]
    assert "bps=500M per=rule scope=cluster share=hard" in listed[1] and "bps=400M scope=cluster" in listed[2]
    commands = ctl(cluster, "rule", "list", "--commands").splitlines()
    assert commands[0] == "qosfsctl cluster rule start big 'jobid={*}' bps=400M scope=cluster"
    assert commands[1].startswith("qosfsctl cluster rule start backup 'jobid={backup.* b}&uid={7}' bps=500M per=rule scope=cluster share=hard expire=")
    assert ctl(cluster, "status").startswith("rules     2, version 3 ")
    for name in ("backup", "big"):
        ctl(cluster, "rule", "stop", name)
    assert json.loads(ctl(cluster, "rule", "list", "--json"))["rules"] == []
    assert [line.split()[1] for line in ctl(cluster, "rule", "log").splitlines()] == ["VERSION", "5", "4", "3", "2", "1"]


@pytest.mark.parametrize("words, status, reason", [
    (("rule", "start", "a", "jobid={*}", "floor=60%"), FAILED, "from 0% to 50%"),
    (("rule", "start", "a", "jobid={*}", "bps=1M", "share=hard", "away=open"), FAILED, "away=open"),
    (("rule", "start", "a", "jobid={*}", "passthrough"), FAILED, "the cluster's rules have scope=cluster, without passthrough"),
    (("rule", "start", "a", "jobid={*}", "scope=mount"), FAILED, "scope=cluster"),
    (("rule", "change", "default", "rate=5"), FAILED, "the cluster's default bounds nothing"),
    (("rule", "change", "nope", "rate=5"), NOT_FOUND, "there is no rule"),
    (("job", "set", "4711", "nodes=0"), FAILED, "nodes: 0 is not between 1 and"),
    (("job", "set", "", "nodes=3"), USAGE, "is no job id"),
    (("job", "set", "a b", "nodes=3"), USAGE, "is no job id"),
    (("rule", "stop", "default"), FAILED, "the cluster's bounds nothing"),
    (("job", "clear", "4711"), NOT_FOUND, "4711"),
    (("forget", "node1:/qos"), NOT_FOUND, "no mount node1:/qos is known"),
])
def test_refusals(cluster, words, status, reason):
    assert reason in ctl(cluster, *words, status=status)
    if words[0] == "rule":
        assert "(refused: " in ctl(cluster, "rule", "log")


def test_jobs(cluster):
    ctl(cluster, "job", "set", "4711", "nodes=100", "expire=7d")
    assert ctl(cluster, "job", "list").splitlines()[1].split()[:3] == ["4711", "100", "1"]
    why = ctl(cluster, "why", "4711")
    assert why.startswith("No rule of the cluster has a class for job 4711 now") and "It counts as 100 nodes of weight 1 " in why
    ctl(cluster, "job", "clear", "4711")
    assert ctl(cluster, "job", "list").splitlines()[1:] == []


def test_it_survives_a_restart(cluster):
    ctl(cluster, "rule", "start", "big", "jobid={*}", "bps=200M", "share=hard")
    ctl(cluster, "job", "set", "4711", "nodes=100")
    before = ctl(cluster, "rule", "list"), ctl(cluster, "rule", "log")
    cluster.restart()
    assert (ctl(cluster, "rule", "list"), ctl(cluster, "rule", "log")) == before
    assert ctl(cluster, "job", "list").splitlines()[1].startswith("4711")


def test_a_mount_without_the_rules_is_named(cluster):
    with cluster.peer() as peer:
        peer.send(hello(0xabc, name=b"node1:/qos"))
        assert peer.receive()[0] == WELCOME
        ctl(cluster, "rule", "start", "big", "jobid={*}", "bps=200M")
        status = ctl(cluster, "status")
        assert "1 connected, 1 without these rules" in status and "node1:/qos  behind" in status, status


def test_a_live_table(cluster):
    assert ctl(cluster, "jobs").split() == ["JOB", "RULE", "SERVED", "WANTED", "LIMIT", "LEVEL", "MOUNTS", "IN", "FORCE", "SHARE"]
    assert json.loads(ctl(cluster, "jobs", "--mounts", "--json"))["classes"] == []
