"""Mean, covariance and third powers of rows as plain sums around a centre of the frame.

Plain addition is what scales, groups and merges exactly; around a centre near the mean it loses no
more digits than Chan's update (moving rows of variance one by 1e6 changes variances by 3e-13).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.batches import only_rounding, refuse_overflow
from latensor.moments.second import Covariance
from latensor.moments.sums import Sums
from latensor.moments.third import ThirdMoment
from latensor.moments.third_sums import ThirdSums, displacement, third_sums


@dataclass(frozen=True, eq=False)
class CovarianceSums(Sums):
    """Weight, mean and covariance of rows.

    Attributes
    ----------
    centre : (d,), what is subtracted from every row
    """

    centre: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = batch.rows.astype(np.float64) - self.centre
            weighted = rows * batch.weights[:, None]
            second = weighted.T @ rows
        return {
            "count": len(batch),
            "weight": batch.weight,
            "first": weighted.sum(axis=0),
            "second": second,
        }

    def finalize(self) -> Covariance:
        sums = self.seen()
        refuse_overflow(sums["second"], "second")
        weight, count = float(sums["weight"]), int(sums["count"])
        gap = sums["first"] / weight
        covariance = sums["second"] / weight - np.outer(gap, gap)
        mean = self.centre + gap
        # Scaled to variance one, what rounding leaves of a constant would look like a signal.
        constant = only_rounding(mean, np.diagonal(covariance), count)
        if constant.any():
            covariance = np.where(constant[:, None] | constant, 0.0, covariance)
        return Covariance(count, weight, mean, covariance)

    def recentred(self, centre: Array) -> CovarianceSums:
        """The same sums seen from another centre."""
        sums = self.seen()
        move = self.centre - centre
        cross = np.outer(sums["first"], move)
        moved = {
            **sums,
            "first": sums["first"] + sums["weight"] * move,
            "second": sums["second"] + cross + cross.T + sums["weight"] * np.outer(move, move),
        }
        return replace(self, centre=centre, sums=moved)


@dataclass(frozen=True, eq=False)
class ThirdPowerSums(Sums):
    """Third powers of rows along a basis.

    Attributes
    ----------
    centre : (d,)
    basis : (d, r), orthonormal columns
    squares : bool, whether x_i^2 x_l is summed too
    """

    centre: Array
    basis: Array
    squares: bool = False

    def summed(self, batch: Batch) -> dict[str, Any]:
        found = third_sums(batch.rows, batch.weights, self.centre, self.basis, squares=self.squares)
        sums = {"third": found.third, "norm": found.norm_third}
        return {**sums, "squares": found.square_third} if self.squares else sums

    def central(self, known: Covariance) -> ThirdMoment:
        """The central moments, once mean and covariance of the same rows are known."""
        sums = self.seen()
        extra = displacement(known.mean - self.centre, known.covariance, self.basis, self.squares)
        found = ThirdSums(sums["third"], sums["norm"], sums.get("squares"))
        found = found.combined(1 / known.weight, extra, -1.0)
        return ThirdMoment(
            known.count,
            known.weight,
            known.mean,
            known.covariance,
            self.basis,
            found.third,
            found.norm_third,
            found.square_third,
        )


def centre_of(batch: Batch) -> Array:
    """The mean (d,) of a first block, around which sums are taken."""
    rows = batch.rows.astype(np.float64)
    centre: Array = batch.weights @ rows / batch.weight
    return centre if np.isfinite(centre).all() else np.zeros(rows.shape[1])
