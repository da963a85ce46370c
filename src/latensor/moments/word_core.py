"""Word moments along directions on every side, where nothing of the size of the words is wanted."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.documents import PreparedDocuments, prepare_documents
from latensor.moments.word_totals import refuse_other_words
from latensor.moments.words import WordCore, or_one, tuple_coefficients, weighed_rows


class WordCoreAccumulator:
    """First and second moments along directions on every side, at half the cost of the pairs.

    Parameters
    ----------
    directions : (V, r) array B, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    n_threads : int
    """

    def __init__(self, directions: Any, scale: Any, cap: float, n_threads: int = 1) -> None:
        self.cap, self.n_threads = cap, n_threads
        self._words = scale[:, None] * directions
        size = directions.shape[1]
        self._first, self._second = np.zeros(size), np.zeros((size, size))
        self._repeated = np.zeros(len(scale))
        self._weights, self._squares = np.zeros(2), 0.0

    def update(self, batch: Any, weights: Any = None) -> Self:
        """Add documents: (n, V) CSR counts with weights (n,) or None, or documents prepared."""
        if not isinstance(batch, PreparedDocuments):
            batch = prepare_documents(batch, weights)
        refuse_other_words(len(self._words), batch.n_features)
        for part in batch.halves:
            base = np.minimum(part.lengths, self.cap)
            repeated = base if part.weights is None else base * part.weights
            singles, pairs, _ = tuple_coefficients(part.lengths, repeated)
            projected = part.project(self._words.astype(part.dtype, copy=False), self.n_threads)
            with one_blas_thread():
                self._first += singles @ projected
                self._second += weighed_rows(projected, pairs).T @ projected
            column = pairs.astype(part.dtype)[:, None]
            self._repeated += part.spread(column, self.n_threads)[:, 0]
            self._weights += repeated.sum(), repeated[part.lengths > 1].sum()
            self._squares += float((base * repeated).sum())
        return self

    def finalize(self) -> WordCore:
        """The moments of all documents so far."""
        with one_blas_thread():
            same = (self._words * self._repeated[:, None]).T @ self._words
        singles, pairs = (float(or_one(weight)) for weight in self._weights)
        second = (self._second - same) / pairs
        return WordCore(self._first / singles, second, self._weights.copy(), self._squares)
