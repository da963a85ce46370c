"""Word moments along directions on every side, where nothing of the size of the words is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.batch import Batch
from latensor.moments.documents import prepared_documents
from latensor.moments.sums import Sums
from latensor.moments.word_totals import refuse_other_words
from latensor.moments.words import WordCore, or_one, tuple_coefficients, weighed_rows
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class WordCoreSums(Sums):
    """First and second moments along directions on every side, at half the cost of the pairs.

    Attributes
    ----------
    directions : (V, r) array B, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    """

    threads_inside: ClassVar[bool] = True
    directions: Any
    scale: Any
    cap: float

    @cached_property
    def _words(self) -> Any:
        return self.scale[:, None] * self.directions

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_words"}

    def update(self, batch: Batch) -> WordCoreSums:
        found = super().update(batch)
        if "_words" in self.__dict__:
            found.__dict__["_words"] = self._words
        return found

    def summed(self, batch: Batch) -> dict[str, Any]:
        prepared = prepared_documents(batch)
        refuse_other_words(len(self._words), prepared.n_features)
        size = self.directions.shape[1]
        first, second, weights = np.zeros(size), np.zeros((size, size)), np.zeros(2)
        repeated, squares = np.zeros(len(self.scale)), 0.0
        for part in prepared.halves:
            base = np.minimum(part.lengths, self.cap)
            share = base if part.weights is None else base * part.weights
            singles, pairs, _ = tuple_coefficients(part.lengths, share)
            projected = part.project(self._words.astype(part.dtype, copy=False))
            with one_blas_thread():
                first += singles @ projected
                second += weighed_rows(projected, pairs).T @ projected
            repeated += part.spread(pairs.astype(part.dtype)[:, None])[:, 0]
            weights += share.sum(), share[part.lengths > 1].sum()
            squares += float((base * share).sum())
        return {
            "first": first,
            "second": second,
            "repeated": repeated,
            "weights": weights,
            "squares": squares,
        }

    def finalize(self) -> WordCore:
        """The moments of all documents so far."""
        s = self.seen()
        with one_blas_thread():
            same = (self._words * s["repeated"][:, None]).T @ self._words
        singles, pairs = (float(or_one(weight)) for weight in s["weights"])
        return WordCore(
            s["first"] / singles, (s["second"] - same) / pairs, s["weights"], s["squares"]
        )
