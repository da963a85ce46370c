"""PARAFAC2 with missing entries: expectation and maximization, with momentum.

Missing entries take the values of the model, and a sweep improves the model of the completed
slices (Kiers, ten Berge and Bro 1999); the squared residual of the observed entries, which is all
that counts, never rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.decomposition.optimize.sweeps import MOMENTUM, faster
from latensor.decomposition.parafac2.sweeps import (
    Factors,
    Slices,
    gram_matrices,
    inverse_root,
    stack_rows,
)

_COMPLETION_SWEEPS = 100


@dataclass(frozen=True)
class Imputed:
    """Factors, the slices they complete, and the squared residual of the observed entries."""

    factors: Factors
    filled: Any
    loss: float
    previous: tuple[Factors, Any] | None = None
    momentum: float = MOMENTUM


@dataclass(frozen=True)
class ObservedSlices:
    """Slices of which some entries are known.

    Attributes
    ----------
    rows : (n_slices, p, columns) the slices, zero where unknown and below the shorter ones
    observed : truth values of the same shape; rows below a slice count as known zeros
    nonnegative : modes without negative numbers
    """

    rows: Any
    observed: Any
    nonnegative: tuple[int, ...]

    @classmethod
    def of(
        cls, slices: Sequence[Any], masks: Sequence[Any], nonnegative: tuple[int, ...]
    ) -> ObservedSlices:
        """The slices in one array."""
        observed = stack_rows([m.astype(np.float64) for m in masks]).astype(bool)
        for i, mask in enumerate(masks):
            observed[i, mask.shape[0] :] = True
        return cls(stack_rows(slices), observed, nonnegative)

    def completed(self, rank: int) -> Any:
        """The slices, completed by the best matrix of the given rank for all of them stacked.

        All slices share C, so that stacked they have rank `rank` at most.
        """
        shape = self.rows.shape
        known = self.observed.reshape(-1, shape[2])
        data = self.rows.reshape(-1, shape[2])
        counts = known.sum(axis=0)
        means = np.where(known, data, 0.0).sum(axis=0) / np.maximum(counts, 1)
        filled = np.where(known, data, means)
        for _ in range(_COMPLETION_SWEEPS):
            vectors = np.linalg.eigh(filled.T @ filled)[1][:, -rank:]
            filled = np.where(known, data, (filled @ vectors) @ vectors.T)
        return filled.reshape(shape)

    def step(self, state: Imputed) -> Imputed:
        """One sweep on the completed slices from ahead of the state, or from it if that fails."""
        if state.previous is not None and state.momentum > 0:
            old, old_filled = state.previous
            ahead = Factors(
                *(
                    new + state.momentum * (new - before)
                    for new, before in zip(state.factors, old, strict=True)
                )
            )
            ahead = self._slices(state.filled)._feasible(ahead)
            filled = state.filled + state.momentum * (state.filled - old_filled)
            reached = self._swept(ahead, filled)
            if reached.loss < state.loss:
                return replace(
                    reached,
                    previous=(state.factors, state.filled),
                    momentum=faster(state.momentum),
                )
            state = replace(state, momentum=0.5 * state.momentum)
        reached = self._swept(state.factors, state.filled)
        if reached.loss >= state.loss:  # only rounding is left
            return replace(state, previous=None)
        return replace(reached, previous=(state.factors, state.filled), momentum=state.momentum)

    def _slices(self, filled: Any) -> Slices:
        energy = float(np.vdot(filled, filled))
        return Slices(filled, gram_matrices(filled), energy, self.nonnegative)

    def _swept(self, factors: Factors, filled: Any) -> Imputed:
        factors, _ = self._slices(filled).sweep(factors)
        loadings, middle, columns = (part[0] for part in factors)
        spread = middle * loadings[:, None, :]
        seen = (filled @ columns) @ np.swapaxes(spread, 1, 2)
        # By the Gram matrix, so that rows of zeros below a slice stay zero.
        bases = seen @ inverse_root(np.swapaxes(seen, 1, 2) @ seen)
        model = bases @ (spread @ columns.T)
        missed = np.where(self.observed, self.rows - model, 0.0)
        loss = float(np.vdot(missed, missed))
        return Imputed(factors, np.where(self.observed, self.rows, model), loss)
