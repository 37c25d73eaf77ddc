"""Many processes at the same few names (tests/stress/stress.c), while the kernel forgets: nothing is mixed up, and
nothing is left when they are done.

QOSFS_STRESS_SECONDS says how long each storm lasts: 3 by default, 600 for a long search. Under ThreadSanitizer:

    dist/build build-tsan -Db_sanitize=thread
    QOSFS_BUILD=build-tsan QOSFS_STRESS_SECONDS=600 pytest tests/mount/test_races.py
"""
import contextlib
import os
import pathlib
import secrets
import signal
import stat
import threading

import pytest

from harness import TIMEOUT, as_job, drop_caches, start_job, wait_until

SECONDS = int(os.environ.get("QOSFS_STRESS_SECONDS", "3"))


@contextlib.contextmanager
def forgetting():
    """The kernel forgets what is not in use, again and again."""
    end = threading.Event()

    def drop():
        while not end.wait(0.2):
            drop_caches()

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def storm(qos, seed, jobs):
    """As several jobs at once, until time is over: they must find nothing."""
    programs = [qos.start_stress(job, SECONDS, seed + number) for number, job in enumerate(jobs)]
    found = "".join(program.communicate()[1] for program in programs)
    assert not found and not any(program.returncode for program in programs), found


def tree(root):
    """All that can be seen of a tree, but for times."""
    seen = {}
    for folder, folders, files in os.walk(root):
        for path in (pathlib.Path(folder, name) for name in folders + files):
            status = path.lstat()
            kind = stat.S_IFMT(status.st_mode)
            content = (os.readlink(path) if kind == stat.S_IFLNK else
                       path.read_bytes() if kind == stat.S_IFREG else b"")
            seen[str(path.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid, status.st_ino,
                                                 status.st_nlink if kind != stat.S_IFDIR else None, content)
    return seen


def descriptors(qos):
    """What the daemon holds open of the store; one that is being closed may be gone."""
    links = []
    for fd in pathlib.Path(f"/proc/{qos.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(fd))
    return sorted(link for link in links if link.startswith(str(qos.store.dir)))


@pytest.mark.parametrize("options", ["", "cache=none"])
def test_storm(store, mounter, options):
    with mounter(4 * TIMEOUT + 2 * SECONDS) as mount:
        weather(mount(store, options))


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_storm_while_shared(store, mounter):
    """By weight, with short periods."""
    with mounter(4 * TIMEOUT + 2 * SECONDS) as mount:
        weather(mount(store, "adapt,adapt_period=5ms"))


def weather(qos):
    before = descriptors(qos)
    qos.rule("start slow jobid={slow} rate=100 depth=5")
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    with forgetting():
        storm(qos, seed, ["quick", "other", "slow"])
    assert tree(qos.dir) == tree(qos.store.dir)
    wait_forgotten(qos, before)
    wait_until(lambda: all(job["waiting"] == job["running"] == 0 for job in qos.state()["jobs"]), what="the end of all")


def wait_forgotten(qos, before):
    def is_forgotten():
        drop_caches()
        return qos.state()["inodes"] == 1 and descriptors(qos) == before
    wait_until(is_forgotten, what="forgetting all")


@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_storm_with_few_descriptors(store, small):
    """Somebody walks through more files than may be open: those of the storm are known by handle again and again."""
    (store.dir / "many").mkdir()
    for number in range(1000):
        (store.dir / "many" / str(number)).touch()
    qos = small(store, files=600)
    before = descriptors(qos)
    walk = f"while :; do find {qos.dir}/many -size +1 || exit; done"
    with start_job("walker", "sh", "-c", walk, start_new_session=True) as walker:
        storm(qos, 1, ["quick", "other"])
        os.killpg(walker.pid, signal.SIGKILL)
    assert tree(qos.dir) == tree(qos.store.dir)
    wait_forgotten(qos, before)


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_killed_in_the_storm(store, mount):
    """Programs that are killed with a call under way leave nothing behind."""
    qos = mount(store)
    before = descriptors(qos)
    qos.rule("start slow jobid={slow} rate=50 depth=5")
    for _ in range(3):
        programs = [qos.start_stress(job, 60, 1) for job in ("quick", "slow")]
        wait_until(lambda: (qos.job("slow") or {}).get("waiting", 0) > 0, what="one that waits")
        for program in programs:
            os.killpg(program.pid, signal.SIGKILL)
        for program in programs:
            program.communicate()
    as_job(None, "rm", "-rf", *qos.dir.iterdir())
    wait_forgotten(qos, before)
    assert os.listdir(store.dir) == []
