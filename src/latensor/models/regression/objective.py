"""What a minimizer asks of a loss, whether rows are in memory or every look is a pass over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latensor.arrays import Array
from latensor.models.regression.design import Design
from latensor.models.regression.losses import Loss
from latensor.models.regression.weights import Linearized, LowRank


class Point:
    """A loss at weights and intercepts.

    Attributes
    ----------
    loss : float
    normal : the expected second derivatives (p + e, p + e) and minus the gradient (p + e,)
    """

    loss: float
    normal: tuple[Array, Array]

    def pull(self) -> Array:
        """Minus the gradient by the full weights (D, q)."""
        raise NotImplementedError


class Objective:
    """A loss summed over rows, as a function of weights of low rank and of intercepts (e,)."""

    n_intercepts: int

    @property
    def null(self) -> float:
        """The loss of zero weights and intercepts."""
        raise NotImplementedError

    def at(self, weights: LowRank, intercepts: Array) -> Point:
        """The loss there."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class RowObjective(Objective):
    """Of rows in memory."""

    loss: Loss
    design: Design

    @property
    def n_intercepts(self) -> int:  # type: ignore[override]
        return self.loss.n_intercepts

    @cached_property
    def null(self) -> float:
        zeros = np.zeros((self.design.n_rows, self.loss.n_outputs))
        return self.loss.value(zeros, np.zeros(self.n_intercepts))

    def at(self, weights: LowRank, intercepts: Array) -> RowPoint:
        return RowPoint(self, weights, intercepts)


@dataclass(frozen=True, eq=False)
class RowPoint(Point):
    """Fitted values and derivatives are worked out when they are first asked for."""

    objective: RowObjective
    weights: LowRank
    intercepts: Array

    @cached_property
    def at(self) -> Linearized:
        """Fitted values, and what their derivatives are made of."""
        return self.weights.linearize(self.objective.design)

    @cached_property
    def loss(self) -> float:  # type: ignore[override]
        return self.objective.loss.value(self.at.fitted, self.intercepts)

    @cached_property
    def normal(self) -> tuple[Array, Array]:  # type: ignore[override]
        return self.objective.loss.normal(self.weights, self.at, self.intercepts)

    def pull(self) -> Array:
        residual = self.objective.loss.residual(self.at.fitted, self.intercepts)
        return self.objective.design.cross(residual)
