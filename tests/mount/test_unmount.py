"""The end of a mount that is in use: jobs at work and requests that wait, and every way to unmount.

QOSFS_UNMOUNT_ROUNDS says how often each: once by default, 100 for a long search.
"""
import contextlib
import errno
import os
import signal

import pytest

from harness import GONE, MNT_DETACH, TIMEOUT, USER, as_user, run, umount, wait_until

ROUNDS = int(os.environ.get("QOSFS_UNMOUNT_ROUNDS", "1"))
MNT_FORCE = 1
JOBS = ("quick", "slow", "crawl")

pytestmark = [pytest.mark.parametrize("store", ["tmpfs"], indirect=True),
              pytest.mark.parametrize("round_number", range(ROUNDS))]


def count(qos, job, what):
    return (as_user(qos.user or 0, qos.user or 0, [], lambda: qos.job(job)) or {}).get(what, 0)


@contextlib.contextmanager
def load(qos):
    """Programs of three jobs, two of which are kept waiting, each in a directory of its own. They leave the mount when
    they get an error, or when this ends."""
    user = {} if qos.user is None else {"user": qos.user, "group": qos.user, "extra_groups": []}

    def throttle():
        for job in ("slow", "crawl"):
            qos.rule(f"start {job} jobid={{{job}}} rate=2 depth=1")
    as_user(qos.user or 0, qos.user or 0, [], throttle)
    for job in JOBS:
        (qos.store.dir / job).mkdir(0o777)
        (qos.store.dir / job).chmod(0o777)
    programs = [qos.start_stress(job, 600, seed, job, **user)
                for seed, job in enumerate(JOBS)]
    try:
        for job in ("slow", "crawl"):
            wait_until(lambda: count(qos, job, "waiting") > 0, what=f"one of job {job} that waits")
        wait_until(lambda: count(qos, "quick", "requests") > 100, what="work")
        yield programs
    finally:
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
        for program in programs:
            program.communicate()


def assert_told(programs):
    """Each program has ended by itself, and knows why."""
    for program in programs:
        lines = program.communicate(timeout=TIMEOUT)[1].splitlines()
        assert lines and all(GONE.search(line) for line in lines), lines


def assert_ended(qos):
    qos.unmount()  # its end, its status and its log
    assert qos.exit_status == 0 and not qos.is_mounted()


def try_umount(path, flags):
    """While programs are in the mount it may say that it is busy, and that it is none if its daemon was quicker."""
    try:
        umount(path, flags)
    except OSError as error:
        assert error.errno in (errno.EBUSY, errno.EINVAL)


def test_busy(store, mount, round_number):
    """A plain unmount is refused, and nobody notices."""
    qos = mount(store)
    with load(qos) as programs:
        with pytest.raises(OSError) as caught:
            umount(qos.dir)
        assert caught.value.errno == errno.EBUSY
        assert all(program.poll() is None for program in programs)
        before = count(qos, "quick", "requests")
        wait_until(lambda: count(qos, "quick", "requests") > before, what="further work")
    assert_ended(qos)


def test_forced(store, mount, round_number):
    qos = mount(store)
    with load(qos) as programs:
        try_umount(qos.dir, MNT_FORCE)
        assert_told(programs)
    assert_ended(qos)


def test_lazy(store, mount, round_number):
    """Those in the mount are served on until they leave."""
    qos = mount(store)
    with load(qos) as programs:
        umount(qos.dir, MNT_DETACH)
        assert not qos.is_mounted()
        assert all(program.poll() is None for program in programs)
    assert_ended(qos)


@pytest.mark.parametrize("user", [None, USER])
def test_fusermount(store, mount, round_number, user):
    os.chown(store.dir, user or 0, user or 0)
    qos = mount(store, user=user)
    with load(qos):
        who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        run("fusermount3", "-u", "-z", qos.dir, **who)
        assert not qos.is_mounted()
    assert_ended(qos)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("user", [None, USER])
def test_signal(store, mount, round_number, user, number):
    os.chown(store.dir, user or 0, user or 0)
    qos = mount(store, user=user)
    with load(qos) as programs:
        qos.kill(number, clear=False)
        assert_told(programs)
    assert_ended(qos)


def test_signal_after_lazy(store, mount, round_number, world):
    """What is at the place by then is not the daemon's to unmount."""
    qos = mount(store)
    with load(qos) as programs:
        umount(qos.dir, MNT_DETACH)
        run("mount", "-t", "tmpfs", "none", qos.dir)
        try:
            qos.kill(signal.SIGTERM, clear=False)
            assert_told(programs)
            assert qos.is_mounted(), "the daemon has unmounted what was not its own"
        finally:
            umount(qos.dir)
    assert_ended(qos)
