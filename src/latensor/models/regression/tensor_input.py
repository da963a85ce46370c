"""Tensor-valued samples as estimators receive them: (n, d1, d2, ..), or rows with their shape."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array, is_array, read_numpy, to_host
from latensor.estimation import read_samples
from latensor.exceptions import InvalidInputError
from latensor.sources.pairs import PairReader
from latensor.sources.shards import Parts
from latensor.tensors.sparse import SparseTensor


def read_shape(shape: object, n_features: int | None, owner: str) -> tuple[int, ...]:
    """The shape of one sample: at least two dimensions, one of which may be -1 as in `reshape`."""
    if not isinstance(shape, list | tuple) or len(shape) < 2:
        raise InvalidInputError(
            f"shape={shape!r} of {owner} must be at least two dimensions of one sample, such as "
            "(28, 28)"
        )
    for d in shape:
        if not isinstance(d, numbers.Integral) or isinstance(d, bool) or (d < 1 and d != -1):
            raise InvalidInputError(
                f"shape={shape!r} of {owner} must hold integers of at least 1, or -1 once"
            )
    dims = [int(d) for d in shape]
    if dims.count(-1) > 1:
        raise InvalidInputError(f"shape={shape!r} of {owner} can leave one dimension open only")
    if n_features is None:
        return tuple(dims)
    if -1 in dims:
        known = math.prod(d for d in dims if d != -1)
        dims[dims.index(-1)] = n_features // known
    if math.prod(dims) != n_features:
        raise InvalidInputError(
            f"X has {n_features} features, which do not fill shape={tuple(shape)}: that "
            f"takes {abs(math.prod(int(d) for d in shape))} or a multiple where a dimension is -1"
        )
    return tuple(dims)


def flattened(X: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Samples as rows (n, D), and their shape where they have one; anything else as it is."""
    if isinstance(X, list | tuple):
        nested = np.asarray(X, dtype=object) if not len(X) else read_numpy(X, "X")
        X = nested if nested.ndim > 2 else X
    if not isinstance(X, SparseTensor) and hasattr(X, "coords") and hasattr(X, "fill_value"):
        X = SparseTensor.from_coo(X)
    if isinstance(X, SparseTensor):
        dims = tuple(X.shape[1:])
        places = X.coordinates.astype(np.int64)
        columns = np.ravel_multi_index(tuple(places[:, 1:].T), dims)
        size = (X.shape[0], math.prod(dims))
        matrix = scipy.sparse.csr_array((X.values, (places[:, 0], columns)), shape=size)
        return matrix, dims
    shape = tuple(getattr(X, "shape", ()))
    if len(shape) > 2 and is_array(X):
        return X.reshape(shape[0], -1), shape[1:]
    if len(shape) > 2:
        return np.asarray(X).reshape(shape[0], -1), shape[1:]
    return X, None


def check_dims(
    given: tuple[int, ...] | None, rows: Any, shape: object, expected: Any, owner: str
) -> tuple[int, ...]:
    """The shape of a sample from what was given, the parameter `shape` and what was fitted."""
    if given is None:
        if expected is not None:
            return tuple(expected)  # columns are counted where rows are read
        if shape is None:
            size = tuple(rows.shape)
            raise InvalidInputError(
                f"X has shape {size}: a sample of one mode has no low rank. Use "
                f"sklearn.linear_model.Ridge, or give {owner} the shape=(d1, d2, ..) of a sample"
            )
        return read_shape(shape, rows.shape[1], owner)
    found = tuple(int(d) for d in given)
    if expected is None and shape is not None:
        expected = read_shape(shape, math.prod(found), owner)
    if expected is not None and found != tuple(expected):
        raise InvalidInputError(
            f"X has samples of shape {found}, but {owner} is expecting {tuple(expected)}"
        )
    if 0 in found:
        raise InvalidInputError(f"X has samples of shape {found}: at least one entry is required")
    return found


def read_tensor_rows(estimator: Any, X: object, *, reset: bool) -> Array:
    """Samples as rows (n, D) in the caller's library; sets or compares `estimator._dims`."""
    rows, given = flattened(X)
    owner = type(estimator).__name__
    expected = None if reset else estimator._dims
    if given is not None:  # a wrong shape is told by its dimensions, not by their product
        dims = check_dims(given, rows, estimator.shape, expected, owner)
        array = read_samples(estimator, rows, reset=reset)
    else:
        array = read_samples(estimator, rows, reset=reset)
        dims = check_dims(None, array, estimator.shape, expected, owner)
    if reset:
        estimator._dims = dims
    return array


def host_rows(estimator: Any, rows: Array) -> Any:
    """Rows on the host: NumPy, or CSR where the estimator takes sparse rows."""
    if not scipy.sparse.issparse(rows):
        return np.asarray(to_host(rows))
    if not estimator._takes_sparse:
        raise InvalidInputError(
            f"{type(estimator).__name__} needs dense data, X is sparse of shape {rows.shape}: "
            "give X.toarray()"
        )
    return scipy.sparse.csr_array(rows)


def is_targeted(value: Any) -> bool:
    """Whether a value is a batch: tensors and targets of the same samples, perhaps weights."""
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        return False
    return getattr(value[0], "ndim", getattr(value[0], "order", 0)) >= 2 and hasattr(
        value[1], "ndim"
    )


@dataclass(frozen=True)
class TensorReader:
    """Batches (X, y) or (X, y, weights) of tensor-valued samples as rows on the host."""

    pairs: PairReader
    dims: tuple[int, ...]
    owner: str

    def __call__(self, given: Any) -> Parts | None:
        X, *rest = given
        rows, shape = flattened(X)
        check_dims(shape, rows, None, self.dims, self.owner)
        return self.pairs((rows, *rest))
