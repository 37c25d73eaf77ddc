"""A cluster for the tests: a lock server, and mounts over one store that share it.

A test asks for the fixture `cluster`, a factory:

    def test_hello(cluster):
        both = cluster()
        first, second = both.mounts
        (first.dir / "hello").write_text("world")
        assert (second.dir / "hello").read_text() == "world"

cluster(store=None, mounts=2, lease=30, tcp=False, options="", server_options=())
    store    by default a new tmpfs; lease: the server's, in s; options: of each mount
    tcp      the server and each mount have a network namespace of their own, joined by a bridge, and speak TCP with TLS
             and certificates of a new authority; else all share a Unix socket

A cluster offers
    .store .server .mounts          a Store, the Server, a list of Mount: see conftest.py
    .add(options="")                one more mount
    .wait_up(*mounts)               until these, or all, have the server's credit
    .expects_trouble()              the logs may tell of absent peers and ended leases
    .cut(mount) .mend(mount)        with tcp: takes the mount's network away, and gives it back
The server
    .socket .database .pid          paths; the process id, which changes with start()
    .log                            what it has written to stderr, over all its starts
    .kill() .start()                SIGKILL, and a new process over the same database
    .signal(number)                 SIGSTOP is waited for
    .ctl("status")                  qosfsctl server ...: its output
    .expects_log(regex)             lines of the log that are meant to be there
At the end of the test the server must end with status 0 on SIGTERM, and its log must hold no warning, error or report of a
sanitizer that was not announced. One that ends by itself fails the test, also where kill() or start() come after it.
"""
import json
import re
import signal
import subprocess

from harness import BUILD, SANITIZERS, TIMEOUT, check_log, is_stopped, job_environment, run, wait_until

PORT = 7988


class Certificates:
    """An authority, and what it signed, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=qosfs test authority", "-keyout", folder / "ca.key", "-out", folder / "ca.crt")

    def make(self, name, host=None, days=2, subject=None):
        """(certificate, key) of that name, and of that host, an address or a name, if it is a server's; it ends in so many days.
        `subject`: other than of that name."""
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject or f"/CN={name}",
            "-keyout", key, "-out", request)
        extensions = self.folder / f"{name}.ext"
        kind = "IP" if host and re.fullmatch(r"[\d.]+|.*:.*", host) else "DNS"
        extensions.write_text(f"subjectAltName={kind}:{host}\n" if host else "basicConstraints=CA:FALSE\n")
        run("openssl", "x509", "-req", "-in", request, "-CA", self.folder / "ca.crt", "-CAkey", self.folder / "ca.key",
            "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", certificate)
        return certificate, key


class Network:
    """Network namespaces, each with one interface, joined by a bridge in the server's."""

    def __init__(self):
        self._holders = []
        self.enter = self._add_namespace()  # the server's
        self.address = "10.98.0.1"
        # Its own: else it takes that of a mount which comes, and those that are there send to the old one.
        self._in(0, "ip", "link", "add", "bridge", "address", "02:00:00:00:00:01", "type", "bridge")
        self._in(0, "ip", "address", "add", f"{self.address}/16", "dev", "bridge")
        self._in(0, "ip", "link", "set", "bridge", "up")

    def _add_namespace(self):
        """A process that holds a new one; the words that run a command in it."""
        holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c",
                                   "ip link set lo up && echo ready && exec sleep infinity"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self._holders.append(holder)
        assert holder.stdout.readline() == "ready\n"
        return self._words(len(self._holders) - 1)

    def _words(self, place):
        return "nsenter", f"--target={self._holders[place].pid}", "--net", "--"

    def _in(self, place, *command):
        run(*self._words(place), *command)

    def add(self):
        """The words that run a command in a new namespace which reaches the server's."""
        words = self._add_namespace()
        place = len(self._holders) - 1
        self._in(0, "ip", "link", "add", f"peer{place}", "type", "veth", "peer", "name", "wire", "netns",
                 str(self._holders[place].pid))
        self._in(0, "ip", "link", "set", f"peer{place}", "master", "bridge", "up")
        self._in(place, "ip", "address", "add", f"10.98.1.{place}/16", "dev", "wire")
        self._in(place, "ip", "link", "set", "wire", "up")
        return words

    def switch(self, words, on):
        """Cuts or mends the wire of the namespace that `words` enter."""
        run(*words, "ip", "link", "set", "wire", "up" if on else "down")

    def close(self):
        for holder in self._holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()


class Server:
    """A qosfs-server; see above."""

    def __init__(self, world, lease, words, prefix=()):
        self._folder = world.folder("server")
        self.socket = self._folder / "socket"
        self.control = self._folder / "control"
        self.database = world.folder("server-database")
        self._program = BUILD / "server/qosfs-server"
        self._ctl = world.programs / "qosfsctl"
        self._log_path = self._folder / "stderr"
        self._first_words = ["--listen", f"unix:{self.socket}", "--database", self.database, "--lease", f"{lease}s",
                             "--control", self.control]
        self._words = [*self._first_words, *words]
        self._prefix = prefix
        self._expected = []
        self._process = None
        self._is_killed = False
        self.start()

    @property
    def pid(self):
        return self._process.pid

    @property
    def log(self):
        return self._log_path.read_text(errors="replace")

    def start(self):
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._prefix, self._program, *self._words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=job_environment(None, **SANITIZERS),
                start_new_session=True)
        self._is_killed = False

        def ready():
            assert self._process.poll() is None, f"qosfs-server ended with {self._process.returncode}:\n{self.log}"
            return self.ctl("status", check=False).returncode == 0
        wait_until(ready, what="the server")

    def move(self, words):
        """Starts it with other words."""
        self._words = [*self._first_words, *words]
        self.start()

    def ctl(self, *arguments, check=True):
        """qosfsctl server ARGUMENTS: its output, or with check=False the CompletedProcess."""
        command = [self._ctl, "server", *arguments, "--socket", self.control]
        environment = job_environment(None, **SANITIZERS)
        if check:
            return run(*command, env=environment)
        return subprocess.run([str(word) for word in command], text=True, capture_output=True, env=environment)

    def signal(self, number):
        self._process.send_signal(number)
        if number == signal.SIGSTOP:
            wait_until(lambda: is_stopped(self.pid), what="the server's stop")

    def kill(self):
        early = self._process.poll()
        self._process.kill()
        self._process.wait(TIMEOUT)
        self._is_killed = True
        assert early is None, f"the server had ended with {early}:\n{self.log}"

    def expects_log(self, pattern):
        self._expected.append(re.compile(pattern))

    def finish(self):
        """Ends it, unless the test has killed it, and demands a clean end and log."""
        if not self._is_killed:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                status = self._process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"the server does not end:\n{self.log}") from None
            assert status == 0, f"the server ended with {status}:\n{self.log}"
        check_log("the server", self.log, self._expected)


class Cluster:
    """See above; made by the fixture, which gives `mount`, the factory of mounts."""

    def __init__(self, world, mount, store, lease, tcp, options, server_options):
        self.store = store
        self.mounts = []
        self._mount = mount
        self._options = options
        self._network = Network() if tcp else None
        self._certificates = Certificates(world.folder("certificates")) if tcp else None
        self._namespaces = {}  # of mounts
        self.server = self._start_server(world, lease, server_options)

    def _start_server(self, world, lease, words):
        if self._network is None:
            return Server(world, lease, words)
        certificate, key = self._certificates.make("server", self._network.address)
        return Server(world, lease, prefix=self._network.enter, words=[
            *words, "--listen", f"tcp:{self._network.address}:{PORT}", "--tls-ca", self._certificates.folder / "ca.crt",
            "--tls-cert", certificate, "--tls-key", key])

    def add(self, options=""):
        """One more mount."""
        words = [self._options, options]
        prefix = ()
        if self._network is None:
            words.append(f"server=unix:{self.server.socket}")
        else:
            prefix = self._network.add()
            certificate, key = self._certificates.make(f"mount{len(self.mounts)}")
            words += [f"server={self._network.address}:{PORT}", f"server_ca={self._certificates.folder / 'ca.crt'}",
                      f"server_cert={certificate}", f"server_key={key}"]
        made = self._mount(self.store, ",".join(filter(None, words)), prefix=prefix)
        self._namespaces[made] = prefix
        self.mounts.append(made)
        return made

    def wait_up(self, *mounts):
        def is_up(made):
            server = made.state()["server"]
            return server["state"] == "up" and server["valid"] > 0
        for made in mounts or self.mounts:
            try:
                wait_until(lambda made=made: is_up(made), what="the mount's session")
            except AssertionError:
                print(self._scene(made))
                raise

    def _scene(self, made):
        """Why a mount has no session, for the report."""
        facts = [json.dumps(made.state()["server"]), made.threads(), self.server.ctl("status"), self.server.ctl("metrics"),
                 self.server.log, made.log]
        for words in filter(None, [self._namespaces[made], self._network and self._network.enter]):
            facts += [run(*words, "ss", "-tnpi"), run(*words, "ip", "neigh"), run(*words, "ip", "-s", "link")]
        return "\n".join(facts)

    def expects_trouble(self):
        """Mounts and server may complain of one another's absence."""
        self.server.expects_log("warning")
        for made in self.mounts:
            made.expects_log("lock server .* is tried again|the locks on it .* are lost")

    def cut(self, made):
        self._network.switch(self._namespaces[made], False)

    def mend(self, made):
        self._network.switch(self._namespaces[made], True)

    def close(self):
        """After the mounts have ended."""
        try:
            self.server.finish()
        finally:
            if self._network is not None:
                self._network.close()
