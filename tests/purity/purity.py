#!/usr/bin/env python3
"""The floors hold (docs/architecture.md): reported as TAP.

Symbols: the pure archive (F0 and F1) needs nothing from outside but memory, strings, numbers and GLib's
containers: no clock, no randomness, no waiting, no threads, no files, no output. The list says what is
allowed, so that a new kind of call has to be thought about.

Includes: a file includes only from its own floor or from lower ones, and on F4 from no other folder of
that floor; sqlite3.h stays in db/, libfuse in the files that speak FUSE, and the pure files know no system
header that does something.
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
    "fs/caller/origins.": 1, "fs/caller/resolver_queue.": 1, "fs/coherence/namecache.": 1, "fs/coherence/recall_queue.": 1,
    "fs/filelocks/owners.": 1, "fs/filelocks/table.": 1,
    "db/": 2, "net/": 2, "sys/": 2, "fs/caller/": 2, "fs/gate/": 2, "fs/lockclient/": 2, "fs/store/": 2, "fs/transport/": 2,
    "fs/filelocks/": 3, "fs/request/": 3, "fs/transport/devfuse.c": 3, "server/": 3,
    "fs/coherence/": 4, "fs/control/": 4, "fs/isolate/": 4,
    "fs/ops/": 5,
    "fs/request/interrupt.c": 5, "fs/request/op.c": 5,  # they call coherence, and op.c isolation and rights, until there are hooks for that
    "fs/daemon/": 6, "fs/qosfs.": 6, "server/main.": 6, "sim/": 6, "tools/": 6,
}
APART = 4  # the floor whose folders know nothing of one another
PURE_HEADERS = {
    "errno.h", "float.h", "glib.h", "inttypes.h", "limits.h", "math.h", "stdarg.h", "stdatomic.h", "stdbool.h", "stddef.h",
    "stdint.h", "stdio.h", "stdlib.h", "string.h", "time.h",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def floor_of(path):
    prefixes = [prefix for prefix in FLOORS if path.startswith(prefix) and "/" not in path[len(prefix):]]
    return FLOORS[max(prefixes, key=len)] if prefixes else None


def folder_of(path):
    return path.rpartition("/")[0]


def bad_symbols(nm, archive):
    listing = subprocess.run([nm, "-u", archive], check=True, capture_output=True, text=True).stdout
    symbols = {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.startswith(" ")}
    if not symbols:
        return ["no symbols found: is the archive empty?"]
    return sorted(name for name in symbols - EXEMPT if not ALLOWED.match(name) or FORBIDDEN.match(name))


def bad_includes(source):
    """One line for each include that breaks a floor, and for each file that has none."""
    found = []
    folders = sorted({prefix.split("/")[0] for prefix in FLOORS})
    for file in (file for folder in folders for file in sorted((source / folder).rglob("*.[ch]"))):
        path = str(file.relative_to(source))
        floor = floor_of(path)
        if floor is None:
            found.append(f"{path} is on no floor")
            continue
        for quote, name in INCLUDE.findall(file.read_text()):
            if quote == '"':
                other = floor_of(name)
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
    arguments = parser.parse_args()
    print("1..2")
    report(1, "symbols of the pure archive", bad_symbols(arguments.nm, arguments.archive))
    report(2, "includes by floor", bad_includes(arguments.source))


if __name__ == "__main__":
    main()
