"""Thousands of random operations, the same on the store and through the mount: each must end the same."""
import errno
import os
import random
import stat

import pytest

from harness import OTHER
from syscalls import RENAME_EXCHANGE, RENAME_NOREPLACE, fallocate, renameat2

STEPS = 1500


class Player:
    """Plays one game of random moves below a folder. All choices come from the seed: as long as each move ends the same,
    the game is the same."""

    def __init__(self, top, seed):
        self.top = top
        self.chance = random.Random(seed)
        self.files = {}
        self.moves = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("move_")]

    def path(self):
        names = [self.chance.choice("abcd") for _ in range(self.chance.choice([1, 1, 2, 2, 3]))]
        return os.path.join(self.top, *names)

    def slot(self):
        return self.chance.randrange(6)

    def fd(self):
        return self.files.get(self.slot(), -1)

    def play(self, steps):
        outcomes = []
        for _ in range(steps):
            move = self.chance.choice(self.moves)
            try:
                outcome = move()
            except OSError as error:
                outcome = errno.errorcode[error.errno]
            outcomes.append((move.__name__, outcome))
        for fd in self.files.values():
            os.close(fd)
        return outcomes

    # --- names ---

    def move_mkdir(self):
        os.mkdir(self.path(), self.chance.choice([0o777, 0o750, 0o2775]))

    move_mkdir_again = move_mkdir

    def move_rmdir(self):
        os.rmdir(self.path())

    def move_unlink(self):
        os.unlink(self.path())

    def move_mknod(self):
        os.mknod(self.path(), self.chance.choice([0o100644, 0o010600]))

    def move_symlink(self):
        os.symlink(self.chance.choice(["a", "b/c", "../d", "nowhere"]), self.path())

    def move_readlink(self):
        return os.readlink(self.path())

    def move_link(self):
        os.link(self.path(), self.path(), follow_symlinks=False)

    def move_rename(self):
        os.rename(self.path(), self.path())

    def move_rename_flags(self):
        renameat2(self.path(), self.path(), self.chance.choice([RENAME_NOREPLACE, RENAME_EXCHANGE]))

    def move_list(self):
        return sorted(os.listdir(self.path()))

    def move_stat(self):
        found = os.lstat(self.path())
        size = None if stat.S_ISDIR(found.st_mode) else found.st_size
        return found.st_mode, found.st_nlink, found.st_uid, found.st_gid, size

    # --- attributes ---

    def move_chmod(self):
        os.chmod(self.path(), self.chance.choice([0o755, 0o750, 0o4755, 0o2755, 0o1777, 0o700]))

    def move_chown(self):
        os.chown(self.path(), -1, self.chance.choice([OTHER, -1]), follow_symlinks=False)

    def move_utime(self):
        path, when = self.path(), self.chance.randrange(10**18)
        os.utime(path, ns=(when, when), follow_symlinks=False)
        return os.lstat(path).st_mtime_ns

    def move_truncate(self):
        os.truncate(self.path(), self.chance.choice([0, 5, 5000, 100000]))

    def move_setxattr(self):
        name, value = self.chance.choice(["user.x", "user.y"]), b"v" * self.chance.choice([0, 10, 900])
        os.setxattr(self.path(), name, value, self.chance.choice([0, os.XATTR_CREATE, os.XATTR_REPLACE]))

    def move_removexattr(self):
        os.removexattr(self.path(), self.chance.choice(["user.x", "user.y"]))

    # --- open files ---

    def move_open(self):
        slot, path = self.slot(), self.path()
        flags = self.chance.choice([os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_EXCL,
                                    os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_TRUNC, os.O_RDWR | os.O_CREAT | os.O_TRUNC])
        fd = os.open(path, flags | os.O_NONBLOCK, 0o644)
        if slot in self.files:
            os.close(self.files.pop(slot))
        self.files[slot] = fd

    move_open_again = move_open

    def move_tmpfile(self):
        slot = self.slot()
        fd = os.open(self.top, os.O_RDWR | os.O_TMPFILE, 0o600)
        if slot in self.files:
            os.close(self.files.pop(slot))
        self.files[slot] = fd

    def move_close(self):
        slot = self.slot()
        if slot in self.files:
            os.close(self.files.pop(slot))

    def move_write(self):
        data, offset = self.chance.randbytes(self.chance.choice([1, 100, 5000])), self.chance.randrange(20000)
        return os.pwrite(self.fd(), data, offset)

    def move_read(self):
        return os.pread(self.fd(), self.chance.choice([10, 5000]), self.chance.randrange(20000))

    def move_fstat(self):
        found = os.fstat(self.fd())
        return found.st_mode, found.st_nlink, found.st_size

    def move_ftruncate(self):
        os.ftruncate(self.fd(), self.chance.randrange(30000))

    def move_fallocate(self):
        fallocate(self.fd(), self.chance.choice([0, 1, 3]), self.chance.randrange(20000), self.chance.randrange(1, 20000))

    def move_copy(self):
        length, offset, to = 7000, self.chance.randrange(5000), 10000 + self.chance.randrange(5000)
        return os.copy_file_range(self.fd(), self.fd(), length, offset, to)

    def move_fchmod(self):
        os.fchmod(self.fd(), self.chance.choice([0o600, 0o644, 0o4711]))


@pytest.mark.parametrize("seed", range(4))
def test_random_game(twins, seed):
    def act(top):
        os.umask(0o022)
        return Player(os.fspath(top), seed).play(STEPS)
    outcomes = twins(act)
    assert len(outcomes) == STEPS
    # It is a game only if much of it succeeds.
    assert sum(not (isinstance(outcome, str) and outcome.startswith("E")) for _, outcome in outcomes) > STEPS / 5
