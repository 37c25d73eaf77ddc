"""opendir, readdir, readdirplus: complete, stable, and true to the store."""
import errno
import os

import pytest

from harness import USER, as_job, as_user, run
from syscalls import Directory

CACHES = ["cache=auto", "cache=none", "cache=always"]


def fill(folder, count, name="entry-{:05d}"):
    for number in range(count):
        (folder / name.format(number)).touch()


def entries(directory):
    found = []
    while entry := directory.read():
        found.append(entry)
    return found


@pytest.mark.parametrize("options", CACHES)
@pytest.mark.parametrize("count", [0, 1, 100, 5000])
def test_lists_what_the_store_lists(store, mount, options, count):
    fill(store.dir, count)
    (store.dir / "folder").mkdir()
    os.symlink("x", store.dir / "link")
    os.mkfifo(store.dir / "pipe")
    qos = mount(store, options)
    for _ in range(2):
        with Directory(store.dir) as expected, Directory(qos.dir) as found:
            assert [name for name, _ in entries(found)] == [name for name, _ in entries(expected)]
        with os.scandir(store.dir) as expected, os.scandir(qos.dir) as found:
            types = [{(entry.name, entry.inode(), entry.is_dir(), entry.is_file(), entry.is_symlink()) for entry in scan}
                     for scan in (expected, found)]
        assert types[0] == types[1]
    expected, found = (run("ls", "-lniU", "--time-style=full-iso", top) for top in (store.dir, qos.dir))
    assert found == expected


def test_names_that_are_not_kept_come_without_attributes(new_store, mount, cluster):
    """So more of them fit into an answer, and none of the files is looked up, told of, and forgotten at once."""
    store = new_store()
    fill(store.dir, 500)

    def cost(qos):
        as_job("list", "ls", "-U", qos.dir)
        return qos.job("list")["operations"]["readdir"]["samples"]
    kept, not_kept, nothing = (cost(mount(store, options)) for options in ("entry_timeout=1h", "entry_timeout=0", "cache=none"))
    shared, = cluster(store, mounts=1, options="cache=none,entry_timeout=1h").mounts  # with a server the time-out means nothing
    assert cost(shared) == nothing == not_kept < kept


def test_long_names(store, mount):
    fill(store.dir, 1000, "n" * 250 + "{:05d}")
    qos = mount(store)
    assert sorted(os.listdir(qos.dir)) == sorted(os.listdir(store.dir))


def test_positions_hold_while_entries_vanish(store, mount):
    """telldir() before each of 5,000 entries; then others are removed and made, and every place that was told is gone to."""
    (store.dir / "folder").mkdir()
    fill(store.dir / "folder", 5000)
    qos = mount(store)
    with Directory(qos.dir / "folder") as directory:
        places = []
        while True:
            place = directory.tell()
            entry = directory.read()
            if entry is None:
                break
            places.append((place, entry[0]))
        assert len(places) == 5002
        for place, name in places[::-7]:
            directory.seek(place)
            assert directory.read()[0] == name
        gone = {name for _, name in places[1::3] if name.startswith("entry")}
        for name in gone:
            os.unlink(qos.dir / "folder" / name)
        remaining = [(place, name) for place, name in places if name not in gone]
        for place, name in remaining[::-11]:
            directory.seek(place)
            assert directory.read()[0] == name
        directory.rewind()
        assert {name for name, _ in entries(directory)} == {name for _, name in remaining}


def test_reading_goes_on_while_entries_vanish(store, mount):
    """Each entry that is there all the time comes exactly once."""
    (store.dir / "folder").mkdir()
    fill(store.dir / "folder", 5000)
    qos = mount(store)
    seen = []
    with Directory(qos.dir / "folder") as directory:
        while entry := directory.read():
            seen.append(entry[0])
            if entry[0].startswith("entry") and int(entry[0][-5:]) % 2 == 0:
                os.unlink(qos.dir / "folder" / entry[0])
    assert len(seen) == len(set(seen)) == 5002
    assert sorted(os.listdir(qos.dir / "folder")) == [f"entry-{number:05d}" for number in range(1, 5000, 2)]


def test_remove_all(store, mount):
    (store.dir / "folder").mkdir()
    for number in range(20):
        (store.dir / "folder" / str(number)).mkdir()
        fill(store.dir / "folder" / str(number), 150)
    qos = mount(store)
    run("rm", "-r", qos.dir / "folder")
    assert os.listdir(store.dir) == []


def test_rewind_shows_what_is_new(store, mount):
    fill(store.dir, 3)
    qos = mount(store)
    with Directory(qos.dir) as directory:
        assert len(entries(directory)) == 5
        (qos.dir / "new").touch()
        directory.rewind()
        assert "new" in {name for name, _ in entries(directory)}
        os.unlink(qos.dir / "new")
        directory.rewind()
        assert "new" not in {name for name, _ in entries(directory)}


def test_two_readers_of_one_stream(store, mount):
    """A descriptor shared by parent and child: together they see each entry once."""
    fill(store.dir, 3000)
    qos = mount(store)
    fd = os.open(qos.dir, os.O_RDONLY | os.O_DIRECTORY)
    readers = []
    for _ in range(2):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, b"\0".join(names_by_getdents(fd)) + b"\0")
            os._exit(0)
        os.close(writer)
        readers.append(reader)
    seen = []
    for reader in readers:
        with open(reader, "rb") as pipe:
            seen += pipe.read().split(b"\0")[:-1]
        os.wait()
    os.close(fd)
    assert sorted(seen) == sorted([b".", b".."] + [os.fsencode(name) for name in os.listdir(store.dir)])


def names_by_getdents(fd):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(1024)
    names = []
    while (length := libc.syscall(217, fd, buffer, 1024)) > 0:  # SYS_getdents64
        at = 0
        while at < length:
            names.append(ctypes.string_at(ctypes.addressof(buffer) + at + 19))
            at += int.from_bytes(buffer.raw[at + 16:at + 18], "little")
    return [name for name in names if name]


def test_removed_folder_that_is_open(twins):
    def act(top):
        os.mkdir(top / "folder")
        fd = os.open(top / "folder", os.O_RDONLY)
        os.rmdir(top / "folder")
        try:
            return os.listdir(fd)
        except OSError as error:
            return errno.errorcode[error.errno]
        finally:
            os.close(fd)
    twins(act)


def test_hidden_folder_is_not_listed(store, mount):
    (store.dir / ".qosfs").mkdir()
    (store.dir / "folder").mkdir()
    (store.dir / "folder" / ".qosfs").mkdir()
    qos = mount(store)
    assert os.listdir(qos.dir) == ["folder"]
    assert run("ls", "-a", qos.dir).split() == [".", "..", "folder"]
    assert os.listdir(qos.dir / "folder") == [".qosfs"]
    assert "rules" in os.listdir(qos.dir / ".qosfs")
    for call in (lambda path: os.rmdir(path), lambda path: os.rename(path, qos.dir / "x"),
                 lambda path: os.rename(qos.dir / "folder", path)):
        with pytest.raises(PermissionError):
            call(qos.dir / ".qosfs")
    with pytest.raises(FileExistsError):
        os.mkdir(qos.dir / ".qosfs")


def test_new_entries_show_everywhere(store, mount):
    """Made and removed through the mount by others, seen at once."""
    qos = mount(store)
    for number in range(50):
        as_user(USER, USER, [], (qos.dir / f"file-{number}").touch)
        assert f"file-{number}" in os.listdir(qos.dir)
        os.unlink(qos.dir / f"file-{number}")
        assert os.listdir(qos.dir) == []


def test_walk_by_many_at_once(store, mount):
    """find in eight processes, while a tree is made and removed beside: the part that stands is seen whole."""
    for number in range(30):
        (store.dir / "stands" / str(number)).mkdir(parents=True)
        fill(store.dir / "stands" / str(number), 30)
    qos = mount(store, "entry_timeout=1ms,attr_timeout=0")
    child = os.fork()
    if child == 0:
        for _ in range(15):
            for number in range(20):
                (qos.dir / "moves" / str(number)).mkdir(parents=True)
                fill(qos.dir / "moves" / str(number), 5)
            run("rm", "-rf", qos.dir / "moves")
        os._exit(0)
    import subprocess
    expected = sorted(run("find", store.dir / "stands", "-printf", "%P %i %s %m\n").splitlines())
    for _ in range(4):
        walks = [subprocess.Popen(["find", qos.dir / "stands", "-printf", "%P %i %s %m\n"], stdout=subprocess.PIPE, text=True)
                 for _ in range(8)]
        for walk in walks:
            text, _ = walk.communicate()
            assert walk.returncode == 0 and sorted(text.splitlines()) == expected
    assert os.waitpid(child, 0)[1] == 0
