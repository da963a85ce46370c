"""Compiled loops of expectation maximization; imported only where one is called."""

from __future__ import annotations

import math

import numpy as np

from latensor.arrays._kernels import compiled

# exp of less is below the rounding of 1 even when summed over a thousand components.
_NEGLIGIBLE = -44.0


@compiled()
def normalize_rows(logs: np.ndarray, weights: np.ndarray) -> float:
    """Turn logarithms of joint densities into weighted responsibilities, in place.

    With l_ij = log p(x_i, j), row i becomes w_i exp(l_ij) / sum_j exp(l_ij).

    Parameters
    ----------
    logs : (n, k) array, overwritten
    weights : (n,) array, or empty where every row counts once

    Returns
    -------
    sum_i w_i log sum_j exp(l_ij)
    """
    n_rows, n_components = logs.shape
    weighted = weights.shape[0] > 0
    total = 0.0
    for i in range(n_rows):
        row = logs[i]
        largest = row[0]
        for j in range(1, n_components):
            if row[j] > largest:
                largest = row[j]
        summed = 0.0
        for j in range(n_components):
            difference = row[j] - largest
            # In separated mixtures nearly all are negligible, and exp is most of the cost.
            if difference > _NEGLIGIBLE:
                value = math.exp(difference)
                summed += value
                row[j] = value
            else:
                row[j] = 0.0
        weight = weights[i] if weighted else 1.0
        total += weight * (largest + math.log(summed))
        scale = weight / summed
        for j in range(n_components):
            row[j] *= scale
    return total


@compiled()
def log_sums(logs: np.ndarray, result: np.ndarray) -> None:
    """The logarithms of the sums of exponentials of every row.

    Parameters
    ----------
    logs : (n, k) array
    result : (n,) array, overwritten with log sum_j exp(l_ij)
    """
    n_rows, n_components = logs.shape
    for i in range(n_rows):
        largest = logs[i, 0]
        for j in range(1, n_components):
            if logs[i, j] > largest:
                largest = logs[i, j]
        summed = 0.0
        for j in range(n_components):
            difference = logs[i, j] - largest
            if difference > _NEGLIGIBLE:
                summed += math.exp(difference)
        result[i] = largest + math.log(summed)


@compiled()
def divide_by_largest(logs: np.ndarray, largest: np.ndarray) -> None:
    """Turn logarithms into numbers relative to the largest of every row, in place.

    Parameters
    ----------
    logs : (n, k) array, overwritten with exp(l_ij - max_j l_ij)
    largest : (n,) array, overwritten with max_j l_ij
    """
    n_rows, n_components = logs.shape
    for i in range(n_rows):
        top = logs[i, 0]
        for j in range(1, n_components):
            if logs[i, j] > top:
                top = logs[i, j]
        largest[i] = top
        for j in range(n_components):
            logs[i, j] = math.exp(logs[i, j] - top)
