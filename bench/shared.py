"""What the benchmarks here share: options, aims, mounts of their own, one another's parts, and how their tables get into docs/."""
import argparse
import contextlib
import ctypes
import datetime
import fcntl
import importlib.machinery
import importlib.util
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent


def options(doc, quick, is_judged=False):
    """A parser of what every benchmark may be told; `quick` says what its quick form does, `is_judged` that it may fail."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--build", default=str(TOP / "build"), help="build folder (default: build)")
    parser.add_argument("--quick", action="store_true", help=quick + ("" if is_judged else "; whatever aim it misses, the status is 0"))
    parser.add_argument("--write", action="store_true", help="put the table into docs/design/performance.md")
    return parser


class Aims:
    """What the figures of a benchmark are to be, and which are not."""

    def __init__(self):
        self.missed = []

    def check(self, holds, text):
        if not holds:
            self.missed.append(text)

    def at_least(self, aim, figure, what):
        self.check(figure >= aim, f"{what}: {figure:,.4f}, at least {aim:,g} is the aim")

    def at_most(self, aim, figure, what):
        self.check(figure <= aim, f"{what}: {figure:,.4f}, at most {aim:,g} is the aim")

    def end(self, is_quick=False):
        """Tells what was missed, after the table: the status of the program. What was measured in a moment proves nothing."""
        for text in self.missed:
            print(f"MISSED: {text}", file=sys.stderr, flush=True)
        return int(bool(self.missed) and not is_quick)


def unshare_mounts():
    """Gives this process a mount namespace of its own, so that its mounts end with it and no other namespace has copies that keep them up."""
    clone_newns = 0x20000
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newns) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"no mount namespace of its own: {os.strerror(error)}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextlib.contextmanager
def caches_kept():
    """Nobody else here makes the kernel forget files meanwhile, as the tests do that drop its caches: they ask for the same lock."""
    with open("/proc/sys/vm/drop_caches", "wb", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def machine():
    """What every table begins with: on what, and when."""
    return f"{os.cpu_count()} CPUs, Linux {platform.release()}, {datetime.date.today()}"


def wait_for(condition, what, patience=60):
    """Polls; the benchmark ends where it does not come true within so many seconds."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{sys.argv[0]}: waited {patience} s for {what}")
        time.sleep(0.005)


def demand_root():
    if os.geteuid() != 0:
        sys.exit(f"{sys.argv[0]}: it mounts; run it as root")


def unmount(path):
    """As soon as nobody uses it: programs, or a daemon, may be leaving."""
    wait_for(lambda: subprocess.run(["umount", path], stderr=subprocess.DEVNULL, check=False).returncode == 0, f"{path} to be free")


def load_script(name):
    """The script bench/`name` as a module; it is not run."""
    loader = importlib.machinery.SourceFileLoader(name, str(TOP / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def write_table(page, mark, text):
    """Puts `text` into docs/design/`page`, for what stands between the lines <!-- mark --> and <!-- /mark -->."""
    path = TOP / "docs" / "design" / page
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    filled, count = re.subn(rf"(?<={re.escape(begin)}).*?(?={re.escape(end)})", lambda _: text + "\n", path.read_text(), flags=re.DOTALL)
    if count != 1:
        sys.exit(f"{path}: one place between {begin.strip()} and {end} is wanted for the table, found: {count}")
    path.write_text(filled)
