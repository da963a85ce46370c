"""CP of a symmetric tensor with one factor that all modes share, for any rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.algorithms.symmetric import (
    relative_residual,
    symmetric_cp,
    symmetric_tensor,
)
from latensor.decomposition.auto.automatic import Automatic
from latensor.decomposition.auto.core import EXACT
from latensor.decomposition.optimize.iteration import ROUGH, SLOW, Callback, Monitor, StoppingRule
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.shared import (
    SharedFit,
    descend_shared,
    shared_directions,
    shared_fit,
)
from latensor.decomposition.result import Decomposition
from latensor.decomposition.setup import as_cp, as_problem, check_limits, refuse_rank
from latensor.tensors.cp import CPTensor


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
            drawn = (rng.standard_normal((rank, data.shape[0])) for _ in range(self.n_restarts))
            starts = (self._local(problem, rows, floor) for rows in drawn)
            exact = max(floor, EXACT * problem.squared_norm)
            begin = Multistart(SLOW, enough=exact).search(begin, starts).state

        def assemble(fit: SharedFit) -> CPTensor:
            return symmetric_cp(data.reference, *fit.components(order), order)

        rule = StoppingRule(self.tol, self.max_iter, 2, floor)
        point, status = descend_shared(problem, begin, rule, self.max_inner, monitor, assemble)
        model = assemble(point)
        history = np.array(monitor.history)
        residual = relative_residual(data, model)
        return Decomposition(model, residual, len(history), status, history)

    def _local(self, problem: Problem, directions: Array, floor: float) -> SharedFit:
        """A start after as many steps as it takes to compare it with others."""
        start = shared_fit(problem, directions)
        if len(directions) <= directions.shape[1]:
            return start
        rule = StoppingRule(ROUGH, self.max_iter, 2, floor)
        return descend_shared(problem, start, rule, self.max_inner)[0]
