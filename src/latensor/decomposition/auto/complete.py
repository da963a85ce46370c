"""Fits over observed entries: several starts, each checked on entries that it has not seen.

A fit of few entries can describe them and be wild everywhere else, and two such fits can agree.
Every start therefore leaves out a few entries, drawn anew; what it says of them is an honest
estimate of its error where nothing was observed. Then it is fitted to all entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.auto.constrained import Constraints
from latensor.decomposition.auto.core import EXACT, Fit
from latensor.decomposition.auto.observed import leading_directions, observed_start
from latensor.decomposition.optimize.iteration import Monitor
from latensor.decomposition.optimize.masked import Observed
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.starts import parameters

STARTS = 12
# Entries that a start leaves out, as a fraction, and at most; and how many must remain, as a
# multiple of the parameters.
_HELD_OUT, _MOST_HELD_OUT = 0.05, 10_000
_ENTRIES_PER_PARAMETER = 1.5
# Relative difference of two losses that have found the same optimum.
_SAME_OPTIMUM = 1e-3
# A model that is right is off by noise, and by what noise does to its parameters, at entries that
# it has not seen: a few times what it is off by at others. The least error that counts.
_CONTRADICTION, _NEGLIGIBLE = 3.0, 1e-3

Descend = Callable[[Observed, Sequence[Array]], Fit]


@dataclass(frozen=True)
class Candidate:
    """A fit to all observed entries, and its relative error at entries it had not seen before.

    Attributes
    ----------
    fit : Fit
    held_out_error : float, NaN where there were too few entries to leave any out
    contradicted : bool, whether that error is far above what the residual would lead to expect
    """

    fit: Fit
    held_out_error: float
    contradicted: bool

    @property
    def loss(self) -> float:
        """That of the fit; infinite where unseen entries contradict it."""
        return np.inf if self.contradicted else self.fit.loss


@dataclass(frozen=True)
class Completion:
    """The best candidate of a search, and how many others agreed with it."""

    best: Candidate
    agreements: int


def complete_entries(
    observed: Observed,
    rank: int,
    constraints: Constraints,
    rng: np.random.Generator,
    descend: Descend,
    monitor: Monitor,
) -> Completion:
    """The best of several fits, until two agree that unseen entries do not contradict.

    Parameters
    ----------
    observed : the entries
    rank : int
    constraints : what holds of the factors
    rng : draws starts and the entries that they leave out
    descend : the local fit of some entries from given factors
    monitor : knows the target, and whether the search was ended from outside
    """
    enough = max(EXACT * observed.squared_norm, monitor.target_loss())
    candidates = islice(_candidates(observed, rank, constraints, rng, descend), STARTS)
    first = next(candidates)
    if first.fit.loss <= enough or monitor.ended is not None:
        return Completion(first, 0)
    seen = [first]

    def others() -> Iterator[Candidate]:
        for candidate in candidates:
            seen.append(candidate)
            yield candidate

    found = Multistart(_SAME_OPTIMUM, 2, enough=enough).search(first, others())
    best = found.state
    if best.contradicted:
        best = min(seen, key=lambda c: c.fit.loss)
    return Completion(best, found.agreements)


def _candidates(
    observed: Observed,
    rank: int,
    constraints: Constraints,
    rng: np.random.Generator,
    descend: Descend,
) -> Iterator[Candidate]:
    free = parameters(observed.shape, rank)
    bases = [leading_directions(observed, mode) for mode in range(len(observed.shape))]
    for number in count():
        part, rest = split(observed, free, rng)
        rows = observed_start(part, bases, rank, number, constraints, rng)
        if rest is None:
            yield Candidate(descend(observed, rows), np.nan, False)
            continue
        trial = descend(part, rows)
        error = _error(rest, trial)
        fit = descend(observed, trial.factors)
        yield Candidate(fit, error, _contradicts(observed, fit, error, free))


def split(
    observed: Observed, free: int, rng: np.random.Generator
) -> tuple[Observed, Observed | None]:
    """Entries to fit and a few to leave out; all to fit where there are too few, or where an index
    of some mode would no longer be seen.
    """
    n = len(observed.entries)
    held = min(int(_HELD_OUT * n), _MOST_HELD_OUT, int(n - _ENTRIES_PER_PARAMETER * free))
    if held < 1:
        return observed, None
    order = rng.permutation(n)
    part = observed.take(np.sort(order[held:]))
    pairs = zip(part.coordinates, observed.shape, strict=True)
    if any(np.bincount(index, minlength=d).min() < 1 for index, d in pairs):
        return observed, None
    return part, observed.take(np.sort(order[:held]))


def _error(rest: Observed, fit: Fit) -> float:
    if rest.squared_norm == 0.0:
        return 0.0
    return float(np.sqrt(rest.explicit_loss(fit.factors) / rest.squared_norm))


def _contradicts(observed: Observed, fit: Fit, error: float, free: int) -> bool:
    if fit.loss <= EXACT * observed.squared_norm:
        return False  # equations beyond the parameters, met exactly, are no chance
    n = len(observed.entries)
    loss = observed.explicit_loss(fit.factors)
    expected = np.sqrt(loss / observed.squared_norm * n / max(n - free, 1))
    return bool(error > max(_CONTRADICTION * expected, _NEGLIGIBLE))
