"""Fits of a symmetric tensor by one factor that all modes share: where they start, how they go on.

sum_j s_j x_j^(x)p with signs s_j = 1 or -1 takes real weights of either sign; the steps are those
of `LevenbergMarquardt` on the rows x_j.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array, to_host
from latensor.decomposition.optimize.iteration import CONVERGED_PROMISE, Monitor, StoppingRule
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt, minimize
from latensor.decomposition.optimize.normal_equations import SharedRows
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.solves import pseudo_inverse
from latensor.decomposition.result import Status


@dataclass(frozen=True)
class SharedFit:
    """Rows x_j (rank, d), the signs of their components, and the loss."""

    rows: Array
    signs: Array
    loss: float

    def components(self, order: int) -> tuple[Array, Array]:
        """Weights (rank,) and unit vectors as columns (d, rank)."""
        lengths = np.linalg.norm(self.rows, axis=1)
        units = self.rows / np.where(lengths > 0, lengths, 1.0)[:, None]
        return self.signs * lengths**order, units.T


def shared_directions(factors: Sequence[Array]) -> Array:
    """(rank, d) unit rows: for each component the direction that its vectors of all modes share.

    The leading singular vector of the vectors side by side, whatever their signs.
    """
    rows = np.stack([np.asarray(to_host(f), dtype=np.float64).T for f in factors], axis=1)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    rows = rows / np.where(lengths > 0, lengths, 1.0)
    _, _, right = np.linalg.svd(rows, full_matrices=False)
    return np.ascontiguousarray(right[:, 0, :])


def shared_fit(problem: Problem, directions: Array) -> SharedFit:
    """Directions (rank, d), of any length, scaled to the best weights for them."""
    order = len(problem.shape)
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    units = np.ascontiguousarray(directions / np.where(lengths > 0, lengths, 1.0))
    images = SharedRows(problem, np.ones(len(units))).images(units)
    weights = pseudo_inverse((units @ units.T) ** order) @ np.einsum("ij,ij->i", images, units)
    signs = np.where(weights < 0, -1.0, 1.0)
    rows = units * (np.abs(weights) ** (1.0 / order))[:, None]
    return SharedFit(rows, signs, SharedRows(problem, signs).evaluate(rows)[1])


def descend_shared(
    problem: Problem,
    fit: SharedFit,
    rule: StoppingRule,
    max_inner: int = 100,
    monitor: Monitor | None = None,
    assemble: Callable[[SharedFit], Any] | None = None,
) -> tuple[SharedFit, Status]:
    """Levenberg-Marquardt steps on the one factor, until none promises to gain more than `tol`."""
    steps = _steps(problem, fit, rule, 0.0 if monitor is None else monitor.base, max_inner)

    def as_fit(point: Any) -> SharedFit:
        return SharedFit(point.parameters, fit.signs, point.loss)

    give = None if assemble is None else lambda point: assemble(as_fit(point))
    point, status = minimize(steps, fit.rows, rule, monitor, give)
    return as_fit(point), status


def has_converged_shared(
    problem: Problem, fit: SharedFit, rule: StoppingRule, base: float = 0.0
) -> bool:
    """Whether nothing is left to gain for the one factor, by the model without damping."""
    steps = _steps(problem, fit, rule, base)
    return steps.converged(steps.start(fit.rows))


def _steps(
    problem: Problem, fit: SharedFit, rule: StoppingRule, base: float, max_inner: int = 100
) -> LevenbergMarquardt:
    tol = CONVERGED_PROMISE * rule.tol
    return LevenbergMarquardt(SharedRows(problem, fit.signs), tol, base, rule.floor, max_inner)
