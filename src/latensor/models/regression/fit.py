"""Regression of low rank from data that is ready: start, path, and the rank by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import NotIdentifiableError
from latensor.models.regression.design import Regression
from latensor.models.regression.solve import (
    ALPHAS,
    FACTOR_ALPHAS,
    STRONG_ALPHAS,
    PathFit,
    finished,
    squared_path,
)
from latensor.models.regression.starts import cp_starts, tucker_starts
from latensor.value_files import storable

Rank = int | tuple[int, ...]


@dataclass(frozen=True)
class Settings:
    """How weights are fitted, whatever their rank.

    Attributes
    ----------
    kind : "cp" or "tucker"
    alpha : float or "auto"
    penalty : "weights", "factors" or "auto"
    intercept : bool
    max_iter : int
    tol : float
    """

    kind: str
    alpha: float | str
    penalty: str
    intercept: bool
    max_iter: int
    tol: float

    def path(self, regression: Regression, rank: Rank) -> PathFit[Any]:
        """Weights of one rank."""
        options: dict[str, Any] = {"intercept": self.intercept, "max_iter": self.max_iter}
        starts: list[Any]
        if isinstance(rank, tuple):
            starts, correlated = tucker_starts(regression, rank)
        else:
            starts, correlated = cp_starts(regression, rank)
        self._check_identified(regression, starts[0].n_free)
        order = len(regression.design.dims) + (regression.n_outputs > 1)
        warm_up: tuple[float, ...] = STRONG_ALPHAS if correlated and order > 2 else ()
        alphas: tuple[float, ...] = ALPHAS
        if not isinstance(self.alpha, str):
            alphas = (float(self.alpha),)
            if order > 2:
                warm_up = tuple(a for a in (*warm_up, ALPHAS[0]) if a > self.alpha)
        # Few rows are fitted in no time, and local optima are many: every start to its end.
        few = len(starts) > 2
        paths = [
            squared_path(regression, group, alphas, warm_up=warm_up, **options)
            for group in ([[start] for start in starts] if few else [starts])
        ]
        path = min(paths, key=lambda path: path.chosen.error)
        if self.penalty != "weights":
            strengths = FACTOR_ALPHAS if isinstance(self.alpha, str) else (float(self.alpha),)
            sparse = squared_path(
                regression, [path.fitted.weights], strengths, penalty="factors", **options
            )
            if self.penalty == "factors" or sparse.chosen.error < path.chosen.error:
                path = sparse
        return finished(path, regression, max_iter=self.max_iter, tol=self.tol)

    def _check_identified(self, regression: Regression, n_free: int) -> None:
        count = regression.n_samples * regression.n_outputs
        if self.alpha == 0 and count < n_free:
            raise NotIdentifiableError(
                f"alpha=0: weights of this rank have {n_free} degrees of freedom, but X and y "
                f"give {count:g} numbers: lower the rank, give more samples, or set alpha"
            )


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
    folds: Sequence[tuple[Regression, Callable[[Array], float]]],
    candidates: Sequence[Rank],
    settings: Settings,
) -> tuple[Rank, tuple[RankScore, ...]]:
    """The smallest rank whose left-out error is within half a standard error of the best.

    Candidates are tried until two in a row have not lowered the error.

    Parameters
    ----------
    folds : what is fitted, and the relative error of weights (D, q) on what was left out
    candidates : ranks, increasing
    settings : Settings
    """
    scores: list[RankScore] = []
    for rank in candidates:
        errors = []
        for regression, left_out in folds:
            fitted = settings.path(regression, rank).fitted
            weights = fitted.weights.dense() * (regression.y_scale / regression.x_scale)
            errors.append(left_out(weights))
        spread = float(np.std(errors, ddof=1)) / len(errors) ** 0.5
        scores.append(RankScore(rank, float(np.mean(errors)), spread))
        best = min(range(len(scores)), key=lambda k: scores[k].error)
        if len(scores) - 1 - best >= 2:
            break
    limit = scores[best].error + 0.5 * scores[best].deviation
    chosen = next(s for s in scores if s.error <= limit)
    return chosen.rank, tuple(scores)
