"""The harness itself: a daemon or a server that ends by itself fails the test."""
import itertools
import os
import signal

import pytest

from cluster import Server
from harness import wait_until
from watchdog import watchdog


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


class Daemon:
    """What the watchdog sees of one: it has got on at each look, or never does."""

    def __init__(self, gets_on):
        self._times = itertools.count() if gets_on else itertools.repeat(0)
        self.looks, self.is_aborted = 0, False

    def cpu_time(self):
        self.looks += 1
        return next(self._times)

    def abort(self):
        self.is_aborted = True


@pytest.mark.parametrize("gets_on", [[False, True], [True]])
def test_a_daemon_that_gets_on_is_left_alone(gets_on):
    daemons = [Daemon(one) for one in gets_on]
    with watchdog(daemons, 0, idle=0.001, most=float("inf")):
        wait_until(lambda: daemons[0].looks > 100, what="looks")
    assert not any(one.is_aborted for one in daemons)


@pytest.mark.parametrize("gets_on, idle, most", [([False, False], 0.001, 10**9), ([True], 1000, 1), ([True], 0.001, 1)])
def test_a_daemon_that_hangs_is_killed(gets_on, idle, most):
    """All of them; and so is a daemon that takes far too long."""
    daemons = [Daemon(one) for one in gets_on]
    with watchdog(daemons, 0.01, idle, most):
        wait_until(lambda: all(one.is_aborted for one in daemons), what="the end of all")
