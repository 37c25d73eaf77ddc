"""python3 tests/mount/conformance: prints per call what is covered, and the differences."""
import collections
import pathlib
import sys
from errno import errorcode

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from conformance import attributes, data, files, names, others, readonly, table  # noqa: E402, F401
from conformance.posix import elsewhere  # noqa: E402


def main():
    why = {}
    for (_, name), cases in table().items():
        counts = collections.Counter(errorcode.get(case.outcome.others, case.outcome.others) for case in cases)
        print(f"{name:16} {len(cases):3}  " + ", ".join(f"{outcome} {count}" for outcome, count in counts.items()))
        for case in cases:
            if case.difference:
                why.setdefault(case.difference.why, []).append(f"{name}: {case.title}")
    print("\nerrors that POSIX names, elsewhere:")
    for where in dict.fromkeys(elsewhere().values()):
        print(f"- {where}: " + ", ".join(f"{call} {name}" for (call, name), place in elsewhere().items() if place == where))
    print("\ndifferences:")
    for reason, titles in why.items():
        print(f"- {reason} ({'; '.join(titles)})")


main()
