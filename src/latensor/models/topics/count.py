"""How many topics: the largest number that two halves of the documents find again.

For a candidate k both halves are fitted. Two things are taken from the same two fits. *Held-out
likelihood*: half the words of every document, given the rest, under the topics of the other half;
numbers are compared document by document, D(k, k') = sum_i w_i [l_i(k) - l_i(k')] with its
standard error. *Reproduction*: both models are applied to all documents; with u_i the column of
shares of topic i scaled to length one and d2(i, j) = 1 - u_i . u_j, topic i of one half and its
partner in the other are one topic where 4 d2(partners) < d2 to the nearest other topic. A half has
twice the variance of the whole: balls of two standard errors around neighbours then do not meet.

The answer is the largest k that predicts no worse than the best by two standard errors of a
smaller one, and whose topics are all reproduced. One topic is reproduced by definition.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from latensor.arrays import Array
from latensor.exceptions import NotIdentifiableError
from latensor.models.topics.read_off import as_probabilities
from latensor.models.topics.subspace import WordSubspace, find_subspace
from latensor.moments.batch import Batch, mixed
from latensor.moments.documents import DocumentBatch
from latensor.moments.unit_sample import Sample
from latensor.moments.word_totals import WordTotals, WordTotalSums
from latensor.moments.words import WordTripleSums
from latensor.value_files import storable

if TYPE_CHECKING:
    from latensor.estimation.run import Run
    from latensor.models.topics.families import TopicState
    from latensor.models.topics.model import TopicsModel

# Documents that the choice is made on: enough to tell likelihoods apart, few enough to be quick.
_DOCUMENTS = 20_000
_LARGEST = 64
# Documents of a half for every topic.
_DOCUMENTS_A_TOPIC = 20
# Standard errors by which a likelihood must differ.
_ERRORS = 2.0
# Doublings in a row without gain that end the search: with one, six unequal topics stopped at 3.
_PATIENCE = 2
_STEP_DOWN = 1.2
# Balls of two standard errors around neighbours do not meet.
_APART = 4.0


@storable
@dataclass(frozen=True)
class CountTried:
    """One number of topics that was tried.

    Attributes
    ----------
    n_components : int
    held_out : float, log-likelihood of a held-out word
    perplexity, error : float, of held-out words, and its standard error over documents
    n_reproduced : int, topics that both halves find
    worst : float, the largest d2(partners) / d2(nearest other topic); reproduced below 1/4
    seconds : float
    """

    n_components: int
    held_out: float
    perplexity: float
    error: float
    n_reproduced: int
    worst: float
    seconds: float

    @property
    def is_reproduced(self) -> bool:
        """Whether both halves find all topics."""
        return self.n_reproduced == self.n_components


@storable
@dataclass(frozen=True)
class TopicCount:
    """A number of topics and what spoke for it.

    Attributes
    ----------
    n_components : int
    reason : str, in one sentence
    spectrum : (m,) eigenvalues of the second moment, decreasing
    noise : (m',) whitened noise among the first 1, 2, ... directions
    candidates, perplexities, errors : tuples, the numbers tried, the perplexity of held-out words
        and its standard error over documents
    choices : "small" (word lists agree too), "medium" (the answer) and "large" (the fewest that
        predict as well as the best)
    limit_reached : bool, whether more topics than were tried might predict better
    table : a CountTried for every number tried
    ratios : (k,) d2(partners) / d2(nearest other topic) of the topics at the answer
    n_fits : int, fits of a half
    """

    n_components: int
    reason: str
    spectrum: Any
    noise: Any
    candidates: tuple[int, ...] = ()
    perplexities: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    choices: dict[str, int] = field(default_factory=dict)
    limit_reached: bool = False
    table: tuple[CountTried, ...] = ()
    ratios: Any = None
    n_fits: int = 0

    def __str__(self) -> str:
        lines = [f"{self.n_components} topics: {self.reason}"]
        found = {row.n_components: row for row in self.table}
        errors = self.errors or (None,) * len(self.candidates)
        for k, value, error in zip(self.candidates, self.perplexities, errors, strict=True):
            line = f"{k:6d} topics   perplexity {value:10.1f}"
            line += "" if error is None else f" +- {error:.1f}"
            if k in found:
                line += f"   {found[k].n_reproduced} of {k} found in both halves"
            lines.append(line)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and strings."""
        return {
            "n_components": self.n_components,
            "reason": self.reason,
            "choices": dict(self.choices),
            "limit_reached": self.limit_reached,
            "n_fits": self.n_fits,
            "table": [vars(row) for row in self.table],
            "ratios": None if self.ratios is None else [float(r) for r in self.ratios],
            "spectrum": [float(v) for v in self.spectrum],
        }


def choose_count(run: Run, model: TopicsModel, totals: WordTotals) -> TopicCount:
    """The number of topics of some documents, with the evidence.

    Parameters
    ----------
    run : the documents; up to 20,000 of them are looked at
    model : says how topics are refined and scored
    totals : of all documents
    """
    sample: Sample = run.fold("number of topics", Sample(_DOCUMENTS, run.seed))
    units = sample.in_order()
    units = units.take(np.flatnonzero(np.diff(units.rows.indptr) > 0))
    marks = mixed(units.keys, run.seed + 1) % np.uint64(2) == 0
    parts = [units.take(np.flatnonzero(marks)), units.take(np.flatnonzero(~marks))]
    limit = min(_LARGEST, min(map(len, parts)) // _DOCUMENTS_A_TOPIC, model.n_features)
    if limit < 2:
        reason = f"{len(units)} documents with words are too few to tell more apart"
        return TopicCount(1, reason, np.zeros(0), np.zeros(0), choices=_same(1))
    try:
        halves = [_Half(run, model, part, limit) for part in parts]
    except NotIdentifiableError:
        reason = "words of a document tell nothing of each other"
        return TopicCount(1, reason, np.zeros(0), np.zeros(0), choices=_same(1))
    search = _Search(run, model, units, halves, min(limit, *(h.rank for h in halves)))
    return search.answer(halves[0].subspace)


def _same(k: int) -> dict[str, int]:
    return {"small": k, "medium": k, "large": k}


class _Half:
    """The moments of a half of the documents, taken once along as many directions as may matter."""

    def __init__(self, run: Run, model: TopicsModel, units: Batch, limit: int) -> None:
        self.units = DocumentBatch(units.parts, units.weights, units.keys)
        inside = run.on(self.units)

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


class _Search:
    """Numbers of topics that are tried, each once."""

    def __init__(
        self, run: Run, model: TopicsModel, units: Batch, halves: list[_Half], limit: int
    ) -> None:
        self._run, self._model, self._units, self._halves = run, model, units, halves
        self.limit = limit
        self.tried: dict[int, CountTried] = {}
        self._scores: dict[int, tuple[Array, Array]] = {}
        self._ratios: dict[int, Array] = {}
        self._agrees: dict[int, bool] = {}

    def answer(self, subspace: WordSubspace) -> TopicCount:
        """The largest reproduced number that is worth its topics."""
        best = self._best()
        large = min(k for k in self.tried if not self._is_better(best, k))
        medium = self._largest_reproduced(large)
        small = max(k for k in self.tried if k <= medium and self._agrees[k])
        limit_reached = best == self.limit
        rows = tuple(self.tried[k] for k in sorted(self.tried))
        return TopicCount(
            medium,
            self._reason(medium, small, large, limit_reached),
            subspace.spectrum,
            subspace.noise,
            tuple(row.n_components for row in rows),
            tuple(row.perplexity for row in rows),
            tuple(row.error for row in rows),
            {"small": small, "medium": medium, "large": large},
            limit_reached,
            rows,
            self._ratios[medium],
            2 * len(rows),
        )

    def _reason(self, medium: int, small: int, large: int, limit_reached: bool) -> str:
        text = "each was found again in the other half of the documents"
        if medium == 1:
            text = "no more than one was found again in the other half of the documents"
        if small < medium:
            text += f"; {small} if the word lists must agree too"
        if large != medium:
            more = f"{large} or more predict" if limit_reached else f"{large} predict"
            text += f"; {more} best"
        return text

    # ------------------------------------------------------------------ the search
    def _best(self) -> int:
        """The number that predicts best: by doubling, then between the neighbours of the best."""
        best, failures, k = 1, 0, 1
        self._try(1)
        while failures < _PATIENCE and k < self.limit:
            k = min(2 * k, self.limit)
            if not self._try(k):
                break
            if self._is_better(k, best):
                best, failures = k, 0
            else:
                failures += 1
        low, high = max(best // 2, 1), min(2 * best, self.limit)
        while high - low > 2:
            left, right = low + (high - low) // 3, high - (high - low) // 3
            if not self._try(right):
                high = right
            elif not self._try(left) or self._mean(right) > self._mean(left):
                low = left
            else:
                high = right
        for k in range(low, high + 1):
            self._try(k)
        return max(self.tried, key=self._mean)

    def _largest_reproduced(self, large: int) -> int:
        """Down from the number that predicts as well as the best; then what was left out above."""
        k, above = large, large + 1
        while k > 1 and not (self._try(k) and self.tried[k].is_reproduced):
            above, k = k, min(k - 1, int(k / _STEP_DOWN))
        for other in range(above - 1, k, -1):
            if self._try(other) and self.tried[other].is_reproduced:
                return other
        return k

    def _mean(self, k: int) -> float:
        return self.tried[k].held_out

    def _is_better(self, k: int, other: int) -> bool:
        """Whether k topics predict better than another number, by two standard errors."""
        scores, weights = self._scores[k]
        difference = (scores - self._scores[other][0]) * weights
        error = np.sqrt(len(difference)) * float(np.std(difference))
        return bool(difference.sum() > _ERRORS * error)

    # ------------------------------------------------------------------ one number
    def _try(self, k: int) -> bool:
        """Fit both halves; False where their moments do not support so many topics."""
        if k in self.tried:
            return True
        began = time.perf_counter()
        try:
            states = [
                half.fitted(self._model, k, self._run.rng(f"{k} topics")) for half in self._halves
            ]
        except NotIdentifiableError:
            return False
        other = (self._halves[1].units, self._halves[0].units)
        scores, tokens = (
            np.concatenate(values)
            for values in zip(
                *(
                    self._model.score_halves(state, units.rows)
                    for state, units in zip(states, other, strict=True)
                ),
                strict=True,
            )
        )
        weights = np.concatenate([units.weights for units in other])
        total = float(tokens @ weights)
        mean = float(scores @ weights) / total if total > 0 else 0.0
        residuals = (scores - mean * tokens) * weights
        error = float(np.sqrt((residuals**2).sum())) / max(total, 1.0)
        self._ratios[k] = self._reproduced(states)
        self._agrees[k] = k == 1 or bool((self._ratios[k] * _APART < 1).all())
        self._agrees[k] = self._agrees[k] and (k == 1 or _words_agree(states))
        reproduced = int(np.count_nonzero(self._ratios[k] * _APART < 1))
        perplexity = float(np.exp(-mean))
        self._scores[k] = scores, weights
        self.tried[k] = CountTried(
            k,
            mean,
            perplexity,
            perplexity * error,
            reproduced,
            float(self._ratios[k].max()),
            time.perf_counter() - began,
        )
        self._run.tell("number of topics")
        return True

    def _reproduced(self, states: list[TopicState]) -> Array:
        """d2(partners) / d2(nearest other topic) (k,), of the shares in all documents."""
        if len(states[0].topics) == 1:
            return np.zeros(1)
        roots = np.sqrt(self._units.weights)[:, None]
        columns = []
        for state in states:
            shares = self._model.responsibilities(state, self._units.rows) * roots
            norms = np.linalg.norm(shares, axis=0)
            columns.append(shares / np.where(norms > 0, norms, 1.0))
        return _ratios(*(1 - a.T @ b for a, b in _pairs(columns)))


def _pairs(columns: list[Array]) -> list[tuple[Array, Array]]:
    first, second = columns
    return [(first, second), (first, first), (second, second)]


def _ratios(between: Array, first: Array, second: Array) -> Array:
    """Distances of partners over those to the nearest other topic, from distances (k, k)."""
    partner = linear_sum_assignment(between)[1]
    own = np.maximum(between[np.arange(len(partner)), partner], 0.0)
    for within in (first, second):
        np.fill_diagonal(within, np.inf)
    apart = np.minimum(first.min(axis=1), second.min(axis=1)[partner])
    return np.asarray(own / np.maximum(apart, np.finfo(float).tiny))


def _words_agree(states: list[TopicState]) -> bool:
    """Whether the topics themselves are reproduced, in squared Hellinger distance."""
    roots = [np.sqrt(state.topics, dtype=np.float64).T for state in states]
    ratios = _ratios(*(2 - 2 * a.T @ b for a, b in _pairs(roots)))
    return bool((ratios * _APART < 1).all())
