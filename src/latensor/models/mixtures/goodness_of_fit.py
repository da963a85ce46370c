"""Whether the rows of Gaussian components lie about their means as those of Gaussians do.

Components may be found again in every half of the data and still describe it badly: two Gaussians
of uniform numbers are stable. With u the probability of a smaller distance |z_j| from the mean of
component j, the Legendre polynomials P_1 to P_4 of u, times the responsibility r_j, have mean zero
under the model (Neyman's smooth test). They are bounded, so that their means are normal for few
rows already. At the optimum of n rows, m of which are tested, the variance of m^1/2 mean(g) is
Var g - (m / n) Var(g's projection on the scores); r_j - w_j and r_j (|z_j|^2 - d), which are
scores or sums of such, are projected out, a part of all: the test rejects too rarely, if anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial.legendre import legvander
from scipy.special import chdtr, chdtrc

from latensor.arrays import Array
from latensor.diagnostics.evidence import fewest_observed
from latensor.diagnostics.fit import UNKNOWN_FIT, is_fitting
from latensor.estimation.halves import found_in_halves
from latensor.estimation.model import Answer, Frame, Model, Search
from latensor.estimation.selection import is_reproduced, reproduction
from latensor.moments.batch import Batch
from latensor.moments.rows import row_hashes
from latensor.refinement.families.covariances import TIED, as_matrices, cholesky
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState, Points
from latensor.refinement.mixture_search import compared

# Rows that are tested, and rows drawn from the model, which show the variances: what so many do
# not show is small. Variances from the rows themselves said so of 5 of 40 planted pairs (n 150).
_MOST_ROWS = _DRAWS = 5000
_ORDERS = 4
# Responsibilities that change no digit that matters, which are most of them.
_NEGLIGIBLE = 1e-6
# Rows of a component that are enough for means of bounded functions to be normal.
_FEWEST_ROWS = 50


def optimum_evidence(
    model: Model[MixtureState],
    family: GaussianFamily,
    frame: Frame,
    search: Search[MixtureState],
    answer: Answer[MixtureState],
) -> dict[str, Any]:
    """What a sample says about the optimum of a mixture, and about another one that was met."""
    assert answer.state is not None
    assert answer.statistics is not None
    sample, weight, width = search.sample, answer.statistics.weight, family.width
    missing, copies = np.isnan(sample.rows), fewest_copies(sample)
    patterns, n_observed = 1, np.inf
    if missing.any():
        patterns = len(np.unique(np.packbits(missing, axis=1), axis=0))
        owned = model.responsibilities(frame, answer.state, sample)
        owned = owned * np.sqrt(sample.weights)[:, None]
        n_observed = fewest_observed(owned, ~missing, family.covariance_type)
    alternative, ahead, is_same = answer.evidence.get("alternative"), (np.inf, 0.0), False
    if alternative is not None:
        both = (answer.state, alternative)
        ahead = compared(family, family.prepare(sample), *both)
        is_same = is_reproduced(
            reproduction(*(model.responsibilities(frame, state, sample) for state in both))
        )
    found = misfit(family, sample, answer, lambda s: model.order(frame, s), copies)
    fewest = float(answer.state.weights.min()) * weight
    shown = is_fitting(found) and not missing.any() and fewest >= _FEWEST_ROWS * copies
    # Where halves chose the number of components, they have been compared already.
    tried = len(answer.state.weights) > 1 and "selection" not in frame.values
    tried = tried and answer.converged and not shown
    return {
        "alternative": None,
        "ahead": tuple(ahead),
        "is_same": is_same,
        "copies": copies,
        "rows_per_feature": fewest / width,
        "collapsed": int(family.collapsed(answer.state, weight).sum()),
        "missing": float(missing.mean()),
        "n_patterns": patterns,
        "n_observed": n_observed * weight / sample.weight,
        "misfit": found,
        "n_reproduced": found_in_halves(model, frame, search, answer.state) if tried else -1,
    }


def fewest_copies(sample: Batch) -> float:
    """How often every row is given at least: rows that all come twice are half as many."""
    _, owner = np.unique(row_hashes(sample.rows), return_inverse=True)
    return max(float(np.bincount(owner, sample.weights).min()), 1.0)


def misfit(
    family: GaussianFamily,
    sample: Batch,
    answer: Answer[MixtureState],
    order: Callable[[MixtureState], Array],
    copies: float = 1.0,
) -> tuple[float, int, float]:
    """The component of a mixture whose rows are least like those of a Gaussian.

    Parameters
    ----------
    family, answer : the mixture, at its optimum
    sample : rows that stand for all
    order : the order in which the components of a state are presented
    copies : float, how often every row is given

    Returns
    -------
    p-value of rows as unlike, of any component; its place; the fraction of its rows that lie at
    other distances from the mean (Kolmogorov's distance). NaN where that is not known: no optimum,
    entries that are not observed, too few rows
    """
    state = answer.state
    rows = sample.take(slice(0, _MOST_ROWS))
    if state is None or answer.statistics is None or not answer.converged:
        return UNKNOWN_FIT
    if np.isnan(rows.rows).any():
        return UNKNOWN_FIT
    points = family.prepare(rows)
    peaks = np.diag(family.joint(state, family.points_at(state.means)))
    seen, drawn = (_logs(family, state, p) for p in (points, _drawn(family, state)))
    total, known = points.weight, min(points.weight / answer.statistics.weight, 1.0)
    tested = []
    for j, weight in enumerate(state.weights):
        owned, own, _, below = _owned(*seen, j, peaks[j], family.width)
        masses = own * points.weights[owned]
        if masses.sum() / copies < _FEWEST_ROWS:
            continue
        mean = masses @ _polynomials(below) / total
        _, own, squares, expected = _owned(*drawn, j, peaks[j], family.width)
        scores = [own]
        if not (family.covariance_type == TIED or family.common):
            scores.append(own * (squares - family.width))
        functions = own[:, None] * _polynomials(expected)
        variance = _variance(functions, np.stack(scores, axis=1), float(weight), known)
        value = total / copies * float(mean @ np.linalg.lstsq(variance, mean, rcond=1e-10)[0])
        tested.append((float(chdtrc(_ORDERS, value)), j, _kolmogorov(below, masses)))
    if not tested:
        return UNKNOWN_FIT
    p_value, worst, fraction = min(tested)
    place = int(np.flatnonzero(order(state) == worst)[0])
    return min(1.0, p_value * len(tested)), place, fraction


def _logs(family: GaussianFamily, state: MixtureState, points: Points) -> tuple[Array, Array]:
    """Log w_j + log p(y | j) (n, k), and responsibilities (n, k)."""
    logs = family.joint(state, points)
    fractions = np.exp(logs - logs.max(axis=1, keepdims=True))
    return logs, fractions / fractions.sum(axis=1, keepdims=True)


def _owned(
    logs: Array, fractions: Array, j: int, peak: float, width: int
) -> tuple[Array, Array, Array, Array]:
    """Rows of a component: places, r_j, |z_j|^2 and the probability of a smaller distance."""
    owned = np.flatnonzero(fractions[:, j] > _NEGLIGIBLE)
    squares = np.maximum(2 * (peak - logs[owned, j]), 0.0)
    return owned, fractions[owned, j], squares, chdtr(width, squares)


def _polynomials(below: Array) -> Array:
    return np.asarray(legvander(2 * below - 1, _ORDERS)[:, 1:])


def _variance(functions: Array, scores: Array, weight: float, known: float) -> Array:
    """Of functions (n, m) under the model, less a part of what scores (n, q) explain.

    The first of these is r_j - w_j; rows that are left out have no r_j.
    """
    crossed = scores.T @ functions
    squares = scores.T @ scores
    crossed[0] -= weight * functions.sum(axis=0)
    # E r_j = w_j, and the other score has mean zero.
    squares[0, 0] -= weight**2 * _DRAWS
    explained = crossed.T @ np.linalg.lstsq(squares, crossed, rcond=1e-10)[0]
    return np.asarray(functions.T @ functions - known * explained) / _DRAWS


def _drawn(family: GaussianFamily, state: MixtureState) -> Points:
    """Rows of the model, always the same."""
    rng = np.random.default_rng(0)
    count, width = state.means.shape
    matrices = as_matrices(family.covariance_type, state.covariances, count, width)
    labels = np.sort(rng.choice(count, _DRAWS, p=state.weights / state.weights.sum()))
    rows = rng.standard_normal((_DRAWS, width))
    edges = np.searchsorted(labels, np.arange(count + 1))
    for j, lower in enumerate(cholesky(np.ascontiguousarray(matrices))):
        part = slice(edges[j], edges[j + 1])
        rows[part] = state.means[j] + rows[part] @ lower.T
    return family.points_at(rows)


def _kolmogorov(below: Array, masses: Array) -> float:
    """The largest difference of the distribution of numbers between 0 and 1 from the uniform."""
    order = np.argsort(below)
    found = np.cumsum(masses[order]) / masses.sum()
    return float(np.abs(found - below[order]).max())
