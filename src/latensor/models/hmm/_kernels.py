"""Numba kernels of what hidden Markov models read off small tables: many rounds in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled


@compiled()
def maximize_joint(joint: Any, fractions: Any, emissions: Any, rounds: int) -> None:
    """Rounds of X <- X * (O (J / (O' X O)) O'), X normalized, in place of `joint` X (k, k).

    Parameters
    ----------
    fractions : (d, d) the table J of pairs
    emissions : (k, d) probabilities O
    """
    k, d = emissions.shape
    expected = np.empty(d)
    ratios = np.empty((k, d))
    fresh = np.empty((k, k))
    for _ in range(rounds):
        for i in range(k):
            for b in range(d):
                ratios[i, b] = 0.0
        for a in range(d):
            for b in range(d):
                expected[b] = 0.0
            for j in range(k):
                weight = 0.0
                for i in range(k):
                    weight += emissions[i, a] * joint[i, j]
                for b in range(d):
                    expected[b] += weight * emissions[j, b]
            for b in range(d):
                expected[b] = fractions[a, b] / max(expected[b], 1e-300)
            for i in range(k):
                weight = emissions[i, a]
                for b in range(d):
                    ratios[i, b] += weight * expected[b]
        total = 0.0
        for i in range(k):
            for j in range(k):
                value = 0.0
                for b in range(d):
                    value += ratios[i, b] * emissions[j, b]
                fresh[i, j] = joint[i, j] * value
                total += fresh[i, j]
        for i in range(k):
            for j in range(k):
                joint[i, j] = fresh[i, j] / total


@compiled()
def maximize_start(
    start: Any, firsts: Any, emissions: Any, occupancy: Any, n: float, rounds: int
) -> None:
    """Rounds for how `n` sequences, and one more by `occupancy` (k,), begin: in place of `start`.

    Parameters
    ----------
    start : (k,)
    firsts : (m,) fractions of the first symbols, those that were seen
    emissions : (k, m) their probabilities
    """
    k, m = emissions.shape
    for _ in range(rounds):
        weights = np.zeros(k)
        for a in range(m):
            expected = 0.0
            for i in range(k):
                expected += start[i] * emissions[i, a]
            ratio = firsts[a] / max(expected, 1e-300)
            for i in range(k):
                weights[i] += emissions[i, a] * ratio
        total = 0.0
        for i in range(k):
            start[i] = start[i] * weights[i] * n + occupancy[i]
            total += start[i]
        for i in range(k):
            start[i] /= total
