"""./run --cluster: two mounts and a server from one command; on a terminal a live table below what to type."""
import contextlib
import os
import pty
import select
import signal
import subprocess
import time

import pytest

from harness import BUILD, REPOSITORY, TIMEOUT, wait_until

pytestmark = pytest.mark.skipif(BUILD.resolve() != REPOSITORY / "build", reason="./run builds build/, which is not what is tested")


@pytest.fixture
def places(tmp_path):
    """SRC and two directories; what is mounted there is unmounted, which ends the server."""
    made = [tmp_path / name for name in ("src", "one", "two")]
    for place in made:
        place.mkdir()
    yield made
    unmount(made)


def is_mounted(place):
    return subprocess.run(["mountpoint", "-q", place], check=False).returncode == 0


def unmount(places):
    """./run looks each second whether they are mounted, and what is looked at is busy."""
    for place in places[1:]:
        wait_until(lambda place=place: not is_mounted(place) or subprocess.run(["umount", place], check=False, stderr=subprocess.DEVNULL).returncode == 0,
                   what=f"umount {place}")


def folder_of(text):
    """Where the server has its files."""
    return text.split("--socket ")[1].split("/control")[0]


def test_a_script_goes_on(places):
    done = subprocess.run([REPOSITORY / "run", "--cluster", *places], capture_output=True, text=True, timeout=600, check=True)
    assert "\033" not in done.stdout and "cluster rule start both 'jobid={*}' bps=20M" in done.stdout
    folder = folder_of(done.stdout)
    (places[1] / "new").write_text("both")
    assert (places[2] / "new").read_text() == "both"
    unmount(places)
    wait_until(lambda: not os.path.exists(folder), what="the server's end")


class Terminal:
    """./run --cluster on a terminal of its own."""

    def __init__(self, places):
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(REPOSITORY / "run", ["run", "--cluster", *map(str, places)])
        self.text = ""

    def read_until(self, words, seconds=600):
        """Until `words` came, or None: until the end."""
        end = time.monotonic() + seconds
        while words is None or words not in self.text:
            assert select.select([self._fd], [], [], max(0, end - time.monotonic()))[0], self.text
            try:
                self.text += os.read(self._fd, 65536).decode(errors="replace")
            except OSError:
                assert words is None, self.text
                break

    def interrupt(self):
        os.write(self._fd, b"\x03")

    def wait(self):
        self.read_until(None, TIMEOUT)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # what ends the server has nothing mounted to wait for
        os.close(self._fd)


@pytest.fixture
def terminal(places):
    made = Terminal(places)
    yield made
    unmount(places)
    made.close()


def test_a_terminal_shows_it_live(places, terminal):
    terminal.read_until("umount ")
    terminal.text = ""
    terminal.read_until("\033[H\033[J")
    unmount(places)
    assert terminal.wait() == 0
    assert "They stay mounted" not in terminal.text


def test_an_interrupt_leaves_the_mounts(places, terminal):
    terminal.read_until("(which ends the server, too)")
    terminal.interrupt()
    assert terminal.wait() == 0
    assert f"They stay mounted; umount {places[1]} {places[2]} ends it." in terminal.text
    assert is_mounted(places[1]) and is_mounted(places[2])
    folder = folder_of(terminal.text)
    unmount(places)
    wait_until(lambda: not os.path.exists(folder), what="the server's end")
