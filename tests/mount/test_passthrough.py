"""Rules with `passthrough`: the kernel reads and writes by itself, in agreement with all other opens of the file, and
what comes out is what the store alone would have done."""
import ast
import errno
import os
import random
import subprocess
import sys

import pytest

from harness import OTHER, USER, Store, as_job, as_user, run, start_job, umount, wait_until

TMPFS = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
EXEMPT = "start exempt jobid={free} passthrough"

# A program that evaluates a line after the other; an OSError is its errno.
LOOP = """
import ast, fcntl, mmap, os, sys
for line in sys.stdin:
    try:
        exec("value = " + ast.literal_eval(line))
    except OSError as error:
        value = error.errno
    except (ValueError, TypeError, IndexError) as error:  # of mmap, for files that it cannot take
        value = str(error)
    print(ascii(value), flush=True)
"""


class Program:
    """As a job, it does what it is told by calls, in the name of `fd` and the like."""

    def __init__(self, jobid, uid):
        identity = {"user": uid, "group": uid, "extra_groups": []} if uid else {}
        self._process = start_job(jobid, sys.executable, "-c", LOOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, **identity)

    def __call__(self, expression):
        self._process.stdin.write(ascii(expression) + "\n")
        self._process.stdin.flush()
        return ast.literal_eval(self._process.stdout.readline())

    def open(self, path, flags="os.O_RDWR"):
        """0, or the errno; what it opened is `fd` from now on."""
        return self(f"(fd := os.open({os.fspath(path)!r}, {flags})) * 0")

    def end(self):
        """May be repeated."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def program(mount):  # they end before the mounts do
    programs = []

    def make(jobid, uid=None):
        programs.append(Program(jobid, uid))
        return programs[-1]

    yield make
    for made in programs:
        made.end()


def make_file(store, name="file", data=b"0123456789"):
    path = store.dir / name
    path.write_bytes(data)
    path.chmod(0o666)
    return path


def passed_through(qos, jobid="free"):
    """Open files of the job that the kernel reads and writes by itself."""
    return qos.job(jobid)["passthrough"]


def counted(qos, jobid, operation):
    """How many the job has done, as far as they came to the mount."""
    job = qos.job(jobid)
    return job["operations"].get(operation, {"samples": 0})["samples"] if job else 0


def wait_counted(qos, jobid, operation, count):
    wait_until(lambda: counted(qos, jobid, operation) >= count, what=f"{count} {operation} of {jobid}")
    assert counted(qos, jobid, operation) == count


# --- what is counted ---

@TMPFS
def test_the_kernel_asks_nobody(store, mount, program):
    qos = mount(store)
    make_file(store)
    qos.rule(EXEMPT)
    job = program("free")
    assert job.open(qos.dir / "file") == 0
    assert passed_through(qos) == 1
    assert job("os.pread(fd, 4, 3)") == b"3456"
    assert job("os.pwrite(fd, b'abcd', 8)") == 4
    assert (store.dir / "file").read_bytes() == b"01234567abcd"
    assert job("os.fsync(fd)") is None
    assert job("os.close(fd)") is None
    wait_counted(qos, "free", "close", 1)
    wait_counted(qos, "free", "sync", 1)
    assert passed_through(qos) == 0
    assert [counted(qos, "free", name) for name in ("open", "read", "write")] == [1, 0, 0]


@TMPFS
def test_a_rule_is_for_what_the_open_allows(store, mount, program):
    qos = mount(store)
    make_file(store)
    qos.rule("start exempt jobid={free}&opcode={read} passthrough")
    job = program("free")
    for flags, expected in (("os.O_RDONLY", 1), ("os.O_WRONLY", 0), ("os.O_RDWR", 0)):
        assert job.open(qos.dir / "file", flags) == 0
        assert passed_through(qos) == expected
        job("os.close(fd)")
        wait_until(lambda: passed_through(qos) == 0)
        qos.wait_booked("free")


@TMPFS
def test_rule_is_shown_kept_and_changed(store, mount, program):
    qos = mount(store)
    make_file(store)
    qos.rule(EXEMPT)
    rule = qos.state()["rules"][0]
    assert rule["passthrough"] is True and rule["options"] == "rate=none passthrough=1"
    assert "exempt jobid={free} passthrough=1 0, ref 0" in qos.get("nrs_tbf_rule")
    assert "passthrough=1" in qos.ctl("rule", "list")
    job = program("free")
    assert job.open(qos.dir / "file") == 0
    assert "reads and writes 1 of its open files" in qos.ctl("why", "free")
    job("os.close(fd)")
    qos.unmount()

    qos = mount(store, f"db={qos.db}")
    assert qos.state()["rules"][0]["options"] == "rate=none passthrough=1"
    qos.rule("change exempt passthrough=0")
    assert job.open(qos.dir / "file") == 0
    assert passed_through(qos) == 0 and job("os.pread(fd, 2, 0)") == b"01"
    job("os.close(fd)")
    with pytest.raises(OSError) as refused:
        qos.rule("change exempt passthrough=1 rate=5")
    assert refused.value.errno == errno.EINVAL and "rate=none" in qos.get("last_error")


@TMPFS
def test_policies_without_rules_exempt_nobody(store, mount, program):
    qos = mount(store)
    make_file(store)
    qos.rule(EXEMPT)
    qos.set("nrs_policies", "fifo")
    job = program("free")
    assert job.open(qos.dir / "file") == 0
    assert passed_through(qos) == 0


# --- opens of one file agree ---

FLAGS = ["os.O_RDONLY", "os.O_WRONLY", "os.O_RDWR", "os.O_RDWR | os.O_APPEND", "os.O_RDWR | os.O_DIRECT",
         "os.O_RDWR | os.O_SYNC", "os.O_RDWR | os.O_CREAT"]


@pytest.mark.parametrize("cache", ["auto", "none", "always"])
def test_any_open_beside_any(store, mount, program, cache):
    qos = mount(store, f"cache={cache}")
    qos.rule(EXEMPT)
    jobs = [program("free"), program("bound"), program("free", USER), program("bound", USER)]
    for first in FLAGS:
        for second in FLAGS:
            for one, two in ((0, 1), (1, 0), (0, 2), (0, 3), (3, 0)):
                name = f"{one}{two}"
                make_file(store, name)
                assert jobs[one].open(qos.dir / name, first) == 0
                assert jobs[two].open(qos.dir / name, second) == 0, (first, second, one, two)
                for job in (jobs[one], jobs[two]):
                    job("os.close(fd)")


@pytest.mark.parametrize("cache", ["auto", "none", "always"])
def test_all_see_the_same(store, mount, program, cache):
    """Data, size and times, among an exempt job, another, and their mappings."""
    qos = mount(store, f"cache={cache}")
    make_file(store, data=b"." * 8192)
    qos.rule(EXEMPT)
    free, bound = program("free"), program("bound")
    for job in (free, bound):
        assert job.open(qos.dir / "file") == 0
        assert job("len(map := mmap.mmap(fd, 8192))") == 8192
    assert passed_through(qos) == 1
    assert free("os.pwrite(fd, b'free', 0)") == 4
    assert bound("(os.pread(fd, 4, 0), map[:4])") == (b"free", b"free")
    assert bound("os.pwrite(fd, b'bound', 4096)") == 5
    assert free("(os.pread(fd, 5, 4096), map[4096:4101])") == (b"bound", b"bound")
    free("map.__setitem__(slice(8, 12), b'mine')")
    assert bound("(os.pread(fd, 4, 8), map[8:12])") == (b"mine", b"mine")
    assert free("os.pwrite(fd, b'end', 10000)") == 3
    facts = os.stat(store.dir / "file")
    for job in (free, bound):
        assert job("(os.fstat(fd).st_size, os.fstat(fd).st_mtime_ns, os.lseek(fd, 0, os.SEEK_END))") == \
            (10003, facts.st_mtime_ns, 10003)
    assert bound("os.ftruncate(fd, 6)") is None
    assert free("(os.pread(fd, 99, 0), os.fstat(fd).st_size)") == (b"free..", 6)
    assert bound("os.posix_fallocate(fd, 0, 100)") is None
    assert free("os.fstat(fd).st_size") == 100
    wait_until(lambda: counted(qos, "bound", "read") > 0)
    assert counted(qos, "free", "read") == 0
    for job in (free, bound):
        job("map.close()")
        job("os.close(fd)")
    wait_until(lambda: passed_through(qos) == 0)
    assert (qos.dir / "file").read_bytes() == (store.dir / "file").read_bytes()


@TMPFS
def test_the_first_open_decides(store, mount, program):
    qos = mount(store)
    make_file(store)
    qos.rule(EXEMPT)
    bound, free = program("bound"), program("free")
    assert bound.open(qos.dir / "file", "os.O_RDONLY") == 0
    assert bound("os.pread(fd, 3, 0)") == b"012"
    assert free.open(qos.dir / "file") == 0
    assert passed_through(qos) == 0
    assert free("os.pwrite(fd, b'x', 0)") == 1
    assert bound("os.pread(fd, 3, 0)") == b"x12"
    for job in (bound, free):
        job("os.close(fd)")
    wait_counted(qos, "bound", "close", 1)
    wait_counted(qos, "free", "close", 1)
    assert free.open(qos.dir / "file") == 0
    assert passed_through(qos) == 1


def test_another_user_of_the_job_acts_as_itself(store, mount, program):
    """The kernel would write in the name of the user that opened first."""
    qos = mount(store)
    path = make_file(store)
    qos.rule(EXEMPT)
    root, user = program("free"), program("free", USER)
    assert root.open(qos.dir / "file") == 0
    path.chmod(0o6777)
    assert user.open(qos.dir / "file") == 0
    assert passed_through(qos) == 1
    assert user("os.pwrite(fd, b'x', 0)") == 1
    assert path.stat().st_mode & 0o7777 == 0o777
    wait_counted(qos, "free", "write", 1)


def test_writing_takes_suid_away(store, mount, program):
    qos = mount(store)
    path = make_file(store)
    os.chown(path, OTHER, OTHER)
    qos.rule(EXEMPT)
    user = program("free", USER)
    assert user.open(qos.dir / "file") == 0
    path.chmod(0o6777)
    assert passed_through(qos) == 1
    assert user("os.pwrite(fd, b'x', 0)") == 1
    assert path.stat().st_mode & 0o7777 == 0o777
    assert counted(qos, "free", "write") == 0


def test_programs_run(store, mount):
    qos = mount(store)
    qos.rule(EXEMPT)
    as_job("free", "cp", "/bin/echo", qos.dir / "echo")
    for jobid in ("free", "bound", "free"):
        assert as_job(jobid, qos.dir / "echo", jobid) == f"{jobid}\n"


def test_many_at_once(store, mount, program):
    """Jobs that open, use and close the same few files, as chance will have it: no open ever fails."""
    code = """
import os, random, sys
chance = random.Random(int(sys.argv[1]))
for _ in range(1500):
    flags = chance.choice([os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_CREAT | os.O_TRUNC])
    fd = os.open(f"{sys.argv[2]}/{chance.randrange(3)}", flags)
    os.read(fd, 10)
    if flags != os.O_RDONLY:
        os.write(fd, b"0123456789")
    os.close(fd)
"""
    qos = mount(store)
    qos.rule(EXEMPT)
    for name in range(3):
        make_file(store, str(name))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    processes = [start_job(job, sys.executable, "-c", code, seed + place, qos.dir, stderr=subprocess.PIPE, text=True,
                           **({"user": uid, "group": uid, "extra_groups": []} if uid else {}))
                 for place, (job, uid) in enumerate([("free", None), ("free", None), ("bound", None), ("free", USER),
                                                     ("bound", USER)])]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    wait_until(lambda: passed_through(qos) == 0)


ACTIONS = ["os.pread(fd, {length}, {offset})", "os.pwrite(fd, {data!r}, {offset})", "os.write(fd, {data!r})",
           "os.lseek(fd, 0, os.SEEK_END)", "os.ftruncate(fd, {offset})", "os.fstat(fd).st_size",
           "os.posix_fallocate(fd, {offset}, {length})", "os.copy_file_range(fd, fd, {length}, {offset}, {offset} + 20000)",
           "mmap.mmap(fd, 0, access=mmap.ACCESS_READ)[{offset}:][:{length}]",
           "mmap.mmap(fd, 0).__setitem__(slice(0, 4), {data!r}[:4].ljust(4))", "os.fsync(fd)"]


@pytest.mark.parametrize("cache", ["auto", "none", "always"])
def test_at_random_as_on_the_store(store, mount, program, cache):
    """Four programs do at random on one file what four others do on the store itself, and find the same."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    qos = mount(store, f"cache={cache}")
    qos.rule(EXEMPT)
    for name in ("file", "twin"):
        make_file(store, name, b"0123456789" * 1000)
    pairs = [(program(job, uid), program(job, uid)) for job in ("free", "bound") for uid in (None, USER)]
    is_open = [False] * len(pairs)
    for _ in range(400):
        place = chance.randrange(len(pairs))
        through, native = pairs[place]
        if not is_open[place]:
            flags = chance.choice(["os.O_RDONLY", "os.O_RDWR", "os.O_RDWR | os.O_APPEND", "os.O_RDWR | os.O_TRUNC"])
            assert (through.open(qos.dir / "file", flags), native.open(store.dir / "twin", flags)) == (0, 0)
            is_open[place] = True
            continue
        if chance.random() < 0.4:  # often enough that all are closed now and then
            action = "os.close(fd)"
            is_open[place] = False
        else:
            action = chance.choice(ACTIONS).format(offset=chance.randrange(12000), length=chance.randrange(1, 9000),
                                                   data=chance.randbytes(chance.choice([1, 10, 5000])))
        found, expected = through(action), native(action)
        assert found == expected, (place, action[:60])
        assert (store.dir / "file").read_bytes() == (store.dir / "twin").read_bytes(), (place, action[:60])


# --- where it cannot be ---

WARNING = "warning: passthrough: the kernel does not take a file of the store"


def expect_requests(qos, job):
    """Served like others, and the log tells it once."""
    qos.expects_log(WARNING)
    for _ in range(2):
        assert job.open(qos.dir / "file") == 0
        assert job("os.pwrite(fd, b'new', 0)") == 3
        assert job("os.pread(fd, 6, 0)") == b"new345"
        job("os.close(fd)")
    wait_until(lambda: as_user(qos.user or 0, qos.user or 0, [], lambda: counted(qos, "free", "write")) == 2)
    assert qos.log.count(WARNING) == 1


@TMPFS
def test_a_mount_of_an_ordinary_user_is_served_by_requests(store, mount, program):
    make_file(store)
    qos = mount(store, user=USER)
    as_user(USER, USER, [], lambda: qos.rule(EXEMPT))
    expect_requests(qos, program("free", USER))


@TMPFS
def test_a_stacked_store_is_served_by_requests(store, mount, program):
    make_file(store)
    below = mount(store)
    qos = mount(Store(below.dir, "qosfs"))
    qos.rule(EXEMPT)
    expect_requests(qos, program("free"))


@TMPFS
def test_a_store_without_direct_io(store, mount, program, world):
    """What the store refuses is refused, or goes by requests; it is never EIO."""
    ramfs = world.folder("ramfs")
    run("mount", "-t", "ramfs", "none", ramfs)
    store = Store(ramfs, "ramfs")
    qos = mount(store)
    make_file(store)
    qos.rule(EXEMPT)
    job, other = program("free"), program("bound")
    assert job.open(qos.dir / "file", "os.O_RDWR | os.O_DIRECT") == 0
    assert passed_through(qos) == 0
    job("os.close(fd)")
    wait_counted(qos, "free", "close", 1)
    assert job.open(qos.dir / "file") == 0
    assert passed_through(qos) == 1
    for one in (job, other):
        assert one(f"os.open({os.fspath(qos.dir / 'file')!r}, os.O_RDWR | os.O_DIRECT)") == errno.EINVAL
    job.end()
    other.end()
    qos.unmount()
    umount(ramfs)
