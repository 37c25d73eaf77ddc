"""All readers of a file see what was written (tests/stress/pages.c), on one mount, and the store has it at the end.

Rounds differ in the store, the ring, and in which jobs are throttled, or what else wants the processors. The short form
plays two rounds of each mount. The long form plays for so many seconds on each, one round after the other, and names
the round that found something:

    sudo QOSFS_PAGES_SECONDS=600 pytest-3 tests/mount/test_pages.py

QOSFS_SEED: the round to begin with.
"""
import contextlib
import os
import subprocess
import sys
import time

import pytest

from harness import BUILD, RING_SWITCH, ring_switched, running, start_job

SECONDS = float(os.environ.get("QOSFS_PAGES_SECONDS", 0))
SEED = int(os.environ.get("QOSFS_SEED", 1))
ROUND = 10 if SECONDS else 2  # s
SHORT_ROUNDS = 2  # with and without the ring, on ext4 too
PAGES = BUILD / "tests/stress/pages"
# A writer's turn comes while others look, and the other way round; of bytes, too.
RULES = [None, "start slow jobid={writer} rate=3000", "start slow jobid={reader} rate=1000", "start slow jobid={writer} bps=20M", None,
         "start slow jobid={*} rate=2000"]
pytestmark = pytest.mark.skipif(not PAGES.exists(), reason="a build without it")


@pytest.fixture(scope="module", autouse=True)
def ring():
    """Mounts may use it; where they do is their option."""
    if not RING_SWITCH.exists():
        yield False
        return
    with ring_switched(True):
        yield True


def rounds():
    """The numbers of those to play."""
    end = time.monotonic() + SECONDS
    number = SEED
    while number < SEED + SHORT_ROUNDS or time.monotonic() < end:
        yield number
        number += 1


def options_of(number, cache, has_ring):
    return f"cache={cache},io_uring={'on' if has_ring and number % 2 else 'off'}"


@contextlib.contextmanager
def crowded(number):
    """In one round of three, others want the processors."""
    with contextlib.ExitStack() as stack:
        for _ in range(2 * (number % 3 == 2)):
            stack.enter_context(running(subprocess.Popen([sys.executable, "-c", "while True: pass"])))
        yield


def play(qos, number, apart):
    """One round."""
    table = qos.db.parent / f"table{number}"
    rule = RULES[number % len(RULES)]

    def words(role, folder=qos.dir):
        return PAGES, table, folder, role, ROUND, number, *(["apart"] if apart else [])

    def start(role):
        return start_job({"write": "writer", "read": "reader"}[role], *words(role), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    subprocess.run([str(word) for word in words("make")], check=True)
    if rule is not None:
        qos.rule(rule)
    with crowded(number), running(start("write")) as writer, running(start("read")) as reader:
        said = reader.communicate()[0] + writer.communicate()[0]
    if rule is not None:
        qos.rule("stop slow")
    results = [writer.returncode, reader.returncode]
    for folder in (qos.dir, qos.store.dir):
        done = subprocess.run([str(word) for word in words("check", folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        said += done.stdout
        results.append(done.returncode)
    assert results == [0] * len(results), f"round {number}, {rule}: {said}"


@pytest.mark.parametrize("cache", ["auto", "none", "always"])
def test_alone(cache, new_store, mounter, ring):
    with mounter(180 + SECONDS) as mount:
        for number in rounds():
            qos = mount(new_store(("tmpfs", "ext4")[number // 2 % 2]), options_of(number, cache, ring))
            play(qos, number, cache == "none")
            qos.finish()


@pytest.mark.parametrize("cache", ["auto", "none", "always"])
def test_with_a_server(cache, new_store, cluster, ring):
    for number in rounds():
        some = cluster(new_store(("tmpfs", "ext4")[number // 2 % 2]), mounts=1, options=options_of(number, cache, ring))
        play(some.mounts[0], number, cache == "none")
        some.mounts[0].finish()
