"""Numba kernels of trees whose edges share one reversible rate matrix: lengths and interchanges.

With P(t) = diag(p)^-1/2 V exp(-t L) V' diag(p)^1/2 and partial likelihoods a, b at the ends of an
edge, a site has the likelihood sum_c (V' p^1/2 a)_c (V' p^1/2 b)_c exp(-t l_c): what stands before
the exponentials is computed once, and a step of Newton's method for t costs k products per site.
Classes of rates are further coordinates. Sites are the last, contiguous axis of all arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled

_SHORTEST, _LONGEST = 1e-6, 20.0
_TINY = 1e-290
# Steps of Newton's method for one length: lengths are gone over again.
_NEWTON = 4
# Sites whose numbers stay in the nearest cache.
_BLOCK = 256


@compiled()
def best_length(before: Any, decays: Any, weights: Any, t: float) -> Any:
    """The length near t that maximizes sum_s w_s log sum_c before[c, s] exp(-decays[c] t)."""
    size, n_sites = before.shape
    work = np.empty((3, _BLOCK))
    for _ in range(_NEWTON):
        slope = 0.0
        bend = 0.0
        for start in range(0, n_sites, _BLOCK):
            m = min(_BLOCK, n_sites - start)
            for c in range(size):
                e = np.exp(-decays[c] * t)
                first = -decays[c] * e
                second = decays[c] * decays[c] * e
                if c == 0:
                    for s in range(m):
                        z = before[c, start + s]
                        work[0, s] = e * z
                        work[1, s] = first * z
                        work[2, s] = second * z
                else:
                    for s in range(m):
                        z = before[c, start + s]
                        work[0, s] += e * z
                        work[1, s] += first * z
                        work[2, s] += second * z
            for s in range(m):
                inverse = 1.0 / max(work[0, s], _TINY)
                ratio = work[1, s] * inverse
                work[0, s] = ratio
                work[1, s] = work[2, s] * inverse - ratio * ratio
            for s in range(m):
                slope += weights[start + s] * work[0, s]
                bend += weights[start + s] * work[1, s]
        # Where the curve bends upwards, as far as the bounds of a step allow.
        moved = t - slope / bend if bend < 0.0 else (4.0 * t if slope > 0.0 else 0.25 * t)
        moved = min(max(moved, 0.1 * t), 4.0 * t + 0.01)
        moved = min(max(moved, _SHORTEST), _LONGEST)
        step = abs(moved - t)
        t = moved
        # Within a tenth of the standard error; the next step would be its square.
        if step * step * abs(bend) < 1e-2 or step < 1e-9:
            break
    return t


@compiled()
def log_likelihood(before: Any, decays: Any, weights: Any, t: float) -> float:
    """sum_s w_s log sum_c before[c, s] exp(-decays[c] t)."""
    size, n_sites = before.shape
    decayed = np.exp(-decays * t)
    work = np.empty(_BLOCK)
    total = 0.0
    for start in range(0, n_sites, _BLOCK):
        m = min(_BLOCK, n_sites - start)
        work[:m] = decayed[0] * before[0, start : start + m]
        for c in range(1, size):
            for s in range(m):
                work[s] += decayed[c] * before[c, start + s]
        for s in range(m):
            total += weights[start + s] * np.log(max(work[s], _TINY))
    return total


@compiled()
def decayed_tables(backward: Any, decays: Any, t: float) -> Any:
    """(g, k, k), backward exp(-decays t) of every class: P(t) a of the spectrum of a."""
    k = backward.shape[0]
    found = np.empty((decays.shape[0] // k, k, k))
    for g in range(found.shape[0]):
        for c in range(k):
            found[g, :, c] = backward[:, c] * np.exp(-decays[g * k + c] * t)
    return found


@compiled()
def multiplied(tables: Any, partial: Any, out: Any) -> None:
    """Tables (g, k, k), or one (1, k, k) for all classes, times partial (g k, S)."""
    k, n_sites = tables.shape[1], partial.shape[1]
    for start in range(0, n_sites, _BLOCK):
        stop = min(start + _BLOCK, n_sites)
        for row in range(partial.shape[0]):
            first = row - row % k
            table = tables[min(row // k, tables.shape[0] - 1)]
            f = table[row % k, 0]
            for s in range(start, stop):
                out[row, s] = f * partial[first, s]
            for c in range(1, k):
                f = table[row % k, c]
                for s in range(start, stop):
                    out[row, s] += f * partial[first + c, s]


@compiled()
def looked_up(tables: Any, symbols: Any, out: Any) -> None:
    """What `multiplied` makes of the symbols (S,) of a leaf, k for those that are missing."""
    k = tables.shape[1]
    values = np.empty(k + 1)
    for row in range(out.shape[0]):
        values[:k] = tables[min(row // k, tables.shape[0] - 1), row % k]
        values[k] = values[:k].sum()
        for s in range(symbols.shape[0]):
            out[row, s] = values[symbols[s]]


@compiled()
def product(one: Any, other: Any, out: Any) -> None:
    """Write one * other into out."""
    for c in range(one.shape[0]):
        for s in range(one.shape[1]):
            out[c, s] = one[c, s] * other[c, s]


@compiled()
def normalize(partial: Any, largest: Any) -> None:
    """Divide the values of every site by their largest."""
    size, n_sites = partial.shape
    for s in range(n_sites):
        largest[s] = _TINY
    for c in range(size):
        for s in range(n_sites):
            largest[s] = max(largest[s], partial[c, s])
    for start in range(0, n_sites, _BLOCK):
        stop = min(start + _BLOCK, n_sites)
        inverse = 1.0 / largest[start:stop]
        for c in range(size):
            for s in range(start, stop):
                partial[c, s] *= inverse[s - start]


@compiled()
def message(
    v: int,
    codes: Any,
    lengths: Any,
    forward: Any,
    backward: Any,
    decays: Any,
    inside: Any,
    out: Any,
) -> None:
    """Likelihoods of the subtree at v, at its parent."""
    n = codes.shape[0]
    tables = decayed_tables(backward, decays, lengths[v])
    if v < n:
        for g in range(tables.shape[0]):
            tables[g] = np.dot(tables[g], forward[0])
        looked_up(tables, codes[v], out)
    else:
        multiplied(tables, inside[v - n], out)


@compiled()
def sweep(
    visits: Any,
    parent: Any,
    others: Any,
    codes: Any,
    lengths: Any,
    weights: Any,
    forward: Any,
    backward: Any,
    decays: Any,
    inside: Any,
    outside: Any,
    scales: Any,
    gains: Any,
) -> float:
    """Go round the tree once, and set every length to its best, the others given.

    Parameters
    ----------
    visits : nodes as met on the way round, v where it is entered from its parent, ~v where it is
        left again; lengths stay as they are where none is entered
    parent : (N,)
    others : (N, 3), neighbours of a hidden node, its parent last; three children at the root
    codes : (n, S) symbols of the leaves, k where missing
    lengths : (N,), written
    forward, backward : (1, k, k) and (k, k), V' diag(p)^1/2 and diag(p)^-1/2 V
    decays : (g k,) rates of the eigenvectors, class by class
    inside, outside : (h, g k, S) spectra of hidden nodes, written: of the subtree at a node, and,
        at its parent, of all else
    scales : (h, S), what likelihoods of hidden nodes were divided by, written
    gains : (h,), of the log-likelihood by the length above a hidden node over length zero, written

    Returns
    -------
    The log-likelihood.
    """
    size, n_sites = inside.shape[1:]
    n = codes.shape[0]
    one = np.empty((size, n_sites))
    other = np.empty((size, n_sites))
    spectrum = np.empty((size, n_sites))
    largest = np.empty(n_sites)
    root = -1
    for visit in visits:
        if visit >= 0:
            v = visit
            u = parent[v]
            filled = False
            for place in range(3):
                w = others[u, place]
                if w == v:
                    continue
                into = other if filled else one
                if w == parent[u]:
                    multiplied(decayed_tables(backward, decays, lengths[u]), outside[u - n], into)
                else:
                    message(w, codes, lengths, forward, backward, decays, inside, into)
                filled = True
            product(one, other, one)
            normalize(one, largest)
            if v < n:
                multiplied(forward, one, spectrum)
                looked_up(forward, codes[v], other)
                product(spectrum, other, one)
            else:
                multiplied(forward, one, outside[v - n])
                product(inside[v - n], outside[v - n], one)
            lengths[v] = best_length(one, decays, weights, lengths[v])
            if v >= n:
                at_zero = log_likelihood(one, decays, weights, 0.0)
                gains[v - n] = log_likelihood(one, decays, weights, lengths[v]) - at_zero
        else:
            v = ~visit
            if v >= n:
                message(others[v, 0], codes, lengths, forward, backward, decays, inside, one)
                message(others[v, 1], codes, lengths, forward, backward, decays, inside, other)
                product(one, other, one)
                normalize(one, scales[v - n])
                multiplied(forward, one, inside[v - n])
            root = parent[v]
    message(others[root, 0], codes, lengths, forward, backward, decays, inside, one)
    for place in range(1, 3):
        message(others[root, place], codes, lengths, forward, backward, decays, inside, other)
        product(one, other, one)
    normalize(one, scales[root - n])
    multiplied(forward, one, spectrum)
    k = backward.shape[0]
    n_classes = size // k
    total = 0.0
    for s in range(n_sites):
        value = 0.0
        for g in range(n_classes):
            # The first eigenvector is p^1/2: its coordinate is the sum over the states.
            value += spectrum[g * k, s]
        logs = 0.0
        value = max(value / n_classes, _TINY)
        for h in range(inside.shape[0]):
            if value < 1e-100:
                logs += np.log(value)
                value = 1.0
            value *= scales[h, s]
        total += weights[s] * (logs + np.log(value))
    return total


@compiled()
def quartet(
    ends: Any,
    near: Any,
    lengths: Any,
    weights: Any,
    forward: Any,
    backward: Any,
    decays: Any,
    rounds: int,
    room: Any,
) -> float:
    """The log-likelihood of the tree 01|23 of four parts, up to what they share.

    The inner length, the last of `lengths` (5,), is set to its best; in every round all are.

    Parameters
    ----------
    ends, near : four arrays (g k, S) each, spectra of the parts at the ends of their edges, and
        likelihoods at the inner nodes; `near` is written
    room : (5, g k, S), written
    """
    left, right, before = room[0], room[1], room[2]
    spectra = room[3:]
    for turn in range(rounds + 1):
        product(near[0], near[1], left)
        product(near[2], near[3], right)
        multiplied(forward, left, spectra[0])
        multiplied(forward, right, spectra[1])
        product(spectra[0], spectra[1], before)
        lengths[4] = best_length(before, decays, weights, lengths[4])
        if turn == rounds:
            break
        for side in range(2):
            if side == 1:
                product(near[0], near[1], left)
                multiplied(forward, left, spectra[0])
            # What comes from the other side of the inner edge.
            multiplied(decayed_tables(backward, decays, lengths[4]), spectra[1 - side], right)
            for i in range(2 * side, 2 * side + 2):
                product(right, near[4 * side + 1 - i], left)
                multiplied(forward, left, before)
                product(before, ends[i], before)
                lengths[i] = best_length(before, decays, weights, lengths[i])
                multiplied(decayed_tables(backward, decays, lengths[i]), ends[i], near[i])
    found: float = log_likelihood(before, decays, weights, lengths[4])
    return found
