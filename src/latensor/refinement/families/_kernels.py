"""Compiled loops over rows with unobserved entries; imported only where one is called."""

from __future__ import annotations

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def squared_distances(
    points: np.ndarray,
    patterns: np.ndarray,
    observed: np.ndarray,
    counts: np.ndarray,
    means: np.ndarray,
    precisions: np.ndarray,
    result: np.ndarray,
) -> None:
    """(x_o - mu_o)' S_oo^-1 (x_o - mu_o) of every row and component.

    Parameters
    ----------
    points : (n, d)
    patterns : (n,) integers, the pattern of every row
    observed : (P, d) integers, the observed entries of every pattern first
    counts : (P,) integers, how many they are
    means : (k, d)
    precisions : (P, k, d, d), S_oo^-1 in the places of the observed entries
    result : (n, k) array, overwritten
    """
    n_rows, width = points.shape
    n_components = means.shape[0]
    gaps = np.empty(width)
    for i in range(n_rows):
        p = patterns[i]
        size = counts[p]
        for j in range(n_components):
            total = 0.0
            for s in range(size):
                a = observed[p, s]
                gaps[s] = points[i, a] - means[j, a]
                inner = 0.0
                for t in range(s):
                    inner += precisions[p, j, a, observed[p, t]] * gaps[t]
                total += gaps[s] * (2 * inner + precisions[p, j, a, a] * gaps[s])
            result[i, j] = total


@compiled()
def pattern_sums(
    points: np.ndarray,
    patterns: np.ndarray,
    observed: np.ndarray,
    counts: np.ndarray,
    means: np.ndarray,
    responsibilities: np.ndarray,
    zeroth: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
) -> None:
    """Sums of responsibilities, deviations and their products, by pattern and component.

    Parameters
    ----------
    points, patterns, observed, counts, means : as in `squared_distances`
    responsibilities : (n, k)
    zeroth, first, second : (P, k), (P, k, d), (P, k, d, d) arrays of zeros; of the last the
        lower triangle in the order of the observed entries is filled
    """
    n_rows, width = points.shape
    n_components = means.shape[0]
    gaps = np.empty(width)
    for i in range(n_rows):
        p = patterns[i]
        size = counts[p]
        for j in range(n_components):
            fraction = responsibilities[i, j]
            if fraction == 0.0:
                continue
            zeroth[p, j] += fraction
            for s in range(size):
                a = observed[p, s]
                gaps[s] = points[i, a] - means[j, a]
                scaled = fraction * gaps[s]
                first[p, j, a] += scaled
                for t in range(s + 1):
                    second[p, j, a, observed[p, t]] += scaled * gaps[t]
