"""Moves out of wrong optima of Gaussian mixtures: components are split and others merged.

A wrong optimum of separated clusters has a component that covers two of them, and two components
that share one. A full covariance absorbs all of the spread; what shows is that rows are not normal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import chdtri

from latensor.moments.batch import Batch
from latensor.refinement.em import em
from latensor.refinement.families.covariances import (
    DIAG,
    FULL,
    TIED,
    as_diagonals,
    cholesky,
    inverse_factors,
    merge_costs,
    merged,
)
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState, Points
from latensor.refinement.family import Family, State
from latensor.refinement.responsibilities import normalize_rows

# Passes before moves and after one, and how many times the expected gain these may have.
_FIRST_PASSES, _MOVE_PASSES, _EXPECTED = 10, 12, 3.0
# Passes that judge a split, and moves that are tried in full: of twelve judged by the likelihood of
# the components they change, the best four led four failing fits no higher.
_LOCAL_PASSES, _TRIES = 8, 4
_AXIS_STEPS = 5
# The level at which rows of a component are not normal along an axis.
_LEVEL = 1e-5
# Log-likelihood per row that a move must gain.
_LEAST_GAIN = 2e-4
# Passes that would all together gain less are left out: separated components are there in three.
_NOT_WORTH = _LEAST_GAIN / 10
# Runnalls' bound ignores that the others adapt: moves that gained 0.002 to 0.02 per row were
# expected to lose up to 0.07.
_LEAST_EXPECTED = -0.1
# Rows that a component hardly owns do not decide how it is split.
_OWNED = 0.01
# Above so many times the edge of Marchenko and Pastur a component is wider than its variance.
EDGE_FACTOR = 1.25


def passes(
    family: Family[State],
    points: Batch,
    state: State,
    n_passes: int,
    accelerate: bool = False,
    tol: float = _NOT_WORTH,
) -> tuple[State, float]:
    """Passes of EM over a sample, as long as they gain, and the log-likelihood per row.

    Plain ones by default.
    """
    settings: dict[str, Any] = {"max_iter": n_passes, "tol": tol, "accelerate": accelerate}
    found = em(lambda start: start.update(points), family, state, prepared=True, **settings)
    return found.state, found.log_likelihood


def spreads(family: GaussianFamily, sample: Points, state: MixtureState) -> Any:
    """How much wider than its diagonal or spherical variances every component is, (k,).

    For the rows that each component owns, the largest eigenvalue of their scatter in units of its
    standard deviations (1 for a component that fits), over the largest that noise alone gives,
    (1 + sqrt(d / N_j))^2 (Marchenko and Pastur).
    """
    count, width = state.means.shape
    owners = np.argmax(family.joint(state, sample), axis=1)
    deviations = np.sqrt(as_diagonals(family.covariance_type, state.covariances, width))
    ratios = np.ones(count)
    for j in range(count):
        rows = np.flatnonzero(owners == j)
        weights = sample.weights[rows]
        mass = float(weights.sum())
        if mass < 3:
            continue
        centred = (sample.rows[rows] - state.means[j]) / deviations[j]
        centred -= weights @ centred / mass
        scatter = (centred * weights[:, None]).T @ centred / mass
        ratios[j] = np.linalg.eigvalsh(scatter)[-1] / (1 + np.sqrt(width / mass)) ** 2
    return ratios


def split_and_merge(
    family: GaussianFamily, sample: Points, state: MixtureState
) -> tuple[MixtureState, float, int]:
    """Split one component and merge two others as long as that raises the likelihood.

    Splits are judged by a few passes over the rows of the component with all others fixed, merges
    by Runnalls' bound; the most promising pairs of both are tried in full.

    Returns
    -------
    state, log-likelihood per row, number of moves
    """
    weight = float(sample.weights.sum())
    state, value = passes(family, sample, state, _FIRST_PASSES)
    count, n_moves = len(state.weights), 0
    for _ in range(2 * count if count >= 3 else 0):
        moved = _best_moves(family, sample, state)
        for trial in moved:
            goal = value + _LEAST_GAIN
            found, reached = promising(family, sample, trial, _MOVE_PASSES, goal)
            bad = family.collapsed(found, weight).any()
            if reached > value + _LEAST_GAIN and not bad:
                state, value, n_moves = found, reached, n_moves + 1
                break
        else:
            break
    return state, value, n_moves


def promising(
    family: Family[State], sample: Batch, state: State, n_passes: int, goal: float
) -> tuple[State, float]:
    """Plain passes of EM, as long as their gain could still reach the goal.

    Gains decrease from pass to pass, about as the last two did (Aitken).
    """
    value, gain = -np.inf, np.inf
    for left in range(n_passes, 0, -1):
        before, last = value, gain
        state, value = passes(family, sample, state, 1)
        gain = value - before
        rate = min(gain / last, 0.99) if gain > 0 and 0 < last < np.inf else 1.0
        ahead = _EXPECTED * gain * rate / (1 - rate) if rate < 1 else np.inf
        if value + min(left * gain, ahead) < goal or gain < _NOT_WORTH / _EXPECTED:
            break
    return state, value


def _best_moves(family: GaussianFamily, sample: Points, state: MixtureState) -> list[MixtureState]:
    """The most promising states one split and one merge away.

    Passes over the rows of the components that are split and merged, all others fixed, come first:
    they cost a fraction of passes over all.
    """
    kind, count = family.covariance_type, len(state.weights)
    fractions = family.joint(state, sample)
    totals = normalize_rows(fractions)
    one, other = np.triu_indices(count, 1)
    costs = merge_costs(kind, state.weights, state.means, state.covariances, one, other)
    needed = (float(costs.min()) + _LEAST_EXPECTED) * sample.weight
    moves: list[tuple[float, int, int, MixtureState, tuple[int, int]]] = []
    for j, axis in _unusual(family, sample, state, fractions):
        parts = halved(family, state, j, axis)
        pair, gain = _partial(family, sample, parts, totals, fractions[:, j], needed)
        wider = _expanded(family, state, j, pair)
        # Merges may take in one of the halves: two components can cover the same two clusters.
        rest = np.flatnonzero(np.arange(count) != j)
        halves = np.tile(rest, 2), np.repeat([j, count], count - 1)
        apart = (one != j) & (other != j)
        firsts = np.concatenate([one[apart], halves[0]])
        seconds = np.concatenate([other[apart], halves[1]])
        losses = np.concatenate(
            [
                costs[apart],
                merge_costs(kind, wider.weights, wider.means, wider.covariances, *halves),
            ]
        )
        for p in np.argsort(losses, kind="stable")[:_TRIES]:
            expected = gain / sample.weight - float(losses[p])
            if expected > _LEAST_EXPECTED:
                places = int(firsts[p]), int(seconds[p])
                moves.append((-expected, len(moves), j, wider, places))
    moves.sort(key=lambda move: move[:2])
    adapted = [
        _adapted(family, sample, wider, split, places, totals, fractions)
        for _, _, split, wider, places in moves[:_TRIES]
    ]
    return [trial for trial, _ in sorted(adapted, key=lambda found: -found[1])]


def fits(family: GaussianFamily, sample: Points, state: MixtureState) -> bool:
    """Whether no component shows that it covers two clusters: all are normal and none is wide.

    False where one has too few rows to tell.
    """
    if (state.weights * sample.weight).min() < _judged(family.width):
        return False
    fractions = family.joint(state, sample)
    normalize_rows(fractions)
    usual = not _unusual(family, sample, state, fractions)
    return usual and not family.collapsed(state, sample.weight).any()


def _judged(width: int) -> int:
    """Rows of a component that can tell whether they are normal."""
    return 2 * (width + 1)


def _unusual(
    family: GaussianFamily, sample: Points, state: MixtureState, fractions: Any
) -> list[tuple[int, Any]]:
    """Components and axes by decreasing statistic, as far as it is not that of normal rows.

    And those of components that are wider than their variances. Along a given axis the statistic
    is chi squared with 2 degrees of freedom; the choice of one among d adds d - 1.
    """
    found = axes_to_split(family, sample, state, fractions)
    wide = np.zeros(len(state.weights), dtype=bool)
    if family.covariance_type not in (FULL, TIED):
        wide = spreads(family, sample, state) > EDGE_FACTOR
    largest = float(chdtri(family.width + 1, _LEVEL))
    kept = sorted((f for f in found if f[0] > largest or wide[f[1]]), key=lambda f: -f[0])
    return [(j, axis) for _, j, axis in kept]


def normality(values: Any, masses: Any) -> float:
    """The statistic of Jarque and Bera of weighted numbers (n,), about chi squared (2) if normal.

    N (skewness^2 / 6 + (kurtosis - 3)^2 / 24).
    """
    total = float(masses.sum())
    centred = values - masses @ values / total
    squares = centred**2
    variance = float(masses @ squares) / total
    if not variance > 0:
        return 0.0
    skewness = float(masses @ (squares * centred)) / total / variance**1.5
    kurtosis = float(masses @ squares**2) / total / variance**2
    return float(total * (skewness**2 / 6 + (kurtosis - 3) ** 2 / 24))


def _extreme_kurtosis(inner: Any, masses: Any, axis: Any) -> Any:
    """A unit axis (d,) near a given one along which whitened rows have extreme kurtosis.

    The fixed point u ~ E z (u'z)^3 - 3 u of FastICA: E|z|^2 z z' sees one axis only through the
    noise of all others.
    """
    total = float(masses.sum())
    for _ in range(_AXIS_STEPS):
        moved = inner.T @ (masses * (inner @ axis) ** 3) / total - 3 * axis
        length = float(np.linalg.norm(moved))
        if not length > 0:
            break
        axis = moved / length
    return axis


def axes_to_split(
    family: GaussianFamily,
    sample: Points,
    state: MixtureState,
    fractions: Any,
) -> list[tuple[float, int, Any]]:
    """Axes (d,) along which rows of components are not normal: statistic, component, axis.

    With z the rows of a component whitened by its own covariance, the eigenvectors of E|z|^2 z z'
    of the smallest and the largest eigenvalue: two clusters of like weight show in the one, a rare
    one in the other. And the widest axis: against the average precision of all components where
    covariances are free, of z else.

    Parameters
    ----------
    fractions : (n, k), responsibilities
    """
    kind, (count, width) = family.covariance_type, state.means.shape
    result: list[tuple[float, int, Any]] = []
    if kind == FULL:
        roots = inverse_factors(cholesky(state.covariances))
        average = np.tensordot(state.weights, roots @ np.swapaxes(roots, 1, 2), axes=1)
    for j in range(count):
        rows = np.flatnonzero(fractions[:, j] > _OWNED)
        masses = fractions[rows, j] * sample.weights[rows]
        if float(masses.sum()) < _judged(width):
            continue
        gaps = sample.rows[rows] - state.means[j]
        if kind in (FULL, TIED):
            lower = cholesky(state.covariances if kind == TIED else state.covariances[j])
            inner = gaps @ inverse_factors(lower)
        else:
            lower = np.diag(np.sqrt(as_diagonals(kind, state.covariances, width)[j]))
            inner = gaps / np.diag(lower)
        weighted = inner * masses[:, None]
        norms = np.einsum("ij,ij->i", inner, inner)
        vectors = np.linalg.eigh((weighted * norms[:, None]).T @ inner)[1]
        if kind == FULL:
            wide = np.linalg.eigh(lower.T @ average @ lower)[1][:, -1]
        elif kind == TIED:
            wide = np.linalg.svd(lower)[2][0]
        else:
            wide = np.linalg.eigh(weighted.T @ inner)[1][:, -1]
        axes = [wide]
        if width > 1:
            axes += [_extreme_kurtosis(inner, masses, vectors[:, i]) for i in (0, -1)]
        result += [(normality(inner @ axis, masses), j, lower @ axis) for axis in axes]
    return result


def halved(family: GaussianFamily, state: MixtureState, j: int, axis: Any) -> MixtureState:
    """Two halves of component j along an axis of one standard deviation, as half Gaussians."""
    shift = np.sqrt(2 / np.pi) * axis
    kind, width = family.covariance_type, family.width
    means = np.stack([state.means[j] + shift, state.means[j] - shift])
    weights = np.full(2, state.weights[j] / 2)
    if kind == TIED:
        return MixtureState(weights, means, state.covariances)
    if kind == FULL:
        covariance = state.covariances[j] - np.outer(shift, shift) + family.floor
    elif kind == DIAG:
        covariance = np.maximum(state.covariances[j] - shift**2, 0.1 * state.covariances[j])
    else:
        covariance = state.covariances[j] * (1 - 2 / (np.pi * width)) + family.floor
    return MixtureState(weights, means, np.stack([covariance, covariance]))


def _partial(
    family: GaussianFamily,
    sample: Points,
    part: MixtureState,
    totals: Any,
    fraction: Any,
    needed: float = -np.inf,
) -> tuple[MixtureState, float]:
    """Components after passes over their rows, all others fixed, and the gain.

    Parameters
    ----------
    part : the components, with their weights in the whole mixture
    totals, fraction : (n,), log density of the rows before, and which fraction of it was that of
        the components which these replace
    needed : float, no more passes than may reach so much
    """
    rows, count = np.flatnonzero(fraction > _OWNED), len(part.weights)
    points = sample.take(rows)
    rest = totals[rows] + np.log(np.maximum(1 - fraction[rows], 1e-300))
    before = float(points.weights @ totals[rows])
    value = -np.inf
    for left in range(_LOCAL_PASSES, 0, -1):
        logs = np.empty((len(rows), count + 1))
        logs[:, :-1] = family.joint(part, points)
        logs[:, -1] = rest
        last, value = value, float(points.weights @ normalize_rows(logs, points.weights)) - before
        if value + left * (value - last) < needed:
            break
        fractions = np.ascontiguousarray(logs[:, :-1])
        found = family.maximize(family.sums(part, points, fractions), part)
        mass = float(fractions.sum()) / sample.weight
        tied = family.covariance_type == TIED
        part = MixtureState(
            found.weights * mass, found.means, part.covariances if tied else found.covariances
        )
    return part, value


def _adapted(
    family: GaussianFamily,
    sample: Points,
    wider: MixtureState,
    split: int,
    places: tuple[int, int],
    totals: Any,
    fractions: Any,
) -> tuple[MixtureState, float]:
    """Two components of k + 1 merged, those that changed adapted to the rest; and the gain.

    Parameters
    ----------
    wider : k + 1 components, of which `split` and the last one are the halves of one before
    places : the two that are merged
    totals, fractions : (n,) and (n, k), log densities and responsibilities before
    """
    count = len(wider.weights) - 1
    one, other = places
    merged_ = _merged(family, wider, one, other)
    old = sorted({split, one, other} - {count})
    # Places after the second of the two is gone.
    new = sorted({i - (i > other) for i in (split, count, one) if i != other})
    covariances = merged_.covariances
    tied = family.covariance_type == TIED
    part = MixtureState(
        merged_.weights[new], merged_.means[new], covariances if tied else covariances[new]
    )
    part, gain = _partial(family, sample, part, totals, fractions[:, old].sum(axis=1))
    weights, means = merged_.weights.copy(), merged_.means.copy()
    weights[new], means[new] = part.weights, part.means
    if not tied:
        covariances = covariances.copy()
        covariances[new] = part.covariances
    return MixtureState(weights / weights.sum(), means, covariances), gain


def _expanded(
    family: GaussianFamily, state: MixtureState, j: int, pair: MixtureState
) -> MixtureState:
    """One component more: the halves of component j in its place and at the end."""
    weights = np.append(state.weights, pair.weights[1])
    means = np.vstack([state.means, pair.means[1]])
    weights[j], means[j] = pair.weights[0], pair.means[0]
    if family.covariance_type == TIED:
        return MixtureState(weights / weights.sum(), means, state.covariances)
    covariances = np.concatenate([state.covariances, pair.covariances[1:]])
    covariances[j] = pair.covariances[0]
    return MixtureState(weights / weights.sum(), means, covariances)


def _merged(family: GaussianFamily, state: MixtureState, one: int, other: int) -> MixtureState:
    """One component less: two of them merged."""
    kind = family.covariance_type
    total, mean, pooled = merged(
        kind, state.weights, state.means, state.covariances, np.array([one]), np.array([other])
    )
    kept = np.flatnonzero(np.arange(len(state.weights)) != other)
    weights, means, covariances = state.weights.copy(), state.means.copy(), state.covariances
    weights[one], means[one] = total[0], mean[0]
    if kind == TIED:
        return MixtureState(weights[kept], means[kept], covariances)
    covariances = covariances.copy()
    covariances[one] = pooled[0]
    return MixtureState(weights[kept], means[kept], covariances[kept])
