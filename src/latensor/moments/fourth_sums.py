"""Fourth powers of rows along a basis, as plain sums: see `moments.fourth` for the formulas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch, mixed
from latensor.moments.fourth import (
    FourthMoment,
    fourth_cumulant,
    homogeneous_sums,
    packed,
    recentered,
    unpacked,
)
from latensor.moments.second import Covariance
from latensor.moments.sums import Sums, plus
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class FourthPowerSums(Sums):
    """All moments of order 0 to 4 of rows along a basis, of all rows or of a random part.

    Attributes
    ----------
    centre : (d,)
    basis : (d, r), orthonormal columns
    fraction : float, the part of the rows that is summed
    seed : int, which part
    """

    centre: Array
    basis: Array
    fraction: float = 1.0
    seed: int = 0

    def summed(self, batch: Batch) -> dict[str, Any]:
        if self.fraction < 1:
            numbers = mixed(batch.keys, self.seed)
            batch = batch.take(np.flatnonzero(numbers < np.uint64(int(self.fraction * 2.0**64))))
        sums = homogeneous_sums(batch.rows, batch.weights, self.centre, self.basis)
        return {"fourth": sums}

    def merge(self, other: Self) -> Self:
        if other.sums is not None and not np.array_equal(self.centre, other.centre):
            shift = self.basis.T @ (self.centre - other.centre)
            moved = {"fourth": packed(recentered(unpacked(other.sums["fourth"]), shift))}
            other = replace(other, centre=self.centre, sums=moved)
        if np.array_equal(self.basis, other.basis):
            return replace(self, sums=plus(self.sums, other.sums))
        return super().merge(other)

    def central(self, known: Covariance) -> FourthMoment:
        """The cumulant, beside mean and covariance of the same rows."""
        weight, cumulant = fourth_cumulant(unpacked(self.seen()["fourth"]))
        return FourthMoment(
            known.count, known.weight, known.mean, known.covariance, self.basis, weight, cumulant
        )
