"""Calls that make, move and remove names."""
import os
import socket
import stat
from errno import EACCES, EADDRINUSE, EBADF, EBUSY, EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, \
    ENOTDIR, ENOTEMPTY, EPERM, EXDEV

from conformance import ANY, CLOSED_FD, OK, call, differences, not_root, paths
from syscalls import (AT_FDCWD, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, linkat, renameat2)
from twins import attempt


def folder_fd(path):
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def mode_of(path):
    facts = os.lstat(path)
    return oct(facts.st_mode), facts.st_gid


@call("link")
def link():
    yield "a second name", OK, lambda at: os.link(at / "file", at / "new"), "file:lc new:+ .:mc"
    yield "in another folder", OK, lambda at: os.link(at / "file", at / "folder/new"), "file:lc folder:mc folder/new:+"
    yield "of a pipe", OK, lambda at: os.link(at / "pipe", at / "new"), "pipe:lc new:+ .:mc"
    yield "of a file without any permission", OK, lambda at: os.link(at / "secret", at / "new")
    yield "of the link itself", OK, lambda at: linkat(AT_FDCWD, at / "link", at / "new", 0), "link:lc new:+ .:mc"
    yield "of what the link names", OK, lambda at: linkat(AT_FDCWD, at / "link", at / "new", AT_SYMLINK_FOLLOW)
    yield "of what a dangling link names", ENOENT, lambda at: linkat(AT_FDCWD, at / "dangling", at / "new",
                                                                     AT_SYMLINK_FOLLOW)
    yield "of what a looping link names", ELOOP, lambda at: linkat(AT_FDCWD, at / "loop", at / "new", AT_SYMLINK_FOLLOW)
    for name in ("foreign", "shared", "foreign_suid"):
        yield f"of another's file: {name}", ANY, lambda at, name=name: os.link(at / name, at / "new")
    yield "of a folder", EPERM, lambda at: os.link(at / "folder", at / "new")
    yield "from another file system", EXDEV, lambda at: os.link("/proc/version", at / "new")
    yield "flags that there are not", EINVAL, lambda at: linkat(AT_FDCWD, at / "file", at / "new", 1)
    yield "by descriptors of folders", OK, lambda at: os.link("file", "new", src_dir_fd=folder_fd(at),
                                                              dst_dir_fd=folder_fd(at / "folder"))
    yield "relative to what is not open", EBADF, lambda at: os.link("file", "new", src_dir_fd=CLOSED_FD)
    yield "relative to a file", ENOTDIR, lambda at: os.link("file", "new", src_dir_fd=os.open(at / "file", os.O_RDONLY))
    for title, *case in paths.of_existing(lambda at, path: os.link(path, at / "new")):
        yield f"of {title}", *case
    for title, *case in paths.of_making(lambda at, path: os.link(at / "file", path)):
        yield f"as {title}", *case


@call("symlink")
def symlink():
    yield "a new one", OK, lambda at: os.symlink("target", at / "new"), ".:mc new:+"
    yield "is what it was made", OK, lambda at: (os.symlink("target", at / "new"), os.readlink(at / "new"),
                                                 oct(os.lstat(at / "new").st_mode), os.lstat(at / "new").st_size)
    yield "an empty target", ENOENT, lambda at: os.symlink("", at / "new")
    for length in (59, 60, 4000):
        yield f"a target of {length} bytes", OK, lambda at, length=length: (
            os.symlink("t" * length, at / "new"), os.readlink(at / "new"), os.lstat(at / "new").st_size)
    yield "a target of 4096 bytes", ENAMETOOLONG, lambda at: os.symlink("t" * 4096, at / "new")
    yield "with a slash behind", ENOENT, lambda at: os.symlink("target", f"{at}/new/")
    yield "by the descriptor of a folder", OK, lambda at: os.symlink("target", "new", dir_fd=folder_fd(at / "folder"))
    yield "relative to what is not open", EBADF, lambda at: os.symlink("target", "new", dir_fd=CLOSED_FD)
    yield from paths.of_making(lambda at, path: os.symlink("target", path))


@call("readlink")
def readlink():
    yield "the target, and it was read", OK, lambda at: os.readlink(at / "link"), "link:a"
    yield "of one that leads nowhere", OK, lambda at: os.readlink(at / "dangling"), "dangling:a"
    yield "twice", OK, lambda at: (os.readlink(at / "link"), os.readlink(at / "link"))
    for name in ("file", "folder", "pipe"):
        yield f"of a {name}", EINVAL, lambda at, name=name: os.readlink(at / name)
    yield "by the descriptor of a folder", OK, lambda at: os.readlink("link", dir_fd=folder_fd(at))
    yield "relative to what is not open", EBADF, lambda at: os.readlink("link", dir_fd=CLOSED_FD)
    yield "by its own descriptor", OK, lambda at: os.readlink("", dir_fd=os.open(at / "link", os.O_PATH | os.O_NOFOLLOW))
    yield from paths.of_existing(lambda at, path: os.readlink(path), root=EINVAL)


@call("unlink")
def unlink():
    yield "the last name", OK, lambda at: os.unlink(at / "file"), "file:- .:mc"

    def one_of_two(at):
        os.link(at / "file", at / "new")
        os.unlink(at / "file")
    yield "one name of two", OK, one_of_two, ".:mc file:- new:+"

    def one_of_two_that_were_seen(at):
        os.link(at / "file", at / "new")
        before = os.stat(at / "new")
        os.unlink(at / "file")
        after = os.stat(at / "new")
        return after.st_nlink, before.st_mtime_ns == after.st_mtime_ns, before.st_ctime_ns <= after.st_ctime_ns
    yield "leaves the other name its data", OK, one_of_two_that_were_seen
    for name in ("link", "dangling", "loop", "pipe", "socket", "secret", "foreign"):
        yield f"of a {name}", OK, lambda at, name=name: os.unlink(at / name), f".:mc {name}:-"

    def open_file(at):
        fd = os.open(at / "file", os.O_RDWR)
        os.unlink(at / "file")
        facts = os.fstat(fd)
        return facts.st_nlink, facts.st_size, os.pread(fd, 4, 0), os.pwrite(fd, b"x", 20), os.fstat(fd).st_size
    yield "of an open file, which lives on", OK, open_file
    yield "of a folder", EISDIR, lambda at: os.unlink(at / "empty")
    yield "of the dot", EISDIR, lambda at: os.unlink(f"{at}/folder/.")
    yield "in a sticky folder, one's own", OK, lambda at: os.unlink(at / "sticky/mine"), "sticky:mc sticky/mine:-"
    yield "in a sticky folder, another's", not_root(EPERM), lambda at: os.unlink(at / "sticky/foreign")
    yield "by the descriptor of a folder", OK, lambda at: os.unlink("inside", dir_fd=folder_fd(at / "folder"))
    yield "relative to what is not open", EBADF, lambda at: os.unlink("file", dir_fd=CLOSED_FD)
    yield from paths.of_removing(lambda at, path: os.unlink(path))


KINDS = ("file", "folder", "full", "link", "dangling", "pipe", "none")


def make_kind(path, kind):
    if kind == "file":
        path.write_text(path.name)
    elif kind in ("folder", "full"):
        path.mkdir()
        if kind == "full":
            (path / "inside").touch()
    elif kind in ("link", "dangling"):
        os.symlink("old" if kind == "link" else "nowhere", path)
    elif kind == "pipe":
        os.mkfifo(path)


def rename_all_kinds(flags):
    def act(at):
        found = {}
        for old in KINDS:
            for new in KINDS:
                place = at / "folder" / f"{old}-{new}"
                place.mkdir()
                make_kind(place / "old", old)
                make_kind(place / "new", new)
                found[old, new] = attempt(renameat2, place / "old", place / "new", flags), sorted(os.listdir(place))
        return found
    return act


@call("rename")
def rename():
    yield "in its folder", OK, lambda at: os.rename(at / "file", at / "new"), ".:mc file:- new:+"
    yield "to another folder", OK, lambda at: os.rename(at / "file", at / "folder/new"), \
        ".:mc file:- folder:mc folder/new:+"
    yield "of a folder to another", OK, lambda at: os.rename(at / "empty", at / "folder/new")
    yield "changes the file's ctime as the store does", OK, lambda at: (
        os.utime(at / "file", ns=(5, 5)), os.rename(at / "file", at / "other"), os.stat(at / "other").st_mtime_ns)
    for name, flags in (("none", 0), ("NOREPLACE", RENAME_NOREPLACE), ("EXCHANGE", RENAME_EXCHANGE)):
        yield f"of all kinds to all kinds, flags {name}", OK, rename_all_kinds(flags)
    yield "over a file", OK, lambda at: os.rename(at / "file", at / "other")
    yield "to another name of the same file", OK, lambda at: (os.link(at / "file", at / "new"),
                                                             os.rename(at / "file", at / "new")), ".:mc file:lc new:+"
    yield "to itself", OK, lambda at: os.rename(at / "file", at / "file"), ""

    def over_open(at):
        fd = os.open(at / "other", os.O_RDONLY)
        os.rename(at / "file", at / "other")
        return os.fstat(fd).st_nlink, os.pread(fd, 4, 0)
    yield "over an open file", OK, over_open
    yield "a file over a folder", EISDIR, lambda at: os.rename(at / "file", at / "empty")
    yield "a folder over a file", ENOTDIR, lambda at: os.rename(at / "empty", at / "file")
    yield "a folder over a full one", ENOTEMPTY, lambda at: os.rename(at / "empty", at / "folder")
    yield "a folder into itself", EINVAL, lambda at: os.rename(at / "folder", at / "folder/new")
    yield "a file with a slash behind", ENOTDIR, lambda at: os.rename(at / "file", f"{at}/new/")
    yield "the dot", EBUSY, lambda at: os.rename(f"{at}/folder/.", at / "new")
    yield "over the dot-dot", EBUSY, lambda at: os.rename(at / "empty", f"{at}/folder/..")
    yield "to another file system", EXDEV, lambda at: os.rename(at / "file", "/proc/new")
    yield "from a sticky folder, another's", not_root(EPERM), lambda at: os.rename(at / "sticky/foreign", at / "new")
    yield "over another's in a sticky folder", not_root(EPERM), lambda at: os.rename(at / "file", at / "sticky/foreign")
    yield "one's own in a sticky folder", OK, lambda at: os.rename(at / "sticky/mine", at / "new")
    yield "from a folder without write permission", not_root(EACCES), lambda at: os.rename(at / "fixed/inside", at / "new")
    yield "a folder of another's out of a folder", ANY, lambda at: os.rename(at / "sticky", at / "folder/new")
    yield "NOREPLACE over a file", EEXIST, lambda at: renameat2(at / "file", at / "other", RENAME_NOREPLACE)
    yield "NOREPLACE", OK, lambda at: renameat2(at / "file", at / "new", RENAME_NOREPLACE), ".:mc file:- new:+"
    yield "EXCHANGE with what is not there", ENOENT, lambda at: renameat2(at / "file", at / "none", RENAME_EXCHANGE)
    yield "EXCHANGE across folders", OK, lambda at: renameat2(at / "file", at / "folder/inside", RENAME_EXCHANGE)
    yield "EXCHANGE in a sticky folder", not_root(EPERM), lambda at: renameat2(at / "file", at / "sticky/foreign",
                                                                              RENAME_EXCHANGE)
    yield "WHITEOUT", ANY, lambda at: (renameat2(at / "file", at / "new", RENAME_WHITEOUT), mode_of(at / "file"))
    for flags in (8, RENAME_NOREPLACE | RENAME_EXCHANGE, RENAME_EXCHANGE | RENAME_WHITEOUT):
        yield f"flags {flags}", EINVAL, lambda at, flags=flags: renameat2(at / "file", at / "new", flags)
    yield "by descriptors of folders", OK, lambda at: os.rename("file", "new", src_dir_fd=folder_fd(at),
                                                                dst_dir_fd=folder_fd(at / "folder"))
    yield "relative to what is not open", EBADF, lambda at: os.rename("file", "new", src_dir_fd=CLOSED_FD)
    for title, *case in paths.of_existing(lambda at, path: os.rename(path, at / "new")):
        yield f"of {title}", *case
    for title, *case in paths.of_making(lambda at, path: os.rename(at / "file", path)):
        if "taken" not in title and "dot" not in title:
            yield f"to {title}", *case


@call("mkdir")
def mkdir():
    yield "a new one", OK, lambda at: os.mkdir(at / "new"), ".:lmc new:+"
    for umask in (0, 0o027, 0o777):
        yield f"under umask {umask:03o}", OK, lambda at, umask=umask: (os.umask(umask), os.mkdir(at / "new", 0o7777),
                                                                      mode_of(at / "new"))
    yield "in a setgid folder: its group, and the bit", OK, lambda at: (os.mkdir(at / "setgid/new"),
                                                                       mode_of(at / "setgid/new"))
    yield "a slash behind", OK, lambda at: os.mkdir(f"{at}/new/")
    yield "by the descriptor of a folder", OK, lambda at: os.mkdir("new", dir_fd=folder_fd(at / "folder"))
    yield "relative to what is not open", EBADF, lambda at: os.mkdir("new", dir_fd=CLOSED_FD)
    yield from paths.of_making(lambda at, path: os.mkdir(path))


@call("rmdir")
def rmdir():
    yield "an empty one", OK, lambda at: os.rmdir(at / "empty"), ".:lmc empty:-"

    def open_folder(at):
        fd = folder_fd(at / "empty")
        os.rmdir(at / "empty")
        return os.fstat(fd).st_nlink, attempt(os.listdir, fd), attempt(lambda: os.mkdir("x", dir_fd=fd)), \
            attempt(lambda: os.stat("..", dir_fd=fd).st_mode)
    yield "one that is open", OK, open_folder
    yield "one with something in it", ENOTEMPTY, lambda at: os.rmdir(at / "folder")
    yield "the dot", EINVAL, lambda at: os.rmdir(f"{at}/empty/.")
    yield "the dot-dot", ENOTEMPTY, lambda at: os.rmdir(f"{at}/empty/..")
    for name in ("file", "link", "to_folder", "pipe"):
        yield f"a {name}", ENOTDIR, lambda at, name=name: os.rmdir(at / name)
    yield "in a sticky folder, another's", not_root(EPERM), lambda at: os.rmdir(at / "sticky/folder")
    yield "by the descriptor of a folder", OK, lambda at: os.rmdir("empty", dir_fd=folder_fd(at))
    yield "relative to what is not open", EBADF, lambda at: os.rmdir("empty", dir_fd=CLOSED_FD)
    yield from paths.of_removing(lambda at, path: os.rmdir(path), root=ENOTDIR)


@call("mknod")
def mknod():
    yield "a file", OK, lambda at: os.mknod(at / "new", stat.S_IFREG | 0o640), ".:mc new:+"
    yield "a pipe", OK, lambda at: os.mknod(at / "new", stat.S_IFIFO | 0o666)
    yield "a socket", OK, lambda at: os.mknod(at / "new", stat.S_IFSOCK | 0o666)
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        yield f"a device ({kind:o})", not_root(EPERM), lambda at, kind=kind: (
            os.mknod(at / "new", kind | 0o600, os.makedev(250, 70000)), os.lstat(at / "new").st_rdev)
    yield "a folder", EPERM, lambda at: os.mknod(at / "new", stat.S_IFDIR | 0o755)
    yield "a link", EINVAL, lambda at: os.mknod(at / "new", stat.S_IFLNK | 0o755)
    yield "under umask 027", OK, lambda at: (os.umask(0o027), os.mknod(at / "new", 0o107777), mode_of(at / "new"))
    yield "in a setgid folder", OK, lambda at: (os.mknod(at / "setgid/new", 0o102770), mode_of(at / "setgid/new"))
    yield "relative to what is not open", EBADF, lambda at: os.mknod("new", dir_fd=CLOSED_FD)
    yield from paths.of_making(lambda at, path: os.mknod(path))


@call("mkfifo")
def mkfifo():
    yield "a new one", OK, lambda at: os.mkfifo(at / "new", 0o640), ".:mc new:+"
    yield "by the descriptor of a folder", OK, lambda at: os.mkfifo("new", dir_fd=folder_fd(at / "folder"))

    def talk(at):
        fd = os.open(at / "pipe", os.O_RDWR)
        return os.write(fd, b"data"), os.read(fd, 10)
    yield "carries data", OK, talk, "pipe:amc", differences.PIPE
    yield "relative to what is not open", EBADF, lambda at: os.mkfifo("new", dir_fd=CLOSED_FD)
    yield from paths.of_making(lambda at, path: os.mkfifo(path))


def bind(at, path):
    os.chdir(at)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path, at) if path else path)


@call("bind")
def bind_socket():
    yield "makes a socket", OK, lambda at: (bind(at, at / "new"), mode_of(at / "new"))

    def connect(at):
        os.chdir(at)
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("new")
            server.listen()
            client.connect("new")
            client.send(b"hello")
            return server.accept()[0].recv(10)
    yield "which takes connections", OK, connect
    yield "a name that is taken", EADDRINUSE, lambda at: bind(at, at / "file")
    yield "a missing folder", ENOENT, lambda at: bind(at, at / "none/x")
    yield "a file as a folder", ENOTDIR, lambda at: bind(at, at / "file/x")
    yield "a loop", ELOOP, lambda at: bind(at, at / "loop/x")

    def twice(at):
        os.chdir(at)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("new")
            bound.bind("none")
    yield "a socket that has a name", EINVAL, twice
    yield "a folder without write permission", not_root(EACCES), lambda at: bind(at, at / "fixed/new")
