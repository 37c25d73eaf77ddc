"""open, read, write, fsync, fallocate, lseek, copy_file_range, mmap: the bytes of files, as on the store."""
import errno
import hashlib
import mmap
import os

import pytest

from harness import OTHER, USER, Store, as_job, as_user, outcome_of, run, wait_until
from syscalls import (FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
                      FALLOC_FL_ZERO_RANGE, fallocate)

CACHES = ["cache=auto", "cache=none", "cache=always"]


def noise(size, seed=0):
    return hashlib.shake_128(b"%d" % seed).digest(size)


def test_open_flags(twins):
    def act(top):
        found = []
        (top / "file").write_bytes(b"0123456789")
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_SYNC,
                      os.O_RDWR | os.O_DSYNC, os.O_RDWR | os.O_NONBLOCK, os.O_RDONLY | os.O_NOATIME,
                      os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDONLY | os.O_DIRECTORY,
                      os.O_RDONLY | os.O_NOFOLLOW, os.O_RDWR | os.O_TRUNC):
            fd = outcome_of(os.open, top / "file", flags, 0o644)
            found.append((flags, fd if isinstance(fd, str) else (
                outcome_of(os.pread, fd, 4, 2), outcome_of(os.pwrite, fd, b"ab", 4), outcome_of(os.read, fd, 100))))
            if not isinstance(fd, str):
                os.close(fd)
        return found
    twins(act)


def test_noatime_is_for_the_owner(twins):
    def prepare(top):
        (top / "others").write_text("x")
        (top / "others").chmod(0o666)
        os.chown(top / "others", OTHER, OTHER)
    twins.prepare(prepare)
    assert twins(lambda top: os.close(os.open(top / "others", os.O_RDONLY | os.O_NOATIME))) == \
        (errno.EPERM if twins.uid else None)


@pytest.mark.parametrize("options", CACHES)
def test_a_write_is_one_request(store, mount, options):
    """Before the first the kernel may ask for the file's capabilities, which a write takes away."""
    qos = mount(store, options)
    as_job("7", "dd", "if=/dev/zero", f"of={qos.dir}/file", "bs=4K", "count=100", "status=none")
    qos.wait_booked("7", write=100)
    operations = {name: value["samples"] for name, value in qos.job("7")["operations"].items()}
    assert operations["write"] == 100 and operations.get("getxattr", 0) <= 1


@pytest.mark.parametrize("options", CACHES)
def test_reading_and_writing_anywhere(store, mount, options):
    """Random writes and reads of many sizes, through two open files at once, against a copy in memory."""
    import random
    qos = mount(store, options)
    chance = random.Random(7)
    size = 3 << 20
    expected = bytearray(size)
    with open(qos.dir / "file", "w+b", buffering=0) as one, open(qos.dir / "file", "r+b", buffering=0) as two:
        one.truncate(size)
        for step in range(400):
            file = chance.choice([one, two])
            offset = chance.randrange(size)
            length = min(chance.choice([1, 100, 4096, 5000, 131072, 300000]), size - offset)
            file.seek(offset)
            if chance.random() < 0.5:
                data = noise(length, step)
                assert file.write(data) == length
                expected[offset:offset + length] = data
            else:
                assert file.read(length) == expected[offset:offset + length]
    assert (store.dir / "file").read_bytes() == expected


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 1 << 20, (1 << 20) + 1, (4 << 20) + 17])
def test_sizes(twins, size):
    def act(top):
        (top / "file").write_bytes(noise(size))
        return os.stat(top / "file").st_size, hashlib.sha256((top / "file").read_bytes()).hexdigest()
    assert twins(act)[0] == size


def test_beyond_4_gib(twins):
    def act(top):
        with open(top / "file", "w+b") as file:
            file.seek(5 << 30)
            file.write(b"far")
            file.flush()
            file.seek((5 << 30) - 1)
            found = file.read()
            file.truncate(10)
            return found, os.fstat(file.fileno()).st_size
    assert twins(act) == (b"\0far", 10)


def test_vectors(twins):
    def act(top):
        fd = os.open(top / "file", os.O_CREAT | os.O_RDWR)
        written = os.pwritev(fd, [b"one", b"", b"two", b"x" * 10000], 5)
        parts = [bytearray(4), bytearray(7)]
        return written, os.preadv(fd, parts, 3), parts
    assert twins(act)[2] == [b"\0\0on", b"etwoxxx"]


def test_sync(twins):
    def act(top):
        with open(top / "file", "wb") as file:
            file.write(b"x")
            os.fsync(file.fileno())
            os.fdatasync(file.fileno())
        folder = os.open(top, os.O_RDONLY)
        os.fsync(folder)
        os.fdatasync(folder)
        os.close(folder)
    assert twins(act) is None


# --- O_APPEND ---

@pytest.mark.parametrize("options", CACHES)
def test_appends_of_processes_do_not_overwrite(store, mount, options):
    """Two of the mount, and one on the store itself."""
    qos = mount(store, options)
    children = []
    for number, top in enumerate([qos.dir, qos.dir, store.dir]):
        child = os.fork()
        if child == 0:
            with open(top / "log", "ab", buffering=0) as file:
                for line in range(1500):
                    file.write(b"%d %05d\n" % (number, line))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    lines = (store.dir / "log").read_text().splitlines()
    assert len(lines) == 4500
    for number in range(3):
        mine = [line for line in lines if line.startswith(f"{number} ")]
        assert mine == sorted(mine) and len(mine) == 1500


def test_append_flag_may_change(twins):
    """fcntl(F_SETFL) turns it on and off on an open file."""
    import fcntl

    def act(top):
        (top / "file").write_bytes(b"0123456789")
        fd = os.open(top / "file", os.O_RDWR)
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_APPEND)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"end")
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"begin")
        os.close(fd)
        fd = os.open(top / "file", os.O_RDWR | os.O_APPEND)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        os.lseek(fd, 6, os.SEEK_SET)
        os.write(fd, b"middle")
        os.close(fd)
        return (top / "file").read_bytes()
    assert twins(act) == b"begin5middled"


@pytest.mark.parametrize("options", ["cache=auto", "cache=none"])
def test_mapping_of_a_file_opened_to_append(store, mount, options):
    """Pages are written to their place, not to the end."""
    qos = mount(store, options)
    (store.dir / "file").write_bytes(b"a" * 8192)
    fd = os.open(qos.dir / "file", os.O_RDWR | os.O_APPEND)
    with mmap.mmap(fd, 8192) as mapped:
        mapped[10:13] = b"xyz"
        mapped.flush()
    os.close(fd)
    assert (store.dir / "file").read_bytes() == b"a" * 10 + b"xyz" + b"a" * (8192 - 13)


# --- mmap ---

@pytest.mark.parametrize("options", CACHES)
def test_mapping(store, mount, options):
    qos = mount(store, options)
    data = noise(300000)
    (store.dir / "file").write_bytes(data)
    with open(qos.dir / "file", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert mapped[:] == data
        mapped[100000:100003] = b"new"
        mapped.flush()
        assert (store.dir / "file").read_bytes()[99999:100004] == data[99999:100000] + b"new" + data[100003:100004]
        mapped[200000:200003] = b"two"
    assert (qos.dir / "file").read_bytes()[200000:200003] == b"two"
    with open(qos.dir / "file", "rb") as file, \
            mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        mapped[0:3] = b"own"
    assert (store.dir / "file").read_bytes()[:3] == data[:3]


def test_two_processes_share_a_mapping(store, mount):
    qos = mount(store)
    (store.dir / "file").write_bytes(bytes(4096))
    with open(qos.dir / "file", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        def act():
            with open(qos.dir / "file", "r+b") as other, mmap.mmap(other.fileno(), 0) as theirs:
                theirs[7:12] = b"hello"
        as_user(0, 0, [], act)
        assert mapped[7:12] == b"hello"


# --- holes and space ---

def test_seek_to_data_and_holes(twins):
    def act(top):
        with open(top / "file", "w+b") as file:
            os.pwrite(file.fileno(), noise(65536), 1 << 20)
            os.pwrite(file.fileno(), noise(65536), 3 << 20)
            os.ftruncate(file.fileno(), 5 << 20)
            os.fsync(file.fileno())
            return [outcome_of(os.lseek, file.fileno(), offset, whence)
                    for whence in (os.SEEK_DATA, os.SEEK_HOLE)
                    for offset in (0, 1 << 20, (1 << 20) + 70000, 3 << 20, 4 << 20, 5 << 20, 6 << 20)]
    assert twins(act)[:2] == [1 << 20, 1 << 20]


def test_seek_to_the_end_as_it_is_now(store, mount):
    qos = mount(store, "cache=none")
    with open(qos.dir / "file", "wb", buffering=0) as file:
        (store.dir / "file").write_bytes(b"12345")
        assert file.seek(0, os.SEEK_END) == 5


@pytest.mark.parametrize("mode", [0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
                                  FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0x1000])
def test_fallocate(twins, mode):
    def act(top):
        found = []
        with open(top / "file", "w+b") as file:
            fd = file.fileno()
            os.pwrite(fd, noise(1 << 20), 0)
            os.fsync(fd)
            for offset, length in ((65536, 131072), (1 << 20, 65536), (4096, 8192), (5, 3), (0, 0), (-1, 5)):
                found.append((outcome_of(fallocate, fd, mode, offset, length), os.fstat(fd).st_size, os.fstat(fd).st_blocks,
                              hashlib.sha256((top / "file").read_bytes()).hexdigest()))
        return found
    twins(act)


@pytest.mark.parametrize("mode", [FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE])
def test_fallocate_modes_that_fuse_does_not_know(store, mount, mode):
    with open(mount(store).dir / "file", "wb") as file, pytest.raises(OSError) as caught:
        file.write(noise(1 << 20))
        file.flush()
        fallocate(file.fileno(), mode, 65536, 131072)
    assert caught.value.errno == errno.EOPNOTSUPP
    assert (store.dir / "file").read_bytes() == noise(1 << 20)


def test_fallocate_needs_a_file_open_for_writing(twins):
    def act(top):
        (top / "file").write_bytes(b"x")
        with open(top / "file", "rb") as file:
            fallocate(file.fileno(), 0, 0, 100)
    assert twins(act) == errno.EBADF


def test_full_store(store, mount, world):
    """ENOSPC comes through, and what fitted is there."""
    small = world.folder("small")
    run("mount", "-t", "tmpfs", "-o", "size=1m,mode=1777", "small", small)
    qos = mount(type(store)(small, "tmpfs"))
    fd = os.open(qos.dir / "file", os.O_CREAT | os.O_WRONLY)
    written = 0
    with pytest.raises(OSError) as caught:
        while True:
            written += os.write(fd, noise(100000))
    assert caught.value.errno == errno.ENOSPC
    os.close(fd)
    assert os.stat(small / "file").st_size == written > 0
    qos.unmount()
    run("umount", small)


# --- copying ---

def test_copy_file_range(twins):
    def act(top):
        (top / "from").write_bytes(noise(40 << 20))
        with open(top / "from", "rb") as source, open(top / "to", "w+b") as target:
            done, calls = 0, []
            while copied := os.copy_file_range(source.fileno(), target.fileno(), (40 << 20) - done, done, done + 10):
                done += copied
            calls.append(done)
            calls.append(os.copy_file_range(source.fileno(), target.fileno(), 100, 50 << 20, 0))
            calls.append(os.copy_file_range(source.fileno(), target.fileno(), 100, 5, 1000))
            calls.append(outcome_of(os.copy_file_range, source.fileno(), source.fileno(), 100, 0, 50))
            calls.append(outcome_of(os.copy_file_range, target.fileno(), source.fileno(), 100, 0, 50))
        return calls, hashlib.sha256((top / "to").read_bytes()).hexdigest()
    assert twins(act)[0][:3] == [40 << 20, 0, 100]


def test_copy_between_the_store_and_the_mount(store, mount):
    qos = mount(store)
    (store.dir / "from").write_bytes(noise(300000))
    run("cp", store.dir / "from", qos.dir / "one")
    run("cp", qos.dir / "one", store.dir / "two")
    run("cp", "--sparse=always", qos.dir / "one", qos.dir / "three")
    run("cp", qos.dir / ".qosfs" / "rules", qos.dir / "rules")
    for name in ("one", "two", "three"):
        assert (store.dir / name).read_bytes() == noise(300000)


# --- O_DIRECT and the caches ---

@pytest.mark.parametrize("store", ["ext4"], indirect=True)
@pytest.mark.parametrize("options", CACHES)
def test_direct(store, mount, options):
    qos = mount(store, options)
    fd = os.open(qos.dir / "file", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, 1 << 20) as buffer:
        buffer[:] = noise(1 << 20)
        assert os.pwritev(fd, [buffer], 0) == 1 << 20
        assert os.pwritev(fd, [memoryview(buffer)[:512]], 1 << 20) == 512
        assert (store.dir / "file").read_bytes() == noise(1 << 20) + noise(1 << 20)[:512]
        buffer[:] = bytes(1 << 20)
        assert os.preadv(fd, [buffer], 0) == 1 << 20
        assert buffer[:] == noise(1 << 20)
    assert (qos.dir / "file").read_bytes()[-512:] == noise(1 << 20)[:512]
    os.close(fd)


def test_cache_none_sees_every_change_of_the_store(store, mount):
    qos = mount(store, "cache=none")
    (store.dir / "file").write_bytes(b"1" * 10)
    with open(qos.dir / "file", "rb", buffering=0) as file:
        for digit in b"23456":
            (store.dir / "file").write_bytes(bytes([digit]) * (digit - 40))
            assert os.stat(qos.dir / "file").st_size == digit - 40
            assert os.pread(file.fileno(), 100, 0) == bytes([digit]) * (digit - 40)
    os.rename(store.dir / "file", store.dir / "new")
    assert os.listdir(qos.dir) == ["new"]
    with pytest.raises(FileNotFoundError):
        os.stat(qos.dir / "file")


def test_cache_auto_sees_a_change_at_the_next_open(store, mount):
    """Of the same size, too, and though nobody asks for the attributes."""
    qos = mount(store, "cache=auto,attr_timeout=100,entry_timeout=100")
    for digit in range(30):
        (store.dir / "file").write_bytes(b"%05d" % digit)
        fd = os.open(qos.dir / "file", os.O_RDONLY)
        assert os.read(fd, 5) == b"%05d" % digit
        os.close(fd)


def test_cache_auto_keeps_the_data_of_a_file_that_does_not_change(store, mount):
    qos = mount(store, "cache=auto")
    (store.dir / "file").write_bytes(noise(1 << 20))
    os.utime(store.dir / "file", ns=(10**18, 10**18))

    def read():
        as_job("reader", "dd", f"if={qos.dir / 'file'}", "of=/dev/null", "bs=64k")
        return qos.job("reader")["read_bytes"]
    assert read() > 0
    wait_until(lambda: read() == read() == read(), what="reading from the cache alone")


def test_write_only_file_is_no_reason_to_read(twins):
    """A file that may be written and not read."""
    def act(top):
        fd = os.open(top / "file", os.O_CREAT | os.O_WRONLY, 0o200)
        os.pwrite(fd, b"x" * 5000, 100)
        os.pwrite(fd, b"y", 4000)
        os.close(fd)
        fd = os.open(top / "file", os.O_WRONLY)
        os.pwrite(fd, b"z", 4500)
        os.close(fd)
        return os.stat(top / "file").st_size
    assert twins(act) == 5100


def test_a_file_open_in_two_identities(store, mount):
    """Opened by root, written by a child that is an ordinary user: rights are of the open file."""
    qos = mount(store)
    fd = os.open(qos.dir / "file", os.O_CREAT | os.O_RDWR, 0o600)
    assert as_user(USER, USER, [], lambda: (os.pwrite(fd, b"user", 0), os.pread(fd, 4, 0))) == (4, b"user")
    os.close(fd)
    assert (store.dir / "file").stat().st_uid == 0


@pytest.mark.parametrize("flags, flushes", [(os.O_RDONLY, 0), (os.O_WRONLY, 0), (os.O_RDWR, 1)])
def test_a_local_store_is_not_told_of_each_close(store, mount, flags, flushes):
    """Another one is, and the kernel of those of files that it may have mapped."""
    (store.dir / "file").touch()
    near = mount(store)
    far = mount(Store(near.dir, "qosfs"))
    for qos, expected in ((near, flushes), (far, 1)):
        as_job("closer", "python3", "-c", f"import os; os.close(os.open('{qos.dir}/file', {flags}))")
        qos.wait_booked("closer", close=1, **({"flush": expected} if expected else {}))
        assert expected or "flush" not in qos.job("closer")["operations"]
