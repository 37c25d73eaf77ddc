"""Two to eight mounts of one store, of which some die, and the server too, while random operations go on and are held against a
model: each must end as it does on a twin of the store, and be seen through every mount that lives (test_agree.py has the game).

Beside the game, each mount has a process of its own that changes files in a folder that all of them use: so those who are
killed are killed in the middle of something, and hold what others want. The game goes on at once: with the next step
the others wait for what the dead one had, until its lease is over; or for the server.

QOSFS_COHERENCE_SECONDS=3600: for an hour, one round after the other; without it one round with one death of each.
QOSFS_SEED: the round to begin with.
"""
import concurrent.futures
import contextlib
import os
import random
import shutil
import signal
import time

from harness import TIMEOUT
from test_agree import Roamer, compare, names_below
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


class Round:
    """One game, in a new folder, on some mounts of a cluster."""

    def __init__(self, some, twin, seed):
        self._some = some
        self._chance = random.Random(~seed)
        self._name = f"QOSFS_SEED={seed}"
        self._top = f"round-{seed}/top"
        (some.mounts[0].dir / "beside").mkdir(exist_ok=True)
        (some.mounts[0].dir / self._top).mkdir(parents=True)
        twin.mkdir()
        self._roamer, self._double = Roamer(twin, seed), Roamer(twin, seed)
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
        self._what = f"{self._name}, step {self._steps}, {outcome} by mount {self._some.mounts.index(mount)}"
        assert time.monotonic() - begun < END, f"{self._what} took {time.monotonic() - begun} s"
        assert outcome == self._double.step(), self._what
        touched = self._roamer.touched
        self._compare(ALWAYS | touched | {os.path.dirname(name) or "." for name in touched})

    def _compare(self, names):
        compare(self._some, self._top, names, self._what)

    # --- deaths ---

    def mount_dies(self):
        """What was open through it is closed; another takes its place."""
        victim = self._some.mounts.pop(self._chance.randrange(len(self._some.mounts)))
        slots = [slot for slot, fd in self._roamer.files.items()
                 if os.readlink(f"/proc/self/fd/{fd}").startswith(f"{victim.dir}/")]
        victim.kill()
        self._bystanders.pop(victim).end()
        for slot in slots:
            with contextlib.suppress(OSError):  # there is nobody to flush it
                os.close(self._roamer.files.pop(slot))
            os.close(self._double.files.pop(slot))
        self._walk()
        fresh = add_mount(self._some)
        self._bystanders[fresh] = Bystander(fresh, self._chance.random())
        return True

    def server_dies(self):
        """For less than a lease: nobody loses anything."""
        begun = time.monotonic()
        away = self._chance.random() * AWAY_MAX / 2
        self._some.server.kill()
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


def add_mount(some):
    made = some.add()
    some.wait_up(made)
    some.expects_trouble()
    return made


def test_random_operations_while_some_die(cluster, new_store):
    some = cluster(mounts=2, lease=LEASE)
    some.expects_trouble()
    until = time.monotonic() + SECONDS
    seed, judged, void = SEED, 0, 0
    while True:
        chance = random.Random(seed)
        mounts, deaths = 3, [Round.server_dies, Round.mount_dies]
        if SECONDS:
            mounts, deaths = chance.choice(MOUNTS), chance.choices(deaths, k=DEATHS)
        while len(some.mounts) > mounts:
            some.mounts.pop().unmount()
        while len(some.mounts) < mounts:
            add_mount(some)
        twin = new_store().dir / "top"
        if Round(some, twin, seed).play(deaths):
            judged += 1
        else:
            void += 1
        for top in twin, some.mounts[0].dir / f"round-{seed}":
            shutil.rmtree(top)
        seed += 1
        if time.monotonic() >= until:
            break
    print(f"{judged} rounds; {void} more in which the server was away for too long to judge")
