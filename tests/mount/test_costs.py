"""What a system call costs under a rule: what the program asked for (docs/reference/rules.md), and not what the kernel asks for besides."""
import contextlib
import subprocess
import sys

import pytest

from harness import as_job, running, start_job, wait_until

TIMES = 40

# Prepares, waits for a line, and does the step so often, as number 0, 1, 2 ...
STEPS = """
import os, sys
os.chdir(sys.argv[1])
exec(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
step = compile(sys.argv[3], "step", "exec")
for number in range(int(sys.argv[4])): exec(step)
"""

FILES = "for number in range(40): open(f'f{number}', 'w').close()"
OPEN = "open('f', 'w').close(); fd = os.open('f', os.O_RDWR)"
MAPPED = ("import mmap; fd = os.open('f', os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 1 << 20); os.pwrite(fd, bytes(1 << 20), 0); "
          "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); pages = mmap.mmap(fd, 1 << 20); pages.madvise(mmap.MADV_RANDOM)")
COSTS = [
    ("", "os.close(os.open(f'f{number}', os.O_CREAT | os.O_WRONLY))", 3),
    ("", "os.close(os.open(f'f{number}', os.O_CREAT | os.O_RDWR))", 3),
    ("", "os.mkdir(f'f{number}')", 2),
    ("", "os.symlink('x', f'f{number}')", 2),
    (FILES, "os.rename(f'f{number}', f'g{number}')", 2),
    (FILES, "os.unlink(f'f{number}')", 1),
    (FILES, "os.chmod(f'f{number}', 0o640)", 1),
    (FILES, "os.truncate(f'f{number}', 5)", 1),
    (OPEN, "os.pwrite(fd, b'x', 0)", 1),
    (OPEN, "os.pwrite(fd, b'x', 0); os.fstat(fd)", 2),
    (OPEN, "os.pwrite(fd, b'x', 0); os.lseek(fd, 0, os.SEEK_END)", 1),
    (OPEN, "os.fsync(fd)", 1),
    (OPEN + "; os.pwrite(fd, bytes(8192), 0)", "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.pread(fd, 4096, 0)", 1),
    (OPEN, "os.close(os.dup(fd))", 1),
    (OPEN, "os.lseek(fd, 0, os.SEEK_END)", 0),
    (OPEN + "; os.pwrite(fd, b'x', 0)", "os.lseek(fd, 0, os.SEEK_HOLE)", 1),
    (OPEN, "os.close(os.open('f', os.O_PATH))", 0),
    (OPEN, "os.close(os.open('f', os.O_RDONLY))", 2),
    ("", "os.path.exists(f'none{number}')", 1),
    (FILES, "os.listdir('.')", (4, 5)),  # asks for attributes, which another's change may have told
    (MAPPED, "pages[number << 12]", 1),
    (MAPPED, "pages[number << 12] = 1; pages.flush()", 3),
    (MAPPED, "pages[0] = 1; pages.flush()", 2),
    ("open('f', 'w').write('#!/bin/true'); os.chmod('f', 0o755)", "os.spawnl(os.P_WAIT, 'f', 'f')", 2),
]
# What of the names the kernel forgets meanwhile, and of attributes, as a step may take a second: so much more may be asked.
SLACK = 0.25


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("rate", [100000, 200], ids=["within", "debt"])
def test_costs(store, mount, rate, is_shared):
    """In a directory of the job's own, and in one where another job makes and removes a file all the time."""
    qos = mount(store, "attr_timeout=600,entry_timeout=600")
    wrong = []
    for index, (prepare, step, cost) in enumerate(COSTS):
        folder = qos.dir / f"folder-{index}"
        folder.mkdir()
        with contextlib.ExitStack() as stack:
            if is_shared:
                churn = "os.close(os.open('other', os.O_CREAT | os.O_WRONLY)); os.unlink('other')"
                stack.enter_context(running(start_job("other", sys.executable, "-c", STEPS, folder, "", churn, 1 << 30,
                                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)))
            job = f"j{index}"
            program = stack.enter_context(running(start_job(job, sys.executable, "-c", STEPS, folder, prepare, step, TIMES,
                                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)))
            assert program.stdout.readline() == "ready\n"
            qos.rule(f"start r{index} jobid={{{job}}} rate={rate} depth=1")
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.wait(120) == 0
            count = qos.rule_state(f"r{index}")["requests"] / TIMES
        least, most = cost if isinstance(cost, tuple) else (cost, cost)
        if not least * 0.97 <= count <= most * 1.03 + SLACK:
            wrong.append(f"{step}: {count:.2f}, not {least} to {most}")
    assert not wrong


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_what_is_asked_for_is_charged(store, mount):
    """stat(2) is, as often as the kernel asks; and getxattr(2) of what the kernel asks for by itself as well."""
    qos = mount(store, "attr_timeout=0")
    (store.dir / "file").write_bytes(b"x")
    qos.rule("start r jobid={j} rate=100000")
    as_job("j", sys.executable, "-c", STEPS.replace("sys.stdin.readline()", ""), qos.dir, "fd = os.open('file', os.O_RDONLY)",
           "os.fstat(fd)\ntry: os.getxattr(fd, 'security.capability')\nexcept OSError: pass", TIMES)
    wait_until(lambda: qos.rule_state("r")["requests"] >= 2 * TIMES, what="the last of the requests")
