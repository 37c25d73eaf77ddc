"""The benchmarks: that each runs, in its quick form, and prints figures. What these are to be docs/performance.md says, and no test."""
import re
import subprocess
import sys

import pytest

from harness import BUILD, REPOSITORY, RING_SWITCH, is_sanitized

sys.path.append(str(REPOSITORY / "bench"))
import shared  # noqa: E402

pytestmark = pytest.mark.skipif(is_sanitized(), reason="of the plain build alone")

# Of each, its arguments, how many rows it prints, and which of their cells are figures that are never 0.
BENCHES = {
    "compare": (["--rounds", "1", "--data", "64", "--only",
                 "a file each|create, 1|stat, cold|readdir.*cold|ls -l.*cold|untar"], 6, slice(2, 6)),
    "io_uring": (["--data", "64", "--only", "direct, 4 clients"], 2, slice(1, 4)),
    "passthrough": (["--only", "ext4 4K random read|tmpfs 1M sequential write"], 2, slice(3, 6)),
    "isolation": (["--case", "create", "--case", "hung"], 2, slice(1, 5)),
    "inodes": ([], 2, slice(1, 9)),
    "rates": (["--only", "10 MB/s 1M 16"], 1, slice(3, 4)),
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


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.skipif(name == "io_uring" and not RING_SWITCH.exists(),
                                                                              reason="this kernel has no FUSE over io_uring"))
                                  for name in BENCHES])
def test_the_benchmark_runs(name):
    arguments, count, cells = BENCHES[name]
    check_table([REPOSITORY / "bench" / name, "--quick", "--build", BUILD, *arguments], count, cells)


def test_the_benchmark_of_decisions_runs():
    check_table([BUILD / "bench" / "bench-decision", "--quick"], 10, slice(4, 5))


@pytest.mark.parametrize("options", [[], ["--server"]], ids=["alone", "server"])
def test_the_benchmark_of_pairs_runs(options):
    """Whoever comes behind the hog's debt waits for a minute."""
    done = subprocess.run([REPOSITORY / "bench" / "pairs", "--build", BUILD, "--limit", "30", "--hog", "write", "--hog", "create",
                           "--guest", "read-direct", "--guest", "stat", "--guest", "list", *options], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert re.fullmatch(r"write: -\ncreate: -\nlate: 0; the longest of all others: \d+\.\d+ s \(\w+, [\w-]+\)\n", done.stdout)


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
