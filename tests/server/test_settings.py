"""qosfs-server's settings, and how it starts and ends."""
import socket
import subprocess

import pytest

from harness import BUILD, SANITIZERS, job_environment
from wire import M_GRANT

WRONG = {
    "--listen=foo": 'listen: "foo" is none of unix:/PATH, tcp:ADDRESS:PORT and munge:ADDRESS:PORT',
    "--listen=unix:here": 'listen: "unix:here" is none of',
    "--listen=unix:/" + 107 * "x": "is longer than 107 bytes",
    "--control=/" + 107 * "x": "control: the path",
    "--listen=tcp:localhost:70": 'listen: "tcp:localhost:70" is none of',
    "--listen=munge:7988": 'listen: "munge:7988" is none of',
    "--listen=tcp:0.0.0.0:70000": "listen: the port",
    "--listen=tcp:[::]:7": "to listen on tcp:, tls-ca, tls-cert and tls-key are needed",
    "--tls-ca=/ca": "of tls-ca, tls-cert and tls-key some are missing",
    "--tls-key=key": 'tls-key: "key" is not an absolute path',
    "--database=here": 'database: "here" is not an absolute path',
    "--allow-uid=root": "allow-uid",
    "--admin-uid=root": "admin-uid",
    "--admin-cn=CN=node1": 'admin-cn: "CN=node1" is no name: give the CN of a certificate alone',
    "--admin-cn=": 'admin-cn: "" is no name',
    "--tls-deny=node1": 'tls-deny: "node1" is no subject',
    "--limit=much": "limit: ",
    "--limit=4": "limit: 4 is not within 1K and 1T",
    "--limit=2T": "limit: 2T is not within 1K and 1T",
    "--limit=8000P": "limit: 8000P is not within 1K and 1T",
    "--hard-limit=1": "the hard limit must be from the limit",
    "--law=martial": 'law: "martial" is neither steady nor hld',
    "--lease=0s": "lease: 0s is not between 1 s and 1 h",
    "--lease=3601s": "lease: 3601s is not between 1 s and 1 h",
    "--lease=soon": "lease: ",
    "--adapt=paper": 'adapt: "paper" is neither off nor fair',
    "--adapt=fair": "set adapt-capacity to a number of operations a second first",
    "--adapt-capacity=auto": "adapt-capacity: the server does not find out by itself what the store can do",
    "--adapt-capacity=0": "adapt-capacity: the operations a second: 0 is not between 1 and 999999",
    "--adapt-capacity=1000000": "adapt-capacity: the operations a second",
    "--group=48": "group: 48 is no power of two",
    "--group=2048": "group: the number of inodes: 2048 is not between 1 and 1024",
    "--connections=0": "connections",
    "--unheard=of": 'there is no setting "unheard"; see --help',
    "--limmit=1G": 'there is no setting "limmit"; did you mean "limit"?',
    "--listen": "--listen wants a value",
    "--unheard": 'there is no setting "unheard"; see --help',
    "--limit=1G --lease --verbose": "--lease wants a value",
    "more": '"more" is no option',
    "--config=/nothing/there": "/nothing/there: ",
}


def run_server(*words):
    return subprocess.run([BUILD / "server/qosfs-server", *words], text=True, capture_output=True, timeout=60,
                          env=job_environment(None, **SANITIZERS))


def test_wrong_settings_are_named():
    for word, reason in WRONG.items():
        done = run_server(*word.split())
        assert done.returncode == 2 and done.stderr.startswith("qosfs-server: ") and reason in done.stderr, (word, done)


def test_help_and_version():
    help_text = run_server("--help")
    assert help_text.returncode == 0 and "--listen ADDRESS" in help_text.stdout
    assert run_server("-V").stdout.startswith("qosfs-server ")


def test_a_file_of_settings(server, tmp_path):
    more = tmp_path / "more"
    file = tmp_path / "server.conf"
    file.write_text(f"[server]\nlisten = unix:{more}; \nlease=5s\ngroup=2\n")
    one = server("--config", str(file), "--lease", "9s", "--listen", f"unix:{more}")
    assert more.is_socket() and one.path.is_socket()
    with one.peer() as peer:
        welcome = peer.greet(10)
        assert welcome[16:20] == (9000).to_bytes(4, "little")  # what the command line says
        assert welcome[24:28] == (2).to_bytes(4, "little")


@pytest.mark.parametrize("text, reason", [("[server]\nlease=x\n", "lease: "), ("[other]\n", "no section [server]"), ("[server]\nlease=5s\n[mounts]\nlimit=1M\n", "no section [mounts]"), ("lease", "expected a line [server]"),
                                          ("[server]\nunheard=1\n", "unheard"), ("[server]\nunheard=\n", "unheard"),
                                          ("[server]\nlimit=\n", "limit: ")])
def test_a_wrong_file_is_named(tmp_path, text, reason):
    file = tmp_path / "server.conf"
    file.write_text(text)
    done = run_server("--config", file)
    assert done.returncode == 2 and str(file) in done.stderr and reason in done.stderr


def test_a_second_server_leaves_the_first_alone(server, tmp_path):
    first = server()
    status, log = server(expect_failure=True)
    assert status == 1 and "another server listens there" in log
    with first.greet(10) as peer:
        assert peer.enqueue(1).kind == M_GRANT


def test_a_certificate_of_another_key_is_refused(server, certificates):
    certificate, _ = certificates.make("one", "127.0.0.1")
    _, key = certificates.make("other", "127.0.0.1")
    status, log = server("--listen", "tcp:127.0.0.1:0", "--tls-ca", certificates.folder / "ca.crt", "--tls-cert", certificate,
                         "--tls-key", key, expect_failure=True)
    assert status == 1 and f"tls-cert={certificate}, tls-key={key}: they do not work together (" in log


def test_a_socket_of_a_killed_server_is_taken_over(server, tmp_path):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "socket"))
    dead.close()
    with server().greet(10) as peer:
        assert peer.enqueue(1).kind == M_GRANT


def test_a_file_is_not_taken_for_a_socket(server, tmp_path):
    (tmp_path / "socket").write_text("precious")
    status, log = server(expect_failure=True)
    assert status == 1 and "is there, and no socket" in log
    assert (tmp_path / "socket").read_text() == "precious"


def test_a_mistyped_folder_is_not_made(server, tmp_path):
    for setting, value in (("listen", f"unix:{tmp_path}/typo/socket"), ("control", f"{tmp_path}/typo/control"),
                           ("database", f"{tmp_path}/typo")):
        status, log = server(f"--{setting}", value, expect_failure=True)
        assert status == 1 and f"{setting}: there is no folder {tmp_path}/typo: make it first" in log
        assert not (tmp_path / "typo").exists()
    (tmp_path / "file").touch()
    status, log = server("--database", str(tmp_path / "file"), expect_failure=True)
    assert status == 1 and f"database: {tmp_path}/file is no folder" in log


def test_its_sockets_go_with_it(server):
    one = server()
    with one.greet(10):
        one.finish()
    assert not one.path.exists()


def test_the_control_socket_takes_the_place_of_no_file(server, tmp_path):
    """A mistyped path costs no file."""
    (tmp_path / "control").write_text("precious")
    status, log = server(expect_failure=True)
    assert status == 1 and f"{tmp_path / 'control'} is there, and no socket" in log
    assert (tmp_path / "control").read_text() == "precious"


def test_one_control_socket_for_one_server(server, tmp_path):
    first = server()
    first.path.unlink()
    (tmp_path / "another").mkdir()
    status, log = server("--database", str(tmp_path / "another"), expect_failure=True)
    assert status == 1 and f"{first.control}: another server listens there" in log
    assert "credits   0\n" in first.ctl("status")
