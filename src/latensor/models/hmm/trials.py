"""Several starts, a few passes of EM each, and the best of them carried on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from latensor.estimation.model import Search
from latensor.moments.batch import Batch
from latensor.refinement.em import Fold, Reached, em
from latensor.refinement.family import Statistics
from latensor.refinement.hmm import HiddenChain

# Passes of the trial of all starts, and of that of the finalists; and how many these are.
_FIRST, _SECOND = 12, 30
_FINALISTS = 2
# A start is judged by where it will be, at its pace over so many passes, after so many times as
# many.
_LATELY, _AHEAD = 3, 2.0
# Rows per free parameter that trials are run on, and their number at least and at most.
_ROWS_PER_PARAMETER = 100
_FEWEST_ROWS, _MOST_ROWS = 6_000, 100_000
# Rows at least where a first round leaves a doubt: what states of thousands of rows are told by.
_CLOSER_ROWS = 24_000
# The fraction of these rows that the first trial sees.
_FIRST_FRACTION = 0.4
_PIECE = 4096
# Log-likelihood per row: what is left to gain, and below which two starts are the same.
_TOLERANCE = 1e-6
_EQUAL = 5e-5
# Up to so many states all orders of them are tried; what a step that was ruled out counts as.
_ALL_ORDERS = 7
_IMPOSSIBLE = 1e-6


@dataclass(frozen=True)
class Start:
    """A model to start EM from."""

    name: str
    chain: HiddenChain
    of_moments: ClassVar[bool] = False


@dataclass(frozen=True)
class Chosen:
    """The start that did best, where its trials led, and what all in the last round reached."""

    start: Start
    chain: HiddenChain
    trials: Mapping[str, float] = field(default_factory=dict)


def subset(units: Batch, limit: int) -> Batch:
    """At most about `limit` rows, in pieces spread evenly over all sequences.

    Long sequences are cut: where a piece begins matters little beside what happens inside it.
    """
    n_rows = units.extent
    if n_rows <= limit:
        return units
    pieces, owners = units.rows.cut(_PIECE, 0)
    sizes = pieces.sizes
    # Take a piece whenever the fraction of rows so far asks for another one.
    reached = np.floor(np.cumsum(sizes) * limit / n_rows / max(float(sizes.mean()), 1.0))
    taken = np.flatnonzero(np.diff(reached, prepend=0) > 0)
    taken = taken if len(taken) else np.array([0])
    chosen = owners[taken]
    return Batch((pieces[taken],), units.weights[chosen], units.keys[chosen])


def trial_rows(chain: HiddenChain, fewest: int = _FEWEST_ROWS) -> int:
    """How many rows trials of a model of this size need."""
    k = len(chain.startprob)
    wanted = _ROWS_PER_PARAMETER * (k * k + chain.emission.n_parameters)
    return int(np.clip(wanted, fewest, _MOST_ROWS))


def doubtful_rows(chain: HiddenChain) -> int:
    """How many rows a model of this size needs where a first round leaves a doubt."""
    return trial_rows(chain, _CLOSER_ROWS)


def likeliest(starts: Sequence[Start], search: Search[HiddenChain], units: Batch) -> Chosen:
    """The start under which a part of the rows is likeliest as it is."""
    if len(starts) == 1:
        return Chosen(starts[0], starts[0].chain)
    fold = search.folds(subset(units, trial_rows(starts[0].chain)))
    trials = {start.name: _value(search, fold, start.chain) for start in starts}
    best = max(starts, key=lambda start: trials[start.name])
    return Chosen(best, best.chain, trials)


def compete(
    starts: Sequence[Start],
    others: Callable[[int], Sequence[Start]],
    explains: Callable[[HiddenChain, int], bool],
    search: Search[HiddenChain],
    units: Batch,
    soften: Callable[[HiddenChain], HiddenChain],
    n_rounds: int,
) -> Chosen:
    """The start that EM leads highest on a part of the rows, in rounds until nothing is in doubt.

    A round is two trials: all starts for a few passes, then the best of them for more. No other one
    follows where the best one explains its rows. Where a model only summarizes them, or moments do
    not determine it, the likelihood has many optima: there two starts must agree, of which one at
    most is of the moments, whose starts resemble each other.

    Parameters
    ----------
    starts : models to start from
    others : further ones, of the round of that number
    explains : whether moments determine the states, and rows are independent given those of a
        model learned from so many rows
    search : the sample that the fit goes on with, and its family
    units : the different sequences of the sample
    soften : makes a start one that EM can work on, without zeros that are not meant
    n_rounds : int, at most
    """
    limit = trial_rows(starts[0].chain)
    part = subset(units, limit)
    few = search.folds(subset(units, max(int(_FIRST_FRACTION * limit), _FEWEST_ROWS)))
    more = search.folds(part)

    def run(chain: HiddenChain, fold: Fold[HiddenChain], passes: int) -> Reached[HiddenChain]:
        return em(fold, search.family, chain, max_iter=passes, tol=_TOLERANCE, prepared=True)

    finalists: list[Start] = []
    found: dict[str, Reached[HiddenChain]] = {}
    for number in range(n_rounds):
        tried = others(number) if number else starts
        first = {start.name: run(soften(start.chain), few, _FIRST) for start in tried}
        for start in best_of(tried, first, _FINALISTS):
            found[start.name] = run(first[start.name].state, more, _SECOND)
            finalists.append(start)
        ranked = sorted(finalists, key=lambda start: -max(found[start.name].history))
        if number == n_rounds - 1 or _agree(ranked, found):
            break
        if explains(found[ranked[0].name].state, part.extent):
            break
        if not number:
            part = subset(units, doubtful_rows(starts[0].chain))
            few = more = search.folds(part)
            found = {name: run(each.state, more, _SECOND) for name, each in found.items()}
    trials = {name: max(em_fit.history) for name, em_fit in found.items()}
    highest = max(trials.values())
    # Starts that have come as high as each other are the same: then the first, of the moments.
    best = next(start for start in finalists if trials[start.name] >= highest - _EQUAL)
    chain = found[best.name].state
    if part.extent < units.extent:
        # The moments have seen all rows, the trials only some: go on from what suits all of them.
        # What some of them lack is not impossible.
        chain, raw = soften(chain), soften(best.chain)
        if _value(search, search.fold, chain) < _value(search, search.fold, raw):
            chain = raw
    return Chosen(best, chain, trials)


def _agree(ranked: Sequence[Start], found: Mapping[str, Reached[HiddenChain]]) -> bool:
    """Whether two starts have come as high as each other, and higher than any."""
    others = [start for start in ranked[1:] if not (start.of_moments and ranked[0].of_moments)]
    first, *second = (max(found[start.name].history) for start in (ranked[0], *others[:1]))
    return bool(second) and first - second[0] <= _EQUAL


def best_of(
    starts: Sequence[Start], found: Mapping[str, Reached[HiddenChain]], count: int
) -> list[Start]:
    """The most promising ones and the highest so far, in their old order."""
    ranked = sorted(starts, key=lambda start: -promise(found[start.name].history))
    highest = max(starts, key=lambda start: max(found[start.name].history))
    chosen = {start.name for start in ranked[:count]} | {highest.name}
    return [start for start in starts if start.name in chosen]


def promise(history: Sequence[float], ahead: float = _AHEAD) -> float:
    """Where EM will be that goes on as it has gone lately, so many times as long.

    The highest after few passes are often those that have stopped to rise.
    """
    reached = np.maximum.accumulate(history)
    if np.isinf(reached[-1]):
        return float(reached[-1])  # impossible rows: a start with zeros that are meant
    lately = reached[-1] - reached[max(len(reached) - 1 - _LATELY, 0)]
    return float(reached[-1] + ahead * lately)


def _value(search: Search[HiddenChain], fold: Fold[Any], chain: HiddenChain) -> float:
    return fold(Statistics(search.family, chain, True)).value


def relabelled(chain: HiddenChain, given: HiddenChain, weights: Any) -> HiddenChain:
    """The states of a start in the order in which a given start and transition fits them best.

    By the expected complete likelihood of the given chain: the best of all orders where there are
    few, otherwise swaps of two states as long as it rises.

    Parameters
    ----------
    chain : what was found without labels
    given : with the start and transition probabilities that were given
    weights : (k,), how often every state of `chain` is visited
    """
    start, steps = np.log(given.startprob + _IMPOSSIBLE), np.log(given.transmat + _IMPOSSIBLE)
    counts = weights[:, None] * chain.transmat

    def fit(order: Sequence[int]) -> float:
        places = list(order)
        moved = counts[np.ix_(places, places)]
        return float((moved * steps).sum() + chain.startprob[places] @ start)

    order = list(range(len(weights)))
    if len(order) <= _ALL_ORDERS:
        orders = [list(each) for each in itertools.permutations(order)]
        return chain.reordered(max(orders, key=fit))
    pairs = list(itertools.combinations(order, 2))
    improved = True
    while improved:
        improved = False
        for i, j in pairs:
            other = order.copy()
            other[i], other[j] = other[j], other[i]
            if fit(other) > fit(order) + 1e-12:
                order, improved = other, True
    return chain.reordered(order)
