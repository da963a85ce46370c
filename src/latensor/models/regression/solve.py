"""Weights of low rank that minimize a loss with a ridge: damped Newton steps on all blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.linalg

from latensor.arrays import Array
from latensor.models.regression.objective import Objective, Point
from latensor.models.regression.weights import LowRank

W = TypeVar("W", bound=LowRank)

_DAMPING, _DAMPING_CHANGE, _MAX_TRIALS = 1e-3, 8.0, 12
# Damping is never below this: parameters that change no weight have no curvature, and a step along
# them is the rounding of the gradient, eps, divided by the damping. Below, the order in which rows
# are summed moved the loss by 2e-8 of itself.
_LEAST_DAMPING = float(np.finfo(float).eps) ** 0.5


@dataclass(frozen=True)
class Ridge:
    """lambda |W|^2, or lambda times the squares of all parameters ("factors").

    The second acts like a nuclear norm: it removes components that the data do not need.
    """

    strength: float
    penalty: str = "weights"

    def value(self, weights: LowRank) -> float:
        """Half of the penalty."""
        if self.penalty == "weights":
            return 0.5 * self.strength * weights.squared_norm()
        return 0.5 * self.strength * float((weights.pack() ** 2).sum())

    def gradient(self, weights: LowRank) -> Array:
        """Its gradient (p,)."""
        if self.penalty == "weights":
            return self.strength * weights.norm_gradient()
        return self.strength * weights.pack()

    def curvature(self, weights: LowRank) -> Array:
        """Its Gauss-Newton matrix (p, p)."""
        if self.penalty == "weights":
            return self.strength * weights.metric()
        return self.strength * np.eye(weights.n_parameters)


@dataclass(frozen=True, eq=False)
class Fitted(Generic[W]):
    """Where an optimization has ended.

    Attributes
    ----------
    weights : the parametrization at its optimum
    intercepts : (e,)
    point : Point, the loss and its derivatives there, without the penalty
    ridge : Ridge, whose kind decides how norms are shared among the blocks
    n_iter : int, Gauss-Newton steps
    converged : bool
    """

    weights: W
    intercepts: Array
    point: Point
    ridge: Ridge
    n_iter: int = 1  # where the start was the optimum, a step was computed and not taken
    converged: bool = False

    @property
    def loss(self) -> float:
        """Without the penalty."""
        return self.point.loss

    @property
    def normal(self) -> tuple[Array, Array]:
        """The expected curvature (p + e, p + e) of the loss and minus its gradient (p + e,)."""
        return self.point.normal

    @property
    def value(self) -> float:
        """The loss with the penalty."""
        return self.loss + self.ridge.value(self.weights)

    @property
    def penalized(self) -> tuple[Array, Array]:
        """The expected curvature and minus the gradient, with those of the penalty."""
        gram, right = (part.copy() for part in self.normal)
        p = self.weights.n_parameters
        gram[:p, :p] += self.ridge.curvature(self.weights)
        right[:p] -= self.ridge.gradient(self.weights)
        return gram, right


def evaluated(
    objective: Objective, weights: W, ridge: Ridge, intercepts: Array | None = None
) -> Fitted[W]:
    """Weights as they are, norms shared as the penalty asks."""
    weights = weights.balanced() if ridge.penalty == "weights" else weights.smallest()
    b = np.zeros(objective.n_intercepts) if intercepts is None else intercepts
    return Fitted(weights, b, objective.at(weights, b), ridge)


def minimize(
    objective: Objective, start: Fitted[W], *, max_iter: int = 100, tol: float = 1e-6
) -> Fitted[W]:
    """Levenberg-Marquardt on all blocks at once.

    Parameters
    ----------
    objective : Objective
    start : Fitted, with the ridge
    max_iter : int
    tol : float, relative decrease of the penalized loss below which it has converged
    """
    ridge, p = start.ridge, start.weights.n_parameters
    floor = float(np.finfo(float).eps) * objective.null
    now, value = start, start.value
    damping, n_iter, converged = _DAMPING, 0, False
    while not converged and n_iter < max_iter:
        gram, right = now.penalized
        mean = float(np.trace(gram)) / len(gram) or 1.0
        theta = now.weights.pack()
        factor = None
        if ridge.penalty == "factors":
            # Newton's matrix where it has a minimum: Gauss and Newton's needs many steps where a
            # component vanishes. Of |W|^2 it hardly has one: some parameters change no weight.
            bent = gram.copy()
            bent[:p, :p] -= now.weights.bending(now.point.pull())
            factor = factored(bent, damping * mean)
            gram = gram if factor is None else bent
        step = _solved(gram, right, damping * mean, factor)
        # What the quadratic model promises of a step that damping hardly shortens.
        promised = 0.5 * float(right @ step + damping * mean * (step @ step))
        small = tol * value + floor
        converged = damping <= _DAMPING and promised <= small
        if converged:
            break
        n_iter += 1
        for _ in range(_MAX_TRIALS):
            weights = now.weights.unpack(theta + step[:p])
            if ridge.penalty == "weights":
                weights = weights.balanced()
            b = now.intercepts + step[p:]
            there = Fitted(weights, b, objective.at(weights, b), ridge)
            trial = there.value
            if trial <= value:
                break
            damping *= _DAMPING_CHANGE
            step = _solved(gram, right, damping * mean)
        else:
            converged = True  # no step decreases what rounding leaves of the loss
            break
        damping = max(damping / _DAMPING_CHANGE, _LEAST_DAMPING)
        converged = value - trial <= small
        now, value = there, trial
    return replace(now, n_iter=max(n_iter, 1), converged=converged)


def factored(gram: Array, shift: float) -> Any:
    """The Cholesky factor of gram + shift I, as SciPy has it; None where there is none."""
    shifted = gram.copy()
    shifted.flat[:: len(gram) + 1] += shift
    try:
        return scipy.linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None


def _solved(gram: Array, right: Array, shift: float, factor: Any = None) -> Array:
    factor = factored(gram, shift) if factor is None else factor
    if factor is None:
        return np.linalg.lstsq(gram + shift * np.eye(len(gram)), right, rcond=None)[0]
    found: Array = scipy.linalg.cho_solve(factor, right, check_finite=False)
    return found
