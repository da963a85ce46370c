"""Mixtures whose components have linear log densities, as families for EM.

Where log p(x, j) = f(x)' c_j with features f(x) (m,), the last of which is 1, both steps are one
matrix product: the joint log densities are F C, and all that the maximization needs are the sums
R' F of the features weighted by responsibility. Gaussians, categorical variables and their
products over views are such families.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.refinement.family import Family, State
from latensor.refinement.responsibilities import normalize_rows
from latensor.value_files import storable


class LinearDensities(Protocol[State]):
    """What a mixture of linear log densities says."""

    def features(self, rows: Any) -> Array:
        """(n, m) features of rows, the last of them 1."""

    def natural(self, state: State) -> Array:
        """The coefficients C (m, k)."""

    def maximize(self, sums: Array) -> State:
        """The parameters that the sums (k, m) of weighted features maximize."""

    def coordinates(self, state: State) -> Array:
        """The parameters as one vector of unbounded numbers."""

    def from_coordinates(self, vector: Array, like: State) -> State:
        """The parameters of such a vector."""


@storable
@dataclass(frozen=True, eq=False)
class LinearFamily(Family[State]):
    """A mixture of linear log densities as a family.

    Attributes
    ----------
    densities : LinearDensities
    """

    densities: LinearDensities[State]

    def prepare(self, batch: Batch) -> Batch:
        return Batch((self.densities.features(batch.rows),), batch.weights, batch.keys)

    def expect(self, state: State, prepared: Batch) -> dict[str, Any]:
        features = prepared.rows
        fractions = features @ np.ascontiguousarray(self.densities.natural(state))
        total = float(prepared.weights @ normalize_rows(fractions, prepared.weights))
        return {
            "features": fractions.T @ features,
            "log_likelihood": total,
            "weight": prepared.weight,
        }

    def maximize(self, sums: dict[str, Any], state: State) -> State:
        return self.densities.maximize(sums["features"])

    def complete(self, sums: dict[str, Any], state: State) -> float:
        return float((self.densities.natural(state).T * sums["features"]).sum())

    def pack(self, state: State) -> Array:
        return self.densities.coordinates(state)

    def unpack(self, vector: Array, like: State) -> State:
        return self.densities.from_coordinates(vector, like)

    def log_density(self, state: State, prepared: Batch) -> Array:
        return prepared.rows @ np.ascontiguousarray(self.densities.natural(state))
