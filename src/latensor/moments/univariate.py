"""The first moments of a stream of numbers, around their own mean, in constant memory.

Sums of powers around one mean are brought to another by the binomial theorem, which is exact:
a stream, a split and a merge agree to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any, Self

import numpy as np

from latensor.exceptions import InvalidInputError

ORDER = 6


@dataclass(frozen=True)
class SixMoments:
    """Mean and central moments of numbers x.

    Attributes
    ----------
    count : int
    weight : float
    mean : float
    central : (7,), the expectation of (x - mean)^p for p = 0, ..., 6
    """

    count: int
    weight: float
    mean: float
    central: Any


class SixMomentsAccumulator:
    """Sums for `SixMoments`; any two can be merged."""

    def __init__(self) -> None:
        self.count = 0
        self._mean = 0.0
        self._sums: Any = np.zeros(ORDER + 1)

    def update(self, batch: Any, weights: Any = None) -> Self:
        """Add numbers.

        Parameters
        ----------
        batch : (n,) or (n, 1) array
        weights : (n,) array or None; a weight of 2 is the same as giving the number twice
        """
        numbers = np.asarray(batch, dtype=np.float64).ravel()
        shares = np.ones(len(numbers)) if weights is None else np.asarray(weights, dtype=np.float64)
        weight = float(shares.sum())
        if weight == 0:
            self.count += len(numbers)
            return self
        mean = float(shares @ numbers) / weight
        centered = numbers - mean
        sums, power = np.empty(ORDER + 1), shares
        with np.errstate(over="ignore", invalid="ignore"):
            for order in range(ORDER + 1):
                sums[order] = power.sum()
                power = power * centered
        if not np.isfinite(sums).all():
            raise InvalidInputError(
                f"the sixth moment of X overflows (largest magnitude {np.abs(numbers).max():.3g}): "
                "give the samples in a smaller unit"
            )
        self._add(len(numbers), mean, sums)
        return self

    def merge(self, other: Self) -> Self:
        """Add the numbers that another accumulator has seen."""
        if not isinstance(other, SixMomentsAccumulator):
            raise InvalidInputError(
                f"cannot merge a {type(other).__name__} into a {type(self).__name__}"
            )
        self._add(other.count, other._mean, other._sums)
        return self

    def _add(self, count: int, mean: float, sums: Any) -> None:
        self.count += count
        if sums[0] == 0:
            return
        weight = self._sums[0] + sums[0]
        middle = self._mean + (sums[0] / weight) * (mean - self._mean)
        self._sums = shifted(self._sums, middle - self._mean) + shifted(sums, middle - mean)
        # By the choice of the middle; what is left is rounding.
        self._sums[1] = 0.0
        self._mean = middle

    def spawn(self) -> SixMomentsAccumulator:
        """An empty accumulator, mergeable with this one."""
        return SixMomentsAccumulator()

    def finalize(self) -> SixMoments:
        """Mean and central moments of all numbers so far."""
        weight = float(self._sums[0])
        if weight == 0:
            raise InvalidInputError("no sample has been seen yet: call update with a batch first")
        return SixMoments(self.count, weight, self._mean, self._sums / weight)


def shifted(sums: Any, shift: float) -> Any:
    """Sums of powers y^p, p = 0, 1, ..., as sums of (y - shift)^p."""
    powers = (-shift) ** np.arange(len(sums))
    return np.array(
        [sum(comb(p, q) * powers[p - q] * sums[q] for q in range(p + 1)) for p in range(len(sums))]
    )
