"""Other file systems below SRC."""
import contextlib
import errno
import os
import subprocess

import pytest

from harness import TIMEOUT, USER, as_user, error_of, run, thread_names, wait_until
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
    """It has the device number of the former and the inode numbers of its files, which are known yet."""
    qos = mount(store, "entry_timeout=0,attr_timeout=0")
    for text in ("first", "second", "third"):
        run("btrfs", "subvolume", "create", store.dir / "volume")
        (store.dir / "volume" / "file").write_text(text)
        assert (qos.dir / "volume" / "file").read_text() == text
        (qos.dir / "volume" / "new").write_text(text)
        assert (store.dir / "volume" / "new").read_text() == text
        run("btrfs", "subvolume", "delete", store.dir / "volume")
        assert os.listdir(qos.dir) == []


# --- left out ---


def test_submounts_left_out(store, mount, below):
    """What they cover is seen in their place, as by mount --bind; there at the start, or mounted later, or propagated."""
    run("mount", "--bind", store.dir, store.dir)
    run("mount", "--make-shared", store.dir)
    (store.dir / "later").mkdir()
    (store.dir / "later" / "covered").touch()
    (store.dir / "file").touch()
    try:
        qos = mount(store, "submounts=no,cache=none")
        run("mount", "-t", "tmpfs", "later", store.dir / "later")
        run("mount", "--bind", "/etc/passwd", store.dir / "file")
        (store.dir / "later" / "shown").touch()
        assert os.listdir(qos.dir / "later") == ["covered"] and (qos.dir / "file").read_text() == ""
        assert {path.stat().st_dev for path in qos.dir.rglob("*")} == {qos.dir.stat().st_dev}
        qos.unmount()
        assert os.listdir(store.dir / "later") == ["shown"]
    finally:
        run("umount", "-R", "-l", store.dir)


def test_all_else_is_there_where_submounts_are_left_out(store, small, below):
    """More files than descriptors, found again by handle; folders that are covered can be used."""
    (store.dir / "deep" / "er").mkdir(parents=True)
    for number in range(500):
        (store.dir / "deep" / str(number)).write_text(str(number))
    qos = small(store, "submounts=no")
    for _ in range(2):
        assert all((qos.dir / "deep" / str(number)).read_text() == str(number) for number in range(500))
    assert os.listdir(qos.dir / "one") == os.listdir(qos.dir / "folder" / "two") == []
    (qos.dir / "one" / "new").write_text("text")
    (qos.dir / "one" / "new").rename(qos.dir / "deep" / "er" / "moved")
    assert (store.dir / "deep" / "er" / "moved").read_text() == "text"
    assert os.listdir(below[0]) != [] and error_of(os.rmdir, qos.dir / "one") == errno.EBUSY


def test_submounts_of_an_ordinary_user(store, mount):
    qos = mount(store, "submounts=no", user=USER, expect_failure=True)
    assert "option submounts=no: that takes root" in qos.log
    qos.expects_log("option submounts=no: that takes root")


# --- the mount itself ---


@contextlib.contextmanager
def shared_folder(world):
    """A folder of which mounts are propagated to wherever it is bound; with a place for a mount in it."""
    folder = world.folder("shared")
    (folder / "place").mkdir()
    run("mount", "--bind", folder, folder)
    run("mount", "--make-shared", folder)
    try:
        yield folder
    finally:
        run("umount", "-l", folder)


def programs_end(top, folder):
    """None goes round in circles, or waits for ever; the rest is there."""
    assert error_of(os.stat, folder) == error_of(os.listdir, folder) == errno.ELOOP
    found = subprocess.run(["find", top], text=True, capture_output=True, timeout=TIMEOUT)
    assert str(top / "file") in found.stdout and f"{folder}/" not in found.stdout
    assert folder.name in os.listdir(folder.parent)
    assert subprocess.run(["ls", "-lR", top], capture_output=True, timeout=TIMEOUT).returncode != 0


def asked_of_itself(qos):
    """How many of its own requests the daemon has served: each might have waited for what it holds itself."""
    threads = {f"{name}.{qos.user or 0}" for name in thread_names(qos.pid)}
    state = as_user(qos.user or 0, qos.user or 0, [], qos.state)
    return sum(job["requests"] for job in state["jobs"] if job["id"] in threads)


@pytest.mark.parametrize("user", [None, USER])
@pytest.mark.parametrize("options", ["", "cache=none,slots=1,threads=2", "cache=always"])
def test_a_mount_that_is_propagated_below_its_source(store, world, mount, options, user):
    """The daemon meets itself there; it enters not, and waits for no answer of its own, be there one slot alone."""
    (store.dir / "bind").mkdir()
    (store.dir / "file").touch()
    with shared_folder(world) as folder:
        os.chown(folder / "place", user or 0, user or 0)
        run("mount", "--bind", folder, store.dir / "bind")
        qos = mount(store, options, user=user, place=folder / "place")
        assert os.path.ismount(store.dir / "bind" / "place") or user
        as_user(user or 0, user or 0, [], lambda: programs_end(qos.dir, qos.dir / "bind" / "place"))
        assert asked_of_itself(qos) == 0
        qos.unmount()
        run("umount", "-l", store.dir / "bind")


@pytest.mark.parametrize("options", ["cache=none,slots=1,threads=2", ""])
def test_a_mount_that_is_bound_below_its_source_later(store, mount, options):
    """All of it, a folder of it, a file of it; while names there are known already."""
    qos = mount(store, options)
    for name in ("all", "some", "folder"):
        (qos.dir / name).mkdir()
    for name in ("one", "file"):
        (qos.dir / name).touch()
    run("ls", "-l", qos.dir)
    places = {"all": qos.dir, "some": qos.dir / "folder", "one": qos.dir / "file"}
    for name, source in places.items():
        run("mount", "--bind", source, store.dir / name)
    try:
        for name in places:
            wait_until(lambda: error_of(os.stat, qos.dir / name) == errno.ELOOP)
        programs_end(qos.dir, qos.dir / "all")
        assert asked_of_itself(qos) == 0
        assert error_of(os.rmdir, qos.dir / "all") in (errno.ELOOP, errno.EBUSY)
        assert error_of(os.listdir, qos.dir / "folder") is None
    finally:
        for name in places:
            run("umount", "-l", store.dir / name)
    wait_until(lambda: error_of(os.stat, qos.dir / "all") is None)
