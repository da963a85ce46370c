"""Mixtures of Gaussians with independent features, from three moments (monograph 4.3)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import RandomState, generator
from latensor.diagnostics.mixture_certificate import (
    DOUBTFUL_OFF_DIAGONAL,
    NOISE_EDGE,
    smallest_separation,
)
from latensor.estimation.mixture_model import MixtureModel
from latensor.estimation.mixture_polish import Start, polish, smallest_variance
from latensor.estimation.moment_model import ALGORITHM, N_COMPONENTS, N_JOBS, REFINE
from latensor.estimation.parameters import Choice, Interval
from latensor.models.product_mixture import ProductMomentModel
from latensor.models.product_read_off import ProductReadOff, scales
from latensor.moments.third import ThirdMomentAccumulator
from latensor.refinement.gaussian import DiagonalFamily, GaussianState

# From this many features a component the completed third moment is good enough alone.
_FEATURES_PER_COMPONENT = 2.5


class DiagonalGaussianMixture(ProductMomentModel, MixtureModel):
    """Gaussian clusters whose features are independent: weights, means, variances.

    x_i = mu_ji + noise of variance s_ji, with probability w_j. Factor analysis whitens the
    features, the third moment is completed where an index repeats, and weights, means and
    variances are read off; a few steps of expectation maximization follow. With fewer than about
    2 k features, or a bad certificate, k-means++ starts and split and merge moves stand beside.

    Parameters
    ----------
    n_components : int or "auto": one more than the eigenvalues of the correlation above its noise
    method : "moments", or "views" for the monograph's random partition of the features into three
        views (d >= 3 k), the best of 40
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only
    tol : float, gain of log-likelihood per sample that ends the polish
    reg_covar : float, added to every variance by the polish, as in scikit-learn
    random_state : seed of the decomposition and of the starts
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (k,), falling
    means_ : (k, d)
    covariances_ : (k, d), variances; scikit-learn's "diag" shape
    precisions_, precisions_cholesky_ : (k, d)
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample of the last pass; NaN for moments only
    certificate_ : MixtureCertificate
    """

    _covariance_type: ClassVar[str] = "diag"
    _parameters = {  # noqa: RUF012
        "n_components": N_COMPONENTS,
        "method": (Choice(("moments", "views")),),
        "algorithm": ALGORITHM,
        "refine": REFINE,
        "tol": (Interval(numbers.Real, 0),),
        "reg_covar": (Interval(numbers.Real, 0),),
        "n_jobs": N_JOBS,
    }

    def __init__(
        self,
        n_components: int | str = 2,
        *,
        method: str = "moments",
        algorithm: str | Callable[..., Any] = "auto",
        refine: int | str = "auto",
        tol: float = 1e-6,
        reg_covar: float = 1e-6,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.algorithm = algorithm
        self.refine = refine
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _read_off(self, moments: ThirdMomentAccumulator) -> None:
        moment = moments.finalize()
        count = self._count(moments.covariance.finalize(host=True))
        floor = smallest_variance(self.reg_covar, moment.covariance)
        found = self._found(moment, count, generator(self.random_state))
        if found is not None:
            state = found.state
            raised = GaussianState(state.weights, state.means, np.maximum(state.variances, floor))
            found = replace(found, state=raised)
        if not self._polish_follows:
            self._refuse_unidentified(
                found,
                count,
                "about 2 x n_components features are needed, 3 x for method='views'. Leave "
                "refine at 'auto' to fit them by likelihood, or lower n_components",
            )
        self._constant = tuple(int(i) for i in np.flatnonzero(np.diag(moment.covariance) <= 0))
        doubtful = _doubtful(found, count, self.n_features_in_)
        self._start = Start(moment.mean, count, found, doubtful, floor)
        self._scale = scales(moment.covariance)
        if found is not None:
            self._adopt_moments(found.state)
            self._certify(found, "moments")

    def _certify(self, found: ProductReadOff | None, method: str, **more: Any) -> None:
        separation = smallest_separation(self.means_, np.sqrt(self.covariances_))
        self.certificate_ = self._certificate(
            found, method, separation, self._constant, notes=self._notes(found), **more
        )

    def _polish(self, samples: Any, weights: Any) -> None:
        start = self._start
        family = DiagonalFamily(start.mean, self._scale, start.floor / self._scale**2)
        result = polish(
            samples,
            weights,
            family,
            family,
            start,
            refine=self.refine,
            tol=self.tol,
            rng=generator(self.random_state),
            n_threads=self._n_threads(),
        )
        self._adopt_polished(result)
        more = {"spread": result.spread, "n_moves": result.n_moves}
        self._certify(start.found, f"{result.start} + EM", **more)

    def _full_family(self) -> tuple[DiagonalFamily, GaussianState]:
        state = self._state()
        center = state.weights @ state.means
        scale = np.sqrt(state.weights @ (state.variances + (state.means - center) ** 2))
        family = DiagonalFamily(center, scale, np.zeros(len(center)))
        return family, family.inside(state)

    def _n_free_variances(self) -> int:
        return int(self.n_components_) * int(self.n_features_in_)


def _doubtful(found: ProductReadOff | None, count: int, n_features: int) -> bool:
    """Whether restarts should stand beside what was read off."""
    if found is None:
        return True
    if count == 1:
        return False
    return (
        found.off_diagonal >= DOUBTFUL_OFF_DIAGONAL
        or found.gap < NOISE_EDGE
        or n_features < _FEATURES_PER_COMPONENT * count
    )
