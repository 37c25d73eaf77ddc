"""Real programs on a real mount: what they wrote is on the store, byte for byte."""
import filecmp
import hashlib
import os
import pathlib
import subprocess

import pytest

from harness import REPOSITORY, USER, as_job, job_environment, run, start_job

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b",
}

MAKEFILE = """\
CFLAGS = -O1 -std=gnu17 -D_GNU_SOURCE -I. -include base/pure.h $(shell pkg-config --cflags glib-2.0)
objects = $(patsubst %.c,%.o,$(wildcard base/*.c))
test: test.o libbase.a
\t$(CC) -o $@ $^ $(shell pkg-config --libs glib-2.0) -lm
test.o: CFLAGS = -O1 -std=gnu17 -D_GNU_SOURCE -I. $(shell pkg-config --cflags glib-2.0)
libbase.a: $(objects)
\t$(AR) rcD $@ $^
"""


@pytest.fixture(params=[None, USER], ids=["root", "user"])
def who(request):
    """The user that runs the programs, as options of run() and as_job()."""
    return {} if request.param is None else {"user": USER, "group": USER, "extra_groups": []}


def sums(folder):
    """Path -> checksum of each regular file below a folder."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()}


def listing(folder, **options):
    """What find(1) tells of all below a folder, but for the times of access."""
    text = run("find", folder, "-mindepth", "1", "-printf", r"%P %y %m %n %U %G %s %b %T@ %l\n", **options)
    return sorted(text.splitlines())


def make_tree(top):
    """Files of many kinds and sizes."""
    top.mkdir()
    for number, size in enumerate([0, 1, 4095, 4096, 4097, 131072, 1048577]):
        (top / f"file-{number}").write_bytes(hashlib.shake_128(bytes([number])).digest(size))
    with open(top / "sparse", "wb") as file:
        file.seek(5 << 20)
        file.write(b"end")
    deep = top
    for depth in range(12):
        deep = deep / f"folder-{depth}"
        deep.mkdir(mode=0o755 - depth % 2)
        (deep / "note").write_text(str(depth))
    (top / ("long-" + "n" * 240)).write_text("long")
    (top / "odd\n name\t\\é").write_text("odd")
    (top / "executable").write_text("#!/bin/sh\n")
    (top / "executable").chmod(0o751)
    (top / "shared").mkdir()
    (top / "shared").chmod(0o2775)
    os.link(top / "file-3", top / "hard-link")
    os.symlink("file-3", top / "link")
    os.symlink("no/such/file", top / "dangling")
    os.mkfifo(top / "fifo")
    os.setxattr(top / "file-2", "user.colour", b"blue")
    os.utime(top / "file-4", ns=(1_000_000_001, 1_234_567_890_123_456_789))
    many = top / "many"
    many.mkdir()
    for number in range(500):
        (many / f"{number:04}").write_text(str(number))


@pytest.fixture
def tree(world, who):
    """A tree of files outside the store, owned by the user that runs the programs."""
    top = world.folder("tree") / "tree"
    make_tree(top)
    if who:
        run("chown", "-hR", f"{USER}:{USER}", top)
        (top / "shared").chmod(0o2775)  # chown takes the bit off
    return top


@pytest.mark.parametrize("options", ["cache=auto", "cache=none", "cache=always"])
def test_fio_verifies(store, mount, options):
    """Random and sequential writes by several processes, verified through the mount and then on the store."""
    qos = mount(store, options)
    jobs = [("random", "randrw", "4k"), ("mixed", "randrw", "512-128k"), ("stream", "rw", "1m")]

    def fio(folder, *arguments):
        words = []
        for name, pattern, size in jobs:
            words += [f"--name={name}", f"--rw={pattern}", f"--bsrange={size}" if "-" in size else f"--bs={size}",
                      f"--filename={folder}/{name}", "--size=8m"]
        return ["fio", "--ioengine=psync", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--randseed=7",
                "--verify_state_save=0", *arguments, *words]

    as_job("41", *fio(qos.dir), cwd=qos.db.parent)
    assert qos.job("41")["write_bytes"] >= 3 * (4 << 20)
    qos.unmount()
    assert {path.name for path in store.dir.iterdir()} == {name for name, _, _ in jobs}
    run(*fio(store.dir, "--verify_only"), cwd=qos.db.parent)


def test_git_clone_and_build(store, mount, world, who):
    """A clone through the mount is whole, and what a compiler makes there is what it makes on the store."""
    qos = mount(store)
    origin = world.folder("origin", 0o777) / "origin"
    options = {"env": job_environment("42", **GIT), **who}
    run("git", "init", "-q", origin, **options)
    (origin / "base").mkdir(mode=0o777)
    for source in (REPOSITORY / "base").glob("*.[ch]"):
        (origin / "base" / source.name).write_bytes(source.read_bytes())
    (origin / "test.c").write_bytes((REPOSITORY / "tests/unit/test_heap.c").read_bytes())
    (origin / "Makefile").write_text(MAKEFILE)
    if who:
        run("chown", "-R", f"{USER}:{USER}", origin)
    run("git", "-C", origin, "add", ".", **options)
    run("git", "-C", origin, "commit", "-qm", "all", **options)

    run("git", "clone", "-q", f"file://{origin}", qos.dir / "clone", **options)
    run("git", "-C", qos.dir / "clone", "fsck", "--strict", **options)
    run("make", "-j4", "-C", qos.dir / "clone", "test", **options)
    run(qos.dir / "clone" / "test", **options)
    assert run("git", "-C", qos.dir / "clone", "status", "--porcelain", "-uno", **options) == ""
    assert qos.job("42")["requests"] > 100

    run("make", "-j4", "-C", origin, "test", **options)
    assert sums(store.dir / "clone" / "base") == sums(origin / "base")
    assert filecmp.cmp(store.dir / "clone" / "test", origin / "test", shallow=False)
    for path in (store.dir / "clone").rglob("*"):
        assert path.lstat().st_uid == who.get("user", 0), path


def test_tar_both_ways(store, mount, tree, who):
    """Unpacked through the mount and packed again, from the mount and from the store: the same archive."""
    qos = mount(store)
    pack = ["tar", "--sort=name", "--format=posix", "--xattrs", "--pax-option=delete=atime,delete=ctime", "-c"]

    def archive(top):
        file = qos.db.parent / "archive.tar"
        run(*pack, "-f", file, "-C", top, ".")
        return file.read_bytes()

    original = archive(tree)
    (qos.db.parent / "original.tar").write_bytes(original)
    (store.dir / "tree").mkdir()
    os.chown(store.dir / "tree", tree.stat().st_uid, tree.stat().st_gid)
    as_job("43", "tar", "-x", "-p", "--xattrs", "-f", qos.db.parent / "original.tar", "-C", qos.dir / "tree", **who)
    assert archive(qos.dir / "tree") == original
    assert archive(store.dir / "tree") == original


def test_rsync_agrees(store, mount, tree, who):
    """rsync finds nothing to do after a copy, neither through the mount nor on the store."""
    qos = mount(store)
    copy = ["rsync", "-aHAX", "--checksum"]
    as_job("44", *copy, f"{tree}/", qos.dir / "copy", **who)
    for target in (qos.dir, store.dir):
        assert run(*copy, "--dry-run", "--itemize-changes", "--delete", f"{tree}/", target / "copy") == ""
    (tree / "file-5").write_bytes(b"shorter")
    (tree / "file-1").unlink()
    as_job("44", *copy, "--delete", f"{tree}/", qos.dir / "copy", **who)
    assert sums(store.dir / "copy") == sums(tree)


def test_find_sees_the_same(store, mount, tree, who):
    """Names, kinds, modes, owners, sizes, blocks and times of a tree are the store's."""
    run("cp", "-a", tree, store.dir / "tree")
    qos = mount(store)
    seen = listing(qos.dir / "tree", env=job_environment("45"), **who)
    assert seen == listing(store.dir / "tree", **who)
    assert len(seen) > 500
    assert sums(qos.dir / "tree") == sums(tree)


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite(store, mount, journal, who):
    """Two jobs write to one database at once: nothing is lost, and the file on the store is sound."""
    qos = mount(store)
    database = qos.dir / "data.db"
    create = f"PRAGMA journal_mode={journal}; CREATE TABLE entry(job INTEGER, number INTEGER);"
    assert as_job("46", "sqlite3", database, create, **who) == f"{journal}\n"
    writers = []
    for job in (46, 47):
        script = "".join(f"INSERT INTO entry VALUES({job}, {number});\n" for number in range(100))
        path = pathlib.Path(qos.db.parent, f"script-{job}")
        path.write_text(script)
        with open(path) as text:
            writers.append(start_job(job, "sqlite3", "-cmd", ".timeout 60000", database, stdin=text, **who))
    assert [writer.wait() for writer in writers] == [0, 0]
    qos.unmount()
    query = "PRAGMA integrity_check; SELECT job, count(*), sum(number) FROM entry GROUP BY job;"
    assert run("sqlite3", store.dir / "data.db", query) == "ok\n46|100|4950\n47|100|4950\n"


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("options", ["cache=auto", "cache=none"])
def test_fio_of_many_jobs(store, mount, options):
    """Four jobs of four processes each, every job with its own rule: verified, and each held to its rate."""
    qos = mount(store, options)
    rates = {"1001": "2M", "1002": "4M", "1003": "6M", "1004": "8M"}
    for job, rate in rates.items():
        qos.rule(f"start r{job} jobid={{{job}}} bps={rate}")
    fio = ["fio", "--ioengine=psync", "--rw=randwrite", "--bsrange=4k-64k", "--size=1m", "--numjobs=4",
           "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0", f"--directory={qos.dir}"]
    running = {job: start_job(job, *fio, f"--name=job{job}", stdout=subprocess.DEVNULL) for job in rates}
    assert {job: process.wait() for job, process in running.items()} == dict.fromkeys(rates, 0)
    for job in rates:
        assert qos.job(job)["write_bytes"] == 4 << 20
    counters = {rule["name"]: rule["waits"] for rule in qos.state()["rules"]}
    assert all(counters[f"r{job}"] > 0 for job in rates)
    assert len(list(store.dir.iterdir())) == 16
