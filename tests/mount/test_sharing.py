"""The way of a mount to its lock server: it is found, lost, and found again, and told of; bad addresses are refused."""
import re
import shutil
import socket
import stat
import subprocess
import threading

import pytest

from harness import BUILD, OTHER, TIMEOUT, USER, Store, run, wait_until
from munge import MAGIC, NONCE_LENGTH, Munged, payload, send_credential, take_credential


def status(made):
    return made.state()["server"]


def test_server_is_killed(cluster):
    """Within the lease a mount only waits for it, and is known again."""
    one = cluster(mounts=1)
    mount, = one.mounts
    one.wait_up()
    (mount.dir / "file").write_text("text")
    mount.expects_log("lock server .*")
    one.server.kill()
    wait_until(lambda: status(mount)["state"] == "recovering", what="the mount's notice")
    assert status(mount)["reason"] and status(mount)["valid"] > 0
    assert "recovering" in run(BUILD / "tools/qosfsctl", "-m", mount.dir, "status")
    one.server.start()
    one.wait_up()
    assert (mount.dir / "file").read_text() == "text"
    assert status(mount)["reconnects"] == 1 and status(mount)["evictions"] == 0
    assert "qosfs_lockclient_up 1" in (mount.dir / ".qosfs/metrics").read_text().splitlines()


@pytest.mark.parametrize("options", ["", "store=one"], ids=["by its id", "though it is named the same"])
def test_a_mount_of_another_store_is_refused(cluster, mount, new_store, options):
    """It is told the names of both, and goes on without caching."""
    one = cluster(mounts=1, lease=300, options=options)
    first, = one.mounts
    one.wait_up()
    one.server.expects_log("store differs")
    second = mount(new_store("ext4"), ",".join(filter(None, [options, f"server=unix:{one.server.socket}"])))
    second.expects_log("lock server .* this mount is of")
    reason = wait_until(lambda: status(second)["reason"], what="its refusal")
    names = re.search("the server serves the store (.*), and this mount is of (.*); if these are one ", reason).groups()
    assert names[0] != names[1] and names[0] in one.server.ctl("status")
    assert status(second)["state"] != "up" and status(second)["valid"] == 0 and reason in second.ctl("status")
    for text in ("text", "changed"):  # nothing of it is cached
        (second.store.dir / "file").write_text(text)
        assert (second.dir / "file").read_text() == text
    assert status(first)["state"] == "up"


def test_a_user_that_may_not_connect(cluster, mount):
    """The server tells the user nothing; the mount says where to look."""
    one = cluster(mounts=0, server_options=("--allow-uid", str(OTHER)))
    one.server.expects_log("not permitted")
    strangers = mount(one.store, f"server=unix:{one.server.socket}", user=USER)
    strangers.expects_log("lock server .* did not welcome the mount .* its log tells why")
    assert "did not welcome the mount" in strangers.log
    strangers.unmount()


def test_reports_are_there_in_a_grace(cluster):
    """The server waits for a mount that does not come back, and answers nobody: a process that walks to the reports
    does not ask it."""
    one = cluster(mounts=1, lease=300)
    gone, = one.mounts
    one.wait_up()
    (gone.dir / "file").write_text("text")
    one.server.kill()
    gone.kill()
    one.server.start()
    later = one.add()
    wait_until(lambda: status(later)["state"] == "up", what="the later mount's session")
    assert "grace" in one.server.ctl("status")
    run("stat", later.dir, timeout=TIMEOUT)
    assert "up" in run(BUILD / "tools/qosfsctl", "-m", later.dir, "status", timeout=TIMEOUT)


def test_reads_go_on_without_a_server(cluster):
    """They see what the store has, be the server in the grace that waits for a mount which does not come back, or away. Nothing
    but the lease would end that."""
    one = cluster(lease=300)
    one.wait_up()
    writer, gone = one.mounts
    file = writer.dir / "file"
    file.write_text("first")
    one.expects_trouble()
    one.server.kill()
    gone.kill()
    one.server.start()
    reader = one.add()
    one.wait_up(writer, reader)
    reader.expects_log("lock server .* is tried again")
    assert "grace" in one.server.ctl("status")
    for text in "second", "third":
        assert run("cat", reader.dir / "file", timeout=TIMEOUT) == file.read_text()
        file.write_text(text)  # it has what that takes
    one.server.kill()
    wait_until(lambda: status(reader)["state"] == "recovering", what="the end of the connection")
    for text in "fourth", "fifth":
        assert run("cat", reader.dir / "file", timeout=TIMEOUT) == file.read_text()
        file.write_text(text)


def test_a_database_is_copied(cluster):
    """As with the image of a machine: it is another mount for all that, and sees what the first one does."""
    one = cluster(mounts=2)
    copied = one.mounts[0].db
    for mount in one.mounts:
        mount.unmount()
    other = shutil.copy(copied, one.mounts[1].db)
    one.mounts.clear()
    first, second = one.add(f"db={copied}"), one.add(f"db={other}")
    one.wait_up()
    (first.dir / "file").touch()
    for mode in range(0o600, 0o610):
        assert (second.dir / "file").exists()
        (first.dir / "file").chmod(mode)
        assert stat.S_IMODE((second.dir / "file").stat().st_mode) == mode
    assert [status(mount)["reconnects"] for mount in one.mounts] == [0, 0]


def test_tls(cluster):
    """The same over TCP, with the filter of system calls; a cut wire is noticed and mended."""
    one = cluster(mounts=1, tcp=True, lease=2)
    mount, = one.mounts
    one.wait_up()
    one.expects_trouble()
    one.cut(mount)
    wait_until(lambda: status(mount)["state"] != "up" and status(mount)["valid"] == 0, what="the lease's end")
    (mount.dir / "file").write_text("without")
    one.mend(mount)
    one.wait_up()
    assert (mount.dir / "file").read_text() == "without"


@pytest.fixture
def realm():
    one = Munged(b"one key".ljust(64, b"-"))
    yield one
    one.close()


with_munge = pytest.mark.skipif(not shutil.which("munged"), reason="munged is not installed")


@with_munge
def test_munge(cluster, mount, realm):
    """A mount of the server's realm; and one of another, with the filter of system calls."""
    one = cluster(mounts=0, server_options=["--listen", "munge:127.0.0.1:0", "--munge-socket", realm.socket])
    port = re.search(r"listens on 127\.0\.0\.1:(\d+)", one.server.log)[1]
    first = mount(one.store, f"server=munge:127.0.0.1:{port},server_munge={realm.socket}")
    wait_until(lambda: status(first)["state"] == "up", what="the mount's session")
    stranger = Munged(b"another key".ljust(64, b"-"))
    try:
        second = mount(one.store, f"server=munge:127.0.0.1:{port},server_munge={stranger.socket}")
        second.expects_log("lock server")
        one.server.expects_log("not permitted")
        wait_until(lambda: "it closed the connection" in status(second)["reason"], what="its refusal")
        assert "its MUNGE credential: Invalid credential" in one.server.log
        assert status(first)["state"] == "up"
        second.unmount()
    finally:
        stranger.close()


class FalsePeer:
    """The other end of a mount's connection."""

    def __init__(self, made):
        self._socket = made
        self.send = made.sendall

    def take(self, count):
        taken = b""
        while len(taken) < count:
            data = self._socket.recv(count - len(taken))
            if not data:
                raise ConnectionError
            taken += data
        return taken


@with_munge
def test_a_server_of_any_user_is_not_believed(new_store, mount, realm):
    """Another user of the realm listens where a mount looks for the server."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve():
        while True:
            try:
                with listener.accept()[0] as made:
                    peer = FalsePeer(made)
                    others = peer.take(len(MAGIC) + NONCE_LENGTH)[len(MAGIC):]
                    peer.send(MAGIC + bytes(NONCE_LENGTH))
                    assert realm.decode(take_credential(peer)) == (0, payload("mount", others, bytes(NONCE_LENGTH), port))
                    send_credential(peer, realm.encode(payload("server", others, bytes(NONCE_LENGTH), port), USER))
                    made.recv(1)
            except ConnectionError:
                pass
            except OSError:
                return
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    qos = mount(new_store(), f"server=munge:127.0.0.1:{port},server_munge={realm.socket}")
    qos.expects_log("lock server")
    wait_until(lambda: f"user {USER} of the MUNGE realm is not permitted" in status(qos)["reason"], what="its refusal")
    assert status(qos)["state"] != "up"
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(TIMEOUT)  # it asks the realm, which ends next
    listener.close()


@pytest.mark.parametrize("options, message", [
    ("server=unix:relative", "begins with /"),
    (f"server=unix:/{107 * 'x'}", "at most 107 characters"),
    ("server=nowhere", "HOST:PORT"),
    ("server=tcp:localhost:1", "expected unix:PATH, HOST:PORT or"),
    ("server=::1:7988", "an IPv6 address in []"),
    ("server=[::1]:7988", "server_ca"),
    ("server=localhost:1", "server_ca"),
    ("server=munge:nowhere", "munge:HOST:PORT"),
    ("server_munge=/none", "server=ADDRESS, which is missing"),
    ("server_ca=/etc/passwd", "server=ADDRESS, which is missing"),
    ("locks=cluster", "server=ADDRESS, which is missing"),
    ("server=unix:/none,locks=both", "expected cluster or local"),
    ("server=localhost:1,server_ca=/none,server_cert=/none,server_key=/none", "/none"),
])
def test_bad_addresses(tmp_path, options, message):
    store, place = tmp_path / "store", tmp_path / "mount"
    store.mkdir()
    place.mkdir()
    done = subprocess.run([BUILD / "mount.qosfs", store, place, "-o", f"{options},db={tmp_path / 'db'}"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and message in done.stderr
    assert list(tmp_path.glob("db*")) == []  # nothing is left


def test_a_store_without_an_id(mount, new_store):
    """Such as one below FUSE: nothing tells other mounts that it is the same."""
    refused = mount(Store(mount(new_store()).dir, "qosfs"), "server=unix:/none", expect_failure=True)
    assert "name it with -o store=NAME on each of them" in refused.log
    assert list(refused.db.parent.glob(f"{refused.db.name}*")) == []  # nothing is left
