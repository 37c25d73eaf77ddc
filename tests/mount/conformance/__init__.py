"""POSIX semantics, call by call: a table of cases, each done on the store and through the mount.

    @call("link")
    def link():
        yield "a second name", OK, lambda at: os.link(at / "file", at / "new"), "file:lc new:+ .:mc"
        yield "a name that is taken", EEXIST, lambda at: os.link(at / "file", at / "other")

A case is a title, the outcome that the store must give (so that the case tests what it claims to), what is done, and
if that is worth telling what it must change. It runs in a folder of its own with the objects that prepare() makes, as
their owner. The outcomes:

    OK, an errno       for everybody
    not_root(EACCES)   others fail so, and root succeeds; not_root(EACCES, ENODATA): root fails so
    ANY                whatever the store says

What changed is written as a list of name:letters, "." being the folder of the case: `+` made, `-` removed, `l` links,
`p` mode, `o` owner or group, `s` size, `a` `m` `c` times. It is compared between store and mount in any case, and a
call that fails must change nothing. What the mount shows of each object after the call must be what the store shows.

Where the kernel makes a difference unavoidable, it is the last word of the case, one of differences.py.
"""
import os
import stat
import time

from conformance.differences import Difference
from harness import OTHER

OK, ANY = "OK", "ANY"
NO_DIFFERENCE = Difference("")
LONG_NAME = "n" * 256
LONG_PATH = "./" * 2048 + "file"
CLOSED_FD = 9999  # a descriptor that nobody has

_CALLS = {}  # name -> what yields its cases

CLOCK_REALTIME_COARSE = 5  # Python does not name it
PAST = 10**9  # seconds since 1970: when all that prepare() makes was last read and written


class Outcome:
    """What a case must end with on the store, if that depends on the actor."""

    def __init__(self, others, root):
        self.others, self.root = others, root


def not_root(error, root=OK):
    return Outcome(error, root)


class Case:
    def __init__(self, title, outcome, action, changes=None, difference=None):
        self.title, self.action, self.changes, self.difference = title, action, changes, difference
        self.outcome = outcome if isinstance(outcome, Outcome) else Outcome(outcome, outcome)

    def expected(self, uid):
        return self.outcome.others if uid else self.outcome.root

    def difference_of(self, *where):
        """That which holds for a store and an actor."""
        found = self.difference or NO_DIFFERENCE
        return found if not found.where or set(found.where) & set(where) else NO_DIFFERENCE


def call(name):
    """The cases that a generator yields, under the name of their call."""
    def add(cases):
        _CALLS[name] = cases
        return cases
    return add


def table():
    """(theme, call) -> its cases"""
    return {(cases.__module__.split(".")[-1], name): [Case(*case) for case in cases()] for name, cases in _CALLS.items()}


# --- the objects of a case ---

NAMES = (".", "file", "other", "folder", "folder/inside", "folder/new", "empty", "link", "dangling", "loop", "to_folder",
         "pipe", "socket", "closed", "closed/inside", "fixed", "fixed/inside", "fixed/new", "secret", "foreign", "shared",
         "sticky", "sticky/foreign", "sticky/folder", "sticky/mine", "suid", "foreign_suid", "setgid", "setgid/new", "script", "new",
         "none")


def _write(path, mode=0o644, text="0123456789"):
    path.write_text(text)
    path.chmod(mode)


def prepare(at, uid):
    """Makes the objects of a case below `at`, which belong to `uid` but for those of OTHER."""
    at.mkdir()
    for name in ("folder", "empty", "closed", "fixed", "sticky", "sticky/folder", "setgid"):
        (at / name).mkdir()
    for name in ("file", "other", "folder/inside", "closed/inside", "fixed/inside", "sticky/mine"):
        _write(at / name)
    _write(at / "secret", 0)
    _write(at / "script", 0o755, "#!/bin/sh\nexit 7\n")
    for name, target in (("link", "file"), ("dangling", "none"), ("loop", "loop"), ("to_folder", "folder")):
        os.symlink(target, at / name)
    os.mkfifo(at / "pipe")
    os.mknod(at / "socket", stat.S_IFSOCK | 0o644)
    _write(at / "suid")
    for name in NAMES:
        if os.path.lexists(at / name):
            os.chown(at / name, uid, uid, follow_symlinks=False)
    for name, mode in (("foreign", 0o644), ("shared", 0o666), ("sticky/foreign", 0o666), ("foreign_suid", 0o6777)):
        _write(at / name)
        os.chown(at / name, OTHER, OTHER)
        (at / name).chmod(mode)
    for name in ("sticky", "sticky/folder", "setgid"):
        os.chown(at / name, OTHER, OTHER)
    for name, mode in (("suid", 0o6755), ("closed", 0), ("fixed", 0o555), ("sticky", 0o1777), ("setgid", 0o2777)):
        (at / name).chmod(mode)
    for name in NAMES:
        if os.path.lexists(at / name):
            os.utime(at / name, ns=(PAST * 10**9, PAST * 10**9), follow_symlinks=False)


def wait_for_the_next_tick():
    """Until times of now differ from those of what was made before, on kernels that round times to the clock's grain."""
    before = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) == before:
        time.sleep(0.001)


# --- running a case ---

LETTERS = {"p": ["st_mode"], "l": ["st_nlink"], "o": ["st_uid", "st_gid"], "s": ["st_size"], "a": ["st_atime_ns"],
           "m": ["st_mtime_ns"], "c": ["st_ctime_ns"]}
FIELDS = [field for fields in LETTERS.values() for field in fields]
TIMES = ["st_atime_ns", "st_mtime_ns", "st_ctime_ns"]


def look(at):
    """name -> {field: value}, or the errno. Lists no folder: that would be an access."""
    found = {}
    for name in NAMES:
        try:
            facts = os.lstat(at / name)
            found[name] = {field: getattr(facts, field) for field in FIELDS}
            if stat.S_ISDIR(facts.st_mode):
                del found[name]["st_size"]  # the store's own affair
        except OSError as error:
            found[name] = error.errno
    return found


def changes(before, after):
    """In the words of the table: name -> letters."""
    found = {}
    for name in NAMES:
        old, new = before[name], after[name]
        if isinstance(old, int) or isinstance(new, int):
            letters = "" if old == new else "+" if isinstance(old, int) else "-"
        else:
            letters = "".join(letter for letter, fields in LETTERS.items()
                              if any(old.get(field) != new.get(field) for field in fields))
        if letters:
            found[name] = set(letters)
    return found


def words_of(text):
    """The same of a text."""
    return {name: set(letters) for name, letters in (word.split(":") for word in text.split())}


def without(found, less):
    """Changes but for others."""
    left = {name: letters - less.get(name, set()) for name, letters in found.items()}
    return {name: letters for name, letters in left.items() if letters}


def without_times(found):
    return {name: facts if isinstance(facts, int) else {field: facts[field] for field in facts if field not in TIMES}
            for name, facts in found.items()}


def _descriptors():
    return {int(name) for name in os.listdir("/proc/self/fd")}


def run(case, at, behind):
    """Does it below `at`: (outcome, value, what has changed, how all looks, what the store `behind` it shows)."""
    os.umask(0o022)
    os.chdir("/")
    before, descriptors = look(at), _descriptors()
    outcome = value = None
    try:
        value = case.action(at)
        outcome = OK
    except OSError as error:
        outcome = error.errno
    after, shown = look(at), look(behind)
    for descriptor in _descriptors() - descriptors:
        try:
            os.close(descriptor)
        except OSError:
            pass  # that which listed the descriptors
    return outcome, value, changes(before, after), after, shown
