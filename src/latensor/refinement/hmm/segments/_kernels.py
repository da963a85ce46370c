"""Numba kernels of hidden Markov models that work on many places of a sequence at once.

Plain loops over rows; the checks are done by the callers. The likelihood of row t in every state
is `table[index[t]]`: symbols point into a table of emission probabilities, densities have a row
of their own each.

A chain is worked on row after row, and a processor waits for every row. So the rows of a range are
cut into lanes of equal length that are worked on side by side, one row of each at a time: arrays
"in lanes" have the shape (span, ..., lanes), and row `last - span * lanes + lane * span + s` of
the data stands at (s, ..., lane). Places of the first lane that lie before the range are empty.
Every call works on a range and writes to its own place, so that any number of threads gives the
same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled
from latensor.refinement.hmm._kernels import AGREEMENT, SMALLEST

# Whether lanes agree is looked at once in so many rows.
_CHECK = 8


@compiled()
def forward(
    index: Any,
    table: Any,
    is_start: Any,
    is_cut: Any,
    startprob: Any,
    transmat: Any,
    first: int,
    last: int,
    filtered: Any,
    scale: Any,
) -> int:
    """Filtered state probabilities, in lanes, of rows first..last-1 times the likelihood of each.

    The likelihood of a row given those before it, the sum over states, goes to `scale` (in
    lanes): to divide by it one row later keeps the division out of the chain of dependent
    operations. All lanes begin with equal probabilities; then they are gone over again from what
    the lane before hands over, until both agree. Returns the rows that this took: all of a lane
    where it was not enough, or where a row is nearly impossible, which one lane can do. A range
    that begins inside a sequence is made right by `carry`.
    """
    span, k, lanes = filtered.shape
    origin = last - span * lanes
    state = np.full((k, lanes), 1.0 / k)
    inverse = np.ones(lanes)
    predicted = np.empty((k, lanes))
    total = np.empty(lanes)
    place = np.empty(lanes, dtype=np.int64)
    begins = np.zeros(lanes, dtype=np.bool_)
    reach = 0
    for again in range(2):
        if again:
            for lane in range(lanes - 1, 0, -1):
                inverse[lane] = inverse[lane - 1]
                for j in range(k):
                    state[j, lane] = state[j, lane - 1]
            inverse[0] = 1.0
            for j in range(k):
                state[j, 0] = 1.0 / k
        reach = span
        for s in range(span):
            fresh = False
            for lane in range(lanes):
                t = max(origin + lane * span + s, first)
                place[lane] = index[t]
                begins[lane] = is_start[t]
                fresh |= is_start[t]
            for j in range(k):
                move = transmat[0, j]
                for lane in range(lanes):
                    predicted[j, lane] = state[0, lane] * move
                for i in range(1, k):
                    move = transmat[i, j]
                    for lane in range(lanes):
                        predicted[j, lane] += state[i, lane] * move
            if fresh:
                for lane in range(lanes):
                    if begins[lane]:
                        t = max(origin + lane * span + s, first)
                        inverse[lane] = 1.0
                        for j in range(k):
                            predicted[j, lane] = 1.0 / k if is_cut[t] else startprob[j]
            for lane in range(lanes):
                total[lane] = 0.0
            for j in range(k):
                for lane in range(lanes):
                    value = predicted[j, lane] * (table[place[lane], j] * inverse[lane])
                    state[j, lane] = value
                    total[lane] += value
            impossible = False
            for lane in range(lanes):
                impossible |= not total[lane] > SMALLEST
            if impossible:
                return int(span)
            for lane in range(lanes):
                inverse[lane] = 1.0 / total[lane]
            if again and s % _CHECK == 0:
                agree = True
                for lane in range(lanes):
                    old = 1.0 / scale[s, lane]
                    for j in range(k):
                        value = state[j, lane] * inverse[lane]
                        if not abs(value - filtered[s, j, lane] * old) <= AGREEMENT * value:
                            agree = False
                if agree:
                    # States agree; what led to them need not: a row that tells its state by itself.
                    for lane in range(lanes):
                        scale[s, lane] = total[lane]
                    reach = s
                    break
            for j in range(k):
                for lane in range(lanes):
                    filtered[s, j, lane] = state[j, lane]
            for lane in range(lanes):
                scale[s, lane] = total[lane]
    # The empty places, whose logarithm is to be zero.
    for s in range(first - origin):
        scale[s, 0] = 1.0
    return reach


@compiled()
def back(across: Any, message: Any, lanes: int, later: Any) -> None:
    """One row back: what the messages (k, lanes) of the next rows say about the states of these."""
    k = across.shape[0]
    for i in range(k):
        move = across[0, i]
        for lane in range(lanes):
            later[i, lane] = message[0, lane] * move
        for j in range(1, k):
            move = across[j, i]
            for lane in range(lanes):
                later[i, lane] += message[j, lane] * move


@compiled()
def same(one: Any, other: Any) -> bool:
    """Whether two vectors (k,), up to scale, agree to rounding in every entry."""
    first, second = one.sum(), other.sum()
    for i in range(one.size):
        if not abs(one[i] * second - other[i] * first) <= AGREEMENT * (other[i] * first):
            return False
    return True


@compiled()
def expected_counts(
    index: Any,
    table: Any,
    is_start: Any,
    across: Any,
    first: int,
    last: int,
    ahead: int,
    end: Any,
    filtered: Any,
    starts: Any,
    totals: Any,
    steps: Any,
    begin: Any,
) -> bool:
    """Posterior state probabilities in place of `filtered`, in lanes, and sums over the range.

    Goes backwards with the likelihood b_t (k,) of all rows after t. Every lane looks `ahead` rows
    beyond its end; the last one begins at `end`. Adds to `starts` (k,) the posteriors of first
    rows, to `totals` (k,) those of all rows, and to `steps` (k, k) the sum of f_t (x) m_t+1 / norm
    over all steps to a next row, m being the likelihood times b: multiplied by the transition
    matrix, the expected number of steps from each state to each other.

    Returns whether what every lane saw of the next one is what that one has found itself, and all
    rows are possible.

    Parameters
    ----------
    across : (k, k) the transition matrix, transposed
    end : (k,) likelihoods of all rows after `last`, up to scale; not read where the sequence ends
        before that
    begin : (k,) to be filled with those of all rows after `first`, which sum to one
    """
    n = is_start.size
    span, k, lanes = filtered.shape
    origin = last - span * lanes
    message = np.zeros((k, lanes))
    later = np.ones((k, lanes))
    fraction = np.empty((k, lanes))
    norm = np.empty(lanes)
    lift = np.empty(lanes)
    place = np.empty(lanes, dtype=np.int64)
    closed = np.zeros(lanes, dtype=np.bool_)
    counts = np.zeros((k, k, lanes))
    sums = np.zeros((k, lanes))
    ahead = min(ahead, span)
    for s in range(ahead - 1, 0, -1):
        for lane in range(lanes - 1):
            t = origin + (lane + 1) * span + s
            total = 0.0
            for j in range(k):
                message[j, lane] = table[index[t], j] * later[j, lane]
                total += message[j, lane]
            if not total > SMALLEST:
                return False
            lift[lane] = 1.0 / total
            closed[lane] = is_start[t]
        back(across, message, lanes - 1, later)
        for i in range(k):
            for lane in range(lanes - 1):
                later[i, lane] = 1.0 if closed[lane] else later[i, lane] * lift[lane]
    for i in range(k):
        later[i, lanes - 1] = end[i]
    seen = later.copy()
    for lane in range(lanes):
        t = origin + (lane + 1) * span
        if t < n:
            for j in range(k):
                message[j, lane] = table[index[t], j] * later[j, lane]
    for s in range(span - 1, -1, -1):
        closing = False
        for lane in range(lanes):
            t = max(origin + lane * span + s, first)
            place[lane] = index[t]
            closed[lane] = t + 1 == n or is_start[t + 1]
            closing |= closed[lane]
        if closing:
            for lane in range(lanes):
                if closed[lane]:
                    for j in range(k):
                        message[j, lane] = 0.0
        back(across, message, lanes, later)
        if closing:
            for lane in range(lanes):
                if closed[lane]:
                    for i in range(k):
                        later[i, lane] = 1.0
        for lane in range(lanes):
            norm[lane] = 0.0
            lift[lane] = 0.0
        for i in range(k):
            for lane in range(lanes):
                norm[lane] += filtered[s, i, lane] * later[i, lane]
                lift[lane] += later[i, lane]
        impossible = False
        for lane in range(lanes):
            impossible |= not (norm[lane] > SMALLEST and lift[lane] > SMALLEST)
        if impossible:
            return False
        for lane in range(lanes):
            norm[lane] = 1.0 / norm[lane]
            # Divided by the sum of a row earlier: the division is then not waited for.
            lift[lane] = 1.0 / lift[lane]
        if origin + s < first:
            norm[0] = 0.0
        elif origin + s == first:
            for i in range(k):
                begin[i] = later[i, 0] * lift[0]
        for i in range(k):
            for lane in range(lanes):
                fraction[i, lane] = filtered[s, i, lane] * norm[lane]
            for lane in range(lanes):
                value = fraction[i, lane] * later[i, lane]
                filtered[s, i, lane] = value
                sums[i, lane] += value
        for i in range(k):
            for j in range(k):
                for lane in range(lanes):
                    counts[i, j, lane] += fraction[i, lane] * message[j, lane]
        for lane in range(lanes):
            t = origin + lane * span + s
            if t >= first and is_start[t]:
                for i in range(k):
                    starts[i] += filtered[s, i, lane]
        for j in range(k):
            for lane in range(lanes):
                message[j, lane] = table[place[lane], j] * (later[j, lane] * lift[lane])
    for i in range(k):
        for lane in range(lanes):
            totals[i] += sums[i, lane]
        for j in range(k):
            for lane in range(lanes):
                steps[i, j] += counts[i, j, lane]
    for lane in range(lanes - 1):
        if not is_start[origin + (lane + 1) * span]:
            for i in range(k):
                later[i, lane + 1] *= lift[lane + 1]
            if not same(seen[:, lane], later[:, lane + 1]):
                return False
    return True


@compiled()
def add_posteriors(
    index: Any, posteriors: Any, first: int, last: int, weight: float, sums: Any
) -> None:
    """Add the posteriors, in lanes, of rows first..last-1 to the `sums` (d, k) of their symbols."""
    span, k, lanes = posteriors.shape
    origin = last - span * lanes
    for s in range(span):
        for lane in range(lanes):
            x = index[max(origin + lane * span + s, first)]
            for j in range(k):
                sums[x, j] += weight * posteriors[s, j, lane]


@compiled()
def in_rows(posteriors: Any, first: int, last: int, rows: Any) -> None:
    """Posteriors of a range from lanes to the rows first..last-1 of an array (n, k)."""
    span, k, lanes = posteriors.shape
    origin = last - span * lanes
    for s in range(span):
        for lane in range(lanes):
            t = origin + lane * span + s
            if t >= first:
                for j in range(k):
                    rows[t, j] = posteriors[s, j, lane]


@compiled()
def sum_of_logs(scale: Any) -> float:
    """The sum of the logarithms of numbers in lanes (span, lanes)."""
    total = 0.0
    product = 1.0
    for s in range(scale.shape[0]):
        for lane in range(scale.shape[1]):
            # One logarithm for many rows, where none is so small that the product vanishes.
            value = scale[s, lane]
            if value < 1e-100:
                total += np.log(value)
                continue
            product *= value
            if product < 1e-200:
                total += np.log(product)
                product = 1.0
    return float(total + np.log(product))
