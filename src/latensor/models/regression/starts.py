"""Where regression starts: the decomposed cross moment of entries and targets.

For Gaussian X with a covariance that is a Kronecker product of S_1, .., S_N, the cross moment
M = E[y X] is W x_1 S_1 .. x_N S_N: whitened in every mode it is a tensor of the rank of W.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.decompose import decompose
from latensor.models.regression.design import DenseDesign, Regression
from latensor.models.regression.tucker_weights import TuckerWeights, multiplied, unfolded
from latensor.models.regression.weights import CPWeights

Rank = int | tuple[int, ...]

# Of the mean variance, added to the variances of a mode before it is whitened.
_MODE_RIDGE = 1e-2
# Where rows are few for the rank, ridge regression gives a second start in less time than the fit
# takes: its Gram matrix of m rows costs m / (40 R) of some twenty Gauss-Newton steps. Of 60 planted
# tensors of order 3 and 4 each start alone missed 5 and 2; together they missed none.
_FEW_ROWS = 40
_START_RIDGE = 0.1
# Entries of a mode whose variances differ by more are correlated.
_NEARLY_WHITE = 2.0


def whitenings(regression: Regression) -> tuple[list[Array], bool]:
    """S_k^-1/2 (d_k, d_k) of every mode, and whether variances of a mode differ."""
    found, ratio = [], 1.0
    for covariance in regression.design.mode_covariances:
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 0.0)
        values = values + (_MODE_RIDGE * float(values.mean()) or 1.0)
        ratio = max(ratio, float(values[-1] / values[0]))
        found.append((vectors * values**-0.5) @ vectors.T)
    return found, ratio > _NEARLY_WHITE


def _moment(regression: Regression) -> Array:
    """(d_1, .., d_N, q)."""
    moment = regression.design.cross(regression.targets) / regression.n_samples
    return moment.reshape(*regression.design.dims, -1)


def multiplied_in_modes(tensor: Array, matrices: Sequence[Array]) -> Array:
    """A tensor times a matrix in each of its first modes."""
    for mode, matrix in enumerate(matrices):
        tensor = multiplied(matrix, tensor, mode)
    return tensor


def _ridge_estimate(regression: Regression, rank: int) -> Array | None:
    """Full weights (d_1, .., d_N, q) by ridge regression; None where they would cost too much."""
    design = regression.design
    order = len(design.dims) + (regression.n_outputs > 1)
    if order < 3 or design.n_rows > _FEW_ROWS * rank or not isinstance(design, DenseDesign):
        return None
    rows = design.rows.reshape(design.n_rows, -1)
    gram = rows @ rows.T
    shift = _START_RIDGE * float(np.trace(gram)) / len(gram) or 1.0
    solved = np.linalg.solve(gram + shift * np.eye(len(gram)), regression.targets)
    return (rows.T @ solved).reshape(*design.dims, -1)


def _moments(regression: Regression, rank: int) -> tuple[list[tuple[Array, list[Array]]], bool]:
    """Tensors to decompose, each with what whitened it, and whether entries are correlated.

    The whitened moment, and ridge regression where it is cheap.
    """
    moment, (back, correlated) = _moment(regression), whitenings(regression)
    estimate = _ridge_estimate(regression, rank)
    found = [(multiplied_in_modes(moment, back), back)]
    return [*found, *([] if estimate is None else [(estimate, [])])], correlated


def starts_of(regression: Regression, rank: Rank) -> tuple[list[Any], bool]:
    """Weights of a rank from the cross moment, and whether entries are correlated."""
    if isinstance(rank, tuple):
        return tucker_starts(regression, rank)
    return cp_starts(regression, rank)


def cp_starts(regression: Regression, rank: int) -> tuple[list[CPWeights], bool]:
    """CP weights from the cross moment, and whether entries are correlated."""
    found, correlated = _moments(regression, rank)
    return [_cp_start(tensor, rank, back) for tensor, back in found], correlated


def _cp_start(tensor: Array, rank: int, whitenings: list[Array]) -> CPWeights:
    q = tensor.shape[-1]
    if q == 1:
        tensor = tensor[..., 0]
    if tensor.ndim == 2:
        left, values, right = np.linalg.svd(tensor, full_matrices=False)
        factors = [left[:, :rank] * values[:rank], right[:rank].T]
    else:
        found = decompose(tensor, rank, max_iter=20).tensor
        factors = [np.asarray(f) for f in found.factors]
        factors[0] = factors[0] * np.asarray(found.weights)
    order = tensor.ndim - (q > 1)
    if whitenings:
        factors[:order] = [m @ f for m, f in zip(whitenings, factors[:order], strict=True)]
    factors = _filled(factors)
    output = factors[order] if q > 1 else np.ones((1, rank))
    return CPWeights(tuple(factors[:order]), output).balanced()


def _filled(factors: list[Array]) -> list[Array]:
    """Components that the moment does not have, at random and small: zeros would stay zero."""
    size = np.prod([np.linalg.norm(f, axis=0) for f in factors], axis=0)
    empty = size <= np.finfo(float).eps * max(float(size.max()), np.finfo(float).tiny)
    if not empty.any():
        return factors
    rng = np.random.default_rng(0)
    found = []
    for factor in factors:
        drawn = rng.standard_normal(factor.shape) / np.sqrt(len(factor))
        found.append(np.where(empty, 0.1 * drawn, factor))
    return found


def tucker_starts(regression: Regression, ranks: Sequence[int]) -> tuple[list[TuckerWeights], bool]:
    """Tucker weights, as `cp_starts`."""
    found, correlated = _moments(regression, max(ranks))
    return [_tucker_start(tensor, ranks, back) for tensor, back in found], correlated


def _tucker_start(tensor: Array, ranks: Sequence[int], whitenings: list[Array]) -> TuckerWeights:
    if not tensor.any():
        tensor = 1e-3 * np.random.default_rng(0).standard_normal(tensor.shape)
    core, factors = tensor, []
    for k, rank in enumerate(ranks):  # sequentially truncated; sweeps do the rest
        flat = unfolded(core, k)
        _, vectors = np.linalg.eigh(flat @ flat.T)
        factors.append(vectors[:, : -rank - 1 : -1])
        core = multiplied(factors[k].T, core, k)
    if whitenings:
        factors = [m @ f for m, f in zip(whitenings, factors, strict=True)]
    return TuckerWeights(core, tuple(factors)).balanced()
