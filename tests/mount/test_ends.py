"""How a mount ends that is in use, or is not unmounted in order: by a signal, by force, lazily."""
import errno
import signal
import subprocess
import sys

import pytest

from harness import MNT_DETACH, TIMEOUT, as_job, is_running, start_job, umount, wait_until

pytestmark = pytest.mark.parametrize("store", ["tmpfs"], indirect=True)

MNT_FORCE = 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_the_mount(store, mount, number):
    qos = mount(store)
    qos.kill(number)
    assert qos.exit_status == 0 and qos.log == ""


READ_OFTEN = """
import errno, os, sys
try:
    while True:
        os.listdir(sys.argv[1])
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_signal_answers_all_that_waits(store, mount):
    """Programs that wait for their turn, by the rule for most of a day, get an error when the daemon is ended."""
    (store.dir / "file").write_bytes(bytes(1 << 16))
    qos = mount(store)
    qos.rule("start slow jobid={slow} bps=1 depth=1:1")
    as_job("slow", "cat", qos.dir / "file")
    jobs = []
    for number in range(4):
        (store.dir / str(number)).mkdir()
        jobs.append(start_job("slow", sys.executable, "-c", READ_OFTEN, qos.dir / str(number), stdout=subprocess.PIPE,
                              text=True))
    wait_until(lambda: (qos.job("slow") or {}).get("waiting", 0) == 4, what="four that wait")
    qos.kill(signal.SIGTERM)
    assert qos.exit_status == 0 and qos.log == ""
    for job in jobs:
        assert job.communicate(timeout=TIMEOUT)[0].strip() in ("ENOTCONN", "ECONNABORTED")


def waiting_reader(qos):
    """A program that lists the mount until it gets an error, or its input has an end; it waits for its turn now."""
    code = ("import errno, os, select, sys\n"
            "os.chdir(sys.argv[1])\n"
            "try:\n"
            "    while not select.select([0], [], [], 0)[0]: os.listdir('.')\n"
            "except OSError as error: print(errno.errorcode[error.errno])\n"
            "else: print('served')\n")
    qos.rule("start slow jobid={slow} rate=1 depth=1")
    reader = start_job("slow", sys.executable, "-c", code, qos.dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                       text=True)
    wait_until(lambda: (qos.job("slow") or {}).get("waiting", 0) == 1, what="one that waits")
    return reader


def test_forced_unmount(store, mount):
    """umount -f: what waits gets an error, and the daemon ends in good order."""
    qos = mount(store)
    reader = waiting_reader(qos)
    try:
        umount(qos.dir, MNT_FORCE)
    except OSError as error:  # the connection has ended, but the program still holds the mount
        assert error.errno == errno.EBUSY
    assert reader.communicate(timeout=TIMEOUT)[0].strip() in ("ENOTCONN", "ECONNABORTED")
    qos.unmount()


def test_lazy_unmount(store, mount):
    """umount -l: a process that is in there is served until it leaves, then the daemon ends."""
    qos = mount(store)
    reader = waiting_reader(qos)
    umount(qos.dir, MNT_DETACH)
    assert is_running(qos.pid)
    assert reader.communicate(timeout=TIMEOUT)[0].strip() == "served"
    qos.unmount()
