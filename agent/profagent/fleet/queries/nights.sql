-- What takes the time, night by night over all boards: each layer of a model, or its inferences (`layer` is NULL).
--   mean         of all times
--   median, p95  of all times together, to 0.1 %, from the histograms
WITH own AS (
    SELECT date, model, layer, type, unit, measure, count(DISTINCT board) AS boards, sum(number) AS number,
           sum(total) AS total, sum(total) / sum(number) AS mean
    FROM figures
    GROUP BY date, model, layer, type, unit, measure
), summed AS (
    SELECT date, model, layer, type, unit, measure, bucket, sum(number) AS number
    FROM buckets
    GROUP BY date, model, layer, type, unit, measure, bucket
), ranked AS (
    SELECT *, coalesce(power(1.001e0 / 0.999e0, bucket + 0.5), 0e0) AS middle,
           sum(number) OVER (PARTITION BY date, model, layer, type, unit, measure
                             ORDER BY bucket NULLS FIRST ROWS UNBOUNDED PRECEDING) AS upto,
           sum(number) OVER (PARTITION BY date, model, layer, type, unit, measure) AS of_all
    FROM summed
), quantiles AS (
    SELECT date, model, layer, type, unit, measure, min(CASE WHEN upto >= 0.5e0 * of_all THEN middle END) AS median,
           min(CASE WHEN upto >= 0.95e0 * of_all THEN middle END) AS p95
    FROM ranked
    GROUP BY date, model, layer, type, unit, measure
)
SELECT o.date, o.model, o.layer, o.type, o.unit, o.measure, o.boards, o.number, o.total, o.mean, q.median, q.p95
FROM own o
LEFT JOIN quantiles q ON q.date = o.date AND q.model = o.model AND q.measure = o.measure
                         AND q.layer IS NOT DISTINCT FROM o.layer AND q.type IS NOT DISTINCT FROM o.type
                         AND q.unit IS NOT DISTINCT FROM o.unit
ORDER BY o.date, o.model, o.total DESC NULLS LAST, o.layer
