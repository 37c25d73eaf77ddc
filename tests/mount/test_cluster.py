"""A cluster in which something fails, while its mounts change and look at the same files.

A register is a file, or a folder, that one process changes, by one mount or another, while a process on each mount
looks at it. However the fault goes, no process sees a value older than what was complete before it looked, and no call
takes longer than a lease and a margin. When the fault is over all go on by themselves. The moment of the fault is
drawn: so many changes after the beginning.

QOSFS_COHERENCE_SECONDS: for so long each, one round after the other; without it one round. QOSFS_SEED: the first round.
"""
import contextlib
import fcntl
import json
import mmap
import os
import pickle
import random
import re
import shutil
import signal
import struct
import subprocess
import time

from harness import MNT_DETACH, TIMEOUT, of_threads, run, running, start_job, stopped, umount, wait_until
from test_agree import Data, Link, Name, check
from test_coherence import requests
from twins import attempt

SECONDS = float(os.environ.get("QOSFS_COHERENCE_SECONDS", 0))
SEED = int(os.environ.get("QOSFS_SEED", 1))
LEASE = 2  # s
LONG_LEASE = 60  # s: no fault lasts so long
MARGIN = TIMEOUT  # s, for a slow machine
LATEST = 60  # changes before the fault
ENOUGH = 10  # calls of each, to see that it goes on


class Moved(Name):
    """A change may be made again, where nobody knows whether it was."""

    def write(self, folder, value):
        try:
            super().write(folder, value)
        except FileNotFoundError:
            if not (folder / f"names/{value}").exists():
                raise


REGISTERS = [Moved(), Link(), Data()]


class Actor:
    """A process that calls function(count) until it is told to stop, and then tells what came of it."""

    def __init__(self, function):
        self._shared = mmap.mmap(-1, 24)  # whether to stop; how many calls; whether it has ended
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(reader)
                told = self._act(function)
                self._put(2, 1)
                with open(writer, "wb") as pipe:
                    pickle.dump(told, pipe)
            finally:
                os._exit(0)
        os.close(writer)
        self._pipe = open(reader, "rb")

    def _put(self, place, value):
        struct.pack_into("q", self._shared, place * 8, value)

    def _get(self, place):
        return struct.unpack_from("q", self._shared, place * 8)[0]

    def _act(self, function):
        story = []
        try:
            while not self._get(0):
                begun = time.monotonic_ns()
                register, value = function(len(story))
                story.append((register, value, begun, time.monotonic_ns()))
                self._put(1, len(story))
        except Exception as error:
            return story, f"{type(error).__name__}: {error}"
        return story, None

    @property
    def count(self):
        return self._get(1)

    def wait(self, more):
        """Until it has done so many more, each in time."""
        for _ in range(more):
            before = self.count
            wait_until(lambda before=before: self.count > before or self._get(2), LEASE + MARGIN,
                       what="an actor's next call")

    def stop(self):
        self._put(0, 1)

    def story(self):
        """[(register, value, begun, done)], and the error that ended it or None."""
        self.stop()
        with self._pipe:
            told = pickle.load(self._pipe)
        os.waitpid(self.pid, 0)
        return told

    def abandon(self):
        """Nobody asks any more."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Game:
    """One round: registers in a new folder, which `writers` change in a random order and all mounts look at."""

    def __init__(self, some, seed, writers):
        self.seed = seed
        self.chance = random.Random(seed)
        self._name = f"round-{seed}"
        top = some.mounts[0].dir / self._name
        top.mkdir()
        for register in REGISTERS:
            register.start(top)
        self._writing = [mount.dir / self._name for mount in writers]
        self._readers = {}
        for mount in some.mounts:
            self.add_reader(mount)
        self.writer = Actor(self._write)

    def _write(self, count):
        """Through another mount where one has died: that one may have made the change, or not."""
        register, value = count % len(REGISTERS), count // len(REGISTERS) + 1
        while True:
            try:
                REGISTERS[register].write(self.chance.choice(self._writing), value)
                return register, value
            except OSError:
                if len(self._writing) == 1:
                    raise

    def add_reader(self, mount):
        folder = mount.dir / self._name

        def read(count):
            register = count % len(REGISTERS)
            return register, REGISTERS[register].read(folder)
        self._readers[mount] = Actor(read)

    def go_on(self, without=()):
        """Until all that live have made some more calls."""
        for actor in (self.writer, *(actor for mount, actor in self._readers.items() if mount not in without)):
            actor.wait(ENOUGH)

    def wait_moment(self):
        self.writer.wait(self.chance.randrange(1, LATEST))

    def finish(self, lease=LEASE, dead=(), silent=(), slack=0):
        """Ends it and looks at what was seen. The readers of `dead` mounts end as they may; those of `silent` ones may
        wait for these; what was seen may be `slack` s old."""
        writes, error = self.writer.story()
        assert error is None, f"QOSFS_SEED={self.seed}: a change: {error}"
        stories = {}
        for mount, actor in self._readers.items():
            stories[mount], error = actor.story()
            assert error is None or mount in dead, f"QOSFS_SEED={self.seed}: mount at {mount.dir}: {error}"
        for mount, reads in [(None, writes), *stories.items()]:
            longest = max((done - begun for _, _, begun, done in reads), default=0) / 1e9
            assert mount in silent or longest <= lease + MARGIN, f"QOSFS_SEED={self.seed}: a call took {longest} s"
        for register, kind in enumerate(REGISTERS):
            changes = [call[1:] for call in writes if call[0] == register]
            for mount, reads in stories.items():
                seen = [(value, begun - int(slack * 1e9), done) for at, value, begun, done in reads if at == register]
                check(f"QOSFS_SEED={self.seed}: {type(kind).__name__} through {mount.dir}", changes, seen)

    def abandon(self):
        for actor in (self.writer, *self._readers.values()):
            actor.abandon()


def rounds():
    """The seeds of the rounds."""
    end = time.monotonic() + SECONDS
    seed = SEED
    while True:
        print(f"QOSFS_SEED={seed}")
        yield seed
        seed += 1
        if time.monotonic() >= end:
            break


@contextlib.contextmanager
def playing(some, seed, writers):
    game = Game(some, seed, writers)
    try:
        yield game
    finally:
        game.abandon()


def valid(mount):
    """For how many s it may believe what it has cached."""
    return mount.state()["server"]["valid"]


def evictions(mount):
    """How often it lost all that it had."""
    return mount.state()["server"]["evictions"]


def test_a_mount_is_killed(cluster):
    """What it had is free when its lease is over; one that comes is served."""
    some = cluster(mounts=3, lease=LEASE)
    for seed in rounds():
        with playing(some, seed, some.mounts) as game:
            game.wait_moment()
            victim = some.mounts.pop(game.chance.randrange(3))
            victim.kill()
            game.go_on(without=[victim])
            fresh = some.add()
            some.wait_up(fresh)
            game.add_reader(fresh)
            game.go_on(without=[victim])
            game.finish(dead=[victim])


def test_the_server_is_killed(cluster):
    """Within the lease: what was cached is still so, and nobody loses anything."""
    some = cluster(mounts=3, lease=LONG_LEASE)
    some.expects_trouble()
    for seed in rounds():
        with playing(some, seed, some.mounts) as game:
            game.wait_moment()
            some.server.kill()
            some.server.start()
            some.wait_up()
            game.go_on()
            game.finish(lease=LONG_LEASE)
        assert not any(map(evictions, some.mounts))


def test_all_is_reclaimed(cluster):
    """Seed 001, 4.2.2: as much is granted after the server's recovery as before it was killed, to the byte, and to each mount."""
    some = cluster(mounts=2, lease=LONG_LEASE, server_options=["--group", "1"])
    some.expects_trouble()
    (some.store.dir / "folder").mkdir()
    for number in range(1500):  # more than some messages of claims hold
        (some.store.dir / f"folder/{number}").touch()

    def granted():
        """G, and of each mount what the server and it itself count."""
        pool = json.loads(some.server.ctl("status", "--json"))["pool"]
        lent = {mount["name"].split(":")[1]: mount for mount in json.loads(some.server.ctl("mounts", "--json"))}
        return pool["granted"], [(lent[str(mount.dir)]["bytes"], lent[str(mount.dir)]["credits"], mount.state()["server"]["credits"])
                                 for mount in some.mounts]
    def all_are_held():
        """And mounts and server agree. Where memory was short meanwhile the mounts have given some back: so all are looked at anew."""
        for number in range(1500):
            (some.mounts[number % 2].dir / f"folder/{number}").stat()
        held = granted()[1]
        return sum(lent for _, lent, _ in held) >= 1500 and all(lent == had for _, lent, had in held)
    wait_until(all_are_held, what="all to be held")
    before = granted()
    some.server.kill()
    some.server.start()
    some.wait_up()
    # A mount is up when it is welcome; the grace ends when the server has all claims.
    wait_until(lambda: not json.loads(some.server.ctl("status", "--json"))["grace"], what="all claims")
    assert granted() == before
    assert not any(map(evictions, some.mounts))


def resets(server):
    """How many sessions it has ended since it was started."""
    return int(re.search(r'^qosfs_server_sent_total\{type="reset"\} (\d+)$', server.ctl("metrics"), re.MULTILINE)[1])


def test_the_server_comes_back_from_a_backup(cluster):
    """By a start of the same number, so that nothing but its answers tells the mounts: changes go on when the lease is over."""
    some = cluster(mounts=1, lease=LEASE)
    some.expects_trouble()
    mount = some.mounts[0]
    backup = some.server.database.with_name("backup")
    some.server.kill()
    shutil.copytree(some.server.database, backup)
    some.server.start()
    for number in range(2):
        some.wait_up()
        for file in range(100):
            (mount.dir / f"{number}-{file}").write_text("data")
        assert resets(some.server) < 100
        some.server.kill()
        shutil.rmtree(some.server.database)
        shutil.copytree(backup, some.server.database)
        some.server.start()


def test_the_server_is_away(cluster):
    """For longer than the lease. A mount without a lease changes what others still believe in, until their leases end."""
    some = cluster(mounts=3, lease=LEASE)
    some.expects_trouble()
    for seed in rounds():
        with playing(some, seed, some.mounts) as game:
            game.wait_moment()
            some.server.kill()
            wait_until(lambda: not any(map(valid, some.mounts)), LEASE + MARGIN, what="the lease's end")
            # The first change by each mount waits for the server, for 10 s: all at the same time, and not one after the other.
            first_changes = [start_job("7", "touch", mount.dir / "changed") for mount in some.mounts]
            assert [change.wait(LEASE + MARGIN) for change in first_changes] == [0] * len(some.mounts)
            game.go_on()
            some.server.start()
            some.wait_up()
            game.go_on()
            game.finish(slack=LEASE)


def test_a_holder_is_stopped(cluster):
    """Others wait for it no longer than its lease; when it goes on it knows that all is lost."""
    some = cluster(mounts=3, lease=LEASE)
    some.expects_trouble()
    (some.store.dir / "locked").touch()
    for seed in rounds():
        victim = some.mounts[seed % 3]
        others = [mount for mount in some.mounts if mount != victim]
        before = evictions(victim)
        with playing(some, seed, others) as game, open(victim.dir / "locked", "rb") as held, \
                open(others[0].dir / "locked", "rb") as wanted:
            # What is only cached it may have given up by the moment of its stop, to the last credit.
            fcntl.flock(held, fcntl.LOCK_EX)
            game.wait_moment()
            with stopped(victim.pid):
                game.go_on(without=[victim])
                wait_until(lambda file=wanted: attempt(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB) is None, LEASE + MARGIN,
                           what="the lock of the stopped mount")
            some.wait_up()
            wait_until(lambda v=victim, b=before: evictions(v) > b, what="its notice of what it lost")
            game.go_on()
            game.finish(silent=[victim])


def is_waiting(process):
    """For the answer to a FUSE request."""
    return "request_wait_answer" in of_threads(process.pid, "wchan").values()


def test_a_stopped_holder_is_not_believed(cluster):
    """Nor by its kernel, though that cannot be told: what it keeps ends with the lease, and a process that looks then waits."""
    some = cluster(lease=LEASE)
    some.expects_trouble()
    first, second = some.mounts
    (first.dir / "quiet").write_text("old")

    def is_kept():
        before = requests(second)
        (second.dir / "quiet").stat()
        return requests(second) == before
    with open(second.dir / "quiet") as file, contextlib.ExitStack() as stack:
        # By its name, and as an open file. All keep that open until they end: a close waits for the daemon.
        commands = [["stat", "-Lc", "%s", path] for path in (second.dir / "quiet", f"/dev/fd/{file.fileno()}")]
        wait_until(is_kept, what="a look that costs nothing")
        with stopped(second.pid):
            os.truncate(first.dir / "quiet", 5)
            looks = [stack.enter_context(running(start_job(1, *command, pass_fds=[file.fileno()], stdout=subprocess.PIPE,
                                                           text=True))) for command in commands]
            wait_until(lambda: all(map(is_waiting, looks)), what="the looks")
        assert [look.communicate(timeout=TIMEOUT)[0] for look in looks] == ["5\n", "5\n"]


def test_the_network_is_cut(cluster):
    """From one mount, with its caches filled: it sees all changes that others make, by the store if need be."""
    some = cluster(mounts=3, lease=LEASE, tcp=True)
    some.expects_trouble()
    for seed in rounds():
        victim = some.mounts[seed % 3]
        with playing(some, seed, [mount for mount in some.mounts if mount != victim]) as game:
            game.wait_moment()
            some.cut(victim)
            wait_until(lambda victim=victim: valid(victim) == 0, LEASE + MARGIN, what="its lease's end")
            game.go_on()
            some.mend(victim)
            some.wait_up()
            game.go_on()
            game.finish()


def test_the_disk_is_full(cluster, world):
    """Below the server's database: known mounts are served, and a new one works without caching until there is room."""
    disk = world.folder("small-disk")
    run("mount", "-t", "tmpfs", "-o", "size=1m", "qosfs-small", disk)
    try:
        fill_disk_and_play(cluster, disk)
    finally:
        umount(disk, MNT_DETACH)


def fill_disk_and_play(cluster, disk):
    # A mount that loses its lease meanwhile is as new.
    some = cluster(mounts=2, lease=LONG_LEASE, server_options=["--database", disk])
    some.server.expects_log("mounts that are new wait until that is fixed")
    for seed in rounds():
        early = list(some.mounts)
        with playing(some, seed, early) as game:
            game.wait_moment()
            fill(disk / "filler")
            late = some.add()
            late.expects_log("lock server .* fell silent, for ")
            game.add_reader(late)
            wait_until(lambda: "mounts that are new wait" in some.server.log, what="the server's complaint")
            game.go_on()
            assert all(map(valid, early)) and not valid(late)
            (disk / "filler").unlink()
            wait_until(lambda late=late: valid(late), what="the late mount's session")
            game.go_on()
            game.finish(lease=LONG_LEASE)
        some.mounts.remove(late)
        late.unmount()


def fill(path):
    """All that is left of its disk."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
