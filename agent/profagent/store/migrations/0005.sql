-- Of version 4: the counter map of a session is told by its digest, too.

ALTER TABLE session ADD COLUMN counter_map_digest TEXT;

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
       ifnull(f.sampled, 0) AS sampled, f.due, ifnull(f.passed_over, 0) AS passed_over, c.cleared_us,
       s.counter_map_digest
FROM session s JOIN board b USING (board) LEFT JOIN cleared_session c USING (session)
LEFT JOIN (SELECT session, sum(sampled) AS sampled, CASE WHEN count(*) = count(due) THEN sum(due) END AS due,
                  sum(passed_over) AS passed_over
           FROM fetched_jobs JOIN model USING (job) JOIN sampling USING (model) GROUP BY session) f USING (session);

PRAGMA user_version = 5;
