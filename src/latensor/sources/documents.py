"""Documents as a kind of source: counts in blocks, in memory where they fit, else from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind
from latensor.moments.documents import DocumentBatch
from latensor.sources.shards import Parts, Source
from latensor.sources.source import DocumentSource
from latensor.sources.temporary_copy import TemporaryCopy

# Stored counts (12 bytes each with their word, and as many again word by word) that a fit keeps in
# memory; a source with more is kept in a temporary file and read batch by batch.
IN_MEMORY = 30_000_000


@dataclass(frozen=True)
class DocumentReader:
    """Batches of documents as `DocumentSource` gives them, or pairs with weights, as parts."""

    def __call__(self, given: Any) -> Parts | None:
        counts, weights = given if isinstance(given, tuple) else (given, None)
        if not counts.shape[0]:
            return None
        return (counts,), np.ones(counts.shape[0]) if weights is None else weights


@dataclass(frozen=True)
class WeightedDocuments:
    """Batches with their part of the weights of all documents."""

    batches: Iterable[Any]
    weights: Any

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        start = 0
        for batch in self.batches:
            stop = start + batch.shape[0]
            yield batch, self.weights[start:stop]
            start = stop
        check_number(self.weights, start)


def check_number(weights: Any, n_documents: int) -> None:
    """Refuse weights of another number of documents."""
    if len(weights) != n_documents:
        raise InvalidInputError(
            f"sample_weight holds {len(weights)} numbers for {n_documents} documents: "
            "give one weight per document"
        )


def documents_in_memory(counts: Any, weights: Any = None) -> Source:
    """Documents (n, V) as canonical CSR counts, with weights (n,) or None, as a source."""
    known = np.ones(counts.shape[0]) if weights is None else weights
    whole = Batch((counts,), known, np.arange(len(known), dtype=np.uint64))
    if not known.all():
        whole = whole.take(np.flatnonzero(known > 0))
    blocks = whole.blocks(Kind.DOCUMENTS.block)
    return Source.of(Kind.DOCUMENTS, *(DocumentBatch(b.parts, b.weights, b.keys) for b in blocks))


def document_shards(
    source: DocumentSource,
    weights: Any = None,
    progress: Callable[[str, float], object] | None = None,
) -> tuple[Source, Any]:
    """The documents of a source that is read once, ready for many passes; and their dtype.

    Parameters
    ----------
    source : DocumentSource
    weights : (n,) how often each document counts, or None for once
    progress : told the stage "reading" and the fraction of it that is done
    """
    copy = TemporaryCopy(source)
    kept: list[Any] | None = []
    dtype, n_entries, n_documents = np.dtype(np.float32), 0, 0
    for batch in copy:
        n_entries += batch.nnz
        n_documents += batch.shape[0]
        dtype = np.promote_types(dtype, batch.dtype)
        if progress is not None:
            progress("reading", n_documents / (source.n_documents or np.inf))
        if kept is not None:
            # A copy: whoever makes the batches may use one buffer for all of them.
            kept = [*kept, batch.copy()] if n_entries <= IN_MEMORY else None
    if weights is not None:
        check_number(weights, n_documents)
    if kept is None:
        shard = copy if weights is None else WeightedDocuments(copy, weights)
        return Source(Kind.DOCUMENTS, (shard,), DocumentReader()), dtype
    copy.close()
    if not kept:
        raise InvalidInputError("X holds no documents: give at least one")
    counts = kept[0] if len(kept) == 1 else scipy.sparse.vstack(kept, format="csr")
    return documents_in_memory(scipy.sparse.csr_array(counts), weights), dtype
