"""What one pass over documents counts: how often words occur, and in how many documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.exceptions import InvalidInputError


@dataclass(frozen=True)
class WordTotals:
    """What one pass over the documents counts.

    Attributes
    ----------
    n_documents, n_empty, n_short : int, documents seen, without words, with one or two words
    n_tokens : float, all words counted
    weight : float, the documents with words, each as often as its weight says
    totals, document_frequencies : (V,) occurrences of every word, documents that hold it
    """

    n_documents: int
    n_empty: int
    n_short: int
    n_tokens: float
    weight: float
    totals: Any
    document_frequencies: Any

    @property
    def mean_length(self) -> float:
        """The average number of words in a document that is not empty."""
        return self.n_tokens / self.weight if self.weight > 0 else 0.0


class WordTotalsAccumulator:
    """Counts words and documents: the pass that scaling and weights are read off.

    Parameters
    ----------
    n_features : int, the number of words V
    """

    def __init__(self, n_features: int) -> None:
        self._documents = self._empty = self._short = 0
        self._weight = 0.0
        self._totals = np.zeros(n_features)
        self._frequencies = np.zeros(n_features)

    def update(self, batch: Any, weights: Any = None) -> Self:
        """Add documents (n, V); a weight counts a document so many times."""
        lengths = np.asarray(batch.sum(axis=1, dtype=np.float64)).ravel()
        repeats = np.ones(batch.shape[0]) if weights is None else weights
        present = repeats > 0
        self._weight += float(repeats[lengths > 0].sum())
        self._documents += int(np.count_nonzero(present))
        self._empty += int(np.count_nonzero((lengths == 0) & present))
        self._short += int(np.count_nonzero((lengths > 0) & (lengths < 3) & present))
        per_entry = np.repeat(repeats, np.diff(batch.indptr))
        size = len(self._totals)
        self._totals += np.bincount(batch.indices, per_entry * batch.data, minlength=size)
        self._frequencies += np.bincount(batch.indices, per_entry, minlength=size)
        return self

    def merge(self, other: Self) -> Self:
        """Add the documents that another accumulator has seen."""
        refuse_other_words(len(self._totals), len(other._totals))
        self._documents += other._documents
        self._empty += other._empty
        self._short += other._short
        self._weight += other._weight
        self._totals = self._totals + other._totals
        self._frequencies = self._frequencies + other._frequencies
        return self

    def finalize(self) -> WordTotals:
        """The counts so far."""
        return WordTotals(
            self._documents,
            self._empty,
            self._short,
            float(self._totals.sum()),
            self._weight,
            self._totals.copy(),
            self._frequencies.copy(),
        )


def refuse_other_words(expected: int, found: int) -> None:
    """Refuse documents over another number of words."""
    if expected != found:
        raise InvalidInputError(
            f"the documents have {found} words, but those before had {expected}: "
            "give the same columns in every batch"
        )
