"""Logistic and softmax regression with weights of low rank: Fisher scoring along a path of ridges.

The strength of the ridge is chosen by approximate leave-one-out: one Newton step away from the
optimum for every row, from the Gauss-Newton matrix that is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from latensor.arrays import Array
from latensor.models.regression.design import Regression, regression_of_rows
from latensor.models.regression.fit import Rank, RankScore, select_rank
from latensor.models.regression.losses import ClassLoss
from latensor.models.regression.solve import Fitted, Ridge, evaluated, minimize
from latensor.models.regression.starts import cp_starts, tucker_starts
from latensor.models.regression.weights import LowRank

# Weaker ones would only fit what separates few samples: 0.1 was better than 0.01 in 12 of 12
# settings of MNIST.
CLASS_ALPHAS = (1.0, 3e-1, 1e-1, 3e-2, 1e-2, 1e-3)
# Lengths of the first weights, between which the likelihood chooses.
_START_SCALES = np.logspace(-2, 1, 7)
_N_FOLDS = 5
# Relative decrease at which a point of the path is judged; the chosen one is followed to `tol`.
_PATH_TOL = 1e-3


@dataclass(frozen=True)
class ClassSettings:
    """How classes are fitted, whatever the rank.

    Attributes
    ----------
    alpha : float or "auto"
    intercept : bool
    max_iter : int
    tol : float
    """

    alpha: float | str
    intercept: bool
    max_iter: int
    tol: float


@dataclass(frozen=True, eq=False)
class ClassFit:
    """Fitted weights of classes.

    Attributes
    ----------
    fitted : Fitted
    regression : Regression, how rows were centred and scaled
    alpha : float
    error : float, the approximate leave-one-out loss per sample
    """

    fitted: Fitted[Any]
    regression: Regression
    alpha: float
    error: float

    @property
    def dense(self) -> Array:
        """Weights (D, q) for rows as they were given."""
        found: Array = self.fitted.weights.dense() / self.regression.x_scale
        return found

    def intercept(self) -> Array:
        """(q,) for rows as they were given."""
        q = self.regression.n_outputs
        given = self.fitted.intercepts if len(self.fitted.intercepts) else np.zeros(q)
        return given - self.regression.x_mean @ self.dense


def fit_classes(
    rows: Any,
    labels: Array,
    weights: Array,
    dims: tuple[int, ...],
    rank: Rank,
    settings: ClassSettings,
) -> ClassFit:
    """Weights of one rank.

    Parameters
    ----------
    rows : (n, D) array or CSR
    labels : (n, q) of 0 and 1; of two classes one column
    weights : (n,), above zero
    dims : d_1, .., d_N
    rank : int, or one per mode
    settings : ClassSettings
    """
    regression = regression_of_rows(
        rows, labels, weights, dims, intercept=settings.intercept, rooted=False
    )
    start = regression_of_rows(rows, labels, weights, dims, intercept=settings.intercept)
    loss = ClassLoss(labels, weights, settings.intercept)
    starts: list[Any]
    if isinstance(rank, tuple):
        starts, _ = tucker_starts(start, rank)
    else:
        starts, _ = cp_starts(start, rank)
    chance = weights @ labels / weights.sum()
    if settings.intercept:
        chance = np.clip(chance, 1e-6, 1 - 1e-6)
        others = 1 - chance if labels.shape[1] == 1 else np.ones_like(chance)
        b = np.log(chance / others)
    else:
        b = np.zeros(0)
    automatic = isinstance(settings.alpha, str)
    alphas: Sequence[float] = CLASS_ALPHAS
    if not automatic:
        alphas = (float(settings.alpha),)
    found: list[ClassFit] = []
    n = regression.n_samples
    scaled = _scaled(loss, regression, starts[0], b, alphas[0] * n)
    fitted = evaluated(loss, regression, scaled, Ridge(alphas[0] * n), b)
    tol = max(settings.tol, _PATH_TOL) if automatic else settings.tol
    for alpha in alphas:
        fitted = replace(fitted, ridge=Ridge(alpha * n))
        fitted = minimize(loss, regression, fitted, max_iter=settings.max_iter, tol=tol)
        found.append(ClassFit(fitted, regression, alpha, leave_one_out(loss, fitted) / n))
        if len(found) > 2 and found[-1].error > found[-2].error > found[-3].error:
            break
    best = min(found, key=lambda fit: fit.error)
    if not automatic:
        return best
    fitted = minimize(loss, regression, best.fitted, max_iter=settings.max_iter, tol=settings.tol)
    return replace(best, fitted=fitted)


def _scaled(
    loss: ClassLoss, regression: Regression, start: LowRank, b: Array, strength: float
) -> LowRank:
    """The start at the length that is likeliest: one that is too long begins where all is flat."""
    best, value = start, np.inf
    ridge = Ridge(strength)
    unit = start.linearize(regression.design).fitted
    size = float(np.sqrt(loss.weights @ (unit**2).sum(axis=1) / regression.n_samples)) or 1.0
    n_blocks = len(start.blocks)
    for scale in _START_SCALES / size:
        blocks = [block * scale ** (1 / n_blocks) for block in start.blocks]
        trial = start.with_blocks(blocks).balanced()
        lost = loss.value(unit * scale, b) + ridge.value(trial)
        if lost < value:
            best, value = trial, lost
    return best


def leave_one_out(loss: ClassLoss, fitted: Fitted[Any]) -> float:
    """The loss of every row, the weights updated for its removal by one Newton step.

    With A = J_i H^-1 J_i' and the curvature V and gradient r of row i, the fitted values without
    it are f - A (I - V A)^-1 r.
    """
    weights, at = fitted.weights, fitted.at
    values, vectors = np.linalg.eigh(fitted.penalized[0])
    kept = values > 1e-10 * max(float(values[-1]), np.finfo(float).tiny)
    root = vectors[:, kept] / np.sqrt(values[kept])
    jacobian = loss._with_intercepts(weights.jacobian(at)) @ root
    inner = jacobian @ jacobian.transpose(0, 2, 1)
    chances = loss.probabilities(at.fitted, fitted.intercepts)
    q = chances.shape[1]
    if q == 1:
        curvature = (chances * (1 - chances))[:, :, None]
    else:
        curvature = chances[:, :, None] * np.eye(q) - chances[:, :, None] * chances[:, None, :]
    gradient = (loss.labels - chances)[:, :, None]
    # A row that alone decides its own class has V A near one: it counts as fully missed there.
    left = np.eye(q) * (1 + 1e-6) - curvature @ inner
    moved = inner @ np.linalg.solve(left, gradient)
    logits = at.fitted + (fitted.intercepts if len(fitted.intercepts) else 0.0) - moved[:, :, 0]
    if q == 1:
        each = np.logaddexp(0.0, logits[:, 0]) - loss.labels[:, 0] * logits[:, 0]
    else:
        each = logsumexp(logits, axis=1) - (loss.labels * logits).sum(axis=1)
    return float(loss.weights @ each)


def select_class_rank(
    rows: Any,
    labels: Array,
    weights: Array,
    dims: tuple[int, ...],
    candidates: Sequence[Rank],
    settings: ClassSettings,
) -> tuple[Rank, tuple[RankScore, ...]]:
    """The smallest rank whose left-out log loss is within half a standard error of the best."""
    place = np.random.default_rng(0).permutation(len(labels)) % _N_FOLDS

    def left_out(rank: Rank) -> list[float]:
        errors = []
        for k in range(_N_FOLDS):
            kept, out = np.flatnonzero(place != k), np.flatnonzero(place == k)
            fit = fit_classes(rows[kept], labels[kept], weights[kept], dims, rank, settings)
            loss = ClassLoss(labels[out], weights[out], True)
            value = loss.value(np.asarray(rows[out] @ fit.dense), fit.intercept())
            errors.append(value / float(weights[out].sum()))
        return errors

    return select_rank(left_out, candidates)
