"""Mixtures of products: features that are independent given the component (monograph 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array, RandomState, generator
from latensor.diagnostics.mixture_certificate import smallest_separation
from latensor.estimation.moment_model import ALGORITHM, N_COMPONENTS, N_JOBS, component_order
from latensor.estimation.parameters import Choice
from latensor.estimation.third_moment_model import ThirdMomentModel
from latensor.models.product_read_off import (
    ProductReadOff,
    count_components,
    factor_analysis,
    identified,
    read_off,
    read_partition,
    scales,
    views_identified,
)
from latensor.models.view_read_off import best_partition, check_streamed, frames_of, maps_between
from latensor.moments.second import Covariance
from latensor.moments.third import ThirdMoment, ThirdMomentAccumulator

# Above this the random views of a partition do not each see all components.
_COHERENT = 8.0


class ProductMomentModel(ThirdMomentModel):
    """What the product mixtures share: how their moments are gathered and read off.

    Parameters `method` and `algorithm` as described in `ProductMixture`.
    """

    _squares: ClassVar[bool] = True

    def _begin(self, samples: Any) -> None:
        super()._begin(samples)
        self.__dict__.pop("_partition", None)

    def _check_stream(self) -> None:
        if self.method == "views":
            check_streamed(self.n_features_in_)

    def _stream_rank(self, count: int) -> int:
        return self.n_features_in_ if self.method == "views" else super()._stream_rank(count)

    def _count_automatically(self, known: Covariance) -> int:
        return count_components(known.covariance, known.weight)

    def _basis_of(self, known: Covariance, count: int) -> Any:
        scale = scales(known.covariance)
        correlation = known.covariance / np.outer(scale, scale)
        rank = count - 1
        if not self._readable(count):
            return np.zeros((len(scale), 0))
        if self.method == "views":
            frames = frames_of(self._views(correlation, rank))
            directions = np.hstack(maps_between(correlation, frames, rank, known.weight)[0])
        else:
            directions = factor_analysis(correlation, rank, known.weight).scores
        return np.linalg.qr(directions / scale[:, None])[0]

    def _readable(self, count: int) -> bool:
        if self.method == "views":
            return views_identified(count, self.n_features_in_)
        return identified(count, self.n_features_in_)

    def _views(self, correlation: Any, rank: int) -> Any:
        """The view of every feature, chosen once."""
        if "_partition" not in self.__dict__:
            rng = generator(self.random_state)
            self._partition = best_partition(correlation, rank, rng)
        return self._partition

    def _found(self, moment: ThirdMoment, count: int, rng: Any) -> ProductReadOff | None:
        if not self._readable(count):
            return None
        if self.method == "views":
            scale = scales(moment.covariance)
            partition = self._views(moment.covariance / np.outer(scale, scale), count - 1)
            return read_partition(moment, partition, count, rng, self.algorithm)
        return read_off(moment, count, rng, self.algorithm)

    def _notes(self, found: ProductReadOff | None) -> tuple[str, ...]:
        if found is None or self.method != "views" or found.coherence <= _COHERENT:
            return ()
        return (
            f"the means are coherent ({found.coherence:.2g}, 1 is best): few features tell the "
            "components apart, and a random view may miss them. method='moments' needs no views.",
        )


class ProductMixture(ProductMomentModel):
    """Clusters whose features are independent, of any distribution (monograph 4.3).

    Given the component, the features are independent; nothing else is assumed of them. Mean,
    covariance and third moment give weights and conditional means, and with the squares of the
    features their conditional variances. There is no likelihood, and so no polish: for Gaussian
    features use `DiagonalGaussianMixture`.

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
    weights_ : (k,), falling
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
    _read_off_names: ClassVar[frozenset[str]] = frozenset(
        {"weights_", "means_", "covariances_", "n_components_", "certificate_", "_within"}
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

    def _refines(self) -> bool:
        return False

    def _read_off(self, moments: ThirdMomentAccumulator) -> None:
        moment = moments.finalize()
        count = self._count(moments.covariance.finalize(host=True))
        found = self._found(moment, count, generator(self.random_state))
        self._refuse_unidentified(
            found,
            count,
            "about 2 x n_components features are needed, 3 x for method='views'; lower "
            "n_components",
        )
        assert found is not None
        order = component_order(found.state.weights, found.state.means)
        self.weights_ = found.state.weights[order].astype(self._dtype)
        self.means_ = np.ascontiguousarray(found.state.means[order], dtype=self._dtype)
        self.covariances_ = found.state.variances[order].astype(self._dtype)
        self.n_components_ = count
        self._within = found.uniqueness
        constant = tuple(int(i) for i in np.flatnonzero(np.diag(moment.covariance) <= 0))
        separation = smallest_separation(self.means_, np.sqrt(self.covariances_))
        self.certificate_ = self._certificate(
            found, "moments", separation, constant, notes=self._notes(found)
        )

    def predict(self, X: object) -> Array:
        """The component (n,) of every sample, by linear discriminants.

        The best linear rule for features of the mean variances within components: the largest of
        log w_j - sum_i (x_i - mu_ji)^2 / (2 psi_i).
        """
        _, samples = self._read_new(X)
        precisions = 1 / np.asarray(self._within, dtype=np.float64)
        means = np.asarray(self.means_, dtype=np.float64)
        center = np.asarray(self.weights_, dtype=np.float64) @ means
        shifted = means - center
        scores = (samples - center) @ (shifted * precisions).T
        return np.argmax(scores - (shifted**2 @ precisions) / 2 + np.log(self.weights_), axis=1)
