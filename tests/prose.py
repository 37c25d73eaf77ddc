#!/usr/bin/env python3
"""How plainly docs and comments are written: `prose.py [docs] [code] [--list]` measures, and fails above the limits below.

docs are the pages, the man pages, README.md of all folders and CHANGELOG.md; code are the comments of C and Python. Without
a word it is both. --list names each place of a page or source. Code blocks and `code` in a sentence are not looked at.
"""
import io
import pathlib
import re
import sys
import tokenize

TOP = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("base", "bench", "core", "db", "dist", "fs", "net", "server", "sim", "sys", "tests", "tools")
WHO_PER_1000 = 1  # who, whom, whose: in 1,000 words of all that is measured together
SENTENCE = 40  # words
LINE = 200  # characters of a line of docs outside of tables

WHO = re.compile(r"\b(?:who|whom|whose|whoever|whomever)\b", re.IGNORECASE)
HE = re.compile(r"\b(?:he|him|his|himself)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z0-9_][\w'’%.,/=-]*")
END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(*\[]*(?:[A-Z0-9`/]|[\w.-]+\(\d\)|qosfs|[\w/.]+\.md))")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs)\.")
NAMES = re.compile(r"(?:[\w`.-]+(?: \([^)]*\))?, ){4,}[\w`.-]+")  # a list of five names and more is no sentence: it counts as a word
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*(.*?)\*/|//([^\n]*)', re.DOTALL)


def of_markdown(text):
    """Paragraphs, items and cells of a page; what is code is one word, `code`."""
    text = re.sub(r"^<!--.*?-->$", "", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), flags=re.MULTILINE)
    blocks, is_code, was_empty = [[]], False, True
    for line in text.splitlines():
        is_code = line.startswith("    ") and (is_code or was_empty and not is_item(blocks)) or is_code and not line.strip()
        was_empty = not line.strip()
        if is_code or was_empty or re.fullmatch(r"[|\s:-]+", line):
            blocks.append([])
        elif line.startswith("|"):
            blocks += [[cell] for cell in re.split(r"(?<!\\)\|", line)[1:-1]] + [[]]
        elif re.match(r"\s*(?:[-*]|\d+\.|#+) ", line):
            blocks.append([re.sub(r"^\s*(?:[-*]|\d+\.|#+) ", "", line)])
            if line.startswith("#"):
                blocks.append([])
        else:
            blocks[-1].append(line)
    plain = (" ".join(block) for block in blocks if block)
    return [re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`+[^`]*`+", "`code`", block)) for block in plain]


def is_item(blocks):
    """Whether the last block of text was an item, below which an indented line is text."""
    return bool(blocks[-1])


def of_roff(text):
    """Paragraphs of a man page: macros that mark up words are words, all others end a paragraph, and so does the end
    of a sentence, which is that of a line. Examples are left out."""
    blocks, is_tag = [[]], False
    for line in re.sub(r"^\.EX$.*?^\.EE$|^\.nf$.*?^\.fi$", ".PP", text, flags=re.MULTILINE | re.DOTALL).splitlines():
        if re.match(r"\.(?:[BIR]{1,2}|SM) ", line):
            words = re.findall(r'"([^"]*)"|(\S+)', line)[1:]
            blocks[-1].append(("" if re.match(r"\.[BIR]{2} ", line) else " ").join(quoted or bare for quoted, bare in words))
        elif line.startswith("."):
            blocks.append([])
        elif not line.startswith("'"):
            blocks[-1].append(line)
        if is_tag or line.endswith("."):
            blocks.append([])
        is_tag = line == ".TP"
    plain = (" ".join(block) for block in blocks if block)
    return [re.sub(r"\\f[A-Z]|\\&", "", block.replace(r"\-", "-").replace(r"\ ", " ").replace(r"\(aq", "'")) for block in plain]


def of_c(text):
    """Paragraphs of the comments of a C file."""
    found = []
    for block, line in COMMENT.findall(text):
        comment = re.sub(r"^\s*\*?[ \t]?", "", block, flags=re.MULTILINE) if block else line
        found += of_comment(comment)
    return found


def of_comment(comment):
    """A drawing or a formula, which stands apart and is indented, is no sentence."""
    comment = re.sub(r"^(?: {3,}|\t).*$", "", comment, flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|\n(?=\s*[-*] )", comment)
    return [re.sub(r"`[^`]*`", "`code`", " ".join(part.split())) for part in parts if part.strip()]


def of_python(text):
    """Paragraphs of docstrings and comments."""
    found, lines = [], []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            lines.append(token.string.lstrip("# "))
        elif token.type != tokenize.NL:
            found += of_comment("\n".join(lines))
            lines = []
        if token.type == tokenize.STRING and token.string.startswith('"""') and not token.line[:token.start[1]].strip():
            found += of_comment(token.string.strip('"'))
    return found


def sentences(blocks):
    return [sentence for block in blocks for sentence in END.split(ABBREVIATION.sub(r"\1", block)) if sentence.strip()]


class Figures:
    """What was seen, of one file or of all."""

    def __init__(self, blocks=(), lines=()):
        found = sentences(blocks)
        text = "\n".join(blocks)
        self.words = len(WORD.findall(text))
        self.who = [sentence for sentence in found for _ in WHO.findall(sentence)]
        self.he = [sentence for sentence in found for _ in HE.findall(sentence)]
        self.long = [sentence for sentence in found if len(WORD.findall(NAMES.sub("names", sentence))) > SENTENCE]
        self.lines = [line for line in lines if len(line) > LINE and not line.startswith("|")]

    def add(self, other):
        self.words += other.words
        for name in ("who", "he", "long", "lines"):
            getattr(self, name).extend(getattr(other, name))

    def problems(self):
        """In words; none where it is within the limits."""
        found = []
        if self.words == 0:
            found.append("nothing was seen")
        if len(self.who) * 1000 > WHO_PER_1000 * self.words:
            found.append(f"who, whom, whose {len(self.who) * 1000 / self.words:.1f} in 1,000 words, {WHO_PER_1000} may be")
        for what, places in (("he, him, his", self.he), (f"sentences of more than {SENTENCE} words", self.long),
                             (f"lines of more than {LINE} characters", self.lines)):
            if places:
                found.append(f"{what}: {len(places)}")
        return found


def measure(path):
    text = path.read_text()
    if path.suffix == ".md":
        return Figures(of_markdown(text), text.splitlines())
    if path.suffix in (".1", ".7", ".8"):
        return Figures(of_roff(text), text.splitlines())
    return Figures(of_c(text) if path.suffix in (".c", ".h") else of_python(text))


def files(part):
    if part == "docs":
        paths = [TOP / "README.md", TOP / "CHANGELOG.md", *(TOP / "docs").rglob("*.md"), *(TOP / "docs").rglob("*.[178]")]
        return sorted(paths + [path for folder in FOLDERS for path in (TOP / folder).rglob("*.md")])
    return sorted(path for folder in FOLDERS for path in (TOP / folder).rglob("*") if path.suffix in (".c", ".h", ".py"))


def check(parts, wants_list=False):
    """Prints what is above the limits, by file; 1 where something is."""
    failed = 0
    for part in parts:
        whole = Figures()
        for path in files(part):
            figures = measure(path)
            whole.add(figures)
            if wants_list and (figures.who or figures.he or figures.long or figures.lines):
                print(f"{path.relative_to(TOP)}: {len(figures.who)} who, {len(figures.he)} he, {len(figures.long)} sentences, {len(figures.lines)} lines")
                for mark in ("who", "he", "long", "lines"):
                    for place in getattr(figures, mark):
                        print(f"    {mark}: {place}")
        problems = whole.problems()
        for problem in problems:
            print(f"prose of {part}: {problem} (tests/prose.py {part} --list shows where)", file=sys.stderr)
        failed |= bool(problems)
    return int(failed)


def main():
    arguments = set(sys.argv[1:])
    parts = arguments - {"--list"}
    if parts - {"docs", "code"}:
        print(__doc__, file=sys.stderr)
        return 2
    return check(sorted(parts) or ["code", "docs"], "--list" in arguments)


if __name__ == "__main__":
    sys.exit(main())
