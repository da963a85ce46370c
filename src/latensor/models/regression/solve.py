"""Weights of low rank that minimize a loss with a ridge: damped Newton steps on all blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.linalg

from latensor.arrays import Array
from latensor.models.regression.design import Regression
from latensor.models.regression.losses import Loss
from latensor.models.regression.weights import Linearized, LowRank

W = TypeVar("W", bound=LowRank)

_DAMPING, _DAMPING_CHANGE, _MAX_TRIALS = 1e-3, 8.0, 12
# Damping is never below this: parameters that change no weight have no curvature.
_LEAST_DAMPING = 1e-13


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
    loss : float, without the penalty
    at : Linearized, at the optimum
    normal : curvature (p + e, p + e) of the loss there and minus its gradient (p + e,)
    ridge : Ridge, whose kind decides how norms are shared among the blocks
    n_iter : int, Gauss-Newton steps
    converged : bool
    """

    weights: W
    intercepts: Array
    loss: float
    at: Linearized
    normal: tuple[Array, Array]
    ridge: Ridge
    n_iter: int = 1  # where the start was the optimum, a step was computed and not taken
    converged: bool = False

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
    loss: Loss, regression: Regression, weights: W, ridge: Ridge, intercepts: Array | None = None
) -> Fitted[W]:
    """Weights as they are, norms shared as the penalty asks."""
    weights = weights.balanced() if ridge.penalty == "weights" else weights.smallest()
    b = np.zeros(loss.n_intercepts) if intercepts is None else intercepts
    at = weights.linearize(regression.design)
    normal = loss.normal(weights, at, b)
    return Fitted(weights, b, loss.value(at.fitted, b), at, normal, ridge)


def minimize(
    loss: Loss,
    regression: Regression,
    start: Fitted[W],
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> Fitted[W]:
    """Levenberg-Marquardt on all blocks at once.

    Parameters
    ----------
    loss : Loss
    regression : Regression, whose design is used
    start : Fitted, with the ridge
    max_iter : int
    tol : float, relative decrease of the penalized loss below which it has converged
    """
    ridge, p, at = start.ridge, start.weights.n_parameters, start.at
    floor = float(np.finfo(float).eps) * loss.value(
        np.zeros_like(at.fitted), np.zeros(loss.n_intercepts)
    )
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
            pull = regression.design.cross(loss.residual(now.at.fitted, now.intercepts))
            bent[:p, :p] -= now.weights.bending(pull)
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
            at = weights.linearize(regression.design)
            lost = loss.value(at.fitted, b)
            trial = lost + ridge.value(weights)
            if trial <= value:
                break
            damping *= _DAMPING_CHANGE
            step = _solved(gram, right, damping * mean)
        else:
            converged = True  # no step decreases what rounding leaves of the loss
            break
        damping = max(damping / _DAMPING_CHANGE, _LEAST_DAMPING)
        converged = value - trial <= small
        now, value = Fitted(weights, b, lost, at, loss.normal(weights, at, b), ridge), trial
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
