"""Batches of documents made ready for several passes: split into halves and turned word by word.

Sums over documents for every word are gathered from the transposed counts, because reading many
rows and writing one is twice as fast as reading one and writing many; and every word then belongs
to one thread, so that any number of threads gives the same bits.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays.threads import run_tasks


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

    def project(self, matrix: Any, n_threads: int) -> Any:
        """Counts (n, V) times a matrix (V, r)."""
        return sparse_product(self.documents, matrix, n_threads)

    def spread(self, rows: Any, n_threads: int, out: Any = None) -> Any:
        """Transposed counts (V, n) times rows (n, r), in `out` where that is given and fits."""
        return sparse_product(self.words, rows, n_threads, out)


@dataclass(frozen=True)
class PreparedDocuments:
    """Documents (n, V) in two halves by content, equal documents in the same one."""

    n_features: int
    halves: tuple[DocumentHalf, DocumentHalf]


def prepare_documents(batch: Any, weights: Any = None) -> PreparedDocuments:
    """Split canonical CSR documents (n, V) into halves by a hash of their content.

    Parameters
    ----------
    batch : (n, V) CSR array of counts, float32 or float64
    weights : (n,) how often each document counts; None for once
    """
    from latensor.moments._kernels import mark_halves

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


def in_single(documents: Any) -> Any:
    """Prepared documents in single precision; what they are made of is shared, not copied."""
    if not isinstance(documents, PreparedDocuments) or documents.halves[0].dtype == np.float32:
        return documents

    def single(arrays: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        return arrays[0], arrays[1], arrays[2].astype(np.float32)

    first, second = (
        replace(half, documents=single(half.documents), words=single(half.words))
        for half in documents.halves
    )
    return PreparedDocuments(documents.n_features, (first, second))


def sparse_product(
    arrays: tuple[Any, Any, Any], matrix: Any, n_threads: int, out: Any = None
) -> Any:
    """A CSR matrix (n, m), given as (indptr, indices, data), times a matrix (m, r).

    In the memory of `out` where that is given and fits.
    """
    from latensor.moments._kernels import times_matrix

    n_rows = arrays[0].size - 1
    matrix = np.ascontiguousarray(matrix)
    out = room_for((n_rows, matrix.shape[1]), matrix.dtype, out)
    # Parts of equally many nonzeros rather than rows: frequent words are far longer than others.
    ends: list[int] = []
    if n_threads > 1:
        cuts = np.linspace(0, arrays[0][-1], 4 * n_threads + 1)
        ends = np.searchsorted(arrays[0], cuts[1:-1]).tolist()
    edges = [0, *ends, n_rows]
    tasks = [
        (*arrays, start, stop, matrix, out)
        for start, stop in itertools.pairwise(edges)
        if stop > start
    ]
    run_tasks(times_matrix, tasks, n_threads)
    return out


def room_for(shape: tuple[int, ...], dtype: Any, spare: Any = None) -> Any:
    """An array to be filled: the spare one where it fits.

    Fresh memory costs as much as what is done with it: the system clears it page by page.
    """
    if spare is not None and spare.shape == shape and spare.dtype == dtype:
        return spare
    return np.empty(shape, dtype)
