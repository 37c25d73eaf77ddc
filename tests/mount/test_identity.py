"""Which rights count: the caller's, with all its groups, on every folder of the way."""
import concurrent.futures
import errno
import mmap
import os
import struct
import subprocess
import sys

import pytest

from harness import OTHER, SANITIZERS, TIMEOUT, USER, as_user, job_environment, run, wait_until
from twins import attempt


def write(path, text="text"):
    path.write_text(text)
    return path


def setfacl(entries, *paths, options=()):
    run("setfacl", *options, "-m", entries, *paths)


@pytest.fixture
def qos(store, mount):
    return mount(store)


def both(store, qos, action, uid=USER, gid=USER, groups=()):
    """As that user, on the store itself and through the mount: the same outcome, which it returns."""
    expected = as_user(uid, gid, list(groups), lambda: attempt(action, store.dir))
    assert as_user(uid, gid, list(groups), lambda: attempt(action, qos.dir)) == expected
    return expected


def test_folder_of_another_stays_shut(store, qos):
    private = store.dir / "private"
    private.mkdir()
    (private / "open").mkdir()
    write(private / "open" / "file").chmod(0o666)
    (private / "open").chmod(0o777)
    os.chown(private, OTHER, OTHER)
    private.chmod(0o700)
    # Its owner makes the kernel know the names.
    assert as_user(OTHER, OTHER, [], lambda: (qos.dir / "private/open/file").read_text()) == "text"
    for action in (lambda top: (top / "private/open/file").read_text(), lambda top: os.listdir(top / "private"),
                   lambda top: os.stat(top / "private/open/file"), lambda top: write(top / "private/new"),
                   lambda top: os.link(top / "private/open/file", top / "link"),
                   lambda top: os.rename(top / "private/open/file", top / "taken")):
        assert both(store, qos, action) == errno.EACCES
    assert as_user(OTHER, OTHER, [], lambda: (qos.dir / "private/open/file").read_text()) == "text"


def test_folder_may_be_listed_or_searched_alone(store, qos):
    for name, mode in (("listed", 0o744), ("searched", 0o711), ("shut", 0o700)):
        (store.dir / name).mkdir()
        write(store.dir / name / "file").chmod(0o666)
        (store.dir / name).chmod(mode)
    for name in ("listed", "searched", "shut"):
        both(store, qos, lambda top, name=name: sorted(os.listdir(top / name)))
        both(store, qos, lambda top, name=name: (top / name / "file").read_text())
    assert both(store, qos, lambda top: os.listdir(top / "listed")) == ["file"]
    assert both(store, qos, lambda top: (top / "searched/file").read_text()) == "text"


@pytest.mark.parametrize("groups", [[], [OTHER], [5, 6, 7, OTHER] + list(range(20000, 20060))])
def test_supplementary_groups(store, qos, groups):
    (store.dir / "team").mkdir()
    write(store.dir / "team" / "file").chmod(0o660)
    for path in (store.dir / "team", store.dir / "team" / "file"):
        os.chown(path, 0, OTHER)
    (store.dir / "team").chmod(0o770)
    expected = "text" if OTHER in groups else errno.EACCES
    assert both(store, qos, lambda top: (top / "team/file").read_text(), groups=groups) == expected
    both(store, qos, lambda top: (top / "team/new").write_text("x"), groups=groups)
    both(store, qos, lambda top: os.mkdir(top / "team" / top.name), groups=groups)


def test_callers_do_not_mix(store, qos):
    """Many at once, each of another identity: none sees or makes anything as another."""
    users = range(30000, 30012)
    for uid in users:
        home = store.dir / str(uid)
        home.mkdir()
        os.chown(home, uid, uid)
        home.chmod(0o700)
    children = []
    for uid in users:
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                os.setgroups([uid + 100])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                for i in range(150):
                    path = qos.dir / str(uid) / f"file-{i}"
                    write(path, str(uid))
                    found = path.stat()
                    assert (found.st_uid, found.st_gid) == (uid, uid)
                    other = users[users.index(uid) - 1]
                    assert attempt(os.listdir, qos.dir / str(other)) == errno.EACCES
                failed = 0
            finally:
                os._exit(failed)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
    for uid in users:
        for path in (store.dir / str(uid)).iterdir():
            assert (path.stat().st_uid, path.stat().st_gid, path.read_text()) == (uid, uid, str(uid))


def test_program_that_may_be_run_but_not_read(store, qos):
    program = store.dir / "program"
    program.write_bytes(open("/bin/echo", "rb").read())
    program.chmod(0o711)
    for top in (store.dir, qos.dir):
        done = subprocess.run([top / "program", "ran"], capture_output=True, text=True, user=USER, group=USER,
                              extra_groups=[])
        assert done.stdout == "ran\n"
    assert both(store, qos, lambda top: (top / "program").read_bytes()) == errno.EACCES
    program.chmod(0o710)  # by its group: the kernel asks nobody about a program that none may run
    for top in (store.dir, qos.dir):
        with pytest.raises(PermissionError):
            subprocess.run([top / "program"], user=USER, group=USER, extra_groups=[])


def test_acl_gives_and_takes(store, qos):
    write(store.dir / "given").chmod(0o600)
    write(store.dir / "taken").chmod(0o666)
    (store.dir / "folder").mkdir(mode=0o700)
    write(store.dir / "folder" / "file").chmod(0o644)
    setfacl(f"u:{USER}:rw", store.dir / "given")
    setfacl(f"u:{USER}:---", store.dir / "taken")
    setfacl(f"u:{USER}:rx", store.dir / "folder")
    setfacl(f"g:{OTHER}:rwx", store.dir / "folder")
    read = {name: lambda top, name=name: (top / name).read_text() for name in ("given", "taken", "folder/file")}
    assert both(store, qos, read["given"]) == "text"
    assert both(store, qos, read["taken"]) == errno.EACCES
    assert both(store, qos, read["folder/file"]) == "text"
    assert both(store, qos, lambda top: write(top / "folder/new")) == errno.EACCES
    assert both(store, qos, read["folder/file"], uid=OTHER, gid=5) == errno.EACCES
    assert both(store, qos, read["folder/file"], uid=OTHER, gid=5, groups=[OTHER]) == "text"


def test_acl_set_and_shown_through_the_mount(store, qos):
    for top in (store.dir / "native", qos.dir / "through"):
        top.mkdir()
        write(top / "file").chmod(0o640)
        setfacl(f"u:{USER}:rwx,g:{OTHER}:r-x,m::rw", top / "file")
        setfacl(f"d:u:{USER}:rwx,d:g::r-x,d:m::r-x", top)
    shown = {}
    for name in ("native", "through"):
        for top in (store.dir, qos.dir):
            text = run("getfacl", "-cpn", top / name, top / name / "file")
            shown[top, name] = text.replace(str(top / name), "")
    assert len(set(shown.values())) == 1 and f"user:{USER}:rwx" in shown[store.dir, "native"]
    for name in ("native", "through"):
        os.chmod(qos.dir / name / "file", 0o600)
        run("setfacl", "-b", qos.dir / name)
    assert run("getfacl", "-cpn", store.dir / "through").count("default") == 0
    assert (store.dir / "through" / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
@pytest.mark.parametrize("default", ["u::rwx,g::rwx,o::---", f"u::rwx,u:{USER}:rwx,g::r-x,m::rwx,o::r--", "u::r--,g::---,o::---"])
def test_default_acl_takes_the_place_of_the_umask(store, qos, default, umask):
    for top in (store.dir / "native", store.dir / "through"):
        top.mkdir()
        os.chown(top, USER, USER)
        setfacl(default, top, options=["-d"])

    def act(top):
        os.umask(umask)
        os.mkdir(top / "folder", 0o777)
        os.close(os.open(top / "file", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mknod(top / "node", 0o100666)
        os.mkfifo(top / "pipe", 0o660)
    as_user(USER, USER, [], lambda: act(store.dir / "native"))
    as_user(USER, USER, [], lambda: act(qos.dir / "through"))
    for name in ("folder", "file", "node", "pipe"):
        expected, found, shown = (run("getfacl", "-cpn", path / name) for path in
                                  (store.dir / "native", store.dir / "through", qos.dir / "through"))
        assert found == expected == shown, name
        assert os.lstat(store.dir / "through" / name).st_mode == os.lstat(store.dir / "native" / name).st_mode, name


def test_acl_is_for_the_owner_to_set(store, qos):
    os.chown(write(store.dir / "file"), OTHER, OTHER)
    (store.dir / "file").chmod(0o666)
    done = subprocess.run(["setfacl", "-m", f"u:{USER}:rwx", qos.dir / "file"], user=USER, group=USER, extra_groups=[],
                          capture_output=True)
    assert done.returncode != 0 and b"not permitted" in done.stderr
    assert f"user:{USER}" not in run("getfacl", "-cpn", store.dir / "file")


def test_chmod_of_a_file_with_an_acl_sets_its_mask(store, qos):
    for top in (store.dir / "native", store.dir / "through"):
        top.mkdir()
        write(top / "file")
        setfacl(f"u:{USER}:rwx", top / "file")
    os.chmod(store.dir / "native" / "file", 0o640)
    os.chmod(qos.dir / "through" / "file", 0o640)
    texts = {run("getfacl", "-cpn", path / "file") for path in
             (store.dir / "native", store.dir / "through", qos.dir / "through")}
    assert len(texts) == 1 and "mask::r--" in texts.pop()


def test_mount_of_an_ordinary_user_is_its_own(store, mount):
    (store.dir / "his").mkdir()
    os.chown(store.dir / "his", USER, USER)
    write(store.dir / "roots").chmod(0o600)
    qos = mount(store, user=USER)

    def act():
        write(qos.dir / "his" / "file")
        return (qos.dir / "his" / "file").read_text(), attempt((qos.dir / "roots").read_text)
    assert as_user(USER, USER, [], act) == ("text", errno.EACCES)
    assert (store.dir / "his" / "file").stat().st_uid == USER
    # Nobody else gets in, root included: FUSE's own rule.
    assert as_user(OTHER, OTHER, [], lambda: attempt(os.listdir, qos.dir)) == errno.EACCES


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("setgroups", ["deny", "allow"])
def test_mount_by_root_of_a_user_namespace(world, store, place, db, setgroups):
    """Where groups cannot be set, as with `unshare -Ur`, or the daemon's own have no number."""
    script = '''echo; read -r mapped; "$1" "$2" "$3" -o "db=$4"
                echo text >"$3/file"; cat "$3/file"; stat -c %u "$3/file"; umount "$3"'''
    with subprocess.Popen(["unshare", "-Um", "--propagation", "private", "sh", "-ec", script, "sh",
                           world.programs / "mount.qosfs", store.dir, place, db], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, extra_groups=[OTHER],
                          env=job_environment(None, **SANITIZERS)) as container:
        container.stdout.readline()
        for name, value in (("setgroups", setgroups), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
            with open(f"/proc/{container.pid}/{name}", "w") as file:
                file.write(value)
        output, complaint = container.communicate("\n", timeout=TIMEOUT)
    assert (container.returncode, output) == (0, "text\n0\n"), complaint


# VFS_CAP_REVISION_2, effective, cap_net_raw permitted
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
CHANGES = {
    "write": lambda path: os.write(os.open(path, os.O_WRONLY), b"x"),
    "direct": lambda path: os.pwritev(os.open(path, os.O_WRONLY | os.O_DIRECT), [mmap.mmap(-1, 4096)], 0),
    "truncate": lambda path: os.truncate(path, 3),
    "O_TRUNC": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "fallocate": lambda path: os.posix_fallocate(os.open(path, os.O_WRONLY), 0, 8192),
    "chown": lambda path: os.chown(path, -1, USER),
    "removexattr": lambda path: os.removexattr(path, "security.capability"),
}


@pytest.mark.parametrize("user", [None, USER], ids=["roots", "its own"])
def test_a_change_of_a_program_takes_its_capabilities(store, mount, user):
    """Without the user's right to take them: the kernel does, with what the user changes."""
    qos = mount(store, user=user)
    for name, change in CHANGES.items():
        for top in (store.dir / "native", store.dir / "through"):
            write(top).chmod(0o777)
            os.chown(top, USER, USER)
            os.setxattr(top, "security.capability", CAPABILITY)
        expected = as_user(USER, USER, [], lambda change=change: attempt(change, store.dir / "native"))
        assert as_user(USER, USER, [], lambda change=change: attempt(change, qos.dir / "through")) == expected, name
        assert os.listxattr(store.dir / "through") == os.listxattr(store.dir / "native"), name
        assert expected == errno.EPERM if name == "removexattr" else os.listxattr(store.dir / "through") == [], name


@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_what_is_reserved_for_root_stays_so(store, mount):
    """Trusted xattrs and the immutable flag: the daemon's own capabilities give nobody anything."""
    qos = mount(store)
    path = write(store.dir / "file")
    os.chown(path, USER, USER)
    os.setxattr(path, "trusted.secret", b"x")
    os.setxattr(path, "user.known", b"y")
    assert both(store, qos, lambda top: os.listxattr(top / "file")) == ["user.known"]
    assert both(store, qos, lambda top: os.setxattr(top / "file", "trusted.mine", b"")) == errno.EPERM
    assert both(store, qos, lambda top: os.getxattr(top / "file", "trusted.secret")) == errno.ENODATA
    assert "trusted.secret" in os.listxattr(qos.dir / "file")
    for top in (store.dir, qos.dir):
        done = subprocess.run(["chattr", "+i", top / "file"], user=USER, group=USER, extra_groups=[], capture_output=True)
        assert done.returncode != 0


# Opens and changes a file, becomes another user, and calls exec, which closes the file.
BECOMES = """
import fcntl, mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CLOEXEC)
fcntl.lockf(file, fcntl.LOCK_EX)
os.pwrite(file, b"changed", 0)
pages = mmap.mmap(file, 4096)
pages[4095:] = b"!"
os.setgroups([])
os.setresgid(*[int(sys.argv[2])] * 3)
os.setresuid(*[int(sys.argv[2])] * 3)
os.execv("/bin/echo", ["echo", "done"])
"""


@pytest.mark.parametrize("cache", ["auto", "none"])
def test_exec_as_another_user_closes_what_was_open(store, mount, cache):
    """The kernel may show nothing of that thread in /proc until the close is answered."""
    qos = mount(store, f"cache={cache}")
    (store.dir / "file").write_bytes(bytes(4096))
    assert run(sys.executable, "-c", BECOMES, qos.dir / "file", USER) == "done\n"
    assert (store.dir / "file").read_bytes() == b"changed" + bytes(4088) + b"!"


def test_what_waits_keeps_identity_umask_and_data(store, qos):
    """Requests that a rule holds back are run later by another thread: for the same caller, with the same bytes."""
    qos.rule("start all opcode={write} bps=1 depth=1:1 per=rule")
    write(qos.dir / "spent", "x" * 4096)  # nothing comes after it for an hour

    def change(path):
        write(path, f"{path.name} " * 3000)
        os.setxattr(path, "user.name", path.name.encode())
    children = []
    for uid, umask in ((USER, 0o077), (OTHER, 0o002), (0, 0o027)):
        child = os.fork()
        if child == 0:
            failed = 1
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                os.umask(umask)
                with concurrent.futures.ThreadPoolExecutor(40) as pool:
                    list(pool.map(change, [qos.dir / f"{uid}-{number}" for number in range(40)]))
                failed = 0
            finally:
                os._exit(failed)
        children.append(child)
    wait_until(lambda: qos.rule_state("all")["waiting"] == 120, what="all that is written")
    qos.rule("stop all")
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    for uid, umask in ((USER, 0o077), (OTHER, 0o002), (0, 0o027)):
        for number in range(40):
            path = store.dir / f"{uid}-{number}"
            found = path.stat()
            assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (uid, uid, 0o666 & ~umask)
            assert path.read_text() == f"{path.name} " * 3000
            assert os.getxattr(path, "user.name") == path.name.encode()


# One of each kind of request, as an ordinary user.
WORK = """
import mmap, os, subprocess, sys
os.chdir(sys.argv[1])
os.umask(0o027)
os.mkdir("folder")
with open("folder/file", "wb") as file:
    file.write(b"x" * 300000)
    os.fsync(file.fileno())
fd = os.open("folder/file", os.O_RDWR | os.O_APPEND)
os.truncate("folder/file", 200000)
with mmap.mmap(fd, 0) as pages:
    pages[5000] = 65
    pages.flush()
os.write(fd, b"end")
os.posix_fallocate(fd, 0, 400000)
os.lseek(fd, 0, os.SEEK_HOLE)
other = os.open("folder", os.O_TMPFILE | os.O_RDWR, 0o600)
os.copy_file_range(fd, other, 1000, 0)
os.setxattr("folder/file", "user.key", b"value")
os.getxattr("folder/file", "user.key")
os.listxattr("folder/file")
os.removexattr("folder/file", "user.key")
os.chmod("folder/file", 0o640)
os.chown("folder/file", -1, os.getgid())
os.utime("folder/file")
os.symlink("file", "folder/link")
os.readlink("folder/link")
os.mkfifo("folder/pipe")
os.link("folder/file", "folder/hard")
os.rename("folder/hard", "folder/moved")
os.listdir("folder")
os.access("folder/file", os.W_OK)
os.statvfs("folder")
os.fsync(os.open("folder", os.O_RDONLY))
os.symlink(sys.argv[1], "folder/top")
with open("folder/script", "w") as script:
    script.write("#!/bin/sh\\nexit 0\\n")
os.chmod("folder/script", 0o700)
subprocess.run(["folder/script"], check=True)
for number in range(200):
    with open(f"folder/{number}", "w") as file:
        file.write("x")
subprocess.run(["sh", "-c", "find folder -size +0 -exec cat {} + >/dev/null; ls -lR folder; rm -r folder"], check=True,
               stdout=subprocess.DEVNULL)
"""


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("options", ["cache=auto", "cache=none"])
def test_store_hears_of_the_caller_alone(store, mount, options):
    """A store that gives root no rights (NFS with root_squash) must be asked nothing as root. Here it is another
    mount, which bills each request to the uid that made it."""
    inner = mount(store, "cache=none,jobid_var=nodelocal,jobid_name=%u")
    outer = mount(inner, options)

    def look(at, function):  # as somebody else: also this asks for attributes
        return as_user(OTHER, OTHER, [], lambda: function(at))

    def by_root():
        job = look(inner, lambda mount: mount.job("0"))
        return {name: value["samples"] for name, value in job["operations"].items()} if job else {}

    look(outer, lambda mount: os.listdir(mount.dir))
    before = by_root()
    run(sys.executable, "-c", WORK, outer.dir, user=USER, group=USER, extra_groups=[], env=job_environment("work"))
    look(outer, lambda mount: mount.wait_booked("work"))
    look(inner, lambda mount: mount.wait_booked(USER))
    assert by_root() == before
    assert look(inner, lambda mount: mount.job(USER))["requests"] > 200
