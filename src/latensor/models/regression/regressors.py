"""Linear regression whose weights are a tensor of low rank."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, is_array, to_host
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import Choice, parameter
from latensor.estimation.samples import in_library_of
from latensor.models.regression.base import CPRank, TensorEstimator, TuckerRanks, dense_weights
from latensor.models.regression.model import RegressionModel
from latensor.models.regression.tensor_input import read_tensor_rows


@dataclass(eq=False, repr=False)
class TensorRegressor(RegressorMixin, TensorEstimator):  # type: ignore[misc]
    """Base of the regressors: y = <X, W> + b with W of low rank."""

    _: KW_ONLY
    penalty: str = parameter("factors", Choice(("weights", "factors", "auto")))

    _input_names: ClassVar[tuple[str, ...]] = ("_dims", "_n_targets", "_flat")
    _fitted_names = TensorEstimator._fitted_names | {"penalty_"}

    def _model(self) -> RegressionModel:
        rank, candidates = self._ranks(self._n_targets)
        settings = self._settings(self.penalty)
        return RegressionModel(self._dims, self._n_targets, settings, rank, candidates)

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        found = super()._attributes(answer, frame)
        intercept, state = found["intercept_"], answer.state
        found["intercept_"] = intercept[0] if self._flat else intercept
        return {**found, "penalty_": state.penalty}  # type: ignore[union-attr]

    # ------------------------------------------------------------------ answers
    def predict(self, X: object) -> Array:
        """Targets (n,) or (n, outputs) of samples, in the library of `X`."""
        check_is_fitted(self)
        rows = read_tensor_rows(self, X, reset=False)
        weights = in_library_of(dense_weights(self.coef_, self.n_features_in_), rows)
        found = rows @ weights
        found = np.asarray(found) if not is_array(found) else found
        found = found + in_library_of(np.atleast_1d(self.intercept_), found)
        return found[:, 0] if self._flat else found

    def score(self, X: object, y: object, sample_weight: object = None) -> float:
        """R2 of the predictions, averaged over outputs."""
        predicted = np.asarray(to_host(self.predict(X)))
        known = np.asarray(to_host(y) if is_array(y) else y)
        return float(r2_score(known, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@dataclass(eq=False, repr=False)
class CPRegressor(CPRank, TensorRegressor):
    """Predict numbers from tensors, by weights that are a sum of a few outer products.

    y = <X, W> + b with W = sum_r a_r (x) b_r (x) .. of rank R: R (d1 + d2 + ..) numbers in place
    of d1 d2 .. ones, each component a pattern per mode. Several outputs share the components; they
    are one more mode of W.

    The fit starts from the decomposed cross moment E[y X], solves for one factor after the other,
    then for all at once (Newton's steps), with a ridge alpha n s^2 times the squares of all factors
    (or |W|^2: `penalty`), where s^2 is the mean square of an entry of X. Nothing is random.

    Parameters
    ----------
    rank : int, or "auto": by cross-validation over 5 folds, the smallest rank within half a
        standard error of the best
    alpha : float, strength of the ridge as a fraction of the mean square of an entry; "auto"
        takes it from a path by generalized cross-validation
    penalty : "factors" (the squares of all factors, which removes components), "weights" (|W|^2),
        or "auto": whichever has the smaller cross-validated error, in twice the time
    fit_intercept : bool
    shape : the dimensions (d1, d2, ..) of one sample, where X comes as rows (n, d1 d2 ..); one of
        them may be -1, as in NumPy's `reshape`
    max_rank : int, the largest rank that "auto" tries
    max_iter : int, Gauss-Newton steps for each alpha
    tol : float, relative decrease of the loss at which the fit has converged

    Attributes
    ----------
    coef_ : CPTensor W, (d1, d2, ..) for y of one axis, else with the outputs as its last mode
    intercept_ : float, or (outputs,)
    rank_, alpha_, penalty_ : what was given or chosen
    selection_ : cross-validated error of every rank that "auto" tried
    certificate_ : RegressionCertificate, with R2 of these and an estimate for new samples
    n_iter_ : int
    shape_ : (d1, d2, ..)

    Notes
    -----
    X is (n, d1, d2, ..), of NumPy, PyTorch or JAX, a SparseTensor, or rows, dense or SciPy sparse,
    with `shape`. With more than 1.5 d1 d2 .. samples their covariances are all that is kept: `fit`
    then also takes batches (X, y) or (X, y, sample_weight), and `partial_fit` and `merge` go on,
    up to 8,192 entries and outputs.

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 10, 8))
    >>> y = X[:, 2, :4].sum(axis=1) + 3
    >>> model = lt.CPRegressor(rank=1).fit(X, y)
    >>> model.coef_
    CPTensor(10 x 8, rank 1, numpy, float64)
    >>> round(float(model.intercept_), 3), round(model.score(X, y), 3)
    (3.0, 1.0)
    """

    _for_labels: ClassVar[str] = "; for classes take CPClassifier"


@dataclass(eq=False, repr=False)
class TuckerRegressor(TuckerRanks, TensorRegressor):
    """Predict numbers from tensors, by weights that are a small core with a factor per mode.

    y = <X, W> + b with W = G x_1 U_1 x_2 U_2 ..: the pattern of every mode lies in a space of a few
    dimensions, and the core says how those go together. Several outputs share the factors.

    Parameters
    ----------
    ranks : int, one per mode of a sample, or "auto": equal ranks by cross-validation
    alpha, penalty, fit_intercept, shape, max_rank, max_iter, tol : as for `CPRegressor`

    Attributes
    ----------
    coef_ : TuckerTensor W with orthonormal factors, (d1, d2, ..) for y of one axis, else with the
        outputs as its last mode, which has no factor
    intercept_, rank_, alpha_, penalty_, selection_, certificate_, n_iter_, shape_ : as for
        `CPRegressor`

    Notes
    -----
    Input is what `CPRegressor` takes.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((300, 5, 4))
    >>> y = X[:, 0, 0] + 2 * X[:, 1, 1]
    >>> bool(lt.TuckerRegressor((2, 2)).fit(X, y).score(X, y) > 0.99)
    True
    """

    _for_labels: ClassVar[str] = "; for classes take TuckerClassifier"
