"""Symbols as emissions of a hidden Markov model: one row of probabilities per state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.arrays.threads import run_tasks
from latensor.refinement.hmm.chain import Likelihoods
from latensor.refinement.hmm.sequences import Sequences


@dataclass(frozen=True)
class CategoricalEmission:
    """Symbols 0..d-1 with probabilities that depend on the state.

    Attributes
    ----------
    probabilities : (k, d), rows sum to one
    """

    probabilities: Any

    def likelihoods(self, symbols: Any, sequences: Sequences, n_threads: int) -> Likelihoods:
        """How likely every symbol (n,) is in every state."""
        return Likelihoods(symbols, np.ascontiguousarray(self.probabilities.T))

    def maximized(
        self, symbols: Any, sequences: Sequences, posteriors: Any, n_threads: int
    ) -> Self:
        """The probabilities that make the symbols likeliest, given posteriors (n, k)."""
        from latensor.refinement.hmm import _kernels

        k, d = self.probabilities.shape
        # One table a group of ranges: with many symbols a table each would cost more than the rows.
        n_groups = max(1, min(len(sequences.ranges), 2_000_000 // (k * d)))
        groups = np.array_split(np.array(sequences.ranges), n_groups)
        sums = np.zeros((n_groups, d, k))
        run_tasks(
            _kernels.add_posteriors,
            [
                (symbols, posteriors, int(group[0, 0]), int(group[-1, 1]), sums[i])
                for i, group in enumerate(groups)
            ],
            n_threads,
        )
        counts = sums.sum(axis=0).T
        totals = counts.sum(axis=1, keepdims=True)
        # A state that nothing belongs to keeps what it had.
        shares = np.where(
            totals > 0, counts / np.where(totals > 0, totals, 1.0), self.probabilities
        )
        return type(self)(shares)

    def packed(self) -> Any:
        """The roots of the probabilities, in which steps can be extrapolated."""
        return np.sqrt(self.probabilities).ravel()

    def unpacked(self, vector: Any) -> Self:
        """The emissions at the roots `vector`, near these."""
        return type(self)(from_roots(vector.reshape(self.probabilities.shape), self.probabilities))

    def reordered(self, order: Any) -> Self:
        """The same emissions, states in another order."""
        return type(self)(self.probabilities[order])

    @property
    def n_parameters(self) -> int:
        """How many numbers are free."""
        k, d = self.probabilities.shape
        return int(k * (d - 1))


def from_roots(roots: Any, near: Any) -> Any:
    """Probabilities (m, n), rows sum to one, from extrapolated roots.

    None falls below a hundredth of what it is in `near`: a probability of zero would stay zero.
    """
    values = np.maximum(roots, 0.1 * np.sqrt(near)) ** 2
    return values / values.sum(axis=1, keepdims=True)
