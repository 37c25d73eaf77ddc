#!/usr/bin/env python3
"""tests/prose.py sees what it is to find: in pages, man pages and comments, and in the files that are there. Reported as TAP."""
import pathlib
import sys

from names import TOP

sys.path.insert(0, str(TOP / "tests"))
sys.dont_write_bytecode = True
import prose  # noqa: E402

LONG = "A word " + "and another one " * 14 + "make a sentence."  # 46 words
SHORT = "Each of these " + "is short. Each of these " * 20 + "ends."
PAGE = f"""# Those who read headings

He said it. {LONG}
It says `who` and `him` in code.

- An item of one whom
  nobody knows.

| a table | its cells |
|---|---|
| {"x" * 300} | whose {LONG} |

    a block of code: who, his, {"x" * 300}

{SHORT}
{"x" * 201}
"""
ROFF = f""".SH WHO
.TP
.BR who (1)
told
.I him
so.
.EX
who his
.EE
{LONG}
"""
C = f"""/* The thread that owns it, and who \"waits\". {LONG} */
char *text = "/* his */ who"; // whose it is
int who; /*
 * A list:
 *  - of his
 *
 *     who is drawn here
 */
"""
PYTHON = f'''"""Those who read. {LONG}"""
who = "his"  # of him
text = """whose"""
'''


def counts(figures):
    return len(figures.who), len(figures.he), len(figures.long), len(figures.lines)


def refuses(blocks):
    return bool(prose.Figures(blocks).problems())


def main():
    page = prose.Figures(prose.of_markdown(PAGE), PAGE.splitlines())
    wrong = {
        "a page": counts(page) != (3, 1, 2, 4),  # in the lines is also the block of code
        "a man page": counts(prose.Figures(prose.of_roff(ROFF))) != (1, 1, 1, 0),
        "comments of C": counts(prose.Figures(prose.of_c(C))) != (2, 1, 1, 0),
        "comments of Python": counts(prose.Figures(prose.of_python(PYTHON))) != (1, 1, 1, 0),
        "each limit is one": not all(refuses([text]) for text in ("Who is it?", "He is.", LONG)) or not prose.Figures([SHORT], ["x" * 201]).problems(),
        "below the limits": refuses([SHORT]) or refuses([SHORT * 20 + " One who reads."]),
        "nothing is a fault": not prose.Figures().problems(),
        "pages are seen": not {TOP / "README.md", TOP / "CHANGELOG.md", TOP / "docs/mount.qosfs.8", TOP / "docs/user/jobs.md", TOP / "fs/gate/README.md"} <=
        set(prose.files("docs")),
        "sources are seen": not {TOP / "fs/qosfs.c", TOP / "core/credit.h", pathlib.Path(prose.__file__)} <= set(prose.files("code")),
        "each page has text": [path.name for path in prose.files("docs") if not prose.measure(path).words],
    }
    print(f"1..{len(wrong)}")
    for number, (what, is_wrong) in enumerate(wrong.items(), 1):
        print(f"{'not ' if is_wrong else ''}ok {number} {what}")
    if wrong["a page"]:
        print("#", counts(page))
    return any(wrong.values())


sys.exit(main())
