#!/usr/bin/env python3
"""`manuals.py PROGRAM...`: what --help of a program names its manual has, and the other way round: options, commands of
qosfsctl with the options of each, and the options of rules; and it fits a terminal. Reported as TAP.
"""
import pathlib
import re
import subprocess
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
WIDTH = 80  # of a terminal
too_wide = []  # lines of --help
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")  # -m, --mount


def plain(line):
    """A line of roff as text."""
    line = re.sub(r"\\f[A-Z]", "", line.replace(r"\-", "-").replace(r"\ ", "\0"))
    if line.startswith("."):
        words = re.findall(r'"([^"]*)"|(\S+)', line)[1:]
        alternates = re.match(r"\.[BIR]{2} ", line)
        line = ("" if alternates else " ").join(quoted or bare for quoted, bare in words)
    return line.replace("\0", " ")


class Manual:
    """`entries`: section -> [(tag, text)] of its .TP, the tag is the line that hangs out."""

    def __init__(self, name):
        self.entries = {}
        section = None
        lines = (DOCS / name).read_text().splitlines()
        for before, line in zip([""] + lines, lines):
            if heading := re.match(r"\.S[HS] (.*)", line):
                section = self.entries.setdefault(heading[1], [])
            elif before == ".TP":
                section.append((plain(line), ""))
            elif section and line != ".TP":
                tag, text = section[-1]
                section[-1] = tag, f"{text} {plain(line)}"

    def tags(self, *sections):
        return [tag for section in sections for tag, _ in self.entries[section]]


def help_of(program, *command):
    text = subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout
    too_wide.extend(line for line in text.splitlines() if len(line) > WIDTH)
    return text


def differences(said, written, what):
    """`said` by --help, `written` in the manual."""
    return [f"{what}: {name} is not in the manual" for name in sorted(said - written)] + [
        f"{what}: {name} is not in --help" for name in sorted(written - said)]


def names_with_values(texts):
    """NAME of each NAME=."""
    return {name for text in texts for name in re.findall(r"\b([a-z][a-z_-]*) ?(?=\[?=)", text)}


def of_mount(program):
    text, manual = help_of(program), Manual("mount.qosfs.8")
    tags = manual.tags("The mount", "Tunables")
    flags = set(re.findall(r"^  -o ([a-z_]+) ", text, re.MULTILINE))
    short = "-n", "-t", "-N"  # of mount(8), which gives them
    return (differences(names_with_values(re.findall(r"^  -o (.*?=)", text, re.MULTILINE)) - {"policy"},
                        names_with_values(tags), "option") +
            [f"option: {name} is not in the manual" for name in sorted(flags - set(re.findall(r"\w+", " ".join(tags))))] +
            differences(set(re.findall(r"(?:^|  )(-[a-zV])\b", text, re.MULTILINE)) - {"-o"},
                        {name for tag in manual.tags("COMMAND LINE") for name in OPTION.findall(tag) if len(name) == 2}
                        - set(short), "command line"))


def of_server(program):
    manual = Manual("qosfs-server.8")
    written = {f"--{name}" for name in names_with_values(manual.tags("SETTINGS"))}
    written |= {name for tag in manual.tags("SETTINGS") for name in OPTION.findall(tag)}
    said = {name for line in help_of(program).splitlines() if line.startswith("  ") for name in OPTION.findall(line)}
    return differences(said, written, "setting")


def of_simulator(program):
    written = {name for tag in Manual("qosfs-sim.1").tags("OPTIONS") for name in OPTION.findall(tag)}
    options = re.findall(r"^  (-.*?)(?:  |$)", help_of(program), re.MULTILINE)
    return differences({name for option in options for name in OPTION.findall(option)}, written, "option")


def of_command(program, name, entry, general):
    """Options of a command of qosfsctl; `general`: those that the manual tells once."""
    options = re.findall(r"^  (-.*?)(?:  |$)", help_of(program, *name.split()), re.MULTILINE)
    said = {option for text in options for option in OPTION.findall(text)}
    return differences(said - general, set(OPTION.findall(" ".join(entry))) - general, name)


def of_ctl(program):
    manual = Manual("qosfsctl.1")
    general = {option for tag in manual.tags("OPTIONS") for option in OPTION.findall(tag)}
    commands = re.findall(r"^  ((?:[a-z]+ ){0,2}[a-z]+)(?: [\[A-Z].*|  .*)$", help_of(program).split("Commands:")[1], re.MULTILINE)
    entries = {re.match(r"(?:cluster )?(?:(?:rule|server|job) )?[a-z]+", entry[0])[0]: entry
               for section in ("COMMANDS", "Of a lock server", "Of a cluster") for entry in manual.entries[section]}
    found = differences(set(commands), set(entries), "command")
    for name in commands:
        if name in entries:
            found += of_command(program, name, entries[name], general)
    rules = Manual("qosfs-rules.7")
    options, of_mounts = names_with_values(rules.tags("OPTIONS")), {"weight", "min", "passthrough"}
    for words, written in (("rule", "start"), options), (("cluster", "rule", "start"), options - of_mounts | names_with_values(rules.tags("RULES OF THE CLUSTER"))):
        said = set(re.findall(r"^  ([a-z]+)=", help_of(program, *words), re.MULTILINE))
        found += differences(said, written, " ".join(words))
    return found


def main():
    checks = {"mount.qosfs": of_mount, "qosfs-server": of_server, "qosfs-sim": of_simulator, "qosfsctl": of_ctl}
    print(f"1..{len(sys.argv) - 1}")
    for number, program in enumerate(sys.argv[1:], 1):
        name = pathlib.Path(program).name
        too_wide.clear()
        found = checks[name](program) + [f"wider than {WIDTH}: {line}" for line in too_wide]
        print(f"{'not ' if found else ''}ok {number} {name}")
        for line in found:
            print(f"# {line}")


main()
