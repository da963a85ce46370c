"""The log-likelihood of classes as Fisher scoring asks for it: of rows in memory, or by passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from latensor.arrays import Array
from latensor.estimation.run import Run
from latensor.models.regression.design import Design, scaled_design
from latensor.models.regression.losses import ClassLoss
from latensor.models.regression.objective import Objective, Point, RowObjective
from latensor.models.regression.solve import Fitted
from latensor.models.regression.weights import LowRank
from latensor.moments.batch import Batch
from latensor.moments.row_sums import packed, unpacked
from latensor.moments.sums import Sums, Tree
from latensor.refinement.em import Loop
from latensor.value_files import storable


class ClassObjective(Objective):
    """Minus the log-likelihood of classes, and what chooses the ridge."""

    def left_out(self, fitted: Fitted[Any]) -> float:
        """The approximate leave-one-out loss at an optimum."""
        raise NotImplementedError

    def loop(self, name: str) -> Loop:
        """Where the steps of a minimization are kept, and taken up again."""
        return Loop()


def _inverse_root(fitted: Fitted[Any]) -> Array:
    """(p + e, r) whose products are the inverse of the penalized curvature, where it has one."""
    values, vectors = np.linalg.eigh(fitted.penalized[0])
    kept = values > 1e-10 * max(float(values[-1]), np.finfo(float).tiny)
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


@dataclass(frozen=True, eq=False)
class ClassRows(RowObjective, ClassObjective):
    """Of rows in memory."""

    loss: ClassLoss

    def left_out(self, fitted: Fitted[Any]) -> float:
        at: Any = fitted.point
        return self.loss.left_out(fitted.weights, at.at, fitted.intercepts, _inverse_root(fitted))


@dataclass(frozen=True, eq=False)
class RowFrame:
    """How rows and labels of a batch are seen.

    Attributes
    ----------
    dims : d_1, .., d_N
    mean : (D,), subtracted from every row
    scale : float, by which rows are then divided
    has_intercept : bool
    """

    dims: tuple[int, ...]
    mean: Array
    scale: float
    has_intercept: bool

    def __call__(self, batch: Batch) -> tuple[ClassLoss, Design]:
        rows, labels = batch.parts
        loss = ClassLoss(np.asarray(labels), batch.weights, self.has_intercept)
        return loss, scaled_design(rows, self.dims, self.mean, self.scale)


@dataclass(frozen=True, eq=False)
class ScoringSums(Sums):
    """Loss, gradient and expected curvature of rows at weights: one step of Fisher scoring."""

    frame: RowFrame
    weights: LowRank
    intercepts: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        loss, design = self.frame(batch)
        at = self.weights.linearize(design)
        gram, right = loss.normal(self.weights, at, self.intercepts)
        return {"loss": loss.value(at.fitted, self.intercepts), "gram": gram, "right": right}

    def message(self) -> Tree:
        return packed(self.sums, "gram")

    def received(self, message: Tree) -> Self:
        return replace(self, sums=unpacked(message, "gram"))


@dataclass(frozen=True, eq=False)
class LeftOutSums(Sums):
    """Approximate leave-one-out losses of rows at an optimum; `root` as in `ClassLoss.left_out`."""

    frame: RowFrame
    weights: LowRank
    intercepts: Array
    root: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        loss, design = self.frame(batch)
        at = self.weights.linearize(design)
        return {"loss": loss.left_out(self.weights, at, self.intercepts, self.root)}


@storable
@dataclass(frozen=True, eq=False)
class FoldedPoint(Point):
    """What one pass has summed."""

    loss: float
    normal: tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class FoldedClasses(ClassObjective):
    """Of any source: every look at the loss is a fold, p x p numbers travel.

    Attributes
    ----------
    run : Run
    frame : RowFrame
    n_outputs : int
    n_samples : float, the sum of the weights of all rows
    """

    run: Run
    frame: RowFrame
    n_outputs: int
    n_samples: float

    @property
    def n_intercepts(self) -> int:  # type: ignore[override]
        return self.n_outputs if self.frame.has_intercept else 0

    @property
    def null(self) -> float:
        return self.n_samples * float(np.log(max(self.n_outputs, 2)))

    def at(self, weights: LowRank, intercepts: Array) -> FoldedPoint:
        found = self.run.fold("scoring", ScoringSums(self.frame, weights, intercepts)).seen()
        return FoldedPoint(float(found["loss"]), (found["gram"], found["right"]))

    def left_out(self, fitted: Fitted[Any]) -> float:
        root = _inverse_root(fitted)
        start = LeftOutSums(self.frame, fitted.weights, fitted.intercepts, root)
        return float(self.run.fold("leave one out", start).seen()["loss"])

    def loop(self, name: str) -> Loop:
        return self.run.loop(name)
