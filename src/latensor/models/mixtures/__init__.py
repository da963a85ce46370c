"""Mixtures: each estimator with its read-off, family and certificate beside it."""
