"""Every call that writes, on a read-only file system: its own mount, over a read-only store."""
import os
import socket
from errno import EACCES, EEXIST, EROFS

from conformance import ANY, OK, call, differences, not_root
from conformance.others import set_flags
from syscalls import AT_FDCWD, RENAME_EXCHANGE, faccessat2, renameat2, utimensat


def bind(at):
    os.chdir(at)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("new")


@call("read-only")
def read_only():
    for title, act in (
            ("link", lambda at: os.link(at / "file", at / "new")), ("symlink", lambda at: os.symlink("x", at / "new")),
            ("unlink", lambda at: os.unlink(at / "file")), ("rmdir", lambda at: os.rmdir(at / "empty")),
            ("rename", lambda at: os.rename(at / "file", at / "new")), ("mkdir", lambda at: os.mkdir(at / "new")),
            ("renameat2 EXCHANGE", lambda at: renameat2(at / "file", at / "other", RENAME_EXCHANGE)),
            ("mknod", lambda at: os.mknod(at / "new")), ("mkfifo", lambda at: os.mkfifo(at / "new")), ("bind", bind),
            ("open to write", lambda at: os.open(at / "file", os.O_WRONLY)),
            ("open O_TRUNC", lambda at: os.open(at / "file", os.O_RDONLY | os.O_TRUNC)),
            ("open O_CREAT", lambda at: os.open(at / "new", os.O_RDONLY | os.O_CREAT)),
            ("O_TMPFILE", lambda at: os.open(at, os.O_TMPFILE | os.O_RDWR)),
            ("truncate", lambda at: os.truncate(at / "file", 3)), ("chmod", lambda at: os.chmod(at / "file", 0o600)),
            ("fchmod", lambda at: os.fchmod(os.open(at / "file", os.O_RDONLY), 0o600)),
            ("chown", lambda at: os.chown(at / "file", -1, os.getgid())),
            ("lchown", lambda at: os.lchown(at / "link", -1, os.getgid())),
            ("utime", lambda at: os.utime(at / "file")), ("utimensat", lambda at: utimensat(at / "file", (1, 1), (1, 1))),
            ("setxattr", lambda at: os.setxattr(at / "file", "user.x", b"1")),
            ("removexattr", lambda at: os.removexattr(at / "file", "user.x")),
            ("access W_OK", lambda at: faccessat2(AT_FDCWD, at / "file", os.W_OK, 0))):
        yield title, EROFS, act, ""
    yield "mkdir of what is there", EEXIST, lambda at: os.mkdir(at / "folder")
    yield "open O_EXCL of what is there", EEXIST, lambda at: os.open(at / "file", os.O_CREAT | os.O_EXCL)
    yield "FS_IOC_SETFLAGS", ANY, lambda at: set_flags(at / "file")
    yield "open O_CREAT of what is there, to read", OK, lambda at: os.close(os.open(at / "file", os.O_RDONLY | os.O_CREAT)), ""
    yield "a pipe, to write", OK, lambda at: os.write(os.open(at / "pipe", os.O_RDWR), b"x"), ""
    yield "read", OK, lambda at: os.read(os.open(at / "file", os.O_RDONLY), 100), ""
    yield "read what is another's", OK, lambda at: os.read(os.open(at / "foreign", os.O_RDONLY), 100), "", \
        differences.OTHERS_READ
    yield "readdir", OK, lambda at: sorted(os.listdir(at)), ""
    yield "readlink", OK, lambda at: os.readlink(at / "link"), "", differences.LINK_READ
    yield "access R_OK", OK, lambda at: faccessat2(AT_FDCWD, at / "file", os.R_OK, 0), ""
    yield "what may not be read", not_root(EACCES), lambda at: os.close(os.open(at / "secret", os.O_RDONLY)), ""
