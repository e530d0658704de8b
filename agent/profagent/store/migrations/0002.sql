-- From version 1: losses that a daemon keeps, whether all of a JOB had come, how well models were sampled, and what is
-- passed over on purpose.

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

ALTER TABLE session ADD COLUMN keeping TEXT; -- which inferences it keeps, NULL for all
ALTER TABLE job ADD COLUMN interval INTEGER; -- of its program's acl.json
ALTER TABLE job ADD COLUMN acl_json TEXT; -- that file on the board, NULL where none is known
ALTER TABLE log ADD COLUMN kept INTEGER NOT NULL DEFAULT 1; -- 0 when passed over on purpose: no rows, and maybe not in the mirror

CREATE INDEX inference_loaded_again ON inference (model) WHERE stretch > 0; -- whether picture counts began anew
CREATE INDEX ledger_of_job ON ledger_entry (job) WHERE log IS NULL; -- losses that have no name, notes about samples

-- A sampled inference, known by the name of one of its files, whether it was kept, copied whole or lost on the way.
-- Counts from 2^63 on, which SQLite's integers do not hold, have no row.
CREATE TABLE sample (
    model             INTEGER NOT NULL REFERENCES model,
    current_pic_count INTEGER NOT NULL,
    input_pic_num     INTEGER NOT NULL,
    kept              INTEGER NOT NULL, -- 0 when it was passed over on purpose
    PRIMARY KEY (model, current_pic_count)
) WITHOUT ROWID;

-- How many neighbouring samples are so many pictures apart.
CREATE TABLE sample_gap (
    model    INTEGER NOT NULL REFERENCES model,
    pictures INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (model, pictures)
) WITHOUT ROWID;

-- How well a model was sampled, from its samples and the interval. NULL is "not known".
CREATE TABLE sampling (
    model         INTEGER PRIMARY KEY REFERENCES model,
    input_pic_num INTEGER,              -- pictures of every inference, 0 where they differ
    sampled       INTEGER NOT NULL,
    passed_over   INTEGER NOT NULL,     -- of these, on purpose
    interval      INTEGER,
    interval_from TEXT,                 -- acl.json or inferred
    due           INTEGER,              -- sampled, and those that were due and never came
    late          INTEGER,
    never_came    INTEGER
);

-- What was due is computed when the JOB goes on.
INSERT OR IGNORE INTO sample SELECT model, current_pic_count, input_pic_num, 1 FROM inference
WHERE typeof(current_pic_count) = 'integer';
INSERT INTO sample_gap SELECT model, gap, count(*) FROM
    (SELECT model, current_pic_count - lag(current_pic_count) OVER (PARTITION BY model ORDER BY current_pic_count) AS gap
     FROM sample)
WHERE gap IS NOT NULL GROUP BY model, gap;
INSERT INTO sampling (model, input_pic_num, sampled, passed_over)
SELECT model, CASE WHEN min(input_pic_num) = max(input_pic_num) THEN min(input_pic_num) ELSE 0 END, count(*), 0
FROM sample GROUP BY model;

DROP VIEW sessions;
CREATE VIEW sessions AS
SELECT s.session, b.identity AS board, b.hostname, s.source, s.address, s.started_us, s.ended_us, s.simulated,
       s.daemon_version, s.sdk_version, s.counter_map,
       (SELECT group_concat(key || '=' || value, ' ') FROM session_label WHERE session = s.session) AS labels,
       (SELECT count(*) FROM session_job WHERE session = s.session) AS jobs,
       (SELECT count(*) FROM inference WHERE session = s.session) AS inferences,
       (SELECT ifnull(sum(count), 0) FROM ledger_entry WHERE session = s.session AND grade = 'loss') AS losses,
       (SELECT ifnull(sum(count), 0) FROM ledger_entry WHERE session = s.session AND grade = 'note') AS notes,
       s.keeping,
       (SELECT ifnull(sum(sampled), 0) FROM session_job JOIN model USING (job) JOIN sampling USING (model)
        WHERE session = s.session) AS sampled,
       (SELECT CASE WHEN count(*) = count(due) THEN sum(due) END FROM session_job JOIN model USING (job)
        JOIN sampling USING (model) WHERE session = s.session) AS due,
       (SELECT ifnull(sum(passed_over), 0) FROM session_job JOIN model USING (job) JOIN sampling USING (model)
        WHERE session = s.session) AS passed_over
FROM session s JOIN board b USING (board);

CREATE VIEW sampling_by_model AS
SELECT b.identity AS board, j.name AS job, m.name AS model, m.model_id, s.interval, s.interval_from, j.acl_json,
       s.sampled, s.due, s.late, s.never_came, s.passed_over
FROM sampling s JOIN model m USING (model) JOIN job j USING (job) JOIN board b USING (board);

CREATE VIEW sample_gaps AS
SELECT b.identity AS board, j.name AS job, m.name AS model, m.model_id, g.before AS pic_count_before,
       g.current_pic_count, g.inferences, g.inferences % g.interval AS late_by,
       g.inferences / g.interval - 1 AS never_came
FROM (SELECT x.model, s.interval, x.current_pic_count,
             lag(x.current_pic_count) OVER (PARTITION BY x.model ORDER BY x.current_pic_count) AS before,
             (x.current_pic_count - lag(x.current_pic_count) OVER (PARTITION BY x.model ORDER BY x.current_pic_count))
             / s.input_pic_num AS inferences
      FROM sample x JOIN sampling s USING (model) WHERE s.due IS NOT NULL AND s.interval > 0) g
JOIN model m USING (model) JOIN job j USING (job) JOIN board b USING (board)
WHERE g.inferences <> g.interval;

PRAGMA user_version = 2;
