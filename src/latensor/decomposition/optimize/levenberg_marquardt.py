"""Levenberg-Marquardt: all factors move at once, where alternating least squares is slow.

One step solves (J'J + damping) x = -gradient, by conjugate gradients without forming J'J, or
directly where there are few unknowns. What J is, a `Model` of `normal_equations` knows. The damping
follows Nielsen: it falls by up to three after a step that gained what the quadratic model promised,
and grows faster and faster while steps fail.

The quadratic model also says when to stop: where a step without damping promises less than `tol` of
the loss, nothing is left to gain. A slow step alone proves nothing, and neither does a damped one:
where components grow and cancel each other, gains lie along directions that damping hides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.linalg

from latensor.arrays import Array
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.result import Status

_ATTEMPTS = 6
_INNER_TOLERANCE = 1e-2
# Unknowns up to which a Cholesky factorization costs less than some sixty products with J'J, from
# Grams, and entry by entry: 40 x 30 x 20 of rank 4 and 8 with 4,742 entries cost 20 and 50 of them.
DIRECT, DIRECT_ENTRIES = 300, 1000
# Damping relative to the mean diagonal of J'J: at the start, and at a start near an optimum. It
# stays between rounding and its inverse, so that steps from a point that has converged are finite.
_FIRST, UNDAMPED = 1e-3, 1e-6
_ROUNDING = float(np.finfo(np.float64).eps)
# Convergence is judged with the damping eps^(3/4), at which rounding of the gradient promises no
# more than eps^(5/4) of the squared norm, and with more and more exact conjugate-gradient steps.
# Judged at 1e-6, 3 of 300 fits of noise were called converged on promises 300 times too small.
_VANISHING = 0.75
_JUDGING_STEPS, _JUDGING_TOLERANCE = 200, 1e-3


class System(Protocol):
    """The normal equations at one point, for changes of the shape of `gradient`."""

    gradient: Array
    scale: float

    def multiply(self, x: Array) -> Array:
        """J'J x."""

    def preconditioner(self, damping: float) -> Callable[[Array], Array]:
        """An approximate inverse of J'J + damping."""

    def diagonal(self) -> Array:
        """The diagonal of J'J, of the shape of `gradient` or broadcast to it."""

    @property
    def matrix(self) -> Array | None:
        """The upper triangle of J'J, for `gradient` as one vector; None where it is large."""

    @property
    def inside(self) -> Span | None:
        """The equations within the spans of the factors, where they are fewer; None elsewhere."""


class Model(Protocol):
    """What is fitted: parameters, loss and normal equations."""

    @property
    def problem(self) -> Problem:
        """What is fitted."""

    def evaluate(self, parameters: Array) -> tuple[Array, float, Callable[[], System]]:
        """The parameters, perhaps rescaled; their loss; and how to set up the equations there."""


@dataclass(frozen=True)
class Span:
    """Equations within the spans of the factors; across them J'J is Gamma_n of each mode alone."""

    whole: System
    system: System
    bases: Array
    across: Array

    def outside(self, damping: float) -> tuple[Array, float]:
        """Changes across the spans, and the decrease that they promise."""
        x = -self.whole.preconditioner(damping)(self.across)
        slope = float(np.vdot(x, self.across).real)
        return x, damping * float(np.vdot(x, x).real) - slope

    def expand(self, x: Array) -> Array:
        """Changes within the spans, in coordinates of the factors."""
        return x @ self.bases


@dataclass(frozen=True)
class Iterate:
    """Parameters, their loss, the equations there, and damping and its growth for the next step."""

    parameters: Array
    loss: float
    system: Callable[[], System]
    damping: float = -1.0
    growth: float = 2.0
    stationary: bool = False


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Steps that never raise the loss, and know when they are done.

    Parameters
    ----------
    model : what is fitted
    tol : float, fraction of the loss that a step must promise to be worth taking
    base : float, squared residual outside of what is fitted, which counts as loss there
    floor : float, gain that rounding could fake
    max_inner : int, conjugate-gradient steps per linear system
    first : float, damping at the start relative to the mean diagonal of J'J; `UNDAMPED` near an
        optimum
    """

    model: Model
    tol: float = 0.0
    base: float = 0.0
    floor: float = 0.0
    max_inner: int = 60
    first: float = _FIRST

    def start(self, parameters: Array) -> Iterate:
        """The iterate of given parameters."""
        return Iterate(*self.model.evaluate(parameters))

    def step(self, point: Iterate) -> Iterate:
        """One accepted step; the same point, `stationary` where nothing is left to gain."""
        system = point.system()
        scale = system.scale
        if not scale > 0.0 or not system.gradient.any():
            return replace(point, stationary=True)
        damping = self.first * scale if point.damping < 0 else point.damping
        growth = point.growth
        enough = max(self.tol * (point.loss + self.base), self.floor)
        move, promised = self._solve(system, damping)
        if promised <= enough and damping > UNDAMPED * scale:
            damping = UNDAMPED * scale
            move, promised = self._solve(system, damping)
        if promised <= enough and self.remaining(system, enough) <= enough:
            return replace(point, stationary=True)
        for attempt in range(_ATTEMPTS):
            if attempt:
                move, promised = self._solve(system, damping)
            parameters, loss, equations = self.model.evaluate(point.parameters + move)
            gain = point.loss - loss
            if gain > 0:
                ratio = min(gain / max(promised, np.finfo(float).tiny), 2.0)
                damping *= max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
                return Iterate(parameters, loss, equations, max(damping, _ROUNDING * scale))
            damping *= growth
            growth *= 2.0
        return replace(
            point, damping=min(damping, scale / _ROUNDING), growth=min(growth, 1 / _ROUNDING)
        )

    def converged(self, point: Iterate) -> bool:
        """Whether nothing is left to gain at a point, by the quadratic model without damping."""
        if point.stationary or point.loss <= self.floor:
            return True
        system = point.system()
        enough = max(self.tol * (point.loss + self.base), self.floor)
        return self.remaining(system, enough) <= enough

    def remaining(self, system: System, enough: float) -> float:
        """What a step without damping promises, or as much of it as is above `enough`."""
        if not system.scale > 0.0 or not system.gradient.any():
            return 0.0
        damping = self.model.problem.epsilon**_VANISHING * system.scale
        return self._solve(system, damping, _JUDGING_STEPS, _JUDGING_TOLERANCE, enough)[1]

    def _solve(
        self,
        system: System,
        damping: float,
        max_inner: int | None = None,
        tolerance: float = _INNER_TOLERANCE,
        most: float = np.inf,
    ) -> tuple[Array, float]:
        """(J'J + damping) x = -gradient, and the decrease that the quadratic model promises.

        Ends early where the decrease is above `most`, which it only grows beyond.
        """
        inside = system.inside
        if inside is not None:
            alone, gain = inside.outside(damping)
            x, promised = self._solve(inside.system, damping, max_inner, tolerance, most - gain)
            return inside.expand(x) + alone, promised + gain
        x = _solved(system.matrix, damping, -system.gradient)
        if x is not None:
            slope = float(np.vdot(x, system.gradient).real)
            return x, damping * float(np.vdot(x, x).real) - slope
        promised = 0.0
        inverse = system.preconditioner(damping)
        x = np.zeros_like(system.gradient)
        residual = -system.gradient
        direction = inverse(residual)
        energy = float(np.vdot(residual, direction).real)
        enough = tolerance**2 * float(np.vdot(residual, residual).real)
        for _ in range(max_inner or self.max_inner):
            if not energy > 0.0 or promised > most:
                break
            product = system.multiply(direction) + damping * direction
            curvature = float(np.vdot(direction, product).real)
            if not curvature > 0.0:
                break
            length = energy / curvature
            x += length * direction
            promised += length * energy
            residual -= length * product
            if np.vdot(residual, residual).real <= enough:
                break
            conditioned = inverse(residual)
            fresh = float(np.vdot(residual, conditioned).real)
            direction *= fresh / energy
            direction += conditioned
            energy = fresh
        slope = float(np.vdot(x, system.gradient).real)
        return x, damping * float(np.vdot(x, x).real) - slope


def minimize(
    steps: LevenbergMarquardt,
    parameters: Array,
    rule: StoppingRule,
    monitor: Monitor | None = None,
    assemble: Callable[[Any], Any] | None = None,
) -> tuple[Iterate, Status]:
    """Steps from given parameters until `rule` holds; CONVERGED where the model proves it."""
    rule = replace(rule, proof=steps.converged)
    return iterate(steps.step, steps.start(parameters), rule, monitor, assemble)


def _solved(matrix: Array | None, damping: float, right: Array) -> Array | None:
    """(matrix + damping) x = right; None without one, or where rounding makes it indefinite."""
    if matrix is None:
        return None
    lifted = matrix.copy()
    lifted[np.diag_indices_from(lifted)] += damping
    try:
        factor = scipy.linalg.cho_factor(lifted, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    solution: Array = scipy.linalg.cho_solve(factor, right.ravel(), check_finite=False)
    return solution.reshape(right.shape)
