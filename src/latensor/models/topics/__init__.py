"""Topic models: each estimator with its moments, read-off, refinement and number of topics."""
