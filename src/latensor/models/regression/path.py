"""The strength of the ridge of a regression, by generalized cross-validation.

A fit begins with a strong ridge, where all starts lead to the same weights. The linear model there
tells by one eigenproblem which strength generalized cross-validation prefers; the fit goes there,
and asks again, until the answer stays (performance iteration).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import lapack

from latensor.arrays import Array
from latensor.models.regression.design import Regression
from latensor.models.regression.losses import SquaredLoss
from latensor.models.regression.objective import RowObjective
from latensor.models.regression.solve import (
    Fitted,
    Ridge,
    evaluated,
    factored,
    minimize,
    ridge_profile,
    traced,
)
from latensor.models.regression.weights import LowRank

# Strengths to choose among, fractions of the mean square of an entry, per sample; the weakest is
# for data without noise.
ALPHAS = np.logspace(-6, 0, 61)
# Where a fit begins. Of correlated entries and three modes or more not all starts lead to the same
# weights at 0.1, but they do at 1, where that is followed to its optimum (30 x 20 x 10, correlation
# .8, seed 72: error .50, without .72).
FIRST_ALPHA, STRONG_ALPHA = 0.1, 1.0
# Sweeps before Newton's steps, which need a start in the right basin.
_SWEEPS = 3
# Steps for one strength, before the linear model is asked again.
_STEPS = 2
# Of what one more parameter would fit of noise: what gains less is not followed while strengths are
# compared. The chosen one is followed to `tol`.
_NEGLIGIBLE = 0.1


@dataclass(frozen=True, eq=False)
class PathFit:
    """An optimum and what cross-validation says of its ridge.

    Attributes
    ----------
    fitted : Fitted
    alpha : float
    n_free : float, degrees of freedom without those of intercepts
    error : float
    left_over : float, the largest component of the residuals, of what noise would have; 0 where no
        local optima are to be feared
    """

    fitted: Fitted[Any]
    alpha: float
    n_free: float
    error: float
    left_over: float = 0.0


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Least squares with ridges of many strengths.

    Attributes
    ----------
    regression : Regression
    intercept : bool, whether intercepts are estimated
    max_iter, tol : see `minimize`
    """

    regression: Regression
    intercept: bool
    max_iter: int
    tol: float

    @cached_property
    def _objective(self) -> RowObjective:
        loss = SquaredLoss(self.regression.targets, self.regression.rest)
        return RowObjective(loss, self.regression.design)

    @property
    def _count(self) -> float:
        return self.regression.n_samples * self.regression.n_outputs

    @property
    def _loose(self) -> float:
        return max(self.tol, _NEGLIGIBLE / self._count)

    def _minimized(self, point: Fitted[Any], alpha: float, max_iter: int) -> Fitted[Any]:
        ridge = replace(point.ridge, strength=alpha * self.regression.n_samples)
        point = replace(point, ridge=ridge)
        return minimize(self._objective, point, max_iter=max_iter, tol=self._loose)

    def first(self, weights: LowRank, alpha: float) -> Fitted[Any]:
        """A start after a few sweeps over its blocks; of a strong ridge its optimum."""
        ridge = Ridge(alpha * self.regression.n_samples)
        for _ in range(_SWEEPS):
            weights = weights.sweep(self.regression.design, self.regression.targets, ridge.strength)
        point = evaluated(self._objective, weights, ridge)
        return point if alpha < STRONG_ALPHA else self._minimized(point, alpha, self.max_iter)

    def fitted(self, point: Fitted[Any], alpha: float | None, penalty: str) -> PathFit:
        """The optimum for a strength, or for the one that cross-validation prefers there."""
        if penalty == "factors":
            point = evaluated(self._objective, point.weights, Ridge(0.0, penalty))
        found = self._follow(point, alpha)
        return self._strengthened(found) if penalty == "factors" and alpha is None else found

    def _follow(self, point: Fitted[Any], alpha: float | None) -> PathFit:
        alphas = ALPHAS if alpha is None else np.array([alpha])
        tried: set[int] = set()
        left, last = self.max_iter, -1
        while True:
            errors, free = self._expected(point, alphas)
            best = int(errors.argmin())
            # Half a degree of freedom changes the error by 1 / count of itself.
            near = last >= 0 and errors[last] <= errors[best] * (1 + 1 / self._count)
            if (point.converged and (near or best in tried)) or (last >= 0 and left <= 0):
                break
            stays = best in tried or len(alphas) == 1
            before = point.value
            steps = left if stays else min(_STEPS, left)
            point = self._minimized(point, float(alphas[best]), steps)
            # What has hardly moved since has the same linear model.
            if best == last and point.converged and before - point.value <= before / self._count:
                return self._reached(point, float(alphas[best]))
            tried.add(best)
            left, last = left - point.n_iter, best
        return PathFit(point, float(alphas[last]), float(free[last]), float(errors[last]))

    def _strengthened(self, path: PathFit) -> PathFit:
        """Where a stronger ridge hardly lowers the error.

        Of the penalty on factors: a component that vanishes is not in the linear model before.
        """
        for alpha in ALPHAS[path.alpha * (1 + self.tol) < ALPHAS]:
            point = self._minimized(path.fitted, float(alpha), self.max_iter)
            other = self._reached(point, float(alpha))
            gain = path.error - other.error
            path = other if gain > 0 else path
            if not gain > path.error / self._count:  # half a degree of freedom, as above
                break
        return path

    def _reached(self, point: Fitted[Any], alpha: float) -> PathFit:
        """What cross-validation says of an optimum."""
        gram = point.penalized[0]
        factor = factored(gram, _shift(gram))
        assert factor is not None
        free = traced(factor, point.normal[0])
        return PathFit(point, alpha, free, float(self._errors(2 * point.loss, free)))

    def _errors(self, squares: Any, free: Any) -> Array:
        """Count times |y - f|^2 / (count - k)^2, for k degrees of freedom and intercepts."""
        extra = self.regression.n_outputs if self.intercept else 0
        left = self._count - free - extra
        errors = np.maximum(squares, 0.0) * self._count / np.maximum(left, 1.0) ** 2
        return np.where(left > 0, errors, np.inf)

    def finished(self, path: PathFit) -> PathFit:
        """The chosen optimum, to the tolerance that was asked for."""
        fitted = minimize(self._objective, path.fitted, max_iter=self.max_iter, tol=self.tol)
        return replace(path, fitted=fitted)

    def _expected(self, fitted: Fitted[Any], alphas: Array) -> tuple[Array, Array]:
        """Errors of strengths, and degrees of freedom, in the linear model at a point."""
        theta, (gram, right) = fitted.weights.pack(), fitted.normal
        if fitted.ridge.penalty == "weights":
            # As W is linear in every block, its linear model vanishes at this distance from theta.
            theta = theta / len(fitted.weights.blocks)
        pulled = gram @ theta
        total = 2 * fitted.loss + float(theta @ (2 * right + pulled))
        right = right + pulled
        if fitted.ridge.penalty == "weights":
            # Changes that move no weight are those that keep the other parameters: they are left
            # out, as no ridge tells rounding from a curvature there.
            root, order, rank, _ = lapack.dpstrf(fitted.weights.metric(), lower=1)
            kept = order[:rank] - 1
            root, gram, right = root[:rank, :rank], gram[np.ix_(kept, kept)], right[kept]
            if rank:
                gram = lapack.dsygst(gram, root, lower=1)[0]
                right = lapack.dtrtrs(root, right, lower=1)[0]
        explained, free = ridge_profile(gram, right, alphas * self.regression.n_samples)
        lost = total - explained
        return self._errors(lost, free), free


def _shift(gram: Array) -> float:
    return float(np.finfo(float).eps) ** 0.5 * float(np.trace(gram)) / len(gram) or 1.0
