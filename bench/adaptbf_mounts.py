"""The mounts of bench/adaptbf, and what it measures beside the paper's experiments: jobs of several nodes, and slow stores."""
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

CAPACITY = 1000  # op/s of the store: far below what two mounts on two CPUs can do
DEPTH = 20  # requests that it saves up while it is idle, in case that it is woken up late
RAMP = 4  # s until it counts: a slow store is known after 2 s; in quick runs 1
NODES = {"J1": 1, "J2": 2, "J5": 5}  # jobs, by their number of nodes
PROCESSES = 8  # of each
THINK = 0.1  # s that the interactive job thinks after each request
SLOTS = 64
DELAYS = (50, 100)  # ms


@contextlib.contextmanager
def mounted(build, store, mountpoint, options, rules, environment=None):
    """A qosfs with these rules, in a session of its own: a ^C is for this program alone, which unmounts."""
    os.makedirs(mountpoint)
    with tempfile.TemporaryDirectory(prefix="qosfs-db-") as scratch, open(f"{scratch}/log", "w+") as log:
        daemon = subprocess.Popen([f"{build}/mount.qosfs", store, mountpoint, "-o", f"foreground,db={scratch}/db,{options}"],
                                  stderr=log, start_new_session=True, env={**os.environ, **(environment or {})})
        try:
            while not os.path.ismount(mountpoint):
                if daemon.poll() is not None:
                    sys.exit(f"bench/adaptbf: it did not mount:\n{pathlib.Path(log.name).read_text()}")
                time.sleep(0.01)
            for rule in rules:
                os.setxattr(mountpoint, "user.qosfs.nrs_tbf_rule", rule.encode())
            yield daemon.pid
        finally:
            while daemon.poll() is None:  # busy as long as a fio is ending
                subprocess.run(["umount", mountpoint], stderr=subprocess.DEVNULL, check=False)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemon.wait(0.1)
    os.rmdir(mountpoint)


@contextlib.contextmanager
def capped_store(build):
    """The folder of a store that serves CAPACITY op/s. There all is one job: else what one thread of the mount over it has open and another writes
    is wanted by others, goes into 2 s of debt, and then nothing goes until that is paid."""
    with tempfile.TemporaryDirectory(prefix="qosfs-bench-") as scratch:
        os.mkdir(f"{scratch}/tmpfs")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", f"{scratch}/tmpfs"], check=True)
        try:
            rule = f"start store jobid={{*}} rate={CAPACITY} depth={DEPTH} per=rule"
            with mounted(build, f"{scratch}/tmpfs", f"{scratch}/store", "cache=none,slots=127,jobid_var=nodelocal,jobid_name=store", [rule]):
                yield f"{scratch}/store"
        finally:
            subprocess.run(["umount", f"{scratch}/tmpfs"], check=True)


# --- jobs at work for so long ---

# NAME THREADS THINK RAMP SECONDS, in the mount: each thread writes 16 KiB at a time in a file of its own, directly. On a line it begins; prints
# how many writes ended in the seconds after the ramp, and how long they took: their median and 99th percentile, in s
# (nan of none).
WORK = r"""
import mmap, os, statistics, sys, threading, time
name, threads, think, ramp, seconds = sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:])
took = []

def work(fd, page, begin):
    number = 0
    while time.monotonic() < begin + ramp + seconds:
        start = time.monotonic()
        os.pwritev(fd, [page], number % 64 << 14)
        end = time.monotonic()
        if begin + ramp <= end < begin + ramp + seconds:
            took.append(end - start)
        number += 1
        if think:
            time.sleep(think)

files = [os.open(f"{name}.{number}", os.O_WRONLY | os.O_DIRECT) for number in range(threads)]
print(flush=True)
sys.stdin.readline()
begin = time.monotonic()
workers = [threading.Thread(target=work, args=(fd, mmap.mmap(-1, 1 << 14), begin)) for fd in files]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
took.sort()
print(len(took), statistics.median(took) if took else "nan", took[len(took) * 99 // 100] if took else "nan")
"""


def run_jobs(mountpoint, jobs, seconds, ramp):
    """What each of {name: (nodes, threads, think)} shows: (writes, median, p99)."""
    running = {name: subprocess.Popen([sys.executable, "-c", WORK, name, str(threads), str(think), str(ramp), str(seconds)], cwd=mountpoint,
                                      env={**os.environ, "SLURM_JOB_ID": name, "SLURM_JOB_NUM_NODES": str(nodes)}, text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE) for name, (nodes, threads, think) in jobs.items()}
    for process in running.values():
        process.stdout.readline()
    for process in running.values():
        process.stdin.write("\n")
        process.stdin.flush()
    results = {name: process.communicate()[0].split() for name, process in running.items()}
    if any(process.returncode for process in running.values()):
        sys.exit("bench/adaptbf: a job failed")
    return {name: (int(count), float(median), float(late)) for name, (count, median, late) in results.items()}


def make_files(store, jobs):
    for name, processes in jobs.items():
        for process in range(processes):
            with open(f"{store}/{name}.{process}", "wb") as file:
                file.truncate(1 << 20)


@contextlib.contextmanager
def busy(processes):
    """Programs that compute beside it."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


# --- jobs of several nodes ---

def share_error(counts):
    """The largest part by which a job is beside its share of what they all got, by nodes."""
    whole, nodes = max(sum(counts.values()), 1), sum(NODES.values())
    return max(abs(counts[job] / whole / (count / nodes) - 1) for job, count in NODES.items())


def run_nodes(build, options, seconds, ramp):
    """(writes of each job, latencies of the interactive one in ms: median and p99)"""
    with capped_store(build) as store, mounted(build, store, f"{store}-mount", options, []):
        make_files(store, {**dict.fromkeys(NODES, PROCESSES), "I": 1})
        results = run_jobs(f"{store}-mount", {**{name: (nodes, PROCESSES, 0) for name, nodes in NODES.items()}, "I": (1, 1, THINK)}, seconds, ramp)
    return {name: results[name][0] for name in NODES}, 1e3 * results["I"][1], 1e3 * results["I"][2]


def nodes_table(build, rounds, seconds, ramp=RAMP):
    """A store of CAPACITY op/s; the jobs' weights are their nodes, of which no rule tells."""
    yield "| | " + " | ".join(f"{name}, op/s" for name in NODES) + " | share error, median | largest | interactive, median, ms | p99 |"
    yield "|---" * (len(NODES) + 5) + "|"
    cpus = len(os.sched_getaffinity(0))
    for title, options, loops in (("No BW", "policy=fifo", 0), ("fair, told", f"adapt=fair,adapt_bytes=0,capacity={CAPACITY}", 0),
                                  ("fair, found out", "adapt=fair,adapt_bytes=0,capacity=auto", 0),
                                  (f"fair, told, beside {2 * cpus} busy processes", f"adapt=fair,adapt_bytes=0,capacity={CAPACITY}", 2 * cpus)):
        with busy(loops):
            runs = [run_nodes(build, options, seconds, ramp) for _ in range(rounds)]
        errors = [share_error(counts) for counts, _, _ in runs]
        rates = [f"{statistics.median(counts[name] for counts, _, _ in runs) / seconds:.0f}" for name in NODES]
        yield (f"| {title} | {' | '.join(rates)} | {statistics.median(errors):.1%} | {max(errors):.1%} | "
               f"{statistics.median(median for _, median, _ in runs):.1f} | {statistics.median(late for _, _, late in runs):.1f} |")


# --- slow stores ---

def run_slow(build, delay, options, seconds, ramp):
    """Writes a second of all, and the part of them of the job that has three of four nodes."""
    environment = {"LD_PRELOAD": f"{pathlib.Path(build).resolve()}/bench/libslow-store.so", "SLOW_STORE_MS": str(delay)}
    with tempfile.TemporaryDirectory(prefix="qosfs-bench-") as scratch, contextlib.ExitStack() as stack:
        os.mkdir(f"{scratch}/store")
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", f"{scratch}/store"], check=True)
        stack.callback(subprocess.run, ["umount", f"{scratch}/store"], check=True)
        make_files(f"{scratch}/store", {"light": SLOTS, "heavy": SLOTS})
        stack.enter_context(mounted(build, f"{scratch}/store", f"{scratch}/mount", f"slots={SLOTS},{options}", [], environment))
        results = run_jobs(f"{scratch}/mount", {"light": (1, SLOTS, 0), "heavy": (3, SLOTS, 0)}, seconds, ramp)
    light, heavy = results["light"][0], results["heavy"][0]
    return (light + heavy) / seconds, heavy / max(light + heavy, 1)


def slow_table(build, rounds, seconds, ramp=RAMP):
    """A store that each request is in for so long, as many at once as slots; nobody tells its capacity."""
    yield "| a request takes | No BW, op/s | fair, op/s | of No BW | share of 75 % |"
    yield "|---|---|---|---|---|"
    for delay in DELAYS:
        runs = [(run_slow(build, delay, "policy=fifo", seconds, ramp), run_slow(build, delay, "adapt=fair,capacity=auto", seconds, ramp)) for _ in range(rounds)]
        none, fair = (statistics.median(run[way][0] for run in runs) for way in (0, 1))
        part = statistics.median(run[1][0] / run[0][0] for run in runs)
        share = statistics.median(run[1][1] for run in runs)
        yield f"| {delay} ms | {none:.0f} | {fair:.0f} | {part:.1%} | {share:.1%} |"
