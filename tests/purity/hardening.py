#!/usr/bin/env python3
"""The programs are built so that an overflow ends them (meson.build): reported as TAP.

Each is position-independent, binds all symbols before main() and makes their table read-only, has no executable stack, calls the
stack protector's and _FORTIFY_SOURCE's functions.
"""
import argparse
import pathlib
import re
import subprocess


def readelf(program, *words):
    return subprocess.run(["readelf", "-W", *words, program], check=True, capture_output=True, text=True).stdout


def faults(program, fortified):
    header, segments, dynamic = (readelf(program, word) for word in ("-h", "-l", "-d"))
    symbols = readelf(program, "--dyn-syms")
    stack = re.search(r"GNU_STACK.*", segments)
    return [fault for fault, is_right in [
        ("it is not position-independent", re.search(r"Type:\s+DYN", header)),
        ("it has no GNU_RELRO", "GNU_RELRO" in segments),
        ("it has no BIND_NOW", re.search(r"BIND_NOW|FLAGS_1\).*NOW", dynamic)),
        ("its stack is executable", stack and " RW " in stack[0]),
        ("it has no stack protector", "__stack_chk_fail" in symbols),
        ("it has no _FORTIFY_SOURCE", not fortified or re.search(r"__(?!stack)\w+_chk\b", symbols)),
    ] if not is_right]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fortified", choices=["true", "false"], default="true")
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    print(f"1..{len(arguments.programs)}")
    for number, program in enumerate(arguments.programs, 1):
        found = faults(program, arguments.fortified == "true")
        print(f"{'not ok' if found else 'ok'} {number} {program.name}", flush=True)
        for fault in found:
            print(f"# {fault}", flush=True)


if __name__ == "__main__":
    main()
