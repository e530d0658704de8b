-- Of version 3: figures of a session are those of JOBs that it fetched; what a mirror lost is known over streams;
-- sessions may outlive their records.

ALTER TABLE log ADD COLUMN lost_size INTEGER;
ALTER TABLE log ADD COLUMN lost_digest BLOB;

-- JOBs whose figures are a session's: it was the first that had them, or fetched a record of them.
CREATE VIEW fetched_jobs AS
SELECT s.session, s.job FROM session_job s
WHERE NOT EXISTS (SELECT 1 FROM session_job o WHERE o.job = s.job AND o.session < s.session)
   OR EXISTS (SELECT 1 FROM log JOIN part USING (log) WHERE log.job = s.job AND part.session = s.session);

-- Sessions whose records were let go of (`profagent gc`): what they held, and below what was known of it by then.
CREATE TABLE cleared_session (
    session    INTEGER PRIMARY KEY REFERENCES session,
    cleared_us INTEGER NOT NULL,        -- host wall clock
    inferences INTEGER NOT NULL,
    bytes      INTEGER NOT NULL         -- of its JOBs' mirrored files
);

-- The figures of a session, as `profagent stats` tells them, where they are to outlive its records.
CREATE TABLE figure (
    session INTEGER NOT NULL REFERENCES session,
    by      TEXT NOT NULL,              -- layer, type, model, segment, aicpu or api
    place   INTEGER NOT NULL,           -- of the row, by falling total
    key     TEXT NOT NULL,              -- what the row is of: a JSON array of names
    unit    TEXT NOT NULL,              -- us or ticks
    number  INTEGER NOT NULL,
    total   REAL,                       -- NULL, here and below: not known
    mean    REAL,
    median  REAL,
    mad     REAL,
    p95     REAL,
    max     REAL,
    share   REAL,                       -- of the time of all rows, in %
    bound   TEXT,
    PRIMARY KEY (session, by, place)
) WITHOUT ROWID;

-- How many of a model's inferences its session's figures leave out as warm-up.
CREATE TABLE figure_left_out (
    session    INTEGER NOT NULL REFERENCES session,
    model      TEXT NOT NULL,
    inferences INTEGER NOT NULL,
    left_out   INTEGER NOT NULL,
    PRIMARY KEY (session, model)
) WITHOUT ROWID;

DROP VIEW sessions;
CREATE VIEW sessions AS
SELECT s.session, b.identity AS board, b.hostname, s.source, s.address, s.started_us, s.ended_us, s.simulated,
       s.daemon_version, s.sdk_version, s.counter_map,
       (SELECT group_concat(key || '=' || value, ' ') FROM session_label WHERE session = s.session) AS labels,
       (SELECT count(*) FROM session_job WHERE session = s.session) AS jobs,
       ifnull(c.inferences, (SELECT count(*) FROM inference WHERE session = s.session)) AS inferences,
       (SELECT ifnull(sum(count), 0) FROM ledger_entry WHERE session = s.session AND grade = 'loss') AS losses,
       (SELECT ifnull(sum(count), 0) FROM ledger_entry WHERE session = s.session AND grade = 'note') AS notes,
       s.keeping,
       ifnull(f.sampled, 0) AS sampled, f.due, ifnull(f.passed_over, 0) AS passed_over, c.cleared_us
FROM session s JOIN board b USING (board) LEFT JOIN cleared_session c USING (session)
LEFT JOIN (SELECT session, sum(sampled) AS sampled, CASE WHEN count(*) = count(due) THEN sum(due) END AS due,
                  sum(passed_over) AS passed_over
           FROM fetched_jobs JOIN model USING (job) JOIN sampling USING (model) GROUP BY session) f USING (session);

PRAGMA user_version = 4;
