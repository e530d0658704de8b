-- How much takes longer than a budget, board by board, to 0.1 % of the time, from the histograms.
--   share  of the model's inferences, or of the layer's records, that take longer, in %
SELECT b.board, b.model, b.layer, sum(b.number) AS number,
       sum(CASE WHEN b.bucket > a.bucket THEN b.number ELSE 0 END) AS longer,
       100e0 * sum(CASE WHEN b.bucket > a.bucket THEN b.number ELSE 0 END) / sum(b.number) AS share
FROM buckets b CROSS JOIN budget a
WHERE b.measure = 'us'
GROUP BY b.board, b.model, b.layer
ORDER BY share DESC, b.board, b.model
