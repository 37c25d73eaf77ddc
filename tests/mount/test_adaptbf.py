"""bench/adaptbf: that it runs, in its shortest form, and what its parts say without a mount. docs/design/adaptbf.md has its figures."""
import re
import shutil
import subprocess
import sys

import pytest

from harness import BUILD, REPOSITORY

sys.path.append(str(REPOSITORY / "bench"))
import adaptbf_jobs as jobs  # noqa: E402
import shared  # noqa: E402

BURSTS = jobs.Client("J1", 2, 1.3, 250, 5.0)
ENDING = jobs.Client("J2", 16, requests=800)


def needs(program):
    return pytest.param(program, marks=pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed"))


@pytest.mark.parametrize("load", [needs(load) for load in jobs.LOADS])
def test_the_benchmark_of_adaptive_sharing_runs(load):
    done = subprocess.run([REPOSITORY / "bench" / "adaptbf", "--build", BUILD, "--only", "iv-d", "--scale", "0.01", "--rounds", "1",
                           "--policy", "none", "--policy", "static", "--policy", "fair", "--load", load], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    rates = re.findall(r"^\| [^|]+(?: \| [1-9]\d*){5} \|", done.stdout, re.MULTILINE)
    assert len(rates) == 3, done.stdout


@pytest.mark.parametrize("client", [client for scenario in shared.load_script("adaptbf").SCENARIOS.values() for client in scenario.clients])
def test_fio_and_filebench_are_told_the_same(client):
    options = dict(option[2:].split("=", 1) for option in jobs.fio(client, "c", "/m", "/logs", 60, "write") if "=" in option)
    text = "\n".join(jobs.wml(client, "c", "/m", 60, "write"))
    assert re.findall(r"define file name=(c\.\d+),path=\$dir,size=(\d+)", text) == \
        [(f"c.{process}", options["size"]) for process in range(int(options["numjobs"]))]
    assert set(re.findall(r"flowop write .*iosize=(\d+),directio", text)) == {options["bs"]}
    assert len(re.findall(r"^define process .*instances=1 ", text, re.MULTILINE)) == int(options["numjobs"])
    assert set(re.findall(r"flowop delay .*value=(\d+)", text)) == {str(int(options[name]) // 10**6) for name in options if name == "thinktime"}
    times = set(re.findall(r"flowop write .*iters=(\d+)", text))
    assert times == {options.get("thinktime_blocks") or str(int(options["size"]) // int(options["bs"]) if client.requests else 1)}
    names = re.findall(r" name=([\w.]+)", text)
    assert len(names) == len(set(names))


def test_filebench_pauses_after_each_burst_and_stops_after_whole_seconds():
    lines = list(jobs.wml(BURSTS, "c", "/m", 9.0, "read"))
    assert lines[:3] == ["set $dir=/m", "define file name=c.0,path=$dir,size=4194304,prealloc,reuse",
                         "define file name=c.1,path=$dir,size=4194304,prealloc,reuse"]
    assert lines[3:7] == ["define process name=process0,instances=1 { thread name=thread0,memsize=1m,instances=1 {",
                          "  flowop read name=read0,filename=c.0,fd=1,iosize=16384,directio,iters=250",
                          "  flowop delay name=pause0,value=5", "} }"]
    assert lines[-1] == "run 8"


def test_filebench_ends_where_the_work_has_an_end():
    lines = list(jobs.wml(ENDING, "c", "/m", 0, "write"))
    assert lines[-2:] == ["set mode quit alldone", "run"]
    assert [line.split()[1] for line in lines if line.startswith("  flowop")] == ["openfile", "write", "closefile", "deletefile"] * 16


def test_the_counts_of_the_jobs_are_found_in_job_stats():
    text = """job_stats:
- job_id:          J1
  write_bytes:     { samples:           9, unit: bytes, min:    16384, max:    16384, sum:           147456, sumsq:          2415919104 }
  read:            { samples:           3, unit: usecs, min:        1, max:       22, sum:              100, sumsq:                 999 }
  write:           { samples:           9, unit: usecs, min:        1, max:       22, sum:              100, sumsq:                 999 }
- job_id:          "a:b"
  read:            { samples:           0, unit: usecs, min:        0, max:        0, sum:                0, sumsq:                   0 }
  write:           { samples:          12, unit: usecs, min:        1, max:       22, sum:              100, sumsq:                 999 }
"""
    assert jobs.read_counts(text, "write") == {"J1": 9, "a:b": 12}
    assert jobs.read_counts(text, "read") == {"J1": 3, "a:b": 0}
    assert jobs.read_counts("job_stats:\n", "read") == {}


def test_requests_are_told_from_their_counts():
    samples = [(10, {}), (11, {"J": 2}), (12, {"J": 2}), (13, {"J": 3}), (18, {"J": 3}), (19, {"J": 4})]
    assert jobs.counted(samples, "J", pause=3) == [(11, 1), (11, 1), (13, 2), (19, 1)]  # the last after a pause
    assert not jobs.counted(samples, "K", pause=3)


def test_a_load_that_fails_is_told():
    with pytest.raises(jobs.Failed, match="false failed"):
        jobs.run_all([(0, "J1", ["false"]), (0.01, "J2", ["true"])])
