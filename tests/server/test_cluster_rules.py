"""Rules of the cluster on the wire: which mount is told what, what may change them, and what outlives the server."""
import contextlib
import json
import math
import os
import shutil
import socket
import struct

import pytest

from harness import TIMEOUT, USER, as_user, wait_until
from munge import Munged, shake_hands
from wire import (ADMIN, ADMIN_RESULT, BROKEN_PROTOCOL, BUDGET_GRANT, BUDGET_REPORT, CREDITS, EPOCH, M_GRANT, OF_CLUSTER, RULES,
                  RULES_SEEN, frame)

NEVER = 0
PAGE_MAX = 65536
OPERATIONS, BYTES = 0, 1
UNIT = 1000  # of rates


def ask(server, request):
    """Of the control socket: the errno, and the text."""
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(TIMEOUT)
        control.connect(str(server.control))
        control.sendall(b"cluster " + request.encode() + b"\n")
        answer = b""
        while data := control.recv(1 << 16):
            answer += data
    head, _, text = answer.decode().partition("\n")
    if head == "ok":
        return 0, text
    code, _, words = head.partition(" ")
    return int(code), words


def change(server, request):
    code, text = ask(server, request)
    assert code == 0, text


def read(server, what):
    code, text = ask(server, what)
    assert code == 0, text
    return json.loads(text)


class Listed:
    """A list of rules, as its pages said it."""

    def __init__(self):
        self.rules = []
        self.pages = 0

    def take(self, payload):
        self.version, epoch, lease, self.parts, self.total, first, count = struct.unpack_from("<QIIIIII", payload)
        self.epoch, self.lease = epoch / 1000, lease / 1000
        if first == 0:
            self.rules, self.pages = [], 0
        assert first == len(self.rules), "a page that does not continue the list"
        self.pages += 1
        assert len(payload) < PAGE_MAX or count == 1
        at = 32
        for _ in range(count):
            number, left, length = struct.unpack_from("<QQI", payload, at)
            at += 20
            self.rules.append((number, left, payload[at:at + length].decode()))
            at += length
        assert at == len(payload)
        return len(self.rules) == self.total


def next_frame(peer, *kinds):
    """The next frame of the cluster of these kinds: its payload, or both if there are several."""
    while True:
        if peer.cluster:
            kind, payload = peer.cluster.pop(0)
        else:
            kind, payload = peer.receive()
        assert kind in OF_CLUSTER + (CREDITS,), kind
        if kind in kinds:
            return payload


def next_list(peer, acknowledge=True):
    listed = Listed()
    while not listed.take(next_frame(peer, RULES)):
        pass
    if acknowledge:
        peer.send(seen(listed.version, listed.parts))
    return listed


def list_with(peer, fits, acknowledge=True):
    """The lists that come are acknowledged until one fits."""
    while not fits(listed := next_list(peer, acknowledge)):
        pass
    return listed


def seen(version, parts):
    return frame(RULES_SEEN, struct.pack("<QI", version, parts))


def admin(peer, command, uid=0, number=7):
    """The errno and the text of the answer."""
    data = command.encode()
    peer.send(frame(ADMIN, struct.pack("<QII", number, uid, len(data)) + data))
    payload = next_frame(peer, ADMIN_RESULT)
    answered, error, length = struct.unpack_from("<QII", payload)
    assert answered == number and len(payload) == 16 + length
    return error, payload[16:].decode()


def reachable(server):
    """For users other than root."""
    for parent in list(server.path.parents)[:4]:
        os.chmod(parent, os.stat(parent).st_mode | 0o111)


# --- lists ---

def test_a_mount_is_told_the_list_and_each_change(server):
    one = server()
    with one.greet(10, name=b"one:/qos") as peer:
        empty = next_list(peer)
        assert (empty.version, empty.rules, empty.parts) == (0, [], 0)
        assert (empty.epoch, empty.lease) == (0.1, 1)
        change(one, "rule start big jobid={*} rate=100 per=jobid")
        listed = list_with(peer, lambda each: each.version == 1 and each.parts)
        (number, left, command), = listed.rules
        assert (number, left, listed.parts) == (1, NEVER, 8)
        assert command.startswith("start big jobid={*} rate=100") and "expire" not in command
        change(one, "rule start small uid={7} bps=1M expire=10m")
        listed = list_with(peer, lambda each: each.version == 2)
        assert [rule[0] for rule in listed.rules] == [2, 1] and 590_000 < listed.rules[0][1] <= 600_000
        change(one, "rule change big rate=50")
        assert list_with(peer, lambda each: each.version == 3).rules[1][0] == 1
        wait_until(lambda: read(one, "status")["mounts_behind"] == 0, what="the acknowledgement")
        status = read(one, "status")
        assert (status["version"], status["rules"], status["floor_parts"], status["mounts_known"]) == (3, 2, 8, 1)
        mount, = status["mounts"]
        assert (mount["name"], mount["id"], mount["version"], mount["floor_parts"]) == ("one:/qos", "a", 3, 8)
        change(one, "rule stop small")
        assert len(list_with(peer, lambda each: each.version == 4).rules) == 1
        with one.greet(20) as late:
            assert next_list(late).version == 4
            assert read(one, "status")["mounts_connected"] == 2
