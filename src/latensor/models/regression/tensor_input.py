"""Tensor-valued samples as estimators receive them: (n, d1, d2, ..), or rows with their shape."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.arrays import Array, is_array, library_name, read_numpy, to_host
from latensor.estimation import host_dtype, read_samples
from latensor.estimation.target_input import TargetReader, pair_source
from latensor.exceptions import InvalidInputError
from latensor.sources.pairs import PairReader
from latensor.sources.rows import RowReader
from latensor.sources.shards import Parts, Source
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
        return X.reshape(shape[0], math.prod(shape[1:])), shape[1:]
    if len(shape) > 2:
        return np.asarray(X).reshape(shape[0], math.prod(shape[1:])), shape[1:]
    return X, None


def check_dims(
    given: tuple[int, ...] | None,
    rows: Any,
    shape: object,
    expected: Any,
    owner: str,
    *,
    one_mode: bool = False,
    plain: str = "Ridge",
) -> tuple[int, ...]:
    """The shape of a sample from what was given, the parameter `shape` and what was fitted."""
    if given is None:
        if expected is not None:
            return tuple(expected)  # columns are counted where rows are read
        if shape is None and one_mode:
            return (int(rows.shape[1]),)
        if shape is None:
            size = tuple(rows.shape)
            raise InvalidInputError(
                f"X has shape {size}: a sample of one mode has no low rank. Use "
                f"sklearn.linear_model.{plain}, or give {owner} the shape=(d1, d2, ..) of a sample"
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
        one_mode, plain = estimator._takes_one_mode, estimator._plain_model
        dims = check_dims(
            None, array, estimator.shape, expected, owner, one_mode=one_mode, plain=plain
        )
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


class ReadsTensors:
    """Tensors and targets in memory, or batches (X, y) or (X, y, sample_weight), as a source.

    A subclass is a `LatentEstimator` with the parameter `shape`.
    """

    shape: Any
    n_features_in_: int
    # Whether rows without `shape` are samples of one mode, not refused.
    _takes_one_mode: ClassVar[bool] = False
    # What scikit-learn has for rows, whose weights have no rank to lower.
    _plain_model: ClassVar[str] = "Ridge"
    _takes_sparse: ClassVar[bool]
    _dims: tuple[int, ...]
    _n_targets: int
    _flat: bool
    _dtype: Any
    _same_to_merge: ClassVar[tuple[str, ...]] = ("_dims", "_n_targets")

    def _check_parameters(self) -> None:
        super()._check_parameters()  # type: ignore[misc]
        if self.shape is not None:
            read_shape(self.shape, None, type(self).__name__)

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        def reader() -> TensorReader:
            name = type(self).__name__
            rows = RowReader(self.n_features_in_, name, keeps_sparse=self._takes_sparse)
            pairs = PairReader(rows, RowReader(self._n_targets, f"the target of {name}"))
            return TensorReader(TargetReader(pairs, self._accepted_targets()), self._dims, name)  # type: ignore[attr-defined]

        given = (X, y, sample_weight)
        return pair_source(self, given, is_targeted, self._read_pair, reader, reset)

    def _check_size(self, coef: Array) -> None:
        """Refuse weights that the dtype of X cannot hold."""
        largest = float(np.abs(coef).max())
        if largest > float(np.finfo(self._dtype).max):
            raise InvalidInputError(
                f"weights of up to {largest:.1g} overflow {np.dtype(self._dtype)}, the dtype of X: "
                "give X in float64, or y in a larger unit"
            )

    def _read_pair(self, X: object, y: object, reset: bool) -> tuple[Array, Array]:
        rows = read_tensor_rows(self, X, reset=reset)
        flat = _n_axes(y) == 1
        targets = read_samples(self, y, name="y", reset=reset, target=True)
        if targets.ndim != 2:
            raise InvalidInputError(f"y must be (n,) or (n, outputs), got {targets.ndim} axes")
        if rows.shape[0] != targets.shape[0]:
            raise InvalidInputError(
                f"X has {rows.shape[0]} samples but y has {targets.shape[0]}: give one target "
                "per sample"
            )
        devices = [_device(X), _device(y)]
        if None not in devices and devices[0] != devices[1]:
            raise InvalidInputError(
                f"X is on device {devices[0]} but y on {devices[1]}: move one of them"
            )
        if reset:
            self._n_targets, self._flat = int(targets.shape[1]), flat
            self._dtype = host_dtype(rows)
        elif targets.shape[1] != self._n_targets:
            raise InvalidInputError(
                f"y has {targets.shape[1]} outputs, but {type(self).__name__} is expecting "
                f"{self._n_targets}"
            )
        return rows, targets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.three_d_array = True
        # Without the shape of a sample, rows have no modes.
        tags.input_tags.two_d_array = self._takes_one_mode or self.shape is not None
        return tags


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

    pairs: TargetReader
    dims: tuple[int, ...]
    owner: str

    def __call__(self, given: Any) -> Parts | None:
        X, *rest = given
        rows, shape = flattened(X)
        check_dims(shape, rows, None, self.dims, self.owner)
        return self.pairs((rows, *rest))


def _n_axes(values: Any) -> int:
    return int(values.ndim if hasattr(values, "ndim") else np.asarray(values).ndim)


def _device(values: Any) -> Any:
    """Where an array of another library than NumPy is; None where that says nothing."""
    if not is_array(values) or library_name(values) == "numpy":
        return None
    device = getattr(values, "device", None)
    return None if callable(device) else device
