"""Starting values of Gaussian mixtures: overfit and merge, k-means.

Each start is a state of a `GaussianFamily` before any pass of expectation maximization over the
mixture asked for. Over-fitting and merging is the best single start known here: a mixture of
2 k + 1 components sees every cluster, and what is superfluous is merged where that costs least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.moments.batch import Batch
from latensor.refinement.families.covariances import (
    DIAG,
    FULL,
    SPHERICAL,
    TIED,
    merge_costs,
    merged,
)
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState, Points
from latensor.refinement.mixture_moves import passes

# Passes of the over-fitted mixture before it is merged (recipe: 6 to 8).
_OVERFIT_PASSES = 6
_LLOYD_PASSES = 2
# Rows per centre among which k-means++ draws: of a cluster of 1 % one row per centre.
_SEED_ROWS = 100


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Rows of a sample as the starts see them, all without unobserved entries.

    Attributes
    ----------
    points : the rows in the coordinates of the family
    whitened : (n, d), with covariance I; for diag and spherical as `standardized`
    standardized : (n, d), less the centre of the family, with unit variances; spherical: on average
    scale : (d,), what the rows were divided by
    """

    points: Points
    whitened: Any
    standardized: Any
    scale: Any

    @staticmethod
    def of(family: GaussianFamily, batch: Batch, points: Points) -> Coordinates:
        """Of rows (n, d) without unobserved entries, and what the family has prepared of them."""
        if family.covariance_type in (DIAG, SPHERICAL):
            return Coordinates(points, points.rows, points.rows, 1 / family.transform)
        rows, weights = batch.rows, batch.weights
        total = weights.sum()
        inner = points.rows - weights @ points.rows / total
        covariance = (inner * weights[:, None]).T @ inner / total
        values, vectors = np.linalg.eigh(covariance)
        least = len(values) * np.finfo(float).eps * max(float(values[-1]), np.finfo(float).tiny)
        # A direction that does not vary says nothing: it is left at zero.
        scales = np.where(values > least, 1 / np.sqrt(np.maximum(values, least)), 0.0)
        gaps = np.asarray(rows, dtype=np.float64) - family.centre
        variances = weights @ gaps**2 / total - (weights @ gaps / total) ** 2
        deviations = np.sqrt(np.maximum(variances, 0.0))
        scale = np.where(deviations > 0, deviations, 1.0)
        return Coordinates(points, inner @ (vectors * scales), gaps / scale, scale)


def by_labels(
    family: GaussianFamily, points: Points, labels: Any, count: int, shrink: bool = True
) -> MixtureState:
    """The mixture of `count` components that hard assignments (n,) give.

    Covariances are shrunk towards the pooled one by d + 1 rows, so that none is singular.
    """
    fractions = np.zeros((len(points), count))
    fractions[np.arange(len(points)), labels] = points.weights
    return from_responsibilities(family, points, fractions, shrink)


def from_responsibilities(
    family: GaussianFamily, points: Points, fractions: Any, shrink: bool = False
) -> MixtureState:
    """The mixture that responsibilities times weights (n, k) give."""
    kind, width, count = family.covariance_type, family.width, fractions.shape[1]
    total = points.weights.sum()
    mean = points.weights @ points.rows / total
    variances = points.weights @ (points.rows - mean) ** 2 / total
    shapes: dict[str, Any] = {
        FULL: np.diag(variances) + family.floor if kind == FULL else None,
        TIED: np.diag(variances) + family.floor if kind == TIED else None,
        DIAG: variances + family.floor if kind == DIAG else None,
        SPHERICAL: variances.mean() + family.floor if kind == SPHERICAL else None,
    }
    alike = shapes[kind]
    if kind != TIED:
        alike = np.broadcast_to(alike, (count, *np.shape(alike))).copy()
    like = MixtureState(np.full(count, 1 / count), np.tile(mean, (count, 1)), alike)
    state = family.maximize(family.sums(like, points, fractions), like)
    if shrink and kind in (FULL, DIAG):
        counts = state.weights * total
        pooled = np.tensordot(state.weights, state.covariances, axes=1)
        extra = (width + 1) / (counts + width + 1)
        extra = extra.reshape(-1, *[1] * (state.covariances.ndim - 1))
        shrunk = (1 - extra) * state.covariances + extra * pooled
        state = MixtureState(state.weights, state.means, shrunk)
    # A component without rows would never get any.
    weights = np.maximum(state.weights, 0.1 / count / max(total, 1.0))
    return MixtureState(weights / weights.sum(), state.means, state.covariances)


def plus_plus(rows: Any, weights: Any, count: int, rng: np.random.Generator) -> Any:
    """Greedy k-means++ centers (k, r): each the best of a few drawn far from those before.

    A center is drawn with a probability proportional to weight times squared distance to the
    nearest center so far; of 2 + log k draws the one that lowers the sum of these the most stays.
    """
    squares = np.einsum("ij,ij->i", rows, rows)

    def distances_to(chosen: Any) -> Any:
        centers = rows[chosen]
        return np.maximum(squares[:, None] - 2 * rows @ centers.T + squares[chosen], 0.0)

    def draw(masses: Any, size: int) -> Any:
        cumulated = np.cumsum(masses)
        places = np.searchsorted(cumulated, rng.random(size) * cumulated[-1], side="right")
        return np.minimum(places, len(rows) - 1)

    n_trials = 2 + int(np.log(count))
    chosen = [int(draw(weights, 1)[0])]
    nearest = distances_to(np.array(chosen))[:, 0]
    for _ in range(1, count):
        masses = weights * nearest
        # Duplicates leave no distance: any row is then as good as another.
        trials = draw(masses if masses.sum() > 0 else weights, n_trials)
        lowered = np.minimum(distances_to(trials), nearest[:, None])
        winner = int(np.argmin(weights @ lowered))
        chosen.append(int(trials[winner]))
        nearest = lowered[:, winner]
    return rows[chosen]


def kmeans(rows: Any, weights: Any, count: int, rng: np.random.Generator, n_passes: int) -> Any:
    """Labels (n,) of k-means: greedy k-means++ centers and some passes of Lloyd's algorithm."""
    few = _SEED_ROWS * count
    chosen = rng.choice(len(rows), few, replace=False) if few < len(rows) else slice(None)
    centers = plus_plus(rows[chosen], weights[chosen], count, rng)
    labels = np.zeros(len(rows), dtype=np.intp)
    for step in range(n_passes + 1):
        distances = np.einsum("ij,ij->i", centers, centers) - 2 * rows @ centers.T
        found = np.argmin(distances, axis=1)
        if step and (found == labels).all():
            break
        labels = found
        if step == n_passes:
            break
        members = np.zeros((len(rows), count))
        members[np.arange(len(rows)), labels] = weights
        masses = members.sum(axis=0)
        moved = members.T @ rows / np.maximum(masses, np.finfo(float).tiny)[:, None]
        centers = np.where(masses[:, None] > 0, moved, centers)
    return labels


def overfit(
    family: GaussianFamily, points: Points, rows: Any, count: int, rng: np.random.Generator
) -> MixtureState:
    """2 k + 1 components by k-means++ on `rows` and some passes, to be merged down to k.

    Parameters
    ----------
    points : the sample in the coordinates of the family
    rows : (n, r), the coordinates in which k-means++ draws
    """
    many = min(2 * count + 1, len(points))
    labels = kmeans(rows, points.weights, many, rng, _LLOYD_PASSES)
    state = by_labels(family, points, labels, many)
    return passes(family, points, state, _OVERFIT_PASSES, tol=-np.inf)[0]


def merge_down(
    family: GaussianFamily, state: MixtureState, count: int, power: float = 0.0
) -> MixtureState:
    """Components merged greedily where Runnalls' bound is smallest, until `count` are left.

    Parameters
    ----------
    power : float, the bound is divided by this power of the smaller weight of a pair: with 0 rare
        components are cheap to merge, with 1/2 they are kept, with 1 too many are
    """
    kind = family.covariance_type

    def cost(one: Any, other: Any) -> Any:
        bound = merge_costs(kind, weights, means, covariances, one, other)
        return bound / np.minimum(weights[one], weights[other]) ** power

    weights, means, covariances = state.weights, state.means, state.covariances
    size = len(weights)
    costs = np.full((size, size), np.inf)
    one, other = np.triu_indices(size, 1)
    costs[one, other] = cost(one, other)
    weights, means = weights.copy(), means.copy()
    covariances = covariances.copy()
    alive = np.ones(size, dtype=bool)
    for _ in range(size - count):
        i, j = np.unravel_index(int(np.argmin(costs)), costs.shape)
        pair = np.array([i]), np.array([j])
        total, mean, pooled = merged(kind, weights, means, covariances, *pair)
        if kind == TIED:
            # The pooled covariance takes up what lay between the two means.
            covariances = covariances + total[0] * (pooled[0] - covariances)
        else:
            covariances[i] = pooled[0]
        weights[i], means[i], alive[j] = total[0], mean[0], False
        costs[j], costs[:, j] = np.inf, np.inf
        others = np.flatnonzero(alive)
        others = others[others != i]
        if len(others):
            low, high = np.minimum(others, i), np.maximum(others, i)
            costs[low, high] = cost(low, high)
    kept = np.flatnonzero(alive)
    left = covariances if kind == TIED else covariances[kept]
    return MixtureState(weights[kept] / weights[kept].sum(), means[kept], left)
