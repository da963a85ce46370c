"""Latent Dirichlet allocation from word moments (monograph 4.2.3)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latensor.arrays.randomness import RandomState
from latensor.estimation.documents import Documents
from latensor.estimation.files import saved_estimator
from latensor.estimation.parameters import Interval
from latensor.estimation.topic_model import TopicModel
from latensor.estimation.topic_moments import concentration_from_shares, dual_basis
from latensor.moments.word_core import WordCoreAccumulator
from latensor.refinement import Completing, completion, polish_topics, topic_mixtures

# Where the third moment leaves less than this share unexplained and the weakest direction stands
# out of its noise, documents follow the model so closely that the concentration is read off the
# third moment; on text it comes from the second, which needs no such agreement.
_MODEL_FITS = 0.01
_FIRM = 0.25
# How far and by what gain in perplexity the prior of mixtures leaves alpha.
_DOUBLINGS = 10
_PRIOR_GAIN = 0.999


@saved_estimator
class LatentDirichletAllocation(TopicModel):
    """Topics of documents that are mixtures of several (monograph 4.2.3).

    A document draws shares of the topics from a Dirichlet distribution with parameters alpha, and
    every word from the topic that it drew by these shares. The first three moments of the words
    determine the topics: no restarts, the same answer for every start. A short likelihood polish
    then brings them to the accuracy of an EM that had started at the truth.

    Parameters
    ----------
    n_components : int, or "auto" for the number that the spectrum or held-out words speak for
    algorithm : "auto", or an algorithm of `lt.decomposition` for symmetric tensors
    refine : "auto", or the number of polishing passes; 0 is the answer of the moments
    document_topic_prior : float, what the polish adds to the expected words of every topic in a
        document
    topic_word_prior : float, what it adds to the expected occurrences of every word in a topic
    init : (n_components, V) topics to polish instead of those of the moments, or None
    random_state : seed of the subspace iteration and of the words held out
    n_jobs : int, threads; None for all processors. The answer is the same for any number
    callback : told (stage, share done) along a fit

    Attributes
    ----------
    components_ : (n_components_, V), rows are probabilities, by falling alpha
    alpha_ : (n_components_,), the Dirichlet parameters, learned from the moments
    mixture_prior_ : (n_components_,), the multiple of alpha_ that `transform` and `perplexity` use
    n_components_, n_features_in_, n_documents_, n_empty_documents_, n_iter_ : int
    history_ : held-out perplexity along the polish, the first of the moments alone; empty where
        the corpus is so small that nothing is held out
    status_ : str, why the polish stopped
    spectrum_ : leading eigenvalues of the second moment
    certificate_ : TopicCertificate, computed when first asked for
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

    _parameters = {  # noqa: RUF012
        **TopicModel._parameters,
        "document_topic_prior": (Interval(numbers.Real, 0, closed="neither"),),
    }
    _lazy = TopicModel._lazy | {"alpha_", "mixture_prior_"}
    _weight_name = "alpha"

    def __init__(
        self,
        n_components: int | str = 10,
        *,
        algorithm: Any = "auto",
        refine: int | str = "auto",
        document_topic_prior: float = 0.1,
        topic_word_prior: float = 0.05,
        init: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        callback: Callable[[str, float], None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.algorithm = algorithm
        self.refine = refine
        self.document_topic_prior = document_topic_prior
        self.topic_word_prior = topic_word_prior
        self.init = init
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback

    def _refined(self, topics: Any, documents: Documents, rng: np.random.Generator) -> Any:
        # Single precision, whatever that of the counts: its rounding is far below what a document
        # more or less changes, and passes take half the time.
        return polish_topics(
            documents.batches,
            topics.astype(np.float32),
            document_prior=self.document_topic_prior,
            word_prior=self.topic_word_prior,
            passes=self.refine,
            rng=rng,
            n_threads=self._threads(),
            callback=self._polish_callback(),
            document_weights=documents.weights,
            held_out=documents.held_out,
        )

    def _weigh(self, topics: Any, documents: Documents | None) -> Any:
        """Dirichlet parameters (k,), from the second moment of the shares that the topics imply."""
        if documents is None:
            basis = dual_basis(topics * self._sums.scale, self._sums.basis)
            pairs = self._sums.pairs()
            inside = self._sums.basis.T @ pairs.product
            first = basis.T @ (self._sums.basis.T @ pairs.mean)
            second = basis.T @ inside @ basis
        else:
            frequency = documents.totals.totals / documents.totals.n_tokens
            seen = frequency > 0
            scale = np.where(seen, 1 / np.sqrt(np.where(seen, frequency, 1.0)), 0.0)
            sums = WordCoreAccumulator(
                dual_basis(topics * scale), scale, self._length_cap(documents), self._threads()
            )
            for batch, weights in documents.prepared():
                sums.update(batch, weights)
            core = sums.finalize()
            first, second = core.first, core.second
        return concentration_from_shares(first, second, self._third_moment_concentration())

    def _third_moment_concentration(self) -> float | None:
        """The concentration at which the moments agree, where they are those of the model.

        Polished topics are so near that the second moment of their shares tells it better.
        """
        if self._was_polished() or self.init is not None:
            return None
        if self._moments.off_diagonal > _MODEL_FITS:
            return None
        rank = len(self._moments.weights)
        firm = self._subspace.noise[rank - 1] < _FIRM
        return self._moments.implied_concentration if firm else None

    def _choose_prior(self, unseen: Any) -> None:
        """The multiple of alpha that predicts unseen halves of documents best.

        Mixtures of real documents are less extreme than a Dirichlet distribution with the right
        second moments: on titles twice alpha predicts ten per cent better, on planted documents
        alpha itself does.
        """
        self.mixture_prior_ = self.alpha_
        if unseen is None or unseen.shape[0] == 0:
            return
        # Doubled as long as it helps, by more than the noise of the sample.
        complete = Completing(unseen, self.components_, n_threads=self._threads())
        best = complete(self.alpha_).perplexity
        for _ in range(_DOUBLINGS):
            doubled = 2 * self.mixture_prior_
            found = complete(doubled).perplexity
            if found > _PRIOR_GAIN * best:
                break
            best, self.mixture_prior_ = found, doubled

    def transform(self, X: object) -> Any:
        """Shares of the topics in documents (n, k), rows sum to one.

        The expected shares given the words; a document without words has those of alpha.

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix, or a source of documents
        """
        check_is_fitted(self)
        return self._over_batches(
            X,
            lambda batch: topic_mixtures(
                batch, self.components_, self.mixture_prior_, n_threads=self._threads()
            ),
        )

    def _completion(self, batch: Any, seed: int) -> tuple[Any, Any]:
        found = completion(
            batch, self.components_, self.mixture_prior_, seed=seed, n_threads=self._threads()
        )
        return found.log_likelihood, found.n_tokens

    def sample(
        self, n_samples: int = 1, length: int = 100, random_state: RandomState = None
    ) -> tuple[Any, Any]:
        """Documents (n, V) drawn from the model, as CSR counts, and their shares (n, k).

        Parameters
        ----------
        n_samples : int
        length : int, words of a document
        random_state : seed; default that of the model
        """
        rng = self._sampling(n_samples, length, random_state)
        shares = rng.dirichlet(self.alpha_, size=n_samples)
        return self._draw(shares, length, rng), shares
