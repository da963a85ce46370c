"""Gaussian mixtures with full, tied, diagonal or spherical covariances, entries missing or not."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from latensor.arrays import Array, RandomState
from latensor.estimation.checkpoint import Checkpoint
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import PROBABILITY, REAL
from latensor.estimation.parameters import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    FLAG,
    N_COMPONENTS,
    N_JOBS,
    VERBOSE,
    Choice,
    Interval,
    parameter,
)
from latensor.estimation.samples import in_library_of
from latensor.models.mixtures.estimator import GaussianEstimator
from latensor.models.mixtures.gaussian_given import read_given
from latensor.models.mixtures.gaussian_model import GaussianModel
from latensor.models.mixtures.gaussian_starts import GivenParts
from latensor.refinement.families.covariances import COVARIANCE_TYPES
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.sources.shards import Source

_STARTS = ("auto", "moments", "kmeans", "k-means++", "random_from_data", "random")


@dataclass(eq=False, repr=False)
class GaussianMixture(GaussianEstimator):
    """Clusters with Gaussian densities: weights, means and covariances, by maximum likelihood.

    x ~ N(mu_j, S_j) with probability w_j. Over-fitted mixtures merged down and moments start EM on
    a sample; the best by successive halving is improved by split and merge moves and refined on all
    rows. NaN stands for an unobserved entry, taken for missing at random: EM is then exact, by
    patterns of observed entries.

    Parameters
    ----------
    n_components : int or "auto": the most that both halves of the samples find (`selection_`)
    covariance_type : "full", "tied", "diag" or "spherical"
    tol : float, log-likelihood per sample that EM may leave to gain
    reg_covar : float, added to every variance; in the squared unit of a feature, at most that
        fraction of its variance
    max_iter : int, passes of EM over the sample in memory; 0 keeps the starting values
    n_init : int, searches for a start; the likeliest is kept
    init_params : "auto" (all starts), "moments" (three moments alone), or scikit-learn's "kmeans",
        "k-means++", "random_from_data", "random"
    weights_init, means_init, precisions_init : arrays to start from, or None. Means take the place
        of the search; other parts replace those of one k-means start. Shapes as of the fitted
        attributes
    random_state : seed of the starts
    warm_start : bool, whether `fit` starts from the last fit
    verbose : int, print every pass over the data
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (k,), decreasing; with `means_init`, components stay in the order of these
    means_ : (k, d)
    covariances_, precisions_, precisions_cholesky_ : (k, d, d) full, (d, d) tied, (k, d) diag,
        (k,) spherical
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample
    lower_bounds_ : (m,), the same before every pass of EM
    certificate_ : GaussianMixtureCertificate

    See Also
    --------
    SphericalGaussianMixture, DiagonalGaussianMixture : read off three moments alone, if asked to.

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_spherical_mixture(600, 4, 3, random_state=0)
    >>> model = lt.GaussianMixture(3, random_state=0).fit(sample.samples)
    >>> model.covariances_.shape
    (3, 4, 4)
    >>> model.predict_proba(sample.samples[:2]).shape
    (2, 3)
    """

    n_components: int | str = parameter(1, *N_COMPONENTS)
    _: KW_ONLY
    covariance_type: str = parameter("full", Choice(COVARIANCE_TYPES))
    tol: float = parameter(1e-6, AT_LEAST_ZERO)
    reg_covar: float = parameter(1e-6, AT_LEAST_ZERO)
    max_iter: int = parameter(500, Interval(numbers.Integral, 0))
    n_init: int = parameter(1, AT_LEAST_ONE)
    init_params: str = parameter("auto", Choice(_STARTS))
    weights_init: Any = None
    means_init: Any = None
    precisions_init: Any = None
    random_state: RandomState = None
    warm_start: bool = parameter(False, FLAG)
    verbose: int = parameter(0, *VERBOSE)
    n_jobs: int | None = parameter(None, *N_JOBS)

    _fitted_names = GaussianEstimator._fitted_names | {"lower_bounds_"}
    _intervals_of = ({"weights": PROBABILITY, "means": REAL, "covariances": REAL}, "means")
    _allows_missing: ClassVar[bool] = True
    _row_limit: ClassVar[int] = 20_000

    # ------------------------------------------------------------------ fitting
    def _fit_source(
        self,
        source: Source,
        callback: Callable[[str, int], object] | None = None,
        journal: Checkpoint | None = None,
    ) -> Self:
        if self.warm_start and "weights_" in self.__dict__:
            self._last_bound = float(getattr(self, "lower_bound_", -np.inf))
            state = self._state()
            self._last: GivenParts = GivenParts(state.weights, state.means, state.covariances)
        callback = callback or (_print_pass if self.verbose else None)
        try:
            return super()._fit_source(source, callback, journal)
        finally:
            for name in ("_last", "_last_bound"):
                self.__dict__.pop(name, None)

    def _adopt(self, answer: Answer[Any], frame: Frame) -> None:
        # A warm start goes on from the last fit: passes of several fits converge together.
        last = self.__dict__.get("_last_bound", -np.inf)
        if not answer.converged and answer.log_likelihood - last < self.tol:
            answer = replace(answer, converged=True)
        super()._adopt(answer, frame)

    def _warn(self, answer: Answer[Any]) -> None:
        super()._warn(replace(answer, converged=self.converged_))

    def _model(self) -> GaussianModel:
        given = read_given(
            self.n_components,
            self.n_features_in_,
            self.covariance_type,
            self.weights_init,
            self.means_init,
            self.precisions_init,
        )
        last: GivenParts | None = self.__dict__.get("_last")
        if last is not None and np.shape(last.means) == (self.n_components, self.n_features_in_):
            given = last
        return GaussianModel(
            self.n_components,
            self.covariance_type,
            float(self.reg_covar),
            self.n_features_in_,
            self.init_params,
            int(self.n_init),
            given,
            self._row_limit,
            tuple(map(str, getattr(self, "feature_names_in_", ()))),
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        assert answer.state is not None
        outer = frame["family"].outside(answer.state)
        found = self._parameters_of(outer)
        return {
            **found,
            "lower_bound_": answer.log_likelihood,
            "lower_bounds_": np.array(answer.history),
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "certificate_": self._optimum_certificate(answer, outer, frame["weight"]),
        }

    def _order(self, state: MixtureState) -> Array:
        return super()._order(state) if self.means_init is None else np.arange(len(state.means))

    # ------------------------------------------------------------------ inference
    def impute(self, X: object) -> Array:
        """Samples (n, d) whose unobserved entries (NaN) are replaced by their expectation.

        E[x_m | x_o] under the mixture; observed entries stay as they are.
        """
        array, samples = self._read_new(X)
        family, state = self._standardized(self._state(), missing=True)
        return in_library_of(family.impute(state, samples), array)

    @property
    def _covariance_type(self) -> str:
        return str(self.covariance_type)

    @classmethod
    def _covariance_types(cls) -> tuple[str, ...]:
        return COVARIANCE_TYPES

    @classmethod
    def _like(cls, peer: Any, parameters: dict[str, Any]) -> Self:
        return cls(peer.n_components, covariance_type=peer.covariance_type, **parameters)


def _print_pass(name: str, number: int) -> None:
    print(f"pass {number}: {name}")
