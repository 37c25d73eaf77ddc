"""The errors that POSIX (IEEE Std 1003.1-2024) says of each call, those that it shall fail with and those that it may. Each is in the
table, in some case of the call; or there is no such case, and it is said here which test has it, or why it does not come.
"""
import errno

_NAMED = {
    "access": "EACCES EBADF EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR EROFS ETXTBSY",
    "bind": "EACCES EADDRINUSE EBADF EINVAL EIO ELOOP ENAMETOOLONG ENOBUFS ENOENT ENOTDIR ENOTSOCK EROFS",
    "chdir": "EACCES EBADF EINTR EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOMEM ENOTDIR ERANGE",  # with fchdir and getcwd
    "chmod": "EACCES EBADF EINTR EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR EOPNOTSUPP EPERM EROFS",
    "chown": "EACCES EBADF EINTR EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOTDIR EPERM EROFS",
    "close": "EBADF EINTR EIO",
    "execve": "E2BIG EACCES EBADF EINVAL ELOOP ENAMETOOLONG ENOENT ENOEXEC ENOMEM ENOTDIR ETXTBSY",
    "fallocate": "EBADF EFBIG EINTR EINVAL EIO ENODEV ENOSPC ESPIPE",
    "fcntl": "EBADF EINVAL EMFILE",
    "fcntl locks": "EAGAIN EBADF EDEADLK EINTR EINVAL ENOLCK EOVERFLOW",
    "fsync": "EBADF EINTR EINVAL EIO",
    "ftruncate": "EBADF EFBIG EINTR EINVAL EIO",
    "link": "EACCES EBADF EEXIST EILSEQ EINVAL ELOOP EMLINK ENAMETOOLONG ENOENT ENOSPC ENOTDIR EPERM EROFS EXDEV",
    "lseek": "EBADF EINVAL ENXIO EOVERFLOW ESPIPE",
    "mkdir": "EACCES EBADF EEXIST EILSEQ ELOOP EMLINK ENAMETOOLONG ENOENT ENOSPC ENOTDIR EROFS",
    "mkfifo": "EACCES EBADF EEXIST EILSEQ ELOOP ENAMETOOLONG ENOENT ENOSPC ENOTDIR EROFS",
    "mknod": "EACCES EBADF EEXIST EILSEQ EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOSPC ENOTDIR EPERM EROFS",
    "mmap": "EACCES EAGAIN EBADF EINVAL EMFILE ENODEV ENOMEM ENOTSUP ENXIO EOVERFLOW",
    "open": "EACCES EAGAIN EBADF EEXIST EILSEQ EINTR EINVAL EIO EISDIR ELOOP EMFILE ENAMETOOLONG ENFILE ENOENT ENOMEM ENOSPC "
            "ENOTDIR ENXIO EOVERFLOW EROFS ETXTBSY",
    "pathconf": "EACCES EBADF EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR EOVERFLOW",
    "read": "EAGAIN EBADF EINTR EINVAL EIO EISDIR ENOBUFS ENOMEM ENXIO EOVERFLOW ESPIPE",
    "readdir": "EACCES EBADF ELOOP EMFILE ENAMETOOLONG ENFILE ENOENT ENOTDIR EOVERFLOW",  # with opendir and fdopendir
    "readlink": "EACCES EBADF EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOTDIR",
    "rename": "EACCES EBADF EBUSY EEXIST EILSEQ EINVAL EIO EISDIR ELOOP EMLINK ENAMETOOLONG ENOENT ENOSPC ENOTDIR ENOTEMPTY EPERM "
              "EROFS ETXTBSY EXDEV",
    "rmdir": "EACCES EBADF EBUSY EEXIST EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOTDIR ENOTEMPTY EPERM EROFS",
    "stat": "EACCES EBADF EINVAL EIO ELOOP ENAMETOOLONG ENOENT ENOTDIR EOVERFLOW",
    "statvfs": "EACCES EBADF EINTR EIO ELOOP ENAMETOOLONG ENOENT ENOTDIR EOVERFLOW",
    "symlink": "EACCES EBADF EEXIST EILSEQ EIO ELOOP ENAMETOOLONG ENOENT ENOSPC ENOTDIR EROFS",
    "truncate": "EACCES EFBIG EINTR EINVAL EIO EISDIR ELOOP ENAMETOOLONG ENOENT ENOTDIR EROFS ETXTBSY",
    "unlink": "EACCES EBADF EBUSY EINVAL EISDIR ELOOP ENAMETOOLONG ENOENT ENOTDIR EPERM EROFS ETXTBSY",
    "utimensat": "EACCES EBADF EINVAL ELOOP ENAMETOOLONG ENOENT ENOTDIR EPERM EROFS",
    "write": "EAGAIN EBADF EFBIG EINTR EINVAL EIO ENOBUFS ENOSPC ENXIO EPIPE ESPIPE",
}


_KERNEL = "the kernel's own: the file system is not asked"
_LINUX = "not on Linux"
_PASSED_ON = "test_failing_stores.py::test_errno_passes"
_FULL = "test_failing_stores.py::test_full"

# errno -> {calls, all of them: where it is instead}
_ELSEWHERE = {
    "E2BIG": {"execve": _KERNEL},
    "EAGAIN": {"read write": "pipes and sockets: " + _KERNEL, "open mmap": _KERNEL},
    "EBADF": {"bind execve": _KERNEL},
    "EBUSY": {"rmdir unlink": "test_submounts.py::test_what_is_a_mount_point_stays"},
    "EDEADLK": {"fcntl locks": "test_cluster_locks.py::test_deadlock_within_a_mount"},
    "EEXIST": {"rmdir": "ENOTEMPTY on Linux"},
    "EILSEQ": {"link mkdir mkfifo mknod open rename symlink": "names are bytes"},
    "EINTR": {"chdir chmod chown close fallocate fsync ftruncate open read statvfs truncate write":
              "test_interrupts.py::test_handlers_see_no_eintr",
              "fcntl locks": "test_cluster_locks.py::test_a_signal_ends_the_waiting"},
    "EINVAL": {"chdir": "getcwd's, in the C library", "execve": "ENOEXEC on Linux", "open": "see O_TMPFILE", "unlink": _KERNEL},
    "EIO": {"bind chdir chown fallocate ftruncate mknod open read readlink rename rmdir stat statvfs symlink truncate write": _PASSED_ON,
            "close fsync": "test_failing_stores.py::test_sync_and_close_tell"},
    "EMFILE": {"open readdir": "test_caps.py::test_open_files_are_bounded", "fcntl": _KERNEL, "mmap": _LINUX},
    "EMLINK": {"link": "test_conformance.py::test_as_many_names_as_the_store_has",
               "mkdir rename": "a folder of these stores has any number of others"},
    "ENAMETOOLONG": {"bind": "an address has 108 bytes"},
    "ENFILE": {"open readdir": "test_many_files.py::test_bound_without_file_handles"},
    "ENOBUFS": {"bind read write": _LINUX},
    "ENODEV": {"fallocate": "devices: " + _KERNEL},
    "ENOLCK": {"fcntl locks": "test_cluster_locks.py::test_so_many_ranges_of_one_file"},
    "ENOMEM": {"chdir execve mmap open read": _KERNEL},
    "ENOSPC": {"link mkdir mkfifo mknod open rename symlink": _PASSED_ON, "fallocate write": _FULL},
    "ENOTSOCK": {"bind": _KERNEL},
    "ENOTSUP": {"mmap": _LINUX},
    "ENXIO": {"read write": "devices: " + _KERNEL, "mmap": _LINUX},
    "EOPNOTSUPP": {"chmod": "test_attributes.py::test_chmod_of_a_link_is_refused_as_by_the_store"},
    "EOVERFLOW": {"mmap open pathconf read readdir stat statvfs": "numbers have 64 bits", "lseek": "EINVAL on Linux"},
    "EPIPE": {"write": "pipes and sockets: " + _KERNEL},
    "ERANGE": {"chdir": "getcwd's, in the C library"},
    "EROFS": {"access bind chmod chown link mkdir mkfifo mknod open rename rmdir symlink truncate unlink utimensat": "see read-only"},
    "ETXTBSY": {"execve": "the case 'a file that is being written', where the kernel has it", "access rename unlink": _LINUX},
}


def named(table):
    """(call, errno) of all that POSIX names, and whether the table has it."""
    for call, names in _NAMED.items():
        outcomes = {outcome for (_, name), cases in table.items() if name == call for case in cases
                    for outcome in (case.outcome.others, case.outcome.root)}
        for name in names.split():
            yield (call, name), getattr(errno, name) in outcomes


def elsewhere():
    """(call, errno) -> where that is, or why it does not come."""
    found = {}
    for name, places in _ELSEWHERE.items():
        for words, where in places.items():
            for call in [words] if words in _NAMED else words.split():
                found[call, name] = where
    return found
