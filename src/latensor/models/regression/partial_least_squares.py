"""Partial least squares from tensors: few scores that covary with the targets most."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, is_array, to_host
from latensor.estimation import in_library_of
from latensor.estimation.base import LatentEstimator
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import AT_LEAST_ONE, parameter
from latensor.exceptions import InvalidInputError
from latensor.models.regression.partial_least_squares_model import PLSModel, PLSState
from latensor.models.regression.tensor_input import ReadsTensors, read_tensor_rows


@dataclass(eq=False, repr=False)
class CPPLS(RegressorMixin, TransformerMixin, ReadsTensors, LatentEstimator):  # type: ignore[misc]
    """Predict from tensors whose entries are collinear, by multilinear partial least squares (Bro).

    Component r has weights w_r = a_r (x) b_r (x) .., unit vectors per mode, and output weights q_r,
    for which the scores t = <X, w_r> and Y q_r have the largest covariance: the best
    approximation of rank one of the cross moment E[X (x) Y], so that no start is drawn. X and Y are
    then deflated by the component, and the next follows. Matrices X give ordinary PLS.

    Parameters
    ----------
    n_components : int, at most the number of samples and of entries of one
    shape : the dimensions of one sample, where X comes as rows; rows without it are one mode

    Attributes
    ----------
    x_factors_ : scores (n, n_components) of the training samples, and unit patterns
        (d_k, n_components) of every mode; the scores are None after a fit of a source or a
        stream, of which covariances are all that is kept: `transform` gives them
    y_factors_ : scores (n, n_components), as above, and unit weights (outputs, n_components) of
        the targets
    inner_coef_ : (n_components, n_components), from the scores of X to those of Y
    coef_ : (d1, .., dN) or (d1, .., dN, outputs), and intercept_ : float or (outputs,)
    x_mean_, y_mean_ : (d1, .., dN) and (outputs,)

    Notes
    -----
    Everything but the scores follows from the covariances of X and y, so that `fit` also takes
    batches (X, y) or (X, y, sample_weight), partitions and collections, and `partial_fit` and
    `merge` go on, up to 8,192 entries and outputs.

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

    n_components: int = parameter(2, AT_LEAST_ONE)
    _: KW_ONLY
    shape: Any = None

    # Nothing is drawn at random: two fits are the same to the last bit.
    random_state: ClassVar[int] = 0
    _takes_one_mode = True
    _takes_sparse = False
    _min_samples = 2
    _input_names: ClassVar[tuple[str, ...]] = ("_dims", "_n_targets", "_flat")
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

    def _model(self) -> PLSModel:
        return PLSModel(self._dims, self._n_targets, int(self.n_components))

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        state: PLSState = answer.state  # type: ignore[assignment]
        dtype, dims = self._dtype, self._dims
        self._check_size(state.coef)
        x, y = (None if s is None else s.astype(dtype) for s in (state.scores, state.y_scores))
        intercept = (state.y_mean - state.x_mean @ state.coef).astype(dtype)
        outputs = () if self._flat else (self._n_targets,)
        return {
            "x_factors_": [x, *(f.astype(dtype) for f in state.patterns)],
            "y_factors_": [y, state.outputs.astype(dtype)],
            "inner_coef_": state.inner.astype(dtype),
            "coef_": state.coef.astype(dtype).reshape(*dims, *outputs),
            "intercept_": intercept[0] if self._flat else intercept,
            "x_mean_": state.x_mean.reshape(dims).astype(dtype),
            "y_mean_": state.y_mean.astype(dtype),
            "rotations_": state.rotations.astype(dtype),
        }

    def predict(self, X: object) -> Array:
        """Targets (n,) or (n, outputs), in the library of `X`."""
        check_is_fitted(self)
        rows = read_tensor_rows(self, X, reset=False)
        found = rows @ in_library_of(self.coef_.reshape(self.n_features_in_, -1), rows)
        found = found + in_library_of(np.atleast_1d(self.intercept_), found)
        return found[:, 0] if self._flat else found

    def transform(self, X: object, y: object = None) -> Any:
        """Scores (n, n_components) of samples, or those of samples and targets as a pair."""
        check_is_fitted(self)
        rows = read_tensor_rows(self, X, reset=False)
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
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
