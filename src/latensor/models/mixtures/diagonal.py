"""Mixtures of Gaussians with independent features, from three moments (monograph 4.3)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import AT_LEAST_ZERO, RefinementParameters, parameter
from latensor.estimation.run import Run
from latensor.models.mixtures.feature_views import (
    best_partition,
    frames_of,
    maps_between,
)
from latensor.models.mixtures.gaussian_base import (
    GaussianMixtureModel,
    MomentMixture,
    ReadOffParameters,
)
from latensor.models.mixtures.product_read_off import (
    ProductReadOff,
    factors_of,
    identified,
    read_off,
    read_partition,
    scales,
    views_identified,
)
from latensor.moments.second import Covariance
from latensor.moments.third import ThirdMoment
from latensor.refinement.families.covariances import DIAG
from latensor.refinement.families.gaussian_densities import MixtureState

# Above this the random views of a partition do not each see all components.
_COHERENT = 8.0


def correlation_of(covariance: Array) -> Array:
    """The correlations (d, d), zero for features that do not vary."""
    scale = scales(covariance)
    return covariance / np.outer(scale, scale)


def _partition(covariance: Array, count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    partition: Array = best_partition(correlation_of(covariance), count - 1, rng)
    return partition


@dataclass(frozen=True)
class DiagonalModel(GaussianMixtureModel):
    """The settings of a mixture with independent features, and what its moments say."""

    covariance_type: ClassVar[str] = DIAG
    # From so many on the completed third moment is good enough alone.
    features_per_component: ClassVar[float] = 2.5
    squares: ClassVar[bool] = True
    completion: ClassVar[float] = 1e-3

    def most_by_moments(self) -> str:
        return (
            "about 2 x n_components features are needed, 3 x for method='views'. Leave "
            "refine at 'auto' to fit them by likelihood, or lower n_components"
        )

    def readable(self, count: int) -> bool:
        """Whether so many components can be read off."""
        return (views_identified if self.by_views else identified)(count, self.n_features)

    def survey_values(
        self, run: Run, known: Covariance, count: int, streaming: bool
    ) -> dict[str, Any]:
        if not self.by_views or not self.readable(count):
            return {}
        seed = int(run.rng("partition").integers(2**63))
        if streaming:
            # The whole third moment is kept, and the partition chosen by all that was seen.
            return {"views": None, "seed": seed}
        return {"views": _partition(known.covariance, count, seed), "seed": seed}

    def basis(self, known: Covariance, count: int, values: dict[str, Any]) -> Array:
        scale, correlation = scales(known.covariance), correlation_of(known.covariance)
        if not self.readable(count):
            return np.zeros((len(scale), 0))
        if self.by_views:
            frames = frames_of(values["views"])
            directions = np.hstack(maps_between(correlation, frames, count - 1, known.weight)[0])
        else:
            directions = factors_of(correlation, count - 1).scores
        return np.linalg.qr(directions / scale[:, None])[0]

    def stream_basis(self, known: Covariance, rank: int) -> Array:
        # Of standardized features: their units say nothing about the components.
        vectors = np.linalg.eigh(correlation_of(known.covariance))[1][:, ::-1][:, :rank]
        return np.linalg.qr(vectors / scales(known.covariance)[:, None])[0]

    def found(
        self, frame: Frame, moment: ThirdMoment, rng: np.random.Generator
    ) -> ProductReadOff | None:
        count = frame["count"]
        if not self.readable(count):
            return None
        if self.by_views:
            views = frame["views"]
            if views is None:
                views = _partition(moment.covariance, count, frame["seed"])
            found = read_partition(moment, views, count, rng, self.algorithm)
        else:
            # EM repairs what a completion to a fraction of the noise leaves; it costs less.
            tol = max(1e-12, self.completion / np.sqrt(moment.weight))
            found = read_off(moment, count, rng, self.algorithm, tol)
        state = found.state
        scale = np.diag(moment.covariance)
        # Of every feature in its own unit, as EM has them.
        floors = np.maximum(self.reg_covar * np.minimum(scale, 1.0), np.finfo(float).eps * scale)
        variances = np.maximum(state.covariances, np.where(scale > 0, floors, frame["floor"]))
        return replace(found, state=MixtureState(state.weights, state.means, variances))


class DiagonalEstimator(MomentMixture):
    """What the mixtures of independent features share."""

    _covariance_type = DIAG
    _model_class = DiagonalModel

    def _notes(self, answer: Answer[Any]) -> tuple[str, ...]:
        """What is said about random views."""
        found: ProductReadOff | None = answer.evidence["found"]
        if found is None or not self._model().by_views or found.coherence <= _COHERENT:
            return ()
        return (
            f"the means are coherent ({found.coherence:.2g}, 1 is best): few features tell the "
            "components apart, and a random view may miss them. method='moments' needs no views.",
        )


@dataclass(eq=False, repr=False)
class DiagonalGaussianMixture(ReadOffParameters, RefinementParameters, DiagonalEstimator):
    """Gaussian clusters whose features are independent: weights, means, variances.

    x_i = mu_ji + noise of variance s_ji, with probability w_j. Factor analysis whitens the
    features, the third moment is completed where an index repeats, and weights, means and
    variances are read off; a few steps of expectation maximization follow. With fewer than about
    2 k features, or a bad certificate, k-means++ starts and split and merge moves stand beside.

    Parameters
    ----------
    n_components : int or "auto": the most that both halves of the samples find (`selection_`)
    method : "moments", or "views" for the monograph's random partition of the features into three
        views (d >= 3 k), the best of 40
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
    covariances_ : (k, d), variances; scikit-learn's "diag" shape
    precisions_, precisions_cholesky_ : (k, d)
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample of the last pass; NaN for moments only
    certificate_ : MixtureCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_diagonal_mixture(1000, 9, 3, random_state=0)
    >>> model = lt.DiagonalGaussianMixture(3, random_state=0).fit(sample.samples)
    >>> model.weights_.shape, model.covariances_.shape
    ((3,), (3, 9))
    """

    _: KW_ONLY
    reg_covar: float = parameter(1e-6, AT_LEAST_ZERO)
