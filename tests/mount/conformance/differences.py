"""Where the mount differs from the store because the kernel leaves it no choice: the list of docs/reference/posix.md.

A case that names one passes only if it differs in just that way.
"""
from errno import EACCES, EOPNOTSUPP


class Difference:
    """outcome, value: what the mount answers instead, where that is not None. unseen: changes that the store does not
    get to make. more: those that it makes behind the mount alone; the mount shows them after the attribute time-out. where: stores or actors that have the difference, () = all."""

    def __init__(self, why, outcome=None, value=None, unseen="", more="", where=()):
        self.why, self.outcome, self.value, self.unseen, self.more = why, outcome, value, unseen, more
        self.where = where


PIPE = Difference("The data of a named pipe is the kernel's alone: its times stand still.", unseen="pipe:amc")
NOTHING_READ = Difference("A read that gets nothing is answered by the kernel: it is no access.", unseen="file:a")
MAPPED = Difference("A mapping is an access when the first page is read, not when it is made.", unseen="file:a")
WRITTEN_LATER = Difference("The kernel tells of a change by a mapping when it writes the page, not when the page is changed.",
                           unseen="file:mc")
NO_APPEND = Difference("The kernel does not pass RWF_NOAPPEND on: a file opened with O_APPEND appends.",
                       "OK", (2, b"0123456789ab"))
SHIFTED = Difference("The kernel does not pass these modes of fallocate on.", EOPNOTSUPP, where=("ext4",))
SOUGHT = Difference("The kernel does not know how long the store's files may be: lseek goes further.", "OK", (1 << 63) - 1,
                    where=("ext4",))
REFUSED = Difference("The kernel refuses what RLIMIT_FSIZE forbids before ext4 notes the time of the attempt.",
                     unseen="file:mc", where=("ext4",))
NOT_READABLE = Difference("An ordinary user's daemon cannot read a program that its user may run and not read, and so the kernel "
                          "cannot run it; root's can.", "OK", (None, EACCES), where=("owner",))
LINK_READ = Difference("No call reads a link of the store without an access, noatime and read-only mounts included.",
                       more="link:a")
OTHERS_READ = Difference("An ordinary user's daemon cannot spare the access time of another's file, and noatime or ro does not "
                         "hold there.", more="foreign:a", where=("owner",))
