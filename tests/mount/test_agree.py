"""Mounts of one store agree: what one changes, the others see with their next call.

One after the other: random operations, each through a random mount, must end as they do on a twin of the store. What
they touched, by any name of it, must then look through some mounts as it does in the store itself, and now and then all
through all of them. So must what is open, also where it has no name any more.
At the same time: each register is a file that one process changes, by all mounts in turn, while others look at it. What
they see must never be older than what was complete before they looked, nor newer than what had begun. While a change is
made they may see either; but when one has seen the new, nobody sees the old any more but on the mount that makes the change
(docs/design/coherence.md, "While a change is made").

QOSFS_COHERENCE_SECONDS: for so long each; without it one game each of the former, and some seconds of the latter.
QOSFS_SEED: the game to begin with.
"""
import bisect
import collections
import contextlib
import errno
import itertools
import os
import pathlib
import pickle
import random
import stat
import time

import pytest

from harness import wait_until
from syscalls import RENAME_EXCHANGE, renameat2
from test_random import Player, list_open
from twins import xattrs

SECONDS = float(os.environ.get("QOSFS_COHERENCE_SECONDS", 0))
SHORT = 3  # s at the same time, without it
CALLS_MIN = 10
SEED = int(os.environ.get("QOSFS_SEED", 1))
STEPS = 300
TEST_MAX = 120  # s, of a short test
WALK_EACH = 15  # steps


# --- one after the other ---

class Roamer(Player):
    """Remembers what a move was about."""

    def __init__(self, top, seed, plan=None):
        super().__init__(top, seed, plan)
        self.touched = set()
        self.moves.remove(self.move_copy)  # not between mounts

    def choose(self, kinds):
        path = super().choose(kinds)
        self.touched.add(os.path.normpath(path))
        return path

    def step(self):
        self.touched.clear()
        return super().step()


def facts_of(status):
    return (status.st_ino, stat.filemode(status.st_mode), status.st_nlink, status.st_uid, status.st_gid, status.st_size,
            status.st_mtime_ns, status.st_ctime_ns)


def look(path):
    """All that a program can see of it."""
    try:
        status = os.lstat(path)
        data = None
        if stat.S_ISREG(status.st_mode):
            data = pathlib.Path(path).read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            data = os.readlink(path)
        elif stat.S_ISDIR(status.st_mode):
            data = sorted(os.listdir(path))
    except OSError as error:
        return errno.errorcode[error.errno]
    return facts_of(status), data, xattrs(path)


def look_open(fd):
    """The same of what is open."""
    status = os.fstat(fd)
    data = None
    if stat.S_ISREG(status.st_mode):
        data = os.pread(fd, status.st_size + 1, 0)
    elif stat.S_ISDIR(status.st_mode):
        try:
            data = list_open(fd)
        except OSError as error:  # it was removed
            data = errno.errorcode[error.errno]
    return facts_of(status), data, {name: os.getxattr(fd, name) for name in os.listxattr(fd)}


def names_below(top):
    found = {"."}
    for folder, folders, files in os.walk(top):
        found.update(os.path.relpath(os.path.join(folder, name), top) for name in folders + files)
    return found


def compare(some, top, names, what, mounts=None):
    for name in sorted(names):
        truth = look(some.store.dir / top / name)
        for mount in mounts or some.mounts:
            seen = look(mount.dir / top / name)
            assert seen == truth, f"{what}: {name} through mount {some.mounts.index(mount)}"


def compare_open(some, top, roamer, double, what):
    """What is open, also by its names, against the store; what has none there, against the twin, and against all others
    that have it open. So the kernel learns where an open folder has gone, and what its `..` is (docs/design/coherence.md,
    "What it cannot do")."""
    store_top = some.store.dir / top
    names = collections.defaultdict(list)
    for name in names_below(store_top):
        names[os.lstat(store_top / name).st_ino].append(name)
    truths = {number: look(store_top / name) for number, (name, *_) in names.items()}
    for slot, fd in roamer.files.items():
        seen = look_open(fd)
        (number, *facts), data, more = seen
        where = f"{what}: open file {slot}, below {roamer.tops[slot]}"
        assert seen == truths.setdefault(number, seen), where
        for name in names[number]:
            assert look(roamer.tops[slot] / name) == seen, f"{where}, as {name}"
        (_, *twin), twin_data, twin_more = look_open(double.files[slot])
        assert (facts[:4], data, more) == (twin[:4], twin_data, twin_more), f"{where}, unlike its twin"


def concerned(store_top, roamer):
    """The names that a move was about, their folders, and all other names of these and of the open files."""
    numbers = {os.fstat(fd).st_ino for fd in roamer.files.values()}
    names = roamer.touched | {os.path.dirname(name) or "." for name in roamer.touched}
    found = {name: os.lstat(store_top / name).st_ino for name in names_below(store_top)}
    numbers.update(found[name] for name in names if name in found)
    return names | {name for name, number in found.items() if number in numbers}


def play(some, twin, seed, until):
    """One game in a new folder, of which links lead out; nothing changes but through the mounts."""
    top = f"game-{seed}/top"
    (some.mounts[0].dir / top).mkdir(parents=True)
    twin.mkdir()
    roamer, double, way = Roamer(twin, seed, some.store.dir / top), Roamer(twin, seed), random.Random(~seed)
    with contextlib.closing(roamer), contextlib.closing(double):
        for step in range(STEPS):
            mount = way.choice(some.mounts)
            roamer.top = mount.dir / top
            outcome = roamer.step()
            what = f"QOSFS_SEED={seed}, step {step}, {outcome} by mount {some.mounts.index(mount)}"
            assert outcome == double.step(), what
            lookers = way.sample(some.mounts, way.randrange(len(some.mounts)) + 1)  # others go on with what they have cached
            compare(some, top, concerned(some.store.dir / top, roamer), what, lookers)
            compare_open(some, top, roamer, double, what)
            if step % WALK_EACH == 0:
                compare(some, top, names_below(some.store.dir / top), what)
            if time.monotonic() > until:
                break
    compare(some, top, names_below(some.store.dir / top), f"QOSFS_SEED={seed}, in the end")


@pytest.mark.parametrize("group", [1, 1024])
@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "btrfs"] if SECONDS else ["tmpfs"])
@pytest.mark.parametrize("mounts", [2, 3, 8] if SECONDS else [2, 4])
def test_one_after_the_other(cluster, new_store, mounts, kind, group):
    some = cluster(new_store(kind), mounts=mounts, lease=300, server_options=["--group", str(group)])
    until = time.monotonic() + (SECONDS or TEST_MAX)
    seed = SEED
    while True:
        play(some, new_store(kind).dir / "top", seed, until)
        if not SECONDS or time.monotonic() > until:
            break
        seed += 1


# --- at the same time ---

class Data:
    """The bytes of a file."""

    name = "data"

    def start(self, folder):
        (folder / self.name).write_bytes(bytes(8))

    def write(self, folder, value):
        fd = os.open(folder / self.name, os.O_WRONLY)
        os.pwrite(fd, value.to_bytes(8, "big"), 0)
        os.close(fd)

    def read(self, folder):
        with open(folder / self.name, "rb") as file:
            return int.from_bytes(file.read(8), "big")


class Still(Data):
    """The same, while neither size nor time tells that they change."""

    name = "still"

    def start(self, folder):
        super().start(folder)
        os.utime(folder / self.name, (1, 1))

    def write(self, folder, value):
        super().write(folder, value)
        os.utime(folder / self.name, (1, 1))


class Size:
    """What stat() says."""

    def start(self, folder):
        (folder / "size").write_bytes(b"")

    def write(self, folder, value):
        os.truncate(folder / "size", value)

    def read(self, folder):
        return os.stat(folder / "size").st_size


class Name:
    """Which name there is."""

    def start(self, folder):
        (folder / "names").mkdir()
        (folder / "names/0").write_bytes(b"")

    def write(self, folder, value):
        os.rename(folder / f"names/{value - 1}", folder / f"names/{value}")

    def read(self, folder):
        return max(map(int, os.listdir(folder / "names")))


class Link:
    """Where a name leads: a file that takes another's place."""

    def start(self, folder):
        self._put(folder, 0)

    def _put(self, folder, value):
        (folder / "new").write_bytes(b"%d" % value)
        os.rename(folder / "new", folder / "link")

    write = _put

    def read(self, folder):
        return int((folder / "link").read_bytes())


class Exchange(Link):
    """The same, while both files stay, in different folders."""

    def start(self, folder):
        (folder / "aside").mkdir()
        (folder / "exchanged").write_bytes(b"0")

    def write(self, folder, value):
        (folder / "aside/new").unlink(missing_ok=True)
        (folder / "aside/new").write_bytes(b"%d" % value)
        renameat2(folder / "aside/new", folder / "exchanged", RENAME_EXCHANGE)

    def read(self, folder):
        return int((folder / "exchanged").read_bytes())


class Move:
    """In which of two folders a folder is, and under which name."""

    def start(self, folder):
        for side in range(2):
            (folder / f"side{side}").mkdir()
        (folder / "side0/0").mkdir()

    def write(self, folder, value):
        wait_until(lambda: self._move(folder, value), what=f"the move to {value}")

    def _move(self, folder, value):
        try:
            os.rename(folder / f"side{(value - 1) % 2}/{value - 1}", folder / f"side{value % 2}/{value}")
        except OSError as error:
            if error.errno != errno.ESTALE:  # docs/design/coherence.md, "What it cannot do"
                raise
            return False
        return True

    def read(self, folder):
        while True:  # it may go from the second to the first between the two looks
            names = [*os.listdir(folder / "side0"), *os.listdir(folder / "side1")]
            if names:
                return max(map(int, names))


REGISTERS = [Data, Still, Size, Name, Link, Exchange, Move]


def act(function, seconds):
    """What happened: (value, begun, done) for each call of function(count), in ns. At least some calls, however slow."""
    story = []
    end = time.monotonic() + seconds
    while len(story) < CALLS_MIN or time.monotonic() < end:
        begun = time.monotonic_ns()
        value = function(len(story))
        story.append((value, begun, time.monotonic_ns()))
    return story


class Actor:
    """A process that acts, and then tells."""

    def __init__(self, function, seconds):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(reader)
                with open(writer, "wb") as pipe:
                    try:
                        pickle.dump(act(function, seconds), pipe)
                    except BaseException as error:
                        pickle.dump(f"{type(error).__name__}: {error}", pipe)
            finally:
                os._exit(0)
        os.close(writer)
        self._pipe = open(reader, "rb")

    def story(self):
        with self._pipe:
            told = pickle.load(self._pipe)
        os.waitpid(self.pid, 0)
        assert isinstance(told, list), told
        return told


def check(name, writes, reads):
    """Each read against the writes, of which there was one at a time."""
    begun = [write[1] for write in writes]
    done = [write[2] for write in writes]
    for value, start, end in reads:
        oldest = bisect.bisect_left(done, start)  # so many were complete: the value of the last is their number
        newest = bisect.bisect_left(begun, end)
        assert oldest <= value <= newest, \
            f"{name}: read {value}, which was {oldest} to {newest} then; the read took {(end - start) / 1e6} ms, and " \
            f"began {(start - done[oldest - 1]) / 1e6} ms after the last change, which took " \
            f"{(done[oldest - 1] - begun[oldest - 1]) / 1e6} ms"


def check_order(name, stories):
    """Nobody goes back: stories[n] are the reads through mount n, which makes the changes to n + 1, n + 1 + len(stories) and so on.
    There alone the kernel may show what it has of either while the change is made."""
    def maker(value):
        return (value - 1) % len(stories)
    seen = sorted((end, value) for place, reads in enumerate(stories) for value, _, end in reads if maker(value) != place)
    ends = [end for end, _ in seen]
    newest = [0, *itertools.accumulate((value for _, value in seen), max)]
    for place, reads in enumerate(stories):
        for value, start, _ in reads:
            known = newest[bisect.bisect_left(ends, start)]
            assert value >= known or maker(known) == place, \
                f"{name}: read {value} through mount {place} after {known}, which mount {maker(known)} made, had been read"


@pytest.mark.parametrize("mounts", [2, 4, 8] if SECONDS else [2, 4])
def test_at_the_same_time(cluster, mounts):
    some = cluster(mounts=mounts, lease=300)
    seconds = SECONDS or SHORT
    folders = [mount.dir for mount in some.mounts]

    def writing(register):
        def write(count):
            register.write(folders[count % mounts], count + 1)
            return count + 1
        return write
    registers = [kind() for kind in REGISTERS]
    for register in registers:
        register.start(folders[0])
    actors = {register: (Actor(writing(register), seconds),
                         [Actor(lambda count, folder=folder, register=register: register.read(folder), seconds)
                          for folder in folders]) for register in registers}
    stories = {register: (writer.story(), [reader.story() for reader in readers])
               for register, (writer, readers) in actors.items()}
    for register, (writes, reads) in stories.items():
        name = f"{type(register).__name__} of {mounts} mounts"
        for place, story in enumerate(reads):
            check(f"{name} through mount {place}", writes, story)
        check_order(name, reads)
