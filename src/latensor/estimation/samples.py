"""Samples as estimators receive them: frames, lists, NumPy, SciPy sparse, PyTorch or JAX arrays.

What scikit-learn knows how to read goes through its own validation, so that feature names and
error texts are those its users know; arrays of other libraries stay where they are.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_array, validate_data

from latensor.arrays import Array, describe, is_array, is_complex, is_numpy, like, resolve, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.masked import unmasked
from latensor.exceptions import InvalidInputError, InvalidTypeError
from latensor.moments.batch import in_row_order
from latensor.moments.batches import as_weights


def read_samples(
    estimator: Any,
    samples: object,
    *,
    name: str = "X",
    reset: bool,
    target: bool = False,
) -> Array:
    """Samples (n, d) as a floating array of the caller's library, or SciPy CSR or CSC.

    Parameters
    ----------
    estimator : the estimator, whose `n_features_in_` is set (`reset`) or compared
    samples : what the caller gave
    name : str, what error messages call it
    reset : bool, True where the estimator starts anew
    target : bool, True for a second view: one axis is read as one column, and the estimator's
        `n_features_in_` is left alone
    """
    missing = bool(getattr(estimator, "_allows_missing", False))
    samples = unmasked(samples, name, allows_missing=missing)
    if is_array(samples) and not is_numpy(samples):
        return _read_foreign(estimator, samples, name, reset, target)
    settings: dict[str, Any] = {
        "accept_sparse": ("csr", "csc"),
        "dtype": (np.float64, np.float32),
        "ensure_all_finite": False,
    }
    try:
        if target:
            column = _as_column(samples)
            array = check_array(column, input_name=name, **settings)
        else:
            array = validate_data(estimator, samples, reset=reset, **settings)
    except ValueError as error:
        raise InvalidInputError(_explained(estimator, error, samples, name, target)) from error
    except TypeError as error:
        raise InvalidTypeError(_explained(estimator, error, samples, name, target)) from error
    _check_entries(estimator, array.data if scipy.sparse.issparse(array) else array, name)
    return in_row_order(array)


def _explained(estimator: Any, error: Exception, samples: object, name: str, target: bool) -> str:
    """What scikit-learn or NumPy says about samples that are no numbers, with the cure."""
    if isinstance(error, InvalidInputError):
        return str(error)
    if samples is None or isinstance(samples, str | bytes | Mapping | Set):
        given = "None" if samples is None else f"a {type(samples).__name__}"
        return f"{name} is {given}: give an array, a data frame or a source"
    if isinstance(error, TypeError):
        return f"{name} holds values that are no numbers: {error}"
    if target:
        text = getattr(estimator, "_for_labels", "") if "string to float" in str(error) else ""
        return f"{name}: {error}{text}"
    return str(error)


def _check_entries(estimator: Any, array: Array, name: str) -> None:
    """Refuse infinite entries, and NaN unless it stands for what was not observed."""
    if not getattr(estimator, "_allows_missing", False):
        refuse_nonfinite(array, name)
    elif np.isinf(to_host(array)).any():
        raise InvalidInputError(
            f"{name} holds infinite entries (infinity): give NaN for what is missing"
        )


def _as_column(samples: object) -> Any:
    if samples is None:
        raise InvalidInputError("requires y to be passed, but the target y is None")
    if scipy.sparse.issparse(samples):
        return samples
    array = samples if hasattr(samples, "ndim") else np.asarray(samples)
    if array.ndim == 1:
        return np.asarray(array).reshape(-1, 1)
    return array


def _read_foreign(estimator: Any, samples: Array, name: str, reset: bool, target: bool) -> Array:
    array = resolve(**{name: samples})[1][name]
    if is_complex(array):
        raise InvalidInputError(f"Complex data not supported: {name} is {describe(array)}")
    if target and array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise InvalidInputError(f"Expected 2D array, {name} is {describe(array)}")
    if array.shape[0] < 1 or array.shape[1] < 1:
        raise InvalidInputError(
            f"{name} has {array.shape[0]} sample(s) of {array.shape[1]} feature(s): at least "
            "1 sample(s) of 1 feature are required"
        )
    _check_entries(estimator, array, name)
    if target:
        return array
    if reset:
        estimator.n_features_in_ = array.shape[1]
    elif array.shape[1] != estimator.n_features_in_:
        raise InvalidInputError(
            f"X has {array.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return array


def read_weights(sample_weight: object, samples: Array) -> Any:
    """One weight per sample as host numbers, or None where all count once."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(samples.shape[0], sample_weight, dtype=np.float64)
    weights = as_weights(sample_weight, samples.shape[0], "sample_weight")
    if not weights.any():
        raise InvalidInputError("sample_weight is zero for every sample: give one positive weight")
    return weights


def counts_nothing(weights: object) -> bool:
    """Whether a batch has weights and all are zero: it is the same as one without a sample."""
    if weights is None:
        return False
    host = np.asarray(to_host(weights) if is_array(weights) else weights)
    return bool(host.size and host.dtype.kind in "biuf" and not host.any())


def in_library_of(values: Any, samples: Array) -> Array:
    """Host `values` in the library, device and precision of the samples they will meet."""
    if is_numpy(samples) or scipy.sparse.issparse(samples):
        return np.asarray(values).astype(samples.dtype, copy=False)
    return like(values, samples)


def host_dtype(samples: Array) -> Any:
    """The NumPy dtype of the samples' entries."""
    return samples.dtype if scipy.sparse.issparse(samples) else to_host(samples[:0]).dtype


def project(samples: Array, mean: Any, directions: Any) -> Array:
    """Scores (n, k) of samples minus a host mean (d,) along host directions (d, k).

    In the library of the samples. For sparse ones the mean is projected rather than subtracted,
    which keeps them sparse.
    """
    axes = in_library_of(directions, samples)
    if scipy.sparse.issparse(samples):
        shift = np.asarray(mean, dtype=np.float64) @ np.asarray(directions, dtype=np.float64)
        return np.asarray(samples @ axes - in_library_of(shift, samples))
    return (samples - in_library_of(mean, samples)) @ axes


def describe_samples(samples: Array) -> str:
    """Samples in a few words for an error message."""
    if scipy.sparse.issparse(samples):
        return f"sparse, {samples.dtype}, shape {samples.shape}"
    return describe(samples)
