"""The best optimum of a Gaussian mixture that several starts and moves lead to.

Starts are run for a few passes each on a sample, the better half goes on, then one; then
components are split and others merged as long as that raises the likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.refinement.families.covariances import DIAG, SPHERICAL, TIED, cholesky
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.refinement.family import Family, State
from latensor.refinement.mixture_moves import passes, promising, split_and_merge
from latensor.refinement.mixture_starts import (
    Coordinates,
    by_labels,
    kmeans,
    merge_down,
    overfit,
)

# An optimum is another one where it puts this fraction of the rows elsewhere, and as good where it
# is behind by fewer standard errors.
ANOTHER, ERRORS = 0.1, 2.0
# Passes of every start and of the better half.
_FIRST_PASSES, _SECOND_PASSES = 5, 10
# Powers of the smaller weight by which merges are judged: each alone misses what the other finds.
_POWERS = (0.0, 0.5)
# Passes of Lloyd's algorithm where k-means is the start itself.
_LLOYD = 20


@dataclass(frozen=True, eq=False)
class Search(Generic[State]):
    """What a search has found.

    Attributes
    ----------
    state : the parameters
    log_likelihood : float, per row of the sample
    start : str, the name of the start that won
    values : dict of the log-likelihoods per row that the starts reached after the first passes
    n_moves : int, split and merge moves that were accepted
    alternative : another optimum that the sample makes nearly as likely; None where none was met
    """

    state: State
    log_likelihood: float
    start: str
    values: dict[str, float]
    n_moves: int
    alternative: State | None = None


def starts_of(
    family: GaussianFamily,
    sample: Coordinates,
    count: int,
    rng: np.random.Generator,
    given: dict[str, MixtureState],
    few: bool = False,
) -> dict[str, MixtureState]:
    """The starts of a search by name.

    Parameters
    ----------
    given : starts from moments
    few : bool, whether those are good enough to need one other start beside them only
    """
    points = sample.points
    result = dict(given)

    def overfitted(name: str, rows: Any, powers: tuple[float, ...]) -> None:
        many = overfit(family, points, rows, count, rng)
        found: list[MixtureState] = []
        for power in powers:
            merged = merge_down(family, many, count, power)
            # Both ways of merging often agree.
            if not any(np.array_equal(merged.means, other.means) for other in found):
                found.append(merged)
                kept = "" if power == 0 else ", small ones kept"
                result[f"many clusters merged ({name}{kept})"] = merged

    if family.covariance_type == TIED:
        overfitted("standardized", sample.standardized, _POWERS)
        # Whitened by the covariance within, clusters are spherical (the step of discriminant
        # analysis).
        first = result["many clusters merged (standardized)"]
        within = np.linalg.solve(cholesky(first.covariances), points.rows.T).T
        labels = kmeans(within, points.weights, count, rng, _LLOYD)
        result["k-means within clusters"] = by_labels(family, points, labels, count)
        return result
    if family.covariance_type in (DIAG, SPHERICAL):
        overfitted("standardized", sample.standardized, _POWERS)
        if not few:
            overfitted("standardized again", sample.standardized, _POWERS)
        return result
    overfitted("whitened", sample.whitened, _POWERS)
    if not few:
        overfitted("standardized", sample.standardized, _POWERS)
    return result


def search(
    family: Family[State],
    sample: Batch,
    starts: dict[str, State],
    move: bool = True,
    n_passes: int = _SECOND_PASSES,
    alternatives: bool = False,
) -> Search[State]:
    """The best of several starts by successive halving, then split and merge moves.

    Parameters
    ----------
    sample : rows to try on, held
    starts : states by name
    move : bool, whether to split and merge, which Gaussian families can
    n_passes : int, of the better half; more than a few are accelerated
    alternatives : bool, whether to look for another optimum that is nearly as likely
    """
    count = len(next(iter(starts.values())).weights)  # type: ignore[attr-defined]
    weight = float(sample.weights.sum())
    if count == 1:
        name, state = next(iter(starts.items()))
        state, value = passes(family, sample, state, 2)
        return Search(state, value, name, {name: value}, 0)
    tried = {name: passes(family, sample, s, _FIRST_PASSES) for name, s in starts.items()}
    values = {name: value for name, (_, value) in tried.items()}

    def rank(name: str) -> tuple[bool, float]:
        state, value = tried[name]
        # The likelihood of a collapsed component is unbounded: it would always win.
        return bool(family.collapsed(state, weight).any()), -value

    names = sorted(tried, key=rank)
    if len(names) > 1:
        names = names[: (len(names) + 1) // 2]
        goal = -np.inf
        for name in names:
            if n_passes > _SECOND_PASSES:
                tried[name] = passes(family, sample, tried[name][0], n_passes, accelerate=True)
            else:
                # Those that cannot come up to the first are given up.
                tried[name] = promising(family, sample, tried[name][0], n_passes, goal)
                goal = max(goal, tried[name][1])
    best = min(names, key=rank)
    state, value = tried[best]
    n_moves = 0
    if move:
        state, value, n_moves = split_and_merge(family, sample, state)  # type: ignore
    ranked = sorted(tried, key=rank) if alternatives else []
    others = [tried[name][0] for name in ranked if name != best]
    return Search(state, value, best, values, n_moves, alternative(family, sample, state, others))


def alternative(
    family: Family[State], sample: Batch, state: State, others: list[State]
) -> State | None:
    """The first of other states that EM brings near to one and leaves another."""
    weight = float(sample.weights.sum())
    if not others:
        return None
    known = _logs(family, sample, state)

    def is_near(other: State, errors: float) -> bool:
        found = _comparison(known, _logs(family, sample, other), sample.weights)
        return found.fraction > ANOTHER and found.errors < errors

    for other in others:
        # EM has not ended yet: twice as far behind as makes a difference.
        if is_near(other, 2 * ERRORS):
            near = passes(family, sample, other, 3 * _SECOND_PASSES, accelerate=True)[0]
            if is_near(near, ERRORS) and not family.collapsed(near, weight).any():
                return near
    return None


class Comparison(NamedTuple):
    """How far a mixture is ahead of another one.

    Attributes
    ----------
    errors : float, gain in log-likelihood over its standard error (Vuong 1989)
    fraction : float, of the rows that the other one puts into other components, matched as well as
        can be
    """

    errors: float
    fraction: float


def compared(family: Family[State], sample: Batch, state: State, other: State) -> Comparison:
    """Two states by what they say about prepared rows."""
    one, two = (_logs(family, sample, each) for each in (state, other))
    return _comparison(one, two, sample.weights)


def _logs(family: Family[State], sample: Batch, state: State) -> tuple[Array, Array]:
    """Log densities (n,) of rows, and the component (n,) that each most likely is from."""
    logs = family.log_density(state, sample)
    largest = logs.max(axis=1)
    totals = largest + np.log(np.exp(logs - largest[:, None]).sum(axis=1))
    return totals, logs.argmax(axis=1)


def _comparison(one: tuple[Array, Array], other: tuple[Array, Array], weights: Array) -> Comparison:
    count = 1 + max(int(one[1].max()), int(other[1].max()))
    counts = np.bincount(count * one[1] + other[1], weights, count**2).reshape(count, count)
    kept = counts[scipy.optimize.linear_sum_assignment(-counts)].sum() / weights.sum()
    gains = one[0] - other[0]
    total = float(weights @ gains)
    error = np.sqrt(weights @ (gains - total / weights.sum()) ** 2)
    return Comparison(total / max(float(error), np.finfo(float).tiny), 1 - float(kept))
