"""Whether rows without their order show all states, or some of them only cut a drift into parts."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from latensor.arrays import Array
from latensor.refinement.families.covariances import cholesky


def gains_over_joined(
    means: Array,
    covariances: Array,
    learned: tuple[Array, Array],
    rows: Array,
    sizes: Array,
) -> Array:
    """What sequences lose if two states become one Gaussian, at the least loss (n,).

    Log-likelihoods of rows as draws of a mixture, added up within each sequence. Parts of one
    cloud, between which rows drift, can be joined without a loss, however firmly sequences
    determine them. The joined state has the whole covariance of its rows, whatever shape those of
    the states are of: columns that are correlated are no states either.

    Parameters
    ----------
    means, covariances : (k, d), (k, d, d)
    learned : rows (l, d) that the states come from, and their probabilities (l, k)
    rows : (m, d) of others. Those with NaN tell nothing
    sizes : (n,) how many of these every sequence has
    """
    known, posteriors = (values[~np.isnan(learned[0]).any(axis=1)] for values in learned)
    fractions = posteriors.sum(axis=0) / posteriors.sum()
    seen = ~np.isnan(rows).any(axis=1)
    owners = np.repeat(np.arange(len(sizes)), sizes)[seen]
    states = [
        np.log(max(w, np.finfo(float).tiny)) + _log_density(rows[seen], mean, covariance)
        for w, mean, covariance in zip(fractions, means, covariances, strict=True)
    ]
    whole = logsumexp(states, axis=0)
    losses = []
    for i, j in combinations(range(len(states)), 2):
        owned = posteriors[:, i] + posteriors[:, j]
        mean = owned @ known / owned.sum()
        covariance = (owned[:, None] * (known - mean)).T @ (known - mean) / owned.sum()
        weight = fractions[i] + fractions[j]
        one = np.log(weight) + _log_density(rows[seen], mean, covariance)
        rest = [state for place, state in enumerate(states) if place not in (i, j)]
        loss = whole - logsumexp([one, *rest], axis=0)
        losses.append(np.bincount(owners, loss, minlength=len(sizes)))
    return min(losses, key=np.sum)


def _log_density(rows: Array, mean: Array, covariance: Array) -> Array:
    root = cholesky(covariance)
    white = solve_triangular(root, (rows - mean).T, lower=True)
    constant = np.log(np.diag(root)).sum() + len(mean) * np.log(2 * np.pi) / 2
    return np.asarray(-(white**2).sum(axis=0) / 2 - constant)
