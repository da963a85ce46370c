"""Which one topic documents are on: posteriors, and the counts of words that follow."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.models.topics.refinement.documents import (
    Documents,
    padded,
    read_documents,
    read_topics,
)


def topic_posteriors(
    counts: Any, topics: Any, weights: Any, *, n_threads: int | None = None
) -> Array:
    """Probabilities that documents are on each of the topics, one topic a document (monograph 4.1).

    A document's probabilities depend on no other document, bit for bit.

    Parameters
    ----------
    counts : (n, V) SciPy sparse, counts of words
    topics : (k, V) rows of probabilities; their dtype is that of the result
    weights : (k,) fractions of the topics
    n_threads : int or None, for as many as Numba is allowed; the result does not depend on it

    Returns
    -------
    (n, k) rows of probabilities; the fractions for empty documents
    """
    array = read_topics(topics)
    fractions = read_fractions(weights, len(array))
    documents = read_documents(counts, array.shape[1], array.dtype)
    table, log_fractions = padded(logarithms(array).T, np.float64), logarithms(fractions)
    posteriors = np.empty((len(documents), len(array)), array.dtype)

    def find(first: int, last: int) -> None:
        # Which words follow is not asked for: one row that nobody reads takes them.
        _fill(documents, table, log_fractions, first, last, posteriors, None, np.zeros(len(array)))

    documents.each_part(find, n_threads)
    return posteriors


def read_fractions(weights: object, n_topics: int) -> Array:
    """(k,) float64 fractions of the topics, scaled to sum 1; refused unless they can be."""
    fractions = np.asarray(weights, dtype=np.float64)
    if fractions.shape != (n_topics,):
        raise InvalidInputError(
            f"weights has shape {fractions.shape}: give one fraction for each "
            f"of the {n_topics} topics"
        )
    if not np.isfinite(fractions).all() or (fractions < 0).any() or not fractions.sum() > 0:
        raise InvalidInputError(
            f"weights={weights!r} must be finite fractions, none negative and not all zero"
        )
    return fractions / fractions.sum()


def logarithms(values: Array) -> Array:
    """Logarithms in float64, finite where a probability is zero."""
    return np.log(np.maximum(values.astype(np.float64), np.finfo(np.float64).tiny))


def add_single_topics(
    documents: Documents, table: Array, log_fractions: Array, out: Array, out_fractions: Array
) -> tuple[Array, float]:
    """Add what documents put on topics to counts `out` (V, w) and documents `out_fractions` (k,).

    Returns their posteriors (n, k) and their weighted log-likelihood.

    Parameters
    ----------
    table : (V, w) float64, logarithms of the topics, zero beyond them
    log_fractions : (k,)
    """
    posteriors = np.empty((len(documents), len(log_fractions)))
    value = _fill(
        documents, table, log_fractions, 0, len(documents), posteriors, out, out_fractions
    )
    return posteriors, value


def _fill(
    documents: Documents,
    table: Array,
    log_fractions: Array,
    first: int,
    last: int,
    posteriors: Array,
    out: Array | None,
    out_fractions: Array,
) -> float:
    from latensor.models.topics.refinement._kernels import single_topic_counts

    wanted = out is not None
    value: float = single_topic_counts(
        documents.starts,
        documents.words,
        documents.counts,
        documents.weights,
        table,
        log_fractions,
        first,
        last,
        posteriors,
        out if wanted else np.zeros((1, table.shape[1])),
        out_fractions,
        wanted,
    )
    return value
