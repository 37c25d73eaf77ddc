"""The part `sessions` of bench/cluster: what budgets cost the lock server, with more mounts than a machine can have.

bench-sessions holds the sessions, each of which reports one class every epoch. Measured are the server's CPU time, and the time from a change of a rule,
by qosfsctl and so with its start, to the moment at which the last session has it.
"""
import os
import signal
import subprocess
import sys
import threading
import time

from shared import wait_for

MANY, FEWER = 2000, 1000  # sessions
CPU, CHANGE = 0.2, 1000  # the aims: of a CPU, ms
OPENING = 300  # s at most until all sessions are there: each mount is written to the database
RULE = ["total", "jobid={bench}", "rate=50000"]


class Sessions:
    """bench-sessions, and what it has told."""

    def __init__(self, build, server, count):
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", f"{build}/bench/bench-sessions", f"{server.folder}/server.sock", str(count)],
                                        text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.is_ready, self.rules, self.traffic = False, {}, []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.wait_for(lambda: self.is_ready, f"{count} sessions", OPENING)

    def _read(self):
        for line in self.process.stdout:
            kind, *numbers = line.split()
            if kind == "ready":
                self.is_ready = True
            elif kind == "rules":  # version: how many rules, and when the last session had them, s
                self.rules[int(numbers[0])] = int(numbers[1]), int(numbers[3]) / 1e9
            else:
                self.traffic.append(tuple(map(int, numbers)))

    def wait_for(self, condition, what, patience=60):
        wait_for(lambda: condition() or self.process.poll() is not None, what, patience)
        if self.process.poll() is not None:
            sys.exit("bench/cluster: bench-sessions has ended")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stdin.close()


def command(arguments, server, *words):
    done = subprocess.run([f"{arguments.build}/tools/qosfsctl", "cluster", "rule", *words, "--socket", server.folder / "control.sock"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench/cluster: cluster rule {' '.join(words)}: {done.stderr.strip()}")


def change(arguments, server, sessions, *words):
    """ms from the command to the last session that has it."""
    latest = max(sessions.rules, default=0)
    began = time.monotonic()
    command(arguments, server, *words)
    sessions.wait_for(lambda: max(sessions.rules, default=0) > latest, "all sessions to have the rules")
    return (sessions.rules[max(sessions.rules)][1] - began) * 1000


def cpu_of(server):
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure_cpu(server, sessions, seconds):
    """Of a CPU, the part that the server takes; reports, answers, and those that came in time, in a second."""
    time.sleep(2)  # until each session has had its turn
    place, before, began = len(sessions.traffic), cpu_of(server), time.monotonic()
    time.sleep(seconds)
    part = (cpu_of(server) - before) / (time.monotonic() - began)
    traffic = sessions.traffic[place:]
    return part, *(sum(numbers) / max(1, len(traffic)) for numbers in zip(*traffic))


def one(arguments, serving, count, changes, seconds):
    with serving(arguments.build, "--lease", "1h") as server:
        sessions = Sessions(arguments.build, server, count)
        try:
            took = [change(arguments, server, sessions, "start", *RULE)]
            figures = measure_cpu(server, sessions, seconds)
            took += [change(arguments, server, sessions, "change", "total", f"rate={50000 + turn}") for turn in range(changes)]
        finally:
            sessions.close()
    return sorted(took), figures


def sessions_table(arguments, aims, serving):
    """`serving`: as in bench/cluster."""
    changes, seconds = (2, 2) if arguments.quick else (20, 20)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    lines = ["| sessions | reports /s | answers /s | in time | server's CPU | aim | a rule's change at all: median | longest | aim |",
             "|---|---|---|---|---|---|---|---|---|"]
    for count in (MANY, FEWER):
        took, (part, reports, answers, grants) = one(arguments, serving, count, changes, seconds)
        lines.append(f"| {count:,} | {reports:,.0f} | {answers:,.0f} | {grants:,.0f} | {part:.1%} | {f'<= {CPU:.0%}' if count == MANY else ''} | "
                     f"{took[len(took) // 2]:.0f} ms | {took[-1]:.0f} ms | {f'<= {CHANGE:,} ms' if count == FEWER else ''} |")
        if count == MANY:
            aims.at_most(CPU, part, f"{count} sessions: the server's part of a CPU")
        else:
            aims.at_most(CHANGE, took[-1], f"{count} sessions: a rule's change at all, ms")
    return lines
