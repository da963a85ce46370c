"""Latent Dirichlet allocation from word moments (monograph 4.2.3)."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState
from latensor.arrays.threads import thread_count
from latensor.diagnostics.topic_certificate import nearest_topics
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import Choice, Interval
from latensor.estimation.run import Run
from latensor.models.topics.estimator import TopicEstimator
from latensor.models.topics.families import MixedTopicsFamily, TopicState
from latensor.models.topics.model import TopicsModel, implied_fractions
from latensor.models.topics.read_off import (
    IDENTIFIED_FROM,
    TopicMoments,
    concentration_from_fractions,
)
from latensor.models.topics.refinement import (
    Completing,
    HeldOut,
    Selected,
    completion,
    refine_topics,
    topic_mixtures,
)
from latensor.models.topics.refinement.documents import padded
from latensor.models.topics.refinement.folded import refine_by_folds
from latensor.models.topics.refinement.word_by_word import fractions_fit
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentBatch
from latensor.moments.sums import Joint, plus, times
from latensor.moments.unit_sample import Sample
from latensor.moments.word_totals import WordTotals
from latensor.refinement.family import Statistics

# Where the third moment leaves less than this fraction unexplained and the weakest direction stands
# out of its noise, documents follow the model so closely that the concentration is read off the
# third moment; on text it comes from the second, which needs no such agreement.
_MODEL_FITS = 0.01
_FIRM = 0.25
# How far and by what gain in perplexity the prior of mixtures leaves alpha.
_DOUBLINGS = 10
_PRIOR_GAIN = 0.999
# The prior of the mixtures where moments have not shown any yet: of candidates and of streams.
_USUAL_PRIOR = 0.1
# Documents that a prior is chosen on: held out, or a few that stand in for them.
_JUDGES = 2000
_FEW = 50
# Passes over a half of the documents for a number of topics that is tried.
_PASSES_OF_A_CANDIDATE = 10


@dataclass(frozen=True)
class DirichletModel(TopicsModel):
    """The settings of latent Dirichlet allocation.

    Attributes
    ----------
    document_prior : float, prior of the mixtures in refinement; None for that of the moments
    """

    document_prior: float | None

    holds_out: ClassVar[bool] = True
    refines_streams: ClassVar[bool] = True
    # Of 25 the spread is known to 14 %, which Student's t makes up for.
    n_refits: ClassVar[int] = 25

    @property
    def weighs_moments(self) -> bool:
        return self.refine == 0

    def weigh(
        self, first: Array, second: Array, found: TopicMoments | None, noise: float = np.inf
    ) -> Array:
        known = self.concentration
        if known is None and found is not None:
            if len(first) < IDENTIFIED_FROM:
                known = found.concentration
            elif found.off_diagonal <= _MODEL_FITS and noise < _FIRM:
                known = found.implied_concentration
        alpha: Array = concentration_from_fractions(first, second, known)
        return alpha

    def family(self, frame: Frame) -> MixedTopicsFamily:
        prior = _USUAL_PRIOR if self.document_prior is None else self.document_prior
        return MixedTopicsFamily(self.word_prior, prior)

    def sample_size(self, frame: Frame) -> int:
        assert self.stream_size is not None
        return self.stream_size

    def parameters(self, frame: Frame, state: TopicState) -> dict[str, Array]:
        return {"components": state.topics, "alpha": state.weights}

    def drawn_like(
        self, frame: Frame, state: TopicState, like: Batch, rng: np.random.Generator
    ) -> Batch:
        lengths = np.maximum(np.rint(np.asarray(like.rows.sum(axis=1)).ravel()), 1).astype(np.int64)
        edges = np.cumsum(state.topics, axis=1, dtype=np.float64)
        edges /= edges[:, -1:]
        # Tokens of every topic in every document, then the words of all tokens of a topic at once.
        tokens = rng.multinomial(lengths, rng.dirichlet(state.weights, len(lengths)))
        words = [
            np.searchsorted(e, rng.random(n)) for e, n in zip(edges, tokens.sum(0), strict=True)
        ]
        owners = [np.repeat(np.arange(len(lengths)), n) for n in tokens.T]
        places = np.concatenate(owners), np.concatenate(words)
        values = np.ones(len(places[0]), dtype=like.rows.dtype)
        rows = scipy.sparse.coo_array((values, places), shape=like.rows.shape).tocsr()
        return DocumentBatch((rows,), like.weights, like.keys)

    def candidate(self, units: Batch, start: Array, totals: WordTotals) -> TopicState:
        found = refine_topics(
            units.rows,
            start.astype(np.float32),
            document_prior=_USUAL_PRIOR if self.document_prior is None else self.document_prior,
            word_prior=self.word_prior,
            passes=_PASSES_OF_A_CANDIDATE,
            rng=np.random.default_rng(0),
            n_threads=self.n_threads,
            document_weights=units.weights,
        )
        topics = found.topics.astype(np.float64)
        topics /= topics.sum(axis=1, keepdims=True)
        core = self.core(topics, totals).update(units).finalize()
        alpha = self.weigh(core.first, core.second, None)
        prior = self._prior(topics, alpha, units.rows[:_JUDGES])
        return TopicState(topics, alpha, found.counts.sum(axis=1), prior)

    def score_halves(self, state: TopicState, counts: Any) -> tuple[Array, Array]:
        topics = state.topics.astype(np.float32)
        found = completion(counts, topics, state.mixture_prior, n_threads=self.n_threads)
        return found.log_likelihood, found.n_tokens

    def document_fractions(self, state: TopicState, counts: Any) -> Array:
        topics = state.topics.astype(np.float32)
        found: Array = topic_mixtures(
            counts, topics, state.mixture_prior, n_threads=self.n_threads
        ).astype(np.float64)
        return found

    def locally(
        self, run: Run, frame: Frame, answer: Answer[TopicState]
    ) -> Answer[TopicState] | None:
        """Word by word where the documents and their fractions fit into memory, else by folds."""
        start, family, choice = answer.state, self.family(frame), frame["choice"]
        assert start is not None
        run.tell("decomposition")
        prior = self._refining_prior(run, answer, choice)
        whole, k = run.source.in_memory, len(start.topics)
        if whole is not None and fractions_fit(whole.rows.nnz, k, np.dtype(np.float32)):
            found = refine_topics(
                whole.rows,
                start.topics.astype(np.float32),
                document_prior=prior,
                word_prior=self.word_prior,
                passes=self.refine,
                rng=run.rng("refinement"),
                n_threads=self.n_threads,
                callback=lambda _: run.tell("refinement"),
                document_weights=None if (whole.weights == 1).all() else whole.weights,
                held_out=choice,
            )
            topics = found.topics.astype(np.float64)
            topics /= topics.sum(axis=1, keepdims=True)
            counts = found.counts.astype(np.float64)
            sizes = counts.sum(axis=1) + self.word_prior * self.n_features
            state = TopicState(topics, start.weights, sizes)
            words = padded(counts.T, np.float64)
            tokens = float(counts.sum())
            statistics = Statistics(
                family, state, sums={"words": words, "log_likelihood": np.nan, "weight": tokens}
            )
            history, n_passes, status = found.history, found.n_passes, found.status
        else:
            folded = refine_by_folds(
                lambda accumulator: run.fold("refinement", accumulator),
                replace(family, document_prior=prior),
                start,
                self.refine,
                choice,
                run.loop("refinement"),
            )
            statistics, state = folded.statistics, folded.statistics.maximized()
            history, n_passes, status = folded.history, folded.n_passes, folded.status
        state = self._weighed(run, state, answer, choice)
        return replace(
            answer,
            state=state,
            statistics=replace(statistics, state=state),
            n_iter=max(1, n_passes),
            history=tuple(history),
            evidence={**answer.evidence, "status": status},
        )

    def _refining_prior(
        self, run: Run, answer: Answer[TopicState], choice: HeldOut
    ) -> float | Array:
        """The prior of the mixtures in refinement: as given, or what the moments say it is.

        With 0.1 for every topic, refined topics of short planted documents were up to twenty times
        as far off as those of the moments (30 words, 3 topics, alpha .3 to .5).
        """
        start, evidence = answer.state, answer.evidence
        assert start is not None
        if self.document_prior is not None:
            return self.document_prior
        if "found" not in evidence:
            return self._weighed(run, start, answer, choice).weights
        noise = float(evidence["subspace"].noise[len(start.topics) - 1])
        fractions = implied_fractions(start.topics, evidence["words"])
        return self.weigh(*fractions, evidence["found"], noise)

    def _weighed(
        self, run: Run, state: TopicState, answer: Answer[TopicState], choice: HeldOut
    ) -> TopicState:
        """Refined topics with their Dirichlet parameters and the prior of mixtures."""
        unseen = Selected(Sample(_JUDGES, run.seed), choice, held_out=True)
        few: Any = Sample(_FEW, run.seed)
        core = self.core(state.topics, answer.evidence["totals"])
        found = run.fold("weights", Joint({"core": core, "few": unseen if choice.limit else few}))
        moments = found["core"].finalize()
        alpha = self.weigh(moments.first, moments.second, None)
        sample = found["few"].inner if choice.limit else found["few"]
        judges = None if sample.kept is None else sample.units.rows
        return replace(state, weights=alpha, mixture_prior=self._prior(state.topics, alpha, judges))

    def _prior(self, topics: Array, alpha: Array, judges: Any) -> Array:
        """The multiple of alpha that predicts unseen halves of documents best.

        Mixtures of real documents are less extreme than a Dirichlet distribution with the right
        second moments: on titles twice alpha predicts ten per cent better, on planted documents
        alpha itself does. Doubled as long as it helps, by more than the noise of the sample.
        """
        if judges is None or judges.nnz == 0:
            return alpha
        complete = Completing(judges, topics.astype(np.float32), n_threads=self.n_threads)
        best, prior = complete(alpha).perplexity, alpha
        for _ in range(_DOUBLINGS):
            value = complete(2 * prior).perplexity
            if value > _PRIOR_GAIN * best:
                break
            best, prior = value, 2 * prior
        return prior

    def corrected(
        self, run: Run, frame: Frame, sums: Joint, answer: Answer[TopicState]
    ) -> Answer[TopicState]:
        """Topics of a stream: one step over all its documents, corrected on those that were kept.

        With S(t) the statistics at topics t and t0 the pilot, at which those of all documents are
        known, S(t) is taken for S(t0) + f [S'(t) - S'(t0)], S' being those of the documents kept
        and f how many one of them stands for. The step is made from the topics of all moments and
        from those that S(t0) gives; what predicts the documents kept better is taken. More steps
        follow the noise of the few.
        """
        at, sample = sums["statistics"], sums["sample"]
        first = at.maximized()
        if sample.kept is None:
            return self._of_stream(answer, at, self._weighed_by(first, sums))

        def statistics(state: TopicState) -> Statistics[TopicState]:
            found = run.fold("refinement", Statistics(at.family, state))
            return found.closed() if at.is_closed else found

        here = statistics(at.state)
        factor = at.weight / here.weight
        offset = plus(at.seen(), times(here.seen(), -factor))
        starts = [first]
        if "found" in answer.evidence and answer.state is not None:
            order = nearest_topics(first.topics, answer.state.topics)
            starts.append(replace(first, topics=answer.state.topics[order]))
        found = []
        for start in starts:
            there = times(statistics(start).seen(), factor)
            step = at.family.maximize(plus(there, offset), start)
            found.append(self._weighed_by(step, sums))
        judges = sample.first(_JUDGES).rows

        def perplexity(state: TopicState) -> float:
            topics = state.topics.astype(np.float32)
            seen = completion(judges, topics, state.weights, n_threads=self.n_threads)
            return seen.perplexity if seen.n_tokens.any() else 0.0

        best = min(found, key=perplexity)
        prior = self._prior(best.topics, best.weights, judges)
        return self._of_stream(answer, at, replace(best, mixture_prior=prior))

    def _weighed_by(self, state: TopicState, sums: Joint) -> TopicState:
        if "words" not in sums:
            return state
        alpha = self.weigh(*implied_fractions(state.topics, sums["words"]), None)
        return replace(state, weights=alpha, mixture_prior=alpha)

    def _of_stream(
        self, answer: Answer[TopicState], at: Statistics[TopicState], state: TopicState
    ) -> Answer[TopicState]:
        status = "one pass over a stream, corrected on a sample of it"
        return replace(
            answer,
            state=state,
            statistics=replace(at, state=state),
            start="stream",
            evidence={**answer.evidence, "status": status},
        )


class LatentDirichletAllocation(TopicEstimator):
    """Topics of documents that are mixtures of several (monograph 4.2.3).

    A document draws fractions of the topics from a Dirichlet distribution with parameters alpha,
    and every word from the topic that it drew by these fractions. The first three moments of the
    words determine the topics: no restarts, the same answer for every start. A short likelihood
    refinement then brings them to the accuracy of an EM that had started at the truth: word by
    word where documents fit into memory, by passes over the source where they do not, by one
    corrected pass where they come as a stream (`status_` says which).

    Refinement predicts unseen text better, but keeps a small bias of its own: of very many short
    documents over few words the moments alone, `refine=0`, can be closer to the topics.

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
    random_state : seed of the subspace iteration and of the words held out
    n_jobs : int, threads; None for all processors. The answer is the same for any number
    callback : told (stage, fraction done) along a fit

    Attributes
    ----------
    components_ : (n_components_, V), rows are probabilities, in decreasing order of alpha
    alpha_ : (n_components_,), the Dirichlet parameters, learned from the moments
    mixture_prior_ : (n_components_,), the multiple of alpha_ that `transform` and `perplexity` use
    n_components_, n_features_in_, n_documents_, n_empty_documents_, n_iter_ : int
    history_ : held-out perplexity along the refinement, the first of the moments alone; empty
        where the corpus is so small that nothing is held out
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

    _parameters = {  # noqa: RUF012
        **TopicEstimator._parameters,
        "alpha0": (Interval(numbers.Real, 0, closed="neither"), Choice((None,))),
        "document_topic_prior": (
            Choice(("auto",)),
            Interval(numbers.Real, 0, closed="neither"),
        ),
    }
    _fitted_names = TopicEstimator._fitted_names | {"alpha_", "mixture_prior_"}
    _weight_name = "alpha"

    def __init__(
        self,
        n_components: int | str = 10,
        *,
        alpha0: float | None = None,
        algorithm: Any = "auto",
        refine: int | str = "auto",
        document_topic_prior: float | str = "auto",
        topic_word_prior: float = 0.05,
        init: Any = None,
        random_state: RandomState = None,
        n_jobs: int | None = None,
        callback: Callable[[str, float], None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.alpha0 = alpha0
        self.algorithm = algorithm
        self.refine = refine
        self.document_topic_prior = document_topic_prior
        self.topic_word_prior = topic_word_prior
        self.init = init
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callback = callback

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

    def transform(self, X: object) -> Any:
        """Fractions of the topics in documents (n, k), rows sum to one.

        The expected fractions given the words; a document without words has those of alpha.

        Parameters
        ----------
        X : (n, V) counts as an array, frame or SciPy sparse matrix, or a source of documents
        """
        check_is_fitted(self)
        return self._over_batches(
            X,
            lambda batch: topic_mixtures(
                batch, self.components_, self.mixture_prior_, n_threads=thread_count(self.n_jobs)
            ),
        )

    def _completion(self, batch: Any, seed: int) -> tuple[Any, Any]:
        found = completion(
            batch,
            self.components_,
            self.mixture_prior_,
            seed=seed,
            n_threads=thread_count(self.n_jobs),
        )
        return found.log_likelihood, found.n_tokens

    def sample(
        self, n_samples: int = 1, length: int = 100, random_state: RandomState = None
    ) -> tuple[Any, Any]:
        """Documents (n, V) drawn from the model, as CSR counts, and their fractions (n, k).

        Parameters
        ----------
        n_samples : int
        length : int, words of a document
        random_state : seed; default that of the model
        """
        rng = self._sampling(n_samples, length, random_state)
        fractions = rng.dirichlet(self.alpha_, size=n_samples)
        return self._draw(fractions, length, rng), fractions
