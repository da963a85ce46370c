"""Fits from a given start under constraints: a penalty, signs, fixed modes, observed entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from latensor.arrays import Array
from latensor.decomposition.auto.converge import descend
from latensor.decomposition.auto.core import Fit
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import (
    MOST_ITERATIONS,
    ROUGH,
    SLOW,
    TRIAL_STEPS,
    Monitor,
    StoppingRule,
    iterate,
)
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.sweeps import Sweeps
from latensor.decomposition.setup import assemble
from latensor.tensors.cp import CPTensor


@dataclass(frozen=True)
class Constraints:
    """What holds of the factors: a penalty on their squared norms, signs, modes that stay."""

    ridge: float = 0.0
    nonnegative: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()

    def free(self, order: int) -> tuple[int, ...]:
        """The modes that move."""
        return tuple(mode for mode in range(order) if mode not in self.fixed)


def fit_constrained(
    problem: Problem,
    factors: Sequence[Array],
    constraints: Constraints,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    reference: Array,
    trial: bool = False,
) -> Fit:
    """The local optimum that a start leads to; its loss has the penalty in it.

    Extrapolated sweeps keep signs; without signs Levenberg-Marquardt takes over where they get
    slow, and says when nothing is left to gain. A trial ends earlier, and under signs where sweeps
    get slow.
    """
    ridge, fixed = constraints.ridge, constraints.fixed
    modes = constraints.free(len(problem.shape))
    sweeps = Sweeps(problem, modes, ridge, constraints.nonnegative)
    floor = (10 * problem.epsilon) ** 2 * problem.squared_norm
    signed = bool(constraints.nonnegative)
    rule = StoppingRule(SLOW, max_iter, 2, floor)
    if signed and trial:
        rule = StoppingRule(max(tol, ROUGH), max_iter, 3, floor)
    elif signed:
        proof = partial(
            has_converged,
            problem,
            tol=tol,
            ridge=ridge,
            fixed=fixed,
            nonnegative=constraints.nonnegative,
        )
        rule = StoppingRule(
            tol, max_iter, 3, floor, proof=lambda p: proof(p.factors), persistent=True
        )

    def give(factors: Sequence[Array]) -> CPTensor:
        return assemble(reference, factors, fixed)

    start = sweeps.start(factors)
    point, status = iterate(sweeps.extrapolated, start, rule, monitor, lambda p: give(p.factors))
    fit = Fit(point.factors, point.loss, status)
    if signed or monitor.ended is not None or fit.loss <= floor:
        return fit
    most = min(max_iter, TRIAL_STEPS if trial else MOST_ITERATIONS)
    return descend(problem, fit, tol, most, monitor, give, ridge=ridge, fixed=fixed)
