"""The control interface, tried in every way by users that may not: what they are told is true, nothing changes, and the
log stays empty. Root and the mount's owner may set; what .qosfs is made of nobody may change."""
import errno
import fcntl
import os
import pathlib
import signal
import socket
import struct

import pytest

import syscalls
from harness import OTHER, USER, as_job, as_user, bind_mount, error_of, umount

REFUSED = {errno.EPERM, errno.EACCES}
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FICLONE, FIFREEZE, TCGETS, FIONREAD = \
    0x80086601, 0x40086602, 0x40049409, 0xC0045877, 0x5401, 0x541B
FILES = ("job_stats", "jobs", "rules", "metrics", "state.json", "status.json", "rules.json", "jobs.json")

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)


def with_fd(path, flags, function):
    fd = os.open(path, flags)
    try:
        function(fd)
    finally:
        os.close(fd)


def settings(qos):
    """What root and the owner of the mount may: operation -> errno."""
    def write(text):
        with_fd(qos.dir / ".qosfs/job_stats", os.O_WRONLY, lambda fd: os.write(fd, text))

    values = {
        "rule": ("nrs_tbf_rule", b"start evil uid={0} rate=1"),
        "change": ("nrs_tbf_rule", b"change default rate=1"),
        "stop": ("nrs_tbf_rule", b"stop known"),
        "long": ("nrs_tbf_rule", b"start evil jobid={" + b"a" * 60000 + b"} rate=1"),
        "bytes": ("nrs_tbf_rule", bytes(range(256))),
        "empty": ("nrs_tbf_rule", b""),
        "slots": ("slots", b"1"),
        "policy": ("nrs_policies", b"fifo"),
        "variable": ("jobid_var", b"procname_uid"),
        "unknown": ("x" * 200, b"1"),
        "none": ("", b"1"),
        "last_error": ("last_error", b"x"),
    }
    results = {name: error_of(os.setxattr, qos.dir, f"user.qosfs.{key}", value)
               for name, (key, value) in values.items() if key}
    for flags in (os.XATTR_CREATE, os.XATTR_REPLACE):
        results[f"flags {flags}"] = error_of(os.setxattr, qos.dir, "user.qosfs.slots", b"1", flags)
    fd = os.open(qos.dir, os.O_RDONLY)
    results["by descriptor"] = error_of(os.setxattr, fd, "user.qosfs.slots", b"1")
    os.close(fd)
    results["clear"] = error_of(write, b"clear")
    results["clear one"] = error_of(write, b"innocent")
    return results


def changes(qos, own):
    """What nobody may, tried at .qosfs, each of its files and the xattrs: operation -> errno. `own` is the caller's
    folder in the mount."""
    hidden = qos.dir / ".qosfs"
    own_file, own_folder = own / "file", own / "folder"
    own_file.write_text("own")
    own_folder.mkdir()
    results = {
        "remove xattr": error_of(os.removexattr, qos.dir, "user.qosfs.slots"),
        "remove rules": error_of(os.removexattr, qos.dir, "user.qosfs.nrs_tbf_rule"),
        "create": error_of(os.open, hidden / "new", os.O_CREAT | os.O_WRONLY),
        "create without a name": error_of(os.open, hidden, os.O_TMPFILE | os.O_RDWR),
        "mkdir": error_of(os.mkdir, hidden / "new"),
        "mknod": error_of(os.mknod, hidden / "new"),
        "fifo": error_of(os.mkfifo, hidden / "new"),
        "socket": error_of(bind, hidden / "new"),
        "symlink": error_of(os.symlink, "x", hidden / "new"),
        "link in": error_of(os.link, own_file, hidden / "new"),
        "rename in": error_of(os.rename, own_file, hidden / "new"),
        "rename folder in": error_of(os.rename, own_folder, hidden / "new"),
        "rename away": error_of(os.rename, hidden, own / "taken"),
        "exchange": error_of(syscalls.renameat2, own_folder, hidden, syscalls.RENAME_EXCHANGE),
    }
    for path in (hidden, *(hidden / name for name in FILES)):
        name = path.name
        results |= {
            f"chmod {name}": error_of(os.chmod, path, 0o777),
            f"chown {name}": error_of(os.chown, path, os.getuid(), os.getgid()),
            f"utime {name}": error_of(os.utime, path, (1, 1)),
            f"acl {name}": error_of(os.setxattr, path, "system.posix_acl_access",
                                    struct.pack("<I", 2) + struct.pack("<HHI", 1, 7, 0xffffffff) +
                                    struct.pack("<HHI", 4, 7, 0xffffffff) + struct.pack("<HHI", 32, 7, 0xffffffff)),
            f"xattr {name}": error_of(os.setxattr, path, "user.x", b"x"),
            f"control xattr {name}": error_of(os.setxattr, path, "user.qosfs.slots", b"1"),
            f"trusted {name}": error_of(os.setxattr, path, "trusted.x", b"x"),
            f"remove xattr {name}": error_of(os.removexattr, path, "user.x"),
        }
    for name in FILES:
        path = hidden / name
        results |= {
            f"unlink {name}": error_of(os.unlink, path),
            f"rename {name}": error_of(os.rename, path, own / "taken"),
            f"rename over {name}": error_of(os.rename, own_file, path),
            f"link {name}": error_of(os.link, path, own / "linked"),
        }
    assert own_file.read_text() == "own" and sorted(os.listdir(own)) == ["file", "folder"]
    return results


def bind(path):
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")  # the path itself is too long
        finally:
            os.close(folder)


def oddities(qos, own):
    """Calls that a control file answers in its own way, or the kernel for it: operation -> errno. None may hang."""
    hidden = qos.dir / ".qosfs"
    results = {}
    for path in (hidden, *(hidden / name for name in FILES)):
        fd = os.open(path, os.O_RDONLY)
        for name, request in (("getflags", FS_IOC_GETFLAGS), ("setflags", FS_IOC_SETFLAGS), ("tty", TCGETS),
                              ("ready", FIONREAD), ("freeze", FIFREEZE), ("unknown", 0xC0DE0001)):
            results[f"{name} {path.name}"] = error_of(fcntl.ioctl, fd, request, bytearray(8))
        results[f"xattrs {path.name}"] = None if os.listxattr(fd) == [] else "listed"
        results[f"get {path.name}"] = error_of(os.getxattr, fd, "user.qosfs.slots")
        os.close(fd)
    for name in FILES:
        path = hidden / name
        results |= {
            f"truncating open {name}": error_of(with_fd, path, os.O_RDONLY | os.O_TRUNC, os.fstat),
            f"direct {name}": error_of(with_fd, path, os.O_RDONLY | os.O_DIRECT, lambda fd: os.read(fd, 512)),
            f"as a folder {name}": error_of(os.open, path, os.O_RDONLY | os.O_DIRECTORY),
            f"readlink {name}": error_of(os.readlink, path),
            f"seek {name}": error_of(with_fd, path, os.O_RDONLY, lambda fd: os.lseek(fd, 0, os.SEEK_DATA)),
            f"far {name}": error_of(with_fd, path, os.O_RDONLY, lambda fd: os.pread(fd, 100, (1 << 62))),
            f"allocate {name}": error_of(with_fd, path, os.O_RDONLY, lambda fd: os.posix_fallocate(fd, 0, 4096)),
            f"lock {name}": error_of(with_fd, path, os.O_RDONLY, lambda fd: fcntl.flock(fd, fcntl.LOCK_EX)),
            f"sync {name}": error_of(with_fd, path, os.O_RDONLY, os.fsync),
            f"copy {name}": error_of(copy, path, own / "copy"),
        }
    return results


def copy(source, target):
    with open(source, "rb") as reader, open(target, "wb") as writer:
        os.copy_file_range(reader.fileno(), writer.fileno(), 4096)


def picture(qos):
    """What must not have changed."""
    hidden = qos.dir / ".qosfs"
    state = qos.state()
    return (state["rules"][-1]["name"], [rule["name"] for rule in state["rules"]], state["tunables"],
            sorted(os.listdir(hidden)),
            [(path.stat().st_mode, path.stat().st_uid, path.stat().st_mtime) for path in sorted(hidden.iterdir())])


def prepare(qos, *users):
    """Rules and totals, and a folder for each user; what is then to be kept."""
    qos.rule("start known jobid={k} rate=1000")
    for user in users:
        folder = qos.store.dir / str(user)
        folder.mkdir()
        os.chown(folder, user, user)
    as_job("innocent", "touch", qos.store.dir / "file")
    return picture(qos)


def assert_refused(results, code=REFUSED):
    wrong = {name: errno.errorcode.get(value, value) for name, value in results.items() if value not in code}
    assert not wrong, wrong


def test_user_below_roots_mount(store, mount):
    qos = mount(store)
    as_job("innocent", "touch", qos.dir / "file")
    qos.wait_booked("innocent", close=1)
    before = prepare(qos, USER)
    requests = qos.job("innocent")["requests"]
    assert_refused(as_user(USER, USER, [], lambda: settings(qos)))
    assert_refused(as_user(USER, USER, [], lambda: changes(qos, qos.dir / str(USER))), REFUSED | {errno.EEXIST})
    assert picture(qos) == before and qos.job("innocent")["requests"] >= requests
    assert qos.log == ""


def test_other_below_a_users_mount(store, mount, world):
    """Also root is no owner of a user's mount, but may."""
    conf = world.folder("conf") / "fuse.conf"
    conf.write_text("user_allow_other\n")
    bind_mount(conf, "/etc/fuse.conf")
    try:
        os.chown(store.dir, USER, USER)
        qos = mount(store, "allow_other", user=USER)
    finally:
        umount("/etc/fuse.conf")
    before = as_user(USER, USER, [], lambda: prepare_as_owner(qos))
    os.chmod(store.dir, 0o777)
    for user in (OTHER, USER):
        (store.dir / str(user)).mkdir()
        os.chown(store.dir / str(user), USER, USER)
        os.chmod(store.dir / str(user), 0o777)
    assert_refused(as_user(OTHER, OTHER, [], lambda: settings(qos)))
    assert_refused(as_user(USER, USER, [], lambda: changes(qos, qos.dir / str(USER))), REFUSED | {errno.EEXIST})
    assert picture(qos) == before
    qos.set("slots", 9)
    assert qos.get("slots") == "9"


def prepare_as_owner(qos):
    qos.rule("start known jobid={k} rate=1000")
    return picture(qos)


def test_shut_out_of_a_users_mount(store, mount):
    """Without allow_other nobody else comes so far as to be refused by us."""
    os.chown(store.dir, USER, USER)
    qos = mount(store, user=USER)
    for user in (OTHER, 0):
        told = as_user(user, user, [], lambda: {
            "set": error_of(os.setxattr, qos.dir, "user.qosfs.slots", b"1"),
            "get": error_of(os.getxattr, qos.dir, "user.qosfs.slots"),
            "list": error_of(os.listdir, qos.dir),
            "read": error_of(os.open, qos.dir / ".qosfs/jobs", os.O_RDONLY),
        })
        assert_refused(told, {errno.EACCES})


def test_root_may_not_change_what_it_is_made_of(store, mount):
    qos = mount(store)
    before = prepare(qos, 0)
    assert_refused(changes(qos, qos.dir / "0"), REFUSED | {errno.EEXIST})
    assert picture(qos) == before


@pytest.mark.parametrize("user", [0, USER])
def test_odd_calls(store, mount, user):
    qos = mount(store)
    before = prepare(qos, user)
    told = as_user(user, user, [], lambda: oddities(qos, qos.dir / str(user)))
    crashes = {errno.EIO, errno.ENOTCONN, errno.ESTALE, errno.ENOSYS}
    assert not {name: value for name, value in told.items() if value in crashes}
    flags = {value for name, value in told.items() if name.split()[0] in ("getflags", "setflags", "unknown")}
    assert flags - {errno.EPERM} == {errno.ENOTTY}
    assert {value for name, value in told.items() if name.startswith("get ")} == {errno.ENODATA}
    assert not [name for name, value in told.items() if value == "listed"]
    assert picture(qos) == before
    assert qos.log == ""


def test_log_is_not_flooded(store, mount):
    """However often a user tries, and under whatever name."""
    qos = mount(store)
    before = prepare(qos, USER)

    def insist():
        told = set()
        for number in range(2000):
            told.add(error_of(os.setxattr, qos.dir, f"user.qosfs.{number}", b"%\n\x1b" * 100))
            told.add(error_of(os.getxattr, qos.dir, f"user.qosfs.{number}"))
        return told

    assert as_user(USER, USER, [], insist) == {errno.EPERM, errno.ENODATA}
    for number in range(300):
        error_of(as_user, USER + number, USER, [], lambda: qos.set("slots", 1))
    assert picture(qos) == before
    assert qos.log == ""


def test_the_daemon_itself(store, mount):
    """Neither its memory, nor its descriptors, nor its database is for users."""
    qos = mount(store)
    (qos.dir / "file").write_text("x")
    proc = pathlib.Path(f"/proc/{qos.pid}")
    told = as_user(USER, USER, [], lambda: {
        "memory": error_of(os.open, proc / "mem", os.O_RDONLY),
        "environment": error_of((proc / "environ").read_bytes),
        "descriptors": error_of(os.listdir, proc / "fd"),
        "a file of the store": error_of(os.readlink, proc / "fd/3"),
        "signal": error_of(os.kill, qos.pid, signal.SIGTERM),
        "database": error_of(qos.db.read_bytes),
        "log of the database": error_of(pathlib.Path(f"{qos.db}-wal").read_bytes),
        "lock": error_of(os.open, f"{qos.db}.lock", os.O_RDWR),
    })
    assert_refused(told)
    assert (qos.dir / "file").read_text() == "x"
