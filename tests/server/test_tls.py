"""TCP is for who shows a certificate of the authority, and for nobody else."""
import contextlib
import socket
import ssl
import struct

import pytest

from cluster import Certificates
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
    assert_shut_out(server(certificates=certificates), context(name=None))


def test_a_certificate_of_another_authority(server, certificates, context, tmp_path_factory):
    other = Certificates(tmp_path_factory.mktemp("other"))
    one = server(certificates=certificates)
    assert_shut_out(one, context("node1", other))
    one.wait_log("its certificate is of another authority")


def test_a_certificate_without_a_subject(server, certificates, context):
    """It is of the authority, but of nobody whom a log could name."""
    assert_shut_out(server(certificates=certificates), context("nobody", subject="/"))


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


