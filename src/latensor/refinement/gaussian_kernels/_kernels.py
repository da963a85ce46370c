"""Compiled loops over rows of logarithms; imported only where one is called."""

from __future__ import annotations

import numpy as np

from latensor.arrays._kernels import compiled

# exp(-44) is below the rounding of 1 even when summed over a thousand components.
_NEGLIGIBLE = 7.8e-20


@compiled()
def subtract_largest(logs: np.ndarray, largest: np.ndarray, lowest: float) -> None:
    """Subtract the largest of every row, in place.

    Parameters
    ----------
    logs : (n, k) array, overwritten; rows of -inf stay as they are
    largest : (n,) array, overwritten with max_j l_ij
    lowest : float, differences below it become it
    """
    n_rows, n_components = logs.shape
    for i in range(n_rows):
        row = logs[i]
        top = row[0]
        for j in range(1, n_components):
            if row[j] > top:
                top = row[j]
        largest[i] = top
        if top == -np.inf:
            continue
        for j in range(n_components):
            row[j] = max(row[j] - top, lowest)


@compiled()
def divide_by_sums(values: np.ndarray, weights: np.ndarray, sums: np.ndarray) -> None:
    """Turn numbers relative to the largest of every row into weighted fractions, in place.

    Parameters
    ----------
    values : (n, k) array, at most 1, overwritten with w_i v_ij / sum_j v_ij
    weights : (n,) array, or empty where every row counts once
    sums : (n,) array, overwritten with sum_j v_ij
    """
    n_rows, n_components = values.shape
    weighted = weights.shape[0] > 0
    for i in range(n_rows):
        row = values[i]
        total = 0.0
        for j in range(n_components):
            # In separated mixtures nearly all are negligible: zeros.
            if row[j] < _NEGLIGIBLE:
                row[j] = 0.0
            total += row[j]
        sums[i] = total
        scale = (weights[i] if weighted else 1.0) / total
        for j in range(n_components):
            row[j] *= scale
