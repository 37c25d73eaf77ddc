#!/usr/bin/env python3
"""Turns report.html, report.css and report.js into a C header: the page before and after its data.

The page allows no script and no style but these, by their hashes.
"""
import base64
import hashlib
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def digest(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def literal(text):
    lines = (line.replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + '\\n"\n    "'.join(lines) + '"'


def main(html, style, script, target):
    style, script = read(style), read(script)
    page = read(html)
    for mark, text in (("@STYLE_HASH@", digest(style)), ("@SCRIPT_HASH@", digest(script)),
                       ("@STYLE@", style), ("@SCRIPT@", script)):
        page = page.replace(mark, text)
    before, after = page.split("@DATA@")
    with open(target, "w", encoding="utf-8") as file:
        file.write("/* Made from tools/report.* by tools/embed.py. */\n"
                   f"static const char report_before[] =\n    {literal(before)};\n"
                   f"static const char report_after[] =\n    {literal(after)};\n")


main(*sys.argv[1:])
