"""Noisy-or networks as a family for EM."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.models.networks.noisy_or_read_off import CERTAIN, NoisyOrState
from latensor.moments.batch import Batch
from latensor.refinement.family import Family
from latensor.value_files import storable

# All states of so many causes are gone through; of more, those whose posterior counts. On dense
# rows (61 % ones) 64 states take 5 us by sums of a table, 14 by the search.
_FEW_CAUSES = 6


@lru_cache(maxsize=_FEW_CAUSES + 1)
def all_states(n_causes: int) -> Array:
    """All states (2^k, k) of zeros and ones."""
    states = (np.arange(2**n_causes)[:, None] >> np.arange(n_causes) & 1).astype(np.float64)
    states.setflags(write=False)
    return states


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

    def posteriors(
        self, state: NoisyOrState, prepared: Batch
    ) -> tuple[Array, Array, Array, Array, float]:
        """What is known of hidden states, given features.

        Returns
        -------
        P(cause active | x) (n, k) and log P(x) (n,) of every row; the sums over rows with feature
        i on of P(j active | x) / P(i on | active causes), (k, d), and of the same without "j
        active", (d,); the weight of the rows in which more than negligible posteriors are left out
        """
        from latensor.models.networks._kernels import go_through_states, search_states

        rows, weights, k = prepared.rows, prepared.weights, len(state.prior)
        proba, logs = np.empty((rows.shape[0], k)), np.empty(rows.shape[0])
        chances = np.log(state.prior) - np.log1p(-state.prior)
        kept, quiet = np.log1p(-state.components), np.log1p(-state.leak)
        none = np.log1p(-state.prior).sum() + quiet.sum()
        if k <= _FEW_CAUSES:
            states = all_states(k)
            off = states @ kept + quiet
            on = -np.expm1(off)
            odds = np.ascontiguousarray((np.log(on) - off).T)
            base = none + states @ (chances + kept.sum(axis=1))
            lit = np.zeros_like(on)
            go_through_states(
                rows.indptr, rows.indices, weights, odds, base, states, proba, logs, lit
            )
            lit /= on
            return proba, logs, states.T @ lit, lit.sum(axis=0), 0.0
        seen = np.log(-np.expm1(quiet))
        linear = np.column_stack([-kept.T, seen - quiet, seen])
        linear = np.vstack([linear, [*(chances + kept.sum(axis=1)), none, 0.0]])
        alone = np.log(-np.expm1(kept + quiet)) - kept - seen
        alone = np.vstack([alone.T, linear[-1, :k]])
        fired, leaked = np.zeros((len(quiet), k)), np.zeros(len(quiet))
        left_out = search_states(
            rows.indptr,
            rows.indices,
            weights,
            np.exp(kept.T, order="C"),
            np.exp(quiet),
            np.ascontiguousarray(linear),
            np.ascontiguousarray(alone),
            proba,
            logs,
            fired,
            leaked,
        )
        return proba, logs, fired.T, leaked, float(left_out)

    def expect(self, state: NoisyOrState, prepared: Batch) -> dict[str, Any]:
        proba, logs, lit, leaked, left_out = self.posteriors(state, prepared)
        return {
            "active": prepared.weights @ proba,
            "lit": lit,
            "leaked": leaked,
            "log_likelihood": float(prepared.weights @ logs),
            "left_out": left_out,
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

    def answers(self, state: NoisyOrState, prepared: Batch) -> tuple[Array, Array]:
        """P(cause active | x) (n, k) and log P(x) (n,)."""
        proba, logs, *_ = self.posteriors(state, prepared)
        return np.minimum(proba, 1.0), logs
