-- Of version 7: what cannot be of a session's counters is counted.

-- What was checked of the counters of a session's records of a JOB. What a check has found has its entry in the ledger.
CREATE TABLE counter_check (
    session          INTEGER NOT NULL REFERENCES session,
    job              INTEGER NOT NULL REFERENCES job,
    name             TEXT NOT NULL,
    records          INTEGER NOT NULL,  -- that it could look at
    implausible      INTEGER NOT NULL,  -- of these
    worst            REAL,              -- NULL, as the first: there is none
    first_pictures   INTEGER,           -- of the first that is implausible: pictures before its inference,
    first_path       TEXT,              -- its log, as it is shown,
    first_record     INTEGER,           -- and its number in that
    peak_bytes_per_s REAL NOT NULL,     -- what the memory was taken to move at most
    entry            INTEGER REFERENCES ledger_entry,
    PRIMARY KEY (session, job, name)
) WITHOUT ROWID;

PRAGMA user_version = 8;
