"""The fourth cumulant of samples from sums in constant memory.

With z = (1, B'(x - c)), a constant in front of the samples along a basis B around a center c, the
sum of z (x) z (x) z (x) z holds all moments of order 0 to 4 at once. Moving the center is then one
linear map of z: sums around any two centers are merged exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.exceptions import InvalidInputError

# Up to so many features the fourth moment is kept whole, and any two streams can be merged.
WHOLE = 16
# More directions than this would need hundreds of megabytes, and days of products.
MOST_DIRECTIONS = 64
_BLOCK = 1024


@dataclass(frozen=True)
class FourthMoment:
    """Central moments of samples x in R^d, along a basis B (d, r) in the fourth order.

    Attributes
    ----------
    count : int
    weight : float
    mean : (d,)
    covariance : (d, d)
    basis : (d, r), orthonormal columns
    fourth_weight : float, of the samples behind `cumulant`, which may be a part of all
    cumulant : (r, r, r, r), with y = B'(x - E x) the expectation of y (x) y (x) y (x) y less the
        three products of covariances: zero for Gaussian samples (monograph 4.3)
    """

    count: int
    weight: float
    mean: Any
    covariance: Any
    basis: Any
    fourth_weight: float
    cumulant: Any

    def along(self, directions: Any) -> Any:
        """The cumulant (s, s, s, s) along directions (d, s) in the span of the basis."""
        return turned(self.cumulant, self.basis.T @ directions)


def homogeneous_sums(rows: Any, weights: Any, center: Any, basis: Any) -> Any:
    """The packed sums of z (x) z (x) z (x) z over rows, z = (1, B'(x - c)).

    One product of the p = (r + 1)(r + 2) / 2 products z_a z_b, a <= b, with themselves.

    Parameters
    ----------
    rows, weights : (n, d), and (n,) or None
    center, basis : (d,) and (d, r)

    Returns
    -------
    (p, p), the sum of z_a z_b z_c z_e at the places of (a, b) and (c, e)
    """
    width = basis.shape[1] + 1
    left, right = np.triu_indices(width)
    total = np.zeros((len(left), len(left)))
    # An overflow is told below.
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for a in range(0, rows.shape[0], _BLOCK):
            block = rows[a : a + _BLOCK]
            columns = np.ones((width, block.shape[0]))
            columns[1:] = ((block - center) @ basis).T
            products = columns[left] * columns[right]
            if weights is not None:
                products *= np.sqrt(weights[a : a + _BLOCK])
            total += products @ products.T
    if not np.isfinite(total).all():
        raise InvalidInputError(
            f"the fourth moment of X overflows (largest magnitude {np.abs(rows).max():.3g}): "
            "give the samples in a smaller unit"
        )
    return total


def unpacked(sums: Any) -> Any:
    """The symmetric tensor (m, m, m, m) of packed sums (p, p), p = m (m + 1) / 2."""
    size = int((np.sqrt(8 * sums.shape[0] + 1) - 1) / 2 + 0.5)
    place = np.empty((size, size), dtype=np.intp)
    left, right = np.triu_indices(size)
    place[left, right] = place[right, left] = np.arange(len(left))
    return sums[place[:, :, None, None], place[None, None]]


def packed(tensor: Any) -> Any:
    """The entries (p, p) of a symmetric tensor (m, m, m, m) at ordered pairs of indices."""
    left, right = np.triu_indices(tensor.shape[0])
    return np.ascontiguousarray(tensor[left, right][:, left, right])


def turned(tensor: Any, matrix: Any) -> Any:
    """T(M, M, M, M) of a symmetric tensor (m, m, m, m) and a matrix (m, s)."""
    with one_blas_thread():
        for _ in range(4):
            tensor = np.tensordot(tensor, matrix, axes=(0, 0))
    return tensor


def recentered(tensor: Any, shift: Any) -> Any:
    """Sums of z (x) z (x) z (x) z, z = (1, y), as sums of (1, y - shift)."""
    change = np.eye(tensor.shape[0])
    change[0, 1:] = -shift
    return turned(tensor, change)


def fourth_cumulant(tensor: Any) -> tuple[float, Any]:
    """The weight and the cumulant (r, r, r, r) of sums (1 + r, ...) of (1, y)."""
    weight = float(tensor[0, 0, 0, 0])
    central = recentered(tensor / weight, tensor[0, 0, 0, 1:] / weight)
    covariance = central[0, 0, 1:, 1:]
    product = np.multiply.outer(covariance, covariance)
    gaussian = product + product.transpose(0, 2, 1, 3) + product.transpose(0, 2, 3, 1)
    return weight, central[1:, 1:, 1:, 1:] - gaussian
