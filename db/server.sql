-- What outlives a server. See db/schema.sql for how versions are written.

-- version 1

-- One row: the server itself.
CREATE TABLE server (
    id          INTEGER NOT NULL,  -- among the owners of credits: 64 bits, made once at random
    incarnation INTEGER NOT NULL,  -- of the last start; it only grows
    lease       INTEGER NOT NULL,  -- nanoseconds, the longest that a client may have; 0: no start has said
    store       TEXT               -- what all mounts have in front of them; NULL: none has come yet
) STRICT;

-- Those who may have credits: after a restart the grace waits for them.
CREATE TABLE client (
    id        INTEGER PRIMARY KEY, -- 64 bits, as the mount chose it
    principal TEXT NOT NULL,       -- whom the id belongs to
    name      TEXT NOT NULL        -- for people
) STRICT;

CREATE TABLE tunable (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- version 2

-- For what clients claim after a restart.
ALTER TABLE server ADD COLUMN key_first INTEGER NOT NULL DEFAULT 0;   -- of proofs (core/proof.h); both 0: none was made
ALTER TABLE server ADD COLUMN key_second INTEGER NOT NULL DEFAULT 0;
ALTER TABLE server ADD COLUMN claimable INTEGER NOT NULL DEFAULT 0;   -- bytes that one client may claim; 0: no start has said

-- version 3

-- The rules that hold for all mounts together, in the order of matching.
CREATE TABLE cluster_rule (
    position INTEGER PRIMARY KEY,      -- 0 is asked first
    id       INTEGER NOT NULL UNIQUE,  -- the version in which it was started; never used again
    command  TEXT NOT NULL,            -- makes the rule again, without its expiry
    expires  INTEGER                   -- wall time in ns; NULL: never
) STRICT;

-- Who changed them, or tried to.
CREATE TABLE cluster_log (
    number    INTEGER PRIMARY KEY,     -- grows; the lowest go when there are many
    time      INTEGER NOT NULL,        -- wall time in ns
    principal TEXT NOT NULL,           -- that asked for it
    command   TEXT NOT NULL,           -- as it was given, cut where it is long
    error     INTEGER NOT NULL,        -- errno; 0: it was done
    result    TEXT NOT NULL            -- in words
) STRICT;

-- Of the list of rules: grows with each change.
ALTER TABLE server ADD COLUMN rules_version INTEGER NOT NULL DEFAULT 0;

-- Mounts that may use a part of the floors of rules, or could before they were cut off.
CREATE TABLE budget_client (
    id    INTEGER PRIMARY KEY,         -- as in client
    name  TEXT NOT NULL,               -- for people
    parts INTEGER NOT NULL             -- the mount may use one of so many parts of each floor
) STRICT;

-- The size of jobs, as a batch system told it.
CREATE TABLE cluster_job (
    id      TEXT PRIMARY KEY,
    nodes   INTEGER NOT NULL,
    weight  INTEGER NOT NULL,
    expires INTEGER NOT NULL           -- wall time in ns
) STRICT, WITHOUT ROWID;
