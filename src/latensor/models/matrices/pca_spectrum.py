"""The leading variances and directions of a PCA, from samples in memory or from a stream."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from latensor.arrays import Array, RandomState, is_numpy, like, machine_epsilon, to_host
from latensor.arrays.factorization import leading_eigenpairs, svd_with_next, truncated_svd
from latensor.arrays.linear_map import CenteredMap
from latensor.estimation.spectrum import rank_by_fraction, rank_by_gap
from latensor.exceptions import InvalidInputError
from latensor.moments import CovarianceAccumulator, centered_operator, unbiased_factor
from latensor.moments.batches import (
    centered_rows,
    refuse_overflow,
    squared_norm,
    total_weight,
    weighted_mean,
)
from latensor.moments.second import Covariance
from latensor.moments.sketch import CovarianceSketch

# Up to here all variances are found at once where n_components depends on them.
_MAX_FULL_SPECTRUM = 1000
# Up to here the covariance of sparse samples is formed.
MAX_SPARSE_COVARIANCE = 2000


class Spectrum(NamedTuple):
    """How to find the leading variances and directions, and what is known before.

    `leading(rank)` gives variances in decreasing order and directions (d, rank); one variance more
    than directions where there is one, which may be less exact. `size` is the number of
    directions there can be, `floor` the fraction of the largest variance below which one is
    rounding, `total` the sum of all variances, `error` a bound on what is missing.
    """

    leading: Callable[[int], tuple[Any, Any]]
    size: int
    floor: float
    total: float
    weight: float
    mean: Any
    error: float


def spectrum_of_samples(samples: Array, weights: Any, random_state: RandomState) -> Spectrum:
    """The spectrum of samples in memory, sparse ones centred implicitly."""
    n_samples, n_features = samples.shape
    if scipy.sparse.issparse(samples):
        if n_features <= min(n_samples, MAX_SPARSE_COVARIANCE):
            stream = CovarianceAccumulator().update(samples, weights)
            return spectrum_of_covariance(stream.finalize(host=True), random_state)
        mean = weighted_mean(samples, weights)
        weight = total_weight(n_samples, weights)
        turned: Any = centered_operator(samples, mean, weights).adjoint()
        total = squared_norm(samples, weights) - weight * float(mean @ mean)
    else:
        mean = weighted_mean(samples, weights)
        weight = total_weight(n_samples, weights)
        with np.errstate(over="ignore", under="ignore"):
            turned, total = _centered(samples, mean, weights)
    refuse_overflow(total, "second")
    divisor = weight / unbiased_factor(weight)
    # A mean has rounding, which equal rows would be centred to.
    rounding = max(samples.shape) * _epsilon(samples)
    varies = total > rounding * weight * float(mean @ mean) or _varies(samples)
    if not varies:
        total = 0.0

    def leading(rank: int) -> tuple[Any, Any]:
        # Features first, so that the sign rule of the left vectors falls on the components.
        found, following = svd_with_next(turned, rank, random_state=random_state)
        values = np.concatenate([to_host(found.singular_values), to_host(following)])
        return varies * values.astype(np.float64) ** 2 / divisor, to_host(found.left)

    if varies and total / divisor < np.finfo(np.float64).tiny:
        raise InvalidInputError(
            "the second moment of X underflows: give the samples in a larger unit"
        )
    size = min(n_samples, n_features)
    return Spectrum(leading, size, rounding**2, total / divisor, weight, mean, 0.0)


def _centered(samples: Array, mean: Any, weights: Any) -> tuple[Any, float]:
    """Dense centred samples, features first, and the sum of their squares.

    Tall samples whose means do not exceed their standard deviations are centred without a copy:
    then no more than a bit is lost to cancellation.
    """
    n_samples, n_features = samples.shape
    if weights is None and n_samples >= 2 * n_features:
        squares = _squares(samples)
        shift = n_samples * float(mean @ mean)
        if 2 * shift <= squares:
            return CenteredMap(samples, like(mean, samples)).adjoint(), squares - shift
    rows = centered_rows(samples, mean, weights)
    return rows.T, _squares(rows)


def _varies(samples: Array) -> bool:
    if scipy.sparse.issparse(samples):
        return bool((samples.max(axis=0) != samples.min(axis=0)).nnz)
    return bool((samples != samples[:1]).any())


def _squares(rows: Array) -> float:
    if is_numpy(rows):
        return float(np.vdot(rows, rows))
    return float((rows * rows).sum())


def _epsilon(samples: Array) -> float:
    if scipy.sparse.issparse(samples):
        return float(np.finfo(samples.dtype).eps)
    return machine_epsilon(samples)


def spectrum_of_covariance(moments: Covariance, random_state: RandomState) -> Spectrum:
    """The spectrum of a stream that keeps its covariance."""
    covariance = moments.covariance * unbiased_factor(moments.weight)
    dimension = covariance.shape[0]

    def leading(rank: int) -> tuple[Any, Any]:
        values, vectors = leading_eigenpairs(
            covariance, min(rank + 1, dimension), random_state=random_state
        )
        return np.maximum(values, 0.0), vectors

    floor = 10 * dimension * float(np.finfo(np.float64).eps)
    size = min(moments.count, dimension)
    total = float(np.trace(covariance))
    return Spectrum(leading, size, floor, total, moments.weight, moments.mean, 0.0)


def spectrum_of_sketch(sketch: CovarianceSketch) -> Spectrum:
    """The spectrum of a stream that keeps its leading directions."""
    unbiased = unbiased_factor(sketch.weight)
    factor = np.asarray(to_host(sketch.factor), dtype=np.float64) * np.sqrt(unbiased)
    directions, values, _ = truncated_svd(factor.T, min(factor.shape), method="exact")

    def leading(rank: int) -> tuple[Any, Any]:
        return values[: rank + 1] ** 2, directions[:, :rank]

    floor = (factor.shape[1] * float(np.finfo(np.float64).eps)) ** 2
    total, error = sketch.total_variance * unbiased, sketch.error * unbiased
    mean = np.asarray(to_host(sketch.mean), dtype=np.float64)
    return Spectrum(leading, len(values), floor, total, sketch.weight, mean, error)


def choose_components(
    spectrum: Spectrum, n_components: object, n_features: int
) -> tuple[int, Any, Any]:
    """The number of components, and the leading variances and directions found on the way."""
    size = spectrum.size
    if isinstance(n_components, numbers.Integral):
        rank = int(n_components)
        if rank > size:
            raise InvalidInputError(
                f"n_components={rank} exceeds the {size} directions that the data can have "
                f"({n_features} features, {spectrum.weight:g} samples): ask for at most {size}"
            )
        return rank, *spectrum.leading(rank)
    if n_components is None:
        variances, directions = spectrum.leading(size)
        varying = int((variances > spectrum.floor * variances[0]).sum())
        return max(varying, 1), variances, directions
    if n_components in ("auto", "gap"):
        variances, directions = spectrum.leading(size if size <= _MAX_FULL_SPECTRUM else 100)
        return rank_by_gap(variances[:size], size), variances, directions
    fraction = float(n_components)  # type: ignore[arg-type]
    found = size if size <= _MAX_FULL_SPECTRUM else 32
    while True:
        variances, directions = spectrum.leading(found)
        chosen = rank_by_fraction(variances[:found], spectrum.total, fraction)
        if chosen is not None or found == size:
            return chosen or size, variances, directions
        found = min(4 * found, size)
