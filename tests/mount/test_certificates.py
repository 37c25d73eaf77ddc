"""TLS between a mount and a lock server: by what addresses it comes about, and what the mount says where it does not."""
import re
import socket
import subprocess

import pytest

from cluster import Certificates, Server
from harness import error_of, run, wait_until

HOME = "127.0.0.1"
AWAY = "127.0.0.2"


@pytest.fixture
def authorities(world):
    """One that both sides believe, and another one."""
    return Certificates(world.folder("authority")), Certificates(world.folder("other-authority"))


def play(world, mount, new_store, authority, server_pair, mount_pair):
    """The reason that the mount gives; the server's log."""
    authorities = authority.folder / "ca.crt"
    server = Server(world, 30, ["--listen", f"tcp:{HOME}:0", "--tls-ca", authorities, "--tls-cert", server_pair[0],
                                "--tls-key", server_pair[1]])
    try:
        server.expects_log("not permitted")
        port = re.search(rf"listens on {HOME}:(\d+)", server.log)[1]
        made = mount(new_store("tmpfs"), arguments=["-v"], options=f"server={HOME}:{port},server_ca={authorities},server_cert={mount_pair[0]},"
                            f"server_key={mount_pair[1]}")
        made.expects_log("lock server .* is tried again")
        assert 0 < made.log.find("lock server ") < made.log.find(" is mounted on ")  # to the user that mounts
        wait_until(lambda: "not permitted" in server.log, what="the server's verdict")
        wait_until(lambda: made.state()["server"]["reason"] != "", what="the mount's reason")
        assert made.state()["server"]["state"] == "connecting"
        return made.state()["server"]["reason"], server.log
    finally:
        server.finish()


@pytest.mark.parametrize("whose, host, days, reason", [
    (0, HOME, -1, "its certificate has expired"),
    (0, AWAY, 2, "its certificate is not for that host (subjectAltName)"),
    (1, HOME, 2, "its certificate is of another authority"),
])
def test_the_servers_certificate(world, mount, new_store, authorities, whose, host, days, reason):
    pair = authorities[whose].make("server", host, days)
    told, log = play(world, mount, new_store, authorities[0], pair, authorities[0].make("node"))
    assert told == reason
    assert " (if it is a mount, 'qosfsctl status' there tells what it found)\n" in log


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_a_server_with_an_old_version_of_tls(mount, new_store, authorities, version):
    """Whatever listens there is told nothing by the mount, which says why."""
    certificate, key = authorities[0].make("server", HOME)
    mine, my_key = authorities[0].make("node")
    with socket.create_server((HOME, 0)) as free:
        port = free.getsockname()[1]
    listener = subprocess.Popen(["openssl", "s_server", "-accept", f"{HOME}:{port}", version, "-cipher", "ALL:@SECLEVEL=0",
                                 "-cert", certificate, "-key", key, "-quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        wait_until(lambda: not error_of(lambda: socket.create_connection((HOME, port)).close()), what="the listener")
        made = mount(new_store("tmpfs"), f"server={HOME}:{port},server_ca={authorities[0].folder / 'ca.crt'},server_cert={mine},"
                                         f"server_key={my_key}")
        made.expects_log("lock server .* is tried again")
        wait_until(lambda: "TLS 1.2 or later is needed" in made.state()["server"]["reason"], what="the mount's reason")
        assert made.state()["server"]["state"] == "connecting"
        made.unmount()
    finally:
        listener.kill()
        assert listener.communicate()[0] == b""


def test_the_mounts_certificate(world, mount, new_store, authorities):
    """TLS does not tell a refused mount why; its log says where to look."""
    pair = authorities[0].make("server", HOME)
    reason, log = play(world, mount, new_store, authorities[0], pair, authorities[1].make("node"))
    assert reason.startswith("it did not welcome the mount (") and reason.endswith("): its log tells why")
    assert "its certificate is of another authority" in log


@pytest.mark.parametrize("address", [HOME, "::1"])
def test_an_address_as_the_host(world, mount, new_store, authorities, address):
    """To TLS it is no name of a host; the certificate is for it all the same."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.create_server((address, 0), family=family).close()
    except OSError as error:
        pytest.skip(f"{address}: {error}")
    shown = f"[{address}]" if ":" in address else address
    certificate, key = authorities[0].make("server", address)
    mine, my_key = authorities[0].make("node")
    server = Server(world, 30, ["--listen", f"tcp:{shown}:0", "--tls-ca", authorities[0].folder / "ca.crt", "--tls-cert", certificate,
                                "--tls-key", key])
    try:
        port = re.search(rf"listens on {re.escape(shown)}:(\d+)", server.log)[1]
        made = mount(new_store("tmpfs"), f"server={shown}:{port},server_ca={authorities[0].folder}/ca.crt,server_cert={mine},"
                                         f"server_key={my_key}")
        wait_until(lambda: made.state()["server"]["state"] == "up" or made.state()["server"]["reason"], what="the verdict")
        assert made.state()["server"]["reason"] == ""
        made.unmount()
    finally:
        server.finish()


def test_a_server_that_moves(world, mount, new_store, authorities):
    """To another machine, with its database, as when the first one broke: where its name leads to the new one, mounts come by
    themselves, and bring what they have."""
    hosts = world.folder("hosts") / "hosts"
    hosts.write_text(f"{HOME} lock.qosfs.test\n::1 lock.qosfs.test\n")
    run("mount", "--bind", hosts, "/etc/hosts")
    certificate, key = authorities[0].make("server", "lock.qosfs.test")
    mine, my_key = authorities[0].make("node")
    words = ["--tls-ca", authorities[0].folder / "ca.crt", "--tls-cert", certificate, "--tls-key", key]
    server = Server(world, 30, ["--listen", f"tcp:{HOME}:0", *words])
    try:
        port = re.search(rf"listens on {HOME}:(\d+)", server.log)[1]
        made = mount(new_store("tmpfs"), f"server=lock.qosfs.test:{port},server_ca={authorities[0].folder}/ca.crt,server_cert={mine},"
                                         f"server_key={my_key}")
        made.expects_log("lock server .* is tried again")
        wait_until(lambda: made.state()["server"]["state"] == "up", what="the session")
        (made.dir / "file").touch()
        server.kill()
        wait_until(lambda: made.state()["server"]["reason"] == "no qosfs-server listens there", what="an attempt at the old place")
        hosts.write_text(f"{AWAY} lock.qosfs.test\n")
        server.move(["--listen", f"tcp:{AWAY}:{port}", *words])
        wait_until(lambda: made.state()["server"]["state"] == "up", what="the session at the new place")
        assert made.state()["server"]["incarnation"] == 2 and made.state()["server"]["evictions"] == 0
        made.unmount()
    finally:
        run("umount", "/etc/hosts")
        server.finish()
