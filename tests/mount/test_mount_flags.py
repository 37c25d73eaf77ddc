"""nosuid, nodev and noexec of the store's mounts: what they forbid there is forbidden through the mount."""
import contextlib
import errno
import os
import pathlib
import shutil
import stat
import subprocess

import pytest

from harness import USER, as_user, bound, error_of, job_environment, mount_syscall, run, umount

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 2, 4, 8, 32, 0x1000
STRICT = MS_NOSUID | MS_NODEV | MS_NOEXEC
# cap_setuid in effect, as setcap(8) writes it.
CAPABILITY = bytes.fromhex("0100000280000000000000000000000000000000")

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)


def remount(path, flags):
    """As mount -o remount,bind: of this mount alone."""
    mount_syscall("none", path, "none", "", MS_REMOUNT | MS_BIND | flags)


@contextlib.contextmanager
def tmpfs(place, flags=0):
    place.mkdir(exist_ok=True)
    mount_syscall("below", place, "tmpfs", "mode=1777", flags)
    try:
        yield fill(place)
    finally:
        umount(place, 2)


def fill(place):
    """What gives a right: a set-uid program, a device, a program with a capability."""
    shutil.copy("/usr/bin/id", place / "suid")
    shutil.copy("/usr/bin/id", place / "sgid")
    shutil.copy("/usr/bin/id", place / "capable")
    os.chown(place / "sgid", 0, 0)
    for name, mode in (("suid", 0o4755), ("sgid", 0o2755), ("capable", 0o755)):
        (place / name).chmod(mode)
    os.setxattr(place / "capable", "security.capability", CAPABILITY)
    os.mknod(place / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    (place / "zero").chmod(0o666)
    (place / "folder").mkdir()
    (place / "folder").chmod(0o2777)
    return place


def execute(*command):
    """Its output, or the errno with which it is not executed."""
    try:
        return subprocess.run(list(map(str, command)), text=True, capture_output=True, check=True, env=job_environment(None)).stdout.strip()
    except OSError as error:
        return errno.errorcode[error.errno]


def first_byte(path):
    with open(path, "rb") as file:
        return file.read(1)


def gained(top):
    """What an ordinary user gains there: identities by programs, bytes of a device; and root of the device."""
    def look():
        return [execute(top / "suid", "-u"), execute(top / "sgid", "-g"), error_of(first_byte, top / "zero")]
    return as_user(USER, USER, [], look) + [error_of(first_byte, top / "zero")]


EVERYTHING = ["0", "0", None, None]
NOTHING = ["EACCES", "EACCES", errno.EACCES, errno.EACCES]
OWN = str(USER)


def shown(top):
    modes = {name: stat.S_IMODE(os.stat(top / name).st_mode) for name in ("suid", "sgid", "folder")}
    return modes | {"names": [name for name in os.listxattr(top / "capable") if name == "security.capability"],
                    "capable": error_of(os.getxattr, top / "capable", "security.capability"),
                    "device": stat.S_IFMT(os.stat(top / "zero").st_mode)}


ARMED = {"suid": 0o4755, "sgid": 0o2755, "folder": 0o2777, "names": ["security.capability"], "capable": None,
         "device": stat.S_IFCHR}
DISARMED = ARMED | {"suid": 0o755, "sgid": 0o755, "names": [], "capable": errno.ENODATA}


# --- SRC's own mount ---


@pytest.mark.parametrize("words, outcome", [
    ("", NOTHING),
    ("exec", [OWN, OWN, errno.EACCES, errno.EACCES]),
    ("suid,exec", ["0", "0", errno.EACCES, errno.EACCES]),
    ("suid,dev,exec", EVERYTHING),
    ("allow_suid,allow_dev,allow_exec", EVERYTHING),
    ("suid,dev,exec,noexec", ["EACCES", "EACCES", None, None]),
])
def test_flags_of_the_source_are_inherited(store, mount, words, outcome):
    """But for those that the administrator wants by name."""
    with tmpfs(store.dir / "top", STRICT) as top:
        assert gained(top) == NOTHING
        assert gained(mount(store._replace(dir=top), words).dir) == outcome


def test_flags_of_the_source_bind_an_ordinary_user(store, mount):
    """Whatever options that user asks for."""
    with tmpfs(store.dir / "top", STRICT) as top:
        qos = mount(store._replace(dir=top), "suid,dev,exec", user=USER)
        qos.expects_log("only root may have it otherwise")
        assert as_user(USER, USER, [], lambda: execute(qos.dir / "suid", "-u")) == "EACCES"
        qos.unmount()


def test_symbolic_links_of_the_source(store, mount):
    nosymfollow = 256
    with tmpfs(store.dir / "top", nosymfollow) as top:
        (top / "link").symlink_to("suid")
        store = store._replace(dir=top)
        assert error_of(os.stat, mount(store).dir / "link") == errno.ELOOP
        assert error_of(os.stat, mount(store, "symfollow").dir / "link") is None


@pytest.mark.parametrize("submounts", ["yes", "no"])
def test_a_source_that_becomes_strict(store, mount, submounts):
    with tmpfs(store.dir / "top") as top:
        store = store._replace(dir=top)
        options = f"cache=always,submounts={submounts}"
        qos, wanted = mount(store, options), mount(store, f"{options},suid,dev,exec")
        assert gained(qos.dir) == gained(wanted.dir) == EVERYTHING and shown(qos.dir) == ARMED
        remount(top, STRICT)
        assert gained(qos.dir) == NOTHING and shown(qos.dir) == DISARMED
        assert gained(wanted.dir) == EVERYTHING and shown(wanted.dir) == ARMED


# --- mounts below ---


@pytest.mark.parametrize("options", ["", "suid,dev,exec", "cache=always", "cache=none"])
@pytest.mark.parametrize("is_later", [False, True])
def test_strict_mounts_below(store, mount, options, is_later):
    """There at the start or mounted later; what the administrator wants is about SRC alone."""
    below = store.dir / "below"
    below.mkdir()
    with contextlib.ExitStack() as stack:
        qos = mount(store, options) if is_later else None
        stack.enter_context(tmpfs(below, STRICT))
        qos = qos or mount(store, options)
        assert gained(qos.dir / "below") == gained(below) == NOTHING
        assert shown(qos.dir / "below") == DISARMED
        assert gained(fill_again(qos.dir / "below" / "made")) == NOTHING  # by the mount's own hand
        assert shown(below)["suid"] == 0o4755


def fill_again(place):
    place.mkdir()
    return fill(place)


@pytest.mark.parametrize("flag, outcome", [(MS_NOSUID, [OWN, OWN, None, None]), (MS_NODEV, ["0", "0", errno.EACCES, errno.EACCES]),
                                           (MS_NOEXEC, ["EACCES", "EACCES", None, None])])
@pytest.mark.parametrize("options", ["", "cache=always"])
def test_each_flag_at_once_after_a_remount(store, mount, options, flag, outcome):
    """To and fro, also where the kernel knows all of it."""
    with tmpfs(store.dir / "below") as below:
        qos = mount(store, options)
        through = qos.dir / "below"
        for _ in range(3):
            assert gained(through) == gained(below) == EVERYTHING
            assert os.stat(through / "zero").st_rdev == os.makedev(1, 5)
            known = os.open(through / "zero", os.O_PATH)
            remount(below, flag)
            assert gained(through) == gained(below) == outcome
            assert (os.stat(through / "zero").st_rdev == os.makedev(1, 5)) == (flag != MS_NODEV)
            assert (error_of(first_byte, f"/proc/self/fd/{known}") is None) == (outcome[3] is None)
            os.close(known)
            remount(below, 0)


def test_one_file_system_at_two_places(store, mount):
    """Each with flags of its own."""
    with tmpfs(store.dir / "free") as free:
        strict = store.dir / "strict"
        strict.mkdir()
        with bound(free, strict):
            remount(strict, STRICT)
            qos = mount(store)
            for _ in range(2):
                assert gained(qos.dir / "free") == EVERYTHING and shown(qos.dir / "free") == ARMED
                assert gained(qos.dir / "strict") == NOTHING and shown(qos.dir / "strict") == DISARMED


def test_lists_show_the_same(store, mount):
    """As readdirplus brings attributes by itself."""
    with tmpfs(store.dir / "below", STRICT):
        qos = mount(store)
        listed = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(qos.dir / "below")}
        assert stat.S_IMODE(listed["suid"].st_mode) == 0o755
        assert listed["zero"].st_rdev != os.makedev(1, 5)
        assert stat.S_IMODE(os.stat(qos.dir / "below" / "suid").st_mode) == 0o755


def test_what_is_hidden_stays_in_the_store(store, mount):
    """A device can be removed and renamed, and a mode that is set is set."""
    with tmpfs(store.dir / "below", STRICT) as below:
        top = mount(store).dir / "below"
        (top / "zero").chmod(0o600)
        assert stat.S_IMODE((below / "zero").stat().st_mode) == 0o600
        assert (below / "zero").stat().st_rdev == os.makedev(1, 5)
        (top / "zero").rename(top / "moved")
        (top / "moved").unlink()
        (top / "suid").chmod(0o4711)
        assert stat.S_IMODE((below / "suid").stat().st_mode) == 0o4711
        assert stat.S_IMODE((top / "suid").stat().st_mode) == 0o711


def test_mounts_of_ordinary_users_below(store, new_store, mount, world):
    """By fusermount3, always nosuid and nodev; a file system of a user's own shows what it likes."""
    there = store.dir / "theirs"
    there.mkdir()
    os.chown(there, USER, USER)
    configuration = world.folder("fuse") / "fuse.conf"
    configuration.write_text("user_allow_other\n")
    pathlib.Path("/etc/fuse.conf").touch()
    with bound(configuration, "/etc/fuse.conf"):
        inner = new_store()
        fill(inner.dir)
        theirs = mount(inner, "allow_other", user=USER, place=there)
        qos = mount(store, "suid,dev")
        outcome = [OWN, OWN, errno.EACCES, errno.EACCES]
        assert gained(there) == gained(qos.dir / "theirs") == outcome
        assert stat.S_IMODE(os.stat(qos.dir / "theirs" / "suid").st_mode) == 0o755
        qos.unmount()
        theirs.unmount()


def test_exempt_jobs(store, mount):
    """A rule with passthrough gives no more."""
    with tmpfs(store.dir / "below", STRICT):
        qos = mount(store)
        qos.rule("start all jobid={*} passthrough")
        assert gained(qos.dir / "below") == NOTHING


def test_a_program_is_read_where_it_may_not_be_executed(store, mount):
    with tmpfs(store.dir / "below", MS_NOEXEC) as below:
        (below / "script").write_text("echo ran\n")
        (below / "script").chmod(0o755)
        script = mount(store).dir / "below" / "script"
        assert execute("sh", script) == "ran" and execute(script) == "EACCES"
        assert run("cat", script) == "echo ran\n"
