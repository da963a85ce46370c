"""Symbols as emissions of a hidden Markov model: one row of probabilities per state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.moments.batch import Batch
from latensor.refinement.hmm.chain import Expectation, Likelihoods
from latensor.value_files import storable

# The count of a symbol in a state, as a fraction of what it was, where statistics that were
# corrected by subtraction make it negative.
_LEFT = 0.01


@storable
@dataclass(frozen=True)
class SymbolDesign:
    """How symbols are given to the emissions: those that were not observed (-1) as one more."""

    n_symbols: int

    def prepare(self, batch: Batch) -> Any:
        """(n,) int64, rows of the table of likelihoods."""
        symbols = batch.rows
        missing = symbols < 0
        return np.where(missing, self.n_symbols, symbols) if missing.any() else symbols


@storable
@dataclass(frozen=True)
class CategoricalEmission:
    """Symbols 0..d-1 with probabilities that depend on the state.

    Attributes
    ----------
    probabilities : (k, d), rows sum to one
    """

    probabilities: Any

    @property
    def design(self) -> SymbolDesign:
        """How symbols in the coordinates of these emissions become what the rest takes."""
        return SymbolDesign(self.probabilities.shape[1])

    def likelihoods(self, symbols: Any) -> Likelihoods:
        """How likely every symbol (n,) is in every state."""
        k, d = self.probabilities.shape
        table = np.ones((d + 1, k))
        table[:d] = self.probabilities.T
        return Likelihoods(symbols, table)

    def sums(self, symbols: Any, found: Expectation) -> dict[str, Any]:
        """How often every symbol (k, d) is expected in every state."""
        from latensor.refinement.hmm.segments import _kernels

        k, d = self.probabilities.shape
        counts = np.zeros((d + 1, k))
        sequences = found.sequences
        for part, (first, last), weight in zip(
            found.parts, sequences.ranges, sequences.weights, strict=True
        ):
            _kernels.add_posteriors(symbols, part, first, last, weight, counts)
        return {"symbols": np.ascontiguousarray(counts[:d].T)}

    def maximized(self, sums: dict[str, Any], updates: str = "e") -> Self:
        """The probabilities that make the symbols likeliest.

        Symbols that were never seen share one row in every state that may emit them: they are
        not impossible.
        """
        if "e" not in updates:
            return self
        counts = sums["symbols"]
        unseen = (counts.sum(axis=0) <= 0) & (self.probabilities > 0)
        if unseen.any():
            n_unseen = np.maximum(unseen.sum(axis=1, keepdims=True), 1)
            counts = np.where(unseen, 1 / n_unseen, counts)
        return type(self)(fractions(counts, self.probabilities))

    def complete(self, sums: dict[str, Any]) -> float:
        """The log-likelihood of symbols whose states are known as well as `sums` says."""
        return log_product(sums["symbols"], self.probabilities)

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


def fractions(counts: Any, before: Any) -> Any:
    """Rows of counts (m, n) over their sums; a row that nothing belongs to keeps what it had.

    A negative count, out of statistics that were corrected by subtraction, becomes a small part of
    what was there before: a probability of zero would stay zero.
    """
    if counts.min() < 0:
        totals = np.maximum(counts, 0.0).sum(axis=1, keepdims=True)
        counts = np.where(counts < 0, _LEFT * before * totals, counts)
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


def log_product(counts: Any, probabilities: Any) -> float:
    """The sum of counts times the logarithms of probabilities; nothing times log 0 is nothing."""
    logs = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return float((counts * np.where(probabilities > 0, logs, 0.0)).sum())
