-- Times that an objective is about, board by board: how many there are, and how many are beyond its bound.
--   number, longer, shorter   of times, and of those above and below the bucket of the bound
--   quantile                  of all times together, to 0.1 %, from the histograms
WITH summed AS (
    SELECT board, model, layer, bucket, sum(number) AS number
    FROM buckets
    WHERE measure = 'us'
    GROUP BY board, model, layer, bucket
), ranked AS (
    SELECT *, coalesce(power(1.001e0 / 0.999e0, bucket + 0.5), 0e0) AS middle,
           sum(number) OVER (PARTITION BY board, model, layer
                             ORDER BY bucket NULLS FIRST ROWS UNBOUNDED PRECEDING) AS upto,
           sum(number) OVER (PARTITION BY board, model, layer) AS of_all
    FROM summed
), counted AS (
    SELECT r.board, r.model, r.layer, min(r.of_all) AS number,
           min(CASE WHEN r.upto >= o.quantile * r.of_all THEN r.middle END) AS quantile,
           sum(CASE WHEN r.bucket > o.bucket THEN r.number ELSE 0 END) AS longer,
           sum(CASE WHEN r.bucket < o.bucket OR r.bucket IS NULL THEN r.number ELSE 0 END) AS shorter
    FROM ranked r CROSS JOIN objective o
    GROUP BY r.board, r.model, r.layer
), own AS (
    SELECT board, model, layer, sum(total) / sum(number) AS mean, min(min) AS least, max(max) AS most
    FROM figures
    WHERE measure = 'us'
    GROUP BY board, model, layer
)
SELECT c.board, c.model, c.layer, c.number, c.longer, c.shorter, c.quantile, o.mean, o.least, o.most
FROM counted c JOIN own o ON o.board = c.board AND o.model = c.model AND o.layer IS NOT DISTINCT FROM c.layer
ORDER BY c.board, c.model, c.layer
