"""What unmixing sums over samples: means of functions of the scores, as accumulators.

A batch holds scores (n, k) and, as its second part, the sensors (n, d) minus their mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.estimation.run import Run
from latensor.models.ica.scores import MOST_SAMPLES, ScoreTables, counted, functions
from latensor.moments.batch import Batch, Kind
from latensor.moments.sums import Mapped, Sums
from latensor.sources.shards import Source

# A pass over the scores: what a fold makes of an empty accumulator.
Pass = Callable[[Any], Any]

# Squares beyond this would rule a correlation.
_LARGE = 9.0


@dataclass(frozen=True, eq=False)
class Scoring:
    """Samples as scores: (x - centre) @ projection, beside the centred samples themselves."""

    centre: Array
    projection: Array

    def __call__(self, batch: Batch) -> Batch:
        centred = batch.rows - self.centre
        return Batch((centred @ self.projection, centred), batch.weights, batch.keys)


def scored(run: Run, scoring: Scoring, units: Batch | None) -> Pass:
    """Passes over the scores of samples: made once of units in memory, else in every pass."""
    if units is None:
        return lambda start: run.fold("unmixing", Mapped(start, scoring)).inner
    blocks = [scoring(block) for block in units.blocks(Kind.ROWS.block)]
    source, engine = Source(Kind.ROWS, (blocks,)), run.local_engine()
    return lambda start: engine.fold(source, start)


@dataclass(frozen=True, eq=False)
class ScoreCovariance(Sums):
    """Weight, mean (k,) and covariance (k, k) of the scores, and the mean (d,) of the sensors."""

    def summed(self, batch: Batch) -> dict[str, Any]:
        scores, sensors = batch.parts
        weighted = scores * batch.weights[:, None]
        return {
            "weight": batch.weight,
            "first": weighted.sum(axis=0),
            "second": weighted.T @ scores,
            "sensors": batch.weights @ sensors,
        }

    def finalize(self) -> tuple[float, Array, Array, Array]:
        sums = self.seen()
        weight = float(sums["weight"])
        mean = sums["first"] / weight
        return (
            min(weight, MOST_SAMPLES),
            mean,
            sums["second"] / weight - np.outer(mean, mean),
            sums["sensors"] / weight,
        )


@dataclass(frozen=True)
class TurnMeans:
    """Expectations over the turned scores y, with functions f_m, m = 1, ..., M.

    y is centered where it is a factor. cross : (M, k, k), of f_m(y_i) y_j; products : (M, M, k),
    of f_m f_l; means, slopes : (M, k), of f_m and f_m'; second : (k, k), of y_i y_j; weight :
    float, of all samples.
    """

    cross: Any
    products: Any
    means: Any
    slopes: Any
    second: Any
    weight: float

    @property
    def squares(self) -> Any:
        """The expectations (k,) of y^2."""
        return np.diag(self.second)


@dataclass(frozen=True, eq=False)
class TurnSums(Sums):
    """Means of a few functions of turned scores.

    Attributes
    ----------
    rotation : (k, k), columns
    """

    rotation: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        weights = batch.weights
        # Rows along the last axis: sums over them are products of matrices.
        turned = self.rotation.T @ batch.rows.T
        values, derivatives = functions(turned)
        weighted = values * weights
        own = weighted.transpose(1, 0, 2) @ values.transpose(1, 2, 0)
        return {
            "weight": batch.weight,
            "first": turned @ weights,
            "second": (turned * weights) @ turned.T,
            "slopes": derivatives @ weights,
            "means": weighted.sum(axis=2),
            "cross": weighted @ turned.T,
            "products": own.transpose(1, 2, 0),
        }

    def finalize(self) -> TurnMeans:
        sums = self.seen()
        weight = float(sums["weight"])
        found = {name: values / weight for name, values in sums.items()}
        # Rows that stand for more of them have a mean of their own.
        return TurnMeans(
            found["cross"] - found["means"][:, :, None] * found["first"],
            found["products"],
            found["means"],
            found["slopes"],
            found["second"] - np.outer(found["first"], found["first"]),
            min(weight, MOST_SAMPLES),
        )


@dataclass(frozen=True, eq=False)
class CellCounts(Sums):
    """The weight of every source in every cell of its values, in two halves.

    Attributes
    ----------
    mean : (k,), of the scores
    unmixing : (k, k), columns for sources of variance one
    """

    mean: Array
    unmixing: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        turned = (batch.rows - self.mean) @ self.unmixing
        return {"counts": counted(turned, batch.weights)}

    def finalize(self) -> Array:
        counts = self.seen()["counts"]
        return counts * min(1.0, MOST_SAMPLES / counts[0].sum())


@dataclass(frozen=True, eq=False)
class PairSums(Sums):
    """Means of sources and of their score functions, in pairs.

    Attributes
    ----------
    mean, unmixing : as in `CellCounts`
    tables : ScoreTables, the score functions
    with_sensors : bool, whether what every sensor sees of each source is summed too
    """

    mean: Array
    unmixing: Array
    tables: ScoreTables
    with_sensors: bool = False

    def summed(self, batch: Batch) -> dict[str, Any]:
        scores, sensors = batch.parts
        weights = batch.weights
        turned = (scores - self.mean) @ self.unmixing
        values, derivatives = self.tables(turned)
        weighted = values * weights[:, None]
        squares = np.minimum(turned * turned, _LARGE)
        sums = {
            "weight": batch.weight,
            "slopes": weights @ derivatives,
            "offsets": weighted.sum(axis=0),
            "crossed": weighted.T @ turned,
            "both": weighted.T @ values,
            "power": weights @ squares,
            "energy": (squares * weights[:, None]).T @ squares,
        }
        if not self.with_sensors:
            return sums
        return {
            **sums,
            "seen": sensors.T @ (turned * weights[:, None]),
            "tangent": sensors.T @ weighted,
        }
