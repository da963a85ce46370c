"""Compiled loops over the observed entries of a tensor; imported only where one is called.

Factors stand in one array, row by row: `stack` (sum of dimensions, rank), and `places` (n, modes)
are the rows of it that belong to an entry. Every sum runs over its entries in a fixed order.
"""

from __future__ import annotations

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def row_equations(
    begin: np.ndarray,
    places: np.ndarray,
    values: np.ndarray,
    stack: np.ndarray,
    matrices: np.ndarray,
    right: np.ndarray,
) -> None:
    """The sums of h h' and of t h over the entries of every slice, h being a product of rows.

    Parameters
    ----------
    begin : (d + 1,) where the entries of each slice begin
    places : (n, order - 1) rows of the stack, of all modes but one, sorted by slice
    values : (n,) the entries t, in the same order
    stack : (rows, rank)
    matrices : (d, rank, rank), overwritten
    right : (d, rank), overwritten
    """
    rank = stack.shape[1]
    h = np.empty(rank)
    matrices[:] = 0.0
    right[:] = 0.0
    for i in range(begin.shape[0] - 1):
        matrix, sums = matrices[i], right[i]
        for e in range(begin[i], begin[i + 1]):
            h[:] = 1.0
            for m in range(places.shape[1]):
                row = stack[places[e, m]]
                for a in range(rank):
                    h[a] *= row[a]
            value = values[e]
            for a in range(rank):
                factor = h[a]
                sums[a] += value * factor
                for b in range(a + 1):
                    matrix[a, b] += factor * h[b]
        for a in range(rank):
            for b in range(a):
                matrix[b, a] = matrix[a, b]


@compiled()
def gather(
    begin: np.ndarray,
    order: np.ndarray,
    places: np.ndarray,
    values: np.ndarray,
    stack: np.ndarray,
    right: np.ndarray,
) -> None:
    """The sums of t h alone, for values t (n,) that `order` sorts by slice."""
    rank = stack.shape[1]
    h = np.empty(rank)
    right[:] = 0.0
    for i in range(begin.shape[0] - 1):
        sums = right[i]
        for e in range(begin[i], begin[i + 1]):
            h[:] = values[order[e]]
            for m in range(places.shape[1]):
                row = stack[places[e, m]]
                for a in range(rank):
                    h[a] *= row[a]
            for a in range(rank):
                sums[a] += h[a]


@compiled()
def entries_of(places: np.ndarray, stack: np.ndarray, result: np.ndarray) -> None:
    """The entries (n,) of a CP tensor at `places` (n, order)."""
    rank = stack.shape[1]
    h = np.empty(rank)
    for e in range(places.shape[0]):
        h[:] = 1.0
        for m in range(places.shape[1]):
            row = stack[places[e, m]]
            for a in range(rank):
                h[a] *= row[a]
        total = 0.0
        for a in range(rank):
            total += h[a]
        result[e] = total


@compiled()
def derivatives_of(
    places: np.ndarray, stack: np.ndarray, change: np.ndarray, result: np.ndarray
) -> None:
    """What the entries (n,) of a CP tensor change by, to first order, where its stack does.

    Products of numbers with a derivative, (f, x) (g, y) = (f g, f y + x g), one mode at a time.
    """
    rank = stack.shape[1]
    for e in range(places.shape[0]):
        total = 0.0
        for a in range(rank):
            product, derivative = 1.0, 0.0
            for m in range(places.shape[1]):
                place = places[e, m]
                value = stack[place, a]
                derivative = derivative * value + product * change[place, a]
                product *= value
            total += derivative
        result[e] = total


@compiled()
def curvature_of(
    places: np.ndarray, begin: np.ndarray, stack: np.ndarray, longest: int, result: np.ndarray
) -> None:
    """J'J of the entries of a CP tensor, the upper triangle, added to `result`.

    Row (m rank + a) longest + i stands for entry i of component a of mode m, whose rows of the
    stack begin at `begin[m]`.
    """
    rank, order = stack.shape[1], places.shape[1]
    h, rows = np.empty(order * rank), np.empty(order * rank, dtype=np.int64)
    for e in range(places.shape[0]):
        for m in range(order):
            for a in range(rank):
                product = 1.0
                for other in range(order):
                    if other != m:
                        product *= stack[places[e, other], a]
                h[m * rank + a] = product
                rows[m * rank + a] = (m * rank + a) * longest + places[e, m] - begin[m]
        for j in range(order * rank):
            row, factor = result[rows[j]], h[j]
            for i in range(j, order * rank):
                row[rows[i]] += factor * h[i]
