"""Numba kernels of hidden Markov models: forward, backward, expected counts, Viterbi.

Plain loops over rows; the checks are done by the callers. The likelihood of row t in every state
is `table[index[t]]`: symbols point into a table of emission probabilities, densities have a row
of their own each. Every call works on a range of rows and writes to its own place, so that any
number of threads gives the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled

# Two filters that agree to this relative precision in every state stay so close for good: the
# filter never expands Hilbert's projective metric.
AGREEMENT = 1e-13
# Numbers above this can be divided by, or multiplied, without leaving what double precision holds;
# below it every step is divided by itself.
SMALLEST = 1e-100


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
) -> None:
    """Filtered state probabilities (m, k) of rows first..last-1 times the likelihood of each row.

    The likelihood of a row given those before it, the sum over states, goes to `scale` (m,): to
    divide by it one row later keeps the division out of the chain of dependent operations. Rows of
    a likelihood below SMALLEST are divided at once, and an impossible row is one of which nothing
    is known: all states are equally likely. A range that begins inside a sequence begins with equal
    probabilities: `carry` makes it right.
    """
    k = startprob.size
    predicted = np.empty(k)
    inverse = 1.0
    for t in range(first, last):
        if is_start[t]:
            for j in range(k):
                predicted[j] = 1.0 / k if is_cut[t] else startprob[j]
            inverse = 1.0
        elif t == first:
            for j in range(k):
                predicted[j] = 1.0 / k
            inverse = 1.0
        else:
            for j in range(k):
                predicted[j] = 0.0
            for i in range(k):
                fraction = filtered[t - first - 1, i]
                for j in range(k):
                    predicted[j] += fraction * transmat[i, j]
        x = index[t]
        total = 0.0
        for j in range(k):
            value = predicted[j] * (table[x, j] * inverse)
            filtered[t - first, j] = value
            total += value
        scale[t - first] = total
        if total > SMALLEST:
            inverse = 1.0 / total
        else:
            inverse = 1.0
            for j in range(k):
                filtered[t - first, j] = filtered[t - first, j] / total if total > 0.0 else 1.0 / k


@compiled()
def carry(
    index: Any,
    table: Any,
    is_start: Any,
    transmat: Any,
    first: int,
    last: int,
    before: Any,
    filtered: Any,
    scale: Any,
) -> int:
    """Take the probabilities (k,) of row first-1 into a range until they meet what is there.

    Returns the number of rows that were changed.
    """
    span, k, lanes = filtered.shape
    origin = last - span * lanes
    predicted = np.empty(k)
    state = before.copy()
    for t in range(first, last):
        if is_start[t]:
            return t - first
        lane, s = (t - origin) // span, (t - origin) % span
        for j in range(k):
            predicted[j] = 0.0
        for i in range(k):
            for j in range(k):
                predicted[j] += state[i] * transmat[i, j]
        total = 0.0
        for j in range(k):
            predicted[j] *= table[index[t], j]
            total += predicted[j]
        old = scale[s, lane]
        agree = total > 0.0 and old > 0.0
        for j in range(k):
            state[j] = predicted[j] / total if total > 0.0 else 1.0 / k
            known = filtered[s, j, lane] / old if old > SMALLEST else filtered[s, j, lane]
            if agree and abs(state[j] - known) > AGREEMENT * state[j]:
                agree = False
            filtered[s, j, lane] = predicted[j] if total > SMALLEST else state[j]
        scale[s, lane] = total
        if agree:
            return t - first
    return last - first


@compiled()
def back_over(index: Any, table: Any, across: Any, first: int, last: int, later: Any) -> None:
    """From the likelihoods of all rows after last-1 to those of all rows after first-1.

    `later` (k,) is overwritten; rows first-1..last-1 belong to one sequence.
    """
    k = later.size
    message = np.empty(k)
    for t in range(last - 1, first - 1, -1):
        x = index[t]
        total = 0.0
        for j in range(k):
            message[j] = table[x, j] * later[j]
            total += message[j]
        for i in range(k):
            later[i] = 0.0 if total > 0.0 else 1.0
        for j in range(k):
            fraction = message[j] / total if total > 0.0 else 0.0
            for i in range(k):
                later[i] += fraction * across[j, i]


@compiled()
def expected_counts(
    index: Any,
    table: Any,
    is_start: Any,
    across: Any,
    first: int,
    last: int,
    end: Any,
    filtered: Any,
    starts: Any,
    totals: Any,
    steps: Any,
    begin: Any,
) -> None:
    """Posterior state probabilities in place of `filtered`, and sums over rows first..last-1.

    Goes backwards with the likelihood b_t (k,) of all rows after t, from `end` for row `last`.
    Adds to `starts` (k,) the posteriors of first rows, to `totals` (k,) those of all rows, and to
    `steps` (k, k) the sum of f_t (x) m_t+1 / norm over all steps to a next row, m being the
    likelihood times b: multiplied by the transition matrix, the expected number of steps from
    each state to each other. Rows that the later ones make impossible are told by the earlier ones
    alone, as if the sequence ended there.

    Parameters
    ----------
    across : (k, k) the transition matrix, transposed
    end : (k,) likelihoods of all rows after `last`, up to scale; not read where the sequence ends
        before that
    begin : (k,) to be filled with those of all rows after `first`
    """
    n, k = is_start.size, filtered.shape[1]
    message = np.empty(k)
    later = np.empty(k)
    for t in range(last - 1, first - 1, -1):
        inner = t + 1 < n and not is_start[t + 1]
        if not inner:
            for i in range(k):
                later[i] = 1.0
        else:
            if t == last - 1:
                x = index[t + 1]
                for j in range(k):
                    message[j] = table[x, j] * end[j]
            for i in range(k):
                later[i] = 0.0
            for j in range(k):
                fraction = message[j]
                for i in range(k):
                    later[i] += fraction * across[j, i]
        total = 0.0
        for i in range(k):
            total += later[i]
        if 0.0 < total <= SMALLEST:
            for i in range(k):
                later[i] /= total
                message[i] /= total
            total = 1.0
        norm = 0.0
        for i in range(k):
            norm += filtered[t - first, i] * later[i]
        if norm > SMALLEST:
            inverse = 1.0 / norm
            for i in range(k):
                fraction = filtered[t - first, i] * inverse
                if inner:
                    for j in range(k):
                        steps[i, j] += fraction * message[j]
                filtered[t - first, i] = fraction * later[i]
        elif norm > 0.0:
            for i in range(k):
                fraction = filtered[t - first, i]
                if inner:
                    for j in range(k):
                        # Counts of less likely steps would overflow before they are multiplied.
                        if across[j, i] > SMALLEST**3:
                            taken = fraction * (message[j] * across[j, i]) / norm
                            steps[i, j] += taken / across[j, i]
                filtered[t - first, i] = fraction * later[i] / norm
        else:
            total = 0.0
            for i in range(k):
                total += filtered[t - first, i]
            for i in range(k):
                filtered[t - first, i] /= total
                later[i] = 1.0
            total = k
        for i in range(k):
            totals[i] += filtered[t - first, i]
        if is_start[t]:
            for i in range(k):
                starts[i] += filtered[t - first, i]
        # Divided by the sum of a row earlier: the division is then not waited for.
        lift = 1.0 / total
        x = index[t]
        total = 0.0
        for j in range(k):
            message[j] = table[x, j] * (later[j] * lift)
            total += message[j]
        if 0.0 < total <= SMALLEST:
            for j in range(k):
                message[j] /= total
    for i in range(k):
        begin[i] = later[i]


@compiled()
def viterbi(
    index: Any,
    log_table: Any,
    log_startprob: Any,
    log_transmat: Any,
    begin: int,
    end: int,
    pointers: Any,
    states: Any,
    scores: Any,
    place: int,
) -> None:
    """The likeliest states of one sequence, rows begin..end-1, and its log-probability.

    Parameters
    ----------
    pointers : (end - begin, k) integers, scratch
    """
    k = log_startprob.size
    best = log_startprob + log_table[index[begin]]
    fresh = np.empty(k)
    source = np.empty(k, dtype=pointers.dtype)
    for t in range(begin + 1, end):
        fresh[:] = best[0] + log_transmat[0]
        source[:] = 0
        for i in range(1, k):
            row = log_transmat[i]
            value = best[i]
            for j in range(k):
                if value + row[j] > fresh[j]:
                    fresh[j] = value + row[j]
                    source[j] = i
        likelihood = log_table[index[t]]
        pointer = pointers[t - begin]
        for j in range(k):
            best[j] = fresh[j] + likelihood[j]
            pointer[j] = source[j]
    state = 0
    for j in range(1, k):
        if best[j] > best[state]:
            state = j
    scores[place] = best[state]
    for t in range(end - 1, begin, -1):
        states[t] = state
        state = pointers[t - begin, state]
    states[begin] = state
