#!/usr/bin/env python3
"""docs/design/credits.md maps each requirement of seed 002 to what meets it: none is missing, and the functions and tests that
it names exist. Reported as TAP.
"""
import re
import sys

from names import TOP, missing_units, texts

TAGS = """
R.M0.LAYOUT.LAYID.RESOURCE
R.M0.RESOURCE
R.M0.RESOURCE.CACHEABLE
R.M0.RESOURCE.HIERARCICAL
R.M0.RESOURCE.CALLBACK-REVOKE
R.M0.RESOURCE.RECLAIM
r.resource.enqueue.async
r.resource.ordering
r.resource.persistent
r.resource.conversion
r.resource.adaptive
r.resource.revocation-partial
r.resource.sublet
r.resource.separate
r.resource.open-file
r.resource.lock
r.resource.resource-count
r.resource.grant
r.resource.quota
r.resource.memory
r.resource.cpu-cycles
r.resource.fid
r.resource.inode-number
r.resource.network-bandwidth
r.resource.storage-bandwidth
r.resource.cluster-configuration
r.resource.power
""".split()


def main():
    page = (TOP / "docs/design/credits.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| [")]
    headers = texts("core", ".h")
    names = [name for row in rows for name in re.findall("`([^`]+)`", "|".join(row[3:]))]
    wrong = {
        "all tags are there, once": sorted(set(TAGS) ^ {row[1].strip(" []") for row in rows}) if len(rows) == len(TAGS) else [len(rows)],
        "each has a type, a function and a test": [row[1] for row in rows if len(row) != 7 or not all(map(str.strip, row[2:6]))],
        "the functions exist": [name for name in names if name.startswith("qos_") and f"{name}(" not in headers],
        "the kinds exist": [name for name in names if name.startswith("QOS_") and name not in headers],
        "the tests exist": missing_units(name for name in names if name.startswith("/")),
    }
    print(f"1..{len(wrong)}")
    for number, (what, found) in enumerate(wrong.items(), 1):
        print(f"{'not ' if found else ''}ok {number} {what}")
        for name in found:
            print(f"# {name}")
    return any(wrong.values())


sys.exit(main())
