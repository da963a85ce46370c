"""Batches of samples and their weights, checked and centred, dense or sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array, like, require_matrix, resolve, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.linear_map import as_sparse
from latensor.exceptions import InvalidInputError

# Weights whose squares are numbers too, with room for sums; their inverse is the smallest.
_LARGEST_WEIGHT = 1e150
# Numbers whose squares keep no digit.
_SMALLEST = float(np.sqrt(np.finfo(np.float64).tiny))


def as_batch(batch: object, name: str) -> Array:
    """Samples as rows: a floating array of the caller's library, or a SciPy CSR or CSC matrix."""
    if scipy.sparse.issparse(batch):
        return as_sparse(batch, name)
    _, arrays = resolve(**{name: batch})
    require_matrix(arrays[name], name)
    refuse_nonfinite(arrays[name], name)
    return arrays[name]


def as_weights(weights: object, n_samples: int, name: str = "weights") -> Any:
    """Weights (n_samples,) as host numbers, or None where every sample counts once."""
    if weights is None:
        return None
    host = np.asarray(to_host(resolve(**{name: weights})[1][name]), dtype=np.float64)
    if host.shape != (n_samples,):
        raise InvalidInputError(
            f"{name} must hold one number per sample ({n_samples}), got shape {host.shape}"
        )
    refuse_nonfinite(host, name)
    if (host < 0).any():
        first = int(np.argmax(host < 0))
        raise InvalidInputError(
            f"{name} must not be negative: {name}[{first}] is {host[first]:.3g}"
        )
    extreme = (host > 0) & ((host < 1 / _LARGEST_WEIGHT) | (host > _LARGEST_WEIGHT))
    if extreme.any():
        first = int(np.argmax(extreme))
        raise InvalidInputError(
            f"{name}[{first}] is {host[first]:.3g}, whose square leaves floating point: a weight "
            f"says how often a sample counts; give 0, or numbers up to {_LARGEST_WEIGHT:g}"
        )
    return host


def total_weight(n_samples: int, weights: Any) -> float:
    """The number of samples that the weights stand for."""
    return float(n_samples) if weights is None else float(weights.sum())


def refuse_overflow(sums: Any, order: str, name: str = "X") -> None:
    """An error where sums of products of samples are too large for floating point.

    Parameters
    ----------
    sums : array
    order : str, "second" or "third", of the moment
    name : str, what the samples are
    """
    if not np.isfinite(sums).all():
        raise InvalidInputError(
            f"the {order} moment of {name} overflows: give the samples in a smaller unit"
        )


def refuse_underflow(rows: Any, centre: Any, squares: Any, name: str = "X") -> None:
    """An error where rows differ from a centre, but all their squares are below floating point.

    Parameters
    ----------
    rows : (n, d), around the centre, or sparse
    centre : (d,)
    squares : (d,), their sums
    name : str, what the rows are
    """
    if squares.max() >= np.finfo(np.float64).tiny:
        return
    if scipy.sparse.issparse(rows):
        # As the centre was not subtracted from them, rows that are equal have large entries.
        varies = 0 < np.abs(rows.data).max(initial=0.0) < _SMALLEST
    else:
        rounding = 8 * np.finfo(np.float64).eps * np.abs(centre).max(initial=0.0)
        varies = np.abs(rows).max(initial=0.0) > rounding
    if varies:
        raise InvalidInputError(
            f"the second moment of {name} underflows: give the samples in a larger unit"
        )


def only_rounding(mean: Any, variances: Any, count: int) -> Any:
    """Which features (d,) do not vary, although a mean of equal numbers is off by rounding.

    Added up one by one, n equal numbers have a mean that is off by up to n / 12 units of rounding
    (measured); above a million it is not told from a variance.
    """
    units = 8 + min(count, 2**20) / 8
    return variances <= (units * np.finfo(np.float64).eps * np.abs(mean)) ** 2


def weighted_mean(batch: Array, weights: Any) -> Any:
    """The mean of the samples as host numbers (d,) in double precision."""
    weight = total_weight(batch.shape[0], weights)
    if scipy.sparse.issparse(batch):
        ones = np.ones(batch.shape[0]) if weights is None else weights
        return np.asarray(batch.T @ ones) / weight
    if weights is None:
        host = to_host(batch.mean(0)) if not isinstance(batch, np.ndarray) else _mean(batch)
        return np.asarray(host, dtype=_wide(batch))
    return np.asarray(to_host(like(weights, batch) @ batch), dtype=_wide(batch)) / weight


def _mean(batch: Any) -> Any:
    return batch.mean(axis=0, dtype=_wide(batch))


def _wide(batch: Array) -> Any:
    return (
        np.complex128
        if np.dtype(str(batch.dtype).removeprefix("torch.")).kind == "c"
        else np.float64
    )


def centered_rows(batch: Array, mean: Any, weights: Any) -> Array:
    """Dense samples minus the mean, times the root of their weight, in the batch's library."""
    rows = batch - like(mean, batch)
    return rows if weights is None else rows * like(np.sqrt(weights), batch)[:, None]


def squared_norm(batch: Any, weights: Any) -> float:
    """The sum of w_i |x_i|^2 over sparse samples."""
    squares = np.asarray(batch.multiply(batch).sum(axis=1), dtype=np.float64).ravel()
    return float(squares.sum() if weights is None else squares @ weights)


def cross_scatter(left: Array, left_mean: Any, right: Array, right_mean: Any, weights: Any) -> Any:
    """The sum of w_i (x_i - a)(y_i - b)' as host numbers, a and b being the means.

    A sparse view is never made dense: the means are subtracted from the product. A column that is
    mostly zero has a variance above the square of its mean, so that no digits cancel.
    """
    if not scipy.sparse.issparse(left) and not scipy.sparse.issparse(right):
        first = centered_rows(left, left_mean, weights)
        second = first if right is left else centered_rows(right, right_mean, weights)
        return np.asarray(to_host(first.T @ second.conj()), dtype=_wide(left))
    weight = total_weight(left.shape[0], weights)
    scaled = _scale_rows(left, weights)
    product = scaled.T @ right.conj()
    dense = product.toarray() if scipy.sparse.issparse(product) else np.asarray(product)
    return np.asarray(dense, dtype=_wide(left)) - weight * np.outer(left_mean, right_mean.conj())


def _scale_rows(batch: Any, weights: Any) -> Any:
    if weights is None:
        return batch
    if scipy.sparse.issparse(batch):
        return scipy.sparse.diags_array(weights) @ batch
    return batch * weights[:, None]
