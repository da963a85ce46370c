"""Documents of one topic each: a mixture of word distributions (monograph 1.2, 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.arrays.threads import thread_count
from latensor.estimation.model import Answer, Effort, Frame
from latensor.models.topics.estimator import TopicEstimator
from latensor.models.topics.families import SingleTopicFamily, TopicState
from latensor.models.topics.model import TopicsModel
from latensor.models.topics.read_off import TopicMoments, fractions_of
from latensor.models.topics.refinement import (
    Completion,
    mixture_completion,
    topic_posteriors,
)
from latensor.moments.batch import Batch
from latensor.moments.word_totals import WordTotals
from latensor.refinement.em import em

# Different words of documents, added up, on which EM runs in memory: 256 MB.
_SAMPLE_ENTRIES = 20_000_000
# Passes over a half of the documents for a number of topics that is tried.
_PASSES_OF_A_CANDIDATE = 20


@dataclass(frozen=True)
class SingleTopicModel(TopicsModel):
    """The settings of a single-topic model: the concentration is zero."""

    search_size: ClassVar[int] = 10_000

    def weigh(
        self, first: Array, second: Array, found: TopicMoments | None, follows: bool = False
    ) -> Array:
        return np.asarray(fractions_of(first))

    def family(self, frame: Frame) -> SingleTopicFamily:
        return SingleTopicFamily(self.word_prior)

    def sample_size(self, frame: Frame) -> int:
        totals = frame.known["totals"].finalize()  # type: ignore[attr-defined]
        per_document = max(totals.n_entries / max(totals.n_documents, 1), 1.0)
        return max(self.search_size, int(_SAMPLE_ENTRIES / per_document))

    def candidate(self, units: Batch, start: Array, totals: WordTotals) -> TopicState:
        family = SingleTopicFamily(self.word_prior)
        fractions = fractions_of(self.core(start, totals).update(units).finalize().first)
        state = self._state(start, fractions, totals)
        return em(
            lambda s: s.empty().update(units), family, state, max_iter=_PASSES_OF_A_CANDIDATE
        ).state

    def score_halves(self, state: TopicState, counts: Any) -> tuple[Array, Array]:
        found = mixture_completion(counts, state.topics, state.weights)
        return found.log_likelihood, found.n_tokens

    def document_fractions(self, state: TopicState, counts: Any) -> Array:
        return topic_posteriors(counts, state.topics, state.weights)

    def parameters(self, frame: Frame, state: TopicState) -> dict[str, Array]:
        return {"components": state.topics, "weights": state.weights}


@dataclass(eq=False, repr=False)
class SingleTopic(TopicEstimator):
    """Topics of documents that have one topic each (monograph 1.2, 4.1).

    A document draws its topic by the weights, and all its words from that topic: the case of
    latent Dirichlet allocation in which the concentration tends to zero. Three words a document
    are enough for the moments to determine the topics; EM then refines them.

    Parameters
    ----------
    n_components : int, or "auto" for the largest number of topics that are found again in two
        halves of the documents
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of EM passes; 0 is the answer of the moments
    topic_word_prior : float, what is added to the expected occurrences of every word in a topic
    init : (n_components, V) topics to refine instead of those of the moments, or None
    random_state : seed of the subspace iteration
    n_jobs : int, threads; None for all processors. The answer is the same for any number
    callback : told (stage, fraction done) along a fit

    Attributes
    ----------
    components_ : (n_components_, V), rows are probabilities, in decreasing order of weight
    weights_ : (n_components_,), fractions of the topics among the documents
    n_components_, n_features_in_, n_documents_, n_empty_documents_, n_iter_ : int
    history_ : perplexity of the documents at every pass of EM, extrapolated ones included
    status_, spectrum_, certificate_, selection_, vocabulary_, stage_seconds_ : as in
        `LatentDirichletAllocation`

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_single_topic(1000, 100, 4, random_state=0)
    >>> model = lt.SingleTopic(4, random_state=0).fit(sample.counts)
    >>> model.components_.shape, model.predict(sample.counts).shape
    ((4, 100), (1000,))
    """

    _fitted_names = TopicEstimator._fitted_names | {"weights_"}
    _weight_name = "weights"

    def _model(self) -> SingleTopicModel:
        return SingleTopicModel(
            self.n_features_in_,
            self.n_components,
            self.algorithm,
            self.refine,
            self.topic_word_prior,
            self.init,
            0.0,
            thread_count(self.n_jobs),
        )

    def _effort(self) -> Effort:
        # Nats per token: differences that a thousand tokens cannot show.
        return Effort(self.refine, 200, 1e-6)

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        found = super()._attributes(answer, frame)
        if answer.statistics is not None:
            found["history_"] = np.exp(-np.array(answer.history))
            stopped = "converged" if answer.converged else "stopped"
            found["status_"] = f"EM {stopped} after {answer.n_iter} passes"
            if answer.start == "stream":
                found["status_"] = "one pass over a stream, corrected by EM on a sample of it"
        return found

    def predict_proba(self, X: object) -> Any:
        """Probabilities of the topics given each document (n, k).

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix, or a source of documents
        """
        return self.transform(X)

    def _mixtures(self, batch: Any, n_threads: int) -> Any:
        return topic_posteriors(batch, self.components_, self.weights_)

    def _completion(self, batch: Any, seed: int, n_threads: int) -> Completion:
        weights = self.weights_
        return mixture_completion(batch, self.components_, weights, seed=seed)

    def _drawn_mixtures(self, n_samples: int, rng: np.random.Generator) -> tuple[Any, Any]:
        topics = rng.choice(self.n_components_, size=n_samples, p=self.weights_)
        return np.eye(self.n_components_)[topics], topics

    def predict(self, X: object) -> Any:
        """The most probable topic of each document (n,)."""
        return self.predict_proba(X).argmax(axis=1)
