"""Noisy-or networks as a family for EM: hidden states with few active causes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.models.networks.noisy_or_read_off import CERTAIN, NoisyOrState
from latensor.moments.batch import Batch
from latensor.refinement.family import Family
from latensor.value_files import storable

# All states are gone through up to so many; beyond, those with few active causes.
_EXACT = 256
_MOST_STATES = 2048
# Prior probability of the states left out: a bias below the noise of a million samples.
_LEFT_OUT = 1e-3


@lru_cache(maxsize=32)
def states_with(n_causes: int, most_active: int) -> Array:
    """All states (s, k) of zeros and ones with at most so many ones, by their number."""
    found = [
        chosen
        for active in range(most_active + 1)
        for chosen in itertools.combinations(range(n_causes), active)
    ]
    states = np.zeros((len(found), n_causes))
    for row, chosen in zip(states, found, strict=True):
        row[list(chosen)] = 1.0
    states.setflags(write=False)
    return states


def tail_of(prior: Array) -> Array:
    """P(more than m causes are active), m = 0, ..., k."""
    sizes = np.ones(1)
    for p in prior:
        sizes = np.convolve(sizes, [1 - p, p])
    return np.maximum(1 - np.cumsum(sizes), 0.0)


def most_active(prior: Array) -> int:
    """How many causes may be active in the states that EM goes through."""
    k = len(prior)
    if 2**k <= _EXACT:
        return k
    needed = int(np.argmax(tail_of(prior) <= _LEFT_OUT))
    total, limit = 1, 0
    while limit < k and total + comb(k, limit + 1) <= _MOST_STATES:
        limit += 1
        total += comb(k, limit)
    return max(1, min(needed, limit))


def left_out(prior: Array) -> float:
    """The prior probability of the states that EM does not go through."""
    most = most_active(prior)
    return float(tail_of(prior)[most]) if most < len(prior) else 0.0


@storable
@dataclass(frozen=True)
class NoisyOrFamily(Family[NoisyOrState]):
    """P(x_i = 0 | h) = (1 - leak_i) prod_j (1 - F_ij)^h_j with independent hidden causes h_j.

    Which of the active causes has turned a feature on is hidden too, so that the maximization is a
    ratio of counts: how often cause j has done so, over how often it was active. The statistic is
    the first of them over F ("lit": P(j active | x) / P(i on | active causes), summed over rows
    with i on): the log-likelihood has the gradient (lit - active) / (1 - F).
    """

    plain_steps: ClassVar[int] = 3

    def prepare(self, batch: Batch) -> Batch:
        rows = batch.rows
        if not scipy.sparse.issparse(rows):
            # Much faster than SciPy's way, which looks for nonzero entries along both axes.
            on = np.asarray(rows) != 0
            features = np.flatnonzero(on.ravel()) % on.shape[1]
            starts = np.concatenate([[0], np.cumsum(on.sum(axis=1))])
            rows = scipy.sparse.csr_array((np.ones(len(features)), features, starts), on.shape)
        rows = scipy.sparse.csr_array(rows, dtype=np.float64)
        rows.sort_indices()
        return Batch((rows,), batch.weights, batch.keys)

    def tables(self, state: NoisyOrState) -> tuple[Array, Array, Array, Array]:
        """States h (s, k), P(on | h) (s, d), their log odds (d, s) and log P(h, all off) (s,)."""
        states = states_with(len(state.prior), most_active(state.prior))
        log_off = states @ np.log1p(-state.components) + np.log1p(-state.leak)
        on = -np.expm1(log_off)
        odds = np.ascontiguousarray((np.log(on) - log_off).T)
        base = np.log1p(-state.prior).sum() + states @ (
            np.log(state.prior) - np.log1p(-state.prior)
        )
        return states, on, odds, base + log_off.sum(axis=1)

    def expect(self, state: NoisyOrState, prepared: Batch) -> dict[str, Any]:
        from latensor.models.networks._kernels import count_states

        states, on, odds, base = self.tables(state)
        rows, counts, lit = prepared.rows, np.zeros(len(base)), np.zeros_like(on)
        total = count_states(rows.indptr, rows.indices, prepared.weights, odds, base, counts, lit)
        lit /= on
        return {
            "active": states.T @ counts,
            "lit": states.T @ lit,
            "leaked": lit.sum(axis=0),
            "log_likelihood": float(total),
            "weight": prepared.weight,
        }

    def maximize(self, sums: dict[str, Any], state: NoisyOrState) -> NoisyOrState:
        weight = sums["weight"]
        active = np.maximum(sums["active"], 1e-300)
        fired = state.components * sums["lit"]
        components = np.where(
            (active > 1e-12 * weight)[:, None], fired / active[:, None], state.components
        )
        return NoisyOrState(
            np.clip(active / weight, 1 - CERTAIN, CERTAIN),
            np.clip(components, 0.0, CERTAIN),
            np.clip(state.leak * sums["leaked"] / weight, 1 - CERTAIN, CERTAIN),
        )

    def complete(self, sums: dict[str, Any], state: NoisyOrState) -> float:
        # Linear in log(1 - F), with the gradient of the log-likelihood where sums were taken: the
        # expected counts of causes that fire, times log F, are wrong by far once an F is near 0.
        active, weight = sums["active"], sums["weight"]
        return float(
            active @ np.log(state.prior)
            + (weight - active) @ np.log1p(-state.prior)
            + ((active[:, None] - sums["lit"]) * np.log1p(-state.components)).sum()
            + (weight - sums["leaked"]) @ np.log1p(-state.leak)
        )

    def pack(self, state: NoisyOrState) -> Array:
        # Angles: their standard deviation is n^-1/2 / 2 at every probability, and 0 is in reach.
        values = (state.prior, state.components.ravel(), state.leak)
        return 2 * np.arcsin(np.sqrt(np.concatenate(values)))

    def unpack(self, vector: Array, like: NoisyOrState) -> NoisyOrState:
        values = np.sin(np.clip(vector, 0.0, np.pi) / 2) ** 2
        k, d = like.components.shape
        return NoisyOrState(
            np.clip(values[:k], 1 - CERTAIN, CERTAIN),
            np.clip(values[k : k + k * d].reshape(k, d), 0.0, CERTAIN),
            np.clip(values[k + k * d :], 1 - CERTAIN, CERTAIN),
        )

    def log_density(self, state: NoisyOrState, prepared: Batch) -> Array:
        _, _, odds, base = self.tables(state)
        return prepared.rows @ odds + base

    def answers(self, state: NoisyOrState, prepared: Batch) -> tuple[Array, Array]:
        """P(cause active | x) (n, k) and log P(x) (n,)."""
        from scipy.special import logsumexp

        logs = self.log_density(state, prepared)
        total = logsumexp(logs, axis=1)
        states = states_with(len(state.prior), most_active(state.prior))
        return np.minimum(np.exp(logs - total[:, None]) @ states, 1.0), np.asarray(total)
