"""setxattr, getxattr, listxattr, removexattr, and the ioctls of chattr: as on the store."""
import ctypes
import errno
import fcntl
import os
import struct

import pytest

from harness import OTHER, outcome_of, run
from syscalls import check
from twins import attempt

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
FS_IOC_GETVERSION, FS_IOC_SETVERSION = 0x80087601, 0x40087602
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801c581f, 0x401c5820
NODUMP, APPEND, NOATIME = 0x40, 0x20, 0x80


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_values_of_every_size(twins, kind):
    def act(top):
        path = top / "it"
        path.touch() if kind == "file" else path.mkdir()
        found = []
        for size in (0, 1, 100, 1000, 3900, 5000, 65535, 65536, 65537):
            found.append((size, outcome_of(os.setxattr, path, "user.value", b"v" * size),
                          outcome_of(os.getxattr, path, "user.value") == b"v" * size))
        found.append(outcome_of(os.setxattr, path, "user.value", b"new", os.XATTR_CREATE))
        found.append(outcome_of(os.setxattr, path, "user.none", b"new", os.XATTR_REPLACE))
        found.append(outcome_of(os.setxattr, path, "user.value", b"new", os.XATTR_REPLACE))
        found.append(outcome_of(os.listxattr, path))
        found.append(outcome_of(os.removexattr, path, "user.value"))
        found.append(outcome_of(os.removexattr, path, "user.value"))
        found.append(outcome_of(os.getxattr, path, "user.value"))
        return found
    twins(act)


@pytest.mark.parametrize("name", ["user.", "user." + "n" * 250, "user." + "n" * 251, "user.é\n", "user.a.b.c", "nothing", "system.x",
                                  "security.x", "trusted.x", "user"])
def test_names(twins, name):
    def act(top):
        (top / "file").touch()
        return [outcome_of(os.setxattr, top / "file", name, b"value"), outcome_of(os.getxattr, top / "file", name),
                sorted(outcome_of(os.listxattr, top / "file")), outcome_of(os.removexattr, top / "file", name)]
    twins(act)


@pytest.mark.parametrize("name", ["user.x", "trusted.x", "security.x"])
def test_of_links_and_special_files(twins, name):
    def act(top):
        os.symlink("target", top / "link")
        os.mkfifo(top / "pipe")
        return [(outcome_of(os.setxattr, top / path, name, b"value", follow_symlinks=False),
                 outcome_of(os.getxattr, top / path, name, follow_symlinks=False),
                 outcome_of(os.listxattr, top / path, follow_symlinks=False)) for path in ("link", "pipe")]
    twins(act)


def test_many_names(store, mount):
    qos = mount(store)
    (store.dir / "file").touch()
    names = [f"user.name-{number:03d}" for number in range(60)]
    for name in names:
        os.setxattr(qos.dir / "file", name, name.encode())
    assert sorted(os.listxattr(qos.dir / "file")) == sorted(os.listxattr(store.dir / "file")) == names
    libc = ctypes.CDLL(None, use_errno=True)
    with pytest.raises(OSError) as caught:
        check(libc.listxattr(os.fsencode(qos.dir / "file"), ctypes.create_string_buffer(100), 100))
    assert caught.value.errno == errno.ERANGE
    with pytest.raises(OSError) as caught:
        check(libc.getxattr(os.fsencode(qos.dir / "file"), b"user.name-001", ctypes.create_string_buffer(3), 3))
    assert caught.value.errno == errno.ERANGE


def test_of_an_open_and_of_an_unlinked_file(twins):
    def act(top):
        with open(top / "file", "w+") as file:
            os.setxattr(file.fileno(), "user.x", b"1")
            os.unlink(top / "file")
            os.setxattr(file.fileno(), "user.y", b"2")
            return sorted(os.listxattr(file.fileno())), os.getxattr(file.fileno(), "user.x")
    assert twins(act) == (["user.x", "user.y"], b"1")


def test_of_the_mountpoint(store, mount):
    """The store's own alone are listed; those of control never reach the store."""
    qos = mount(store)
    os.setxattr(qos.dir, "user.mine", b"value")
    assert os.getxattr(store.dir, "user.mine") == b"value"
    os.setxattr(qos.dir, "user.qosfs.slots", b"5")
    assert os.listxattr(qos.dir) == os.listxattr(store.dir) == ["user.mine"]
    os.removexattr(qos.dir, "user.mine")
    assert os.listxattr(store.dir) == []


@pytest.mark.parametrize("store", ["ramfs"], indirect=True)
def test_a_store_without_acls(twins):
    """There the mode alone judges, also of users that do not own the file."""
    def prepare(top):
        others = top / "others"
        others.mkdir()
        others.chmod(0o775)
        for name, mode in (("file", 0o664), ("secret", 0o660)):
            (others / name).write_bytes(b"text")
            (others / name).chmod(mode)
            os.chown(others / name, OTHER, OTHER)
        os.chown(others, OTHER, OTHER)

    def act(top):
        others = top / "others"
        (top / "mine").touch()
        return [outcome_of((others / "file").read_bytes), outcome_of((others / "secret").read_bytes), outcome_of(os.mkdir, others / "new"),
                sorted(outcome_of(os.listdir, others)), outcome_of(os.setxattr, top / "mine", "system.posix_acl_access", b"\2\0\0\0")]

    twins.prepare(prepare)
    twins(act)


# --- flags ---

def ioctl(fd, command, size, value=0):
    """The int or the bytes that it answers; a guard behind the argument must stand."""
    argument = bytearray(struct.pack("I", value).ljust(size, b"\0") if isinstance(value, int) else value)
    guarded = argument + b"GUARD123"
    fcntl.ioctl(fd, command, guarded)
    assert guarded[size:] == b"GUARD123"
    return bytes(guarded[:size])


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_flags(twins, kind):
    def act(top):
        path = top / "it"
        path.touch() if kind == "file" else path.mkdir()
        fd = os.open(path, os.O_RDONLY)
        found = [outcome_of(ioctl, fd, FS_IOC_GETFLAGS, 4)]
        for flags in (NODUMP, NODUMP | NOATIME, 0, APPEND):
            found += [outcome_of(ioctl, fd, FS_IOC_SETFLAGS, 4, flags), outcome_of(ioctl, fd, FS_IOC_GETFLAGS, 4)]
        outcome_of(ioctl, fd, FS_IOC_SETFLAGS, 4, 0)
        known = outcome_of(ioctl, fd, FS_IOC_FSGETXATTR, 28)
        found.append(known)
        if isinstance(known, bytes):
            found += [outcome_of(ioctl, fd, FS_IOC_FSSETXATTR, 28, struct.pack("I", 0x80) + known[4:]),
                      outcome_of(ioctl, fd, FS_IOC_FSGETXATTR, 28)]
        os.close(fd)
        return found
    twins(act)


@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_version(twins):
    def act(top):
        with open(top / "file", "w+") as file:
            version = ioctl(file.fileno(), FS_IOC_GETVERSION, 4)
            return len(version), outcome_of(ioctl, file.fileno(), FS_IOC_SETVERSION, 4, 77) == bytes([77, 0, 0, 0]), \
                struct.unpack("I", ioctl(file.fileno(), FS_IOC_GETVERSION, 4))[0] == 77
    twins(act)


@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_chattr_and_lsattr(store, mount):
    qos = mount(store)
    (qos.dir / "file").write_text("text")
    run("chattr", "+aAd", qos.dir / "file")
    try:
        expected, found = (run("lsattr", "-v", top / "file").split()[:2] for top in (store.dir, qos.dir))
        assert found == expected and "a" in found[1]
        assert attempt(open, qos.dir / "file", "w") == errno.EPERM
        with open(qos.dir / "file", "a") as file:
            file.write("more")
    finally:
        run("chattr", "-aAd", qos.dir / "file")
    run("chattr", "+i", qos.dir / "file")
    assert attempt(os.unlink, qos.dir / "file") == errno.EPERM
    run("chattr", "-i", store.dir / "file")
    assert (store.dir / "file").read_text() == "textmore"


def test_other_ioctls_are_unknown(store, mount):
    qos = mount(store)
    with open(qos.dir / "file", "w") as file:
        for command in (0x5401, 0xc0189436, 0x40049409):  # TCGETS, FIDEDUPERANGE, FICLONE
            assert attempt(fcntl.ioctl, file.fileno(), command, bytes(100)) in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL,
                                                                             errno.EBADF)
