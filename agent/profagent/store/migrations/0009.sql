-- Of version 8: whether the figures of an inference are known.

ALTER TABLE log ADD COLUMN whole INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log ADD COLUMN fault TEXT;
ALTER TABLE inference ADD COLUMN whole INTEGER NOT NULL DEFAULT 0;
ALTER TABLE inference ADD COLUMN figures TEXT NOT NULL DEFAULT 'pending';
ALTER TABLE inference ADD COLUMN why TEXT;

-- What was captured before is known where the board vouched for all logs of an inference.
UPDATE log SET whole = (SELECT ifnull(max(stretch) + 1, 0) FROM segment g JOIN inference USING (inference) WHERE g.log = log.log)
WHERE complete > 0 AND kind IN ('aicore', 'aicpu');
UPDATE inference SET whole = NOT EXISTS
    (SELECT 1 FROM segment g JOIN log l USING (log) WHERE g.inference = inference.inference AND l.whole <= stretch);
UPDATE inference SET figures = 'final' WHERE whole;
UPDATE inference SET figures = 'partial', why = 'an earlier version captured it, and not all of it' WHERE NOT whole;
UPDATE inference SET figures = 'partial', why = 'there is no info.json, which tells the NPU''s clock'
WHERE whole AND EXISTS (SELECT 1 FROM segment g WHERE g.inference = inference.inference AND kind = 'aicore')
  AND (SELECT frequency_mhz FROM model JOIN job USING (job) WHERE model.model = inference.model) IS NULL;

CREATE INDEX inference_pending ON inference (model) WHERE figures = 'pending';

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
       CASE WHEN f.shared THEN NULL ELSE ifnull(f.sampled, 0) END AS sampled,
       CASE WHEN f.shared THEN NULL ELSE f.due END AS due,
       CASE WHEN f.shared THEN NULL ELSE ifnull(f.passed_over, 0) END AS passed_over, c.cleared_us,
       s.counter_map_digest,
       EXISTS (SELECT 1 FROM ledger_entry WHERE session = s.session AND reason = 'stopped-early') AS stopped_early
FROM session s JOIN board b USING (board) LEFT JOIN cleared_session c USING (session)
LEFT JOIN (SELECT session, sum(sampled) AS sampled, CASE WHEN count(*) = count(due) THEN sum(due) END AS due,
                  sum(passed_over) AS passed_over,
                  max(EXISTS (SELECT 1 FROM fetched_jobs o WHERE o.job = f.job AND o.session <> f.session)) AS shared
           FROM fetched_jobs f JOIN model USING (job) JOIN sampling USING (model) GROUP BY session) f USING (session);

DROP VIEW inferences;
CREATE VIEW inferences AS
SELECT i.session, b.identity AS board, j.name AS job, i.device_id, m.name AS model, m.model_id, i.stream_id,
       i.batch_num, i.input_pic_num, i.current_pic_count, i.stretch, i.cache_hit, i.cache_miss, i.start_us, i.end_us,
       i.online_batch_num, i.complete, i.inference, i.figures, i.why
FROM inference i JOIN model m USING (model) JOIN job j USING (job) JOIN board b USING (board);

DROP VIEW op_records;
CREATE VIEW op_records AS
SELECT p.session, b.identity AS board, j.name AS job, i.device_id, m.name AS model, m.model_id, i.stream_id,
       i.batch_num, i.input_pic_num, i.current_pic_count, g.net AS segment, r.sequence, r.layer_index, l.layer_id,
       NULL AS ori_layer_name, l.name AS layer_name, l.type AS layer_type,
       g.start_us + r.ticks_before * 100.0 / j.frequency_mhz AS start_us,
       r.ticks * 100.0 / j.frequency_mhz AS duration_us, r.ticks,
       r.mac_busy, r.mac_ppen, r.vec_busy, r.vec_ppen, r.dstr, r.dtrans, r.dld, r.wld,
       r.ddr_read_bytes, r.ddr_write_bytes, i.figures
FROM aicore r JOIN part p ON p.part = r.record >> 24
JOIN segment g USING (segment) JOIN inference i USING (inference) JOIN model m USING (model) JOIN job j USING (job)
JOIN board b USING (board) LEFT JOIN layer l ON l.model = m.model AND l.layer_index = r.layer_index;

DROP VIEW aicpu_records;
CREATE VIEW aicpu_records AS
SELECT p.session, b.identity AS board, j.name AS job, i.device_id, m.name AS model, m.model_id, i.stream_id,
       i.batch_num, i.input_pic_num, i.current_pic_count, g.net AS segment, r.sequence, r.layer_index, l.layer_id,
       NULL AS ori_layer_name, l.name AS layer_name, l.type AS layer_type,
       r.begin_us AS start_us, r.end_us - r.begin_us AS duration_us, g.start_us AS segment_start_us,
       g.end_us AS segment_end_us, i.figures
FROM aicpu r JOIN part p ON p.part = r.record >> 24
JOIN segment g USING (segment) JOIN inference i USING (inference) JOIN model m USING (model) JOIN job j USING (job)
JOIN board b USING (board) LEFT JOIN layer l ON l.model = m.model AND l.layer_index = r.layer_index;

PRAGMA user_version = 9;
