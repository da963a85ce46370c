"""Documents as the compiled loops read them, and how their work is shared among threads."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays.threads import run_tasks

# A part smaller than this many nonzeros costs more in waking a thread than it saves.
_SMALLEST_PART = 20_000
_MOST_PARTS = 16
# Rows of tables are padded to whole lines of the cache, 16 float32: at k = 50 a third faster than
# ragged rows.
_LANES = 16


@dataclass(frozen=True, eq=False)
class Documents:
    """Counts of words in n documents, by rows.

    Attributes
    ----------
    starts : (n + 1,) int64, where each document begins in `words` and `counts`
    words : (nnz,) int32; counts : (nnz,) float32 or float64
    weights : (n,) how many times each document counts, in the dtype of `counts`
    n_features : int, the number V of words
    """

    starts: Any
    words: Any
    counts: Any
    weights: Any
    n_features: int

    @classmethod
    def of(cls, counts: Any, dtype: Any, weights: Any = None) -> Self:
        """Read a (n, V) CSR array or matrix; arrays of the right dtype are shared, not copied."""
        matrix = counts if scipy.sparse.issparse(counts) else scipy.sparse.csr_array(counts)
        matrix = matrix.tocsr()
        n = matrix.shape[0]
        return cls(
            matrix.indptr.astype(np.int64, copy=False),
            matrix.indices.astype(np.int32, copy=False),
            matrix.data.astype(dtype, copy=False),
            np.ones(n, dtype) if weights is None else np.asarray(weights, dtype),
            matrix.shape[1],
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def n_nonzeros(self) -> int:
        """The number of different words in each document, added up."""
        return int(self.starts[-1] - self.starts[0])

    @cached_property
    def lengths(self) -> Any:
        """(n,) float64, the number of tokens of each document."""
        ends = np.concatenate([[0.0], np.cumsum(self.counts, dtype=np.float64)])
        return ends[self.starts[1:]] - ends[self.starts[:-1]]

    @property
    def n_tokens(self) -> float:
        """The number of tokens, each document counted by its weight."""
        return float(self.lengths @ self.weights.astype(np.float64))

    @property
    def amounts(self) -> Any:
        """(nnz,) the counts of the words, each times its document's weight."""
        return self.counts * np.repeat(self.weights, np.diff(self.starts))

    def take(self, order: Any) -> Documents:
        """The documents at the places (m,) of `order`, in that order."""
        sizes = np.diff(self.starts)[order]
        ends = np.cumsum(sizes)
        entries = np.repeat(self.starts[:-1][order] - ends + sizes, sizes) + np.arange(sizes.sum())
        return Documents(
            np.concatenate([[0], ends]).astype(np.int64),
            self.words[entries],
            self.counts[entries],
            self.weights[order],
            self.n_features,
        )

    def with_counts(self, counts: Any) -> Documents:
        """The same documents with other counts of the same words; zeros are dropped."""
        kept = counts > 0
        ends = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        return Documents(
            ends[self.starts], self.words[kept], counts[kept], self.weights, self.n_features
        )

    def keys(self, seed: int) -> Any:
        """(n,) uint64, random numbers that depend on a document's words and the seed alone.

        Equal documents have equal keys: none of them can be trained on while its copy is held
        out, and the order of the documents changes nothing.
        """
        from latensor.models.topics.refinement._kernels import document_keys

        out = np.empty(len(self), np.uint64)
        document_keys(self.starts, self.words, self.counts, np.uint64(seed), out)
        return out

    def drawn(self, sizes: Any, seed: int) -> Any:
        """(nnz,) counts of (n,) int64 tokens of each document, drawn without replacement."""
        from latensor.models.topics.refinement._kernels import draw_tokens

        out = np.empty_like(self.counts)
        draw_tokens(self.starts, self.words, self.counts, self.keys(seed), sizes, out)
        return out

    def each_part(self, function: Any, n_threads: int) -> None:
        """Call a function with the first and last document of every part, in threads."""
        run_tasks(function, self.parts(), n_threads)

    def parts(self, most: int = _MOST_PARTS) -> list[tuple[int, int]]:
        """Runs of documents of about equal work, by sizes and never by threads."""
        stop = len(self)
        begin, end = int(self.starts[0]), int(self.starts[stop])
        count = min(max((end - begin) // _SMALLEST_PART, 1), most, max(stop, 1))
        if count == 1:
            return [(0, stop)] if stop else []
        wanted = begin + (end - begin) * np.arange(1, count) / count
        inner = np.searchsorted(self.starts[:stop], wanted)
        edges = np.unique(np.concatenate([[0], inner, [stop]]))
        return [(int(a), int(b)) for a, b in itertools.pairwise(edges)]


def padded_width(n_topics: int, lanes: int = _LANES) -> int:
    """The number of columns of tables for `n_topics` topics, a multiple of `lanes`."""
    return -(-n_topics // lanes) * lanes


def padded(rows: Any, dtype: Any, width: int | None = None) -> Any:
    """(..., k) numbers with zeros up to a width, by default that of tables for k topics."""
    rows = np.asarray(rows)
    width = padded_width(rows.shape[-1]) if width is None else width
    out = np.zeros((*rows.shape[:-1], width), dtype)
    out[..., : rows.shape[-1]] = rows
    return out


def normalized(topics: Any) -> Any:
    """(k, V) topics in their own precision, rows scaled to sum 1."""
    sums = topics.sum(axis=1, dtype=np.float64, keepdims=True)
    return (topics / sums).astype(topics.dtype, copy=False)


def prior_of(prior: Any, n_topics: int, dtype: Any) -> Any:
    """A Dirichlet prior (k,), from one number or one for each topic."""
    return np.broadcast_to(np.asarray(prior, dtype=np.float64), (n_topics,)).astype(dtype)
