"""Mixtures of products: features that are independent given the component (monograph 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from latensor.arrays import RandomState
from latensor.estimation.learn import Answer, Frame
from latensor.estimation.parameters import ALGORITHM, N_COMPONENTS, N_JOBS, Choice
from latensor.models.mixtures.diagonal import DiagonalEstimator, DiagonalModel
from latensor.refinement.family import Family
from latensor.refinement.gaussian import GaussianState


@dataclass(frozen=True)
class ProductModel(DiagonalModel):
    """The same moments without a likelihood: nothing follows the read-off."""

    def most_by_moments(self) -> str:
        return (
            "about 2 x n_components features are needed, 3 x for method='views'; lower n_components"
        )

    def family(self, frame: Frame) -> Family[GaussianState] | None:
        return None


class ProductMixture(DiagonalEstimator):
    """Clusters whose features are independent, of any distribution (monograph 4.3).

    Given the component, the features are independent; nothing else is assumed of them. Mean,
    covariance and third moment give weights and conditional means, and with the squares of the
    features their conditional variances. There is no likelihood, and so no refinement: for
    Gaussian features use `DiagonalGaussianMixture`. Predictions, scores and samples are those of
    Gaussian features with these means and variances.

    Parameters
    ----------
    n_components : int or "auto": one more than the eigenvalues of the correlation above its noise
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
    """

    _parameters = {  # noqa: RUF012
        "n_components": N_COMPONENTS,
        "method": (Choice(("moments", "views")),),
        "algorithm": ALGORITHM,
        "n_jobs": N_JOBS,
    }

    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {"weights_", "means_", "covariances_", "n_components_", "certificate_"}
    )

    def __init__(
        self,
        n_components: int | str = 2,
        *,
        method: str = "moments",
        algorithm: str | Callable[..., Any] = "auto",
        random_state: RandomState = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.algorithm = algorithm
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _model(self) -> ProductModel:
        return ProductModel(
            self.n_components,
            0.0,
            self.n_features_in_,
            self._row_limit,
            self.method == "views",
            self.algorithm,
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        found = super()._attributes(answer, frame)
        return {name: found[name] for name in self._fitted_names}
