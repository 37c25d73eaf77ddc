"""Server tests: a real qosfs-server, and peers that speak the wire in Python.

Run with `pytest tests/server`; the program comes from $QOSFS_BUILD (default build/). Needs root, as some peers are
other users.

server    a factory: server("--lease", "2s", certificates=None, munged=None, descriptors=None, expect_failure=False) starts one, on a Unix socket,
          with certificates also on 127.0.0.1 with TLS, with a Munged also there with MUNGE; `descriptors`: as many at most. At the end of the test each must end with status 0 on SIGTERM, and its log must hold no
          error or report of a sanitizer. Warnings about peers are what these tests are about.

A server offers
    .path .port .log .pid
    .peer() .secure_peer(context)        connections: see wire.py
    .tcp_peer()                          one by TCP, before any handshake
    .greet(owner, **hello)               a peer that has a session
    .control .ctl(*words, check=True)    the control socket; qosfsctl server ...: its output, or the CompletedProcess
    .restart()                           SIGKILL, and a new process with the same words
"""
import pathlib
import re
import ssl
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "mount"))
from cluster import Certificates  # noqa: E402
from harness import BUILD, SANITIZERS, TIMEOUT, job_environment, wait_until  # noqa: E402
from wire import Peer  # noqa: E402

READY = "qosfs-server: is ready"
BAD_LOG = re.compile(r"qosfs-server: error: |CRITICAL|Sanitizer|runtime error")


class Server:
    def __init__(self, folder, number, arguments, certificates, munged, descriptors):
        self.path = folder / "socket"
        self.control = folder / "control"
        self._log_path = folder / f"log{number}"
        (folder / "database").mkdir(exist_ok=True)
        words = ["--listen", f"unix:{self.path}", "--database", folder / "database", "--control", self.control,
                 "--verbose"]
        if certificates:
            certificate, key = certificates.make("server", "127.0.0.1")
            words += ["--listen", "tcp:127.0.0.1:0", "--tls-ca", certificates.folder / "ca.crt", "--tls-cert", certificate,
                      "--tls-key", key]
        if munged:
            words += ["--listen", "munge:127.0.0.1:0", "--munge-socket", munged.socket]
        self._words = [*words, *arguments]
        self._limit = ["prlimit", f"--nofile={descriptors}"] if descriptors else []
        self._log = open(self._log_path, "ab")
        self._start()

    def _start(self):
        self._readiness = self.log.count(READY) + 1
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *self._limit, BUILD / "server/qosfs-server", *self._words],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, env=job_environment(None, **SANITIZERS))
        self.pid = self._process.pid

    def restart(self):
        self._process.kill()
        self._process.wait()
        self._start()
        self.wait_ready()

    def ctl(self, *words, check=True):
        command = [BUILD / "tools/qosfsctl", "server", *words, "--socket", self.control]
        done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT, check=False,
                              env=job_environment(None, **SANITIZERS))
        if check:
            assert done.returncode == 0 and not done.stderr, done
            return done.stdout
        return done

    @property
    def log(self):
        return self._log_path.read_text(errors="replace")

    @property
    def port(self):
        return int(re.search(r"listens on 127\.0\.0\.1:(\d+)", self.log)[1])

    def wait_ready(self):
        def ready():
            assert self._process.poll() is None, f"qosfs-server ended with {self._process.returncode}:\n{self.log}"
            return self.log.count(READY) >= self._readiness
        wait_until(ready, what="the server")

    def wait_failed(self):
        return self._process.wait(TIMEOUT)

    def wait_log(self, text):
        wait_until(lambda: text in self.log, what=f"the line {text!r}")

    def peer(self, **options):
        return Peer(self.path, **options)

    def secure_peer(self, context):
        return Peer(("127.0.0.1", self.port), context)

    def tcp_peer(self):
        return Peer(("127.0.0.1", self.port))

    def greet(self, owner, **more):
        peer = self.peer()
        peer.greet(owner, **more)
        return peer

    def finish(self):
        if self._process.poll() is None:
            self._process.terminate()
        status = self._process.wait(TIMEOUT)
        bad = BAD_LOG.search(self.log)
        assert status == 0 and not bad, f"qosfs-server ended with {status}:\n{self.log}"

    def abort(self):
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture
def server(tmp_path):
    made = []

    def make(*arguments, certificates=None, munged=None, descriptors=None, expect_failure=False):
        new = Server(tmp_path, len(made), arguments, certificates, munged, descriptors)
        made.append(new)
        if expect_failure:
            made.remove(new)
            status = new.wait_failed()
            new.abort()
            return status, new.log
        new.wait_ready()
        return new

    yield make
    try:
        for each in made:
            each.finish()
    finally:
        for each in made:
            each.abort()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def context(certificates):
    """A factory of TLS contexts: of a client with a certificate of that authority, or with none."""
    def make(name="node1", authority=certificates, **more):
        made = ssl.create_default_context(cafile=certificates.folder / "ca.crt")
        if name:
            made.load_cert_chain(*authority.make(name, **more))
        return made
    return make
