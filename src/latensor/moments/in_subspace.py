"""What moments of order three and four share: a basis chosen from the first rows of a stream.

Mean and covariance are kept whole. The higher moment is kept along all directions where there are
few, otherwise along those in which the first rows vary most, and summed around a fixed center.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.exceptions import InvalidInputError
from latensor.moments.second import CovarianceAccumulator

# Rows waited for before a basis is chosen, for every direction in it.
_ROWS_PER_DIRECTION = 20
_FEWEST_ROWS = 1000


class SubspaceAccumulator:
    """Mean, covariance and one higher moment of a stream, mergeable along the same basis.

    A kind of moment says how rows are summed (`_add`), how its sums are moved to another center
    (`_seen_from_center`), how two of them are added (`_take`) and what an empty one is (`_empty`).

    Parameters
    ----------
    rank : int, directions kept where there are more than `_whole` features
    basis : (d, r) to keep these; None takes all of few features, and otherwise the leading
        directions of the first rows, which are held until they are enough to tell
    center : (d,), what is subtracted before the sums; goes with `basis`
    n_threads : int, changes nothing but the time
    """

    # Up to so many features the moment is kept whole, and any two streams can be merged.
    _whole: ClassVar[int]
    _order: ClassVar[str]

    def __init__(self, rank: int, basis: Any, center: Any, n_threads: int) -> None:
        self.rank = rank
        self.n_threads = n_threads
        self._covariance = CovarianceAccumulator()
        self._basis: Any = basis
        self._center: Any = center
        self._sums: Any = None
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
            self._choose_basis(now=batch.shape[1] <= max(self._whole, self.rank))
        else:
            self._add(batch, weights)
        return self

    def update_covariance(self, batch: Any, weights: Any = None) -> Self:
        """Add samples to mean and covariance only."""
        with one_blas_thread():
            self._covariance.update(batch, weights)
        return self

    def fix(self, basis: Any, center: Any) -> Self:
        """Keep the higher moment along this basis (d, r), summed around this center (d,)."""
        self._basis, self._center = basis, center
        return self

    @property
    def covariance(self) -> CovarianceAccumulator:
        """Mean and covariance of all samples so far."""
        return self._covariance

    def merge(self, other: Self) -> Self:
        """Add the samples that another accumulator has seen, along the same basis."""
        if not isinstance(other, type(self)):
            raise InvalidInputError(
                f"cannot merge a {type(other).__name__} into a {type(self).__name__}"
            )
        if self._basis is None and other._basis is not None:
            self.fix(other._basis, other._center)
            self._add_waiting()
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

    def spawn(self) -> Self:
        """An empty accumulator along the same basis."""
        if self._basis is None:
            self._choose_basis(now=True)
        return self._empty()

    def _seen_from(self, basis: Any, center: Any) -> Any:
        """The sums around another center, along the same basis."""
        if self._basis.shape != basis.shape or not np.array_equal(self._basis, basis):
            raise InvalidInputError(
                f"the two models keep their {self._order} moment along different directions, "
                "chosen from their first samples: start the second worker with spawn() of the first"
            )
        if np.array_equal(self._center, center):
            return self._sums
        return self._seen_from_center(center)

    def _choose_basis(self, now: bool = False) -> None:
        n_rows = sum(len(batch) for batch, _ in self._waiting)
        if not now and n_rows < max(_FEWEST_ROWS, _ROWS_PER_DIRECTION * self.rank):
            return
        known = self._covariance.finalize(host=True)
        n_features = len(known.mean)
        basis = np.eye(n_features)
        if n_features > max(self._whole, self.rank):
            with one_blas_thread():
                vectors = np.linalg.eigh(known.covariance)[1]
            basis = np.ascontiguousarray(vectors[:, ::-1][:, : self.rank])
        self.fix(basis, known.mean.copy())
        self._add_waiting()

    def _add_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for batch, weights in waiting:
            self._add(batch, weights)

    def _complete(self) -> Any:
        """Mean and covariance at the end, once rows that still wait are summed."""
        if self._basis is None and self._waiting:
            self._choose_basis(now=True)
        known = self._covariance.finalize(host=True)
        if self._sums is None:
            raise InvalidInputError("no sample has been seen yet: call update with a batch first")
        return known

    def _add(self, batch: Any, weights: Any) -> None:
        raise NotImplementedError

    def _take(self, sums: Any) -> None:
        raise NotImplementedError

    def _seen_from_center(self, center: Any) -> Any:
        raise NotImplementedError

    def _empty(self) -> Self:
        raise NotImplementedError
