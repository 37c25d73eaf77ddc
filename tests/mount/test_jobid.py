"""Which job a request is billed to: every jobid_var with real processes, exec, pid namespaces, inherited files."""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from harness import OTHER, USER, as_job, as_user, job_environment, run, running, start_job, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)


def requests(qos, jobid, operation=None):
    """How many requests the job has had, of one operation or of all."""
    job = qos.job(jobid)
    if job is None:
        return 0
    return job["operations"].get(operation, {}).get("samples", 0) if operation else job["requests"]


def assert_billed(qos, jobid, operation=None, count=None):
    """The job has had such requests, `count` of them where given. A reply comes before its entry in the books."""
    wait_until(lambda: requests(qos, jobid, operation) == count if count is not None
               else requests(qos, jobid, operation) > 0, what=f"{operation or 'a request'} of {jobid}")


def jobs(qos):
    """All job ids; the test itself, which reads them, is one."""
    return {job["id"] for job in qos.state()["jobs"]}


def stat_in(qos, environment, *prefix, **options):
    """stat(1) of the mount's file by a program with that environment."""
    run(*prefix, "stat", qos.dir / "file", env={"PATH": os.environ["PATH"]} | environment, **options)


@pytest.fixture
def qos(store, mount):
    """Mounts so that each look reaches the daemon."""
    def make(options="", cache="none", **more):
        (store.dir / "file").write_text("content")
        return mount(store, f"cache={cache},{options}", **more)
    return make


# --- from the environment ---


def test_variable(qos):
    qos = qos("jobid_var=RENDER_JOB")
    stat_in(qos, {"RENDER_JOB": "frame-7", "SLURM_JOB_ID": "1"})
    assert_billed(qos, "frame-7")
    stat_in(qos, {"RENDER_JOB_X": "wrong", "XRENDER_JOB": "wrong", "RENDER_JO": "wrong"})
    assert_billed(qos, "stat.0")
    assert not jobs(qos) & {"wrong", "1"}


def test_auto_order(qos):
    qos = qos()
    variables = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID"]
    for first in range(len(variables)):
        stat_in(qos, {name: f"by-{name}" for name in reversed(variables[first:])})
        assert {name for name in jobs(qos) if name.startswith("by-")} == {f"by-{name}" for name in variables[:first + 1]}
    stat_in(qos, {})
    assert_billed(qos, "stat.0")


def test_node_count(qos):
    qos = qos()
    stat_in(qos, {"SLURM_JOB_ID": "wide", "SLURM_JOB_NUM_NODES": "128"})
    stat_in(qos, {"LSB_JOBID": "hosts", "LSB_HOSTS": "a a b c"})
    stat_in(qos, {"JOB_ID": "unknown"})
    assert [qos.job(name)["nodes"] for name in ("wide", "hosts", "unknown")] == [128, 3, 0]


def test_hostile_environments(qos):
    """Large, binary, overlong and strange ones give a tidy id, and a single line in the log for each that was cut."""
    qos = qos("jobid_var=J")
    qos.expects_log("longer than 63 bytes")
    stat_in(qos, {"A" * 100: "b" * 100000} | {f"J{i}": "wrong" * 20 for i in range(5000)} | {"J": "found"})
    assert_billed(qos, "found")
    stat_in(qos, {"J": "a\nb\x1b[1m\tc"})
    assert_billed(qos, "a?b?[1m?c")
    stat_in(qos, {"J": os.fsdecode(b"\xff\xfe")})
    assert_billed(qos, "??")
    for _ in range(3):
        stat_in(qos, {"J": "x" * 62 + "\u00e9" + "tail"})
    assert_billed(qos, "x" * 62)
    assert qos.log.count("longer than 63 bytes") == 1
    stat_in(qos, {"J": "e\u0301t\u00e9 {7} \"q\" \\"})
    assert_billed(qos, "e\u0301t\u00e9 {7} \"q\" \\")
    assert "wrong" not in jobs(qos)


def test_rule_on_a_variable(qos):
    """The id that is billed is the id that rules match."""
    qos = qos("jobid_var=J")
    qos.rule("start one jobid={one} rate=5000")
    stat_in(qos, {"J": "one"})
    stat_in(qos, {"J": "two"})
    wait_until(lambda: qos.rule_state("one")["requests"] == requests(qos, "one") > 0, what="equal books")


# Writes over its environment, as setproctitle does, all of it or what lies before its last variable; in between it acts by turns.
TITLED = """
import ctypes, os, sys
fields = open("/proc/self/stat", "rb").read().rpartition(b")")[2].split()
begin, end = int(fields[47]), int(fields[48])
def act(name): open(sys.argv[1] + "/" + name, "w").close()
def title(length): ctypes.memset(begin, 0, length); ctypes.memmove(begin, b"w: 1" * 8, 32)
for line in sys.stdin:
    word, _, name = line.strip().partition(" ")
    if word == "title": title(end - begin)
    elif word == "part": title(40)
    elif word == "act": act(name)
    elif word == "fork" and os.fork() > 0: os.wait()
    elif word == "fork": act(name); os._exit(0)
    elif word == "orphan" and os.fork() > 0: os.wait()
    elif word == "orphan":
        read, write = os.pipe()
        if os.fork() > 0: os._exit(0)
        while os.getppid() != 1: pass
        act(name)
    print("done", flush=True)
"""


@contextlib.contextmanager
def titled(qos, environment, *prefix):
    """A program that does as it is told."""
    with running(subprocess.Popen([*prefix, sys.executable, "-c", TITLED, qos.dir], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={"PATH": os.environ["PATH"], "PAD": "p" * 500} | environment)) as process:
        def tell(*words):
            for word in words:
                print(word, file=process.stdin, flush=True)
                assert process.stdout.readline() == "done\n"
        yield tell


def callers(qos):
    return qos.state()["callers"]


@pytest.mark.parametrize("how", ["title", "part"])
def test_a_title_changes_no_job(qos, how):
    """Nor that of copies made later, even if their parent has gone; nor once the daemon has forgotten the process."""
    qos = qos()
    with titled(qos, {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "5"}) as tell:
        tell("act a", how)
        wait_until(lambda: callers(qos) == 1, what="the end of the memory of callers")
        tell("act b", "fork c", "orphan d")
    assert_billed(qos, "77", "create", 4)
    assert qos.job("77")["nodes"] == 5


@pytest.mark.parametrize("prefix", [[], ["setarch", "-R"]])
def test_a_title_from_before_the_first_request(qos, prefix):
    """Nothing was known of the program: its job is its parent's."""
    qos = qos()
    as_parent = [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"]
    with titled(qos, {"SLURM_JOB_ID": "77"}, *prefix, *as_parent) as tell:
        tell("title", "act a", "fork b")
    assert_billed(qos, "77", "create", 2)


def test_a_title_where_programs_lie_in_one_place(qos):
    """Two that lie alike, as without randomization of addresses, keep a job each."""
    qos = qos()
    with titled(qos, {"SLURM_JOB_ID": "71"}, "setarch", "-R") as one, titled(qos, {"SLURM_JOB_ID": "72"}, "setarch", "-R") as other:
        one("act a", "title")
        other("act b", "title")
        wait_until(lambda: callers(qos) == 1, what="the end of the memory of callers")
        one("act c")
        other("act d")
    assert [requests(qos, job, "create") for job in ("71", "72")] == [2, 2]


# --- from elsewhere ---


def test_procname_uid(qos):
    qos = qos("jobid_var=procname_uid")
    stat_in(qos, {"SLURM_JOB_ID": "7"})
    stat_in(qos, {"SLURM_JOB_ID": "7"}, user=USER, group=USER, extra_groups=[])
    assert {"stat.0", f"stat.{USER}"} <= jobs(qos)
    assert requests(qos, "7") == 0


def test_nodelocal(qos):
    host = socket.gethostname()
    qos = qos("jobid_var=nodelocal,jobid_name=%H:%g:%.2e")
    stat_in(qos, {"SLURM_JOB_ID": "7"}, user=USER, group=OTHER, extra_groups=[])
    assert_billed(qos, f"{host.partition('.')[0]}:{OTHER}:st")
    assert requests(qos, "7") == 0


def test_disable(qos):
    qos = qos("jobid_var=disable")
    stat_in(qos, {"SLURM_JOB_ID": "7"})
    stat_in(qos, {}, user=USER, group=USER, extra_groups=[])
    assert jobs(qos) == {"-"}


def test_name_shapes_the_job(qos):
    qos = qos("jobid_name=%j?none.%u")
    stat_in(qos, {"SLURM_JOB_ID": "7"})
    stat_in(qos, {})
    assert {"7", "none.0"} == jobs(qos)


@pytest.fixture
def cgroup():
    """A cgroup of this test's own, to be joined by writing a pid to its file of processes."""
    for parent in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/systemd"):
        path = pathlib.Path(parent, f"qosfs-test-{os.getpid()}")
        if pathlib.Path(parent, "cgroup.procs").exists():
            try:
                (path / "job_4711").mkdir(parents=True)
            except OSError:
                continue
            yield path / "job_4711"
            wait_until(lambda: not (path / "job_4711/cgroup.procs").read_text(), what="the cgroup's end")
            (path / "job_4711").rmdir()
            path.rmdir()
            return
    pytest.fail("no cgroup hierarchy that root may write to")


def test_cgroup(qos, cgroup):
    """What the environment says does not count."""
    qos = qos(r"jobid_var=cgroup:/qosfs-test-[0-9]+/job_([0-9]{1\,9})$")
    inside = ["sh", "-c", f"echo $$ >{cgroup}/cgroup.procs && exec \"$@\"", "sh"]
    stat_in(qos, {"SLURM_JOB_ID": "forged", "SLURM_JOB_NUM_NODES": "99"}, *inside)
    stat_in(qos, {"SLURM_JOB_ID": "forged"})
    assert {"4711", "stat.0"} <= jobs(qos)
    assert requests(qos, "forged") == 0
    assert qos.job("4711")["nodes"] == 0


def test_change_of_the_variable(qos):
    """A tunable: it holds at once, also for a process that is known."""
    qos = qos()
    with start_job("7", "sh", "-c", f"while read -r word; do : >{qos.dir}/$word; echo; done", stdin=subprocess.PIPE,
                   stdout=subprocess.PIPE, text=True) as shell:
        for variable, jobid in (("auto", "7"), ("procname_uid", "sh.0"), ("disable", "-"), ("SLURM_JOB_ID", "7")):
            qos.set("jobid_var", variable)
            before = requests(qos, jobid, "create")
            print(f"file-{variable}", file=shell.stdin, flush=True)
            shell.stdout.readline()
            assert_billed(qos, jobid, "create", before + 1)
        shell.stdin.close()


# --- which process is which ---


# Goes to the mount, and then calls exec: what runs then has another environment.
LAUNCHER = """
import os, shlex, subprocess, sys, threading
how, top, words = sys.argv[1], sys.argv[2], sys.argv[3:]
job = dict(os.environ, SLURM_JOB_ID="inside")
def go():
    os.chdir(top)
    os.stat("file")
    os.execvpe(words[0], words, job)
def begin(child):
    return lambda: child() if os.fork() == 0 else sys.exit(os.wait()[1])
{"exec": go, "fork": begin(go), "chain": begin(lambda: os.execvp("sh", ["sh", "-c", f"cd {top} && exec env SLURM_JOB_ID=inside " + shlex.join(words)])),
 "vfork": lambda: subprocess.run(words, cwd=top, env=job, check=True),
 "thread": begin(lambda: (os.stat(top + "/file"), thread := threading.Thread(target=go), thread.start(), thread.join()))}[how]()
"""
# What keeps its job for long.
OPENERS = {"create": ["dd", "if=/dev/zero", "of=new", "bs=4096", "count=1", "status=none"], "open": ["cat", "file"],
           "opendir": ["ls"], "map": [sys.executable, "-c", "import mmap; file = open('file', 'rb'); mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:1]"],
           "tmpfile": [sys.executable, "-c", "import os; os.open('.', os.O_TMPFILE | os.O_RDWR)"]}


@pytest.mark.parametrize("how", ["exec", "fork", "chain", "vfork", "thread"])
def test_what_a_launched_program_opens_is_its_own(qos, how):
    """The launcher is known when it calls exec."""
    qos = qos()
    for name, words in OPENERS.items():
        opened = "open" if name == "map" else "create" if name == "tmpfile" else name
        before = requests(qos, "inside", opened)
        as_job("launcher", sys.executable, "-c", LAUNCHER, how, qos.dir, *words)
        assert_billed(qos, "inside", opened, before + 1)
    assert requests(qos, "launcher") > 0
    assert [requests(qos, "launcher", name) for name in ("open", "create", "opendir")] == [0, 0, 0]


def test_the_name_of_a_launched_program(qos):
    """Where the job is the program's name, and nothing of its environment."""
    qos = qos("jobid_var=procname_uid")
    as_job("no", "sh", "-c", f"cd {qos.dir} && stat . && exec cat file")
    assert_billed(qos, "cat.0", "open", 1)


def test_a_launcher_that_joins_a_cgroup(qos, cgroup):
    qos = qos(r"jobid_var=cgroup:/qosfs-test-[0-9]+/job_([0-9]{1\,9})$")
    as_job("no", "sh", "-c", f"cd {qos.dir} && [ -e file ] && echo $$ >{cgroup}/cgroup.procs && exec cat file")
    assert_billed(qos, "4711", "open", 1)


def test_change_of_user_shows_at_once(qos):
    """uid and gid come with each request; what is cached for another does not count."""
    qos = qos("jobid_var=nodelocal,jobid_name=u%u.g%g")

    def act():
        os.stat(qos.dir / "file")
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        (qos.dir / "mine").touch()
        return os.stat(qos.dir / "mine").st_uid

    assert as_user(0, 0, [], act) == USER
    assert_billed(qos, f"u{USER}.g{USER}", "create", 1)
    assert requests(qos, "u0.g0", "create") == 0


def test_threads_of_one_process(qos):
    """Each thread has its own TID, and the same environment."""
    qos = qos()
    code = ("import os, sys, threading\n"
            "threads = [threading.Thread(target=lambda i=i: open(f'{sys.argv[1]}/t{i}', 'w').close())\n"
            "           for i in range(8)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]\n")
    as_job("many", sys.executable, "-c", code, qos.dir)
    assert_billed(qos, "many", "create", 8)


def test_inherited_file_is_billed_to_the_opener(qos):
    """READ and WRITE take the job of the open file, whichever process uses it."""
    qos = qos()
    code = ("import os, subprocess, sys\n"
            "file = os.open(sys.argv[1], os.O_RDWR)\n"
            "subprocess.run(['dd', 'bs=4096', 'count=1', 'status=none', 'if=/dev/zero'], stdout=file, check=True,\n"
            "               env=dict(os.environ, SLURM_JOB_ID='heir'))\n"
            "subprocess.run(['sh', '-c', 'head -c 1 >/dev/null'], stdin=file, check=True,\n"
            "               env=dict(os.environ, SLURM_JOB_ID='heir'))\n")
    as_job("opener", sys.executable, "-c", code, qos.dir / "file")
    assert_billed(qos, "opener", "write", 1)
    assert_billed(qos, "opener", "read")
    assert requests(qos, "heir", "write") + requests(qos, "heir", "read") == 0


def test_late_pages_are_billed_to_the_opener(qos):
    """Pages written through a mapping come back without a pid; the file's job pays."""
    qos = qos(cache="auto")
    code = ("import mmap, os, sys\n"
            "file = os.open(sys.argv[1], os.O_RDWR)\n"
            "os.ftruncate(file, 65536)\n"
            "with mmap.mmap(file, 65536) as pages: pages[:] = bytes(65536)\n"
            "os.fsync(file)\n")
    as_job("mapper", sys.executable, "-c", code, qos.dir / "file")
    wait_until(lambda: qos.job("mapper")["write_bytes"] >= 65536, what="the booking of what was answered")
    assert requests(qos, "0") == 0


# --- pid namespaces ---


def test_below_in_a_pid_namespace(qos):
    """A container's processes are seen by the daemon, by other pids; their job is found."""
    qos = qos()
    as_job("container", "unshare", "--pid", "--fork", "--mount-proc", "stat", qos.dir / "file")
    assert_billed(qos, "container", "lookup")
    assert requests(qos, "0") + requests(qos, "stat.0") == 0


@pytest.fixture
def in_namespace(store, world):
    """Mounts by a daemon in a pid namespace of its own, with the words for unshare(1); the place is seen from here."""
    shared = world.folder("shared")
    run("mount", "-t", "tmpfs", "shared", shared)
    run("mount", "--make-shared", shared)
    place = shared / "place"
    place.mkdir()
    (store.dir / "file").write_text("content")
    daemons = []

    def make(*words):
        log = world.folder("log") / "stderr"
        with open(log, "wb") as file:
            daemons.append(subprocess.Popen(
                ["unshare", "--pid", "--fork", "--kill-child", *words, world.programs / "mount.qosfs", store.dir, place,
                 "-o", f"foreground,cache=none,db={shared}/qosfs.db"], env=job_environment(None), stderr=file))
        wait_until(lambda: str(place) in pathlib.Path("/proc/self/mountinfo").read_text(), what="the mount")
        return place, log

    yield make
    run("umount", place)
    assert daemons[0].wait(30) == 0
    run("umount", shared)


def enter(log):
    """The words to run a program in the pid namespace of the daemon with that log."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "fd/2") == str(log) and (path / "comm").read_text() == "mount.qosfs\n":
                return ["nsenter", "--pid", f"--target={path.name}"]
        except OSError:
            continue
    raise AssertionError("no daemon")


def ids(place):
    return {job["id"] for job in json.loads((place / ".qosfs/state.json").read_text())["jobs"]}


def test_above_the_daemons_pid_namespace(in_namespace):
    """A caller outside of the daemon's pid namespace has no pid there: it is billed by its uid."""
    place, log = in_namespace("--mount-proc", "--propagation", "unchanged")
    as_job("outside", "stat", place / "file", user=USER, group=USER, extra_groups=[])
    assert str(USER) in ids(place) and "outside" not in ids(place)
    assert log.read_text() == ""


def test_proc_of_another_pid_namespace(in_namespace):
    """Without a /proc of its own, the daemon must not take one process for another."""
    place, log = in_namespace()
    for _ in range(5):
        as_job("inside", *enter(log), "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "stat",
               place / "file")
    assert ids(place) == {"0", str(USER)}
    assert "/proc" in log.read_text()


def test_ordinary_user(qos):
    """Without root, the environment of one's own processes can be read all the same."""
    qos = qos(user=USER)
    as_user(USER, USER, [], lambda: stat_in(qos, {"SLURM_JOB_ID": "mine"}))
    state = as_user(USER, USER, [], qos.state)
    assert [job["id"] for job in state["jobs"] if job["id"] == "mine"] == ["mine"]


def test_process_that_hides(qos, store):
    """If the daemon may not read a process's environment, it names the process by its command and uid: here the daemon
    is a user's, and the caller has closed itself to tracing."""
    qos = qos(user=USER)
    code = ("import ctypes, os, sys\n"
            "assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0\n"  # PR_SET_DUMPABLE
            "os.stat(sys.argv[1])\n")
    as_user(USER, USER, [], lambda: run(sys.executable, "-c", code, qos.dir / "file",
                                        env=job_environment("hidden")))
    names = [job["id"] for job in as_user(USER, USER, [], qos.state)["jobs"]]
    assert "hidden" not in names
    assert any(name.startswith("python") and name.endswith(f".{USER}") for name in names), names
