"""Locks of several processes on several mounts, at random, judged by a model that the store itself is held against too.

Processes open files, copy descriptors, fork, close, are interrupted and killed; files are renamed and replaced. They lock by
fcntl, by open file descriptions and by flock, and wait. The model says of each call what may come of it (docs/design/filelocks.md).
"""
import contextlib
import errno
import fcntl
import json
import os
import random
import select
import signal
import socket
import struct
import time

import pytest

from harness import wait_until

FLOCK = "hhqqi0q"
BYTES = 12  # that ranges begin at
LENGTHS = [0, 1, 2, 4, 8]
LAST = BYTES + max(LENGTHS)  # stands for all that follows
FILES = 2
PROCESSES = 5
SLOTS = 3  # descriptors of a process
READ, WRITE, NONE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
WHOLE = {READ: fcntl.LOCK_SH, WRITE: fcntl.LOCK_EX, NONE: fcntl.LOCK_UN}
COMMANDS = {("record", False): fcntl.F_SETLK, ("record", True): fcntl.F_SETLKW,
            ("open", False): fcntl.F_OFD_SETLK, ("open", True): fcntl.F_OFD_SETLKW}


# --- a process ---

def interrupt(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # a second one would end more than the call
    raise InterruptedError(errno.EINTR, "")


def lock(file, how, kind, start, length, wait):
    if how == "whole":
        fcntl.flock(file, WHOLE[kind] | (0 if wait else fcntl.LOCK_NB))
    else:
        fcntl.fcntl(file, COMMANDS[how, wait], struct.pack(FLOCK, kind, os.SEEK_SET, start, length, 0))


def look(file, how, kind, start, length):
    command = fcntl.F_GETLK if how == "record" else fcntl.F_OFD_GETLK
    kind, _, start, length, pid = struct.unpack(FLOCK, fcntl.fcntl(file, command, struct.pack(FLOCK, kind, 0, start, length, 0)))
    return kind, start, length, pid


class Hands:
    """What a process does; one message each, and one answer."""

    def __init__(self, folder):
        self.folder = folder
        self.slots = {}

    def open(self, slot, name):
        self.slots[slot] = os.open(f"{self.folder}/{name}", os.O_RDWR)

    def copy(self, slot, new):
        self.slots[new] = os.dup(self.slots[slot])

    def close(self, slot):
        os.close(self.slots.pop(slot))

    def lock(self, slot, *what):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])  # here it is an answer, elsewhere none
        try:
            lock(self.slots[slot], *what)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    def look(self, slot, *what):
        return look(self.slots[slot], *what)

    def calm(self):
        signal.sigtimedwait([signal.SIGUSR1], 0)

    def rename(self, old, new):
        os.rename(f"{self.folder}/{old}", f"{self.folder}/{new}")

    def replace(self, name):
        with open(f"{self.folder}/.new", "x", encoding="ascii"):
            os.rename(f"{self.folder}/.new", f"{self.folder}/{name}")


def live(hands, channel):
    """Never returns. The child of a fork gets the channel that comes with the message."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    signal.signal(signal.SIGUSR1, interrupt)
    while True:
        text, passed, _, _ = socket.recv_fds(channel, 1000, 1)
        if not text:
            os._exit(0)
        try:
            name, *arguments = json.loads(text)
            if name != "fork":
                answer = None, getattr(hands, name)(*arguments)
            elif (pid := os.fork()) == 0:
                channel.close()
                channel = socket.socket(fileno=passed[0])
                continue
            else:
                os.close(passed[0])
                answer = None, pid
        except OSError as error:
            answer = error.errno, None
        channel.send(json.dumps(answer).encode())


# --- the model ---

class Owner:
    """A lock owner: of a file each byte, NONE unless it is in `has`."""

    def __init__(self):
        self.has = {}  # (file, whole) -> list of kinds

    def row(self, place):
        return self.has.setdefault(place, [NONE] * (LAST + 1))


class Opened:
    """An open file description: its file, and itself as an owner of locks."""

    def __init__(self, file):
        self.file = file
        self.owner = Owner()
        self.users = 1


class Process:
    def __init__(self, place, pid, channel, slots=()):
        self.place = place  # of the folder
        self.pid = pid
        self.channel = channel
        self.slots = dict(slots)  # -> Opened
        self.owner = Owner()
        self.wait = None  # (owner, place, kind, span) while it waits


def span_of(how, start, length):
    return range(0, LAST + 1) if how == "whole" else range(start, min(start + length, LAST + 1) if length else LAST + 1)


def conflict(one, other):
    return NONE not in (one, other) and WRITE in (one, other)


class World:
    """Processes in some folders, which are the same one by way of several mounts (none: `store` itself); and the model of them."""

    def __init__(self, store, mounts, chance):
        self.mounts = mounts
        self.folders = [mount.dir / store.name for mount in mounts] or [store]
        self.chance = chance
        self.finds_all = bool(mounts)  # each circle of waiting processes at once; the kernel does not
        self.names = [f"file{number}.0" for number in range(FILES)]
        self.files = list(range(FILES))  # which file has that name
        self.count = FILES
        self.processes = []
        self.log = []
        self.closed = [self.count_closed(place) for place in range(len(self.folders))]
        for name in self.names:
            (store / name).touch()
        for number in range(PROCESSES):
            self.spawn(number % len(self.folders))

    def count_closed(self, place):
        """How many open file descriptions were given up there."""
        if not self.mounts:
            return 0
        return sum(job["operations"].get("close", {"samples": 0})["samples"] for job in self.mounts[place].state()["jobs"])

    def await_closed(self, place):
        """close(2), and the end of a process, do not wait for the mount to hear of the last descriptor's close."""
        if self.mounts:
            wait_until(lambda: self.count_closed(place) == self.closed[place], what="the news of the close")

    # --- processes ---

    def spawn(self, place):
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                mine.close()
                for other in self.processes:
                    other.channel.close()
                live(Hands(self.folders[place]), theirs)
            finally:
                os._exit(1)
        theirs.close()
        self.processes.append(Process(place, pid, mine))

    def end(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        for process in list(self.processes):
            self.bury(process, await_closed=False)
        for place in range(len(self.folders)):
            self.await_closed(place)

    def bury(self, process, await_closed=True):
        """Until it is dead, and its descriptors are closed."""
        def is_dead():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
            try:
                return open(f"/proc/{process.pid}/stat", encoding="ascii").read().rpartition(")")[2].split()[0] == "Z"
            except (FileNotFoundError, ProcessLookupError):
                return True
        wait_until(is_dead, what="the end of the killed")
        process.channel.close()
        self.processes.remove(process)
        for slot in list(process.slots):
            self.drop(process, slot)
        if await_closed:
            self.await_closed(process.place)

    def say(self, process, *message, fds=()):
        self.log.append((process.pid, process.place, *message))
        socket.send_fds(process.channel, [json.dumps(message).encode()], fds)

    def hear(self, process, timeout=30):
        ready, _, _ = select.select([process.channel], [], [], timeout)
        assert ready, f"{process.pid} does not answer; it was told {[entry for entry in self.log if entry[0] == process.pid][-1]}"
        answer = json.loads(process.channel.recv(1000))
        self.log.append((process.pid, "->", *answer))
        return answer

    def do(self, process, *message):
        code, value = self.ask(process, *message)
        assert code is None, f"{message} failed: {os.strerror(code)}"
        return value

    # --- locks ---

    def all_owners(self):
        opened = {opened for process in self.processes for opened in process.slots.values()}
        return [process.owner for process in self.processes] + [one.owner for one in opened]

    def blockers(self, owner, place, kind, span):
        return [other for other in self.all_owners() if other is not owner and
                any(conflict(other.row(place)[byte], kind) for byte in span)]

    def put(self, owner, place, kind, span):
        for byte in span:
            owner.row(place)[byte] = kind

    def waiting(self):
        return [process for process in self.processes if process.wait]

    def is_circle(self, wait):
        """Whether that owner waits, over others, for itself. Of flock nobody looks for circles."""
        owner, place, _, _ = wait
        if place[1]:
            return False
        known, todo = set(), [wait]
        while todo:
            for other in self.blockers(*todo.pop()):
                if other is owner:
                    return True
                if other not in known:
                    known.add(other)
                    todo += [process.wait for process in self.waiting() if process.wait[0] is other and not process.wait[1][1]]
        return False

    def settle(self):
        """Until no process waits that need not."""
        early = []  # answers that another must explain
        while True:
            waiting = [process for process in self.waiting() if process not in [one for one, _ in early]]
            due = [process for process in waiting
                   if not self.blockers(*process.wait) or (self.finds_all and self.is_circle(process.wait))]
            ready, _, _ = select.select([process.channel for process in waiting], [], [], 30 if due else 0)
            assert ready or not due, f"{due[0].pid} waits for nothing"
            early += [(process, self.hear(process)[0]) for process in waiting if process.channel in ready]
            rest = [one for one in early if not self.take(*one)]
            if not ready and len(rest) == len(early):
                assert not rest, f"{rest[0][0].pid} was told {rest[0][1]}"
                return
            early = rest

    def take(self, process, code):
        """The end of a wait. FALSE: it cannot be, as things are."""
        if code == errno.EDEADLK:
            if not self.is_circle(process.wait):
                return False
        elif code is not None or self.blockers(*process.wait):
            return False
        else:
            self.put(*process.wait[:2], *process.wait[2:])
        process.wait = None
        return True

    def ask(self, process, *message):
        self.say(process, *message)
        return self.hear(process)

    # --- moves ---

    def step(self):
        idle = [process for process in self.processes if not process.wait]
        moves = [self.lock] * 12 + [self.look] * 3 + [self.open] * 3 + [self.close] * 2
        moves += [self.copy, self.fork, self.kill, self.interrupt, self.rename]
        move = self.chance.choice(moves)
        if move in (self.kill, self.interrupt):
            move()
        elif idle:
            move(self.chance.choice(idle))
        self.settle()

    def open(self, process):
        number, slot = self.chance.randrange(FILES), self.chance.randrange(SLOTS)
        if slot not in process.slots:
            self.do(process, "open", slot, self.names[number])
            process.slots[slot] = Opened(self.files[number])

    def copy(self, process):
        slot, new = self.chance.randrange(SLOTS), self.chance.randrange(SLOTS)
        if slot in process.slots and new not in process.slots:
            self.do(process, "copy", slot, new)
            process.slots[new] = process.slots[slot]
            process.slots[new].users += 1

    def drop(self, process, slot):
        opened = process.slots.pop(slot)
        process.owner.has.pop((opened.file, False), None)
        opened.users -= 1
        self.closed[process.place] += opened.users == 0

    def close(self, process):
        slot = self.chance.randrange(SLOTS)
        if slot in process.slots:
            self.do(process, "close", slot)
            self.drop(process, slot)
            self.await_closed(process.place)

    def fork(self, process):
        if len(self.processes) >= PROCESSES + 2:
            return
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.say(process, "fork", fds=[theirs.fileno()])
        _, pid = self.hear(process)
        theirs.close()
        child = Process(process.place, pid, mine, process.slots)
        for opened in child.slots.values():
            opened.users += 1
        self.processes.append(child)

    def kill(self):
        process = self.chance.choice(self.processes)
        self.log.append((process.pid, "killed"))
        os.kill(process.pid, signal.SIGKILL)
        self.bury(process)
        while len(self.processes) < PROCESSES:
            self.spawn(self.chance.randrange(len(self.folders)))

    def interrupt(self):
        if self.waiting():
            process = self.chance.choice(self.waiting())
            self.log.append((process.pid, "interrupted"))

            def is_told():
                os.kill(process.pid, signal.SIGUSR1)  # again where it came just before the call
                return select.select([process.channel], [], [], 0.01)[0]
            wait_until(is_told, what="the end of the wait")
            assert self.hear(process)[0] == errno.EINTR
            self.do(process, "calm")
            process.wait = None

    def rename(self, process):
        number = self.chance.randrange(FILES)
        if self.chance.random() < 0.3:
            self.do(process, "replace", self.names[number])
            self.files[number] = self.count = self.count + 1
            self.closed[process.place] += 1
        else:
            name, _, count = self.names[number].partition(".")
            new = f"{name}.{int(count) + 1}"
            self.do(process, "rename", self.names[number], new)
            self.names[number] = new

    def draw(self, process):
        """A descriptor, a way to lock, the lock's owner, which lock."""
        slot = self.chance.choice(list(process.slots))
        opened = process.slots[slot]
        how = self.chance.choice(["record", "record", "open", "whole"])
        owner = process.owner if how == "record" else opened.owner
        start, length = self.chance.randrange(BYTES), self.chance.choice(LENGTHS)
        return slot, how, owner, (opened.file, how == "whole"), start, length, span_of(how, start, length)

    def lock(self, process):
        if not process.slots:
            return self.open(process)
        slot, how, owner, place, start, length, span = self.draw(process)
        kind = self.chance.choice([READ, WRITE, WRITE, NONE])
        waits = kind != NONE and self.chance.random() < 0.4
        gives_first = how == "whole" and kind == WRITE and READ in owner.row(place)
        if gives_first:
            self.put(owner, place, NONE, span)
        message = "lock", slot, how, kind, start, length, waits
        if waits:
            self.say(process, *message)
            process.wait = owner, place, kind, span
            return None
        code, _ = self.ask(process, *message)
        if gives_first and code is not None:
            self.settle()  # a waiter may have been quicker
        free = kind == NONE or not self.blockers(owner, place, kind, span)
        assert code == (None if free else errno.EAGAIN)
        if free:
            self.put(owner, place, kind, span)
        return None

    def look(self, process):
        if not process.slots:
            return
        slot, how, owner, place, start, length, span = self.draw(process)
        if how == "whole":
            return
        kind = self.chance.choice([READ, WRITE])
        blockers = self.blockers(owner, place, kind, span)

        _, found = self.ask(process, "look", slot, how, kind, start, length)
        assert (found[0] == NONE) == (not blockers)
        is_elsewhere = len(self.folders) > 1 and found[:3] == [WRITE, start, length]  # of another mount nothing more is known
        if blockers and not is_elsewhere:
            there = span_of(how, *found[1:3])
            assert set(there) & set(span)
            assert any(all(other.row(place)[byte] == found[0] for byte in there) for other in blockers)


def play(seed, folder, mounts, steps):
    folder.mkdir()
    world = World(folder, mounts, random.Random(seed))
    try:
        for _ in range(steps):
            world.step()
    except AssertionError:
        print(*world.log[-300:], sep="\n")
        print([(process.pid, process.place, process.wait and process.wait[1:]) for process in world.processes])
        raise
    finally:
        world.end()


@pytest.mark.parametrize("mounts", [0, 1, 2, 3])
def test_locks_of_processes(cluster, mounts):
    """With no mount: the store itself does as the model says."""
    some = cluster(mounts=mounts, lease=300, options="jobid_var=disable")
    end = time.monotonic() + float(os.environ.get("QOSFS_COHERENCE_SECONDS", 0))
    seed = int(os.environ.get("QOSFS_SEED", 1))
    while True:
        print(f"QOSFS_SEED={seed}")
        play(seed, some.store.dir / str(seed), some.mounts, 300)
        if time.monotonic() >= end:
            break
        seed += 1
