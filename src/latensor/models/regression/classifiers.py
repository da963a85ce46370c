"""Logistic regression whose weights are a tensor of low rank."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from latensor.arrays import is_array, like, to_host
from latensor.estimation import Choice, Interval, check_parameters, host_dtype, read_weights
from latensor.estimation.convergence import warn_unconverged
from latensor.estimation.files import SavedEstimator
from latensor.exceptions import InvalidInputError
from latensor.models.regression.base import (
    PARAMETERS,
    CPRank,
    ReadsShape,
    TuckerRanks,
    dense_weights,
    fitted_tensor,
)
from latensor.models.regression.class_path import (
    ClassSettings,
    fit_classes,
    select_class_rank,
)
from latensor.models.regression.fit import Rank
from latensor.models.regression.tensor_input import host_rows, read_tensor_rows


class TensorClassifier(ClassifierMixin, ReadsShape, SavedEstimator, BaseEstimator):  # type: ignore[misc]
    """Base of the classifiers: logits <X, W> + b with W of low rank."""

    alpha: float | str
    fit_intercept: bool
    max_rank: int
    max_iter: int
    tol: float
    _parameters: ClassVar[Any]
    _takes_sparse: ClassVar[bool] = True
    _dims: tuple[int, ...]
    _input_names: ClassVar[tuple[str, ...]] = ("_dims",)
    _fitted_names = frozenset(
        {
            "classes_",
            "coef_",
            "intercept_",
            "alpha_",
            "rank_",
            "selection_",
            "n_iter_",
            "shape_",
        }
    )

    def _ranks(self, n_outputs: int) -> tuple[Rank | None, tuple[Rank, ...]]:
        raise NotImplementedError(f"{type(self).__name__} must read its rank")

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Learn weights that tell classes apart.

        Parameters
        ----------
        X : (n, d1, d2, ..) tensors, a SparseTensor, or rows with `shape`
        y : (n,) labels of at least two classes
        sample_weight : (n,) or None
        """
        check_parameters(self, self._parameters)
        self._check_shape()
        self._refuse_sources(
            X,
            "the likelihood of labels is no function of a few sums, and every step along the path "
            "of ridges goes over all rows; give arrays X and y, or use lt.TwoLayerClassifier",
        )
        rows = read_tensor_rows(self, X, reset=True)
        weights = read_weights(sample_weight, rows)
        if y is None:
            raise InvalidInputError("requires y to be passed, but the target y is None")
        labels = column_or_1d(to_host(y) if is_array(y) else y, warn=True)
        check_classification_targets(labels)
        if len(labels) != rows.shape[0]:
            raise InvalidInputError(
                f"X has {rows.shape[0]} samples but y has {len(labels)}: give one label per sample"
            )
        self._dtype = host_dtype(rows)
        host = host_rows(self, rows)
        known = np.ones(len(labels)) if weights is None else weights
        classes, codes = np.unique(labels, return_inverse=True)
        used = np.flatnonzero(known > 0)
        if len(np.unique(codes[used])) < 2:
            raise InvalidInputError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data, but y "
                f"has {len(np.unique(codes[used]))} class: {classes[:1]}"
            )
        if len(used) < len(known):
            host, codes, known = host[used], codes[used], known[used]
        if classes.dtype == object and all(isinstance(c, str) for c in classes):
            classes = classes.astype(str)  # as files keep them
        kinds = np.arange(len(classes)) if len(classes) > 2 else np.array([1])
        indicators = (codes[:, None] == kinds).astype(np.float64)
        settings = ClassSettings(
            self.alpha, bool(self.fit_intercept), int(self.max_iter), float(self.tol)
        )
        rank, candidates = self._ranks(len(kinds))
        scores: tuple[Any, ...] = ()
        if rank is None:
            rank, scores = select_class_rank(
                host, indicators, known, self._dims, candidates, settings
            )
        found = fit_classes(host, indicators, known, self._dims, rank, settings)
        scaled = found.fitted.weights
        factor = found.regression.x_scale ** (-1 / len(scaled.blocks))
        scaled = scaled.with_blocks([block * factor for block in scaled.blocks]).balanced()
        self.classes_ = classes
        self.coef_ = fitted_tensor(scaled, len(kinds) == 1, self._dtype)
        self.intercept_ = found.intercept().astype(self._dtype)
        self.alpha_, self.rank_, self.selection_ = found.alpha, rank, scores
        self.n_iter_, self.shape_ = found.fitted.n_iter, self._dims
        if not found.fitted.converged:
            warn_unconverged(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} steps before the "
                f"loss decreased by less than tol={self.tol:g}: raise max_iter, or alpha"
            )
        return self

    def _logits(self, X: object) -> tuple[Any, Any]:
        check_is_fitted(self)
        rows = read_tensor_rows(self, X, reset=False)
        host = host_rows(self, rows)
        weights = dense_weights(self.coef_, self.n_features_in_)
        return np.asarray(host @ weights) + self.intercept_, rows

    def decision_function(self, X: object) -> Any:
        """Logits (n,) of the second of two classes, or (n, classes), in the library of `X`."""
        logits, rows = self._logits(X)
        return _as(logits[:, 0] if logits.shape[1] == 1 else logits, rows)

    def predict_proba(self, X: object) -> Any:
        """Probabilities (n, classes), in the library of `X`."""
        logits, rows = self._logits(X)
        if logits.shape[1] == 1:
            chance = expit(logits)
            return _as(np.concatenate([1 - chance, chance], axis=1), rows)
        return _as(softmax(logits, axis=1), rows)

    def predict_log_proba(self, X: object) -> Any:
        """Logarithms of the probabilities (n, classes), in the library of `X`."""
        logits, rows = self._logits(X)
        if logits.shape[1] == 1:
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        return _as(log_softmax(logits, axis=1), rows)

    def predict(self, X: object) -> Any:
        """The likeliest class (n,) of every sample, as a NumPy array of labels."""
        logits, _ = self._logits(X)
        codes = (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(axis=1)
        return self.classes_[codes]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = self.shape is not None
        return tags


class CPClassifier(CPRank, TensorClassifier):
    """Tell classes of tensors apart by weights that are a sum of a few outer products.

    The logits are <X, W> + b: of two classes one, of more one per class, which are then one more
    mode of W and share its components. Fisher scoring on all factors at once, from the decomposed
    cross moment of labels and entries, with the ridge alpha n s^2 |W|^2 / 2 as in `CPRegressor`.

    Parameters
    ----------
    rank : int, or "auto": by the log loss of 5 folds
    alpha : float, strength of the ridge; "auto" takes it from a path by approximate leave-one-out
    fit_intercept, shape, max_rank, max_iter, tol : as for `CPRegressor`

    Attributes
    ----------
    classes_ : (classes,) labels
    coef_ : CPTensor, (d1, d2, ..) for two classes, else with the classes as its last mode
    intercept_ : (1,) or (classes,)
    rank_, alpha_, selection_, n_iter_, shape_ : as for `CPRegressor`

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((300, 5, 4))
    >>> y = np.where(X[:, 0, 0] + X[:, 1, 1] > 0, "yes", "no")
    >>> model = lt.CPClassifier(2).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _parameters = {  # noqa: RUF012
        **PARAMETERS,
        "rank": (Interval(numbers.Integral, 1), Choice(("auto",))),
    }


class TuckerClassifier(TuckerRanks, TensorClassifier):
    """Tell classes of tensors apart by weights that are a small core with a factor per mode.

    Parameters
    ----------
    ranks : int, one per mode of a sample, or "auto": equal ranks by the log loss of 5 folds
    alpha, fit_intercept, shape, max_rank, max_iter, tol : as for `CPClassifier`

    Attributes
    ----------
    coef_ : TuckerTensor with orthonormal factors
    classes_, intercept_, rank_, alpha_, selection_, n_iter_, shape_ : as for `CPClassifier`

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((300, 5, 4))
    >>> y = np.where(X[:, 0, 0] + X[:, 1, 1] > 0, "yes", "no")
    >>> model = lt.TuckerClassifier((2, 2)).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _parameters = PARAMETERS


def _as(values: Any, rows: Any) -> Any:
    return like(values, rows) if is_array(rows) else values
