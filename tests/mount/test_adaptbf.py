"""bench/adaptbf, in its shortest form: that it runs. docs/adaptbf.md has its figures."""
import re
import subprocess

from harness import BUILD, REPOSITORY


def test_the_benchmark_of_adaptive_sharing_runs():
    done = subprocess.run([REPOSITORY / "bench" / "adaptbf", "--build", BUILD, "--only", "iv-d", "--scale", "0.02", "--rounds", "1"],
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = {policy: int(rate) for policy, rate in re.findall(r"^\| ([^|]+)(?: \| \d+){4} \| (\d+) \|", done.stdout, re.MULTILINE)}
    assert len(whole) == 4, done.stdout
    # What a job leaves idle is lost where each is held to its part.
    assert whole["No BW"] > 1.3 * whole["Static BW"] and whole["fair"] > 1.2 * whole["Static BW"], done.stdout
