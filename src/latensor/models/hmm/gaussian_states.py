"""Gaussian emissions from what moments say about states, or at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.models.hmm.read_off import HiddenStates
from latensor.refinement.hmm import GaussianEmission
from latensor.refinement.hmm.gaussian import positive

# Variances read off are at least this fraction of their mean over the states, or this many times
# the noise where that is less: one that is far too small costs more likelihood than one too large.
_LEAST_FRACTION, _NOISE_UNITS = 0.3, 20.0
# And at most so many times those of all rows, which are one.
_MOST_VARIANCE = 4.0


def gaussian_of(
    states: HiddenStates, dimension: int, kind: str, floor: Any, noise: float
) -> GaussianEmission:
    """Means and covariances from the first and second moments of points given the state.

    Parameters
    ----------
    states : with the points and their squares or products as observed quantities
    dimension : int, p
    kind : str, of the covariances
    floor : float or (p,), the least variance
    noise : float, 1 / sqrt(n)
    """
    means, rest = states.observed[:, :dimension], states.observed[:, dimension:]
    fraction = min(_LEAST_FRACTION, _NOISE_UNITS * noise)
    weights = states.weights / states.weights.sum()
    if kind in ("spherical", "diag"):
        variances = rest - means**2
        least = np.maximum(fraction * np.maximum(weights @ variances, noise), floor)
        variances = np.clip(variances, least, _MOST_VARIANCE)
        found = variances.mean(axis=1) if kind == "spherical" else variances
        return GaussianEmission(means, found, kind, floor)
    first, second = np.triu_indices(dimension)
    matrices = np.zeros((len(means), dimension, dimension))
    matrices[:, first, second] = matrices[:, second, first] = rest
    matrices -= np.einsum("ja,jb->jab", means, means)
    pooled = np.einsum("j,jab->ab", weights, matrices)
    lowest = max(fraction * max(float(np.linalg.eigvalsh(pooled)[0]), noise), float(np.min(floor)))
    if kind == "tied":
        return GaussianEmission(means, positive(pooled[None], lowest)[0], kind, floor)
    return GaussianEmission(means, positive(matrices, lowest), kind, floor)


def random_gaussian(
    k: int, rows: Any, kind: str, floor: Any, rng: np.random.Generator
) -> GaussianEmission:
    """Means at random rows, the later ones likelier far from the earlier, and equal covariances.

    Parameters
    ----------
    k : int, states
    rows : (n, p) standardized points
    kind : str, of the covariances
    floor : float or (p,), the least variance
    rng : draws the rows
    """
    p = rows.shape[1]
    pool = rows[rng.choice(len(rows), min(len(rows), 2000), replace=False)]
    means = [pool[rng.integers(len(pool))]]
    distances = ((pool - means[0]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        total = distances.sum()
        fractions = distances / total if total > 0 else np.full(len(pool), 1 / len(pool))
        means.append(pool[rng.choice(len(pool), p=fractions)])
        distances = np.minimum(distances, ((pool - means[-1]) ** 2).sum(axis=1))
    variance = np.maximum(max(float(distances.mean()) / p, 1e-3), np.broadcast_to(floor, (p,)))
    covariances = {
        "spherical": np.full(k, variance.mean()),
        "diag": np.repeat(variance[None], k, axis=0),
        "tied": np.diag(variance),
        "full": np.repeat(np.diag(variance)[None], k, axis=0),
    }[kind]
    return GaussianEmission(np.array(means), covariances, kind, floor)
