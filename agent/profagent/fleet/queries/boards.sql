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
), beside AS (
    SELECT o.*, 100 * (o.median - m.middle) / m.middle AS off, m.boards
    FROM own o JOIN middles m ON m.model = o.model AND m.measure = o.measure
), spreads AS (
    SELECT model, measure, percentile_cont(0.5) WITHIN GROUP (ORDER BY abs(off)) AS spread
    FROM beside GROUP BY model, measure
)
SELECT b.board, b.model, b.layer, b.measure, b.sessions, b.median, b.off, s.spread, b.boards
FROM beside b JOIN spreads s ON s.model = b.model AND s.measure = b.measure
ORDER BY abs(b.off) DESC, b.board, b.model
