"""Independent components: the estimator, its model, read-off, refinement and certificate."""

from latensor.models.ica.estimator import ICA

__all__ = ["ICA"]
