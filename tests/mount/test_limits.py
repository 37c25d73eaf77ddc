"""As far as the store goes, the mount goes: names, paths, xattrs, sizes, and very large folders."""
import errno
import os
import random
import shutil

import pytest

from harness import Store, run
from syscalls import Directory
from twins import attempt

NAME_MAX, PATH_MAX, XATTR_MAX = 255, 4095, 65536


# --- names and paths ---

def test_every_byte_in_names(twins):
    """Alone, and 255 times."""
    names = [bytes([byte]) * length for byte in range(1, 256) for length in (1, NAME_MAX) if byte != ord("/")]
    names.remove(b".")

    def act(top):
        top = os.fsencode(top)
        for name in names:
            with open(os.path.join(top, name), "xb") as file:
                file.write(name)
        listed = sorted(os.listdir(top))
        found = {name: open(os.path.join(top, name), "rb").read() for name in listed}
        for name in names[::2]:
            os.unlink(os.path.join(top, name))
        return listed == sorted(names), all(name == data for name, data in found.items())
    assert twins(act) == (True, True)


@pytest.mark.parametrize("length", [NAME_MAX, NAME_MAX + 1])
def test_longest_name_in_every_call(twins, length):
    def act(top):
        (top / "file").write_text("x")
        outcomes = []
        for number, make in enumerate([
                os.mkdir, os.mkfifo, lambda path: os.symlink("target", path), lambda path: os.link(top / "file", path),
                lambda path: os.rename(top / "file", path), lambda path: path.write_text("x"), os.stat, os.listdir, os.readlink,
                os.unlink, os.rmdir, os.statvfs, lambda path: os.chmod(path, 0o700), os.listxattr]):
            outcomes.append(attempt(make, top / (str(number) * length)[:length]) if number < 6 else
                            attempt(lambda path=top / ("1" * length): make(path) and None))
        return outcomes
    outcomes = twins(act)
    assert (errno.ENAMETOOLONG in outcomes) == (length > NAME_MAX)
    assert length == NAME_MAX or set(outcomes) == {errno.ENAMETOOLONG}


def make_path(length):
    """Makes folders below the working directory; a path of that length in the deepest."""
    path = "d" * 200
    while len(path) < length - 201:
        os.mkdir(path)
        path += "/" + "d" * 200
    os.mkdir(path)
    return (path + "/" + "f" * length)[:length]


def test_longest_path(twins):
    def act(top):
        os.chdir(top)
        path = make_path(PATH_MAX)
        other = path[:-1] + "2"
        outcomes = [attempt(call) for call in (
            lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)), lambda: os.stat(path).st_size, lambda: os.link(path, other),
            lambda: os.rename(other, path[:-1] + "3"), lambda: os.truncate(path, 5), lambda: os.stat(path[:-1] + "3").st_size,
            lambda: os.symlink(path, "link"), lambda: os.stat("link").st_size, lambda: os.readlink("link") == path,
            lambda: os.setxattr(path, "user.name", b"value"), lambda: os.getxattr(path, "user.name"), lambda: os.unlink(path),
            lambda: os.mkdir(path), lambda: os.rmdir(path), lambda: os.rename(path[:-1] + "3", "file"))]
        too_long = [attempt(call) for call in (lambda: os.stat(path + "f"), lambda: os.mkdir(path + "f"),
                                               lambda: os.symlink(path + "f", "longer"), lambda: os.rename(path, path + "f"))]
        shutil.rmtree("d" * 200)
        return outcomes, too_long
    outcomes, too_long = twins(act)
    assert outcomes == [None, 0, None, None, None, 5, None, 5, True, None, b"value", None, None, None, None]
    assert set(too_long) == {errno.ENAMETOOLONG}


# --- xattrs ---

@pytest.fixture
def large_xattrs(world):
    """An ext4 with room for them."""
    path = world.folder("image") / "ext4"
    with open(path, "wb") as file:
        file.truncate(64 << 20)
    run("mkfs.ext4", "-q", "-O", "ea_inode", "-E", "root_owner=0:0", path)
    folder = world.folder("ext4")
    run("mount", "-o", "loop,user_xattr", path, folder)
    yield Store(folder, "ext4")
    run("umount", folder)


def test_largest_xattr(large_xattrs, mount):
    """64 KiB; several of them; replaced, read back on both sides, and one byte more is refused."""
    qos = mount(large_xattrs)
    for name in ("file", "folder/"):
        path = qos.dir / name
        path.mkdir() if name.endswith("/") else path.touch()
        for number in range(3):
            value = os.urandom(XATTR_MAX)
            os.setxattr(path, f"user.{number}", b"short")
            os.setxattr(path, f"user.{number}", value)
            assert os.getxattr(path, f"user.{number}") == os.getxattr(large_xattrs.dir / name, f"user.{number}") == value
        with pytest.raises(OSError) as caught:
            os.setxattr(path, "user.more", b"v" * (XATTR_MAX + 1))
        assert caught.value.errno == errno.E2BIG
        os.removexattr(path, "user.1")
        assert sorted(os.listxattr(path)) == ["user.0", "user.2"]
    qos.unmount()


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_longest_list_of_xattrs(twins):
    """As many names as a list may have; and more, which no call can list any more."""
    def act(top):
        (top / "file").touch()
        for number in range(XATTR_MAX // 256):
            os.setxattr(top / "file", f"user.{number:0250}", b"")
        full = sorted(os.listxattr(top / "file"))
        os.setxattr(top / "file", "user.more", b"")
        more = attempt(lambda: len(os.listxattr(top / "file")))
        os.unlink(top / "file")
        return full, more
    full, more = twins(act)
    assert len(full) == XATTR_MAX // 256 and more == errno.E2BIG


# --- sizes ---

def test_largest_file(twins):
    """Around 4 GiB, around what ext4 takes, and around what any file system takes: truncated to it, written and read at its
    end, found by SEEK_DATA, and punched."""
    bounds = [2**32, 2**40, 2**44 - 4096, 2**44, 2**63 - 4096, 2**63 - 1]

    def at_end(file, size):
        yield lambda: os.ftruncate(file, size)
        yield lambda: os.fstat(file).st_size
        yield lambda: os.pwrite(file, b"end", size - 3)
        yield lambda: os.pread(file, 10, size - 3)
        yield lambda: os.lseek(file, 4096, os.SEEK_DATA) // 4096
        yield lambda: os.lseek(file, 0, os.SEEK_END)
        yield lambda: os.pwrite(file, b"beyond", size)
        yield lambda: os.fstat(file).st_size
        yield lambda: os.posix_fallocate(file, size - 4096, 4096)
        yield lambda: os.fstat(file).st_blocks > 0
        yield lambda: os.ftruncate(file, 0)

    def act(top):
        file = os.open(top / "file", os.O_CREAT | os.O_RDWR)
        outcomes = [[attempt(call) for call in at_end(file, bound + step)]
                    for bound in bounds for step in (-1, 0, 1) if bound + step < 2**63]
        os.close(file)
        return outcomes
    outcomes = twins(act)
    assert all(outcome[3] == b"end" for outcome in outcomes[:6])


# --- large folders ---

STANDING, GOING = 90_000, 10_000


def test_100_000_entries_that_change(store, mount):
    """What stands throughout comes once, however the rest comes and goes meanwhile; and every place that was told still leads to
    its entry."""
    folder = store.dir / "folder"
    folder.mkdir()
    names = [f"stays-{number}" for number in range(STANDING)] + [f"goes-{number}" for number in range(GOING)]
    random.Random(1).shuffle(names)
    for name in names:
        os.mknod(folder / name)
    qos = mount(store)
    top = os.fspath(qos.dir / "folder")
    going = iter(range(GOING))
    places, seen = [], []
    with Directory(top) as directory:
        for count in range(2 * len(names)):
            place = directory.tell()
            entry = directory.read()
            if entry is None:
                break
            seen.append(entry[0])
            if entry[0].startswith("stays"):
                places.append((place, entry[0]))
            if count % 9 == 0 and (number := next(going, None)) is not None:
                os.unlink(f"{top}/goes-{number}")
                os.mknod(f"{top}/comes-{number}")
        standing = [name for name in seen if name.startswith("stays")]
        assert len(standing) == len(set(standing)) == STANDING
        assert len(seen) == len(set(seen))
        for place, name in random.Random(2).sample(places, 50):
            directory.seek(place)
            found = directory.read()[0]
            while not found.startswith("stays"):  # one that came may stand before it now
                found = directory.read()[0]
            assert found == name
    assert sorted(os.listdir(top)) == sorted(os.listdir(folder))
