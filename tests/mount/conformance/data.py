"""Calls on the bytes of files."""
import mmap
import os
import resource
import signal
from errno import (EACCES, EBADF, EFBIG, EINVAL, EISDIR, ENODEV, ENXIO, EOPNOTSUPP, ESPIPE, ETXTBSY)

from conformance import ANY, CLOSED_FD, OK, call, differences, not_root, paths
from conformance.names import folder_fd, mode_of
from syscalls import (FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
                      FALLOC_FL_ZERO_RANGE, fallocate, msync, sync_file_range, syncfs)
from twins import attempt

LARGEST = (1 << 63) - 1
RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_APPEND, RWF_NOAPPEND = 1, 2, 4, 16, 32


def reading(at, name="file"):
    return os.open(at / name, os.O_RDONLY)


def writing(at, name="file", flags=0):
    return os.open(at / name, os.O_RDWR | flags, 0o644)


def pipe_fd(at):
    return os.open(at / "pipe", os.O_RDWR | os.O_NONBLOCK)


def limited(act):
    """act() where no file may be longer than 1000 bytes; Python ignores SIGXFSZ."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most[1]))
    try:
        return act()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)


@call("read")
def read():
    yield "some bytes", OK, lambda at: os.read(reading(at), 4), "file:a"
    yield "to the end and beyond", OK, lambda at: (fd := reading(at), os.read(fd, 100), os.read(fd, 100))[1:], "file:a"
    yield "nothing", OK, lambda at: os.read(reading(at), 0), None, differences.NOTHING_READ
    yield "beyond the end", OK, lambda at: os.pread(reading(at), 10, 1000), None, differences.NOTHING_READ
    yield "a hole", OK, lambda at: (os.truncate(at / "file", 8192), os.pread(reading(at), 10, 4090))
    yield "O_NOATIME", OK, lambda at: os.read(os.open(at / "file", os.O_RDONLY | os.O_NOATIME), 4), ""
    yield "a folder", EISDIR, lambda at: os.read(folder_fd(at / "folder"), 10)
    yield "what is open to write", EBADF, lambda at: os.read(os.open(at / "file", os.O_WRONLY), 10)
    yield "what is not open", EBADF, lambda at: os.read(CLOSED_FD, 10)
    yield "O_PATH", EBADF, lambda at: os.read(os.open(at / "file", os.O_PATH), 10)
    yield "pread at a negative offset", EINVAL, lambda at: os.pread(reading(at), 10, -1)
    yield "pread of a pipe", ESPIPE, lambda at: os.pread(pipe_fd(at), 10, 0)
    yield "pread at the largest offset", ANY, lambda at: os.pread(reading(at), 10, LARGEST)
    yield "readv", OK, lambda at: (parts := [bytearray(3), bytearray(0), bytearray(20)], os.readv(reading(at), parts),
                                   parts)[1:]
    yield "preadv", OK, lambda at: (parts := [bytearray(3), bytearray(4)], os.preadv(reading(at), parts, 5), parts)[1:]
    yield "preadv2 RWF_HIPRI", ANY, lambda at: os.preadv(reading(at), [bytearray(4)], 0, RWF_HIPRI)
    yield "preadv2 of a flag that there is not", EOPNOTSUPP, lambda at: os.preadv(reading(at), [bytearray(4)], 0, 1 << 20)
    yield "too many vectors", EINVAL, lambda at: os.readv(reading(at), [bytearray(1)] * 1025)
    yield "what another writes", OK, lambda at: (fd := reading(at), os.pwrite(writing(at), b"NEW", 4), os.pread(fd, 20, 0))[1:]


@call("write")
def write():
    yield "over bytes", OK, lambda at: os.write(writing(at), b"ab"), "file:mc"
    yield "beyond the end", OK, lambda at: os.pwrite(writing(at), b"ab", 100), "file:smc"
    yield "nothing", OK, lambda at: os.write(writing(at), b""), ""
    yield "O_APPEND", OK, lambda at: (fd := writing(at, flags=os.O_APPEND), os.lseek(fd, 2, os.SEEK_SET),
                                      os.write(fd, b"end"), os.lseek(fd, 0, os.SEEK_CUR))[1:]
    yield "pwrite with O_APPEND", OK, lambda at: (os.pwrite(writing(at, flags=os.O_APPEND), b"end", 0),
                                                 (at / "file").read_bytes())
    yield "O_SYNC", OK, lambda at: os.write(writing(at, flags=os.O_SYNC), b"ab"), "file:mc"
    yield "takes suid and sgid away", OK, lambda at: (os.write(writing(at, "foreign_suid"), b"x"), mode_of(at / "foreign_suid"))
    yield "one's own suid program", OK, lambda at: (os.write(writing(at, "suid"), b"x"), mode_of(at / "suid"))
    yield "what is open to read", EBADF, lambda at: os.write(reading(at), b"x")
    yield "what is not open", EBADF, lambda at: os.write(CLOSED_FD, b"x")
    yield "a folder", EBADF, lambda at: os.write(folder_fd(at), b"x")
    yield "pwrite at a negative offset", EINVAL, lambda at: os.pwrite(writing(at), b"x", -1)
    yield "pwrite of a pipe", ESPIPE, lambda at: os.pwrite(pipe_fd(at), b"x", 0)
    yield "beyond the limit of the process", EFBIG, lambda at: limited(lambda: os.pwrite(writing(at), b"x", 1000))
    yield "up to the limit of the process", OK, lambda at: limited(lambda: os.pwrite(writing(at), b"x" * 100, 950))
    yield "at the largest offset", EINVAL, lambda at: os.pwrite(writing(at), b"x", LARGEST)
    yield "writev", OK, lambda at: os.writev(writing(at), [b"a", b"", b"bc" * 5000])
    yield "pwritev", OK, lambda at: os.pwritev(writing(at), [b"a", b"bc"], 7)
    for name, flag in (("DSYNC", RWF_DSYNC), ("SYNC", RWF_SYNC), ("APPEND", RWF_APPEND), ("HIPRI", RWF_HIPRI)):
        yield f"pwritev2 RWF_{name}", ANY, lambda at, flag=flag: (os.pwritev(writing(at), [b"ab"], 3, flag),
                                                                 (at / "file").read_bytes())
    yield "pwritev2 RWF_NOAPPEND", OK, lambda at: (
        os.pwritev(writing(at, flags=os.O_APPEND), [b"ab"], 3, RWF_NOAPPEND), (at / "file").read_bytes()), None, \
        differences.NO_APPEND
    yield "pwritev2 RWF_APPEND at -1", OK, lambda at: (fd := writing(at), os.pwritev(fd, [b"ab"], -1, RWF_APPEND),
                                                       os.lseek(fd, 0, os.SEEK_CUR))[1:]
    yield "pwritev2 of a flag that there is not", EOPNOTSUPP, lambda at: os.pwritev(writing(at), [b"ab"], 0, 1 << 20)


@call("lseek")
def lseek():
    for whence, name in ((os.SEEK_SET, "SET"), (os.SEEK_CUR, "CUR"), (os.SEEK_END, "END"), (os.SEEK_DATA, "DATA"),
                         (os.SEEK_HOLE, "HOLE")):
        yield f"SEEK_{name}", OK, lambda at, whence=whence: [attempt(os.lseek, reading(at), offset, whence)
                                                            for offset in (0, 5, 10, 11, -1)], ""
    yield "to the largest offset", ANY, lambda at: os.lseek(reading(at), LARGEST, os.SEEK_SET), None, differences.SOUGHT
    yield "beyond the end, and a write there", OK, lambda at: (
        fd := writing(at), os.lseek(fd, 5000, os.SEEK_SET), os.write(fd, b"x"), os.lseek(fd, 0, os.SEEK_CUR))[1:]
    yield "before the beginning", EINVAL, lambda at: os.lseek(reading(at), -11, os.SEEK_END)
    yield "a whence that there is not", EINVAL, lambda at: os.lseek(reading(at), 0, 9)
    yield "data beyond the end", ENXIO, lambda at: os.lseek(reading(at), 100, os.SEEK_DATA)
    yield "a hole beyond the end", ENXIO, lambda at: os.lseek(reading(at), 100, os.SEEK_HOLE)
    yield "a pipe", ESPIPE, lambda at: os.lseek(pipe_fd(at), 0, os.SEEK_SET)
    yield "what is not open", EBADF, lambda at: os.lseek(CLOSED_FD, 0, os.SEEK_SET)
    yield "O_PATH", EBADF, lambda at: os.lseek(os.open(at / "file", os.O_PATH), 0, os.SEEK_SET)

    def holes(at):
        fd = writing(at)
        os.pwrite(fd, b"x" * 4096, 1 << 20)
        os.ftruncate(fd, 2 << 20)
        os.fsync(fd)
        return [attempt(os.lseek, fd, offset, whence) for whence in (os.SEEK_DATA, os.SEEK_HOLE)
                for offset in (0, 4096, 1 << 20, (1 << 20) + 4096, (2 << 20) - 1)]
    yield "data and holes", OK, holes


@call("truncate")
def truncate():
    for size in (0, 5, 10, 100000):
        yield f"to {size}", OK, lambda at, size=size: (os.truncate(at / "file", size), os.stat(at / "file").st_size)
    yield "shorter: size and times", OK, lambda at: os.truncate(at / "file", 5), "file:smc"
    yield "longer: zeros", OK, lambda at: (os.truncate(at / "file", 15), (at / "file").read_bytes())
    yield "and longer again: what was cut is gone", OK, lambda at: (
        os.truncate(at / "file", 5), os.truncate(at / "file", 10), (at / "file").read_bytes())
    yield "to what it has", ANY, lambda at: os.truncate(at / "file", 10)
    yield "takes suid and sgid away", OK, lambda at: (os.truncate(at / "foreign_suid", 2), mode_of(at / "foreign_suid"))
    yield "through a link", OK, lambda at: os.truncate(at / "link", 3), "link:a file:smc"
    yield "a folder", EISDIR, lambda at: os.truncate(at / "folder", 0)
    yield "a pipe", EINVAL, lambda at: os.truncate(at / "pipe", 0)
    yield "to a negative size", EINVAL, lambda at: os.truncate(at / "file", -1)
    yield "beyond the limit of the process", EFBIG, lambda at: limited(lambda: os.truncate(at / "file", 1001))
    yield "far, and back", OK, lambda at: (os.truncate(at / "file", 1 << 33), os.stat(at / "file").st_size,
                                           os.truncate(at / "file", 10))
    yield "to the largest size, and back", ANY, lambda at: (attempt(os.truncate, at / "file", LARGEST),
                                                           os.truncate(at / "file", 10))
    yield "what may not be written", not_root(EACCES), lambda at: os.truncate(at / "foreign", 0)
    yield "what runs", ETXTBSY, truncate_running
    yield from paths.of_existing(lambda at, path: os.truncate(path, 3))


def truncate_running(at):
    from conformance.files import running
    with running(at / "new") as program:
        os.truncate(program, 0)


@call("ftruncate")
def ftruncate():
    yield "shorter", OK, lambda at: os.ftruncate(writing(at), 5), "file:smc"
    yield "longer", OK, lambda at: os.ftruncate(writing(at), 50), "file:smc"
    yield "to what it has", ANY, lambda at: os.ftruncate(writing(at), 10)
    yield "takes suid and sgid away", OK, lambda at: (os.ftruncate(writing(at, "foreign_suid"), 2), mode_of(at / "foreign_suid"))
    yield "what is read-only now", OK, lambda at: (fd := writing(at), os.chmod(at / "file", 0), os.ftruncate(fd, 3))[2:]
    yield "what is open to read", EINVAL, lambda at: os.ftruncate(reading(at), 5)
    yield "a folder", EINVAL, lambda at: os.ftruncate(folder_fd(at), 5)
    yield "a pipe", EINVAL, lambda at: os.ftruncate(pipe_fd(at), 5)
    yield "to a negative size", EINVAL, lambda at: os.ftruncate(writing(at), -1)
    yield "beyond the limit of the process", EFBIG, lambda at: limited(lambda: os.ftruncate(writing(at), 1001))
    yield "what is not open", EBADF, lambda at: os.ftruncate(CLOSED_FD, 5)


MODES = {"0": 0, "KEEP_SIZE": FALLOC_FL_KEEP_SIZE, "PUNCH_HOLE": FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
         "ZERO_RANGE": FALLOC_FL_ZERO_RANGE, "ZERO_RANGE KEEP_SIZE": FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE}


def shift(at, mode):
    fd = writing(at)
    os.ftruncate(fd, 1 << 20)
    fallocate(fd, mode, 65536, 65536)


@call("fallocate")
def fallocate_space():
    for name, mode in MODES.items():
        yield f"{name}, inside", ANY, lambda at, mode=mode: (fallocate(writing(at), mode, 2, 4), (at / "file").read_bytes())
        yield f"{name}, beyond the end", ANY, lambda at, mode=mode: (fallocate(writing(at), mode, 5, 10000),
                                                                    os.stat(at / "file").st_size)
    yield "of another's suid program", ANY, lambda at: (fallocate(writing(at, "foreign_suid"), 0, 0, 1000),
                                                       mode_of(at / "foreign_suid"))
    for name, mode in (("COLLAPSE_RANGE", FALLOC_FL_COLLAPSE_RANGE), ("INSERT_RANGE", FALLOC_FL_INSERT_RANGE)):
        yield f"{name} of blocks", ANY, lambda at, mode=mode: shift(at, mode), None, differences.SHIFTED
    yield "PUNCH_HOLE without KEEP_SIZE", EOPNOTSUPP, lambda at: fallocate(writing(at), FALLOC_FL_PUNCH_HOLE, 0, 5)
    yield "a mode that there is not", EOPNOTSUPP, lambda at: fallocate(writing(at), 0x1000, 0, 5)
    yield "nothing", EINVAL, lambda at: fallocate(writing(at), 0, 0, 0)
    yield "at a negative offset", EINVAL, lambda at: fallocate(writing(at), 0, -1, 5)
    yield "beyond all", EFBIG, lambda at: fallocate(writing(at), 0, LARGEST - 5, 10)
    yield "beyond the limit of the process", EFBIG, lambda at: limited(lambda: fallocate(writing(at), 0, 0, 2000)), None, \
        differences.REFUSED
    yield "what is open to read", EBADF, lambda at: fallocate(reading(at), 0, 0, 5)
    yield "a folder", EBADF, lambda at: fallocate(folder_fd(at), 0, 0, 5)
    yield "a pipe", ESPIPE, lambda at: fallocate(pipe_fd(at), 0, 0, 5)
    yield "what is not open", EBADF, lambda at: fallocate(CLOSED_FD, 0, 0, 5)


@call("fsync")
def fsync():
    for name, sync in (("fsync", os.fsync), ("fdatasync", os.fdatasync), ("syncfs", syncfs),
                       ("sync_file_range", lambda fd: sync_file_range(fd, 0, 5, 7))):
        yield f"{name} of a file", OK, lambda at, sync=sync: (fd := writing(at), os.write(fd, b"x"), sync(fd))[1:]
        yield f"{name} of what is open to read", OK, lambda at, sync=sync: sync(reading(at)), ""
        yield f"{name} of a folder", ANY, lambda at, sync=sync: sync(folder_fd(at))
        yield f"{name} of a pipe", ANY, lambda at, sync=sync: sync(pipe_fd(at))
        yield f"{name} of what is not open", EBADF, lambda at, sync=sync: sync(CLOSED_FD)
    yield "sync_file_range of flags that there are not", EINVAL, lambda at: sync_file_range(writing(at), 0, 5, 8)
    yield "sync_file_range at a negative offset", EINVAL, lambda at: sync_file_range(writing(at), -1, 5, 0)


@call("copy_file_range")
def copy_file_range():
    def copy(source, target, count=4, start=None, to=None, flags=None):
        return os.copy_file_range(source, target, count, start, to)
    yield "from file to file", OK, lambda at: (copy(reading(at), writing(at, "other"), 4, 2, 20),
                                               (at / "other").read_bytes())
    yield "times", OK, lambda at: copy(reading(at), writing(at, "other"), 4, 2, 20), "file:a other:smc"
    yield "at the files' positions", OK, lambda at: (
        source := reading(at), target := writing(at, "other"), copy(source, target), copy(source, target),
        os.lseek(source, 0, os.SEEK_CUR), os.lseek(target, 0, os.SEEK_CUR))[2:]
    yield "beyond the end", OK, lambda at: copy(reading(at), writing(at, "other"), 100, 5, 0)
    yield "after the end", OK, lambda at: copy(reading(at), writing(at, "other"), 100, 50, 0), ""
    yield "nothing", OK, lambda at: copy(reading(at), writing(at, "other"), 0), ""
    yield "within a file", OK, lambda at: (fd := writing(at), copy(fd, fd, 3, 0, 5))[1:]
    yield "onto itself", EINVAL, lambda at: (fd := writing(at), copy(fd, fd, 5, 0, 2))
    yield "from a store to elsewhere", ANY, lambda at: copy(os.open("/etc/passwd", os.O_RDONLY), writing(at), 5, 0, 0)
    yield "takes suid and sgid away", OK, lambda at: (copy(reading(at), writing(at, "foreign_suid"), 2, 0, 0),
                                                     mode_of(at / "foreign_suid"))
    yield "to O_APPEND", EBADF, lambda at: copy(reading(at), writing(at, "other", os.O_APPEND), 4, 0, 0)
    yield "to what is open to read", EBADF, lambda at: copy(reading(at), reading(at, "other"))
    yield "from what is open to write", EBADF, lambda at: copy(os.open(at / "file", os.O_WRONLY), writing(at, "other"))
    yield "from a folder", EISDIR, lambda at: copy(folder_fd(at), writing(at))
    yield "from a pipe", EINVAL, lambda at: copy(pipe_fd(at), writing(at))
    yield "from beyond all", ANY, lambda at: copy(reading(at), writing(at, "other"), 100, LARGEST, 0)
    yield "to beyond all", ANY, lambda at: copy(reading(at), writing(at, "other"), 5, 0, LARGEST)
    yield "beyond the limit of the process", EFBIG, lambda at: limited(lambda: copy(reading(at), writing(at, "other"), 5, 0, 1000))


@call("sendfile")
def sendfile():
    yield "to a pipe", OK, lambda at: (ends := os.pipe(), os.sendfile(ends[1], reading(at), 2, 5), os.read(ends[0], 10))[1:]
    yield "its times", OK, lambda at: (ends := os.pipe(), os.sendfile(ends[1], reading(at), 2, 5))[1:], "file:a"
    yield "to a file", OK, lambda at: (os.sendfile(writing(at, "other"), reading(at), 2, 5), (at / "other").read_bytes())
    yield "to O_APPEND", EINVAL, lambda at: os.sendfile(writing(at, "other", os.O_APPEND), reading(at), 2, 5)
    yield "from what is open to write", EBADF, lambda at: os.sendfile(writing(at, "other"), os.open(at / "file", os.O_WRONLY), 0, 5)
    yield "to what is open to read", EBADF, lambda at: os.sendfile(reading(at, "other"), reading(at), 0, 5)
    yield "at a negative offset", EINVAL, lambda at: os.sendfile(writing(at, "other"), reading(at), -1, 5)


@call("splice")
def splice():
    yield "from a file", OK, lambda at: (ends := os.pipe(), os.splice(reading(at), ends[1], 5, 2), os.read(ends[0], 10))[1:]
    yield "to a file", OK, lambda at: (ends := os.pipe(), os.write(ends[1], b"new"),
                                       os.splice(ends[0], writing(at), 3, offset_dst=4), (at / "file").read_bytes())[1:]
    yield "to another's suid program", OK, lambda at: (ends := os.pipe(), os.write(ends[1], b"new"), os.splice(
        ends[0], writing(at, "foreign_suid"), 3, offset_dst=0), mode_of(at / "foreign_suid"))[1:]
    yield "to O_APPEND", EINVAL, lambda at: (ends := os.pipe(), os.write(ends[1], b"new"),
                                             os.splice(ends[0], writing(at, flags=os.O_APPEND), 3))
    yield "between two files", EINVAL, lambda at: os.splice(reading(at), writing(at, "other"), 5)
    yield "what is not open", EBADF, lambda at: os.splice(CLOSED_FD, writing(at), 5)


def mapping(fd, length=10, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=0):
    return mmap.mmap(fd, length, flags, prot, offset=offset)


def fate(act):
    """How a child ends that does it."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1]


_left = []  # mappings that end with their process


@call("mmap")
def map_pages():
    both = mmap.PROT_READ | mmap.PROT_WRITE
    yield "to read", OK, lambda at: bytes(mapping(reading(at))), "file:a"
    yield "to read privately", OK, lambda at: bytes(mapping(reading(at), flags=mmap.MAP_PRIVATE))

    def change(at, flags, fd):
        with mapping(fd, flags=flags, prot=both) as mapped:
            mapped[3:6] = b"new"
            if flags == mmap.MAP_SHARED:
                msync(mapped, 4)
        return (at / "file").read_bytes()
    yield "to write, shared, and msync", OK, lambda at: change(at, mmap.MAP_SHARED, writing(at))
    yield "to write, privately", OK, lambda at: change(at, mmap.MAP_PRIVATE, reading(at))

    def times(at):
        with mapping(writing(at), prot=both) as mapped:
            mapped[3:6] = b"new"
            mapped.flush()
    yield "to write: times", OK, times

    def leave_changed(at):
        mapped = mapping(writing(at), prot=both)
        mapped[3:6] = b"new"
        _left.append(mapped)
    yield "to write: times before that is written back", OK, leave_changed, None, differences.WRITTEN_LATER
    yield "what is open to read, to write", EACCES, lambda at: mapping(reading(at), prot=both)
    yield "what is open to write", EACCES, lambda at: mapping(os.open(at / "file", os.O_WRONLY), prot=mmap.PROT_WRITE)
    yield "O_APPEND, to write", ANY, lambda at: bytes(mapping(writing(at, flags=os.O_APPEND), prot=both))
    yield "what is not open", EBADF, lambda at: mapping(CLOSED_FD)
    yield "a folder", ENODEV, lambda at: mmap.mmap(folder_fd(at), 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    yield "at an offset inside a page", EINVAL, lambda at: (os.truncate(at / "file", 10000), mapping(reading(at), offset=5))
    yield "to execute", OK, lambda at: bytes(mapping(reading(at), prot=mmap.PROT_READ | mmap.PROT_EXEC))
    yield "behind the end there are zeros", OK, lambda at: fate(lambda: os._exit(grown(at)[100]))
    yield "beyond the last page it ends with SIGBUS", OK, lambda at: fate(lambda: grown(at)[5000]), None, differences.MAPPED

    def seen_by_read(at):
        fd = writing(at)
        with mapping(fd, prot=both) as mapped:
            mapped[0:2] = b"XY"
            before = os.pread(fd, 4, 0)
            os.pwrite(fd, b"ab", 4)
            return before, mapped[4:6]
    yield "agrees with read and write", OK, seen_by_read


def grown(at):
    """A mapping of a file that had two pages, and now has its 10 bytes."""
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    os.truncate(at / "file", 8192)
    mapped = mapping(writing(at), 8192)
    os.truncate(at / "file", 10)
    return mapped
