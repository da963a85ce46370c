"""Regression of low rank from data that is ready: start, path, and the rank by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.regression.design import Regression
from latensor.models.regression.path import FIRST_ALPHA, STRONG_ALPHA, PathFit, RidgePath
from latensor.models.regression.residuals import ResidualSearch
from latensor.models.regression.starts import Rank, starts_of
from latensor.models.regression.weights import CPWeights
from latensor.value_files import storable

# Of cross-validation; which samples are in which fold is the same for every fit.
N_FOLDS, FOLD_SEED = 5, 0


def check_folds(count: int) -> None:
    """Refuse samples that are too few to be left out in turn."""
    if count < 2 * N_FOLDS:
        raise InvalidInputError(
            f"rank='auto' needs at least {2 * N_FOLDS} samples for cross-validation, got {count}: "
            "give a rank, or more samples"
        )


def fold_of(count: int) -> Array:
    """The fold (n,) of every sample in memory."""
    check_folds(count)
    return np.random.default_rng(FOLD_SEED).permutation(count) % N_FOLDS


@dataclass(frozen=True)
class Settings:
    """How weights are fitted, whatever their rank.

    Attributes
    ----------
    alpha : float or "auto"
    intercept : bool
    max_iter : int
    tol : float
    penalty : "weights", "factors" or "auto"
    """

    alpha: float | str
    intercept: bool
    max_iter: int
    tol: float
    penalty: str = "weights"

    def path(self, regression: Regression, rank: Rank) -> PathFit:
        """Weights of one rank."""
        starts, correlated = starts_of(regression, rank)
        self._check_identified(regression, starts[0].n_free)
        alpha = None if isinstance(self.alpha, str) else float(self.alpha)
        first = FIRST_ALPHA
        if len(regression.design.dims) + (regression.n_outputs > 1) > 2:
            first = max(STRONG_ALPHA if correlated else FIRST_ALPHA, alpha or 0.0)
        elif alpha is not None:
            first = alpha
        path = RidgePath(regression, self.intercept, self.max_iter, self.tol)
        kinds = ("weights", "factors") if self.penalty == "auto" else (self.penalty,)

        def fitted(start: Any) -> PathFit:
            point = path.first(start, first)
            found = [path.fitted(point, alpha, kind) for kind in kinds]
            return min(found, key=lambda each: each.error)

        best = min((fitted(start) for start in starts), key=lambda each: each.error)
        if len(regression.design.dims) + (regression.n_outputs > 1) > 2:
            best = _replaced(path, best, fitted)
        return path.finished(best)

    def left_out(
        self, folds: Sequence[tuple[Regression, Callable[[Array], float]]], rank: Rank
    ) -> list[float]:
        """Errors of a rank on what was left out.

        Parameters
        ----------
        folds : what is fitted, and the relative error of weights (D, q) on what was left out
        rank : int, or one per mode
        """
        return [
            error(self.path(kept, rank).fitted.weights.dense() * (kept.y_scale / kept.x_scale))
            for kept, error in folds
        ]

    def _check_identified(self, regression: Regression, n_free: int) -> None:
        count = regression.n_samples * regression.n_outputs
        if self.alpha == 0 and count < n_free:
            raise NotIdentifiableError(
                f"alpha=0: weights of this rank have {n_free} degrees of freedom, but X and y "
                f"give {count:g} numbers: lower the rank, give more samples, or set alpha"
            )


def _replaced(path: RidgePath, best: PathFit, fitted: Callable[[Any], PathFit]) -> PathFit:
    """Each component in turn for one that the residuals still have: no local optimum is left.

    Of ten planted tensors (30 x 20 x 10, rank 3, 500 samples) one had ended with two components
    of the truth from every start, its residuals with a third above what noise gives.
    """
    left_over = ResidualSearch(path.regression)
    while True:
        weights = best.fitted.weights
        found, size = left_over(best.fitted.point.pull(), best.fitted.loss)
        best = replace(best, left_over=size)
        if found is None or not isinstance(weights, CPWeights):
            return best
        trials = [weights.with_component(c, found) for c in range(weights.rank)]
        other = min((fitted(trial) for trial in trials), key=lambda each: each.error)
        if not other.error < best.error:
            return best
        best = other


@storable
@dataclass(frozen=True)
class RankScore:
    """What cross-validation says of one rank.

    Attributes
    ----------
    rank : int, or one per mode
    error : float, the mean squared error of left-out samples, relative to that of their mean
    deviation : float, the standard error of that over the folds
    """

    rank: Any
    error: float
    deviation: float


def select_rank(
    left_out: Callable[[Rank], Sequence[float]], candidates: Sequence[Rank], tol: float
) -> tuple[Rank, tuple[RankScore, ...]]:
    """The smallest rank whose left-out error is within half a standard error of the best.

    Candidates are tried until two in a row have not lowered the error.

    Parameters
    ----------
    left_out : the errors of a rank, one per fold
    candidates : ranks, increasing
    tol : float, to which fits have converged: without noise errors differ by no more
    """
    scores: list[RankScore] = []
    for rank in candidates:
        errors = left_out(rank)
        spread = float(np.std(errors, ddof=1)) / len(errors) ** 0.5
        scores.append(RankScore(rank, float(np.mean(errors)), spread))
        best = min(range(len(scores)), key=lambda k: scores[k].error)
        if len(scores) - 1 - best >= 2:
            break
    limit = scores[best].error + max(0.5 * scores[best].deviation, tol)
    return next(s for s in scores if s.error <= limit).rank, tuple(scores)
