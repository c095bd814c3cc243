"""Many cells (method, value, K, sampling, task) beside the target alone: one table, and who is on the Pareto front."""
