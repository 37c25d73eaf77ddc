#!/usr/bin/env python3
"""Turns a schema such as schema.sql into a C header: an array of its steps, one string for each version."""
import pathlib
import re
import sys


def steps(schema):
    """The SQL of version 1, 2, ...; they must be numbered so."""
    parts = re.split(r"^-- version (\d+)$", schema, flags=re.MULTILINE)
    numbers = [int(number) for number in parts[1::2]]
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        sys.exit(f"the versions must be 1, 2, ...; they are {numbers}")
    return [re.sub(r"\s*--.*$", "", step, flags=re.MULTILINE).strip() for step in parts[2::2]]


def literal(step):
    lines = (line.replace("\\", "\\\\").replace('"', '\\"') for line in step.splitlines() if line)
    return "\n".join(f'    "{line}\\n"' for line in lines)


def main(source, target):
    with open(source, encoding="utf-8") as file:
        texts = [literal(step) for step in steps(file.read())]
    with open(target, "w", encoding="utf-8") as file:
        file.write(f"/* Made from {source} by db/embed.py. */\n")
        file.write(f"static const char *const {pathlib.Path(source).stem}_steps[] = {{\n" + ",\n".join(texts) + ",\n};\n")


main(*sys.argv[1:])
