"""Learning a counter map from JOBs and the vendor's tables of them: arrays in, verdicts out; opens nothing."""
