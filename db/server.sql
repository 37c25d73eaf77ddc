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
