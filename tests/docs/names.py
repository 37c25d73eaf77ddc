#!/usr/bin/env python3
"""The tests that README.md and docs/ name exist. Reported as TAP."""
import functools
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"\b(test_\w+\.py)(?:::(test_\w+))?")
FOLDERS = ("data", "dev", "etc", "lustre", "mnt", "proc", "qos", "run", "sys", "tmp", "usr", "var")  # of paths in these pages
UNIT = re.compile(r"`(/[a-z_-]+/[a-z0-9_/-]+)`")


@functools.cache
def texts(folder, suffix):
    """All files of `folder` whose names end so, one after another."""
    return "".join(path.read_text() for path in sorted((TOP / folder).glob(f"*{suffix}")))


def missing_units(names):
    """A unit test's name is in the sources whole; or its beginning is, where a loop or a macro adds the rest: words that are there."""
    sources = texts("tests/unit", ".c") + texts("tests/threads", ".c")
    words = sources + texts("core", ".c") + texts("sim", ".c")
    loops = set(re.findall(r'"(/[^"%]+/)["%]', sources))

    def is_made(name):
        return any(all(f'"{word}"' in words for word in name.removeprefix(loop).split("/")) for loop in loops if name.startswith(loop))
    return [name for name in names if f'"{name}"' not in sources and not is_made(name)]


def missing_python(names):
    """Of (file, function or "")."""
    files = {}
    for path in (TOP / "tests").glob("*/test_*.py"):
        files[path.name] = files.get(path.name, "") + path.read_text()
    return ["::".join(filter(None, name)) for name in names
            if name[0] not in files or (name[1] and f"def {name[1]}(" not in files[name[0]])]


def is_unit(name):
    """And no path of a file."""
    return name.split("/")[1] not in FOLDERS


def main():
    pages = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
    print(f"1..{len(pages)}")
    failed = False
    for number, page in enumerate(pages, 1):
        text = page.read_text()
        found = missing_python(dict.fromkeys(PYTHON.findall(text))) + missing_units(filter(is_unit, dict.fromkeys(UNIT.findall(text))))
        print(f"{'not ' if found else ''}ok {number} {page.name}")
        for name in found:
            print(f"# {name}")
        failed |= bool(found)
    return failed


if __name__ == "__main__":
    sys.exit(main())
