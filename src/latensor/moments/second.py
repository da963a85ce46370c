"""Means and (cross-)covariances of one or two views as mergeable sums.

The sums are held in double precision on the host around their own mean, and two of them are
merged by the exact update of Chan, Golub and LeVeque: with weights a and b and means m and n the
scatter of the union is S + T + ab/(a+b) (m-n)(m-n)'. Nothing is ever lost by subtracting large
squares, and a stream, a split and a merge agree to rounding. The product of a batch is computed
in the batch's own library and precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays import Array, like
from latensor.exceptions import InvalidInputError
from latensor.moments.batches import (
    as_batch,
    as_weights,
    cross_scatter,
    only_rounding,
    refuse_overflow,
    total_weight,
    weighted_mean,
)


@dataclass(frozen=True)
class Covariance:
    """Mean and covariance of one view: `covariance` is (d, d), divided by the total `weight`.

    Multiply by `unbiased_factor(weight)` for the version that divides by the weight less one.
    """

    count: int
    weight: float
    mean: Array
    covariance: Array


@dataclass(frozen=True)
class CrossCovariance:
    """Means and covariances of two views, divided by the total `weight`.

    `cross_covariance` is (d1, d2), the expectation of (x - E x)(y - E y)'.
    """

    count: int
    weight: float
    x_mean: Array
    y_mean: Array
    x_covariance: Array
    y_covariance: Array
    cross_covariance: Array


def check_total_weight(weight: float) -> None:
    """Refuse fewer samples than a variance takes."""
    if weight <= 1:
        raise InvalidInputError(
            f"a variance needs a total weight above 1, got {weight:.3g}: give more samples; a "
            "weight says how often a sample counts, so weights that sum to 1 stand for one"
        )


def unbiased_factor(weight: float) -> float:
    """What turns a mean of squares around the sample mean into the variance: n / (n - 1)."""
    check_total_weight(weight)
    return weight / (weight - 1)


class _Scatter:
    """The sums of one or two views around their means: what both accumulators share."""

    # Pairs of views whose products are kept; a subclass says which.
    _pairs: tuple[tuple[int, int], ...]
    _names: tuple[str, ...]

    def __init__(self) -> None:
        self.count = 0
        self.weight = 0.0
        self._means: list[Any] = []
        self._scatters: list[Any] = []
        self._references: list[Array] = []

    def _add_batch(self, views: tuple[object, ...], weights: object) -> None:
        arrays = [as_batch(view, name) for view, name in zip(views, self._names, strict=True)]
        counts = [array.shape[0] for array in arrays]
        if len(set(counts)) > 1:
            listing = " and ".join(
                f"{name} has {count} rows" for name, count in zip(self._names, counts, strict=True)
            )
            raise InvalidInputError(f"{listing}: both views need the same samples, row by row")
        numbers = as_weights(weights, counts[0])
        self._check_features([array.shape[1] for array in arrays])
        weight = total_weight(counts[0], numbers)
        if weight == 0:
            return
        # An overflow is told by `_combine`.
        with np.errstate(over="ignore", invalid="ignore"):
            means = [weighted_mean(array, numbers) for array in arrays]
            scatters = [
                cross_scatter(arrays[i], means[i], arrays[j], means[j], numbers)
                for i, j in self._pairs
            ]
        if not self._references:
            self._references = [_reference(array) for array in arrays]
        self._combine(counts[0], weight, means, scatters)

    def _check_features(self, found: list[int]) -> None:
        for name, mean, features in zip(self._names, self._means, found, strict=False):
            if mean.shape[0] != features:
                raise InvalidInputError(
                    f"{name} has {features} features, but the batches before it had "
                    f"{mean.shape[0]}: give the same columns in every batch"
                )

    def _combine(self, count: int, weight: float, means: list[Any], scatters: list[Any]) -> None:
        for scatter in scatters:
            refuse_overflow(scatter, "second")
        if not self._means:
            self._means = [mean.copy() for mean in means]
            self._scatters = [scatter.copy() for scatter in scatters]
        else:
            total = self.weight + weight
            shifts = [new - old for new, old in zip(means, self._means, strict=True)]
            between = self.weight * weight / total
            for index, (i, j) in enumerate(self._pairs):
                self._scatters[index] = (
                    self._scatters[index]
                    + scatters[index]
                    + between * np.outer(shifts[i], shifts[j].conj())
                )
            self._means = [
                old + (weight / total) * shift
                for old, shift in zip(self._means, shifts, strict=True)
            ]
        self.count += count
        self.weight += weight

    def merge(self, other: Self) -> Self:
        """Add the samples that another accumulator of the same views has seen."""
        if type(other) is not type(self):
            raise InvalidInputError(
                f"cannot merge a {type(other).__name__} into a {type(self).__name__}"
            )
        if other._means:
            self._check_features([mean.shape[0] for mean in other._means])
            if not self._references:
                self._references = list(other._references)
            self._combine(other.count, other.weight, other._means, other._scatters)
        return self

    def _read(self, host: bool) -> tuple[list[Array], list[Array]]:
        """Means and covariances, on the host in double precision or as the batches were."""
        if not self._means:
            raise InvalidInputError(
                "no sample has been seen yet: call update with a batch of positive weight first"
            )
        covariances = [scatter / self.weight for scatter in self._scatters]
        if host:
            return list(self._means), covariances
        means = [
            like(mean, first) for mean, first in zip(self._means, self._references, strict=True)
        ]
        return means, [like(matrix, self._references[0]) for matrix in covariances]


def _reference(batch: Array) -> Array:
    if scipy.sparse.issparse(batch):
        return np.empty(0, dtype=batch.dtype)
    return batch[:0, 0]


class CovarianceAccumulator(_Scatter):
    """Weight, mean and covariance of a stream of samples, in d^2 memory.

    For more features than d^2 numbers allow, use `CovarianceSketchAccumulator` (one pass) or
    `covariance_operator` (one pass per product).
    """

    _pairs = ((0, 0),)
    _names = ("batch",)

    def update(self, batch: object, weights: object = None) -> Self:
        """Add samples.

        Parameters
        ----------
        batch : (n, d) array of any library, or SciPy sparse
        weights : (n,) array or None; a weight of 2 is the same as giving the sample twice
        """
        self._add_batch((batch,), weights)
        return self

    def finalize(self, *, host: bool = False) -> Covariance:
        """Mean and covariance so far, in the library and precision of the first batch.

        Parameters
        ----------
        host : bool, True gives the NumPy sums in double precision instead
        """
        means, covariances = self._read(host)
        mean, covariance = means[0], covariances[0]
        if host:
            # Scaled to variance one, what rounding leaves of a constant would look like a signal.
            constant = only_rounding(mean, np.diagonal(covariance).real, self.count)
            if constant.any():
                covariance = np.where(constant[:, None] | constant, 0.0, covariance)
        return Covariance(self.count, self.weight, mean, covariance)


class CrossCovarianceAccumulator(_Scatter):
    """Weight, means and the three covariances of a stream of paired samples."""

    _pairs = ((0, 0), (1, 1), (0, 1))
    _names = ("x", "y")

    def update(self, batch: tuple[object, object], weights: object = None) -> Self:
        """Add paired samples.

        Parameters
        ----------
        batch : pair of (n, d1) and (n, d2) arrays of any library, or SciPy sparse
        weights : (n,) array or None; a weight of 2 is the same as giving the pair twice
        """
        x, y = batch
        self._add_batch((x, y), weights)
        return self

    def finalize(self, *, host: bool = False) -> CrossCovariance:
        """Means and covariances so far, in the library and precision of the first batch.

        Parameters
        ----------
        host : bool, True gives the NumPy sums in double precision instead
        """
        means, covariances = self._read(host)
        return CrossCovariance(self.count, self.weight, *means, *covariances)
