-- What takes the time, night by night: the layers of each model over all boards, what takes most first.
--   mean, median  of the times of all records, and of the medians of the sessions
--   p95           of all records together, to 0.1 %, from the histograms
WITH figures AS (
    SELECT l.date, l.model, l.layer, l.type, l.unit, l.measure, count(DISTINCT l.board) AS boards,
           sum(l.number) AS number, sum(l.total) AS total, sum(l.total) / sum(l.number) AS mean,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY l.median) AS median
    FROM layers l JOIN chosen c ON c.push = l.push
    WHERE l.kind = 'layer'
    GROUP BY l.date, l.model, l.layer, l.type, l.unit, l.measure
), buckets AS (
    SELECT h.date, h.model, h.layer, h.type, h.unit, h.measure, h.bucket, sum(h.number) AS number
    FROM histograms h JOIN chosen c ON c.push = h.push
    WHERE h.kind = 'layer'
    GROUP BY h.date, h.model, h.layer, h.type, h.unit, h.measure, h.bucket
), ranked AS (
    SELECT *, sum(number) OVER (PARTITION BY date, model, layer, type, unit, measure
                                ORDER BY bucket NULLS FIRST ROWS UNBOUNDED PRECEDING) AS upto,
           sum(number) OVER (PARTITION BY date, model, layer, type, unit, measure) AS of_all
    FROM buckets
), quantiles AS (
    SELECT date, model, layer, type, unit, measure, min(bucket) AS bucket
    FROM ranked WHERE upto >= 0.95e0 * of_all
    GROUP BY date, model, layer, type, unit, measure
)
SELECT f.date, f.model, f.layer, f.type, f.unit, f.measure, f.boards, f.number, f.total, f.mean, f.median,
       coalesce(power(1.001e0 / 0.999e0, q.bucket + 0.5), 0e0) AS p95
FROM figures f
LEFT JOIN quantiles q ON q.date = f.date AND q.model = f.model AND q.layer = f.layer AND q.type = f.type
                         AND q.unit = f.unit AND q.measure = f.measure
ORDER BY f.date, f.model, f.total DESC NULLS LAST, f.layer
