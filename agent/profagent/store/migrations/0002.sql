-- From version 1: losses that a daemon keeps, and whether all of a JOB had come.

ALTER TABLE job ADD COLUMN caught_up INTEGER NOT NULL DEFAULT 0; -- 1 when nothing more of it was to come in its state

-- What a board lost whether or not somebody listened. Its daemon tells it on every stream; here it is written once, by
-- the session that heard it first, with the newest figures. Each has its entry in the ledger.
CREATE TABLE kept_loss (
    board      INTEGER NOT NULL REFERENCES board,
    id         TEXT NOT NULL,           -- the daemon's number for it, 16 hexadecimal digits
    entry      INTEGER NOT NULL REFERENCES ledger_entry,
    job_name   TEXT,                    -- NULL when it is about the whole board
    lost_logs  INTEGER,                 -- NULL, here and below: not known
    lost_bytes INTEGER,
    from_us    INTEGER,
    to_us      INTEGER,
    PRIMARY KEY (board, id)
) WITHOUT ROWID;

CREATE VIEW kept_losses AS
SELECT e.session, b.identity AS board, k.job_name AS job, e.reason, e.detail, k.lost_logs, k.lost_bytes, k.from_us,
       k.to_us, k.id
FROM kept_loss k JOIN ledger_entry e USING (entry) JOIN board b USING (board);

PRAGMA user_version = 2;
