"""Sums of third powers over rows, around a given center and along a given basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.exceptions import InvalidInputError

_BLOCK = 2048


@dataclass(frozen=True)
class ThirdSums:
    """Third powers of samples x around a center c, along a basis B: y = B'(x - c).

    Attributes
    ----------
    third : (r, r, r), of y (x) y (x) y
    norm_third : (r,), of |x - c|^2 y
    square_third : (d, d), of (x - c)_i^2 (x - c)_l, or None
    """

    third: Any
    norm_third: Any
    square_third: Any = None

    def combined(self, factor: float, other: ThirdSums, times: float) -> ThirdSums:
        """`factor` times these plus `times` the others."""
        squares = None
        if self.square_third is not None and other.square_third is not None:
            squares = factor * self.square_third + times * other.square_third
        return ThirdSums(
            factor * self.third + times * other.third,
            factor * self.norm_third + times * other.norm_third,
            squares,
        )


def symmetric_product(vector: Any, matrix: Any) -> Any:
    """a_i M_jl + a_j M_il + a_l M_ij of a vector and a symmetric matrix."""
    product = np.multiply.outer(vector, matrix)
    return product + product.transpose(1, 0, 2) + product.transpose(1, 2, 0)


def displacement(gap: Any, covariance: Any, basis: Any, squares: bool) -> ThirdSums:
    """What third moments around c have in addition to those around the mean m = c + gap.

    With s = B'gap: sym3(s, B'CB) + sss; for the norm 2 B'C gap + (tr C + |gap|^2) s; for the
    squares gap_l C_ii + 2 gap_i C_il + gap_i^2 gap_l.
    """
    shift = basis.T @ gap
    inside = basis.T @ covariance @ basis
    third = symmetric_product(shift, inside) + np.einsum("i,j,l->ijl", shift, shift, shift)
    norm = 2 * (basis.T @ (covariance @ gap)) + (np.trace(covariance) + gap @ gap) * shift
    square = None
    if squares:
        diagonal = np.diag(covariance)
        square = np.outer(diagonal + gap**2, gap) + 2 * gap[:, None] * covariance
    return ThirdSums(third, norm, square)


def third_sums(rows: Any, weights: Any, center: Any, basis: Any, *, squares: bool) -> ThirdSums:
    """The weighted sums over rows (n, d).

    One matrix product of y with the r (r + 1) / 2 products of its entries, in blocks.

    Parameters
    ----------
    rows, weights : (n, d), and (n,) or None
    center, basis : (d,) and (d, r)
    squares : bool, whether `square_third` is wanted
    """
    n_features, width = basis.shape
    left, right = np.triu_indices(width)
    packed, norms = np.zeros((width, len(left))), np.zeros(width)
    square = np.zeros((n_features, n_features)) if squares else None
    # An overflow is told below.
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        for a in range(0, rows.shape[0], _BLOCK):
            centered = rows[a : a + _BLOCK] - center
            repeated = None if weights is None else weights[a : a + _BLOCK, None]
            scores = centered @ basis
            weighted = scores if repeated is None else scores * repeated
            columns = np.ascontiguousarray(scores.T)
            packed += (columns[left] * columns[right] @ weighted).T
            powers = centered * centered
            norms += powers.sum(axis=1) @ weighted
            if square is not None:
                square += (powers if repeated is None else powers * repeated).T @ centered
    if not all(np.isfinite(sums).all() for sums in (packed, square) if sums is not None):
        raise InvalidInputError(
            f"the third moment of X overflows (largest magnitude {np.abs(rows).max():.3g}): "
            "give the samples in a smaller unit"
        )
    third = np.empty((width, width, width))
    third[:, left, right] = packed
    third[:, right, left] = packed
    return ThirdSums(third, norms, square)
