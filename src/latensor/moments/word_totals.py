"""What one pass over documents counts: how often words occur, and in how many documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums
from latensor.value_files import storable


@storable
@dataclass(frozen=True)
class WordTotals:
    """What one pass over the documents counts.

    Attributes
    ----------
    n_documents, n_empty, n_short : int, documents seen, without words, with one or two words
    n_entries : int, different words of every document, added up
    n_tokens : float, all words counted
    weight : float, the documents with words, each as often as its weight says
    totals, document_frequencies : (V,) occurrences of every word, documents that hold it
    """

    n_documents: int
    n_empty: int
    n_short: int
    n_entries: int
    n_tokens: float
    weight: float
    totals: Any
    document_frequencies: Any

    @property
    def mean_length(self) -> float:
        """The average number of words in a document that is not empty."""
        return self.n_tokens / self.weight if self.weight > 0 else 0.0


@storable
@dataclass(frozen=True, eq=False)
class WordTotalSums(Sums):
    """Counts words and documents: the pass that scaling and weights are read off.

    Attributes
    ----------
    n_features : int, the number of words V
    """

    n_features: int

    def summed(self, batch: Batch) -> dict[str, Any]:
        counts, weights = batch.rows, batch.weights
        refuse_other_words(self.n_features, counts.shape[1])
        lengths = np.asarray(counts.sum(axis=1, dtype=np.float64)).ravel()
        per_entry = np.repeat(weights, np.diff(counts.indptr))
        return {
            "documents": len(lengths),
            "empty": int(np.count_nonzero(lengths == 0)),
            "short": int(np.count_nonzero((lengths > 0) & (lengths < 3))),
            "entries": int(counts.nnz),
            "weight": float(weights[lengths > 0].sum()),
            "totals": np.bincount(
                counts.indices, per_entry * counts.data, minlength=self.n_features
            ),
            "frequencies": np.bincount(counts.indices, per_entry, minlength=self.n_features),
        }

    def finalize(self) -> WordTotals:
        s = self.seen()
        return WordTotals(
            s["documents"],
            s["empty"],
            s["short"],
            s["entries"],
            float(s["totals"].sum()),
            s["weight"],
            s["totals"],
            s["frequencies"],
        )


def refuse_other_words(expected: int, found: int) -> None:
    """Refuse documents over another number of words."""
    if expected != found:
        raise InvalidInputError(
            f"the documents have {found} words, but those before had {expected}: "
            "give the same columns in every batch"
        )
