"""job_stats as the public consumers of Lustre's read it: their logic, written anew, must find the mount's own figures."""
import re
import string
import sys

import pytest
import yaml

from harness import as_job, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

# Two operations of each kind that has a name at the end of another's, or none; sizes that no time can be.
WORK = """
import os, sys
path = sys.argv[1]
with open(path, "wb", buffering=0) as file:
    for _ in range(3):
        file.write(b"x" * 1000003)
with open(path, "rb", buffering=0) as file:
    while file.read(1000003):
        pass
if "link" in sys.argv[2]:
    os.link(path, path + ".link")
    os.unlink(path + ".link")
if "symlink" in sys.argv[2]:
    os.symlink("x", path + ".symlink")
    os.readlink(path + ".symlink")
    os.unlink(path + ".symlink")
os.setxattr(path, "user.a", b"1")
os.mkdir(path + ".folder")
os.listdir(path + ".folder")
os.rmdir(path + ".folder")
os.rename(path, path + ".new")
os.unlink(path + ".new")
"""

# What lustre_exporter (HewlettPackard's, and GSI's after it) looks for.
OPERATIONS = ("open close mknod link unlink mkdir rmdir rename getattr setattr getxattr setxattr statfs sync samedir_rename "
              "crossdir_rename punch destroy create get_info set_info quotactl").split()


@pytest.fixture
def worked(store, mount):
    qos = mount(store, "cache=none")
    for job, what in (("4711", "none"), ("4712", "symlink"), ("4713", "link"), ("a:b", "link symlink")):
        as_job(job, sys.executable, "-c", WORK, qos.dir / f"file-{job}", what)
        qos.wait_booked(job, close=2)
    return qos


def expected(qos, jobid):
    """(operations, bytes read, bytes written), by the mount's own report."""
    job = qos.job(jobid)
    return {name: value["samples"] for name, value in job["operations"].items()}, job["read_bytes"], job["write_bytes"]


def search_first(pattern, text):
    found = re.search(pattern, text)
    return found[0] if found else ""


def numbers(text):
    return re.findall(r"[0-9]*\.[0-9]+|[0-9]+", text)


@pytest.mark.parametrize("blocks, jobid", [
    (r"(?ms:job_id:.*?(?:-|\Z))", lambda block: numbers(search_first("job_id: .*", block))[:1]),
    (r"(?ms:job_id:.*?$.*?(?:-|\Z))", lambda block: re.search(r'job_id:[ \t]*"?([^"\n\r]*)"?', block).groups()),
], ids=["HewlettPackard", "GSI"])
def test_lustre_exporter(worked, blocks, jobid):
    """A job is what stands from "job_id:" to the next hyphen, an operation the first that its name and a colon are found in."""
    found = {tuple(jobid(block)): block for block in re.findall(blocks, worked.report("job_stats"))}
    for name in ("4711", "4712", "4713"):
        block = found[(name,)]
        operations, read, written = expected(worked, name)
        for operation in OPERATIONS:
            figures = numbers(search_first(operation + ": .*", block))
            assert int(figures[0] if figures else 0) == operations.get(operation, 0), operation
        for key, total in (("read_bytes", read), ("write_bytes", written)):
            samples, least, most, sum_of_all, *_ = map(int, numbers(search_first(key + ": .*", block)))
            assert (samples >= 3, most, sum_of_all) == (True, 1000003, total) and least in (0, 1000003)


def test_telegraf(worked):
    """Jobs are split at "- ", lines at blanks and colons; of `read` and `read_bytes`, the later line is the one."""
    seen = {}
    for job in worked.report("job_stats").split("- "):
        lines = job.split("\n")
        first = lines[0].split()
        fields = seen.setdefault(first[1] if first[0].removesuffix(":") == "job_id" else "", {})
        for line in filter(None, lines):
            parts = re.split("[ :]+", line)
            parts = parts if parts[0] else parts[1:]
            if parts[0] in ("read", "read_bytes", "write", "write_bytes"):
                kind = parts[0].removesuffix("_bytes")
                for name, column in (("calls", 3), ("min", 7), ("max", 9), ("bytes", 11)):
                    fields[f"{kind}_{name}"] = int(parts[column].removesuffix(","))
            elif parts[0] in OPERATIONS:
                fields[parts[0]] = int(parts[3].removesuffix(","))
    for name, shown in (("4711", "4711"), ("4712", "4712"), ("a:b", '"a:b"')):
        operations, read, written = expected(worked, name)
        fields = seen[shown]
        assert (fields["read_bytes"], fields["write_bytes"], fields["write_calls"]) == (read, written, 3)
        assert (fields["read_max"], fields["write_min"], fields["write_max"]) == (1000003,) * 3
        for operation in OPERATIONS:
            assert fields.get(operation, 0) == operations.get(operation, 0), operation


def test_lustrefs_exporter(worked):
    """Line by line, each with an expression for the whole."""
    stat = re.compile(r"^  (?P<stat>[a-z_]+): +\{ samples: +([0-9]+), unit: +([a-z]+), min: +([0-9]+), max: +([0-9]+), "
                      r"sum: +([0-9]+), sumsq: +([0-9]+)")
    header, *lines = worked.report("job_stats").splitlines()
    assert header == "job_stats:"
    seen, job = {}, None
    for line in lines:
        if line.startswith("- job_id:"):
            job = seen.setdefault(line.replace("- job_id:", "").replace('"', "").strip(), {})
        elif not line.startswith(("  start_time:", "  elapsed_time:", "  snapshot_time:")):
            found = stat.match(line)
            assert found, line
            job[found["stat"]] = [int(found[2]), int(found[6])]
    for name in ("4711", "4712", "a:b"):
        operations, read, written = expected(worked, name)
        assert seen[name]["read_bytes"][1] == read and seen[name]["write_bytes"][1] == written
        assert {key: value[0] for key, value in seen[name].items() if value[0] and not key.endswith("_bytes")} == operations


def test_idle_jobs_are_told_from_busy_ones(store, mount):
    """snapshot_time is when a job was last active, and elapsed_time ends there: rates are of the time in which it worked."""
    def times(job):
        stats = next(each for each in yaml.safe_load(qos.report("job_stats"))["job_stats"] if each["job_id"] == job)
        return [float(stats[name].split()[0]) for name in ("snapshot_time", "start_time", "elapsed_time")]

    qos = mount(store, "cache=none")
    for job in ("idle", "busy"):
        as_job(job, "touch", qos.dir / "file")
        qos.wait_booked(job, close=1)
    idle, busy = times("idle"), times("busy")
    wait_until(lambda: qos.state()["now"] > idle[0] + 0.1, what="time to pass")
    as_job("busy", "touch", qos.dir / "file")
    qos.wait_booked("busy", close=2)
    assert times("idle") == idle and times("busy")[1] == busy[1] and times("busy")[0] > busy[0]
    for snapshot, start, elapsed in (idle, times("busy")):
        assert elapsed == pytest.approx(snapshot - start, abs=1e-5)


TRICKY = ["-", "~", "null", "NULL", "true", "Yes", "off", "n", "1e3", "0x10", "0o17", "0b1", "010", "1_000", "1.5", ".5", "-5", "+5",
          ".inf", ".nan", "12:30:45", "2026-11-27", "2026-13-45", "[a", "{a", "#", "a #b", ": ", "a: b", "a:", " a", "a ", "?", "@a",
          "`a", "%a", "!a", "&a", "*a", "'a'", '"a"', "|", ">", "=", "<<", "---", "...", "- a", "a,b", "\\", "\\x41", "a\tb", "a\nb",
          "a\x1b[31mb", "a\x7fb", "a\x80b", "a\u2028b", "a\u202eb", "\ufeffa", "ä", "日本", "😀", "clear", "job_stats:", "x-job_id: 7",
          "9" * 40, "nvidia-smi.0", "123[4].server", *string.punctuation]
PLAIN = ["4711", "0", "4711.batch", "dd.0", "a.b@c-d_e/f"]


def test_no_name_of_a_job_breaks_yaml(store, mount):
    """Each is read back as it is, and taken back as it is shown; a scheduler's number stays one."""
    qos = mount(store, "cache=none,adapt=fair")
    for name in [*TRICKY, *PLAIN, "a\udcff\udcfeb"]:
        as_job(name, "touch", qos.dir / "file")
    ids = {job["id"] for job in qos.state()["jobs"]}
    text = qos.report("job_stats")
    assert text.isascii() and all(line.isprintable() for line in text.splitlines())
    for report, list_of_jobs in (("job_stats", "job_stats"), ("shares", "shares")):
        read = [job["job_id"] for job in yaml.safe_load(qos.report(report))[list_of_jobs]]
        assert {str(name) for name in read} == ids and len(read) == len(ids)
        assert all(isinstance(name, str) for name in read if report != "job_stats" or str(name) not in ("4711", "0"))
    shown = dict(zip([str(job["job_id"]) for job in yaml.safe_load(text)["job_stats"]], re.findall(r"^- job_id: +(.*)$", text, re.M)))
    assert [shown[name] for name in PLAIN] == PLAIN
    assert shown["123[4].server"] == r'"123\x5B4\x5D.server"'
    for name in sorted({*TRICKY, *PLAIN} & ids, key=lambda name: name != "clear"):
        assert qos.job(name)["requests"], "only the job of that name was cleared"
        (qos.dir / ".qosfs/job_stats").write_text(shown[name] + "\n")
        assert not (job := qos.job(name)) or not job["requests"], name
