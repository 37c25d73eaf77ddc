"""The errors that all calls with a path have."""
from errno import EACCES, EEXIST, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR

from conformance import LONG_NAME, LONG_PATH, OK, not_root


def _look_up(act):
    yield "an empty path", ENOENT, lambda at: act(at, "")
    for title, error, path in (("a missing component", ENOENT, "none/x"), ("a file as a folder", ENOTDIR, "file/x"),
                               ("a pipe as a folder", ENOTDIR, "pipe/x"), ("a dangling link", ENOENT, "dangling/x"),
                               ("a loop", ELOOP, "loop/x"), ("a name of 256 bytes", ENAMETOOLONG, LONG_NAME),
                               ("a path of over 4095 bytes", ENAMETOOLONG, LONG_PATH)):
        yield title, error, lambda at, path=path: act(at, f"{at}/{path}")


def of_existing(act, root=OK):
    """Of act(at, path) on what is there; `root`: what root gets of a file."""
    yield from _look_up(act)
    yield "a missing name", ENOENT, lambda at: act(at, at / "none")
    yield "a file with a slash behind", ENOTDIR, lambda at: act(at, f"{at}/file/")
    yield "in a folder without search permission", not_root(EACCES, root), lambda at: act(at, at / "closed/inside")


def of_removing(act, root=OK):
    """Of act(at, path) that removes the name."""
    yield from of_existing(act, root)
    yield "in a folder without write permission", not_root(EACCES, root), lambda at: act(at, at / "fixed/inside")


def of_making(act):
    """Of act(at, path) that makes the name."""
    yield from _look_up(act)
    for name in ("file", "folder", "link", "dangling", "loop", "pipe"):
        yield f"a name that is taken: {name}", EEXIST, lambda at, name=name: act(at, at / name)
    yield "the dot", EEXIST, lambda at: act(at, f"{at}/folder/.")
    yield "in a folder without search permission", not_root(EACCES), lambda at: act(at, at / "closed/new")
    yield "in a folder without write permission", not_root(EACCES), lambda at: act(at, at / "fixed/new")
