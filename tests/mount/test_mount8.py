"""What mount(8) and fstab pass to mount.qosfs."""
import contextlib
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess

import pytest

from harness import (BUILD, FAILED, SANITIZERS, TIMEOUT, USAGE, USER, bound, daemon_of, entry, is_running, is_stopped,
                     job_environment, mount_qosfs, run, umount, wait_until)

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)


def test_fake(world, store, place, db):
    done = mount_qosfs(world, store.dir, place, "-f", "-o", f"db={db}")
    assert done.returncode == 0 and "Nothing is mounted" in done.stdout
    assert entry(place) is None and not db.exists()
    done = mount_qosfs(world, store.dir, place, "-f", "-o", f"db={db},policy=fair")
    assert done.returncode == FAILED and "no policy" in done.stderr


def test_sloppy(world, store, place, db):
    options = ["-o", f"bogus,db={db},more=1"]
    assert mount_qosfs(world, store.dir, place, *options).returncode == USAGE
    assert mount_qosfs(world, store.dir, place, *options, "-s", "-n").returncode == 0
    assert entry(place)


def test_type(world, store, place, db):
    assert mount_qosfs(world, store.dir, place, "-t", "qosfs", "-o", f"db={db}").returncode == 0
    assert entry(place)


def test_help_and_version(world, store):
    done = mount_qosfs(world, "--help")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("SRC DIR", "cache=", "threads=", "jobid_var=", "slots=", "policy=", "-f"):
        assert word in done.stdout
    assert mount_qosfs(world, "-h").stdout == done.stdout
    done = mount_qosfs(world, "-V")
    assert done.returncode == 0 and re.fullmatch(r"qosfs [0-9.]+, libfuse [0-9.]+\n", done.stdout)
    assert mount_qosfs(world, "--version").stdout == done.stdout


def test_namespace(world, store, place, db):
    """-N mounts in the mount namespace of another process."""
    with subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; cat"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        done = mount_qosfs(world, store.dir, place, "-N", other.pid, "-o", f"db={db}")
        assert done.returncode == 0, done.stderr
        assert entry(place, other.pid)[-3] == "fuse.qosfs"
        assert entry(place) is None
        run("nsenter", "-m", f"--target={other.pid}", "umount", place)
        other.stdin.close()
    done = mount_qosfs(world, store.dir, place, "-N", "/nonexistent", "-o", f"db={db}")
    assert done.returncode == FAILED and 'cannot enter the namespace "/nonexistent"' in done.stderr


# --- by mount(8) ---


@pytest.fixture
def installed(world):
    """What is to be installed of mount(8)'s helpers is where it looks: a copy of /usr/sbin lies over it, for this test."""
    real, copy = world.folder("sbin-real"), world.folder("sbin-copy")
    places = json.loads((BUILD / "meson-info/intro-installed.json").read_text()).values()
    helpers = [path.name for path in map(pathlib.Path, places) if path.match("sbin/*mount.*")]
    pathlib.Path("/run/mount").mkdir(exist_ok=True)
    with bound("/usr/sbin", real):
        for name in os.listdir(real):
            (copy / name).symlink_to(real / name)
        for name in helpers:
            (copy / name).unlink(missing_ok=True)
            (copy / name).symlink_to(world.programs / (name if name.startswith("umount.") else "mount.qosfs"))
        with bound(copy, "/usr/sbin"), bound(world.folder("run-mount"), "/run/mount"):
            yield


def mount8(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], text=True, capture_output=True, timeout=TIMEOUT,
                          env=job_environment(None, **SANITIZERS))


# --- umount(8) ---

def umount8(*arguments, **options):
    """umount(8), in the background: the Popen."""
    return subprocess.Popen(["umount", *map(str, arguments)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=job_environment(None, **SANITIZERS), **options)


def ended(process):
    """(status, what it said)."""
    output, error = process.communicate(timeout=TIMEOUT)
    return process.returncode, output + error


def table_of_mount8():
    table = pathlib.Path("/run/mount/utab")
    return table.read_text() if table.exists() else ""


@contextlib.contextmanager
def slow_disk(db):
    """Meanwhile the daemon cannot save: another program has the database."""
    with sqlite3.connect(db, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize("way", ["background", "foreground", "fstab"])
def test_umount_waits_for_the_daemon(installed, world, store, mount, place, db, way):
    """When umount(8) returns, the daemon has saved and let go of the store, which can be unmounted at once."""
    source = world.folder("source")
    run("mount", "-t", "tmpfs", "qosfs-test", source)
    if way == "foreground":
        qos = mount(type(store)(source, "tmpfs"))
        place, db, pid = qos.dir, qos.db, qos.pid
        wait_until(lambda: f"TARGET={place} " in table_of_mount8(), what="the entry for umount(8)")
    elif way == "fstab":
        fstab = world.folder("fstab") / "fstab"
        fstab.write_text(f"{source} {place} qosfs _netdev,db={db} 0 0\n")
        assert mount8("-T", fstab, place).returncode == 0
        assert "_netdev" in table_of_mount8()
        pid = daemon_of(place)
    else:
        assert mount_qosfs(world, source, place, "-o", f"db={db}").returncode == 0
        pid = daemon_of(place)
    for number in range(50):
        (place / f"file{number}").write_text("x")
    with slow_disk(db):
        helper = umount8(place)
        wait_until(lambda: entry(place) is None)
        assert helper.poll() is None and is_running(pid)
    assert ended(helper)[0] == 0
    assert not is_running(pid)
    umount(source)
    assert str(place) not in table_of_mount8()


def test_umount_says_what_it_waits_for(installed, world, store, place, db):
    assert mount_qosfs(world, store.dir, place, "-o", f"db={db}").returncode == 0
    pid = daemon_of(place)
    with slow_disk(db):
        helper = umount8(place)
        assert f"{place} is unmounted; its daemon (process {pid}) is still saving: waiting for its end" in helper.stderr.readline()
    assert ended(helper) == (0, "")
    assert not is_running(pid)


def test_umount_by_an_ordinary_user(installed, world, new_store, store, mount):
    qos = mount(store, user=USER)
    helper = umount8(qos.dir, user=USER, group=USER, extra_groups=[])
    assert ended(helper) == (0, "")
    assert not is_running(qos.pid) and not qos.is_mounted()
    qos = mount(store, user=USER)  # by root, which may not enter it
    assert ended(umount8(qos.dir)) == (0, "")
    assert not is_running(qos.pid)


def test_umount_of_one_that_hangs_or_is_dead(installed, world, store, mount):
    """Its daemon is not waited for in vain. (umount(8) itself asks one that hangs for its type, and waits.)"""
    qos = mount(store)
    os.kill(qos.pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(qos.pid))
    run(world.programs / "umount.fuse.qosfs", qos.dir)
    assert not qos.is_mounted()
    os.kill(qos.pid, signal.SIGCONT)
    qos = mount(store)
    qos.kill(clear=False)
    assert qos.is_mounted()
    assert ended(umount8(qos.dir))[0] == 0
    assert not qos.is_mounted()


def test_umount_of_one_of_two_places(installed, world, store, mount):
    """The mount goes on at the other, or where it was detached from while a program uses it: nothing is waited for."""
    qos, other = mount(store), world.folder("other")
    run("mount", "--bind", qos.dir, other)
    assert ended(umount8(other)) == (0, "") and is_running(qos.pid)
    (qos.dir / "file").write_text("x")
    with open(qos.dir / "file", encoding="utf-8") as file:
        status, error = ended(umount8(qos.dir))
        assert status != 0 and "busy" in error and qos.is_mounted()
        assert ended(umount8("-l", qos.dir)) == (0, "")
        assert is_running(qos.pid) and file.read() == "x"


# --- a mount after another ---

@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_a_new_mount_waits_for_the_old_ones_database(world, store, mount, end):
    """However long the old daemon saves, if its mount is gone; and says so."""
    qos = mount(store)
    qos.rule("start kept jobid={x} rate=7")
    os.kill(qos.pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(qos.pid))
    umount(qos.dir)
    again = mount(store, f"db={qos.db}", wait=False)
    again.expects_log("waiting for its end")
    wait_until(lambda: f"the daemon (process {qos.pid}) of the mount that was on \"{qos.dir}\" is still saving" in again.log)
    assert not again.is_mounted()
    if end == signal.SIGCONT:
        os.kill(qos.pid, end)
        qos.unmount()
    else:
        qos.kill(end)
    again.wait_mounted()
    assert again.get("nrs_tbf_rule").count("kept jobid={x} 7") == 1


def test_an_old_daemon_leaves_the_next_mount_alone(world, store, mount):
    """With a database of its own that is there before the old daemon has ended, and often has the same device number."""
    qos = mount(store)
    os.kill(qos.pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(qos.pid))
    umount(qos.dir)
    again = mount(store, place=qos.dir)
    os.kill(qos.pid, signal.SIGCONT)
    wait_until(lambda: not is_running(qos.pid))
    assert again.is_mounted() and again.state()["pid"] == again.pid
    again.unmount()
    qos.unmount()


def test_waiting_for_a_database_can_be_ended(world, store, mount):
    qos = mount(store)
    os.kill(qos.pid, signal.SIGSTOP)
    wait_until(lambda: is_stopped(qos.pid))
    umount(qos.dir)
    again = mount(store, f"db={qos.db}", wait=False)
    wait_until(lambda: "waiting for its end" in again.log)
    os.kill(again.pid, signal.SIGTERM)
    again.wait_failed()
    assert "stopped waiting for it" in again.log
    os.kill(qos.pid, signal.SIGCONT)


# --- mount(8) ---

def test_mount_t_qosfs(installed, store, place, db):
    done = mount8("-t", "qosfs", "-o", f"ro,noexec,_netdev,x-test,db={db},slots=5", store.dir, place)
    assert (done.returncode, done.stderr) == (0, "")
    line = entry(place)
    assert line[-3:-1] == ["fuse.qosfs", str(store.dir)]
    assert {"ro", "noexec"} <= set(line[5].split(","))
    assert os.getxattr(place, "user.qosfs.slots") == b"5"
    pid = daemon_of(place)
    run("umount", place)
    wait_until(lambda: not is_running(pid))


def test_mount_t_qosfs_flags(installed, store, place, db):
    assert mount8("-f", "-t", "qosfs", "-o", f"db={db}", store.dir, place).returncode == 0
    assert entry(place) is None
    done = mount8("-t", "qosfs", "-o", f"bogus,db={db}", store.dir, place)
    assert done.returncode != 0 and 'unknown option "bogus"' in done.stderr
    assert mount8("-n", "-s", "-v", "-t", "qosfs", "-o", f"bogus,db={db}", store.dir, place).returncode == 0
    assert entry(place)


def test_mount_as_the_kernel_shows_it(installed, store, place, db):
    """What /proc/mounts says mounts it too; a remount, which has that from there, is told what to do instead."""
    shown = "rw,relatime,user_id=0,group_id=0,default_permissions,allow_other"
    done = mount8("-t", "fuse.qosfs", "-o", f"{shown},db={db}", store.dir, place)
    assert (done.returncode, done.stderr) == (0, "")
    done = mount8("-o", "remount,ro", place)
    assert done.returncode != 0 and done.stderr.startswith("mount.qosfs: error: option remount: there is none; 'qosfsctl set'")


def test_fstab(installed, world, store, place, db):
    """A line of fstab, with a blank and a comma in its values, mounted by name and by mount -a."""
    strange = store.dir / "with blank"
    strange.mkdir()
    fstab = world.folder("fstab") / "fstab"
    source = str(strange).replace(" ", r"\040")
    fstab.write_text(f"{source} {place} qosfs rw,nodev,nofail,_netdev,x-systemd.requires=/,db={db},"
                     "jobid_var=cgroup:job_([0-9]{1\\,8}) 0 0\n")
    for words in (["-T", fstab, place], ["-a", "-T", fstab]):
        done = mount8(*words)
        assert done.returncode == 0, done.stderr
        assert entry(place)[-2] == source
        assert os.getxattr(place, "user.qosfs.jobid_var") == b"cgroup:job_([0-9]{1,8})"
        pid = daemon_of(place)
        run("umount", place)
        wait_until(lambda: not is_running(pid))


# As mount(8) lists them for all file systems, with what is theirs alone in fstab.
ANY_FILE_SYSTEM = """async atime noatime auto noauto defaults dev nodev diratime nodiratime dirsync exec noexec group iversion
noiversion mand nomand _netdev nofail relatime norelatime strictatime nostrictatime lazytime nolazytime suid nosuid silent loud
owner ro rw sync user nouser users nosymfollow private shared X-mount.mkdir x-systemd.automount context=a fscontext=a defcontext=a
rootcontext=a nosuid=recursive ro=recursive""".split()


@pytest.mark.parametrize("option", ANY_FILE_SYSTEM)
def test_options_of_any_file_system(installed, store, place, db, option):
    """Accepted, or refused in words that name the reason."""
    done = mount8("-t", "qosfs", "-o", f"{option},db={db}", store.dir, place)
    if done.returncode == 0:
        assert entry(place) and done.stderr == ""
    else:
        assert option in ("iversion", "mand", "strictatime", "lazytime")
        assert done.stderr.startswith(f"mount.qosfs: error: option {option}: ")


def test_fstab_lifts_what_the_source_forbids(installed, world, store, place, db):
    """By words that mount(8) passes on, as it does not pass on suid, dev and exec."""
    run("mount", "-t", "tmpfs", "-o", "nosuid,nodev,noexec", "top", store.dir)
    try:
        fstab = world.folder("fstab") / "fstab"
        fstab.write_text(f"{store.dir} {place} qosfs allow_suid,allow_exec,db={db} 0 0\n")
        done = mount8("-T", fstab, place)
        assert done.returncode == 0, done.stderr
        assert {"nosuid", "nodev", "noexec"} & set(entry(place)[5].split(",")) == {"nodev"}
    finally:
        run("umount", "-l", store.dir)


def test_fstab_user(installed, world, store, db):
    """`user` in fstab is understood when mount(8) passes it on."""
    place = world.folder("place")
    fstab = world.folder("fstab") / "fstab"
    fstab.write_text(f"{store.dir} {place} qosfs user,noauto,db={db} 0 0\n")
    done = mount8("-T", fstab, place)
    assert done.returncode == 0, done.stderr
    assert {"nosuid", "nodev", "noexec"} <= set(entry(place)[5].split(","))
    pid = daemon_of(place)
    run("umount", place)
    wait_until(lambda: not is_running(pid))
