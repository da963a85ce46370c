"""Moments of rows together with a target: what regressions with latent components start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.batches import only_rounding, refuse_overflow, refuse_underflow
from latensor.moments.sums import Sums
from latensor.value_files import storable

# Standard deviations beyond which squares of the target are cut off: few samples rule them.
_CLIPPED = 9.0


@storable
@dataclass(frozen=True, eq=False)
class JointCovariance(Sums):
    """Mean and covariance of (x, y), about a centre near the mean.

    Attributes
    ----------
    centre : (d + 1,)
    """

    centre: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        both = np.column_stack([np.asarray(part, dtype=np.float64) for part in batch.parts])
        both -= self.centre
        weighted = both * batch.weights[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            second = weighted.T @ both
        d = batch.parts[0].shape[1]
        for name, part in (("X", slice(d)), ("y", slice(d, None))):
            refuse_overflow(second[part, part], "second", name)
            refuse_underflow(both[:, part], self.centre[part], np.diag(second)[part], name)
        return {
            "weight": batch.weight,
            "units": float(len(batch)),
            "first": weighted.sum(axis=0),
            "second": second,
        }

    def finalize(self) -> tuple[Array, Array]:
        """The mean (d + 1,) and the covariance (d + 1, d + 1)."""
        sums = self.seen()
        shift = sums["first"] / sums["weight"]
        mean = self.centre + shift
        covariance = sums["second"] / sums["weight"] - np.outer(shift, shift)
        constant = only_rounding(mean, np.diag(covariance), int(sums["units"]))
        covariance[constant] = covariance[:, constant] = 0.0
        return mean, covariance


def whitened(batch: Batch, centre: Any, whitener: Any, target: Any) -> tuple[Array, Array]:
    """Whitened rows (n, r) and the standardized target (n,)."""
    rows = (np.asarray(batch.parts[0], dtype=np.float64) - centre) @ whitener
    y = (np.asarray(batch.parts[1], dtype=np.float64).reshape(len(rows)) - target[0]) / target[1]
    return rows, y


@storable
@dataclass(frozen=True, eq=False)
class ResponseSquares(Sums):
    """E[y z], E[y^2 z], E[y^2 (z z' - 1)] and the last with y^2 cut off at 9.

    For y = b_j'z + c_j + noise with probability w_j and Gaussian z they are sum_j w_j b_j,
    2 sum_j w_j c_j b_j and 2 sum_j w_j b_j b_j'.

    Attributes
    ----------
    centre, whitener : (d,), (d, r), z = (x - centre) @ whitener
    target : (2,), mean and standard deviation of y
    """

    centre: Any
    whitener: Any
    target: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        z, y = whitened(batch, self.centre, self.whitener, self.target)
        squares = batch.weights * y**2
        cut = batch.weights * np.minimum(y**2, _CLIPPED)
        return {
            "weight": batch.weight,
            "linear": (batch.weights * y) @ z,
            "square": squares @ z,
            "second": (z * squares[:, None]).T @ z - squares.sum() * np.eye(z.shape[1]),
            "clipped": (z * cut[:, None]).T @ z - cut.sum() * np.eye(z.shape[1]),
        }

    def finalize(self) -> dict[str, Array]:
        """All of them per sample."""
        sums = self.seen()
        names = ("linear", "square", "second", "clipped")
        return {name: sums[name] / sums["weight"] for name in names}


@storable
@dataclass(frozen=True, eq=False)
class ResponseCubes(Sums):
    """E[y^3 (s s s - three terms s 1)] of s = z @ basis: 6 sum_j w_j (basis'b_j)^(x)3.

    Attributes
    ----------
    centre, whitener, target : as of `ResponseSquares`
    basis : (r, m), orthonormal
    """

    centre: Any
    whitener: Any
    target: Any
    basis: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        z, y = whitened(batch, self.centre, self.whitener, self.target)
        s = z @ self.basis
        weighted = s * (batch.weights * y**3)[:, None]
        products = (s[:, :, None] * s[:, None, :]).reshape(len(s), -1)
        m = s.shape[1]
        cube = (weighted.T @ products).reshape(m, m, m)
        return {"weight": batch.weight, "cube": cube, "linear": weighted.sum(axis=0)}

    def finalize(self) -> Array:
        """The third moment (m, m, m)."""
        sums = self.seen()
        flat = np.einsum("a,bc->abc", sums["linear"], np.eye(len(sums["linear"])))
        flat = flat + flat.transpose(1, 0, 2) + flat.transpose(1, 2, 0)
        return np.asarray((sums["cube"] - flat) / sums["weight"])
