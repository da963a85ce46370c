"""Activations of hidden units: values, derivatives and Hermite coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import erf, expit, ndtr

from latensor.arrays import Array

_ROOT = float(np.sqrt(2 * np.pi))
# The trapezoidal rule on this grid is exact to rounding for activations of slopes up to about 20.
_GRID = np.linspace(-9.0, 9.0, 721)


@dataclass(frozen=True)
class Activation:
    """A function of the input of a hidden unit.

    Attributes
    ----------
    value : function of the inputs
    derivative : function of the inputs and the values
    twice_centre : f(u) + f(-u) where that is the same for all u, else None
    homogeneous : bool, whether f(c u) = c f(u) for c > 0: scales go into the output layer
    """

    value: Callable[[Array], Array]
    derivative: Callable[[Array, Array], Array]
    twice_centre: float | None = None
    homogeneous: bool = False

    def hermite(self, scale: Array, bias: Array, most: int) -> Array:
        """Coefficients E[f(s t + b) He_m(t)] of standard Gaussian t, (most + 1, ..) for m = 0, ...

        They are s^m times the mean of the m-th derivative (Stein), whether or not it exists.
        """
        scale, bias = np.broadcast_arrays(np.asarray(scale, float), np.asarray(bias, float))
        if self.homogeneous:
            return _rectified(scale, bias, most)
        values = self.value(scale[..., None] * _GRID + bias[..., None])
        return np.stack([values @ weights for weights in _weights(most)])


@cache
def _weights(most: int) -> tuple[Array, ...]:
    """He_m(t) times the weight of the grid point t, for m up to `most`."""
    density = np.exp(-0.5 * _GRID**2) / _ROOT * (_GRID[1] - _GRID[0])
    return tuple(polynomial * density for polynomial in _polynomials(_GRID, most))


def _polynomials(t: Array, most: int) -> list[Array]:
    """He_0, .., He_most by their recurrence."""
    found = [np.ones_like(t), t]
    for m in range(1, most):
        found.append(t * found[m] - m * found[m - 1])
    return found[: most + 1]


def _rectified(scale: Array, bias: Array, most: int) -> Array:
    """Those of max(u, 0): kinks are no matter for quadrature."""
    edge = -bias / scale
    density = np.exp(-0.5 * edge**2) / _ROOT
    above = ndtr(-edge)
    found = [scale * (density - edge * above), scale * above]
    found += [scale * p * density for p in _polynomials(edge, max(most - 2, 0))]
    return np.stack(found[: most + 1])


def _gelu(u: Array) -> Array:
    return np.asarray(u * ndtr(u))


ACTIVATIONS = {
    "sigmoid": Activation(expit, lambda u, a: a * (1 - a), 1.0),
    "logistic": Activation(expit, lambda u, a: a * (1 - a), 1.0),
    "tanh": Activation(np.tanh, lambda u, a: 1 - a**2, 0.0),
    "relu": Activation(
        lambda u: np.maximum(u, 0.0), lambda u, a: (u > 0).astype(u.dtype), homogeneous=True
    ),
    "softplus": Activation(lambda u: np.logaddexp(0.0, u), lambda u, a: expit(u)),
    "gelu": Activation(_gelu, lambda u, a: ndtr(u) + u * np.exp(-0.5 * u**2) / _ROOT),
    "erf": Activation(erf, lambda u, a: 2 / np.sqrt(np.pi) * np.exp(-(u**2)), 0.0),
}
