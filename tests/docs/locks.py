#!/usr/bin/env python3
"""The table of docs/design/locking.md is that of sys/mutex.h, row by row; each lock is where it says, and all are in it; and no
mutex is of another type. Reported as TAP.
"""
import re
import sys

from names import TOP

ROW = re.compile(r"^\| (\d+) \| `(\w+\.\w+)` \(((?:[a-z]+/)+\w+\.[ch])\) \|.*\| ([\d, -]+) \|$", re.MULTILINE)
KIND = re.compile(r'^    MUTEX\((\d+), \w+, "([\w.]+)"\)', re.MULTILINE)
FIELD = re.compile(r"^\s+QosMutex (\w+);", re.MULTILINE)
OTHER = re.compile(r"\b(?:pthread_mutex_t|pthread_rwlock_t|pthread_spinlock_t|GMutex|GRecMutex|GRWLock)\b")
FOLDERS = ("db", "fs", "net", "server", "sys")


def main():
    rows = ROW.findall((TOP / "docs/design/locking.md").read_text())
    header = (TOP / "sys/mutex.h").read_text()
    sources = {str(path.relative_to(TOP)): path.read_text()
               for folder in FOLDERS for path in sorted((TOP / folder).rglob("*.[ch]")) if path.stem != "mutex"}
    table, kinds = [row[:2] for row in rows], KIND.findall(header)
    named = {(file, name.split(".")[1]) for _, name, file, _ in rows}
    found = {(file, field) for file, text in sources.items() for field in FIELD.findall(text)}
    wrong = {
        "the table is the code's": [f"{theirs} in the page, {ours} in the code" for theirs, ours in zip(table, kinds) if theirs != ours] or
        sorted(set(table) ^ set(kinds)) or ([] if kinds else ["no kinds found"]),
        "ranks go up": [] if kinds == sorted(kinds, key=lambda kind: int(kind[0])) else ["they do not"],
        "each is taken under lower ranks": [name for rank, name, _, under in rows if int(rank) <= max(map(int, re.findall(r"\d+", under)), default=0)],
        "each lock is in the table": sorted(named ^ found),
        "no mutex is of another type": [file for file, text in sources.items() if OTHER.search(text)],
    }
    print(f"1..{len(wrong)}")
    for number, (what, problems) in enumerate(wrong.items(), 1):
        print(f"{'not ' if problems else ''}ok {number} {what}")
        for problem in problems:
            print(f"# {problem}")
    return any(wrong.values())


sys.exit(main())
