"""A tensor minus the components found so far, without forming it.

Both power methods ask only for contractions of R = T - sum_j w_j a_j (x) b_j (x) c_j; the
components are subtracted from the contraction, at a cost of rank times dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, Namespace, is_complex, like, resolve
from latensor.tensors.contractible import Contractible


@dataclass(frozen=True)
class Deflated:
    """R = T - sum_j w_j a_j (x) b_j (x) ...

    Attributes
    ----------
    tensor : Contractible T
    weights : list of the w_j
    factors : per mode a (d, found) matrix, or None before the first component; all modes share
        one object in the symmetric case
    """

    tensor: Contractible
    weights: tuple[float, ...] = ()
    factors: tuple[Array, ...] | None = None

    @property
    def xp(self) -> Namespace:
        """The array library of the tensor."""
        return resolve(tensor=self.tensor.reference)[0]

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.tensor.shape)

    def minus(self, weight: float, vectors: tuple[Array, ...]) -> Deflated:
        """R with one more component taken off; one shared vector keeps the modes shared."""
        xp = self.xp
        present = self.factors or (None,) * self.order
        grown: dict[tuple[int, int], Array] = {}
        for old, vector in zip(present, vectors, strict=True):
            column = vector[:, None]
            key = (id(old), id(vector))
            if key not in grown:
                grown[key] = column if old is None else xp.concat([old, column], axis=1)
        factors = tuple(
            grown[(id(old), id(vector))] for old, vector in zip(present, vectors, strict=True)
        )
        return replace(self, weights=(*self.weights, weight), factors=factors)

    def subtract(self, product: Array, points: tuple[Array, ...], mode: int) -> Array:
        """The mttkrp of R from that of T at (d, L) points."""
        if self.factors is None:
            return product
        xp = self.xp
        shared = all(f is self.factors[0] for f in self.factors) and all(
            p is points[0] for p in points
        )
        if shared:
            overlaps = _overlap(xp, points[0], self.factors[0]) ** (self.order - 1)
        else:
            overlaps = 1.0
            for m, (point, factor) in enumerate(zip(points, self.factors, strict=True)):
                if m != mode:
                    overlaps = overlaps * _overlap(xp, point, factor)
        weights = like(np.array(self.weights), self.tensor.reference)
        return product - self.factors[mode] @ (weights[:, None] * overlaps)

    def image(self, point: Array) -> Array:
        """R(I, u, ..., u) for every column u of a (d, L) matrix."""
        points = (point,) * self.order
        return self.subtract(self.tensor.mttkrp(list(points), 0), points, 0)

    def hessian(self, vector: Array, basis: Array | None) -> Array:
        """The matrix R(Q, Q, u, ..., u) of a symmetric R at a (d,) vector; None for Q = I."""
        rest = (vector,) * (self.order - 2)
        matrix = self.tensor.contract(basis, basis, *rest)
        if self.factors is None:
            return matrix
        factor = self.factors[0]
        weights = like(np.array(self.weights), self.tensor.reference)
        turned = factor if basis is None else self.xp.permute_dims(basis, (1, 0)) @ factor
        scale = weights * (self.xp.permute_dims(factor, (1, 0)) @ vector) ** (self.order - 2)
        return matrix - (turned * scale[None, :]) @ self.xp.permute_dims(turned, (1, 0))


def _overlap(xp: Any, point: Array, factor: Array) -> Array:
    """The (found, L) inner products of found vectors with points, as an mttkrp conjugates them."""
    if is_complex(point):
        return xp.permute_dims(factor, (1, 0)) @ xp.conj(point)
    return xp.permute_dims(factor, (1, 0)) @ point
