"""The mount held against the store itself: what is done on both must end the same, errno by errno.

    def test_mkdir(twins):
        assert twins(lambda top: os.mkdir(top / "a")) is None
        assert twins(lambda top: os.mkdir(top / "a")) == errno.EEXIST

`twins(action)` runs action(folder) once in a folder of the store, directly, and once in a twin of it through the mount,
in a process of its own. It demands that both return the same, or fail with the same errno, and that both leave the same
tree behind; it returns the value or the errno. The actor: the fixture runs each test as root, as an ordinary user below
root's mount, and as an ordinary user on a mount of its own; twins(action, uid=, gid=, groups=) says otherwise.
"""
import hashlib
import os
import stat

from harness import USER, as_user


def attempt(action, *arguments):
    """The action's value, or the errno with which it failed."""
    try:
        return action(*arguments)
    except OSError as error:
        return error.errno


def xattrs(path):
    """name -> value of all xattrs that root sees."""
    try:
        return {name: os.getxattr(path, name, follow_symlinks=False)
                for name in os.listxattr(path, follow_symlinks=False)}
    except OSError as error:
        return error.errno


def describe(path):
    """All that should be the same of two files, but for times and sizes of directories."""
    facts = os.lstat(path)
    data = None
    if stat.S_ISREG(facts.st_mode):
        with open(path, "rb") as file:
            data = (facts.st_size, hashlib.sha256(file.read()).hexdigest())
    elif stat.S_ISLNK(facts.st_mode):
        data = os.readlink(path)
    return stat.filemode(facts.st_mode), facts.st_nlink, facts.st_uid, facts.st_gid, facts.st_rdev, data, xattrs(path)


def tree(top):
    """What lies below a folder, as root sees it: path -> facts. Hard links show by their numbers in the tree."""
    numbers = {}
    facts = {}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in sorted(folders + files) + [b"."]:
            path = os.path.join(folder, name)
            number = numbers.setdefault(os.lstat(path).st_ino, os.path.relpath(path, os.fsencode(top)))
            facts[os.path.relpath(path, os.fsencode(top))] = (*describe(path), number)
    return facts


class Twins:
    def __init__(self, store, qos, uid=0, groups=()):
        self.qos = qos
        self.uid = uid
        self.groups = list(groups)
        self.kind = store.kind
        self.native = store.dir / "native"
        self.behind = store.dir / "through"  # what the mount should have done to the store
        self.through = qos.dir / "through"
        for folder in (self.native, self.behind):
            folder.mkdir()
            folder.chmod(0o755)
            os.chown(folder, uid, uid)

    def prepare(self, action):
        """Done by root on the store, in both folders."""
        for folder in (self.native, self.behind):
            action(folder)

    def __call__(self, action, uid=None, gid=None, groups=None):
        uid = self.uid if uid is None else uid
        gid = uid if gid is None else gid
        groups = self.groups if groups is None else groups
        expected, found = (as_user(uid, gid, groups, lambda top=top: attempt(action, top))
                           for top in (self.native, self.through))
        assert found == expected
        self.compare()
        return expected

    def compare(self):
        expected = tree(self.native)
        assert tree(self.behind) == expected
        # Root has no rights on a mount that an ordinary user made.
        if self.qos.user is None:
            assert tree(self.through) == expected


ACTORS = ["root", "user", "owner"]


def make_twins(actor, store, mount, options=""):
    """`actor`: root; user: an ordinary user below root's mount; owner: an ordinary user on its own mount."""
    uid = 0 if actor == "root" else USER
    return Twins(store, mount(store, options, user=USER if actor == "owner" else None), uid)
