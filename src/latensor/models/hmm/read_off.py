"""Hidden states read off the moments of past, present and future (monograph 4.2, 4.3).

In homogeneous coordinates: with centred views, mapped to those of the present and whitened to y,
z = (1, y) has E[z z' z] = sum_j w_j z_j^(x)3 with orthonormal v_j = sqrt(w_j) z_j, so that the
weights w_j = v_j[0]^2 sum to one by themselves and k states need k - 1 directions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays.threads import one_blas_thread
from latensor.datasets.sequences import stationary_distribution
from latensor.estimation.homogeneous import (
    LEAST_EIGENVALUE,
    LEAST_SINGULAR,
    inverse_above,
    read_homogeneous,
    symmetrized,
)
from latensor.moments.sequences import DECAYS, Pairs, Windows

_ROUNDS = 100


@dataclass(frozen=True)
class HiddenStates:
    """States as the moments give them, before their parameters are made valid.

    Attributes
    ----------
    weights : (k,) fractions of the states among inner rows
    symbols : (k, d) mean of the symbol indicators given the state; noise may leave negative ones
    observed : (k, g) mean of the further quantities given the state
    off_diagonal : float, fraction of the whitened third moment that the states do not explain
    condition : float, largest over smallest singular value of the moment of past and future
    """

    weights: Any
    symbols: Any
    observed: Any
    off_diagonal: float
    condition: float


def read_states(
    sums: Windows, features: Any, views: str, algorithm: Any, rng: np.random.Generator
) -> HiddenStates:
    """Decompose the third moment of past, present and future into the states behind it.

    Parameters
    ----------
    sums : of windows along the features, whose first decay is 0
    features : (d, r), for r + 1 states
    views : "lag", the rows before and after alone, or "window", averages over many
    algorithm : "auto" for joint diagonalization, or an algorithm of `lt.decomposition`
    rng : draws its start
    """
    n = sums.weight
    rank = features.shape[1]
    frequency = sums.counts / n
    if rank == 0:
        one = np.ones(1)
        return HiddenStates(one, frequency[None], sums.observed[None] / n, 0.0, 1.0)
    with one_blas_thread():
        chosen = _filters(views, rank, sums.past.shape[1])
        noise = 1 / np.sqrt(n)
        past_mean, future_mean = sums.past.sum(axis=0) / n, sums.future.sum(axis=0) / n
        past = (sums.past - np.outer(sums.counts, past_mean)) @ chosen / n
        future = (sums.future - np.outer(sums.counts, future_mean)) @ chosen / n
        between = sums.products.sum(axis=0) / n - np.outer(past_mean, future_mean)
        between = chosen.T @ between @ chosen
        present = features - frequency @ features
        past_axes = _leading(np.hstack([past.T @ present, between]), rank)
        future_axes = _leading(np.hstack([future.T @ present, between.T]), rank)
        present_past = present.T @ past @ past_axes
        present_future = present.T @ future @ future_axes
        inverse, condition = inverse_above(
            past_axes.T @ between @ future_axes, LEAST_SINGULAR, noise
        )
        # inverse is (E past future')^-1: maps of past and future to the coordinates of the present.
        from_past, from_future = present_future @ inverse, present_past @ inverse.T
        second = from_future @ present_future.T
        values, vectors = np.linalg.eigh((second + second.T) / 2)
        magnitudes = np.abs(values)
        least = min(LEAST_EIGENVALUE * magnitudes.max(), noise)
        whitener = vectors / np.sqrt(np.maximum(magnitudes, max(least, 1e-300)))
        past_map = past_axes @ from_past.T @ whitener
        future_map = future_axes @ from_future.T @ whitener
        third = _third_moment(
            sums, chosen @ past_map, chosen @ future_map, present @ whitener, past_mean, future_mean
        )
        mixture = read_homogeneous(third, rng, algorithm)
        symbols = (past @ past_map + future @ future_map) / 2
        observed = (
            (sums.observed_past - np.outer(sums.observed, past_mean)) @ chosen @ past_map
            + (sums.observed_future - np.outer(sums.observed, future_mean)) @ chosen @ future_map
        ) / (2 * n)
    return HiddenStates(
        mixture.weights,
        mixture.mean_of(frequency, symbols),
        mixture.mean_of(sums.observed / n, observed),
        mixture.off_diagonal,
        condition,
    )


def _filters(views: str, rank: int, width: int) -> Any:
    """What picks the views out of windows of all decays (q, .), with the noise of each made equal.

    Under independent rows windows with decays g and h have the covariance 1 / (1 - g h).
    """
    if views == "lag":
        return np.eye(width)[:, :rank]
    decays = np.array(DECAYS)
    factor = np.linalg.cholesky(1 / (1 - np.outer(decays, decays)))
    return np.kron(np.linalg.inv(factor).T, np.eye(rank))


def _leading(matrix: Any, rank: int) -> Any:
    return np.linalg.svd(matrix, full_matrices=False)[0][:, :rank]


def _third_moment(
    sums: Windows, past_map: Any, future_map: Any, present: Any, past_mean: Any, future_mean: Any
) -> Any:
    """The symmetrized third moment (r, r, r) of the three mapped, centred views."""
    before, after = past_mean @ past_map, future_mean @ future_map
    triple = np.einsum("caf,ap->cpf", sums.products, past_map, optimize=True) @ future_map
    triple -= (sums.past @ past_map)[:, :, None] * after
    triple -= before[:, None] * (sums.future @ future_map)[:, None, :]
    triple += sums.counts[:, None, None] * np.outer(before, after)
    third = np.tensordot(present, triple, (0, 0)) / sums.weight
    return symmetrized(third)


def read_chain(pairs: Pairs, emissions: Any) -> tuple[Any, Any]:
    """Start and transition probabilities, given what the states emit.

    Transitions by the likelihood of the table J of pairs: X_ij, the chance of states i and j in a
    row, is maximized by X <- X * (O (J / (O' X O)) O') from the least-squares solution; starts by
    that of the first symbols and of one more sequence that begins as the chain goes on.

    Parameters
    ----------
    pairs : counts
    emissions : (k, d) probabilities O

    Returns
    -------
    startprob (k,), transmat (k, k)
    """
    table = pairs.tables[1]
    total = float(table.sum())
    k = len(emissions)
    frequency = pairs.counts / pairs.n_rows
    scale = 1 / np.sqrt(np.maximum(frequency, 1 / pairs.n_rows))
    with one_blas_thread():
        inverse = np.linalg.pinv(emissions * scale, rcond=1e-10)
        scaled = inverse.T * scale
        joint = np.asarray(scaled @ (table @ scaled.T)) / total
        least = min(1e-2 / k**2, 1 / np.sqrt(total))
        joint = _maximize_joint(np.maximum(joint, least), table, emissions)
        transmat = joint / joint.sum(axis=1, keepdims=True)
        occupancy = (joint.sum(axis=0) + joint.sum(axis=1)) / 2
        if not pairs.n_sequences:
            return occupancy, transmat
        firsts = pairs.firsts / pairs.n_sequences
        start = np.maximum(scaled @ firsts, min(1e-2 / k, 1 / np.sqrt(pairs.n_sequences)))
        start /= start.sum()
        for _ in range(_ROUNDS):
            ratios = firsts / np.maximum(start @ emissions, 1e-300)
            start = start * (emissions @ ratios) * pairs.n_sequences + occupancy
            start /= start.sum()
    return start, transmat


def _maximize_joint(joint: Any, table: Any, emissions: Any) -> Any:
    joint = joint / joint.sum()
    entries = table.tocoo() if scipy.sparse.issparse(table) else None
    for _ in range(_ROUNDS):
        ratio = table.astype(np.float64)
        numbers = ratio if entries is None else ratio.data
        numbers /= np.maximum(_expected(joint, emissions, entries), 1e-300)
        joint = joint * (emissions @ (ratio @ emissions.T))
        joint = joint / joint.sum()
    return joint


def _expected(joint: Any, emissions: Any, entries: Any) -> Any:
    """Chances O' X O (d, d) of pairs of symbols, or (e,) of the entries of a sparse table."""
    if entries is None:
        return emissions.T @ joint @ emissions
    return np.einsum("ea,ea->e", (emissions.T @ joint)[entries.row], emissions.T[entries.col])


def pair_likelihood(pairs: Pairs, transmat: Any, emissions: Any) -> float:
    """How well a model predicts pairs at all distances, as a mean log-likelihood.

    What tells two models apart where the rows themselves are gone.
    """
    occupancy = stationary_distribution(transmat)
    value, weight = 0.0, 0.0
    for lag, table in pairs.tables.items():
        joint = occupancy[:, None] * np.linalg.matrix_power(transmat, lag)
        entries = table.tocoo() if scipy.sparse.issparse(table) else None
        expected = _expected(joint, emissions, entries)
        numbers = table if entries is None else entries.data
        value += float((numbers * np.log(np.maximum(expected, 1e-300))).sum())
        weight += float(numbers.sum())
    return value / max(weight, 1.0)
