"""The jobs of bench/adaptbf: what they do, how fio and Filebench are told, and what is seen of it."""
import collections
import contextlib
import math
import operator
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

BLOCK = 16 << 10
FILE = 4 << 20  # of a process without end, which wraps around
COUNT_STEP = 0.01  # s between looks at how much each job has done
LOADS = ("fio", "filebench")

# The `processes` of a job that do the same: `requests` each, without end where 0, from `start` on; where `burst` is not 0, with a pause of
# `pause` after so many.
Client = collections.namedtuple("Client", "job processes start burst pause requests", defaults=(0, 0, 0, 0))


def file_size(client):
    """Where the work has an end, its file is all of it: to begin again, fio would open it anew, and that is a request too."""
    return client.requests * BLOCK or FILE


# --- fio ---

def fio(client, name, folder, logs, seconds, verb):
    command = ["fio", f"--name={name}", f"--directory={folder}", "--filename_format=$jobname.$jobnum", f"--rw={verb}", f"--bs={BLOCK}",
               "--direct=1", "--ioengine=psync", "--thread", f"--numjobs={client.processes}", f"--size={file_size(client)}", "--allow_file_create=0",
               f"--startdelay={round(client.start * 1000)}ms", f"--write_lat_log={logs}/{name}", "--log_unix_epoch=1", "--output=/dev/null"]
    if client.burst:
        command += [f"--thinktime={round(client.pause * 1e6)}", f"--thinktime_blocks={client.burst}"]
    if not client.requests:
        command += ["--time_based", f"--runtime={round((seconds - client.start) * 1000)}ms"]
    return command


def read_log(path):
    with path.open() as lines:
        rows = [line.split(",", 2) for line in lines]
    return [(int(row[0]) / 1e3, int(row[1]) / 1e9) for row in rows]


# --- Filebench ---

def wml_files(client, name, folder):
    """A file for each process, of which Filebench has 16 at most; it stays as it is where it is there already."""
    yield f"set $dir={folder}"
    for process in range(client.processes):
        yield f"define file name={name}.{process},path=$dir,size={file_size(client)},prealloc,reuse"


def wml(client, name, folder, seconds, verb):
    """The same as fio's options. Filebench counts runs and pauses in whole seconds, and ends a process that finds no file any more."""
    yield from wml_files(client, name, folder)
    for process in range(client.processes):
        flowop = f"flowop {verb} name={verb}{process},filename={name}.{process},fd=1,iosize={BLOCK},directio"
        yield f"define process name=process{process},instances=1 {{ thread name=thread{process},memsize=1m,instances=1 {{"
        if client.requests:
            yield f"  flowop openfile name=open{process},filename={name}.{process},fd=1,directio"
            yield f"  {flowop},iters={client.requests}"
            yield f"  flowop closefile name=close{process},fd=1"
            yield f"  flowop deletefile name=delete{process},filename={name}.{process},fd=1"
        else:
            yield f"  {flowop},iters={client.burst or 1}"
            if client.burst:
                yield f"  flowop delay name=pause{process},value={round(client.pause)}"
        yield "} }"
    if client.requests:
        yield "set mode quit alldone"
    yield "run" if client.requests else f"run {math.ceil(seconds - client.start)}"


def filebench(path, lines):
    """setarch: its processes map their common memory at one address, which only is free in all of them where none is chosen at random."""
    path.write_text("\n".join([*lines, ""]))
    return ["setarch", "--addr-no-randomize", "filebench", "-f", path]


def read_counts(text, verb):
    """{job: requests so far}, of .qosfs/job_stats."""
    return {job: int(count) for job, count in re.findall(rf'job_id: +"?([^"\n]+)"?\n(?:  .*\n)*?  {verb}: +{{ samples: +(\d+)', text)}


def counted(samples, job, pause):
    """(end, duration) of each request of a job, as near as looks at their number tell: each ended when it was seen, and waited since the
    one before, but for those after a pause."""
    requests, last, before = [], -math.inf, 0
    for (earlier, _), (now, counts) in zip(samples, samples[1:]):
        count = counts.get(job, 0)
        if count > before:
            begin = last if now - last < pause else earlier
            requests += [(now, now - begin)] * (count - before)
            last, before = now, count
    return requests


# --- either ---

@contextlib.contextmanager
def watched(mountpoint, name, step, read):
    """Fills a list, while the block runs, with what `read` finds in .qosfs/`name`: (time, what)."""
    samples, is_over = [], threading.Event()
    folder = os.open(f"{mountpoint}/.qosfs", os.O_RDONLY)  # from here no look-up reaches the store

    def watch():
        while not is_over.wait(step):
            with open(name, encoding="utf-8", opener=lambda path, flags: os.open(path, flags, dir_fd=folder)) as file:
                samples.append((time.time(), read(file.read())))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield samples
    finally:
        is_over.set()
        watcher.join()
        os.close(folder)


class Failed(Exception):
    """A load did not run to its end."""


def run_all(commands):
    """Each of (start, job, command), from its start on, until all have ended."""
    running, begin = [], time.monotonic()
    try:
        for start, job, command in sorted(commands, key=operator.itemgetter(0)):
            time.sleep(max(begin + start - time.monotonic(), 0))
            running.append(subprocess.Popen(command, env={**os.environ, "SLURM_JOB_ID": job}, stdout=subprocess.DEVNULL))
        if any([process.wait() for process in running]):
            raise Failed(f"{commands[0][2][0]} failed")
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)  # of which both end, and clean up behind them
            process.wait()


def run_fio(scenario, store, mountpoint, verb):
    for number, client in enumerate(scenario.clients):
        for process in range(client.processes):
            with open(f"{store}/client{number}.{process}", "wb") as file:
                file.truncate(file_size(client))
    with tempfile.TemporaryDirectory(prefix="qosfs-fio-") as logs:
        run_all([(0, client.job, fio(client, f"client{number}", mountpoint, logs, scenario.seconds, verb))
                 for number, client in enumerate(scenario.clients)])
        return [[read_log(log) for log in sorted(pathlib.Path(logs).glob(f"client{number}_clat.*.log"))]
                for number in range(len(scenario.clients))]


def run_filebench(scenario, store, mountpoint, verb):
    """Filebench logs no requests: a job's are counted by the mount, and are those of its first client here."""
    with tempfile.TemporaryDirectory(prefix="qosfs-filebench-") as scratch:
        names = {f"client{number}": client for number, client in enumerate(scenario.clients)}
        for name, client in names.items():
            run_all([(0, client.job, filebench(pathlib.Path(scratch, f"{name}.files.f"), [*wml_files(client, name, store), "create files", "quit"]))])
        commands = [(client.start, client.job, filebench(pathlib.Path(scratch, f"{name}.f"), wml(client, name, mountpoint, scenario.seconds, verb)))
                    for name, client in names.items()]
        with watched(mountpoint, "job_stats", COUNT_STEP, lambda text: read_counts(text, verb)) as samples:
            run_all(commands)
    pause = min([client.pause for client in scenario.clients if client.pause] or [2]) / 2
    jobs = {job: counted(samples, job, pause) for job in scenario.weights}
    return [[jobs.pop(client.job)] if client.job in jobs else [] for client in scenario.clients]


RUN = {"fio": run_fio, "filebench": run_filebench}
