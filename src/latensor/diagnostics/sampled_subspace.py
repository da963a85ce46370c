"""How far sampling turns the leading directions of a covariance."""

from __future__ import annotations

import math

import numpy as np

from latensor.diagnostics.findings import BAD, CAUTION, GOOD

# Radians up to which a subspace is determined, and from which on it is chance: 6 and 30 degrees.
_FIRM, _CHANCE = 0.1, 0.5


def subspace_angle(
    kept: np.ndarray, following: float, left_out: float, n_samples: float, n_features: int
) -> float:
    """The angle, in radians, by which sampling turns the last direction kept out of its subspace.

    For Gaussian rows the eigenvector of variance v turns towards one of variance u by a random
    angle of mean square v u / (n (v - u)^2) (Anderson 1963). As many directions as hold what is
    left out at the variance that follows add up.

    Parameters
    ----------
    kept : (k,) variances, decreasing
    following : the first variance that is not kept
    left_out : the sum of those
    n_samples : n
    n_features : d; where fewer are kept and n - 1 samples hold no more, chance chose which
    """
    last = float(kept[-1])
    if len(kept) < n_features and (last <= 0 or n_samples - 1 <= len(kept)):
        return math.pi / 2
    if following <= 0:
        return 0.0
    count = max(left_out / following, 1.0)
    gap = last - following
    if gap <= 0:
        return math.pi / 2
    # One variance divided by the other first: products of small numbers underflow.
    ratio = following / last
    return min(math.sqrt(count * ratio / n_samples) * (last / gap), math.pi / 2)


def level_of(angle: float) -> str:
    """How firmly a subspace stands that sampling turns by an angle in radians."""
    return GOOD if angle < _FIRM else CAUTION if angle < _CHANCE else BAD
