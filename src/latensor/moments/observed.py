"""Mean and covariance of rows of which some entries may be unobserved (NaN)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.row_sums import CovarianceSums
from latensor.moments.second import Covariance
from latensor.moments.sums import Sums
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class ObservedSums(Sums):
    """Sums of `CovarianceSums` over the observed entries, and how many are unobserved.

    Attributes
    ----------
    centre : (d,), what is subtracted from every row
    """

    centre: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        missing = np.isnan(batch.rows)
        n_missing = int(missing.sum())
        filled = batch
        if n_missing:
            rows = np.where(missing, self.centre, batch.rows.astype(np.float64))
            filled = Batch((rows,), batch.weights, batch.keys)
        found = CovarianceSums(self.centre).summed(filled)
        found["observed"] = batch.weights @ ~missing
        found["n_missing"] = n_missing
        return found

    @property
    def n_missing(self) -> int:
        """The number of unobserved entries."""
        return int(self.seen()["n_missing"])

    @property
    def observed(self) -> Array:
        """The weight (d,) of the rows in which each feature was observed."""
        observed: Array = self.seen()["observed"]
        return observed

    def finalize(self) -> Covariance:
        """Mean and covariance; the variances alone where entries are missing."""
        sums = {n: v for n, v in self.seen().items() if n not in ("observed", "n_missing")}
        if not self.n_missing:
            return replace(CovarianceSums(self.centre), sums=sums).finalize()
        seen = np.maximum(self.observed, np.finfo(float).tiny)
        gap = sums["first"] / seen
        variances = np.maximum(np.diag(sums["second"]) / seen - gap**2, 0.0)
        weight, count = float(sums["weight"]), int(sums["count"])
        return Covariance(count, weight, self.centre + gap, np.diag(variances))


def observed_centre(batch: Batch) -> Array:
    """The mean (d,) of the observed entries of a first block; zero where there are none."""
    rows = batch.rows.astype(np.float64)
    seen = ~np.isnan(rows)
    masses = batch.weights @ seen
    with np.errstate(over="ignore", invalid="ignore"):
        totals = batch.weights @ np.where(seen, rows, 0.0)
        centre: Array = totals / np.maximum(masses, np.finfo(float).tiny)
    return np.where(np.isfinite(centre), centre, 0.0)
