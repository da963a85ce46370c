"""Principal components and canonical correlations: each estimator with its spectrum beside it."""
