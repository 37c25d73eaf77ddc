"""What is there again after a remount or a crash, and what is refused because the database is no good."""
import ctypes
import errno
import hashlib
import os
import signal
import sqlite3

import pytest

from harness import USER, as_job, query, run, saved_requests, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

AT_FDCWD, AT_HANDLE_FID = -100, 0x200
HANDLE_MAX = 128


def rule_names(qos):
    return [rule["name"] for rule in qos.state()["rules"]]


def touch(qos, count):
    """A job that makes files."""
    for number in range(count):
        as_job("worker", "touch", qos.dir / f"file{number}")
    qos.wait_booked("worker", close=count)


def prepare(qos):
    """Rules in an order of their own, one that expires, tunables, and a job that did something."""
    qos.rule("start first jobid={a b.*} rate=100 bps=1M per=uid")
    qos.rule("start second uid={5} rate=10 expire=3600")
    qos.rule("start third gid={5} rate=10 rank=first")
    qos.rule("change default rate=7777")
    qos.set("slots", 9)
    qos.set("nrs_policies", "jrr")
    qos.set("jobid_name", "%j?%e")
    touch(qos, 5)


def assert_all_there(qos, state):
    """What `state` had is there again."""
    now = qos.state()
    for old, new in zip(state["rules"], now["rules"], strict=True):
        for field in ("name", "conditions", "options"):
            assert new[field] == old[field]
    expiring = next(rule for rule in now["rules"] if rule["name"] == "second")
    assert 3500 < expiring["expires_in"] <= 3600
    assert now["tunables"] == state["tunables"]
    assert next(policy["name"] for policy in now["policies"] if policy["state"] == "started") == "jrr"
    old, new = next(job for job in state["jobs"] if job["id"] == "worker"), qos.job("worker")
    for field in ("operations", "requests", "errors", "waits", "read_bytes", "write_bytes"):
        assert new[field] == old[field], field
    assert new["started"] == pytest.approx(old["started"], abs=1)


def test_remount(store, mount):
    first = mount(store)
    prepare(first)
    state = first.state()
    assert rule_names(first) == ["second", "third", "first", "default"]
    first.unmount()
    assert_all_there(mount(store, f"db={first.db}"), state)


def file_handle(path, flags):
    """name_to_handle_at(2): what an NFS server would give to its clients."""
    handle = ctypes.create_string_buffer(HANDLE_MAX.to_bytes(4, "little"), 8 + HANDLE_MAX)
    mount_id = ctypes.c_int()
    if ctypes.CDLL(None, use_errno=True).name_to_handle_at(AT_FDCWD, os.fsencode(path), handle, ctypes.byref(mount_id), flags) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return handle.raw[8:8 + int.from_bytes(handle.raw[:4], "little")]


def test_a_handle_is_no_other_files_after_a_remount(store, mount):
    """NFS exports no mount, but kernels before 6.9 let it: an old handle must be stale."""
    (store.dir / "file").touch()
    handles = set()
    for _ in range(3):
        qos = mount(store)
        with pytest.raises(OSError) as caught:
            file_handle(qos.dir / "file", 0)
        assert caught.value.errno == errno.EOPNOTSUPP
        handles.add(file_handle(qos.dir / "file", AT_HANDLE_FID))
        qos.unmount()
    assert len(handles) == 3


def test_what_a_job_waited_for(store, mount):
    """By the rule's name, also where the rule is another, or none, after the remount."""
    first = mount(store, "cache=none")
    (store.dir / "file").touch()
    for name in ("kept", "gone"):
        first.rule(f"start {name} jobid={{{name}}} rate=200 depth=1")
        as_job(name, "sh", "-c", f"for i in 1 2 3 4 5; do cat {first.dir}/file; done")
        first.wait_booked(name)
    first.rule("stop gone")
    before = {name: first.job(name)["wait"] for name in ("kept", "gone")}
    assert all(wait[0]["rule"] == name and wait[0]["count"] > 0 for name, wait in before.items())
    first.unmount()
    second = mount(store, f"db={first.db},cache=none")
    for name, waits in before.items():
        after = second.job(name)["wait"]
        assert [(wait["rule"], wait["count"]) for wait in after] == [(wait["rule"], wait["count"]) for wait in waits]


def test_crash(store, mount):
    """Killed, the mount has lost no rule and no tunable, and of totals the last seconds at most."""
    first = mount(store)
    prepare(first)
    state = first.state()
    requests = first.job("worker")["requests"]
    wait_until(lambda: saved_requests(first.db, "worker") == requests, what="saving the totals")
    first.kill(signal.SIGKILL)
    assert_all_there(mount(store, f"db={first.db}"), state)


def test_crash_right_after_a_set(store, mount):
    """What a set said to be done is there, however soon the crash comes."""
    first = mount(store)
    first.rule("start hog jobid={x} rate=1")
    first.kill(signal.SIGKILL)
    second = mount(store, f"db={first.db}")
    assert rule_names(second) == ["hog", "default"]
    second.rule("stop hog")
    second.kill(signal.SIGKILL)
    assert rule_names(mount(store, f"db={first.db}")) == ["default"]


def test_expired_meanwhile(store, mount):
    first = mount(store)
    first.rule("start soon jobid={x} rate=1 expire=3600")
    first.unmount()
    with sqlite3.connect(first.db) as database:
        database.execute("UPDATE rule SET expires = 1 WHERE name = 'soon'")
    database.close()
    assert rule_names(mount(store, f"db={first.db}")) == ["default"]


def test_expired_while_mounted(store, mount):
    """A rule that has gone by itself goes from the database too: a clock set back does not revive it."""
    qos = mount(store)
    qos.rule("start soon jobid={x} rate=1 expire=100ms")
    qos.rule("start later jobid={x} rate=1 expire=1h")
    wait_until(lambda: rule_names(qos) == ["later", "default"], what="the expiry")

    def saved():
        return [name for name, in query(qos.db, "SELECT name FROM rule ORDER BY position")]

    wait_until(lambda: saved() == ["later", "default"], what="saving that")


def test_option_wins_and_is_not_saved(store, mount):
    first = mount(store)
    first.set("slots", 9)
    first.unmount()
    second = mount(store, f"db={first.db},slots=3")
    assert second.get("slots") == "3"
    second.unmount()
    assert mount(store, f"db={first.db}").get("slots") == "9"


def test_clear_is_kept(store, mount):
    first = mount(store)
    touch(first, 1)
    (first.dir / ".qosfs/job_stats").write_text("clear")
    first.unmount()
    again = mount(store, f"db={first.db}").job("worker")
    assert again is None or again["requests"] == 0


# --- what is refused ---

def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def used_database(store, mount):
    qos = mount(store)
    prepare(qos)
    qos.unmount()
    return qos.db


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def scribble(path):
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096))


def empty(path):
    os.truncate(path, 0)


def replace(path):
    path.write_bytes(os.urandom(20000))


def make_newer(path):
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1000")
    database.close()


def make_foreign(path):
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs (name TEXT)")
    database.close()


@pytest.mark.parametrize("spoil, words", [
    (truncate, ["damaged", "left as it is"]),
    (scribble, ["damaged"]),
    (empty, ["damaged"]),
    (replace, ["damaged"]),
    (make_newer, ["version 1000", "newer"]),
    (make_foreign, ["another program"]),
])
def test_bad_database_is_refused_and_left_alone(store, mount, spoil, words):
    path = used_database(store, mount)
    spoil(path)
    before = digest(path)
    refused = mount(store, f"db={path}", expect_failure=True)
    for word in [str(path), *words]:
        assert word in refused.log
    assert digest(path) == before
    assert sorted(os.listdir(path.parent)) == ["qosfs.db", "qosfs.db.lock"]


def test_database_that_is_gone(store, mount):
    """What cannot be kept is refused, in words, and changes nothing; the mount goes on."""
    qos = mount(store)
    elsewhere = qos.db.with_name("elsewhere.db")
    qos.db.rename(elsewhere)
    for words in (["set", "slots", "7"], ["rule", "start", "hog", "jobid={x}", "rate=1"]):
        done = qos.ctl(*words, check=False)
        assert done.returncode == 1 and f"database {qos.db} was removed" in done.stderr and "put it back" in done.stderr
    assert qos.state()["tunables"]["slots"] == "64" and rule_names(qos) == ["default"]
    elsewhere.rename(qos.db)
    qos.set("slots", 7)
    qos.unmount()
    assert mount(store, f"db={qos.db}").state()["tunables"]["slots"] == "7"


def test_saved_rule_that_is_no_rule(store, mount):
    path = used_database(store, mount)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE rule SET command = 'start first colour={red}' WHERE name = 'first'")
    database.close()
    refused = mount(store, f"db={path}", expect_failure=True)
    assert "colour={red}" in refused.log and str(path) in refused.log


def test_one_mount_a_database(store, mount, new_store):
    first = mount(store)
    first.rule("start hog jobid={x} rate=1")
    refused = mount(new_store(), f"db={first.db}", expect_failure=True)
    assert "another mount" in refused.log
    assert rule_names(first) == ["hog", "default"]


def test_folder_that_cannot_be_written(store, mount, world):
    os.chown(store.dir, USER, USER)
    folder = world.folder("readonly", 0o755)
    refused = mount(store, f"db={folder}/qosfs.db", user=USER, expect_failure=True)
    assert str(folder) in refused.log and "writable" in refused.log
    assert os.listdir(folder) == []


def test_full_disk(store, mount, world):
    """A set that cannot be saved is refused, with nothing changed; the mount goes on."""
    disk = world.folder("disk")
    run("mount", "-t", "tmpfs", "-o", "size=512k", "none", disk)
    qos = mount(store, f"db={disk}/qosfs.db")
    qos.expects_log("full|No space")
    qos.rule("start known jobid={x} rate=1")
    ballast = disk / "ballast"
    with pytest.raises(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    taken = ["default", "known"]
    with pytest.raises(OSError) as caught:
        for number in range(2000):
            qos.rule(f"start r{number} jobid={{{'x' * 200}}} rate=1")
            taken.append(f"r{number}")
    assert caught.value.errno == errno.ENOSPC
    names = rule_names(qos)
    assert sorted(names) == sorted(taken)
    assert "full" in qos.get("last_error") or "space" in qos.get("last_error")
    (qos.dir / "file").write_text("the mount works")
    ballast.unlink()
    qos.rule("start later jobid={x} rate=1")
    assert rule_names(qos) == ["later", *names]
