"""Moments of the data as mergeable sums: update, merge, finalize."""

from latensor.moments.accumulator import Accumulator
from latensor.moments.second import (
    Covariance,
    CovarianceAccumulator,
    CrossCovariance,
    CrossCovarianceAccumulator,
    unbiased_factor,
)
from latensor.moments.sketch import (
    CovarianceSketch,
    CovarianceSketchAccumulator,
    centered_operator,
    covariance_operator,
)

__all__ = [
    "Accumulator",
    "Covariance",
    "CovarianceAccumulator",
    "CovarianceSketch",
    "CovarianceSketchAccumulator",
    "CrossCovariance",
    "CrossCovarianceAccumulator",
    "centered_operator",
    "covariance_operator",
    "unbiased_factor",
]
