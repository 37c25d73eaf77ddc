"""Stores that fail: what they say is passed on truthfully, nothing is acknowledged that they did not take, and the
other files go on. The store `faulty` fails as it is told (faulty_store.c), one errno for one kind of request. The rest
fail by themselves: full, shut down, read-only, gone, hanging.
"""
import concurrent.futures
import contextlib
import errno
import fcntl
import mmap
import os
import stat
import subprocess
import sys
import tempfile
import time

import pytest

import harness
from faulty import HANG
from harness import (MNT_DETACH, USER, Store, as_user, error_of, mount_syscall, run, running, umount, wait_until)
from syscalls import fallocate

STALL = float(os.environ.get("QOSFS_STALL", 1))  # seconds that a store hangs; 30 in the long form
CACHES = ["cache=auto", "cache=none", "cache=always"]


def fails(error):
    """The block must fail with this errno."""
    return pytest.raises(OSError, match=rf"\[Errno {error}\]")


@pytest.fixture
def mount_faulty(faulty, mount):  # unmounted before the store goes
    def make(options="cache=none"):
        return mount(faulty, options)
    return make


@pytest.fixture
def image(world):
    """Makes an ext4 of so many MiB, of its own: its folder."""
    made = []

    def make(size):
        path = world.folder("image") / "ext4"
        with open(path, "wb") as file:
            file.truncate(size << 20)
        run("mkfs.ext4", "-q", "-E", "root_owner=0:0", path)
        made.append(world.folder("ext4"))
        run("mount", "-o", "loop", path, made[-1])
        return made[-1]

    yield make
    for folder in made:
        if os.path.ismount(folder):
            umount(folder, MNT_DETACH)


# --- one errno for one request ---

def read_all(path):
    with open(path, "rb") as file:
        return file.read()


def overwrite(path):
    with open(path, "r+b") as file:
        file.write(b"new")


def reserve(path):
    with open(path, "r+b") as file:
        fallocate(file.fileno(), 0, 0, 4096)


CALLS = {
    "getattr": os.lstat,
    "open": read_all,
    "read": read_all,
    "write": overwrite,
    "truncate": lambda path: os.truncate(path, 1),
    "fallocate": reserve,
    "chmod": lambda path: os.chmod(path, 0o600),
    "chown": lambda path: os.chown(path, USER, USER),
    "utimens": lambda path: os.utime(path, (1, 1)),
    "link": lambda path: os.link(path, path.with_name("linked")),
    "symlink": lambda path: os.symlink("x", path.with_name("symlinked")),
    "readlink": lambda path: os.readlink(path.with_name("pointer")),
    "mknod": lambda path: os.mkfifo(path.with_name("pipe")),
    "rmdir": lambda path: os.rmdir(path.with_name("empty")),
    "unlink": os.unlink,
    "rename": lambda path: os.rename(path, path.with_name("renamed")),
    "create": lambda path: path.with_name("created").write_text("x"),
    "mkdir": lambda path: os.mkdir(path.with_name("folder")),
    "readdir": lambda path: os.listdir(path.parent),
    "statfs": os.statvfs,
}
# What the store is asked for, where that is not the file.
ASKED = {"create": "created", "mkdir": "folder", "readdir": "readdir", "symlink": "symlinked", "readlink": "pointer", "mknod": "pipe",
         "rmdir": "empty"}


def test_a_store_without_xattrs(faulty, mount_faulty):
    """The mount's own can be read and set all the same."""
    qos = mount_faulty()
    (qos.dir / "file").touch()
    for path in (faulty.dir, qos.dir / "file", qos.dir):
        with fails(errno.EOPNOTSUPP):
            os.listxattr(path)
    qos.set("slots", 5)
    assert qos.get("slots") == "5"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESHUTDOWN])
def test_errno_passes(faulty, mount_faulty, error):
    """Of each request; another file goes on, and the same goes on when the store is mended."""
    qos = mount_faulty()
    for operation, call in CALLS.items():
        folder = faulty.behind / operation
        (folder / "empty").mkdir(parents=True)
        (folder / "pointer").symlink_to("file")
        for name in ("file", "other"):
            (folder / name).write_bytes(b"old data")
        faulty.fail(operation, error, ASKED.get(operation, "file"))
        with fails(error):
            call(qos.dir / operation / "file")
        overwrite(qos.dir / operation / "other")
        assert read_all(qos.dir / operation / "other") == b"new data"
        faulty.mend()
        call(qos.dir / operation / "file")


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_store_with_too_many_files_open(faulty, mount_faulty, error):
    """The log says that it is not the daemon which has."""
    qos = mount_faulty()
    qos.expects_log("the store, or the machine, says that too many files are open")
    (qos.dir / "file").write_bytes(b"data")
    faulty.fail("open", error, "file")
    with fails(error):
        os.open(qos.dir / "file", os.O_RDONLY)
    assert qos.log.count("the store, or the machine, says") == 1 and "too many files at once" not in qos.log


def test_a_store_that_does_not_know_a_call(faulty, mount_faulty):
    """ENOSYS would tell the kernel that the mount does not: it would open no file any more, and work on none that is open."""
    qos = mount_faulty("cache=none,entry_timeout=60,attr_timeout=60")
    (qos.dir / "folder").mkdir()
    (qos.dir / "folder/file").write_bytes(b"old data")
    for call, path in ((read_all, qos.dir / "folder/file"), (os.listdir, qos.dir / "folder")):
        os.stat(path)
        faulty.fail("getattr", errno.ENOSYS)  # which the store is asked for when its file is opened
        with fails(errno.EOPNOTSUPP):
            call(path)
        faulty.mend()
        assert call(path) in (b"old data", ["file"])


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("options", CACHES)
def test_a_store_that_knows_files_by_their_paths(faulty, mount_faulty, options, is_open):
    """As many FUSE stores do: there a file of two names is two, of which one goes with its name; or, where it is open, with its
    last close."""
    qos = mount_faulty(options)

    def is_empty():
        for path in qos.dir.iterdir():
            path.unlink(missing_ok=True)
        return not list(faulty.behind.iterdir())
    for end in (os.unlink, lambda path: os.rename(path.with_name("other"), path)):
        for call in (read_all, overwrite, os.stat, CALLS["truncate"], CALLS["chmod"], lambda path: os.link(path, path.with_name("third"))):
            old, new = qos.dir / "old", qos.dir / "new"
            (faulty.behind / "old").write_bytes(b"data")
            (qos.dir / "other").touch()
            os.link(old, new)
            with open(old) if is_open else contextlib.nullcontext():
                end(old)
            wait_until(lambda: not list(faulty.behind.glob(".fuse_hidden*")), what="the last close")
            call(new)
            wait_until(is_empty, what="an empty store")


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("error, told", [(524, errno.EOPNOTSUPP), (528, errno.EIO)])
def test_an_errno_for_kernels_alone(store, mount, error, told):
    """Of those that some stores let out; neither libfuse nor the kernel takes one for an answer."""
    qos = mount(store, "unconfined")  # strace calls what the filter does not know
    (qos.dir / "file").write_bytes(b"data")
    command = ["strace", "-f", "-p", str(qos.pid), "-o", "/dev/null", "-e", "trace=fsync", "-e", f"inject=fsync:error={error}"]
    with open(qos.dir / "file", "rb") as file:
        with running(subprocess.Popen(command, stderr=subprocess.DEVNULL)):
            wait_until(lambda: error_of(lambda: os.fsync(file.fileno())) == told, what="the store's error")
        os.fsync(file.fileno())


@pytest.mark.parametrize("options", CACHES)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_sync_and_close_tell(faulty, mount_faulty, options, error):
    """What a store only says at fsync() or close() is said there."""
    qos = mount_faulty(options)
    for operation, call in (("fsync", os.fsync), ("fsync", os.fdatasync), ("flush", os.close)):
        fd = os.open(qos.dir / operation, os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"data")
        faulty.fail(operation, error)
        with fails(error):
            call(fd)
        faulty.mend()
        if operation == "fsync":
            os.fsync(fd)
            os.close(fd)


@pytest.mark.parametrize("options, flags", [("cache=none", 0), ("cache=auto", os.O_DIRECT), ("cache=auto", 0)])
def test_a_synced_write_tells(faulty, mount_faulty, options, flags):
    """One that is to be on the disk when it returns, by its own flag, also where it appends, which the open did not ask for."""
    qos = mount_faulty(options)
    block = mmap.mmap(-1, mmap.PAGESIZE)
    with open(os.open(qos.dir / "file", os.O_CREAT | os.O_RDWR | flags), "r+b", buffering=0) as file:
        fd = file.fileno()
        faulty.faults(("sync-write", "file", errno.EIO), ("fsync", "file", errno.EIO))
        for more in (0, os.O_APPEND):
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | more)
            os.pwritev(fd, [block], 0)
            assert [error_of(os.pwritev, fd, [block], 0, sync) for sync in (os.RWF_DSYNC, os.RWF_SYNC)] == [errno.EIO] * 2
        faulty.mend()
        assert os.pwritev(fd, [block], 0, os.RWF_SYNC) == len(block)


def test_an_old_kernel_syncs_and_tells(faulty, mount_faulty, monkeypatch):
    """Before Linux 6.9, where what was opened to append, and synced, is written at an offset."""
    with monkeypatch.context() as patch:
        patch.setitem(harness.SANITIZERS, "LD_PRELOAD", harness.preload("without-noappend"))
        qos = mount_faulty()
    with open(os.open(qos.dir / "file", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_SYNC), "wb", buffering=0) as file:
        file.write(b"0123")
        fcntl.fcntl(file, fcntl.F_SETFL, 0)
        for operation in "sync-write", "flush":
            faulty.fail(operation, errno.EIO)
            assert error_of(os.pwrite, file.fileno(), b"ab", 1) == errno.EIO, operation
        faulty.mend()
        assert os.pwrite(file.fileno(), b"ab", 1) == 2
    assert (faulty.behind / "file").read_bytes() == b"0ab3"


@pytest.mark.parametrize("options", CACHES)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_mapping_tells_at_msync(faulty, mount_faulty, options, error):
    """Pages of a mapping that the store refuses."""
    qos = mount_faulty(options)
    (faulty.behind / "file").write_bytes(b"a" * mmap.PAGESIZE)
    with open(qos.dir / "file", "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[0:3] = b"new"
        faulty.fail("write", error)
        with fails(error):
            pages.flush()
        assert (faulty.behind / "file").read_bytes()[:3] == b"aaa"
        faulty.mend()
        pages[0:3] = b"two"
        pages.flush()
        assert (faulty.behind / "file").read_bytes()[:3] == b"two"


# --- in part ---

BLOCK = mmap.PAGESIZE


def read_on(path):
    """How much can be read of the file from its beginning, how that ends, and what a mapping says of what is there."""
    with open(path, "rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages, memoryview(pages) as view:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            while file.read(16 * BLOCK):
                pass
            return file.tell(), None, None
        except OSError as error:
            with tempfile.TemporaryFile(buffering=0) as copy:  # not by Python, which would die of a SIGBUS
                return file.tell(), error.errno, error_of(lambda: copy.write(view[file.tell():]))


@pytest.mark.parametrize("store", ["btrfs"], indirect=True)
@pytest.mark.parametrize("options", CACHES)
def test_a_block_that_cannot_be_read(world, store, mount, options):
    """Its sum is wrong. A read that reaches it ends before it, which is not the file's end."""
    qos = mount(store, options)
    for bad in (0, 3, 40):
        blocks = [os.urandom(BLOCK) for _ in range(64)]
        with open(store.dir / "file", "wb") as file:
            file.write(b"".join(blocks))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with open(world.root / "btrfs.image", "r+b") as image, mmap.mmap(image.fileno(), 0) as device:
            device[device.find(blocks[bad])] ^= 1
        assert read_on(qos.dir / "file") == read_on(store.dir / "file") == (bad * BLOCK, errno.EIO, errno.EFAULT)
        with open(qos.dir / "file", "rb") as file:
            assert file.read(bad * BLOCK) == b"".join(blocks[:bad])


@pytest.mark.parametrize("small", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("options", CACHES)
def test_a_mapping_that_is_taken_in_part(small, mount, options):
    """The kernel writes all of it back at once, and looks only whether that has failed."""
    (small.dir / "file").touch()
    os.truncate(small.dir / "file", 100 * BLOCK)
    fill(small.dir / "filler", BLOCK)
    os.truncate(small.dir / "filler", os.path.getsize(small.dir / "filler") - 50 * BLOCK)
    qos = mount(small, options)
    with open(qos.dir / "file", "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[:] = b"x" * len(pages)
        with fails(errno.ENOSPC):
            pages.flush()
    assert read_all(small.dir / "file").count(b"x") >= 50 * BLOCK


# --- full ---

@pytest.fixture(params=["tmpfs", "ext4"])
def small(request, world, image):
    """A store of 8 MiB."""
    if request.param == "ext4":
        yield Store(image(8), "ext4")
        return
    folder = world.folder("small")
    run("mount", "-t", "tmpfs", "-o", "size=8m", "small", folder)
    yield Store(folder, "tmpfs")
    umount(folder, MNT_DETACH)


def fill(path, block, error=errno.ENOSPC):
    """Writes until the store is full: the open file and what was acknowledged."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    written = bytearray()
    with fails(error):
        while True:
            data = os.urandom(block)
            written += data[:os.write(fd, data)]
    return fd, bytes(written)


@pytest.mark.parametrize("options", CACHES)
@pytest.mark.parametrize("block", [4096, 1_000_000])
def test_full(small, mount, options, block):
    """Each byte that was acknowledged is in the store, after fsync() and a new mount of it too; what needs no room goes on;
    and all goes on when there is room again."""
    (small.dir / "other").write_bytes(b"o" * 65536)
    (small.dir / "sparse").touch()
    os.truncate(small.dir / "sparse", 64 << 20)
    os.sync()
    qos = mount(small, options)
    fd, written = fill(qos.dir / "file", block)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert os.fstat(fd).st_size == len(written) > 1 << 20
    assert read_all(qos.dir / "file") == read_all(small.dir / "file") == written
    with fails(errno.ENOSPC):
        fallocate(fd, 0, len(written), 16 << 20)
    overwrite(qos.dir / "other")
    assert read_all(small.dir / "other") == b"new" + b"o" * 65533
    with open(qos.dir / "sparse", "r+b") as file, mmap.mmap(file.fileno(), 4 << 20) as pages:
        pages[:] = b"x" * (4 << 20)
        with fails(errno.ENOSPC):
            pages.flush()
    os.close(fd)
    os.unlink(qos.dir / "file")
    os.truncate(qos.dir / "sparse", 0)

    # ext4 frees what was removed in the background.
    wait_until(lambda: error_of(lambda: (qos.dir / "again").write_bytes(written[:1 << 20])) is None, what="room for a new file")
    assert read_all(small.dir / "again") == written[:1 << 20]


@pytest.mark.parametrize("store", ["btrfs"], indirect=True)
@pytest.mark.parametrize("options", CACHES)
def test_quota(store, mount, options):
    """A real one."""
    def act():
        fd, written = fill(qos.dir / "file", 100_000, errno.EDQUOT)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert read_all(qos.dir / "file") == written and len(written) > 4 << 20
        with open(qos.dir / "sparse", "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
            pages[:] = b"x" * len(pages)
            assert error_of(pages.flush) == error_of(fallocate, fd, 0, len(written), 16 << 20) == errno.EDQUOT
        os.close(fd)
        return written

    run("btrfs", "quota", "enable", store.dir)
    try:
        run("btrfs", "subvolume", "create", store.dir / "volume")
        run("btrfs", "qgroup", "limit", "6M", store.dir / "volume")
        (store.dir / "volume").chmod(0o777)
        (store.dir / "volume/sparse").touch()
        os.truncate(store.dir / "volume/sparse", 16 << 20)
        os.chown(store.dir / "volume/sparse", USER, USER)
        os.sync()
        qos = mount(Store(store.dir / "volume", store.kind), options)
        assert as_user(USER, USER, [], act) == read_all(store.dir / "volume/file")
        qos.unmount()
    finally:
        run("btrfs", "quota", "disable", store.dir)


def test_no_more_inodes(world, mount):
    folder = world.folder("few")
    run("mount", "-t", "tmpfs", "-o", "nr_inodes=30", "few", folder)
    try:
        qos = mount(Store(folder, "tmpfs"))
        with fails(errno.ENOSPC):
            for number in range(40):
                (qos.dir / str(number)).write_bytes(b"x")
        for make in (os.mkdir, os.mkfifo, lambda path: os.symlink("target", path)):
            with fails(errno.ENOSPC):
                make(qos.dir / "more")
        assert len(os.listdir(qos.dir)) == len(os.listdir(folder)) > 20
        os.unlink(qos.dir / "0")
        # The inode is free when the daemon closes it, which is when the kernel has forgotten it.
        wait_until(lambda: error_of(lambda: os.mkdir(qos.dir / "more")) is None, what="a free inode")
        qos.unmount()
    finally:
        umount(folder, MNT_DETACH)


# --- the device is gone ---

EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2


def test_shut_down(image, mount):
    """ext4 without its device: every call fails through the mount as it does on the store, above all fsync()."""
    folder = image(32)
    for name in ("file", "known"):
        (folder / name).write_bytes(b"old data")
    qos = mount(Store(folder, "ext4"), "cache=none")
    files = [open(top / f"dirty-{number}", "wb", buffering=0) for number, top in enumerate((folder, qos.dir))]
    for file in files:
        file.write(os.urandom(100_000))
    fd = os.open(folder, os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, (NO_LOG_FLUSH).to_bytes(4, sys.byteorder))
    os.close(fd)
    assert [error_of(lambda: os.fsync(file.fileno())) for file in files] == [errno.EIO] * 2
    for call in [*CALLS.values(), lambda path: path.with_name("new").write_text("x"), lambda path: os.mkdir(path / "new")]:
        expected, found = (error_of(lambda top=top: call(top / "file")) for top in (folder, qos.dir))
        assert found == expected
    assert error_of(lambda: overwrite(qos.dir / "known")) == errno.EIO
    assert error_of(lambda: os.mkdir(qos.dir / "folder")) == errno.EIO
    for file in files:
        error_of(file.close)
    qos.unmount()


# --- read-only ---

def test_store_turns_read_only(image, mount):
    """EROFS for what would change it, reading goes on; and all goes on when it is writable again."""
    folder = image(16)
    (folder / "file").write_bytes(b"old data")
    qos = mount(Store(folder, "ext4"))
    with open(qos.dir / "file", "rb") as file:
        run("mount", "-o", "remount,ro", folder)
        for call in (overwrite, *(CALLS[name] for name in ("unlink", "create", "mkdir", "mknod", "symlink", "link", "rename", "chmod",
                                                           "chown", "utimens", "truncate"))):
            with fails(errno.EROFS):
                call(qos.dir / "file")
        assert file.read() == b"old data" and os.listdir(qos.dir) == os.listdir(folder)
        assert os.statvfs(qos.dir).f_blocks == os.statvfs(folder).f_blocks
    run("mount", "-o", "remount,rw", folder)
    overwrite(qos.dir / "file")
    assert (folder / "file").read_bytes() == b"new data"


# --- gone ---

def test_store_dies(faulty, mount_faulty):
    """ENOTCONN for all that is on it, at once; and it unmounts."""
    qos = mount_faulty()
    (qos.dir / "file").write_bytes(b"old data")
    (qos.dir / "other").touch()
    with open(qos.dir / "file", "r+b", buffering=0) as file:
        faulty.process.kill()
        faulty.process.wait()
        for call in (lambda: file.read(1), lambda: file.write(b"x"), lambda: os.fsync(file.fileno()),
                     lambda: os.fstat(file.fileno()), lambda: os.listdir(qos.dir), lambda: os.stat(qos.dir / "other"),
                     lambda: (qos.dir / "new").touch(), lambda: os.mkdir(qos.dir / "folder"), lambda: os.statvfs(qos.dir),
                     lambda: os.stat(qos.dir)):
            with fails(errno.ENOTCONN):
                call()
        error_of(file.close)
    qos.unmount()


def test_store_is_unmounted_lazily(image, mount):
    """It lives as long as the mount over it, with all that is in it."""
    folder = image(16)
    (folder / "folder").mkdir()
    (folder / "folder/file").write_bytes(b"old data")
    qos = mount(Store(folder, "ext4"))
    umount(folder, MNT_DETACH)
    assert os.listdir(folder) == []
    overwrite(qos.dir / "folder/file")
    (qos.dir / "new").write_bytes(b"x")
    assert read_all(qos.dir / "folder/file") == b"new data" and sorted(os.listdir(qos.dir)) == ["folder", "lost+found", "new"]
    qos.unmount()


def test_source_is_removed(store, mount):
    """The directory goes, as a working directory may: the same is said as of one."""
    top = store.dir / "top"
    top.mkdir()
    (top / "file").write_bytes(b"data")
    qos = mount(Store(top, store.kind), "cache=none")
    with open(qos.dir / "file", "r+b", buffering=0) as file:
        os.unlink(top / "file")
        top.rmdir()
        file.write(b"new ")
        os.fsync(file.fileno())
        file.seek(0)
        assert file.read() == b"new " and os.fstat(file.fileno()).st_nlink == 0
    assert os.listdir(qos.dir) == [] and stat.S_ISDIR(os.stat(qos.dir).st_mode)
    for call in (lambda: os.stat(qos.dir / "file"), lambda: (qos.dir / "new").touch(), lambda: os.mkdir(qos.dir / "new")):
        with fails(errno.ENOENT):
            call()
    assert qos.state()["jobs"] is not None


# --- hanging ---

ALL = ("getattr", "open", "read", "write", "create", "readdir", "statfs")


def test_reports_while_the_whole_store_hangs(faulty, mount_faulty):
    """The root's attributes too: a process that walks to .qosfs is told those that were last seen."""
    qos = mount_faulty()
    (qos.dir / "file").write_bytes(b"old data")
    wait_until(lambda: qos.state()["slots"]["running"] == 0, what="the last request's end")  # the kernel knows .qosfs from now on
    attempts = []

    def is_replied():
        attempts.append(subprocess.Popen(["cat", qos.dir / ".qosfs/state.json"], stdout=subprocess.DEVNULL))
        with contextlib.suppress(subprocess.TimeoutExpired):
            return attempts[-1].wait(0.5) == 0
        return False
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        faulty.faults(*((operation, "*", HANG) for operation in ALL))
        try:
            hung = pool.submit(read_all, qos.dir / "file")
            wait_until(is_replied, what="a report")
            assert qos.state()["slots"]["running"] > 0
            qos.ctl("status")
            assert not hung.done()
        finally:
            faulty.mend()
        assert hung.result() == b"old data"
    assert all(attempt.wait() == 0 for attempt in attempts)


def test_store_hangs(faulty, mount_faulty):
    """Requests on some files hang (30 s in the long form): a process that asks for these waits, other files and the
    reports go on, and each is answered in the end."""
    qos = mount_faulty()
    (qos.dir / "apart").mkdir()  # a folder is listed with the attributes of what is in it
    paths = {name: qos.dir / name for name in ("read", "write", "fsync", "open")} | {"getattr": qos.dir / "apart/getattr"}
    for path in (qos.dir / "other", *paths.values()):
        path.write_bytes(b"old data")
    files = {name: open(path, "r+b", buffering=0) for name, path in paths.items()}
    actions = {"read": lambda: files["read"].read(), "write": lambda: files["write"].write(b"new"),
               "fsync": lambda: os.fsync(files["fsync"].fileno()), "open": lambda: read_all(paths["open"]),
               "getattr": lambda: os.fstat(files["getattr"].fileno()).st_size}
    with concurrent.futures.ThreadPoolExecutor(len(actions)) as pool:
        faulty.faults(*((name, name, HANG) for name in actions))
        try:
            hung = {name: pool.submit(action) for name, action in actions.items()}
            wait_until(lambda: qos.state()["slots"]["running"] == len(actions), what="the hanging requests")
            began = time.monotonic()
            while True:
                overwrite(qos.dir / "other")
                assert read_all(qos.dir / "other") == b"new data"
                (qos.dir / "made").write_text("x")
                os.unlink(qos.dir / "made")
                assert {"apart", "fsync", "open", "other", "read", "write"} <= set(os.listdir(qos.dir))
                # At first one may be between its look-up and what hangs.
                wait_until(lambda: qos.state()["slots"]["running"] >= len(actions), what="all that hang")
                assert not any(one.done() for one in hung.values())
                if time.monotonic() - began >= STALL:
                    break
        finally:
            faulty.mend()
    assert {name: one.result() for name, one in hung.items()} == {
        "read": b"old data", "write": 3, "fsync": None, "getattr": 8, "open": b"old data"}
    for file in files.values():
        file.close()
    assert (faulty.behind / "write").read_bytes() == b"new data"
    wait_until(lambda: qos.state()["slots"]["running"] == 0, what="the end of all requests")


@pytest.fixture
def abort(world):
    """Ends a mount's connection, as an administrator would (fusectl)."""
    folder = world.folder("connections")
    mount_syscall("none", folder, "fusectl", "")

    def end(device):
        (folder / str(os.minor(device)) / "abort").write_text("1")
    yield end
    umount(folder)


def test_connection_ends_while_the_store_works(faulty, mount_faulty, abort):
    """Replies that the kernel no longer takes: nobody is told that a request succeeded, and the daemon ends with nothing left of
    the files that it has just opened, made and looked up."""
    qos = mount_faulty()
    device = os.stat(qos.dir).st_dev
    actions = {"read": read_all, "write": overwrite, "open": read_all, "create": lambda path: path.write_text("new"),
               "mkdir": os.mkdir, "getattr": os.stat, "readdir": os.listdir}
    for name in actions:  # a folder each: its lock holds up what else is looked up there
        (faulty.behind / f"in-{name}").mkdir()
        if name == "readdir":
            (faulty.behind / "in-readdir/readdir").mkdir()
        elif name not in ("create", "mkdir"):
            (faulty.behind / f"in-{name}" / name).write_bytes(b"old data")
    with concurrent.futures.ThreadPoolExecutor(len(actions)) as pool:
        faulty.faults(*((name, name, HANG) for name in actions))
        try:
            ended = {name: pool.submit(error_of, lambda name=name, action=action: action(qos.dir / f"in-{name}" / name))
                     for name, action in actions.items()}
            wait_until(lambda: faulty.hanging() == actions.keys(), what="the hanging requests")
            abort(device)
            told = {name: one.result() for name, one in ended.items()}
        finally:
            faulty.mend()
    assert set(told.values()) <= {errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED}, told
    wait_until(lambda: (faulty.behind / "in-create/create").exists() and (faulty.behind / "in-mkdir/mkdir").exists(), what="the store's work")
    qos.unmount()
