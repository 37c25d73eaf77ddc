"""Thousands of random operations, the same on the store and through the mount: each must end the same."""
import errno
import os
import random
import stat
import struct

import pytest

from harness import OTHER
from syscalls import AT_FDCWD, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, fallocate, linkat, renameat2

STEPS = 1500
DEPTH_MAX = 3  # of what is made
ACL_XATTRS = ["system.posix_acl_access", "system.posix_acl_default"]
FOLDER, FILE, ANY = "folder", "file", "any name"
XATTRS = ["user.x", "user.y"]


def acl(rights):
    """Of a file on which also OTHER has these rights."""
    user_obj, user, group_obj, mask, other, nobody = 1, 2, 4, 16, 32, 2**32 - 1
    entries = [(user_obj, 6, nobody), (user, rights, OTHER), (group_obj, 5, nobody), (mask, 7, nobody), (other, 4, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def list_open(fd):
    os.lseek(fd, 0, os.SEEK_SET)  # what came since it was opened need not be seen (btrfs)
    return sorted(os.listdir(fd))


class Player:
    """Plays one game of random moves below a folder. All choices come from the seed: as long as each move ends the same,
    the game is the same."""

    def __init__(self, top, seed, plan=None):
        self.top = top
        self.plan = plan or top  # where it looks for what there is
        self.chance = random.Random(seed)
        self.files = {}  # slot -> descriptor, of a folder perhaps
        self.tops = {}  # slot -> the folder below which it was opened
        self.moves = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("move_")]

    def name(self):
        return self.chance.choice("abcd")

    def choose(self, kinds):
        """A path below the top: of a folder or a file that is there, or of any name, in a folder that is there."""
        found = {kind: [] for kind in [FOLDER, FILE]}
        for parent, folders, files in os.walk(self.plan):
            found[FOLDER] += [os.path.relpath(os.path.join(parent, name), self.plan) for name in folders]
            found[FILE] += [os.path.relpath(os.path.join(parent, name), self.plan) for name in files]
        kind = self.chance.choice(kinds)
        if kind != ANY and found[kind]:
            return self.chance.choice(sorted(found[kind]))
        parents = sorted(folder for folder in found[FOLDER] if folder.count("/") < DEPTH_MAX - 1)
        return os.path.join(self.chance.choice([".", *parents]), self.name())

    def path(self, kinds=(FOLDER, FILE, FILE, ANY), top=None):
        return os.path.join(top or self.top, self.choose(kinds))

    def folder(self):
        return self.path([FOLDER, FOLDER, FOLDER, FILE, ANY])

    def file(self):
        return self.path([FILE, FILE, FILE, FOLDER, ANY])

    def new(self, top=None):
        return self.path([ANY, ANY, ANY, FILE, FOLDER], top)

    def slot(self):
        return self.chance.randrange(6)

    def folder_slot(self):
        return self.chance.randrange(6, 9)

    def fd(self):
        return self.files.get(self.slot(), -1)

    def folder_fd(self):
        return self.files.get(self.folder_slot(), -1)

    def target(self):
        """For calls that take either."""
        return self.chance.choice([self.path, self.path, self.fd, self.folder_fd])()

    def keep(self, slot, fd, top=None):
        self.drop(slot)
        self.files[slot], self.tops[slot] = fd, top or self.top

    def drop(self, slot):
        if slot in self.files:
            del self.tops[slot]
            os.close(self.files.pop(slot))

    def close(self):
        for slot in list(self.files):
            self.drop(slot)

    def step(self):
        move = self.chance.choice(self.moves)
        try:
            return move.__name__, move()
        except OSError as error:
            return move.__name__, errno.errorcode[error.errno]

    # --- names ---

    def move_mkdir(self):
        os.mkdir(self.new(), self.chance.choice([0o777, 0o750, 0o2775]))

    move_mkdir_again = move_mkdir

    def move_rmdir(self):
        os.rmdir(self.folder())

    def move_unlink(self):
        os.unlink(self.file())

    def move_mknod(self):
        os.mknod(self.new(), self.chance.choice([0o100644, 0o010600]))

    def move_symlink(self):
        os.symlink(self.chance.choice(["a", "b/c", "../d", "../b", "nowhere"]), self.new())

    def move_readlink(self):
        return os.readlink(self.file())

    def move_link(self):
        os.link(self.file(), self.new(), follow_symlinks=False)

    move_link_again = move_link

    def move_link_open(self):
        slot = self.slot()
        linkat(AT_FDCWD, f"/proc/self/fd/{self.files.get(slot, -1)}", self.new(self.tops.get(slot)), AT_SYMLINK_FOLLOW)

    def move_rename(self):
        os.rename(self.path(), self.new())

    def move_rename_over(self):
        kinds = self.chance.choice([[FOLDER], [FILE]])
        os.rename(self.path(kinds), self.path(kinds))

    def move_rename_flags(self):
        renameat2(self.path(), self.path(), self.chance.choice([RENAME_NOREPLACE, RENAME_EXCHANGE]))

    def move_list(self):
        return sorted(os.listdir(self.folder()))

    def move_stat(self):
        found = os.lstat(self.path())
        size = None if stat.S_ISDIR(found.st_mode) else found.st_size
        return found.st_mode, found.st_nlink, found.st_uid, found.st_gid, size

    # --- attributes ---

    def move_chmod(self):
        os.chmod(self.target(), self.chance.choice([0o755, 0o750, 0o4755, 0o2755, 0o1777, 0o700, 0o644]))

    def move_chown(self):
        os.chown(self.path(), -1, self.chance.choice([OTHER, -1]), follow_symlinks=False)

    def move_fchown(self):
        os.fchown(self.fd(), -1, self.chance.choice([OTHER, -1]))

    def move_utime(self):
        path, when = self.path(), self.chance.randrange(10**18)
        os.utime(path, ns=(when, when), follow_symlinks=False)
        return os.lstat(path).st_mtime_ns

    def move_futime(self):
        fd, when = self.fd(), self.chance.randrange(10**18)
        os.utime(fd, ns=(when, when))
        return os.fstat(fd).st_mtime_ns

    def move_truncate(self):
        os.truncate(self.target(), self.chance.choice([0, 5, 5000, self.chance.randrange(30000), 100000]))

    def move_setxattr(self):
        value = b"v" * self.chance.choice([0, 10, 900])
        os.setxattr(self.target(), self.chance.choice(XATTRS), value, self.chance.choice([0, os.XATTR_CREATE, os.XATTR_REPLACE]))

    def move_set_acl(self):
        os.setxattr(self.target(), self.chance.choice(ACL_XATTRS), acl(self.chance.choice([4, 6, 7])))

    def move_removexattr(self):
        os.removexattr(self.target(), self.chance.choice(XATTRS + ACL_XATTRS))

    # --- open files ---

    def move_open(self):
        slot, path = self.slot(), self.chance.choice([self.file, self.new])()
        flags = self.chance.choice([os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_EXCL,
                                    os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_CREAT | os.O_APPEND,
                                    os.O_RDWR | os.O_TRUNC, os.O_RDWR | os.O_CREAT | os.O_TRUNC])
        self.keep(slot, os.open(path, flags | os.O_NONBLOCK, 0o644))

    move_open_again = move_open

    def move_tmpfile(self):
        self.keep(self.slot(), os.open(self.top, os.O_RDWR | os.O_TMPFILE, 0o600))

    def move_close(self):
        self.drop(self.chance.choice([self.slot, self.folder_slot])())

    def move_write(self):
        data, offset = self.chance.randbytes(self.chance.choice([1, 100, 5000])), self.chance.randrange(20000)
        return os.pwrite(self.fd(), data, offset)

    move_write_again = move_write

    def move_read(self):
        return os.pread(self.fd(), self.chance.choice([10, 5000]), self.chance.randrange(20000))

    def move_fstat(self):
        found = os.fstat(self.fd())
        size = None if stat.S_ISDIR(found.st_mode) else found.st_size
        return found.st_mode, found.st_nlink, size

    def move_fallocate(self):
        fallocate(self.fd(), self.chance.choice([0, 1, 3]), self.chance.randrange(20000), self.chance.randrange(1, 20000))

    def move_copy(self):
        length, offset, to = 7000, self.chance.randrange(5000), 10000 + self.chance.randrange(5000)
        return os.copy_file_range(self.fd(), self.fd(), length, offset, to)

    # --- open folders ---

    def move_open_folder(self):
        slot = self.folder_slot()
        self.keep(slot, os.open(self.folder(), os.O_RDONLY | os.O_DIRECTORY))

    def move_list_open(self):
        return list_open(self.folder_fd())

    def move_open_in(self):
        slot, folder = self.slot(), self.folder_slot()
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | self.chance.choice([0, os.O_CREAT])
        fd = os.open(self.name(), flags, 0o644, dir_fd=self.files.get(folder, -1))
        self.keep(slot, fd, self.tops[folder])

    def move_mkdir_in(self):
        os.mkdir(self.name(), dir_fd=self.folder_fd())

    def move_rmdir_in(self):
        os.rmdir(self.name(), dir_fd=self.folder_fd())

    def move_unlink_in(self):
        os.unlink(self.name(), dir_fd=self.folder_fd())

    def move_rename_in(self):
        folder = self.folder_fd()
        os.rename(self.name(), self.name(), src_dir_fd=folder, dst_dir_fd=folder)

    def move_rename_out(self):
        slot = self.folder_slot()
        os.rename(self.name(), self.new(self.tops.get(slot)), src_dir_fd=self.files.get(slot, -1))


@pytest.mark.parametrize("number", range(2))
def test_random_game(twins, number, request):
    """Each actor and store has games of its own: the seed is the test's name."""
    def act(top):
        os.umask(0o022)
        os.mkdir(top / "top")  # links lead out of it
        player = Player(os.path.join(top, "top"), request.node.name)
        outcomes = [player.step() for _ in range(STEPS)]
        player.close()
        return outcomes
    outcomes = twins(act)
    assert len(outcomes) == STEPS
    # It is a game only if much of it succeeds.
    assert sum(not (isinstance(outcome, str) and outcome.startswith("E")) for _, outcome in outcomes) > STEPS / 5
