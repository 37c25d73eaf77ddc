"""The harness itself: a daemon or a server that ends by itself fails the test."""
import os
import signal

import pytest

from cluster import Server


def crash(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("store", ["tmpfs"], indirect=True)
def test_a_crash_before_a_kill_is_seen(store, mount):
    qos = mount(store)
    crash(qos.pid)
    with pytest.raises(AssertionError, match="the daemon had ended with -9"):
        qos.kill()


@pytest.mark.parametrize("end", [Server.finish, Server.kill])
def test_a_servers_crash_is_seen(world, end):
    server = Server(world, 30, [])
    crash(server.pid)
    with pytest.raises(AssertionError, match="ended with -9"):
        end(server)
