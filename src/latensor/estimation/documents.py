"""Documents held ready for the passes of a fit: in memory where they fit, else in a spool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.moments.documents import prepare_documents
from latensor.moments.word_totals import WordTotals, WordTotalsAccumulator
from latensor.refinement import HeldOut, hold_out
from latensor.sources import DocumentSource, MatrixSource, Spool

# Stored counts (12 bytes each with their word, and as many again word by word) that a fit keeps in
# memory; a source with more is kept in a temporary file and read batch by batch.
_IN_MEMORY = 30_000_000

# Documents that stand in for those held out: they were seen, and more of them tell no more.
_FEW = 50

# Told the stage and the share of it that is done.
Progress = Callable[[str, float], None]


class Documents:
    """The documents of one fit, counted.

    Attributes
    ----------
    totals : WordTotals
    n_features : int
    batches : re-iterable of CSR arrays (n_b, V)
    dtype : the precision of the work, that of the counts
    weights : (n,) how often each document counts, or None for once
    held_out : which documents the moments do not see, or None
    """

    def __init__(
        self, batches: Any, weights: Any, totals: WordTotals, dtype: Any, in_memory: bool
    ) -> None:
        self.batches, self.weights, self.totals = batches, weights, totals
        self.dtype, self.in_memory = dtype, in_memory
        self.n_features = len(totals.totals)
        self.held_out: HeldOut | None = None
        self._prepared: list[Any] | None = None

    def hold_out(self, seed: int) -> None:
        """Choose documents that shall decide how long the polish lasts, and none before it."""
        self.held_out = hold_out(self.batches, seed)
        self._prepared = None

    def give_back(self) -> None:
        """Let later passes see the documents that were held out."""
        choice, self.held_out = self.held_out, None
        if choice is None or not choice.limit or self._prepared is None:
            return
        for batch, weights in with_weights(self.batches, self.weights):
            kept = np.flatnonzero(choice.mask(batch))
            part = None if weights is None else weights[kept]
            self._prepared.append((prepare_documents(batch[kept], part), None))

    def some_unseen(self, most: int) -> Any:
        """Up to `most` documents (n, V) that were held out, or a few others where none were."""
        kept, found = [], 0
        choice = self.held_out
        if choice is None or not choice.limit:
            most = min(most, _FEW)
        for batch in self.batches:
            rows = np.flatnonzero(np.diff(batch.indptr))
            if choice is not None and choice.limit:
                rows = rows[choice.mask(batch)[rows]]
            kept.append(batch[rows[: most - found]])
            found += kept[-1].shape[0]
            if found >= most:
                break
        return scipy.sparse.vstack(kept, format="csr")

    def prepared(self) -> Iterable[tuple[Any, Any]]:
        """Pairs for the accumulators: batches made ready once, where they stay in memory."""
        if not self.in_memory:
            return self.weighted()
        if self._prepared is None:
            self._prepared = [
                (prepare_documents(batch, weights), None) for batch, weights in self.weighted()
            ]
        return self._prepared

    def weighted(self) -> Iterator[tuple[Any, Any]]:
        """Batches with the weights of their documents, without those held out."""
        choice = self.held_out
        for batch, weights in with_weights(self.batches, self.weights):
            if choice is None or not choice.limit:
                yield batch, weights
                continue
            kept = np.flatnonzero(~choice.mask(batch))
            yield batch[kept], None if weights is None else weights[kept]


@contextmanager
def opened(
    source: DocumentSource, weights: Any = None, progress: Progress | None = None
) -> Iterator[Documents]:
    """Count the documents of a source and hold them ready for more passes.

    Parameters
    ----------
    source : read once
    weights : (n,) how often each document counts, or None for once
    progress : told the stage "reading"
    """
    if isinstance(source, MatrixSource):
        yield _counted(list(source), weights, source.n_features, True)
        return
    with Spool(source) as spool:
        kept: list[Any] | None = []
        n_entries = n_documents = 0
        for batch in spool:
            n_entries += batch.nnz
            n_documents += batch.shape[0]
            if progress is not None:
                progress("reading", n_documents / (source.n_documents or np.inf))
            if kept is not None:
                kept = [*kept, batch] if n_entries <= _IN_MEMORY else None
        if kept is None:
            yield _counted(spool, weights, source.n_features, False)
        else:
            spool.close()
            yield _counted(kept, weights, source.n_features, True)


def _counted(batches: Any, weights: Any, n_features: int, in_memory: bool) -> Documents:
    totals, dtype, n_documents = WordTotalsAccumulator(n_features), np.dtype(np.float32), 0
    for batch, part in with_weights(batches, weights):
        totals.update(batch, part)
        dtype = np.promote_types(dtype, batch.dtype)
        n_documents += batch.shape[0]
    if weights is not None and len(weights) != n_documents:
        raise InvalidInputError(
            f"sample_weight holds {len(weights)} numbers for {n_documents} documents: "
            "give one weight a document"
        )
    return Documents(batches, weights, totals.finalize(), dtype, in_memory)


def with_weights(batches: Iterable[Any], weights: Any) -> Iterator[tuple[Any, Any]]:
    """Batches with their part of the weights, or with None."""
    start = 0
    for batch in batches:
        stop = start + batch.shape[0]
        yield batch, None if weights is None else weights[start:stop]
        start = stop
