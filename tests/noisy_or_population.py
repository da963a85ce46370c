"""Noisy-or networks whose moments are known exactly."""

import itertools

import numpy as np
from scipy.optimize import linear_sum_assignment

from latensor.models.networks.noisy_or_read_off import (
    Interactions,
    NoisyOrState,
    read_off,
    triple_interactions,
)


def random_network(seed, d, k, prior):
    rng = np.random.default_rng(seed)
    # Ten features for every cause: one with two only is one number in the pairs, and not unique.
    acts = rng.random((k, d)).argsort(axis=1) < 10
    components = np.where(acts, rng.uniform(0.2, 0.9, (k, d)), 0.0)
    return NoisyOrState(prior * rng.uniform(0.7, 1.3, k), components, rng.uniform(0.01, 0.05, d))


def on_together(state):
    """P(a, b on) (d, d) with P(a on) on the diagonal, and P(a, b, c on) for a < b < c."""
    d = state.components.shape[1]

    def off(*features):
        chosen = list(features)
        left = np.prod(1 - state.components[:, chosen], axis=1)
        return np.prod(1 - state.prior * (1 - left)) * np.prod(1 - state.leak[chosen])

    one = np.array([off(a) for a in range(d)])
    two = np.array([[off(a, b) if a != b else one[a] for b in range(d)] for a in range(d)])
    pairs = 1 - one[:, None] - one[None] + two
    np.fill_diagonal(pairs, 1 - one)
    triples = [
        1 - one[a] - one[b] - one[c] + two[a, b] + two[a, c] + two[b, c] - off(a, b, c)
        for c in range(d)
        for b in range(c)
        for a in range(b)
    ]
    return pairs, np.array(triples)


def read_population(state, count=None):
    """What is read off exact moments."""
    pairs, triples = on_together(state)
    known = Interactions.of(pairs * 1e14, 1e14)
    every = np.arange(len(pairs))
    found = triple_interactions(known, pairs, triples, every)
    return read_off(known, found, every, count or len(state.prior), np.random.default_rng(0))


def all_rows(state):
    """Every possible row (2^d, d) and its probability."""
    rows = np.array(list(itertools.product((0.0, 1.0), repeat=len(state.leak))))
    total = np.zeros(len(rows))
    for causes in itertools.product((0, 1), repeat=len(state.prior)):
        active = np.array(causes)
        off = (1 - state.leak) * np.prod((1 - state.components) ** active[:, None], axis=0)
        chance = np.prod(np.where(active, state.prior, 1 - state.prior))
        total += chance * np.prod(np.where(rows == 1, 1 - off, off), axis=1)
    return rows, total


def matched(truth, found):
    """The components of `found` in the order of those of `truth`."""
    gaps = np.abs(truth[:, None] - found[None]).sum(axis=2)
    return linear_sum_assignment(gaps)[1]
