"""Weights of low rank that minimize a loss with a ridge: sweeps over blocks, then Gauss-Newton.

The strength of the ridge is chosen on a path: strong at first, where all starts lead to the same
weights, then weaker by warm starts, until generalized cross-validation rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import scipy.linalg

from latensor.arrays import Array
from latensor.models.regression.design import Regression
from latensor.models.regression.losses import Loss, SquaredLoss
from latensor.models.regression.weights import Linearized, LowRank

W = TypeVar("W", bound=LowRank)

# Fractions of the mean square of an entry, per sample. The strongest is where the path starts;
# 3e-2 was best for correlated entries in the recipe's four settings, and the weakest is for data
# without noise.
ALPHAS = (1e-1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-6)
# Where entries are correlated and W has three modes or more, a path that starts here ends in the
# same optimum from any start (30 x 20 x 10, correlation .8); one that starts at 0.1 does not.
STRONG_ALPHAS = (1.0, 3e-1)
# Strengths of the penalty on factors, increasing: from the weights found without it, a component
# vanishes only where the data do not need it. Close together from 3e-3 on: between 3e-3 and 1e-2
# the error of Tucker weights (20 x 20, correlation .8) changes by a third.
FACTOR_ALPHAS = (1e-3, 3e-3, 6e-3, 1e-2, 1.4e-2, 2e-2, 3e-2)
# Sweeps before Gauss-Newton takes over, which needs a start in the right basin.
_SWEEPS = 3
# Relative decrease at which a point of the path is judged; the chosen one is followed to `tol`. At
# 1e-3 data without noise were taken for noisy (25 x 25, 1,000 samples).
_PATH_TOL = 5e-4
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
    value : float, with it
    at : Linearized, at the optimum
    normal : curvature (p + e, p + e) of the loss there and minus its gradient (p + e,)
    penalized : (p + e, p + e), the curvature with that of the ridge
    penalty : of the ridge, which decides how norms are shared among the blocks
    n_iter : int, Gauss-Newton steps
    converged : bool
    """

    weights: W
    intercepts: Array
    loss: float
    value: float
    at: Linearized
    normal: tuple[Array, Array]
    penalized: Array
    penalty: str
    n_iter: int
    converged: bool


def minimize(
    loss: Loss,
    regression: Regression,
    start: W | Fitted[W],
    ridge: Ridge,
    *,
    intercepts: Array | None = None,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> Fitted[W]:
    """Levenberg-Marquardt on all blocks at once.

    Parameters
    ----------
    loss : Loss
    regression : Regression, whose design is used
    start : LowRank, or where another strength has ended: what is known there is not computed anew
    ridge : Ridge
    intercepts : (e,), by default those of the start, or zeros
    max_iter : int
    tol : float, relative decrease of the penalized loss below which it has converged
    """
    design = regression.design
    eps = float(np.finfo(float).eps)

    def regular(weights: W) -> W:
        return weights.balanced() if ridge.penalty == "weights" else weights.smallest()

    if isinstance(start, Fitted) and start.penalty == ridge.penalty:
        weights, b, at, lost = start.weights, start.intercepts, start.at, start.loss
        normal = start.normal
    else:
        weights = regular(start.weights if isinstance(start, Fitted) else start)
        b = np.zeros(loss.n_intercepts) if intercepts is None else intercepts
        at = weights.linearize(design)
        lost, normal = loss.value(at.fitted, b), loss.normal(weights, at, b)
    value = lost + ridge.value(weights)
    floor = eps * loss.value(np.zeros_like(at.fitted), np.zeros(loss.n_intercepts))
    damping, n_iter, converged = _DAMPING, 0, False
    while True:
        p = weights.n_parameters
        gram, right = (part.copy() for part in normal)
        gram[:p, :p] += ridge.curvature(weights)
        right[:p] -= ridge.gradient(weights)
        mean = float(np.trace(gram)) / len(gram) or 1.0
        theta = weights.pack()
        step = _solved(gram, right, damping * mean)
        # What the quadratic model promises of a step that damping hardly shortens.
        promised = 0.5 * float(right @ step + damping * mean * (step @ step))
        small = tol * value + floor
        converged = converged or (damping <= _DAMPING and promised <= small)
        if converged or n_iter == max_iter:
            break
        n_iter += 1
        for _ in range(_MAX_TRIALS):
            trial = regular(weights.unpack(theta + step[:p]))
            trial_b = b + step[p:]
            trial_at = trial.linearize(design)
            trial_lost = loss.value(trial_at.fitted, trial_b)
            trial_value = trial_lost + ridge.value(trial)
            if trial_value <= value:
                break
            damping *= _DAMPING_CHANGE
            step = _solved(gram, right, damping * mean)
        else:
            converged = True  # no step decreases what rounding leaves of the loss
            break
        damping = max(damping / _DAMPING_CHANGE, _LEAST_DAMPING)
        converged = value - trial_value <= small
        weights, b, at, lost, value = trial, trial_b, trial_at, trial_lost, trial_value
        normal = loss.normal(weights, at, b)
    # At least one: where the start was the optimum, a step was computed and not taken.
    return Fitted(
        weights, b, lost, value, at, normal, gram, ridge.penalty, max(n_iter, 1), converged
    )


def _solved(gram: Array, right: Array, shift: float) -> Array:
    shifted = gram.copy()
    shifted[np.diag_indices_from(shifted)] += shift
    try:
        factor = scipy.linalg.cho_factor(shifted, check_finite=False)
        found: Array = scipy.linalg.cho_solve(factor, right, check_finite=False)
        return found
    except np.linalg.LinAlgError:
        return np.linalg.lstsq(shifted, right, rcond=None)[0]


def degrees_of_freedom(fitted: Fitted[W]) -> float:
    """The trace of (H + P)^+ H, with the curvatures H of the loss and P of the penalty."""
    gram, whole = fitted.normal[0], fitted.penalized.copy()
    # Parameters that change no weight have no curvature, and count nothing.
    shift = 1e-10 * float(np.trace(whole)) / len(whole) or 1.0
    whole[np.diag_indices_from(whole)] += shift
    factor, lower = scipy.linalg.cho_factor(whole, lower=True, check_finite=False)
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=lower, overwrite_c=True)
    inverse = np.tril(inverse)
    return float(2 * np.vdot(inverse, gram) - np.diagonal(inverse) @ np.diagonal(gram))


@dataclass(frozen=True)
class Strength:
    """One point of the path: alpha, its degrees of freedom and its cross-validated error."""

    alpha: float
    n_free: float
    error: float


@dataclass(frozen=True, eq=False)
class PathFit(Generic[W]):
    """The chosen point of a path, and all that were tried."""

    fitted: Fitted[W]
    chosen: Strength
    tried: tuple[Strength, ...]
    penalty: str


def squared_path(
    regression: Regression,
    starts: Sequence[W],
    alphas: Sequence[float],
    *,
    warm_up: Sequence[float] = (),
    penalty: str = "weights",
    intercept: bool = True,
    max_iter: int = 100,
) -> PathFit[W]:
    """Least squares along a path of alphas, chosen by generalized cross-validation.

    GCV = n q |y - f|^2 / (n q - k)^2, with the degrees of freedom k and q more for intercepts.

    Parameters
    ----------
    regression : Regression
    starts : where the path begins; for the penalty on weights the best after the first alpha
    alphas : strengths in the order of the path; one of them is chosen
    warm_up : those that come before
    penalty, max_iter : see `Ridge` and `minimize`
    intercept : bool, whether intercepts are estimated
    """
    loss = SquaredLoss(regression.targets, regression.rest)
    n, count = regression.n_samples, regression.n_samples * regression.n_outputs
    extra = regression.n_outputs if intercept else 0
    path = (*warm_up, *alphas)
    point: W | Fitted[W] = starts[0]
    if penalty == "weights":
        point = _first(loss, regression, starts, Ridge(path[0] * n), max_iter)
    found: list[tuple[Fitted[W], Strength]] = []
    for k, alpha in enumerate(path):
        ridge = Ridge(alpha * n, penalty)
        fitted = minimize(loss, regression, point, ridge, max_iter=max_iter, tol=_PATH_TOL)
        point = fitted
        if k < len(warm_up):
            continue
        free = degrees_of_freedom(fitted)
        left = count - free - extra
        error = 2 * fitted.loss * count / left**2 if left > 0 else np.inf
        found.append((fitted, Strength(alpha, free, error)))
        if len(found) > 1 and error > found[-2][1].error:
            break
    fitted, chosen = min(found, key=lambda f: f[1].error)
    return PathFit(fitted, chosen, tuple(strength for _, strength in found), penalty)


def finished(
    path: PathFit[W], regression: Regression, *, max_iter: int = 100, tol: float = 1e-6
) -> PathFit[W]:
    """The chosen point of a path, followed until it has converged."""
    loss = SquaredLoss(regression.targets, regression.rest)
    ridge = Ridge(path.chosen.alpha * regression.n_samples, path.penalty)
    fitted = minimize(loss, regression, path.fitted, ridge, max_iter=max_iter, tol=tol)
    return replace(path, fitted=fitted)


def _first(
    loss: SquaredLoss, regression: Regression, starts: Sequence[W], ridge: Ridge, max_iter: int
) -> W | Fitted[W]:
    """The start whose optimum at the first strength is lowest, there."""
    best: Fitted[W] | None = None
    for start in starts:
        weights = start
        for _ in range(_SWEEPS):
            weights = weights.sweep(regression.design, regression.targets, ridge.strength)
        if len(starts) == 1:
            return weights
        fitted = minimize(loss, regression, weights, ridge, max_iter=max_iter, tol=_PATH_TOL)
        if best is None or fitted.value < best.value:
            best = fitted
    assert best is not None
    return best
