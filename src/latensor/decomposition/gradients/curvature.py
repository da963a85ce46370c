"""Linear systems with the Hessian at a solution; refuses where the solution is not isolated."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import NotIdentifiableError

# Rounding of the right-hand side is magnified by the inverse of the smallest curvature relative to
# the largest: above this ratio gradients keep six digits.
LEAST_CURVATURE = float(np.finfo(float).eps) / 1e-6
# Newton steps to the stationary point, each of which doubles the digits.
NEWTON_STEPS = 25
# Relative residual at which a system counts as solved.
_SOLVED = 1e-11
# Conjugate-gradient steps per unknown: rounding makes them need more than the one of exact numbers.
_STEPS_PER_UNKNOWN = 10


def solve_curvature(
    apply: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    right: Array,
    scale: float,
) -> Array:
    """The solution x of H x = b by preconditioned conjugate gradients, for H positive definite.

    The steps are those of Lanczos: their coefficients bound the smallest and largest curvature of
    the preconditioned H that b has a part in.

    Parameters
    ----------
    apply, precondition : H and an approximation of its inverse, on real vectors
    right : (n,) vector b
    scale : float, size below which |b| is rounding

    Raises
    ------
    NotIdentifiableError, where H has no or negative curvature in a direction that matters.
    """
    x = np.zeros_like(right)
    residual = right.copy()
    enough = max(_SOLVED * float(np.linalg.norm(right)), scale)
    diagonal: list[float] = []
    above: list[float] = []
    direction = np.zeros_like(right)
    energy, ratio, length = 1.0, 0.0, 1.0
    for step in range(_STEPS_PER_UNKNOWN * len(right) + 10):
        if float(np.linalg.norm(residual)) <= enough:
            _refuse_flat(diagonal, above)
            return x
        conditioned = precondition(residual)
        fresh = float(residual @ conditioned)
        ratio = fresh / energy if step else 0.0
        direction = conditioned + ratio * direction
        energy = fresh
        product = apply(direction)
        curvature = float(direction @ product)
        if curvature <= 0.0:
            raise NotIdentifiableError(
                "no gradient: the solution is not an isolated minimum (it has zero or negative "
                "curvature in some direction), so that it is no function of the tensor. Lower the "
                "rank, add a ridge, or run to a smaller tol"
            )
        if step:
            diagonal.append(curvature / energy + ratio / length)
            above.append(math.sqrt(ratio) / length)
        else:
            diagonal.append(curvature / energy)
        length = energy / curvature
        x = x + length * direction
        residual = residual - length * product
    _refuse_flat(diagonal, above)
    raise NotIdentifiableError(
        "no gradient: conjugate gradients do not solve the system of the implicit function theorem "
        f"(residual {np.linalg.norm(residual) / np.linalg.norm(right):.1e}): the solution is not "
        "isolated, or nearly so. Lower the rank or add a ridge"
    )


def _refuse_flat(diagonal: list[float], above: list[float]) -> None:
    if not diagonal:
        return
    from scipy.linalg import eigvalsh_tridiagonal

    values = eigvalsh_tridiagonal(np.array(diagonal), np.array(above))
    if values[0] <= LEAST_CURVATURE * values[-1]:
        raise NotIdentifiableError(
            "no gradient: the solution is not isolated (smallest curvature "
            f"{max(values[0] / values[-1], 0.0):.1e} of the largest), so that it is no function of "
            "the tensor. Lower the rank or add a ridge"
        )
