"""Callers with some capabilities and not others, and what these are for: a table of operations.

Each operation prepares a folder as root, where all belongs to `owner`, and acts there as the caller. Of an operation:
- `needs`: any one of these capabilities lets an ordinary user do it on the store, or has it done otherwise;
- `also`: what it takes besides;
- `counts_there`: whether that holds in a user namespace too, for files of ids that it has.
"""
import ctypes
import fcntl
import os
import stat
import struct

from harness import OTHER, USER, as_user

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_KEEPCAPS, CLONE_NEWNS, CLONE_NEWUSER, SYS_CAPSET = 8, 0x20000, 0x10000000, {"x86_64": 126, "aarch64": 91}[os.uname().machine]
NUMBERS = {"CHOWN": 0, "DAC_OVERRIDE": 1, "DAC_READ_SEARCH": 2, "FOWNER": 3, "FSETID": 4, "LINUX_IMMUTABLE": 9, "SYS_ADMIN": 21,
           "MKNOD": 27, "SETFCAP": 31}
ALL = frozenset(NUMBERS)
NUMBERS |= {"SETGID": 6, "SETUID": 7}
MAPPED = 100000  # the first of 1000 ids of USER's namespace, as its 1

FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_SETVERSION = 0x80086601, 0x40086602, 0x40087602
FS_IOC32_SETFLAGS, FS_IOC32_SETVERSION = 0x40046602, 0x40047602
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801c581f, 0x401c5820
IMMUTABLE, APPEND, NODUMP, XFLAG_IMMUTABLE = 0x10, 0x20, 0x40, 0x8


# --- callers ---

def set_capabilities(effective, permitted=None):
    """Of this thread: these alone."""
    bits, may_have = (sum(1 << NUMBERS[name] for name in names) for names in (effective, permitted or effective))
    words = struct.pack("6I", bits, may_have, 0, 0, 0, 0)
    if LIBC.syscall(SYS_CAPSET, struct.pack("Ii", 0x20080522, 0), words) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def become(uid, gid=None):
    os.setgroups([])
    os.setresgid(*[uid if gid is None else gid] * 3)
    os.setresuid(uid, uid, uid)


def write_maps(pid):
    for kind in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{kind}", "w") as file:
            file.write(f"0 {USER} 1\n1 {MAPPED} 1000\n")


def enter_namespace():
    """As `unshare --map-auto`: another process, which may, writes the maps."""
    reader, writer = os.pipe()
    pid = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.read(reader, 1)
        write_maps(pid)
        os._exit(0)
    become(USER)
    assert LIBC.unshare(CLONE_NEWUSER) == 0
    os.write(writer, b"x")
    assert os.waitpid(helper, 0)[1] == 0
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


class Caller:
    """`who`: "user", "root", or "namespace", which is root of one that USER has made. It may also take on what is `permitted`."""

    def __init__(self, who, capabilities, permitted=None):
        self.who, self.capabilities, self.permitted = who, frozenset(capabilities), permitted

    def __str__(self):
        return f"{self.who} with {' '.join(sorted(self.capabilities)) or 'nothing'}"

    def become(self):
        if self.who == "namespace":
            enter_namespace()
        elif self.who == "user":
            LIBC.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
            become(USER)
        set_capabilities(self.capabilities, self.permitted)

    def run(self, function):
        def work():
            self.become()
            os.umask(0o022)
            return function()
        return as_user(0, 0, [], work)


# --- operations ---

OPERATIONS = []


class Operation:
    def __init__(self, name, act, prepare, needs="", also="", stores=(), keeps=False):
        self.name, self.act, self.prepare = name, act, prepare
        self.needs, self.also, self.stores = frozenset(needs.split()), frozenset(also.split()), stores
        self.counts_there = not keeps and not self.needs & {"MKNOD", "SYS_ADMIN", "LINUX_IMMUTABLE"}

    @property
    def row(self):
        """Of the table in docs/reference/capabilities.md."""
        needs = " or ".join(sorted(self.needs)) + "".join(f", and {name}" for name in self.also)
        return f"| {self.name} | {needs} | {'its ids' if self.counts_there else 'never'} |"


def operation(name, needs, also="", prepare=None, stores=("tmpfs", "ext4"), keeps=False):
    def add(act):
        OPERATIONS.append(Operation(name, act, prepare, needs, also, stores, keeps))
        return act
    return add


def make(path, owner, mode=0o644, text="text"):
    path.write_text(text)
    os.chown(path, *owner)
    path.chmod(mode)


def shut(top, owner):
    """What only its owner comes to."""
    (top / "folder").mkdir()
    make(top / "folder" / "file", owner, 0o600)
    (top / "folder" / "empty").mkdir()
    for path in (top / "folder/empty", top / "folder"):
        os.chown(path, *owner)
    (top / "folder").chmod(0o700)


def shown(top, owner):
    make(top / "file", owner)


def read_only(top, owner):
    make(top / "file", owner, 0o600)


def sticky(top, owner):
    make(top / "file", owner)
    make(top / "own", (USER, USER))
    top.chmod(0o1777)


def of_group(top, owner):
    """The caller's own, of a group that is not the caller's."""
    make(top / "file", (USER, owner[1]), 0o755)


def set_ids(top, owner):
    make(top / "file", owner, 0o6777)


def with_capability(top, owner):
    make(top / "file", owner, 0o755)
    os.setxattr(top / "file", "security.capability", CAPABILITY)


def with_trusted(top, owner):
    make(top / "file", owner)
    os.setxattr(top / "file", "trusted.kept", b"value")
    os.setxattr(top / "file", "user.kept", b"value")


def set_group_folder(top, owner):
    (top / "folder").mkdir()
    os.chown(top / "folder", USER, owner[1])
    (top / "folder").chmod(0o2777)


CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)  # cap_net_raw=ep
READS, WRITES = "DAC_READ_SEARCH DAC_OVERRIDE", "DAC_OVERRIDE"

operation("look up a name in another's folder, mode 0700", READS, prepare=shut)(lambda top: stat.filemode(os.lstat(top / "folder/file").st_mode))
operation("list that folder", READS, prepare=shut)(lambda top: sorted(os.listdir(top / "folder")))
operation("read another's file, mode 0600", READS, prepare=read_only)(lambda top: (top / "file").read_text())
operation("write that file", WRITES, prepare=read_only)(lambda top: (top / "file").write_text("new"))
operation("truncate that file", WRITES, prepare=read_only)(lambda top: os.truncate(top / "file", 1))
operation("create a file in another's folder, mode 0700", WRITES, prepare=shut)(lambda top: (top / "folder/new").write_text("new"))
operation("create a folder there", WRITES, prepare=shut)(lambda top: os.mkdir(top / "folder/new"))
operation("create a symbolic link there", WRITES, prepare=shut)(lambda top: os.symlink("target", top / "folder/new"))
operation("create a pipe there", WRITES, prepare=shut)(lambda top: os.mkfifo(top / "folder/new"))
operation("remove a file there", WRITES, prepare=shut)(lambda top: os.unlink(top / "folder/file"))
operation("remove a folder there", WRITES, prepare=shut)(lambda top: os.rmdir(top / "folder/empty"))
operation("rename a file there", WRITES, prepare=shut)(lambda top: os.rename(top / "folder/file", top / "folder/new"))
operation("move a file out of it", WRITES, prepare=shut)(lambda top: os.rename(top / "folder/file", top / "new"))
operation("move a folder out of it", WRITES, prepare=shut)(lambda top: os.rename(top / "folder/empty", top / "new"))
operation("faccessat(AT_EACCESS) of another's file, mode 0600", READS, prepare=read_only)(lambda top: os.access(top / "file", os.R_OK, effective_ids=True))
operation("set `user.*` of that file", WRITES, prepare=read_only)(lambda top: os.setxattr(top / "file", "user.new", b"value"))
operation("create an unnamed file in another's folder, mode 0700", WRITES, prepare=shut)(
    lambda top: os.close(os.open(top / "folder", os.O_TMPFILE | os.O_RDWR, 0o600)))

operation("chown another's file", "CHOWN", prepare=shown)(lambda top: os.chown(top / "file", MAPPED_TO, MAPPED_TO))
operation("chgrp an own file to a foreign group", "CHOWN", prepare=of_group)(lambda top: os.chown(top / "file", -1, MAPPED_TO))

operation("chmod another's file", "FOWNER", prepare=shown)(lambda top: os.chmod(top / "file", 0o711))
operation("set the times of another's file", "FOWNER", prepare=shown)(lambda top: os.utime(top / "file", (1000, 2000)))
operation("set the ACL of another's file", "FOWNER", prepare=shown)(lambda top: os.setxattr(top / "file", "system.posix_acl_access", ACL))
operation("remove another's file from a sticky folder", "FOWNER", prepare=sticky)(lambda top: os.unlink(top / "file"))
operation("rename another's file in a sticky folder", "FOWNER", prepare=sticky)(lambda top: os.rename(top / "file", top / "new"))
operation("rename over another's file in a sticky folder", "FOWNER", prepare=sticky)(lambda top: os.rename(top / "own", top / "file"))
operation("link another's file, with protected_hardlinks", "FOWNER DAC_OVERRIDE", prepare=shown)(lambda top: os.link(top / "file", top / "new"))
operation("open another's file with O_NOATIME", "FOWNER", prepare=shown)(lambda top: os.close(os.open(top / "file", os.O_RDONLY | os.O_NOATIME)))

operation("chmod g+s on a file of a foreign group", "FSETID", prepare=of_group)(lambda top: os.chmod(top / "file", 0o2755))
operation("create a file with the sgid bit in a folder of a foreign group", "FSETID", prepare=set_group_folder)(
    lambda top: os.close(os.open(top / "folder/new", os.O_CREAT | os.O_WRONLY, 0o2755)))
operation("create a pipe with the sgid bit there", "FSETID", prepare=set_group_folder)(lambda top: os.mkfifo(top / "folder/new", 0o2755))


@operation("write to a file and keep its suid and sgid bits", "FSETID", prepare=set_ids, keeps=True)
def write(top):
    with open(top / "file", "r+") as file:
        file.write("new")


operation("truncate it and keep them", "FSETID", prepare=set_ids, keeps=True)(lambda top: os.truncate(top / "file", 1))
operation("open it with O_TRUNC and keep them", "FSETID", prepare=set_ids, keeps=True)(lambda top: os.close(os.open(top / "file", os.O_WRONLY | os.O_TRUNC)))


@operation("fallocate it and keep them", "FSETID", prepare=set_ids, keeps=True)
def allocate(top):
    with open(top / "file", "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 4096)


@operation("copy_file_range to it and keep them", "FSETID", prepare=set_ids, keeps=True)
def copy(top):
    with open(top / "new", "w+b") as source, open(top / "file", "r+b") as file:
        source.write(b"new")
        source.flush()
        os.copy_file_range(source.fileno(), file.fileno(), 3, 0, 0)


operation("set `security.capability`", "SETFCAP", prepare=shown)(lambda top: os.setxattr(top / "file", "security.capability", CAPABILITY))
operation("remove `security.capability`", "SETFCAP", prepare=with_capability)(lambda top: os.removexattr(top / "file", "security.capability"))
operation("create a device node", "MKNOD")(lambda top: os.mknod(top / "new", stat.S_IFCHR | 0o600, os.makedev(1, 3)))
operation("set `trusted.*`", "SYS_ADMIN", prepare=shown)(lambda top: os.setxattr(top / "file", "trusted.new", b"value"))
operation("read `trusted.*`", "SYS_ADMIN", prepare=with_trusted)(lambda top: os.getxattr(top / "file", "trusted.kept"))
operation("see `trusted.*` in a list of names", "SYS_ADMIN", prepare=with_trusted)(lambda top: sorted(os.listxattr(top / "file")))
operation("remove `trusted.*`", "SYS_ADMIN", prepare=with_trusted)(lambda top: os.removexattr(top / "file", "trusted.kept"))
operation("set another `security.*`", "SYS_ADMIN", prepare=shown)(lambda top: os.setxattr(top / "file", "security.new", b"value"))


def ioctl(path, number, argument):
    """What the kernel has written."""
    fd = os.open(path, os.O_RDONLY)
    try:
        answer = bytearray(argument)
        fcntl.ioctl(fd, number, answer)
        return answer
    finally:
        os.close(fd)


def set_flags(path, flags):
    before, = struct.unpack_from("<I", ioctl(path, FS_IOC_GETFLAGS, bytes(8)))
    ioctl(path, FS_IOC_SETFLAGS, struct.pack("<Q", before | flags))
    return before


def set_flags_for_a_moment(path, flags):
    """A file that has them cannot be removed at the test's end."""
    before = set_flags(path, flags)
    ioctl(path, FS_IOC_SETFLAGS, struct.pack("<Q", before))


def set_version(path):
    ioctl(path, FS_IOC_SETVERSION, struct.pack("<Q", 7))


def set_xflags(path, flags):
    fd = os.open(path, os.O_RDONLY)
    try:
        for xflags in (flags, 0):
            found = bytearray(28)
            fcntl.ioctl(fd, FS_IOC_FSGETXATTR, found)
            fcntl.ioctl(fd, FS_IOC_FSSETXATTR, struct.pack("<I", xflags) + bytes(found[4:]))
    finally:
        os.close(fd)


operation("set the immutable flag (chattr +i)", "LINUX_IMMUTABLE", "FOWNER", prepare=shown)(lambda top: set_flags_for_a_moment(top / "file", IMMUTABLE))
operation("set the append-only flag (chattr +a)", "LINUX_IMMUTABLE", "FOWNER", prepare=shown)(lambda top: set_flags_for_a_moment(top / "file", APPEND))
operation("set the immutable flag by FS_IOC_FSSETXATTR", "LINUX_IMMUTABLE", "FOWNER", prepare=shown)(lambda top: set_xflags(top / "file", XFLAG_IMMUTABLE))
operation("set another flag of another's file (chattr +d)", "FOWNER", prepare=shown)(lambda top: set_flags(top / "file", NODUMP) and None)
operation("set the version of another's file (FS_IOC_SETVERSION)", "FOWNER", prepare=shown, stores=("ext4",))(lambda top: set_version(top / "file"))
for _number in (FS_IOC32_SETFLAGS, FS_IOC32_SETVERSION):
    operation(f"ioctl {_number:#x} of 32-bit programs, from a 64-bit program", "")(lambda top, number=_number: ioctl(top, number, struct.pack("<Q", NODUMP)))

MAPPED_TO = 5  # an id that each has
ACL = struct.pack("<I" + "HHI" * 3, 2, 1, 6, 0xffffffff, 4, 4, 0xffffffff, 0x20, 4, 0xffffffff)
OWNERS = {"another": (OTHER, OTHER), "mapped": (MAPPED + 4, MAPPED + 5), "mapped, its group not": (MAPPED + 4, OTHER),
          "not mapped, its group is": (OTHER, MAPPED + 5)}
