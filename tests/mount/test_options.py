"""The command line: every option, mistyped ones, and the background."""
import errno
import os
import pathlib
import re
import resource
import select
import shutil
import socket
import stat
import subprocess
import time

import pytest

from harness import (FAILED, MNT_DETACH, REPOSITORY, SANITIZERS, TIMEOUT, USAGE, USER, as_job, as_user, bound, daemon_of, entry,
                     is_running, job_environment, mount_qosfs, mount_syscall, run, umount, wait_until)

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)


# --- the background ---


def test_background(world, store, place, db):
    """The command returns when the mount answers; it says nothing, and holds nothing of its starter's."""
    reader, writer = os.pipe()
    (store.dir / "file").write_text("content")
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db}", pass_fds=[writer])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    os.close(writer)
    assert select.select([reader], [], [], 0)[0] and os.read(reader, 1) == b""  # the daemon has not kept the other end
    os.close(reader)
    assert (place / "file").read_text() == "content"
    line = entry(place)
    assert line[-3:-1] == ["fuse.qosfs", str(store.dir)]
    assert "default_permissions" in line[-1] and "allow_other" in line[-1]
    pid = daemon_of(place)
    assert os.readlink(f"/proc/{pid}/cwd") == f"/proc/{pid}/fd"  # not the starter's
    assert os.getsid(pid) == pid
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)} == {"/dev/null"}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(world, store, place, db, closed):
    """Started without some of the standard streams, it takes nothing of its own for one of them."""
    (store.dir / "file").write_text("content")
    run("bash", "-c", f'exec "$@" {closed}', "bash", world.programs / "mount.qosfs", store.dir, place, "-o", f"db={db}",
        env=job_environment(None, **SANITIZERS))
    assert (place / "file").read_text() == "content"
    pid = daemon_of(place)
    assert {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)} == {"/dev/null"}


def test_verbose(world, store, place, db):
    """It says what it does, and nothing of what its libraries do."""
    done = mount_qosfs(world, store.dir, place, "-v", "-o", f"db={db},store=x,server=unix:{db.parent}/none")
    assert done.returncode == 0
    assert f"{store.dir} is mounted on {place}" in done.stderr
    assert "Socket" not in done.stderr


@pytest.mark.parametrize("path, reason", [("none", "no qosfs-server listens there"),
                                          ("silent", "it has not answered within 5.00 s")])
def test_a_server_that_is_away(world, store, place, db, path, reason):
    """Where the mount is made it is said, in a line; it is made all the same."""
    (store.dir / "file").write_text("content")
    address = f"{db.parent}/{path}"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{db.parent}/silent")
        silent.listen()
        done = mount_qosfs(world, store.dir, place, "-o", f"db={db},store=x,server=unix:{address}")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (f"mount.qosfs: warning: lock server unix:{address}: {reason}; it is tried again, and "
                           "meanwhile the mount works and caches nothing (see 'qosfsctl status')\n")
    assert (place / "file").read_text() == "content"


# --- what is refused ---


@pytest.mark.parametrize("words, reason", [
    ([], "SRC is missing"),
    (["/tmp"], "DIR is missing"),
    (["/tmp", "/mnt", "/third"], '"/third" is one argument too many'),
    (["/tmp", ""], "DIR is empty"),
    (["/tmp", "/mnt", "-o"], "option -o needs an argument"),
    (["/tmp", "/mnt", "-x"], 'unknown option "-x"; \'mount.qosfs --help\' lists them\n'),
    (["/tmp", "/mnt", "--cache=none"], 'unknown option "--cache=none"; did you mean "-o cache"?'),
    (["/tmp", "/mnt", "-o", "cahce=none"], 'unknown option "cahce=none"; did you mean "cache"?'),
    (["/tmp", "/mnt", "-o", "ro,slts=4"], 'unknown option "slts=4"; did you mean "slots"?'),
    (["/tmp", "/mnt", "-o", "alow_other"], 'did you mean "allow_other"?'),
    (["/tmp", "/mnt", "-o", "jobid_var=cgroup:/job_([0-9]{1,9})"], 'a comma within a value is written \\,\n'),
    (["/tmp", "/mnt", "-o", "qwertyuiop"], 'unknown option "qwertyuiop"; \'mount.qosfs --help\' lists them\n'),
    (["/tmp", "/mnt", "-o", "remount,ro"], "umount it and mount it anew"),
    (["/tmp", "/mnt", "-o", "cache"], "option cache needs a value"),
    (["/tmp", "/mnt", "-o", "slots"], "option slots needs a value"),
    (["/tmp", "/mnt", "-o", "allow_other=1"], "option allow_other takes no value"),
    (["/tmp", "/mnt", "-o", "cache=never"], "option cache=never: expected auto, none or always"),
    (["/tmp", "/mnt", "-o", "attr_timeout=-1"], "option attr_timeout=-1"),
    (["/tmp", "/mnt", "-o", "entry_timeout=soon"], "option entry_timeout=soon"),
    (["/tmp", "/mnt", "-o", "threads=0"], "option threads: 0"),
    (["/tmp", "/mnt", "-o", "threads=many"], "option threads"),
    (["/tmp", "/mnt", "-o", "db="], "option db=: expected a path with a / in it"),
    (["/tmp", "/mnt", "-o", "db=none"], "option db=none: expected a path with a / in it; a mount always has a database"),
])
def test_bad_usage(world, store, words, reason):
    done = mount_qosfs(world, *words)
    assert done.returncode == USAGE
    assert reason in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("option, reason", [
    ("policy=fair", 'error: option nrs_policies: "fair" is no policy'),
    ("nrs_policies=fair", '"fair" is no policy'),
    ("slots=0", "slots"),
    ("slots=x", 'error: option slots: "x" is no whole number'),
    ("job_cleanup_interval=10m", '"10m" is no whole number (seconds until an idle job is forgotten, 0: never)'),
    ("jobid_var=1st", 'error: option jobid_var "1st"'),
    ("jobid_var=cgroup:(", 'jobid_var "cgroup:("'),
    ("jobid_name=%q", 'jobid_name "%q"'),
    ("slots=4,threads=4", "option threads=4: there are 4 slots"),
    ("threads=64", "option threads=64: there are 64 slots"),
])
def test_bad_values(world, store, place, db, option, reason):
    """What only the parts of the mount can judge: nothing is mounted."""
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db},{option}")
    assert done.returncode == FAILED
    assert reason in done.stderr, done.stderr
    assert entry(place) is None
    assert list(db.parent.glob(f"{db.name}*")) == []  # nothing is left


@pytest.mark.parametrize("background", [False, True])
def test_bad_places(world, store, place, db, background):
    inside = store.dir / "inside"
    inside.mkdir()
    file = store.dir / "file"
    file.touch()
    for source, directory, reason in [
            (store.dir / "none", place, f'SRC "{store.dir}/none": No such file'),
            (file, place, f'SRC "{file}": Not a directory'),
            (store.dir, place / "none", f'DIR "{place}/none": No such file'),
            (store.dir, file, f'DIR "{file}": Not a directory'),
            (store.dir, inside, "lies below SRC"),
            (store.dir, store.dir / "inside/../inside", "lies below SRC"),
            ("/", place, "lies below SRC"),
    ]:
        words = [source, directory, "-o", f"db={db}" + ("" if background else ",foreground")]
        done = mount_qosfs(world, *words)
        assert done.returncode == FAILED, words
        assert reason in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
    assert not db.exists()


@pytest.mark.parametrize("user", [None, USER])
@pytest.mark.parametrize("slash", ["", "/"])
def test_dead_mount_makes_way(world, store, mount, db, user, slash):
    """Over a mount with a dead daemon another is mounted at once, whatever the kernel has in its caches."""
    os.chown(store.dir, user or 0, user or 0)
    dead = mount(store, "attr_timeout=1000", user=user)
    as_user(user or 0, user or 0, [], lambda: os.stat(dead.dir))
    dead.kill(clear=False)
    who = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    os.chown(db.parent, user or 0, user or 0)
    done = mount_qosfs(world, store.dir, f"{dead.dir}{slash}", "-o", f"db={db}", **who)
    assert done.returncode == 0, done.stderr
    assert "cleared away" in done.stderr
    places = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    assert places.count(str(dead.dir)) == 1
    pid = as_user(user or 0, user or 0, [], lambda: daemon_of(dead.dir))
    umount(dead.dir)
    wait_until(lambda: not is_running(pid))


def test_dead_mount_of_another_program(world, store, db):
    """It is not ours to clear away: it is named, and what to do about it."""
    place = world.folder("foreign")
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0"
    mount_syscall("other", place, "fuse.other", options)
    os.close(fuse)
    try:
        done = mount_qosfs(world, store.dir, place, "-o", f"db={db}")
        assert done.returncode == FAILED
        assert "has died: umount it first" in done.stderr
        assert entry(place)[-3] == "fuse.other"
    finally:
        umount(place, MNT_DETACH)


def test_dead_mount_of_another_user(world, store, mount, db):
    """An ordinary user cannot clear away root's."""
    qos = mount(store)
    qos.kill(clear=False)
    os.chown(db.parent, USER, USER)
    done = mount_qosfs(world, store.dir, qos.dir, "-o", f"db={db}", user=USER, group=USER, extra_groups=[])
    assert done.returncode == FAILED
    assert "has died: umount it first" in done.stderr
    assert entry(qos.dir)[-3] == "fuse.qosfs"


def test_sibling_with_the_same_prefix(world, store, db):
    """`/a/bc` does not lie below `/a/b`."""
    sibling = pathlib.Path(f"{store.dir}-sibling")
    sibling.mkdir()
    assert mount_qosfs(world, store.dir, sibling, "-f", "-o", f"db={db}").returncode == 0
    sibling.rmdir()


# --- the options ---


def test_over_itself(store, mount, world, db):
    (store.dir / "file").write_text("below")
    assert mount_qosfs(world, store.dir, store.dir, "-o", f"db={db}").returncode == 0
    assert entry(store.dir)[-3] == "fuse.qosfs"
    pid = daemon_of(store.dir)
    assert (store.dir / "file").read_text() == "below"
    (store.dir / "new").write_text("through")
    umount(store.dir)
    wait_until(lambda: not is_running(pid))
    assert (store.dir / "new").read_text() == "through"
    assert not (store.dir / ".qosfs").exists()


def test_run_does_not_mount_over_src(store):
    """./run is for trying qosfs out: it hides no directory, whatever way DIR is written."""
    (store.dir / "link").symlink_to(store.dir)
    for place in (store.dir, f"{store.dir}/.", store.dir / "link"):
        done = subprocess.run([REPOSITORY / "run", store.dir, place], capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"run: {place}: that is SRC; give another directory")
    assert (entry(store.dir) or ["", "", ""])[-3] != "fuse.qosfs"


def test_read_only(store, mount):
    (store.dir / "file").write_text("content")
    qos = mount(store, "ro")
    assert (qos.dir / "file").read_text() == "content"
    assert os.statvfs(qos.dir).f_flag & os.ST_RDONLY
    for attempt in (lambda: (qos.dir / "file").write_text("x"), lambda: (qos.dir / "new").mkdir(),
                    lambda: (qos.dir / "file").unlink(), lambda: os.chmod(qos.dir / "file", 0o600)):
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.errno == errno.EROFS


def test_last_word_counts(store, mount):
    qos = mount(store, "ro,rw,noexec,exec,cache=none,cache=auto")
    (qos.dir / "new").touch()
    assert not os.statvfs(qos.dir).f_flag & os.ST_NOEXEC


@pytest.mark.parametrize("option, flag", [("nosuid", os.ST_NOSUID), ("nodev", os.ST_NODEV), ("noexec", os.ST_NOEXEC),
                                          ("noatime", os.ST_NOATIME), ("nodiratime", os.ST_NODIRATIME),
                                          ("sync", os.ST_SYNCHRONOUS), ("nosymfollow", 0x2000),
                                          ("nosuid=recursive", os.ST_NOSUID), ("noexec=vfs", os.ST_NOEXEC)])
def test_mount_flags(store, mount, option, flag):
    assert os.statvfs(mount(store, option).dir).f_flag & flag
    assert not os.statvfs(mount(store, "").dir).f_flag & flag


def test_noexec_is_obeyed(store, mount):
    program = store.dir / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    assert run(mount(store, "exec").dir / "program") == "ran\n"
    with pytest.raises(PermissionError):
        run(mount(store, "noexec").dir / "program")


@pytest.mark.parametrize("user", [None, USER])
def test_noatime_is_obeyed(store, mount, user):
    """On the store, which would write it down otherwise; also for a user that may not open with O_NOATIME."""
    file, folder = store.dir / "file", store.dir / "folder"
    folder.mkdir()
    for option, is_kept in (("noatime", True), ("atime", False)):
        file.write_text("content")
        qos = mount(store, f"cache=none,{option}")
        for path in (file, folder):
            os.utime(path, (1, 2))
        as_user(user or 0, user or 0, [], lambda: ((qos.dir / "file").read_text(), os.listdir(qos.dir / "folder")))
        for path in (file, folder):
            assert (path.stat().st_atime == 1) == is_kept, option


def test_ignored_words(store, mount):
    mount(store, "defaults,_netdev,nofail,noauto,auto,user,users,nouser,owner,group,relatime,x-systemd.automount,"
                 "X-mount.mkdir,comment=text,user=root,norelatime,nostrictatime,nolazytime,noiversion,nomand,seclabel")
    if not os.path.exists("/sys/fs/selinux/enforce"):
        mount(store, "context=system_u:object_r:tmp_t:s0,rootcontext=x")


@pytest.mark.parametrize("option, reason", [
    ("strictatime", "the times of files are written down by SRC"), ("lazytime", "the times of files are written down by SRC"),
    ("iversion", "no versions of files for FUSE"), ("mand", "no mandatory locks"), ("bind", "mount(8) makes such a mount"),
    ("rbind", "mount(8) makes such a mount"), ("move", "mount(8) makes such a mount"), ("shared", "mount(8) sets it"),
    ("rslave", "mount(8) sets it"), ("loop", "SRC is a directory"), ("offset=4", "SRC is a directory"),
])
def test_refused_words(world, store, place, db, option, reason):
    """What any mount may have, and this one cannot, is refused with the reason; not where the mount is sloppy (-s)."""
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db},{option}")
    assert done.returncode == USAGE and entry(place) is None
    assert done.stderr.startswith(f"mount.qosfs: error: option {option}: ") and reason in done.stderr
    assert mount_qosfs(world, store.dir, place, "-s", "-o", f"db={db},{option}").returncode == 0


def test_allow_other(store, mount):
    everybody, alone = mount(store), mount(store, "noallow_other")
    as_user(USER, USER, [], lambda: os.listdir(everybody.dir))
    with pytest.raises(PermissionError):
        as_user(USER, USER, [], lambda: os.listdir(alone.dir))
    assert os.listdir(alone.dir) == []


def test_attr_timeout(store, mount):
    """A change made behind the mount shows when the time-out says so."""
    file = store.dir / "file"
    for options, seen in (("attr_timeout=1h", 0o600), ("attr_timeout=0", 0o644), ("cache=always", 0o600),
                          ("cache=none", 0o644), ("cache=none,attr_timeout=1h,entry_timeout=1h", 0o600)):
        file.touch()
        file.chmod(0o600)
        qos = mount(store, options)
        assert os.stat(qos.dir / "file").st_mode & 0o777 == 0o600
        file.chmod(0o644)
        assert os.stat(qos.dir / "file").st_mode & 0o777 == seen, options


def test_entry_timeout(store, mount):
    for options, is_seen in (("entry_timeout=1h,attr_timeout=1h", True), ("entry_timeout=0,attr_timeout=1h", False),
                             ("cache=always", True), ("cache=none", False)):
        (store.dir / "file").touch()
        qos = mount(store, options)
        assert (qos.dir / "file").exists()
        (store.dir / "file").unlink()
        assert (qos.dir / "file").exists() == is_seen, options


def test_tunables(store, mount):
    """Each by its name; they hold for this mount and are not saved."""
    first = mount(store, "slots=5,policy=jrr,jobid_var=procname_uid,jobid_name=%u,job_cleanup_interval=30,"
                         "metrics_top_jobs=7,threads=6")
    tunables = first.state()["tunables"]
    assert tunables | {"nrs_policies": "jrr", "slots": "5", "jobid_var": "procname_uid", "jobid_name": "%u",
                       "job_cleanup_interval": "30", "metrics_top_jobs": "7"} == tunables
    first.unmount()
    second = mount(store, f"db={first.db}")
    assert second.get("slots") == "64" and second.get("jobid_var") == "auto"
    assert second.state()["tunables"]["nrs_policies"] == "tbf"


def test_comma_in_a_value(store, mount):
    assert mount(store, r"jobid_var=cgroup:job_([0-9]{1\,8})").get("jobid_var") == "cgroup:job_([0-9]{1,8})"


def test_a_store_with_a_strange_name(new_store, mount, store, world, place, db):
    strange = store.dir / "a, b\\c\n"
    strange.mkdir()
    (strange / "file").touch()
    assert mount_qosfs(world, strange, place, "-o", f"db={db}").returncode == 0
    assert (place / "file").exists()
    assert entry(place)[-2] == str(strange).replace("\\", r"\134").replace(" ", r"\040").replace("\n", r"\012")


def test_descriptors_are_raised(store, mount):
    limits = pathlib.Path(f"/proc/{mount(store).pid}/limits").read_text()
    soft, hard = re.search(r"Max open files\s+(\d+)\s+(\d+)", limits).groups()
    assert soft == hard


def test_a_failed_mount_tells_its_reason_alone(world, store, place, db):
    """Not also what the mount would have lacked: here, that an ordinary user's knows a bounded number of files."""
    os.chown(db.parent, USER, USER)
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db},slots=4,threads=4", user=USER, group=USER, extra_groups=[])
    assert done.returncode == FAILED
    assert "option threads=4" in done.stderr and done.stderr.count("\n") == 1, done.stderr


# --- the database ---


def test_database_in_use(world, store, mount, place):
    qos = mount(store)
    done = mount_qosfs(world, store.dir, place, "-o", f"db={qos.db}")
    assert done.returncode == FAILED
    assert str(qos.db) in done.stderr and "another mount uses it" in done.stderr
    assert entry(place) is None
    done = mount_qosfs(world, store.dir, qos.dir, "-o", f"db={qos.db}")
    assert done.returncode == FAILED and done.stderr.count("\n") == 1
    assert f'DIR "{qos.dir}": qosfs is mounted there already, and database {qos.db} is in use: umount it first' in done.stderr
    assert qos.get("slots") == "64"
    other = mount(store)
    done = mount_qosfs(world, store.dir, other.dir, "-o", f"db={qos.db}")
    assert f'DIR "{other.dir}": qosfs is mounted there already, and database {qos.db} is in use' in done.stderr


def test_database_below_the_mount(world, store, place):
    done = mount_qosfs(world, store.dir, place, "-o", f"db={place}/x/qosfs.db")
    assert done.returncode == FAILED
    assert "would lie below DIR" in done.stderr
    assert os.listdir(place) == []


@pytest.mark.parametrize("option, what", [("db={}", "database"), ("server=unix:{}", "socket")])
def test_links_below_the_mount(world, store, place, db, option, what):
    """To a folder, from one to the next, and to what is not there yet."""
    (place / "there").touch()
    for name, target in ("folder", place), ("there", "folder/there"), ("next", "there"), ("coming", place / "coming"):
        (db.parent / name).symlink_to(target)
    for path in "folder/file", "folder/there", "there", "next", "coming":
        options = option.format(db.parent / path) if what == "database" else f"db={db},{option.format(db.parent / path)}"
        done = mount_qosfs(world, store.dir, place, "-o", options)
        assert (done.returncode, entry(place)) == (FAILED, None), path
        assert f'the {what} "' in done.stderr and "would lie below DIR" in done.stderr
    assert os.listdir(place) == ["there"]


def test_a_link_to_the_folder_of_the_database(world, store, place, db):
    (db.parent / "link").symlink_to(".")
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db.parent}/link/{db.name}")
    assert done.returncode == 0, done.stderr
    assert db.exists()


def test_mistyped_folder_of_the_database(world, store, place, db):
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db.parent}/typo/qosfs.db")
    assert done.returncode == FAILED
    assert f"there is no folder {db.parent}/typo: make it first" in done.stderr
    assert os.listdir(db.parent) == []


def test_a_folder_for_a_database(world, store, place, db):
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db.parent}")
    assert done.returncode == FAILED and entry(place) is None
    assert done.stderr == f"mount.qosfs: error: database {db.parent} is a folder: name a file in it\n"


def test_relative_paths(world, store, place, db):
    """They mean what they meant to the starter, though the daemon lives in /."""
    done = mount_qosfs(world, os.path.relpath(store.dir, db.parent), os.path.relpath(place, db.parent), "-o", "db=./x.db",
                   cwd=db.parent)
    assert done.returncode == 0, done.stderr
    assert entry(place)[-2] == str(store.dir)
    assert (db.parent / "x.db").exists()


def test_a_user_that_may_not_use_the_device_is_told(world, store, place):
    """What failed, what to do, and nothing is left behind."""
    folder = world.folder("closed")
    node = folder / "fuse"
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(10, 229))
    for path in (place, folder):
        os.chown(path, USER, USER)
    with bound(node, "/dev/fuse"):
        done = mount_qosfs(world, store.dir, place, "-o", f"db={folder}/db", user=USER, group=USER, extra_groups=[])
    assert done.returncode == FAILED
    assert done.stderr == ("mount.qosfs: error: /dev/fuse is closed to you: open it (chmod 666 /dev/fuse), or let root "
                           "mount\n")
    assert [path.name for path in folder.iterdir()] == ["fuse"]


@pytest.mark.parametrize("mode, advice", [(0o755, "fusermount3 is not setuid root (chmod u+s)"),
                                          (0o644, "there is no fusermount3 that you may run: install fuse3")])
def test_a_user_without_a_helper_to_mount_is_told(world, store, place, db, mode, advice):
    """libfuse and fusermount3 have said what failed; this says what to do."""
    helper = shutil.which("fusermount3")
    copy = world.folder("helper") / "fusermount3"
    shutil.copyfile(helper, copy)
    copy.chmod(mode)
    for path in (place, db.parent):
        os.chown(path, USER, USER)
    with bound(copy, helper):
        done = mount_qosfs(world, store.dir, place, "-o", f"db={db}", user=USER, group=USER, extra_groups=[])
    assert done.returncode == FAILED and entry(place) is None
    assert f'cannot mount on "{place}": {advice}' in done.stderr.splitlines()[-1]
    assert list(db.parent.iterdir()) == []  # nothing is left


def test_a_mountpoint_of_somebody_else(world, store, place, db):
    """fusermount3 says why; the last line says so."""
    os.chown(db.parent, USER, USER)
    place.chmod(0o755)
    done = mount_qosfs(world, store.dir, place, "-o", f"db={db}", user=USER, group=USER, extra_groups=[])
    assert done.returncode == FAILED and entry(place) is None
    assert "no write access" in done.stderr
    assert done.stderr.splitlines()[-1] == f'mount.qosfs: error: cannot mount on "{place}": the line above says why'


def test_default_database_of_root(world, store, place):
    """/var/lib/qosfs, by the name that systemd-escape would give."""
    with bound(world.folder("var-lib"), "/var/lib"):
        assert mount_qosfs(world, store.dir, place).returncode == 0
        name = str(place).strip("/").replace("-", r"\x2d").replace("/", "-")
        assert pathlib.Path("/var/lib/qosfs", f"{name}.db").exists()
        umount(place)


def test_default_database_of_a_user(world, store):
    home, place = world.folder("home"), world.folder("place")
    for path in (home, place):
        os.chown(path, USER, USER)
    for variables, state in (({"XDG_STATE_HOME": str(home / "state")}, home / "state"),
                             ({"HOME": str(home)}, home / ".local/state")):
        environment = job_environment(None, **SANITIZERS)
        environment.pop("XDG_STATE_HOME", None)
        done = mount_qosfs(world, store.dir, place, user=USER, group=USER, extra_groups=[], env=environment | variables)
        assert done.returncode == 0, done.stderr
        assert [path.suffix for path in (state / "qosfs").glob("*.db")] == [".db"]
        pid = as_user(USER, USER, [], lambda: daemon_of(place))
        as_user(USER, USER, [], lambda: run("fusermount3", "-u", place))
        wait_until(lambda: not is_running(pid))


def test_ordinary_user(store, mount):
    """By fusermount3, for that user's processes alone."""
    qos = mount(store, user=USER)
    as_user(USER, USER, [], lambda: (qos.dir / "file").write_text("mine"))
    assert os.stat(store.dir / "file").st_uid == USER
    line = entry(qos.dir)
    assert line[-3] == "fuse.qosfs" and f"user_id={USER}" in line[-1] and "allow_other" not in line[-1]
    assert "nosuid" in line[5] and "nodev" in line[5]
    with pytest.raises(PermissionError):
        os.listdir(qos.dir)  # not even root


def test_too_few_threads(world, store, place):
    """Whichever part finds no thread any more, all that is there already goes in good order, and the reason is told."""
    user = 54321  # nobody else's, as all processes of a user count
    folder = world.folder("db")
    os.chown(folder, user, user)
    environment = job_environment(None, **SANITIZERS)
    environment["ASAN_OPTIONS"] += ":detect_leaks=0"  # that needs a process of its own
    for limit in [*range(1, 8), 64]:
        done = mount_qosfs(world, "-f", store.dir, place, "-o", f"db={folder}/qosfs.db", user=user, group=user, extra_groups=[],
                       env=environment,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit)))
        assert (done.returncode, "cannot start" in done.stderr) in ((FAILED, True), (0, False)), (limit, done)
        assert "Sanitizer" not in done.stderr, (limit, done)
    assert done.returncode == 0, done


def test_request_timeout_of_the_kernel(world, store, mount):
    """Where the kernel ends a connection after a time, nobody waits for longer than half of it."""
    sysctl = world.folder("sysctl") / "default_request_timeout"
    sysctl.write_text("2\n")
    with bound(sysctl, "/proc/sys/fs/fuse/default_request_timeout"):
        qos = mount(store)
    qos.rule("start slow jobid={slow} bps=1")
    begin = time.monotonic()
    as_job("slow", "dd", "if=/dev/zero", f"of={qos.dir}/file", "bs=64K", "count=2", timeout=2 * TIMEOUT)  # by the rule, most of a day
    assert time.monotonic() - begin > 0.5
