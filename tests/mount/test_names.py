"""lookup, mknod, mkdir, symlink, readlink, link, unlink, rmdir, rename: as on the store."""
import errno
import os
import socket
import stat

import pytest

from harness import OTHER, USER, as_job, as_user
from syscalls import (AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT,
                      linkat, renameat2)


def write(path, text="text"):
    path.write_text(text)
    return path


def mode(path):
    return oct(os.lstat(path).st_mode)


# --- making ---

@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_umask(twins, umask):
    def act(top):
        os.umask(umask)
        os.mkdir(top / "folder", 0o7777)
        os.close(os.open(top / "file", os.O_CREAT | os.O_WRONLY, 0o7777))
        os.mkfifo(top / "pipe", 0o666)
        os.mknod(top / "node", 0o100666)
        os.symlink("target", top / "link")
        os.close(os.open(top, os.O_TMPFILE | os.O_WRONLY, 0o666))
        return [mode(path) for path in sorted(top.iterdir())]
    twins(act)


def test_special_files(twins):
    def act(top):
        os.mkfifo(top / "pipe")
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(top)
            made.bind("socket")
        return [mode(path) for path in sorted(top.iterdir())]
    twins(act)


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_devices_are_for_root(twins, kind):
    def act(top):
        os.mknod(top / "device", kind | 0o600, os.makedev(250, 70000))
        return os.lstat(top / "device").st_rdev
    assert twins(act) == (errno.EPERM if twins.uid else os.makedev(250, 70000))


def test_pipe_carries_data_through_the_mount(store, mount):
    qos = mount(store)
    os.mkfifo(qos.dir / "pipe")
    fd = os.open(qos.dir / "pipe", os.O_RDWR)
    os.write(fd, b"data")
    assert os.read(fd, 10) == b"data"
    os.close(fd)


def test_what_exists_is_not_made_again(twins):
    twins.prepare(lambda top: (write(top / "file").chmod(0o666), (top / "folder").mkdir(), os.symlink("x", top / "link")))
    for name in ("file", "folder", "link"):
        for act in (lambda path: os.mkdir(path), lambda path: os.mkfifo(path), lambda path: os.symlink("y", path),
                    lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))):
            assert twins(lambda top: act(top / name)) == errno.EEXIST


def test_create_through_a_link(twins):
    def act(top):
        os.symlink("target", top / "link")
        (top / "link").write_text("through")
        return (top / "target").read_text(), os.path.islink(top / "link")
    assert twins(act) == ("through", True)


def test_missing_and_wrong_kinds(twins):
    def act(top):
        errors = []
        write(top / "file")
        os.mkdir(top / "folder")
        write(top / "folder" / "inside")
        for call in (lambda: os.unlink(top / "none"), lambda: os.rmdir(top / "none"), lambda: os.unlink(top / "folder"),
                     lambda: os.rmdir(top / "file"), lambda: os.rmdir(top / "folder"), lambda: os.stat(top / "file/x"),
                     lambda: os.mkdir(top / "none/x"), lambda: os.readlink(top / "file"),
                     lambda: os.rename(top / "none", top / "x"), lambda: os.rename(top / "file", top / "folder"),
                     lambda: os.rename(top / "folder", top / "file"), lambda: os.link(top / "folder", top / "x"),
                     lambda: os.rename(top / "folder", top / "folder/inside/x"),
                     lambda: os.rename(top / "folder", top / "folder/x"), lambda: open(top / "folder", "w"),
                     lambda: os.rmdir(top / "folder/."), lambda: os.listdir(top / "file"),
                     lambda: os.open(top / "file", os.O_DIRECTORY)):
            try:
                errors.append(call())
            except OSError as error:
                errors.append(errno.errorcode[error.errno])
        return errors
    twins(act)


def test_links_of_every_length(twins):
    def act(top):
        found = []
        for length in (1, 59, 60, 255, 4000, 4095, 4096):
            try:
                os.symlink("t" * length, top / f"link-{length}")
                found.append(os.readlink(top / f"link-{length}"))
            except OSError as error:
                found.append(error.errno)
        return found
    assert twins(act)[-1] == errno.ENAMETOOLONG


@pytest.mark.parametrize("name", [b"n" * 255, "ü€𝄞".encode(), b"\xff\xfe\x80", b"\x01\n\t\x7f", b" ", b"-rf", b"...",
                                  b"a\\b:c*?\"<>|"])
def test_odd_names(twins, name):
    def act(top):
        top = os.fsencode(top)
        path = os.path.join(top, name)
        with open(path, "wb") as file:
            file.write(name)
        os.rename(path, path[:-1] + b"2")
        os.rename(path[:-1] + b"2", path)
        os.mkdir(path[:-1] + b"3")
        return sorted(os.listdir(top))
    assert name in twins(act)


def test_names_that_are_too_long(twins):
    assert twins(lambda top: os.mkdir(top / ("n" * 256))) == errno.ENAMETOOLONG
    assert twins(lambda top: os.stat(top / ("n" * 256))) == errno.ENAMETOOLONG


def test_deep_path(twins):
    def act(top):
        os.chdir(top)
        for depth in range(300):
            os.mkdir("d" * 50)
            os.chdir("d" * 50)
        with open("bottom", "w") as file:
            file.write("deep")
        for depth in range(300):
            os.chdir("..")
        here, inside = os.stat("."), os.stat(top)
        for depth in range(300):
            os.chdir("d" * 50)
        with open("bottom") as file:
            found = file.read()
        os.unlink("bottom")
        for depth in range(300):
            os.chdir("..")
            os.rmdir("d" * 50)
        return found, here.st_ino == inside.st_ino
    assert twins(act) == ("deep", True)


def test_dots(store, mount):
    qos = mount(store)
    (qos.dir / "a" / "b").mkdir(parents=True)
    assert os.path.samefile(qos.dir / "a" / "b" / ".." / ".", qos.dir / "a")
    assert os.path.samefile(qos.dir / "..", qos.dir.parent)
    os.chdir(qos.dir / "a")
    try:
        assert os.path.samefile("../../" + qos.dir.name, qos.dir)
    finally:
        os.chdir("/")


# --- links ---

def test_hard_links(twins):
    def act(top):
        write(top / "one")
        os.link(top / "one", top / "two")
        os.mkdir(top / "folder")
        os.link(top / "two", top / "folder" / "three")
        found = [os.stat(top / "one").st_nlink, os.path.samefile(top / "one", top / "folder" / "three")]
        os.unlink(top / "one")
        write(top / "two", "changed")
        found += [(top / "folder" / "three").read_text(), os.stat(top / "two").st_nlink]
        return found
    assert twins(act) == [3, True, "changed", 2]


def test_hard_link_to_a_link_and_a_pipe(twins):
    def act(top):
        os.symlink("nowhere", top / "link")
        os.link(top / "link", top / "link2", follow_symlinks=False)
        os.mkfifo(top / "pipe")
        os.link(top / "pipe", top / "pipe2")
        return os.readlink(top / "link2"), mode(top / "pipe2"), os.lstat(top / "link").st_nlink
    assert twins(act)[2] == 2


def test_unnamed_file_gets_a_name(twins):
    def act(top):
        fd = os.open(top, os.O_TMPFILE | os.O_RDWR, 0o640)
        os.write(fd, b"unnamed")
        found = [os.fstat(fd).st_nlink, os.listdir(top)]
        linkat(AT_FDCWD, f"/proc/self/fd/{fd}", top / "named", AT_SYMLINK_FOLLOW)
        found += [os.fstat(fd).st_nlink, (top / "named").read_bytes(), mode(top / "named")]
        os.close(fd)
        os.close(os.open(top, os.O_TMPFILE | os.O_WRONLY, 0o600))
        return found
    assert twins(act)[:4] == [0, [], 1, b"unnamed"]


def test_unnamed_file_that_must_stay_so(twins):
    def act(top):
        fd = os.open(top, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
        linkat(AT_FDCWD, f"/proc/self/fd/{fd}", top / "named", AT_SYMLINK_FOLLOW)
    assert twins(act) == errno.ENOENT


@pytest.mark.parametrize("twins", ["root"], indirect=True)
def test_link_by_descriptor(twins):
    def act(top):
        with open(write(top / "one")) as file:
            linkat(file.fileno(), "", top / "two", AT_EMPTY_PATH)
        return os.stat(top / "two").st_nlink
    assert twins(act) == 2


def test_unlinked_open_file_lives_on(twins):
    def act(top):
        path = write(top / "file", "before")
        with open(path, "r+") as file:
            path.unlink()
            write(top / "file", "another")
            file.seek(0, os.SEEK_END)
            file.write(" after")
            file.flush()
            file.seek(0)
            return file.read(), os.fstat(file.fileno()).st_nlink, path.read_text()
    assert twins(act) == ("before after", 0, "another")


# --- renaming ---

def test_rename(twins):
    def act(top):
        write(top / "a", "a")
        write(top / "b", "b")
        os.mkdir(top / "folder")
        os.rename(top / "a", top / "c")
        os.rename(top / "c", top / "b")
        os.rename(top / "b", top / "folder" / "d")
        os.rename(top / "folder", top / "folder2")
        os.mkdir(top / "empty")
        os.rename(top / "folder2", top / "empty")
        return (top / "empty" / "d").read_text(), sorted(os.listdir(top))
    assert twins(act) == ("a", ["empty"])


def test_rename_noreplace(twins):
    def act(top):
        write(top / "a")
        renameat2(top / "a", top / "b", RENAME_NOREPLACE)
        write(top / "a", "other")
        renameat2(top / "a", top / "b", RENAME_NOREPLACE)
    assert twins(act) == errno.EEXIST


def test_rename_exchange(twins):
    def act(top):
        write(top / "file", "file")
        os.mkdir(top / "folder")
        write(top / "folder" / "inside", "inside")
        renameat2(top / "file", top / "folder", RENAME_EXCHANGE)
        found = (top / "folder").read_text(), (top / "file" / "inside").read_text()
        renameat2(top / "file" / "inside", top / "folder", RENAME_EXCHANGE)
        return found, (top / "folder").read_text(), (top / "file" / "inside").read_text()
    assert twins(act) == (("file", "inside"), "inside", "file")


def test_rename_exchange_needs_both(twins):
    def act(top):
        write(top / "file")
        renameat2(top / "file", top / "none", RENAME_EXCHANGE)
    assert twins(act) == errno.ENOENT


def test_rename_whiteout(twins):
    def act(top):
        write(top / "file")
        renameat2(top / "file", top / "moved", RENAME_WHITEOUT)
        return mode(top / "file"), os.lstat(top / "file").st_rdev, (top / "moved").read_text()
    twins(act)


@pytest.mark.parametrize("flags", [8, 64, RENAME_NOREPLACE | RENAME_EXCHANGE, RENAME_EXCHANGE | RENAME_WHITEOUT])
def test_rename_flags_that_make_no_sense(twins, flags):
    def act(top):
        write(top / "a")
        write(top / "b")
        renameat2(top / "a", top / "b", flags)
    assert twins(act) == errno.EINVAL


def test_open_file_is_found_after_its_rename(twins):
    def act(top):
        with open(write(top / "a"), "r+") as file:
            os.rename(top / "a", top / "b")
            file.write("more")
            file.flush()
            os.fchmod(file.fileno(), 0o600)
            return (top / "b").read_text(), mode(top / "b"), os.path.samefile(f"/proc/self/fd/{file.fileno()}", top / "b")
    twins(act)


def test_working_directory_survives_rename_and_removal(twins):
    def act(top):
        os.mkdir(top / "a")
        os.chdir(top / "a")
        os.rename(top / "a", top / "b")
        write(top / "b" / "file")
        found = [os.listdir("."), os.path.exists("file")]
        os.unlink("file")
        os.rmdir(top / "b")
        for call in (lambda: os.listdir("."), lambda: os.mkdir("x"), lambda: os.stat(".").st_nlink):
            try:
                found.append(call())
            except OSError as error:
                found.append(error.errno)
        return found
    twins(act)


# --- what each user may do ---

def test_sticky_folder(twins):
    def prepare(top):
        (top / "sticky").mkdir()
        (top / "sticky").chmod(0o1777)
        for name, owner in (("mine", USER), ("others", OTHER)):
            os.chown(write(top / "sticky" / name), owner, owner)
    twins.prepare(prepare)
    expected = errno.EPERM if twins.uid else None
    assert twins(lambda top: os.rename(top / "sticky/others", top / "sticky/x")) == expected
    if expected:
        assert twins(lambda top: os.unlink(top / "sticky/others")) == expected
    assert twins(lambda top: os.unlink(top / "sticky/mine")) is None


def test_hard_link_to_anothers_file(twins):
    """fs.protected_hardlinks, as the store sees it."""
    twins.prepare(lambda top: os.chown(write(top / "others"), OTHER, OTHER))
    twins(lambda top: os.link(top / "others", top / "link"))


@pytest.mark.parametrize("groups", [[], [OTHER]])
def test_setgid_folder(store, mount, groups):
    """A folder of a group that the user is, or is not, a member of: its group is inherited, the bit too."""
    qos = mount(store)
    for top in (store.dir / "native", store.dir / "through"):
        top.mkdir()
        os.chown(top, USER, OTHER)
        top.chmod(0o2777)

    def act(top):
        os.umask(0)
        os.mkdir(top / "folder", 0o2777)
        os.mkdir(top / "folder" / "below")
        os.close(os.open(top / "file", os.O_CREAT | os.O_WRONLY, 0o2775))
        os.mknod(top / "node", 0o102775)
        os.close(os.open(top / "program", os.O_CREAT | os.O_WRONLY, 0o755))
        os.chmod(top / "program", 0o2755)
        fd = os.open(top, os.O_TMPFILE | os.O_WRONLY, 0o2775)
        linkat(AT_FDCWD, f"/proc/self/fd/{fd}", top / "unnamed", AT_SYMLINK_FOLLOW)
        return {str(path.relative_to(top)): (mode(path), os.lstat(path).st_uid, os.lstat(path).st_gid)
                for path in sorted(top.rglob("*"))}
    expected = as_user(USER, USER, groups, lambda: act(store.dir / "native"))
    found = as_user(USER, USER, groups, lambda: act(qos.dir / "through"))
    assert found == expected
    assert all(group == OTHER for _, _, group in found.values())


def test_what_a_user_makes_is_its_own(store, mount):
    qos = mount(store)

    def act():
        os.mkdir(qos.dir / "folder")
        write(qos.dir / "folder" / "file")
        os.symlink("x", qos.dir / "folder" / "link")
        os.mkfifo(qos.dir / "folder" / "pipe")
    as_user(USER, OTHER, [], act)
    for path in [store.dir / "folder", *(store.dir / "folder").iterdir()]:
        assert (os.lstat(path).st_uid, os.lstat(path).st_gid) == (USER, OTHER)


def test_read_only(store, mount):
    write(store.dir / "file")
    qos = mount(store, "ro")
    assert (qos.dir / "file").read_text() == "text"
    for call in (lambda: os.mkdir(qos.dir / "x"), lambda: open(qos.dir / "file", "a"), lambda: os.unlink(qos.dir / "file"),
                 lambda: os.chmod(qos.dir / "file", 0), lambda: os.setxattr(qos.dir / "file", "user.x", b"y")):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EROFS


# --- names that the kernel remembers, and the store has changed ---

def test_create_of_what_somebody_else_made(store, mount):
    """The kernel believes that there is no such name, and asks to make it."""
    qos = mount(store, "cache=always")
    (store.dir / "target").write_text("target")
    for name in ("file", "exclusive", "link", "folder", "pipe"):
        assert not os.path.exists(qos.dir / name)
    write(store.dir / "file", "made on the store")
    write(store.dir / "exclusive")
    os.symlink("target", store.dir / "link")
    os.mkdir(store.dir / "folder")
    os.mkfifo(store.dir / "pipe")
    with open(qos.dir / "file", "a+") as file:
        file.seek(0)
        assert file.read() == "made on the store"
    with pytest.raises(FileExistsError):
        open(qos.dir / "exclusive", "x")
    with open(qos.dir / "link", "a") as file:
        file.write(" through the link")
    assert (store.dir / "target").read_text() == "target through the link"
    with pytest.raises(IsADirectoryError):
        open(qos.dir / "folder", "w")
    with open(os.open(qos.dir / "pipe", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK), "wb") as pipe:
        assert stat.S_ISFIFO(os.fstat(pipe.fileno()).st_mode)


def test_create_of_anothers_file_in_a_sticky_folder(store, mount):
    """That is for the kernel to allow (fs.protected_regular): it is to look again, and open the file."""
    qos = mount(store, "cache=always")
    for name, owner in (("mine", 0), ("theirs", USER)):
        assert not os.path.exists(qos.dir / name)
        write(store.dir / name, "")
        os.chown(store.dir / name, owner, owner)
        as_job(name, "sh", "-c", f"echo line >>{qos.dir / name}")
        assert (store.dir / name).read_text() == "line\n"
    assert "open" not in qos.job("mine")["operations"]
    assert qos.job("theirs")["operations"]["open"]["samples"] == 1


def test_names_that_went_on_the_store(store, mount):
    qos = mount(store, "entry_timeout=0,attr_timeout=0")
    for number in range(20):
        write(store.dir / "file", str(number))
        assert (qos.dir / "file").read_text() == str(number)
        os.unlink(store.dir / "file")
        assert not os.path.exists(qos.dir / "file")
        os.mkdir(store.dir / "file")
        assert os.path.isdir(qos.dir / "file")
        os.rmdir(store.dir / "file")
    with pytest.raises(FileNotFoundError):
        os.unlink(qos.dir / "file")
