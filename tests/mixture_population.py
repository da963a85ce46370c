"""Exact moments of Gaussian mixtures, as the accumulators would give them for endless samples."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from latensor.moments.third import ThirdMoment


def third_central(weights, means, variances):
    """E y (x) y (x) y of sum_j w_j N(mu_j, diag(s_j)), y = x - E x; variances (k, d)."""
    shifted = means - weights @ means
    third = np.einsum("j,ja,jb,jc->abc", weights, shifted, shifted, shifted)
    for weight, mean, variance in zip(weights, shifted, variances, strict=True):
        product = weight * np.multiply.outer(mean, np.diag(variance))
        third += product + product.transpose(1, 0, 2) + product.transpose(1, 2, 0)
    return third


def population_moment(weights, means, variances, weight=1e24):
    """The ThirdMoment of a mixture; variances (k,) or (k, d)."""
    k, d = means.shape
    variances = np.broadcast_to(np.reshape(variances, (k, -1)), (k, d))
    mean = weights @ means
    shifted = means - mean
    covariance = (shifted.T * weights) @ shifted + np.diag(weights @ variances)
    third = third_central(weights, means, variances)
    squares = np.einsum("aab->ab", third)
    return ThirdMoment(
        int(weight), weight, mean, covariance, np.eye(d), third, squares.sum(axis=0), squares
    )


def random_mixture(seed, k, d, kind):
    """Weights, means and variances; kind "common", "differing" or "diagonal"."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(k, 5.0))
    means = 3 * rng.standard_normal((k, d)) + rng.standard_normal(d)
    if kind == "common":
        return weights, means, np.full(k, rng.uniform(0.5, 2))
    return weights, means, rng.uniform(0.5, 2, k if kind == "differing" else (k, d))


def matched(found, true):
    """The order of the found rows (k, d) that puts them next to the true ones."""
    distances = ((true[:, None] - found[None]) ** 2).sum(axis=2)
    return linear_sum_assignment(distances)[1]


def largest_error(state, weights, means, variances):
    """The largest error of any parameter of a state, components matched by their means."""
    order = matched(state.means, means)
    return max(
        np.abs(state.weights[order] - weights).max(),
        np.abs(state.means[order] - means).max(),
        np.abs(state.covariances[order] - variances).max(),
    )
