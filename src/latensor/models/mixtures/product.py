"""Mixtures of products: features that are independent given the component (monograph 4.3)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array, RandomState
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameters import N_JOBS, parameter
from latensor.models.mixtures.diagonal import DiagonalEstimator, DiagonalModel
from latensor.models.mixtures.gaussian_base import ReadOffParameters
from latensor.moments.batch import Batch
from latensor.moments.extremes import Extremes
from latensor.moments.sums import Folded, Joint
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState

# Standard errors by which noise carries a mean out of the range of its feature.
_NOISE = 3.0


@dataclass(frozen=True)
class ProductModel(DiagonalModel):
    """The same moments without a likelihood: nothing follows the read-off."""

    completion: ClassVar[float] = 0.0

    def most_by_moments(self) -> str:
        return (
            "about 2 x n_components features are needed, 3 x for method='views'; lower n_components"
        )

    def family(self, frame: Frame) -> None:
        return None

    def log_density(self, frame: Frame, state: MixtureState, units: Batch) -> Array:
        family: GaussianFamily = frame["family"]
        return family.log_density(pooled(state), family.prepare(units))

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {**super().moments(frame), "extremes": Extremes()}

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[MixtureState]:
        """Parameters from moments; means a little beyond the range of a feature are brought back.

        No conditional mean lies outside the range of its feature. What noise carries out of it, up
        to three standard errors, is moved to its end; what lies further out is impossible, and the
        certificate says so.
        """
        answer = super().read_off(frame, moments, rng)
        if answer.state is None:
            return answer
        family, range_ = frame["family"], moments["extremes"]
        state = family.outside(answer.state)
        nearest = np.clip(state.means, range_.low, range_.high)
        beyond = np.abs(state.means - nearest)
        weight = state.weights * moments["covariance"].finalize().weight
        noise = _NOISE * np.sqrt(state.covariances / weight[:, None])
        means = np.where(beyond <= noise, nearest, state.means)
        widths = np.where(range_.high > range_.low, range_.high - range_.low, 1.0)
        outside = float((np.where(beyond <= noise, 0.0, beyond) / widths).max())
        inside = family.inside(MixtureState(state.weights, means, state.covariances))
        return replace(answer, state=inside, evidence={**answer.evidence, "outside": outside})


def pooled(state: MixtureState) -> MixtureState:
    """A state with the mean variances of all components."""
    mean = np.broadcast_to(state.weights @ state.covariances, state.covariances.shape)
    return MixtureState(state.weights, state.means, mean)


@dataclass(eq=False, repr=False)
class ProductMixture(ReadOffParameters, DiagonalEstimator):
    """Clusters whose features are independent, of any distribution (monograph 4.3).

    Given the component, the features are independent; nothing else is assumed of them. Mean,
    covariance and third moment give weights and conditional means, and with the squares of the
    features their conditional variances. There is no likelihood, and so no refinement: for
    Gaussian features use `DiagonalGaussianMixture`. `predict`, `predict_proba` and scores are
    those of Gaussian features with these means and the mean variances of all components (linear
    discriminants: the best rule that is linear in the features, and less noisy than one with
    variances of its own for every component); `sample` draws Gaussian features with `covariances_`.

    Parameters
    ----------
    n_components : int or "auto": the most that both halves of the samples find (`selection_`)
    method : "moments" (factor analysis, then the entries of the third moment with a repeated
        index are completed; needs about 2 k features, 3 k for good accuracy), or "views" (the
        best of 40 random partitions of the features into three views; needs 3 k)
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    random_state : seed of the decomposition and of the partitions
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (k,), decreasing
    means_ : (k, d)
    covariances_ : (k, d), the variances of the features given the component
    n_components_ : int
    certificate_ : MixtureCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_diagonal_mixture(2000, 9, 2, random_state=0)
    >>> model = lt.ProductMixture(2, random_state=0).fit(sample.samples)
    >>> model.means_.shape
    (2, 9)
    """

    _: KW_ONLY
    random_state: RandomState = None
    n_jobs: int | None = parameter(None, *N_JOBS)

    _model_class = ProductModel
    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {"weights_", "means_", "covariances_", "n_components_", "certificate_"}
    )

    def _for_densities(self) -> MixtureState:
        return pooled(self._state())

    def _n_variances(self, count: int) -> int:
        return int(self.n_features_in_)

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        found = super()._attributes(answer, frame)
        return {name: found[name] for name in self._fitted_names}
