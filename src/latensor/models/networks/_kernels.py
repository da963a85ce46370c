"""Numba kernels of noisy-or networks: interactions of three features, posteriors of states."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled

# Posteriors below the rounding of the largest one, log 2^-52, are not counted.
_NEGLIGIBLE = -52 * log(2.0)


@compiled()
def third_interactions(ratios: Any, variances: Any, skews: Any, out: Any) -> None:
    """What a network adds to -T_abc beyond sum_j s_j u_aj u_bj u_cj, for a < b < c, into out.

    Given a cause of variance v and third cumulant s, and u = F / (1 - prior F),
    T_abc = sum_j log[(1 + v (u_a u_b + u_a u_c + u_b u_c) - s u_a u_b u_c) / products of
    (1 + v u u') over the three pairs].
    """
    m, k = ratios.shape
    place = 0
    for c in range(m):
        for b in range(c):
            for a in range(b):
                ratio, leading = 1.0, 0.0
                for j in range(k):
                    v = variances[j]
                    x, y, z = ratios[a, j], ratios[b, j], ratios[c, j]
                    xy, xz, yz = v * x * y, v * x * z, v * y * z
                    cube = skews[j] * x * y * z
                    leading += cube
                    ratio *= (1 + xy + xz + yz - cube) / ((1 + xy) * (1 + xz) * (1 + yz))
                out[place] = -log(ratio) - leading
                place += 1


@compiled(fastmath={"contract", "nnan", "nsz"})
def count_states(
    starts: Any, features: Any, weights: Any, odds: Any, base: Any, counts: Any, lit: Any
) -> float:
    """Posteriors of hidden states, summed over rows: all of them, and those with a feature on.

    log P(h, x) = base_h + sum of odds_ih over the features i that are on. Few states have a
    posterior above rounding: only these are exponentiated and counted.

    Parameters
    ----------
    starts, features : (n + 1,) and (nnz,), the features of row r are starts[r] : starts[r + 1]
    weights : (n,)
    odds : (d, s)
    base : (s,)
    counts : (s,), to which the posteriors are added
    lit : (s, d), to which the posteriors of rows with a feature on are added

    Returns
    -------
    the log-likelihood of all rows
    """
    n_states = len(base)
    logs = base.copy()
    kept, values = np.empty(n_states, dtype=np.int64), np.empty(n_states)
    total = 0.0
    for row in range(len(weights)):
        first, last = starts[row], starts[row + 1]
        logs[:] = base
        for place in range(first, last):
            given = odds[features[place]]
            for state in range(n_states):
                logs[state] += given[state]
        largest = logs[0]
        for state in range(1, n_states):
            largest = max(largest, logs[state])
        n_kept, summed, least = 0, 0.0, largest + _NEGLIGIBLE
        for state in range(n_states):
            if logs[state] > least:
                kept[n_kept] = state
                n_kept += 1
        for chosen in range(n_kept):
            values[chosen] = exp(logs[kept[chosen]] - largest)
            summed += values[chosen]
        total += weights[row] * (largest + log(summed))
        for chosen in range(n_kept):
            state, fraction = kept[chosen], weights[row] * values[chosen] / summed
            counts[state] += fraction
            for place in range(first, last):
                lit[state, features[place]] += fraction
    return total
