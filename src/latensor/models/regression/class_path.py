"""Logistic and softmax regression with weights of low rank: Fisher scoring along a path of ridges.

The strength of the ridge is chosen by approximate leave-one-out: one Newton step away from the
optimum for every row, from the Gauss-Newton matrix that is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.estimation.run import Run
from latensor.models.regression.class_objective import (
    ClassObjective,
    ClassRows,
    FoldedClasses,
    RowFrame,
)
from latensor.models.regression.design import (
    Regression,
    regression_of_moments,
    regression_of_rows,
    scaled_design,
)
from latensor.models.regression.fit import N_FOLDS, RankScore, Settings, fold_of, select_rank
from latensor.models.regression.losses import ClassLoss
from latensor.models.regression.solve import Fitted, Ridge, evaluated, minimize
from latensor.models.regression.starts import Rank, starts_of
from latensor.moments.batch import Batch
from latensor.moments.second import CrossCovariance

# Weaker ones would only fit what separates few samples: 0.1 was better than 0.01 in 12 of 12
# settings of MNIST.
CLASS_ALPHAS = (1.0, 3e-1, 1e-1, 3e-2, 1e-2, 1e-3)
# Relative decrease at which a point of the path is judged; the chosen one is followed to `tol`.
_PATH_TOL = 1e-3


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
        return np.asarray(self.fitted.weights.dense() / self.regression.x_scale)

    def intercept(self) -> Array:
        """(q,) for rows as they were given."""
        q = self.regression.n_outputs
        given = self.fitted.intercepts if len(self.fitted.intercepts) else np.zeros(q)
        return given - self.regression.x_mean @ self.dense


def fit_rows(units: Batch, dims: tuple[int, ...], rank: Rank, settings: Settings) -> ClassFit:
    """Weights of one rank, of rows in memory.

    Parameters
    ----------
    units : Batch of rows (n, D), dense or CSR, and labels (n, q) of 0 and 1, of two classes one
        column
    dims : d_1, .., d_N
    rank : int, or one per mode
    settings : Settings
    """
    (rows, labels), weights = units.parts, units.weights
    start = regression_of_rows(rows, labels, weights, dims, intercept=settings.intercept)
    design = start.design
    if not (weights == 1).all():  # the loss weights what it makes of a row
        design = scaled_design(rows, dims, start.x_mean, start.x_scale)
    objective = ClassRows(ClassLoss(labels, weights, settings.intercept), design)
    return _fit_path(objective, start, rank, weights @ labels / weights.sum(), settings)


def fit_passes(
    run: Run, known: CrossCovariance, dims: tuple[int, ...], rank: Rank, settings: Settings
) -> ClassFit:
    """The same of any source, from the covariances of its rows and labels: a pass for every step.

    Parameters
    ----------
    run : Run
    known : of rows and labels
    dims, rank, settings : as for `fit_rows`
    """
    start = regression_of_moments(known, dims, intercept=settings.intercept)
    frame = RowFrame(dims, start.x_mean, start.x_scale, settings.intercept)
    objective = FoldedClasses(run, frame, start.n_outputs, start.n_samples)
    return _fit_path(objective, start, rank, known.y_mean, settings)


def _fit_path(
    objective: ClassObjective, start: Regression, rank: Rank, chance: Array, settings: Settings
) -> ClassFit:
    starts, _ = starts_of(start, rank)
    if settings.intercept:
        chance = np.clip(chance, 1e-6, 1 - 1e-6)
        others = 1 - chance if len(chance) == 1 else np.ones_like(chance)
        b = np.log(chance / others)
    else:
        b = np.zeros(0)
    automatic = isinstance(settings.alpha, str)
    alphas: Sequence[float] = CLASS_ALPHAS
    if not automatic:
        alphas = (float(settings.alpha),)
    found: list[ClassFit] = []
    n = start.n_samples
    # A start that is too long begins where all is flat: its logits have mean square one.
    size = float(np.sqrt((starts[0].linearize(start.design).fitted ** 2).sum() / n)) or 1.0
    fitted = evaluated(objective, starts[0].times(1 / size), Ridge(alphas[0] * n), b)
    tol = max(settings.tol, _PATH_TOL) if automatic else settings.tol
    for number, alpha in enumerate(alphas):
        fitted = replace(fitted, ridge=Ridge(alpha * n))
        loop = objective.loop(f"ridge {number}")
        fitted = minimize(objective, fitted, max_iter=settings.max_iter, tol=tol, loop=loop)
        found.append(ClassFit(fitted, start, alpha, objective.left_out(fitted) / n))
        if len(found) > 2 and found[-1].error > found[-2].error > found[-3].error:
            break
    best = min(found, key=lambda fit: fit.error)
    if not automatic:
        return best
    loop, most = objective.loop("best ridge"), settings.max_iter
    fitted = minimize(objective, best.fitted, max_iter=most, tol=settings.tol, loop=loop)
    return replace(best, fitted=fitted)


def select_class_rank(
    units: Batch, dims: tuple[int, ...], candidates: Sequence[Rank], settings: Settings
) -> tuple[Rank, tuple[RankScore, ...]]:
    """The smallest rank whose left-out log loss is within half a standard error of the best."""
    place = fold_of(len(units))

    def left_out(rank: Rank) -> list[float]:
        errors = []
        for k in range(N_FOLDS):
            fit = fit_rows(units.take(np.flatnonzero(place != k)), dims, rank, settings)
            out = units.take(np.flatnonzero(place == k))
            loss = ClassLoss(out.parts[1], out.weights, True)
            value = loss.value(np.asarray(out.rows @ fit.dense), fit.intercept())
            errors.append(value / out.weight)
        return errors

    return select_rank(left_out, candidates, settings.tol)
