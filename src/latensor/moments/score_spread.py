"""Fourth moments of scores along a few directions: how far sampling moves what rows determine.

Covariances of n Gaussian rows vary as n and the covariance say. Rows with long tails tell less: a
direction may rest on a single one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums


def _scores(rows: Any, centre: Array, axes: Array) -> Array:
    """(x - centre) @ axes (n, k); sparse rows stay sparse."""
    if scipy.sparse.issparse(rows):
        return np.asarray(rows @ axes - centre @ axes)
    return np.asarray((rows - centre) @ axes)


@dataclass(frozen=True, eq=False)
class DirectionSpread(Sums):
    """Of scores y of variance one, and the squared distance q of rows to all kept directions.

    Attributes
    ----------
    centre : (d,)
    directions : (d, k), orthonormal columns
    deviations : (k,), standard deviations along them
    left_out : float, the variance of the rest, in which q is counted
    """

    centre: Array
    directions: Array
    deviations: Array
    left_out: float

    def summed(self, batch: Batch) -> dict[str, Any]:
        rows, weights = batch.rows, batch.weights
        scores = _scores(rows, self.centre, self.directions)
        if scipy.sparse.issparse(rows):
            lengths = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
            lengths = lengths - 2 * (rows @ self.centre) + self.centre @ self.centre
        else:
            lengths = ((rows - self.centre) ** 2).sum(axis=1)
        rest = np.maximum(lengths - (scores**2).sum(axis=1), 0.0) / self.left_out
        squares = (scores / self.deviations) ** 2
        return {
            "weight": batch.weight,
            "fourth": weights @ squares**2,
            "mixed": (weights * rest) @ squares,
        }

    def finalize(self) -> tuple[Array, Array]:
        """E y^4 (k,), 3 of Gaussian rows, and E y^2 q (k,), 1 of those."""
        sums = self.seen()
        return sums["fourth"] / sums["weight"], sums["mixed"] / sums["weight"]


@dataclass(frozen=True, eq=False)
class PairSpread(Sums):
    """E u^2 v^2 (k,) of scores u and v of variance one of two views.

    Attributes
    ----------
    x_centre, y_centre : (d1,) and (d2,)
    x_axes, y_axes : (d1, k) and (d2, k)
    """

    x_centre: Array
    y_centre: Array
    x_axes: Array
    y_axes: Array

    def scores(self, batch: Batch) -> tuple[Array, Array]:
        """Of both views (n, k)."""
        x, y = batch.parts
        return _scores(x, self.x_centre, self.x_axes), _scores(y, self.y_centre, self.y_axes)

    def summed(self, batch: Batch) -> dict[str, Any]:
        x, y = self.scores(batch)
        return {"weight": batch.weight, "products": batch.weights @ (x * y) ** 2}

    def finalize(self) -> Array:
        sums = self.seen()
        found: Array = sums["products"] / sums["weight"]
        return found
