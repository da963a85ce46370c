"""The fit of a core from a given start: extrapolated sweeps, then Levenberg-Marquardt to `tol`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from latensor.decomposition.algorithms.als import AlternatingLeastSquares
from latensor.decomposition.auto.core import Core, Fit, component_costs
from latensor.decomposition.auto.replace import exchanged, most_alike
from latensor.decomposition.auto.stuck import most_suspicious, unstick
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import (
    CONVERGED_PROMISE,
    MOST_ITERATIONS,
    SLOW,
    TRIAL_STEPS,
    Monitor,
    StoppingRule,
    iterate,
)
from latensor.decomposition.optimize.levenberg_marquardt import (
    UNDAMPED,
    LevenbergMarquardt,
    minimize,
)
from latensor.decomposition.optimize.normal_equations import FreeFactors
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.starts import leading_rank_one
from latensor.decomposition.optimize.sweeps import Sweeps
from latensor.decomposition.result import Status

# Above this rank one Levenberg-Marquardt step costs more than the sweeps that it saves.
LARGEST_RANK = 200
# Gains of sweeps that stick.
_STUCK = 1e-2
# A residual whose leading rank-one term has this fraction of what the weakest component is worth
# may need a component there.
_WORTH_TRYING = 0.1
# Gains, relative to the loss, of steps that are worth passes over the whole tensor. Of 200^3, 20
# components of congruence .9 and noise of 10 %, two seeds: one ends 6e-6 lower than with 1e-6 (in
# 3.8 in place of 2.2 s), the other has converged in the same time; six others do not change.
_WORTH_A_PASS = 1e-7


def converge(core: Core, fit: Fit, best: Fit | None = None) -> Fit:
    """The local optimum of a core that a start leads to, or a place in a swamp on the way there.

    A trial, which has a `best` fit to beat, ends earlier where it is not on course below that. An
    optimum is compared with where sweeps end, which are cheaper by the step; a place in a swamp
    with one that has been followed as far.
    """
    if core.monitor.ended is not None or core.monitor.reached(fit.loss):
        return fit
    beat = np.inf if best is None else best.loss
    if core.rank > LARGEST_RANK:
        return _converge_large(core, fit, beat)
    optimum = best is not None and best.status is Status.CONVERGED
    slow = core.tol if optimum else SLOW
    enough = max(core.smallest, core.monitor.target_loss())
    rule = StoppingRule(slow, MOST_ITERATIONS, 2, enough, beat=beat)
    fit = _swept(core, fit, rule)
    if best is None and not core.cheap:
        fit = _swapped(core, fit, rule)
    if fit.status is Status.STOPPED or core.monitor.ended is not None or fit.loss <= core.smallest:
        return fit
    if best is None and core.spares(fit):
        return replace(fit, status=Status.MAX_ITER)
    few = TRIAL_STEPS
    return descend(core.problem, fit, core.tol, few, core.monitor, core.assemble, beat=beat)


def _converge_large(core: Core, fit: Fit, beat: float) -> Fit:
    """Sweeps alone, and where they stick above an exact fit, the cure for stuck components.

    Sweeps converge linearly: the digits beyond an exact fit would cost most of the time. What the
    cure can put right is as much of the tensor as there are components that it takes out.
    """
    near = most_suspicious(core) / core.rank * core.problem.squared_norm
    most = AlternatingLeastSquares().max_iter
    stuck = StoppingRule(_STUCK, most, 3, core.exact, plateau=near, beat=beat)
    fit = _swept(core, fit, stuck)
    if fit.status is Status.STOPPED:
        return fit
    overcomplete = core.rank > max(core.shape)
    while overcomplete and fit.loss <= near:
        if core.monitor.ended is not None or fit.loss <= core.exact or core.accepts(fit):
            break
        other = _swept(core, unstick(core, fit), stuck)
        if other.loss >= fit.loss * (1 - SLOW):
            break
        fit = other
    if core.monitor.ended is not None or fit.loss <= core.exact:
        return fit
    fit = _swept(core, fit, StoppingRule(core.tol, most, 3, core.exact, beat=beat))
    if core.monitor.ended is not None or fit.loss <= core.exact:
        return fit
    converged = has_converged(core.problem, fit.factors, core.tol, base=core.monitor.base)
    return replace(fit, status=Status.CONVERGED if converged else Status.MAX_ITER)


def _swapped(core: Core, fit: Fit, rule: StoppingRule) -> Fit:
    """Components replaced one by one while the residual has room for one and that helps.

    For tensors that are fitted whole, over which other starts cost as much as the fit itself. Where
    sweeps stick, mostly two components share one place and another place has none. Levenberg-
    Marquardt steps get away from there too, each for the price of ten sweeps: with this 100^3 of
    rank 80 takes .20 to .25 in place of .15 to .75 s, and one of congruence .5 .4 in place of 5 s.
    """
    while core.monitor.ended is None and fit.loss > core.smallest and core.rank > 2:
        costs = component_costs(fit.factors)
        enough = _WORTH_TRYING * costs.min()
        # No part of the residual is larger than all of it that is not noise.
        floor, left = core.floor, fit.loss
        if floor is not None:
            left = floor.beyond_noise(left, core.shape, core.rank)
        if left <= enough:
            break
        rows, energy = leading_rank_one(core.problem.residual(fit.factors), core.rng)
        if energy <= enough:
            break
        suspects = most_alike(fit.factors, costs)
        if costs.min() < energy:  # one that is worth less than what would take its place
            suspects = list(dict.fromkeys([int(costs.argmin()), *suspects]))
        for one in suspects:
            trial = _swept(core.unmonitored(), exchanged(fit, [one], rows, energy), rule)
            if trial.loss < fit.loss * (1 - SLOW):
                break
        else:
            break
        fit = core.report(trial)
    return fit


def _swept(core: Core, fit: Fit, rule: StoppingRule) -> Fit:
    """Extrapolated sweeps over a core."""
    sweeps = Sweeps(core.problem)
    start = sweeps.start(fit.factors) if fit.loss == np.inf else sweeps.at(fit.factors, fit.loss)
    point, status = iterate(
        sweeps.extrapolated,
        start,
        rule,
        core.monitor,
        lambda p: core.assemble(p.factors),
    )
    return Fit(point.factors, point.loss, status)


def descend(
    problem: Problem,
    fit: Fit,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    assemble: Any,
    near: bool = False,
    beat: float = np.inf,
    ridge: float = 0.0,
    fixed: tuple[int, ...] = (),
) -> Fit:
    """Levenberg-Marquardt steps until none promises to lower the loss by more than `tol` of it."""
    model = FreeFactors(problem, ridge, fixed)
    floor = max((10 * problem.epsilon) ** 2, 1e-28) * problem.squared_norm
    tol = CONVERGED_PROMISE * tol
    steps = LevenbergMarquardt(model, tol, monitor.base, floor)
    if near:  # an optimum of the core is nearly one of the tensor
        steps = replace(steps, first=UNDAMPED)
    rule = StoppingRule(tol, max_iter, 2, floor, beat=beat)
    if near:
        rule = replace(rule, tol=_WORTH_A_PASS, patience=3)
    give = lambda p: assemble(model.factors(p.parameters))  # noqa: E731
    point, status = minimize(steps, model.stack(fit.factors), rule, monitor, give)
    moved = [problem.native(np.ascontiguousarray(f)) for f in model.factors(point.parameters)]
    kept = tuple(fit.factors[n] if n in fixed else f for n, f in enumerate(moved))
    return Fit(kept, point.loss, status)
