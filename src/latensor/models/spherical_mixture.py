"""Mixtures of spherical Gaussians from three moments (monograph 4.2.1)."""

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
from latensor.estimation.third_moment_model import ThirdMomentModel
from latensor.exceptions import NotIdentifiableError
from latensor.models.spherical_read_off import (
    SphericalReadOff,
    count_components,
    identified,
    read_off,
    read_rotation,
    spectrum,
)
from latensor.models.view_read_off import check_streamed, maps_between, rotation
from latensor.moments.second import Covariance
from latensor.moments.third import ThirdMoment, ThirdMomentAccumulator
from latensor.refinement.gaussian import GaussianState, SphericalFamily


class SphericalGaussianMixture(ThirdMomentModel, MixtureModel):
    """Gaussian clusters that are round: weights, means and variances (monograph 4.2.1).

    x = mu_j + noise of variance s_j in every direction, with probability w_j. Mean, covariance
    and third moment determine w, mu and s for k <= d components with affinely independent means,
    and for d + 1 with a common variance. Read off in homogeneous coordinates, they start a few
    steps of expectation maximization; where moments determine nothing, or the certificate is bad,
    k-means++ starts and split and merge moves stand beside them.

    Parameters
    ----------
    n_components : int or "auto": one more than the eigenvalues of the covariance above its noise
    variance : "differing" or "common" (one variance for all components)
    method : "moments", or "views" for the monograph's random rotation into three views (d >= 3 k)
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
    covariances_ : (k,), the variance of each component; scikit-learn's "spherical" shape
    precisions_, precisions_cholesky_ : (k,)
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample of the last pass; NaN for moments only
    certificate_ : MixtureCertificate
    """

    _covariance_type: ClassVar[str] = "spherical"
    _parameters = {  # noqa: RUF012
        "n_components": N_COMPONENTS,
        "variance": (Choice(("differing", "common")),),
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
        variance: str = "differing",
        method: str = "moments",
        algorithm: str | Callable[..., Any] = "auto",
        refine: int | str = "auto",
        tol: float = 1e-6,
        reg_covar: float = 1e-6,
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.variance = variance
        self.method = method
        self.algorithm = algorithm
        self.refine = refine
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _begin(self, samples: Any) -> None:
        super()._begin(samples)
        self.__dict__.pop("_frames", None)

    def _check_stream(self) -> None:
        if self.method == "views":
            check_streamed(self.n_features_in_)

    def _stream_rank(self, count: int) -> int:
        return self.n_features_in_ if self.method == "views" else super()._stream_rank(count)

    def _count_automatically(self, known: Covariance) -> int:
        return count_components(spectrum(known.covariance)[0], known.weight)

    def _basis_of(self, known: Covariance, count: int) -> Any:
        if self._by_views(count):
            maps, _ = maps_between(known.covariance, self._views(), count - 1, known.weight)
            return np.linalg.qr(np.hstack(maps))[0]
        vectors = spectrum(known.covariance)[1]
        return np.ascontiguousarray(vectors[:, : min(count - 1, self.n_features_in_)])

    def _by_views(self, count: int) -> bool:
        return bool(self.method == "views" and count > 1)

    def _views(self) -> list[Any]:
        """Three frames of a random rotation, drawn once."""
        if "_frames" not in self.__dict__:
            self._frames = rotation(self.n_features_in_, generator(self.random_state))
        return self._frames

    def _found(self, moment: ThirdMoment, count: int, rng: Any) -> SphericalReadOff | None:
        common, d = self.variance == "common", self.n_features_in_
        if self._by_views(count):
            if d < 3 * count:
                raise NotIdentifiableError(
                    f"method='views' needs n_features >= 3 x n_components, got {d} features for "
                    f"{count} components: use method='moments'"
                )
            return read_rotation(moment, self._views(), count, common, rng, self.algorithm)
        if not identified(count, d, common):
            return None
        return read_off(moment, count, common, rng, self.algorithm)

    def _read_off(self, moments: ThirdMomentAccumulator) -> None:
        moment = moments.finalize()
        known = moments.covariance.finalize(host=True)
        count = self._count(known)
        floor = smallest_variance(self.reg_covar, moment.covariance)
        found = self._found(moment, count, generator(self.random_state))
        if found is not None:
            found = found.above(floor)
        if not self._polish_follows:
            d = self.n_features_in_
            self._refuse_unidentified(
                found,
                count,
                f"at most {d} are ({d + 1} with variance='common', from 2 dimensions on). Leave "
                "refine at 'auto' to fit them by likelihood, or lower n_components",
            )
        constant = np.flatnonzero(np.diag(moment.covariance) <= 0)
        self._constant = tuple(int(i) for i in constant)
        doubtful = _doubtful(found, count, self.n_features_in_)
        self._start = Start(moment.mean, count, found, doubtful, floor)
        if found is not None:
            self._adopt_moments(found.state)
            self._certify(found, "moments")

    def _certify(self, found: SphericalReadOff | None, method: str, **more: Any) -> None:
        separation = smallest_separation(self.means_, np.sqrt(self.covariances_))
        self.certificate_ = self._certificate(found, method, separation, self._constant, **more)

    def _polish(self, samples: Any, weights: Any) -> None:
        start, found = self._start, self._start.found
        common = self.variance == "common"
        unit = float(np.sqrt(found.variance)) if found is not None else 1.0
        full = SphericalFamily(start.mean, None, common, start.floor, unit)
        narrow = full
        if found is not None and 1 < start.count <= self.n_features_in_:
            narrow = replace(full, basis=found.basis)
        result = polish(
            samples,
            weights,
            narrow,
            full,
            start,
            refine=self.refine,
            tol=self.tol,
            rng=generator(self.random_state),
            n_threads=self._n_threads(),
        )
        self._adopt_polished(result)
        more = {"spread": result.spread, "n_moves": result.n_moves}
        self._certify(found, f"{result.start} + EM", **more)

    def _full_family(self) -> tuple[SphericalFamily, GaussianState]:
        state = self._state()
        center = state.weights @ state.means
        family = SphericalFamily(center, None, False, 0.0, 1.0)
        return family, GaussianState(state.weights, state.means - center, state.variances)

    def _n_free_variances(self) -> int:
        return 1 if self.variance == "common" else int(self.n_components_)


def _doubtful(found: SphericalReadOff | None, count: int, n_features: int) -> bool:
    """Whether restarts should stand beside what was read off."""
    if found is None:
        return True
    if count == 1:
        return False
    return (
        found.off_diagonal >= DOUBTFUL_OFF_DIAGONAL or found.gap < NOISE_EDGE or count >= n_features
    )
