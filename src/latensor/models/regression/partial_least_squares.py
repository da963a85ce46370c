"""Partial least squares from tensors: few scores that covary with the targets most."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, is_array, to_host
from latensor.decomposition.decompose import decompose
from latensor.estimation import Interval, check_parameters, host_dtype, in_library_of, read_samples
from latensor.estimation.files import SavedEstimator
from latensor.exceptions import InvalidInputError
from latensor.models.regression.base import ReadsShape
from latensor.models.regression.tensor_input import (
    check_dims,
    flattened,
    host_rows,
    read_tensor_rows,
)


class CPPLS(RegressorMixin, TransformerMixin, ReadsShape, SavedEstimator, BaseEstimator):  # type: ignore[misc]
    """Predict from tensors whose entries are collinear, by multilinear partial least squares (Bro).

    Component r has weights w_r = a_r (x) b_r (x) .., unit vectors per mode, and output weights q_r,
    for which the scores t = <X, w_r> and Y q_r have the largest covariance: the best
    approximation of rank one of the cross moment E[X (x) Y], so that no start is drawn. X and Y are
    then deflated by the component, and the next follows. Matrices X give ordinary PLS.

    Parameters
    ----------
    n_components : int
    shape : the dimensions of one sample, where X comes as rows; rows without it are one mode

    Attributes
    ----------
    x_factors_ : scores (n, n_components) of the training samples, and unit patterns
        (d_k, n_components) of every mode
    y_factors_ : scores (n, n_components) and unit weights (outputs, n_components) of the targets
    inner_coef_ : (n_components, n_components), from the scores of X to those of Y
    coef_ : (d1, .., dN) or (d1, .., dN, outputs), and intercept_ : float or (outputs,)
    x_mean_, y_mean_ : (d1, .., dN) and (outputs,)

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 6, 5))
    >>> y = X[:, 0, 0] + 0.1 * rng.standard_normal(100)
    >>> lt.CPPLS(2).fit(X, y).predict(X).shape
    (100,)
    """

    _parameters: ClassVar[Any] = {"n_components": (Interval(numbers.Integral, 1),)}
    _takes_sparse: ClassVar[bool] = False
    _dims: tuple[int, ...]
    _flat: bool
    _input_names: ClassVar[tuple[str, ...]] = ("_dims", "_flat")
    _fitted_names = frozenset(
        {
            "x_factors_",
            "y_factors_",
            "inner_coef_",
            "coef_",
            "intercept_",
            "x_mean_",
            "y_mean_",
            "rotations_",
        }
    )

    def __init__(self, n_components: int = 2, *, shape: Any = None) -> None:
        self.n_components = n_components
        self.shape = shape

    def fit(self, X: object, y: object = None) -> Self:
        """Learn the components.

        Parameters
        ----------
        X : (n, d1, d2, ..) tensors, or rows
        y : (n,) or (n, outputs)
        """
        check_parameters(self, self._parameters)
        self._check_shape()
        self._refuse_sources(
            X,
            "scores of all training samples are part of it; give arrays X and y, or lt.CPRegressor",
        )
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None")
        rows, targets = self._read(X, y)
        n, count = len(rows), int(self.n_components)
        if n < 2:
            raise InvalidInputError(f"X has {n} sample(s): CPPLS needs a minimum of 2")
        dims, q = self._dims, targets.shape[1]
        x_mean, y_mean = rows.mean(axis=0), targets.mean(axis=0)
        x, x_scale = _scaled(rows - x_mean)
        yy, y_scale = _scaled(targets - y_mean)
        patterns = [np.zeros((d, count)) for d in dims]
        scores, y_scores = np.zeros((n, count)), np.zeros((n, count))
        outputs, inner = np.zeros((q, count)), np.zeros((count, count))
        loads = np.zeros((rows.shape[1], count))
        for r in range(count):
            modes = _leading((x.T @ yy).reshape(*dims, q))
            weight = modes[0]
            for mode in modes[1:-1]:
                weight = np.multiply.outer(weight, mode)
            for k in range(len(dims)):
                patterns[k][:, r] = modes[k]
            loads[:, r] = weight.ravel()
            outputs[:, r] = modes[-1]
            scores[:, r] = x @ loads[:, r]
            y_scores[:, r] = yy @ outputs[:, r]
            solved = np.linalg.lstsq(scores[:, : r + 1], y_scores[:, r], rcond=None)[0]
            inner[: r + 1, r] = solved
            x = x - np.outer(scores[:, r], loads[:, r])
            yy = yy - np.outer(scores[:, : r + 1] @ solved, outputs[:, r])
        # Scores of samples as they come: t_r = <X, w_r> less what the components before it took.
        rotations = loads.copy()
        for r in range(count):
            for before in range(r):
                overlap = loads[:, before] @ loads[:, r]
                rotations[:, r] -= overlap * rotations[:, before]
        with np.errstate(over="ignore", invalid="ignore"):
            scores, y_scores = scores * x_scale, y_scores * y_scale
            inner = inner * (y_scale / x_scale)
            dense = rotations @ inner @ outputs.T
        if not np.isfinite(dense).all():
            raise InvalidInputError(
                f"coefficients of y (up to {y_scale:.1g}) on X (up to {x_scale:.1g}) overflow: "
                "give both in units of similar size"
            )
        dtype = self._dtype
        self.x_factors_ = [f.astype(dtype) for f in (scores, *patterns)]
        self.y_factors_ = [y_scores.astype(dtype), outputs.astype(dtype)]
        self.inner_coef_ = inner.astype(dtype)
        intercept = (y_mean - x_mean @ dense).astype(dtype)
        self.coef_ = dense.astype(dtype).reshape(*dims, *(() if self._flat else (q,)))
        self.intercept_ = intercept[0] if self._flat else intercept
        self.x_mean_, self.y_mean_ = x_mean.reshape(dims).astype(dtype), y_mean.astype(dtype)
        self.rotations_ = rotations.astype(dtype)
        return self

    def _rows(self, X: object, *, reset: bool) -> Array:
        rows, given = flattened(X)
        if given is not None or self.shape is not None:
            return read_tensor_rows(self, X, reset=reset)
        array = read_samples(self, rows, reset=reset)
        if reset:
            self._dims = (int(array.shape[1]),)
        else:
            check_dims(None, array, None, self._dims, type(self).__name__)
        return array

    def _read(self, X: object, y: object) -> tuple[Any, Any]:
        rows = self._rows(X, reset=True)
        targets = read_samples(self, y, name="y", reset=True, target=True)
        if rows.shape[0] != targets.shape[0]:
            raise InvalidInputError(
                f"X has {rows.shape[0]} samples but y has {targets.shape[0]}: give one target "
                "per sample"
            )
        self._flat = (y.ndim if hasattr(y, "ndim") else np.asarray(y).ndim) == 1
        self._dtype = host_dtype(rows)
        host = (np.asarray(host_rows(self, a), dtype=np.float64) for a in (rows, targets))
        first, second = host
        return first, second

    def predict(self, X: object) -> Array:
        """Targets (n,) or (n, outputs), in the library of `X`."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        found = rows @ in_library_of(self.coef_.reshape(self.n_features_in_, -1), rows)
        found = found + in_library_of(np.atleast_1d(self.intercept_), found)
        return found[:, 0] if self._flat else found

    def transform(self, X: object, y: object = None) -> Any:
        """Scores (n, n_components) of samples, or those of samples and targets as a pair."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        scores = (rows - in_library_of(self.x_mean_.ravel(), rows)) @ in_library_of(
            self.rotations_, rows
        )
        if y is None:
            return scores
        left = np.asarray(to_host(y) if is_array(y) else y, dtype=np.float64)
        left = left.reshape(len(left), -1) - self.y_mean_
        if left.shape[1] != len(self.y_mean_):
            raise InvalidInputError(
                f"y has {left.shape[1]} outputs, but CPPLS is expecting {len(self.y_mean_)}"
            )
        known = np.asarray(to_host(scores), dtype=np.float64)
        found = np.zeros_like(known)
        for r in range(known.shape[1]):
            found[:, r] = left @ self.y_factors_[1][:, r]
            left = left - np.outer(known @ self.inner_coef_[:, r], self.y_factors_[1][:, r])
        return scores, in_library_of(found, scores)

    def fit_transform(self, X: object, y: object = None) -> Any:
        """Scores (n, n_components) of the training samples; `transform(X, y)` has both."""
        return self.fit(X, y).transform(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.required = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _scaled(centred: Array) -> tuple[Array, float]:
    """Numbers near one, whose squares neither over- nor underflow, and the power of two to them."""
    scale = float(np.ldexp(1.0, int(np.frexp(np.abs(centred).max())[1])))
    return centred / scale, scale


def _leading(tensor: Array) -> list[Array]:
    """Unit vectors of the best approximation of rank one; the first entry of any zero tensor."""
    kept = tensor[..., 0] if tensor.shape[-1] == 1 else tensor
    if not kept.any():
        found = [np.eye(d)[0] for d in kept.shape]
    elif kept.ndim == 1:
        found = [kept / np.linalg.norm(kept)]
    elif kept.ndim == 2:
        left, _, right = np.linalg.svd(kept, full_matrices=False)
        sign = 1.0 if left[np.abs(left[:, 0]).argmax(), 0] > 0 else -1.0
        found = [sign * left[:, 0], sign * right[0]]
    else:
        best = decompose(kept, 1).tensor
        factors = [np.asarray(f)[:, 0] for f in best.factors]
        if float(best.weights[0]) < 0:
            factors[0] = -factors[0]
        found = [f / np.linalg.norm(f) for f in factors]
    return found if tensor.shape[-1] > 1 else [*found, np.ones(1)]
