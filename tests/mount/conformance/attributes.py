"""Calls on attributes: of files, of the file system, extended ones."""
import os
import stat
import struct
from errno import (E2BIG, EACCES, EBADF, EEXIST, EINVAL, ELOOP, ENODATA, ENOTDIR, ENOENT, EOPNOTSUPP, EPERM, ERANGE)

from conformance import ANY, CLOSED_FD, OK, call, not_root, paths
from conformance.names import folder_fd, mode_of
from harness import OTHER, USER
from syscalls import (AT_EMPTY_PATH, AT_FDCWD, UTIME_NOW, UTIME_OMIT, faccessat2, fchmodat2, fchownat, statx, utimensat)
from twins import attempt

AT_SYMLINK_NOFOLLOW, AT_EACCESS = 0x100, 0x200
KINDS = ("file", "folder", "link", "dangling", "loop", "pipe", "socket", "closed", "secret", "foreign", "sticky", "suid",
         "setgid", "none")


def facts(found):
    """What is the same of twins."""
    return (oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, found.st_mtime_ns,
            None if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_blocks, found.st_blksize))


def of_what_is_not_ours(act):
    """Of act(path) that the owner may do."""
    for name in ("foreign", "shared", "foreign_suid", "sticky"):
        yield f"of another's: {name}", not_root(EPERM), lambda at, name=name: act(at / name)


@call("stat")
def stat_file():
    for name in KINDS:
        yield f"stat of {name}", ANY, lambda at, name=name: facts(os.stat(at / name))
        yield f"lstat of {name}", ANY, lambda at, name=name: facts(os.lstat(at / name)), ""
    yield "fstat", OK, lambda at: facts(os.fstat(os.open(at / "file", os.O_RDONLY))), ""
    yield "fstat of O_PATH", OK, lambda at: facts(os.fstat(os.open(at / "link", os.O_PATH | os.O_NOFOLLOW))), ""
    yield "fstat of what is not open", EBADF, lambda at: os.fstat(CLOSED_FD)
    yield "fstat of a pipe", OK, lambda at: facts(os.fstat(os.open(at / "pipe", os.O_RDWR)))
    yield "fstatat", OK, lambda at: facts(os.stat("inside", dir_fd=folder_fd(at / "folder"))), ""
    yield "fstatat of what is not open", EBADF, lambda at: os.stat("file", dir_fd=CLOSED_FD)
    yield "fstatat relative to a file", ENOTDIR, lambda at: os.stat("x", dir_fd=os.open(at / "file", os.O_RDONLY))
    yield "one file is one number", OK, lambda at: (
        os.link(at / "file", at / "new"), os.path.samestat(os.stat(at / "file"), os.stat(at / "new")),
        os.path.samestat(os.stat(at / "file"), os.stat(at / "other")))
    yield "statx", OK, lambda at: (found := statx(at / "file"), hex(found[0]), found[1] > 10**18)[1:]
    yield "statx for a reserved bit", EINVAL, lambda at: statx(at / "file", 1 << 31)
    yield from paths.of_existing(lambda at, path: os.stat(path).st_size)


@call("access")
def access():
    for name in KINDS:
        yield f"all modes of {name}", OK, lambda at, name=name: [
            (mode, attempt(faccessat2, AT_FDCWD, at / name, mode, flags))
            for mode in range(8) for flags in (0, AT_EACCESS, AT_SYMLINK_NOFOLLOW)]
    yield "by descriptor", OK, lambda at: [attempt(faccessat2, os.open(at / "file", os.O_PATH), "", mode, AT_EMPTY_PATH)
                                           for mode in range(8)]
    yield "a mode that there is not", EINVAL, lambda at: faccessat2(AT_FDCWD, at / "file", 8, 0)
    yield "a flag that there is not", EINVAL, lambda at: faccessat2(AT_FDCWD, at / "file", 0, 1)
    yield "relative to what is not open", EBADF, lambda at: faccessat2(CLOSED_FD, "file", 0, 0)
    yield "to execute what nobody may", EACCES, lambda at: faccessat2(AT_FDCWD, at / "file", os.X_OK, 0)
    yield from paths.of_existing(lambda at, path: faccessat2(AT_FDCWD, path, os.F_OK, 0))


@call("chmod")
def chmod():
    for mode in (0, 0o777, 0o4755, 0o2755, 0o2644, 0o1644, 0o7777):
        yield f"a file to {mode:o}", OK, lambda at, mode=mode: (os.chmod(at / "file", mode), mode_of(at / "file"))
        yield f"a folder to {mode:o}", OK, lambda at, mode=mode: (os.chmod(at / "empty", mode), mode_of(at / "empty"))
    yield "mode and ctime", OK, lambda at: os.chmod(at / "file", 0o600), "file:pc"
    yield "to what it is", OK, lambda at: os.chmod(at / "file", 0o644), "file:c"
    yield "through a link", OK, lambda at: os.chmod(at / "link", 0o600), "link:a file:pc"
    yield "a pipe", OK, lambda at: os.chmod(at / "pipe", 0o600), "pipe:pc"
    yield "sgid of a file of a foreign group", OK, lambda at: (
        attempt(os.chmod, at / "setgid", 0o2755), mode_of(at / "setgid"))
    yield "sgid is taken from a user outside the group", OK, sgid_of_another_group
    yield "fchmod", OK, lambda at: os.fchmod(os.open(at / "file", os.O_RDONLY), 0o600), "file:pc"
    yield "fchmod of what is not open", EBADF, lambda at: os.fchmod(CLOSED_FD, 0o600)
    yield "fchmod of O_PATH", EBADF, lambda at: os.fchmod(os.open(at / "file", os.O_PATH), 0o600)
    yield "fchmodat", OK, lambda at: fchmodat2(folder_fd(at), "file", 0o600, 0), "file:pc"
    yield "fchmodat of the link itself", ANY, lambda at: fchmodat2(folder_fd(at), "link", 0o600, AT_SYMLINK_NOFOLLOW)
    yield "fchmodat of a file without following", ANY, lambda at: fchmodat2(folder_fd(at), "file", 0o600, AT_SYMLINK_NOFOLLOW)
    yield "fchmodat of a flag that there is not", EINVAL, lambda at: fchmodat2(folder_fd(at), "file", 0o600, 1)
    yield "fchmodat relative to what is not open", EBADF, lambda at: fchmodat2(CLOSED_FD, "file", 0o600, 0)
    yield "a loop", ELOOP, lambda at: os.chmod(at / "loop", 0o600)
    yield "a dangling link", ENOENT, lambda at: os.chmod(at / "dangling", 0o600)
    yield from of_what_is_not_ours(lambda path: os.chmod(path, 0o600))
    yield from paths.of_existing(lambda at, path: os.chmod(path, 0o600))


def sgid_of_another_group(at):
    """A file in a setgid folder has the folder's group."""
    os.close(os.open(at / "setgid/new", os.O_CREAT | os.O_WRONLY, 0o755))
    os.chmod(at / "setgid/new", 0o2755)
    return mode_of(at / "setgid/new")


@call("chown")
def chown():
    for ids in ((-1, -1), (OTHER, -1), (-1, OTHER), (OTHER, OTHER), (0, 0)):
        yield f"a file to {ids}", ANY, lambda at, ids=ids: os.chown(at / "file", *ids)
        yield f"a folder to {ids}", ANY, lambda at, ids=ids: os.chown(at / "folder", *ids)
        yield f"a suid program to {ids}", ANY, lambda at, ids=ids: (os.chown(at / "suid", *ids), mode_of(at / "suid"))
        yield f"a setgid folder to {ids}", ANY, lambda at, ids=ids: (os.chown(at / "setgid", *ids), mode_of(at / "setgid"))
    yield "to the group that it has", OK, lambda at: os.chown(at / "file", -1, os.getgid()), "file:c"
    yield "lchown", OK, lambda at: os.lchown(at / "link", -1, os.getgid()), "link:c"
    yield "through a link", OK, lambda at: os.chown(at / "link", -1, os.getgid()), "link:a file:c"
    yield "fchown", OK, lambda at: os.fchown(os.open(at / "file", os.O_RDONLY), -1, os.getgid()), "file:c"
    yield "fchown of what is not open", EBADF, lambda at: os.fchown(CLOSED_FD, -1, -1)
    yield "fchownat by an empty path", OK, lambda at: fchownat(os.open(at / "file", os.O_PATH), "", -1, os.getgid(), AT_EMPTY_PATH)
    yield "fchownat of a flag that there is not", EINVAL, lambda at: fchownat(folder_fd(at), "file", -1, -1, 1)
    yield "fchownat relative to what is not open", EBADF, lambda at: fchownat(CLOSED_FD, "file", -1, -1, 0)
    yield "give away", not_root(EPERM), lambda at: os.chown(at / "file", OTHER, -1)
    yield "take", not_root(EPERM), lambda at: os.chown(at / "foreign", USER, -1)
    yield "to a group of others", not_root(EPERM), lambda at: os.chown(at / "file", -1, OTHER)
    yield from paths.of_existing(lambda at, path: os.chown(path, -1, os.getgid()))


NOW, OMIT, GIVEN, WRONG = (0, UTIME_NOW), (0, UTIME_OMIT), (1234567890, 123456789), (0, 10**9)


@call("utimensat")
def utimens():
    yield "both now", OK, lambda at: os.utime(at / "file"), "file:amc"
    yield "both given", OK, lambda at: (os.utime(at / "file", ns=(5 * 10**9 + 7, 6 * 10**9 + 8)),
                                        os.stat(at / "file").st_atime_ns, os.stat(at / "file").st_mtime_ns)
    yield "access alone", OK, lambda at: utimensat(at / "file", GIVEN, OMIT), "file:ac"
    yield "change alone", OK, lambda at: utimensat(at / "file", OMIT, GIVEN), "file:mc"
    yield "neither", OK, lambda at: utimensat(at / "file", OMIT, OMIT), ""
    yield "access now, change given", OK, lambda at: utimensat(at / "file", NOW, GIVEN), "file:amc"
    yield "a folder", OK, lambda at: os.utime(at / "folder"), "folder:amc"
    yield "the link itself", OK, lambda at: os.utime(at / "link", follow_symlinks=False), "link:amc"
    yield "through a link", OK, lambda at: os.utime(at / "link"), "link:a file:amc"
    yield "futimens", OK, lambda at: os.utime(os.open(at / "file", os.O_RDONLY)), "file:amc"
    yield "futimens of what is not open", EBADF, lambda at: os.utime(CLOSED_FD)
    for seconds in (-1, -2**31, 2**31, 2**32 + 5, 2**34 - 1, 2**40):
        yield f"{seconds} s", OK, lambda at, seconds=seconds: (
            utimensat(at / "file", (seconds, 1), (seconds, 999999999)), os.stat(at / "file").st_atime_ns,
            os.stat(at / "file").st_mtime_ns)
    yield "nanoseconds beyond a second", EINVAL, lambda at: utimensat(at / "file", WRONG, NOW)
    yield "negative nanoseconds", EINVAL, lambda at: utimensat(at / "file", (0, -1), NOW)
    yield "now, another's without write permission", not_root(EACCES), lambda at: os.utime(at / "foreign")
    yield "now, another's with write permission", OK, lambda at: os.utime(at / "shared"), "shared:amc"
    yield "given, another's with write permission", not_root(EPERM), lambda at: os.utime(at / "shared", ns=(5, 5))
    yield "one now, another's with write permission", not_root(EPERM), lambda at: utimensat(at / "shared", NOW, OMIT)
    yield "neither, another's", OK, lambda at: utimensat(at / "foreign", OMIT, OMIT), ""
    yield "one's own without write permission", OK, lambda at: os.utime(at / "secret"), "secret:amc"
    yield from paths.of_existing(lambda at, path: os.utime(path))


def space(found):
    return found.f_bsize, found.f_frsize, found.f_blocks, found.f_files, found.f_namemax


@call("statvfs")
def statvfs():
    yield "of a file", OK, lambda at: space(os.statvfs(at / "file")), ""
    yield "of a folder", OK, lambda at: space(os.statvfs(at))
    yield "fstatvfs", OK, lambda at: space(os.fstatvfs(os.open(at / "file", os.O_RDONLY)))
    yield "fstatvfs of what is not open", EBADF, lambda at: os.fstatvfs(CLOSED_FD)
    yield from paths.of_existing(lambda at, path: space(os.statvfs(path)))


@call("pathconf")
def pathconf():
    for name in ("PC_NAME_MAX", "PC_PATH_MAX", "PC_PIPE_BUF", "PC_NO_TRUNC", "PC_CHOWN_RESTRICTED", "PC_MAX_CANON",
                 "PC_VDISABLE", "PC_SYNC_IO"):
        yield name, ANY, lambda at, name=name: os.pathconf(at / "folder", name), ""
    yield "fpathconf of what is not open", EBADF, lambda at: os.fpathconf(CLOSED_FD, "PC_NAME_MAX")
    yield "a name that there is not", EINVAL, lambda at: os.pathconf(at / "file", 9999)
    yield from paths.of_existing(lambda at, path: os.pathconf(path, "PC_NAME_MAX"))


def set_x(at, flags=0):
    os.setxattr(at / "file", "user.x", b"1", flags)


@call("setxattr")
def setxattr():
    yield "a new one", OK, lambda at: (os.setxattr(at / "file", "user.x", b"1"), os.getxattr(at / "file", "user.x"))
    yield "its time", OK, lambda at: os.setxattr(at / "file", "user.x", b"1"), "file:c"
    yield "one that is there", OK, lambda at: (set_x(at), os.setxattr(at / "file", "user.x", b"2"),
                                              os.getxattr(at / "file", "user.x"))
    yield "an empty value", OK, lambda at: (os.setxattr(at / "file", "user.x", b""), os.getxattr(at / "file", "user.x"))
    yield "of a folder", OK, lambda at: os.setxattr(at / "folder", "user.x", b"1"), "folder:c"
    yield "through a link", OK, lambda at: os.setxattr(at / "link", "user.x", b"1"), "link:a file:c"
    yield "fsetxattr of what is open to read", OK, lambda at: os.setxattr(os.open(at / "file", os.O_RDONLY), "user.x", b"1")
    yield "fsetxattr of O_PATH", EBADF, lambda at: os.setxattr(os.open(at / "file", os.O_PATH), "user.x", b"1")
    yield "fsetxattr of what is not open", EBADF, lambda at: os.setxattr(CLOSED_FD, "user.x", b"1")
    yield "CREATE of one that is there", EEXIST, lambda at: (set_x(at), set_x(at, os.XATTR_CREATE))
    yield "REPLACE of one that is not", ENODATA, lambda at: os.setxattr(at / "file", "user.x", b"1", os.XATTR_REPLACE)
    yield "a flag that there is not", EINVAL, lambda at: os.setxattr(at / "file", "user.x", b"1", 8)
    yield "a name of 256 bytes", ERANGE, lambda at: os.setxattr(at / "file", "user." + "n" * 251, b"1")
    yield "a value beyond 64 KiB", E2BIG, lambda at: os.setxattr(at / "file", "user.x", b"v" * 65537)
    yield "a space of names that there is not", EOPNOTSUPP, lambda at: os.setxattr(at / "file", "nothing.x", b"1")
    for name in ("user.x", "trusted.x", "security.x"):
        for kind in ("link", "pipe", "socket", "foreign", "secret", "sticky"):
            yield f"{name} of {kind}", ANY, lambda at, name=name, kind=kind: os.setxattr(at / kind, name, b"1",
                                                                                        follow_symlinks=False)
    yield from paths.of_existing(lambda at, path: os.setxattr(path, "user.x", b"1"))


@call("getxattr")
def getxattr():
    yield "one that is not there", ENODATA, lambda at: os.getxattr(at / "file", "user.x")
    yield "changes no time", OK, lambda at: os.listxattr(at / "file"), ""
    yield "of what may not be read", ANY, lambda at: os.getxattr(at / "secret", "user.x")
    yield "a trusted one", ANY, lambda at: os.getxattr(at / "file", "trusted.x")
    yield "a name of 256 bytes", ERANGE, lambda at: os.getxattr(at / "file", "user." + "n" * 251)
    yield "a space of names that there is not", EOPNOTSUPP, lambda at: os.getxattr(at / "file", "nothing.x")
    yield "of what is not open", EBADF, lambda at: os.getxattr(CLOSED_FD, "user.x")
    yield "of a link itself", ANY, lambda at: os.getxattr(at / "link", "user.x", follow_symlinks=False)
    yield from paths.of_existing(lambda at, path: len(os.listxattr(path)))


@call("listxattr")
def listxattr():
    yield "none", OK, lambda at: os.listxattr(at / "file"), ""
    yield "some", OK, lambda at: ([os.setxattr(at / "file", f"user.{name}", b"") for name in "abc"],
                                  sorted(os.listxattr(at / "file")))
    for name in ("folder", "link", "pipe", "secret", "foreign"):
        yield f"of {name}", OK, lambda at, name=name: os.listxattr(at / name, follow_symlinks=False)
    yield "of what is not open", EBADF, lambda at: os.listxattr(CLOSED_FD)


@call("removexattr")
def removexattr():
    yield "one that is there", OK, lambda at: (set_x(at), os.removexattr(at / "file", "user.x"), os.listxattr(at / "file"))
    yield "one that is not there", ENODATA, lambda at: os.removexattr(at / "file", "user.x")
    yield "of what may not be written", not_root(EACCES, ENODATA), lambda at: os.removexattr(at / "foreign", "user.x")
    yield "of what is not open", EBADF, lambda at: os.removexattr(CLOSED_FD, "user.x")
    yield from paths.of_existing(lambda at, path: os.removexattr(path, "user.x"), root=ENODATA)


# VFS_CAP_REVISION_2, effective, cap_net_raw permitted
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)


def capable(at, act):
    """What is left of a file's capability when `act` has been done to it; EPERM if the actor may give none."""
    os.setxattr(at / "file", "security.capability", CAPABILITY)
    act(at / "file")
    return os.listxattr(at / "file")


@call("file capabilities")
def file_capabilities():
    for title, act in (
            ("set", lambda path: None), ("read", lambda path: path.read_bytes()), ("chmod", lambda path: path.chmod(0o700)),
            ("write", lambda path: os.write(os.open(path, os.O_WRONLY), b"x")),
            ("truncate", lambda path: os.truncate(path, 3)),
            ("ftruncate", lambda path: os.ftruncate(os.open(path, os.O_WRONLY), 3)),
            ("O_TRUNC", lambda path: os.open(path, os.O_WRONLY | os.O_TRUNC)), ("chown", lambda path: os.chown(path, 5, -1)),
            ("chown to nobody else", lambda path: os.chown(path, -1, -1)), ("utime", os.utime)):
        yield title, not_root(EPERM), lambda at, act=act: capable(at, act)
