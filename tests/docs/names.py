#!/usr/bin/env python3
"""What README.md, docs/ and the comments name exists: tests, files, pages and their sections; and each folder's
README.md names the files of the folder. Reported as TAP."""
import functools
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
PYTHON = re.compile(r"\b(test_\w+\.py)(?:::(test_\w+))?")
FOLDERS = ("data", "dev", "etc", "lustre", "mnt", "proc", "qos", "run", "sys", "tmp", "usr", "var")  # of paths in these pages
UNIT = re.compile(r"`(/[a-z_-]+/[a-z0-9_/-]+)`")
SOURCES = ("base", "bench", "core", "db", "fs", "net", "server", "sim", "sys", "tests", "tools")
FILE = re.compile(rf"\b(?<![/<])(?!fs/fuse/)((?:{'|'.join(SOURCES)})/(?:\w+/)*\w+\.(?:[ch]|sql)|tests/\w+/\w+\.(?:[ch]|py))\b")
PAGE = re.compile(r"(?<![\w./-])(docs/(?:[\w.-]+/)*[\w-]+\.md|README\.md)\b(?!#)(?:, \"([^\"]+)\")?")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)(?:, \"([^\"]+)\")?")
README_LINES = 60
LINE_BREAK = re.compile(r"\n(?:#include.*\n)*[ *#]*")  # the compiler looks for what is included


@functools.cache
def texts(folder, suffix):
    """All files of `folder` with names that end so, one after another."""
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


@functools.cache
def headings(path):
    """The headings of a page."""
    return set(re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE))


def anchor(heading):
    """The name under which GitHub and its kin link to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def missing_places(text):
    """Files that are not there, and pages that are named from the top of the tree, or their sections."""
    text = LINE_BREAK.sub(" ", text)
    files = [name for name in dict.fromkeys(FILE.findall(text)) if not (TOP / name).exists()]
    return files + [", ".join(filter(None, place)) for place in dict.fromkeys(PAGE.findall(text))
                    if not (TOP / place[0]).exists() or (place[1] and place[1] not in headings(TOP / place[0]))]


def missing_links(page, text):
    """Links of a page that lead nowhere: to no file, or to no heading of it."""
    wrong = []
    for target, name, section in dict.fromkeys(LINK.findall(LINE_BREAK.sub(" ", text))):
        path = page.parent / target if target else page
        if not path.exists() or (name and name not in map(anchor, headings(path))) or (section and section not in headings(path)):
            wrong.append(", ".join(filter(None, (target, name, section))))
    return wrong


def missing_readmes():
    """Each folder of C files has a README.md of at most README_LINES lines that names each file: `name.c`, `name.[ch]` or with the folder."""
    wrong = []
    for folder in sorted({path.parent for part in SOURCES if part != "tests" for path in (TOP / part).rglob("*.c")}):
        page = folder / "README.md"
        text = page.read_text() if page.exists() else ""
        if not text or text.count("\n") > README_LINES:
            wrong.append(f"{page.relative_to(TOP)}: {'too long' if text else 'missing'}")
        wrong += [f"{page.relative_to(TOP)}: {path.name}" for path in sorted(folder.glob("*.[ch]"))
                  if not re.search(rf"\b{path.stem}\.({path.suffix[1]}\b|\[ch\])", text)]
    return wrong


def sources():
    paths = (path for folder in SOURCES for path in (TOP / folder).rglob("*") if path.suffix in (".c", ".h", ".py", ".sql"))
    return sorted(path for path in paths if path != pathlib.Path(__file__).resolve())


def is_unit(name):
    """And no path of a file."""
    return name.split("/")[1] not in FOLDERS


def main():
    pages = [TOP / "README.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").rglob("*.md"))]
    pages += sorted(page for folder in SOURCES for page in (TOP / folder).rglob("README.md"))
    found = {str(page.relative_to(TOP)): missing_python(dict.fromkeys(PYTHON.findall(text))) + missing_units(filter(is_unit, dict.fromkeys(UNIT.findall(text)))) +
             missing_places(text) + missing_links(page, text) for page, text in ((page, page.read_text()) for page in pages)}
    found["the sources"] = [f"{path.relative_to(TOP)}: {name}" for path in sources() for name in missing_places(path.read_text())]
    found["the folders"] = missing_readmes()
    print(f"1..{len(found)}")
    for number, (place, names) in enumerate(found.items(), 1):
        print(f"{'not ' if names else ''}ok {number} {place}")
        for name in names:
            print(f"# {name}")
    return any(found.values())


if __name__ == "__main__":
    sys.exit(main())
