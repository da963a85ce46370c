"""Compiled loops of the decompositions; imported only where one is called."""

from __future__ import annotations

import math

import numpy as np

from latensor.arrays._kernels import compiled


@compiled({"reassoc", "contract", "nsz"})
def jacobi_sweep(packed: np.ndarray, places: np.ndarray, vectors: np.ndarray) -> float:
    """Rotate every pair of coordinates once, so that many symmetric matrices become diagonal.

    A pair (p, q) is turned by the angle that maximizes the sum over all matrices C_l of the
    squared diagonal: with h_l = (C_l[p,p] - C_l[q,q], 2 C_l[p,q]) and G = sum_l h_l h_l', it is
    half the angle of the leading eigenvector of G.

    Parameters
    ----------
    packed : (k (k + 1) / 2, m) array, row by row the upper triangles of the m matrices, all
        matrices side by side; overwritten
    places : (k, k) array of int, the row of `packed` that holds entry (i, j)
    vectors : (k, k) array, the rows are the present directions; overwritten

    Returns
    -------
    the largest sine of an angle turned
    """
    size = vectors.shape[0]
    count = packed.shape[1]
    largest = 0.0
    for p in range(size - 1):
        pp = places[p, p]
        for q in range(p + 1, size):
            qq = places[q, q]
            pq = places[p, q]
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
            if abs(sine) > largest:
                largest = abs(sine)
            cosine = math.cos(angle)
            for i in range(size):
                if i != p and i != q:
                    a = places[i, p]
                    b = places[i, q]
                    for j in range(count):
                        x = packed[a, j]
                        y = packed[b, j]
                        packed[a, j] = cosine * x + sine * y
                        packed[b, j] = cosine * y - sine * x
            for i in range(count):
                x = packed[pp, i]
                y = packed[qq, i]
                z = packed[pq, i]
                cross = 2.0 * cosine * sine * z
                packed[pp, i] = cosine * cosine * x + cross + sine * sine * y
                packed[qq, i] = sine * sine * x - cross + cosine * cosine * y
                packed[pq, i] = (cosine * cosine - sine * sine) * z - cosine * sine * (x - y)
            for i in range(size):
                x = vectors[p, i]
                y = vectors[q, i]
                vectors[p, i] = cosine * x + sine * y
                vectors[q, i] = cosine * y - sine * x
    return largest
