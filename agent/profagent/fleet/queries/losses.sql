-- What the captures of each board have, and what they lack, the most losses first.
--   complete      sessions that have all that there was
--   lossy         sessions that lost something
--   sampled, due  inferences that the runtime sampled, and those that it should have
--   covered       seconds for which a capture followed the board, and `lacking` those for which it did not
--   last, missed  the night of its newest session, and how many nights others have had since
WITH followed AS (
    SELECT l.push, sum(CASE WHEN l.standing = 'covered' THEN l.duration_us ELSE 0 END) / 1000000 AS covered,
           sum(CASE WHEN l.standing = 'covered' THEN 0 ELSE l.duration_us END) / 1000000 AS lacking
    FROM ledger l WHERE l.source_view = 'coverage'
    GROUP BY l.push
), own AS (
    SELECT c.board, count(*) AS sessions, sum(c.complete) AS complete,
           sum(CASE WHEN c.losses > 0 THEN 1 ELSE 0 END) AS lossy, sum(c.losses) AS losses, sum(c.notes) AS notes,
           sum(c.inferences) AS inferences, sum(c.sampled) AS sampled, sum(c.due) AS due, sum(f.covered) AS covered,
           sum(f.lacking) AS lacking, max(c.date) AS last
    FROM chosen c LEFT JOIN followed f ON f.push = c.push
    GROUP BY c.board
), later AS (
    SELECT o.board, count(DISTINCT c.date) AS missed FROM own o LEFT JOIN chosen c ON c.date > o.last GROUP BY o.board
)
SELECT o.*, l.missed
FROM own o JOIN later l ON l.board = o.board
ORDER BY o.losses DESC, o.sessions - o.complete DESC, o.board
