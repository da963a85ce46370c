"""The last stage: the fit of a core as one of the tensor, finished there where that can help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from latensor.arrays import one_blas_thread
from latensor.decomposition.auto.converge import LARGEST_RANK, descend
from latensor.decomposition.auto.core import EXACT, Core, Fit, Task
from latensor.decomposition.optimize.iteration import (
    CONVERGED_STEPS,
    MOST_ITERATIONS,
    TRIAL_STEPS,
    StoppingRule,
    iterate,
)
from latensor.decomposition.optimize.sweeps import Point, Sweeps, balanced
from latensor.decomposition.result import Status
from latensor.decomposition.setup import assemble, assembler
from latensor.decomposition.subspace.compression import LOSSLESS


def finish(task: Task, core: Core, fit: Fit) -> Fit:
    """The fit of a core as one of the tensor, finished there where that can help."""
    problem, monitor, compression = task.problem, task.monitor, core.compression
    small = compression.core.size < prod(problem.shape)
    fit = _descended(core, fit, small)
    reached = monitor.reached(fit.loss)
    if not small:
        if reached or monitor.ended is not None:
            return replace(fit, status=monitor.ended or Status.TARGET_REACHED)
        return fit
    fit = _expanded(task, core, fit)
    monitor.base = 0.0
    if monitor.ended is not None or reached:
        return replace(fit, status=monitor.ended or Status.TARGET_REACHED)
    if compression.base <= LOSSLESS * problem.squared_norm:
        explicit = problem.explicit_loss(fit.factors)
        fit = fit if explicit is None else replace(fit, loss=explicit)
        if explicit is None or explicit <= EXACT * problem.squared_norm:
            return fit
    return finish_on_tensor(task, fit)


def met_on_tensor(task: Task, core: Core, fit: Fit) -> Fit | None:
    """A fit that meets the target after a few sweeps over the tensor; None where it does not.

    Components too many describe noise, of which the tensor has more than its core: sweeps of the
    tensor may get where a hundred steps in a swamp of the core do not. They are followed as long as
    they are on course for the target.
    """
    monitor = task.monitor
    if not core.overfitted or monitor.target is None or monitor.ended is not None:
        return None
    start = _point(task, _expanded(task, core, fit))
    base, monitor.base = monitor.base, 0.0
    goal = monitor.target_loss()
    rule = StoppingRule(task.tol, TRIAL_STEPS, 3, goal, beat=goal)
    point, _ = iterate(Sweeps(task.problem).extrapolated, start, rule)
    if monitor.reached(point.loss):
        ended = monitor.record(point.loss, lambda: assemble(task.data.reference, point.factors))
        return Fit(point.factors, point.loss, ended or Status.TARGET_REACHED)
    monitor.base = base
    return None


def better_on_tensor(task: Task, core: Core, fits: Sequence[Fit]) -> Fit:
    """Of fits of a core, each followed further, the one that is lowest after a sweep of the tensor.

    Noise in the subspaces of a core may favour another fit than the tensor does, and in a swamp
    the one that is behind may have further to go: fits of three measured tensors end up to .5 %
    lower than where the one that was ahead in the core is taken, and none higher (14 runs).
    """
    if core.compression.base <= LOSSLESS * task.problem.squared_norm:
        return min(fits, key=lambda fit: fit.loss)
    silent, sweep = core.unmonitored(), Sweeps(task.problem).sweep
    followed = [_descended(silent, fit, True) for fit in fits]
    return min(followed, key=lambda fit: sweep(_point(task, _expanded(task, core, fit))).loss)


def _descended(core: Core, fit: Fit, small: bool) -> Fit:
    """A fit of a core at its end: it went no further so far than others it was compared with."""
    enough = max(core.exact, core.monitor.target_loss())
    if fit.status is not Status.MAX_ITER or core.monitor.ended is not None or fit.loss <= enough:
        return fit
    if core.spares(fit):
        return fit
    most = MOST_ITERATIONS if core.rank <= LARGEST_RANK else TRIAL_STEPS
    with one_blas_thread(small):
        return descend(core.problem, fit, core.tol, most, core.monitor, core.assemble)


def _expanded(task: Task, core: Core, fit: Fit) -> Fit:
    factors = [task.problem.native(f) for f in core.compression.expand(fit.factors)]
    return Fit(balanced(factors), fit.loss + core.compression.base, fit.status)


def _point(task: Task, fit: Fit) -> Point:
    return Sweeps(task.problem).at(fit.factors, fit.loss)


def finish_on_tensor(task: Task, fit: Fit) -> Fit:
    """A sweep over the whole tensor, then Levenberg-Marquardt steps as long as they gain."""
    problem, monitor = task.problem, task.monitor
    sweeps, give = Sweeps(problem), assembler(task.data.reference)
    point, _ = iterate(sweeps.sweep, _point(task, fit), StoppingRule(0.0, 1), monitor, give)
    fit = Fit(point.factors, point.loss)
    if monitor.ended is not None:
        return replace(fit, status=monitor.ended)
    together = lambda factors: assemble(task.data.reference, factors)  # noqa: E731

    def descended(fit: Fit, tol: float) -> Fit:
        return descend(problem, fit, tol, MOST_ITERATIONS, monitor, together, near=True)

    def near_target(fit: Fit) -> bool:
        """Whether the target is within what CONVERGED leaves open: worth going on, to rounding."""
        return fit.loss - monitor.target_loss() <= CONVERGED_STEPS * task.tol * fit.loss

    if near_target(fit):
        fit = descended(fit, problem.epsilon)
        if monitor.ended is not None or fit.status is Status.CONVERGED:
            return fit
        return descended(fit, task.tol)
    fit = descended(fit, task.tol)
    if fit.status is not Status.CONVERGED or not near_target(fit):
        return fit
    return replace(descended(fit, problem.epsilon), status=monitor.ended or fit.status)
