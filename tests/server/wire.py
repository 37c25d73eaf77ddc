"""The wire between mounts and server (core/wire.h, core/credit.h) in Python: a peer for tests and benchmarks that knows
nothing of the program's own code."""
import socket
import ssl
import struct

VERSION = 3
FRAME_MAX = 1 << 20
(HELLO, WELCOME, REFUSED, CREDITS, WAIT, DEADLOCK, RULES, BUDGET_REPORT, BUDGET_GRANT, ADMIN, ADMIN_RESULT, RULES_SEEN,
 EPOCH) = range(1, 14)
OF_CLUSTER = RULES, BUDGET_GRANT, ADMIN_RESULT, EPOCH
BAD_VERSION, OTHER_STORE, IDENTITY_TAKEN, NOT_PERMITTED, FULL, BROKEN_PROTOCOL = range(1, 7)
(M_HELLO, M_WELCOME, M_RESET, M_RENEW, M_ENQUEUE, M_WITHDRAW, M_CANCEL, M_RECLAIM, M_GRANT, M_DENIED,
 M_REVOKE, M_RESTORE) = range(12)
INODE, EXTENT = 0, 2  # types of resources

TIMEOUT = 30  # seconds that an answer may take


def frame(kind, payload):
    return struct.pack("<IB", len(payload) + 1, kind) + payload


def text(value):
    return bytes([len(value)]) + value


def hello(owner=4711, version=VERSION, incarnation=1, store=b"test:1", name=b"peer:/qos"):
    return frame(HELLO, b"QOFS" + struct.pack("<IQI", version, owner, incarnation) + text(store) + text(name))


_HEAD = struct.Struct("<BIQIQQQQQQQQQQ")


def message(kind, session=0, sequence=0, acknowledged=0, lender=0, request=0, inode=0, reads=0, writes=0, granted=0,
            token=0, spans=None, more=(), flags=0):
    """A credit message, with its length: about an inode's bits, or with `spans`, (first, last, writes), about its data. `more`
    are claims, (inode, reads, token, proof)."""
    head = _HEAD.pack(kind, flags, session, lender, sequence, acknowledged, 0, 0, token, 0, 0, 0, request, 0)
    resource = struct.pack("<BBQ", INODE if spans is None else EXTENT, 8, inode)
    if spans is None:
        credit = struct.pack("<II", reads, writes)
    else:
        credit = struct.pack("<I", len(spans)) + b"".join(struct.pack("<QQB", *span) for span in spans)
    claims = b"".join(struct.pack("<BBQIIQI", INODE, 8, claimed, reads, 0, token, proof) for claimed, reads, token, proof in more)
    whole = head + resource + credit + struct.pack("<QII", granted, 0, len(more)) + claims
    return struct.pack("<I", len(whole)) + whole


def wait(number, owner, *inodes, kind=EXTENT):
    """A frame: the owner waits for all of the first, and has all of the others."""
    items = [struct.pack("<BBQIQQB", kind, 8, inode, 1, 0, 99, 1) for inode in inodes]
    return frame(WAIT, struct.pack("<QQI", number, owner, len(items)) + b"".join(items))


class Message:
    """A received one: what tests look at."""

    def __init__(self, payload):
        (self.kind, self.flags, self.session, self.lender, self.sequence, self.acknowledged, _, self.lease, _, _, _, _,
         self.request, self.delay) = _HEAD.unpack_from(payload)
        rest = payload[_HEAD.size:]
        length = rest[1]
        self.resource = rest[:2 + length]
        self.credit = rest[2 + length:]
        if self.resource[0] == INODE:
            self.reads, self.writes, self.granted, self.proof = struct.unpack_from("<IIQI", self.credit)


def messages(payload):
    while payload:
        length, = struct.unpack_from("<I", payload)
        yield Message(payload[4:4 + length])
        payload = payload[4 + length:]


class Gone(Exception):
    """The server has closed the connection."""


class Peer:
    """A connection. `address` is a path, or (host, port) with a TLS context."""

    sessions = 0  # so many have begun: their names grow

    def __init__(self, address, context=None, receive_buffer=None):
        kind = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        self.socket = socket.socket(kind)
        self.socket.settimeout(TIMEOUT)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(address if isinstance(address, tuple) else str(address))
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname=address[0])
        self._bytes = b""
        self.cluster = []  # frames of the cluster that came while something else was waited for
        self.session = self.sequence = self.received = self.lender = 0

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- frames ---

    def send(self, data):
        self.socket.sendall(data)

    def take(self, count):
        """The next bytes. Gone at the end."""
        while len(self._bytes) < count:
            try:
                data = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError) as error:
                raise Gone from error
            if not data:
                raise Gone
            self._bytes += data
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken

    def receive(self):
        """The next frame: its type and payload."""
        length, = struct.unpack("<I", self.take(4))
        kind, *payload = self.take(length)
        return kind, bytes(payload)

    def refusal(self):
        """The code and reason of the REFUSED that comes next, behind which nothing comes."""
        kind, payload = self.receive()
        while kind in OF_CLUSTER:
            kind, payload = self.receive()
        assert kind == REFUSED, (kind, payload)
        try:
            raise AssertionError(self.receive())
        except Gone:
            return payload[0], payload[2:].decode()

    # --- sessions ---

    def greet(self, owner, **more):
        """HELLO, and the session's; returns the payload of WELCOME."""
        self.send(hello(owner, **more))
        kind, payload = self.receive()
        assert kind == WELCOME, (kind, payload)
        Peer.sessions += 1
        self.session = (more.get("incarnation", 1) << 32) + Peer.sessions
        self.send(frame(CREDITS, message(M_HELLO, self.session)))
        welcome = self.next_message(M_WELCOME)
        self.lender = welcome.lender
        return payload

    def next_message(self, *kinds):
        """The next message of these kinds; the numbered ones before are taken note of."""
        while True:
            if not getattr(self, "_queue", None):
                kind, payload = self.receive()
                if kind in OF_CLUSTER:
                    self.cluster.append((kind, payload))
                    continue
                assert kind == CREDITS, (kind, payload)
                self._queue = list(messages(payload))
            found = self._queue.pop(0)
            if found.sequence and found.sequence != self.received + 1:
                continue  # a repetition
            self.received = max(self.received, found.sequence)
            if found.kind in kinds:
                return found

    def numbered(self, kind, **fields):
        self.sequence += 1
        return message(kind, self.session, self.sequence, self.received, self.lender, **fields)

    def enqueue(self, inode, reads=1, writes=0):
        self.send(frame(CREDITS, self.numbered(M_ENQUEUE, request=self.sequence + 1, inode=inode, reads=reads,
                                               writes=writes)))
        return self.next_message(M_GRANT, M_DENIED)
