"""The covariance of many features as an accumulator of folds: a sketch, which is no sum."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from latensor.moments.batch import Batch
from latensor.moments.sketch import CovarianceSketch, CovarianceSketchAccumulator
from latensor.moments.sums import Folded, Tree
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class SketchedCovariance(Folded):
    """The leading directions of rows in one pass; merged, but neither scaled nor grouped exactly.

    Attributes
    ----------
    rank : int, the directions kept
    sketch : CovarianceSketchAccumulator, None before the first row
    """

    rank: int
    sketch: CovarianceSketchAccumulator | None = None

    def empty(self) -> SketchedCovariance:
        return SketchedCovariance(self.rank)

    def update(self, batch: Batch) -> SketchedCovariance:
        mine = self.sketch or CovarianceSketchAccumulator(self.rank)
        return replace(self, sketch=mine.update(batch.rows, batch.weights))

    def merge(self, other: SketchedCovariance) -> SketchedCovariance:
        if self.sketch is None or other.sketch is None:
            return replace(self, sketch=copy.copy(other.sketch or self.sketch))
        return replace(self, sketch=copy.copy(self.sketch).merge(other.sketch))

    def message(self) -> Tree:
        return self.sketch

    def received(self, message: Any) -> SketchedCovariance:
        return replace(self, sketch=message)

    def finalize(self) -> CovarianceSketch:
        """The sketch so far."""
        return (self.sketch or CovarianceSketchAccumulator(self.rank)).finalize()
