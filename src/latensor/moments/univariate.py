"""The first six moments of numbers as plain sums of powers.

Sums of powers around one centre are brought to the mean by the binomial theorem, which is exact;
in units near their standard deviation no power overflows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np

from latensor.moments.batch import Batch
from latensor.moments.batches import refuse_overflow
from latensor.moments.sums import Sums
from latensor.value_files import storable

ORDER = 6


@dataclass(frozen=True)
class SixMoments:
    """Mean and central moments of numbers x.

    Attributes
    ----------
    count : int
    weight : float
    mean : float
    central : (7,), the expectation of ((x - mean) / unit)^p for p = 0, ..., 6
    unit : float
    """

    count: int
    weight: float
    mean: float
    central: Any
    unit: float = 1.0


@storable
@dataclass(frozen=True, eq=False)
class PowerSums(Sums):
    """Weights times ((x - centre) / unit)^p, p = 0, ..., 6, summed over numbers x.

    Attributes
    ----------
    centre, unit : float
    """

    centre: float
    unit: float

    def summed(self, batch: Batch) -> dict[str, Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            standard = (batch.rows[:, 0].astype(np.float64) - self.centre) / self.unit
            powers, power = np.empty(ORDER + 1), batch.weights
            for order in range(ORDER + 1):
                powers[order] = power.sum()
                power = power * standard
        return {"count": len(batch), "powers": powers}

    def finalize(self) -> SixMoments:
        sums = self.seen()
        powers = sums["powers"]
        refuse_overflow(powers, "sixth")
        gap = float(powers[1] / powers[0])
        central = shifted(powers, gap) / powers[0]
        central[1] = 0.0
        mean = self.centre + gap * self.unit
        return SixMoments(int(sums["count"]), float(powers[0]), mean, central, self.unit)

    def recentred(self, centre: float, unit: float) -> PowerSums:
        """The same sums around another centre, in another unit."""
        sums = self.seen()
        moved = shifted(sums["powers"], (centre - self.centre) / self.unit)
        moved *= (self.unit / unit) ** np.arange(ORDER + 1)
        return replace(self, centre=centre, unit=unit, sums={**sums, "powers": moved})


def shifted(sums: Any, shift: float) -> Any:
    """Sums of powers y^p, p = 0, 1, ..., as sums of (y - shift)^p."""
    powers = (-shift) ** np.arange(len(sums))
    return np.array(
        [sum(comb(p, q) * powers[p - q] * sums[q] for q in range(p + 1)) for p in range(len(sums))]
    )
