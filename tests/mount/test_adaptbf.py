"""bench/adaptbf, in its shortest form: that it runs. docs/adaptbf.md has its figures."""
import re
import subprocess

from harness import BUILD, REPOSITORY


def test_the_benchmark_of_adaptive_sharing_runs():
    done = subprocess.run([REPOSITORY / "bench" / "adaptbf", "--build", BUILD, "--only", "iv-d", "--scale", "0.01", "--rounds", "1",
                           "--policy", "none", "--policy", "static", "--policy", "fair"], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    rates = re.findall(r"^\| [^|]+(?: \| [1-9]\d*){5} \|", done.stdout, re.MULTILINE)
    assert len(rates) == 3, done.stdout
