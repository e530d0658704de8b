-- What each layer takes on each board, night by night: the middle of its sessions' medians.
--   layer  NULL for the inferences of a model
SELECT board, model, layer, type, unit, measure, date, percentile_cont(0.5) WITHIN GROUP (ORDER BY median) AS median
FROM figures
WHERE median IS NOT NULL
GROUP BY board, model, layer, type, unit, measure, date
ORDER BY board, model, layer NULLS FIRST, type NULLS FIRST, unit NULLS FIRST, measure, date
