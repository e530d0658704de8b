-- The latency of each model, night by night, over all boards.
--   median, p95  of all inferences together, to 0.1 %, from the histograms
WITH figures AS (
    SELECT l.date, l.model, count(DISTINCT l.board) AS boards, sum(l.number) AS inferences,
           sum(l.total) / sum(l.number) AS mean
    FROM layers l JOIN chosen c ON c.push = l.push
    WHERE l.kind = 'latency'
    GROUP BY l.date, l.model
), buckets AS (
    SELECT h.date, h.model, h.bucket, sum(h.number) AS number
    FROM histograms h JOIN chosen c ON c.push = h.push
    WHERE h.kind = 'latency'
    GROUP BY h.date, h.model, h.bucket
), ranked AS (
    SELECT *, sum(number) OVER (PARTITION BY date, model ORDER BY bucket NULLS FIRST ROWS UNBOUNDED PRECEDING) AS upto,
           sum(number) OVER (PARTITION BY date, model) AS of_all
    FROM buckets
), quantiles AS (
    SELECT date, model, min(CASE WHEN upto >= 0.5e0 * of_all THEN bucket END) AS middle,
           min(CASE WHEN upto >= 0.95e0 * of_all THEN bucket END) AS high
    FROM ranked
    GROUP BY date, model
)
SELECT f.date, f.model, f.boards, f.inferences, f.mean, power(1.001e0 / 0.999e0, q.middle + 0.5) AS median,
       power(1.001e0 / 0.999e0, q.high + 0.5) AS p95
FROM figures f LEFT JOIN quantiles q ON q.date = f.date AND q.model = f.model
ORDER BY f.model, f.date
