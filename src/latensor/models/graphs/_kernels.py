"""Numba kernels of block models: what the edges of a node say about its communities."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def explain_edges(
    pointers: Any,
    columns: Any,
    values: Any,
    own: Any,
    weights: Any,
    reached: Any,
    fractions: Any,
    logs: Any,
) -> None:
    """Z_i = sum_j A_ij W_j / (W_i . C_j) (b, k) and sum_j A_ij log (W_i . C_j) (b,).

    Parameters
    ----------
    pointers, columns, values : rows of the adjacency in CSR
    own : (b, k), W_i of the rows
    weights, reached : (n, k), W and C = W B'
    fractions, logs : written
    """
    k = own.shape[1]
    for i in range(pointers.shape[0] - 1):
        total = 0.0
        for l in range(k):  # noqa: E741
            fractions[i, l] = 0.0
        for e in range(pointers[i], pointers[i + 1]):
            j = columns[e]
            rate = 1e-300
            for l in range(k):  # noqa: E741
                rate += own[i, l] * reached[j, l]
            scale = values[e] / rate
            for l in range(k):  # noqa: E741
                fractions[i, l] += scale * weights[j, l]
            total += values[e] * np.log(rate)
        logs[i] = total


@compiled()
def simplex_least_squares(gram: Any, targets: Any, start: Any, n_steps: int, found: Any) -> None:
    """min_p p'Gp - 2 t'p over the simplex for every row t (n, k), by accelerated projection."""
    n, k = targets.shape
    bound = 0.0
    for a in range(k):
        row = 0.0
        for b in range(k):
            row += abs(gram[a, b])
        bound = max(bound, row)
    step = 1.0 / max(bound, 1e-300)
    point = np.empty(k)
    ahead = np.empty(k)
    moved = np.empty(k)
    ordered = np.empty(k)
    for i in range(n):
        for a in range(k):
            point[a] = start[a]
            ahead[a] = start[a]
        momentum = 1.0
        for _ in range(n_steps):
            for a in range(k):
                slope = -targets[i, a]
                for b in range(k):
                    slope += gram[a, b] * ahead[b]
                moved[a] = ahead[a] - step * slope
                ordered[a] = moved[a]
            ordered.sort()
            total = 0.0
            shift = 0.0
            for a in range(k - 1, -1, -1):
                total += ordered[a]
                level = (total - 1.0) / (k - a)
                if ordered[a] > level:
                    shift = level
            following = (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum)) / 2.0
            change = 0.0
            for a in range(k):
                fresh = max(moved[a] - shift, 0.0)
                change = max(change, abs(fresh - point[a]))
                ahead[a] = fresh + (momentum - 1.0) / following * (fresh - point[a])
                point[a] = fresh
            momentum = following
            if change < 1e-9:
                break
        for a in range(k):
            found[i, a] = point[a]
