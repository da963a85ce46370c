"""Several starts, a few passes each, and the best of them carried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latensor.refinement.hmm import (
    Climb,
    HiddenChain,
    Sequences,
    climb,
    rearranged,
    total_likelihood,
)

# Passes of a first look at all starts, of another at those that are not hopeless, and of the trial
# of the finalists; and how many these are.
_GLANCE, _FIRST, _SECOND = 6, 6, 30
_FINALISTS = 2
# A start is judged by where it will be, at its pace over so many passes, after so many times as
# many; it is hopeless where even after that many more it will not be where the best one is.
_LATELY, _AHEAD, _HOPE = 3, 2.0, 6.0
# Passes that a move to another optimum is given to pay off.
_MOVE = 12
# Rows per free parameter that trials are run on, and their number at least and at most.
_ROWS_PER_PARAMETER = 100
_FEWEST_ROWS, _MOST_ROWS = 6_000, 100_000
# The share of these rows that the first trial sees.
_FIRST_SHARE = 0.4
_PIECE = 4096
# Per row and pass.
_TRIAL_TOLERANCE = 1e-6
_EQUAL = 5e-5
# Rounds of moves to other optima, and the loss per row up to which two states can be made one.
_ROUNDS = 2
_WASTED = 0.004


@dataclass(frozen=True)
class Start:
    """A model to climb from."""

    name: str
    chain: HiddenChain


@dataclass(frozen=True)
class Chosen:
    """The start that did best, where its trials led, and what all in the last round reached."""

    start: Start
    chain: HiddenChain
    trials: dict[str, float] = field(default_factory=dict)


def subset(rows: Any, lengths: Any, limit: int, weights: Any = None) -> tuple[Any, Sequences]:
    """At most about `limit` rows, in pieces spread evenly over all sequences.

    Long sequences are cut: where a piece begins matters little beside what happens inside it.
    """
    if len(rows) <= limit:
        return rows, Sequences.of(lengths, weights=weights)
    ends = np.cumsum(lengths)
    firsts = np.concatenate(
        [np.arange(end - length, end, _PIECE) for end, length in zip(ends, lengths, strict=True)]
    )
    lasts = np.concatenate(
        [
            np.minimum(np.arange(end - length, end, _PIECE) + _PIECE, end)
            for end, length in zip(ends, lengths, strict=True)
        ]
    )
    share = limit / len(rows)
    # Take a piece whenever the share of rows so far asks for another one.
    reached = np.floor(np.cumsum(lasts - firsts) * share / max(np.mean(lasts - firsts), 1))
    taken = np.flatnonzero(np.diff(reached, prepend=0) > 0)
    taken = taken if len(taken) else np.array([0])
    chosen = np.concatenate([np.arange(firsts[i], lasts[i]) for i in taken])
    owners = np.searchsorted(ends, firsts[taken], side="right")
    part_weights = None if weights is None else weights[owners]
    return rows[chosen], Sequences.of((lasts - firsts)[taken], weights=part_weights)


def trial_rows(chain: HiddenChain) -> int:
    """How many rows trials of a model of this size need."""
    k = len(chain.startprob)
    wanted = _ROWS_PER_PARAMETER * (k * k + chain.emission.n_parameters)
    return int(np.clip(wanted, _FEWEST_ROWS, _MOST_ROWS))


def likeliest(
    starts: list[Start], rows: Any, lengths: Any, n_threads: int, weights: Any = None
) -> Chosen:
    """The start under which a part of the rows is likeliest as it is."""
    if len(starts) == 1:
        return Chosen(starts[0], starts[0].chain)
    part, sequences = subset(rows, lengths, trial_rows(starts[0].chain), weights)
    trials = {
        start.name: total_likelihood(start.chain, part, sequences, n_threads) / sequences.weight
        for start in starts
    }
    best = max(starts, key=lambda start: trials[start.name])
    return Chosen(best, best.chain, trials)


def compete(
    starts: list[Start],
    rows: Any,
    lengths: Any,
    soften: Callable[[HiddenChain], HiddenChain],
    n_threads: int,
    weights: Any = None,
) -> Chosen:
    """The start that climbs highest in rounds of trials on a part of the rows.

    Where two states of the best one can be made one at little loss, models with another state
    split instead are tried too.

    Parameters
    ----------
    starts : models to climb from
    rows : symbols (n,) or points (n, p)
    lengths : (s,)
    soften : makes a start one that can be climbed from, without zeros
    n_threads : int
    weights : (s,) how often every sequence counts, or None
    """
    limit = trial_rows(starts[0].chain)
    few = subset(rows, lengths, max(int(_FIRST_SHARE * limit), _FEWEST_ROWS), weights)
    more = subset(rows, lengths, limit, weights)

    def run(chain: HiddenChain, part: tuple[Any, Sequences], passes: int) -> Climb:
        return climb(
            chain,
            part[0],
            part[1],
            max_iter=passes,
            tol=_TRIAL_TOLERANCE,
            accelerate=True,
            n_threads=n_threads,
        )

    found = {start.name: run(soften(start.chain), few, _GLANCE) for start in starts}
    highest = max(climbed.history[-1] for climbed in found.values())
    finalists = [s for s in starts if _promise(found[s.name].history, _HOPE) >= highest]
    found = {start.name: run(found[start.name].chain, few, _FIRST) for start in finalists}
    finalists = _best(finalists, found, _FINALISTS)
    found = {start.name: run(found[start.name].chain, more, _SECOND) for start in finalists}
    trials = {name: climbed.history[-1] for name, climbed in found.items()}
    highest = max(trials.values())
    # Starts that have come as high as each other are the same: then the first, of the moments.
    best = next(start for start in finalists if trials[start.name] >= highest - _EQUAL)
    chain, reached = found[best.name].chain, trials[best.name]
    for _ in range(_ROUNDS):
        base = run(chain, few, _MOVE)
        moves = rearranged(base.chain, *few, n_threads, _WASTED)
        if not moves:
            break
        best_move = max((run(move, few, _MOVE) for move in moves), key=lambda c: c.history[-1])
        if best_move.history[-1] <= base.history[-1] + _EQUAL:
            break
        moved = run(best_move.chain, more, _SECOND)
        if moved.history[-1] <= reached + _EQUAL:
            break
        chain, reached = moved.chain, moved.history[-1]
    if len(more[0]) < len(rows):
        # The moments have seen all rows, the trials only some: go on from what suits all of them.
        # What some of them lack is not impossible.
        whole = Sequences.of(lengths, weights=weights)
        chain, raw = soften(chain), soften(best.chain)
        before = total_likelihood(raw, rows, whole, n_threads)
        chain = chain if total_likelihood(chain, rows, whole, n_threads) >= before else raw
    return Chosen(best, chain, trials)


def _best(starts: list[Start], found: dict[str, Climb], count: int) -> list[Start]:
    """The most promising ones and the highest so far, in their old order."""
    ranked = sorted(starts, key=lambda start: -_promise(found[start.name].history, _AHEAD))
    highest = max(starts, key=lambda start: found[start.name].history[-1])
    chosen = {start.name for start in ranked[:count]} | {highest.name}
    return [start for start in starts if start.name in chosen]


def _promise(history: tuple[float, ...], ahead: float) -> float:
    """Where a climb will be that goes on as it has gone lately, so many times as long.

    The highest after few passes are often those that have stopped to rise.
    """
    reached = np.maximum.accumulate(history)
    lately = reached[-1] - reached[max(len(reached) - 1 - _LATELY, 0)]
    return float(reached[-1] + ahead * lately)
