"""Changes that get no credit at once: they wait, rather than go on while other mounts have cached what they change (docs/design/coherence.md)."""
import os
import re
import signal
import subprocess
import threading

from faulty import HANG
from harness import TIMEOUT, running, start_job, stopped, wait_until


def status(mount):
    return mount.state()["server"]


def requested(made):
    """How many requests for credits have reached the server."""
    return int(re.search(r'^qosfs_server_received_total{type="enqueue"} (\d+)$', made.server.ctl("metrics"), re.MULTILINE)[1])


class Looking:
    """A thread that has the kernel look at an open file again and again."""

    def __init__(self, path):
        self._file = open(path, "rb", buffering=0)  # pylint: disable=consider-using-with
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self):
        while not self._ends.is_set():
            os.fstat(self._file.fileno())

    def size(self):
        return os.fstat(self._file.fileno()).st_size

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
        self._file.close()


def test_a_full_server(cluster):
    """A mount that has all that it may have gives something back for each change, and waits for it: the others see the change."""
    made = cluster(mounts=0, server_options=("--group", "1", "--floor", "0", "--cap", "300"))  # one credit each
    (made.store.dir / "file").touch()
    first, second = made.add(), made.add()
    made.wait_up()

    def change(file, number):
        assert not (first.dir / f"absent{number}").exists()  # takes the directory's credit
        file.write(b"x")

    with open(first.dir / "file", "ab", buffering=0) as file:
        for number in range(5):
            change(file, number)
            before = requested(made)
            file.write(b"x")  # with the credit that the first one waited for
            assert requested(made) == before
        with Looking(second.dir / "file") as other:
            for number in range(5, 20):
                size = number + 6
                change(file, number)
                assert other.size() == size
    assert status(first)["refusals"] >= 10


def test_a_server_without_room(cluster):
    """Nothing is changed then that others might have cached."""
    made = cluster(mounts=0, server_options=("--group", "1", "--floor", "0", "--cap", "1"))
    (made.store.dir / "file").write_text("text")
    only = made.add()
    made.wait_up()
    assert (only.dir / "file").read_text() == "text"
    before = requested(made)
    with running(start_job(1, "truncate", "-s", "1", only.dir / "file", stderr=subprocess.PIPE)) as program:
        wait_until(lambda: requested(made) > before + 12, what="its asking again")
        assert program.poll() is None
        program.kill()
        program.wait(TIMEOUT)
        program.stderr.close()
    assert (made.store.dir / "file").read_text() == "text"


def test_a_write_of_a_stopped_mount(cluster):
    """Its credit has gone to another: when it goes on, it waits for a new one, and the other sees what it has written."""
    made = cluster(lease=2)
    first, second = made.mounts
    made.expects_trouble()
    made.server.expects_log(".")
    with open(first.dir / "file", "wb", buffering=0) as file, open(second.dir / "file", "r+b", buffering=0) as other:
        file.write(b"first")
        late = threading.Thread(target=os.pwrite, args=(file.fileno(), b"later", 0))
        with stopped(first.pid):
            late.start()
            os.pwrite(other.fileno(), b"other", 0)
            assert os.pread(other.fileno(), 9, 0) == b"other"
        late.join(TIMEOUT)
        assert not late.is_alive()
        assert os.pread(other.fileno(), 9, 0) == b"later"


def test_a_change_that_is_done_late(faulty, cluster):
    """It was in the store when its mount lost the credit to another that then looked: that one sees it as soon as it is
    complete."""
    made = cluster(store=faulty, lease=2, options="store=slow")
    first, second = made.mounts
    made.expects_trouble()
    made.server.expects_log(".")
    (first.dir / "file").write_text("long")
    before = status(first)["evictions"]
    faulty.fail("truncate", HANG, "file")
    change = threading.Thread(target=os.truncate, args=(first.dir / "file", 1))
    change.start()
    try:
        wait_until(lambda: "truncate" in faulty.hanging(), what="the change")
        os.kill(first.pid, signal.SIGSTOP)  # the thread that hangs goes on
        try:
            assert (second.dir / "file").stat().st_size == 4
        finally:
            os.kill(first.pid, signal.SIGCONT)
        wait_until(lambda: status(first)["evictions"] > before and status(first)["state"] == "up", what="its return")
        assert (second.dir / "file").stat().st_size == 4
    finally:
        faulty.mend()
        change.join(TIMEOUT)
    assert (second.dir / "file").stat().st_size == 1
