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
from latensor.exceptions import InvalidInputError
from latensor.moments.second import CovarianceAccumulator
from latensor.moments.third_sums import ThirdSums, displacement, third_sums

# Up to so many features the third moment is kept whole, and any two streams can be merged.
WHOLE = 32
# Rows waited for before a basis is chosen, for every direction in it.
_ROWS_PER_DIRECTION = 20
_FEWEST_ROWS = 1000


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


class ThirdMomentAccumulator:
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

    def __init__(
        self,
        rank: int,
        *,
        basis: Any = None,
        center: Any = None,
        squares: bool = False,
        n_threads: int = 1,
    ) -> None:
        self.rank = rank
        self.squares = squares
        self.n_threads = n_threads
        self._covariance = CovarianceAccumulator()
        self._basis: Any = basis
        self._center: Any = center
        self._sums: ThirdSums | None = None
        self._waiting: list[tuple[Any, Any]] = []

    def update(self, batch: Any, weights: Any = None) -> Self:
        """Add samples.

        Parameters
        ----------
        batch : (n, d) dense host array
        weights : (n,) array or None; a weight of 2 is the same as giving the sample twice
        """
        self.update_covariance(batch, weights)
        if self._basis is None:
            self._waiting.append((np.array(batch), None if weights is None else np.array(weights)))
            self._choose_basis(now=batch.shape[1] <= max(WHOLE, self.rank))
        else:
            self._add(batch, weights)
        return self

    def update_covariance(self, batch: Any, weights: Any = None) -> Self:
        """Add samples to mean and covariance only: `update_third` stands for them all."""
        with one_blas_thread():
            self._covariance.update(batch, weights)
        return self

    def update_third(self, batch: Any, weights: Any, share: float) -> Self:
        """Add samples to the third moment only, a share of those whose covariance is known."""
        self._add(batch, weights, 1 / share)
        return self

    def absorb_third(self, sums: ThirdSums) -> Self:
        """Take these sums around the center for those of the samples whose covariance is known."""
        self._sums = sums
        return self

    def fix(self, basis: Any, center: Any) -> Self:
        """Keep the third moment along this basis (d, r), summed around this center (d,)."""
        self._basis, self._center = basis, center
        return self

    @property
    def covariance(self) -> CovarianceAccumulator:
        """Mean and covariance of all samples so far."""
        return self._covariance

    def merge(self, other: Self) -> Self:
        """Add the samples that another accumulator has seen, along the same basis."""
        if not isinstance(other, ThirdMomentAccumulator):
            raise InvalidInputError(
                f"cannot merge a {type(other).__name__} into a {type(self).__name__}"
            )
        if self._basis is None and other._basis is not None:
            self._basis, self._center = other._basis, other._center
            waiting, self._waiting = self._waiting, []
            for batch, weights in waiting:
                self._add(batch, weights)
        if other._sums is not None:
            self._take(other._seen_from(self._basis, self._center))
        self._covariance.merge(other._covariance)
        for batch, weights in other._waiting:
            if self._basis is None:
                self._waiting.append((batch, weights))
            else:
                self._add(batch, weights)
        if self._basis is None and self._waiting:
            self._choose_basis()
        return self

    def _seen_from(self, basis: Any, center: Any) -> ThirdSums:
        """The sums around another center, along the same basis."""
        assert self._sums is not None
        if self._basis.shape != basis.shape or not np.array_equal(self._basis, basis):
            raise InvalidInputError(
                "the two models keep their third moment along different directions, chosen from "
                "their first samples: start the second worker with spawn() of the first"
            )
        if np.array_equal(self._center, center):
            return self._sums
        known = self._covariance.finalize(host=True)
        there, here = (
            displacement(known.mean - c, known.covariance, self._basis, self.squares)
            for c in (center, self._center)
        )
        return self._sums.combined(1.0, there.combined(1.0, here, -1.0), known.weight)

    def _take(self, sums: ThirdSums) -> None:
        self._sums = sums if self._sums is None else self._sums.combined(1.0, sums, 1.0)

    def spawn(self) -> ThirdMomentAccumulator:
        """An empty accumulator along the same basis."""
        if self._basis is None:
            self._choose_basis(now=True)
        return ThirdMomentAccumulator(
            self.rank,
            basis=self._basis,
            center=self._center,
            squares=self.squares,
            n_threads=self.n_threads,
        )

    def _choose_basis(self, now: bool = False) -> None:
        n_rows = sum(len(batch) for batch, _ in self._waiting)
        if not now and n_rows < max(_FEWEST_ROWS, _ROWS_PER_DIRECTION * self.rank):
            return
        known = self._covariance.finalize(host=True)
        n_features = len(known.mean)
        if n_features <= max(WHOLE, self.rank):
            self._basis = np.eye(n_features)
        else:
            with one_blas_thread():
                vectors = np.linalg.eigh(known.covariance)[1]
            self._basis = np.ascontiguousarray(vectors[:, ::-1][:, : self.rank])
        self._center = known.mean.copy()
        waiting, self._waiting = self._waiting, []
        for batch, weights in waiting:
            self._add(batch, weights)

    def _add(self, batch: Any, weights: Any, factor: float = 1.0) -> None:
        sums = third_sums(
            batch,
            weights,
            self._center,
            self._basis,
            squares=self.squares,
            n_threads=self.n_threads,
        )
        self._take(sums if factor == 1.0 else sums.combined(factor, sums, 0.0))

    def finalize(self) -> ThirdMoment:
        """The central moments of all samples so far."""
        if self._basis is None and self._waiting:
            self._choose_basis(now=True)
        known = self._covariance.finalize(host=True)
        assert self._sums is not None
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
