"""Covariances of components in four shapes: full, tied, diagonal, spherical.

full        S_j            (k, d, d)
tied        S_j = S        (d, d)
diag        S_j = diag(s_j)  (k, d)
spherical   S_j = s_j I    (k,)
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

FULL, TIED, DIAG, SPHERICAL = "full", "tied", "diag", "spherical"
LOG_TWO_PI = float(np.log(2 * np.pi))
COVARIANCE_TYPES = (FULL, TIED, DIAG, SPHERICAL)


@cache
def triangle(width: int, below: bool = False) -> tuple[Any, Any]:
    """Rows and columns of the upper triangle of a matrix, or of what lies below the diagonal."""
    found = np.tril_indices(width, -1) if below else np.triu_indices(width)
    for places in found:
        places.flags.writeable = False
    return found


def as_matrices(kind: str, covariances: Any, count: int, width: int) -> Any:
    """The covariances of `count` components as matrices (k, d, d)."""
    if kind == FULL:
        return covariances
    if kind == TIED:
        return np.broadcast_to(covariances, (count, width, width))
    diagonals = as_diagonals(kind, covariances, width)
    return diagonals[:, :, None] * np.eye(width)


def as_diagonals(kind: str, covariances: Any, width: int) -> Any:
    """The variances (k, d) of diagonal or spherical covariances."""
    if kind == DIAG:
        return covariances
    return np.broadcast_to(covariances[:, None], (len(covariances), width))


def of_components(kind: str, covariances: Any, count: int, width: int) -> Any:
    """Of every component: matrices (k, d, d) of full and tied ones, variances (k, d) else."""
    if kind in (FULL, TIED):
        return as_matrices(kind, covariances, count, width)
    return as_diagonals(kind, covariances, width)


def shape_of(kind: str, count: int, width: int) -> tuple[int, ...]:
    """The shape of the covariances of `count` components."""
    return {FULL: (count, width, width), TIED: (width, width), DIAG: (count, width)}.get(
        kind, (count,)
    )


def n_entries(kind: str, count: int, width: int) -> int:
    """How many numbers of the covariances of `count` components are free."""
    if kind in (FULL, TIED):
        return (1 if kind == TIED else count) * width * (width + 1) // 2
    return count * width if kind == DIAG else count


def cholesky(matrices: Any) -> Any:
    """Lower triangular factors (..., d, d) of covariances.

    Where rounding has made one indefinite, its eigenvalues are raised to the rounding of the
    largest.
    """
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrices)
        least = matrices.shape[-1] * np.finfo(float).eps * np.abs(values).max(axis=-1)
        values = np.maximum(values, np.maximum(least, np.finfo(float).tiny)[..., None])
        repaired = (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2)
        try:
            return np.linalg.cholesky(repaired)
        except np.linalg.LinAlgError:
            upper = np.linalg.qr(np.sqrt(values)[..., None] * np.swapaxes(vectors, -1, -2))[1]
            lower = np.swapaxes(upper, -1, -2)
            signs = np.where(np.diagonal(lower, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
            return lower * signs[..., None, :]


def inverse_factors(lower: Any) -> Any:
    """L^-T of lower triangular factors (..., d, d), scikit-learn's `precisions_cholesky_`."""
    return np.swapaxes(np.linalg.inv(lower), -1, -2)


def log_determinants(kind: str, covariances: Any, width: int) -> Any:
    """Log |S_j| (k,), one number for tied covariances."""
    if kind in (FULL, TIED):
        factors = cholesky(covariances)
        return 2 * np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1)
    if kind == DIAG:
        return np.log(covariances).sum(axis=-1)
    return width * np.log(covariances)


def smallest_variances(kind: str, covariances: Any) -> Any:
    """The smallest eigenvalue of every covariance, (k,); (1,) for tied ones."""
    if kind in (FULL, TIED):
        return np.atleast_1d(np.linalg.eigvalsh(covariances)[..., 0])
    return covariances.min(axis=1) if kind == DIAG else covariances


def merged(kind: str, weights: Any, means: Any, covariances: Any, one: Any, other: Any) -> Any:
    """Weights, means and covariances of pairs of components taken as one, moments kept.

    With a = w_i / (w_i + w_j), b = 1 - a: S_ij = a S_i + b S_j + a b (mu_i - mu_j)(mu_i - mu_j)',
    seen in the shape of the family. For tied covariances the last is the full (p, d, d).

    Parameters
    ----------
    weights, means, covariances : of all components
    one, other : (p,) integers, the pairs
    """
    total = weights[one] + weights[other]
    a = weights[one] / total
    b = 1 - a
    mean = a[:, None] * means[one] + b[:, None] * means[other]
    gap = means[one] - means[other]
    ab = a * b
    if kind == FULL:
        pooled = a[:, None, None] * covariances[one] + b[:, None, None] * covariances[other]
        return total, mean, pooled + ab[:, None, None] * gap[:, :, None] * gap[:, None, :]
    if kind == TIED:
        return total, mean, covariances + ab[:, None, None] * gap[:, :, None] * gap[:, None, :]
    if kind == DIAG:
        pooled = a[:, None] * covariances[one] + b[:, None] * covariances[other]
        return total, mean, pooled + ab[:, None] * gap**2
    pooled = a * covariances[one] + b * covariances[other]
    return total, mean, pooled + ab * (gap**2).mean(axis=1)


def merge_costs(kind: str, weights: Any, means: Any, covariances: Any, one: Any, other: Any) -> Any:
    """Bounds (p,) of the Kullback-Leibler divergence that merging pairs of components causes.

    B_ij = 1/2 [(w_i + w_j) log |S_ij| - w_i log |S_i| - w_j log |S_j|]  (Runnalls 2007).
    """
    width = means.shape[1]
    total, _, pooled = merged(kind, weights, means, covariances, one, other)
    together = log_determinants(FULL if kind == TIED else kind, pooled, width)
    apart = np.broadcast_to(log_determinants(kind, covariances, width), weights.shape)
    return (total * together - weights[one] * apart[one] - weights[other] * apart[other]) / 2
