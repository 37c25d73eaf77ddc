"""What the benchmarks here share: mounts of their own, one another's parts, and how their tables get into docs/."""
import ctypes
import datetime
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


def unshare_mounts():
    """Gives this process mounts of its own, which go with it: whoever copied them meanwhile (another namespace) would keep them up."""
    clone_newns = 0x20000
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newns) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"no mount namespace of its own: {os.strerror(error)}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


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
    """Puts `text` into docs/`page`, for what stands between the lines <!-- mark --> and <!-- /mark -->."""
    path = TOP / "docs" / page
    begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    filled, count = re.subn(rf"(?<={re.escape(begin)}).*?(?={re.escape(end)})", lambda _: text + "\n", path.read_text(), flags=re.DOTALL)
    if count != 1:
        sys.exit(f"{path}: one place between {begin.strip()} and {end} is wanted for the table, found: {count}")
    path.write_text(filled)
