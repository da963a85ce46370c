"""What all mixtures of Gaussians share: prediction, likelihood, sampling, intervals."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, check_positive_int, generator
from latensor.estimation.intervals import ResampledMixture
from latensor.estimation.mixture_answers import MixtureAnswers
from latensor.estimation.mixture_polish import Polished
from latensor.estimation.moment_model import component_order
from latensor.exceptions import InvalidInputError
from latensor.refinement.exponential_family import joint_logs, made
from latensor.refinement.gaussian import GaussianFamily, GaussianState


class MixtureModel(MixtureAnswers, DensityMixin, ResampledMixture):  # type: ignore[misc]
    """Base of the Gaussian mixtures: all that follows from weights, means and variances.

    A subclass gives `_covariance_type` ("spherical" or "diag"), `_full_family()` (the family in
    which `_state()` stands, with all features) and `_n_free_variances()`.
    """

    _covariance_type: ClassVar[str] = ""
    _read_off_names: ClassVar[frozenset[str]] = frozenset(
        {
            "weights_",
            "means_",
            "covariances_",
            "precisions_",
            "precisions_cholesky_",
            "n_components_",
            "certificate_",
            "lower_bound_",
            "n_iter_",
            "converged_",
        }
    )

    def sample(self, n_samples: int = 1) -> tuple[Any, Any]:
        """Samples (n, d) drawn from the mixture and the component (n,) of each.

        In the order of the components, as scikit-learn's.
        """
        check_is_fitted(self)
        n_samples = check_positive_int(n_samples, "n_samples")
        rng = generator(self.random_state)
        shares = np.asarray(self.weights_, dtype=np.float64)
        counts = rng.multinomial(n_samples, shares / shares.sum())
        labels = np.repeat(np.arange(self.n_components_), counts)
        deviations = np.sqrt(np.asarray(self.covariances_, dtype=np.float64))
        deviations = deviations.reshape(self.n_components_, -1)
        noise = rng.standard_normal((n_samples, self.n_features_in_))
        drawn = self.means_[labels] + noise * deviations[labels]
        return drawn.astype(self.means_.dtype), labels

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn GaussianMixture with these parameters."""
        from sklearn.mixture import GaussianMixture

        check_is_fitted(self)
        peer = GaussianMixture(
            self.n_components_,
            covariance_type=self._covariance_type,
            reg_covar=self.reg_covar,
            random_state=self.random_state,
        )
        for name in (
            "weights_",
            "means_",
            "covariances_",
            "precisions_",
            "precisions_cholesky_",
            "converged_",
            "n_iter_",
            "lower_bound_",
            "n_features_in_",
        ):
            setattr(peer, name, getattr(self, name))
        return peer

    @classmethod
    def from_sklearn(cls, peer: Any, **parameters: Any) -> Self:
        """A mixture with the parameters of a fitted scikit-learn GaussianMixture.

        Parameters
        ----------
        peer : GaussianMixture, its `covariance_type` that of this class
        parameters : of this class, n_components excepted
        """
        kind = getattr(peer, "covariance_type", None)
        if kind != cls._covariance_type:
            raise InvalidInputError(
                f"peer must be a GaussianMixture with covariance_type={cls._covariance_type!r} "
                f"for {cls.__name__}, got {peer!r}"
            )
        check_is_fitted(peer)
        model: Self = cls(n_components=peer.n_components, **parameters)
        model._check_parameters()
        model.n_features_in_ = peer.means_.shape[1]
        if hasattr(peer, "feature_names_in_"):
            model.feature_names_in_ = peer.feature_names_in_
        model._dtype = peer.means_.dtype
        model._adopt(GaussianState(peer.weights_, peer.means_, peer.covariances_))
        model.lower_bound_ = peer.lower_bound_
        model.n_iter_ = peer.n_iter_
        model.converged_ = peer.converged_
        return model

    def _adopt(self, state: GaussianState) -> Any:
        """Set the fitted attributes, components in their fixed order, which is returned."""
        order = component_order(state.weights, state.means)
        kept = self._dtype
        self.weights_ = state.weights[order].astype(kept)
        self.means_ = np.ascontiguousarray(state.means[order], dtype=kept)
        self.covariances_ = state.variances[order].astype(kept)
        self.precisions_ = 1 / self.covariances_
        self.precisions_cholesky_ = np.sqrt(self.precisions_)
        self.n_components_ = len(order)
        return order

    def _adopt_polished(self, result: Polished) -> None:
        self._adopt(result.state)
        self.lower_bound_ = result.log_likelihood
        self.n_iter_ = result.n_iter
        self.converged_ = result.converged

    def _adopt_moments(self, state: GaussianState) -> None:
        self._adopt(state)
        self.lower_bound_, self.n_iter_, self.converged_ = float("nan"), 0, True

    def _joint_logs(self, X: object) -> tuple[Array, Any]:
        array, samples = self._read_new(X)
        family, state = self._full_family()
        design = made(samples, family.features)
        return array, joint_logs(design, family.natural(state), self._n_threads())

    def _n_parameters(self) -> int:
        count = self.n_components_
        return int(count - 1 + count * self.n_features_in_ + self._n_free_variances())

    def _full_family(self) -> tuple[GaussianFamily, GaussianState]:
        raise NotImplementedError(f"{type(self).__name__} must give its family")

    def _n_free_variances(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must count its variances")
