"""Rules of the cluster on the wire: which mount is told what, what may change them, and what outlives the server."""
import contextlib
import json
import math
import os
import shutil
import socket
import struct
import time

import pytest

from harness import TIMEOUT, USER, as_user, wait_until
from munge import Munged, shake_hands
from wire import (ADMIN, ADMIN_RESULT, BROKEN_PROTOCOL, BUDGET_GRANT, BUDGET_REPORT, CREDITS, EPOCH, M_GRANT, OF_CLUSTER, RULES,
                  RULES_SEEN, frame)

NEVER = 0
GOODBYE = (1 << 64) - 1
PAGE_MAX = 65536
OPERATIONS = 0
EPOCH_READY, EPOCH_START = 1, 3
WISH_LENGTH = 129 * 8  # of its data
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


def number(value):
    """As core/budget_report.c writes it: seven bits a byte, the low ones first."""
    data = b""
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def take_number(data):
    value = shift = 0
    for at, byte in enumerate(data):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data[at + 1:]
    raise AssertionError("a number without an end")


def step_of(rate):
    return min(int(math.log2(rate) * 8), 511) if rate > 1 else 0


class Member:
    """A mount in one class of a rule: core/budget_member.c without its clock."""

    def __init__(self, peer, rule, name, unit=OPERATIONS):
        self.peer, self.rule, self.name, self.unit = peer, rule, name.encode(), unit
        self.ticket, self.rate, self.served = 1 << 40, 0, 0
        self.since = time.monotonic()

    def report(self, demand):
        """In thousandths of a unit a second; what is beyond it is given up."""
        now = time.monotonic()
        self.served += int(min(self.rate, demand) * (now - self.since))
        self.since = now
        self.ticket += 1
        self.demand, self.rate = demand, min(self.rate, demand)
        steps = {}
        steps.setdefault(step_of(demand), [0, 0, 0, 0])[:2] = [demand, 1]
        steps.setdefault(step_of(self.rate), [0, 0, 0, 0])[2:] = [self.rate, 1]
        data, after = number(self.ticket) + number(self.rate) + number(self.served) + number(len(steps)), 0
        for step, values in sorted(steps.items()):
            data += number(step - after) + b"".join(number(value) for value in values)
            after = step + 1
        self.peer.send(frame(BUDGET_REPORT, report_item(self.rule, self.unit, self.name, data)))

    def grant(self):
        """The answer to the report: the rate in force from now on."""
        while True:
            payload = next_frame(self.peer, BUDGET_GRANT)
            rule, unit, length = struct.unpack_from("<QBB", payload)
            assert (rule, unit, payload[10:10 + length]) == (self.rule, self.unit, self.name)
            data = payload[14 + length:]
            ticket, data = take_number(data)
            level, rest, raised, raised_rest = struct.unpack_from("<dddd", data)
            if ticket != self.ticket:
                continue
            target = self.demand + rest if level >= 1e300 else min(self.demand, level)
            ceiling = self.demand + raised_rest if raised >= 1e300 else min(self.demand, raised)
            self.rate = min(target, max(self.rate, ceiling))
            self.rate = int(self.rate)
            return self.rate

    def turn(self, demand):
        self.report(demand)
        return self.grant()


def report_item(rule, unit, name, data):
    return struct.pack("<QBB", rule, unit, len(name)) + name + struct.pack("<I", len(data)) + data


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


def test_a_long_list_comes_in_pages(server):
    """While a peer is behind with it, another list replaces what was not sent; credits are granted meanwhile."""
    one = server()
    with one.peer(receive_buffer=4096) as slow:
        slow.greet(10)
        values = " ".join(f"job{place}*" for place in range(4000))
        for place in range(20):
            change(one, f"rule start long{place} jobid={{{values}}} rate={place + 1}")
        assert slow.enqueue(5).kind == M_GRANT
        listed = list_with(slow, lambda each: each.version == 20 and each.parts)
        assert len(listed.rules) == 20 and listed.pages > 1
        assert [int(rule[2].rpartition("rate=")[2].split()[0]) for rule in listed.rules] == list(range(20, 0, -1))


def test_the_list_outlives_a_kill(server):
    one = server()
    change(one, "rule start big jobid={*} rate=100")
    change(one, "rule start small jobid={a} rate=10 expire=1h")
    change(one, "job set 4711 nodes=4 weight=2 expire=1h")
    change(one, "job set 4712 nodes=3")
    change(one, "job clear 4712")
    with one.greet(10, name=b"one:/qos") as peer:
        list_with(peer, lambda each: each.parts == 8)
    one.restart()
    rules = read(one, "rules")
    assert (rules["version"], [rule["name"] for rule in rules["rules"]]) == (2, ["small", "big"])
    assert 3500 < rules["rules"][0]["expires_s"] <= 3600 and rules["rules"][1]["expires_s"] is None
    job, = read(one, "job list")["jobs"]
    assert (job["id"], job["nodes"], job["weight"]) == ("4711", 4, 2)
    assert read(one, "status")["mounts_known"] == 1
    with one.greet(10) as peer:
        listed = next_list(peer)  # at once with its floor, which is durable
        assert (listed.version, listed.parts, listed.rules[1][0]) == (2, 8, 1)
    log = read(one, "log")["log"]
    assert [(entry["who"], entry["version"]) for entry in log] == [("uid 0", 2), ("uid 0", 1)]
    why = read(one, "why 4711")
    assert (why["nodes"], why["weight"], why["classes"]) == (4, 2, [])


def test_an_expired_rule_is_taken_off(server):
    one = server()
    with one.greet(10) as peer:
        change(one, "rule start brief jobid={*} rate=100 expire=1s")
        assert list_with(peer, lambda each: each.version == 2).rules == []
    assert read(one, "log")["log"][0]["who"] == "qosfs-server"


# --- permission ---

def test_a_wrong_command_changes_nothing(server):
    one = server()
    for request, code, words in (("rule start big", 22, ""), ("rule stop none", 2, ""), ("rule change default rate=1", 1, ""),
                                 ("job set", 22, "no such request"), ("job set 7 size=3", 22, "no option of a job"),
                                 ("job clear 7", 2, "nothing was told"), ("forget nobody", 2, "no mount nobody"),
                                 ("why", 22, "no such request"), ("", 22, "no such request")):
        assert ask(one, request)[0] == code and words in ask(one, request)[1], (request, ask(one, request))
    assert read(one, "rules") == {"version": 0, "rules": [], "more": 0}


def test_an_administrator_of_a_local_mount(server):
    """Its root may, by a mount of root; others are refused with words. All may read."""
    one = server()
    with one.greet(10) as peer:
        assert admin(peer, "rule start big jobid={*} rate=100") == (0, "")
        code, words = admin(peer, "rule stop big", uid=USER)
        assert code == 1 and f"admin-uid={USER}" in words
        assert admin(peer, "job set 7 nodes=2", uid=USER)[0] == 1
        assert admin(peer, "forget x", uid=USER)[0] == 1
        assert json.loads(admin(peer, "rules", uid=USER)[1])["version"] == 1
        assert admin(peer, "nonsense")[0] == 22
        assert admin(peer, "rule start big jobid={*} rate=100")[0] == 17
    one.wait_log("may not change the rules of the cluster, and was refused: stop big")
    assert json.loads(one.ctl("status", "--json"))["cluster"]["refused"] == 3


def test_admin_uid_at_the_control_socket(server):
    """It may change rules there, and nothing else; other users cannot even connect."""
    one = server("--admin-uid", str(USER))
    reachable(one)
    assert as_user(USER, USER, [], lambda: ask(one, "rule start big jobid={*} rate=100")) == (0, "")
    assert read(one, "log")["log"][0]["who"] == f"uid {USER}"

    def state(_):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(one.control))
            control.sendall(b"state\n")
            return control.recv(100)
    assert as_user(USER, USER, [], lambda: state(0)).startswith(b"1 permission denied")

    def shut_out():
        try:
            return state(0)
        except ConnectionError:
            return b""
    assert as_user(USER + 7, USER + 7, [], shut_out) == b""


def test_the_control_socket_is_closed_without_admins(server):
    assert os.stat(server().control).st_mode & 0o777 == 0o600


def test_an_administrator_by_certificate(server, certificates, context):
    one = server("--admin-cn", "boss", certificates=certificates)
    with one.secure_peer(context("boss")) as peer:
        peer.greet(10)
        assert admin(peer, "rule start big jobid={*} rate=100")[0] == 0
        assert admin(peer, "rule stop big", uid=USER)[0] == 1
    with one.secure_peer(context("node1")) as peer:
        peer.greet(20)
        code, words = admin(peer, "rule stop big")
        assert code == 1 and "admin-cn=node1" in words
    assert [entry["who"] for entry in read(one, "log")["log"]] == ["CN=boss, caller 0"]


@pytest.mark.skipif(not shutil.which("munged"), reason="munged is not installed")
@pytest.mark.parametrize("settings", [[], ["--admin-uid", "0"]], ids=["not-named", "admin-uid"])
def test_an_administrator_by_munge(server, settings):
    """Root of another machine is not root here, unless the settings say so."""
    realm = Munged(b"one key".ljust(64, b"-"))
    try:
        one = server(*settings, munged=realm)
        with one.tcp_peer() as peer:
            shake_hands(peer, realm, one.port)
            peer.greet(10)
            code, words = admin(peer, "rule start big jobid={*} rate=100")
            assert admin(peer, "status")[0] == 0
        assert (code == 0) if settings else (code == 1 and "admin-uid=0" in words)
        assert [entry["who"] for entry in read(one, "log")["log"]] == (["munge uid 0"] if settings else [])
    finally:
        realm.close()


# --- budgets ---

def settle(members, demands, fits):
    """Turns of all members until the rates fit."""
    for _ in range(100):
        for member, demand in zip(members, demands):
            member.report(demand)
        rates = [member.grant() for member in members]
        if fits(rates):
            return rates
    raise AssertionError(f"the rates came to {rates}")


def test_two_mounts_divide_a_rule(server):
    one = server()
    change(one, "rule start big jobid={*} rate=1000 per=jobid share=hard")
    with one.greet(10, name=b"one:/qos") as first, one.greet(20, name=b"two:/qos") as second:
        members = [Member(peer, 1, "4711") for peer in (first, second)]
        rates = settle(members, [100 * UNIT, 5000 * UNIT], lambda rates: rates[1] > 800 * UNIT)
        assert rates[0] >= 99 * UNIT and sum(rates) <= 1010 * UNIT
        rates = settle(members, [5000 * UNIT, 5000 * UNIT], lambda rates: min(rates) > 440 * UNIT)
        assert sum(rates) <= 1010 * UNIT
        found, = read(one, "jobs")["classes"]
        assert (found["rule"], found["class"], found["unit"], found["limit"], found["share"]) == ("big", "4711", "operations", 1000, "hard")
        assert found["mounts"] == 2 and found["demand"] > 9000
        why = read(one, "why 4711")
        assert (why["nodes"], why["weight"]) == (2, 1)
        assert [each["mount"] for each in sorted(why["classes"][0]["members"], key=str)] == ["one:/qos", "two:/qos"]
        metrics = one.ctl("metrics")
        assert 'qosfs_server_budget_operations{class="big/4711"}' in metrics and "qosfs_server_rules_version 1" in metrics


def test_a_silent_mount_loses_its_share_with_its_lease(server):
    one = server()
    change(one, "rule start big jobid={*} rate=1000 per=jobid share=hard")
    with one.greet(10) as first, one.greet(20) as second:
        members = [Member(peer, 1, "4711") for peer in (first, second)]
        settle(members, [5000 * UNIT, 5000 * UNIT], lambda rates: min(rates) > 440 * UNIT)
        second.close()
        settle(members[:1], [5000 * UNIT], lambda rates: rates[0] > 800 * UNIT)


def test_a_newcomer_waits_for_its_floor_of_a_hard_rule(server):
    """Until the others have acknowledged the larger number of parts; a cut mount keeps its part, also over a restart, until an administrator
    forgets it."""
    one = server()
    change(one, "rule start big jobid={*} rate=1000 share=hard floor=10%")
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(one.greet(owner, name=f"m{owner}".encode())) for owner in range(10, 18)]
        for peer in peers:
            assert list_with(peer, lambda each: each.parts).parts == 8
        newcomer = stack.enter_context(one.greet(18, name=b"m18"))
        assert next_list(newcomer).parts == 0
        for peer in peers[:2]:
            list_with(peer, lambda each: each.parts == 16, acknowledge=False)
        assert newcomer.enqueue(5).kind == M_GRANT and RULES not in [kind for kind, _ in newcomer.cluster]
        peers[0].send(seen(1, 16))
        assert list_with(newcomer, lambda each: each.parts).parts == 16
        peers[1].close()
        wait_until(lambda: read(one, "status")["mounts_connected"] == 8, what="the end of a mount")
        assert read(one, "status")["mounts_known"] == 9
    one.restart()
    assert read(one, "status")["mounts_known"] == 9
    with one.greet(10, name=b"m10"):
        assert ask(one, "forget m10")[0] == 16
        change(one, "forget m11")
        change(one, "forget c")
        assert read(one, "status")["mounts_known"] == 7


def test_a_mount_says_goodbye(server):
    one = server()
    change(one, "rule start big jobid={*} rate=1000 share=hard")
    with one.greet(10) as peer:
        list_with(peer, lambda each: each.parts)
        peer.send(seen(GOODBYE, 0))
        wait_until(lambda: read(one, "status")["mounts_known"] == 0, what="the goodbye")
    change(one, "job set 1")  # durable, with all that was handed over before
    one.restart()
    assert read(one, "status")["mounts_known"] == 0


def test_epochs_are_answered(server):
    """EPOCH (policy grr): a mount that is ready is told when the next epoch begins, also when another one has gone."""
    one = server()

    def ready(peer, ticket, epoch=0):
        data = bytes(WISH_LENGTH)
        peer.send(frame(EPOCH, struct.pack("<BBBBIQq", 1, EPOCH_READY, 0, 0, len(data), ticket, epoch) + data))

    def answer(peer):
        _, kind, _, _, _, ticket, epoch = struct.unpack_from("<BBBBIQq", next_frame(peer, EPOCH))
        return kind, ticket, epoch
    with one.greet(10) as first, one.greet(20) as second:
        for peer in (first, second):
            ready(peer, 1 << 40)
            kind, ticket, epoch = answer(peer)
            assert (kind, ticket) == (EPOCH_START, 1 << 40) and epoch > 0
        second.close()
        ready(first, (1 << 40) + 1)
        assert answer(first)[1] == (1 << 40) + 1


# --- hostile peers ---

BROKEN = {
    "cut-seen": frame(RULES_SEEN, bytes(11)),
    "long-seen": frame(RULES_SEEN, bytes(13)),
    "cut-report": frame(BUDGET_REPORT, bytes(7)),
    "report-of-no-unit": frame(BUDGET_REPORT, report_item(1, 9, b"4711", b"x")),
    "report-that-is-none": frame(BUDGET_REPORT, report_item(1, OPERATIONS, b"4711", b"\xff\xff")),
    "empty-admin": frame(ADMIN, struct.pack("<QII", 1, 0, 0)),
    "admin-with-control-characters": frame(ADMIN, struct.pack("<QII", 1, 0, 2) + b"a\n"),
    "longer-admin-than-it-is": frame(ADMIN, struct.pack("<QII", 1, 0, 9) + b"rules"),
    "epoch": frame(EPOCH, b"\xff" * 40),
    "rules-of-a-client": frame(RULES, bytes(32)),
    "grant-of-a-client": frame(BUDGET_GRANT, report_item(1, 0, b"4711", b"x")),
    "result-of-a-client": frame(ADMIN_RESULT, struct.pack("<QII", 1, 0, 0)),
}


def test_hostile_frames(server):
    """Each ends its own connection; a report on a rule that is gone is passed over and counted; others are served."""
    one = server()
    change(one, "rule start big jobid={*} rate=1000")
    with one.greet(10) as good:
        for owner, (name, data) in enumerate(BROKEN.items(), start=20):
            with one.greet(owner) as peer:
                peer.send(data)
                assert peer.refusal()[0] == BROKEN_PROTOCOL, name
            assert good.enqueue(owner).kind == M_GRANT
        with one.greet(99) as peer:
            Member(peer, 77, "4711").report(5000)
            peer.send(seen(1 << 60, 8) + seen(1, 3))
            assert peer.enqueue(5).kind == M_GRANT
        state = json.loads(one.ctl("status", "--json"))["cluster"]
        assert state["passed_over"] >= 1 and state["version"] == 1


def test_a_flood_of_questions(server):
    """All are answered, and another peer is served meanwhile."""
    one = server()
    with one.greet(10) as curious, one.greet(20) as good:
        question = frame(ADMIN, struct.pack("<QII", 1, USER, 6) + b"status")
        curious.send(question * 200)
        assert good.enqueue(5).kind == M_GRANT
        for _ in range(200):
            next_frame(curious, ADMIN_RESULT)
