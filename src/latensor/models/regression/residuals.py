"""The component that residuals of a regression still have, beside what noise alone shows.

At the right weights of the right rank residuals are noise; at a local optimum they still have a
component of the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latensor.arrays import Array
from latensor.models.regression.design import Regression
from latensor.models.regression.starts import multiplied_in_modes, whitenings
from latensor.models.regression.weights import CPWeights

# Noise is drawn so many times: its largest component is above that of other noise one time in nine.
_DRAWS = 8
# Of the search for a component: directions of the first mode it begins with, and rounds over modes.
_STARTS, _ROUNDS = 2, 10


@dataclass(frozen=True, eq=False)
class ResidualSearch:
    """Looks for components of rank one in the whitened cross moment of entries and residuals.

    Attributes
    ----------
    regression : Regression
    """

    regression: Regression

    @cached_property
    def _whitenings(self) -> list[Array]:
        return whitenings(self.regression)[0]

    @cached_property
    def _noise(self) -> float:
        """The largest component of X' times noise of variance one, over some draws."""
        design, q = self.regression.design, self.regression.n_outputs
        drawn = np.random.default_rng(0).standard_normal((design.n_rows, q * _DRAWS))
        moments = design.cross(drawn).reshape(-1, _DRAWS, q)
        return max(self._component(moments[:, k])[0] for k in range(_DRAWS))

    def _component(self, pull: Array) -> tuple[float, list[Array]]:
        several = (-1,) if self.regression.n_outputs > 1 else ()
        tensor = pull.reshape(*self.regression.design.dims, *several)
        return rank_one(multiplied_in_modes(tensor, self._whitenings))

    def __call__(self, pull: Array, loss: float) -> tuple[CPWeights | None, float]:
        """The component, and its size, of the largest that noise has; None where noise has more.

        Parameters
        ----------
        pull : (D, q), X' times the residuals
        loss : float, half of their sum of squares
        """
        regression = self.regression
        n, q = regression.n_samples, regression.n_outputs
        limit = self._noise * np.sqrt(2 * loss / (n * q))
        value, vectors = self._component(pull)
        size = value / limit if limit > 0 else 0.0
        if not size > 1:
            return None, size
        output = vectors.pop()[:, None] if q > 1 else np.ones((1, 1))
        factors = [m @ v[:, None] for m, v in zip(self._whitenings, vectors, strict=True)]
        factors[0] = factors[0] * (value / n)
        return CPWeights(tuple(factors), output), size


def rank_one(tensor: Array) -> tuple[float, list[Array]]:
    """A large component of a tensor: its size, and a unit vector for every mode.

    The best of a few starts of the higher-order power method: directions of the first mode that
    explain most, each with the best component of the tensor contracted with it.
    """
    if tensor.ndim == 2:
        left, values, right = np.linalg.svd(tensor, full_matrices=False)
        return float(values[0]), [left[:, 0], right[0]]
    flat = tensor.reshape(len(tensor), -1)
    _, directions = np.linalg.eigh(flat @ flat.T)
    found = []
    for first in directions.T[: -_STARTS - 1 : -1]:
        _, others = rank_one((first @ flat).reshape(tensor.shape[1:]))
        found.append(_power_method(tensor, [first, *others]))
    return max(found, key=lambda each: each[0])


def _power_method(tensor: Array, vectors: Sequence[Array]) -> tuple[float, list[Array]]:
    found, value = list(vectors), 0.0
    for _ in range(_ROUNDS):
        for mode in range(tensor.ndim):
            left = tensor
            for k in range(tensor.ndim - 1, mode, -1):
                left = left @ found[k]
            for k in range(mode):
                left = np.tensordot(found[k], left, axes=(0, 0))
            value = float(np.linalg.norm(left))
            if value > 0:
                found[mode] = left / value
    return value, found
