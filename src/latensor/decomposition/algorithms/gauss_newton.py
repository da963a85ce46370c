"""Gauss-Newton with Levenberg-Marquardt damping: all factors move at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latensor.decomposition.algorithms.als import random_factors
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt, minimize
from latensor.decomposition.optimize.normal_equations import FreeFactors
from latensor.decomposition.optimize.sweeps import FEW_SWEEPS, Sweeps, balanced
from latensor.decomposition.result import Decomposition
from latensor.decomposition.setup import (
    as_problem,
    as_tensor,
    assemble,
    check_limits,
    finish,
    refuse_rank,
    starting_factors,
)
from latensor.exceptions import InvalidInputError


@dataclass(frozen=True)
class GaussNewton:
    """Fit a CP tensor by damped Gauss-Newton steps: the finish that collinear components need.

    Each step solves (J'J + damping) x = -gradient by conjugate gradients, preconditioned by the
    blocks of single factors; J'J is applied through the Grams of the factors, so that a step
    costs about as many contractions of the tensor as two sweeps of alternating least squares, and
    near the optimum is worth dozens of them. Tensors of order 2 or more.

    Parameters
    ----------
    max_inner : int, conjugate-gradient steps per Gauss-Newton step
    tol : float, stop when no step promises to lower the squared residual by this fraction, or two
        steps in a row have not
    target : float, stop as soon as the relative residual is at most this
    max_iter : int, accepted steps
    """

    max_inner: int = 60
    tol: float = 1e-9
    target: float | None = None
    max_iter: int = 200

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
        """Decompose `tensor`; see `latensor.decompose` for the arguments.

        Without `init` a random start gets five sweeps of alternating least squares first.
        """
        rank = refuse_rank(rank)
        data = as_tensor(tensor)
        problem = as_problem(data)
        if len(problem.shape) < 2:
            raise InvalidInputError(
                "tensor has order 1, but GaussNewton needs order 2 or more: use algorithm='auto'"
            )
        if init is None:
            factors = random_factors(rng, problem.shape, rank, data.reference)
            sweeps = Sweeps(problem)
            begun = sweeps.start([problem.native(f) for f in factors])
            for _ in range(FEW_SWEEPS):
                begun = sweeps.sweep(begun)
            factors = balanced(begun.factors)
        else:
            factors = starting_factors(init, problem.shape, rank, len(problem.shape) - 1)
        monitor = Monitor(problem.squared_norm, self.target, self.max_iter, callback)
        floor = (10 * problem.epsilon) ** 2 * problem.squared_norm
        model = FreeFactors(problem)
        steps = LevenbergMarquardt(model, self.tol, floor=floor, max_inner=self.max_inner)
        rule = StoppingRule(self.tol, self.max_iter, 2, floor)
        give = lambda p: assemble(data.reference, model.factors(p.parameters))  # noqa: E731
        point, status = minimize(steps, model.stack(factors), rule, monitor, give)
        residual = monitor.relative(point.loss)
        return finish(data.reference, model.factors(point.parameters), residual, status, monitor)
