"""Whether a fit has converged: what the Gauss-Newton model without damping still promises.

Sweeps in a swamp are slow long before the end, so that small gains prove nothing. A step of all
factors at once shows what is left, along bounds of nonnegative factors as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.optimize.iteration import CONVERGED_PROMISE, CONVERGED_STEPS
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt, System
from latensor.decomposition.optimize.normal_equations import FreeFactors
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.sweeps import congruences

# Product over the modes of the cosines of two components that could as well be one.
_PARALLEL = 0.999


def has_converged(
    problem: Problem,
    factors: Sequence[Array],
    tol: float,
    *,
    base: float = 0.0,
    ridge: float = 0.0,
    fixed: tuple[int, ...] = (),
    nonnegative: tuple[int, ...] = (),
) -> bool:
    """Whether sweeps may end: all further steps together are promised to gain a fraction of what
    CONVERGED allows.

    Parameters
    ----------
    problem : what is fitted
    factors : transposed factors (rank, d)
    tol : float, relative decrease of the loss that counts as progress
    base : float, squared residual outside of what is fitted
    ridge, fixed, nonnegative : what holds of the factors
    """
    model = FreeFactors(problem, ridge, fixed)
    stacked, loss, equations = model.evaluate(model.stack(factors))
    floor = (10 * problem.epsilon) ** 2 * problem.squared_norm
    enough = max(CONVERGED_STEPS * CONVERGED_PROMISE * tol * (loss + base), floor)
    if loss <= floor:
        return True
    if ridge and len(factors) > 2 and congruences(stacked).max() > _PARALLEL:
        return False  # one component in place of two would be penalized less: a saddle
    system, released = equations(), 0.0
    if nonnegative:
        system = _WithBounds(system, stacked, nonnegative)
        released = system.released
    return released + LevenbergMarquardt(model).remaining(system, enough) <= enough


class _WithBounds:
    """Normal equations without the entries that a step would hold at zero (the KKT conditions).

    An entry is held where its own least-squares value, x - gradient / diagonal, is not positive.
    What moving it there may gain, 2 gradient x, counts as `released`.
    """

    inside = None

    def __init__(
        self,
        system: System,
        stacked: Array,
        nonnegative: Sequence[int],
    ) -> None:
        self._system = system
        self.scale = system.scale
        gradient = system.gradient
        held = np.zeros(stacked.shape, dtype=np.bool_)
        modes = list(nonnegative)
        held[modes] = (stacked * system.diagonal() <= gradient)[modes]
        self._moving = ~held
        self.released = 2.0 * float(np.sum((gradient * stacked)[held]))
        self.gradient = gradient * self._moving

    def diagonal(self) -> Array:
        return self._system.diagonal()

    def multiply(self, x: Array) -> Array:
        return self._system.multiply(x) * self._moving

    @property
    def matrix(self) -> Array | None:
        moving, whole = self._moving.ravel(), self._system.matrix
        return None if whole is None else whole * (moving[:, None] & moving)

    def preconditioner(self, damping: float) -> Callable[[Array], Array]:
        scale = 1.0 / (self._system.diagonal() + damping)
        return lambda x: scale * x * self._moving
