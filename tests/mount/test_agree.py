"""Mounts of one store agree: what one changes, the others see with their next call.

One after the other: random operations, each through a random mount, must end as they do on a twin of the store, and
what they touched must then look through every mount as it does in the store itself, which each mount had looked at before.
At the same time: each register is a file that one process changes, by all mounts in turn, while others look at it; what
they see must never be older than what was complete before they looked, nor newer than what had begun. While a change is
made they may see either; but when one has seen the new, nobody sees the old any more but on the mount that makes the change
(docs/coherence.md, "While a change is made").

QOSFS_COHERENCE_SECONDS: for so long each; without it one game each of the former, and some seconds of the latter.
QOSFS_SEED: the game to begin with.
"""
import bisect
import errno
import itertools
import os
import pathlib
import pickle
import random
import stat
import time

import pytest

from test_random import Player
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

    def __init__(self, top, seed):
        super().__init__(top, seed)
        self.touched = set()
        self.moves.remove(self.move_copy)  # not between mounts

    def path(self):
        path = super().path()
        self.touched.add(os.path.relpath(path, self.top))
        return path

    def step(self):
        self.touched.clear()
        move = self.chance.choice(self.moves)
        try:
            return move.__name__, move()
        except OSError as error:
            return move.__name__, errno.errorcode[error.errno]

    def close(self):
        for fd in self.files.values():
            os.close(fd)


def look(path):
    """All that a program can see of it."""
    try:
        facts = os.lstat(path)
        data = None
        if stat.S_ISREG(facts.st_mode):
            data = pathlib.Path(path).read_bytes()
        elif stat.S_ISLNK(facts.st_mode):
            data = os.readlink(path)
        elif stat.S_ISDIR(facts.st_mode):
            data = sorted(os.listdir(path))
    except OSError as error:
        return errno.errorcode[error.errno]
    return (facts.st_ino, stat.filemode(facts.st_mode), facts.st_nlink, facts.st_uid, facts.st_gid, facts.st_size,
            facts.st_mtime_ns, facts.st_ctime_ns, data, xattrs(path))


def names_below(top):
    found = {"."}
    for folder, folders, files in os.walk(top):
        found.update(os.path.relpath(os.path.join(folder, name), top) for name in folders + files)
    return found


def compare(some, top, names, what):
    for name in sorted(names):
        truth = look(some.store.dir / top / name)
        for mount in some.mounts:
            seen = look(mount.dir / top / name)
            assert seen == truth, f"{what}: {name} through mount {some.mounts.index(mount)}"


def play(some, twin, seed, until):
    """One game in a new folder, of which links lead out; nothing changes but through the mounts."""
    top = f"game-{seed}/top"
    (some.mounts[0].dir / top).mkdir(parents=True)
    twin.mkdir()
    roamer, double, way = Roamer(twin, seed), Roamer(twin, seed), random.Random(~seed)
    for step in range(STEPS):
        mount = way.choice(some.mounts)
        roamer.top = mount.dir / top
        outcome = roamer.step()
        what = f"QOSFS_SEED={seed}, step {step}, {outcome} by mount {some.mounts.index(mount)}"
        assert outcome == double.step(), what
        compare(some, top, roamer.touched | {os.path.dirname(name) or "." for name in roamer.touched}, what)
        if step % WALK_EACH == 0:
            compare(some, top, names_below(some.store.dir / top), what)
        if time.monotonic() > until:
            break
    roamer.close()
    double.close()
    compare(some, top, names_below(some.store.dir / top), f"QOSFS_SEED={seed}, in the end")


@pytest.mark.parametrize("mounts", [2, 4])
def test_one_after_the_other(cluster, new_store, mounts):
    some = cluster(mounts=mounts)
    until = time.monotonic() + (SECONDS or TEST_MAX)
    seed = SEED
    while True:
        play(some, new_store().dir / "top", seed, until)
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


REGISTERS = [Data, Still, Size, Name, Link]


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
    some = cluster(mounts=mounts)
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
