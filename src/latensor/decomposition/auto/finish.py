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
    Monitor,
    StoppingRule,
    iterate,
)
from latensor.decomposition.optimize.sweeps import Point, Sweeps, balanced
from latensor.decomposition.result import Status
from latensor.decomposition.setup import assemble, assembler
from latensor.decomposition.subspace.compression import LOSSLESS


def finish(task: Task, core: Core, fit: Fit, first: Fit | None = None) -> Fit:
    """The fit of a core as one of the tensor, finished there where that can help.

    Noise in the subspaces of a core may favour another fit than the tensor does: where the search
    has found one that is better in the core, the `first` one is seen through a sweep of the tensor
    as well, and the lower of the two goes on.
    """
    problem, monitor, compression = task.problem, task.monitor, core.compression
    small = compression.core.size < prod(problem.shape)
    fit = _followed(core, fit, monitor, small)
    reached = monitor.reached(fit.loss)
    if not small:
        if reached or monitor.ended is not None:
            return replace(fit, status=monitor.ended or Status.TARGET_REACHED)
        return fit
    fits = [_expanded(task, core, fit)]
    monitor.base = 0.0
    if monitor.ended is not None or reached:
        return replace(fits[0], status=monitor.ended or Status.TARGET_REACHED)
    if compression.base <= LOSSLESS * problem.squared_norm:
        explicit = problem.explicit_loss(fits[0].factors)
        fits = fits if explicit is None else [replace(fits[0], loss=explicit)]
        if explicit is None or explicit <= EXACT * problem.squared_norm:
            return fits[0]
    elif first is not None and first is not fit:
        silent = core.unmonitored()
        fits.append(_expanded(task, core, _followed(silent, first, silent.monitor, small)))
    return _finish_on_tensor(task, fits)


def _followed(core: Core, fit: Fit, monitor: Monitor, small: bool) -> Fit:
    """A fit of a core at its end: so far it went no further than others it was compared with."""
    enough = max(core.exact, monitor.target_loss())
    if fit.status is not Status.MAX_ITER or monitor.ended is not None or fit.loss <= enough:
        return fit
    most = MOST_ITERATIONS if core.rank <= LARGEST_RANK else TRIAL_STEPS
    with one_blas_thread(small):
        return descend(core.problem, fit, core.tol, most, monitor, core.assemble)


def _expanded(task: Task, core: Core, fit: Fit) -> Fit:
    factors = [task.problem.native(f) for f in core.compression.expand(fit.factors)]
    return Fit(balanced(factors), fit.loss + core.compression.base, fit.status)


def _finish_on_tensor(task: Task, fits: Sequence[Fit]) -> Fit:
    """A sweep over the whole tensor, then Levenberg-Marquardt steps as long as they gain."""
    problem, monitor = task.problem, task.monitor
    sweeps, give = Sweeps(problem), assembler(task.data.reference)
    begins = [Point(f.factors, tuple(problem.gram(x) for x in f.factors), f.loss) for f in fits]
    point, _ = iterate(sweeps.sweep, begins[0], StoppingRule(0.0, 1), monitor, give)
    fit = Fit(point.factors, point.loss)
    if monitor.ended is not None:
        return replace(fit, status=monitor.ended)
    for other in map(sweeps.sweep, begins[1:]):
        if other.loss < fit.loss:
            fit = Fit(other.factors, other.loss)
    # A target within what CONVERGED leaves open is worth going on for, down to rounding.
    gap = fit.loss - monitor.target_loss()
    tol = problem.epsilon if gap <= CONVERGED_STEPS * task.tol * fit.loss else task.tol
    together = lambda factors: assemble(task.data.reference, factors)  # noqa: E731
    return descend(problem, fit, tol, MOST_ITERATIONS, monitor, together, near=True)
