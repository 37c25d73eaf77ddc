"""Calls on folders, the working directory, locks, and what is left."""
import array
import fcntl
import os
import struct
from errno import EACCES, EAGAIN, EBADF, EINVAL, ELOOP, ENOENT, ENOTDIR, ENOTTY, EOVERFLOW, EWOULDBLOCK

from conformance import ANY, CLOSED_FD, OK, call, differences, not_root, paths
from conformance.names import folder_fd
from syscalls import Directory
from twins import attempt

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FICLONE, FIDEDUPERANGE, TCGETS = 0x80086601, 0x40086602, 0x40049409, 0xc0189436, 0x5401
F_OFD_GETLK, F_OFD_SETLK = 36, 37
MAX_OFFSET = (1 << 63) - 1


@call("readdir")
def readdir():
    yield "all entries", OK, lambda at: sorted(os.listdir(at))
    yield "is an access", OK, lambda at: os.listdir(at / "folder"), "folder:a"
    yield "of an empty one", OK, lambda at: os.listdir(at / "empty")
    yield "types", OK, lambda at: sorted((entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink())
                                         for entry in os.scandir(at))
    yield "with dots, which are what they are", OK, dots
    yield "by descriptor", OK, lambda at: os.listdir(folder_fd(at / "folder"))
    yield "of a file", ENOTDIR, lambda at: os.listdir(at / "file")
    yield "of a file's descriptor", ENOTDIR, lambda at: os.listdir(os.open(at / "file", os.O_RDONLY))
    yield "of what may not be read", not_root(EACCES), lambda at: os.listdir(at / "closed")
    yield "of what is not open", EBADF, lambda at: os.listdir(CLOSED_FD)
    yield "seekdir back to telldir's place", OK, seek
    yield "rewinddir sees what is new", OK, rewind
    yield from paths.of_existing(lambda at, path: os.listdir(path), root=ENOTDIR)


def names(directory):
    found = []
    while entry := directory.read():
        found.append(entry[0])
    return found


def dots(at):
    with Directory(at / "folder") as directory:
        numbers = dict(iter(directory.read, None))
    return numbers["."] == os.stat(at / "folder").st_ino, numbers[".."] == os.stat(at).st_ino, \
        numbers["inside"] == os.stat(at / "folder/inside").st_ino


def seek(at):
    with Directory(at) as directory:
        first = directory.read()
        place = directory.tell()
        rest = names(directory)
        directory.seek(place)
        return first is not None, names(directory) == rest


def rewind(at):
    with Directory(at / "empty") as directory:
        before = names(directory)
        (at / "empty" / "x").touch()
        directory.rewind()
        after = names(directory)
        os.unlink(at / "empty" / "x")
        return sorted(before), sorted(after)


@call("chdir")
def chdir():
    yield "and getcwd", OK, lambda at: (os.chdir(at / "folder"), os.path.basename(os.getcwd()), os.listdir("."))
    yield "fchdir", OK, lambda at: (os.fchdir(folder_fd(at / "folder")), os.listdir("."), os.path.basename(os.getcwd()))
    yield "through a link", OK, lambda at: (os.chdir(at / "to_folder"), os.path.basename(os.getcwd()))
    yield "getcwd after a rename", OK, lambda at: (os.chdir(at / "folder"), os.rename(at / "folder", at / "new"),
                                                   os.path.basename(os.getcwd()))
    yield "getcwd of what is removed", ENOENT, cwd_of_removed
    yield "to a file", ENOTDIR, lambda at: os.chdir(at / "file")
    yield "to a loop", ELOOP, lambda at: os.chdir(at / "loop")
    yield "without search permission", not_root(EACCES), lambda at: os.chdir(at / "closed")
    yield "fchdir to a file", ENOTDIR, lambda at: os.fchdir(os.open(at / "file", os.O_RDONLY))
    yield "fchdir to what is not open", EBADF, lambda at: os.fchdir(CLOSED_FD)
    yield from paths.of_existing(lambda at, path: os.chdir(path), root=ENOTDIR)


def cwd_of_removed(at):
    os.mkdir(at / "folder/gone")
    os.chdir(at / "folder/gone")
    os.rmdir(at / "folder/gone")
    try:
        os.getcwd()
    finally:
        os.utime(at / "folder", ns=(10**18, 10**18))


def in_child(act):
    """What act() gives in a child: an int, an errno, or None."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr(attempt(act)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reader, 1000)


def lock_of(kind, start=0, length=0):
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


@call("flock")
def flock():
    def conflict(first, second):
        def act(at):
            one, two = (os.open(at / "file", os.O_RDONLY) for _ in range(2))
            fcntl.flock(one, first)
            fcntl.flock(two, second | fcntl.LOCK_NB)
        return act
    yield "two readers", OK, conflict(fcntl.LOCK_SH, fcntl.LOCK_SH), ""
    yield "reader and writer", EWOULDBLOCK, conflict(fcntl.LOCK_SH, fcntl.LOCK_EX)
    yield "two writers", EWOULDBLOCK, conflict(fcntl.LOCK_EX, fcntl.LOCK_EX)
    yield "unlocked", OK, conflict(fcntl.LOCK_UN, fcntl.LOCK_EX)
    yield "of a folder", OK, lambda at: fcntl.flock(folder_fd(at), fcntl.LOCK_EX)
    yield "a copy of the descriptor has the same lock", OK, lambda at: (
        fd := os.open(at / "file", os.O_RDONLY), fcntl.flock(fd, fcntl.LOCK_EX), fcntl.flock(os.dup(fd), fcntl.LOCK_EX))[1:]
    yield "an operation that there is not", EINVAL, lambda at: fcntl.flock(os.open(at / "file", os.O_RDONLY), 16)
    yield "of what is not open", EBADF, lambda at: fcntl.flock(CLOSED_FD, fcntl.LOCK_EX)
    yield "of O_PATH", EBADF, lambda at: fcntl.flock(os.open(at / "file", os.O_PATH), fcntl.LOCK_EX)


@call("fcntl locks")
def record_locks():
    def taken_elsewhere(at, kind, start, length):
        fcntl.lockf(fd := os.open(at / "file", os.O_RDWR), fcntl.LOCK_EX, 5, 3)
        return in_child(lambda: fcntl.lockf(os.open(at / "file", os.O_RDWR), kind | fcntl.LOCK_NB, length, start)), fd > 0
    for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX):
        for start, length in ((3, 5), (0, 3), (7, 1), (8, 1), (0, 0)):
            yield f"{kind} at {start}+{length} while 3+5 is locked", OK, \
                lambda at, kind=kind, start=start, length=length: taken_elsewhere(at, kind, start, length), ""
    yield "F_GETLK tells of it", OK, lambda at: (fcntl.lockf(os.open(at / "file", os.O_RDWR), fcntl.LOCK_EX, 5, 3), in_child(
        lambda: fcntl.fcntl(os.open(at / "file", os.O_RDWR), fcntl.F_GETLK, lock_of(fcntl.F_WRLCK))[:20]))
    yield "closing any descriptor drops it", OK, lambda at: (
        fcntl.lockf(os.open(at / "file", os.O_RDWR), fcntl.LOCK_EX), os.close(os.open(at / "file", os.O_RDONLY)),
        in_child(lambda: fcntl.lockf(os.open(at / "file", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)))
    yield "to write what is open to read", EBADF, lambda at: fcntl.lockf(os.open(at / "file", os.O_RDONLY), fcntl.LOCK_EX)
    yield "to read what is open to write", EBADF, lambda at: fcntl.lockf(os.open(at / "file", os.O_WRONLY), fcntl.LOCK_SH)
    yield "before the beginning", EINVAL, lambda at: fcntl.lockf(os.open(at / "file", os.O_RDWR), fcntl.LOCK_EX, 5, -3)
    yield "beyond the largest offset", EOVERFLOW, lambda at: fcntl.lockf(os.open(at / "file", os.O_RDWR), fcntl.LOCK_EX, 5, MAX_OFFSET)
    yield "of what is not open", EBADF, lambda at: fcntl.lockf(CLOSED_FD, fcntl.LOCK_EX)

    def ofd(second, start, length=5):
        def act(at):
            one, two = (os.open(at / "file", os.O_RDWR) for _ in range(2))
            fcntl.fcntl(one, F_OFD_SETLK, lock_of(fcntl.F_WRLCK, 3, 5))
            fcntl.fcntl(two, F_OFD_SETLK, lock_of(second, start, length))
        return act
    yield "OFD: overlapping", EAGAIN, ofd(fcntl.F_RDLCK, 6)
    yield "OFD: beside", OK, ofd(fcntl.F_WRLCK, 8), ""
    yield "OFD: F_OFD_GETLK", OK, lambda at: fcntl.fcntl(os.open(at / "file", os.O_RDWR), F_OFD_GETLK,
                                                         lock_of(fcntl.F_WRLCK))


def flags_of(path):
    found = array.array("i", [0, 0])
    fcntl.ioctl(os.open(path, os.O_RDONLY), FS_IOC_GETFLAGS, found)
    return found[0]


def set_flags(path):
    """Adds "no dump"; without those that it has it would be another kind of file."""
    fcntl.ioctl(os.open(path, os.O_RDONLY), FS_IOC_SETFLAGS, array.array("i", [flags_of(path) | 0x40, 0]))
    return flags_of(path)


@call("ioctl")
def ioctl():
    yield "FS_IOC_GETFLAGS of a file", ANY, lambda at: flags_of(at / "file"), ""
    yield "FS_IOC_GETFLAGS of a folder", ANY, lambda at: flags_of(at / "folder")
    yield "FS_IOC_GETFLAGS of another's", ANY, lambda at: flags_of(at / "foreign")
    for name in ("file", "shared"):
        yield f"FS_IOC_SETFLAGS of {name}", ANY, lambda at, name=name: set_flags(at / name)
    yield "FICLONE", ANY, lambda at: fcntl.ioctl(os.open(at / "other", os.O_RDWR), FICLONE, os.open(at / "file", os.O_RDONLY))
    yield "a terminal's", ENOTTY, lambda at: fcntl.ioctl(os.open(at / "file", os.O_RDONLY), TCGETS, bytes(100))
    yield "a terminal's, of a folder", ENOTTY, lambda at: fcntl.ioctl(folder_fd(at), TCGETS, bytes(100))
    yield "of what is not open", EBADF, lambda at: fcntl.ioctl(CLOSED_FD, FS_IOC_GETFLAGS, bytes(8))
    yield "of O_PATH", EBADF, lambda at: fcntl.ioctl(os.open(at / "file", os.O_PATH), FS_IOC_GETFLAGS, bytes(8))


@call("fcntl")
def control():
    yield "F_DUPFD shares the position", OK, lambda at: (
        fd := os.open(at / "file", os.O_RDONLY), copy := fcntl.fcntl(fd, fcntl.F_DUPFD, 100), os.read(fd, 3),
        os.read(copy, 3))[2:]
    yield "F_SETFL O_APPEND", OK, lambda at: (
        fd := os.open(at / "file", os.O_RDWR), fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND), os.write(fd, b"x"),
        (at / "file").read_bytes())[1:]
    yield "F_DUPFD beyond what may be open", EINVAL, lambda at: fcntl.fcntl(os.open(at / "file", os.O_RDONLY), fcntl.F_DUPFD, 1 << 30)
    yield "F_GETFL of what is not open", EBADF, lambda at: fcntl.fcntl(CLOSED_FD, fcntl.F_GETFL)
    yield "F_SETLEASE", ANY, lambda at: fcntl.fcntl(os.open(at / "file", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)
    yield "F_GETPIPE_SZ of a file", EBADF, lambda at: fcntl.fcntl(os.open(at / "file", os.O_RDONLY), 1032)
