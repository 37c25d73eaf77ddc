"""What an administrator sees and sets; what outlives the server; and a full disk below its database."""
import contextlib
import json
import os
import pathlib
import re
import resource
import socket
import stat
import subprocess
import time

import pytest

from harness import BUILD, SANITIZERS, TIMEOUT, USER, job_environment, of_threads, run, stopped, wait_until
from prometheus import parse_metrics
from wire import (CREDITS, FULL, M_CANCEL, M_ENQUEUE, M_GRANT, M_HELLO, M_RENEW, M_WELCOME, NOT_PERMITTED, OTHER_STORE,
                  REFUSED, WELCOME, frame, hello, message)


def state(server):
    status = json.loads(server.ctl("status", "--json"))
    status["mounts"] = json.loads(server.ctl("mounts", "--json"))
    return status


def mounts(server):
    return {mount["name"]: mount for mount in state(server)["mounts"]}


def metric(server, name):
    return float(re.search(rf"^qosfs_server_{re.escape(name)} (\S+)$", server.ctl("metrics"), re.MULTILINE)[1])


def test_mounts_and_what_they_have(server):
    one = server()
    assert state(one)["store"] is None and state(one)["mounts"] == []
    first, second = one.greet(0xabc, name=b"one:/qos"), one.greet(0xdef, name=b"two:/qos")
    for inode in range(5):
        first.enqueue(inode)
    second.enqueue(0)
    seen = mounts(one)
    assert list(seen) == ["one:/qos", "two:/qos"]  # the larger first
    assert (seen["one:/qos"]["id"], seen["one:/qos"]["credits"], seen["two:/qos"]["credits"]) == ("abc", 5, 1)
    assert seen["one:/qos"]["principal"] == "uid 0" and seen["one:/qos"]["connected"] >= 0
    now = state(one)
    assert (now["store"], now["credits"], now["grace"], now["database"]) == ("test:1", 6, False, None)
    assert now["pool"]["granted"] == sum(mount["bytes"] for mount in now["mounts"]) <= 6 * 250
    assert now["connections"]["welcomed"] == 2 and now["messages"]["sent"]["grant"] >= 6  # or repeated
    assert re.search(r"^one:/qos +abc ", one.ctl("mounts"), re.MULTILINE)
    text = one.ctl("status")
    assert "mounts    2 " in text and "database  works\n" in text
    assert re.search(r"^idle      credits go back after (more than )?\d.* [smhd] without use, on average$", text, re.MULTILINE)
    assert metric(one, "credits") == 6 and metric(one, 'sent_total{type="grant"}') >= 6
    assert metric(one, 'mount_credits{mount="one:/qos#abc"}') == 5
    second.close()
    wait_until(lambda: mounts(one)["two:/qos"]["connected"] is None, what="the second's end")
    with one.peer() as other:
        other.send(hello(77, store=b"another"))
        code, reason = other.refusal()
        assert code == OTHER_STORE and "test:1" in reason and "another" in reason
    assert state(one)["connections"]["refused"]["store differs"] == 1


def test_metrics_are_well_formed(server):
    """Whatever mounts call themselves."""
    one = server()
    names = ['one"two', "back\\slash", "{a=b}", "spaces and # signs", "\u00fc"]
    for owner, name in enumerate(names, start=10):
        one.greet(owner, name=name.encode()).enqueue(owner)
    samples = parse_metrics(one.ctl("metrics"))["qosfs_server_mount_credits"][1]
    assert len(samples) == len(names) and all(value >= 1 for value in samples.values())


def test_a_crowd_that_does_not_come_back_fills_no_log(server):
    """Of a peer that connects by many names, takes a credit by each, and is gone: all are counted; 20 are named, and one a second."""
    one = server("--lease", "3s", "--group", "1")
    begun = time.monotonic()
    for owner in range(100, 200):
        with one.greet(owner) as peer:
            assert peer.enqueue(owner).kind == M_GRANT
    wait_until(lambda: metric(one, "evictions_total") == 100, what="the end of all leases")
    assert metric(one, "credits") == 0
    assert 0 < one.log.count("was not heard of") <= 20 + time.monotonic() - begun


def test_a_client_that_has_given_all_back_is_not_evicted(server):
    one = server("--lease", "5s", "--group", "1")
    with one.greet(5, name=b"tidy") as peer:
        granted = peer.enqueue(7).granted
        peer.send(frame(CREDITS, peer.numbered(M_CANCEL, inode=7, granted=granted)))
        wait_until(lambda: metric(one, "credits") == 0, what="the cancel")
    wait_until(lambda: "tidy has left" in one.log, what="the end of its lease")
    assert metric(one, "evictions_total") == 0


def test_a_mount_may_come_back_by_another_name(server):
    one = server("--lease", "60s")
    one.greet(5, name=b"old").enqueue(1)
    one.greet(5, name=b"new")
    one.greet(6)  # whatever was handed over before is on the disk by now
    one.restart()
    assert "new" in mounts(one) and "old" not in mounts(one)


def test_settings_outlive_the_server(server):
    one = server("--limit", "64M")
    assert one.ctl("get", "limit") == "64M\n" and one.ctl("get", "hard-limit") == "80M\n"
    assert one.ctl("set", "limit", "1M", check=False).stderr == ""
    assert "from the server's next start on, until then lease=30s\n" in one.ctl("set", "lease=20s", check=False).stderr
    assert one.ctl("get", "hard-limit") == "1280K\n"
    assert "lease=30s (from the next start on: 20s)\n" in one.ctl("get")
    assert metric(one, "limit_bytes") == 1 << 20
    # What was set may be on its way to the disk still: it is there when a client is, that was handed over later.
    one.greet(5).close()
    one.restart()
    assert one.ctl("get", "limit") == "1M\n"
    assert json.loads(one.ctl("get", "lease", "--json")) | {"help": ""} == {
        "value": "30s", "next": "20s", "set": True, "help": ""}  # a mount is known that has 30 s
    one.ctl("set", "limit", "default")
    assert one.ctl("get", "limit") == "64M\n"


def test_a_cap_that_is_too_small(server):
    """For one change; the administrator that sets it is told so."""
    one = server()
    assert "note: with a cap below 1K changes wait for 30 s and fail" in one.ctl("set", "cap=1000", check=False).stderr
    assert one.ctl("set", "cap=1K", check=False).stderr == one.ctl("set", "cap=0", check=False).stderr == ""


@pytest.mark.parametrize("words, status, error", [
    (("set", "limit", "1P"), 1, "limit: 1P is not within 1K and 1T"),
    (("set", "adapt", "fair"), 1, "set adapt-capacity to a number of operations a second first"),
    (("set", "limmit", "1G"), 3, "did you mean 'limit'?"),
    (("set", "limit"), 2, "which value?"),
    (("set", "limit", "1 G"), 2, "'1 G' is not one word"),
    (("get", "speed"), 3, "'qosfsctl server get' lists those that can be changed while it runs"),
    (("evict", "99"), 3, "there is no mount 99"),
    (("evict", "node1"), 1, "the id of a mount, as 'qosfsctl server mounts' has it"),
    (("evict",), 2, "too few arguments"),
    (("evict", "9" * 80000), 1, "the request is longer than 70000 bytes"),
    (("set", "limit", "9" * 130000), 1, "the request is longer than 70000 bytes"),
    (("frobnicate",), 2, "there is no command 'server frobnicate'"),
])
def test_errors(server, words, status, error):
    done = server().ctl(*words, check=False)
    assert done.returncode == status and error in done.stderr and not done.stdout, done


def test_the_socket_of_mounts_is_asked(server):
    one = server()
    one.control = one.path
    done = one.ctl("status", check=False)
    assert done.returncode == 1 and f"{one.path}: this is no control socket" in done.stderr, done


def test_another_user_may_not_ask(server, tmp_path):
    one = server()
    assert stat.S_IMODE(one.control.stat().st_mode) == 0o600
    one.control.chmod(0o777)
    for folder in [tmp_path, *tmp_path.parents][:-1]:
        folder.chmod(folder.stat().st_mode | 0o011)
    with socket.socket(socket.AF_UNIX) as stranger:
        pid = os.fork()
        if pid == 0:
            os.setresuid(USER, USER, USER)
            stranger.connect(str(one.control))
            with contextlib.suppress(OSError):
                stranger.send(b"state\n")
                os._exit(len(stranger.recv(1)))  # 0: it was closed
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    assert "credits   0\n" in one.ctl("status")


def test_the_asker_is_stopped(server):
    """By Ctrl-Z, while the server is not heard of; both go on, and it answers."""
    one = server()
    command = [BUILD / "tools/qosfsctl", "server", "status", "--socket", one.control]
    with stopped(one.pid):
        asker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=job_environment(None, **SANITIZERS))
        wait_until(lambda: "unix_stream" in "".join(of_threads(asker.pid, "wchan").values()), what="its wait for the answer")
        with stopped(asker.pid):
            pass
    assert "credits   0\n" in asker.communicate(timeout=TIMEOUT)[0]


def test_hostile_requests(server):
    """Lines without an end, and rubbish: others are served."""
    one = server()
    with contextlib.ExitStack() as stack:
        for number in range(60):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(str(one.control))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.send([b"", b"x" * 1000, b"\xff\0\n", b"set limit\n", b"y" * 3000][number % 5])
        assert "credits   0\n" in one.ctl("status")


def test_so_many_are_served_at_once(server):
    """64; the others wait for one to end."""
    one = server()
    descriptors = pathlib.Path(f"/proc/{one.pid}/fd")
    most = len(os.listdir(descriptors)) + 64
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(100)]
        for peer in peers:
            peer.connect(str(one.control))
            peer.settimeout(TIMEOUT)
        wait_until(lambda: len(os.listdir(descriptors)) >= most, what="as many as it serves")
        for peer in peers[:20]:
            peer.sendall(b"state\n")
            assert peer.recv(3) == b"ok\n"
            assert len(os.listdir(descriptors)) <= most


def test_a_request_without_an_end_is_cut_off(server):
    one = server()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(one.control))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(16):  # more than the socket holds
                peer.sendall(b"x" * 65536)


def test_no_descriptor_is_left(server):
    """It says so, waits, and answers when there is one again."""
    one = server()
    taken = {int(name) for name in os.listdir(f"/proc/{one.pid}/fd")}
    limits = resource.prlimit(one.pid, resource.RLIMIT_NOFILE)
    least = min(set(range(len(taken) + 1)) - taken)
    resource.prlimit(one.pid, resource.RLIMIT_NOFILE, (least, limits[1]))
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(one.control))
        one.wait_log("control: cannot accept a connection: Too many open files")
        resource.prlimit(one.pid, resource.RLIMIT_NOFILE, limits)
        assert "credits   0\n" in one.ctl("status")


def test_few_descriptors_are_few_connections(server):
    """An administrator is served still, however low the limit."""
    one = server(descriptors=264)
    assert "connections=4096: there will be 40 at most, as a process may have 264 descriptors here" in one.log
    with contextlib.ExitStack() as stack:
        for owner in range(1, 41):
            stack.enter_context(one.greet(owner))
        with one.peer() as more:
            assert more.refusal()[0] == FULL
        assert "credits   0\n" in one.ctl("status")


def test_evicted_mount(server):
    one = server("--lease", "60s")
    first = one.greet(0xabc)
    first.enqueue(1)
    one.ctl("evict", "abc")
    kind, payload = CREDITS, b""
    while kind == CREDITS:  # what is repeated, as it was not acknowledged
        kind, payload = first.receive()
    assert (kind, payload[0]) == (REFUSED, NOT_PERMITTED)
    with one.peer() as again:
        again.send(hello(0xabc))
        code, reason = again.refusal()
        assert code == NOT_PERMITTED and "lease" in reason


def test_an_evicted_mount_comes_back_after_its_lease(server):
    one = server("--lease", "1s")
    first = one.greet(0xabc)  # which is not closed: as long as it is open, it can be evicted
    first.enqueue(1)
    one.ctl("evict", "abc")

    def welcome():
        with one.peer() as back:
            back.send(hello(0xabc))
            return back.receive()[0] == WELCOME
    wait_until(welcome, what="its coming back")
    wait_until(lambda: (state(one)["evictions"], state(one)["credits"]) == (1, 0), what="the end of its lease")


def test_restart_begins_with_a_grace(server):
    one = server("--lease", "60s")
    token = one.greet(1).enqueue(7, writes=1).granted
    one.greet(2)
    one.restart()
    now = state(one)
    assert (now["incarnation"], now["grace"], now["awaited"], now["credits"]) == (2, True, 2, 0)
    assert "grace     2 mounts are to come back first\n" in one.ctl("status")
    with one.peer() as other:  # those that are awaited have their store
        other.send(hello(77, store=b"another"))
        assert other.refusal()[0] == OTHER_STORE
    new = one.greet(3)
    new.send(frame(CREDITS, new.numbered(M_ENQUEUE, request=1, inode=7, reads=1, writes=1)))
    for owner in (1, 2):  # they have started anew themselves: they claim nothing
        assert state(one)["grace"] and state(one)["awaited"] == 3 - owner
        again = one.greet(owner, incarnation=2)
        again.send(frame(CREDITS, again.numbered(M_RENEW)))  # so it has come back, and this is no late HELLO
    granted = new.next_message(M_GRANT)
    assert granted.writes == 1 and granted.granted > token
    assert not state(one)["grace"]


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=1M", "none", place)
    yield place
    run("umount", "-l", place)


def fill(place):
    with open(place / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_start_on_a_full_disk(server, small_disk):
    server("--database", small_disk).finish()
    fill(small_disk)
    status, log = server("--database", small_disk, expect_failure=True)
    assert status == 1 and "server.db: cannot write to it: " in log
    assert "No space left on device" in log or "disk is full" in log


def test_full_disk(server, small_disk):
    """Known clients are served, new ones wait, the log and the status say so; all go on when there is room."""
    one = server("--database", small_disk)
    first = one.greet(1)
    fill(small_disk)
    new = []
    for owner in range(100, 140):  # until the room that SQLite has is used up
        peer = one.peer()
        peer.send(hello(owner))
        assert peer.receive()[0] == WELCOME
        peer.session = (1 << 32) + owner
        peer.send(frame(CREDITS, message(M_HELLO, peer.session)))
        new.append(peer)
    wait_until(lambda: metric(one, "database_failing") == 1, what="a full disk")
    assert "database is full" in state(one)["database"] or "disk is full" in state(one)["database"]
    assert first.enqueue(7, writes=1).kind == M_GRANT
    one.wait_log("mounts that are new wait until that is fixed")
    os.unlink(small_disk / "filler")
    assert all(peer.next_message(M_WELCOME) for peer in new)
    wait_until(lambda: metric(one, "database_failing") == 0, what="the database's recovery")
    one.wait_log("the database works again")
    one.restart()
    assert state(one)["awaited"] == 41


def test_an_idle_server_sleeps(server):
    """Where nothing is granted or given back, the pool's steps change nothing; a mount that is there and silent makes none."""
    one = server("--lease", "1h")
    one.greet(1).enqueue(5)
    since, before = time.monotonic(), None

    def has_slept():
        nonlocal since, before
        count = sum(int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])
                    for status in of_threads(one.pid, "status").values())
        if count != before:
            since, before = time.monotonic(), count
        return time.monotonic() - since >= 3
    wait_until(has_slept, what="three steps of the pool in which nothing wakes")
    assert metric(one, "granted_bytes") > 0
