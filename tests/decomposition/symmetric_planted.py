"""Symmetric tensors with known components, and how far found components are from them."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from .planted import compose


def symmetrized(rng, shape):
    """A random symmetric tensor of unit norm."""
    from latensor.tensors import symmetrize

    noise = symmetrize(rng.standard_normal(shape))
    return noise / np.linalg.norm(noise)


def symmetric(seed, dimension, rank, order, noise=0.0, orthogonal=False, signs="mixed"):
    """A symmetric tensor, its unit vectors (d, rank) and its weights; noise is relative."""
    rng = np.random.default_rng([seed, dimension, rank, order])
    vectors = rng.standard_normal((dimension, rank))
    vectors = np.linalg.qr(vectors)[0] if orthogonal else vectors / np.linalg.norm(vectors, axis=0)
    weights = rng.uniform(0.5, 2.0, rank)
    if signs == "mixed":
        weights = weights * rng.choice([-1.0, 1.0], rank)
    tensor = compose([vectors] * order, weights)
    if noise:
        tensor = tensor + noise * np.linalg.norm(tensor) * symmetrized(rng, tensor.shape)
    return tensor, vectors, weights


def component_errors(decomposition, vectors, weights):
    """The largest error of a vector and of a weight after pairing and turning the found ones."""
    found = np.asarray(decomposition.factors[0])
    values = np.asarray(decomposition.weights)
    order = len(decomposition.factors)
    inner = found.T @ vectors
    rows, columns = linear_sum_assignment(-np.abs(inner))
    turn = np.where(inner[rows, columns] < 0, -1.0, 1.0)
    vector_error = np.linalg.norm(found[:, rows] * turn - vectors[:, columns], axis=0)
    weight_error = np.abs(values[rows] * turn**order - weights[columns])
    return vector_error, weight_error, columns


def noise_slope(errors, levels):
    """The slope of log error over log noise: one where the error is proportional to the noise."""
    return np.polyfit(np.log(levels), np.log(errors), 1)[0]
