"""Numba kernels of noisy-or networks: interactions of three features, posteriors of states."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled

# Posteriors below half of the digits of the largest one, log 2^-26, are left out.
_NEGLIGIBLE = 26 * log(2.0)
# Sets of causes that are looked beyond before those that are left out are larger: .7 of the digits
# after each so many. Halves of them lost 5 times as much in .8 of the time (12 causes of a prior of
# .15 to .3, 26 to 40 % ones, all states known: .002 to .019 nat per row in 84 to 218 us).
_LOOKED_BEYOND, _FEWER = 256, 0.7
# ... and at most: of 40 causes in dense rows (56 % ones) 6, 16 and 64 times as many reach -50.67,
# -50.64 and -50.60 nat per row in 2, 4 and 10 ms.
_MOST_BEYOND = 16 * _LOOKED_BEYOND
# What the logarithm of a posterior may exceed that of its unit by.
_LARGE = 300.0


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
def go_through_states(
    starts: Any,
    features: Any,
    weights: Any,
    odds: Any,
    base: Any,
    states: Any,
    posterior: Any,
    logs: Any,
    lit: Any,
) -> None:
    """Posteriors of all states of few causes.

    log P(h, x) = base_h + sum of odds_ih over the features i that are on.

    Parameters
    ----------
    starts, features : (n + 1,) and (nnz,), the features of row r are starts[r] : starts[r + 1]
    weights : (n,)
    odds : (d, s)
    base : (s,)
    states : (s, k), zeros and ones
    posterior, logs : (n, k) and (n,), into which P(cause active | x) and log P(x) are written
    lit : (s, d), to which the posteriors of rows with a feature on are added
    """
    n_states, k = states.shape
    values = np.empty(n_states)
    for row in range(len(weights)):
        first, last = starts[row], starts[row + 1]
        for state in range(n_states):
            values[state] = base[state]
        for place in range(first, last):
            for state in range(n_states):
                values[state] += odds[features[place], state]
        largest = values[0]
        for state in range(1, n_states):
            largest = max(largest, values[state])
        summed, least = 0.0, largest - 2 * _NEGLIGIBLE
        for state in range(n_states):
            values[state] = exp(values[state] - largest) if values[state] >= least else 0.0
            summed += values[state]
        logs[row] = largest + log(summed)
        for j in range(k):
            posterior[row, j] = 0.0
        for state in range(n_states):
            if values[state] == 0:
                continue
            fraction = values[state] / summed
            for j in range(k):
                posterior[row, j] += fraction * states[state, j]
            for place in range(first, last):
                lit[state, features[place]] += weights[row] * fraction


@compiled(fastmath={"contract", "nnan", "nsz"})
def _explained(off: Any, on: Any, keep: Any, causes: Any, product: Any, total: Any) -> None:
    """Log P(features on | a set and one more cause), for some causes, into total.

    Parameters
    ----------
    off : (d,), P(feature off | the set), of the features that are on
    on : the features that are on
    keep : (d, k), P(cause j leaves feature i off)
    causes : which
    product, total : (k,), memory
    """
    k = keep.shape[1]
    for j in range(k):
        product[j], total[j] = 1.0, 0.0
    for place in range(len(on)):
        for j in range(k):
            product[j] *= 1 - off[place] * keep[on[place], j]
        # Factors are at least 1e-9: so many of them do not underflow.
        if place % 32 == 31 or place == len(on) - 1:
            for j in causes:
                total[j] += log(product[j])
            for j in range(k):
                product[j] = 1.0


@compiled()
def _most(
    gains: Any, ranked: Any, level: int, count: int, sums: Any, taken: Any, room: float
) -> float:
    """The most that any causes may add to the logarithm of a posterior.

    A cause adds its sum and what it explains of the features that are on; together they explain
    no more than is unexplained, the room. So causes with the most explained for their price come
    first, and of the one that fills the room a part (a knapsack, relaxed).

    Parameters
    ----------
    gains, ranked : what causes add that add something, and which they are, by what they explain
        for their price: the first `count` of row `level`
    sums : (k,), prices
    taken : row `level` says which causes are left out
    room : float
    """
    total = 0.0
    for place in range(count):
        j = ranked[level, place]
        if taken[level, j]:
            continue
        explained = gains[level, place] - sums[j]
        if sums[j] < 0 and explained > room:
            return float(total + gains[level, place] * room / explained)
        total += sums[j] + min(explained, room)
        room = max(0.0, room - explained)
    return total


@compiled()
def _rank(added: Any, causes: Any, sums: Any, gains: Any, ranked: Any) -> int:
    """How many causes add something; they and what they add are put in the order of `_most`."""
    count = 0
    for other in range(len(causes)):
        gain, j, place = added[other], causes[other], count
        if gain <= 0:
            continue
        while place and gain * sums[ranked[place - 1]] < gains[place - 1] * sums[j]:
            ranked[place], gains[place] = ranked[place - 1], gains[place - 1]
            place -= 1
        ranked[place], gains[place] = j, gain
        count += 1
    return count


@compiled(fastmath={"contract", "nnan", "nsz"})
def search_states(
    starts: Any,
    features: Any,
    weights: Any,
    keep: Any,
    quiet: Any,
    linear: Any,
    alone: Any,
    posterior: Any,
    logs: Any,
    lit: Any,
    leaked: Any,
) -> float:
    """Posteriors of the states of many causes: all that are not negligible, by branch and bound.

    With S the set of active causes, log P(S, x) = a sum over S + sum of log(1 - P(i off | S)) over
    the features i that are on: submodular in S, as log(1 - e^-z) is concave. So what a cause adds
    to a set bounds what it adds to any larger one, and a set is looked beyond only if that, over
    all causes that may still come (`_most`), can lead to a posterior that counts.

    Parameters
    ----------
    starts, features : (n + 1,) and (nnz,), the features of row r are starts[r] : starts[r + 1]
    weights : (n,)
    keep, quiet : (d, k) and (d,), P(i off) given one cause, and given none
    linear : (d + 1, k + 2): rows of features are what one that is on adds to the sum of cause j,
        to log P(no cause, x), and to the part of this that features on have; the last row is that
        of a sample without a feature on
    alone : (d + 1, k), the same for log P(one cause, x) - log P(no cause, x)
    posterior, logs : (n, k) and (n,), into which P(cause active | x) and log P(x) are written
    lit, leaked : (d, k) and (d,), to which sum_S P(S | x) / P(on | S) is added, over the sets with
        a cause and over all

    Returns
    -------
    the weight of the rows in which more than negligible posteriors were left out
    """
    d, k = keep.shape
    longest = 0
    for row in range(len(weights)):
        longest = max(longest, starts[row + 1] - starts[row])
    # One level for every cause of a set: P(off | set), 1 / P(on | set) times the posteriors of
    # the set and of those beyond, and the causes that may come next with what each adds.
    off, inverse = np.empty((k + 1, longest)), np.empty((k + 1, longest))
    value, seen, mass = np.empty(k + 1), np.empty(k + 1), np.empty(k + 1)
    added, causes = np.empty((k + 1, k)), np.empty((k + 1, k), dtype=np.int64)
    first, size = np.empty(k + 1, dtype=np.int64), np.empty(k + 1, dtype=np.int64)
    more, latest = np.empty(k + 1), np.empty(k + 1, dtype=np.int64)
    # Causes that add something, by what they explain for their price; those that had their turn.
    ranked, n_ranked = np.empty((k + 1, k), dtype=np.int64), np.empty(k + 1, dtype=np.int64)
    ranked_gains, taken = np.empty((k + 1, k)), np.empty((k + 1, k), dtype=np.bool_)
    sums, gains, product = np.empty(k + 2), np.empty(k), np.empty(k)
    chance, fired = np.empty(k), np.empty((k, longest))
    left_out = 0.0
    for row in range(len(weights)):
        on = features[starts[row] : starts[row + 1]]
        width = len(on)
        for j in range(k + 2):
            sums[j] = linear[d, j]
        for j in range(k):
            gains[j], chance[j], causes[0, j] = alone[d, j], 0.0, j
        for place in range(width):
            off[0, place] = quiet[on[place]]
            for j in range(k + 2):
                sums[j] += linear[on[place], j]
            for j in range(k):
                gains[j] += alone[on[place], j]
        value[0], seen[0] = sums[k], sums[k + 1]
        best = value[0]
        for j in range(k):
            best = max(best, value[0] + gains[j])
        unit, digits, n_beyond = best, _NEGLIGIBLE, 0
        level, is_new, size[0] = 0, True, k
        while True:
            if is_new:
                is_new = False
                mass[level] = exp(value[level] - unit)
                for place in range(width):
                    inverse[level, place] = mass[level] / (1 - off[level, place])
                if size[level]:
                    n_beyond += 1
                    if n_beyond % _LOOKED_BEYOND == 0:
                        digits = _FEWER * digits if n_beyond < _MOST_BEYOND else -np.inf
                    if level:
                        _explained(
                            off[level], on, keep, causes[level, : size[level]], product, gains
                        )
                        for j in range(k):
                            gains[j] += sums[j] - seen[level]
                total, wanted = 0.0, 0.0
                for place in range(size[level]):
                    j = causes[level, place]
                    added[level, place] = gains[j]
                    best = max(best, value[level] + gains[j])
                    if gains[j] > 0:
                        total += gains[j]
                        wanted += gains[j] - sums[j]
                more[level], n_ranked[level], first[level] = total, 0, 0
                # Otherwise the sum is the bound.
                if wanted > -seen[level]:
                    n_ranked[level] = _rank(
                        added[level],
                        causes[level, : size[level]],
                        sums,
                        ranked_gains[level],
                        ranked[level],
                    )
                    taken[level] = False
            # The cause that adds most, and the most that any set beyond can have.
            gain, place = -np.inf, 0
            for other in range(first[level], size[level]):
                if added[level, other] > gain:
                    gain, place = added[level, other], other
            count, most = n_ranked[level], min(gain, 0.0) + more[level]
            if gain > 0 and count:
                most = _most(ranked_gains, ranked, level, count, sums, taken, -seen[level])
            if first[level] == size[level] or value[level] + most < best - digits:
                if level == 0:
                    break
                level -= 1
                j = latest[level]
                if chance[j] == 0:
                    for place in range(width):
                        fired[j, place] = 0.0
                chance[j] += mass[level + 1]
                mass[level] += mass[level + 1]
                for place in range(width):
                    inverse[level, place] += inverse[level + 1, place]
                    fired[j, place] += inverse[level + 1, place]
                continue
            j = causes[level, place]
            added[level, place] = added[level, first[level]]
            causes[level, place] = causes[level, first[level]]
            first[level] += 1
            taken[level, j] = True
            beyond = value[level] + gain
            seen[level + 1] = seen[level] + gain - sums[j]
            more[level] -= max(gain, 0.0)
            most = more[level]
            if count:
                most = _most(ranked_gains, ranked, level, count, sums, taken, -seen[level + 1])
            if beyond + most < best - digits:
                continue
            if beyond > unit + _LARGE:
                scale, unit = exp(unit - beyond), beyond
                for other in range(level + 1):
                    mass[other] *= scale
                    for place in range(width):
                        inverse[other, place] *= scale
                for other in range(k):
                    chance[other] *= scale
                    for place in range(width):
                        fired[other, place] *= scale
            latest[level] = j
            value[level + 1] = beyond
            for place in range(width):
                off[level + 1, place] = off[level, place] * keep[on[place], j]
            n_next = 0
            for other in range(first[level], size[level]):
                # No cause adds more than if all features that are on were certain.
                cause = causes[level, other]
                here = min(added[level, other], sums[cause] - seen[level + 1])
                if beyond + min(here, 0.0) + most >= best - digits:
                    causes[level + 1, n_next] = cause
                    n_next += 1
            level, is_new = level + 1, True
            size[level] = n_next
        logs[row] = unit + log(mass[0])
        if n_beyond >= _LOOKED_BEYOND:
            left_out += weights[row]
        scale = weights[row] / mass[0]
        for place in range(width):
            leaked[on[place]] += scale * inverse[0, place]
        for j in range(k):
            posterior[row, j] = chance[j] / mass[0]
            if chance[j] > 0:
                for place in range(width):
                    lit[on[place], j] += scale * fired[j, place]
    return left_out
