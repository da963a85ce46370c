"""The model of latent Dirichlet allocation: what its moments say, and how topics are refined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.diagnostics.topic_certificate import nearest_topics
from latensor.estimation.model import Answer, Frame
from latensor.estimation.run import Run
from latensor.models.topics.families import MixedTopicsFamily, TopicState
from latensor.models.topics.model import TopicsModel, follow_the_model, implied_fractions
from latensor.models.topics.read_off import (
    IDENTIFIED_FROM,
    TopicMoments,
    concentration_from_fractions,
)
from latensor.models.topics.refinement import (
    Completing,
    completion,
    refine_topics,
    topic_mixtures,
)
from latensor.models.topics.refinement.documents import Documents, padded
from latensor.models.topics.refinement.folded import FoldedTopics, refine_by_folds
from latensor.models.topics.refinement.likelihood import MarginalLikelihood, likeliest_toward
from latensor.models.topics.refinement.topics import RefinedTopics, fractions_fit
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentBatch
from latensor.moments.sums import Joint, Mapped, plus, times
from latensor.moments.unit_sample import Sample
from latensor.moments.word_core import WordCoreSums
from latensor.moments.word_totals import WordTotals
from latensor.moments.words import WordCore
from latensor.refinement.family import Statistics

# How far and by what gain in perplexity the prior of mixtures leaves alpha.
_DOUBLINGS = 10
_PRIOR_GAIN = 0.999
# Documents at most that a prior is chosen on, and tokens that topics are judged by at least.
_JUDGES = 2000
_JUDGED_TOKENS = 20_000
# Passes over a half of the documents for a number of topics that is tried.
_PASSES_OF_A_CANDIDATE = 10


@dataclass(frozen=True)
class _Chosen:
    """Documents that their own words choose: equal ones together, whatever their order.

    Attributes
    ----------
    seed : int, of the numbers that documents draw from their words
    limit : int, documents whose number is below are chosen
    """

    seed: int
    limit: int

    def __call__(self, batch: Batch) -> Batch:
        keys = Documents.of(batch.rows, batch.rows.dtype).keys(self.seed)
        return batch.take(np.flatnonzero(keys < np.uint64(self.limit)))


@dataclass(frozen=True)
class DirichletModel(TopicsModel):
    """The settings of latent Dirichlet allocation.

    Attributes
    ----------
    document_prior : float, prior of the mixtures in refinement; None for that of the moments
    """

    document_prior: float | None

    refines_streams: ClassVar[bool] = True
    # Of 25 the spread is known to 14 %, which Student's t makes up for.
    n_refits: ClassVar[int] = 25
    is_biased: ClassVar[bool] = True

    @property
    def weighs_moments(self) -> bool:
        return self.refine == 0

    def weigh(
        self, first: Array, second: Array, found: TopicMoments | None, follows: bool = False
    ) -> Array:
        known = self.concentration
        if known is None and found is not None:
            if len(first) < IDENTIFIED_FROM:
                known = found.concentration
            elif follows:
                # On text the concentration comes from the second moment, which asks for less.
                known = found.implied_concentration
        alpha: Array = concentration_from_fractions(first, second, known)
        return alpha

    def family(self, frame: Frame) -> MixedTopicsFamily:
        """With the prior that was given; `locally` puts that of the moments in its place."""
        return MixedTopicsFamily(self.word_prior, self.document_prior)

    def sample_size(self, frame: Frame) -> int:
        assert self.stream_size is not None
        return self.stream_size

    def parameters(self, frame: Frame, state: TopicState) -> dict[str, Array]:
        return {"components": state.topics, "alpha": state.weights}

    def of_parts(self, state: TopicState) -> DirichletModel:
        return self.with_count(len(state.topics))

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
        prior: Any = self.document_prior
        if prior is None:
            core = self.core(start, totals).update(units).finalize()
            prior = self.weigh(core.first, core.second, None)
        found = refine_topics(
            units.rows,
            start.astype(np.float32),
            document_prior=prior,
            word_prior=self.word_prior,
            passes=_PASSES_OF_A_CANDIDATE,
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
        start = answer.state
        assert start is not None
        run.tell("decomposition")
        follows = "found" in answer.evidence and follow_the_model(answer.evidence)
        prior = self._refining_prior(run, answer, follows)
        family = replace(self.family(frame), document_prior=prior)
        whole, k = run.source.in_memory, len(start.topics)
        found: RefinedTopics | FoldedTopics
        if whole is not None and fractions_fit(whole.rows.nnz, k, np.dtype(np.float32)):
            found = local = refine_topics(
                whole.rows,
                start.topics.astype(np.float32),
                document_prior=prior,
                word_prior=self.word_prior,
                passes=self.refine,
                n_threads=self.n_threads,
                callback=lambda _: run.tell("refinement"),
                document_weights=None if (whole.weights == 1).all() else whole.weights,
            )
            topics = local.topics.astype(np.float64)
            topics /= topics.sum(axis=1, keepdims=True)
            counts = local.counts.astype(np.float64)
            sizes = counts.sum(axis=1) + self.word_prior * self.n_features
            state = TopicState(topics, start.weights, sizes)
            words = padded(counts.T, np.float64)
            tokens = float(counts.sum())
            statistics = Statistics(
                family, state, sums={"words": words, "log_likelihood": np.nan, "weight": tokens}
            )
        else:
            folded = refine_by_folds(
                lambda accumulator: run.fold("refinement", accumulator),
                family,
                start,
                self.refine,
                run.loop("refinement"),
            )
            statistics = Statistics(family, folded.state, sums=folded.sums)
            state, found = statistics.maximized(), folded
        state = self._weighed(run, state, answer, follows)
        return replace(
            answer,
            state=state,
            statistics=replace(statistics, state=state),
            n_iter=found.n_passes,
            history=tuple(found.history),
            evidence={**answer.evidence, "status": found.status},
        )

    def _refining_prior(self, run: Run, answer: Answer[TopicState], follows: bool) -> float | Array:
        """The prior of the mixtures in refinement: as given, or what the moments say it is.

        With 0.1 for every topic, refined topics of short planted documents were up to twenty times
        as far off as those of the moments (30 words, 3 topics, alpha .3 to .5).
        """
        start, evidence = answer.state, answer.evidence
        assert start is not None
        if self.document_prior is not None:
            return self.document_prior
        if "found" not in evidence:
            return self._weighed(run, start, answer, follows).weights
        fractions = implied_fractions(start.topics, evidence["words"])
        return self.weigh(*fractions, evidence["found"], follows)

    def _weighed(
        self, run: Run, state: TopicState, answer: Answer[TopicState], follows: bool
    ) -> TopicState:
        """Refined topics as the moments correct them, with alpha and the prior of mixtures."""
        totals: WordTotals = answer.evidence["totals"]
        core = self.core(state.topics, totals)
        found = run.fold("weights", Joint({"core": core, "judges": self._judges(run, totals)}))
        judges, moments = found["judges"].inner, found["core"].finalize()
        if judges.kept is None:
            alpha = self.weigh(moments.first, moments.second, None)
            return replace(state, weights=alpha, mixture_prior=alpha)
        few = judges.first(_JUDGES).rows
        state = self._with_prior(state, moments, few)
        if follows:
            others = answer.evidence["found"].topics
            least = float(self.word_prior / state.sizes.max())
            units = judges.units
            topics = self._toward_moments(run, state, others, core, moments, units, least)
            if topics is not state.topics:
                core = self.core(topics, totals)
                moments = run.fold("weights", core).finalize()
                state = self._with_prior(replace(state, topics=topics), moments, few)
        return state

    def _with_prior(self, state: TopicState, moments: WordCore, judges: Any) -> TopicState:
        """With alpha, as these moments of the fractions imply it, and the prior of mixtures."""
        alpha = self.weigh(moments.first, moments.second, None)
        prior = self._prior(state.topics, alpha, judges)
        return replace(state, weights=alpha, mixture_prior=prior)

    def _judges(self, run: Run, totals: WordTotals) -> Mapped:
        """The documents that the likelihood of topics is taken of, by their words alone."""
        wanted = max(totals.n_documents / 4, _JUDGED_TOKENS / max(totals.mean_length, 1.0))
        assert self.stream_size is not None
        fraction = min(wanted, self.stream_size) / max(totals.n_documents, 1)
        choice = _Chosen(run.seed, min(int(fraction * 2.0**64), 2**64 - 1))
        return Mapped(Sample(2 * self.stream_size, run.seed), choice)

    def _toward_moments(
        self,
        run: Run,
        state: TopicState,
        others: Array,
        core: WordCoreSums,
        moments: WordCore,
        judges: Batch,
        least: float,
    ) -> Array:
        """The likeliest topics between refined ones and the `others` of the moments.

        Judged with the multiple of alpha that fits the refined ones.
        """
        alpha = state.mixture_prior
        assert alpha is not None
        factor = alpha.sum() / state.weights.sum()

        def weighed(back: Array) -> Array:
            found = self.weigh(back.T @ moments.first, back.T @ moments.second @ back, None)
            return np.asarray(factor * found)

        seed = int(run.rng("likelihood").integers(2**63))
        likelihood = MarginalLikelihood(judges.rows, judges.weights, seed, self.n_threads)
        inside = (others * core.scale) @ core.directions
        return likeliest_toward(
            others, inside, state.topics, alpha, likelihood, weighed, least, likelihood.first_part
        )

    def _prior(self, topics: Array, alpha: Array, judges: Any) -> Array:
        """The multiple of alpha that predicts unseen halves of documents best.

        Mixtures of real documents are less extreme than a Dirichlet distribution with the right
        second moments: on titles twice alpha predicts ten per cent better, on planted documents
        alpha itself does. Doubled as long as it helps, by more than the noise of the sample.
        """
        if judges.nnz == 0:
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
