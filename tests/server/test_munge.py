"""MUNGE lets in a permitted user of the same realm, once, and nobody else."""
import contextlib
import os
import shutil
import signal
import socket
import time
import types

import pytest

from harness import USER
from munge import CREDENTIAL_MAX, MAGIC, NONCE_LENGTH, Munged, open_handshake, payload, send_credential, shake_hands
from wire import M_GRANT, Gone, hello

pytestmark = pytest.mark.skipif(not shutil.which("munged"), reason="munged is not installed")

WELCOME = "is welcome"


@pytest.fixture(scope="module")
def realm():
    one = Munged(b"one key".ljust(64, b"-"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def other_realm():
    other = Munged(b"another key".ljust(64, b"-"))
    yield other
    other.close()


def assert_shut_out(server, peer, reason):
    """Without another byte; others go on."""
    with pytest.raises((Gone, ConnectionError)):
        peer.send(hello(10))
        peer.take(1)
    server.wait_log(reason)
    assert WELCOME not in server.log
    with server.greet(20) as local:
        assert local.enqueue(5).kind == M_GRANT


def test_a_user_of_the_realm_is_let_in(server, realm):
    one = server(munged=realm)
    with one.tcp_peer() as peer:
        shake_hands(peer, realm, one.port)
        peer.greet(10)
        for inode in range(300):
            assert peer.enqueue(inode).kind == M_GRANT
    one.wait_log(f"(munge uid 0, peer:/qos) {WELCOME}")


def test_an_allowed_user_is_let_in(server, realm):
    one = server("--allow-uid", str(USER), munged=realm)
    with one.tcp_peer() as peer:
        shake_hands(peer, realm, one.port, user=USER)
        peer.greet(10)
    one.wait_log(f"(munge uid {USER}, peer:/qos) {WELCOME}")


def test_another_user(server, realm):
    one = server(munged=realm)
    with one.tcp_peer() as peer, pytest.raises((Gone, ConnectionError)):
        shake_hands(peer, realm, one.port, user=USER)
    with one.tcp_peer() as peer:
        nonce = open_handshake(peer)
        send_credential(peer, realm.encode(payload("mount", bytes(NONCE_LENGTH), nonce, one.port), USER))
        assert_shut_out(one, peer, f"not permitted: user {USER} of the MUNGE realm is not permitted")


def test_another_realm(server, realm, other_realm):
    one = server(munged=realm)
    with one.tcp_peer() as peer:
        nonce = open_handshake(peer)
        send_credential(peer, other_realm.encode(payload("mount", bytes(NONCE_LENGTH), nonce, one.port)))
        assert_shut_out(one, peer, "its MUNGE credential: Invalid credential")


def test_a_credential_that_was_used(server, realm):
    one = server(munged=realm)
    own = os.urandom(NONCE_LENGTH)
    with one.tcp_peer() as peer:
        nonce = open_handshake(peer, own)
        used = realm.encode(payload("mount", own, nonce, one.port))
        send_credential(peer, used)
        peer.take(2)
    with one.tcp_peer() as peer:
        open_handshake(peer, own)
        send_credential(peer, used)
        assert_shut_out(one, peer, "its MUNGE credential: Replayed credential")


@pytest.mark.parametrize("change", ["role", "nonce", "port", "empty", "longer"])
def test_a_credential_for_another_connection(server, realm, change):
    one = server(munged=realm)
    with one.tcp_peer() as peer:
        own = os.urandom(NONCE_LENGTH)
        nonce = open_handshake(peer, own)
        right = payload("mount", own, nonce, one.port)
        wrong = {"role": payload("server", own, nonce, one.port),
                 "nonce": payload("mount", own, os.urandom(NONCE_LENGTH), one.port),
                 "port": payload("mount", own, nonce, one.port ^ 1),
                 "empty": b"",
                 "longer": right + b"\0"}[change]
        send_credential(peer, realm.encode(wrong))
        assert_shut_out(one, peer, "its MUNGE credential is for another connection")


@pytest.mark.parametrize("opening, reason", [
    (hello(10).ljust(len(MAGIC) + NONCE_LENGTH, b"x"), "is no handshake by MUNGE of this version"),
    (MAGIC + bytes(NONCE_LENGTH) + (CREDENTIAL_MAX + 1).to_bytes(2, "little"), "is no MUNGE credential"),
    (MAGIC + bytes(NONCE_LENGTH) + b"\x05\0\0\xff\0\n%", "its MUNGE credential: "),
    (MAGIC + bytes(NONCE_LENGTH) + b"\0\0", "its MUNGE credential: "),
])
def test_garbage(server, realm, opening, reason):
    one = server(munged=realm)
    with one.tcp_peer() as peer:
        peer.send(opening)
        with pytest.raises(Gone):
            while peer.take(1):
                pass
    one.wait_log(f"not permitted: {reason}" if reason.startswith("its") else f"not permitted: what it says {reason}")
    assert WELCOME not in one.log and one.log.count("warning: ") == 1


def test_much_garbage(server, realm):
    """The log tells of it 20 times, and once a second; a client that belongs there is let in."""
    one = server(munged=realm)
    begun = time.monotonic()
    for _ in range(60):
        with one.tcp_peer() as peer:
            peer.send(b"x" * (len(MAGIC) + NONCE_LENGTH))
    with one.tcp_peer() as peer:
        shake_hands(peer, realm, one.port)
        peer.greet(10)
    assert one.log.count("warning: ") <= 20 + time.monotonic() - begun


def test_clients_that_say_nothing_or_half(server, realm):
    """More of them than there are threads at first."""
    one = server("--patience", "60s", munged=realm)
    silent = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(40)]
    for number, each in enumerate(silent):
        if number % 2:
            each.send(MAGIC[:7])
    with one.tcp_peer() as peer:
        shake_hands(peer, realm, one.port)
        peer.greet(10)
    for each in silent:
        each.close()


def test_no_munged(server, tmp_path):
    """The log tells of it at once; a client that comes another way is served."""
    one = server(munged=types.SimpleNamespace(socket=tmp_path / "none"))
    one.wait_log(f'warning: listen=munge: no MUNGE credential: Failed to access "{tmp_path / "none"}"')
    with one.greet(10) as local:
        assert local.enqueue(5).kind == M_GRANT


def test_munged_does_not_answer(server):
    """A connection that waits for it keeps nobody else waiting, and goes as its patience ends."""
    stopped = Munged(b"one key".ljust(64, b"-"))
    try:
        one = server("--patience", "1s", munged=stopped)
        with one.tcp_peer() as peer:
            nonce = open_handshake(peer)
            credential = stopped.encode(payload("mount", bytes(NONCE_LENGTH), nonce, one.port))
            stopped.signal(signal.SIGSTOP)
            with contextlib.suppress(ConnectionError):  # its patience has ended already
                send_credential(peer, credential)
            assert_shut_out(one, peer, "its handshake did not end within 1.00 s")
    finally:
        stopped.close()
