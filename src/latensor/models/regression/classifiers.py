"""Logistic regression whose weights are a tensor of low rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array
from latensor.estimation.label_input import LabelledEstimator
from latensor.models.regression.base import CPRank, TensorEstimator, TuckerRanks, dense_weights
from latensor.models.regression.class_model import ClassModel
from latensor.models.regression.tensor_input import host_rows, read_tensor_rows


class TensorClassifier(LabelledEstimator, TensorEstimator):
    """Base of the classifiers: logits <X, W> + b with W of low rank."""

    _plain_model = "LogisticRegression"
    _input_names: ClassVar[tuple[str, ...]] = ("_dims", "_n_targets", "classes_")

    def _model(self) -> ClassModel:
        rank, candidates = self._ranks(self._n_outputs())
        return ClassModel(self._dims, self._n_outputs(), self._settings(), rank, candidates)

    def _is_flat(self) -> bool:
        return self._n_outputs() == 1

    def _logits(self, X: object) -> tuple[Array, Array]:
        check_is_fitted(self)
        rows = read_tensor_rows(self, X, reset=False)
        weights = dense_weights(self.coef_, self.n_features_in_)
        return rows, np.asarray(host_rows(self, rows) @ weights) + self.intercept_


@dataclass(eq=False, repr=False)
class CPClassifier(CPRank, TensorClassifier):
    """Tell classes of tensors apart by weights that are a sum of a few outer products.

    The logits are <X, W> + b: of two classes one, of more one per class, which are then one more
    mode of W and share its components. Fisher scoring on all factors at once, from the decomposed
    cross moment of labels and entries, with the ridge alpha n s^2 |W|^2 / 2 as in `CPRegressor`.

    Parameters
    ----------
    rank : int, or "auto": by the log loss of 5 folds; of a source those of a sample of 20,000 rows
    alpha : float, strength of the ridge; "auto" takes it from a path by approximate leave-one-out
    classes : the labels, where not all of them are in the first call: needed for sources of
        batches, which hold numbers as labels
    fit_intercept, shape, max_rank, max_iter, tol : as for `CPRegressor`

    Attributes
    ----------
    classes_ : (classes,) labels
    coef_ : CPTensor, (d1, d2, ..) for two classes, else with the classes as its last mode
    intercept_ : (1,) or (classes,)
    certificate_ : ClassCertificate, with the log loss of these and an estimate for new samples
    rank_, alpha_, selection_, n_iter_, shape_ : as for `CPRegressor`

    Notes
    -----
    X is what `CPRegressor` takes. Batches (X, y) or (X, y, sample_weight), partitions and
    collections are gone over once for every step, in constant memory, up to 8,192 entries: their
    covariances give the start. The likelihood of labels is no function of a few sums: `partial_fit`
    and `merge` keep all samples in memory, and do not go on from a `fit`.

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


@dataclass(eq=False, repr=False)
class TuckerClassifier(TuckerRanks, TensorClassifier):
    """Tell classes of tensors apart by weights that are a small core with a factor per mode.

    Parameters
    ----------
    ranks : int, one per mode of a sample, or "auto": equal ranks, chosen as by `CPClassifier`
    alpha, fit_intercept, classes, shape, max_rank, max_iter, tol : as for `CPClassifier`

    Attributes
    ----------
    coef_ : TuckerTensor with orthonormal factors
    classes_, intercept_, rank_, alpha_, selection_, certificate_, n_iter_, shape_ : as for
        `CPClassifier`

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
