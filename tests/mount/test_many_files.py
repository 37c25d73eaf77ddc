"""More files than the daemon may hold open."""
import errno
import os
import pathlib
import socket
import subprocess

import pytest

from harness import OTHER, USER, Store, as_user, drop_caches, outcome_of, run, wait_until


def open_count(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def listing(top):
    return sorted(run("find", top, "-mindepth", "1", "-printf", "%P %y %m %n %s %i\n").splitlines())


def test_tree_larger_than_the_limit(store, small):
    for number in range(40):
        (store.dir / "tree" / str(number)).mkdir(parents=True)
        for file in range(50):
            (store.dir / "tree" / str(number) / str(file)).write_text(f"{number}/{file}")
    qos = small(store, "entry_timeout=100,attr_timeout=100")

    def is_known():  # not at once, should somebody else on the machine make the kernel forget meanwhile
        assert listing(qos.dir / "tree") == listing(store.dir / "tree")
        return qos.state()["inodes"] > 1000
    for _ in range(2):
        wait_until(is_known, what="knowing more than the limit")
    assert open_count(qos.pid) < 290
    for number in range(0, 40, 3):
        for file in range(0, 50, 7):
            path = qos.dir / "tree" / str(number) / str(file)
            assert path.read_text() == f"{number}/{file}"
            path.write_text("new")
            path.chmod(0o600)
            os.rename(path, path.with_suffix(".moved"))
            os.link(path.with_suffix(".moved"), path)
    assert listing(qos.dir / "tree") == listing(store.dir / "tree")
    run("rm", "-r", qos.dir / "tree")
    assert os.listdir(store.dir) == []


def test_number_used_again_is_another_file(store, small):
    """A closed inode's file is removed behind the mount's back, and its number may be given to a new file."""
    qos = small(store, "entry_timeout=0,attr_timeout=0")
    for number in range(400):
        (store.dir / f"old-{number}").write_text("old")
    assert len(listing(qos.dir)) == 400
    for number in range(400):
        os.unlink(store.dir / f"old-{number}")
        (store.dir / f"new-{number}").write_text(f"new {number}")
    assert listing(qos.dir) == listing(store.dir)
    for number in range(400):
        assert (qos.dir / f"new-{number}").read_text() == f"new {number}"
        assert not (qos.dir / f"old-{number}").exists()


def test_open_files_stay_open(store, small):
    """Unlinked, and then a large tree is walked."""
    qos = small(store)
    files = [open(qos.dir / f"open-{number}", "w+") for number in range(20)]
    for number in range(20):
        os.unlink(qos.dir / f"open-{number}")
    for number in range(600):
        (store.dir / f"file-{number}").touch()
    assert listing(qos.dir) == listing(store.dir)
    for number, file in enumerate(files):
        file.write(str(number))
        file.flush()
        os.fchmod(file.fileno(), 0o640)
        file.seek(0)
        assert file.read() == str(number) and os.fstat(file.fileno()).st_mode & 0o777 == 0o640
        file.close()


def walk(qos):
    """Looks at so many files that none that was looked at before has a descriptor, if it can do without."""
    assert len(listing(qos.dir / "many")) == 400


def answers(top, removed):
    """What those that hold removed files by O_PATH and by their working directory are told; `removed` removes them."""
    for name in ("file", "target", "gone"):
        (top / name).write_text(name)
    os.mkdir(top / "folder")
    os.mkfifo(top / "pipe")
    os.symlink("nowhere", top / "link")
    names = ("file", "target", "pipe", "link", "folder")
    held = {name: os.open(top / name, os.O_PATH | os.O_NOFOLLOW) for name in names}
    with open(top / "unnamed", "w") as file:  # held by O_PATH alone in the end
        held["unnamed"] = os.open(f"/proc/self/fd/{file.fileno()}", os.O_PATH)
        file.write("unnamed")
    os.chdir(top / "folder")
    try:
        removed(top)
        told = [outcome_of(lambda fd=fd: os.fstat(fd).st_nlink) for fd in held.values()]
        told += [outcome_of(lambda fd=held[name]: os.open(f"/proc/self/fd/{fd}", os.O_RDONLY) > 0) for name in ("file", "target")]
        told.append(outcome_of(lambda: pathlib.Path(f"/proc/self/fd/{held['unnamed']}").read_text()))
        told.append(outcome_of(os.readlink, "", dir_fd=held["link"]))
        told.append(outcome_of(os.chmod, f"/proc/self/fd/{held['file']}", 0o600))
        told += [outcome_of(lambda: os.stat(".").st_nlink), outcome_of(os.listdir, "."), outcome_of(os.mkdir, "new")]
    finally:
        os.chdir("/")
        for fd in held.values():
            os.close(fd)
    return told


def remove(top):
    for name in ("file", "pipe", "link", "unnamed"):
        os.unlink(top / name)
    os.rmdir(top / "folder")
    os.rename(top / "gone", top / "target")


@pytest.mark.parametrize("store", ["tmpfs", "ext4", "btrfs"], indirect=True)
@pytest.mark.parametrize("are_closed", [False, True])
@pytest.mark.parametrize("options", ["", "cache=always"])
def test_removed_files_that_are_held(store, small, new_store, options, are_closed):
    """Without being open; with `are_closed` the daemon has no descriptor when they are removed, and is told of no look-up."""
    qos = small(store, options)
    (store.dir / "many").mkdir()
    for number in range(400):
        (store.dir / "many" / str(number)).touch()

    def remove_through_mount(top):
        if are_closed:
            walk(qos)
        remove(top)
        walk(qos)
        walk(qos)
    assert as_user(0, 0, [], lambda: answers(qos.dir, remove_through_mount)) == \
        as_user(0, 0, [], lambda: answers(new_store(store.kind).dir, remove))


def hold_removed(qos, uid, count):
    """Descriptors (O_PATH) of so many files that this user has made and that are removed. They are opened as that user, so that they count as
    the user's should somebody else on the machine make the kernel forget them before."""
    paths = [qos.dir / f"held-{uid}-{number}" for number in range(count)]
    ours, theirs = socket.socketpair()

    def make():
        for path in paths:
            path.touch()
        socket.send_fds(theirs, [b"x"], [os.open(path, os.O_PATH) for path in paths])

    with ours, theirs:
        as_user(uid, uid, [], make)
        _, held, _, _ = socket.recv_fds(ours, 1, count)
    for path in paths:
        os.unlink(path)
    return held


def lost(held):
    return [outcome_of(os.fstat, fd) == "ESTALE" for fd in held]


def test_removed_files_take_no_descriptors_of_others(store, small):
    """However many are held: the oldest are given up, all other files are found and opened."""
    qos = small(store)
    (store.dir / "many").mkdir()
    for number in range(400):
        (store.dir / "many" / str(number)).touch()
    first, others = hold_removed(qos, OTHER, 15), hold_removed(qos, USER, 200)
    for _ in range(2):
        walk(qos)
        assert open_count(qos.pid) < 290
        assert (qos.dir / "many" / "7").read_text() == ""
    assert not any(lost(first)) and any(lost(others)) and not all(lost(others))
    for fd in first + others:
        os.close(fd)


def test_too_many_open_files_are_an_error(store, small):
    """EMFILE passes when files are closed."""
    qos = small(store)
    qos.expects_log("it has 99 files open")
    files = []
    with pytest.raises(OSError) as caught:
        for number in range(400):
            files.append(open(qos.dir / f"file-{number}", "w"))
    assert caught.value.errno == 24
    for file in files:
        file.close()
    (qos.dir / "after").write_text("x")
    assert len(os.listdir(qos.dir)) >= len(files)


def test_tree_on_another_device(store, small):
    """The same below a mount of its own, which is free again when nothing there is known any more."""
    below = store.dir / "below"
    below.mkdir()
    run("mount", "-t", "tmpfs", "below", below)
    try:
        qos = small(store)
        for number in range(600):
            (below / str(number)).write_text(str(number))
        for _ in range(2):
            assert len(listing(qos.dir / "below")) == 600
            assert all((qos.dir / "below" / str(number)).read_text() == str(number) for number in range(600))
        assert open_count(qos.pid) < 290

        def unmount():
            drop_caches()
            return subprocess.run(["umount", below], stderr=subprocess.DEVNULL).returncode == 0
        wait_until(unmount, what=f"umount {below}")
    finally:
        subprocess.run(["umount", "-l", below], stderr=subprocess.DEVNULL)


def test_space_of_removed_files_is_free(store, small):
    """No descriptor of the daemon keeps a removed file."""
    qos = small(store)
    for number in range(400):
        (store.dir / f"file-{number}").write_bytes(b"x" * 65536)
    used = os.statvfs(store.dir).f_bfree
    assert len(listing(qos.dir)) == 400
    for number in range(400):
        os.unlink(qos.dir / f"file-{number}")
    wait_until(lambda: os.statvfs(store.dir).f_bfree >= used + 400 * 16 * 0.99, what="the space")
    wait_until(lambda: not any("(deleted)" in target for target in open_files(qos.pid)), what="closing")


def open_files(pid):
    targets = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            targets.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            pass
    return targets


def know_all(top, count):
    """How many files can be known, each held by the kernel; then the known go on, and no other is made."""
    known = []
    with pytest.raises(OSError) as caught:
        for number in range(count):
            known.append(os.open(top / f"file-{number}", os.O_PATH))
    assert caught.value.errno == errno.ENFILE
    for number in range(0, len(known), 10):
        path = top / f"file-{number}"
        path.write_text("new")
        assert path.read_text() == "new" and path.stat().st_size == 3
    assert len(os.listdir(top)) == count
    for make in (os.mkdir, os.mknod, lambda path: os.symlink("x", path), lambda path: open(path, "x")):
        with pytest.raises(OSError) as caught:
            make(top / "another")
        assert caught.value.errno == errno.ENFILE
    assert len(os.listdir(top)) == count
    os.close(known[0])
    os.unlink(top / "file-0")
    wait_until(lambda: can_make(top / "another"), what="room for another")
    return len(known)


def can_make(path):
    try:
        path.write_text("x")
        return True
    except OSError as error:
        assert error.errno == errno.ENFILE
        return False


@pytest.mark.parametrize("why", ["has no file handles", "only root may find"])
def test_bound_without_file_handles(store, small, mount, why):
    """It is said at the mount; at it, new files are refused, the known go on, and the log explains."""
    for number in range(400):
        (store.dir / f"file-{number}").touch()
        (store.dir / f"file-{number}").chmod(0o666)
    timeouts = "attr_timeout=100,entry_timeout=100"
    if why == "only root may find":
        user, below = USER, store
    else:
        user, below = None, Store(mount(store, timeouts).dir, "qosfs")
    os.chmod(below.dir, 0o777)
    qos = small(below, timeouts, user=user)
    qos.expects_log("too many files at once")
    assert "at most 225 files" in qos.log and why in qos.log
    known = as_user(user or 0, user or 0, [], lambda: know_all(qos.dir, 400))
    assert 215 <= known <= 225
    assert qos.log.count("too many files at once: of 22") == 1
