"""Mixtures seen in several views: the estimator with its read-off and family beside it."""
