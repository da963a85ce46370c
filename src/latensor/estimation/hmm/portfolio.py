"""Several starts, a few passes each, and the best of them carried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latensor.refinement.hmm import Climb, HiddenChain, Sequences, climb, total_likelihood

# Passes of a first and of a second trial, and how many starts go on to the second.
_FIRST, _SECOND = 12, 30
_FINALISTS = 3
# Rows per free parameter that trials are run on, and their number at least and at most.
_ROWS_PER_PARAMETER = 100
_FEWEST_ROWS, _MOST_ROWS = 8_000, 100_000
# The share of these rows that the first trial sees.
_FIRST_SHARE = 0.4
_PIECE = 4096
# Per row and pass.
_TRIAL_TOLERANCE = 1e-6
_EQUAL = 5e-5


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


def subset(rows: Any, lengths: Any, limit: int) -> tuple[Any, Any]:
    """At most about `limit` rows, in pieces spread evenly over all sequences.

    Long sequences are cut: where a piece begins matters little beside what happens inside it.
    """
    if len(rows) <= limit:
        return rows, lengths
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
    return rows[chosen], (lasts - firsts)[taken]


def trial_rows(chain: HiddenChain) -> int:
    """How many rows trials of a model of this size need."""
    k = len(chain.startprob)
    wanted = _ROWS_PER_PARAMETER * (k * k + chain.emission.n_parameters)
    return int(np.clip(wanted, _FEWEST_ROWS, _MOST_ROWS))


def likeliest(starts: list[Start], rows: Any, lengths: Any, n_threads: int) -> Chosen:
    """The start under which a part of the rows is likeliest as it is."""
    if len(starts) == 1:
        return Chosen(starts[0], starts[0].chain)
    part, part_lengths = subset(rows, lengths, trial_rows(starts[0].chain))
    sequences = Sequences.of(part_lengths)
    trials = {
        start.name: total_likelihood(start.chain, part, sequences, n_threads) / len(part)
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
) -> Chosen:
    """The start that climbs highest in two rounds of trials on a part of the rows.

    Parameters
    ----------
    starts : models to climb from
    rows : symbols (n,) or points (n, p)
    lengths : (s,)
    soften : makes a start one that can be climbed from, without zeros
    n_threads : int
    """
    limit = trial_rows(starts[0].chain)
    few = subset(rows, lengths, max(int(_FIRST_SHARE * limit), _FEWEST_ROWS))
    more = subset(rows, lengths, limit)

    def run(chain: HiddenChain, part: tuple[Any, Any], passes: int) -> Climb:
        return climb(
            chain,
            part[0],
            Sequences.of(part[1]),
            max_iter=passes,
            tol=_TRIAL_TOLERANCE,
            accelerate=True,
            n_threads=n_threads,
        )

    found = {start.name: run(soften(start.chain), few, _FIRST) for start in starts}
    ranked = sorted(starts, key=lambda start: -found[start.name].history[-1])
    chosen = {start.name for start in ranked[:_FINALISTS]}
    finalists = [start for start in starts if start.name in chosen]
    found = {start.name: run(found[start.name].chain, more, _SECOND) for start in finalists}
    trials = {name: climbed.history[-1] for name, climbed in found.items()}
    highest = max(trials.values())
    # Starts that have come as high as each other are the same: then the first, of the moments.
    best = next(start for start in finalists if trials[start.name] >= highest - _EQUAL)
    chain = found[best.name].chain
    if len(more[0]) < len(rows):
        # The moments have seen all rows, the trials only some: go on from what suits all of them.
        # What some of them lack is not impossible.
        whole = Sequences.of(lengths)
        chain, raw = soften(chain), soften(best.chain)
        before = total_likelihood(raw, rows, whole, n_threads)
        chain = chain if total_likelihood(chain, rows, whole, n_threads) >= before else raw
    return Chosen(best, chain, trials)
