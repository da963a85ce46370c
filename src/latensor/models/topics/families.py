"""The likelihoods of the topic models, as statistics that passes over documents sum up.

Both have tables of words by topics as statistics, which are added to in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.models.topics.refinement.document_mixtures import even_mixtures
from latensor.models.topics.refinement.documents import Documents, padded, padded_width
from latensor.models.topics.refinement.single_topic import (
    log_joint,
    logarithms,
    posteriors_of,
)
from latensor.models.topics.refinement.word_counts import left_out_fraction
from latensor.moments.batch import Batch
from latensor.moments.documents import add_sparse_product
from latensor.refinement.family import Family
from latensor.value_files import storable

# Without a mixture kept from the last pass, so many steps find it anew.
_STEPS = 6


@storable
@dataclass(frozen=True, eq=False)
class TopicState:
    """Topics and what weighs them.

    Attributes
    ----------
    topics : (k, V) rows of probabilities
    weights : (k,) Dirichlet parameters alpha, or the fractions of the topics among documents
    sizes : (k,) tokens on every topic, those of the prior included
    mixture_prior : (k,) the multiple of alpha that mixtures of documents are found with, or None
    """

    topics: Array
    weights: Array
    sizes: Array
    mixture_prior: Array | None = None

    @cached_property
    def counts(self) -> Array:
        """(V, w) float32, expected counts of words on topics with the prior, zero beyond them."""
        return padded((self.topics * self.sizes[:, None]).T, np.float32)

    @cached_property
    def probabilities(self) -> Array:
        """(V, w) float32, the topics, zero beyond them."""
        return padded(self.topics.T, np.float32)

    @cached_property
    def logarithms(self) -> Array:
        """(V, k) float64, of the topics."""
        return np.ascontiguousarray(logarithms(self.topics).T)

    def __getstate__(self) -> dict[str, Any]:
        cached = ("counts", "probabilities", "logarithms")
        return {name: value for name, value in self.__dict__.items() if name not in cached}

    def permuted(self, order: Array) -> TopicState:
        """The topics in another order."""
        prior = self.mixture_prior
        return TopicState(
            np.ascontiguousarray(self.topics[order]),
            self.weights[order],
            self.sizes[order],
            None if prior is None else prior[order],
        )


def smoothed(counts: Array, word_prior: float) -> tuple[Array, Array]:
    """Topics (k, V) of expected counts with the prior, and their sizes (k,)."""
    table = np.maximum(counts, 0.0) + word_prior
    sizes = table.sum(axis=1)
    return table / sizes[:, None], sizes


@dataclass(frozen=True)
class _TopicFamily(Family[TopicState]):
    word_prior: float

    def expect(self, state: TopicState, prepared: Batch) -> dict[str, Any]:
        return self.accumulate(state, prepared, None)

    def complete(self, sums: dict[str, Any], state: TopicState) -> float:
        k = len(state.topics)
        return float((sums["words"][:, :k].T * logarithms(state.topics)).sum())

    def _table(self, state: TopicState, sums: dict[str, Any] | None, width: int) -> Array:
        if sums is not None:
            table: Array = sums["words"]
            return table
        return np.zeros((state.topics.shape[1], width))


@storable
@dataclass(frozen=True)
class MixedTopicsFamily(_TopicFamily):
    """Documents of many topics: the leave-one-out step of latent Dirichlet allocation.

    Collapsed variational Bayes of order zero, with the mixtures of documents found anew in every
    pass. Its log-likelihood is that of words, each predicted from all others; a step may lower it.

    Attributes
    ----------
    word_prior : float, prior b of the topics
    document_prior : float or (k,), prior a of the mixtures
    """

    document_prior: Any

    def accumulate(
        self, state: TopicState, prepared: Batch, sums: dict[str, Any] | None
    ) -> dict[str, Any]:
        from latensor.models.topics.refinement._kernels import expected_counts

        documents = Documents.of(prepared.rows, np.float32, prepared.weights)
        k, n_words = state.topics.shape
        width = padded_width(k)
        table = self._table(state, sums, width)
        tokens = float(state.sizes.sum()) - k * n_words * self.word_prior
        value = expected_counts(
            documents.starts,
            documents.words,
            documents.counts,
            documents.weights,
            state.counts,
            padded(1 / state.sizes, np.float32),
            padded(np.full(k, self.document_prior), np.float32),
            np.float32(self.word_prior),
            np.float32(left_out_fraction(max(tokens, 1.0), k * n_words)),
            _STEPS,
            even_mixtures(documents, k, width),
            table,
        )
        before = {"log_likelihood": 0.0, "weight": 0.0} if sums is None else sums
        return {
            "words": table,
            "log_likelihood": before["log_likelihood"] + value,
            "weight": before["weight"] + documents.n_tokens,
        }

    def is_packed(self, sums: dict[str, Any]) -> bool:
        return bool(sums["words"].dtype == np.float32)

    def packed(self, sums: dict[str, Any], state: TopicState) -> dict[str, Any]:
        """In single precision, as the next pass reads the table that is made of them."""
        words = sums["words"][:, : len(state.topics)]
        return {**sums, "words": words.astype(np.float32)}

    def maximize(self, sums: dict[str, Any], state: TopicState) -> TopicState:
        k = len(state.topics)
        topics, sizes = smoothed(sums["words"][:, :k].T.astype(np.float64), self.word_prior)
        return TopicState(topics, state.weights, sizes, state.mixture_prior)

    def pack(self, state: TopicState) -> Array:
        return np.asarray(np.sqrt(state.topics, dtype=np.float64).ravel())

    def unpack(self, vector: Array, like: TopicState) -> TopicState:
        topics = vector.reshape(like.topics.shape) ** 2
        topics = topics / topics.sum(axis=1, keepdims=True)
        return TopicState(topics, like.weights, like.sizes, like.mixture_prior)


@storable
@dataclass(frozen=True)
class SingleTopicFamily(_TopicFamily):
    """Documents of one topic each: a mixture of multinomials (monograph 4.1).

    With w the fractions and p_j(v) the topics, a document with counts n is on topic j with
    probability r_j ~ w_j prod_v p_j(v)^n(v), found by logarithms; then w is the mean of r and
    p_j(v) ~ b + sum of r_j n(v).
    """

    def accumulate(
        self, state: TopicState, prepared: Batch, sums: dict[str, Any] | None
    ) -> dict[str, Any]:
        weights = prepared.weights
        posteriors, norms = posteriors_of(self.log_density(state, prepared))
        posteriors *= weights[:, None]
        table = self._table(state, sums, len(state.weights))
        words = prepared.rows.tocsc()
        add_sparse_product((words.indptr, words.indices, words.data), posteriors, table)
        lengths = np.asarray(prepared.rows.sum(axis=1, dtype=np.float64)).ravel()
        before = {"fractions": 0.0, "log_likelihood": 0.0, "weight": 0.0} if sums is None else sums
        return {
            "words": table,
            "fractions": before["fractions"] + posteriors.sum(axis=0),
            "log_likelihood": before["log_likelihood"] + float(norms @ weights),
            "weight": before["weight"] + float(lengths @ weights),
        }

    def maximize(self, sums: dict[str, Any], state: TopicState) -> TopicState:
        topics, sizes = smoothed(sums["words"][:, : len(state.topics)].T, self.word_prior)
        fractions = np.maximum(sums["fractions"], 0.0)
        total = float(fractions.sum())
        return TopicState(topics, fractions / total if total > 0 else state.weights, sizes)

    def complete(self, sums: dict[str, Any], state: TopicState) -> float:
        return super().complete(sums, state) + float(sums["fractions"] @ logarithms(state.weights))

    def pack(self, state: TopicState) -> Array:
        return np.sqrt(np.concatenate([state.weights, state.topics.ravel()]))

    def unpack(self, vector: Array, like: TopicState) -> TopicState:
        k = len(like.weights)
        weights, topics = vector[:k] ** 2, vector[k:].reshape(like.topics.shape) ** 2
        return TopicState(
            topics / topics.sum(axis=1, keepdims=True), weights / weights.sum(), like.sizes
        )

    def log_density(self, state: TopicState, prepared: Batch) -> Array:
        return log_joint(prepared.rows, state.logarithms, state.weights)
