-- What outlives a mount. Each "-- version N" starts the step that makes version N out of the one
-- before; a step that was released is never edited, a new one is added. db/embed.py hands the steps
-- to db.c, which runs them in one transaction and writes the version to PRAGMA user_version.
--
-- Times are wall-clock nanoseconds since 1970. Totals are 64-bit and unsigned, kept bit for bit.

-- version 1

-- The rules in force, in the order of matching.
CREATE TABLE rule (
    position INTEGER PRIMARY KEY,  -- 0 is asked first
    name     TEXT NOT NULL UNIQUE,
    command  TEXT,                 -- makes the rule again, without its expiry; NULL: `default` as it is made
    expires  INTEGER               -- NULL: never
) STRICT;

CREATE TABLE tunable (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The jobs' totals. A JobID is whatever bytes the environment held, hence a blob.
CREATE TABLE job (
    job        INTEGER PRIMARY KEY,
    id         BLOB NOT NULL UNIQUE,
    nodes      INTEGER NOT NULL,   -- 0: unknown
    started    INTEGER NOT NULL,
    seen       INTEGER NOT NULL,
    store_time INTEGER NOT NULL,
    wait_time  INTEGER NOT NULL,
    requests   INTEGER NOT NULL,
    waits      INTEGER NOT NULL,
    errors     INTEGER NOT NULL
) STRICT;

-- What a job did: a line of job_stats each.
CREATE TABLE job_counter (
    job            INTEGER NOT NULL REFERENCES job ON DELETE CASCADE,
    name           TEXT NOT NULL,  -- an operation, in microseconds; or read_bytes, write_bytes
    samples        INTEGER NOT NULL,
    minimum        INTEGER NOT NULL,
    maximum        INTEGER NOT NULL,
    sum            INTEGER NOT NULL,
    sum_of_squares REAL NOT NULL,
    histogram      TEXT NOT NULL,  -- "BUCKET:COUNT ...", bucket n ends at 2^n; of the bytes alone
    PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;

-- What a job waited for.
CREATE TABLE job_wait (
    job     INTEGER NOT NULL REFERENCES job ON DELETE CASCADE,
    place   INTEGER NOT NULL,
    rule    TEXT NOT NULL,         -- '': the slots of the store
    count   INTEGER NOT NULL,
    waited  INTEGER NOT NULL,
    longest INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    PRIMARY KEY (job, place)
) STRICT, WITHOUT ROWID;

-- version 2

-- What each job did in each slice of time (fs/history.h): sums over the slice.
CREATE TABLE history (
    step        INTEGER NOT NULL,  -- seconds: 10, 300 or 3600
    time        INTEGER NOT NULL,  -- where the slice begins, seconds since 1970
    id          BLOB NOT NULL,     -- the JobID; empty: the jobs that are not told apart
    operations  INTEGER NOT NULL,
    read_bytes  INTEGER NOT NULL,
    write_bytes INTEGER NOT NULL,
    waits       INTEGER NOT NULL,
    waited      INTEGER NOT NULL,  -- nanoseconds
    lent        INTEGER NOT NULL,  -- this and what follows: millionths of an operation
    returned    INTEGER NOT NULL,
    borrowed    INTEGER NOT NULL,
    repaid      INTEGER NOT NULL,
    PRIMARY KEY (step, time, id)
) STRICT, WITHOUT ROWID;

-- version 3

-- What a job lent and borrowed (fs/adapt.h), in millionths of an operation's base cost.
CREATE TABLE share (
    id       BLOB PRIMARY KEY,
    record   INTEGER NOT NULL,     -- lent (> 0) or borrowed (< 0), and not yet paid back
    lent     INTEGER NOT NULL,     -- totals: to others,
    returned INTEGER NOT NULL,     -- of that, paid back to it,
    borrowed INTEGER NOT NULL,     -- from others,
    repaid   INTEGER NOT NULL      -- of that, paid back by it
) STRICT, WITHOUT ROWID;

-- version 4

-- Who the mount is to a lock server (fs/lockclient/client.h): one row.
CREATE TABLE identity (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    id          INTEGER NOT NULL,  -- random, made once; as signed as SQLite has it
    incarnation INTEGER NOT NULL   -- how often the mount was started since
) STRICT;
