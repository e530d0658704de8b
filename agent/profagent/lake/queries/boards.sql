-- Boards beside the rest: each one's latency of a model, and how far it is from the middle of all boards.
--   median  the middle of its sessions' medians
--   off     from the middle of the boards, in %
--   spread  how far the boards are from it in the middle, in %
WITH own AS (
    SELECT l.board, l.model, count(*) AS sessions, percentile_cont(0.5) WITHIN GROUP (ORDER BY l.median) AS median
    FROM layers l JOIN chosen c ON c.push = l.push
    WHERE l.kind = 'latency' AND l.median IS NOT NULL
    GROUP BY l.board, l.model
), middles AS (
    SELECT model, count(*) AS boards, percentile_cont(0.5) WITHIN GROUP (ORDER BY median) AS middle
    FROM own GROUP BY model
), spreads AS (
    SELECT o.model, percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(o.median - m.middle)) AS spread
    FROM own o JOIN middles m ON m.model = o.model GROUP BY o.model
)
SELECT o.board, o.model, o.sessions, o.median, 100 * (o.median - m.middle) / m.middle AS off,
       100 * s.spread / m.middle AS spread, m.boards
FROM own o JOIN middles m ON m.model = o.model JOIN spreads s ON s.model = o.model
ORDER BY abs(o.median - m.middle) / m.middle DESC, o.board, o.model
