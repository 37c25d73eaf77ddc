"""TCP is for peers that show a certificate of the authority, and for nobody else."""
import contextlib
import json
import socket
import ssl
import struct

import pytest

from cluster import Certificates
from harness import wait_until
from wire import M_GRANT, Gone, Peer, hello


def test_a_certificate_lets_in(server, certificates, context):
    one = server(certificates=certificates)
    with one.secure_peer(context()) as peer:
        peer.greet(10)
        assert peer.enqueue(5).kind == M_GRANT
    one.wait_log("(CN=node1, peer:/qos) is welcome")


def test_many_frames_over_tls(server, certificates, context):
    one = server(certificates=certificates)
    with one.secure_peer(context()) as peer:
        peer.greet(10)
        for inode in range(300):
            assert peer.enqueue(inode).kind == M_GRANT


def assert_shut_out(one, context):
    """TLS 1.3 tells a client only after its own part that it is not wanted; no WELCOME ever comes."""
    with pytest.raises((Gone, ssl.SSLError, ConnectionError)), one.secure_peer(context) as peer:
        peer.send(hello(10))
        peer.receive()
    one.wait_log("not permitted")
    assert "is welcome" not in one.log


def test_no_certificate(server, certificates, context):
    """TLS itself demands one: a handshake without does not end well, whatever is asked of its outcome afterwards."""
    one = server(certificates=certificates)
    assert_shut_out(one, context(name=None))
    assert "has no subject" not in one.log


def test_a_certificate_of_another_authority(server, certificates, context, tmp_path_factory):
    other = Certificates(tmp_path_factory.mktemp("other"))
    one = server(certificates=certificates)
    assert_shut_out(one, context("node1", other))
    one.wait_log("its certificate is of another authority")


def test_a_certificate_without_a_subject(server, certificates, context):
    """It is of the authority, but of nobody that a log could name."""
    assert_shut_out(server(certificates=certificates), context("nobody", subject="/"))


def test_a_certificate_that_is_denied(server, certificates, context):
    """As one with a lost key; others of the authority are let in."""
    one = server("--tls-deny", "CN=node1", "--tls-deny=CN=lost,O=site", certificates=certificates)
    assert_shut_out(one, context("node1"))
    one.wait_log("its certificate is denied (tls-deny): CN=node1")
    with one.secure_peer(context("node11")) as peer:
        peer.greet(10)
    assert json.loads(one.ctl("status", "--json"))["connections"]["refused"]["not permitted"] == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_an_old_version_of_tls(server, certificates, context, version, monkeypatch):
    """The handshake itself ends, also where the administrator names these versions in the TLS library's own setting."""
    monkeypatch.setenv("G_TLS_GNUTLS_PRIORITY", "NORMAL:+VERS-TLS1.0:+VERS-TLS1.1")
    one = server(certificates=certificates)
    old = context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = version
    with pytest.raises(ssl.SSLError):
        one.secure_peer(old)
    one.wait_log("(TLS 1.2 or later is needed)")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_version_of_tls_that_will_do(server, certificates, context, version):
    one = server(certificates=certificates)
    new = context()
    new.minimum_version = new.maximum_version = version
    with one.secure_peer(new) as peer:
        peer.greet(10)


def test_plain_bytes_are_not_looked_at(server, certificates):
    """What would be a HELLO is nothing but a bad handshake."""
    one = server(certificates=certificates)
    with Peer(("127.0.0.1", one.port)) as peer:
        try:
            peer.send(hello(10))
            while peer.socket.recv(4096):
                pass
        except ConnectionError:
            pass
    one.wait_log("not permitted")
    assert "is welcome" not in one.log and "protocol error" not in one.log


def test_silent_handshakes_let_others_in(server, certificates, context):
    one = server(certificates=certificates)
    silent = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(30)]
    with one.secure_peer(context()) as peer:
        peer.greet(10)
        assert peer.enqueue(5).kind == M_GRANT
    for each in silent:
        each.close()


def come(one, number, host, opening=b""):
    """So many connections from there, each of which says that."""
    crowd = []
    for _ in range(number):
        crowd.append(socket.create_connection(("127.0.0.1", one.port), source_address=(host, 0)))
        with contextlib.suppress(ConnectionError):
            crowd[-1].send(opening)
    return crowd


def is_let_in(peer, context):
    peer.socket = context.wrap_socket(peer.socket, server_hostname="127.0.0.1")
    peer.greet(10)
    assert peer.enqueue(5).kind == M_GRANT


@pytest.mark.parametrize("opening", [b"", b"\x16\x03\x01"])
def test_a_crowd_of_strangers_leaves_room_for_a_peer_from_elsewhere(server, certificates, context, opening):
    """Though that peer is the slowest of all. Of the connections from one address the oldest goes."""
    one = server("--connections", "64", certificates=certificates)
    with one.tcp_peer() as slow:
        crowd = come(one, 80, "127.0.0.2", opening)
        one.wait_log("too many others wait to say HELLO")
        with contextlib.suppress(ConnectionResetError):  # what it said was not looked at yet
            assert crowd[0].recv(1) == b""
        is_let_in(slow, context())
    for each in crowd:
        each.close()


def test_half_handshakes_make_way_for_a_peer_from_elsewhere(server, certificates, context):
    """Each keeps a thread until its patience ends, and no more than some may."""
    one = server("--patience", "10m", certificates=certificates)
    crowd = come(one, 80, "127.0.0.2", b"\x16\x03\x01")
    wait_until(lambda: json.loads(one.ctl("status", "--json"))["connections"]["strangers"] == 80, what="the crowd")
    with one.tcp_peer() as peer:
        is_let_in(peer, context())
    one.wait_log("too many others wait to say HELLO")
    for each in crowd:
        each.close()


@pytest.mark.parametrize("hosts", [1, 100])
def test_mounts_that_come_at_once(server, certificates, context, hosts):
    """As all do when the server was restarted: none makes another begin anew."""
    one = server("--patience", "10m", certificates=certificates)
    mine = context()
    comers = [come(one, 1, f"127.0.1.{1 + number % hosts}")[0] for number in range(100)]
    for number, comer in enumerate(comers):
        with one.tcp_peer() as peer:
            peer.socket.close()
            peer.socket = mine.wrap_socket(comer, server_hostname="127.0.0.1")
            peer.greet(10 + number)


def test_a_reset_within_the_handshake(server, certificates, context):
    one = server(certificates=certificates)
    for _ in range(20):
        made = socket.create_connection(("127.0.0.1", one.port))
        made.send(b"\x16\x03\x01")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        made.close()
    with one.secure_peer(context()) as peer:
        peer.greet(10)


def test_the_server_ends_while_some_are_in_their_handshake(server, certificates):
    one = server(certificates=certificates)
    made = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(20)]
    for each in made:
        each.send(b"\x16\x03\x01")
    one.finish()
    for each in made:
        with contextlib.suppress(ConnectionResetError):  # it was not looked at yet
            assert each.recv(100) == b""


@pytest.mark.parametrize("missing", ["--tls-ca", "--tls-key"])
def test_files_that_cannot_be_read_are_named(server, certificates, missing, tmp_path):
    words = {"--tls-ca": certificates.folder / "ca.crt", "--tls-cert": certificates.folder / "ca.crt",
             "--tls-key": certificates.folder / "ca.key", missing: tmp_path / "nothing"}
    status, log = server(*(part for word in words.items() for part in word), "--listen", "tcp:127.0.0.1:0",
                         expect_failure=True)
    assert status == 1 and f"{missing[2:]}={tmp_path / 'nothing'}" in log


