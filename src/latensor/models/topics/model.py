"""What the topic models share: from documents to topics, by folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from latensor.arrays import Array
from latensor.arrays.threads import one_blas_thread
from latensor.diagnostics.topic_certificate import (
    TopicCertificate,
    nearest_topics,
    split_half_distances,
)
from latensor.estimation.model import Answer, Effort, Frame, Model
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.topics.families import TopicState
from latensor.models.topics.power_steps import power_sums, topics_from_powers
from latensor.models.topics.read_off import (
    TopicMoments,
    as_probabilities,
    dual_basis,
    repeated_misfit,
    topics_from_moments,
)
from latensor.models.topics.subspace import LENGTH_CAP, find_subspace, subspace_of_sums
from latensor.moments.batch import Batch, Kind
from latensor.moments.documents import capped
from latensor.moments.sums import Folded, Joint, Mapped
from latensor.moments.word_core import WordCoreSums
from latensor.moments.word_power_sums import WordPowerMoments
from latensor.moments.word_totals import WordTotals, WordTotalSums
from latensor.moments.word_triples import WordRows, WordTriples, WordTripleSums

# Beyond so many topics the whole core is not formed.
_MANY = 100
# Different words of documents that a stream holds back, added up, and documents: enough that the
# leading directions are those of the whole stream, and still a few hundred megabytes at most.
_PILOT_ENTRIES = 3_000_000
# Directions beyond the number of topics, in which a stream catches what its first documents did not
# show.
_OVERSAMPLING = 30
# Words that travel for the certificate: on planted documents (V = 5,000, k = 50) distances of
# halves differ from those of all words by 0.5 % in the mean, by 14 % in the worst topic.
_ROWS = 1500
# Directions of more noise may be made by it alone.
_DOUBTFUL = 0.5
# What documents that follow the model are taken for something else by.
_LEVEL = 1e-3


@dataclass(frozen=True)
class TopicsModel(Model[TopicState]):
    """The settings of a topic model, and what its moments say.

    A subclass says what weighs the topics (`weigh`), and how they are refined.

    Attributes
    ----------
    n_features : int, V
    n_components : int or "auto"
    algorithm : for the whitened third moment, or "auto"
    refine : "auto", or the number of passes
    word_prior : float
    init : (k, V) topics in place of those of the moments, or None
    concentration : float, a of the moments, or None where they have to tell
    n_threads : int, of the refinement in memory
    caps : (V,) what the counts of every word are capped at in the moments, or None; refinement has
        the counts as they are
    """

    n_features: int
    n_components: int | str
    algorithm: Any
    refine: int | str
    word_prior: float
    init: Any
    concentration: float | None
    n_threads: int
    caps: Array | None = field(default=None, kw_only=True)

    kind: ClassVar[Kind] = Kind.DOCUMENTS
    pilot_size: ClassVar[int] = 100_000
    stream_size: ClassVar[int | None] = 10_000

    @property
    def assumed(self) -> float:
        """The concentration that the subspace belongs to, which it hardly turns."""
        return 1.0 if self.concentration is None else self.concentration

    @property
    def weighs_moments(self) -> bool:
        """Whether topics are weighed as they are read off, and not only once they are refined."""
        return True

    def is_pilot(self, held: Sequence[Batch]) -> bool:
        entries = sum(int(batch.rows.nnz) for batch in held)
        return entries >= _PILOT_ENTRIES or super().is_pilot(held)

    def check_streaming(self) -> None:
        if isinstance(self.n_components, str):
            raise InvalidInputError(
                "a stream needs the number of topics before it starts: give n_components as an "
                "integer, or use fit"
            )

    # ------------------------------------------------------------------ passes
    def survey(self, run: Run, streaming: bool) -> Frame:
        first = run.fold("reading", WordTotalSums(self.n_features))
        totals: WordTotals = first.finalize()
        if totals.n_tokens == 0:
            raise InvalidInputError(
                f"all {totals.n_documents} documents are empty: give documents with words"
            )
        count = int(self.n_components)
        used = totals.n_documents - totals.n_empty
        if used < count:
            raise NotIdentifiableError(
                f"n_components={count} exceeds the {used} documents with words: "
                "lower n_components or give more documents"
            )
        values: dict[str, Any] = {"count": count}
        known: dict[str, Folded] = {"totals": first}
        if self.init is not None:
            values["core"] = self.core(self.given_topics(count), totals)
            return Frame(values, known, float(totals.n_documents))
        rank = min(count + _OVERSAMPLING, self.n_features) if streaming else count

        def passes(name: str) -> Callable[[Any], Any]:
            if self.caps is None:
                return lambda start: run.fold(name, start)
            cut = partial(capped, caps=self.caps)
            return lambda start: run.fold(name, Mapped(start, cut)).inner

        subspace_pass, moment_pass, counted = passes("subspace"), passes("moments"), totals
        if self.caps is not None:
            counted = subspace_pass(WordTotalSums(self.n_features)).finalize()
        try:
            subspace = find_subspace(
                subspace_pass,
                counted,
                rank,
                run.rng("subspace"),
                concentration=self.assumed,
                at_least=count,
                before_refinement=self.refine != 0 and not streaming,
                loop=run.loop("subspace"),
            )
        except NotIdentifiableError:
            if count > 1:
                raise
            return Frame(values, known, float(totals.n_documents))
        # Documents to come may vary outside of the subspace that those so far have chosen.
        rows = None if streaming else WordRows.drawn(totals.totals, _ROWS, run.rng("words"))
        if rank > _MANY and self.algorithm == "auto" and not streaming:
            words: Any = power_sums(moment_pass, subspace, self.assumed, run.rng("slices"), rows)
        else:
            words = moment_pass(
                WordTripleSums(
                    subspace.basis, subspace.scale, subspace.cap, subspace.noisy, rows=rows
                )
            )
        # Other documents, or some of them, vary outside of the subspace of these.
        values["words"] = replace(words.empty(), rows=None)
        values["subspace"] = None if streaming else subspace
        return Frame(values, {**known, "words": words}, float(totals.n_documents))

    def core(self, topics: Array, totals: WordTotals) -> WordCoreSums:
        """The first two moments of the fractions that topics imply, in words of equal variance."""
        frequency = totals.totals / totals.n_tokens
        seen = frequency > 0
        scale = np.where(seen, 1 / np.sqrt(np.where(seen, frequency, 1.0)), 0.0)
        return WordCoreSums(
            dual_basis(topics * scale), scale, LENGTH_CAP * max(totals.mean_length, 1.0)
        )

    def select(self, run: Run, effort: Effort) -> Selection | None:
        if not isinstance(self.n_components, str):
            return None
        from latensor.models.topics.count import choose_count

        return choose_count(run, self)

    def with_selection(self, selection: Selection) -> Self:
        counted = self.with_count(selection.n_components)
        return replace(counted, caps=getattr(selection, "caps", None))

    def given_topics(self, count: int) -> Array:
        """The topics that the caller gave to start from, checked."""
        topics = np.array(self.init, dtype=np.float64)
        expected = (count, self.n_features)
        if topics.shape != expected:
            raise InvalidInputError(f"init must be topics of shape {expected}, got {topics.shape}")
        if not np.isfinite(topics).all() or (topics < 0).any() or not topics.sum(axis=1).all():
            raise InvalidInputError(
                "init must hold rows of non-negative finite numbers, none of them all zero"
            )
        return np.asarray(topics / topics.sum(axis=1, keepdims=True))

    def moments(self, frame: Frame) -> dict[str, Folded]:
        totals = {"totals": WordTotalSums(self.n_features)}
        return {**totals, **{n: frame[n] for n in ("core", "words") if n in frame.values}}

    # ------------------------------------------------------------------ from moments to topics
    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[TopicState]:
        totals: WordTotals = moments["totals"].finalize()
        evidence = {"totals": totals, "status": "moments only: no refinement was asked for"}
        if self.init is not None:
            core = moments["core"].finalize()
            topics = self.given_topics(frame["count"])
            state = self._state(topics, self.weigh(core.first, core.second, None), totals)
            return Answer(state, evidence)
        try:
            words = moments["words"]
            found = self.solve(words, words.finalize(), frame["count"], rng, self.concentration)
        except (KeyError, NotIdentifiableError):
            if frame["count"] > 1:
                raise
            # One topic is the frequency of words, whatever documents say of pairs.
            topics = totals.totals[None] / totals.n_tokens
            return Answer(self._state(topics, np.ones(1), totals), evidence)
        subspace = frame["subspace"]
        if subspace is None or (not frame.known and type(words) is WordTripleSums):
            # Of a stream: what all its documents say, along the directions that the first chose.
            subspace = subspace_of_sums(words, self.assumed, at_least=frame["count"])
        topics = as_probabilities(found.topics, totals.totals)
        weights = np.full(len(topics), 1 / len(topics))
        evidence |= {"found": found, "words": words, "subspace": subspace}
        if self.weighs_moments:
            follows = follow_the_model(evidence)
            weights = self.weigh(*implied_fractions(topics, words), found, follows)
        return Answer(self._state(topics, weights, totals), evidence)

    def _state(self, topics: Array, weights: Array, totals: WordTotals) -> TopicState:
        """Topics with the prior of the words, which always acts: no word is impossible."""
        tokens = totals.n_tokens * weights / weights.sum()
        sizes = tokens + self.word_prior * topics.shape[1]
        topics = (topics * tokens[:, None] + self.word_prior) / sizes[:, None]
        return TopicState(topics, weights, sizes, weights)

    def weigh(
        self, first: Array, second: Array, found: TopicMoments | None, follows: bool = False
    ) -> Array:
        """Weights (k,) of the topics from the first two moments of their fractions in documents.

        Parameters
        ----------
        first, second : E[h] (k,) and E[h h'] (k, k)
        found : what was read off, None for topics that come from elsewhere
        follows : bool, whether documents follow the model as far as they can tell
        """
        raise NotImplementedError(f"{type(self).__name__} must weigh its topics")

    def solve(
        self,
        words: WordTripleSums,
        moments: WordTriples | WordPowerMoments,
        count: int,
        rng: np.random.Generator,
        concentration: float | None,
    ) -> TopicMoments:
        """Topics as the moments give them."""
        if isinstance(moments, WordPowerMoments):
            return topics_from_powers(moments, words.basis, words.scale, self.assumed)
        return topics_from_moments(
            moments,
            words.basis,
            words.scale,
            count,
            rng,
            concentration=concentration,
            algorithm=None if self.algorithm == "auto" else self.algorithm,
        )

    # ------------------------------------------------------------------ candidates
    def candidate(self, units: Batch, start: Array, totals: WordTotals) -> TopicState:
        """Topics refined on documents in memory, from a start; for choosing their number."""
        raise NotImplementedError(f"{type(self).__name__} must refine its candidates")

    def score_halves(self, state: TopicState, counts: Any) -> tuple[Array, Array]:
        """Log-likelihoods (n,) of half the words of documents given the rest, and their numbers."""
        raise NotImplementedError(f"{type(self).__name__} must score documents")

    def document_fractions(self, state: TopicState, counts: Any) -> Array:
        """Fractions (n, k) of the topics in documents."""
        raise NotImplementedError(f"{type(self).__name__} must find mixtures")

    # ------------------------------------------------------------------ what users meet
    def order(self, frame: Frame, state: TopicState) -> Array:
        return np.argsort(-state.weights, kind="stable")

    def certify(
        self, evidence: Mapping[str, Any], topics: Array, rng: np.random.Generator, refined: bool
    ) -> TopicCertificate | None:
        """What the moments of two halves of the documents say about topics in their order."""
        if "found" not in evidence:
            return None
        found, words, totals = (evidence[name] for name in ("found", "words", "totals"))
        count, halves = len(topics), []
        # Of partitions, words that stand for all show how much the halves differ.
        rows = words.rows if words.is_closed else None
        chosen, weights = (slice(None), 1.0) if rows is None else (rows.index, rows.weights)

        def probabilities(found: TopicMoments) -> Array:
            seen = totals.totals[chosen] * weights
            shown: Array = as_probabilities(found.topics[:, chosen] * weights, seen)
            return shown

        for half in words.halves():
            try:
                part = self.solve(words, half, count, rng, found.concentration)
            except NotIdentifiableError:
                break
            halves.append(probabilities(part))
        whole = as_probabilities(found.topics, totals.totals)
        distances = np.full(count, np.nan)
        if len(halves) == 2:
            distances = split_half_distances(probabilities(found), *halves)
        noise = float(evidence["subspace"].noise[count - 1])
        return TopicCertificate(
            eigenvalue_ratio=1 / max(noise, 1e-300),
            split_half=distances[nearest_topics(topics, whole)],
            off_diagonal=found.off_diagonal,
            condition=float(found.spectrum[0] / found.spectrum[count - 1]),
            effective_size=words.core().effective_size,
            n_documents=totals.n_documents,
            n_empty=totals.n_empty,
            n_short=totals.n_short,
            refined=refined,
        )


def follow_the_model(evidence: Mapping[str, Any]) -> bool:
    """Whether the moments of documents are those of the model, as far as their halves can tell.

    No direction is doubtful, and what topics leave unexplained in one half is not found in the
    other: so with planted documents, and not with news, titles or mail of more than a few topics.
    """
    found, words = evidence["found"], evidence["words"]
    count = len(found.topics)
    if count < 2 or found.lift is None or not evidence["subspace"].noise[count - 1] < _DOUBTFUL:
        return False
    return repeated_misfit(found, words.halves(), words.basis) > _LEVEL


def implied_fractions(topics: Array, words: WordTripleSums) -> tuple[Array, Array]:
    """E[h] (k,) and E[h h'] (k, k) of the fractions that topics must have for these moments."""
    directions, core = dual_basis(topics * words.scale, words.basis), words.core()
    with one_blas_thread():
        return directions.T @ core.first, directions.T @ core.second @ directions
