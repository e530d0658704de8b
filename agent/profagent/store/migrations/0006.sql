-- Of version 5: neighbours of a model that was loaded again are those of each load, which names do not tell.

DROP VIEW sample_gaps;
CREATE VIEW sample_gaps AS
SELECT b.identity AS board, j.name AS job, m.name AS model, m.model_id, g.before AS pic_count_before,
       g.current_pic_count, g.inferences, g.inferences % g.interval AS late_by,
       g.inferences / g.interval - 1 AS never_came
FROM (SELECT x.model, s.interval, x.current_pic_count,
             lag(x.current_pic_count) OVER (PARTITION BY x.model ORDER BY x.current_pic_count) AS before,
             (x.current_pic_count - lag(x.current_pic_count) OVER (PARTITION BY x.model ORDER BY x.current_pic_count))
             / s.input_pic_num AS inferences
      FROM sample x JOIN sampling s USING (model) WHERE s.due IS NOT NULL AND s.interval > 0
            AND NOT EXISTS (SELECT 1 FROM inference i WHERE i.model = x.model AND i.stretch > 0)) g
JOIN model m USING (model) JOIN job j USING (job) JOIN board b USING (board)
WHERE g.inferences <> g.interval;

PRAGMA user_version = 6;
