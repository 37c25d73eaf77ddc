"""adapt=fair of the lock server: the jobs of all mounts divide what the store can do."""
import json
import os
import signal
import subprocess
import time

from harness import job_environment, start_job, wait_until

CAPACITY = 400  # op/s, far below what a mount can do
COUNTED = 800  # requests of both jobs together, in which the two are compared
WRITERS = 12  # of a job on a mount: so many that some wait at any time
WRITE = "while dd if=/dev/zero of=$0 bs=4K count=100000 oflag=direct conv=notrunc; do :; done"


def share(both, **settings):
    for name, value in settings.items():
        both.server.ctl("set", name.replace("_", "-"), str(value))


def ask(qos, what):
    return json.loads(qos.get(f"cluster:{what}"))


def tell(qos, command):
    qos.set("cluster", command)


class Load:
    """Processes of some jobs that write as fast as they may."""

    def __init__(self):
        self._writers = []

    def __enter__(self):
        return self

    def add(self, qos, job):
        for number in range(WRITERS):
            self._writers.append(start_job(job, "sh", "-c", WRITE, qos.dir / f"{job}.{number}.{qos.pid}",
                                           stderr=subprocess.DEVNULL, start_new_session=True))

    def __exit__(self, *_):
        for writer in self._writers:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()


def written(both, job):
    """Requests of the job on all mounts; a write is one of 4 KiB."""
    jobs = [qos.job(job) for qos in both.mounts]
    return sum(found["write_bytes"] for found in jobs if found) / 4096


def sample(both):
    """The part of the job a in COUNTED requests of a and b from now on, and how many of both came in a second."""
    before, begun = (written(both, "a"), written(both, "b")), time.monotonic()

    def had():
        return written(both, "a") - before[0], written(both, "b") - before[1]
    wait_until(lambda: sum(had()) >= COUNTED, what="requests")
    a, b = had()
    return a / (a + b), (a + b) / (time.monotonic() - begun)


def classes(both):
    return {item["class"]: item for item in ask(both.mounts[0], "jobs")["classes"] if item["rule"] == "adapt"}


def weights(both):
    return tuple(classes(both).get(job, {}).get("weight") for job in "ab")


def have(both, part, rate=CAPACITY):
    """Whether the job a has that part, and both have that rate. A change takes some epochs, so the first requests may differ."""
    part_now, rate_now = sample(both)
    return abs(part_now - part) <= 0.05 and 0.8 * rate <= rate_now <= 1.15 * rate


def test_jobs_divide_the_store(cluster):
    """Job a on two mounts and b on one: by mounts first, and half each when the batch system says that each is one node."""
    both = cluster()
    first, second = both.mounts
    share(both, adapt_capacity=CAPACITY, adapt="fair")
    for qos in both.mounts:
        wait_until(lambda qos=qos: qos.state().get("cluster", {}).get("count") == 1, what="the sharing")
    assert ask(first, "status")["sharing"] == {"capacity": CAPACITY}
    assert ask(first, "rules")["rules"] == []
    with Load() as load:
        load.add(first, "a")
        load.add(second, "a")
        load.add(second, "b")
        wait_until(lambda: weights(both) == (2, 1), what="weights by mounts")
        wait_until(lambda: have(both, 2 / 3), what="shares by mounts")
        tell(first, "job set a nodes=1")
        tell(first, "job set b nodes=1")
        wait_until(lambda: weights(both) == (1, 1), what="weights by nodes")
        wait_until(lambda: have(both, 1 / 2), what="shares by nodes")
        why = ask(second, "why b")
        assert (why["nodes"], why["weight"], why["classes"][0]["weight"]) == (1, 1, 1)
        assert second.job("b")["wait"][0]["rule"] == "adapt"
        # A rule that bounds nothing says how its jobs weigh.
        tell(first, "rule start heavy jobid={b} weight=3")
        wait_until(lambda: have(both, 1 / 4), what="shares by the rule's weight")
        tell(first, "rule stop heavy")
        # A rule of an administrator goes before it, and takes the job out of the sharing.
        tell(first, "rule start own jobid={b} rate=50 per=jobid")
        wait_until(lambda: "b" not in classes(both), what="the end of b's part")
        wait_until(lambda: have(both, CAPACITY / (CAPACITY + 50), CAPACITY + 50), what="all for a")
        share(both, adapt="off")
        for qos in both.mounts:
            wait_until(lambda qos=qos: qos.state()["cluster"]["count"] == 1, what="the sharing's end")
        assert ask(first, "status")["sharing"] is None


def test_environment_makes_no_weight(cluster):
    """A job that says of itself that it is on many nodes has no larger share."""
    both = cluster(mounts=1, server_options=["--adapt", "fair", "--adapt-capacity", str(CAPACITY)])
    qos = both.mounts[0]
    wait_until(lambda: qos.state().get("cluster", {}).get("count") == 1, what="the sharing")
    environment = job_environment("liar", SLURM_JOB_NUM_NODES="1000", SLURM_NNODES="1000")
    with start_job("liar", "dd", "if=/dev/zero", f"of={qos.dir}/file", "bs=4K", "count=100000", "oflag=direct",
                   stderr=subprocess.DEVNULL, env=environment) as writer:
        wait_until(lambda: "liar" in classes(both), what="the job")
        assert qos.job("liar")["nodes"] == 1000  # the mount believes it, where it is asked to
        assert classes(both)["liar"]["weight"] == 1
        writer.kill()


def test_jobs_go_on_without_the_server(cluster):
    """Without the server nothing is held back; with it again, it is, as was set before."""
    both = cluster(mounts=1, lease=60)
    both.expects_trouble()
    share(both, adapt_capacity=20, adapt="fair")
    qos = both.mounts[0]
    wait_until(lambda: qos.state().get("cluster", {}).get("count") == 1, what="the sharing")

    def rate():
        found = qos.state()["cluster"]["classes"]
        return found[0]["rate"] if found else 0
    with Load() as load:
        load.add(qos, "a")
        wait_until(lambda: rate() and 15 < rate() < 70, what="a share")
        both.server.kill()
        wait_until(lambda: rate() is None, what="no bound")
        both.server.start()
        wait_until(lambda: rate() and 15 < rate() < 70, what="a share again")
