"""Tensors with known components, for the tests of decompositions."""

from __future__ import annotations

import numpy as np

LETTERS = "abcdef"


def compose(factors, weights=None):
    """The dense tensor of given (d, rank) factors."""
    weights = np.ones(factors[0].shape[1]) if weights is None else np.asarray(weights)
    modes = LETTERS[: len(factors)]
    pattern = ",".join(f"{m}r" for m in modes)
    return np.einsum(f"r,{pattern}->{modes}", weights, *factors)


def planted(seed, shape, rank, noise=0.0, collinearity=None, dtype=np.float64):
    """A noisy tensor and its factors; `collinearity` is the cosine between any two columns."""
    rng = np.random.default_rng(seed)
    if collinearity is None:
        factors = [rng.standard_normal((d, rank)) for d in shape]
        if np.dtype(dtype).kind == "c":
            factors = [f + 1j * rng.standard_normal(f.shape) for f in factors]
    else:
        gram = np.full((rank, rank), collinearity) + (1 - collinearity) * np.eye(rank)
        root = np.linalg.cholesky(gram).T
        factors = [np.linalg.qr(rng.standard_normal((d, rank)))[0] @ root for d in shape]
    tensor = compose(factors)
    if noise:
        disturbance = rng.standard_normal(shape)
        tensor = tensor + disturbance * (
            noise * np.linalg.norm(tensor) / np.linalg.norm(disturbance)
        )
    return tensor.astype(dtype), factors


def relative_error(decomposition, tensor):
    """The residual computed entry by entry."""
    weights, factors = decomposition
    model = compose([np.asarray(f) for f in factors], np.asarray(weights))
    scale = np.linalg.norm(tensor)
    return np.linalg.norm(model - tensor) / (scale if scale else 1.0)


def worst_match(decomposition, factors):
    """The smallest product of cosines between a true component and its best partner."""
    score = 1.0
    for found, true in zip(decomposition.factors, factors, strict=True):
        found = np.asarray(found)
        unit = true / np.linalg.norm(true, axis=0)
        score = score * np.abs(found.conj().T @ unit)
    return score.max(axis=0).min()
