"""What one mount changes the next call on another sees (docs/design/coherence.md), and what that costs.

What may be cached is told by counts: of the requests that reach a mount, and of its messages to the lock server.
"""
import contextlib
import itertools
import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

from harness import TIMEOUT, as_job, is_stopped, of_threads, running, start_job, stopped, wait_until
from syscalls import getdents

MESSAGES = ("enqueues", "cancels", "revocations")
APPENDS = 200
LOCAL = ("getattr", "lookup", "read")  # what the kernel does by itself where it may cache


def requests(mount, *names):
    """How many of these have reached the daemon and are answered."""
    jobs = mount.state()["jobs"]
    return sum(job["operations"].get(name, {"samples": 0})["samples"] for job in jobs for name in names or LOCAL)


def messages(mount):
    return sum(mount.state()["server"][name] for name in MESSAGES)


def view(folder, *names):
    """All that a program can see of these."""
    def look(path):
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return None
        kept = [about.st_mode, about.st_nlink, about.st_uid, about.st_size, about.st_mtime_ns, about.st_ctime_ns]
        if path.is_dir() and not path.is_symlink():
            return kept, sorted(set(os.listdir(path)) - {"lost+found"})
        return kept, path.read_bytes() if path.is_file() else None
    return {name: look(folder / name) for name in names}


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def overwrite(path, data):
    with open(path, "r+b") as file:
        file.write(data)


def is_there(folder, name):
    try:
        os.stat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


NAMES = ("file", "other", "a", "a/file", "a/x", "b", "b/file", "b/x", "link", "new")
CHANGES = [
    lambda top: (top / "file").write_text("as long"),
    lambda top: (top / "file").write_text("shorter or longer"),
    lambda top: overwrite(top / "file", b"x"),
    lambda top: append(top / "file", b" and more"),
    lambda top: os.truncate(top / "file", 3),
    lambda top: (top / "file").chmod(0o600),
    lambda top: os.chown(top / "file", 7, 7),
    lambda top: os.utime(top / "file", (1, 1)),
    lambda top: os.setxattr(top / "file", "user.name", b"value"),
    lambda top: os.link(top / "file", top / "a/file"),
    lambda top: append(top / "a/file", b" by another name"),
    lambda top: os.rename(top / "a/file", top / "b/file"),
    lambda top: (top / "b/file").unlink(),
    lambda top: (top / "new").write_text("new"),
    lambda top: os.replace(top / "new", top / "other"),
    lambda top: (top / "new").mkdir(),
    lambda top: (top / "new").rmdir(),
    lambda top: (top / "link").symlink_to("file"),
    lambda top: (top / "link").unlink(),
    lambda top: (top / "a/x").mkdir(),
    lambda top: (top / "a/x").rename(top / "b/x"),
    lambda top: os.rename(top / "b/x", top / "new"),
    lambda top: os.rmdir(top / "new"),
]


def fill(top):
    for name in ("a", "b"):
        (top / name).mkdir()
    for name in ("file", "other"):
        (top / name).write_text("as long")


def check_each_change(made):
    """Each is seen by mounts that have all of it cached, names that are not there among it."""
    mounts = made.mounts
    fill(mounts[0].dir)
    for number, change in enumerate(CHANGES):
        for mount in mounts:
            assert view(mount.dir, *NAMES) == view(made.store.dir, *NAMES), f"before change {number}"
        turn = number % len(mounts)
        change(mounts[turn].dir)
        truth = view(made.store.dir, *NAMES)
        for mount in mounts[turn + 1:] + mounts[:turn + 1]:
            assert view(mount.dir, *NAMES) == truth, f"after change {number}"


def test_each_change_is_seen(cluster):
    check_each_change(cluster(mounts=3))


def test_open_files_see_changes(cluster):
    """By the same descriptor: size, attributes and data, also of a file that is gone."""
    first, second = (mount.dir for mount in cluster().mounts)
    (first / "file").write_bytes(b"one" * 4096)
    with open(second / "file", "rb", buffering=0) as file:
        for data in (b"two" * 4096, b"three", b"four" * 9000):
            os.pread(file.fileno(), 16384, 0)
            (first / "file").write_bytes(data)
            assert os.fstat(file.fileno()).st_size == len(data)
            assert os.pread(file.fileno(), 65536, 0) == data
        times = os.stat(second / "file")
        overwrite(first / "file", b"F")
        os.utime(first / "file", ns=(times.st_atime_ns, times.st_mtime_ns))
        assert os.pread(file.fileno(), 4, 0) == b"Four", "the same size and time, and other data"
        (first / "file").unlink()
        assert os.fstat(file.fileno()).st_nlink == 0


def test_the_new_end_is_seen(cluster):
    """By a read that no other call comes before, while the thread that drops a mount's pages gets next to no processor: an answer
    of which the kernel was sent for before it was told of these it would not believe, and go on with the old end."""
    some = cluster()
    mount, other = some.mounts
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(open(other.dir / "file", "wb", buffering=0))
        reader = stack.enter_context(open(mount.dir / "file", "rb", buffering=0))
        threads = {name: int(number) for number, name in of_threads(mount.pid, "comm").items()}
        processor = min(os.sched_getaffinity(0))
        os.sched_setaffinity(threads["pages"], {processor})
        os.setpriority(os.PRIO_PROCESS, threads["pages"], 10)
        stack.enter_context(running(start_job(None, "taskset", "--cpu-list", processor, sys.executable, "-c", "while True: pass")))
        for count in range(APPENDS):
            writer.write(b"%4d" % count)
            assert os.read(reader.fileno(), 100) == b"%4d" % count


def test_mapped_files_see_changes(cluster):
    first, second = (mount.dir for mount in cluster().mounts)
    (first / "file").write_bytes(b"a" * 8192)
    with open(second / "file", "r+b") as file, mmap.mmap(file.fileno(), 8192) as memory:
        assert memory[5000:5001] == b"a"
        overwrite(first / "file", b"b" * 8192)
        wait_until(lambda: memory[5000:5001] == b"b", what="the mapping's change")  # no call asks for it
        memory[0:1] = b"c"
        memory.flush()
    assert (first / "file").read_bytes() == b"c" + b"b" * 8191


def test_appends_of_two_mounts(cluster):
    both = cluster().mounts
    lines = 200

    def write(mount, mark):
        with open(mount.dir / "log", "ab", buffering=0) as log:
            for _ in range(lines):
                log.write(mark * 15 + b"\n")
    writers = [threading.Thread(target=write, args=pair) for pair in zip(both, (b"1", b"2"))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    for mount in both:
        text = (mount.dir / "log").read_bytes().split(b"\n")
        assert sorted(text) == sorted([b"", *[b"1" * 15] * lines, *[b"2" * 15] * lines])


def test_direct_writes_of_two_mounts(cluster):
    """Of several that ask for the same credit, some find it there before they have begun to wait."""
    both = cluster().mounts
    (both[0].dir / "file").write_bytes(bytes(65536))

    def write(mount, place):
        page = mmap.mmap(-1, 4096)
        page.write(bytes([place]) * 4096)
        file = os.open(mount.dir / "file", os.O_WRONLY | os.O_DIRECT)
        for _ in range(3000):
            assert os.pwrite(file, page, place * 4096) == 4096
        os.close(file)
    writers = [threading.Thread(target=write, args=(mount, 2 * number + which))
               for which, mount in enumerate(both) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (both[0].dir / "file").read_bytes() == b"".join(bytes([place]) * 4096 for place in range(16))


RENAMES = """
import os, sys
top, name = sys.argv[1:]
for number in range(120):
    one, other = (f"{top}/d{(number + more) % 4}/{name}" for more in (0, 1))
    open(one, "w").close()
    os.rename(one, other)
    os.unlink(other)
"""


def test_renames_of_two_mounts(cluster):
    """Each takes two credits of one group of inodes, one after the other. If a mount is not called
    upon for what it has, the other waits for a lease, which is too long for this test."""
    mounts = cluster(lease=600).mounts
    for number in range(4):
        (mounts[0].dir / f"d{number}").mkdir()
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(running(subprocess.Popen([sys.executable, "-c", RENAMES, made.dir, f"f{which}{number}"])))
                    for number in range(4) for which, made in enumerate(mounts)]

        def progress():
            """Of all, however long that takes: how many go on, and how far they have come."""
            return [program.poll() for program in programs].count(None), sum(requests(made, "rename") for made in mounts)
        while (before := progress())[0] > 0:
            wait_until(lambda before=before: progress() != before, what="the next rename")
        assert not any(program.returncode for program in programs)


def test_the_kernel_serves_what_is_cached(cluster):
    """Attributes, names, absent names and data, without a request, as long as nobody changes them."""
    made = cluster(lease=300)
    first, second = made.mounts
    (first.dir / "folder").mkdir()
    (first.dir / "folder/file").write_text("text")

    def look():
        (second.dir / "folder/file").stat()
        assert not (second.dir / "folder/absent").exists()
        assert (second.dir / "folder/file").read_text() == "text"

    def cost(times):
        before = requests(second)
        for _ in range(times):
            look()
        return requests(second) - before
    # What is answered is counted a little later, and another test may make the kernel drop what it has.
    wait_until(lambda: cost(100) == 0, what="looks that cost nothing")
    before = requests(second)
    (first.dir / "folder/absent").touch()
    assert (second.dir / "folder/absent").exists()
    assert requests(second) > before


def test_a_list_brings_attributes(cluster):
    """A list of a directory with attributes costs no request but its own; a second list costs none."""
    made = cluster(mounts=1, lease=300, options="entry_timeout=0")  # which means nothing here
    mount, = made.mounts
    names = (f"folder{number}" for number in itertools.count())

    def make():
        name = next(names)
        (mount.dir / name).mkdir()
        for number in range(300):
            (made.store.dir / name / str(number)).touch()
        for number in 0, 299:  # brings the credits of all
            (mount.dir / name / str(number)).stat()
        return mount.dir / name

    def cost(folder):
        before = requests(mount, "lookup", "getattr")
        assert sum(entry.stat(follow_symlinks=False).st_size == 0 for entry in os.scandir(folder)) == 300
        return requests(mount, "lookup", "getattr") - before
    # Another's look may come between, or another test make the kernel drop names.
    wait_until(lambda: cost(make()) < 20, what="a first list without look-ups")
    folder = make()
    wait_until(lambda: cost(folder) < 5, what="lists without look-ups")


def test_a_list_that_is_taken_late(cluster, mount, new_store):
    """The kernel dates its names from when it comes to them. A change waits for that, though not for ever; what comes after it is not
    believed."""
    made = cluster(lease=300)
    here, there = made.mounts
    (made.store.dir / "folder").mkdir()
    for name in "abc":
        (made.store.dir / "folder" / name).touch()
    (here.dir / "folder/a").stat()  # brings the credits of all
    slow = mount(new_store())
    (slow.store.dir / "page").write_bytes(bytes(65536))
    seen = []

    def read(folder, memory):
        length = getdents(folder, memory)
        os.listxattr(folder)  # asks for something else
        seen.append((length > 0, [name for name in "abc" if is_there(folder, name)]))
    folder = os.open(here.dir / "folder", os.O_RDONLY | os.O_DIRECTORY)
    with open(slow.dir / "page", "r+b") as file, mmap.mmap(file.fileno(), 65536) as memory:
        reader = threading.Thread(target=read, args=(folder, memory))
        os.kill(slow.pid, signal.SIGSTOP)  # a read into the mapping makes no progress
        try:
            wait_until(lambda: is_stopped(slow.pid), what="its stop")
            reader.start()
            wait_until(lambda: requests(here, "readdir") > 0, what="the list")
            begun = time.monotonic()
            (there.dir / "folder/b").unlink()
            assert time.monotonic() - begun >= 0.1, "it did not wait"
        finally:
            os.kill(slow.pid, signal.SIGCONT)
            reader.join()
            os.close(folder)
    assert seen == [(True, ["a", "c"])]


def test_a_small_cache_keeps_names(cluster):
    """What gives back one file's credit after the other keeps those of its folders: their names cost no look-up again."""
    mount, = cluster(mounts=1, lease=300, server_options=("--group", "1", "--cap", str(50 * 240))).mounts
    (mount.dir / "folder").mkdir()
    files = [mount.dir / f"folder/{number}" for number in range(200)]
    for file in files:
        os.mknod(file)

    def cost(name):
        before = requests(mount, name)
        for file in files:
            file.stat()
        return requests(mount, name) - before
    cost("lookup")
    assert cost("getattr") > 100, "the cache is small"
    wait_until(lambda: cost("lookup") < 20, what="a pass without look-ups")  # another test may have made the kernel drop names
    assert mount.state()["server"]["cancels"] > 300


def test_a_lone_mount_asks_once(cluster):
    """For its neighbourhood, and then no more: what it changes costs no message."""
    mount, = cluster(mounts=1, lease=300).mounts

    def work(count):
        for i in range(count):
            path = mount.dir / f"file{i}"
            path.write_text("text")
            os.link(path, mount.dir / f"link{i}")
            path.chmod(0o600)
            path.stat()
            os.rename(path, mount.dir / f"moved{i}")
            os.unlink(mount.dir / f"link{i}")
            os.unlink(mount.dir / f"moved{i}")
    work(1)
    before = mount.state()["server"]
    work(100)
    after = mount.state()["server"]
    assert after["enqueues"] - before["enqueues"] <= 2  # numbers may run into the next neighbourhood
    assert all(after[name] == before[name] for name in ("cancels", "revocations"))


@contextlib.contextmanager
def calls_by_name(mount, folder, *calls):
    """A function that tells how often the daemon has called each of these with a name in a directory."""
    log = folder / "calls"
    command = ["strace", "-f", "-p", str(mount.pid), "-o", log, "-e", f"trace=mkdirat,{','.join(calls)}"]

    def is_traced():
        (mount.dir / "marker").mkdir()
        (mount.dir / "marker").rmdir()
        return log.exists() and "mkdirat" in log.read_text()

    def count():
        text = log.read_text()
        return {call: len(re.findall(rf'\b{call}\(\d+, "[^"]', text)) for call in calls}
    with running(subprocess.Popen(command, stderr=subprocess.DEVNULL)):
        wait_until(is_traced, what="strace")
        before = count()
        yield lambda: {call: value - before[call] for call, value in count().items()}


def test_a_removal_knows_what_the_name_is(cluster, world):
    """The store is not asked what a name is that was just looked up, listed, made or moved."""
    made = cluster(mounts=1, lease=300, options="unconfined")  # strace calls what the filter does not know
    mount, = made.mounts
    top = mount.dir / "top"
    top.mkdir()
    for number in range(10):
        (made.store.dir / "top" / f"old{number}").touch()
        (made.store.dir / "top" / f"long{number}{'x' * 60}").touch()
    with calls_by_name(mount, world.folder("calls"), "newfstatat", "unlinkat") as calls:
        (top / "file").touch()
        (top / "old0").stat()
        assert not (top / "new").exists()
        for name in sorted(os.listdir(top)):
            if name.startswith("old"):
                (top / name).unlink()
        os.link(top / "file", top / "link")
        os.rename(top / "file", top / "new")
        os.mknod(top / "node")
        os.rename(top / "node", top / "link")
        (top / "symlink").symlink_to("x")
        (top / "folder").mkdir()
        for name in ("new", "link", "symlink"):
            (top / name).unlink()
        (top / "folder").rmdir()
        (top / "folder").mkdir()
        (top / "folder").rmdir()
        assert calls() == {"newfstatat": 0, "unlinkat": 10 + 3 + 2}
        for name in sorted(os.listdir(top)):
            (top / name).unlink()
        assert calls() == {"newfstatat": 10, "unlinkat": 25}, "what is too long is not remembered"


def test_a_name_is_replaced_before_it_is_removed(cluster):
    """By another mount, when the request to remove it is on its way to a daemon that is stopped: what that knew of the
    name it has lost, and a process that has open what is there now sees that it has one name less."""
    made = cluster(lease=4, server_options=("--group", "1"))
    first, second = made.mounts
    made.expects_trouble()
    (first.dir / "folder").mkdir()
    (second.dir / "new").touch()
    os.link(second.dir / "new", second.dir / "kept")
    (first.dir / "folder/file").touch()
    (first.dir / "folder").stat()
    (first.dir / "folder/file").stat()
    with stopped(first.pid), running(start_job(None, "unlink", first.dir / "folder/file")) as program:
        wait_until(lambda: "request_wait_answer" in of_threads(program.pid, "wchan").values(), what="the request")
        os.replace(second.dir / "new", second.dir / "folder/file")
        with open(second.dir / "kept", "rb") as file:
            assert os.fstat(file.fileno()).st_nlink == 2
            os.kill(first.pid, signal.SIGCONT)
            assert program.wait(TIMEOUT) == 0
            assert os.fstat(file.fileno()).st_nlink == 1
    assert not (second.dir / "folder/file").exists()


def sleeps(mount, name):
    """How often the daemon's threads of that name have slept."""
    tasks = [task for task in pathlib.Path(f"/proc/{mount.pid}/task").iterdir() if (task / "comm").read_text().strip() == name]
    return sum(int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.MULTILINE)[1]) for task in tasks)


@contextlib.contextmanager
def before_all_others(*pids):
    """These processes, and the caller of the block, have the CPU when they want it, however many others are busy."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        for task in (task for pid in pids for task in os.listdir(f"/proc/{pid}/task")):
            os.sched_setscheduler(int(task), os.SCHED_RR, os.sched_param(1))
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def test_the_asker_takes_the_answer(cluster):
    """A reader waits for the server's answer itself: neither the link nor a worker wakes up for it, unless it takes long."""
    made = cluster(mounts=1, lease=300, server_options=("--group", "1"))
    mount, = made.mounts
    numbers = itertools.count()

    def most_wake_nobody():
        files = [mount.store.dir / f"file{next(numbers)}" for _ in range(50)]
        for file in files:
            file.touch()
        before = [sleeps(mount, name) for name in ("lockclient", "worker")], mount.state()["server"]["enqueues"]
        for file in files:
            (mount.dir / file.name).stat()
        after = [sleeps(mount, name) for name in ("lockclient", "worker")], mount.state()["server"]["enqueues"]
        assert after[1] - before[1] >= 50
        return all(late - early < 25 for early, late in zip(before[0], after[0]))
    with before_all_others(mount.pid, made.server.pid):
        wait_until(most_wake_nobody, what="answers that wake nobody else")


def test_without_the_server(cluster):
    """Nothing is cached when the lease is over, so that all is right; with it again, all is as it was."""
    made = cluster(lease=1)
    first, second = made.mounts
    for mount in made.mounts:
        mount.expects_log("lock server")
    fill(first.dir)
    assert view(second.dir, *NAMES) == view(first.dir, *NAMES)
    made.server.kill()
    wait_until(lambda: all(mount.state()["server"]["valid"] == 0 for mount in made.mounts), what="the lease's end")
    for change in CHANGES:
        change(first.dir)
        assert view(second.dir, *NAMES) == view(made.store.dir, *NAMES)
    made.server.start()
    made.wait_up()
    (first.dir / "file").write_text("again")
    assert (second.dir / "file").read_text() == "again"
    (first.dir / "file").write_text("and again")
    assert (second.dir / "file").read_text() == "and again"


def test_a_stopped_holder(cluster):
    """It cannot be told: its lease ends, and only then does the change go on; its kernel has forgotten by itself."""
    made = cluster(lease=2)
    first, second = made.mounts
    for mount in made.mounts:
        mount.expects_log("lock server")
    made.server.expects_log(".")
    (first.dir / "file").write_text("old")
    assert (second.dir / "file").stat().st_size == 3
    with stopped(second.pid):
        (first.dir / "file").write_text("newer")
        assert (first.dir / "file").read_text() == "newer"
    assert (second.dir / "file").read_text() == "newer"
    assert (second.dir / "file").stat().st_size == 5


def test_a_waiter_for_a_stopped_holder(cluster):
    """May be killed, and does not keep the mount from ending."""
    made = cluster(lease=60)
    first, second = made.mounts
    (first.dir / "file").write_text("old")
    assert (second.dir / "file").stat().st_size == 3
    with stopped(second.pid):
        for kill in (True, False):
            before = first.state()["server"]["misses"]
            with running(start_job(1, "truncate", "-s", "1", first.dir / "file", stderr=subprocess.PIPE)) as program:
                wait_until(lambda b=before: first.state()["server"]["misses"] > b, what="its request")
                if kill:
                    program.kill()
                else:
                    first.kill(signal.SIGTERM)
                assert program.wait(TIMEOUT) != 0
                program.stderr.close()
    assert (second.dir / "file").read_text() == "old"


def test_a_waiter_for_a_credit_holds_no_slot(cluster):
    """What it waits for may need others of its job to go first: of two slots a job has one."""
    made = cluster(lease=60, options="slots=2", server_options=("--group", "1"))
    first, second = made.mounts
    (first.dir / "mine").write_text("mine")
    (first.dir / "file").write_text("old")
    assert (second.dir / "file").stat().st_size == 3
    with stopped(second.pid):
        with running(start_job(1, "truncate", "-s", "1", first.dir / "file")) as program:
            wait_until(lambda: (first.job(1) or {"waiting": 0})["waiting"] == 1, what="its wait")
            wait_until(lambda: first.state()["slots"]["running"] == 0, what="the end of what ran before")
            assert as_job(1, "cat", first.dir / "mine") == "mine"
            assert program.poll() is None
            assert "What other mounts may have cached" in first.ctl("why", "1")
            os.kill(second.pid, signal.SIGCONT)
            assert program.wait(TIMEOUT) == 0
        assert "(credit)" in [wait["rule"] for wait in first.job(1)["wait"]]


SOME = 512 << 10  # more than half of parked_mib=1, less than all that a job may have of it
# Writes a little, which takes all that its rule lets through, and then so much, past the page cache.
HOG = """
import mmap, os, sys
def write(path, size):
    data = mmap.mmap(-1, size)
    data.write(b"n" * size)
    if os.pwrite(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT), data, 0) != size: raise SystemError
write(sys.argv[1], 4096)
write(sys.argv[2], int(sys.argv[3]))
"""


def start_hog(mount):
    """What it writes to `file` waits."""
    mount.rule("start tight jobid={hog}&opcode={write} bps=1 depth=1:1")
    return running(start_job("hog", sys.executable, "-c", HOG, mount.dir / "little", mount.dir / "file", str(SOME)))


def test_a_write_that_waits_changes_nothing_without_its_credit(cluster):
    """Memory for data is short, and others have cached the file: it stays in memory until its turn, or is never made."""
    here, there = cluster(options="parked_mib=1", server_options=("--group", "1")).mounts
    old, new = b"o" * SOME, b"n" * SOME
    (here.dir / "file").write_bytes(old)
    assert (there.dir / "file").read_bytes() == old

    def is_in_memory():
        return (here.job("hog") or {"parked_bytes": 0})["parked_bytes"] >= SOME
    with start_hog(here) as hog:
        wait_until(is_in_memory, what="data that waits in memory")
        assert (here.store.dir / "file").read_bytes() == old
        hog.kill()
        hog.wait(TIMEOUT)
    here.rule("stop tight")
    assert (here.store.dir / "file").read_bytes() == (there.dir / "file").read_bytes() == old
    with start_hog(here) as hog:
        wait_until(is_in_memory, what="data that waits in memory again")
        here.rule("stop tight")
        assert hog.wait(TIMEOUT) == 0
    assert (there.dir / "file").read_bytes() == new


def test_a_write_that_was_made_early_is_seen(cluster):
    """Under its credit, which is not in use while the answer waits: others see it at once, the same mount too, and go on."""
    here, there = cluster(lease=300, options="parked_mib=1", server_options=("--group", "1")).mounts
    (here.dir / "file").touch()
    os.truncate(here.dir / "file", 3)  # brings the credit
    assert (here.dir / "file").stat().st_size == 3
    with start_hog(here) as hog:
        wait_until(lambda: (here.store.dir / "file").stat().st_size == SOME, what="what is made early")
        wait_until(lambda: (here.dir / "file").stat().st_size == SOME, what="its size here")
        assert hog.poll() is None and here.job("hog")["waiting"] == 1
        assert (there.dir / "file").read_bytes() == b"n" * SOME
        (there.dir / "file").write_bytes(b"newer")
        assert (here.dir / "file").stat().st_size == 5
        here.rule("stop tight")
        assert hog.wait(TIMEOUT) == 0
    assert (here.dir / "file").read_bytes() == (there.dir / "file").read_bytes() == b"newer"


def test_a_killed_holder(cluster):
    made = cluster(lease=2)
    first, second = made.mounts
    made.server.expects_log(".")
    (first.dir / "file").write_text("old")
    assert (second.dir / "file").read_text() == "old"
    second.kill()
    (first.dir / "file").write_text("newer")
    third = made.add()
    made.wait_up(third)
    assert (third.dir / "file").read_text() == "newer"


def test_a_new_file_is_known_at_once(cluster):
    """Its attributes come with it: making files asks for those of their folder alone, as without a server."""
    mount, = cluster(mounts=1).mounts
    numbers = itertools.count()

    def getattrs():
        """For ten files; their numbers may run into the next neighbourhood."""
        before = requests(mount, "getattr")
        for _ in range(10):
            os.close(os.open(mount.dir / str(next(numbers)), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        return requests(mount, "getattr") - before
    wait_until(lambda: getattrs() <= 11, what="files that are made without asking for their attributes")


def test_a_new_file_that_is_not_used(cluster):
    """Nothing shows that the answer to its CREATE has come: it is told to forget all the same."""
    here, there = cluster().mounts
    (here.dir / "first").touch()  # brings the credits of those that come next
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_DIRECT  # no pages: their drop tells it too
    fds = [os.open(here.dir / str(number), flags, 0o600) for number in range(5)]
    for number, fd in enumerate(fds):
        (there.dir / str(number)).chmod(0o644)
        assert os.fstat(fd).st_mode & 0o777 == 0o644
    for fd in fds:
        os.close(fd)
