"""The way of a mount to its lock server: it is found, lost, and found again, and told of; bad addresses are refused."""
import subprocess

import pytest

from harness import BUILD, run, wait_until


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
    assert "qosfs_server_up 1" in (mount.dir / ".qosfs/metrics").read_text().splitlines()


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


@pytest.mark.parametrize("options, message", [
    ("server=unix:relative", "begins with /"),
    ("server=nowhere", "HOST:PORT"),
    ("server=localhost:1", "server_ca"),
    ("server_ca=/etc/passwd", "server=ADDRESS, which is missing"),
    ("server=localhost:1,server_ca=/none,server_cert=/none,server_key=/none", "/none"),
])
def test_bad_addresses(tmp_path, options, message):
    store, place = tmp_path / "store", tmp_path / "mount"
    store.mkdir()
    place.mkdir()
    done = subprocess.run([BUILD / "mount.qosfs", store, place, "-o", f"{options},db={tmp_path / 'db'}"],
                          capture_output=True, text=True, check=False)
    assert done.returncode != 0 and message in done.stderr
