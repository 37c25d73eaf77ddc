"""qosfsctl on a real mount: every command as text and as JSON, its errors and exit codes, and which users may use it."""
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import pytest

from harness import REPOSITORY, SANITIZERS, USER, as_job, is_stopped, job_environment, run, start_job, wait_until

OK, FAILED, USAGE, NOT_FOUND = range(4)

# In a namespace of its own, all qosfs mounts but those named before "--" are gone; then the rest is run.
KEEP_MOUNTS = r"""
keep="$1"; shift
grep ' - fuse.qosfs ' /proc/self/mountinfo | cut -d' ' -f5 | while read -r mountpoint; do
    case " $keep " in *" $mountpoint "*) ;; *) umount -l "$mountpoint" ;; esac
done
exec "$@"
"""


@pytest.fixture
def qos(new_store, mount):
    return mount(new_store("tmpfs"))


def ctl(qos, *arguments, status=OK, **options):
    """Runs a command that must end with that status; what it printed, or its error."""
    done = qos.ctl(*arguments, check=False, timeout=60, **options)
    assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    if status == OK:
        assert done.stderr == ""
        return done.stdout
    assert done.stdout == "" and done.stderr.startswith("qosfsctl")
    assert ("Try 'qosfsctl" in done.stderr) == (status == USAGE)
    return done.stderr


def ctl_json(qos, *arguments):
    return json.loads(ctl(qos, *arguments, "--json"))


def make_wait(qos, job="7"):
    """Lets a rule hold the job until some of its requests have waited."""
    ctl(qos, "rule", "start", "slow", f"jobid={{{job}}}", "rate=50", "depth=1")
    names = [qos.dir / f"file-{number}" for number in range(8)]
    as_job(job, "touch", *names)
    assert qos.job(job)["waits"] > 0


def test_status(qos):
    as_job("7", "touch", qos.dir / "x")
    text = ctl(qos, "status")
    assert f"mount     {qos.store.dir} on {qos.dir}, up " in text
    assert f", pid {qos.pid}\n" in text
    assert "policy    tbf, waiting requests: 0\n" in text
    assert re.search(r"^slots +\d+ of 64 in use$", text, re.MULTILINE)

    state = ctl_json(qos, "status")
    assert (state["mountpoint"], state["source"], state["pid"]) == (str(qos.dir), str(qos.store.dir), qos.pid)
    assert state["slots"]["total"] == 64 and state["tunables"]["slots"] == "64"
    assert "jobs" not in state and "rules" not in state


def test_rule_life(qos):
    ctl(qos, "rule", "start", "hog", "jobid={dd.*}", "rate=100", "bps=10M")
    ctl(qos, "rule", "start", "shell", "uid={0 7}&opcode={meta},", "gid={5}", "rate=7", "per=uid", "expire=3600")
    rules = ctl_json(qos, "rule", "list")
    assert [rule["name"] for rule in rules] == ["shell", "hog", "default"]
    assert rules[0]["rate"] == 7 and rules[0]["per"] == "uid" and 0 < rules[0]["expires_in"] <= 3600
    assert (rules[1]["rate"], rules[1]["bps"], rules[1]["conditions"]) == (100, 10 << 20, "jobid={dd.*}")

    ctl(qos, "rule", "change", "hog", "rate=200")
    lines = ctl(qos, "rule", "list").splitlines()
    assert lines[0].split()[:3] == ["RULE", "CONDITIONS", "OPTIONS"]
    assert re.match(r"hog +jobid=\{dd\.\*\} +rate=200 bps=10M ", lines[2])
    assert re.match(r"default +\* +rate=none ", lines[3])

    ctl(qos, "rule", "stop", "shell")
    ctl(qos, "rule", "stop", "hog")
    assert [rule["name"] for rule in ctl_json(qos, "rule", "list")] == ["default"]


def test_rules_are_carried_over(world, qos, new_store, mount):
    """A shell makes of `rule list --commands` the same rules on another mount."""
    for command in ("start meta opcode={meta}&uid={0 7} rate=2000 per=uid", "start exempt jobid={backup.*} passthrough",
                    r"start odd jobid={a\*b é*},host={x} bps=1.5G depth=auto:8M dryrun=1", "start old gid={5} weight=7 min=3 expire=1d",
                    "change meta rank=old", "change default rate=10000 bps=1G"):
        qos.rule(command)
    other = mount(new_store("tmpfs"))
    run("sh", "-e", input=ctl(qos, "rule", "list", "--commands"), cwd=other.dir,
        env=job_environment(None, **SANITIZERS) | {"PATH": f"{world.programs}:/usr/bin:/bin"})
    columns = "name", "conditions", "options"
    lists = [[[rule[column] for column in columns] for rule in ctl_json(each, "rule", "list")] for each in (qos, other)]
    assert lists[0] == lists[1] and [name for name, *_ in lists[0]] == ["meta", "old", "odd", "exempt", "default"]
    rest = ctl_json(other, "rule", "list")[1]["expires_in"]
    assert 86400 - 600 < rest <= 86400
    assert "not both" in ctl(qos, "rule", "list", "-c", "--json", status=USAGE)


@pytest.mark.parametrize("arguments, status, words", [
    (("start", "hog", "jobid={x}"), FAILED, "hog"),             # it exists
    (("start", "a", "rate=5"), FAILED, "rate"),                 # no conditions
    (("start", "a", "color={red}"), FAILED, "color"),
    (("start", "a", "jobid={x}", "rate=fast"), FAILED, "fast"),
    (("start", "a_name_too_long_", "jobid={x}"), FAILED, "a_name_too_long_"),
    (("start", "a", "nid={1@tcp}"), FAILED, "a mount serves one node"),
    (("start", "a", "jobid={x}", "rate"), FAILED, '"rate": rate= takes operations a second'),
    (("change", "hog", "speed=5"), FAILED, "speed"),
    (("change", "nobody", "rate=5"), NOT_FOUND, "nobody"),
    (("stop", "nobody"), NOT_FOUND, "nobody"),
    (("stop", "default"), FAILED, "default"),
    (("start", "a"), USAGE, "CONDITIONS"),
    (("change", "hog"), USAGE, "OPTION=VALUE"),
    (("stop",), USAGE, "NAME"),
    (("stop", "hog", "shell"), USAGE, "shell"),
    (("add", "hog"), USAGE, "start"),
    (("strat", "hog", "jobid={x}"), USAGE, "did you mean 'rule start'?"),
    ((), USAGE, "list, start, change, stop"),
])
def test_rule_errors(qos, arguments, status, words):
    ctl(qos, "rule", "start", "hog", "jobid={dd.*}", "rate=100")
    error = ctl(qos, "rule", *arguments, status=status)
    assert words in error
    if status != USAGE:  # the mount's own reason, and only that
        assert error == f"qosfsctl rule {arguments[0]}: {qos.get('last_error')}\n"
    assert [(rule["name"], rule["rate"]) for rule in ctl_json(qos, "rule", "list")] == [("hog", 100), ("default", 0)]


def test_jobs(qos):
    assert len(ctl(qos, "jobs").splitlines()) >= 1  # none has come yet, or this test's own look
    as_job("quiet", "touch", qos.dir / "a")
    as_job("busy", "touch", *(qos.dir / f"b{number}" for number in range(50)))
    lines = ctl(qos, "jobs").splitlines()
    assert lines[0].split()[:3] == ["JOB", "OP/S", "BYTES/S"]
    names = [line.split()[0] for line in lines[1:]]
    assert names.index("busy") < names.index("quiet")
    jobs = {job["id"]: job for job in ctl_json(qos, "jobs")}
    assert jobs["busy"]["requests"] > jobs["quiet"]["requests"] > 0
    assert jobs["quiet"]["waits"] == 0 and jobs["quiet"]["wait"] == []

    assert [job["id"] for job in ctl_json(qos, "jobs", "--limit=1")] == ["busy"]
    assert len(ctl(qos, "jobs", "-n1").splitlines()) == 2
    ctl(qos, "jobs", "-n", "-1", status=USAGE)
    ctl(qos, "jobs", "-n", "many", status=USAGE)
    ctl(qos, "jobs", "busy", status=USAGE)


def start(world, qos, *arguments, **options):
    return subprocess.Popen([world.programs / "qosfsctl", "-m", qos.dir, *arguments], text=True,
                            env=job_environment("watcher", **SANITIZERS), **options)


def test_watch(world, qos):
    watch = start(world, qos, "jobs", "--watch=0.1", "--json", stdout=subprocess.PIPE)
    json.loads(watch.stdout.readline())
    as_job("late", "touch", qos.dir / "x")
    wait_until(lambda: any(job["id"] == "late" for job in json.loads(watch.stdout.readline())))
    watch.send_signal(signal.SIGINT)
    watch.communicate()
    assert watch.returncode == -signal.SIGINT

    watch = start(world, qos, "jobs", "-w", "100ms", stdout=subprocess.PIPE)
    assert watch.stdout.readline().startswith(f"{qos.dir}  ")
    assert watch.stdout.readline().startswith("JOB ")
    watch.stdout.close()  # a reader that goes away ends it
    assert watch.wait(60) != OK

    for bad in ("0", "-1", "soon", "0.05"):
        ctl(qos, "jobs", f"--watch={bad}", status=USAGE)


def test_watch_ends_with_the_daemon(world, qos):
    watch = start(world, qos, "jobs", "--watch=0.1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    watch.stdout.readline()
    qos.kill(clear=False)
    _, error = watch.communicate(timeout=60)
    assert watch.returncode == FAILED and "is gone" in error


def test_a_daemon_that_hangs(world, qos, tmp_path):
    """A user that waits for it is told what for, once."""
    os.kill(qos.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: is_stopped(qos.pid))
        with open(tmp_path / "error", "w") as error:
            status = start(world, qos, "status", stdout=subprocess.PIPE, stderr=error)
        wait_until((tmp_path / "error").read_text, timeout=60, what="a word about it")
    finally:
        os.kill(qos.pid, signal.SIGCONT)
    text, _ = status.communicate(timeout=60)
    assert status.returncode == OK and text.startswith("mount ")
    error = (tmp_path / "error").read_text()
    assert f"{qos.dir} has not answered for 10 s: its daemon is stopped, or hangs" in error and error.count("\n") == 1


def test_why(qos):
    make_wait(qos)
    text = ctl(qos, "why", "7")
    job = qos.job("7")
    assert re.match(rf"Job 7 waited .*: {job['waits']} of its {job['requests']} requests had to \(", text)
    assert re.search(r"^Rule slow made \d+ requests? wait, ", text, re.MULTILINE)
    assert "  It allows 50 op/s to each job; it is for jobid={7}.\n" in text
    assert "The store took " in text

    why = ctl_json(qos, "why", "7")
    assert why["job"]["id"] == "7" and why["job"]["wait"][0]["rule"] == "slow"
    assert [rule["name"] for rule in why["rules"]] == ["slow"]

    ctl(qos, "rule", "stop", "slow")
    assert "  There is no such rule any more.\n" in ctl(qos, "why", "7")


def test_why_while_it_waits(qos):
    """Of a job that nothing has gone for yet, too."""
    (qos.dir / "file").write_text("x")
    qos.rule("start stop opcode={open} rate=1 depth=1")
    readers = [start_job("7", "cat", qos.dir / "file") for _ in range(5)]
    wait_until(lambda: (qos.job("7") or {"waiting": 0})["waiting"] > 0)
    text = ctl(qos, "why", "7")
    assert "for rule stop" in text and "It allows 1 op/s to each job; it is for opcode={open}.\n" in text
    ctl(qos, "rule", "stop", "stop")
    assert all(reader.wait(60) == 0 for reader in readers)


def test_why_without_waiting(qos):
    as_job("1234", "touch", qos.dir / "x")
    assert re.match(r"Job 1234 never waited: all its \d+ requests ", ctl(qos, "why", "1234"))
    assert "did you mean '1234'?" in ctl(qos, "why", "1243", status=NOT_FOUND)
    assert "did you mean '1234'?" in ctl(qos, "why", "123", status=NOT_FOUND)
    assert "'qosfsctl jobs' lists" in ctl(qos, "why", "something", status=NOT_FOUND)
    assert "'-x'" in ctl(qos, "why", "--", "-x", status=NOT_FOUND)
    assert "'qosfsctl jobs' lists them" in ctl(qos, "why", status=USAGE)
    ctl(qos, "why", "1234", "1235", status=USAGE)


def test_policy(qos):
    def started():
        return [policy["name"] for policy in ctl_json(qos, "policy") if policy["state"] == "started"]

    assert started() == ["tbf"]
    for name in ("fifo", "grr", "jrr", "tbf"):
        ctl(qos, "policy", name)
        assert started() == [name]
        assert re.search(rf"^{name} +started ", ctl(qos, "policy"), re.MULTILINE)
        assert ctl(qos, "get", "nrs_policies") == f"{name}\n"
    assert "did you mean 'fifo'?" in ctl(qos, "policy", "ffio", status=NOT_FOUND)
    assert "did you mean 'tbf'?" in ctl(qos, "policy", "TBF", status=NOT_FOUND)
    assert "'qosfsctl policy' lists" in ctl(qos, "policy", "lottery", status=NOT_FOUND)
    assert started() == ["tbf"]


def test_rules_of_another_policy(qos):
    """They are kept, and a user that sets or lists them is told that they are not in force."""
    def notes(*words):
        done = qos.ctl("rule", *words, check=False)
        assert done.returncode == OK
        return done.stderr
    assert notes("start", "hog", "jobid={x}", "rate=5") == notes("list") == ""
    ctl(qos, "policy", "jrr")
    for words in (("change", "hog", "rate=6"), ("list",)):
        assert f"qosfsctl rule {words[0]}: note: the policy is not tbf, so that no rule is in force" in notes(*words)


def test_shares_of_a_store_that_is_not_shared(qos):
    """A user that sets weight= or min= is told that they do nothing."""
    def note(*words):
        done = qos.ctl("rule", *words, check=False)
        assert done.returncode == OK
        return done.stderr
    assert "the store is not shared, so that weight= and min= do nothing" in note("start", "hog", "jobid={x}", "weight=5")
    assert "do nothing" in note("change", "hog", "min=5", "weight=none")
    assert note("change", "hog", "min=none") == ""
    ctl(qos, "set", "adapt", "fair")
    assert note("change", "hog", "weight=5") == ""


def test_settings(qos):
    lines = ctl(qos, "get").splitlines()
    assert "slots=64" in lines and "jobid_var=auto" in lines
    assert ctl_json(qos, "get")["slots"] == "64" and ctl_json(qos, "get", "slots") == "64"
    ctl(qos, "set", "slots=13")
    assert ctl(qos, "get", "slots") == "13\n"
    ctl(qos, "set", "slots", "12")
    assert ctl(qos, "get", "slots") == "12\n"
    assert qos.state()["slots"]["total"] == 12
    ctl(qos, "set", "slots", "default")
    ctl(qos, "set", "jobid_name=default")
    assert ctl(qos, "get", "slots") == "64\n" and ctl(qos, "get", "jobid_name") == "%j?%e.%u\n"
    ctl(qos, "set", "slots", "12")

    assert "did you mean 'slots'?" in ctl(qos, "set", "slot", "1", status=NOT_FOUND)
    ctl(qos, "get", "colour", status=NOT_FOUND)
    ctl(qos, "set", "nrs_tbf_rule", "start a jobid={x}", status=NOT_FOUND)
    for bad in ("0", "many", ""):
        error = ctl(qos, "set", "slots", bad, status=FAILED)
        assert error == f"qosfsctl set: {qos.get('last_error')}\n"
    assert ctl(qos, "get", "slots") == "12\n"
    ctl(qos, "set", "slots", status=USAGE)
    ctl(qos, "set", "slots", "1", "--json", status=USAGE)


def test_clear(qos):
    for job in ("one", "two"):
        as_job(job, "touch", qos.dir / job)
        qos.wait_booked(job, create=1, close=1)
    ctl(qos, "clear", "one")
    assert (qos.job("one") or {"requests": 0})["requests"] == 0
    assert qos.job("two")["requests"] > 0
    assert "did you mean 'two'?" in ctl(qos, "clear", "tow", status=NOT_FOUND)
    ctl(qos, "clear", status=USAGE)
    ctl(qos, "clear", "two", "--all", status=USAGE)
    assert qos.job("two")["requests"] > 0
    ctl(qos, "clear", "--all")
    assert (qos.job("two") or {"requests": 0})["requests"] == 0


def test_jobs_named_oddly_are_cleared_alone(qos):
    """One that is called as the word for all, or has blanks at its ends or quotes, by its id or as it is shown."""
    names = ["clear", " a ", '"b"', "\\x41", "ä", "other"]
    for job in names:
        as_job(job, "touch", qos.dir / "file")
        qos.wait_booked(job, close=1)
    for name, shown in zip(names, ["clear", " a ", '"b"', "\\x5cx41", "\\u00E4"]):
        ctl(qos, "clear", shown)
        assert not (job := qos.job(name)) or job["requests"] == 0, name
    assert qos.job("other")["requests"] > 0
    assert "no job" in ctl(qos, "clear", "x" * 100, status=NOT_FOUND)


@pytest.mark.parametrize("command, files, xattrs", [
    ("status", ["status.json"], []),
    ("jobs", ["jobs.json"], []),
    ("jobs --limit=1", ["jobs.json"], []),
    ("jobs --json", ["state.json"], []),
    ("why 7", [], ["job.7"]),
    ("why 7 --json", [], ["job.7"]),
    ("report --csv", ["history"], []),
    ("report", ["history", "status.json"], []),
    ("clear 7", ["job_stats"], []),
    ("clear --all", ["job_stats"], []),
    ("rule list", ["rules.json"], []),
    ("rule list --json", ["rules.json"], []),
    ("rule list --commands", ["rules.json"], []),
    ("rule start a jobid={x} rate=1", ["rules.json"], ["nrs_tbf_rule"]),
    ("rule change known rate=2", ["rules.json"], ["nrs_tbf_rule"]),
    ("rule stop known", ["rules.json"], ["nrs_tbf_rule"]),
    ("policy", ["status.json"], []),
    ("policy fifo", ["status.json"], ["nrs_policies"]),
    ("get", ["status.json"], []),
    ("get slots", ["status.json"], []),
    ("set slots 5", ["status.json"], ["slots"]),
])
def test_a_command_asks_for_what_it_shows(world, qos, tmp_path, command, files, xattrs):
    """And for nothing else, as with thousands of jobs all of the state is megabytes."""
    as_job("7", "touch", qos.dir / "file")
    qos.rule("start known jobid={y} rate=1")
    trace = tmp_path / "trace"
    environment = job_environment(None, **SANITIZERS)
    environment["ASAN_OPTIONS"] += ":detect_leaks=0"  # that cannot be done under strace
    run("strace", "-f", "-qq", "-e", "trace=openat,getxattr,setxattr", "-o", trace, world.programs / "qosfsctl", "-m", qos.dir,
        *command.split(), env=environment)
    assert re.findall(rf'"{qos.dir}/\.qosfs/([^"]*)"', trace.read_text()) == files
    assert re.findall(r'"user\.qosfs\.([^"]*)"', trace.read_text()) == xattrs


def test_parts_of_the_state(qos):
    """Each says the same of what it has, and is short of the rest."""
    make_wait(qos)
    as_job("8", "touch", qos.dir / "x")
    parts = {name: json.loads(qos.report(f"{name}.json")) for name in ("state", "status", "rules", "jobs")}
    state = parts["state"]
    of_job = json.loads(os.getxattr(qos.dir, "user.qosfs.job.7"))
    assert (parts["status"]["rules"], parts["status"]["jobs"], parts["rules"]["jobs"], parts["jobs"]["rules"]) == ([], [], [], [])
    for part in (*parts.values(), of_job):
        assert part["tunables"] == state["tunables"] and part["mountpoint"] == str(qos.dir)
    assert parts["status"]["counts"]["rules"] == len(state["rules"]) and parts["status"]["counts"]["jobs"] == len(state["jobs"])
    assert [rule["name"] for rule in parts["rules"]["rules"]] == ["slow", "default"]
    assert [rule["name"] for rule in of_job["rules"]] == ["slow"]
    (job,) = of_job["jobs"]
    assert job.keys() == state["jobs"][0].keys() and job["id"] == "7" and job["requests"] == qos.job("7")["requests"]
    brief = {job["id"]: job for job in parts["jobs"]["jobs"]}
    assert brief.keys() == {job["id"] for job in state["jobs"]}
    assert [wait["rule"] for wait in brief["7"]["wait"]] == ["slow"] and "operations" not in brief["7"]
    for name in ("job.no-such", "job."):
        with pytest.raises(OSError, match="No data"):
            os.getxattr(qos.dir, f"user.qosfs.{name}")
    for name in ("job.7", "daemon"):
        with pytest.raises(OSError):
            qos.set(name, "1")
    assert qos.get("daemon").split()[0] == str(qos.pid)


def test_hostile_job(qos):
    """A user that names a job can not reach the terminal of another that looks at it."""
    as_job("\x1b[31mred\r\n\x07", "touch", qos.dir / "x")
    name = next(job["id"] for job in qos.state()["jobs"] if "red" in job["id"])
    for command in (("jobs",), ("why", name)):
        assert all(character.isprintable() or character == "\n" for character in ctl(qos, *command))
    shown = next(line.split()[0] for line in ctl(qos, "jobs").splitlines() if "red" in line)
    shown, named = (ctl(qos, "why", job).split(" First seen ")[0] for job in (shown, name))  # that changes with time
    assert shown == named


@pytest.mark.parametrize("arguments", [("why",), ("policy",), ("get",)])
def test_what_there_is_not_is_shown_escaped(qos, arguments):
    assert r"'a\x1b[2Jb'" in ctl(qos, *arguments, "a\x1b[2Jb", status=NOT_FOUND)


@pytest.mark.parametrize("arguments, words", [
    ((), "which command?"),
    (("stauts",), "did you mean 'status'?"),
    (("stat",), "did you mean 'status', 'server status' or 'cluster status'?"),
    (("frobnicate",), "there is no command 'frobnicate'; there are: status, jobs, "),
    (("list",), "did you mean 'rule list', 'cluster job list' or 'cluster rule list'?"),
    (("rules",), "did you mean 'rule'?"),
    (("rule", "frobnicate"), "there is no command 'rule frobnicate'; there are: list, start, change, stop"),
    (("report", "-o", ""), "--output: the name of the file is empty"),
    (("server", "status", "--socket", ""), "--socket: the path is empty"),
    (("why", "--", "--all", "x"), "'x'"),
    (("status", "now"), "'now'"),
    (("status", "--colour"), "--colour"),
    (("--colour", "status"), "--colour"),
    (("jobs", "--mount"), "mount"),
    (("set", "capacity", "-5"), "Unknown option -5; an argument that begins with - stands after --"),
    (("rule", "start", "-hog", "jobid={x}"), "Unknown option -hog; "),
    (("-hog", "status"), "Unknown option -hog; "),
    (("jobs", "--wacth"), "Unknown option --wacth; did you mean '--watch'?"),
    (("jobs", "--jsno"), "'--json'?"),
    (("--mout", "x", "status"), "'--mount'?"),
    (("report", "--frobnicate"), "Unknown option --frobnicate; an argument that begins"),
])
def test_usage(qos, arguments, words):
    assert words in ctl(qos, *arguments, status=USAGE)


@pytest.mark.parametrize("words, offered", [
    (("",), {"status", "rule", "server", "set"}),
    (("rule", "sto"), {"stop"}),
    (("server", ""), {"status", "mounts", "get", "set", "metrics", "evict"}),
    (("jobs", "--w"), {"--watch"}),
    (("-m", "DIR", "rule", "stop", "h"), {"hog"}),
    (("-m", "DIR", "rule", "change", "hog", "r"), {"rate=", "rank="}),
    (("-m", "DIR", "rule", "start", "new", "uid={1}", "bps", "=", "1M", "e"), {"expire="}),
    (("-m", "DIR", "rule", "change", "hog", "rate", "="), set()),
    (("-m", "DIR", "set", "slots", ""), set()),
    (("--mount", "=", "DIR", "why", "a"), {r"a\ b"}),
    (("-m", "DIR", "get", "slo"), {"slots"}),
    (("-m", "DIR", "policy", "f"), {"fifo"}),
    (("-m", "DIR/.qo"), set()),
])
def test_completion(world, qos, words, offered):
    qos.rule("start hog jobid={x} rate=1")
    as_job("a b", "touch", qos.dir / "x")
    code = 'timeout() { shift; "$@"; }; source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _qosfsctl; printf "%s\\n" "${COMPREPLY[@]}"'
    words = [word.replace("DIR", str(qos.dir)) for word in words]
    text = run("bash", "-c", code, REPOSITORY / "dist/qosfsctl.bash", world.programs / "qosfsctl", *words,
               env=job_environment(None, **SANITIZERS))
    got = set(filter(None, text.splitlines()))
    assert offered <= got if words == [""] else offered == got


def test_help(qos):
    text = ctl(qos, "--help")
    commands = re.findall(r"^  ((?:cluster )?(?:rule |server |job )?[a-z]+) ", text.split("Commands:")[1], re.MULTILINE)
    assert {"status", "jobs", "why", "clear", "rule list", "rule start", "policy", "get", "set"} <= set(commands)
    assert ctl(qos, "help") == text
    for command in commands:
        assert ctl(qos, *command.split(), "--help").startswith(f"Usage:\n  qosfsctl {command} ")
    assert ctl(qos, "help", "rule", "start") == ctl(qos, "rule", "start", "--help")
    done = ctl(qos, "rule", "start", "new", "uid={1}", "unheard=of", status=FAILED)
    of_mounts, of_clusters = (re.findall(r"^  ([a-z]+=)", ctl(qos, *words, "rule", "start", "--help"), re.MULTILINE) for words in ((), ("cluster",)))
    both = of_mounts + ["scope="] + [name for name in of_clusters if name not in of_mounts]
    assert both == re.findall(r"\b[a-z]+=(?=[, ]|$)", done)
    assert ctl(qos, "rule", "--help").startswith("Commands:\n  rule list ")
    assert ctl(qos, "help", "rule") == ctl(qos, "rule", "-h")
    assert re.fullmatch(r"qosfsctl \d+\.\d+\.\d+\n", ctl(qos, "--version"))


def test_ordinary_user(qos):
    """An ordinary user may look at everything and change nothing."""
    make_wait(qos)
    him = {"user": USER, "group": USER, "extra_groups": []}
    before = ctl_json(qos, "rule", "list"), ctl_json(qos, "get")
    for command in (("status",), ("jobs",), ("why", "7"), ("rule", "list"), ("policy",), ("get",)):
        assert ctl(qos, *command, **him)
        json.loads(ctl(qos, *command, "--json", **him))
    for command in (("rule", "start", "mine", "uid={0}", "rate=1"), ("rule", "stop", "slow"), ("policy", "fifo"),
                    ("set", "slots", "1"), ("clear", "7"), ("clear", "--all")):
        assert "only root, or " in ctl(qos, *command, status=FAILED, **him)
    after = ctl_json(qos, "rule", "list"), ctl_json(qos, "get")
    assert [rule["name"] for rule in after[0]] == [rule["name"] for rule in before[0]] and after[1] == before[1]
    assert qos.job("7")["requests"] > 0


def test_own_mount(new_store, mount):
    """The user that mounted it sets its rules, without root."""
    store = new_store("tmpfs")
    os.chown(store.dir, USER, USER)
    qos = mount(store, user=USER)
    him = {"user": USER, "group": USER, "extra_groups": []}
    ctl(qos, "rule", "start", "mine", "opcode={meta}", "rate=1000", **him)
    assert "mine" in ctl(qos, "rule", "list", **him)
    ctl(qos, "set", "slots", "8", **him)
    assert ctl(qos, "get", "slots", **him) == "8\n"
    ctl(qos, "clear", "--all", **him)
    refused = ctl(qos, "status", status=FAILED)  # root, which the kernel keeps out
    assert "without the option allow_other only the user that mounted it may use it" in refused


def test_own_mount_of_somebody_elses_store(new_store, mount):
    """The kernel lets the user set nothing, although that user mounted: the error says what the kernel wants."""
    qos = mount(new_store("tmpfs"), user=USER)
    him = {"user": USER, "group": USER, "extra_groups": []}
    assert "and may write to that directory" in ctl(qos, "set", "slots", "8", status=FAILED, **him)


def test_read_only_mount(new_store, mount):
    """The kernel itself refuses changes there; the message says what to do."""
    qos = mount(new_store("tmpfs"), options="ro")
    assert ctl(qos, "rule", "list")
    assert "read-only" in ctl(qos, "rule", "start", "a", "uid={0}", "rate=1", status=FAILED)


def test_dead_daemon(world, qos):
    inside = qos.dir / "inside"
    inside.mkdir()
    qos.kill(clear=False)

    def is_dead():
        try:
            os.stat(qos.dir)
        except OSError as error:
            return error.errno == 107  # ENOTCONN
        return False

    wait_until(is_dead)
    for command in (("status",), ("jobs",), ("jobs", "--watch"), ("why", "7"), ("rule", "list"),
                    ("rule", "stop", "x"), ("policy", "fifo"), ("set", "slots", "1"), ("clear", "--all")):
        error = ctl(qos, *command, status=FAILED)
        assert "the daemon behind" in error and f"'umount {qos.dir}'" in error
    done = subprocess.run([world.programs / "qosfsctl", "-m", inside, "status"], text=True, capture_output=True,
                          env=job_environment(None, **SANITIZERS), timeout=60)
    assert done.returncode == FAILED and "is gone" in done.stderr


def run_among(world, mounts, *arguments, **options):
    """Runs qosfsctl where only these mounts exist."""
    keep = " ".join(str(mount.dir) for mount in mounts)
    return subprocess.run(["unshare", "-m", "sh", "-c", KEEP_MOUNTS, "sh", keep, world.programs / "qosfsctl", *arguments],
                          text=True, capture_output=True, timeout=60, env=job_environment(None, **SANITIZERS), **options)


def test_which_mount(world, new_store, mount, tmp_path):
    first, second = mount(new_store("tmpfs")), mount(new_store("tmpfs"))
    (first.dir / "below").mkdir()
    link = tmp_path / "link"
    link.symlink_to(second.dir)

    def mountpoint(done):
        assert done.returncode == OK, done.stderr
        return json.loads(done.stdout)["mountpoint"]

    status = ("status", "--json")
    # The current directory's, or the one asked for, by any name that leads into it.
    assert mountpoint(run_among(world, [first, second], *status, cwd=first.dir / "below")) == str(first.dir)
    assert mountpoint(run_among(world, [first, second], *status, "-m", second.dir, cwd=first.dir)) == str(second.dir)
    assert mountpoint(run_among(world, [first, second], "-m", first.dir / "below", *status)) == str(first.dir)
    assert mountpoint(run_among(world, [first, second], "-m", link, *status)) == str(second.dir)
    # The only one; or an error.
    assert mountpoint(run_among(world, [second], *status, cwd="/")) == str(second.dir)
    several = run_among(world, [first, second], *status, cwd="/")
    assert several.returncode == NOT_FOUND and str(first.dir) in several.stderr and str(second.dir) in several.stderr
    none = run_among(world, [], *status, cwd="/")
    assert none.returncode == NOT_FOUND and "mount.qosfs SRC DIR" in none.stderr
    for elsewhere in ("/", tmp_path / "missing"):
        assert run_among(world, [first], *status, "-m", elsewhere).returncode == NOT_FOUND


def on_terminal(world, qos, *words, **environment):
    """What a command shows on a terminal of 50 columns, in lines."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    environment = {"TERM": "xterm", "NO_COLOR": "", **environment}
    subprocess.run([world.programs / "qosfsctl", "-m", qos.dir, *words], env=job_environment(None, **SANITIZERS, **environment),
                   stdout=slave, check=True, timeout=60)
    text = os.read(master, 65536).decode()
    os.close(slave)
    os.close(master)
    return text.replace("\r\n", "\n").splitlines()


def test_terminal(world, qos):
    """On a terminal a table is as wide as that, with a bold header; elsewhere it is plain and whole."""
    name = "a_job_with_a_name_that_is_quite_long_indeed"
    as_job(name, "touch", qos.dir / "x")
    assert name in ctl(qos, "jobs") and "\x1b" not in ctl(qos, "jobs")
    for plain in ({"TERM": "dumb"}, {"NO_COLOR": "1"}):
        assert on_terminal(world, qos, "jobs", **plain)[0].startswith("JOB ")
    lines = on_terminal(world, qos, "jobs")
    assert lines[0].startswith("\x1b[1mJOB ") and lines[0].endswith("\x1b[0m")
    assert any(line.startswith("a_job_with_") and "~" in line for line in lines)
    assert all(len(re.sub(r"\x1b\[\d*m", "", line)) <= 50 for line in lines)


def test_output_that_can_not_be_written(world, qos):
    with open("/dev/full", "w") as full:
        done = start(world, qos, "status", stdout=full, stderr=subprocess.PIPE)
        _, error = done.communicate(timeout=60)
        help = start(world, qos, "jobs", "--help", stdout=full, stderr=subprocess.PIPE)
        _, error_of_help = help.communicate(timeout=60)
    assert done.returncode == help.returncode == FAILED and "cannot write" in error and "cannot write" in error_of_help
