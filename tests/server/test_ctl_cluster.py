"""qosfsctl cluster ... and the control socket: what it asks there, and what it makes of the answers. A thread of the test answers for the server."""
import contextlib
import json
import socket
import subprocess
import threading

import pytest

from harness import BUILD, REPOSITORY, SANITIZERS, TIMEOUT, job_environment, run

OK, FAILED, USAGE, NOT_FOUND = range(4)
CLASS = {"rule": "big", "class": "4711", "unit": "bytes", "limit": 200 << 20, "demand": 410 << 20, "served": 200 << 20, "in_force": 200 << 20,
         "level": 50 << 20, "share": "fair", "mounts": 2, "silent": 0}
MEMBER = {"mount": "node1:/qos", "demand": 300 << 20, "held": 100 << 20, "bound": 150 << 20, "is_silent": False}
ANSWERS = {
    "status": {"version": 7, "rules": 1, "epoch_ms": 100, "lease_ms": 1000, "floor_parts": 8, "mounts_known": 1, "mounts_connected": 0, "mounts_behind": 0,
               "mounts": [{"name": "node1:/qos", "id": "1f", "is_connected": False, "version": 6, "silent_s": None}], "more": 0},
    "rules": {"version": 7, "rules": [{"id": 5, "name": "big", "command": "start big jobid={*} bps=200M", "expires_s": None}]},
    "log": {"log": [{"time": "2026-11-28T12:00:00Z", "who": "uid 0", "command": "start big jobid={*} bps=200M", "version": 7}]},
    "jobs": {"classes": [CLASS], "more": 0},
    "why 4711": {"job": "4711", "nodes": 2, "weight": 1, "classes": [{**CLASS, "members": [MEMBER]}]},
    "job list": {"jobs": [{"id": "4711", "nodes": 2, "weight": 1, "expires_s": 3600}]},
}


class Answering:
    """A control socket. `answers`: request -> bytes; others are a server's answer to ANSWERS, or "ok". `requests` is what came."""

    def __init__(self, path):
        self.path, self.requests, self.answers = path, [], {}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                peer = self._socket.accept()[0]
                with peer, peer.makefile("rb") as lines:
                    request = lines.readline().decode().removesuffix("\n")
                    self.requests.append(request)
                    known = ANSWERS.get(request.removeprefix("cluster "))
                    peer.sendall(self.answers.get(request, b"ok\n" + (json.dumps(known).encode() if known else b"")))

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(TIMEOUT)


@pytest.fixture
def answering(tmp_path):
    made = Answering(tmp_path / "control")
    yield made
    made.close()


def ctl(answering, *words, status=OK):
    done = subprocess.run([BUILD / "tools/qosfsctl", "cluster", *words, "--socket", answering.path], text=True, capture_output=True, timeout=TIMEOUT,
                          check=False, env=job_environment(None, **SANITIZERS))
    assert done.returncode == status, done
    if status == OK:
        assert done.stderr == "", done
        return done.stdout
    return done.stderr


@pytest.mark.parametrize("words, request_line", [
    (("rule", "start", "big", "jobid={*}", "bps=200M", "share=hard"), "cluster rule start big jobid={*} bps=200M share=hard"),
    (("rule", "start", "two", "jobid={a b}&uid={7}", "rate=5"), "cluster rule start two jobid={a b}&uid={7} rate=5"),
    (("rule", "change", "big", "bps=1G"), "cluster rule change big bps=1G"),
    (("rule", "stop", "big"), "cluster rule stop big"),
    (("job", "set", "4711", "nodes=100", "expire=7d"), "cluster job set 4711 nodes=100 expire=7d"),
    (("job", "clear", "4711"), "cluster job clear 4711"),
    (("forget", r"node1:/a\x20b"), "cluster forget node1:/a b"),
])
def test_commands_are_passed_on(answering, words, request_line):
    assert ctl(answering, *words) == ""
    assert answering.requests == [request_line]


@pytest.mark.parametrize("words, asked, shown", [
    (("status",), "status", "away"),
    (("rule", "list"), "rules", "big   jobid={*}   bps=200M scope=cluster"),
    (("rule", "list", "--commands"), "rules", "qosfsctl cluster rule start big 'jobid={*}' bps=200M scope=cluster\n"),
    (("rule", "log"), "log", "uid 0"),
    (("jobs",), "jobs", "4711  big   200.0 MiB/s  410.0 MiB/s"),
    (("why", "4711"), "why 4711", "Held to 200.0 MiB/s by rule big over 2 mounts: this job wants 410.0 MiB/s and is served 200.0 MiB/s.\n"),
    (("job", "list"), "job list", "4711      2       1     1 h 0 m"),
])
def test_questions(answering, words, asked, shown):
    assert shown in ctl(answering, *words)
    if "--commands" not in words:
        assert json.loads(ctl(answering, *words, "--json")) == ANSWERS[asked]
    assert set(answering.requests) == {f"cluster {asked}"} | ({"cluster jobs"} if asked == "status" else set())


def test_mounts_of_each_job(answering):
    assert ctl(answering, "jobs", "--mounts").splitlines()[-1].split() == ["node1:/qos", "300.0", "MiB/s", "150.0", "MiB/s"]
    assert json.loads(ctl(answering, "jobs", "--mounts", "--json"))["classes"][0]["members"] == [MEMBER]
    answering.answers["cluster why 4711"] = b"2 there is no job 4711 any more\n"
    assert len(ctl(answering, "jobs", "--mounts").splitlines()) == 2


def test_a_live_table(answering):
    live = subprocess.Popen([BUILD / "tools/qosfsctl", "cluster", "jobs", "--watch=100ms", "--socket", answering.path], text=True,
                            stdout=subprocess.PIPE, env=job_environment(None, **SANITIZERS))
    try:
        lines = [live.stdout.readline() for _ in range(6)]
    finally:
        live.kill()
        live.communicate(timeout=TIMEOUT)
    assert lines[0].startswith("cluster  ") and "jobs under its rules: 1\n" in lines[0]
    assert lines[1:3] == lines[4:6]


@pytest.mark.parametrize("answer, status, words", [
    (b"1 permission denied: the rules of the cluster are changed by root\n", FAILED, "permission denied: the rules of the cluster"),
    (b"22 floor=60%: at most 50%\n", FAILED, "floor=60%: at most 50%"),
    (b"2 there is no rule evil\x1b[31m\n", NOT_FOUND, r"there is no rule evil\x1b[31m"),
    (b"nonsense", FAILED, "this is no control socket of qosfs-server"),
])
def test_refusals_have_the_words_of_the_server(answering, answer, status, words):
    answering.answers["cluster rule start big jobid={*} floor=60%"] = answer
    assert words in ctl(answering, "rule", "start", "big", "jobid={*}", "floor=60%", status=status)


def test_notes_are_shown(answering):
    answering.answers["cluster rule stop big"] = b"ok\n3 mounts are away\n"
    done = subprocess.run([BUILD / "tools/qosfsctl", "cluster", "rule", "stop", "big", "-s", answering.path], text=True, capture_output=True,
                          timeout=TIMEOUT, check=True, env=job_environment(None, **SANITIZERS))
    assert done.stderr == "qosfsctl cluster rule stop: note: 3 mounts are away\n"


def test_strange_answers(answering):
    for answer in (b"ok\n", b"ok\n[]", b'ok\n{"classes":[1]}', b'ok\n{"classes":'):
        answering.answers["cluster jobs"] = answer
        assert "is it of the same version as the server?" in ctl(answering, "jobs", status=FAILED)


def test_no_line_break_is_sent(answering):
    assert r"'rule start a jobid={*}\x0aset limit 1' has a line break" in ctl(answering, "rule", "start", "a", "jobid={*}\nset limit 1", status=USAGE)
    assert not answering.requests


def test_usage(answering):
    assert "give --mount or --socket, not both" in ctl(answering, "status", "-m", "/", status=USAGE)
    assert "give --commands or --json, not both" in ctl(answering, "rule", "list", "-c", "-j", status=USAGE)
    assert "did you mean 'cluster rule start'?" in ctl(answering, "rule", "strat", "big", status=USAGE)
    assert "which job?" in ctl(answering, "why", status=USAGE)
    assert "is no number of jobs" in ctl(answering, "jobs", "-n", "-1", status=USAGE)


def test_groups_say_what_is_in_them():
    for words, said in (("cluster",), "status, jobs, why, rule, job, forget"), (("cluster", "rule"), "list, start, change, stop, log"):
        done = subprocess.run([BUILD / "tools/qosfsctl", *words], text=True, capture_output=True, timeout=TIMEOUT, check=False)
        assert done.returncode == USAGE and f"qosfsctl: {' '.join(words)} what? One of: {said}\n" in done.stderr


def test_what_was_tried_is_said(tmp_path):
    """Without a mount and without a server: in a namespace where neither is."""
    script = 'umount -a -l -t fuse.qosfs 2>/dev/null; [ ! -d /run/qosfs ] || mount -t tmpfs none /run/qosfs; exec "$@"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", BUILD / "tools/qosfsctl", "cluster", "status"], text=True, capture_output=True,
                          cwd=tmp_path, timeout=TIMEOUT, check=False, env=job_environment(None, **SANITIZERS))
    assert done.returncode == NOT_FOUND, done
    assert done.stderr == ("qosfsctl cluster status: /run/qosfs/control.sock: no qosfs-server listens there; --socket names another; and before that, "
                           "of a mount: nothing is mounted with qosfs here; mount with 'mount.qosfs SRC DIR'\n")


@pytest.mark.parametrize("words, offered", [
    (("cluster", ""), {"status", "jobs", "why", "rule", "job", "forget"}),
    (("cluster", "rule", "st"), {"start", "stop"}),
    (("cluster", "rule", "stop", ""), {"big"}),
    (("cluster", "why", ""), {"4711"}),
    (("cluster", "job", "clear", "4"), {"4711"}),
    (("cluster", "forget", "n"), {"node1:/qos"}),
    (("cluster", "rule", "start", "new", "uid={1}", "bps", "=", "1M", "sh"), {"share="}),
    (("cluster", "job", "set", "4711", "n"), {"nodes="}),
    (("cluster", "jobs", "--m"), {"--mount", "--mounts"}),
])
def test_completion(answering, words, offered, tmp_path):
    """The program is one that asks this server."""
    program = tmp_path / "qosfsctl"
    program.write_text(f"""#!/bin/sh
case "$*" in help*) exec {BUILD / "tools/qosfsctl"} "$@" ;; *) exec {BUILD / "tools/qosfsctl"} "$@" --socket {answering.path} ;; esac
""")
    program.chmod(0o755)
    code = 'timeout() { shift; "$@"; }; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _qosfsctl; printf "%s\\n" "${COMPREPLY[@]}"'
    text = run("bash", "-c", code, REPOSITORY / "dist/qosfsctl.bash", program, *words, env=job_environment(None, **SANITIZERS))
    assert set(filter(None, text.splitlines())) == offered
