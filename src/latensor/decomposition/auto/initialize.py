"""Where the fit of a core begins: an algebraic start and the leading directions, the better one.

Both live on the leading (rank + 3)-dimensional part of the core. The pencil solves exact data at
once; leading directions serve noisy data and ranks above two of the dimensions. Three sweeps show
whether one of them is already as good as noise allows; otherwise both go on for a while.
"""

from __future__ import annotations

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.auto.core import EXACT, Core, Fit
from latensor.decomposition.optimize.iteration import StoppingRule, iterate
from latensor.decomposition.optimize.problem import DenseProblem, squared_norm
from latensor.decomposition.optimize.starts import (
    leading_part,
    leading_start,
    pencil_groups,
    pencil_start,
)
from latensor.decomposition.optimize.sweeps import Point, Sweeps, balanced

# Directions beyond the rank on which starts are compared: without them a hyperspectral cube ends
# 2e-4 higher in the mean of eight seeds.
_MARGIN = 3
# Sweeps after which a start may be good enough, and after which two are compared: after one, 60^3
# of rank 58 is lost. Five of the first take one cube 2e-4 down and another 5e-4 up.
_TRIAL_SWEEPS, _COMPARED_SWEEPS = 3, 20


def initialize(core: Core) -> Fit:
    """The more promising of two starts, as factors of the whole core."""
    rank, shape = core.rank, core.shape
    algebraic = pencil_groups(shape, rank) is not None
    keep = shape
    if core.cheap or (algebraic and core.floor is None):
        margin = _MARGIN if core.cheap else 0
        keep = tuple(min(r, rank + margin) for r in shape)
    unsorted = [n for n, basis in enumerate(core.compression.bases) if basis is None]
    by_energy = [n for n in range(len(shape)) if n not in unsorted]
    part, bases = leading_part(core.compression.core, keep, unsorted)
    problem = DenseProblem(part)
    sweeps = Sweeps(problem)
    outside = max(core.problem.squared_norm - squared_norm(part), 0.0)
    trials: list[Point] = []
    for start in (pencil_start, leading_start):
        if start is pencil_start and not (core.cheap or core.floor is None):
            continue  # sweeps over all there is are expensive: one good start
        factors = (
            pencil_start(part, rank)
            if start is pencil_start
            else leading_start(part, rank, core.rng, () if core.cheap else by_energy)
        )
        if factors is None:
            continue
        point = sweeps.start(balanced(factors))
        for _ in range(_TRIAL_SWEEPS):
            point = sweeps.sweep(point)
        if not np.isfinite(point.loss):
            continue
        trials.append(point)
        exact = point.loss <= EXACT * problem.squared_norm
        fit = Fit(point.factors, point.loss + outside)
        if exact or core.monitor.reached(fit.loss) or (core.cheap and core.accepts(fit)):
            return _expanded(core, point, bases)
    if len(trials) > 1:
        target = max(core.monitor.target_loss() - outside, 0.0)
        rule = StoppingRule(core.tol, _COMPARED_SWEEPS, 3, floor=target)
        for number, point in enumerate(trials):
            trials[number] = iterate(sweeps.extrapolated, point, rule)[0]
            if target > 0.0 and trials[number].loss <= target:
                return _expanded(core, trials[number], bases)
    return _expanded(core, min(trials, key=lambda p: p.loss), bases)


def _expanded(core: Core, point: Point, bases: tuple[Array | None, ...]) -> Fit:
    """A point of the leading part as a fit of the core: zeros in all other directions."""
    if all(f.shape[1] == r for f, r in zip(point.factors, core.shape, strict=True)):
        return Fit(balanced(point.factors), point.loss)
    factors = []
    for factor, basis, r in zip(balanced(point.factors), bases, core.shape, strict=True):
        if basis is not None:
            factors.append(factor @ basis)
        else:
            wide = np.zeros((core.rank, r), dtype=factor.dtype)
            wide[:, : factor.shape[1]] = factor
            factors.append(wide)
    return Fit(tuple(factors), Sweeps(core.problem).start(factors).loss)
