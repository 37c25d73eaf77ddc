"""Rules and tunables by xattr, and the hidden directory: what each user may do, what is refused and why."""
import concurrent.futures
import contextlib
import errno
import fcntl
import os
import re
import stat

import pytest

from harness import USER, as_job, as_user, error_of, run, wait_until
from twins import attempt

RULES = "user.qosfs.nrs_tbf_rule"
FILES = {"job_stats", "jobs", "rules", "shares", "metrics", "state.json", "status.json", "rules.json", "jobs.json", "history"}
TUNABLES = {"nrs_policies", "slots", "jobid_var", "jobid_name", "job_cleanup_interval", "metrics_top_jobs",
            "parked_mib", "history_days", "adapt", "capacity", "adapt_period", "adapt_bytes",
            "adapt_metadata"}

one_store = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
pytestmark = one_store


def rule_lines(qos):
    """The rules as nrs_tbf_rule lists them, in order, without the number of classes."""
    regular, _ = qos.get("nrs_tbf_rule").split("high_priority_requests:\n")
    lines = regular.removeprefix("regular_requests:\nCPT 0:\n").splitlines()
    assert all(re.search(r", ref \d+$", line) for line in lines)
    return [line.rpartition(", ref ")[0] for line in lines]


def refused(function, *arguments):
    """The errno with which it is refused."""
    with pytest.raises(OSError) as caught:
        function(*arguments)
    return caught.value.errno


# --- rules ---

def test_rules_listed_in_lustres_format(store, mount):
    qos = mount(store)
    assert rule_lines(qos) == ["default * 0"]
    qos.rule("start hog jobid={dd.*} rate=100")
    qos.rule("start user uid={7}&opcode={data},gid={3 4} bps=10M per=uid")
    qos.rule("change default rate=5000")
    assert rule_lines(qos) == [
        "user uid={7}&opcode={data},gid={3 4} bps=10M per=uid 0",
        "hog jobid={dd.*} 100",
        "default * 5000",
    ]
    qos.rule("stop hog")
    assert len(rule_lines(qos)) == 2


@pytest.mark.parametrize("command, code", [
    ("", errno.EINVAL),
    ("begin x jobid={a} rate=1", errno.EINVAL),
    ("start x", errno.EINVAL),
    ("start x jobid={a rate=1", errno.EINVAL),
    ("start x colour={red} rate=1", errno.EINVAL),
    ("start x jobid={a} rate=0", errno.EINVAL),
    ("start x jobid={a} rate=1000000", errno.EINVAL),
    ("start x jobid={a} speed=1", errno.EINVAL),
    ("start sixteencharacter jobid={a} rate=1", errno.ENAMETOOLONG),
    ("start known jobid={a} rate=1", errno.EEXIST),
    ("start default jobid={a} rate=1", errno.EEXIST),
    ("start x jobid={a} rate=1 rank=unknown", errno.ENOENT),
    ("change unknown rate=1", errno.ENOENT),
    ("change known", errno.EINVAL),
    ("stop unknown", errno.ENOENT),
    ("stop default", errno.EPERM),
    ("start x jobid={a\0b} rate=1", errno.EINVAL),
    ("start x jobid={" + "a" * 16384 + "} rate=1", errno.E2BIG),
])
def test_bad_rule_changes_nothing_and_says_why(store, mount, command, code):
    qos = mount(store)
    qos.rule("start known jobid={k} rate=1")
    before = rule_lines(qos)
    assert refused(qos.rule, command) == code
    assert rule_lines(qos) == before
    assert len(qos.get("last_error")) > 10
    qos.rule("change known rate=2")
    assert qos.get("last_error") == ""


def test_refused_change_is_whole(store, mount):
    """A rank that is refused does not leave the rate behind (docs/reference/rules.md, "Unlike Lustre")."""
    qos = mount(store)
    qos.rule("start a jobid={a} rate=1")
    assert refused(qos.rule, "change a rate=9 rank=missing") == errno.ENOENT
    assert rule_lines(qos)[0] == "a jobid={a} 1"


def test_value_may_end_in_nul_or_newline(store, mount):
    qos = mount(store)
    for name, ending in (("a", b"\0"), ("b", b"\n"), ("c", b" \n\0"), ("d", b"")):
        os.setxattr(qos.dir, RULES, b"start %s jobid={x} rate=1" % name.encode() + ending)
    assert [line.split()[0] for line in rule_lines(qos)] == ["d", "c", "b", "a", "default"]


def test_flags_are_no_matter(store, mount):
    qos = mount(store)
    os.setxattr(qos.dir, RULES, b"start a jobid={x} rate=1", os.XATTR_CREATE)
    os.setxattr(qos.dir, RULES, b"stop a", os.XATTR_REPLACE)
    assert len(rule_lines(qos)) == 1


def test_long_list_is_cut_at_a_line(store, mount):
    qos = mount(store)
    for number in range(400):
        qos.rule(f"start rule{number} jobid={{{'x' * 200}}} rate=1")
    text = os.getxattr(qos.dir, RULES)
    assert 60000 < len(text) <= 65536
    *lines, note, last = text.decode().split("\n")
    assert note.startswith("#") and ".qosfs/rules" in note and last == ""
    assert all(re.search(r", ref \d+$", line) for line in lines[2:])
    assert len(qos.report("rules").splitlines()) == 402


def test_parallel_sets_lose_nothing(store, mount):
    qos = mount(store)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: qos.rule(f"start r{n} jobid={{x}} rate={n + 1}"), range(50)))
        assert len(rule_lines(qos)) == 51
        list(pool.map(lambda n: qos.rule(f"stop r{n}"), range(50)))
    assert rule_lines(qos) == ["default * 0"]


def test_nobody_sees_half_a_command(store, mount):
    """Setters at once, with readers among them: the two options of a change are always of the same one."""
    qos = mount(store)
    qos.rule("start a jobid={x} rate=1 weight=1")

    def change(number):
        qos.rule(f"change a rate={number} weight={number}")
        rule = qos.state()["rules"][0]
        assert rule["rate"] == rule["weight"]
        fields = re.fullmatch(r"a jobid=\{x\} weight=(\d+) (\d+)", rule_lines(qos)[0])
        assert fields and fields[1] == fields[2]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(2, 200)))


# --- tunables ---

def test_tunables(store, mount):
    qos = mount(store)
    assert qos.get("slots") == "64"
    qos.set("slots", 4)
    assert qos.get("slots") == "4" and qos.state()["slots"]["total"] == 4
    qos.set("jobid_var", "MY_JOB")
    assert qos.get("jobid_var") == "MY_JOB"
    assert set(qos.state()["tunables"]) == TUNABLES


@pytest.mark.parametrize("name, value, code", [
    ("slots", "0", errno.ERANGE),
    ("slots", "many", errno.EINVAL),
    ("slots", "", errno.EINVAL),
    ("nrs_policies", "crrn", errno.EINVAL),
    ("nrs_policies", "tbf nid", errno.EINVAL),
    ("adapt_metadata", "1.2.3", errno.EINVAL),
    ("jobid_var", "cgroup:(", errno.EINVAL),
    ("job_cleanup_interval", "-1", errno.ERANGE),
    ("last_error", "none", errno.EPERM),
    ("no_such_thing", "1", errno.EINVAL),
])
def test_bad_tunable_changes_nothing_and_says_why(store, mount, name, value, code):
    qos = mount(store)
    before = qos.state()["tunables"]
    assert refused(qos.set, name, value) == code
    assert qos.state()["tunables"] == before
    assert qos.get("last_error")


def test_slots_leave_a_thread_to_read(store, mount):
    qos = mount(store, "threads=8,slots=4")
    qos.set("slots", 7)
    assert refused(qos.set, "slots", 8) == errno.ERANGE
    assert "8 threads" in qos.get("last_error")
    assert qos.get("slots") == "7" and qos.state()["slots"]["total"] == 7


def test_policies(store, mount):
    def states():
        regular, _ = qos.get("nrs_policies").split("high_priority_requests:\n")
        words = [line.split() for line in regular.splitlines()]
        names = [line[-1] for line in words if line[:2] == ["-", "name:"]]
        return dict(zip(names, [line[-1] for line in words if line[:1] == ["state:"]]))

    qos = mount(store)
    assert states() == {"fifo": "stopped", "grr": "stopped", "tbf": "started", "jrr": "stopped"}
    for word, name in (("jrr", "jrr"), ("grr", "grr"), ("fifo", "fifo"), ("tbf jobid", "tbf"), ("reg jrr", "jrr")):
        qos.set("nrs_policies", word)
        assert states()[name] == "started"
        assert qos.state()["tunables"]["nrs_policies"] == name


def test_options_of_the_mount(store, mount):
    qos = mount(store, "slots=7,nrs_policies=fifo")
    assert qos.get("slots") == "7" and qos.state()["tunables"]["nrs_policies"] == "fifo"


def test_bad_option_is_named(store, mount):
    qos = mount(store, "slots=none", expect_failure=True)
    assert "slots" in qos.log and "none" in qos.log


# --- the xattrs as such ---

def test_by_name_and_kept_from_the_store(store, mount):
    qos = mount(store)
    qos.set("slots", 4)
    for name in TUNABLES | {"nrs_tbf_rule", "last_error"}:
        assert run("getfattr", "--only-values", "-n", f"user.qosfs.{name}", "--absolute-names", qos.dir) == qos.get(name)
    assert qos.get("slots") == "4"
    assert os.listxattr(store.dir) == []


@pytest.mark.parametrize("copy", ["rsync -aX --delete {}/ {}/", "cp -a {}/. {}/", "tar -C {} --xattrs --xattrs-include=* -c . | tar -C {} --xattrs "
                                  "--xattrs-include=* -x"])
def test_a_copy_carries_no_settings(world, store, new_store, mount, copy):
    """Copies of the root that take xattrs along take the store's own alone, and set nothing where they are put back. The store's
    root may have such names itself, from a backup by an older version: they are not shown."""
    os.setxattr(store.dir, "user.qosfs.slots", b"7")
    qos, other = mount(store), mount(new_store("tmpfs"))
    backup = world.folder("backup")
    (qos.dir / "file").write_text("content")
    os.setxattr(qos.dir, "user.mine", b"value")
    qos.set("slots", 9)
    before = {name: other.get(name) for name in TUNABLES}
    for source, target in ((qos.dir, backup), (backup, other.dir)):
        run("sh", "-ec", copy.format(source, target))
        assert os.listxattr(source) == os.listxattr(target) == ["user.mine"]
    assert (other.dir / "file").read_text() == "content"
    assert {name: other.get(name) for name in TUNABLES} == before


def test_only_the_root_has_them(store, mount):
    qos = mount(store)
    (qos.dir / "folder").mkdir()
    assert not [name for name in os.listxattr(qos.dir / "folder") if name.startswith("user.qosfs")]


def test_reading_and_removing(store, mount):
    qos = mount(store)
    assert refused(os.getxattr, qos.dir, "user.qosfs.no_such_thing") == errno.ENODATA
    assert refused(os.removexattr, qos.dir, "user.qosfs.slots") == errno.EPERM
    assert "user.qosfs.slots cannot be removed" in qos.get("last_error")
    assert refused(os.removexattr, qos.dir, RULES) == errno.EPERM


# --- what each user may do ---

def try_everything(qos):
    """What an unprivileged user is told: operation -> errno, or None where it worked."""
    hidden = qos.dir / ".qosfs"
    return {
        "rule": error_of(qos.rule, "start evil uid={0} rate=1"),
        "slots": error_of(qos.set, "slots", 1),
        "policy": error_of(qos.set, "nrs_policies", "fifo"),
        "unknown": error_of(qos.set, "unknown", 1),
        "clear": error_of((hidden / "job_stats").write_text, "clear"),
        "write": error_of((hidden / "rules").write_text, "x"),
        "create": error_of((hidden / "new").write_text, "x"),
        "mkdir": error_of((hidden / "new").mkdir),
        "unlink": error_of((hidden / "jobs").unlink),
        "chmod": error_of((hidden / "jobs").chmod, 0o777),
        "rmdir": error_of(hidden.rmdir),
        "read": error_of((hidden / "state.json").read_text),
        "get": error_of(qos.get, "slots"),
        "last_error": qos.get("last_error"),
    }


def test_others_may_read_alone(store, mount):
    os.chmod(store.dir, 0o777)  # where the kernel lets a user come so far as to us
    qos = mount(store)
    told = as_user(USER, USER, [], lambda: try_everything(qos))
    assert "only root and the owner" in told.pop("last_error")
    assert told.pop("read") is None and told.pop("get") is None
    assert {name for name, code in told.items() if code == errno.EPERM} >= {"rule", "slots", "policy", "unknown"}
    assert {code for code in told.values()} <= {errno.EPERM, errno.EACCES}
    assert rule_lines(qos) == ["default * 0"] and qos.get("slots") == "64"
    assert qos.get("last_error") == "", "the error of another user was shown"


def test_readers_fill_no_memory(store, mount):
    """What users keep open of .qosfs is bounded, and there is room again when they have closed."""
    os.chmod(store.dir, 0o777)
    qos = mount(store)
    values = " ".join(f"{number:060}" for number in range(260))
    for number in range(25):
        qos.rule(f"start r{number} jobid={{{values}}} rate=1")

    def open_one():
        return os.open(qos.dir / ".qosfs/rules", os.O_RDONLY)

    def open_many():
        files = []
        with contextlib.suppress(OSError):
            while len(files) < 900:
                files.append(open_one())
        return len(files), error_of(open_one)
    count, code = as_user(USER, USER, [], open_many)
    assert 10 < count < 900 and code == errno.ENOMEM
    wait_until(lambda: as_user(USER, USER, [], lambda: error_of(open_one)) is None, what="room for others")


def test_owner_may_set(store, mount):
    os.chown(store.dir, USER, USER)
    qos = mount(store, user=USER)

    def use():
        qos.rule("start mine jobid={x} rate=1")
        qos.set("slots", 3)
        (qos.dir / ".qosfs/job_stats").write_text("clear")
        return rule_lines(qos), qos.get("slots")

    lines, slots = as_user(USER, USER, [], use)
    assert lines[0].startswith("mine ") and slots == "3"


# --- the hidden directory ---

def test_hidden_and_there(store, mount):
    qos = mount(store)
    assert ".qosfs" not in os.listdir(qos.dir)
    assert set(os.listdir(qos.dir / ".qosfs")) == FILES
    assert stat.S_IMODE((qos.dir / ".qosfs").stat().st_mode) == 0o555
    for name in FILES:
        status = (qos.dir / ".qosfs" / name).stat()
        assert stat.S_IMODE(status.st_mode) == (0o644 if name == "job_stats" else 0o444)
        assert (status.st_uid, status.st_nlink) == (0, 1)
    assert not (qos.dir / ".qosfs" / "nothing").exists()
    assert not (store.dir / ".qosfs").exists()


def test_any_program_reads_it(store, mount, world):
    qos = mount(store)
    (qos.dir / "file").write_text("x")
    target = world.folder("copies")
    for name in FILES:
        path = qos.dir / ".qosfs" / name
        text = run("cat", path)
        assert text and path.read_text() and run("head", "-c", "9", path) == text[:9]
        run("cp", path, target / name)
        assert (target / name).stat().st_size > 0
    run("ls", "-la", qos.dir / ".qosfs")
    assert run("wc", "-l", qos.dir / ".qosfs/jobs").split()[0] != "0"


def test_one_reader_sees_one_moment(store, mount):
    qos = mount(store)
    with open(qos.dir / ".qosfs/rules", buffering=0, mode="rb") as file:
        start = file.read(10)
        qos.rule("start longlonglong jobid={x} rate=1")
        text = start + file.read()
        assert b"longlonglong" not in text
        file.seek(3)
        assert file.read(4) == text[3:7]
        file.seek(1 << 40)
        assert file.read(4) == b""


def test_name_is_taken(store, mount):
    qos = mount(store)
    hidden = qos.dir / ".qosfs"
    (qos.dir / "file").write_text("x")
    (qos.dir / "folder").mkdir()
    assert refused(hidden.mkdir) == errno.EEXIST
    assert refused(os.symlink, "x", hidden) == errno.EEXIST
    assert refused(hidden.rmdir) in (errno.EPERM, errno.EBUSY)
    assert refused(hidden.rename, qos.dir / "other") == errno.EPERM
    assert refused(os.rename, qos.dir / "folder", hidden) in (errno.EPERM, errno.EEXIST, errno.ENOTEMPTY)
    assert refused(os.link, qos.dir / "file", hidden / "linked") in (errno.EPERM, errno.EXDEV, errno.EACCES)
    assert refused((hidden / "jobs").unlink) in (errno.EPERM, errno.EACCES)
    assert refused(os.open, hidden / "new", os.O_CREAT | os.O_WRONLY) in (errno.EPERM, errno.EACCES)
    assert set(os.listdir(hidden)) == FILES


def read_and_write(path):
    return os.open(path, os.O_RDWR)


# What is done with .qosfs/rules, and how it ends for everybody, root included.
CALLS = {
    "chmod": (lambda path: path.chmod(0o666), errno.EPERM),
    "chown": (lambda path: os.chown(path, os.getuid(), -1), errno.EPERM),
    "utime": (lambda path: os.utime(path, ns=(1, 1)), errno.EPERM),
    "setxattr": (lambda path: os.setxattr(path, "user.qosfs.slots", b"1"), errno.EPERM),
    "removexattr": (lambda path: os.removexattr(path, "user.x"), errno.EPERM),
    "getxattr": (lambda path: os.getxattr(path, "user.qosfs.slots"), errno.ENODATA),
    "listxattr": (lambda path: os.listxattr(path) == [], True),
    "open to write": (read_and_write, errno.EACCES),
    "as a folder": (lambda path: os.stat(path / "x"), errno.ENOTDIR),
    "opendir": (os.listdir, errno.ENOTDIR),
    "readlink": (os.readlink, errno.EINVAL),
    "fsync": (lambda path: os.fsync(os.open(path, os.O_RDONLY)), None),
    "ioctl": (lambda path: fcntl.ioctl(os.open(path, os.O_RDONLY), 0x80086601, bytes(8)), errno.ENOTTY),
    "link": (lambda path: os.link(path, path.parents[1] / "linked"), errno.EPERM),
    "mkdir": (lambda path: os.mkdir(path.parent / "new"), errno.EPERM),
    "mknod": (lambda path: os.mknod(path.parent / "new"), errno.EPERM),
    "O_TMPFILE": (lambda path: os.open(path.parent, os.O_TMPFILE | os.O_RDWR), errno.EPERM),
    "chmod of the folder": (lambda path: path.parent.chmod(0o777), errno.EPERM),
    "statvfs": (lambda path: os.statvfs(path).f_bsize > 0, True),
    "lseek for data": (lambda path: os.lseek(os.open(path, os.O_RDONLY), 0, os.SEEK_DATA), errno.EINVAL),
}


@pytest.mark.parametrize("uid", [0, USER])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_its_files(store, mount, name, uid):
    qos = mount(store)
    act, expected = CALLS[name]
    found = as_user(uid, uid, [], lambda: attempt(act, qos.dir / ".qosfs/rules"))
    assert found == expected or (uid != 0 and found == errno.EACCES)
    assert "default" in qos.report("rules")
    assert os.listdir(store.dir) == []


def test_clear(store, mount):
    qos = mount(store)
    for job in ("7", "8"):
        as_job(job, "touch", qos.dir / "file")
        qos.wait_booked(job, close=1)
    run("sh", "-c", f"echo 7 > {qos.dir}/.qosfs/job_stats")
    assert not qos.job("7") or qos.job("7")["requests"] == 0
    assert qos.job("8")["requests"] > 0
    stats = qos.dir / ".qosfs/job_stats"
    assert refused(stats.write_text, "no such job") == errno.ENOENT
    assert refused(stats.write_text, " \n") == errno.EINVAL
    assert refused(stats.write_text, "x" * 300) == errno.EINVAL
    stats.write_text("clear")
    assert not qos.job("8") or qos.job("8")["requests"] == 0
