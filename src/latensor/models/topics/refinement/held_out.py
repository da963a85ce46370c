"""How well topics predict text they have not seen: document completion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.models.topics.refinement.document_mixtures import expected_topic_counts
from latensor.models.topics.refinement.documents import (
    Documents,
    normalized,
    padded,
    prior_of,
)

# A step that moves less than this fraction of a half document changes its score by less than 1e-4.
_MAX_ITER = 100
_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Completion:
    """The score of second halves of documents, given the first.

    Attributes
    ----------
    log_likelihood : (n,) float64, of the scored tokens of each document
    n_tokens : (n,) float64, how many tokens of each document were scored
    """

    log_likelihood: Any
    n_tokens: Any

    @property
    def perplexity(self) -> float:
        """Exp of minus the mean log-likelihood of a token; NaN where none was scored."""
        tokens = float(self.n_tokens.sum())
        if tokens == 0:
            return float("nan")
        with np.errstate(over="ignore"):
            return float(np.exp(-float(self.log_likelihood.sum()) / tokens))


def completion(
    counts: Any, topics: Any, alpha: Any, *, seed: int = 0, n_threads: int = 1
) -> Completion:
    """Predict a random half of each document's tokens from the other half.

    Of the m tokens of a document floor(m / 2) are drawn to find its mixture of topics, and the
    others are scored under it; a document of one token is scored by the mean of the prior. The
    halves depend on the document's own words and the seed alone: scores of documents do not
    change with the documents around them.

    Parameters
    ----------
    counts : (n, V) SciPy sparse, whole counts of words
    topics : (k, V) rows of probabilities
    alpha : prior of the mixtures, one number or (k,)
    seed : int, chooses the halves
    n_threads : int; the result does not depend on it
    """
    return Completing(counts, topics, seed=seed, n_threads=n_threads)(alpha)


class Completing:
    """Documents cut into halves and topics to predict one from the other, under any prior.

    Parameters
    ----------
    counts, topics, seed, n_threads : as for `completion`
    """

    def __init__(self, counts: Any, topics: Any, *, seed: int = 0, n_threads: int = 1) -> None:
        topics = normalized(topics)
        documents = Documents.of(counts, topics.dtype)
        self._known, self._scored = halves(documents, seed)
        self._n_topics, self._n_threads = len(topics), n_threads
        self._table = padded(topics.T, topics.dtype)
        self._expected: Any = None

    def __call__(self, alpha: Any) -> Completion:
        """The score of the second halves, given the first, under one prior of the mixtures.

        The mixtures go on from those of the last prior, if there was one.
        """
        table = self._table
        prior = prior_of(alpha, self._n_topics, table.dtype)
        self._expected = expected_topic_counts(
            self._known, table, prior, _MAX_ITER, _TOLERANCE, self._n_threads, self._expected
        )
        scores = log_likelihoods(self._scored, table, prior, self._expected, self._n_threads)
        return Completion(scores, self._scored.lengths)


def halves(documents: Documents, seed: int) -> tuple[Documents, Documents]:
    """The documents' tokens in two random halves, the first never the larger."""
    drawn = documents.drawn((documents.lengths // 2).astype(np.int64), seed)
    return documents.with_counts(drawn), documents.with_counts(documents.counts - drawn)


def log_likelihoods(
    documents: Documents, table: Any, prior: Any, expected: Any, n_threads: int
) -> Any:
    """(n,) log-likelihoods of documents with (n, w) expected topic counts known from elsewhere."""
    from latensor.models.topics.refinement._kernels import score_documents

    alpha = padded(prior, table.dtype, table.shape[1])
    smallest = table.dtype.type(np.finfo(table.dtype).tiny)
    out = np.empty(len(documents))

    def score(first: int, last: int) -> None:
        score_documents(
            documents.starts,
            documents.words,
            documents.counts,
            table,
            alpha,
            expected,
            smallest,
            first,
            last,
            out,
        )

    documents.each_part(score, n_threads)
    return out
