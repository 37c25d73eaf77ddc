"""Mount tests: real mounts of the program, used by real programs.

Run by root, `pytest tests/mount`; the programs come from $QOSFS_BUILD (default build/). The run takes a mount namespace
of its own: nothing that a test mounts is seen outside, and all of it goes when the run ends. /dev/fuse is open to
ordinary users. Two of them exist: USER and OTHER, with a group of the same number each. Without /dev/fuse or root the
run fails; nothing is skipped.

A test asks for fixtures:

    def test_hello(store, mount):
        qos = mount(store)
        (qos.dir / "hello").write_text("world")
        assert (store.dir / "hello").read_text() == "world"

    store     where to mount over: .dir (an empty folder, mode 1777) and .kind. The test runs twice, on 'tmpfs' and on
              'ext4' (acl and user_xattr on); for one alone, or on 'btrfs', or on 'ramfs', which has no xattrs:
                  @pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
    new_store a factory of more: new_store("ext4")
    mount     a factory: mount(store, options="cache=none,slots=4", user=None, expect_failure=False, arguments=())
              mounts in the foreground, as a child, and returns when the mount is there. user=USER: by that user.
              arguments: more words of the command line. place: where, by default on a new folder. prefix: words before the
              program's, as of nsenter(1). Each mount has a database of its own; mount(store, f"db={first.db}") shares one.
              With expect_failure=True the mount must be refused; look at .log and .exit_status. With wait=False the factory
              returns at once; the test calls .wait_mounted() or .wait_failed().

A mount offers
    .dir .store .pid .db .user      Path, Store, the daemon's process id, Path of the database, uid or None
    .log                            what the daemon has written to stderr
    .rule("start hog jobid={7} rate=10")   a rule command, by xattr; OSError if refused
    .set("slots", 4) .get("slots")         tunables, by xattr
    .report("jobs") .state() .job("7")     files of .qosfs: text, state.json parsed, one job of it or None
    .wait_booked("7", close=1, flush=1)    until the job's totals have all that it did, these too
    .start_stress("7", seconds, seed)      tests/stress/stress.c in the background
    .ctl("rule", "list", check=True)       qosfsctl's output; check=False gives the CompletedProcess
    .unmount() .kill(signal=SIGKILL)       end it early; .exit_status tells how. kill(clear=False) leaves a dead mount
    .expects_log(regex)                    lines of the log that are meant to be there
At the end of the test each is unmounted, must end with status 0, and its log must hold no warning, error or report of a
sanitizer that was not announced. Before kill() it must not have ended, nor a sanitizer have said anything; after it nothing
is demanded. A test that takes too long loses its daemons when they have nothing to do any more, so that it fails and does not hang.

    faulty    a store that fails or hangs as it is told: see faulty.py
    capped    a factory: capped(store, rate=300) makes a store over `store` that serves so few operations a second
    small     as mount, with files=300: so many may the daemon open
    cluster   a factory of a lock server and mounts that share it: see cluster.py
    twins     a store and a mount over it, to do the same on both and demand the same outcome: see twins.py. The test runs
              for three actors: root, an ordinary user below root's mount, and the owner of a mount
    mounter   `with mounter(timeout) as mount`: for mounts that several tests share
    world     the run's namespace: .folder(name) makes an empty one, .programs has the programs
    of_connection(mount, "waiting")  a number that the kernel tells of a mount (fusectl)
    place     a folder, and db the path of a database, for a mount that the test makes by hand: mount_qosfs()

Helpers, from harness:
    as_user(uid, gid, groups, function)    runs function in a child as that user; result or exception come back
    as_job("7", "dd", ...)                 runs a program with SLURM_JOB_ID=7 (and no other scheduler's variable);
                                           must succeed; its output. start_job(): the same in the background, a Popen
    with running(start_job(...)):          kills it at the end of the block
    job_environment("7")                   the environment alone
    run("tar", ...)                        runs a program that must succeed; its output
    wait_until(predicate, timeout)         polls; tests never sleep
    with stopped(pid):                     SIGSTOP, which has reached all threads; is_stopped(pid) tells
    umount(path, flags)                    umount2(2)
The JobID of a process is read from the environment that it was started with: to act as a job from Python,
as_job("7", sys.executable, "-c", CODE).
"""
import contextlib
import os
import shutil
import subprocess

import pytest

from cluster import Cluster
from faulty import Faulty
from harness import Mount, Store, World, as_user, daemon_of, entry, is_running, run, umount, wait_until
from twins import ACTORS, make_twins
from watchdog import watchdog

TEST_TIMEOUT = 180  # seconds; a test of a busy machine may take longer, as long as its daemons get on
LONG_FORM = float(os.environ.get("QOSFS_COHERENCE_SECONDS", 0))  # of the tests that have one

_world = None


def pytest_sessionstart(session):
    global _world
    if session.config.option.collectonly:
        return
    try:
        _world = World()
    except (RuntimeError, OSError, AssertionError) as error:
        pytest.exit(f"cannot run the mount tests: {error}", returncode=3)


@pytest.hookimpl(trylast=True)  # after the last fixture's end
def pytest_sessionfinish():
    if _world is not None:
        _world.close()


@pytest.fixture(scope="session")
def world():
    """The run's namespace; for tests that need more than a store and a mount."""
    return _world


@pytest.fixture
def new_store():
    made = []

    def make(kind="tmpfs"):
        made.append(Store(_world.store(kind), kind))
        return made[-1]

    yield make
    for store in made:
        shutil.rmtree(store.dir, ignore_errors=True)


@pytest.fixture(params=["tmpfs", "ext4"])
def store(request, new_store):
    return new_store(request.param)


@contextlib.contextmanager
def _mounter(timeout=TEST_TIMEOUT):
    mounts = []

    def make(store, options="", user=None, expect_failure=False, arguments=(), place=None, prefix=(), wait=True):
        made = Mount(_world, store, options, user, arguments, place, prefix)
        mounts.append(made)
        if expect_failure:
            made.wait_failed()
        elif wait:
            made.wait_mounted()
        return made

    with watchdog(mounts, timeout):
        yield make
    failures = []
    for made in reversed(mounts):
        try:
            made.finish()
        except (AssertionError, OSError) as error:
            failures.append(str(error))
    assert not failures, "\n".join(failures)


@pytest.fixture(scope="session")
def mounter():
    """`with mounter(timeout) as mount`: for mounts that several tests share."""
    return _mounter


@pytest.fixture
def mount(new_store):  # the stores are cleared after the mounts are gone
    with _mounter() as make:
        yield make


@pytest.fixture
def capped(mount):
    """Makes a store over `store` that serves so few operations a second, in order of arrival: a qosfs of its own."""
    def make(store, rate=300):
        below = mount(store, "cache=none,slots=127")
        below.rule(f"start all jobid={{*}} rate={rate} depth=20 per=rule")
        return Store(below.dir, store.kind)
    return make


@pytest.fixture
def faulty(new_store):
    """A store that fails as it is told: see faulty.py."""
    made = Faulty(_world, new_store().dir)
    with contextlib.ExitStack() as stack:
        stack.callback(made.close)
        stack.callback(made.mend)
        yield made


@pytest.fixture
def small(mount, monkeypatch):
    """As mount, but the daemon may open so many files."""
    def make(store, options="", files=300, **more):
        start = subprocess.Popen

        def limited(command, **keywords):
            if "mount.qosfs" in str(command):
                command = ["prlimit", f"--nofile={files}", *command]
                if more.get("user") is None:  # root could raise it again
                    command = ["setpriv", "--bounding-set=-sys_resource", *command]
            return start(command, **keywords)
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", limited)
            return mount(store, options, **more)
    return make


@pytest.fixture
def cluster(new_store):
    with contextlib.ExitStack() as servers, _mounter(TEST_TIMEOUT + LONG_FORM) as mount:
        def make(store=None, mounts=2, lease=30, tcp=False, options="", server_options=()):
            made = Cluster(_world, mount, store or new_store(), lease, tcp, options, server_options)
            servers.callback(made.close)
            for _ in range(mounts):
                made.add()
            made.wait_up()
            return made
        yield make


@pytest.fixture(params=ACTORS)
def twins(request, store, mount):
    return make_twins(request.param, store, mount)


@pytest.fixture(scope="session")
def of_connection(world):
    """A number that the kernel tells of a mount."""
    folder = world.folder("connections")
    run("mount", "-t", "fusectl", "fusectl", folder)

    def read(qos, name):
        device = as_user(qos.user or 0, qos.user or 0, [], lambda: os.stat(qos.dir).st_dev)
        return int((folder / str(os.minor(device)) / name).read_text())
    yield read
    umount(folder)


@pytest.fixture
def place(world):
    """A folder to mount on; at the end, nothing is mounted there and no daemon of it runs."""
    path = world.folder("place")
    yield path
    while entry(path):
        pid = daemon_of(path)
        umount(path)
        wait_until(lambda: not is_running(pid), what="the end of the daemon")


@pytest.fixture
def db(world):
    """The path of a database."""
    return world.folder("db") / "qosfs.db"
