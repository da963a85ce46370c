"""Document completion where every document has one topic."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from latensor.models.topics.refinement.documents import Documents, normalized
from latensor.models.topics.refinement.held_out import Completion, halves
from latensor.models.topics.refinement.single_topic import topic_posteriors

# Words that are scored at once, each by a row of as many numbers as topics.
_WORDS = 1 << 18


def mixture_completion(counts: Any, topics: Any, weights: Any, *, seed: int = 0) -> Completion:
    """Predict a random half of each document's tokens from the topic that the other half shows.

    Parameters
    ----------
    counts : (n, V) SciPy sparse counts
    topics : (k, V) rows of probabilities
    weights : (k,) fractions of the topics
    seed : int, chooses the halves
    """
    topics = normalized(topics)
    documents = Documents.of(counts, topics.dtype)
    known, scored = (_matrix(half) for half in halves(documents, seed))
    posterior = topic_posteriors(known, topics, weights)
    rows = np.repeat(np.arange(scored.shape[0]), np.diff(scored.indptr))
    smallest = np.finfo(np.float64).tiny
    likelihoods = np.zeros(scored.shape[0])
    for start in range(0, len(rows), _WORDS):
        part = slice(start, start + _WORDS)
        words = scored.indices[part]
        chances = np.einsum("ij,ij->i", posterior[rows[part]], topics.T[words], dtype=np.float64)
        values = scored.data[part] * np.log(np.maximum(chances, smallest))
        likelihoods += np.bincount(rows[part], values, minlength=scored.shape[0])
    return Completion(likelihoods, np.asarray(scored.sum(axis=1, dtype=np.float64)).ravel())


def _matrix(documents: Documents) -> Any:
    shape = (len(documents), documents.n_features)
    return scipy.sparse.csr_array(
        (documents.counts, documents.words, documents.starts), shape=shape
    )
