"""The covariance of many features without a d x d matrix: as an operator, or as a sketch.

`centered_operator` and `covariance_operator` read the data once per product (any number of
passes, exact). `CovarianceSketchAccumulator` reads it once, in rank x d memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator

from latensor.arrays import Array, check_positive_int, like, to_host
from latensor.arrays.factorization import truncated_svd
from latensor.exceptions import InvalidInputError
from latensor.moments.batches import (
    as_batch,
    as_weights,
    centered_rows,
    squared_norm,
    total_weight,
    weighted_mean,
)


def centered_operator(samples: object, mean: Array, weights: object = None) -> LinearOperator:
    """Samples minus their mean as an operator (n, d), the sparse samples staying sparse.

    Row i is sqrt(w_i) (x_i - mean)', so that the product of the operator with itself is the
    scatter matrix.

    Parameters
    ----------
    samples : (n, d) array or SciPy sparse matrix; products are NumPy arrays
    mean : (d,) array
    weights : (n,) array or None
    """
    matrix = as_batch(samples, "samples")
    matrix = matrix if scipy.sparse.issparse(matrix) else to_host(matrix)
    numbers = as_weights(weights, matrix.shape[0])
    center = np.asarray(to_host(mean), dtype=matrix.dtype)
    roots = np.ones(matrix.shape[0]) if numbers is None else np.sqrt(numbers)
    roots = roots.astype(matrix.dtype)[:, None]
    adjoint = matrix.conj().T

    def matmat(block: Any) -> Any:
        return roots * (matrix @ block - center @ block)

    def rmatmat(block: Any) -> Any:
        scaled = roots * block
        return adjoint @ scaled - np.outer(center.conj(), scaled.sum(axis=0))

    return LinearOperator(
        matrix.shape,
        matvec=lambda vector: matmat(vector.reshape(-1, 1))[:, 0],
        rmatvec=lambda vector: rmatmat(vector.reshape(-1, 1))[:, 0],
        matmat=matmat,
        rmatmat=rmatmat,
        dtype=matrix.dtype,
    )


def covariance_operator(batches: Iterable[object]) -> LinearOperator:
    """The covariance of a re-iterable stream as a (d, d) operator, in memory for one batch.

    One pass over the batches finds the mean; every product reads them once more. Divided by the
    number of samples.

    Parameters
    ----------
    batches : re-iterable (a list, or an object whose `__iter__` starts anew) of (n, d) NumPy
        arrays or SciPy sparse matrices
    """
    if iter(batches) is batches:
        raise InvalidInputError(
            "batches can be read only once (it is an iterator): give a list, or an object whose "
            "__iter__ starts anew"
        )
    count, mean = 0, np.zeros(0)
    dtype: Any = None
    for batch in batches:
        matrix = as_batch(batch, "batch")
        if dtype is None:
            mean, dtype = np.zeros(matrix.shape[1]), matrix.dtype
        count += matrix.shape[0]
        mean = mean + (weighted_mean(matrix, None) - mean) * (matrix.shape[0] / count)
    if count == 0:
        raise InvalidInputError("batches is empty: give at least one batch of samples")

    def matmat(block: Any) -> Any:
        total = np.zeros((mean.shape[0], block.shape[1]), dtype=np.result_type(dtype, block))
        for batch in batches:
            operator = centered_operator(batch, mean)
            total += operator.rmatmat(operator.matmat(block))
        return total / count

    return LinearOperator(
        (mean.shape[0], mean.shape[0]),
        matvec=lambda vector: matmat(vector.reshape(-1, 1))[:, 0],
        rmatvec=lambda vector: matmat(vector.reshape(-1, 1))[:, 0],
        matmat=matmat,
        rmatmat=matmat,
        dtype=dtype,
    )


@dataclass(frozen=True)
class CovarianceSketch:
    """Mean, total variance and a low-rank factor of a covariance C.

    C - F'F is positive semi-definite with largest eigenvalue at most `error`; `total_variance`
    is the exact trace of C. All are divided by the total `weight`.
    """

    count: int
    weight: float
    mean: Array
    factor: Array
    total_variance: float
    error: float


class CovarianceSketchAccumulator:
    """The leading part of a covariance in one pass, in rank x d memory.

    Keeps the `rank` leading singular directions of all centred samples so far. Exact (stream,
    split and merge agree) as long as the centred samples span at most `rank` directions; beyond
    that every truncation drops its largest eigenvalue at most, and `error` sums those up.

    Parameters
    ----------
    rank : int, the directions kept: several times the number wanted
    """

    def __init__(self, rank: int) -> None:
        self.rank = check_positive_int(rank, "rank")
        self.count = 0
        self.weight = 0.0
        self._mean: Any = None
        self._factor: Any = None
        self._trace = 0.0
        self._dropped = 0.0
        self._reference: Array = None

    def update(self, batch: object, weights: object = None) -> Self:
        """Add samples (n, d), dense or sparse; a weight of 2 is the same as giving it twice."""
        array = as_batch(batch, "batch")
        if "complex" in str(array.dtype):
            raise InvalidInputError("batch is complex: a sketch takes real samples")
        numbers = as_weights(weights, array.shape[0])
        self._check_features(array.shape[1])
        weight = total_weight(array.shape[0], numbers)
        if weight == 0:
            return self
        mean = weighted_mean(array, numbers)
        if scipy.sparse.issparse(array):
            rows: Any = centered_operator(array, mean, numbers)
            trace = squared_norm(array, numbers) - weight * float(mean @ mean)
            reference = np.empty(0, dtype=array.dtype)
        else:
            rows = centered_rows(array, mean, numbers)
            trace = float((rows * rows).sum())
            reference = array[:0, 0]
        if self._reference is None:
            self._reference = reference
        rank = min(self.rank, *array.shape)
        _, values, right = truncated_svd(rows, rank)
        factor = np.asarray(to_host(right * values), dtype=np.float64).T
        dropped = 0.0
        if rank < min(array.shape):
            dropped = min(max(trace - float((factor**2).sum()), 0.0), float(values[-1]) ** 2)
        self._combine(array.shape[0], weight, mean, factor, trace, dropped)
        return self

    def _check_features(self, found: int) -> None:
        if self._mean is not None and self._mean.shape[0] != found:
            raise InvalidInputError(
                f"batch has {found} features, but the batches before it had "
                f"{self._mean.shape[0]}: give the same columns in every batch"
            )

    def _combine(
        self, count: int, weight: float, mean: Any, factor: Any, trace: float, dropped: float
    ) -> None:
        if self._mean is None:
            rows, self._mean = factor, mean
        else:
            total = self.weight + weight
            shift = mean - self._mean
            between = self.weight * weight / total
            rows = np.concatenate([self._factor, factor, np.sqrt(between) * shift[None, :]])
            self._mean = self._mean + (weight / total) * shift
            trace += between * float(shift @ shift)
        self._trace += trace
        self._dropped += dropped
        if rows.shape[0] > self.rank:
            _, values, right = truncated_svd(rows, min(self.rank + 1, *rows.shape))
            self._dropped += float((values[self.rank :] ** 2).sum())
            rows = (right[:, : self.rank] * values[: self.rank]).T
        self._factor = rows
        self.count += count
        self.weight += weight

    def merge(self, other: Self) -> Self:
        """Add the samples that another sketch of the same features has seen."""
        if not isinstance(other, CovarianceSketchAccumulator):
            raise InvalidInputError(f"cannot merge a {type(other).__name__} into a sketch")
        if other.rank != self.rank:
            raise InvalidInputError(
                f"cannot merge a sketch of rank {other.rank} into one of rank {self.rank}: "
                "start both with the same rank"
            )
        if other._mean is not None:
            self._check_features(other._mean.shape[0])
            if self._reference is None:
                self._reference = other._reference
            self._combine(
                other.count,
                other.weight,
                other._mean,
                other._factor,
                other._trace,
                other._dropped,
            )
        return self

    def absorb(
        self, count: int, weight: float, mean: Any, factor: Any, trace: float, dropped: float
    ) -> Self:
        """Add samples known by their sums.

        Parameters
        ----------
        count : int
        weight : float
        mean : (d,) NumPy array
        factor : (m, d) NumPy array, factor' factor is the scatter less what was dropped
        trace : float, of the whole scatter
        dropped : float, a bound on the largest eigenvalue of what was dropped
        """
        self._check_features(mean.shape[0])
        if self._reference is None:
            self._reference = np.empty(0, dtype=mean.dtype)
        wide = factor.astype(np.float64)
        self._combine(count, weight, mean.astype(np.float64), wide, trace, dropped)
        return self

    def finalize(self) -> CovarianceSketch:
        """The sketch so far, in the library and precision of the first batch."""
        if self._mean is None:
            raise InvalidInputError(
                "no sample has been seen yet: call update with a batch of positive weight first"
            )
        return CovarianceSketch(
            self.count,
            self.weight,
            like(self._mean, self._reference),
            like(self._factor / np.sqrt(self.weight), self._reference),
            self._trace / self.weight,
            self._dropped / self.weight,
        )
