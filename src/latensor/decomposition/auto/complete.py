"""Fits over observed entries: several starts, each checked on entries that it has not seen.

A fit of few entries can describe them and be wild everywhere else, and two such fits can agree.
Every start therefore leaves out a few entries, drawn anew; what it says of them is an honest
estimate of its error where nothing was observed. Then it is fitted to all entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.auto.constrained import Constraints
from latensor.decomposition.auto.core import EXACT, Fit
from latensor.decomposition.auto.observed import (
    leading_directions,
    most_directions,
    observed_start,
    replace_wild,
)
from latensor.decomposition.optimize.iteration import SLOW, Monitor
from latensor.decomposition.optimize.levenberg_marquardt import DIRECT
from latensor.decomposition.optimize.masked import Observed
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.starts import parameters
from latensor.decomposition.setup import CHEAP_ENTRIES
from latensor.tensors.cp import CPTensor

# Starts in all, and how many are compared before one is fitted: of planted tensors at 2.5 d^1.5 k
# entries with weights of 1 to 3, a third of the starts are right, and a wrong one takes ten times
# as long to fit as to draw.
STARTS, _COMPARED = 16, 4
# Entries that a start leaves out, as a fraction, and at most; and how many must remain, as a
# multiple of the parameters.
_HELD_OUT, _MOST_HELD_OUT = 0.05, 10_000
_ENTRIES_PER_PARAMETER = 1.5
# A model that is right is off by noise, and by what noise does to its parameters, at entries that
# it has not seen: a few times what it is off by at others. The least error that counts.
_CONTRADICTION, _NEGLIGIBLE = 3.0, 1e-3
# So many times as large, on average, as what was observed: a model that is wild elsewhere.
WILD = 10.0
# A start whose error at unseen entries is no more than this multiple of the expected one is taken
# without looking for a better one: wrong ones were off by 1.5 to 6. The norm of noise at h entries
# varies by 1 / sqrt(2 h) of itself: three of these are no sign of a wrong start either.
_AS_EXPECTED, _DEVIATIONS = 1.3, 3.0

Descend = Callable[[Observed, Sequence[Array]], Fit]
Decompose = Callable[[Array], Sequence[Array]]


@dataclass(frozen=True)
class Candidate:
    """A fit to observed entries, and its relative error at entries it had not seen before.

    Attributes
    ----------
    fit : Fit to all observed entries; where unseen ones contradict it, to all but these
    held_out_error : float, NaN where there were too few entries to leave any out
    contradicted : bool, whether that error is far above what the residual would lead to expect
    """

    fit: Fit
    held_out_error: float
    contradicted: bool

    @property
    def predicts_nothing(self) -> bool:
        """Whether zeros would have met unseen entries as well, though none contradict the fit."""
        return not self.contradicted and self.held_out_error >= 1.0

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
    decompose: Decompose,
    monitor: Monitor,
    thorough: bool = True,
) -> Completion:
    """The best of several fits, until two agree that unseen entries do not contradict.

    Parameters
    ----------
    observed : the entries
    rank : int
    constraints : what holds of the factors
    rng : draws starts and the entries that they leave out
    descend : the local fit of some entries from given factors
    decompose : the transposed factors of a tensor without missing entries
    monitor : knows the target, and whether the search was ended from outside
    thorough : bool, whether to look for a second fit that agrees with one that is not contradicted
    """
    enough = max(EXACT * observed.squared_norm, monitor.target_loss())
    candidates = _candidates(observed, rank, constraints, rng, descend, decompose)
    first = next(candidates)
    if first.loss <= enough or monitor.ended is not None:
        return Completion(first, 0)
    seen = [first]

    def others() -> Iterator[Candidate]:
        for candidate in candidates:
            seen.append(candidate)
            yield candidate
            if sum(one.predicts_nothing for one in seen) >= _COMPARED:
                return  # noise, of which other starts only find other optima

    # Without a search any fit will do that is not contradicted.
    enough = enough if thorough else float(np.finfo(float).max)
    found = Multistart(SLOW, 2, enough=enough).search(first, others())
    best = found.state
    if best.contradicted:
        best = min(seen, key=lambda c: c.held_out_error)
        best = replace(best, fit=descend(observed, best.fit.factors))
    return Completion(best, found.agreements)


def _candidates(
    observed: Observed,
    rank: int,
    constraints: Constraints,
    rng: np.random.Generator,
    descend: Descend,
    decompose: Decompose,
) -> Iterator[Candidate]:
    free = parameters(observed.shape, rank)
    widest = most_directions(rank)
    bases = [leading_directions(observed, mode, widest) for mode in range(len(observed.shape))]
    # Where Gauss-Newton systems are solved directly, a fit costs less than a start. Under signs it
    # takes many sweeps, and one of eight small tensors ended higher without the comparison.
    direct = sum(observed.shape) * rank <= DIRECT and not constraints.nonnegative
    compared = 1 if direct else _COMPARED
    for number in range(0, STARTS, compared):
        part, rest = split(observed, free, rng)
        numbers = range(number, number + compared)
        starts = (observed_start(part, bases, rank, i, constraints, rng) for i in numbers)
        if rest is None:
            yield from (Candidate(descend(observed, rows), np.nan, False) for rows in starts)
            continue

        def trial(rows: Sequence[Array], part: Observed = part, rest: Observed = rest) -> Candidate:
            fit = _through_completed(part, descend(part, rows), descend, decompose)
            error = relative_error(rest, fit.factors)
            return Candidate(fit, error, _contradicts(part, fit, error, free))

        if direct:
            rows = next(starts)
            found = trial(rows)
            if found.contradicted:
                found = trial(_best_start(part, rest, (rows,), free, constraints, rng))
        else:
            found = trial(_best_start(part, rest, starts, free, constraints, rng))
        if not found.contradicted:
            fit, error = descend(observed, found.fit.factors), found.held_out_error
            found = Candidate(fit, error, _contradicts(observed, fit, error, free))
        yield found


def _through_completed(part: Observed, fit: Fit, descend: Descend, decompose: Decompose) -> Fit:
    """The better of a fit and of one that starts from the decomposition of what it completes.

    An EM step whose maximization is global. Starts under a strong ridge can all end at the same
    optimum of a small tensor, and agree; the decomposition of the completed tensor does not.
    """
    if fit.loss <= EXACT * part.squared_norm or prod(part.shape) > CHEAP_ENTRIES:
        return fit
    completed = CPTensor(None, tuple(rows.T for rows in fit.factors)).to_dense()
    completed[part.coordinates] = part.entries
    other = descend(part, decompose(completed))
    return other if other.loss < fit.loss else fit


def _contradicts(fitted: Observed, fit: Fit, error: float, free: int) -> bool:
    """Whether an error at unseen entries is far above what the fitted ones lead to expect."""
    if fit.loss <= EXACT * fitted.squared_norm:
        return False  # equations beyond the parameters, met exactly, are no chance
    expected = _expected(fitted, fit.factors, free)
    return wildness(fitted, fit.factors) > WILD or error > max(
        _CONTRADICTION * expected, _NEGLIGIBLE
    )


def _best_start(
    part: Observed,
    rest: Observed,
    starts: Iterable[tuple[Array, ...]],
    free: int,
    constraints: Constraints,
    rng: np.random.Generator,
) -> tuple[Array, ...]:
    """The start that is off least at unseen entries; the first that is off as little as noise.

    In those that are off by more, components are replaced while the fit gets better.
    """
    best, least = None, np.inf
    usual = max(_AS_EXPECTED, 1.0 + _DEVIATIONS / np.sqrt(2.0 * len(rest.entries)))
    for rows in starts:
        loss, left = part.explicit_loss(rows), len(rows[0])
        while True:
            error = relative_error(rest, rows)
            if best is None or error < least:
                best, least = rows, error
            if error <= max(usual * _expected(part, rows, free), _NEGLIGIBLE):
                return rows
            if left < 2:
                break
            rows = replace_wild(part, rows, constraints, rng)
            before, loss = loss, part.explicit_loss(rows)
            left = left - 1 if loss < before else 0
    assert best is not None
    return best


def _expected(part: Observed, factors: Sequence[Array], free: int) -> float:
    """The error at unseen entries of a right model with as many free parameters as fitted ones.

    Noise of variance v leaves (n - free) v at the n entries of the fit, and moves the model so that
    the mean square at others is (1 + free / n) v.
    """
    n = len(part.entries)
    return relative_error(part, factors) * float(np.sqrt((n + free) / max(n - free, 1)))


def wildness(observed: Observed, factors: Sequence[Array]) -> float:
    """How many times as large the model is over all entries as the observed ones are, on average.

    Rows of the factors that few entries determine may be anything, and the entries that could tell
    are few among those left out.
    """
    square = float(np.prod([factor @ factor.T for factor in factors], axis=0).sum())
    everywhere = max(square, 0.0) / prod(float(d) for d in observed.shape)
    seen = observed.squared_norm / len(observed.entries)
    return float(np.sqrt(everywhere / seen)) if seen > 0.0 else 0.0


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


def relative_error(entries: Observed, factors: Sequence[Array]) -> float:
    """The norm of what a model misses at some entries, relative to theirs."""
    if entries.squared_norm == 0.0:
        return 0.0
    return float(np.sqrt(entries.explicit_loss(factors) / entries.squared_norm))
