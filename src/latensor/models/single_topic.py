"""Documents of one topic each: a mixture of word distributions (monograph 1.2, 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latensor.arrays.randomness import RandomState
from latensor.estimation.documents import Documents
from latensor.estimation.files import saved_estimator
from latensor.estimation.topic_model import TopicModel
from latensor.estimation.topic_moments import dual_basis
from latensor.refinement import mixture_completion, polish_mixture, topic_posteriors

# No topic is rarer than this part of an equal share, whatever the moments say.
_SMALLEST_SHARE = 1e-3


@saved_estimator
class SingleTopic(TopicModel):
    """Topics of documents that have one topic each (monograph 1.2, 4.1).

    A document draws its topic by the weights, and all its words from that topic: the case of
    latent Dirichlet allocation in which the concentration tends to zero. Three words a document
    are enough for the moments to determine the topics; EM then polishes them.

    Parameters
    ----------
    n_components : int, or "auto" for the number that the spectrum or held-out words speak for
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of EM passes; 0 is the answer of the moments
    topic_word_prior : float, what the polish adds to the expected occurrences of every word
    init : (n_components, V) topics to polish instead of those of the moments, or None
    random_state : seed of the subspace iteration and of the documents held out
    n_jobs : int, threads; None for all processors. The answer is the same for any number
    callback : told (stage, share done) along a fit

    Attributes
    ----------
    components_ : (n_components_, V), rows are probabilities, by falling weight
    weights_ : (n_components_,), shares of the topics among the documents
    n_components_, n_features_in_, n_documents_, n_empty_documents_, n_iter_ : int
    history_ : perplexity of the documents along the polish, which EM lowers with every pass
    status_, spectrum_, certificate_, vocabulary_, stage_seconds_ : as in
        `LatentDirichletAllocation`
    """

    _lazy = TopicModel._lazy | {"weights_"}
    _concentration = 0.0
    _weight_name = "weights"
    _holds_out = False

    def __init__(
        self,
        n_components: int | str = 10,
        *,
        algorithm: Any = "auto",
        refine: int | str = "auto",
        topic_word_prior: float = 0.05,
        init: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        callback: Callable[[str, float], None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.refine = refine
        self.topic_word_prior = topic_word_prior
        self.init = init
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback

    def _refined(self, topics: Any, documents: Documents, rng: np.random.Generator) -> Any:
        polished = polish_mixture(
            documents.batches,
            topics,
            self._shares(topics, documents),
            word_prior=self.topic_word_prior,
            passes=self.refine,
            n_threads=self._threads(),
            callback=self._polish_callback(),
            document_weights=documents.weights,
        )
        self._polished_weights = polished.weights
        # The likelihood of all documents, as a perplexity: EM lowers it with every pass.
        return replace(polished, history=np.exp(-polished.history))

    def _weigh(self, topics: Any, documents: Documents | None) -> Any:
        if documents is not None and self.refine != 0:
            return self.__dict__.pop("_polished_weights")
        return self._shares(topics, documents)

    def _shares(self, topics: Any, documents: Documents | None) -> Any:
        """Weights (k,) with which the topics mix to the mean, from the moments."""
        if documents is None or self.init is None:
            basis, scale = self._sums.basis, self._sums.scale
            mean = self._sums.pairs().mean @ basis
            shares = mean @ dual_basis(topics * scale, basis)
        else:
            frequency = documents.totals.totals / documents.totals.n_tokens
            shares = frequency @ dual_basis(topics)
        shares = np.maximum(shares, _SMALLEST_SHARE / len(shares))
        return shares / shares.sum()

    def predict_proba(self, X: object) -> Any:
        """Probabilities of the topics given each document (n, k).

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix, or a source of documents
        """
        check_is_fitted(self)
        return self._over_batches(
            X,
            lambda batch: topic_posteriors(
                batch, self.components_, self.weights_, n_threads=self._threads()
            ),
        )

    def _completion(self, batch: Any, seed: int) -> tuple[Any, Any]:
        found = mixture_completion(
            batch, self.components_, self.weights_, seed=seed, n_threads=self._threads()
        )
        return found.log_likelihood, found.n_tokens

    def transform(self, X: object) -> Any:
        """Probabilities of the topics given each document (n, k): the same as `predict_proba`."""
        return self.predict_proba(X)

    def predict(self, X: object) -> Any:
        """The most probable topic of each document (n,)."""
        return self.predict_proba(X).argmax(axis=1)

    def sample(
        self, n_samples: int = 1, length: int = 100, random_state: RandomState = None
    ) -> tuple[Any, Any]:
        """Documents (n, V) drawn from the model, as CSR counts, and their topics (n,).

        Parameters
        ----------
        n_samples : int
        length : int, words of a document
        random_state : seed; default that of the model
        """
        rng = self._sampling(n_samples, length, random_state)
        topics = rng.choice(self.n_components_, size=n_samples, p=self.weights_)
        return self._draw(np.eye(self.n_components_)[topics], length, rng), topics
