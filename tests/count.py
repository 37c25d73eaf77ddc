#!/usr/bin/env python3
"""Sums up what `check` ran: DIR/steps has a line "NAME STATUS" for each step, DIR/NAME.xml (JUnit) its test cases.

A step without an XML file is one case. A program that failed without a failed case, as when it crashed before it
could report, is a failed case besides (DIR/NAME.json, meson's log, tells), and so is a step. Names what failed,
prints "N passed, N failed" (", N skipped"), and exits 1 if anything failed.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree


def cases_of(path):
    """The cases of a JUnit file: (name, outcome). An error in a test's set-up or end counts with the test."""
    cases = {}
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')} {case.get('name')}"
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        if cases.get(name) != "failed":
            cases[name] = outcome
    return list(cases.items())


def crashed(path, cases):
    """The programs in meson's log that failed, and no case of theirs did."""
    blamed = {name.split(" / ")[-1].split()[0] for name, outcome in cases if outcome == "failed" and " / " in name}
    tests = [json.loads(line) for line in path.read_text().splitlines()]
    names = [test["name"].split(" / ")[-1] for test in tests if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]
    return [name for name in names if name not in blamed]


def main():
    results = pathlib.Path(sys.argv[1])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    steps = results / "steps"
    # A build that two parts share is one case.
    status_of = dict(line.split() for line in steps.read_text().splitlines()) if steps.exists() else {}
    for step, status in status_of.items():
        report = results / f"{step}.xml"
        cases = cases_of(report) if report.exists() else []
        log = results / f"{step}.json"
        if log.exists():
            cases += [(name, "failed") for name in crashed(log, cases)]
        if not report.exists() or (status != "0" and all(outcome != "failed" for _, outcome in cases)):
            cases.append((step, "passed" if status == "0" else "failed"))
        for name, outcome in cases:
            counts[outcome] += 1
            if outcome == "failed":
                print(f"failed: {step}: {name}")
    line = "{passed} passed, {failed} failed".format(**counts)
    print(line + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
