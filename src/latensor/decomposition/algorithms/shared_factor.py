"""CP of a symmetric tensor with one factor that all modes share, for any rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, to_host
from latensor.decomposition.algorithms.symmetric import (
    relative_residual,
    symmetric_cp,
    symmetric_tensor,
)
from latensor.decomposition.auto.automatic import Automatic
from latensor.decomposition.auto.core import EXACT
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt, SharedRows
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.solves import pseudo_inverse
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.setup import as_cp, as_problem, check_limits, refuse_rank
from latensor.tensors.cp import CPTensor

_TRIAL_TOL = 1e-6
_TRIAL_STEPS = 100
# Relative distance of equal minima.
_AGREEMENT = 1e-4


@dataclass(frozen=True)
class SharedFactor:
    """Fit sum_j w_j a_j^(x)p to a symmetric tensor of order p >= 3, of any rank, signs included.

    Another algorithm fits the tensor with free factors; its components, made equal in all modes,
    start Levenberg-Marquardt steps on the one factor that is left. What `lt.decompose` runs for
    `symmetric=True`.

    Parameters
    ----------
    start : algorithm that gives the first fit; `algorithm="auto"` where None
    n_restarts : int, for ranks above the dimension, where free fits often stick: random starts of
        the one factor, the best of which goes on; they end early when two of them agree
    max_inner : int, conjugate-gradient steps per Levenberg-Marquardt step
    tol : float, stop when the squared residual falls by less than this fraction, twice in a row
    target : float, stop as soon as the relative residual is at most this
    max_iter : int, Levenberg-Marquardt steps
    """

    start: Any = None
    n_restarts: int = 20
    max_inner: int = 100
    tol: float = 1e-9
    target: float | None = None
    max_iter: int = 100

    def __post_init__(self) -> None:
        check_limits(self.tol, self.target, self.max_iter)

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
        *,
        init: object = None,
    ) -> Decomposition:
        """Decompose a symmetric tensor; see `latensor.decompose` for the arguments."""
        rank = refuse_rank(rank)
        data = symmetric_tensor(tensor, "symmetric=True")
        order = len(data.shape)
        problem = as_problem(data)
        if init is None:
            free = (self.start or Automatic())(data, rank, rng).tensor
        else:
            free = as_cp(init, data.shape, rank)
        monitor = Monitor(problem.squared_norm, self.target, self.max_iter, callback)
        floor = (10 * problem.epsilon) ** 2 * problem.squared_norm
        begin = self._local(problem, shared_directions(free.factors), floor)
        if init is None and rank > data.shape[0]:
            starts = (self._random(problem, rank, rng, floor) for _ in range(self.n_restarts))
            exact = max(floor, EXACT * problem.squared_norm)
            begin = Multistart(_AGREEMENT, enough=exact).search(begin, starts).state

        def assemble(point: SharedFit) -> CPTensor:
            lengths = np.linalg.norm(point.rows, axis=1)
            units = point.rows / np.where(lengths > 0, lengths, 1.0)[:, None]
            return symmetric_cp(data.reference, point.signs * lengths**order, units.T, order)

        rule = StoppingRule(self.tol, self.max_iter, 2, floor)
        point, status = self._descend(problem, begin, rule, monitor, assemble)
        model = assemble(point)
        history = np.array(monitor.history)
        residual = relative_residual(data, model)
        return Decomposition(model, residual, len(history), status, history)

    def _local(self, problem: Problem, directions: Array, floor: float) -> SharedFit:
        """A start after as many steps as it takes to compare it with others."""
        model, rows = shared_start(problem, directions)
        start = SharedFit(rows, model.signs, model.evaluate(rows)[1])
        if len(rows) <= rows.shape[1]:
            return start
        return self._descend(problem, start, StoppingRule(_TRIAL_TOL, _TRIAL_STEPS, 2, floor))[0]

    def _random(
        self, problem: Problem, rank: int, rng: np.random.Generator, floor: float
    ) -> SharedFit:
        drawn = rng.standard_normal((rank, problem.shape[0]))
        return self._local(problem, drawn / np.linalg.norm(drawn, axis=1, keepdims=True), floor)

    def _descend(
        self,
        problem: Problem,
        fit: SharedFit,
        rule: StoppingRule,
        monitor: Monitor | None = None,
        assemble: Any = None,
    ) -> tuple[SharedFit, Status]:
        steps = LevenbergMarquardt(
            SharedRows(problem, fit.signs), rule.tol, floor=rule.floor, max_inner=self.max_inner
        )
        rule = replace(rule, proof=steps.converged)

        def as_fit(point: Any) -> SharedFit:
            return SharedFit(point.parameters, fit.signs, point.loss)

        give = None if assemble is None else lambda point: assemble(as_fit(point))
        point, status = iterate(steps.step, steps.start(fit.rows), rule, monitor, give)
        return as_fit(point), status


@dataclass(frozen=True)
class SharedFit:
    """Rows x_j (rank, d), the signs of their components, and the loss."""

    rows: Array
    signs: Array
    loss: float


def shared_directions(factors: Sequence[Array]) -> Array:
    """(rank, d) unit rows: for each component the direction that its vectors of all modes share.

    The leading singular vector of the vectors side by side, whatever their signs.
    """
    rows = np.stack([np.asarray(to_host(f), dtype=np.float64).T for f in factors], axis=1)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    rows = rows / np.where(lengths > 0, lengths, 1.0)
    _, _, right = np.linalg.svd(rows, full_matrices=False)
    return np.ascontiguousarray(right[:, 0, :])


def shared_start(problem: Problem, directions: Array) -> tuple[SharedRows, Array]:
    """Unit rows (rank, d) scaled to the best weights for them, and the model with their signs."""
    order = len(problem.shape)
    images = SharedRows(problem, np.ones(len(directions))).images(directions)
    gram = (directions @ directions.T) ** order
    weights = pseudo_inverse(gram) @ np.einsum("ij,ij->i", images, directions)
    model = SharedRows(problem, np.where(weights < 0, -1.0, 1.0))
    return model, directions * (np.abs(weights) ** (1.0 / order))[:, None]
