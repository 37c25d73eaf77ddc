"""Calls that open, make, close and run files."""
import contextlib
import fcntl
import os
import subprocess
from errno import (EACCES, EBADF, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOEXEC, ENOTDIR, ENXIO, EPERM,
                   ETXTBSY)

from conformance import ANY, CLOSED_FD, OK, call, differences, not_root, paths
from conformance.names import folder_fd, mode_of
from syscalls import AT_FDCWD, AT_SYMLINK_FOLLOW, linkat, openat2
from twins import attempt

# What is combined with each of the kinds of objects. O_NONBLOCK: pipes must not wait.
COMBINATIONS = [flags.split() for flags in (
    "O_RDONLY", "O_WRONLY", "O_RDWR", "O_WRONLY O_APPEND", "O_RDWR O_TRUNC", "O_RDONLY O_TRUNC", "O_RDWR O_CREAT",
    "O_RDONLY O_CREAT", "O_RDWR O_CREAT O_EXCL", "O_RDONLY O_DIRECTORY", "O_RDWR O_DIRECTORY", "O_RDONLY O_CREAT O_DIRECTORY",
    "O_RDONLY O_NOFOLLOW", "O_RDWR O_CREAT O_NOFOLLOW", "O_RDONLY O_NOFOLLOW O_DIRECTORY", "O_PATH", "O_PATH O_NOFOLLOW",
    "O_PATH O_DIRECTORY", "O_RDONLY O_NOATIME", "O_RDWR O_SYNC", "O_RDWR O_DSYNC", "O_WRONLY O_CREAT O_TRUNC",
    "O_RDONLY O_ASYNC", "O_RDONLY O_CLOEXEC O_NOCTTY")]
KINDS = ("file", "folder", "link", "dangling", "loop", "to_folder", "pipe", "socket", "secret", "foreign", "shared",
         "closed/inside", "fixed/inside", "sticky/foreign", "suid", "foreign_suid", "new", "folder/new", "closed/new",
         "fixed/new", "setgid/new", "file/x", ".")


def bits(names):
    return sum(getattr(os, name) for name in names)


def open_kind(path, flags):
    """(status flags, mode) of what was opened, or the errno; the file that it made is gone again."""
    existed = os.path.lexists(path)

    def act():
        fd = os.open(path, bits(flags) | os.O_NONBLOCK, 0o6775)
        facts = os.fstat(fd)
        os.close(fd)
        return oct(facts.st_mode), facts.st_uid, facts.st_gid, facts.st_size if "O_DIRECTORY" not in flags else None
    found = attempt(act)
    if not existed and os.path.lexists(path):
        os.unlink(path)
    return flags, found if not isinstance(found, tuple) or not found[0].startswith("0o4") else found[:3]


def get_status(path, flags):
    fd = os.open(path, bits(flags.split()), 0o644)
    return fcntl.fcntl(fd, fcntl.F_GETFL)


@call("open")
def open_file():
    for kind in KINDS:
        yield f"with all flags: {kind}", OK, lambda at, kind=kind: [open_kind(at / kind, flags) for flags in COMBINATIONS]
    yield "by the descriptor of a folder", OK, lambda at: os.read(
        os.open("inside", os.O_RDONLY, dir_fd=folder_fd(at / "folder")), 100), "folder/inside:a"
    yield "making by the descriptor of a folder", OK, lambda at: os.open(
        "new", os.O_RDWR | os.O_CREAT, dir_fd=folder_fd(at / "folder")) > 0, "folder:mc folder/new:+"
    yield "to read", OK, lambda at: os.close(os.open(at / "file", os.O_RDONLY)), ""
    yield "to write", OK, lambda at: os.close(os.open(at / "file", os.O_WRONLY)), ""
    yield "truncating", OK, lambda at: os.close(os.open(at / "file", os.O_WRONLY | os.O_TRUNC)), "file:smc"
    yield "truncating what is empty", OK, lambda at: (os.truncate(at / "file", 0), os.utime(at / "file", ns=(5, 5)),
                                                      os.close(os.open(at / "file", os.O_WRONLY | os.O_TRUNC)),
                                                      os.stat(at / "file").st_mtime_ns > 5)
    yield "truncating another's suid program", OK, lambda at: (
        os.close(os.open(at / "foreign_suid", os.O_WRONLY | os.O_TRUNC)), mode_of(at / "foreign_suid"))
    yield "making", OK, lambda at: os.close(os.open(at / "new", os.O_WRONLY | os.O_CREAT, 0o644)), ".:mc new:+"
    yield "making what is there", OK, lambda at: os.close(os.open(at / "file", os.O_RDWR | os.O_CREAT, 0o600)), ""
    yield "making through a dangling link", OK, lambda at: os.close(os.open(at / "dangling", os.O_RDWR | os.O_CREAT, 0o600)), \
        ".:mc dangling:a none:+"
    yield "making a file that it may not open again", OK, lambda at: os.write(
        os.open(at / "new", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0), b"x")
    for umask in (0, 0o027, 0o777):
        yield f"making under umask {umask:03o}", OK, lambda at, umask=umask: (
            os.umask(umask), os.open(at / "new", os.O_WRONLY | os.O_CREAT, 0o7777), mode_of(at / "new"))[2]
    yield "making in a setgid folder", OK, lambda at: (os.open(at / "setgid/new", os.O_WRONLY | os.O_CREAT, 0o2775),
                                                       mode_of(at / "setgid/new"))[1]
    for flags in ("O_RDONLY", "O_RDWR O_APPEND", "O_WRONLY O_SYNC", "O_RDONLY O_NONBLOCK", "O_RDWR O_DSYNC O_ASYNC"):
        yield f"F_GETFL after {flags}", OK, lambda at, flags=flags: get_status(at / "file", flags)
    yield "O_EXCL of what is there", EEXIST, lambda at: os.open(at / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    yield "O_EXCL of a dangling link", EEXIST, lambda at: os.open(at / "dangling", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    yield "O_EXCL of a link", EEXIST, lambda at: os.open(at / "link", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    yield "a folder to write", EISDIR, lambda at: os.open(at / "folder", os.O_WRONLY)
    yield "a folder with O_CREAT", EISDIR, lambda at: os.open(at / "folder", os.O_RDONLY | os.O_CREAT)
    yield "a new name with a slash behind", EISDIR, lambda at: os.open(f"{at}/new/", os.O_WRONLY | os.O_CREAT)
    yield "O_DIRECTORY of a file", ENOTDIR, lambda at: os.open(at / "file", os.O_DIRECTORY)
    yield "O_NOFOLLOW of a link", ELOOP, lambda at: os.open(at / "link", os.O_NOFOLLOW)
    yield "a loop", ELOOP, lambda at: os.open(at / "loop", os.O_RDONLY)
    yield "a dangling link", ENOENT, lambda at: os.open(at / "dangling", os.O_RDONLY)
    yield "a pipe to write that nobody reads", ENXIO, lambda at: os.open(at / "pipe", os.O_WRONLY | os.O_NONBLOCK)
    yield "a pipe to read that nobody writes", OK, lambda at: os.close(os.open(at / "pipe", os.O_RDONLY | os.O_NONBLOCK))
    yield "a socket", ENXIO, lambda at: os.open(at / "socket", os.O_RDONLY)
    yield "what may not be read", not_root(EACCES), lambda at: os.close(os.open(at / "secret", os.O_RDONLY))
    yield "what may not be written", not_root(EACCES), lambda at: os.close(os.open(at / "foreign", os.O_WRONLY))
    yield "O_TRUNC of what may not be written", not_root(EACCES), lambda at: os.close(
        os.open(at / "foreign", os.O_RDONLY | os.O_TRUNC))
    yield "O_NOATIME of another's", not_root(EPERM), lambda at: os.close(os.open(at / "shared", os.O_RDONLY | os.O_NOATIME))
    yield "a program that runs, to write", ETXTBSY, write_running
    yield "relative to what is not open", EBADF, lambda at: os.open("file", os.O_RDONLY, dir_fd=CLOSED_FD)
    yield "relative to a file", ENOTDIR, lambda at: os.open("x", os.O_RDONLY, dir_fd=os.open(at / "file", os.O_RDONLY))
    yield from paths.of_existing(lambda at, path: os.close(os.open(path, os.O_RDONLY)))
    for title, *case in paths.of_making(lambda at, path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))):
        if "slash" not in title and "dot" not in title:
            yield f"making {title}", *case


@contextlib.contextmanager
def running(program):
    """A program that runs, for as long as this lasts."""
    program.write_bytes(open("/bin/sleep", "rb").read())
    program.chmod(0o755)
    child = subprocess.Popen([program, "60"])  # returns when execve() has
    try:
        yield program
    finally:
        child.kill()
        child.wait()
        program.unlink()


def write_running(at):
    with running(at / "new") as program:
        os.open(program, os.O_WRONLY)


@call("openat2")
def open_beneath():
    yield "with no demand", OK, lambda at: os.close(openat2(folder_fd(at), "file", os.O_RDONLY)), ""
    yield "making", OK, lambda at: os.close(openat2(folder_fd(at), "new", os.O_RDWR | os.O_CREAT, 0o600)), ".:mc new:+"
    yield "a flag that there is not", EINVAL, lambda at: openat2(folder_fd(at), "file", 1 << 40)
    yield "a mode without O_CREAT", EINVAL, lambda at: openat2(folder_fd(at), "file", os.O_RDONLY, 0o600)
    for resolve, name in ((1, "NO_XDEV"), (2, "NO_MAGICLINKS"), (4, "NO_SYMLINKS"), (8, "BENEATH"), (16, "IN_ROOT")):
        yield f"RESOLVE_{name}", OK, lambda at, resolve=resolve: [
            attempt(lambda path=path: os.close(openat2(folder_fd(at / "folder"), path, os.O_RDONLY, resolve=resolve)))
            for path in ("inside", "../file", "../link", "../to_folder/inside", "/proc/self/exe")]


@call("creat")
def creat():
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    yield "a new one", OK, lambda at: os.close(os.open(at / "new", flags, 0o640)), ".:mc new:+"
    yield "what is there: empty, its mode kept", OK, lambda at: os.close(os.open(at / "file", flags, 0o600)), "file:smc"
    yield "read-only, and writes all the same", OK, lambda at: os.write(os.open(at / "new", flags, 0o444), b"data")
    yield "a folder", EISDIR, lambda at: os.open(at / "folder", flags)
    yield "what may not be written", not_root(EACCES), lambda at: os.close(os.open(at / "foreign", flags))
    yield "in a folder without write permission", not_root(EACCES), lambda at: os.close(os.open(at / "fixed/new", flags))
    yield "a file as a folder", ENOTDIR, lambda at: os.open(at / "file/x", flags)


@call("close")
def close():
    yield "an open file", OK, lambda at: os.close(os.open(at / "file", os.O_RDWR)), ""
    yield "what is not open", EBADF, lambda at: os.close(CLOSED_FD)

    def twice(at):
        fd = os.open(at / "file", os.O_RDONLY)
        os.close(fd)
        os.close(fd)
    yield "twice", EBADF, twice
    yield "one of two descriptors", OK, one_of_two


def one_of_two(at):
    fd = os.open(at / "file", os.O_RDWR)
    other = os.dup(fd)
    os.close(fd)
    return os.write(other, b"ab"), os.lseek(other, 0, os.SEEK_CUR)


@call("O_TMPFILE")
def tmpfile():
    def make(at, flags=os.O_RDWR, mode=0o640, folder="."):
        return os.open(at / folder, os.O_TMPFILE | flags, mode)

    def facts_of(fd):
        facts = os.fstat(fd)
        return oct(facts.st_mode), facts.st_nlink, facts.st_uid, facts.st_gid, facts.st_size
    yield "has no name", OK, lambda at: facts_of(make(at)), ""
    yield "holds data", OK, lambda at: (fd := make(at), os.write(fd, b"data"), os.pread(fd, 9, 0), facts_of(fd))[1:]

    def name(at, flags=0):
        fd = make(at, os.O_RDWR | flags)
        os.write(fd, b"data")
        linkat(AT_FDCWD, f"/proc/self/fd/{fd}", at / "new", AT_SYMLINK_FOLLOW)
        return facts_of(fd), (at / "new").read_bytes()
    yield "gets a name", OK, name, ".:mc new:+"
    yield "O_EXCL: gets none", ENOENT, lambda at: name(at, os.O_EXCL)
    yield "in a setgid folder", OK, lambda at: facts_of(make(at, mode=0o2775, folder="setgid"))
    yield "under umask 077", OK, lambda at: (os.umask(0o077), facts_of(make(at, mode=0o777)))
    yield "to read alone", EINVAL, lambda at: make(at, os.O_RDONLY)
    yield "in a file", ENOTDIR, lambda at: make(at, folder="file")
    yield "in what is not there", ENOENT, lambda at: make(at, folder="none")
    yield "in a folder without write permission", not_root(EACCES), lambda at: os.close(make(at, folder="fixed"))


@call("execve")
def execve():
    def status(*command):
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode
    yield "a script", OK, lambda at: status(at / "script")

    def binary(at):
        (at / "new").write_bytes(open("/bin/true", "rb").read())
        (at / "new").chmod(0o755)
        return status(at / "new")
    yield "a program", OK, binary
    yield "a program that may not be read", OK, lambda at: (
        (at / "new").write_bytes(open("/bin/true", "rb").read()), (at / "new").chmod(0o111), attempt(status, at / "new"))[1:], \
        None, differences.NOT_READABLE

    def while_written(at):
        (at / "new").write_bytes(open("/bin/true", "rb").read())
        (at / "new").chmod(0o755)
        fd = os.open(at / "new", os.O_WRONLY)
        try:
            return attempt(status, at / "new")
        finally:
            os.close(fd)
    yield "a file that is being written", ANY, while_written
    yield "a file without permission", EACCES, lambda at: status(at / "file")
    yield "a folder", EACCES, lambda at: status(at / "folder")
    yield "a pipe", EACCES, lambda at: status(at / "pipe")
    yield "what is no program", ENOEXEC, lambda at: ((at / "file").chmod(0o755), status(at / "file"))
    yield from (case for case in paths.of_existing(lambda at, path: status(path), root=EACCES) if "empty" not in case[0])
