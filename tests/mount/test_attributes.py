"""getattr, setattr, statx, statfs, access."""
import errno
import os

import pytest

from harness import OTHER, USER, as_user
from syscalls import STATX_BTIME, UTIME_NOW, UTIME_OMIT, statx, utimensat


# A mount of an ordinary user has the user's groups as they were at the mount.
below_root = pytest.mark.parametrize("twins", ["root", "user"], indirect=True)


def make(folder, name="file", data=b"0123456789", mode=0o644, owner=None):
    path = folder / name
    path.write_bytes(data)
    if owner is not None:
        os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def facts(path):
    """What stat() tells, without what differs between two files."""
    found = os.lstat(path)
    return (found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_size, found.st_rdev, found.st_blocks)


def test_stat_tells_what_the_store_tells(store, mount):
    (store.dir / "folder").mkdir()
    make(store.dir / "folder", data=b"x" * 10000)
    os.symlink("nowhere", store.dir / "link")
    os.mkfifo(store.dir / "pipe")
    os.mknod(store.dir / "device", 0o20640, os.makedev(1, 3))
    qos = mount(store)
    for name in ("", "folder", "folder/file", "link", "pipe", "device"):
        expected, found = os.lstat(store.dir / name), os.lstat(qos.dir / name)
        for field in ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_rdev", "st_blocks",
                      "st_atime_ns", "st_mtime_ns", "st_ctime_ns"):
            assert getattr(found, field) == getattr(expected, field), (name, field)


def test_chmod(twins):
    def act(top):
        path = make(top)
        for mode in (0o000, 0o777, 0o4755, 0o2755, 0o2644, 0o1644, 0o640):
            path.chmod(mode)
            assert facts(path)[0] & 0o7777 == mode
        with open(path, "rb") as file:
            os.fchmod(file.fileno(), 0o600)
        return facts(path)
    twins(act)


def test_chmod_of_a_link_is_refused_as_by_the_store(twins):
    def act(top):
        os.symlink("nowhere", top / "link")
        os.chmod(top / "link", 0o600)
    assert twins(act) == errno.ENOENT


@pytest.mark.parametrize("ids", [(USER, -1), (-1, USER), (OTHER, OTHER), (0, 0), (-1, -1)])
def test_chown(twins, ids):
    def act(top):
        path = make(top, mode=0o6755)
        os.chown(path, *ids)
        return facts(path)
    twins(act)


@below_root
def test_chown_of_a_link(twins):
    def act(top):
        os.symlink("nowhere", top / "link")
        os.lchown(top / "link", -1, OTHER)
        return facts(top / "link")
    twins(act, groups=[OTHER])
    assert os.lstat(twins.behind / "link").st_gid == OTHER


@below_root
def test_owner_gives_to_a_group_of_its_own(twins):
    def act(top):
        path = make(top, mode=0o6755)
        os.chown(path, -1, OTHER)
        return facts(path)
    assert twins(act, groups=[OTHER])[3] == OTHER


def test_truncate(twins):
    def act(top):
        path = make(top)
        sizes = []
        for size in (4, 100000, 0, 1 << 33):
            os.truncate(path, size)
            sizes.append(facts(path))
        with open(path, "r+b") as file:
            file.truncate(3)
            sizes.append(facts(path))
        with open(path, "wb") as file:
            sizes.append(facts(path))
        return sizes
    twins(act)


def test_truncate_changes_the_time(twins):
    def act(top):
        path = make(top)
        os.utime(path, ns=(1, 1))
        os.truncate(path, 5)
        return os.stat(path).st_mtime_ns > 10**18
    assert twins(act) is True


def test_truncate_through_a_handle_that_may_write_what_is_read_only(twins):
    def act(top):
        fd = os.open(top / "file", os.O_CREAT | os.O_RDWR, 0o400)
        os.ftruncate(fd, 5)
        os.fchmod(fd, 0o000)
        os.ftruncate(fd, 7)
        os.utime(fd, ns=(3, 4))
        found = os.fstat(fd)
        os.close(fd)
        return found.st_size, found.st_mode, found.st_atime_ns, found.st_mtime_ns
    assert twins(act)[0] == 7


def test_handle_of_an_unlinked_file(twins):
    def act(top):
        path = make(top)
        with open(path, "r+b") as file:
            path.unlink()
            os.fchmod(file.fileno(), 0o600)
            os.ftruncate(file.fileno(), 3)
            os.utime(file.fileno(), ns=(10**9, 10**9))
            found = os.fstat(file.fileno())
            return found.st_nlink, found.st_size, found.st_mode, found.st_mtime_ns, file.read()
    assert twins(act) == (0, 3, 0o100600, 10**9, b"012")


NOW, OMIT, GIVEN = (0, UTIME_NOW), (0, UTIME_OMIT), (1234567890, 987654321)


@pytest.mark.parametrize("access", [NOW, OMIT, GIVEN])
@pytest.mark.parametrize("change", [NOW, OMIT, GIVEN])
@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_utimens(twins, access, change):
    def act(top):
        path = make(top)
        os.utime(path, ns=(5, 6))
        utimensat(path, access, change)
        found = os.stat(path)
        return [value if value < 2 * 10**18 and value < 1600000000 * 10**9 else "now"
                for value in (found.st_atime_ns, found.st_mtime_ns)]
    values = {NOW: ("now", "now"), OMIT: (5, 6), GIVEN: (1234567890987654321,) * 2}
    assert twins(act) == [values[access][0], values[change][1]]


def test_times_before_1970(twins):
    def act(top):
        path = make(top)
        os.utime(path, ns=(-5 * 10**9, -6 * 10**9))
        return os.stat(path).st_mtime_ns
    assert twins(act) == -6 * 10**9


def test_a_writer_may_touch_and_truncate_but_not_set_times(twins):
    """Of another's file, on which the writer has write permission."""
    def act(top):
        path = top / "shared"
        os.utime(path)
        os.truncate(path, 3)
        return os.stat(path).st_size
    twins.prepare(lambda top: make(top, "shared", mode=0o666, owner=OTHER))
    assert twins(act) == 3
    refused = errno.EPERM if twins.uid else None
    assert twins(lambda top: os.utime(top / "shared", ns=(1, 1))) == refused
    assert twins(lambda top: utimensat(top / "shared", NOW, OMIT)) == refused
    assert twins(lambda top: os.chmod(top / "shared", 0o600)) == refused
    assert twins(lambda top: os.chown(top / "shared", USER, -1)) == refused


# --- suid and sgid ---

def clearing(action, mode):
    """A user does `action` on a suid program with write permission: what is left of the mode."""
    def act(top):
        action(top / "program")
        return oct(os.stat(top / "program").st_mode & 0o7777)
    return lambda top: make(top, "program", mode=mode, owner=OTHER), act


def write(path):
    with open(path, "r+b", buffering=0) as file:
        file.write(b"x")


def truncate(path):
    os.truncate(path, 2)


def truncate_by_handle(path):
    with open(path, "r+b") as file:
        file.truncate(2)


def truncate_by_open(path):
    open(path, "wb").close()


def append(path):
    with open(path, "ab") as file:
        file.write(b"x")


@pytest.mark.parametrize("mode", [0o6777, 0o2767, 0o4766])
@pytest.mark.parametrize("action", [write, truncate, truncate_by_handle, truncate_by_open, append])
def test_privileges_are_cleared_as_on_the_store(twins, action, mode):
    prepare, act = clearing(action, mode)
    twins.prepare(prepare)
    left = twins(act)
    assert (left == oct(mode)) == (twins.uid == 0)


@pytest.mark.parametrize("ids", [(-1, USER), (USER, -1), (-1, -1)])
def test_chown_clears_privileges(twins, ids):
    def act(top):
        path = make(top, mode=0o6755)
        os.chown(path, *ids)
        return oct(os.stat(path).st_mode & 0o7777)
    twins(act)


def test_root_without_fsetid_loses_privileges_too(store, mount):
    """The kernel says so by a flag; the daemon's root would not."""
    qos = mount(store)
    for action in (write, truncate_by_handle, truncate_by_open, truncate):
        path = make(store.dir, action.__name__, mode=0o6777, owner=OTHER)

        def act(path=qos.dir / action.__name__, action=action):
            drop_capability(4)  # CAP_FSETID
            action(path)
        as_user(0, 0, [], act)
        assert oct(path.stat().st_mode & 0o7777) == oct(0o777), action.__name__


def drop_capability(number):
    import ctypes
    import struct
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", 0x20080522, 0)
    data = ctypes.create_string_buffer(24)
    assert libc.capget(header, data) == 0
    words = list(struct.unpack("6I", data.raw))
    words[0] &= ~(1 << number)
    assert libc.capset(header, struct.pack("6I", *words)) == 0


# --- the rest ---

def test_birth_time(store, mount):
    qos = mount(store)
    path = make(qos.dir)
    found, birth = statx(path)
    expected, expected_birth = statx(store.dir / "file")
    assert found & STATX_BTIME and expected & STATX_BTIME
    assert birth == expected_birth > 10**18
    assert statx(qos.dir / ".qosfs" / "jobs")[0] & STATX_BTIME == 0
    assert statx(path)[1] == birth  # the answer about .qosfs has not turned it off


def test_statfs(store, mount):
    qos = mount(store)
    expected, found = os.statvfs(store.dir), os.statvfs(qos.dir)
    for field in ("f_bsize", "f_frsize", "f_blocks", "f_files", "f_namemax"):
        assert getattr(found, field) == getattr(expected, field), field


def test_access(twins):
    def act(top):
        return [(path.name, mode, os.access(path, mode), os.access(path, mode, effective_ids=True))
                for path in sorted(top.iterdir())
                for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.X_OK)]
    for mode in (0o000, 0o644, 0o710, 0o777):
        twins.prepare(lambda top, mode=mode: make(top, f"{mode:o}", mode=mode, owner=OTHER))
    twins(act)


def test_numbers_of_names_of_one_file_agree(store, mount):
    qos = mount(store)
    make(store.dir)
    os.link(store.dir / "file", store.dir / "other")
    assert os.stat(qos.dir / "file").st_ino == os.stat(qos.dir / "other").st_ino
    assert os.path.samefile(qos.dir / "file", qos.dir / "other")
