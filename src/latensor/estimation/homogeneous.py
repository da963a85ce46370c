"""Weights and means of a mixture from whitened moments, in homogeneous coordinates.

For a mixture of k means with weights w_j, whitened so that the coordinates y of the means have
mean zero and covariance I in R^(k-1), the vectors v_j = sqrt(w_j) (1, y_j) are orthonormal in R^k
and sum_j w_j (1, y_j)^(x)3 = sum_j w_j^(-1/2) v_j^(x)3. So k means need to be affinely
independent only, the weights v_j0^2 sum to one, the weighted means to the mean, and signs are
fixed by v_j0 > 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.decomposition.algorithms.joint_diagonalization import diagonalize
from latensor.exceptions import InvalidInputError

# A component of less than this fraction of the mean weight is not read off, but noise.
_LEAST_FRACTION = 0.05
# Singular values of cross moments and eigenvalues of second moments below these fractions of their
# largest are raised to them: real data has negative ones.
LEAST_SINGULAR, LEAST_EIGENVALUE = 1e-3, 3e-3
# Weight above which moments count as exact and nothing is raised above noise.
EXACT = 1e15


@dataclass(frozen=True)
class HomogeneousMixture:
    """Components of a mixture in whitened coordinates.

    Attributes
    ----------
    vectors : (k, k), column j is v_j = sqrt(w_j) (1, y_j), orthonormal
    weights : (k,), at least a twentieth of the mean weight
    points : (k, k - 1), the whitened means y_j
    off_diagonal : float, fraction of the third moment that no rotation explains: 0 for exact
        moments; above 0.15 the components are often not those of the mixture
    """

    vectors: Any
    weights: Any
    points: Any
    off_diagonal: float

    def mean_of(self, mean: Any, cross_covariance: Any) -> Any:
        """E[f | j] (k, m) = E f + Cov(f, y) y_j of anything that meets y by the component only.

        Parameters
        ----------
        mean : (m,), E f
        cross_covariance : (m, k - 1), Cov(f, y), y being the whitened coordinates
        """
        return mean + self.points @ np.asarray(cross_covariance).T


def embed(third: Any) -> Any:
    """The third moment (k, k, k) of (1, y) from that of y (k-1, k-1, k-1), y being white."""
    size = third.shape[0] + 1
    tensor = np.zeros((size, size, size))
    tensor[1:, 1:, 1:] = third
    inner = np.arange(1, size)
    tensor[0, inner, inner] = tensor[inner, 0, inner] = tensor[inner, inner, 0] = 1.0
    tensor[0, 0, 0] = 1.0
    return tensor


def read_homogeneous(
    third: Any,
    rng: np.random.Generator,
    algorithm: str | Callable[..., Any] = "auto",
    start: Any = None,
) -> HomogeneousMixture:
    """The components of a mixture from the whitened third moment (r, r, r) of its k = r + 1 means.

    Parameters
    ----------
    third : (r, r, r) symmetric array, sum_j w_j y_j^(x)3
    rng : draws the start of the decomposition
    algorithm : "auto" for joint diagonalization, or one of `latensor.decomposition`, called with
        (tensor, rank, rng)
    start : (k, k) orthonormal columns to start from, with "auto"
    """
    tensor = embed(third)
    size = tensor.shape[0]
    if size == 1:
        return HomogeneousMixture(np.ones((1, 1)), np.ones(1), np.zeros((1, 0)), 0.0)
    with one_blas_thread():
        if isinstance(algorithm, str):
            found = diagonalize(tensor[:, :, 1:], rng, start=start)
            vectors, off_diagonal = found.vectors, found.off_diagonal
        else:
            vectors = _orthonormal(algorithm(tensor, size, rng))
            off_diagonal = _off_diagonal(tensor[:, :, 1:], vectors)
    vectors = vectors * np.where(vectors[0] < 0, -1.0, 1.0)
    weights = np.maximum(vectors[0] ** 2, _LEAST_FRACTION / size)
    points = (vectors[1:] / np.sqrt(weights)).T
    return HomogeneousMixture(vectors, weights / weights.sum(), points, off_diagonal)


def _orthonormal(decomposition: Any) -> Any:
    """The orthonormal columns nearest to the vectors that an algorithm has found."""
    factor = np.asarray(decomposition.tensor.factors[0], dtype=np.float64)
    if not np.isfinite(factor).all():
        raise InvalidInputError("algorithm returned components that are not finite numbers")
    norms = np.linalg.norm(factor, axis=0)
    left, _, right = np.linalg.svd(factor / np.where(norms > 0, norms, 1.0))
    return left @ right


def _off_diagonal(slices: Any, vectors: Any) -> float:
    turned = np.einsum("abm,ai,bj->ijm", slices, vectors, vectors, optimize=True)
    total = float(np.vdot(turned, turned))
    diagonal = np.einsum("iim->im", turned)
    return 1 - float(np.vdot(diagonal, diagonal)) / total if total > 0 else 0.0


def symmetrized(third: Any) -> Any:
    """The mean of a tensor (r, r, r) over the six orders of its modes."""
    return sum(third.transpose(order) for order in permutations(range(3))) / 6


def project_to_simplex(rows: Any) -> Any:
    """The nearest probabilities (k, d) to rows that sum to about one, by sorting."""
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    count = (ordered > excess).sum(axis=1)
    shift = excess[np.arange(len(rows)), count - 1]
    found = np.maximum(rows - shift[:, None], 0.0)
    return found / found.sum(axis=1, keepdims=True)


def inverse_above(matrix: Any, fraction: float, noise: float = np.inf) -> tuple[Any, float]:
    """The inverse of a matrix (r, r), small singular values raised, and its condition.

    To a fraction of the largest, or to the noise where that is smaller.
    """
    left, values, right = np.linalg.svd(matrix)
    if not len(values):
        return matrix, 1.0
    largest = float(values[0])
    condition = largest / float(values[-1]) if values[-1] > 0 else np.inf
    rounding = 1e-14 * largest if fraction else 0.0
    least = max(min(fraction * largest, noise), rounding, 1e-300)
    return (right.T / np.maximum(values, least)) @ left.T, condition
