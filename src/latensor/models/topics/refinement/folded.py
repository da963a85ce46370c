"""Refinement of topics by passes over any source: every pass is a fold, and keeps no document.

A pass finds the mixture of every document anew, leaves out what a token itself says, and sums the
counts of words on topics. The next pass starts from counts that go ahead of the last ones. In the
same pass documents that were held out are scored, and say when to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.models.topics.families import MixedTopicsFamily, TopicState
from latensor.models.topics.refinement.corpus import HeldOut, Selected
from latensor.models.topics.refinement.document_mixtures import expected_topic_counts
from latensor.models.topics.refinement.documents import Documents, Workers
from latensor.models.topics.refinement.held_out import halves, log_likelihoods
from latensor.moments.batch import Batch
from latensor.moments.sums import Joint, Sums
from latensor.refinement.em import Loop
from latensor.refinement.family import Statistics
from latensor.value_files import storable

# Counts that go ahead by 0.9 of the last step reach in 20 passes what plain ones reach in 60 (BBC,
# 20 newsgroups); 0.5 is slower and 0.95 no faster. The first two passes go far enough by
# themselves.
_MOMENTUM = 0.9
_PASSES_BEFORE_MOMENTUM = 2
# Passes end when the last three have lowered the perplexity of held-out documents by less than a
# thousandth each; counts that go ahead may pause for two.
_PATIENCE = 3
_WORTHWHILE = 1e-3
_MOST_PASSES = 60
# Passes where nothing is held out.
_PASSES_WITHOUT_A_SLICE = 10
# Steps for the mixtures of documents held out: far from converged costs nothing in comparing.
_STEPS = 20


@dataclass(frozen=True, eq=False)
class CompletionSums(Sums):
    """The score of second halves of documents, given the first, under topics.

    Attributes
    ----------
    state : TopicState
    prior : float or (k,), of the mixtures
    seed : int, chooses the halves
    """

    state: TopicState
    prior: Any
    seed: int

    def summed(self, batch: Batch) -> dict[str, Any]:
        documents = Documents.of(batch.rows, np.float32, batch.weights)
        known, scored = halves(documents, self.seed)
        k = len(self.state.topics)
        table = self.state.probabilities
        prior = np.full(k, self.prior, np.float32)
        with Workers(1) as workers:
            expected = expected_topic_counts(known, table, prior, _STEPS, 0.0, workers)
            scores = log_likelihoods(scored, table, prior, expected, workers)
        weights = documents.weights.astype(np.float64)
        return {"score": float(scores @ weights), "tokens": float(scored.lengths @ weights)}

    @property
    def perplexity(self) -> float:
        """Of a token; NaN where none was scored."""
        if self.sums is None or not self.sums["tokens"] > 0:
            return float("nan")
        with np.errstate(over="ignore"):
            return float(np.exp(-self.sums["score"] / self.sums["tokens"]))


@dataclass(frozen=True, eq=False)
class FoldedTopics:
    """Topics after passes over a source.

    Attributes
    ----------
    statistics : Statistics of all documents at the best topics that were met; the refined topics
        are those that maximize them
    history : perplexities of the documents held out, before every pass
    n_passes : int
    status : str, why the passes ended
    """

    statistics: Statistics[TopicState]
    history: Array
    n_passes: int
    status: str


@storable
@dataclass(frozen=True, eq=False)
class _Passes:
    """Where passes over a source have come to.

    Attributes
    ----------
    state, best : TopicState of the next pass, and the best that was met
    before : statistics of the last pass, None before the first
    history : perplexities of the documents held out
    number : int, passes made
    is_over : bool, whether documents held out gain no more
    """

    state: TopicState
    best: TopicState
    before: dict[str, Any] | None = None
    history: tuple[float, ...] = ()
    number: int = 0
    is_over: bool = False

    def judged(self, perplexity: float) -> _Passes:
        """With the perplexity of the documents held out at the present topics."""
        history = (*self.history, perplexity)
        best = self.state if perplexity <= min(history) else self.best
        return replace(self, history=history, best=best, is_over=_is_over(history))

    def next(self, family: MixedTopicsFamily, sums: dict[str, Any]) -> _Passes:
        """With the topics of the next pass: N + 0.9 (N - previous N) in place of N."""
        ahead = sums
        if self.before is not None and self.number + 1 >= _PASSES_BEFORE_MOMENTUM:
            words = sums["words"] + _MOMENTUM * (sums["words"] - self.before["words"])
            ahead = {**sums, "words": words}
        state = _single(family.maximize(ahead, self.state))
        return replace(self, state=state, before=sums, number=self.number + 1)


def _is_over(history: tuple[float, ...]) -> bool:
    if len(history) <= _PATIENCE:
        return False
    earlier = min(history[:-_PATIENCE])
    return min(history) > earlier * (1 - _PATIENCE * _WORTHWHILE)


def refine_by_folds(
    fold: Callable[[Any], Any],
    family: MixedTopicsFamily,
    start: TopicState,
    passes: int | str,
    choice: HeldOut,
    loop: Loop | None = None,
) -> FoldedTopics:
    """Improve topics by passes over a source.

    Parameters
    ----------
    fold : makes a pass
    family, start : the statistics, and the topics to start from
    passes : int, exactly so many over all documents; or "auto", until those held out gain no more
    choice : which documents are held out; the starting topics must not have seen them
    loop : where the state after every pass is kept, and taken up again
    """
    loop = loop or Loop()
    judged = passes == "auto" and choice.limit > 0
    most = _MOST_PASSES if judged else _PASSES_WITHOUT_A_SLICE if passes == "auto" else int(passes)
    choice = choice if judged else HeldOut(choice.seed, 0)
    # Tables are read in single precision: so are topics sent.
    at = loop.state or _Passes(_single(start), _single(start))
    while at.number < most and not at.is_over:
        wanted: dict[str, Any] = {"training": Selected(Statistics(family, at.state), choice)}
        if judged:
            scored = CompletionSums(at.state, family.document_prior, choice.seed)
            wanted["held out"] = Selected(scored, choice, held_out=True)
        found = fold(Joint(wanted))
        if judged:
            at = at.judged(found["held out"].inner.perplexity)
        if not at.is_over:
            at = at.next(family, found["training"].inner.seen())
        loop.commit(at)
    status = f"{most} passes made"
    if at.is_over:
        status = f"held-out documents gained no more after pass {at.number}"
    final = fold(Statistics(family, at.best if judged else at.state))
    return FoldedTopics(final, np.array(at.history), at.number + 1, status)


def _single(state: TopicState) -> TopicState:
    return replace(state, topics=state.topics.astype(np.float32))
