-- The database of a workspace, and of a JOB directory's own sqlite/ folder.
-- Tables have singular names and are internal to profagent; the views at the end are the public interface.
-- Times are board wall-clock microseconds since 1970 unless a column says otherwise; NULL means "unknown".

CREATE TABLE board (
    board       INTEGER PRIMARY KEY,
    identity    TEXT NOT NULL UNIQUE,   -- UUID or machine id; 'import' for copied JOBs
    hostname    TEXT NOT NULL,
    model       TEXT NOT NULL
);

-- A capture or import.
CREATE TABLE session (
    session        INTEGER PRIMARY KEY,
    board          INTEGER NOT NULL REFERENCES board,
    source         TEXT NOT NULL,       -- record, watch, import or collect
    address        TEXT NOT NULL,       -- where the board was reached, or the JOB directory of an import
    started_us     INTEGER NOT NULL,    -- host wall clock; of another tool's results the time of its run, where known
    ended_us       INTEGER,             -- as above; NULL while a `record` may continue it
    simulated      INTEGER NOT NULL,
    daemon_version TEXT NOT NULL,
    sdk_version    TEXT NOT NULL,
    counter_map    TEXT,                -- name of the counter map its records were decoded with
    keeping        TEXT,                -- the choice of inferences that it stores, NULL for all
    counter_map_digest TEXT,            -- digest of that map's effect on records; NULL without one
    counter_map_likely TEXT             -- its uncertain counters, with commas between; NULL for none
);

-- Labels of a session.
CREATE TABLE session_label (
    session INTEGER NOT NULL REFERENCES session,
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

-- Pairs of clocks read together; offset = board wall clock - host wall clock, known to within half the round trip.
CREATE TABLE clock_sample (
    session       INTEGER NOT NULL REFERENCES session,
    host_us       INTEGER NOT NULL,
    offset_us     INTEGER NOT NULL,
    round_trip_us INTEGER NOT NULL
);

-- How a capture followed its board, in adjoining intervals; a JOB has its own only while it alone was behind.
CREATE TABLE coverage_interval (
    session  INTEGER NOT NULL REFERENCES session,
    job_name TEXT NOT NULL,             -- empty for the board
    from_us  INTEGER NOT NULL,          -- host wall clock
    to_us    INTEGER NOT NULL,
    standing TEXT NOT NULL,             -- connecting, covered, behind, silent, away or paused
    detail   TEXT NOT NULL,             -- the reason, where it is known
    PRIMARY KEY (session, job_name, from_us)
) WITHOUT ROWID;

-- A JOB directory of a board.
CREATE TABLE job (
    job           INTEGER PRIMARY KEY,
    board         INTEGER NOT NULL REFERENCES board,
    name          TEXT NOT NULL,
    directory     TEXT NOT NULL,        -- on the board
    state         TEXT NOT NULL,        -- open, finished, quiet or removed
    family        TEXT,                 -- ascend: another tool's results, of such a device; NULL: a JOB of an SS928
    frequency_mhz INTEGER,              -- NPU clock from info.json; for another tool's results the value that makes a tick 1 ns
    caught_up     INTEGER NOT NULL DEFAULT 0, -- 1 when everything that the JOB held in this state had come
    interval      INTEGER,              -- sampling interval of its program's acl.json
    acl_json      TEXT,                 -- path of that file on the board, NULL where unknown
    UNIQUE (board, name)
);

-- Which JOBs a session has bytes of.
CREATE TABLE session_job (
    session INTEGER NOT NULL REFERENCES session,
    job     INTEGER NOT NULL REFERENCES job,
    PRIMARY KEY (session, job)
) WITHOUT ROWID;

-- A model of a JOB.
CREATE TABLE model (
    model    INTEGER PRIMARY KEY,
    job      INTEGER NOT NULL REFERENCES job,
    name     TEXT NOT NULL,
    model_id INTEGER NOT NULL,
    aicore   INTEGER NOT NULL DEFAULT 0, -- 1 when it has logs of that unit, as below
    aicpu    INTEGER NOT NULL DEFAULT 0,
    spellings TEXT NOT NULL DEFAULT '',  -- prefixes of its log names, with blanks between
    UNIQUE (job, name, model_id)
);

-- The layers of one profiling record: a run of fused layers has one row.
CREATE TABLE layer (
    model       INTEGER NOT NULL REFERENCES model,
    layer_index INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    layer_id    INTEGER NOT NULL,
    name        TEXT NOT NULL,
    type        TEXT NOT NULL,
    PRIMARY KEY (model, layer_index)
) WITHOUT ROWID;

-- One file of a JOB. `offset` is how far its bytes are durable in the mirror and in these tables.
CREATE TABLE log (
    log        INTEGER PRIMARY KEY,
    job        INTEGER NOT NULL REFERENCES job,
    path       NOT NULL,                -- TEXT, or BLOB where the name is not UTF-8
    shown_path TEXT NOT NULL,           -- for people: \xff where the name is not UTF-8
    kind       TEXT NOT NULL,           -- aicore, aicpu, acl_api, cont, net_info, layer_info, info_json, done, foreign
    model      INTEGER REFERENCES model,
    generation INTEGER NOT NULL,
    offset     INTEGER NOT NULL,
    complete   INTEGER NOT NULL,        -- 1 when the board confirmed size and digest, 2 when the log was removed from the board
    digest     BLOB,                    -- BLAKE2b-16 of a complete log
    kept       INTEGER NOT NULL DEFAULT 1, -- 0 when skipped on purpose: no rows, and perhaps no file in the mirror
    whole       INTEGER NOT NULL DEFAULT 0, -- how many inferences of an aicore or aicpu log are complete
    fault       TEXT,                   -- what is wrong with the last one
    UNIQUE (job, path)
);

-- A range of a log that one session fetched. A record's key is part * 2^24 + its number in the part.
CREATE TABLE part (
    part         INTEGER PRIMARY KEY,
    log          INTEGER NOT NULL REFERENCES log,
    session      INTEGER NOT NULL REFERENCES session,
    first_record INTEGER NOT NULL
);
CREATE INDEX part_of_log ON part (log);                     -- the parts to continue or to drop

-- One sampled inference. `load` counts inferences in one file: 0, then 1 when the model was loaded again.
CREATE TABLE inference (
    inference         INTEGER PRIMARY KEY,
    session           INTEGER NOT NULL REFERENCES session, -- the session that fetched its first record
    model             INTEGER NOT NULL REFERENCES model,
    device_id         INTEGER NOT NULL,
    stream_id         INTEGER,          -- NULL where file names carry none
    batch_num         INTEGER NOT NULL,
    input_pic_num     INTEGER NOT NULL,
    current_pic_count NOT NULL,         -- INTEGER, or TEXT from 2^63 on
    load              INTEGER NOT NULL,
    start_us          INTEGER,
    end_us            INTEGER,
    cache_hit         INTEGER,
    cache_miss        INTEGER,
    online_batch_num  TEXT,
    complete          INTEGER NOT NULL, -- 1 when its aicore .done is here
    whole             INTEGER NOT NULL DEFAULT 0, -- 1 when all its records are here
    figures           TEXT NOT NULL DEFAULT 'pending', -- state of its time: final, pending (a part has not come),
                                        -- or partial (a part will never come)
    why               TEXT              -- reason why they are not final
);
CREATE UNIQUE INDEX inference_of_file ON inference          -- the inference that a file's records belong to
    (model, current_pic_count, load, batch_num, input_pic_num, device_id, ifnull(stream_id, -1));

CREATE INDEX inference_pending ON inference (model) WHERE figures = 'pending'; -- what the end of a capture settles

CREATE INDEX inference_loaded_again ON inference (model) WHERE load > 0; -- models whose picture counts began anew

-- A sampled inference, known by the name of one of its files, whether it was stored, skipped or lost on the way.
-- Counts from 2^63 on, which SQLite's integers do not hold, have no row.
CREATE TABLE sample (
    model             INTEGER NOT NULL REFERENCES model,
    current_pic_count INTEGER NOT NULL,
    input_pic_num     INTEGER NOT NULL, -- 0 where its files disagree
    kept              INTEGER NOT NULL, -- 0 when it was skipped on purpose
    session           INTEGER REFERENCES session, -- the first that had more of it than a name; NULL: none has
    PRIMARY KEY (model, current_pic_count)
) WITHOUT ROWID;

-- How completely a model was sampled while a session captured it: its samples, and what was due since the sample before
-- each, whichever session has that. The rows of a model's sessions so add up to the model. NULL means "unknown".
-- Written when the JOB or the session has ended; a known figure never changes. A later sample deletes the row.
CREATE TABLE sampling (
    model         INTEGER NOT NULL REFERENCES model,
    session       INTEGER NOT NULL REFERENCES session,
    input_pic_num INTEGER,              -- pictures of every inference, 0 where they differ
    sampled       INTEGER NOT NULL,
    passed_over   INTEGER NOT NULL,     -- skipped on purpose, of these
    interval      INTEGER,
    interval_from TEXT,                 -- acl.json or inferred
    due           INTEGER,              -- sampled, and those that were due and never came
    late          INTEGER,
    never_came    INTEGER,
    why           TEXT,                 -- reason why `due` is unknown
    PRIMARY KEY (model, session)
) WITHOUT ROWID;

-- A network segment of an inference, on one of the two units.
CREATE TABLE segment (
    segment    INTEGER PRIMARY KEY,
    log        INTEGER NOT NULL REFERENCES log,
    inference  INTEGER NOT NULL REFERENCES inference,
    kind       TEXT NOT NULL,           -- aicore or aicpu
    ordinal    INTEGER NOT NULL,        -- position in its file, over all loads
    net        INTEGER NOT NULL,        -- word 0xFC or 0x7C of its records
    start_us   INTEGER,
    end_us     INTEGER,
    ticks      INTEGER NOT NULL,        -- sum over its records; 0 for aicpu
    records    INTEGER                  -- their number if they stand together in the file, else NULL
);
CREATE INDEX segment_of_inference ON segment (inference);   -- placing segments in time
CREATE INDEX segment_of_log ON segment (log, ordinal);      -- the segment to continue, or all to drop

-- A record of the NPU; the counters are those of `op_records`.
CREATE TABLE aicore (
    record          INTEGER PRIMARY KEY,
    segment         INTEGER NOT NULL REFERENCES segment,
    sequence        INTEGER NOT NULL,   -- word 0x00
    layer_index     INTEGER,            -- NULL where no layer is known
    ticks           INTEGER NOT NULL,   -- word 0x04
    ticks_before    INTEGER NOT NULL,   -- sum of ticks of the segment's earlier records
    mac_busy        REAL,
    mac_ppen        REAL,
    vec_busy        REAL,
    vec_ppen        REAL,
    dstr            REAL,
    dtrans          REAL,
    dld             REAL,
    wld             REAL,
    scalar          REAL,
    ddr_read_bytes  REAL,
    ddr_write_bytes REAL
);

-- A record of the CPU.
CREATE TABLE aicpu (
    record      INTEGER PRIMARY KEY,
    segment     INTEGER NOT NULL REFERENCES segment,
    sequence    INTEGER NOT NULL,
    layer_index INTEGER,
    begin_us    INTEGER NOT NULL,       -- times from 2^63 on, here and in api, are REAL
    end_us      INTEGER NOT NULL
);

-- A recorded call.
CREATE TABLE api (
    record   INTEGER PRIMARY KEY,
    api      INTEGER NOT NULL,
    begin_us INTEGER NOT NULL,          -- 0 for a call that began before profiling was started
    end_us   INTEGER NOT NULL,
    pid      INTEGER NOT NULL,
    tid      INTEGER NOT NULL
);

-- Names of the calls.
CREATE TABLE api_name (
    api  INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    type TEXT NOT NULL
);
INSERT INTO api_name VALUES
    (0, 'svp_acl_mdl_load_from_mem', 'model'),
    (1, 'svp_acl_mdl_unload', 'model'),
    (2, 'svp_acl_mdl_execute', 'model'),
    (3, 'svp_acl_mdl_execute_async', 'model'),
    (4, 'svp_acl_rt_synchronize_stream', 'runtime'),
    (5, 'svp_acl_ext_process_aicpu_task', 'ext');

-- Losses and notes. `first` and `last` are byte offsets in the log, NULL where the entry is about no place in it.
CREATE TABLE ledger_entry (
    entry   INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session,
    job     INTEGER REFERENCES job,
    log     INTEGER REFERENCES log,
    origin  TEXT NOT NULL,              -- what the entry follows from. content: the log's bytes; ring: the
                                        -- times of its calls; numbers: the numbers of a board's marks;
                                        -- link: the transfer; board: the daemon's own list;
                                        -- sampling: picture counts of a model; counters: their values
    grade   TEXT NOT NULL CHECK (grade IN ('loss', 'note')),
    reason  TEXT NOT NULL,
    detail  TEXT NOT NULL,
    first   INTEGER,
    last    INTEGER,
    count   INTEGER NOT NULL
);
CREATE INDEX ledger_of_log ON ledger_entry (log);           -- replacing the entries that follow from a log's bytes

CREATE INDEX ledger_of_job ON ledger_entry (job) WHERE log IS NULL; -- losses that have no name, notes about samples

-- Losses that a board's daemon keeps and repeats on every stream, because nobody may have listened. Each has one row, of
-- the session that heard it first, with the newest figures, and an entry in the ledger.
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

-- Sessions whose records `profagent gc` deleted, and what they held.
CREATE TABLE cleared_session (
    session    INTEGER PRIMARY KEY REFERENCES session,
    cleared_us INTEGER NOT NULL,        -- host wall clock
    inferences INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,        -- of its JOBs' mirrored files
    lake       TEXT                     -- address of the lake that has its records; NULL for none
);

-- Figures of a session, as `profagent stats` shows them, stored where they are to outlive its records.
CREATE TABLE figure (
    session INTEGER NOT NULL REFERENCES session,
    by      TEXT NOT NULL,              -- layer, type, model, segment, aicpu, api or step
    place   INTEGER NOT NULL,           -- position of the row in its table
    key     TEXT NOT NULL,              -- subject of the row: a JSON array of names
    unit    TEXT NOT NULL,              -- us or ticks
    number  INTEGER NOT NULL,
    total   REAL,                       -- NULL, here and below: not known
    mean    REAL,
    median  REAL,
    mad     REAL,
    p95     REAL,
    p99     REAL,
    max     REAL,
    share   REAL,                       -- of the inference's time, by step of the total of all rows, by api of their own time, in %
    bound   TEXT,
    in_inference REAL,                  -- time in the mean inference
    about   TEXT,                       -- of a model its layers, pace, origin of its latency; of a function its own time: JSON
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

-- The views. What a column means stands above its view as `--   column  meaning`, or `--   column, column` where the
-- names tell it; tools/make_reference.py prints it.
-- Columns of several views:
--   session            number of the session that fetched the row
--   board              identity of the board: a UUID or machine id; `import` for copied JOBs
--   stream_id          stream of the device; NULL where file names carry none
--   batch_num          batch size compiled into the model
--   input_pic_num      pictures of the inference
--   current_pic_count  pictures that the model had executed before
--   layer_index        index in the model's layer table
--   layer_id           id of the first of the fused layers
--   ori_layer_name     always NULL: no known file has the name before compilation
--   layer_name         names of the fused layers, with `+` between
--   layer_type         types of the fused layers, with `+` between
--   figures            state of the inference's figures: `final`, `pending` or `partial`
--   job, device_id, model, model_id

-- JOBs whose figures belong to a session: it was the first that had the JOB, or it fetched a record of it.
--   job  number of the JOB in the table `job`
CREATE VIEW fetched_jobs AS
SELECT s.session, s.job FROM session_job s
WHERE NOT EXISTS (SELECT 1 FROM session_job o WHERE o.job = s.job AND o.session < s.session)
   OR EXISTS (SELECT 1 FROM log JOIN part USING (log) WHERE log.job = s.job AND part.session = s.session);

-- Captures and imports.
--   source              `record`, `watch`, `import` or `collect`
--   address             where the board was reached, or the JOB directory
--   started_us          begin, by the host's clock; of another tool's results the time of its run, where known
--   ended_us            end, by the same clock; NULL while `record` may continue the session
--   simulated           1 if the board is simulated and the figures are invented
--   sdk_version         the board's SDK; empty where it cannot be read
--   labels              `key=value` pairs, separated by spaces
--   jobs                number of JOBs, and of collections of other sources
--   losses              sum of `count` of its losses in the ledger
--   keeping             choice of inferences that the session stores; NULL for all
--   sampled             inferences of the session that the board sampled; NULL while more may come
--   due                 those, and the ones that should have been sampled before each; NULL if unknown
--   passed_over         sampled inferences that were skipped on purpose
--   cleared_us          time at which `profagent gc` deleted the records; NULL where they are here
--   lake                address of the lake that has the deleted records; NULL for none
--   counter_map_digest  digest of the counter map's effect on records
--   complete            1 if the session has ended, nothing that existed is missing, and everything asked for had come
--   session, hostname, daemon_version, counter_map, inferences, notes
CREATE VIEW sessions AS
SELECT s.session, b.identity AS board, b.hostname, s.source, s.address, s.started_us, s.ended_us, s.simulated,
       s.daemon_version, s.sdk_version, s.counter_map,
       (SELECT group_concat(key || '=' || value, ' ') FROM session_label WHERE session = s.session) AS labels,
       (SELECT count(*) FROM session_job WHERE session = s.session) AS jobs,
       ifnull(c.inferences, (SELECT count(*) FROM inference WHERE session = s.session)) AS inferences,
       (SELECT ifnull(sum(count), 0) FROM ledger_entry WHERE session = s.session AND grade = 'loss') AS losses,
       (SELECT ifnull(sum(count), 0) FROM ledger_entry WHERE session = s.session AND grade = 'note') AS notes,
       s.keeping,
       CASE WHEN f.is_open THEN NULL ELSE ifnull(f.sampled, 0) END AS sampled,
       CASE WHEN f.is_open THEN NULL ELSE f.due END AS due,
       CASE WHEN f.is_open THEN NULL ELSE ifnull(f.passed_over, 0) END AS passed_over, c.cleared_us,
       c.lake, s.counter_map_digest,
       s.ended_us IS NOT NULL AND NOT EXISTS (
           SELECT 1 FROM ledger_entry WHERE session = s.session
           AND (grade = 'loss' OR reason IN ('stopped-early', 'not-covered', 'nothing-recorded'))) AS complete
FROM session s JOIN board b USING (board) LEFT JOIN cleared_session c USING (session)
LEFT JOIN (SELECT j.session, sum(g.sampled) AS sampled, CASE WHEN count(*) = count(g.due) THEN sum(g.due) END AS due,
                  sum(g.passed_over) AS passed_over, max(g.sampled IS NULL) AS is_open
           FROM session_job j JOIN model m USING (job)
           LEFT JOIN sampling g ON g.model = m.model AND g.session = j.session
           WHERE g.sampled IS NOT NULL
              OR EXISTS (SELECT 1 FROM sample x WHERE x.model = m.model AND x.session = j.session)
           GROUP BY j.session) f USING (session);

-- How captures followed their boards, in adjoining intervals.
--   job       JOB that alone was behind; NULL for an interval of the board
--   from_us   begin of the interval, by the host's clock
--   standing  `covered`: the board was followed; `behind`: much was still to come; `silent`: the link was
--             open, and the board said nothing; `away`: there was no link; `connecting`: there was none yet; `paused`:
--             the host's disk was full
--   detail    reason of the standing, where it is known
--   to_us, duration_us
CREATE VIEW coverage AS
SELECT session, nullif(job_name, '') AS job, from_us, to_us, to_us - from_us AS duration_us, standing,
       nullif(detail, '') AS detail
FROM coverage_interval;

-- Sampled inferences.
--   load              0 for the first load of the model in its JOB, 1 and more for later ones
--   cache_hit         hits of the instruction cache, from `.done`
--   start_us          launch of the first aicore segment, from `.done`
--   end_us            end of the last aicore segment, from `.done`
--   online_batch_num  run-time batches, separated by commas
--   complete          1 if an aicore `.done` is here
--   cache_miss, inference, why
CREATE VIEW inferences AS
SELECT i.session, b.identity AS board, j.name AS job, i.device_id, m.name AS model, m.model_id, i.stream_id,
       i.batch_num, i.input_pic_num, i.current_pic_count, i.load, i.cache_hit, i.cache_miss, i.start_us, i.end_us,
       i.online_batch_num, i.complete, i.inference, i.figures, i.why
FROM inference i JOIN model m USING (model) JOIN job j USING (job) JOIN board b USING (board);

-- Records of aicore: a layer on the NPU, or several fused ones. The last eleven figures need a counter map, or another
-- tool's counters; nine of them are shares of the layer's time, from 0 to 1.
--   segment      number of the segment, word 0xFC of the record
--   sequence     number of the record in its segment, word 0x00
--   start_us     start of the segment + durations of its earlier records
--   duration_us  duration: ticks x 100 / MHz of `info.json`
--   ticks        duration as the record has it, word 0x04
--   mac_busy     time in which cube instructions ran
--   mac_ppen     time in which cube instructions worked effectively
--   vec_busy     time in which vector instructions ran
--   vec_ppen     time in which vector instructions worked effectively
--   dstr         time of storing data to DDR
--   dtrans       time of moving and transforming data inside the NPU
--   dld          time of loading images and feature maps
--   wld          time of loading weights
--   scalar       time in which the scalar unit ran; other Ascend devices have this counter, an SS928 does not
--   ddr_read_bytes, ddr_write_bytes
CREATE VIEW op_records AS
SELECT p.session, b.identity AS board, j.name AS job, i.device_id, m.name AS model, m.model_id, i.stream_id,
       i.batch_num, i.input_pic_num, i.current_pic_count, g.net AS segment, r.sequence, r.layer_index, l.layer_id,
       NULL AS ori_layer_name, l.name AS layer_name, l.type AS layer_type,
       g.start_us + r.ticks_before * 100.0 / j.frequency_mhz AS start_us,
       r.ticks * 100.0 / j.frequency_mhz AS duration_us, r.ticks,
       r.mac_busy, r.mac_ppen, r.vec_busy, r.vec_ppen, r.dstr, r.dtrans, r.dld, r.wld, r.scalar,
       r.ddr_read_bytes, r.ddr_write_bytes, i.figures
FROM aicore r JOIN part p ON p.part = r.record >> 24
JOIN segment g USING (segment) JOIN inference i USING (inference) JOIN model m USING (model) JOIN job j USING (job)
JOIN board b USING (board) LEFT JOIN layer l ON l.model = m.model AND l.layer_index = r.layer_index;

-- Records of aicpu: a layer on the CPU.
--   segment   number of the segment, word 0x7C of the record
--   sequence, start_us, duration_us, segment_start_us, segment_end_us
CREATE VIEW aicpu_records AS
SELECT p.session, b.identity AS board, j.name AS job, i.device_id, m.name AS model, m.model_id, i.stream_id,
       i.batch_num, i.input_pic_num, i.current_pic_count, g.net AS segment, r.sequence, r.layer_index, l.layer_id,
       NULL AS ori_layer_name, l.name AS layer_name, l.type AS layer_type,
       r.begin_us AS start_us, r.end_us - r.begin_us AS duration_us, g.start_us AS segment_start_us,
       g.end_us AS segment_end_us, i.figures
FROM aicpu r JOIN part p ON p.part = r.record >> 24
JOIN segment g USING (segment) JOIN inference i USING (inference) JOIN model m USING (model) JOIN job j USING (job)
JOIN board b USING (board) LEFT JOIN layer l ON l.model = m.model AND l.layer_index = r.layer_index;

-- Recorded calls of the runtime's API.
--   name         name of the function; `unknown(id)` for an unknown id; id 0 is shown as `svp_acl_mdl_load_from_mem`
--   type         `model`, `runtime`, `ext` or `N/A`
--   begin_us     begin of the call; NULL for a call that began before profiling was started
--   pid, tid, end_us, duration_us
CREATE VIEW api_records AS
SELECT p.session, j.name AS job, m.name AS model, m.model_id,
       ifnull(n.name, 'unknown(' || r.api || ')') AS name, ifnull(n.type, 'N/A') AS type, r.pid, r.tid,
       nullif(r.begin_us, 0) AS begin_us, r.end_us, r.end_us - nullif(r.begin_us, 0) AS duration_us
FROM part p CROSS JOIN log g USING (log) CROSS JOIN model m USING (model) CROSS JOIN job j ON j.job = g.job
-- Parts come first: a session's calls are then found by their keys, and no others are read.
CROSS JOIN api r ON r.record BETWEEN p.part * 0x1000000 AND p.part * 0x1000000 + 0xFFFFFF LEFT JOIN api_name n USING (api)
WHERE g.kind = 'acl_api';

-- Losses and notes; `profagent ledger` explains the reasons.
--   job     number of the JOB; NULL where the entry is about the session
--   log     file in the JOB; NULL where the entry is about the JOB
--   first   first byte of the place in the file; NULL where the entry is about no place
--   count   number of records, files, bytes or calls
--   last, grade, reason, detail
CREATE VIEW ledger AS
SELECT e.session, j.name AS job, g.shown_path AS log, e.grade, e.reason, e.detail, e.first, e.last, e.count
FROM ledger_entry e LEFT JOIN job j USING (job) LEFT JOIN log g USING (log);

-- How completely the runtime sampled each model of a JOB, over all sessions, before any choice by `record`.
--   interval_from  `acl.json`, or `inferred` from picture counts
--   acl_json       file on the board that has the interval
--   due            inferences that were sampled, and those that should have been and never came
--   passed_over    sampled inferences that were skipped on purpose
--   why            reason why `due` is unknown
--   interval, sampled, late, never_came
CREATE VIEW sampling_by_model AS
SELECT b.identity AS board, j.name AS job, m.name AS model, m.model_id,
       CASE WHEN min(s.interval) = max(s.interval) THEN min(s.interval) END AS interval,
       CASE WHEN min(s.interval) = max(s.interval) THEN max(s.interval_from) END AS interval_from, j.acl_json,
       sum(s.sampled) AS sampled, CASE WHEN count(*) = count(s.due) THEN sum(s.due) END AS due,
       CASE WHEN count(*) = count(s.late) THEN sum(s.late) END AS late,
       CASE WHEN count(*) = count(s.never_came) THEN sum(s.never_came) END AS never_came,
       sum(s.passed_over) AS passed_over, max(s.why) AS why
FROM sampling s JOIN model m USING (model) JOIN job j USING (job) JOIN board b USING (board)
LEFT JOIN cleared_session c ON c.session = s.session
WHERE c.session IS NULL OR NOT EXISTS (SELECT 1 FROM sampling o WHERE o.model = s.model
                                       AND o.session NOT IN (SELECT session FROM cleared_session))
GROUP BY m.model;

-- Neighbouring samples whose distance is not the interval; a model that was loaded again has no rows.
--   pic_count_before  pictures before the earlier sample
--   inferences        distance of the two samples, in inferences
--   late_by           delay of the later sample, in inferences
--   never_came        samples between the two that never came
CREATE VIEW sample_gaps AS
SELECT b.identity AS board, j.name AS job, m.name AS model, m.model_id, g.before AS pic_count_before,
       g.current_pic_count, g.inferences, g.inferences % g.interval AS late_by,
       g.inferences / g.interval - 1 AS never_came
FROM (SELECT x.model, s.interval, x.current_pic_count, x.before,
             (x.current_pic_count - x.before) / s.input_pic_num AS inferences
      FROM (SELECT *, lag(current_pic_count) OVER (PARTITION BY model ORDER BY current_pic_count) AS before
            FROM sample) x
      JOIN sampling s ON s.model = x.model AND s.session = x.session
      WHERE s.due IS NOT NULL AND s.interval > 0
            AND NOT EXISTS (SELECT 1 FROM inference i WHERE i.model = x.model AND i.load > 0)) g
JOIN model m USING (model) JOIN job j USING (job) JOIN board b USING (board)
WHERE g.inferences <> g.interval;

-- Losses that a board's daemon keeps, because nobody may have listened. Each is in `ledger` as well.
--   session  session that heard of the loss first
--   job      number of the JOB; NULL where the loss is about the board
--   to_us    end of the loss, as far as is known
--   id       the daemon's number for the loss, 16 hexadecimal digits
--   from_us, reason, detail, lost_logs, lost_bytes
CREATE VIEW kept_losses AS
SELECT e.session, b.identity AS board, k.job_name AS job, e.reason, e.detail, k.lost_logs, k.lost_bytes, k.from_us,
       k.to_us, k.id
FROM kept_loss k JOIN ledger_entry e USING (entry) JOIN board b USING (board);
