"""The one move between optima: take some components out, put as many in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.auto.core import Core, Fit, component_costs
from latensor.decomposition.optimize.starts import leading_rank_one, random_start
from latensor.decomposition.optimize.sweeps import FEW_SWEEPS, Sweeps, balanced, congruences


def replace_components(core: Core, fit: Fit, remove: Sequence[int], add: str = "residual") -> Fit:
    """A start with some components taken out and as many put in.

    Parameters
    ----------
    remove : indices of the components to take out
    add : "residual" for one after the other from what the residual needs most, with a few sweeps
        between; "random" for Gaussian ones of the usual size
    """
    sweeps = Sweeps(core.problem)
    kept = [np.delete(f, remove, axis=0) for f in balanced(fit.factors)]
    if add == "random":
        rows = random_start(core.shape, len(remove), core.rng, core.problem.tensor.dtype)
        norms = [np.linalg.norm(f, axis=1).mean() for f in kept if len(f)]
        size = float(np.mean(norms)) if norms else 1.0
        joined = [np.vstack([f, size * row]) for f, row in zip(kept, rows, strict=True)]
        point = sweeps.start(joined)
        return Fit(point.factors, point.loss)
    point = sweeps.start(kept)
    for _ in remove:
        for _ in range(FEW_SWEEPS):
            point = sweeps.extrapolated(point)
        rows, energy = leading_rank_one(core.problem.residual(point.factors), core.rng)
        point = sweeps.start(_with(point.factors, rows, energy))
    return Fit(point.factors, point.loss)


def exchanged(fit: Fit, remove: Sequence[int], rows: Sequence[Array], energy: float) -> Fit:
    """A start with some components taken out and a rank-one term of the residual put in."""
    kept = [np.delete(f, remove, axis=0) for f in balanced(fit.factors)]
    return Fit(tuple(_with(kept, rows, energy)), np.inf)


def _with(factors: Sequence[Array], rows: Sequence[Array], energy: float) -> list[Array]:
    scale = energy ** (0.5 / len(rows))
    return [np.vstack([f, scale * row]) for f, row in zip(factors, rows, strict=True)]


def misplaced(factors: Sequence[Array], count: int) -> Array:
    """The components to replace: those cheapest to miss, and one of the two most alike.

    A component that splits a strong one is expensive to miss while the other stays as it is.
    """
    costs = component_costs(factors)
    costs[most_alike(factors, costs)[0]] = -1.0
    return np.argsort(costs)[:count]


def most_alike(factors: Sequence[Array], costs: Array) -> list[int]:
    """The two components most like each other over all modes, the one cheaper to miss first."""
    alike = congruences(factors)
    pair = np.unravel_index(int(np.argmax(alike)), alike.shape)
    return sorted((int(one) for one in pair), key=lambda one: costs[one])
