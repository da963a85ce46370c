"""Mean, covariance and third moment of a stream of samples, in constant memory.

The third moment is kept along a fixed basis only: all directions where there are few, otherwise
those in which the first batches vary most. It is summed around a fixed center and brought to the
mean at the end, which is exact, since mean and covariance are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.in_subspace import SubspaceAccumulator
from latensor.moments.third_sums import ThirdSums, displacement, third_sums

# Up to so many features the third moment is kept whole, and any two streams can be merged.
WHOLE = 32


@dataclass(frozen=True)
class ThirdMoment:
    """Central moments of samples x in R^d, along a basis B (d, r) in the third order.

    With y = B'(x - E x):

    Attributes
    ----------
    count : int
    weight : float
    mean : (d,)
    covariance : (d, d)
    basis : (d, r), orthonormal columns
    third : (r, r, r), the expectation of y (x) y (x) y
    norm_third : (r,), the expectation of |x - E x|^2 y
    square_third : (d, d), the expectation of (x - E x)_i^2 (x - E x)_l; None where not kept
    """

    count: int
    weight: float
    mean: Any
    covariance: Any
    basis: Any
    third: Any
    norm_third: Any
    square_third: Any = None

    def along(self, directions: Any) -> tuple[Any, Any]:
        """`third` and `norm_third` along other directions (d, s) in the span of the basis."""
        turn = self.basis.T @ directions
        third = self.third
        for _ in range(3):
            third = np.tensordot(third, turn, axes=(0, 0))
        return third, turn.T @ self.norm_third

    def between(self, first: Any, second: Any, third: Any) -> Any:
        """E (A'x) (x) (B'x) (x) (C'x) of three matrices (d, .) in the span of the basis."""
        turns = [self.basis.T @ matrix for matrix in (first, second, third)]
        return np.einsum("abc,ai,bj,cl->ijl", self.third, *turns, optimize=True)


class ThirdMomentAccumulator(SubspaceAccumulator):
    """Sums for `ThirdMoment`, mergeable with those that share its basis.

    Parameters
    ----------
    rank : int, directions kept in the third moment where there are more than 32 features
    basis : (d, r) to keep these; None takes all of up to max(32, rank) features, and otherwise
        the leading directions of the first rows, which are held until they are enough to tell
    center : (d,), what is subtracted before the sums; goes with `basis`
    squares : bool, whether `square_third` is kept
    n_threads : int, changes nothing but the time
    """

    _whole = WHOLE
    _order = "third"

    def __init__(
        self,
        rank: int,
        *,
        basis: Any = None,
        center: Any = None,
        squares: bool = False,
        n_threads: int = 1,
    ) -> None:
        super().__init__(rank, basis, center, n_threads)
        self.squares = squares

    def update_third(self, batch: Any, weights: Any, share: float) -> Self:
        """Add samples to the third moment only, a share of those whose covariance is known."""
        sums = self._summed(batch, weights)
        self._take(sums.combined(1 / share, sums, 0.0))
        return self

    def absorb_third(self, sums: ThirdSums) -> Self:
        """Take these sums around the center for those of the samples whose covariance is known."""
        self._sums = sums
        return self

    def _summed(self, batch: Any, weights: Any) -> ThirdSums:
        return third_sums(
            batch,
            weights,
            self._center,
            self._basis,
            squares=self.squares,
            n_threads=self.n_threads,
        )

    def _add(self, batch: Any, weights: Any) -> None:
        self._take(self._summed(batch, weights))

    def _take(self, sums: Any) -> None:
        self._sums = sums if self._sums is None else self._sums.combined(1.0, sums, 1.0)

    def _seen_from_center(self, center: Any) -> Any:
        known = self._covariance.finalize(host=True)
        there, here = (
            displacement(known.mean - c, known.covariance, self._basis, self.squares)
            for c in (center, self._center)
        )
        return self._sums.combined(1.0, there.combined(1.0, here, -1.0), known.weight)

    def _empty(self) -> Self:
        return type(self)(
            self.rank,
            basis=self._basis,
            center=self._center,
            squares=self.squares,
            n_threads=self.n_threads,
        )

    def finalize(self) -> ThirdMoment:
        """The central moments of all samples so far."""
        known = self._complete()
        extra = displacement(known.mean - self._center, known.covariance, self._basis, self.squares)
        sums = self._sums.combined(1 / known.weight, extra, -1.0)
        return ThirdMoment(
            known.count,
            known.weight,
            known.mean,
            known.covariance,
            self._basis,
            sums.third,
            sums.norm_third,
            sums.square_third,
        )


class GroupedThirdMoments:
    """The moments of groups of samples, to be summed with any multiplicities: a bootstrap.

    Parameters
    ----------
    samples : (n, d)
    groups : (n,) integers, the group of every sample
    n_groups : int
    basis : (d, r), orthonormal columns
    center : (d,)
    squares : bool, whether `square_third` is kept
    """

    def __init__(
        self, samples: Any, groups: Any, n_groups: int, basis: Any, center: Any, squares: bool
    ) -> None:
        self._basis, self._center, self._squares = basis, center, squares
        self._weights = np.bincount(groups, minlength=n_groups).astype(np.float64)
        first, second, sums = [], [], []
        origin = np.zeros(len(center))
        with one_blas_thread():
            for group in range(n_groups):
                rows = samples[groups == group].astype(np.float64) - center
                first.append(rows.sum(axis=0))
                second.append(rows.T @ rows)
                sums.append(third_sums(rows, None, origin, basis, squares=squares))
        self._first, self._second = np.stack(first), np.stack(second)
        self._third = np.stack([each.third for each in sums])
        self._norm_third = np.stack([each.norm_third for each in sums])
        self._square_third = np.stack([each.square_third for each in sums]) if squares else None

    def resampled(self, multiplicities: Any) -> ThirdMoment:
        """The central moments of all groups, each counted so many times."""

        def total(parts: Any) -> Any:
            return None if parts is None else np.tensordot(multiplicities, parts, axes=1)

        accumulator = ThirdMomentAccumulator(
            1, basis=self._basis, center=self._center, squares=self._squares
        )
        weight = float(multiplicities @ self._weights)
        gap = total(self._first) / weight
        scatter = total(self._second) - weight * np.outer(gap, gap)
        accumulator.covariance.absorb(round(weight), weight, self._center + gap, scatter)
        sums = ThirdSums(total(self._third), total(self._norm_third), total(self._square_third))
        return accumulator.absorb_third(sums).finalize()
