"""The likelihood polish where every document is on one topic: EM for a mixture of multinomials."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int
from latensor.exceptions import InvalidInputError
from latensor.refinement.corpus import Corpus, HeldOut, read_corpus
from latensor.refinement.documents import (
    Documents,
    Workers,
    most_tables,
    padded,
    read_documents,
    read_prior,
    read_topics,
)

_MOST_PASSES = 200
# Nats a token: differences that a thousand tokens cannot show.
_WORTHWHILE = 1e-6


@dataclass(frozen=True)
class MixtureProgress:
    """What a callback is told after every pass; it may return True to stop.

    Attributes
    ----------
    n_passes : int, passes done
    log_likelihood : float, mean of a token, the prior of the topics added, before the last pass
    """

    n_passes: int
    log_likelihood: float


Callback = Callable[[MixtureProgress], Any]


@dataclass(frozen=True, eq=False)
class PolishedMixture:
    """Topics of documents with one topic each, after EM.

    Attributes
    ----------
    topics : (k, V) rows of probabilities
    weights : (k,) shares of the documents
    counts : (k, V) expected counts of words on topics, from which the topics were made
    history : (n_passes,) float64, mean log-likelihood of a token, the prior of the topics added,
        from which each pass started; no pass lowers it
    n_passes : int
    status : str, why the passes ended
    """

    topics: Any
    weights: Any
    counts: Any
    history: Any
    n_passes: int
    status: str


def polish_mixture(
    batches: Iterable[Any],
    topics: Any,
    weights: Any,
    *,
    word_prior: float = 0.05,
    passes: int | str = "auto",
    n_threads: int | None = None,
    callback: Callback | None = None,
    document_weights: Any = None,
) -> PolishedMixture:
    """Improve the topics of a single-topic model by passes over the documents (monograph 4.1).

    EM: with w the shares and p_j(v) the topics, a document with counts n is on topic j with
    probability r_j ~ w_j prod_v p_j(v)^n(v), found by logarithms; then w is the mean of r and
    p_j(v) ~ b + sum of r_j n(v). Nothing of a document is kept: a stream needs no more memory.

    Parameters
    ----------
    batches : re-iterable of (n_b, V) SciPy sparse counts, the same at every iteration
    topics : (k, V) rows of probabilities to start from; their dtype is that of the result
    weights : (k,) shares of the topics to start from
    word_prior : float, prior b of the topics
    passes : int, exactly so many; or "auto", until a pass gains less than a millionth of a nat a
        token
    n_threads : int or None, for as many as Numba is allowed; the result does not depend on it
    callback : told after every pass; may return True to stop
    document_weights : (n,) or None; a weight of 2 is the same as giving the document twice
    """
    start = read_topics(topics)
    shares = read_shares(weights, len(start))
    prior = float(read_prior(word_prior, 1, "word_prior", np.float64)[0])
    wanted = _MOST_PASSES if passes == "auto" else check_positive_int(passes, "passes")
    corpus = read_corpus(batches, start, document_weights, HeldOut(0, 0))
    history: list[float] = []
    status = f"{wanted} passes made"
    with Workers(n_threads) as workers:
        state = _Mixture(start, shares, prior, corpus, workers)
        for number in range(1, wanted + 1):
            history.append(state.advance())
            if callback is not None and callback(MixtureProgress(number, history[-1])):
                status = f"stopped by the callback after {number} passes"
                break
            if passes == "auto" and number > 1 and history[-1] - history[-2] < _WORTHWHILE:
                status = f"the likelihood gained no more after {number} passes"
                break
    return PolishedMixture(
        state.topics, state.shares, state.counts, np.array(history), len(history), status
    )


def topic_posteriors(
    counts: Any, topics: Any, weights: Any, *, n_threads: int | None = None
) -> Any:
    """Probabilities that documents are on each of the topics, one topic a document (monograph 4.1).

    A document's probabilities depend on no other document, bit for bit.

    Parameters
    ----------
    counts : (n, V) SciPy sparse, counts of words
    topics : (k, V) rows of probabilities; their dtype is that of the result
    weights : (k,) shares of the topics
    n_threads : int or None, for as many as Numba is allowed; the result does not depend on it

    Returns
    -------
    (n, k) rows of probabilities; the shares for empty documents
    """
    array = read_topics(topics)
    shares = read_shares(weights, len(array))
    documents = read_documents(counts, array.shape[1], array.dtype)
    with Workers(n_threads) as workers:
        return _single_topics(documents, _log_table(array), _logs(shares), array.dtype, workers)[0]


def read_shares(weights: object, n_topics: int) -> Any:
    """(k,) float64 shares of the topics, scaled to sum 1; refused unless they can be."""
    shares = np.asarray(weights, dtype=np.float64)
    if shares.shape != (n_topics,):
        raise InvalidInputError(
            f"weights has shape {shares.shape}: give one share for each of the {n_topics} topics"
        )
    if not np.isfinite(shares).all() or (shares < 0).any() or not shares.sum() > 0:
        raise InvalidInputError(
            f"weights={weights!r} must be finite shares, none negative and not all zero"
        )
    return shares / shares.sum()


class _Mixture:
    """Topics and their shares, and one EM pass."""

    def __init__(
        self, topics: Any, shares: Any, prior: float, corpus: Corpus, workers: Workers
    ) -> None:
        self.topics, self.shares = topics, shares
        self.counts = np.zeros_like(topics)
        self._prior, self._corpus, self._workers = prior, corpus, workers

    def advance(self) -> float:
        """Make one pass; the log-likelihood of a token before it, the prior of the topics added."""
        kept = self._corpus.documents
        counts = np.zeros(self.topics.shape)
        shares = np.zeros(len(self.shares))
        table, log_shares = _log_table(self.topics), _logs(self.shares)
        likelihood = self._prior * float(table.sum())
        for documents in self._corpus.training() if kept is None else [kept]:
            _, value, words, documents_on = _single_topics(
                documents, table, log_shares, self.topics.dtype, self._workers
            )
            likelihood += value
            counts += words
            shares += documents_on
        smoothed = counts + self._prior
        dtype = self.topics.dtype
        self.topics = (smoothed / smoothed.sum(axis=1, keepdims=True)).astype(dtype)
        self.counts = counts.astype(dtype)
        if shares.sum() > 0:
            self.shares = shares / shares.sum()
        return likelihood / max(self._corpus.n_tokens, 1.0)


def _logs(values: Any) -> Any:
    """Logarithms in float64, finite where a probability is zero."""
    return np.log(np.maximum(values.astype(np.float64), np.finfo(np.float64).tiny))


def _log_table(topics: Any) -> Any:
    """(V, w) logarithms of (k, V) topics, zero beyond the topics."""
    return padded(_logs(topics).T, np.float64)


def _single_topics(
    documents: Documents, table: Any, log_shares: Any, dtype: Any, workers: Workers
) -> tuple[Any, float, Any, Any]:
    """Posteriors (n, k), log-likelihood, expected counts (k, V) and documents (k,) on topics."""
    from latensor.refinement._kernels import single_topic_counts

    k = len(log_shares)
    most = most_tables(documents.n_nonzeros, table)
    runs = documents.parts(most)
    posteriors = np.empty((len(documents), k), dtype)
    sums = np.zeros((len(runs), *table.shape))
    on_topics = np.zeros((len(runs), k))

    def expect(part: int, first: int, last: int) -> float:
        value: float = single_topic_counts(
            documents.starts,
            documents.words,
            documents.counts,
            documents.weights,
            table,
            log_shares,
            first,
            last,
            posteriors,
            sums[part],
            on_topics[part],
        )
        return value

    values = workers.run(expect, [(part, *run) for part, run in enumerate(runs)])
    return posteriors, float(sum(values)), sums.sum(axis=0)[:, :k].T, on_topics.sum(axis=0)
