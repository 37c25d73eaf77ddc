"""MUNGE for tests: a munged of their own, and the handshake of net/munge.h by munge(1) and unmunge(1)."""
import base64
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from harness import TIMEOUT, USER, is_stopped, wait_until

MAGIC = b"qosfs munge 1\n"
NONCE_LENGTH = 32
CREDENTIAL_MAX = 1024


class Munged:
    """A munged with a key of its own, that is, a realm; it runs as an ordinary user."""

    def __init__(self, key):
        self._folder = folder = pathlib.Path(tempfile.mkdtemp(prefix="qosfs-munge-"))
        folder.chmod(0o755)
        (folder / "key").write_bytes(key)
        (folder / "key").chmod(0o400)
        for path in folder, folder / "key":
            os.chown(path, USER, USER)
        self.socket = folder / "socket"
        files = [f"--{name}-file={folder / name}" for name in ("key", "log", "pid", "seed")]
        self._process = subprocess.Popen(
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--pdeathsig", "KILL",
             "munged", "--foreground", f"--socket={self.socket}", *files, "--group-update-time=-1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def ready():
            assert self._process.poll() is None, f"munged ended: {self._process.stderr.read()}"
            with contextlib.suppress(subprocess.CalledProcessError):
                return self.encode(b"")
        wait_until(ready, what="munged")

    def encode(self, payload, user=0):
        """A credential of that user."""
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "munge", f"--socket={self.socket}"]
        return subprocess.run(command, input=payload, capture_output=True, check=True, timeout=TIMEOUT).stdout.strip()

    def decode(self, credential):
        """The uid and the payload."""
        command = ["unmunge", f"--socket={self.socket}", "--keys=UID", "--numeric"]
        done = subprocess.run(command, input=credential, capture_output=True, check=True, timeout=TIMEOUT)
        head, _, payload = done.stdout.partition(b"\n\n")
        return int(head.split()[-1]), payload

    def signal(self, number):
        """SIGSTOP is waited for."""
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_until(lambda: is_stopped(self._process.pid), what="munged's stop")

    def close(self):
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder)


def payload(role, own, others, port):
    """`own`: the mount's nonce, `others`: the server's."""
    nonces = (base64.b64encode(nonce).decode() for nonce in (own, others))
    return MAGIC + " ".join([role, *nonces, f"127.0.0.1:{port}"]).encode()


# A peer has send(bytes), and take(count), which gives so many.

def open_handshake(peer, nonce=bytes(NONCE_LENGTH)):
    """The mount's opening; the server's nonce."""
    peer.send(MAGIC + nonce)
    opening = peer.take(len(MAGIC) + NONCE_LENGTH)
    assert opening.startswith(MAGIC)
    return opening[len(MAGIC):]


def send_credential(peer, credential):
    peer.send(len(credential).to_bytes(2, "little") + credential)


def take_credential(peer):
    return peer.take(int.from_bytes(peer.take(2), "little"))


def shake_hands(peer, munged, port, user=0):
    """All of it, as a mount does it."""
    own = os.urandom(NONCE_LENGTH)
    others = open_handshake(peer, own)
    send_credential(peer, munged.encode(payload("mount", own, others, port), user))
    assert munged.decode(take_credential(peer)) == (0, payload("server", own, others, port))
