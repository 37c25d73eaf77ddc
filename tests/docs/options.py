#!/usr/bin/env python3
"""The tables of docs/reference/options.md are those of fs/daemon/options.c and fs/control/tunable.c, and the manual has
each name. Reported as TAP.
"""
import re
import sys

from names import TOP

ROW = re.compile(r"^\| `([a-z_]+)(=[^`]*)?` \| ?(.*?) ?\| ", re.MULTILINE)
OPTION = re.compile(r'^    \{"(\w+)", \w+, (TRUE|FALSE)\},', re.MULTILINE)
TUNABLE = re.compile(r'^    \{"(\w+)", ("[^"]*"|\w+), "', re.MULTILINE)
DEFAULT = re.compile(r'^#define (QOS_JOBID_\w+_DEFAULT)\s+("[^"]*")', re.MULTILINE)


def main():
    options, tunables = (TOP / "docs/reference/options.md").read_text().split("## Tunables")
    manual = (TOP / "docs/mount.qosfs.8").read_text()
    named = dict(DEFAULT.findall((TOP / "fs/caller/job_name.h").read_text()))
    ours = [(name, "TRUE" if value else "FALSE") for name, value, _ in ROW.findall(options)]
    theirs = OPTION.findall((TOP / "fs/daemon/options.c").read_text())
    set_here = [(name, default.strip("`")) for name, _, default in ROW.findall(tunables)]
    set_there = [(name, named.get(default, default).strip('"')) for name, default in TUNABLE.findall((TOP / "fs/control/tunable.c").read_text())]
    wrong = {
        "options are those of the code": sorted(set(ours) ^ set(theirs)) if theirs else ["none found"],
        "tunables and their defaults are those of the code": sorted(set(set_here) ^ set(set_there)) if set_there else ["none found"],
        "the manual has them": [name for name, _ in theirs + set_there if name not in manual],
    }
    print(f"1..{len(wrong)}")
    for number, (what, problems) in enumerate(wrong.items(), 1):
        print(f"{'not ' if problems else ''}ok {number} {what}")
        for problem in problems:
            print(f"# {problem}")
    return any(wrong.values())


sys.exit(main())
