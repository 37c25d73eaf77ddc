"""What a caller's capabilities give on the store, they give through the mount; and no more."""
import ctypes
import itertools
import os
import re
import subprocess

import pytest

from capabilities import ALL, CLONE_NEWNS, CLONE_NEWUSER, LIBC, MAPPED, OPERATIONS, OWNERS, Caller, Operation, set_capabilities
from harness import OTHER, REPOSITORY, USER, as_user, run, running, umount, wait_until
from twins import attempt, tree

one_store = pytest.mark.parametrize("store", ["ext4"], indirect=True)


class Pair:
    """A store and a mount over it: the same is done on both."""

    def __init__(self, store, qos):
        self.store, self.qos, self.wrong, self._numbers = store, qos, [], itertools.count()

    def _do(self, operation, caller, owner, base):
        name = f"{next(self._numbers)}"
        top = self.store.dir / name
        top.mkdir()
        top.chmod(0o777)
        if operation.prepare is not None:
            operation.prepare(top, owner)
        outcome = caller.run(lambda: attempt(operation.act, base / name))
        return outcome, tree(top)

    def __call__(self, operation, caller, owner=OWNERS["another"]):
        """What came of it on the store, and whether that came of it through the mount."""
        expected = self._do(operation, caller, owner, self.store.dir)
        got = self._do(operation, caller, owner, self.qos.dir)
        if got != expected:
            self.wrong.append(f"{operation.name}, {caller}, {owner}: {got} instead of {expected}")
        return expected


@pytest.fixture
def pair(store, mount):
    pair = Pair(store, mount(store))
    yield pair
    assert not pair.wrong, "\n".join(pair.wrong)


def operations(store):
    return [operation for operation in OPERATIONS if store.kind in operation.stores]


def test_each_capability_of_a_user(store, pair):
    """One of those it needs is enough, and all others are not."""
    for operation in operations(store):
        nothing = pair(operation, Caller("user", ()))
        assert pair(operation, Caller("user", ALL - operation.needs)) == nothing or not operation.needs
        for capability in operation.needs:
            assert pair(operation, Caller("user", {capability} | operation.also)) != nothing, operation.name
        pair(operation, Caller("user", ALL))


@one_store
def test_root_without_capabilities(store, pair):
    for operation in operations(store):
        for kept in (frozenset(), operation.needs | operation.also, ALL - operation.needs, ALL):
            pair(operation, Caller("root", kept))


@one_store
def test_root_of_a_namespace(store, pair):
    for operation in operations(store):
        for whose, owner in OWNERS.items():
            nothing = pair(operation, Caller("namespace", ()), owner)
            gives = pair(operation, Caller("namespace", ALL), owner) != nothing
            assert whose != "mapped" or gives == (operation.counts_there and operation.needs != set()), operation.name


def test_with_a_lock_server(cluster, new_store):
    """What an operation touches is noted once, also where the store is asked twice."""
    both = cluster(new_store("ext4"))
    pair = Pair(both.store, both.mounts[0])
    for operation in operations(both.store):
        pair(operation, Caller("user", operation.needs | operation.also))
        pair(operation, Caller("root", ALL - operation.needs))
        pair(operation, Caller("namespace", ALL), OWNERS["mapped"])
    assert not pair.wrong, "\n".join(pair.wrong)


def test_the_table_in_the_manual():
    rows = re.findall(r"^\| .*", (REPOSITORY / "docs/reference/capabilities.md").read_text(), re.MULTILINE)
    assert rows[1:] == [operation.row for operation in OPERATIONS if operation.needs]



def twice(operation, change):
    """The operation, then change(), and the operation again, by the same process."""
    def prepare(top, owner):
        for part in (top / "before", top / "after"):
            part.mkdir()
            part.chmod(0o777)
            if operation.prepare is not None:
                operation.prepare(part, owner)

    def act(top):
        before = attempt(operation.act, top / "before")
        change()
        return before, attempt(operation.act, top / "after")
    return Operation(f"{operation.name}, twice", act, prepare)


@one_store
def test_what_changes_counts_at_once(store, pair):
    """The daemon remembers callers for a second."""
    for operation in operations(store):
        for who in ("user", "root"):
            pair(twice(operation, lambda operation=operation: set_capabilities(ALL - operation.needs, ALL)), Caller(who, ALL))
            pair(twice(operation, lambda: set_capabilities(ALL)), Caller(who, (), ALL))
        pair(twice(operation, lambda: LIBC.unshare(CLONE_NEWUSER)), Caller("root", ALL))
        pair(twice(operation, lambda: LIBC.unshare(CLONE_NEWUSER)), Caller("root", ALL - operation.needs))


def tree_without_xattrs(top):
    """An overlay's own depend on the file system."""
    return {path: facts[:6] for path, facts in tree(top).items()}


def change_overlay(top):
    """Copies files up, of another user too, makes some and removes some."""
    with open(top / "file", "a") as file:
        file.write("more")
    (top / "folder/new").write_text("new")
    os.mkdir(top / "folder/made")
    os.unlink(top / "folder/gone")
    os.rename(top / "folder/moved", top / "folder/here")


@pytest.fixture
def overlay(store, mount, world):
    """A factory: an overlay with its upper layer on `base`."""
    places = []

    def make(base, owners):
        base, lower, place = base / f"overlay-{len(places)}", world.folder("lower"), world.folder("overlay")
        for path in (base, base / "upper", base / "work"):
            path.mkdir()
        (lower / "folder").mkdir()
        for path in (lower / "file", lower / "folder/gone", lower / "folder/moved"):
            path.write_text("text")
        for path in (base, base / "upper", base / "work", lower):
            os.chown(path, *owners[0])
        for path in (lower / "file", lower / "folder", lower / "folder/gone", lower / "folder/moved"):
            os.chown(path, *owners[1])
            path.chmod(0o777)
        places.append(place)
        return place, f"lowerdir={lower},upperdir={base}/upper,workdir={base}/work", base / "upper"

    yield make
    for place in places:
        if place.is_mount():
            umount(place, 2)


@one_store
def test_an_overlay_acts_for_its_users(store, mount, overlay):
    """With the uid and capabilities of its mounter, which no request tells."""
    qos = mount(store)
    trees = []
    for base in (store.dir, qos.dir):
        place, options, upper = overlay(base, ((0, 0), (OTHER, OTHER)))
        run("mount", "-t", "overlay", "-o", options, "overlay", place)
        assert attempt(as_user, USER, USER, [], lambda place=place: change_overlay(place)) is None
        trees.append(tree_without_xattrs(store.dir / upper.relative_to(base)))
    assert b"folder/new" in trees[0] and trees[0] == trees[1]


@one_store
def test_an_overlay_in_a_namespace(store, mount, overlay):
    """The same of one that root of a user namespace has mounted."""
    qos = mount(store)
    outcomes = []
    for base in (store.dir, qos.dir):
        place, options, upper = overlay(base, ((USER, USER), (MAPPED + 4, MAPPED + 5)))

        def act(place=place, options=options):
            assert LIBC.unshare(CLONE_NEWNS) == 0
            if LIBC.mount(b"overlay", os.fsencode(place), b"overlay", 0, f"{options},userxattr".encode()) != 0:
                return ctypes.get_errno()
            os.setresgid(3, 3, 3)
            os.setresuid(2, 2, 2)
            return attempt(change_overlay, place)
        outcomes.append((Caller("namespace", ALL | {"SETUID", "SETGID"}).run(act),
                         tree_without_xattrs(store.dir / upper.relative_to(base))))
    assert outcomes[0][0] is None and outcomes[1] == outcomes[0]


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_nobody_asks_for_an_ordinary_caller(store, mount, tmp_path):
    qos = mount(store, "cache=none")
    trace = tmp_path / "trace"
    with running(subprocess.Popen(["strace", "-f", "-e", "trace=capget,statx", "-o", trace, "-p", str(qos.pid)], stderr=subprocess.PIPE,
                                  text=True)) as tracer:
        assert "attached" in tracer.stderr.readline()
        as_user(USER, USER, [], lambda: ordinary_work(qos.dir))
        wait_until(lambda: "statx" in trace.read_text(), what="the trace")
    assert "capget" not in trace.read_text()


def ordinary_work(top):
    (top / "file").write_text("text")
    assert (top / "file").read_text() == "text" and "file" in os.listdir(top)
    (top / "file").chmod(0o600)
    os.rename(top / "file", top / "new")
    os.unlink(top / "new")
