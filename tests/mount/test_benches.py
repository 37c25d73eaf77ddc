"""The benchmarks: that each runs, in its quick form, and prints figures. What these are to be docs/design/performance.md says, and no test."""
import itertools
import math
import re
import subprocess
import sys

import pytest

from harness import BUILD, REPOSITORY, RING_SWITCH, is_sanitized

sys.path.append(str(REPOSITORY / "bench"))
import rates_matrix  # noqa: E402
import shared  # noqa: E402

pytestmark = pytest.mark.skipif(is_sanitized(), reason="of the plain build alone")

# Of each, its arguments, how many rows it prints, and which of their cells are figures that are never 0.
BENCHES = {
    "compare": (["--rounds", "1", "--data", "64", "--only",
                 "a file each|create, 1|stat, cold|readdir.*cold|ls -l.*cold|untar"], 6, slice(2, 6)),
    "io_uring": (["--data", "64", "--only", "direct, 4 clients"], 2, slice(1, 4)),
    "passthrough": (["--only", "ext4 4K random read|tmpfs 1M sequential write"], 2, slice(3, 6)),
    "isolation": (["--case", "create", "--case", "hung", "--case", "write"], 4, slice(2, 6)),
    "inodes": ([], 2, slice(1, 9)),
    "windows": (["--only", "10 MB/s 1M 16"], 1, slice(3, 4)),
    "rates": (["--only", "direct,read,own,none,rate,2"], 1, slice(6, 9)),
    "kills": (["--over", "/dev/fuse"], 9, slice(3, 9)),
}


def figures(printed, cells):
    """Of each row of a table, which some print without its head."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    head = next((number + 1 for number, line in enumerate(lines) if line.startswith("|---")), 0)
    rows = [line.strip("|").split("|")[cells] for line in lines[head:]]
    return [[float(re.match(r" ([\d,.]+)(?: (?:us|MB))? $", cell)[1].replace(",", "")) for cell in row] for row in rows]


def check_table(command, count, cells):
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = figures(done.stdout, cells)
    assert len(rows) == count and all(figure > 0 for row in rows for figure in row), done.stdout


def test_two_builds_are_compared():
    check_table([REPOSITORY / "bench/compare", "--quick", "--build", BUILD, "--before", BUILD, "--rounds", "1", "--data", "64", "--only", "stat, cold"],
                1, slice(2, 4))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.skipif(name == "io_uring" and not RING_SWITCH.exists(),
                                                                              reason="this kernel has no FUSE over io_uring"))
                                  for name in BENCHES])
def test_the_benchmark_runs(name):
    arguments, count, cells = BENCHES[name]
    check_table([REPOSITORY / "bench" / name, "--quick", "--build", BUILD, *arguments], count, cells)


def test_the_short_form_of_the_matrix_has_each_pair_of_values():
    cells, void = rates_matrix.all_cells()
    values = [rates_matrix.WAYS, rates_matrix.OPERATIONS, rates_matrix.WORKERS, rates_matrix.PLACES, rates_matrix.RULES, rates_matrix.BETWEEN]
    assert len(cells) + sum(void.values()) == math.prod(map(len, values))
    short = rates_matrix.covering(cells)

    def pairs(some):
        return {pair for cell in some for pair in itertools.combinations(enumerate(cell), 2)}

    assert pairs(short) == pairs(cells)
    assert len(short) < 120


def test_the_matrix_finds_what_exceeds_the_bound():
    """In the middle of a run that keeps to its rule, and in the whole of one that is hardly faster."""
    rates = shared.load_script("rates")

    def deviations(counts):
        return [(under, over) for _, _, under, over in rates.windows(counts, 100, 1)]

    def excess(counts, late=0):
        """Of counts that were taken up to `late` s after their moments."""
        return rates.excess([rates.Sample(moment, moment + late, 0, 0, 0) for moment, _ in counts], counts, 100, 0)

    exact = [(second / 2, 50 * second) for second in range(40)]
    assert excess(exact) == 0
    assert excess(exact, late=0.1) == pytest.approx(-10)
    assert set(deviations(exact)) == {(0, 0)}
    burst = [(moment, count + (150 if moment >= 7 else 0)) for moment, count in exact]
    assert excess(burst) == 150
    assert max(over for _, over in deviations(burst)) == pytest.approx(0.149)
    assert excess([(moment, 1.02 * count) for moment, count in exact]) == pytest.approx(39)
    assert deviations([(moment, 0.98 * count) for moment, count in exact])[0][0] == pytest.approx(-0.019)
    assert deviations([(moment, min(count, 100)) for moment, count in exact])[0][0] < -0.99


def test_a_rule_holds_whatever_its_job_does():
    """The short form of the matrix: what counts show, and no times."""
    done = subprocess.run([REPOSITORY / "bench" / "rates", "--quick", "--build", BUILD], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_benchmark_of_decisions_runs():
    check_table([BUILD / "bench" / "bench-decision", "--quick"], 10, slice(4, 5))


@pytest.mark.parametrize("options", [[], ["--server"]], ids=["alone", "server"])
def test_the_benchmark_of_pairs_runs(options):
    """Without its release the operation that the guest comes behind waits for a minute."""
    done = subprocess.run([REPOSITORY / "bench" / "pairs", "--build", BUILD, "--limit", "30", "--hog", "write", "--hog", "create",
                           "--guest", "read-direct", "--guest", "stat", "--guest", "list", *options], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    *rows, last = done.stdout.splitlines()[2:]
    assert len(rows) == 12 and all(re.fullmatch(r"\| (bps=1M|rate=100) \| \w+ \| [\w-]+ \| \d+\.\d+ s \| \d+\.\d\d s \|", row) for row in rows)
    assert re.fullmatch(r"12 pairs; above the bound: 0; above 30 s: 0; the longest: \d+\.\d+ s \(\S+, \w+, [\w-]+\)", last)


def test_the_benchmark_of_budgets_runs():
    done = subprocess.run([REPOSITORY / "bench" / "cluster", "budget", "sessions", "--quick", "--build", BUILD], text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    for row in (r"200 MB/s \| fair \| 1\.75 \| \d", r"2,000 op/s \| equal \| 1\.75 \| \d", r"2,000 op/s \| hard \|  \| \d+ ms \| [\d,]+ ms \|",
                r"2,000 \| [1-9][\d,]* \| [1-9][\d,]* \| [1-9][\d,]* \| \d+\.\d% \|"):
        assert re.search(rf"^\| {row}", done.stdout, re.MULTILINE), done.stdout


def test_the_benchmark_of_budgets_finds_what_exceeds_a_rule():
    budget = shared.load_script("cluster_budget.py")
    unit = budget.UNITS[1]

    def samples(count):
        """Of 10 s, where count(t) operations have ended at t s."""
        return [(tick / 10, count(tick / 10), 0, 0) for tick in range(101)]
    exact = samples(lambda second: 2000 * second)
    assert budget.over(exact, unit, 1)[-1] == pytest.approx(0) and budget.most_beyond(exact, unit) == pytest.approx(0)
    burst = samples(lambda second: 2000 * second + (100 if second >= 5 else 0))
    assert budget.over(burst, unit, 1)[-1] == pytest.approx(0.05) and budget.most_beyond(burst, unit) == pytest.approx(0.05)
    late = samples(lambda second: 2000 * (second - 5) + 300 if second >= 5 else 0)
    assert budget.most_beyond(late, unit) == pytest.approx(0.05)
    creeping = samples(lambda second: 2020 * second)
    assert budget.over(creeping, unit, 1)[0] == pytest.approx(0.01) and budget.most_beyond(creeping, unit) == pytest.approx(0.1)
    plan = [(0, 0, 5, 3000), (1, 5, 10, 1000)]
    assert budget.used(samples(lambda second: 1000 * second), unit, plan, 0) == pytest.approx(10 / 15)
    wanted = budget.bursts(61, unit.limit, 1)
    assert budget.wanted_in(wanted, 0, 61) == pytest.approx(budget.WANTED * unit.limit * 61)
    assert {number for number, *_ in wanted} == set(range(budget.MOUNTS))


def test_the_benchmark_of_budgets_times_a_newcomer():
    """It has nothing for 200 ms, then what each of the 19 others has."""
    budget = shared.load_script("cluster_budget.py")
    load = object.__new__(budget.Hunger)
    load.records = [(tick / 100, [max(0, tick - 20), *[tick] * 19]) for tick in range(301)]
    reached, share = budget.share_reached(load, 0, 0, range(1, 20), 2)
    assert reached == 200 and share == pytest.approx(100)
    load.records = [(tick / 100, [0.9 * tick, *[tick] * 19]) for tick in range(301)]
    assert budget.share_reached(load, 0, 0, range(1, 20), 2)[0] is None


@pytest.mark.parametrize("way, rows", [("--nodes", 3), ("--slow", 2)])
def test_the_benchmark_of_sharing_on_mounts_runs(way, rows):
    """In a second or two no figure is worth anything, but each job did something, unless beside busy processes."""
    done = subprocess.run([REPOSITORY / "bench" / "adaptbf", "--build", BUILD, way, "--quick"], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\| [^|]+ busy processes \| \d+ \| \d+ \|", done.stdout, re.MULTILINE)) == (way == "--nodes"), done.stdout
    idle = [line for line in done.stdout.splitlines() if "busy" not in line]
    assert len(re.findall(r"^\| [^|]+ \| [1-9]\d* \| [1-9]\d* \|", "\n".join(idle), re.MULTILINE)) == rows, done.stdout


def test_an_aim_that_is_missed_is_told(capsys):
    aims = shared.Aims()
    aims.at_least(1.5, 1.5, "one")
    aims.at_most(400, 400, "two")
    assert aims.end() == 0 and capsys.readouterr().err == ""
    aims.at_least(1.5, 1.4996, "three")
    aims.at_most(1000, 1000.5, "four")
    aims.check(False, "five")
    assert aims.end() == 1
    assert capsys.readouterr().err == ("MISSED: three: 1.4996, at least 1.5 is the aim\nMISSED: four: 1,000.5000, at most 1,000 is the aim\n"
                                       "MISSED: five\n")
    assert aims.end(is_quick=True) == 0
    assert capsys.readouterr().err.count("MISSED") == 3
