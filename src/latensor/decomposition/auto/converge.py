"""The fit of a core from a given start: extrapolated sweeps, then Levenberg-Marquardt to `tol`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from latensor.decomposition.auto.core import Core, Fit
from latensor.decomposition.auto.stuck import unstick
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import (
    CONVERGED_PROMISE,
    Monitor,
    StoppingRule,
    iterate,
)
from latensor.decomposition.optimize.levenberg_marquardt import (
    UNDAMPED,
    FreeFactors,
    LevenbergMarquardt,
)
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.sweeps import Sweeps
from latensor.decomposition.result import Status

# Two sweeps in a row that gain less than this make way for Levenberg-Marquardt, of which one step
# costs about ten sweeps of a core and is worth dozens.
_SLOW = 1e-3
_MOST_SWEEPS = 100
_MOST_STEPS = 100
# Above this rank one Levenberg-Marquardt step costs more than the sweeps that it saves.
_LARGEST_RANK = 200
_MOST_LARGE_SWEEPS = 300
# Gains of sweeps that stick, squared residual below which it is a few components that do, and how
# often those are fitted anew.
_STUCK, _NEAR, _MOST_CURES = 1e-2, 0.04, 4
# Sweeps and steps between two looks at a trial, its looks at most, what a step costs in sweeps,
# and how many times its last gain may still lie before it.
_SWEEPS_PER_LOOK, _SWEEP_LOOKS = 10, 10
_STEPS_PER_LOOK, _STEP_LOOKS = 5, 5
_STEP_PRICE = 10
_ON_COURSE = 10.0
# Gains, relative to the loss, of steps that are worth passes over the whole tensor.
_WORTH_A_PASS = 1e-6


def converge(core: Core, fit: Fit) -> Fit:
    """The local optimum of a core that a start leads to."""
    if core.monitor.ended is not None or core.monitor.reached(fit.loss):
        return fit
    if core.rank > _LARGEST_RANK:
        return _converge_large(core, fit)
    fit = _swept(core, fit, StoppingRule(_SLOW, _MOST_SWEEPS, 2, core.smallest))
    if core.monitor.ended is not None or fit.loss <= core.smallest:
        return fit
    return descend(core.problem, fit, core.tol, _MOST_STEPS, core.monitor, core.assemble)


def _converge_large(core: Core, fit: Fit) -> Fit:
    """Sweeps alone, and where they stick above an exact fit, the cure for stuck components.

    Sweeps converge linearly: the digits beyond an exact fit would cost most of the time.
    """
    near = _NEAR * core.problem.squared_norm
    stuck = StoppingRule(_STUCK, _MOST_LARGE_SWEEPS, 3, core.exact, plateau=near)
    fit = _swept(core, fit, stuck)
    overcomplete = core.rank > max(core.shape)
    for _ in range(_MOST_CURES):
        done = core.monitor.ended is not None or fit.loss <= core.exact or core.accepts(fit)
        if done or not overcomplete or fit.loss > near:
            break
        other = _swept(core, unstick(core, fit), stuck)
        if other.loss >= fit.loss * (1 - _SLOW):
            break
        fit = other
    if core.monitor.ended is not None or fit.loss <= core.exact:
        return fit
    fit = _swept(core, fit, StoppingRule(core.tol, _MOST_LARGE_SWEEPS, 3, core.exact))
    if core.monitor.ended is not None or fit.loss <= core.exact:
        return fit
    converged = has_converged(core.problem, fit.factors, core.tol, base=core.monitor.base)
    return replace(fit, status=Status.CONVERGED if converged else Status.MAX_ITER)


def _swept(core: Core, fit: Fit, rule: StoppingRule) -> Fit:
    """Extrapolated sweeps over a core."""
    sweeps = Sweeps(core.problem)
    point, status = iterate(
        sweeps.extrapolated,
        sweeps.start(fit.factors),
        rule,
        core.monitor,
        lambda p: core.assemble(p.factors),
    )
    return Fit(point.factors, point.loss, status)


def follow(core: Core, start: Fit, best: float) -> tuple[Fit, int]:
    """A trial at its optimum, or as far as it was on course for one below `best`.

    A trial goes on only while so many times its last gain would take it below the best. That
    costs a fifth of what finishing every trial does, and loses few winners.

    Returns
    -------
    fit, and what it cost in sweeps
    """
    cost, base = 0, core.monitor.base
    sweeps = Sweeps(core.problem)
    trial = sweeps.start(start.factors)
    for _ in range(_SWEEP_LOOKS):
        before = trial.loss
        for _ in range(_SWEEPS_PER_LOOK):
            trial = sweeps.extrapolated(trial)
        cost += _SWEEPS_PER_LOOK
        gain = before - trial.loss
        if gain <= core.tol * (trial.loss + base) or trial.loss - _ON_COURSE * gain > best:
            return Fit(trial.factors, trial.loss), cost
        if trial.loss <= core.smallest:
            return Fit(trial.factors, trial.loss, Status.CONVERGED), cost
    if core.rank > _LARGEST_RANK:
        return Fit(trial.factors, trial.loss), cost
    model = FreeFactors(core.problem)
    steps = LevenbergMarquardt(model, core.tol, base, core.smallest)
    point, slow = steps.start(model.stack(trial.factors)), False
    for _ in range(_STEP_LOOKS):
        before = point.loss
        for _ in range(_STEPS_PER_LOOK):
            last = point.loss
            point = steps.step(point)
            cost += _STEP_PRICE
            slow = last - point.loss <= core.tol * (point.loss + base)
            if point.stationary or slow:
                break
        if point.stationary or slow or point.loss - _ON_COURSE * (before - point.loss) > best:
            break
    # One short step shows no optimum: a trial that wins is followed to its end by `descend`.
    status = Status.CONVERGED if point.stationary else Status.MAX_ITER
    return Fit(model.factors(point.parameters), point.loss, status), cost


def descend(
    problem: Problem,
    fit: Fit,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    assemble: Any,
    near: bool = False,
) -> Fit:
    """Levenberg-Marquardt steps until none promises to lower the loss by more than `tol` of it."""
    model = FreeFactors(problem)
    floor = max((10 * problem.epsilon) ** 2, 1e-28) * problem.squared_norm
    tol = CONVERGED_PROMISE * tol
    steps = LevenbergMarquardt(model, tol, monitor.base, floor)
    if near:  # an optimum of the core is nearly one of the tensor
        steps = replace(steps, first=UNDAMPED)
    rule = StoppingRule(
        _WORTH_A_PASS if near else tol, max_iter, 3 if near else 2, floor, proof=steps.converged
    )
    begin = steps.start(model.stack(fit.factors))
    point, status = iterate(
        steps.step, begin, rule, monitor, lambda p: assemble(model.factors(p.parameters))
    )
    factors = tuple(
        problem.native(np.ascontiguousarray(f)) for f in model.factors(point.parameters)
    )
    return Fit(factors, point.loss, status)
