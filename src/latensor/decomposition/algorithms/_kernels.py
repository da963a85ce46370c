"""Compiled loops of the decompositions; imported only where one is called."""

from __future__ import annotations

import math

import numba
import numpy as np

from latensor.arrays._kernels import compiled


@numba.njit(inline="always")
def _index(row: int, column: int, size: int) -> int:
    """The place of entry (row, column), row <= column, in a packed upper triangle."""
    return row * size - (row * (row - 1)) // 2 + column - row


@numba.njit(fastmath={"reassoc", "contract", "nsz"}, inline="always")
def _turn(rows: np.ndarray, a: int, b: int, cosine: float, sine: float) -> None:
    """Rotate rows a and b into each other, in place."""
    for i in range(rows.shape[1]):
        x = rows[a, i]
        y = rows[b, i]
        rows[a, i] = cosine * x + sine * y
        rows[b, i] = cosine * y - sine * x


@compiled({"reassoc", "contract", "nsz"})
def jacobi_sweep(packed: np.ndarray, vectors: np.ndarray) -> float:
    """Rotate every pair of coordinates once, so that many symmetric matrices become diagonal.

    A pair (p, q) is turned by the angle that maximizes the sum over all matrices C_l of the
    squared diagonal: with h_l = (C_l[p,p] - C_l[q,q], 2 C_l[p,q]) and G = sum_l h_l h_l', it is
    half the angle of the leading eigenvector of G.

    Parameters
    ----------
    packed : (k (k + 1) / 2, m) array, row by row the upper triangles of the m matrices, all
        matrices side by side; overwritten
    vectors : (k, k) array, the rows are the present directions; overwritten

    Returns
    -------
    the largest sine of an angle turned
    """
    size = vectors.shape[0]
    count = packed.shape[1]
    largest = 0.0
    for p in range(size - 1):
        pp = _index(p, p, size)
        for q in range(p + 1, size):
            qq = _index(q, q, size)
            pq = _index(p, q, size)
            even = 0.0
            mixed = 0.0
            odd = 0.0
            for i in range(count):
                difference = packed[pp, i] - packed[qq, i]
                twice = 2.0 * packed[pq, i]
                even += difference * difference
                mixed += difference * twice
                odd += twice * twice
            on = even - odd
            off = 2.0 * mixed
            angle = 0.5 * math.atan2(off, on + math.sqrt(on * on + off * off))
            sine = math.sin(angle)
            if abs(sine) < 1e-17:
                continue
            largest = max(largest, abs(sine))
            cosine = math.cos(angle)
            for i in range(size):
                if i != p and i != q:
                    a = _index(min(i, p), max(i, p), size)
                    b = _index(min(i, q), max(i, q), size)
                    _turn(packed, a, b, cosine, sine)
            for i in range(count):
                x = packed[pp, i]
                y = packed[qq, i]
                z = packed[pq, i]
                cross = 2.0 * cosine * sine * z
                packed[pp, i] = cosine * cosine * x + cross + sine * sine * y
                packed[qq, i] = sine * sine * x - cross + cosine * cosine * y
                packed[pq, i] = (cosine * cosine - sine * sine) * z - cosine * sine * (x - y)
            _turn(vectors, p, q, cosine, sine)
    return largest
