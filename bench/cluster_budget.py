"""The part `budget` of bench/cluster: does one rule hold for what twenty mounts do together, and how soon does a share move?

What the store has read (bench/cluster_fleet.py) is compared with the rule. There are three runs for each rule and each way to divide it:

    hunger    fio reads through all mounts. Each mount is hungry for 2 s and idle for 3 s on average (exponential), with a rate of its own. Together the
              mounts want WANTED times the rule. Windows of 1 s, in steps of 100 ms, are compared with the rule.
    newcomer  19 mounts read as fast as they can, and one that was idle begins. Timed is when it has 95 % of what each of the others has then:
              the first moment, in steps of 50 ms, after which it gets that for 250 ms, less one request.
    loss      Three mounts read as fast as they can. The daemon of one is killed or stopped, or its network is cut. Timed is when the two others
              have 95 % of what the three had, in a window of 100 ms. What a mount that is cut off still has, its floor, is not counted.

`none` is without a rule: it shows that the mounts want, and can have, more than the rules give. `equal` is what there is without rules of the cluster:
each mount has a rule of its own of a twentieth. With these two there is hunger alone.
"""
import dataclasses
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

from cluster_fleet import JOB, MIB, MOUNTS, PARENT, REMOTE, TICK, Hunger, fleet_of

WANTED = 1.75  # times the rule
ON, OFF, SHORTEST = 2, 3, 0.2  # s
LEAD = 2  # s of fio until its first request
DEPTH = 0.08  # of the rule's rate a second: what all buckets save up together
FLOOR, PARTS = 0.1, 32  # of the rule; of so many mounts, as the server rounds them up
# The aims: windows of 1 s of fair, 60 s, ms.
OVER, LONG_OVER, NEWCOMER, LOST = 0.08, 0.01, 300, 1500
USED = {"fair": 0.85, "hard": 0.80}  # as with ten mounts
LEAST_WANTED = 1.5
APART = 0.005  # the store's count from fio's
DIVISIONS = ("none", "equal", "fair", "hard")


@dataclasses.dataclass
class Unit:
    name: str
    option: str  # of the rule
    limit: float  # a second
    column: int  # of Store.look()
    request: int  # bytes, of fio and of newcomers
    big: int  # bytes, where few mounts are to take the whole rate
    fio: str
    read_ahead: int  # KiB

    def rule(self, part=1):
        return f"{self.option}={self.limit * part:.0f}"

    def per_request(self, size):
        return size if self.option == "bps" else 1


UNITS = [Unit("200 MB/s", "bps", 200e6, 2, 64 << 10, 256 << 10, "rate", 1024),
         Unit("2,000 op/s", "rate", 2000, 1, 4096, 4096, "rate_iops", 0)]


@dataclasses.dataclass
class Times:
    """How long, and how often, what is done."""
    hunger: float
    tries: int
    idle: float  # of a newcomer
    losses: int
    settled: float  # before a loss
    patience: float  # after it
    kinds: list  # of losses
    megabytes: int  # of each file


FULL = Times(61, 10, 5, 3, 2, 2.5, ["killed", "stopped", "cut off"], 64)
QUICK = Times(3, 1, 1, 1, 1.5, 2.5, ["killed", "cut off"], 32)
QUICK_CASES = [("bps", "fair"), ("rate", "equal"), ("rate", "hard")]


# --- hunger ---

def bursts(seconds, limit, seed):
    """Of each mount, (begin, end, rate) of what it wants; all of it WANTED times the limit."""
    chance = random.Random(seed)
    plan = []
    for number in range(MOUNTS):
        rate, moment = chance.uniform(0.1, 0.6), 0 if number == 0 else chance.expovariate(1 / OFF) % (seconds / 2)
        while moment < seconds - SHORTEST:
            end = min(seconds, moment + max(SHORTEST, chance.expovariate(1 / ON)))
            plan.append((number, moment, end, rate))
            moment = end + chance.expovariate(1 / OFF)
    scale = WANTED * limit * seconds / sum((end - begin) * rate for _, begin, end, rate in plan)
    return [(number, begin, end, rate * scale) for number, begin, end, rate in plan]


def fio_words(fleet, unit, plan):
    """A job of fio for each burst, which queues 100 ms of its rate and reads every other block."""
    block = unit.request
    lines = ["[global]", "rw=read", f"bs={block}", "zonemode=strided", f"zonesize={block}", f"zonerange={block}", f"zoneskip={block}", f"offset={block}",
             "direct=1", "ioengine=libaio", "thread=1", "time_based=1", "allow_file_create=0", f"size={fleet.store.bytes - 2 * block}",
             "group_reporting=1"]
    for place, (number, begin, end, rate) in enumerate(plan):
        depth = max(4, round(rate / 10 / unit.per_request(unit.request)))
        lines += [f"[burst{place}]", f"filename={fleet.path(number)}", f"startdelay={round((LEAD + begin) * 1000)}ms",
                  f"runtime={round((end - begin) * 1000)}ms", f"{unit.fio}={round(rate)}", f"iodepth={depth}"]
    return "\n".join(lines) + "\n"


def wanted_in(plan, begin, end):
    return sum(max(0, min(end, to) - max(begin, since)) * rate for _, since, to, rate in plan)


def windows(samples, column, seconds):
    """(end, length, count) of each window of so many seconds."""
    steps = round(seconds / TICK)
    return [(new[0], new[0] - old[0], new[column] - old[column]) for old, new in zip(samples, samples[steps:])]


def over(samples, unit, seconds):
    """By what part each window exceeds the rule, sorted; below 0 where it does not."""
    return sorted(count / (unit.limit * length) - 1 for _, length, count in windows(samples, unit.column, seconds))


def most_beyond(samples, unit):
    """How much the store has read beyond the rule in the worst window of any length, as a part of a second of the rule."""
    lowest, most = float("inf"), 0
    for sample in samples:
        beyond = sample[unit.column] - unit.limit * sample[0]
        lowest = min(lowest, beyond)
        most = max(most, beyond - lowest)
    return most / unit.limit


def used(samples, unit, plan, start):
    """Of what was wanted and the rule allows, the part that was served: sums over windows of 1 s."""
    served = possible = 0
    whole = samples[::round(1 / TICK)]
    for old, new in zip(whole, whole[1:]):
        most = unit.limit * (new[0] - old[0])
        served += min(new[unit.column] - old[unit.column], most)
        possible += min(most, wanted_in(plan, old[0] - start, new[0] - start))
    return served / possible


def run_fio(fleet, unit, plan):
    """The time of the first request; how far the store's count and fio's are apart."""
    path = fleet.folder / "bursts.fio"
    path.write_text(fio_words(fleet, unit, plan))
    began = time.monotonic()
    done = subprocess.run([*PARENT, "fio", "--output-format=json", path], text=True, capture_output=True, check=False,
                          env={**os.environ, "SLURM_JOB_ID": JOB}, start_new_session=True)
    if done.returncode != 0:
        sys.exit(f"bench/cluster: fio: {done.stderr}")
    samples = fleet.store.between(began, time.monotonic())
    first = next(old[0] for old, new in zip(samples, samples[1:]) if new[1] - old[1] >= 4)
    read = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]
    said = read["io_bytes"] if unit.option == "bps" else read["total_ios"]
    return first, abs((fleet.store.look()[unit.column] - samples[0][unit.column]) / said - 1)


def hunger(fleet, unit, division, times, seed, aims):
    plan = bursts(times.hunger, unit.limit, seed)
    cpu = fleet.cpu()
    start, apart = run_fio(fleet, unit, plan)
    daemons, server = (after - before for before, after in zip(cpu, fleet.cpu()))
    samples = fleet.store.between(start, start + times.hunger)
    elapsed = samples[-1][0] - samples[0][0]
    served = (samples[-1][unit.column] - samples[0][unit.column]) / elapsed / unit.limit
    beyond, wanted = over(samples, unit, 1), wanted_in(plan, 0, times.hunger) / times.hunger / unit.limit
    part, most = used(samples, unit, plan, start), most_beyond(samples, unit)
    p99 = beyond[min(len(beyond) - 1, int(len(beyond) * 0.99))]
    what = f"{unit.name}, {division}"
    aims.at_least(LEAST_WANTED, wanted, f"{what}: wanted / the rule")
    aims.at_least(MOUNTS, len({number for number, *_ in plan}), f"{what}: mounts in need")
    aims.at_most(APART, apart, f"{what}: the store's count / fio's, less 1")
    if division == "none":
        aims.at_least(LEAST_WANTED, served, f"{what}: served / the rule")
    elif division == "fair":
        aims.at_most(OVER, p99, f"{what}: p99 over the rule in 1 s")
    else:
        aims.at_most(DEPTH, most, f"{what}: beyond the rule in any window, in seconds of the rule")
    long = over(samples, unit, 60) if elapsed > 60 else []
    if long and division != "none":
        aims.at_most(LONG_OVER, long[-1], f"{what}: over the rule in 60 s")
    if division in USED:
        aims.at_least(USED[division], part, f"{what}: used")
    return [f"{wanted:.2f}", f"{served:.2f}", f"{part:.1%}", f"{max(0, p99):.2%}", f"{max(0, beyond[-1]):.2%}", f"{most * 1000:.0f} ms",
            f"{long[-1]:+.2%}" if long else "", f"{daemons / elapsed:.0%}", f"{server / elapsed:.1%}"]


# --- a newcomer ---

def share_reached(load, start, number, others, patience):
    """ms until the newcomer has its share for good, or None; what each of the others has then, in requests a second."""
    share = load.rate(start + patience - 0.5, start + patience, others) / len(others)
    for step in range(round((patience - 0.25) / 0.05)):
        begin = start + step * 0.05
        if load.at(begin + 0.25, [number]) - load.at(begin, [number]) >= 0.95 * share * 0.25 - 1:
            return step * 50, share
    return None, share


def newcomer(fleet, unit, division, times, aims):
    load, took, shares = Hunger(fleet, unit.request, 16), [], []
    patience, begin = 2, time.monotonic()
    try:
        for number in range(MOUNTS):
            load.on(number)
        for turn in range(times.tries):
            number = turn * 7 % MOUNTS  # of both kinds
            load.off(number)
            load.record(times.idle, 0.1)
            start = load.on(number)
            load.record(patience + 0.1)
            reached, share = share_reached(load, start, number, [other for other in range(MOUNTS) if other != number], patience)
            took.append(patience * 1000 if reached is None else reached)
            shares.append(share * MOUNTS * unit.per_request(unit.request) / unit.limit)
    finally:
        load.close()
    samples = fleet.store.between(begin + 1, time.monotonic())
    what = f"{unit.name}, {division}"
    long = over(samples, unit, 60) if samples[-1][0] - samples[0][0] > 60 else []
    if long and division == "fair":
        aims.at_most(LONG_OVER, max(-long[0], long[-1]), f"{what}: off the rule in 60 s, all hungry")
    elif long:
        aims.at_most(LONG_OVER, long[-1], f"{what}: over the rule in 60 s, all hungry")
    if division in USED:
        aims.at_most(NEWCOMER, max(took), f"{what}: a newcomer, ms")
    print(f"  {what}: newcomers: {took} ms; share / a twentieth: {', '.join(f'{share:.3f}' for share in shares)}", file=sys.stderr, flush=True)
    return [f"{long[0]:+.2%} to {long[-1]:+.2%}" if long else "", f"{max(took)} ms"]


# --- a loss ---

LOCAL_VICTIM, REMOTE_VICTIM, OTHERS = 0, MOUNTS - 1, [1, MOUNTS - REMOTE]


def kill(fleet, number):
    fleet.mounts[number].kill()
    return lambda: fleet.mounts[number].again()


def stop(fleet, number):
    fleet.mounts[number].daemon.send_signal(signal.SIGSTOP)
    return lambda: fleet.mounts[number].daemon.send_signal(signal.SIGCONT)


def cut(fleet, number):
    fleet.switch(number, False)
    return lambda: fleet.switch(number, True)


LOSSES = {"killed": (kill, LOCAL_VICTIM), "stopped": (stop, LOCAL_VICTIM), "cut off": (cut, REMOTE_VICTIM)}


def time_of_loss(fleet, unit, load, kind, division, times):
    """ms until the others have what the three had."""
    lose, victim = LOSSES[kind]
    patience = times.patience
    for number in [*OTHERS, victim]:
        load.on(number)
    load.record(times.settled)
    moment = time.monotonic()
    mend = lose(fleet, victim)
    load.record(patience + 0.1)
    target = 0.95 * load.rate(moment - 1, moment, [*OTHERS, victim])
    if division == "hard":
        target -= FLOOR / PARTS * unit.limit / unit.per_request(unit.big)
    steps = (step * 0.01 for step in range(10, round(patience / 0.01)))
    reached = next((step for step in steps if load.rate(moment + step - 0.1, moment + step, OTHERS) >= target), patience)
    load.off(victim)
    mend()
    if lose is cut:
        fleet.mounts[victim].wait_up()
    return round(reached * 1000)


def loss(fleet, unit, division, times, aims):
    load, cells = Hunger(fleet, unit.big, 64), []
    try:
        for name in times.kinds:
            took = [time_of_loss(fleet, unit, load, name, division, times) for _ in range(times.losses)]
            aims.at_most(LOST, max(took), f"{unit.name}, {division}: the share of a mount that is {name} is back, ms")
            print(f"  {unit.name}, {division}: {name}: {took} ms", file=sys.stderr, flush=True)
            cells.append(f"{max(took):,} ms")
    finally:
        load.close()
    return cells


# --- all of it ---

def set_rule(fleet, unit, division, is_on):
    matched = f"jobid={{{JOB}}}&opcode={{read}}"
    if division in USED:
        words = ["start", "total", matched, unit.rule(), f"share={division}"] if is_on else ["stop", "total"]
        return fleet.cluster_rule(*words)
    for mount in fleet.mounts if division == "equal" else []:
        mount.rule(f"start total {matched} {unit.rule(1 / MOUNTS)}" if is_on else "stop total")
    return None


HUNGER_HEAD = ["wanted / rule", "served / rule", "used", "over in 1 s: p99", "worst", "ahead of the rule", "over in 60 s", "daemons' CPU",
               "server's CPU"]


def table(head, lines):
    return ["| " + " | ".join(["rule", "divided", *head]) + " |", "|---" * (len(head) + 2) + "|", *("| " + " | ".join(line) + " |" for line in lines)]


def measure(fleet, unit, division, times, seed, aims):
    """The cells of both tables; of the second there are none without a rule of the cluster."""
    fleet.store.read_ahead(unit.read_ahead)
    set_rule(fleet, unit, division, True)
    try:
        counted = hunger(fleet, unit, division, times, seed, aims)
        if division not in USED:
            return counted, None
        return counted, [*newcomer(fleet, unit, division, times, aims), *loss(fleet, unit, division, times, aims)]
    finally:
        set_rule(fleet, unit, division, False)


def cases(arguments):
    for unit in UNITS:
        for division in DIVISIONS:
            if re.search(arguments.only, f"{unit.name}, {division}") and (not arguments.quick or arguments.only or (unit.option, division) in QUICK_CASES):
                yield unit, division


def budget(arguments, aims):
    times = QUICK if arguments.quick else FULL
    counted, moved = [], []
    with fleet_of(arguments.build, times.megabytes) as fleet:
        for unit, division in cases(arguments):
            print(f"  {unit.name}, {division}", file=sys.stderr, flush=True)
            one, other = measure(fleet, unit, division, times, arguments.seed, aims)
            counted.append([unit.name, division, *one])
            if other:
                moved.append([unit.name, division, *other])
    lines = [f"{MOUNTS} mounts, {REMOTE} of them in network namespaces of their own; seed {arguments.seed}; {times.hunger} s of hunger.", "",
             *table(HUNGER_HEAD, counted)]
    if moved:
        lines += ["", f"The longest of {times.tries} newcomers, and of {times.losses} losses of each kind:", "",
                  *table(["60 s, all hungry", "newcomer", *times.kinds], moved)]
    return lines
