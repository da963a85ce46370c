"""How far sampling turns the leading directions of a covariance."""

from __future__ import annotations

import math

import numpy as np

from latensor.diagnostics.findings import BAD, CAUTION, GOOD

# Radians up to which a subspace is determined, and from which on it is chance: 6 and 30 degrees.
_FIRM, _CHANCE = 0.1, 0.5
# Standard errors that a variance may be lower by.
_ERRORS = 2.0


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


def measured_angle(
    kept: np.ndarray,
    following: float,
    left_out: float,
    n_samples: float,
    n_features: int,
    spread: tuple[np.ndarray, np.ndarray],
) -> float:
    """`subspace_angle` of rows of any distribution: the largest over all directions kept.

    A direction turns by E y^2 q / n, y being its scores of variance one and q the squared distance
    to all directions over its mean, where Gaussian rows have 1 / n. And its own variance is known
    to (E y^4 - 1) / n squared: it may be lower by two standard errors, as where few rows make it.

    Parameters
    ----------
    kept, following, left_out, n_samples, n_features : as for `subspace_angle`
    spread : E y^4 (k,) and E y^2 q (k,)
    """
    fourth, mixed = spread
    errors = np.sqrt(np.maximum(fourth - 1, 0.0) / n_samples)
    lowest = kept * np.maximum(1 - _ERRORS * errors, 0.0)
    return max(
        subspace_angle(
            lowest[j : j + 1], following, left_out, n_samples / max(mixed[j], 1.0), n_features
        )
        for j in range(len(kept))
    )


def level_of(angle: float) -> str:
    """How firmly a subspace stands that sampling turns by an angle in radians."""
    return GOOD if angle < _FIRM else CAUTION if angle < _CHANCE else BAD
