"""Numba kernels of sequence moments: symbol pairs at a distance, windows, and their products.

Plain loops over rows; the checks are done by the callers. Every call works on a range of rows and
writes to its own place, so that any number of threads gives the same bits.
"""

from __future__ import annotations

from typing import Any

from latensor.arrays._kernels import compiled


@compiled()
def count_pairs(symbols: Any, begins: Any, ends: Any, weights: Any, lag: int, table: Any) -> None:
    """Add to table (d, d) how often a symbol is followed by another `lag` rows later.

    A sequence counts as often as its entry of weights (s,) says.
    """
    for s in range(begins.size):
        weight = weights[s]
        for t in range(begins[s], ends[s] - lag):
            table[symbols[t], symbols[t + lag]] += weight


@compiled()
def windows(
    symbols: Any,
    position: Any,
    remaining: Any,
    features: Any,
    decays: Any,
    first: int,
    last: int,
    reach: int,
    past: Any,
    future: Any,
) -> None:
    """Weighted averages of features before and after rows first..last-1, one per decay.

    past[t - first] holds for every decay g the sum of g^(s-1) features[x_(t-s)] over s = 1, 2, ...
    within the sequence, up to `reach` rows before the range; `future` the same ahead.

    Parameters
    ----------
    position, remaining : (n,) rows of the sequence before and after each row
    features : (d, r)
    decays : (m,)
    past, future : (last - first, m r)
    """
    r = features.shape[1]
    m = decays.size
    begin = first - min(reach, position[first])
    for c in range(m * r):
        past[0, c] = 0.0
    for t in range(begin, first):
        x = symbols[t]
        for g in range(m):
            for a in range(r):
                past[0, g * r + a] = decays[g] * past[0, g * r + a] + features[x, a]
    for t in range(first + 1, last):
        u = t - first
        x = symbols[t - 1]
        inside = 1.0 if position[t] > 0 else 0.0
        for g in range(m):
            decay = decays[g] * inside
            for a in range(r):
                past[u, g * r + a] = decay * past[u - 1, g * r + a] + inside * features[x, a]
    end = last + min(reach, remaining[last - 1])
    final = last - 1 - first
    for c in range(m * r):
        future[final, c] = 0.0
    for t in range(end - 1, last - 1, -1):
        x = symbols[t]
        for g in range(m):
            for a in range(r):
                future[final, g * r + a] = decays[g] * future[final, g * r + a] + features[x, a]
    for t in range(last - 2, first - 1, -1):
        u = t - first
        x = symbols[t + 1]
        inside = 1.0 if remaining[t] > 0 else 0.0
        for g in range(m):
            decay = decays[g] * inside
            for a in range(r):
                future[u, g * r + a] = decay * future[u + 1, g * r + a] + inside * features[x, a]


@compiled()
def add_products(
    symbols: Any,
    position: Any,
    remaining: Any,
    weights: Any,
    first: int,
    last: int,
    past: Any,
    future: Any,
    counts: Any,
    past_sums: Any,
    future_sums: Any,
    products: Any,
) -> None:
    """Sums over the inner rows of first..last-1, by their symbol.

    Adds to counts (d,), past_sums (d, q), future_sums (d, q) and products (d, q, q). A row counts
    as often as its entry of weights (n,) says.
    """
    q = past.shape[1]
    for t in range(first, last):
        if position[t] == 0 or remaining[t] == 0:
            continue
        x = symbols[t]
        u = t - first
        weight = weights[t]
        counts[x] += weight
        for a in range(q):
            past_sums[x, a] += weight * past[u, a]
            future_sums[x, a] += weight * future[u, a]
        for a in range(q):
            value = weight * past[u, a]
            for b in range(q):
                products[x, a, b] += value * future[u, b]
