"""Gaussian emissions of a hidden Markov model: a family of Gaussian mixtures, without weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from latensor.refinement.families.covariances import (
    DIAG,
    FULL,
    SPHERICAL,
    TIED,
    as_diagonals,
    as_matrices,
    n_entries,
)
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState, Points
from latensor.refinement.hmm.chain import Expectation, Likelihoods
from latensor.refinement.responsibilities import divide_by_largest
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class GaussianEmission:
    """Rows in R^p with a mean and a covariance that depend on the state.

    Attributes
    ----------
    family : GaussianFamily, whose coordinates scale features and turn none
    state : MixtureState in these coordinates; of weights one, for the chain has the weights
    """

    family: GaussianFamily
    state: MixtureState

    @classmethod
    def of(cls, means: Any, covariances: Any, kind: str, floor: float = 0.0) -> Self:
        """From means (k, p) and covariances of a kind in the units of the data.

        Parameters
        ----------
        floor : float, added to variances, as `reg_covar` of `GaussianFamily.of`
        """
        matrices = kind in (FULL, TIED)
        inner = (
            np.diagonal(covariances, axis1=-2, axis2=-1)
            if matrices
            else as_diagonals(kind, covariances, means.shape[1])
        )
        squares = np.atleast_2d(inner).mean(axis=0) + means.var(axis=0)
        if kind == SPHERICAL:
            squares = np.full_like(squares, squares.mean())
        units = np.sqrt(np.where(squares > 0, squares, 1.0))
        family = GaussianFamily.scaled(kind, means.mean(axis=0), units, floor)
        return cls(family, family.inside(MixtureState(np.ones(len(means)), means, covariances)))

    @property
    def design(self) -> GaussianFamily:
        """How rows become what the rest takes."""
        return self.family

    @property
    def kind(self) -> str:
        """The shape of the covariances."""
        return self.family.covariance_type

    @property
    def means(self) -> Any:
        """The means (k, p), in the units of the data."""
        return self.family.outside(self.state).means

    @property
    def covariances(self) -> Any:
        """(k,) spherical, (k, p) diag, (k, p, p) full, (p, p) tied, in the units of the data."""
        return self.family.outside(self.state).covariances

    def matrices(self) -> Any:
        """The covariances as (k, p, p) matrices, whatever their kind."""
        return np.array(as_matrices(self.kind, self.covariances, *self.state.means.shape))

    def likelihoods(self, points: Points) -> Likelihoods:
        """How likely every row is in every state, relative to its likeliest."""
        table = self.family.joint(self.state, points)
        top = divide_by_largest(table) + self.family.volumes(points)
        index = np.arange(len(table))
        if points.order is not None:
            index[points.order] = np.arange(len(table))
            top = top[index]
        return Likelihoods(index, table, top)

    def sums(self, points: Points, found: Expectation) -> dict[str, Any]:
        """Expected sums of the rows and of their squares or products, by state."""
        posteriors = found.weighted()
        if points.order is not None:
            posteriors = posteriors[points.order]
        return self.family.sums(self.state, points, posteriors)

    def maximized(self, sums: dict[str, Any], updates: str = "mc") -> Self:
        """The means and covariances, or one of both, that make the rows likeliest."""
        found = self.family.maximize(sums, self.state)
        means, covariances = found.means, found.covariances
        if "m" not in updates:
            # Around other means than those of the rows, these vary by the square of the gap more.
            means, gaps = self.state.means, found.means - self.state.means
            if self.kind in (FULL, TIED):
                products = gaps[:, :, None] * gaps[:, None, :]
                if self.kind == TIED:
                    products = np.einsum("j,jab->ab", found.weights, products)
            else:
                products = gaps**2 if self.kind == DIAG else (gaps**2).mean(axis=1)
            covariances = covariances + products
        if "c" not in updates:
            covariances = self.state.covariances
        return self._with(means, covariances)

    def complete(self, sums: dict[str, Any]) -> float:
        """The log-likelihood of rows whose states are known as well as `sums` says."""
        return self.family.complete(sums, self.state)

    def packed(self) -> Any:
        """Means and covariances as free numbers, in which steps can be extrapolated."""
        return self.family.pack(self.state)[len(self.state.weights) :]

    def unpacked(self, vector: Any) -> Self:
        """Means and covariances from what `packed` returned, changed."""
        equal = np.zeros(len(self.state.weights))
        found = self.family.unpack(np.concatenate([equal, vector]), self.state)
        return self._with(found.means, found.covariances)

    def reordered(self, order: Any) -> Self:
        """The same emissions, states in another order."""
        found = self.state.covariances
        return self._with(self.state.means[order], found if self.kind == TIED else found[order])

    @property
    def n_parameters(self) -> int:
        """How many numbers are free."""
        count, width = self.state.means.shape
        return int(count * width) + n_entries(self.kind, count, width)

    def _with(self, means: Any, covariances: Any) -> Self:
        return replace(self, state=MixtureState(self.state.weights, means, covariances))
