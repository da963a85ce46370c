"""How many topics: the largest number that two halves of the documents find again.

The rule is that of `latensor.estimation.selection`; what is held out is half the words of every
document, given the rest, under the topics of the other half, and responsibilities are the fractions
of topics in all documents. "Small" asks besides that the topics themselves are reproduced, in
squared Hellinger distance. Where topics that start from capped counts predict the counts as they
are better, with two, four and eight topics together, the moments of the choice and of the fit are
those of capped counts (`bursts`); refinement and likelihood have the counts as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.arrays import Array
from latensor.estimation.halves import UNITS, halves_of, largest_count
from latensor.estimation.selection import (
    Evaluation,
    Selection,
    is_better,
    is_reproduced,
    ratios_of,
    reproduction,
    select,
)
from latensor.exceptions import NotIdentifiableError
from latensor.models.topics.bursts import BURSTS, word_caps
from latensor.models.topics.read_off import as_probabilities
from latensor.models.topics.refinement.documents import Documents
from latensor.models.topics.subspace import WordSubspace, find_subspace
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentBatch, capped
from latensor.moments.unit_sample import Sample
from latensor.moments.word_totals import WordTotals, WordTotalSums
from latensor.moments.word_triples import WordTripleSums
from latensor.value_files import storable

if TYPE_CHECKING:
    from latensor.estimation.run import Run
    from latensor.models.topics.families import TopicState
    from latensor.models.topics.model import TopicsModel


# Numbers of topics that together must be predicted better from capped counts, and none of them
# worse: on planted documents, and on text without bursts, one of them is (z of -5.5 to 4).
_JUDGED_BY = (2, 4, 8)


@storable
@dataclass(frozen=True)
class TopicCount(Selection):
    """A number of topics and what spoke for it.

    Attributes
    ----------
    spectrum : (m,) eigenvalues of the second moment, decreasing
    noise : (m',) whitened noise among the first 1, 2, ... directions
    caps : (V,) what the counts of every word were capped at in the moments; None where they were
        taken as they are
    """

    spectrum: Any = ()
    noise: Any = ()
    caps: Any = None

    @property
    def perplexities(self) -> tuple[float, ...]:
        """The perplexity of held-out words for every number tried."""
        return tuple(float(np.exp(-row.held_out)) for row in self.table)

    @property
    def errors(self) -> tuple[float, ...]:
        """The standard errors of the perplexities over documents."""
        return tuple(p * row.error for p, row in zip(self.perplexities, self.table, strict=True))

    def __str__(self) -> str:
        lines = [f"{self.n_components} topics: {self.reason}"]
        for row, value, error in zip(self.table, self.perplexities, self.errors, strict=True):
            k = row.n_components
            lines.append(
                f"{k:6d} topics   held-out perplexity {value:10.1f} +- {error:.1f}"
                f"   {row.n_reproduced} of {k} found in both halves"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "spectrum": [float(v) for v in self.spectrum]}


def choose_count(run: Run, model: TopicsModel) -> TopicCount:
    """The number of topics of some documents, with the evidence.

    Parameters
    ----------
    run : the documents; up to 20,000 of them are looked at
    model : says how topics are refined and scored
    """
    units = run.fold("number of topics", Sample(UNITS, run.seed)).in_order()
    units = units.take(np.flatnonzero(np.diff(units.rows.indptr) > 0))
    # By their words: a document that was given several times is in one half.
    units = replace(units, keys=Documents.of(units.rows, units.rows.dtype).keys(run.seed))
    parts = halves_of(units, run.seed)
    limit = min(largest_count(parts), model.n_features)
    if limit < 2:
        return TopicCount(1, f"{len(units)} documents with words are too few to tell more apart")
    try:
        halves = [_Half(run, model, part, limit) for part in parts]
        caps = _caps_of_bursts(run, model, units, halves)
        if caps is not None:
            halves = [_Half(run, model, part, limit, caps) for part in parts]
    except NotIdentifiableError:
        return TopicCount(1, "words of a document tell nothing of each other")
    divisions = {0: halves}

    def evaluate(k: int, division: int) -> Evaluation | None:
        try:
            if division not in divisions:
                others = halves_of(units, run.seed, division)
                divisions[division] = [_Half(run, model, part, limit, caps) for part in others]
            return _evaluated(run, model, units, divisions[division], k)
        except NotIdentifiableError:
            return None

    found = select(
        evaluate,
        min(limit, *(h.rank for h in halves)),
        where="documents",
        small="the word lists must agree too",
        also="and the word lists agree",
    )
    if caps is not None:
        found = replace(found, reason=f"{found.reason}; {BURSTS}")
    subspace = halves[0].subspace
    return TopicCount(**vars(found), spectrum=subspace.spectrum, noise=subspace.noise, caps=caps)


def _caps_of_bursts(
    run: Run, model: TopicsModel, units: Batch, halves: list[_Half]
) -> Array | None:
    """What counts are capped at, where that predicts better in both halves at all numbers; or None.

    Topics of the moments alone are never those of capped counts, which follow no model.
    """
    caps, rows = word_caps(units), units.rows
    numbers = [k for k in _JUDGED_BY if k <= min(half.rank for half in halves)]
    is_capped = rows.data > caps[rows.indices]
    if model.refine == 0 or len(numbers) < len(_JUDGED_BY) or not is_capped.any():
        return None
    tamed = [_Half(run, model, half.units, max(numbers), caps) for half in halves]
    cut = len(halves[1].units)
    for k in numbers:
        one, plain = (_evaluated(run, model, units, each, k) for each in (tamed, halves))
        if one is None or plain is None:
            return None
        # Both fits of a half may end in different optima, which all of its documents then show.
        for part in (slice(cut), slice(cut, None)):
            if not is_better(_those(one, part), _those(plain, part)):
                return None
    return caps


def _those(found: Evaluation, part: slice) -> Evaluation:
    """What an evaluation says of some of the documents."""
    return replace(found, scores=found.scores[part], weights=found.weights[part])


def _evaluated(
    run: Run, model: TopicsModel, units: Batch, halves: list[_Half], k: int
) -> Evaluation | None:
    """Both halves fitted; None where their moments do not support so many topics."""
    try:
        states = [half.fitted(model, k, run.rng(f"{k} topics")) for half in halves]
    except NotIdentifiableError:
        return None
    other = (halves[1].units, halves[0].units)
    scored = [model.score_halves(s, part.rows) for s, part in zip(states, other, strict=True)]
    scores, tokens = (np.concatenate(values) for values in zip(*scored, strict=True))
    roots = np.sqrt(units.weights)[:, None]
    ratios = reproduction(*(model.document_fractions(s, units.rows) * roots for s in states))
    weights = np.concatenate([part.weights for part in other])
    run.tell("number of topics")
    return Evaluation(scores, tokens, weights, ratios, _words_agree(states))


class _Half:
    """The moments of a half of the documents, taken once along as many directions as may matter."""

    def __init__(
        self, run: Run, model: TopicsModel, units: Batch, limit: int, caps: Array | None = None
    ) -> None:
        self.units = DocumentBatch(units.parts, units.weights, units.keys)
        inside = run.on(self.units if caps is None else capped(self.units, caps))

        def fold(start: Any) -> Any:
            return inside.fold("number of topics", start)

        self.totals: WordTotals = fold(WordTotalSums(model.n_features)).finalize()
        self.subspace: WordSubspace = find_subspace(
            fold,
            self.totals,
            min(limit, int(np.count_nonzero(self.totals.totals))),
            run.rng("number of topics"),
            concentration=model.assumed,
            at_least=1,
            before_refinement=True,
        )
        found = self.subspace
        self.words = fold(WordTripleSums(found.basis, found.scale, found.cap, found.noisy))
        self.moments = self.words.finalize()
        self.rank = int(found.basis.shape[1])

    def fitted(self, model: TopicsModel, k: int, rng: np.random.Generator) -> TopicState:
        """The topics of this half."""
        if k == 1:
            start = (self.totals.totals / self.totals.totals.sum())[None]
        else:
            found = model.solve(self.words, self.moments, k, rng, model.concentration)
            start = as_probabilities(found.topics, self.totals.totals)
        return model.candidate(self.units, start, self.totals)


def _words_agree(states: list[TopicState]) -> bool:
    """Whether the topics themselves are reproduced, in squared Hellinger distance."""
    one, other = (np.sqrt(state.topics, dtype=np.float64) for state in states)
    ratios = ratios_of(2 - 2 * one @ other.T, 2 - 2 * one @ one.T, 2 - 2 * other @ other.T)
    return is_reproduced(ratios)
