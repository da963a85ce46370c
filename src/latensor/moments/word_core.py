"""Word moments along directions on every side, where nothing of the size of the words is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.batch import Batch
from latensor.moments.documents import prepared_documents
from latensor.moments.sums import Closing, upper_triangle
from latensor.moments.word_totals import refuse_other_words
from latensor.moments.words import WordCore, closed_core, tuple_coefficients, weighed_rows
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class WordCoreSums(Closing):
    """First and second moments along directions on every side, at half the cost of the pairs.

    Of both halves of the documents apart. Pairs that repeat a word are taken out at the end, by
    sums (V,); what travels has done that already, and holds r (r + 1) / 2 numbers for either half.

    Attributes
    ----------
    directions : (V, r) array B, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    single : bool, whether documents are read in single precision
    """

    threads_inside: ClassVar[bool] = True
    directions: Any
    scale: Any
    cap: float
    single: bool = False

    @property
    def basis(self) -> Any:
        """The directions."""
        return self.directions

    @cached_property
    def _scaled(self) -> dict[Any, Any]:
        return {}

    def _words(self, dtype: Any) -> Any:
        """diag(s) B in some precision."""
        if dtype not in self._scaled:
            scaled = self.scale.astype(dtype)[:, None] * self.directions
            self._scaled[dtype] = scaled.astype(dtype, copy=False)
        return self._scaled[dtype]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_scaled"}

    def opened(self, batch: Batch) -> WordCoreSums:
        found = super().opened(batch)
        found.__dict__["_scaled"] = self._scaled
        return found

    def summed(self, batch: Batch) -> dict[str, Any]:
        prepared = prepared_documents(batch, self.single)
        refuse_other_words(len(self.scale), prepared.n_features)
        size = self.directions.shape[1]
        found = {
            "first": np.zeros((2, size)),
            "second": np.zeros((2, size, size)),
            "repeated": np.zeros((2, len(self.scale))),
            "weights": np.zeros((2, 2)),
            "squares": np.zeros(2),
        }
        for half, part in enumerate(prepared.halves):
            base = np.minimum(part.lengths, self.cap)
            fraction = base if part.weights is None else base * part.weights
            singles, pairs, _ = tuple_coefficients(part.lengths, fraction)
            projected = part.project(self._words(part.dtype))
            with one_blas_thread():
                found["first"][half] = singles @ projected
                found["second"][half] = weighed_rows(projected, pairs).T @ projected
            found["repeated"][half] = part.spread(pairs.astype(part.dtype)[:, None])[:, 0]
            found["weights"][half] = fraction.sum(), fraction[part.lengths > 1].sum()
            found["squares"][half] = (base * fraction).sum()
        return found

    @property
    def is_closed(self) -> bool:
        return self.sums is not None and "repeated" not in self.sums

    def closed(self) -> WordCoreSums:
        """The same sums without pairs that repeat a word."""
        if self.sums is None or self.is_closed:
            return self
        sums = dict(self.sums)
        words = self._words(np.dtype(np.float64))
        with one_blas_thread():
            same = [words.T @ (words * half[:, None]) for half in sums.pop("repeated")]
        return replace(self, sums={**sums, "second": upper_triangle(sums["second"] - same)})

    def core(self, halves: tuple[int, ...] = (0, 1)) -> WordCore:
        """The moments of all documents so far, or of one half."""
        return closed_core(self.closed().seen(), halves)

    def finalize(self) -> WordCore:
        """The moments of all documents so far."""
        return self.core()
