#!/usr/bin/env python3
"""The floors hold (docs/architecture.md): reported as TAP.

Symbols: the pure archive (F0 and F1) needs nothing from outside but memory, strings, numbers and GLib's
containers: no clock, no randomness, no waiting, no threads, no files, no output. The list says what is
allowed, so that a new kind of call has to be thought about.

Includes: a file includes only from its own floor or from lower ones, sqlite3.h stays in db/, libfuse in the
files that speak FUSE, and the pure files know no system header that does something.
"""
import argparse
import pathlib
import re
import subprocess

ALLOWED = re.compile(r"""^(
    qos_.* | _GLOBAL_OFFSET_TABLE_ | __stack_chk_fail | __errno_location | __.*_chk
    | (mem|str)[a-z]+ | bcmp | bsearch | qsort | abort | snprintf | vsnprintf | (__isoc\d+_)?(sscanf|strto[a-z]+)
    | __u?(div|mod)ti3 | __floattidf                         # 128-bit numbers, also as double
    | (ceil|floor|fabs|fmod|fmin|fmax|exp2?|expm1|frexp|ldexp|ll?round|ll?rint|log(2|10|1p)?|modf|pow
       |round|rint|sqrt|trunc)[fl]?
    | __(asan|ubsan|tsan|sanitizer|sancov|gcov|llvm)_.*      # what the checks' own builds add
    | g_.*
)$""", re.VERBOSE)

# What GLib offers beyond containers, strings and numbers.
FORBIDDEN = re.compile(r"""^g_(
    mutex|rec_mutex|rw_lock|cond|private|thread|once|async_queue|usleep|timer|get_monotonic|get_real
    |get_current|date_time_new_now|random|rand_new$|main_|source_|idle_|timeout_|spawn|file_|open|close|creat
    |mkdir|mkstemp|unlink|rename|stat|access|chdir|dir_|io_|mapped|log|print|message|warn|debug|getenv|setenv
    |environ|get_host_name|get_user|get_home|get_tmp|bus_|socket
).*""", re.VERBOSE)
# g_return_if_reached() reports a programming error (base/pure.h poisons the name itself); g_once serves quarks.
EXEMPT = {"g_log", "g_once_init_enter", "g_once_init_leave"}

# The longest prefix decides.
FLOORS = {
    "base/": 0,
    "core/": 1, "fs/": 1,
    "db/": 2, "net/": 2, "fs/gate": 2, "fs/lockaddress.": 2, "fs/lockclient.c": 2, "fs/lockclient_": 2, "fs/lockinput.": 2, "fs/locklink.": 2, "fs/mounts.": 2, "fs/mutex.": 2, "fs/pressure.": 2, "fs/privilege.": 2, "fs/reading.": 2, "fs/ring": 2,
    "ops/backing.": 2, "ops/caller.": 2, "ops/closer.": 2, "ops/cred.": 2, "ops/fhandle.": 2, "ops/handle.": 2, "ops/inode": 2, "ops/interrupt_table.": 2, "ops/job.": 2, "ops/local_store.": 2, "ops/mount_flags.": 2,
    "ops/looks.": 2, "ops/namers.": 2, "ops/openers.": 2, "ops/process.": 2, "ops/program.": 2, "ops/root.": 2, "ops/signals.": 2, "ops/stream.": 2,
    "ops/": 3, "server/": 3,
    "fs/daemon.": 4, "fs/mount_options.": 4, "fs/mount_table.": 4, "fs/umount": 4, "fs/mountpoint.": 4, "fs/options.": 4, "fs/paths.": 4, "fs/qosfs.": 4, "fs/readers.": 4, "server/main.": 4, "sim/": 4, "tools/": 4,
}
PURE_HEADERS = {
    "errno.h", "float.h", "glib.h", "inttypes.h", "limits.h", "math.h", "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h",
    "stdint.h", "stdio.h", "stdlib.h", "string.h", "time.h",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def floor_of(path):
    prefixes = [prefix for prefix in FLOORS if path.startswith(prefix)]
    return FLOORS[max(prefixes, key=len)] if prefixes else None


def bad_symbols(nm, archive):
    listing = subprocess.run([nm, "-u", archive], check=True, capture_output=True, text=True).stdout
    symbols = {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.startswith(" ")}
    if not symbols:
        return ["no symbols found: is the archive empty?"]
    return sorted(name for name in symbols - EXEMPT if not ALLOWED.match(name) or FORBIDDEN.match(name))


def bad_includes(source):
    """One line for each include that breaks a floor."""
    found = []
    for file in sorted(source.glob("*/*.[ch]")):
        path = str(file.relative_to(source))
        floor = floor_of(path)
        if floor is None:
            continue
        for quote, name in INCLUDE.findall(file.read_text()):
            if quote == '"':
                other = floor_of(name)
                if other is not None and other > floor:
                    found.append(f"{path} (F{floor}) includes {name} (F{other})")
            elif floor <= 1 and name not in PURE_HEADERS:
                found.append(f"{path} (F{floor}) includes <{name}>")
            elif name == "sqlite3.h" and not path.startswith("db/"):
                found.append(f"{path} includes <{name}>; only db/ does")
            elif name.startswith("fuse") and not path.startswith(("ops/", "fs/")):
                found.append(f"{path} includes <{name}>")
    return found


def report(number, name, problems):
    print(f"{'not ok' if problems else 'ok'} {number} {name}", flush=True)
    for problem in problems:
        print(f"# {problem}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--archive", required=True)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    print("1..2")
    report(1, "symbols of the pure archive", bad_symbols(arguments.nm, arguments.archive))
    report(2, "includes by floor", bad_includes(arguments.source))


if __name__ == "__main__":
    main()
