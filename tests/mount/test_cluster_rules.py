"""Rules of the cluster at the mounts: what users ask the lock server, and what comes of a server that is away."""
import errno
import json
import os
import signal
import subprocess
import time

import pytest

from harness import TIMEOUT, error_of, of_threads, start_job, wait_until

ASK = "import os, sys; print(os.getxattr(sys.argv[1], 'user.qosfs.cluster:' + sys.argv[2]).decode())"
PATIENCE = 10  # s: QOS_ADMIN_PATIENCE


def tell(qos, command):
    qos.set("cluster", command)


def ask(qos, what):
    return qos.get(f"cluster:{what}")


def start_asking(qos, what, **options):
    """A process that asks."""
    return start_job("asker", "python3", "-c", ASK, qos.dir, what, stderr=subprocess.PIPE, text=True, **options)


def waits_for_fuse(pid):
    """Whether a request of the process waits for the daemon's answer."""
    return "request_wait_answer" in of_threads(pid, "wchan").values()


# --- asking ---

def test_mount_alone_has_no_rules_of_the_cluster(store, mount):
    qos = mount(store)
    assert error_of(tell, qos, "rule start big jobid={*} rate=10") == errno.EOPNOTSUPP
    assert "no lock server" in qos.get("last_error")
    assert error_of(ask, qos, "status") == errno.EOPNOTSUPP


@pytest.mark.parametrize("what", ["rule stop big", "job clear 4711", "", "statuses"])
def test_only_questions_are_read(cluster, what):
    """A read may be sent twice, so it changes nothing."""
    qos = cluster(mounts=1).mounts[0]
    assert error_of(ask, qos, what) == errno.EINVAL
    assert "why JOB" in qos.get("last_error")


@pytest.mark.parametrize("command, code", [(b"", errno.EINVAL), (b"rule\x01", errno.EINVAL), (b"rule\xff", errno.EINVAL),
                                           (b"a\0b", errno.EINVAL), (b"a" * 16385, errno.E2BIG)])
def test_bad_texts_are_refused_by_the_mount(cluster, command, code):
    qos = cluster(mounts=1).mounts[0]
    assert error_of(os.setxattr, qos.dir, "user.qosfs.cluster", command) == code
    assert len(qos.get("last_error")) > 10
    assert error_of(os.getxattr, qos.dir, "user.qosfs.cluster") == errno.ENODATA
    assert error_of(os.removexattr, qos.dir, "user.qosfs.cluster") == errno.EPERM
    assert "user.qosfs.cluster" not in os.listxattr(qos.dir)


def test_server_that_is_away(cluster):
    both = cluster(mounts=1)
    both.expects_trouble()
    qos = both.mounts[0]
    both.server.kill()
    wait_until(lambda: qos.state()["server"]["state"] != "up", what="the end of the connection")
    assert error_of(ask, qos, "status") == errno.ENOTCONN
    assert "the lock server is away" in qos.get("last_error")


def test_server_that_does_not_answer(cluster):
    """A killed process ends at once, another one waits until its time is over; a server that dies answers nobody."""
    both = cluster(mounts=1, lease=60)
    both.expects_trouble()
    qos = both.mounts[0]
    os.getxattr(qos.dir, "user.qosfs.slots")  # the root is known
    both.server.signal(signal.SIGSTOP)
    begun = time.monotonic()
    killed, late = start_asking(qos, "status"), start_asking(qos, "status")
    for asker in killed, late:
        wait_until(lambda asker=asker: waits_for_fuse(asker.pid), what="a question")
    killed.kill()
    killed.wait(PATIENCE / 2)
    assert time.monotonic() - begun < PATIENCE
    late.wait(PATIENCE + TIMEOUT)
    assert f"[Errno {errno.ETIMEDOUT}]" in late.stderr.read()
    assert time.monotonic() - begun >= PATIENCE
    assert "has not answered" in qos.get("last_error")
    with start_asking(qos, "status") as lost:
        wait_until(lambda: waits_for_fuse(lost.pid), what="a question")
        both.server.kill()
        lost.wait(TIMEOUT)
        assert f"[Errno {errno.ENOTCONN}]" in lost.stderr.read()


def test_unmount_answers_what_waits(cluster):
    """A lazy unmount, and the end of the daemon, with a question under way."""
    both = cluster(mounts=1, lease=60)
    both.expects_trouble()
    qos = both.mounts[0]
    os.getxattr(qos.dir, "user.qosfs.slots")
    both.server.signal(signal.SIGSTOP)
    with start_asking(qos, "status") as asker:
        wait_until(lambda: waits_for_fuse(asker.pid), what="a question")
        os.kill(qos.pid, signal.SIGTERM)
        asker.wait(TIMEOUT)
        assert asker.returncode != 0
    wait_until(lambda: not qos.is_mounted(), what="the unmount")
    both.server.signal(signal.SIGCONT)


# --- rules in force ---

LIMIT = 8_000_000  # bytes a second of both mounts
FLOOR = LIMIT / 10 / 8  # of each: a tenth, in eight parts


def budget(qos, unit="bytes"):
    """The mount's part of the one class that there is."""
    classes = qos.state().get("cluster", {}).get("classes", [])
    return next((item for item in classes if item["unit"] == unit), None)


def rates(both):
    return [item["rate"] if item else 0 for item in map(budget, both.mounts)]


def have_shares(both):
    """Whether both have more than what is theirs without a server, so both have found it."""
    return min(rates(both)) > 2 * FLOOR and sum(rates(both)) > 0.8 * LIMIT


def start_writers(both):
    """A process on each mount that writes as fast as it may, as one job."""
    return [start_job("hog", "sh", "-c", "while dd if=/dev/zero of=$0 bs=64K count=10000 oflag=direct; do :; done",
                      qos.dir / f"file{number}", stderr=subprocess.DEVNULL, start_new_session=True)
            for number, qos in enumerate(both.mounts)]


def moved(both):
    """Bytes that the mounts have written for the job."""
    jobs = [qos.job("hog") for qos in both.mounts]
    return sum(job["write_bytes"] for job in jobs if job)


def test_rule_holds_for_the_sum_of_mounts(cluster):
    """It is the server's that lends the rates: without it each mount has its floor, and with it again their shares."""
    both = cluster(lease=60)
    both.expects_trouble()
    tell(both.mounts[0], f"rule start big jobid={{hog}} bps={LIMIT} per=rule")
    for qos in both.mounts:
        wait_until(lambda qos=qos: qos.state().get("cluster", {}).get("count") == 1, what="the rule")
    assert '"name":"big"' in ask(both.mounts[1], "rules")
    writers = start_writers(both)
    try:
        wait_until(lambda: have_shares(both), what="their shares")
        before, begun = moved(both), time.monotonic()
        wait_until(lambda: moved(both) - before >= 3 * LIMIT, what="as much as the rule lets through in 3 s")
        assert (moved(both) - before) / (time.monotonic() - begun) < 1.15 * LIMIT
        both.server.kill()
        begun = time.monotonic()
        wait_until(lambda: rates(both) == [FLOOR, FLOOR], what="the floors")
        assert time.monotonic() - begun > 0.5  # the leases held so long
        both.server.start()
        wait_until(lambda: have_shares(both), what="their shares again")
    finally:
        for writer in writers:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()
    tell(both.mounts[1], "rule stop big")
    for qos in both.mounts:
        wait_until(lambda qos=qos: qos.state().get("cluster", {}).get("count") == 0, what="the rule's end")


def test_mount_that_ends_gives_its_floor_back(cluster):
    """With share=hard a floor is kept for a mount that is cut off. One that ends in order says so, and one that is killed does not."""
    three = cluster(mounts=3)
    three.expects_trouble()
    first, second, third = three.mounts

    def known():
        return json.loads(ask(first, "status"))["mounts_known"]
    tell(first, "rule start big jobid={hog} rate=1000 share=hard")
    wait_until(lambda: known() == 3, what="the floors of three mounts")
    third.unmount()
    wait_until(lambda: known() == 2, what="the floor of the mount that has ended")
    second.kill()
    wait_until(lambda: json.loads(ask(first, "status"))["mounts_connected"] == 1, what="the end of the connection")
    assert known() == 2
