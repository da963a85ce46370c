"""Moments of responses with score functions: E[r S_m(x)], r being what polynomials leave of y."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums
from latensor.scores.base import summed_hermite
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class Residual:
    """Whitened rows and standardized targets without a polynomial of low degree.

    E[q(x) S_m(x)] = E[grad^m q] is zero for every polynomial q of degree below m, whatever the
    density: it takes variance out of a moment and leaves its mean.

    Attributes
    ----------
    centre, whitener : (d,), (d, r), z = (x - centre) @ whitener
    target : (2, q), means and standard deviations of the targets
    linear : (r, q)
    quadratic : (r, r, q), subtracted as (z'Qz - tr Q) / 2; None for nothing
    """

    centre: Any
    whitener: Any
    target: Any
    linear: Any
    quadratic: Any = None

    def __call__(self, batch: Batch) -> tuple[Array, Array, Array]:
        """Rows (n, d), whitened rows (n, r) and residuals (n, q)."""
        rows = np.asarray(batch.parts[0], dtype=np.float64)
        z = (rows - self.centre) @ self.whitener
        y = (np.asarray(batch.parts[1], dtype=np.float64) - self.target[0]) / self.target[1]
        left = y - z @ self.linear
        if self.quadratic is not None:
            for k in range(left.shape[1]):
                form = self.quadratic[..., k]
                left[:, k] -= 0.5 * (((z @ form) * z).sum(axis=1) - np.trace(form))
        return rows, z, left


@storable
@dataclass(frozen=True, eq=False)
class ScoreMoments(Sums):
    """E[r S_m(B, .., B)] in whitened coordinates, per sample.

    Attributes
    ----------
    residual : Residual
    order : 2 or 3
    basis : (r, m) B
    scores : Scores of x, or None for whitened rows that are standard Gaussian
    lift : (d, r), what whitened coordinates are in those of x
    """

    residual: Residual
    order: int
    basis: Any
    scores: Any
    lift: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        rows, z, left = self.residual(batch)
        weighted = left * batch.weights[:, None]
        if self.scores is None:
            gram = self.basis.T @ self.basis
            found = summed_hermite(z @ self.basis, weighted, self.order, gram)
        else:
            found = self.scores.summed(rows, weighted, self.order, self.lift @ self.basis)
        return {"weight": batch.weight, "moment": found}

    def finalize(self) -> Array:
        """(m, .., m, q)."""
        sums = self.seen()
        return np.asarray(sums["moment"] / sums["weight"])
