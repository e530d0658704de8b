-- What the captures of each board have, and what they lack, the most losses first.
--   complete      sessions that have all that there was
--   sampled, due  inferences that the runtime sampled, and those that it should have
--   covered       seconds for which a capture followed the board, and `lacking` those for which it did not
WITH followed AS (
    SELECT l.push, sum(CASE WHEN l.standing = 'covered' THEN l.duration_us ELSE 0 END) / 1000000 AS covered,
           sum(CASE WHEN l.standing = 'covered' THEN 0 ELSE l.duration_us END) / 1000000 AS lacking
    FROM ledger l WHERE l.source_view = 'coverage'
    GROUP BY l.push
)
SELECT c.board, count(*) AS sessions, sum(c.complete) AS complete, sum(c.losses) AS losses, sum(c.notes) AS notes,
       sum(c.inferences) AS inferences, sum(c.sampled) AS sampled, sum(c.due) AS due, sum(f.covered) AS covered,
       sum(f.lacking) AS lacking
FROM chosen c LEFT JOIN followed f ON f.push = c.push
GROUP BY c.board
ORDER BY sum(c.losses) DESC, count(*) - sum(c.complete) DESC, c.board
