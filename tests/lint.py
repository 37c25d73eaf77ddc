#!/usr/bin/env python3
"""Lint: `lint.py format` (clang-format changes nothing, and each file has a head comment), `lint.py circles BUILD` (circles.py),
`lint.py prose` (prose.py finds nothing above its limits), `lint.py tidy BUILD` (clang-tidy, by the compile commands of BUILD).
A file that clang-tidy has passed is not looked at again until it, a header or the configuration changes.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import sys

import circles
import prose

TOP = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("base", "core", "sys", "fs", "db", "net", "server", "tools", "sim")
PROSE = ("code", "docs")  # "code": the comments


def files(suffix, folders):
    return sorted(path for folder in folders for path in (TOP / folder).glob(f"**/*{suffix}"))


def complain(problems):
    for problem in problems:
        print(f"lint: {problem}", file=sys.stderr)
    return min(len(problems), 1)


def without_head():
    """The files that do not begin with a comment, which is to say what they are for."""
    return [f"{file.relative_to(TOP)} has no head comment" for file in files(".[ch]", FOLDERS)
            if not file.read_text().startswith("/*")]


def check_format():
    sources = files(".c", FOLDERS + ("tests", "bench")) + files(".h", FOLDERS + ("tests", "bench"))
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", "-style=file", *sources])
    return complain(without_head()) or done.returncode


def digest(*paths):
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes() + b"\0")
    return whole.hexdigest()


def tidy(build, source):
    done = subprocess.run(["clang-tidy", "-quiet", "-p", build, source], capture_output=True, text=True)
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def check_tidy(build):
    stamps = build / "lint"
    stamps.mkdir(exist_ok=True)
    common = digest(TOP / ".clang-tidy", *files(".h", FOLDERS))
    waiting = {}
    for source in files(".c", FOLDERS):
        stamp = stamps / hashlib.sha256((common + str(source) + digest(source)).encode()).hexdigest()
        if not stamp.exists():
            waiting[source] = stamp
    failed = 0
    largest_first = sorted(waiting, key=lambda source: -source.stat().st_size)  # so that none is left for the end
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda source: tidy(build, source), largest_first)
        for source, (status, output) in zip(largest_first, results):
            if status == 0:
                waiting[source].touch()
            else:
                failed += 1
                print(output, file=sys.stderr)
    return min(failed, 1)


def main():
    match sys.argv[1:]:
        case ["format"]:
            return check_format()
        case ["circles", build]:
            return complain(circles.check(TOP, pathlib.Path(build).resolve(), FOLDERS))
        case ["prose"]:
            return prose.check(PROSE)
        case ["tidy", build]:
            return check_tidy(pathlib.Path(build).resolve())
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
