"""Symbols as emissions of a hidden Markov model: one row of probabilities per state."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays.threads import run_tasks
from latensor.refinement.hmm.chain import Expectation, Likelihoods
from latensor.refinement.hmm.sequences import Sequences

# How far, as a share of each probability, the halves of a state are moved apart at most.
_APART = 0.8
# Neighbours that are known this well before anything is seen tell nothing.
_LEAST_SPREAD = 1e-3
# Symbols seen fewer times than this are not scaled up further.
_RARE = 5.0


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

    def maximized(self, symbols: Any, found: Expectation, n_threads: int) -> Self:
        """The probabilities that make the symbols likeliest, given what is known of states."""
        from latensor.refinement.hmm.lanes import _kernels

        k, d = self.probabilities.shape
        ranges, weights = found.sequences.ranges, found.sequences.range_weights
        # One table a group of ranges: with many symbols a table each would cost more than the rows.
        n_groups = max(1, min(len(ranges), 2_000_000 // (k * d)))
        edges = [i * len(ranges) // n_groups for i in range(n_groups + 1)]
        sums = np.zeros((n_groups, d, k))

        def add(group: int, first: int, last: int) -> None:
            for i in range(first, last):
                _kernels.add_posteriors(
                    symbols, found.parts[i], *ranges[i], weights[i], sums[group]
                )

        tasks = [(i, a, b) for i, (a, b) in enumerate(itertools.pairwise(edges))]
        run_tasks(add, tasks, n_threads)
        counts = sums[0] if n_groups == 1 else sums.sum(axis=0)
        return type(self)(shares_of(counts.T, self.probabilities))

    def packed(self) -> Any:
        """The roots of the probabilities, in which steps can be extrapolated."""
        return np.sqrt(self.probabilities).ravel()

    def unpacked(self, vector: Any) -> Self:
        """The emissions at the roots `vector`, near these."""
        return type(self)(from_roots(vector.reshape(self.probabilities.shape), self.probabilities))

    def reordered(self, order: Any) -> Self:
        """The same emissions, states in another order."""
        return type(self)(self.probabilities[order])

    def pooled(self, first: int, second: int, share: float) -> Self:
        """Two states with the symbols of both together, of which one has `share`."""
        found = self.probabilities.copy()
        found[[first, second]] = share * found[first] + (1 - share) * found[second]
        return type(self)(found)

    def parted(self, state: int, place: int, direction: Any) -> Self:
        """A state in two halves, the second at `place`, apart along a unit direction (d,).

        The direction is in units of the roots of the probabilities; together the halves have the
        symbols of the state.
        """
        found = self.probabilities.copy()
        mean = found[state]
        shift = np.clip(np.sqrt(mean) * direction, -_APART * mean, _APART * mean)
        largest = np.abs(shift / np.maximum(mean, np.finfo(float).tiny)).max(initial=0.0)
        shift *= _APART / max(float(largest), np.finfo(float).tiny)
        halves = np.maximum(np.stack([mean + shift, mean - shift]), 0.0)
        found[[state, place]] = halves / halves.sum(axis=1, keepdims=True)
        return type(self)(found)

    def directions(self, symbols: Any, posteriors: Any, beside: Any) -> list[tuple[Any, Any]]:
        """Along what every state may be split: what its symbols tell most about their neighbours.

        Parameters
        ----------
        symbols : (n,)
        posteriors : (n, k), times how often a row counts
        beside : (n, g), what is known of the states of neighbouring rows

        Returns
        -------
        The scores (k,) and unit directions (k, d) in units of the roots of the probabilities.
        """
        k, d = self.probabilities.shape
        scores, found = np.zeros(k), np.zeros((k, d))
        seen = scipy.sparse.csr_array(
            (np.ones(len(symbols)), (symbols, np.arange(len(symbols)))), shape=(d, len(symbols))
        )
        for j in range(k):
            shares = posteriors[:, j]
            total = max(float(shares.sum()), np.finfo(float).tiny)
            means = shares @ beside / total
            spread = np.sqrt(np.maximum(shares @ beside**2 / total - means**2, 0.0) + _LEAST_SPREAD)
            cross = np.asarray(seen @ (shares[:, None] * (beside - means) / spread)) / total
            cross /= np.sqrt(np.maximum(self.probabilities[j], _RARE / total))[:, None]
            left, values, _ = np.linalg.svd(cross, full_matrices=False)
            scores[j], found[j] = total * values[0] ** 2, left[:, 0]
        return [(scores, found)]

    @property
    def n_parameters(self) -> int:
        """How many numbers are free."""
        k, d = self.probabilities.shape
        return int(k * (d - 1))


def shares_of(counts: Any, before: Any) -> Any:
    """Rows of counts (m, n) over their sums; a row that nothing belongs to keeps what it had."""
    totals = counts.sum(axis=1, keepdims=True)
    if totals.min() > 0:
        return counts / totals
    return np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), before)


def from_roots(roots: Any, near: Any) -> Any:
    """Probabilities (m, n), rows sum to one, from extrapolated roots.

    None falls below a hundredth of what it is in `near`: a probability of zero would stay zero.
    """
    values = np.maximum(roots, 0.1 * np.sqrt(near)) ** 2
    return values / values.sum(axis=1, keepdims=True)
