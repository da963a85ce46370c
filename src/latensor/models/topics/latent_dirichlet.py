"""Latent Dirichlet allocation from word moments (monograph 4.2.3)."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.arrays.threads import thread_count
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import POSITIVE, Choice, parameter
from latensor.models.topics.dirichlet_model import DirichletModel
from latensor.models.topics.estimator import TopicEstimator
from latensor.models.topics.families import TopicState
from latensor.models.topics.refinement import (
    Completion,
    completion,
    topic_mixtures,
)


@dataclass(eq=False, repr=False)
class LatentDirichletAllocation(TopicEstimator):
    """Topics of documents that are mixtures of several (monograph 4.2.3).

    A document draws fractions of the topics from a Dirichlet distribution with parameters alpha,
    and every word from the topic that it drew by these fractions. The first three moments of the
    words determine the topics: no restarts, the same answer for every start. A short likelihood
    refinement then brings them to the accuracy of an EM that had started at the truth: word by
    word where documents fit into memory, by passes over the source where they do not, by one
    corrected pass where they come as a stream (`status_` says which).

    The steps of the refinement have a bias where documents are short. Where documents follow the
    model, topics go back towards those of the moments as far as the likelihood of documents asks;
    of very many short documents over few words `refine=0` may still be closer.

    Parameters
    ----------
    n_components : int, or "auto" for the largest number of topics that are found again in two
        halves of the documents
    alpha0 : float, the sum of the Dirichlet parameters, where it is known; None to find it. Three
        moments do not determine it for two topics
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of refining passes; 0 is the answer of the moments
    document_topic_prior : "auto" or float, what refinement adds to the expected words of every
        topic in a document: the Dirichlet parameters that the moments show, or one number
    topic_word_prior : float, what is added to the expected occurrences of every word in a topic
    init : (n_components, V) topics to refine instead of those of the moments, or None
    random_state : seed of the subspace iteration
    n_jobs : int, threads; None for all processors. The answer is the same for any number
    callback : told (stage, fraction done) along a fit

    Attributes
    ----------
    components_ : (n_components_, V), rows are probabilities, in decreasing order of alpha
    alpha_ : (n_components_,), the Dirichlet parameters, learned from the moments
    mixture_prior_ : (n_components_,), the multiple of alpha_ that `transform` and `perplexity` use
    n_components_, n_features_in_, n_documents_, n_empty_documents_, n_iter_ : int
    history_ : perplexity of words, each predicted from all others, before every pass of the
        refinement: the first of the moments alone
    status_ : str, how topics were refined, and why that stopped
    spectrum_ : leading eigenvalues of the second moment
    certificate_ : TopicCertificate, computed when first asked for
    selection_ : TopicCount, where n_components="auto"
    vocabulary_ : list of words, or None where they have no names
    stage_seconds_ : dict, wall-clock seconds of every stage of the fit

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_topics(2000, 200, 5, random_state=0)
    >>> model = lt.LatentDirichletAllocation(5, random_state=0).fit(sample.counts)
    >>> model.components_.shape
    (5, 200)
    >>> model.transform(sample.counts[:2]).shape
    (2, 5)
    """

    _: KW_ONLY
    alpha0: float | None = parameter(None, POSITIVE, Choice((None,)))
    document_topic_prior: float | str = parameter("auto", Choice(("auto",)), POSITIVE)

    _fitted_names = TopicEstimator._fitted_names | {"alpha_", "mixture_prior_"}
    _weight_name = "alpha"

    def _model(self) -> DirichletModel:
        return DirichletModel(
            self.n_features_in_,
            self.n_components,
            self.algorithm,
            self.refine,
            self.topic_word_prior,
            self.init,
            None if self.alpha0 is None else float(self.alpha0),
            thread_count(self.n_jobs),
            None if isinstance(self.document_topic_prior, str) else self.document_topic_prior,
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        found = super()._attributes(answer, frame)
        open_question = found["n_components_"] == 2 and self.alpha0 is None and self.init is None
        if open_question and answer.statistics is None:
            warnings.warn(
                "three moments do not determine the concentration of two topics, and 1 was taken: "
                "give alpha0, the sum of the Dirichlet parameters, or leave refine at 'auto'",
                stacklevel=5,
            )
        return {**found, "mixture_prior_": self._ordered_prior(answer, frame)}

    def _ordered_prior(self, answer: Answer[Any], frame: Frame) -> Array:
        assert answer.state is not None
        state: TopicState = answer.state
        prior = state.weights if state.mixture_prior is None else state.mixture_prior
        ordered: Array = prior[self._model().order(frame, state)]
        return ordered

    def _mixtures(self, batch: Any, n_threads: int) -> Any:
        return topic_mixtures(batch, self.components_, self.mixture_prior_, n_threads=n_threads)

    def _completion(self, batch: Any, seed: int, n_threads: int) -> Completion:
        prior = self.mixture_prior_
        return completion(batch, self.components_, prior, seed=seed, n_threads=n_threads)

    def _drawn_mixtures(self, n_samples: int, rng: np.random.Generator) -> tuple[Any, Any]:
        fractions = rng.dirichlet(self.alpha_, size=n_samples)
        return fractions, fractions
