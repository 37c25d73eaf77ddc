"""A store that fails as it is told: tests/mount/faulty_store.c and its faults. A test asks for the fixture `faulty`."""
import os
import subprocess

from harness import BUILD, MNT_DETACH, umount, wait_until

HANG = 0


class Faulty:
    """A store and its faults."""

    def __init__(self, world, folder):
        self.behind = folder
        self.dir = world.folder("faulty")
        self.kind = "faulty"
        self._faults = world.folder("faults") / "faults"
        self._faults.touch()
        self._hanging = self._faults.with_suffix(".hanging")
        with open(self._hanging, "wb") as file:
            self.process = subprocess.Popen([BUILD / "tests/mount/faulty-store", folder, self._faults, self.dir], stdout=file)
        wait_until(lambda: os.stat(self.dir).st_dev != os.stat(self.dir.parent).st_dev, what="the faulty store")

    def fail(self, operation, error, name="*"):
        self.faults((operation, name, error))

    def faults(self, *lines):
        """Of (operation, name, errno); HANG for errno."""
        new = self._faults.with_suffix(".new")
        new.write_text("".join(f"{operation} {name} {error}\n" for operation, name, error in lines))
        new.rename(self._faults)

    def mend(self):
        self.faults()

    def hanging(self):
        """What has begun to hang so far: a set of operations."""
        return {line.split()[0] for line in self._hanging.read_text().splitlines()}

    def hangs(self):
        """How many have begun to hang so far."""
        return len(self._hanging.read_text().splitlines())

    def close(self):
        self.process.kill()
        self.process.wait()
        umount(self.dir, MNT_DETACH)
