-- Boards beside the rest: each one's time of a model's inferences or layer, and how far it is from the middle of all.
--   median  the middle of its sessions' medians
--   off     from the middle of the boards, in %
--   spread  how far the boards are from it in the middle, in %
WITH own AS (
    SELECT board, model, layer, measure, count(*) AS sessions, percentile_cont(0.5) WITHIN GROUP (ORDER BY median) AS median
    FROM figures
    WHERE median IS NOT NULL
    GROUP BY board, model, layer, measure
), middles AS (
    SELECT model, measure, count(*) AS boards, percentile_cont(0.5) WITHIN GROUP (ORDER BY median) AS middle
    FROM own GROUP BY model, measure
), spreads AS (
    SELECT o.model, o.measure, percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(o.median - m.middle)) AS spread
    FROM own o JOIN middles m ON m.model = o.model AND m.measure = o.measure
    GROUP BY o.model, o.measure
)
SELECT o.board, o.model, o.layer, o.measure, o.sessions, o.median, 100 * (o.median - m.middle) / m.middle AS off,
       100 * s.spread / m.middle AS spread, m.boards
FROM own o JOIN middles m ON m.model = o.model AND m.measure = o.measure
JOIN spreads s ON s.model = o.model AND s.measure = o.measure
ORDER BY abs(o.median - m.middle) / m.middle DESC, o.board, o.model
