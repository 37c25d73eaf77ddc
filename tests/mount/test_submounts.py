"""Other file systems below SRC."""
import errno
import os

import pytest

from harness import run
from syscalls import Directory
from twins import attempt


@pytest.fixture
def below(store):
    """Two tmpfs mounted below the store, one in the other's place of the tree."""
    tops = [store.dir / "one", store.dir / "folder" / "two"]
    for top in tops:
        top.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "below", top)
        (top / "file").write_text(str(top))
        (top / "folder").mkdir()
    yield tops
    for top in tops:
        run("umount", "-l", top)


def test_files_of_all_devices(store, mount, below):
    qos = mount(store)
    for top in below:
        through = qos.dir / top.relative_to(store.dir)
        assert (through / "file").read_text() == str(top)
        (through / "folder" / "new").write_text("new")
        assert (top / "folder" / "new").read_text() == "new"
        assert os.statvfs(through).f_blocks == os.statvfs(top).f_blocks
        assert (through / "folder" / "..").resolve() == through
        assert os.path.samefile(through / "..", through.parent)


def test_numbers_are_unique_over_devices(store, mount, below):
    """The same numbers on each tmpfs: a program that looks for hard links must not take them for one file."""
    for top in [store.dir, *below]:
        for number in range(20):
            (top / f"file-{number}").touch()
    qos = mount(store)
    paths = [path for path in qos.dir.rglob("*")]
    numbers = {os.lstat(path).st_ino for path in paths}
    assert len(paths) > 60 and len(numbers) == len(paths)
    for top in [qos.dir, *(qos.dir / path.relative_to(store.dir) for path in below)]:
        with Directory(top) as directory:
            while entry := directory.read():
                path = top / entry[0]
                if entry[0] not in (".", "..") and not os.path.ismount(store.dir / path.relative_to(qos.dir)):
                    assert os.lstat(path).st_ino == entry[1]
    (qos.dir / "tar").mkdir()
    run("tar", "-cf", qos.dir / "tar" / "all.tar", "--exclude=./tar", "-C", qos.dir, ".")
    assert "link to" not in run("tar", "-tvf", qos.dir / "tar" / "all.tar")


def test_names_do_not_cross_devices(store, mount, below):
    qos = mount(store)
    (qos.dir / "file").write_text("x")
    assert attempt(os.rename, qos.dir / "file", qos.dir / "one" / "x") == errno.EXDEV
    assert attempt(os.link, qos.dir / "file", qos.dir / "one" / "x") == errno.EXDEV
    assert attempt(os.rmdir, qos.dir / "one") == errno.EBUSY
    run("mv", qos.dir / "file", qos.dir / "one" / "moved")
    assert (below[0] / "moved").read_text() == "x"
    with open(qos.dir / "one" / "moved", "rb") as source, open(qos.dir / "copied", "wb") as target:
        os.copy_file_range(source.fileno(), target.fileno(), 1)
    assert (store.dir / "copied").read_text() == "x"


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_what_is_a_mount_point_stays(store, mount):
    """As on any file system: it can neither be removed nor renamed."""
    qos = mount(store)
    (qos.dir / "folder").mkdir()
    (qos.dir / "file").touch()
    run("mount", "-t", "tmpfs", "above", qos.dir / "folder")
    run("mount", "--bind", "/dev/null", qos.dir / "file")
    try:
        assert attempt(os.rmdir, qos.dir / "folder") == attempt(os.unlink, qos.dir / "file") == errno.EBUSY
        for name in ("folder", "file"):
            assert attempt(os.rename, qos.dir / name, qos.dir / "new") == errno.EBUSY
    finally:
        run("umount", qos.dir / "folder", qos.dir / "file")
    assert sorted(os.listdir(store.dir)) == ["file", "folder"]


def test_mounted_while_mounted(store, mount):
    """What is mounted over a folder later is seen, when the kernel asks again."""
    (store.dir / "folder").mkdir()
    (store.dir / "folder" / "hidden").touch()
    qos = mount(store, "cache=none")
    assert os.listdir(qos.dir / "folder") == ["hidden"]
    run("mount", "-t", "tmpfs", "later", store.dir / "folder")
    (store.dir / "folder" / "shown").touch()
    assert os.listdir(qos.dir / "folder") == ["shown"]
    run("umount", "-l", store.dir / "folder")
    assert os.listdir(qos.dir / "folder") == ["hidden"]


def test_one_device_in_two_places(store, mount):
    """A bind mount: the same files twice, and each place is walked to its end."""
    (store.dir / "origin" / "deep").mkdir(parents=True)
    (store.dir / "origin" / "deep" / "file").write_text("text")
    (store.dir / "twice").mkdir()
    run("mount", "--bind", store.dir / "origin", store.dir / "twice")
    try:
        qos = mount(store)
        for top in ("origin", "twice", "origin"):
            assert (qos.dir / top / "deep" / "file").read_text() == "text"
            assert os.path.realpath(qos.dir / top / "deep") == str(qos.dir / top / "deep")
        assert len(run("find", qos.dir, "-name", "file").split()) == 2
        assert len(run("find", qos.dir, "-name", "file").split()) == 2
    finally:
        run("umount", "-l", store.dir / "twice")


@pytest.mark.parametrize("store", ["btrfs"], indirect=True)
def test_a_subvolume_in_the_place_of_a_deleted_one(store, mount):
    """It has the device number of the former, whose files are known yet, and their inode numbers."""
    qos = mount(store, "entry_timeout=0,attr_timeout=0")
    for text in ("first", "second", "third"):
        run("btrfs", "subvolume", "create", store.dir / "volume")
        (store.dir / "volume" / "file").write_text(text)
        assert (qos.dir / "volume" / "file").read_text() == text
        (qos.dir / "volume" / "new").write_text(text)
        assert (store.dir / "volume" / "new").read_text() == text
        run("btrfs", "subvolume", "delete", store.dir / "volume")
        assert os.listdir(qos.dir) == []
