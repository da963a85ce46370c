"""Least-squares updates of one factor that survive dependent components.

Every alternating method solves A Gamma = M for a (d, rank) factor A, where Gamma, the Hadamard
product of the other modes' Grams, is singular whenever two components coincide or one vanishes.
Over observed entries only, every row of A has a Gamma of its own: (d, rank, rank).
Inside this folder factors are held transposed, (rank, d): a component is a contiguous row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import lapack

from latensor.arrays import Array

# Relative increase of the diagonal that lets a Cholesky factorization of a nearly singular
# Gamma go through while changing a well-posed solution by no more than rounding does.
_DIAGONAL_LIFT = 1e-13


def hadamard_of_others(grams: Sequence[Array], mode: int) -> Array:
    """The Hadamard product of all `grams` but that of `mode`, as a new array."""
    result: Array = None
    for other, gram in enumerate(grams):
        if other != mode:
            result = gram if result is None else result * gram
    if result is None:  # order 1: nothing else multiplies the only factor
        result = np.ones_like(grams[mode])
    return result.copy()


def solve_gram(gamma: Array, right: Array, ridge: float = 0.0) -> Array:
    """The (rank, d) solution X of (conj(Gamma) + ridge I) X = M, of least norm if singular.

    Parameters
    ----------
    gamma : (rank, rank) array, Hermitian and positive semidefinite; overwritten
    right : (rank, d) array M, an mttkrp
    ridge : float, penalty on the squared norm of the factor
    """
    if gamma.dtype.kind == "c":
        gamma = gamma.conj()
    diagonal = gamma.reshape(-1)[:: gamma.shape[0] + 1]
    if ridge:
        diagonal += ridge
    lifted = gamma.copy()
    lifted.reshape(-1)[:: gamma.shape[0] + 1] *= 1.0 + _DIAGONAL_LIFT
    posv = lapack.zposv if gamma.dtype.kind == "c" else lapack.dposv
    _, solution, info = posv(lifted, right)
    if info == 0 and np.isfinite(solution[:, 0]).all():
        return np.ascontiguousarray(solution)
    return pseudo_inverse(gamma) @ right


def solve_rows(gamma: Array, right: Array, ridge: float = 0.0) -> Array:
    """The (rank, d) solution where every row of the factor has its own (rank, rank) Gamma.

    A row with fewer equations than components is held by the lift of the diagonal alone, which
    gives nearly the solution of least norm.
    """
    rank = gamma.shape[-1]
    lift = 10 * _DIAGONAL_LIFT * np.trace(gamma, axis1=1, axis2=2) / rank + ridge
    lifted = gamma + np.maximum(lift, np.finfo(float).tiny)[:, None, None] * np.eye(rank)
    rows = np.linalg.solve(lifted, right.T[:, :, None])[:, :, 0]
    return np.ascontiguousarray(rows.T)


def inverse_diagonal(gamma: Array) -> Array:
    """The diagonal of the inverse of a Hermitian semidefinite matrix, or of its pseudo-inverse."""
    if gamma.dtype.kind != "c":
        triangle, info = lapack.dpotrf(gamma, lower=1)
        if info == 0 and triangle.diagonal().min() ** 2 > 1e-12 * gamma.diagonal().max():
            inverse, info = lapack.dpotri(triangle, lower=1)
            if info == 0:
                return np.asarray(inverse.diagonal())
    return np.asarray(pseudo_inverse(gamma).diagonal().real)


def pseudo_inverse(gamma: Array) -> Array:
    """The pseudo-inverse of a Hermitian semidefinite matrix, from its unit-diagonal scaling.

    Scaling first keeps a component of small norm: what counts as dependent is its direction.
    """
    scale = np.sqrt(np.maximum(gamma.diagonal().real, 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = np.linalg.eigh(gamma * inverse[:, None] * inverse)
    keep = values > values.size * np.finfo(float).eps * max(float(values[-1]), 0.0)
    basis = vectors[:, keep] * inverse[:, None]
    return np.asarray((basis / values[keep]) @ basis.conj().T)
