"""The table of POSIX semantics (conformance/): each case on the store and through the mount, any difference a failure.

A mount serves all cases of a theme, for one store and actor: root, an ordinary user below root's mount ("user"), or the
owner of a mount ("owner"). `python3 tests/mount/conformance` prints the table.
"""
import errno
import os
import pathlib
import shutil

import pytest

from conformance import (ANY, OK, changes, prepare, run, table, wait_for_the_next_tick, without, without_times,
                         words_of)
from conformance import attributes, data, files, names, others, readonly  # noqa: F401: they fill the table
from conformance.posix import elsewhere, named
from harness import USER, Store, as_user, umount
from harness import run as run_program
from twins import tree

TIMEOUT = 600  # s, for all that one mount serves
OPTIONS = "attr_timeout=1h,entry_timeout=1h"  # what is shown late shall not come in time where the machine is slow
TABLE = table()
PLACES = [("tmpfs", "owner"), ("ext4", "root"), ("ext4", "user")]
RUNS = [((*place, theme), name) for place in PLACES for theme, name in TABLE]


class Stage:
    """A store and a mount over it: where each is worked in, what lies behind the mount, and the actor."""

    def __init__(self, where, uid, native, through, store):
        self.where, self.uid, self.native, self.through = where, uid, native, through
        self.made = store / "native", store / "through"  # as root prepares both


def bind_read_only(world, folder):
    bound = world.folder("read-only")
    run_program("mount", "--bind", folder, bound)
    run_program("mount", "-o", "remount,bind,ro", bound)
    return bound


@pytest.fixture(scope="module")
def stage(request, world, mounter):
    kind, actor, theme = request.param
    store = Store(world.store(kind), kind)
    user = USER if actor == "owner" else None
    native = store.dir
    with mounter(TIMEOUT) as mount:
        if theme == "readonly":
            native = bind_read_only(world, store.dir)
        qos = mount(store, OPTIONS + (",ro" if theme == "readonly" else ""), user=user)
        yield Stage((kind, actor), 0 if actor == "root" else USER, native / "native", qos.dir / "through", store.dir)
    if native != store.dir:
        umount(native)
    shutil.rmtree(store.dir)


def judge(case, stage, expected, found):
    """What is wrong with a case: lines."""
    outcome, value, changed, facts, _ = expected
    difference = case.difference_of(*stage.where)
    wanted = case.expected(stage.uid)
    if wanted is not ANY and outcome != wanted:
        yield f"the store gives {outcome}, the table {wanted}"
    if outcome is OK and case.changes is not None and changed != words_of(case.changes):
        yield f"the store changes {changed}, the table says {case.changes}"
    if difference.outcome is not None:
        if found[:2] != (difference.outcome, difference.value):
            yield f"the mount gives {found[:2]}, the list of differences {difference.outcome} {difference.value}"
        return
    unseen, more = words_of(difference.unseen), words_of(difference.more)
    if (outcome, value) != found[:2]:
        yield f"the store gives {outcome} {value!r}, the mount {found[0]} {found[1]!r}"
    if without(changed, unseen) != found[2]:
        yield f"the store changes {changed}, the mount {found[2]}"
    if without_times(facts) != without_times(found[3]):
        yield f"on the store: {facts}\nthrough the mount: {found[3]}"
    if changes(found[4], found[3]) != more:
        yield f"the mount does not show as the store: {changes(found[4], found[3])}"


@pytest.mark.parametrize("stage, name", RUNS, indirect=["stage"], scope="module",
                         ids=["-".join((*run[:2], name)) for run, name in RUNS])
def test_call(stage, name):
    cases = next(cases for (_, call), cases in TABLE.items() if call == name)
    made = [top / name for top in stage.made]
    for top in made:
        top.mkdir(parents=True)
        for number in range(len(cases)):
            prepare(top / str(number), stage.uid)
    wait_for_the_next_tick()
    expected, found = (as_user(stage.uid, stage.uid, [], lambda top=top, shown=shown: [
        run(case, top / str(number), shown / str(number)) for number, case in enumerate(cases)])
        for top, shown in zip((stage.native / name, stage.through / name), made))
    wrong = [f"{name}: {case.title}: {line}" for number, case in enumerate(cases)
             for line in judge(case, stage, expected[number], found[number])]
    assert not wrong, "\n".join(wrong)
    differing = {str(number) for number, case in enumerate(cases)
                 if case.difference_of(*stage.where).outcome is not None}
    facts = [{path: facts for path, facts in tree(top).items() if path.split(b"/")[0].decode() not in differing}
             for top in made]
    assert facts[0] == facts[1]


def test_each_error_that_posix_names():
    """It is in the table, or in the list of those that are elsewhere: in one of them. And the tests that are named there exist."""
    places = elsewhere()
    assert {error for error, is_in_table in named(TABLE) if not is_in_table} == set(places)
    here = pathlib.Path(__file__).parent
    for where in filter(lambda where: "::" in where, places.values()):
        file, _, test = where.partition("::")
        assert f"def {test}(" in (here / file).read_text(), where


@pytest.mark.parametrize("store", ["ext4"], indirect=True)
def test_as_many_names_as_the_store_has(store, mount):
    qos = mount(store)
    (store.dir / "file").touch()
    with pytest.raises(OSError) as native:
        for number in range(1 << 17):
            os.link(store.dir / "file", store.dir / str(number))
    with pytest.raises(OSError) as through:
        os.link(qos.dir / "file", qos.dir / "new")
    assert native.value.errno == through.value.errno == errno.EMLINK
    os.unlink(qos.dir / "0")
    os.link(qos.dir / "file", qos.dir / "new")
