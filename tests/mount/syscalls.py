"""System calls that Python does not offer."""
import ctypes
import os
import struct

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_SYMLINK_FOLLOW = 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_ZERO_RANGE, FALLOC_FL_INSERT_RANGE = 8, 16, 32
STATX_MODE, STATX_BASIC_STATS, STATX_BTIME = 2, 0x7ff, 0x800
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2

SYS_OPENAT2, SYS_FACCESSAT2, SYS_FCHMODAT2 = 437, 439, 452  # on every architecture

_libc = ctypes.CDLL(None, use_errno=True)
_libc.telldir.restype = ctypes.c_long
_libc.telldir.argtypes = [ctypes.c_void_p]
_libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
_libc.opendir.restype = ctypes.c_void_p
_libc.readdir.restype = ctypes.c_void_p
_libc.readdir.argtypes = _libc.rewinddir.argtypes = _libc.closedir.argtypes = [ctypes.c_void_p]


def check(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def renameat2(old, new, flags):
    check(_libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def openat2(folder, path, flags, mode=0, resolve=0):
    how = struct.pack("3Q", flags, mode, resolve)
    return check(_libc.syscall(SYS_OPENAT2, folder, os.fsencode(path), how, len(how)))


def faccessat2(folder, path, mode, flags):
    check(_libc.syscall(SYS_FACCESSAT2, folder, os.fsencode(path), mode, flags))


def fchmodat2(folder, path, mode, flags):
    check(_libc.syscall(SYS_FCHMODAT2, folder, os.fsencode(path), mode, flags))


def fchownat(folder, path, uid, gid, flags):
    check(_libc.fchownat(folder, os.fsencode(path), uid, gid, flags))


def getdents(folder, buffer):
    """getdents64(2) into a writable buffer: the bytes that came."""
    return check(_libc.getdents64(folder, (ctypes.c_char * len(buffer)).from_buffer(buffer), len(buffer)))


def sync_file_range(fd, offset, length, flags):
    check(_libc.sync_file_range(fd, ctypes.c_long(offset), ctypes.c_long(length), flags))


def syncfs(fd):
    check(_libc.syncfs(fd))


def msync(mapped, flags):
    """Of a whole mmap.mmap that may be written."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    check(_libc.msync(ctypes.c_void_p(start), ctypes.c_size_t(len(mapped)), flags))


def fallocate(fd, mode, offset, length):
    check(_libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))


def linkat(old_fd, old, new, flags):
    check(_libc.linkat(old_fd, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def utimensat(path, access, change):
    """Each time as (seconds, nanoseconds)."""
    times = struct.pack("4q", *access, *change)
    check(_libc.utimensat(AT_FDCWD, os.fsencode(path), times, 0))


def statx(path, mask=STATX_BASIC_STATS | STATX_BTIME):
    """(mask, birth time in ns)"""
    buffer = ctypes.create_string_buffer(256)
    check(_libc.statx(AT_FDCWD, os.fsencode(path), 0, mask, buffer))
    found, = struct.unpack_from("I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 80)
    return found, seconds * 10**9 + nanoseconds


def mode_of(path):
    """The mode alone (`stat -c %a`): no change of the size or of a time makes the kernel ask for it."""
    buffer = ctypes.create_string_buffer(256)
    check(_libc.statx(AT_FDCWD, os.fsencode(path), 0, STATX_MODE, buffer))
    return struct.unpack_from("H", buffer, 28)[0] & 0o7777


class Directory:
    """A directory stream, with its positions."""

    def __init__(self, path):
        self._stream = _libc.opendir(os.fsencode(path))
        if not self._stream:
            check(-1)

    def read(self):
        """(name, number) of the next entry, or None."""
        ctypes.set_errno(0)
        entry = _libc.readdir(self._stream)
        if not entry:
            check(-1 if ctypes.get_errno() else 0)
            return None
        return os.fsdecode(ctypes.string_at(entry + 19)), ctypes.c_ulong.from_address(entry).value

    def tell(self):
        return _libc.telldir(self._stream)

    def seek(self, position):
        _libc.seekdir(self._stream, position)

    def rewind(self):
        _libc.rewinddir(self._stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _libc.closedir(self._stream)
