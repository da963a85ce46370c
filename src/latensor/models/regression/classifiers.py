"""Logistic regression whose weights are a tensor of low rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array
from latensor.estimation.base import LatentEstimator
from latensor.estimation.convergence import warn_unconverged
from latensor.estimation.label_input import LabelledEstimator
from latensor.estimation.model import Answer, Frame
from latensor.models.regression.base import (
    CPRank,
    TensorParameters,
    TuckerRanks,
    dense_weights,
    fitted_tensor,
)
from latensor.models.regression.class_model import ClassModel, ClassState
from latensor.models.regression.class_path import ClassSettings
from latensor.models.regression.fit import Rank
from latensor.models.regression.tensor_input import (
    ReadsTensors,
    host_rows,
    read_tensor_rows,
)


class TensorClassifier(TensorParameters, LabelledEstimator, ReadsTensors, LatentEstimator):
    """Base of the classifiers: logits <X, W> + b with W of low rank."""

    # Nothing is drawn at random: two fits are the same to the last bit.
    random_state: ClassVar[int] = 0
    _plain_model = "LogisticRegression"
    _takes_sparse = True
    _min_samples = 2
    _input_names: ClassVar[tuple[str, ...]] = ("_dims", "_n_targets", "classes_")
    _fitted_names = frozenset(
        {
            "coef_",
            "intercept_",
            "alpha_",
            "rank_",
            "selection_",
            "n_iter_",
            "shape_",
            "certificate_",
        }
    )

    def _ranks(self, dims: Sequence[int], n_outputs: int) -> tuple[Rank | None, tuple[Rank, ...]]:
        raise NotImplementedError(f"{type(self).__name__} must read its rank")

    def _model(self) -> ClassModel:
        settings = ClassSettings(
            self.alpha, bool(self.fit_intercept), int(self.max_iter), float(self.tol)
        )
        rank, candidates = self._ranks(self._dims, self._n_outputs())
        return ClassModel(self._dims, self._n_outputs(), settings, rank, candidates)

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        state: ClassState = answer.state  # type: ignore[assignment]
        return {
            "coef_": fitted_tensor(state.weights, self._n_outputs() == 1, self._dtype),
            "intercept_": state.intercept.astype(self._dtype),
            "alpha_": state.alpha,
            "rank_": state.rank,
            "selection_": state.scores,
            "n_iter_": state.n_iter,
            "shape_": self._dims,
            "certificate_": state.certificate,
        }

    def _warn(self, answer: Answer[Any]) -> None:
        state: ClassState = answer.state  # type: ignore[assignment]
        if not state.certificate.converged:
            warn_unconverged(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} steps before the "
                f"loss decreased by less than tol={self.tol:g}: raise max_iter, or alpha"
            )

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
