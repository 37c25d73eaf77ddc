"""No circles between files: `lint.py circles BUILD`.

Two files that need each other cannot be read, tested or moved one without the other, and nothing in C forbids them.

A unit is X.c together with X.h. A header that no .c is named after, or that declares functions of other .c files besides X.c, is a
unit of its own, X.h. A state.h or db.h is what its files share: they need it, and it needs none of them.
A unit needs another if it includes its header, or uses a function that the other defines: calls it or takes its address. Units
that need one another, by whatever way round, are a circle. One that ALLOWED does not name is a failure, and so is an entry of
ALLOWED that names no circle.

Includes are read in the sources, functions in the symbol tables of BUILD's objects, which compile_commands.json lists. So the check
sees what is built: of uring.c and uring_none.c the one that this build has. It does not see calls by a pointer that was handed
over, which is how a file may be called by one that does not know it, nor the use of another's data. The check looks at a small
made-up tree first, so that it cannot pass because it sees nothing.
"""
import fnmatch
import json
import pathlib
import re
import subprocess
import tempfile

# Why there may be a circle, and the files that may be in it.
ALLOWED = [
    ("the parts of one state machine: a request ends in a grant, and a grant begins the next request", ["core/credit*"]),
]

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
NAME = re.compile(r"\b(\w+)\(")


def sources(top, folders, suffixes):
    return [file for folder in folders for file in sorted((top / folder).rglob("*")) if file.suffix in suffixes]


def objects(top, build, folders):
    """The object file of each .c file below the folders: the first that the build lists."""
    found = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        source = (build / command["file"]).resolve()
        if source.suffix == ".c" and source.is_relative_to(top) and source.relative_to(top).parts[0] in folders:
            found.setdefault(str(source.relative_to(top)), build / command["output"])
    return found


def functions(found):
    """The .c file that defines each function, and the functions that each .c file uses."""
    defined, used = {}, {}
    for file, compiled in found.items():
        listing = subprocess.run(["nm", "-g", compiled], check=True, capture_output=True, text=True).stdout
        for kind, name in (line.split()[-2:] for line in listing.splitlines()):
            if kind in "TWi":
                defined[name] = file
            elif kind == "U":
                used.setdefault(file, set()).add(name)
    return defined, used


def units(top, folders, defined):
    """The unit of each file: X for X.c and X.h, but X.h for a header that declares functions of other .c files, too."""
    texts = {str(file.relative_to(top)): COMMENT.sub("", file.read_text()) for file in sources(top, folders, {".h"})}
    declares = {header: set(NAME.findall(text)) for header, text in texts.items()}
    found = {str(file.relative_to(top)): unit_of(file.relative_to(top)) for file in sources(top, folders, {".c", ".h"})}
    for header, names in declares.items():
        for name in names & defined.keys():
            own = unit_of(defined[name]) + ".h"
            if own != header and name not in declares.get(own, ()):
                found[header] = header
    return found


def edges(top, build, folders):
    """Of each unit the others that it needs."""
    defined, used = functions(objects(top, build, folders))
    unit = units(top, folders, defined)
    needs = {name: set() for name in unit.values()}
    for file in unit:
        text = (top / file).read_text()
        needs[unit[file]].update(unit[name] for name in INCLUDE.findall(text) if name in unit)
        needs[unit[file]].update(unit[defined[name]] for name in used.get(file, ()) if name in defined)
    return {name: others - {name} for name, others in needs.items()}


def unit_of(path):
    return str(pathlib.PurePath(path).with_suffix(""))


def components(needs):
    """The sets of more than one unit that need one another: Tarjan's strongly connected components."""
    number, low, stack, circles = {}, {}, [], []

    def visit(unit):
        number[unit] = low[unit] = len(number)
        stack.append(unit)
        for other in sorted(needs.get(unit, ())):
            if other not in number:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], number[other])
        if low[unit] == number[unit]:
            at = stack.index(unit)
            if len(stack) - at > 1:
                circles.append(sorted(stack[at:]))
            del stack[at:]

    for unit in sorted(needs):
        if unit not in number:
            visit(unit)
    return circles


def judge(circles, allowed):
    """One line for each circle that no entry allows, and for each entry that allows none."""
    found, needed = [], set()
    for circle in circles:
        fits = [number for number, (_, files) in enumerate(allowed)
                if all(any(fnmatch.fnmatch(unit, file) for file in files) for unit in circle)]
        needed.update(fits)
        if not fits:
            found.append("a circle: " + ", ".join(circle))
    return found + [f"no circle needs this entry: {', '.join(files)}" for number, (_, files) in enumerate(allowed)
                    if number not in needed]


# f/a and f/b use each other's functions, f/a and f/c each other's headers; f/d uses f/b alone. f/e.h declares a function of f/e_part.c,
# too, so that f/e_part.c, which f/e.c calls, needs f/e.h and not f/e.c.
MADE_UP = {
    "f/a.h": "void a(void);", "f/a.c": '#include "f/a.h"\n#include "f/b.h"\n#include "f/c.h"\nvoid a(void) { b(); }',
    "f/b.h": "void b(void);", "f/b.c": '#include "f/b.h"\nvoid a(void);\nvoid (*b_calls)(void) = a;\nvoid b(void) { b_calls(); }',
    "f/c.h": "struct c;", "f/c.c": '#include "f/a.h"\nvoid c(void) {}',
    "f/d.h": "void d(void); /* e() */", "f/d.c": '#include "f/b.h"\n#include "f/d.h"\nvoid d(void) { b(); }',
    "f/e.h": "void e(void); void e_part(void);", "f/e.c": '#include "f/e.h"\nvoid e(void) { e_part(); }',
    "f/e_part.c": '#include "f/e.h"\nvoid e_part(void) {}',
}


def sees_circles():
    with tempfile.TemporaryDirectory() as folder:
        top = pathlib.Path(folder).resolve()
        (top / "f").mkdir()
        commands = []
        for file, text in MADE_UP.items():
            (top / file).write_text(text + "\n")
        for file in (file for file in MADE_UP if file.endswith(".c")):
            subprocess.run(["cc", "-c", "-I", top, "-o", top / (file + ".o"), top / file], check=True)
            commands.append({"file": file, "output": file + ".o"})
        (top / "compile_commands.json").write_text(json.dumps(commands))
        return components(edges(top, top, ["f"])) == [["f/a", "f/b", "f/c"]] and \
            judge([["f/a", "f/b"]], [("", ["f/a"])]) == ["a circle: f/a, f/b", "no circle needs this entry: f/a"] and \
            judge([["f/a", "f/b"]], [("", ["f/*"])]) == []


def check(top, build, folders):
    if not sees_circles():
        return ["the check does not find the circle in its own made-up tree"]
    if not objects(top, build, folders):
        return [f"{build} has no objects of these sources"]
    return judge(components(edges(top, build, folders)), ALLOWED)
