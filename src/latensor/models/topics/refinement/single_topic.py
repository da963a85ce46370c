"""Which one topic documents are on: posteriors under a mixture of multinomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.models.topics.refinement.documents import normalized
from latensor.moments.documents import sparse_product


def logarithms(values: Array) -> Array:
    """Logarithms in float64, finite where a probability is zero."""
    return np.log(np.maximum(values.astype(np.float64), np.finfo(np.float64).tiny))


def log_joint(counts: Any, table: Array, weights: Array) -> Array:
    """Logarithms (n, k) of w_j prod_v p_j(v)^n(v) for CSR counts and a table (V, k) of log p."""
    arrays = (counts.indptr, counts.indices, counts.data)
    return np.asarray(sparse_product(arrays, table) + logarithms(weights))


def posteriors_of(logs: Array) -> tuple[Array, Array]:
    """Probabilities (n, k) of joint logarithms, in their place, and log-likelihoods (n,)."""
    largest = logs.max(axis=1)
    logs -= largest[:, None]
    np.exp(logs, out=logs)
    sums = logs.sum(axis=1)
    logs /= sums[:, None]
    return logs, largest + np.log(sums)


def topic_posteriors(counts: Any, topics: Any, weights: Any) -> Array:
    """Probabilities that documents are on each of the topics, one topic a document (monograph 4.1).

    A document's probabilities depend on no other document, bit for bit.

    Parameters
    ----------
    counts : (n, V) SciPy CSR, counts of words
    topics : (k, V) rows of probabilities; their dtype is that of the result
    weights : (k,) fractions of the topics

    Returns
    -------
    (n, k) rows of probabilities; the fractions for empty documents
    """
    array = normalized(topics)
    posteriors, _ = posteriors_of(log_joint(counts, logarithms(array).T, np.asarray(weights)))
    return posteriors.astype(array.dtype)
