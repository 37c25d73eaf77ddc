"""The cells of bench/rates: what a job does, which combinations mean nothing, and a short list that has each pair of values."""
import collections
import itertools
import random

WAYS = ["cached", "direct", "mapped", "append", "fsync", "io_uring", "aio"]
OPERATIONS = ["read", "write", "create", "stat", "rename"]
WORKERS = ["1", "2", "16", "64", "16p"]  # threads; p: processes
PLACES = ["own", "shared", "other"]  # a file of each worker; one of the job; one of two jobs
RULES = ["rate", "bps", "both"]
BETWEEN = ["none", "fstat", "lseek", "chmod"]
DATA = ["read", "write"]

Cell = collections.namedtuple("Cell", "way operation workers place rule between")

VOID = {
    "direct, mapped, append and aio are ways to move data": lambda cell: cell.operation not in DATA and
    cell.way in ("direct", "mapped", "append", "aio"),
    "O_APPEND does not concern reads": lambda cell: (cell.way, cell.operation) == ("append", "read"),
    "names and attributes have no bytes that `bps` could bound": lambda cell: cell.operation not in DATA and cell.rule == "bps",
    "one worker shares its file with nobody of its job": lambda cell: (cell.workers, cell.place) == ("1", "shared"),
}


def why_void(cell):
    """Why the cell means nothing; None: it means something."""
    return next((reason for reason, is_void in VOID.items() if is_void(cell)), None)


def all_cells():
    """All cells that mean something, in an order that mixes them, and the number of the others for each reason."""
    everything = [Cell(*values) for values in itertools.product(WAYS, OPERATIONS, WORKERS, PLACES, RULES, BETWEEN)]
    cells = [cell for cell in everything if why_void(cell) is None]
    random.Random(26).shuffle(cells)
    return cells, collections.Counter(why_void(cell) for cell in everything if why_void(cell))


def pairs_of(cell):
    """Its pairs of values. A way with its operation counts as one value, because the kernel's locks depend on both."""
    return set(itertools.combinations(enumerate([cell[:2], *cell[2:]]), 2))


def covering(cells):
    """Few of the cells that have each pair of values which some cell has: the one with most new pairs comes next."""
    missing = set().union(*map(pairs_of, cells))
    pairs, chosen = {cell: pairs_of(cell) for cell in cells}, []
    while missing:
        chosen.append(max(cells, key=lambda cell: len(pairs[cell] & missing)))
        missing -= pairs[chosen[-1]]
    return chosen


def is_data(cell):
    return cell.operation in DATA


def workers(cell):
    return int(cell.workers.rstrip("p"))


def under_way(cell):
    """How many operations the job has under way at a time: bench-load gives io_uring and aio two for each thread."""
    return workers(cell) * (2 if cell.way in ("io_uring", "aio") else 1)


def size(cell):
    """The bytes of one read or write: some rules of bytes are to let enough of them through to be measured."""
    return 4096 if cell.rule == "rate" else 16384


def least(cell):
    """How many requests the job's rule is charged for each operation at least."""
    calls = {"create": 2}.get(cell.operation, 1)
    return calls + (cell.way == "fsync") + (cell.between == "chmod")


def most(cell):
    """How many requests one operation may take at most, each of which may wait its turn."""
    pages = size(cell) // 4096
    calls = {"create": 8, "rename": 8, "stat": 4}.get(cell.operation, 1)
    if cell.way == "mapped":
        calls = pages if cell.operation == "read" else 2 * pages + 1
    return calls + (cell.way == "fsync") + {"none": 0, "fstat": 1, "lseek": 2, "chmod": 3}[cell.between]
