"""Documents as they come out of a file, put together into batches of equal size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from latensor.sources.counts import canonical


class Batching:
    """Collects documents and gives them back in batches of `batch_size`.

    Parameters
    ----------
    batch_size : int
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._pieces: list[tuple[Any, Any, Any]] = []
        self._held = 0

    def add(self, lengths: Any, words: Any, counts: Any, n_features: int) -> Iterator[Any]:
        """Take more documents; the batches that are complete now.

        Parameters
        ----------
        lengths : (m,), entries of each document
        words : (nnz,) int32, the words of one document after those of the other
        counts : (nnz,) floating
        n_features : int, the columns of the batches
        """
        ends = np.cumsum(lengths)
        at, entry = 0, 0
        while at < len(lengths):
            stop = min(at + self._batch_size - self._held, len(lengths))
            last = int(ends[stop - 1])
            self._pieces.append((lengths[at:stop], words[entry:last], counts[entry:last]))
            self._held += stop - at
            at, entry = stop, last
            if self._held == self._batch_size:
                yield from self.rest(n_features)

    def rest(self, n_features: int) -> Iterator[Any]:
        """What is left, if anything, as one smaller batch."""
        if not self._held:
            return
        columns = zip(*self._pieces, strict=True)
        lengths, words, counts = (np.concatenate(column) for column in columns)
        self._pieces, self._held = [], 0
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        yield canonical(counts, words, offsets, n_features)
