"""No page of the kernel's stays that is older than what is in the store (docs/design/coherence.md, "Which pages are too old, and what drops them").

The kernel puts what is written into pages before it sends the WRITE. In most tests it stops in between for as long as these
want: the second page that is to be written lies in a store that hangs. What becomes of the first page meanwhile is each one's own.
A page that is too old shows for good after a chmod(): with that the kernel learns the new time of change, by which it
would find out.
"""
import concurrent.futures
import contextlib
import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from faulty import HANG
from harness import BUILD, TIMEOUT, as_user, is_stopped, of_threads, running, start_job, wait_idle, wait_until

PAGE = mmap.PAGESIZE
OLD, NEW = b"old!", b"new!"
FILES, KNOWN = 8, 2000
# Pages that were changed by a mapping: the kernel sends a WRITE for each before it drops it.
DIRTY_PAGES = 8192
MAKE_DIRTY = ("import mmap, sys\n"
              "file = open(sys.argv[1], 'r+b')\n"
              "pages = mmap.mmap(file.fileno(), 0)\n"
              "for at in range(0, len(pages), mmap.PAGESIZE): pages[at:at + 4] = b'new!'\n"
              "print(flush=True)\n"
              "sys.stdin.read()\n")


class HalfWritten:
    """NEW is being written over two pages of `file`: the first is in the kernel's cache, the second is waited for."""

    def __init__(self, faulty, file):
        self._faulty = faulty
        source = faulty.dir / "source"
        source.write_bytes(NEW * (2 * PAGE // len(NEW)))
        with open(source, "rb") as memory:
            self._memory = mmap.mmap(memory.fileno(), 2 * PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        self._memory.madvise(mmap.MADV_RANDOM)  # no page but the one that is touched
        assert self._memory[:4] == NEW
        faulty.fail("read", HANG, "source")
        self._writer = threading.Thread(target=os.pwrite, args=(file.fileno(), self._memory, 0))
        self._writer.start()
        wait_until(lambda: "read" in faulty.hanging(), what="the second page")

    def finish(self):
        self._faulty.mend()
        self._writer.join()
        self._memory.close()


@pytest.fixture
def half_written(faulty):
    """half_written(file): one, which ends with the test at the latest."""
    return lambda file: HalfWritten(faulty, file)


def first(path):
    with open(path, "rb") as file:
        return file.read(len(OLD))


def is_new(path):
    """The page, when the kernel has learned when the file was changed."""
    os.chmod(path, 0o640)
    return first(path) == NEW


def fill(path):
    path.write_bytes(OLD * (2 * PAGE // len(OLD)))


def test_dropped_for_another_mount(cluster, half_written):
    """The other changes something meanwhile; the page is read again, and the old data is right then."""
    one, other = (mount.dir / "file" for mount in cluster().mounts)
    fill(one)
    with open(one, "r+b", buffering=0) as file:
        assert first(one) == OLD
        write = half_written(file)
        assert first(one) == NEW
        other.chmod(0o600)
        assert first(one) == OLD
        write.finish()
    assert is_new(one) and is_new(other)


@pytest.fixture(params=["auto", "always", "server"])
def alone(request, new_store, mount, cluster):
    """The folder of a mount that is the only one of its store."""
    if request.param == "server":
        return cluster(mounts=1).mounts[0].dir
    return mount(new_store(), f"cache={request.param}").dir


def look_at(path):
    """As programs do that come by: each of it brings the kernel the time of the last change, or opens the file anew."""
    os.stat(path)
    assert [entry.stat().st_size for entry in os.scandir(path.parent) if entry.name == path.name] == [2 * PAGE]
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_RDONLY | os.O_DIRECT, os.O_RDWR | os.O_DIRECT | os.O_APPEND):
        fd = os.open(path, flags)
        os.fstat(fd)
        os.close(fd)


def test_own_changes_drop_nothing(alone, half_written):
    """The write before has changed the file, of which the kernel was not told yet; another has put its data into the page,
    and no WRITE of that has come. A process that looks now, by a read or by a mapping, sees what is written."""
    path = alone / "file"
    fill(path)
    with open(path, "r+b", buffering=0) as file, mmap.mmap(file.fileno(), PAGE, prot=mmap.PROT_READ) as pages:
        os.fstat(file.fileno())
        assert first(path) == pages[:4] == OLD
        file.write(OLD)
        write = half_written(file)
        assert pages[:4] == NEW
        look_at(path)
        assert first(path) == os.pread(file.fileno(), len(NEW), 0) == pages[:4] == NEW
        write.finish()
        assert first(path) == pages[:4] == NEW
    assert is_new(path)


def test_a_page_changed_by_a_mapping_keeps_what_is_written_beside(alone, half_written):
    """Of a page that was dropped and read again a mapping changes some bytes, and the whole page is written back, over what
    the write has put beside them."""
    path = alone / "file"
    fill(path)
    with open(path, "r+b", buffering=0) as file, mmap.mmap(file.fileno(), PAGE) as pages:
        assert pages[:4] == OLD
        file.write(OLD)
        write = half_written(file)
        look_at(path)
        pages[PAGE - 4:] = b"mine"
        write.finish()
        pages.flush()
        assert first(path) == NEW and pages[PAGE - 4:] == b"mine"
    assert is_new(path)


def test_rights_changed_behind_the_mount_count_while_a_file_is_written(store, mount):
    """Its attributes are withheld from the kernel, but for these, by which it lets users in or not."""
    path = mount(store, "allow_other,attr_timeout=10ms,entry_timeout=10ms").dir / "file"
    fill(path)

    def may_read():
        os.pwrite(file.fileno(), NEW, 0)
        return as_user(12001, 12001, [], lambda: os.access(path, os.R_OK))
    with open(path, "r+b", buffering=0) as file:
        for mode in (0o644, 0o600) * 3:
            (store.dir / "file").chmod(mode)
            wait_until(lambda: may_read() == (mode == 0o644), what="the new mode")


def behind(store, name, data, offset=0):
    with open(store.dir / name, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), data, offset)


@pytest.mark.parametrize("writes", [False, True])
def test_changes_behind_the_mount_are_seen(store, mount, writes):
    """By a read when attributes are not believed any more, by an open at once: also while programs of the mount have the
    file open to write, and write."""
    path = mount(store, "attr_timeout=10ms").dir / "file"
    fill(path)
    data = OLD
    with open(path, "r+b" if writes else "rb", buffering=0) as file:
        def own():
            if writes:
                os.pwrite(file.fileno(), NEW, PAGE)
                # What comes in the same tick of the clock cannot be told apart.
                wait_until(lambda: time.time_ns() - os.stat(store.dir / "file").st_mtime_ns > 25_000_000, what="the next tick")

        for number in range(20):
            assert first(path) == data
            own()
            data = b"%04d" % number
            behind(store, "file", data)
            own()
            if number % 2:
                wait_until(lambda: os.pread(file.fileno(), len(data), 0) == data, what="the change")
        behind(store, "file", b"tail", 2 * PAGE)
        wait_until(lambda: os.fstat(file.fileno()).st_size == 2 * PAGE + 4, what="the new size")
        assert os.pread(file.fileno(), PAGE, 2 * PAGE - 4)[-4:] == b"tail"


def test_dropped_by_a_direct_write(faulty, cluster):
    """By the kernel, for a write past the page cache that is in the store while the page is read again. For one that
    its program waits for, newer kernels drop the page behind it, too."""
    path = cluster(store=faulty, options="store=faulty", mounts=1).mounts[0].dir / "file"
    fill(faulty.behind / "file")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb", buffering=0))
        faulty.fail("write", HANG, "file")
        writer = stack.enter_context(running(start_job(1, BUILD / "tests/mount/async-io", "write", path, 1,
                                                       stdout=subprocess.PIPE, text=True)))
        stack.callback(faulty.mend)
        wait_until(lambda: "write" in faulty.hanging(), what="the write")
        assert writer.stdout.readline() == "asked\n"
        assert os.pread(file.fileno(), len(OLD), 0) == OLD
        faulty.mend()
        assert writer.communicate(timeout=TIMEOUT)[0] == "1\n"
        os.chmod(path, 0o640)
        assert first(path) == bytes(len(OLD))


def test_read_without_a_credit(faulty, cluster):
    """For which the server had no room. It has looked at the store before another changes the file, and is answered behind
    that: a process that looks after the change is not to find its page. The time of change is as it was."""
    some = cluster(store=faulty, options="store=faulty", server_options=("--group", "1", "--floor", "0", "--cap", "1"))
    mount, other = (mount.dir / "file" for mount in some.mounts)
    fill(faulty.behind / "file")
    before = os.stat(faulty.behind / "file").st_mtime_ns
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(mount, "rb", buffering=0))
        faulty.fail("answer", HANG, "file")
        stack.enter_context(running(start_job(1, "cat", mount, stdout=subprocess.DEVNULL)))
        reader = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        stack.callback(faulty.mend)
        wait_until(lambda: "answer" in faulty.hanging(), what="the first read")
        some.server.ctl("set", "cap=1M")
        with open(other, "r+b", buffering=0) as changed:
            changed.write(NEW)
        os.utime(faulty.behind / "file", ns=(before, before))
        late = reader.submit(os.pread, file.fileno(), len(NEW), 0)
        wait_until(lambda: "request_wait_answer" in of_threads(os.getpid(), "wchan").values(), what="its question")
        faulty.mend()
        assert late.result() == NEW


def test_attributes_do_not_wait_for_later_reads(faulty, cluster):
    """Of reads without a credit, of which none ends here before the next has begun. A process that asks for the
    attributes waits for those before it alone."""
    some = cluster(store=faulty, options="store=faulty", server_options=("--group", "1", "--floor", "0", "--cap", "1"), mounts=1)
    path = some.mounts[0].dir / "file"
    (faulty.behind / "file").write_bytes(bytes(4 * PAGE))
    with contextlib.ExitStack() as stack:
        askers = stack.enter_context(concurrent.futures.ThreadPoolExecutor(2))
        file = stack.enter_context(open(path, "rb", buffering=0))
        stack.callback(faulty.mend)

        def hang(where, *still, begin=None, count=1):
            """What is in the store goes on to where it is to hang now, so many; the kernel may begin to read a page."""
            before = faulty.hangs()
            faulty.faults(*((one, "file", HANG) for one in (where, *still)))
            if begin is not None:
                os.posix_fadvise(file.fileno(), begin * PAGE, PAGE, os.POSIX_FADV_WILLNEED)
            wait_until(lambda: faulty.hangs() == before + count, what=f"the read that hangs at its {where}")

        def ask(others=0):
            asked = askers.submit(os.fstat, file.fileno())  # one request
            wait_until(lambda: list(of_threads(os.getpid(), "wchan").values()).count("request_wait_answer") > others,
                       what="the question")
            wait_idle(some.mounts[0].pid, some.server.pid)
            return asked

        hang("answer", begin=0)
        first = ask()
        hang("read", "answer", begin=3)
        hang("read", "answer", begin=1)
        late = ask(others=1)
        assert not first.done()
        faulty.fail("read", HANG, "file")
        first.result(TIMEOUT)
        wait_idle(some.mounts[0].pid, some.server.pid)
        assert not late.done()
        hang("answer", count=2)
        hang("read", "answer", begin=2)
        faulty.fail("read", HANG, "file")
        late.result(TIMEOUT)
        assert faulty.hangs() == 6


def test_a_kill_ends_the_wait(faulty, cluster):
    """Of a process that asks for the attributes while a read without a credit hangs: its page is to be dropped first."""
    some = cluster(store=faulty, options="store=faulty", server_options=("--group", "1", "--floor", "0", "--cap", "1"), mounts=1)
    path = some.mounts[0].dir / "file"
    fill(faulty.behind / "file")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "rb", buffering=0))
        stack.callback(faulty.mend)
        faulty.fail("answer", HANG, "file")
        os.posix_fadvise(file.fileno(), 0, PAGE, os.POSIX_FADV_WILLNEED)
        wait_until(lambda: "answer" in faulty.hanging(), what="the read")
        asker = stack.enter_context(running(start_job(1, sys.executable, "-c", "import os; os.fstat(0)", stdin=file)))
        stack.callback(faulty.mend)  # else it could not end
        wait_until(lambda: "request_wait_answer" in of_threads(asker.pid, "wchan").values(), what="its question")
        wait_idle(some.mounts[0].pid, some.server.pid)
        asker.kill()
        assert asker.wait(TIMEOUT) == -signal.SIGKILL
        assert "answer" in faulty.hanging()


def test_a_signal_while_pages_are_dropped(cluster):
    """The kernel waits for the daemon's answers while it drops them, and cannot be interrupted."""
    some = cluster()
    mount, other = some.mounts
    (mount.dir / "file").write_bytes(bytes(DIRTY_PAGES * PAGE))
    with running(start_job(1, sys.executable, "-c", MAKE_DIRTY, mount.dir / "file", stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE)) as program:
        program.stdout.readline()
        (other.dir / "file").chmod(0o600)
        wait_until(lambda: first(some.store.dir / "file") == NEW, what="the first WRITE")
        mount.kill(signal.SIGTERM)
        assert mount.exit_status == 0 and mount.log == ""


def test_lost_while_stopped(cluster):
    """Its lease ended, and another changed what it has: it goes on with requests before it has told the kernel of its loss,
    of so many files that it takes a while. The times of change are as they were."""
    some = cluster(lease=2)
    some.server.expects_log(".")
    mount, other = some.mounts
    mount.expects_log("lock server")
    files = [f"file{number}" for number in range(FILES)]
    with contextlib.ExitStack() as stack:
        for name in files:
            fill(mount.dir / name)
        for number in range(KNOWN):
            os.mknod(mount.dir / f"known{number}")
        opened = [stack.enter_context(open(mount.dir / name, "rb", buffering=0)) for name in files]
        assert all(os.pread(file.fileno(), len(OLD), 0) == OLD for file in opened)
        os.kill(mount.pid, signal.SIGSTOP)
        stack.callback(os.kill, mount.pid, signal.SIGCONT)
        wait_until(lambda: is_stopped(mount.pid), what="the stop")
        for name in files:
            before = os.stat(some.store.dir / name).st_mtime_ns
            with open(other.dir / name, "r+b") as file:
                file.write(NEW)
            os.utime(other.dir / name, ns=(before, before))
        with concurrent.futures.ThreadPoolExecutor(FILES) as readers:
            reads = [readers.submit(os.pread, file.fileno(), len(OLD), 0) for file in opened]
            wait_until(lambda: list(of_threads(os.getpid(), "wchan").values()).count("request_wait_answer") == FILES,
                       what="their requests")
            os.kill(mount.pid, signal.SIGCONT)
            assert [read.result() for read in reads] == [NEW] * FILES


def is_cached(pages):
    """mincore(2): whether the kernel has the first page of the mapping. It asks nobody."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    answer = ctypes.create_string_buffer(1)
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(PAGE), answer) == 0
    return answer.raw[0] & 1


def test_read_without_a_credit_is_there_for_its_reader(store, mount):
    """Not gone before the reader wakes up: it would read the page again and again. When the reader asks for the next
    thing, the page goes (at once: tests/threads/test_page_drops.c)."""
    qos = mount(store, "server=unix:/none,store=some")
    qos.expects_log("no qosfs-server listens")
    fill(store.dir / "file")
    kept = []
    with open(qos.dir / "file", "r+b", buffering=0) as file, mmap.mmap(file.fileno(), PAGE) as pages:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for _ in range(20):
            os.fstat(file.fileno())
            begun = time.monotonic()
            os.pread(file.fileno(), 1, 0)
            wait_until(lambda: not is_cached(pages), what="the drop")
            kept.append(time.monotonic() - begun)
            os.pread(file.fileno(), 1, 0)
            os.fstat(file.fileno())
            assert not is_cached(pages)
    assert min(kept) >= 0.002, kept
