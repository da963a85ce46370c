"""Rank-safe solution of positive semi-definite systems."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
from scipy.linalg import lapack

from latensor.arrays.checks import require_matrix
from latensor.arrays.library import (
    Array,
    describe,
    is_numpy,
    is_traced,
    machine_epsilon,
    real_dtype,
    resolve,
)
from latensor.arrays.linear_map import conjugate_transpose
from latensor.exceptions import InvalidInputError

# Looked up by dtype, because asking SciPy for them costs more than a small solve.
_CHOLESKY = {
    "f": (lapack.spotrf, lapack.spotrs),
    "d": (lapack.dpotrf, lapack.dpotrs),
    "F": (lapack.cpotrf, lapack.cpotrs),
    "D": (lapack.zpotrf, lapack.zpotrs),
}


def solve_positive(gram: Array, rhs: Array, *, ridge: float = 0.0) -> Array:
    """The solution of G X = B for a positive semi-definite G, at any rank.

    Cholesky where G is safely definite. Otherwise the least-squares solution of least norm, from
    the eigenvalues of G above k eps times the largest: directions that G does not determine
    stay zero instead of filling with rounding errors.

    Parameters
    ----------
    gram : (k, k) array, symmetric (Hermitian) positive semi-definite
    rhs : (k,) or (k, m) array
    ridge : float, solves (G + ridge I) X = B
    """
    if not (is_numpy(gram) and is_numpy(rhs) and gram.dtype == rhs.dtype == np.float64):
        _, arrays = resolve(gram=gram, rhs=rhs)
        gram, rhs = arrays["gram"], arrays["rhs"]
    require_matrix(gram, "gram")
    if gram.shape[0] != gram.shape[1] or rhs.shape[:1] != gram.shape[:1] or rhs.ndim > 2:
        raise InvalidInputError(
            f"gram must be (k, k) and rhs (k,) or (k, m), got {describe(gram)} and {describe(rhs)}"
        )
    if ridge < 0:
        raise InvalidInputError(f"ridge={ridge!r} must not be negative")
    if ridge:
        xp = array_api_compat.array_namespace(gram)
        gram = gram + ridge * xp.eye(
            gram.shape[0], dtype=gram.dtype, device=array_api_compat.device(gram)
        )
    if is_numpy(gram):
        solution = _solve_by_cholesky(gram, rhs)
        if solution is not None:
            return solution
    return _solve_by_eigenvalues(gram, rhs)


def _solve_by_cholesky(gram: Any, rhs: Any) -> Any:
    size = gram.shape[0]
    potrf, potrs = _CHOLESKY[gram.dtype.char]
    factor, failed = potrf(gram, lower=True, clean=False)
    if failed:
        return None
    # A pivot this small holds no correct digit: what it would determine is noise. NaN fails too.
    least = 10 * size * np.finfo(gram.dtype).eps * gram.diagonal().real.max()
    if not factor.diagonal().real.min() ** 2 > least:
        return None
    solution, failed = potrs(factor, rhs if rhs.ndim == 2 else rhs[:, None], lower=True)
    if failed:
        return None
    return solution if rhs.ndim == 2 else solution[:, 0]


def _solve_by_eigenvalues(gram: Array, rhs: Array) -> Array:
    xp = array_api_compat.array_namespace(gram)
    if not is_traced(gram) and not bool(xp.all(xp.isfinite(gram))):
        raise InvalidInputError("gram holds NaN or infinite entries: check what it was built from")
    values, vectors = xp.linalg.eigh((gram + conjugate_transpose(gram)) / 2)
    size = gram.shape[0]
    keep = values > 10 * size * machine_epsilon(gram) * xp.max(xp.abs(values))
    one = xp.ones((), dtype=real_dtype(gram), device=array_api_compat.device(gram))
    inverse = xp.where(keep, one / xp.where(keep, values, one), 0 * one)
    coordinates = conjugate_transpose(vectors) @ rhs
    return vectors @ (coordinates * (inverse if rhs.ndim == 1 else inverse[:, None]))
