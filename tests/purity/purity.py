#!/usr/bin/env python3
"""The floors hold (docs/design/architecture.md): reported as TAP.

Symbols: the pure archive (F0 and F1) needs nothing from outside but memory, strings, numbers and GLib's
containers: no clock, no randomness, no waiting, no threads, no files, no output. The list says what is
allowed, so that a new kind of call has to be thought about.

Includes: a file includes only from its own floor or from lower ones, and on F4 from no other folder of that floor.
sqlite3.h stays in db/, libfuse in the files that speak FUSE. The pure files know no system header that does something.

A folder has a floor. What the build puts into the pure archive is on F1 at most, with its header, wherever
it lies. So a table or a queue that is pure may lie beside what works with it. And no list of names here can
differ from what the compiler and the first check hold to be pure. The other way round, each .c file of a
folder on F0 or F1 must be in the archive. A file that leaves the archive takes the floor of its folder, and
is missed by its unit test, which links the archive alone. FLOORS names a single file only where a program
has its main(), or where a file lies in the wrong folder.
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

# What a path begins with; the rest is the end of a file's name: a folder has a row of its own. The longest that fits decides.
FLOORS = {
    "base/": 0,
    "core/": 1, "fs/": 1, "fs/lockengine/": 1,
    "db/": 2, "net/": 2, "sys/": 2, "fs/caller/": 2, "fs/gate/": 2, "fs/lockclient/": 2, "fs/store/": 2, "fs/transport/": 2,
    "fs/cluster/": 3, "fs/filelocks/": 3, "fs/request/": 3, "server/": 3,
    "fs/coherence/": 4, "fs/control/": 4, "fs/isolate/": 4,
    "fs/ops/": 5,
    "fs/daemon/": 6, "fs/qosfs.": 6, "server/main.": 6, "sim/": 6, "tools/": 6,
}
APART = 4  # on this floor, folders know nothing of one another
PURE_HEADERS = {
    "errno.h", "float.h", "glib.h", "inttypes.h", "limits.h", "math.h", "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h",
    "stdint.h", "stdio.h", "stdlib.h", "string.h", "time.h",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def row_of(path):
    prefixes = [prefix for prefix in FLOORS if path.startswith(prefix) and "/" not in path[len(prefix):]]
    return FLOORS[max(prefixes, key=len)] if prefixes else None


def floor_of(path, pure):
    """`pure`: the .c files of the pure archive."""
    row = row_of(path)
    return min(row, 1) if row is not None and path[:-1] + "c" in pure else row


def folder_of(path):
    return path.rpartition("/")[0]


def bad_symbols(nm, archive):
    listing = subprocess.run([nm, "-u", archive], check=True, capture_output=True, text=True).stdout
    symbols = {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.startswith(" ")}
    if not symbols:
        return ["no symbols found: is the archive empty?"]
    return sorted(name for name in symbols - EXEMPT if not ALLOWED.match(name) or FORBIDDEN.match(name))


def bad_includes(source, pure):
    """One line for each include that breaks a floor, for each file that has none, and for each that is to be pure and is not."""
    found = []
    folders = sorted({prefix.split("/")[0] for prefix in FLOORS})
    for file in (file for folder in folders for file in sorted((source / folder).rglob("*.[ch]"))):
        path = str(file.relative_to(source))
        floor = floor_of(path, pure)
        if floor is None:
            found.append(f"{path} is on no floor")
            continue
        if floor <= 1 and path.endswith(".c") and path not in pure:
            found.append(f"{path} (F{floor}) is not in the pure archive")
        for quote, name in INCLUDE.findall(file.read_text()):
            if quote == '"':
                other = floor_of(name, pure)
                if other is None and (source / name).exists():
                    found.append(f"{path} (F{floor}) includes {name}, which is on no floor")
                elif other is not None and (other > floor or other == floor == APART and folder_of(name) != folder_of(path)):
                    found.append(f"{path} (F{floor}) includes {name} (F{other})")
            elif floor <= 1 and name not in PURE_HEADERS:
                found.append(f"{path} (F{floor}) includes <{name}>")
            elif name == "sqlite3.h" and not path.startswith("db/"):
                found.append(f"{path} includes <{name}>; only db/ does")
            elif name.startswith("fuse") and not path.startswith("fs/"):
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
    parser.add_argument("--pure", required=True, nargs="+", type=pathlib.Path, help="the sources of the pure archive")
    arguments = parser.parse_args()
    pure = {str(path.resolve().relative_to(arguments.source)) for path in arguments.pure}
    print("1..2")
    report(1, "symbols of the pure archive", bad_symbols(arguments.nm, arguments.archive))
    report(2, "includes by floor", bad_includes(arguments.source, pure))


if __name__ == "__main__":
    main()
