"""The smallest and the largest value of every feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.moments.batch import Batch
from latensor.moments.sums import Folded, Tree
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class Extremes(Folded):
    """Where all rows lie: a monoid, though no sum; how often a row counts does not matter.

    Attributes
    ----------
    low, high : (d,), None before a row is seen
    """

    low: Any = None
    high: Any = None

    def empty(self) -> Extremes:
        return Extremes()

    def update(self, batch: Batch) -> Extremes:
        return self.merge(Extremes(batch.rows.min(axis=0), batch.rows.max(axis=0)))

    def merge(self, other: Extremes) -> Extremes:
        if self.low is None or other.low is None:
            return other if self.low is None else self
        return Extremes(np.minimum(self.low, other.low), np.maximum(self.high, other.high))

    def scaled(self, factor: float) -> Extremes:
        return self

    def message(self) -> Tree:
        return {"low": self.low, "high": self.high}

    def received(self, message: Tree) -> Extremes:
        return Extremes(message["low"], message["high"])
