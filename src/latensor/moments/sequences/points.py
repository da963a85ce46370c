"""Mean and spread of the points of sequences, of which entries may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.moments.batch import Batch
from latensor.moments.batches import refuse_underflow
from latensor.moments.sums import Sums


@dataclass(frozen=True)
class PointSpread:
    """What all points say, entry by entry.

    Attributes
    ----------
    mean, deviation : (p,)
    counts : (p,) how many entries were observed
    weight : float, rows
    """

    mean: Any
    deviation: Any
    counts: Any
    weight: float


@dataclass(frozen=True, eq=False)
class PointSums(Sums):
    """Sums of the entries that were observed, and of their squares, around a centre (p,)."""

    centre: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        units = batch.rows
        weights = units.row_weights(batch.weights)
        observed = ~np.isnan(units.rows)
        points = np.where(observed, units.rows - self.centre, 0.0)
        seconds = weights @ points**2
        refuse_underflow(points, self.centre, seconds)
        return {
            "counts": weights @ observed,
            "firsts": weights @ points,
            "seconds": seconds,
            "weight": float(weights.sum()),
        }

    def finalize(self) -> PointSpread:
        seen = self.seen()
        counts = np.maximum(seen["counts"], np.finfo(np.float64).tiny)
        shift = seen["firsts"] / counts
        variance = np.maximum(seen["seconds"] / counts - shift**2, 0.0)
        return PointSpread(self.centre + shift, np.sqrt(variance), seen["counts"], seen["weight"])
