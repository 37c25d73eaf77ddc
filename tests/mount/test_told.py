"""The kernel believes nothing any longer that a change through the mount has taken away in the store: modes, times, ACLs."""
import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
import subprocess
import threading

import pytest

from harness import USER, as_user, error_of, outcome_of, run, running, start_job, wait_until
from syscalls import mode_of

FS_IOC_SETFLAGS, FS_NODUMP_FL = 0x40086602, 0x40


def page():
    return mmap.mmap(-1, 4096)  # aligned, for O_DIRECT


def opened(flags):
    """Does something with the program, open with these flags; it stays as it was."""
    def decorate(function):
        def act(path):
            fd = os.open(path, flags)
            try:
                function(fd, path)
            finally:
                os.close(fd)
        act.__name__ = function.__name__
        return act
    return decorate


@opened(os.O_RDWR)
def cached(fd, _path):
    os.pwrite(fd, os.pread(fd, 100, 0), 0)


@opened(os.O_RDWR | os.O_DIRECT)
def direct(fd, _path):
    block = page()
    os.preadv(fd, [block], 0)
    os.pwritev(fd, [block], 0)


@opened(os.O_RDWR)
def direct_by_fcntl(fd, path):
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
    direct(path)


@opened(os.O_WRONLY | os.O_APPEND)
def append(fd, _path):
    os.write(fd, b"x")


@opened(os.O_RDWR)
def mapped(fd, _path):
    with mmap.mmap(fd, 4096) as pages:
        pages[0] = pages[0]
        pages.flush()


@opened(os.O_RDWR)
def allocate(fd, _path):
    os.posix_fallocate(fd, 0, 4096)


@opened(os.O_RDWR)
def copy(fd, path):
    source = os.open(path.parent / "same", os.O_RDONLY)
    os.copy_file_range(source, fd, 100, 0, 0)
    os.close(source)


@opened(os.O_RDWR)
def splice(fd, path):
    reader, writer = os.pipe()
    os.write(writer, os.pread(fd, 100, 0))
    os.splice(reader, fd, 100, offset_dst=0)


@opened(os.O_RDWR)
def truncate(fd, _path):
    os.ftruncate(fd, os.fstat(fd).st_size)


@opened(os.O_RDWR | os.O_DIRECT)
def fail(fd, _path):
    with contextlib.suppress(OSError):  # tmpfs takes it
        os.pwrite(fd, b"x", 1 << 62)


def truncate_by_open(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


KEEPING = [cached, direct, direct_by_fcntl, append, mapped, allocate, copy, splice, truncate, fail]
KINDS = ["cache=auto", "cache=none", "cache=always", "server", "passthrough"]


@pytest.fixture(params=KINDS)
def believing(request, new_store):
    """A mount in which the kernel believes what it is told for long, or as each option has it."""
    if request.param == "server":
        return request.getfixturevalue("cluster")(mounts=1).mounts[0]
    options = {"passthrough": "cache=always", "cache=auto": "attr_timeout=100"}.get(request.param, request.param)
    qos = request.getfixturevalue("mount")(new_store("ext4"), options)
    if request.param == "passthrough":
        qos.rule("start exempt jobid={*} passthrough")
    return qos


def make_program(top, mode):
    path = top / "program"
    for place in (path, top / "same"):
        shutil.copy(shutil.which("id"), place)
        place.chmod(0o644)
    path.chmod(mode)
    assert mode_of(path) == mode_of(path) == mode  # the second answer is believed
    return path


def start_program(path):
    """A program that its last writer has closed: the daemon may hear of that late on a busy machine."""
    return wait_until(lambda: None if (started := outcome_of(
        subprocess.Popen, [path, "-u"], stdout=subprocess.PIPE, text=True)) == "ETXTBSY" else started)


def look_all_the_time(path, end):
    while not end.is_set():
        os.stat(path)


@pytest.mark.parametrize("mode", [0o6777, 0o4777, 0o2777, 0o2767])
@pytest.mark.parametrize("busy", [False, True])
def test_modes_after_changes(believing, mode, busy):
    """By a user that does not own the file, and beside others that ask for its attributes."""
    for action in (*KEEPING, truncate_by_open):
        path, end = make_program(believing.dir, mode), threading.Event()
        others = [threading.Thread(target=look_all_the_time, args=(path, end)) for _ in range(2 * busy)]
        for other in others:
            other.start()

        def act(path=path, action=action):
            action(path)
            return mode_of(path)
        found = as_user(USER, USER, [], act)
        end.set()
        for other in others:
            other.join()
        assert oct(found) == oct(mode_of(believing.store.dir / "program")), action.__name__
        os.unlink(path)


def test_a_changed_program_runs_as_its_caller(believing):
    for action in KEEPING:
        path = make_program(believing.dir, 0o6777)

        def act(path=path, action=action):
            action(path)
            return start_program(path).communicate()[0]
        found = as_user(USER, USER, [], act).strip()
        keeps = mode_of(believing.store.dir / "program") & stat.S_ISUID
        assert found == ("0" if keeps else str(USER)) and (not keeps or action in (mapped, fail)), action.__name__
        os.unlink(path)


def test_the_owner_sees_its_direct_write(believing):
    path = make_program(believing.dir, 0o755)
    os.chown(path, USER, USER)
    path.chmod(0o6755)
    assert mode_of(path) == mode_of(path) == 0o6755
    as_user(USER, USER, [], lambda: direct(path))
    assert oct(mode_of(path)) == oct(mode_of(believing.store.dir / "program")) == oct(0o755)


def test_bits_that_come_back(believing):
    """Each time that they are shown again the next change takes them again."""
    path = make_program(believing.dir, 0o777)
    for _ in range(5):
        path.chmod(0o6777)
        assert mode_of(path) == mode_of(path) == 0o6777
        as_user(USER, USER, [], lambda: direct(path))
        assert oct(mode_of(path)) == oct(0o777)


def test_bits_that_stay_are_believed(believing):
    """Root's writes take none away."""
    path = make_program(believing.dir, 0o6777)
    for action in KEEPING:
        action(path)
        assert oct(mode_of(path)) == oct(mode_of(believing.store.dir / "program")) == oct(0o6777), action.__name__


def test_time_of_change_after_flags(believing):
    path = believing.dir / "file"
    path.touch()
    for flags in (FS_NODUMP_FL, 0, FS_NODUMP_FL):
        before = os.stat(path).st_ctime_ns
        fd = os.open(path, os.O_RDONLY)
        fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("l", flags))
        os.close(fd)
        assert os.stat(path).st_ctime_ns == os.stat(believing.store.dir / "file").st_ctime_ns > before


def test_time_of_access_after_a_copy(believing):
    source, target = believing.dir / "source", believing.dir / "target"
    source.write_text("text")
    target.touch()
    os.utime(source, ns=(1, 1))
    assert os.stat(source).st_atime_ns == 1
    with open(source) as reader, open(target, "wb") as writer:
        os.copy_file_range(reader.fileno(), writer.fileno(), 4)
    assert os.stat(source).st_atime_ns == os.stat(believing.store.dir / "source").st_atime_ns > 1


def test_mode_after_an_acl(believing):
    path, end = believing.dir / "file", threading.Event()
    path.write_text("text")
    other = threading.Thread(target=look_all_the_time, args=(path, end))
    other.start()
    for permissions in ("---", "rw-", "r--") * 20:
        run("setfacl", "-m", f"user:{USER}:{permissions},mask::{permissions}", path)
        assert oct(mode_of(path)) == oct(mode_of(believing.store.dir / "file"))
    end.set()
    other.join()


def mark(path):
    """Changes id(1) so that it tells its effective user in capitals."""
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b" EUID=", os.pread(fd, os.fstat(fd).st_size, 0).index(b" euid="))
    os.close(fd)


def test_a_program_that_is_changed_while_execve_opens_it(believing):
    """The kernel has looked at its mode before, and takes the bits from what it knows after."""
    path = make_program(believing.dir, 0o6777)
    believing.rule("start slow jobid={slow}&opcode={open} rate=1 depth=1")
    with contextlib.ExitStack() as ends:
        def start(*command):
            return ends.enter_context(running(start_job("slow", *command, stdout=subprocess.PIPE, text=True, user=USER)))
        readers = [start("cat", path.parent / "same") for _ in range(2)]
        program = start("env", path)  # the job is that of the program that calls execve

        def is_under_way():
            alive = [reader for reader in readers if reader.poll() is None]
            return program.poll() is not None or (believing.job("slow") or {"waiting": 0})["waiting"] > len(alive)
        wait_until(is_under_way, what="an execve that waits")
        as_user(USER, USER, [], lambda: outcome_of(mark, path))  # ETXTBSY where that has come further
        told = program.communicate()[0]
        assert f"uid={USER}" in told.lower() and " EUID=0" not in told


def test_a_program_that_is_open_for_writing_is_not_run(believing):
    path = make_program(believing.dir, 0o6777)
    with open(path, "r+b"):
        assert error_of(run, path, "-u") == errno.ETXTBSY
    assert start_program(path).communicate()[0].strip() == "0"


def test_many_run_a_changed_program_at_once(believing):
    path = make_program(believing.dir, 0o6777)

    def act():
        cached(path)
        programs = [start_program(path) for _ in range(10)]
        return [program.communicate()[0].strip() for program in programs]
    assert as_user(USER, USER, [], act) == 10 * [str(USER)]
