"""Gaussian emissions from what moments say about states, or at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.models.hmm.read_off import HiddenStates
from latensor.refinement.families.covariances import shape_of
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.refinement.hmm import GaussianEmission
from latensor.refinement.mixture_starts import plus_plus

# Variances read off are at least this fraction of their mean over the states, or this many times
# the noise where that is less: one that is far too small costs more likelihood than one too large.
_LEAST_FRACTION, _NOISE_UNITS = 0.3, 20.0
# And at most so many times those of all rows, which are one.
_MOST_VARIANCE = 4.0


def gaussian_of(states: HiddenStates, family: GaussianFamily, noise: float) -> GaussianEmission:
    """Means and covariances from the first and second moments of points given the state.

    Parameters
    ----------
    states : with the points, in the coordinates of the family, and their squares or products as
        observed quantities
    noise : float, 1 / sqrt(n)
    """
    dimension, kind, floor = family.width, family.covariance_type, family.floor
    means, rest = states.observed[:, :dimension], states.observed[:, dimension:]
    fraction = min(_LEAST_FRACTION, _NOISE_UNITS * noise)
    weights = states.weights / states.weights.sum()
    if kind in ("spherical", "diag"):
        variances = rest - means**2
        least = np.maximum(fraction * np.maximum(weights @ variances, noise), floor)
        variances = np.clip(variances, least, _MOST_VARIANCE)
        found = variances.mean(axis=1) if kind == "spherical" else variances
        return _emission(family, means, found)
    first, second = np.triu_indices(dimension)
    matrices = np.zeros((len(means), dimension, dimension))
    matrices[:, first, second] = matrices[:, second, first] = rest
    matrices -= np.einsum("ja,jb->jab", means, means)
    pooled = np.einsum("j,jab->ab", weights, matrices)
    least = float(np.diag(floor).min())
    lowest = max(fraction * max(float(np.linalg.eigvalsh(pooled)[0]), noise), least)
    if kind == "tied":
        return _emission(family, means, _raised(pooled[None], lowest)[0])
    return _emission(family, means, _raised(matrices, lowest))


def _emission(family: GaussianFamily, means: Any, covariances: Any) -> GaussianEmission:
    return GaussianEmission(family, MixtureState(np.ones(len(means)), means, covariances))


def _raised(matrices: Any, least: float) -> Any:
    """Symmetric matrices (m, p, p) with eigenvalues of at least so much."""
    values, vectors = np.linalg.eigh(matrices)
    return np.einsum("mab,mb,mcb->mac", vectors, np.maximum(values, least), vectors)


def random_gaussian(
    k: int, rows: Any, family: GaussianFamily, rng: np.random.Generator
) -> GaussianEmission:
    """Means at random rows, the later ones likelier far from the earlier, and equal covariances.

    Parameters
    ----------
    k : int, states
    rows : (n, p) points in the coordinates of the family
    rng : draws the rows
    """
    p = rows.shape[1]
    pool = rows[rng.choice(len(rows), min(len(rows), 2000), replace=False)]
    means = plus_plus(pool, np.ones(len(pool)), k, rng)
    distances = ((pool[:, None] - means) ** 2).sum(axis=2).min(axis=1)
    variance = max(float(distances.mean()) / p, 1e-3, float(np.max(family.floor)))
    kind = family.covariance_type
    one = variance * np.eye(p) if kind in ("tied", "full") else variance
    return _emission(family, means, np.broadcast_to(one, shape_of(kind, k, p)).copy())
