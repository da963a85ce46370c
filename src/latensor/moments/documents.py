"""Batches of documents made ready for several passes: split into halves and turned word by word.

Sums over documents for every word are gathered from the transposed counts, because reading many
rows and writing one is twice as fast as reading one and writing many; and every word then belongs
to one thread, so that any number of threads gives the same bits.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays.threads import inner_thread_count, run_tasks
from latensor.moments.batch import Batch

# Up to so many multiplications SciPy serves: 0.8 to 1.6 times the time of the compiled loop, within
# three milliseconds, where compiling that takes half a second.
_FEW_PRODUCTS = 1 << 21


@dataclass(frozen=True)
class DocumentHalf:
    """Some documents as CSR arrays, and the same word by word.

    Attributes
    ----------
    documents, words : (indptr, indices, data) of the counts (n, V) and of their transpose
    lengths : (n,) number of tokens
    weights : (n,) how often each document counts, or None for once
    """

    documents: tuple[Any, Any, Any]
    words: tuple[Any, Any, Any]
    lengths: Any
    weights: Any

    @property
    def dtype(self) -> Any:
        """The precision of the counts."""
        return self.documents[2].dtype

    def project(self, matrix: Any) -> Any:
        """Counts (n, V) times a matrix (V, r)."""
        return sparse_product(self.documents, matrix)

    def spread(self, rows: Any, out: Any = None) -> Any:
        """Transposed counts (V, n) times rows (n, r), in `out` where that is given and fits."""
        return sparse_product(self.words, rows, out)

    def add_spread(self, rows: Any, out: Any) -> None:
        """Add transposed counts (V, n) times rows (n, r) to `out` (V, r), in place."""
        add_sparse_product(self.words, rows, out)


@dataclass(frozen=True)
class PreparedDocuments:
    """Documents (n, V) in two halves by content, equal documents in the same one."""

    n_features: int
    halves: tuple[DocumentHalf, DocumentHalf]


@dataclass(frozen=True, eq=False)
class DocumentBatch(Batch):
    """Documents that stay in memory, prepared for the first pass that asks for it."""

    @cached_property
    def prepared(self) -> PreparedDocuments:
        """In the precision of the counts."""
        return prepare_documents(self.rows, self.weights)

    @cached_property
    def prepared_in_single(self) -> PreparedDocuments:
        """In single precision."""
        return in_single(self.prepared)

    @cached_property
    def _capped(self) -> list[tuple[Any, DocumentBatch]]:
        return []

    def capped(self, caps: Any) -> DocumentBatch:
        """The documents with the counts of every word capped."""
        for known, found in self._capped:
            if known is caps:
                return found
        self._capped[:] = [(caps, _with_capped_rows(self, caps))]
        return self._capped[0][1]

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts, "weights": self.weights, "keys": self.keys}


def prepared_documents(batch: Batch, single: bool = False) -> PreparedDocuments:
    """The documents of a batch as accumulators read them, made ready now or before.

    Parameters
    ----------
    batch : whose first part are (n, V) CSR counts
    single : bool, in single precision whatever that of the counts
    """
    if isinstance(batch, DocumentBatch):
        return batch.prepared_in_single if single else batch.prepared
    prepared = prepare_documents(batch.rows, batch.weights)
    return in_single(prepared) if single else prepared


def capped(batch: Batch, caps: Any) -> Batch:
    """The documents of a batch with the counts of every word at most `caps` (V,)."""
    return (
        batch.capped(caps) if isinstance(batch, DocumentBatch) else _with_capped_rows(batch, caps)
    )


def _with_capped_rows(batch: Batch, caps: Any) -> DocumentBatch:
    rows = batch.rows
    data = np.minimum(rows.data, caps[rows.indices]).astype(rows.dtype)
    rows = type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)
    return DocumentBatch((rows,), batch.weights, batch.keys)


def prepare_documents(batch: Any, weights: Any = None) -> PreparedDocuments:
    """Split canonical CSR documents (n, V) into halves by a hash of their content.

    Parameters
    ----------
    batch : (n, V) CSR array of counts, float32 or float64
    weights : (n,) how often each document counts; None for once
    """
    from latensor.moments._kernels import mark_halves

    if weights is not None and (np.asarray(weights) == 1).all():
        weights = None
    marks = np.zeros(batch.shape[0], bool)
    mark_halves(batch.indptr, batch.indices, batch.data, marks)
    halves = []
    for mark in (False, True):
        chosen = np.flatnonzero(marks == mark)
        part = batch[chosen]
        turned = part.T.tocsr()
        halves.append(
            DocumentHalf(
                (part.indptr, part.indices, part.data),
                (turned.indptr, turned.indices, turned.data),
                np.asarray(part.sum(axis=1, dtype=np.float64)).ravel(),
                None if weights is None else np.asarray(weights, dtype=np.float64)[chosen],
            )
        )
    return PreparedDocuments(batch.shape[1], (halves[0], halves[1]))


def in_single(documents: PreparedDocuments) -> PreparedDocuments:
    """Prepared documents in single precision; what they are made of is shared, not copied."""
    if documents.halves[0].dtype == np.float32:
        return documents

    def single(arrays: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        return arrays[0], arrays[1], arrays[2].astype(np.float32)

    first, second = (
        replace(half, documents=single(half.documents), words=single(half.words))
        for half in documents.halves
    )
    return PreparedDocuments(documents.n_features, (first, second))


def sparse_product(arrays: tuple[Any, Any, Any], matrix: Any, out: Any = None) -> Any:
    """A CSR matrix (n, m), given as (indptr, indices, data), times a matrix (m, r).

    In the memory of `out` where that is given and fits.
    """
    matrix = np.ascontiguousarray(matrix)
    out = room_for((arrays[0].size - 1, matrix.shape[1]), matrix.dtype, out)
    if arrays[2].size * matrix.shape[1] <= _FEW_PRODUCTS:
        _by_rows(_times_small, arrays, matrix, out)
        return out
    from latensor.moments._kernels import times_matrix

    _by_rows(times_matrix, arrays, matrix, out)
    return out


def _times_small(
    indptr: Any, indices: Any, data: Any, first: int, last: int, matrix: Any, out: Any
) -> None:
    """What `times_matrix` computes, by SciPy: nothing to compile."""
    entries = slice(indptr[first], indptr[last])
    rows = scipy.sparse.csr_array(
        (data[entries], indices[entries], indptr[first : last + 1] - indptr[first]),
        shape=(last - first, matrix.shape[0]),
    )
    out[first:last] = rows @ matrix


def add_sparse_product(arrays: tuple[Any, Any, Any], matrix: Any, out: Any) -> None:
    """Add a CSR matrix (n, m) times a matrix (m, r) to `out` (n, r): only rows with entries."""
    from latensor.moments._kernels import add_times_matrix

    _by_rows(add_times_matrix, arrays, np.ascontiguousarray(matrix), out)


def _by_rows(kernel: Any, arrays: tuple[Any, Any, Any], matrix: Any, out: Any) -> None:
    """Rows shared among the threads that were lent; each row belongs to one."""
    n_threads = inner_thread_count()
    # Parts of equally many nonzeros rather than rows: frequent words are far longer than others.
    ends: list[int] = []
    if n_threads > 1:
        cuts = np.linspace(0, arrays[0][-1], 4 * n_threads + 1)
        ends = np.searchsorted(arrays[0], cuts[1:-1]).tolist()
    edges = [0, *ends, arrays[0].size - 1]
    tasks = [
        (*arrays, start, stop, matrix, out)
        for start, stop in itertools.pairwise(edges)
        if stop > start
    ]
    run_tasks(kernel, tasks, n_threads)


def room_for(shape: tuple[int, ...], dtype: Any, spare: Any = None) -> Any:
    """An array to be filled: the spare one where it fits.

    Fresh memory costs as much as what is done with it: the system clears it page by page.
    """
    if spare is not None and spare.shape == shape and spare.dtype == dtype:
        return spare
    return np.empty(shape, dtype)
