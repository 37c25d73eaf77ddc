"""What a peer may do, and what happens to one that does something else: it is told, and nobody else is disturbed."""
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import socket
import struct

import pytest

from harness import REPOSITORY, USER, as_user, wait_idle, wait_until
from wire import (BAD_VERSION, BROKEN_PROTOCOL, CREDITS, DEADLOCK, FRAME_MAX, FULL, HELLO, IDENTITY_TAKEN, INODE, M_CANCEL, M_DENIED, M_ENQUEUE,
                  M_GRANT, M_HELLO, M_RECLAIM, M_RENEW, M_RESET, M_RESTORE, M_REVOKE, M_WELCOME, REFUSED, WAIT, WELCOME, Gone, Peer, frame, hello,
                  VERSION, message, wait)

HELLO_MAX = 512
HELLO_RECLAIMS = 2  # a flag of M_HELLO


def counted(server):
    """How many connections it has ended, by reason; and how many sessions."""
    state = json.loads(server.ctl("status", "--json"))
    return {reason: count for reason, count in state["connections"]["refused"].items() if count}, state["messages"]["sent"]["reset"]


def test_a_credit_is_granted(server):
    with server("--lease", "7s", "--group", "64").greet(10) as peer:
        granted = peer.enqueue(9, reads=3)
        assert (granted.kind, granted.reads, granted.writes) == (M_GRANT, 3, 0)
        assert peer.lender > 0


def test_welcome_says_what_a_mount_must_know(server):
    with server("--lease", "7s", "--resend", "150ms", "--group", "64").peer() as peer:
        version, _, incarnation, lease, resend, group = struct.unpack("<IQIIII", peer.greet(10))
        assert (version, lease, resend, group) == (VERSION, 7000, 150, 64)
        assert incarnation > 0


def test_two_clients_take_turns(server):
    """What one has and another wants is called back."""
    one = server("--lease", "60s")
    first, second = one.greet(10), one.greet(20)
    token = first.enqueue(9, reads=1, writes=1).granted
    second.send(frame(CREDITS, second.numbered(M_ENQUEUE, request=1, inode=9, reads=1, writes=1)))
    revoked = first.next_message(M_REVOKE)
    first.send(frame(CREDITS, first.numbered(M_CANCEL, request=revoked.request, inode=9, granted=token)))
    assert second.next_message(M_GRANT).writes == 1


BROKEN = {
    "no-frame": (b"GET / HTTP/1.1\r\n\r\n", BROKEN_PROTOCOL),
    "length-of-zero": (b"\0\0\0\0", BROKEN_PROTOCOL),
    "long-hello": (struct.pack("<IB", HELLO_MAX + 1, HELLO), BROKEN_PROTOCOL),
    "oversize": (struct.pack("<IB", 0xFFFFFFFF, HELLO), BROKEN_PROTOCOL),
    "unknown-type": (frame(99, b"x"), BROKEN_PROTOCOL),
    "credits-before-hello": (frame(CREDITS, message(M_ENQUEUE)), BROKEN_PROTOCOL),
    "wait-before-hello": (wait(1, 1, 1, 2), BROKEN_PROTOCOL),
    "welcome-of-a-client": (frame(WELCOME, b""), BROKEN_PROTOCOL),
    "magic": (frame(HELLO, b"SMB2" + bytes(30)), BROKEN_PROTOCOL),
    "cut-hello": (frame(HELLO, hello(10)[5:-1]), BROKEN_PROTOCOL),
    "longer-hello": (frame(HELLO, hello(10)[5:] + b"x"), BROKEN_PROTOCOL),
    "owner-of-zero": (hello(0), BROKEN_PROTOCOL),
    "control-characters": (hello(10, name=b"a\nb"), BROKEN_PROTOCOL),
    "no-utf8": (hello(10, name=b"\xff"), BROKEN_PROTOCOL),
    "wrong-version": (hello(10, version=VERSION + 1), BAD_VERSION),
    "other-form-of-that-version": (frame(HELLO, b"QOFS" + struct.pack("<I", 77)), BAD_VERSION),
}


def test_another_version_is_told_what_to_update(server):
    one = server()
    for version, where in ((VERSION - 1, "mount's"), (VERSION + 1, "server's")):
        with one.peer() as peer:
            peer.send(hello(10, version=version))
            code, reason = peer.refusal()
            assert code == BAD_VERSION
            assert f"the mount speaks version {version} of the protocol, and the server version {VERSION}" in reason
            assert f"update qosfs on the {where} machine" in reason


def test_what_is_no_hello_is_refused(server):
    one = server()
    other = one.greet(10)
    for name, (data, code) in BROKEN.items():
        with one.peer() as peer:
            peer.send(data)
            assert peer.refusal()[0] == code, name
    assert other.enqueue(5).kind == M_GRANT
    codes = collections.Counter(code for _, code in BROKEN.values())
    assert counted(one) == ({"protocol error": codes[BROKEN_PROTOCOL], "wrong version": codes[BAD_VERSION]}, 0)


BROKEN_LATER = {
    "second-hello": hello(10),
    "oversize": struct.pack("<IB", FRAME_MAX + 1, CREDITS),
    "unknown-type": frame(99, b"x"),
    "refused-of-a-client": frame(REFUSED, b"\1\0"),
    "deadlock-of-a-client": frame(DEADLOCK, bytes(8)),
    "cut-wait": frame(WAIT, wait(1, 1, 1, 2)[5:-1]),
    "longer-wait": frame(WAIT, wait(1, 1, 1, 2)[5:] + b"x"),
    "wait-of-an-owner-with-nothing": wait(1, 1, 1),
    "wait-for-no-lock": wait(1, 1, 1, 2, kind=INODE),
    "message-of-no-type": frame(CREDITS, struct.pack("<IB", 1, 99)),
    "message-longer-than-its-frame": frame(CREDITS, struct.pack("<I", 1000) + b"x"),
    "cut-message": frame(CREDITS, message(M_ENQUEUE)[:-1]),
    "half-a-length": frame(CREDITS, b"\1\0"),
}


def test_what_is_no_message_is_refused(server):
    one = server()
    other = one.greet(10)
    for owner, (name, data) in enumerate(BROKEN_LATER.items(), start=20):
        with one.greet(owner) as peer:
            peer.send(data)
            assert peer.refusal()[0] == BROKEN_PROTOCOL, name
    assert other.enqueue(5).kind == M_GRANT
    assert counted(one) == ({"protocol error": len(BROKEN_LATER)}, 0)


def test_what_only_servers_say_is_refused(server):
    """Also of a peer that numbers it rightly; what the peer said before it counts."""
    one = server("--group", "1")
    other = one.greet(10)
    kinds = M_WELCOME, M_RESET, M_GRANT, M_DENIED, M_REVOKE, M_RESTORE
    for owner, kind in enumerate(kinds, start=20):
        with one.greet(owner) as peer:
            asked = peer.numbered(M_ENQUEUE, request=1, inode=owner, reads=1)
            peer.send(frame(CREDITS, asked + peer.numbered(kind, request=1, inode=owner, reads=1)))
            assert peer.next_message(M_GRANT).reads == 1
            assert peer.refusal() == (BROKEN_PROTOCOL, "a message that only servers send"), kind
    assert other.enqueue(5).kind == M_GRANT
    assert counted(one) == ({"protocol error": len(kinds)}, 0)


# What no lender has said, of a peer that has one credit, by its last grant.
RULES_BROKEN = {
    "a token that nobody was given": lambda granted: {"kind": M_RENEW, "token": 1 << 62},
    "keeps more than it has": lambda granted: {"kind": M_CANCEL, "inode": 9, "reads": 3, "writes": 1, "granted": granted},
    "a claim outside of a grace": lambda granted: {"kind": M_RECLAIM, "more": [(8, 1, granted, 0)]},
    "a claim of what it has": lambda granted: {"kind": M_RECLAIM, "more": [(9, 1, granted, 0)]},
}


def test_a_peer_that_breaks_a_rule_loses_its_session(server):
    """And nothing else: its connection stays, it keeps what it has until its lease ends, and it may begin anew."""
    one = server("--lease", "60s", "--group", "1")
    other = one.greet(10)
    for owner, (name, broken) in enumerate(RULES_BROKEN.items(), start=20):
        peer = one.greet(owner)
        token = peer.enqueue(9, reads=1).granted
        peer.send(frame(CREDITS, peer.numbered(**broken(token))))
        assert peer.next_message(M_RESET).session == peer.session, name
        assert other.enqueue(owner).kind == M_GRANT
        assert counted(one) == ({}, owner - 19)
        peer.send(frame(CREDITS, message(M_HELLO, peer.session + 1)))
        assert peer.next_message(M_WELCOME).session == peer.session + 1


def reclaims(one, owner, *claims):
    """What the server says to these claims of a mount that comes back: it is out, or has so many credits."""
    with one.peer() as peer:
        peer.send(hello(owner))
        assert peer.receive()[0] == WELCOME
        Peer.sessions += 1
        peer.session = (1 << 32) + Peer.sessions
        peer.send(frame(CREDITS, message(M_HELLO, peer.session, flags=HELLO_RECLAIMS)))
        peer.lender = peer.next_message(M_WELCOME).lender
        peer.send(frame(CREDITS, peer.numbered(M_RECLAIM, more=claims)))
        peer.next_message(M_RESET, M_RENEW)
        return json.loads(one.ctl("status", "--json"))["credits"]


def test_a_claim_needs_the_proof_of_its_grant(server):
    """After a restart, when the server knows nothing: the token belongs to the inode and the mount."""
    one = server("--lease", "60s")
    granted = one.greet(10).enqueue(1)
    one.greet(11)
    one.restart()
    assert reclaims(one, 10, (2, 1, granted.granted, granted.proof)) == 0
    assert reclaims(one, 10, (1, 1, granted.granted - 1, granted.proof)) == 0
    assert reclaims(one, 11, (1, 1, granted.granted, granted.proof)) == 0
    assert reclaims(one, 10, (1, 1, granted.granted, granted.proof)) == 1


def test_a_stale_token_takes_nothing_back(server):
    """A cancel that names an earlier grant was overtaken by a later one: that stays."""
    one = server("--lease", "60s", "--group", "1")
    first, second = one.greet(10), one.greet(20)
    stale = first.enqueue(9, reads=1).granted
    assert first.enqueue(9, reads=1, writes=1).granted > stale
    first.send(frame(CREDITS, first.numbered(M_CANCEL, inode=9, granted=stale)))
    assert first.enqueue(8).kind == M_GRANT  # it has been read
    second.send(frame(CREDITS, second.numbered(M_ENQUEUE, request=1, inode=9, reads=1)))
    first.next_message(M_REVOKE)  # it has all that it had
    assert counted(one) == ({}, 0)
    called_back = {mount["id"]: mount["called_back"] for mount in json.loads(one.ctl("mounts", "--json"))}
    assert called_back["a"] >= 1 and called_back["14"] == 0


def test_a_peer_that_closes_a_circle_is_told(server):
    one = server()
    first, second = one.greet(10), one.greet(11)
    first.send(wait(1, 1, 100, 200))
    assert first.enqueue(5).kind == M_GRANT  # it has been read
    second.send(wait(7, 1, 200, 100))
    while (told := second.receive())[0] == CREDITS:
        pass
    assert told == (DEADLOCK, struct.pack("<Q", 7))
    second.send(wait(8, 1, 300, 400) + wait(1, 1))  # no circle; and the end of what it never told of
    assert second.enqueue(6).kind == M_GRANT


def test_no_descriptor_is_left(server):
    """It says so, sleeps before it tries again, and lets in those that wait when there is one."""
    one = server()
    taken = {int(name) for name in os.listdir(f"/proc/{one.pid}/fd")}
    limits = resource.prlimit(one.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(one.pid, resource.RLIMIT_NOFILE, (min(set(range(len(taken) + 1)) - taken), limits[1]))
    with one.peer() as peer:
        one.wait_log("cannot accept a connection")
        wait_idle(one.pid)
        resource.prlimit(one.pid, resource.RLIMIT_NOFILE, limits)
        peer.send(hello(10))
        assert peer.receive()[0] == WELCOME


def test_a_peer_that_is_gone_waits_no_more(server):
    """Neither when it has connected anew, nor when its connection has ended."""
    one = server()

    def waits():
        return json.loads(one.ctl("status", "--json"))["waits"]

    def begin_wait():
        peer = one.greet(10)
        assert waits() == 0
        peer.send(wait(1, 1, 100, 200))
        assert peer.enqueue(5).kind == M_GRANT  # it has been read
        assert waits() == 1
        return peer
    first, second = begin_wait(), begin_wait()
    assert first.refusal()[0] == IDENTITY_TAKEN
    second.close()
    wait_until(lambda: waits() == 0, what="the second's end")


def test_what_comes_before_an_error_counts(server):
    one = server()
    with one.greet(10) as peer:
        peer.send(frame(CREDITS, peer.numbered(M_ENQUEUE, request=1, inode=3, reads=1)) + frame(99, b"x"))
        assert peer.next_message(M_GRANT).reads == 1
        assert peer.refusal()[0] == BROKEN_PROTOCOL


def test_frames_may_come_in_pieces(server):
    one = server()
    with one.peer() as peer:
        data = hello(10)
        for at in range(len(data)):
            peer.send(data[at:at + 1])
        assert peer.receive()[0] == WELCOME


def test_many_messages_in_one_frame(server):
    """More than one turn's work."""
    one = server("--group", "1")
    with one.greet(10) as peer:
        asked = 3000
        wanted = [peer.numbered(M_ENQUEUE, request=1 + inode, inode=inode, reads=1) for inode in range(asked)]
        peer.send(frame(CREDITS, b"".join(wanted)))
        got = set()
        while len(got) < asked:
            granted = peer.next_message(M_GRANT)
            got.add(granted.request)
            if len(got) % 32 == 0:
                peer.send(frame(CREDITS, message(3, peer.session, 0, peer.received, peer.lender)))
        assert got == set(range(1, asked + 1))


def test_a_request_wakes_the_server_once(server):
    """Its loop tells itself nothing by its eventfd meanwhile, which it writes now and then for its timer: sockets are not counted here."""
    one = server("--group", "1")

    def writes():
        return int(re.search(r"syscw: (\d+)", pathlib.Path(f"/proc/{one.pid}/io").read_text())[1])
    with one.greet(10) as peer:
        peer.enqueue(0)
        before = writes()
        for inode in range(1, 301):
            peer.enqueue(inode)
        assert writes() - before < 300


def test_a_second_connection_replaces_the_first(server):
    one = server()
    first = one.greet(10)
    second = one.greet(10)
    code, reason = first.refusal()
    assert code == IDENTITY_TAKEN and reason.startswith("it has connected anew")
    assert second.enqueue(5).kind == M_GRANT


def test_only_some_users_may_connect(server):
    def connects(path):
        with Peer(path) as peer:
            peer.greet(os.getuid())
            return True

    one = server("--allow-uid", str(USER))
    os.chmod(one.path.parent, 0o755)
    for parent in list(one.path.parents)[1:4]:
        os.chmod(parent, os.stat(parent).st_mode | 0o111)
    assert as_user(USER, USER, [], lambda: connects(one.path))
    with pytest.raises((Gone, ConnectionError)):
        as_user(USER + 7, USER + 7, [], lambda: connects(one.path))
    one.wait_log(f"local (uid {USER + 7}): not permitted: see allow-uid")


def test_an_identity_of_somebody_else(server):
    """Of another user's mount, which goes on; and of the server itself."""
    one = server("--allow-uid", str(USER))
    first = one.greet(10)
    own, = struct.unpack_from("<Q", one.peer().greet(30), 4)
    os.chmod(one.path.parent, 0o755)
    for parent in list(one.path.parents)[1:4]:
        os.chmod(parent, os.stat(parent).st_mode | 0o111)

    def refused_as(owner):
        with one.peer() as peer:
            peer.send(hello(owner))
            return peer.refusal()
    assert as_user(USER, USER, [], lambda: refused_as(10)) == (
        IDENTITY_TAKEN, "the identity a belongs to another client, at least until its lease ends")
    assert refused_as(own)[0] == IDENTITY_TAKEN
    assert first.enqueue(5).kind == M_GRANT
    assert counted(one) == ({"identity taken": 2}, 0)


def test_an_identity_is_taken_until_its_lease_has_ended(server):
    """So a mount with a new name in its certificate comes back by itself."""
    one = server("--allow-uid", str(USER), "--lease", "1s")
    os.chmod(one.path.parent, 0o755)
    for parent in list(one.path.parents)[1:4]:
        os.chmod(parent, os.stat(parent).st_mode | 0o111)
    one.greet(10).close()
    one.wait_log("has left")

    os.seteuid(USER)  # which owns the connection as long as it is open
    try:
        peer = one.greet(10)
    finally:
        os.seteuid(0)
    with peer, one.peer() as former:
        assert peer.enqueue(5).kind == M_GRANT
        former.send(hello(10))
        assert former.refusal()[0] == IDENTITY_TAKEN


def test_the_socket_is_closed_to_others(server):
    assert os.stat(server().path).st_mode & 0o777 == 0o600


def test_a_silent_peer_is_dropped(server):
    one = server("--patience", "3s")
    with one.greet(10) as welcome, one.peer() as silent, one.peer() as half:
        half.send(hello(10)[:7])
        for peer in silent, half:
            with pytest.raises(Gone):
                peer.receive()
        assert welcome.enqueue(1).kind == M_GRANT  # its time was up before theirs
    one.wait_log("it said no HELLO within 3")


def test_the_oldest_stranger_makes_room(server):
    """As many as may be connected may be silent; a peer that comes after them is served."""
    one = server("--patience", "10m", "--connections", "64")
    strangers = [one.peer() for _ in range(64)]
    with one.greet(10) as peer:
        assert peer.enqueue(1).kind == M_GRANT
    with pytest.raises(Gone):
        strangers[0].receive()
    one.wait_log("too many others wait to say HELLO")
    strangers[63].send(hello(20))
    assert strangers[63].receive()[0] == WELCOME


def test_connections_are_bounded(server):
    one = server("--connections", "3")
    peers = [one.greet(owner) for owner in (10, 20, 30)]
    with one.peer() as more:
        assert more.refusal() == (FULL, "as many as may be are connected")
    peers[0].close()
    wait_until(lambda: "has gone" in one.log, what="the end of a connection")
    one.greet(40)


def test_a_peer_that_does_not_read_is_dropped(server):
    """It asks for much, and leaves the answers alone, which are repeated; others are served meanwhile."""
    one = server("--resend", "10ms")
    other = one.greet(10)
    spans = [(4 * place, 4 * place + 1, True) for place in range(4096)]
    with one.peer(receive_buffer=4096) as slow:
        slow.greet(20)
        for file in range(64):
            with contextlib.suppress(ConnectionError):
                slow.send(frame(CREDITS, slow.numbered(M_ENQUEUE, request=1 + file, inode=file, spans=spans)))
            assert other.enqueue(file).kind == M_GRANT
        one.wait_log("it does not read what it is sent")
    assert other.enqueue(64).kind == M_GRANT


def mutated(rng, data):
    """A stream with some bytes changed, cut out or repeated."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        change = rng.randrange(4)
        if change == 0:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif change == 1:
            del data[at:at + rng.randrange(1, 9)]
        elif change == 2:
            data[at:at] = data[at:at + rng.randrange(1, 40)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        if not data:
            break
    return bytes(data)


def test_hostile_bytes(server):
    """Damaged streams, the fuzzer's corpus and noise, each from a peer of its own: the server stays, a good peer is
    served all the while, and the log does not fill up."""
    seed = int(os.environ.get("QOSFS_SEED", "6"))
    rounds = int(os.environ.get("QOSFS_HOSTILE_ROUNDS", "600"))
    rng = random.Random(seed)
    one = server()
    good = one.greet(10)
    corpus = [path.read_bytes()[1:] for path in sorted((REPOSITORY / "tests/fuzz/wire").iterdir())]
    whole = hello(20) + frame(CREDITS, message(0, 1 << 32) + message(M_ENQUEUE, 1 << 32, 1, lender=good.lender, inode=7,
                                                                     reads=3, writes=1)) + wait(1, 1, 100, 200)
    streams = corpus + [rng.randbytes(rng.randrange(1, 400)) for _ in range(50)] + \
        [mutated(rng, whole) for _ in range(rounds)]
    for number, stream in enumerate(streams):
        with one.peer() as hostile:
            with contextlib.suppress(Gone, ConnectionError):
                hostile.send(stream)
                with contextlib.suppress(OSError):  # it is closed already
                    hostile.socket.shutdown(socket.SHUT_WR)
                while True:
                    hostile.receive()
        if number % 10 == 0:
            assert good.enqueue(1000 + number).kind == M_GRANT, f"seed {seed}"
    warnings = one.log.count("warning: ")
    assert 0 < warnings < 200, f"{warnings} lines for {len(streams)} hostile peers"
