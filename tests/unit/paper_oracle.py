#!/usr/bin/env python3
"""The equations 1 to 25 of AdapTBF (seed 004) in exact rational numbers, against adapt=paper: paper_oracle.py PROGRAM [SEED]

PROGRAM (paper_runs.c) prints random runs. What jobs have and owe must be the same, to the token, and remainders to what double precision
keeps. The repairs are those that fs/adapt_paper.c lists.
"""
import math
import subprocess
import sys
from fractions import Fraction

RUNS = 4000
PRECISION = 1e-6


class Job:
    def __init__(self, nodes, record):
        self.n, self.r = nodes, record
        self.alpha, self.rho = 0, Fraction(0)


def hand_out(jobs, raw, tokens, kept):
    """(21) to (25): whole tokens that add up, by the largest remainder; what each job gets. `kept` are the tokens that it has beside (R5)."""
    parts = []
    for job, tokens_raw, has in zip(jobs, raw, kept):
        parts.append(max(math.floor(tokens_raw + job.rho), -has))
        job.rho = tokens_raw + job.rho - parts[-1]  # R3
    missing = tokens - sum(parts)
    order = sorted(range(len(jobs)), key=lambda i: (-jobs[i].rho, i))
    step = 1 if missing > 0 else -1
    while missing != 0 and jobs:
        for i in order:
            if missing == 0:
                break
            if parts[i] + step >= -kept[i]:
                parts[i] += step
                jobs[i].rho -= step
                missing -= step
    return parts


def allocate(jobs, demands, tokens):
    """A period; `jobs` are the active ones."""
    if not jobs:
        return
    nodes = sum(job.n for job in jobs)
    p = [Fraction(job.n, nodes) for job in jobs]  # (1)
    parts = hand_out(jobs, [priority * tokens for priority in p], tokens, [0] * len(jobs))  # (2)
    u = [Fraction(d, job.alpha if job.alpha > 0 else max(part, 1)) for d, job, part in zip(demands, jobs, parts)]  # (3), R1
    surplus = [max(part - d, 0) for part, d in zip(parts, demands)]  # (4)
    df = [(1 if x > 1 else 0) * x + x * y for x, y in zip(u, p)]  # (6)
    for job, part in zip(jobs, parts):
        job.alpha = part
    if sum(df) == 0:
        return  # R4
    total = sum(surplus)  # (5)
    before = [job.r for job in jobs]
    kept = [job.alpha - s for job, s in zip(jobs, surplus)]
    got = hand_out(jobs, [x / sum(df) * total for x in df], total, kept)
    for job, has, s, part in zip(jobs, kept, surplus, got):
        job.alpha = has + part  # (7)
        job.r += s - part  # (8)
    plus = [i for i, job in enumerate(jobs) if before[i] > 0 and job.r > 0]  # (9)
    minus = [i for i, job in enumerate(jobs) if before[i] < 0 and job.r < 0]  # (10)
    if sum(df[i] for i in plus) == 0:
        return  # R4
    coefficient = Fraction(0)
    for i in plus:
        following = Fraction(demands[i], jobs[i].alpha) if jobs[i].alpha > 0 else 1  # (11), (12)
        coefficient += p[i] * (max(1, u[i]) + max(0, 1 - following)) / 2  # (13)
    reclaimed = 0
    for i in minus:
        part = min(abs(before[i]), math.floor(coefficient * jobs[i].alpha), jobs[i].alpha)  # (14), R2
        jobs[i].alpha -= part  # (15)
        jobs[i].r += part  # (16)
        reclaimed += part  # (17)
    lenders = [jobs[i] for i in plus]
    rf = [df[i] for i in plus]  # (18)
    got = hand_out(lenders, [x / sum(rf) * reclaimed for x in rf], reclaimed, [job.alpha for job in lenders])
    for job, part in zip(lenders, got):
        job.alpha += part  # (19)
        job.r -= part  # (20)


def check(line):
    """What differs in the run, or None."""
    words = iter(line.split())
    tokens, count, periods = (int(next(words)) for _ in range(3))
    jobs = [Job(int(next(words)), int(next(words))) for _ in range(count)]
    for period in range(periods):
        told = [(int(next(words)), int(next(words)), int(next(words)), float(next(words))) for _ in range(count)]
        active = [i for i in range(count) if told[i][0] >= 0]
        for i in set(range(count)) - set(active):
            jobs[i].alpha = 0
        allocate([jobs[i] for i in active], [told[i][0] for i in active], tokens)
        for i, (_, allocation, record, remainder) in enumerate(told):
            job = jobs[i]
            if (job.alpha, job.r) != (allocation, record) or abs(job.rho - Fraction(remainder)) > PRECISION:
                return (f"period {period}, job {i}: {allocation} tokens, record {record}, remainder {remainder}; "
                        f"to be {job.alpha}, {job.r}, {float(job.rho)}")
    return None


def main():
    seed = sys.argv[2] if len(sys.argv) > 2 else "1"
    runs = subprocess.run([sys.argv[1], seed, str(RUNS)], text=True, capture_output=True, check=True).stdout.splitlines()
    wrong = [(number, difference) for number, difference in enumerate(map(check, runs)) if difference is not None]
    print("1..1")
    for number, difference in wrong[:10]:
        print(f"# seed {seed}, run {number}: {difference}")
    print(f"{'not ok' if wrong or len(runs) != RUNS else 'ok'} 1 {len(runs) - len(wrong)} of {RUNS} runs are those of the equations")


if __name__ == "__main__":
    main()
