"""Starts for expectation maximization where moments give none, and moves out of wrong optima.

Two greedy k-means++ starts stand beside the start from moments; the best after a few steps is
kept. Then components are split and merged as long as that raises the likelihood. A wrong optimum
of a mixture of separated clusters nearly always has one component that covers two clusters and
two that share one: splitting the first and merging the other two repairs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.refinement.em import Reached, em
from latensor.refinement.family import Statistics
from latensor.refinement.gaussian import GaussianFamily, GaussianState
from latensor.refinement.linear_family import HeldFeatures, LinearFamily

_STEPS = 15
_LOCAL_STEPS = 10
_CANDIDATES = 5
# Log-likelihood per sample that a move must gain.
_LEAST_GAIN = 2e-4
# Rows that the changed components hardly own do not decide about a move.
_OWNED = 1e-3
# Above so many times the edge of Marchenko and Pastur a component is wider than its variance.
EDGE_FACTOR = 1.25


@dataclass(frozen=True)
class Portfolio:
    """The best of several starts after split and merge moves.

    Attributes
    ----------
    state : GaussianState
    log_likelihood : float, per sample
    start : str, the start that was kept: "moments" or "k-means++"
    n_moves : int, split and merge moves that were accepted
    """

    state: GaussianState
    log_likelihood: float
    start: str
    n_moves: int


def search(
    held: HeldFeatures,
    family: GaussianFamily,
    starts: list[GaussianState],
    n_components: int,
    rng: np.random.Generator,
    *,
    n_seeds: int = 2,
) -> Portfolio:
    """The best optimum that the given starts, k-means++ and split and merge moves lead to.

    Parameters
    ----------
    held : HeldFeatures
    family : what a mixture is
    starts : states read off moments, possibly none
    n_components : int
    rng : draws the k-means++ starts
    n_seeds : int, the number of these
    """
    features, weights = held.features, held.weights
    named = [("moments", state) for state in starts]
    for _ in range(n_seeds):
        centers = plus_plus(features[:, : family.width], weights, n_components, rng)
        named.append(("k-means++", family.starting(centers, weights, features)))
    best: tuple[float, str, GaussianState] | None = None
    for name, state in named:
        found = _em(held, family, state, _STEPS)
        if best is None or found.log_likelihood > best[0]:
            best = (found.log_likelihood, name, found.state)
    assert best is not None
    state, value, n_moves = split_and_merge(held, family, best[2])
    return Portfolio(state, value, best[1], n_moves)


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


def spreads(
    features: Any, weights: Any, family: GaussianFamily, state: GaussianState, owners: Any
) -> tuple[Any, Any, Any]:
    """How much wider than its variance every component is, and in which direction.

    For the rows that each component owns, the largest eigenvalue of their scatter in units of its
    deviations (1 for a component that fits), over the largest that noise alone gives,
    (1 + sqrt(r / N_j))^2 (Marchenko and Pastur).

    Returns
    -------
    ratios (k,), eigenvalues (k,), directions (k, r) in these units
    """
    count, width = state.means.shape
    deviations = np.broadcast_to(family.deviations(state), (count, width))
    ratios, values, directions = np.ones(count), np.ones(count), np.zeros((count, width))
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(count + 1))
    for j in range(count):
        rows = order[bounds[j] : bounds[j + 1]]
        mass = float(weights[rows].sum())
        if mass < 3:
            continue
        centered = (features[rows, :width] - state.means[j]) / deviations[j]
        mean = weights[rows] @ centered / mass
        centered -= mean
        scatter = (centered * weights[rows, None]).T @ centered / mass
        found, vectors = np.linalg.eigh(scatter)
        values[j], directions[j] = found[-1], vectors[:, -1]
        ratios[j] = found[-1] / (1 + np.sqrt(width / mass)) ** 2
    return ratios, values, directions


def split_and_merge(
    held: HeldFeatures, family: GaussianFamily, state: GaussianState
) -> tuple[GaussianState, float, int]:
    """Split one component and merge two others, as long as that raises the likelihood.

    Moves are scored on the rows that the three components own, by a few steps on these alone;
    the best is then tried in full.

    Returns
    -------
    state, log-likelihood per sample, number of moves
    """
    count = len(state.weights)
    value = held.fold(Statistics(LinearFamily(family), state, True)).value
    n_moves = 0
    if count < 3:
        return state, value, 0
    for _ in range(2 * count):
        moved = _best_move(held, family, state)
        if moved is None:
            break
        found = _em(held, family, moved, _LOCAL_STEPS)
        if found.log_likelihood < value + _LEAST_GAIN:
            break
        state, value, n_moves = found.state, found.log_likelihood, n_moves + 1
    return state, value, n_moves


def _em(
    held: HeldFeatures, family: GaussianFamily, state: GaussianState, n_steps: int
) -> Reached[GaussianState]:
    """A few plain steps."""
    return em(
        held.fold, LinearFamily(family), state, max_iter=n_steps, accelerate=False, prepared=True
    )


def _best_move(
    held: HeldFeatures, family: GaussianFamily, state: GaussianState
) -> GaussianState | None:
    """The most promising state one split and one merge away; None where none gains."""
    features, weights = held.features, held.weights
    with one_blas_thread():
        logs = features @ family.natural(state)
    largest = logs.max(axis=1)
    densities = np.exp(logs - largest[:, None])
    owned = densities / densities.sum(axis=1, keepdims=True)
    owners = np.argmax(logs, axis=1)
    with one_blas_thread():
        ratios, values, directions = spreads(features, weights, family, state, owners)
        overlaps = (owned * weights[:, None]).T @ owned
    excess = state.weights * (values - 1)
    splits = [j for j in np.argsort(-excess)[:_CANDIDATES] if ratios[j] > EDGE_FACTOR]
    if not splits:
        return None
    best_gain, best_state = _LEAST_GAIN * float(weights.sum()), None
    for split in splits:
        for pair in _merge_pairs(overlaps, state.weights, split):
            changed = np.array([split, *pair])
            share = owned[:, changed].sum(axis=1)
            rows = np.flatnonzero(share > _OWNED)
            if len(rows) < 4:
                continue
            trial, gain = _local_trial(
                features[rows],
                weights[rows],
                family,
                state,
                changed,
                directions[split],
                largest[rows] + np.log(densities[rows].sum(axis=1)),
                share[rows],
            )
            if gain > best_gain:
                best_gain, best_state = gain, _replaced(state, changed, trial)
    return best_state


def _merge_pairs(overlaps: Any, shares: Any, split: int) -> list[tuple[int, int]]:
    """Pairs of components to merge: those that share most rows, and the two smallest."""
    norms = np.sqrt(np.maximum(np.diag(overlaps), 1e-300))
    cosines = overlaps / np.outer(norms, norms)
    rows, columns = np.triu_indices(len(shares), 1)
    apart = (rows != split) & (columns != split)
    rows, columns = rows[apart], columns[apart]
    best = np.argsort(-cosines[rows, columns], kind="stable")[: _CANDIDATES - 1]
    pairs = [(int(rows[i]), int(columns[i])) for i in best]
    small = [int(j) for j in np.argsort(shares, kind="stable") if j != split][:2]
    smallest = (min(small), max(small))
    return pairs if smallest in pairs else [*pairs, smallest]


def _local_trial(
    rows: Any,
    weights: Any,
    family: GaussianFamily,
    state: GaussianState,
    changed: Any,
    direction: Any,
    totals: Any,
    share: Any,
) -> tuple[GaussianState, float]:
    """Three new components on the rows of three old ones, the others as they are; and the gain."""
    from latensor.refinement.gaussian_kernels._kernels import normalize_rows

    split, one, other = changed
    deviation = np.broadcast_to(family.deviations(state), state.means.shape)[split]
    # Half of the mass on either side of the widest direction, one deviation away.
    shift = direction * deviation
    pair = state.weights[[one, other]]
    merged = pair.sum()
    mean = pair @ state.means[[one, other]] / merged
    variance = np.tensordot(pair, state.variances[[one, other]], axes=1) / merged
    current = GaussianState(
        np.array([state.weights[split] / 2, state.weights[split] / 2, merged]),
        np.stack([state.means[split] + shift, state.means[split] - shift, mean]),
        np.stack([state.variances[split], state.variances[split], variance]),
    )
    mass = float(state.weights[changed].sum())
    rest = totals + np.log(np.maximum(1 - share, 1e-300))
    value = 0.0
    for _ in range(_LOCAL_STEPS):
        logs = np.empty((len(rows), 4))
        logs[:, :3] = rows @ family.natural(current)
        logs[:, 3] = rest
        value = float(normalize_rows(logs, weights))
        found = family.maximize(logs[:, :3].T @ rows)
        variances = found.variances
        current = GaussianState(found.weights * mass, found.means, variances)
    return current, value - float(weights @ totals)


def _replaced(state: GaussianState, changed: Any, trial: GaussianState) -> GaussianState:
    weights, means, variances = state.weights.copy(), state.means.copy(), state.variances.copy()
    weights[changed] = trial.weights
    means[changed] = trial.means
    variances[changed] = trial.variances
    return GaussianState(weights / weights.sum(), means, variances)
