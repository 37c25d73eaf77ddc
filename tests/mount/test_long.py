"""Two to eight mounts of one store, of which some die, and the server too, while random operations go on. These are
held against a model: each must end as it does on a twin of the store, and be seen through every mount that lives
(test_agree.py has the game).

Beside the game, each mount has a process of its own that changes files in a folder that all of them use: so those that
are killed are killed in the middle of something, and hold what others want. The game goes on at once: with the next
step the others wait for what the dead one had, until its lease is over; or for the server. The server is killed too
while a mount is stopped. The kernel of that mount goes on believing in what it has: until that has ended, the new
server must let nobody change it.

QOSFS_COHERENCE_SECONDS=3600: for an hour, one round after the other; without it one round with one death of each.
QOSFS_SEED: the round to begin with.
"""
import collections
import concurrent.futures
import contextlib
import os
import random
import select
import shutil
import signal
import time

from harness import TIMEOUT, is_stopped, of_threads, wait_until
from test_agree import Roamer, compare, compare_open, concerned, names_below
from test_random import Player

SECONDS = float(os.environ.get("QOSFS_COHERENCE_SECONDS", 0))
SEED = int(os.environ.get("QOSFS_SEED", 1))
MOUNTS = range(2, 9)
LEASE = 5  # s
STEPS = 60  # between two deaths, at most, and at least half of it
DEATHS = 8  # in a round
ALWAYS = set("abcd")  # looked at behind each step, so that all mounts have them cached, or that they are not there
AWAY_MAX = LEASE / 2  # s: so long a lease lasts without its server, whatever had happened before
PAUSE = 0.02  # s, between two changes of a process beside the game
END = TIMEOUT + LEASE  # s, for one step


class Bystander:
    """The process of a mount beside the game. Whatever it does may fail."""

    def __init__(self, mount, seed):
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._act(Player(mount.dir / "beside", seed))
            finally:
                os._exit(0)

    @staticmethod
    def _act(player):
        while True:
            with contextlib.suppress(OSError):
                player.chance.choice(player.moves)()
            time.sleep(PAUSE)

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Call:
    """A process that makes one call: its end may take as long as a daemon is stopped."""

    def __init__(self, function, *arguments):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.write(writer, str(function(*arguments)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        self._pipe = open(reader, "rb")

    def has_ended(self):
        return bool(select.select([self._pipe], [], [], 0)[0])

    def is_waiting(self):
        """For the daemon's answer."""
        return "request_wait_answer" in of_threads(self.pid, "wchan").values()

    def result(self):
        """As a text; "" where it failed."""
        wait_until(self.has_ended, END, what="a call's end")
        with self._pipe:
            told = self._pipe.read().decode()
        os.waitpid(self.pid, 0)
        return told


def size_of(path):
    return os.stat(path).st_size


def believes(path, looks):
    """Whether its kernel tells the file's size though the mount is stopped. What waits for it is added to `looks`."""
    look = Call(size_of, path)
    wait_until(lambda: look.has_ended() or look.is_waiting(), what="a look")
    if not look.has_ended():
        looks.append(look)
        return False
    look.result()
    return True


class Round:
    """One game, in a new folder, on some mounts of a cluster."""

    def __init__(self, some, twin, seed, counts):
        self._some = some
        self._counts = counts
        self._chance = random.Random(~seed)
        self._name = f"QOSFS_SEED={seed}"
        self._top = f"round-{seed}/top"
        (some.mounts[0].dir / "beside").mkdir(exist_ok=True)
        (some.mounts[0].dir / self._top).mkdir(parents=True)
        self._belief = f"round-{seed}/belief"
        (some.mounts[0].dir / self._belief).touch()
        twin.mkdir()
        self._roamer, self._double = Roamer(twin, seed, some.store.dir / self._top), Roamer(twin, seed)
        self._bystanders = {mount: Bystander(mount, self._chance.random()) for mount in some.mounts}
        self._steps = 0
        self._what = self._name

    def play(self, deaths):
        """FALSE where the machine was too slow: the server was away for so long that nothing can be said."""
        try:
            for death in deaths:
                self._walk()
                if not death(self):
                    return False
            self._walk()
            self._compare(names_below(self._some.store.dir / self._top))
            return True
        finally:
            for bystander in self._bystanders.values():
                bystander.end()
            self._roamer.close()
            self._double.close()

    def _walk(self):
        for _ in range(self._chance.randrange(STEPS // 2, STEPS)):
            self._step()

    def _step(self):
        mount = self._chance.choice(self._some.mounts)
        self._roamer.top = mount.dir / self._top
        begun = time.monotonic()
        outcome = self._roamer.step()
        self._steps += 1
        self._counts["operations"] += 1
        self._what = f"{self._name}, step {self._steps}, {outcome} by mount {self._some.mounts.index(mount)}"
        assert time.monotonic() - begun < END, f"{self._what} took {time.monotonic() - begun} s"
        assert outcome == self._double.step(), self._what
        self._compare(ALWAYS | concerned(self._some.store.dir / self._top, self._roamer))
        compare_open(self._some, self._top, self._roamer, self._double, self._what)

    def _compare(self, names):
        compare(self._some, self._top, names, self._what)

    def _slots_of(self, mount):
        """The files that are open through it."""
        return [slot for slot in self._roamer.files if self._roamer.tops[slot].is_relative_to(mount.dir)]

    # --- deaths ---

    def mount_dies(self):
        """What was open through it is closed; another takes its place."""
        victim = self._some.mounts.pop(self._chance.randrange(len(self._some.mounts)))
        slots = self._slots_of(victim)
        victim.kill()
        self._counts["mounts killed"] += 1
        self._bystanders.pop(victim).end()
        for slot in slots:
            with contextlib.suppress(OSError):  # there is nobody to flush it
                self._roamer.drop(slot)
            self._double.drop(slot)
        self._walk()
        fresh = add_mount(self._some)
        self._bystanders[fresh] = Bystander(fresh, self._chance.random())
        return True

    def server_dies(self):
        """For less than a lease: nobody loses anything."""
        begun = time.monotonic()
        away = self._chance.random() * AWAY_MAX / 2
        self._some.server.kill()
        self._counts["servers killed"] += 1
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            walk = pool.submit(self._step)
            concurrent.futures.wait([walk], away)
            self._some.server.start()
            walk.result()
        self._some.wait_up()
        if time.monotonic() - begun > AWAY_MAX:
            return False
        self._step()
        return True

    def server_dies_unheard(self):
        """By a mount that is stopped meanwhile. Nobody changes what its kernel believes, as long as it does."""
        victim, other = self._chance.sample(self._some.mounts, 2)
        path, before = victim.dir / self._belief, size_of(victim.dir / self._belief)
        looks, change, begun = [], None, time.monotonic()
        for slot in self._slots_of(victim):  # each process that ends would wait with its copy
            self._roamer.drop(slot)
            self._double.drop(slot)
        os.kill(victim.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: is_stopped(victim.pid), what="the mount's stop")
            if believes(path, looks):
                self._some.server.kill()
                self._some.server.start()
                self._counts["servers killed unheard"] += 1
                change, has_changed = Call(os.truncate, other.dir / self._belief, before + 1), False
                while believes(path, looks):
                    assert not has_changed, f"{self._what}: {path} is believed in, and was changed by {other.dir}"
                    has_changed = change.has_ended()
                self._some.wait_up(other)
            away = time.monotonic() - begun
        finally:
            os.kill(victim.pid, signal.SIGCONT)
        sizes = {look.result() for look in looks}
        if change:
            assert change.result() == "None" and sizes <= {str(before), str(before + 1)}, self._what
            self._some.wait_up()
            assert {size_of(mount.dir / self._belief) for mount in self._some.mounts} == {before + 1}, self._what
        if away > AWAY_MAX:
            return False
        self._step()
        return True


def add_mount(some):
    made = some.add()
    some.wait_up(made)
    some.expects_trouble()
    return made


def test_random_operations_while_some_die(cluster, new_store):
    some = cluster(mounts=2, lease=LEASE)
    some.expects_trouble()
    until = time.monotonic() + SECONDS
    seed, counts = SEED, collections.Counter()
    while True:
        chance = random.Random(seed)
        mounts, deaths = 3, [Round.server_dies, Round.mount_dies, Round.server_dies_unheard]
        if SECONDS:
            mounts, deaths = chance.choice(MOUNTS), chance.choices(deaths, k=DEATHS)
        while len(some.mounts) > mounts:
            some.mounts.pop().unmount()
        while len(some.mounts) < mounts:
            add_mount(some)
        twin = new_store().dir / "top"
        is_judged = Round(some, twin, seed, counts).play(deaths)
        counts["rounds" if is_judged else "rounds broken off: the server was away for too long to judge"] += 1
        for top in twin, some.mounts[0].dir / f"round-{seed}":
            shutil.rmtree(top)
        seed += 1
        if time.monotonic() >= until:
            break
    print(f"QOSFS_SEED={SEED} to {seed - 1}:", ", ".join(f"{count} {what}" for what, count in counts.items()))
