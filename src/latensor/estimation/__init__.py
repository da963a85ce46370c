"""What all estimators share: the check of their parameters and of the samples they are given."""

from latensor.lazy import postponed

# A third of the time that scikit-learn takes to load is a module of which it uses one function.
with postponed("scipy.stats"):
    import sklearn.base  # noqa: F401

from latensor.estimation.parameters import Choice, Interval, check_parameters
from latensor.estimation.samples import (
    describe_samples,
    host_dtype,
    in_library_of,
    project,
    read_samples,
    read_weights,
)
from latensor.estimation.spectrum import rank_by_fraction, rank_by_gap

__all__ = [
    "Choice",
    "Interval",
    "check_parameters",
    "describe_samples",
    "host_dtype",
    "in_library_of",
    "project",
    "rank_by_fraction",
    "rank_by_gap",
    "read_samples",
    "read_weights",
]
