"""The polish of Gaussian mixtures: from what moments give to an optimum of the likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.moments.rows import RowSample
from latensor.refinement.exponential_family import Climb, Design, climb, joint_logs
from latensor.refinement.gaussian import GaussianFamily, GaussianState, design_of
from latensor.refinement.portfolio import EDGE_FACTOR, search, split_and_merge, spreads

# Rows on which the polish runs before the last passes over all of them.
_ROWS_TO_CLIMB = 100_000
# Distinct rows on which restarts and moves are tried.
_ROWS_TO_SEARCH = 20_000
_FIRST_STEPS = 10
_MOST_STEPS = 200
# Passes over all rows where the polish ran on a part of them.
_LAST_STEPS = 4


@dataclass(frozen=True)
class Start:
    """What the polish starts from.

    Attributes
    ----------
    mean : (d,), of the samples
    count : int, the number of components
    found : what was read off the moments, with a `state` in the features; None where they
        determine nothing
    doubtful : bool, whether restarts should stand beside it
    floor : float, the smallest variance
    """

    mean: Any
    count: int
    found: Any
    doubtful: bool
    floor: float


def smallest_variance(reg_covar: float, covariance: Any) -> float:
    """What is added to every variance: `reg_covar`, or rounding where that is zero."""
    total = float(np.trace(covariance)) / len(covariance)
    return max(float(reg_covar), np.finfo(float).eps * total, 1e-100)


@dataclass(frozen=True)
class Polished:
    """What the polish arrived at.

    Attributes
    ----------
    state : GaussianState, in the features
    log_likelihood : float, per sample
    n_iter : int, passes of expectation maximization over the rows it ran on
    converged : bool
    start : str, "moments" or "k-means++"
    spread : float, the widest component over what its variance and noise explain
    n_moves : int
    """

    state: GaussianState
    log_likelihood: float
    n_iter: int
    converged: bool
    start: str
    spread: float
    n_moves: int


def polish(
    samples: Any,
    weights: Any,
    narrow: GaussianFamily,
    full: GaussianFamily,
    start: Start,
    *,
    refine: int | str,
    tol: float,
    rng: np.random.Generator,
    n_threads: int,
) -> Polished:
    """Raise the likelihood from the moments, with restarts and moves where they are in doubt.

    Parameters
    ----------
    samples, weights : the rows (n, d) and their weights or None
    narrow : the family in the coordinates that hold the means, for all but the last passes
    full : the family in all coordinates
    start : what the moments gave
    refine : "auto", or the number of plain passes over all rows
    tol : float, gain per sample that ends the climb
    rng : draws rows and restarts
    n_threads : int
    """
    rows, row_weights = _part(samples, weights, rng)
    few = RowSample(_ROWS_TO_SEARCH).update(rows, row_weights)
    if len(few.samples) < start.count:
        raise InvalidInputError(
            f"n_components={start.count} exceeds the {len(few.samples)} distinct samples of "
            f"{few.count}: lower n_components or give more samples"
        )
    small = design_of(narrow, few.samples, few.weights, hold=True)
    if not isinstance(refine, str):
        return _exactly(samples, weights, full, narrow, small, start, int(refine), rng, n_threads)
    design = design_of(narrow, rows, row_weights, hold=True)
    named, n_moves, n_iter = "moments", 0, 0
    state = None
    if start.found is not None:
        first = climb(
            design,
            narrow,
            narrow.inside(start.found.state),
            max_iter=_FIRST_STEPS,
            tol=tol,
            n_threads=n_threads,
        )
        state, n_iter = first.state, first.n_iter
    if start.doubtful or state is None:
        found = search(
            small,
            narrow,
            [] if state is None else [state],
            start.count,
            rng,
            n_threads=n_threads,
        )
        state, named, n_moves = found.state, found.start, found.n_moves
    elif widest(small, narrow, state, n_threads) > EDGE_FACTOR:
        state, _, n_moves = split_and_merge(small, narrow, state, n_threads)
    climbed = climb(design, narrow, state, max_iter=_MOST_STEPS, tol=tol, n_threads=n_threads)
    n_iter += climbed.n_iter
    everything = design
    if narrow is not full or len(rows) < len(samples):
        everything = design_of(full, samples, weights, hold=len(samples) <= _ROWS_TO_CLIMB)

    def finished(state: GaussianState) -> Climb[GaussianState]:
        return climb(
            everything,
            full,
            state,
            max_iter=_MOST_STEPS if len(samples) <= _ROWS_TO_CLIMB else _LAST_STEPS,
            tol=tol,
            accelerate=len(samples) <= _ROWS_TO_CLIMB,
            n_threads=n_threads,
        )

    if everything is not design:
        climbed = finished(full.inside(narrow.outside(climbed.state)))
        n_iter += climbed.n_iter
    if narrow is not full:
        small = design_of(full, few.samples, few.weights, hold=True)
    spread = widest(small, full, climbed.state, n_threads)
    if spread > EDGE_FACTOR:
        # No mixture of this kind describes the samples: neither the optimum near the moments nor
        # the coordinates that they chose need be the best.
        found = search(small, full, [], start.count, rng, n_threads=n_threads)
        other = finished(found.state)
        n_iter += other.n_iter
        if other.log_likelihood > climbed.log_likelihood:
            climbed, named, n_moves = other, found.start, found.n_moves
            spread = widest(small, full, climbed.state, n_threads)
    outside = full.outside(climbed.state)
    value, converged = climbed.log_likelihood, climbed.converged
    return Polished(outside, value, n_iter, converged, named, spread, n_moves)


def _exactly(
    samples: Any,
    weights: Any,
    full: GaussianFamily,
    narrow: GaussianFamily,
    small: Design,
    start: Start,
    n_steps: int,
    rng: np.random.Generator,
    n_threads: int,
) -> Polished:
    """A given number of plain passes over all rows, from the moments where they give a start."""
    named, n_moves = "moments", 0
    if start.found is not None:
        state = start.found.state
    else:
        found = search(small, narrow, [], start.count, rng, n_threads=n_threads)
        state, named, n_moves = narrow.outside(found.state), found.start, found.n_moves
    climbed = climb(
        design_of(full, samples, weights, hold=len(samples) <= _ROWS_TO_CLIMB),
        full,
        full.inside(state),
        max_iter=n_steps,
        tol=-np.inf,
        accelerate=False,
        n_threads=n_threads,
    )
    outside = full.outside(climbed.state)
    spread = widest(small, narrow, narrow.inside(outside), n_threads)
    value = climbed.log_likelihood
    return Polished(outside, value, climbed.n_iter, False, named, spread, n_moves)


def _part(samples: Any, weights: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    if len(samples) <= _ROWS_TO_CLIMB:
        return samples, weights
    chosen = np.sort(rng.choice(len(samples), _ROWS_TO_CLIMB, replace=False))
    return samples[chosen], None if weights is None else weights[chosen]


def widest(design: Design, family: GaussianFamily, state: GaussianState, n_threads: int) -> float:
    """The largest ratio of a component's spread to what its variance and noise explain."""
    logs = joint_logs(design, family.natural(state), n_threads)
    features = design.block(0, design.n_rows)
    weights = design.weights if len(design.weights) else np.ones(design.n_rows)
    return float(spreads(features, weights, family, state, np.argmax(logs, axis=1))[0].max())
