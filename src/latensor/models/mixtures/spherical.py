"""Mixtures of spherical Gaussians from three moments (monograph 4.2.1)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.estimation.model import Frame
from latensor.estimation.parameters import AT_LEAST_ZERO, Choice, RefinementParameters, parameter
from latensor.estimation.run import Run
from latensor.exceptions import NotIdentifiableError
from latensor.models.mixtures.feature_views import maps_between, rotation
from latensor.models.mixtures.gaussian_base import (
    GaussianMixtureModel,
    MomentMixture,
    ReadOffParameters,
)
from latensor.models.mixtures.spherical_read_off import (
    SphericalReadOff,
    identified,
    read_off,
    read_rotation,
    spectrum,
)
from latensor.moments.second import Covariance
from latensor.moments.third import ThirdMoment
from latensor.refinement.families.covariances import SPHERICAL


@dataclass(frozen=True)
class SphericalModel(GaussianMixtureModel):
    """The settings of a spherical mixture, and what its moments say."""

    covariance_type: ClassVar[str] = SPHERICAL

    def most_by_moments(self) -> str:
        d = self.n_features
        return (
            f"at most {d} are ({d + 1} with variance='common', from 2 dimensions on). Leave "
            "refine at 'auto' to fit them by likelihood, or lower n_components"
        )

    def survey_values(
        self, run: Run, known: Covariance, count: int, streaming: bool
    ) -> dict[str, Any]:
        if not self.by_views:
            return {}
        if count > 1 and self.n_features < 3 * count:
            raise NotIdentifiableError(
                f"method='views' needs n_features >= 3 x n_components, got {self.n_features} "
                f"features for {count} components: use method='moments'"
            )
        return {"views": rotation(self.n_features, run.rng("rotation"))}

    def basis(self, known: Covariance, count: int, values: dict[str, Any]) -> Array:
        if self.by_views and count > 1:
            maps, _ = maps_between(known.covariance, values["views"], count - 1, known.weight)
            return np.linalg.qr(np.hstack(maps))[0]
        vectors = spectrum(known.covariance)[1]
        return np.ascontiguousarray(vectors[:, : min(count - 1, self.n_features)])

    def found(
        self, frame: Frame, moment: ThirdMoment, rng: np.random.Generator
    ) -> SphericalReadOff | None:
        count, d = frame["count"], self.n_features
        if self.by_views and count > 1:
            found = read_rotation(moment, frame["views"], count, self.common, rng, self.algorithm)
        elif not identified(count, d, self.common):
            return None
        else:
            found = read_off(moment, count, self.common, rng, self.algorithm)
        return found.above(frame["floor"])


@dataclass(eq=False, repr=False)
class SphericalGaussianMixture(ReadOffParameters, RefinementParameters, MomentMixture):
    """Gaussian clusters with spherical covariances: weights, means and variances (monograph 4.2.1).

    x = mu_j + noise of variance s_j in every direction, with probability w_j. Mean, covariance
    and third moment determine w, mu and s for k <= d components with affinely independent means,
    and for d + 1 with a common variance. Read off in homogeneous coordinates, they start a few
    steps of expectation maximization; where moments determine nothing, or the certificate is bad,
    k-means++ starts and split and merge moves stand beside them.

    Parameters
    ----------
    n_components : int or "auto": the most that both halves of the samples find (`selection_`)
    variance : "differing" or "common" (one variance for all components)
    method : "moments", or "views" for the monograph's random rotation into three views (d >= 3 k)
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only
    tol : float, log-likelihood per sample that EM may leave to gain
    reg_covar : float, added to every variance by EM; in the squared unit of X, at most that
        fraction of its variance
    max_iter : int, passes of EM over the sample in memory
    random_state : seed of the decomposition and of the starts
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (k,), decreasing
    means_ : (k, d)
    covariances_ : (k,), the variance of each component; scikit-learn's "spherical" shape
    precisions_, precisions_cholesky_ : (k,)
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample of the last pass; NaN for moments only
    certificate_ : MixtureCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_spherical_mixture(1000, 6, 3, random_state=0)
    >>> model = lt.SphericalGaussianMixture(3, random_state=0).fit(sample.samples)
    >>> model.means_.shape, model.predict(sample.samples).shape
    ((3, 6), (1000,))
    """

    _: KW_ONLY
    variance: str = parameter("differing", Choice(("differing", "common")))
    reg_covar: float = parameter(1e-6, AT_LEAST_ZERO)

    _covariance_type = SPHERICAL
    _model_class = SphericalModel

    def _n_variances(self, count: int) -> int:
        return 1 if self.variance == "common" else count
