"""What all mixtures of Gaussians share once they are fitted: densities, samples, peers."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, check_positive_int, generator
from latensor.diagnostics.evidence import component_worth
from latensor.diagnostics.fit import UNKNOWN_FIT
from latensor.engines import LocalEngine
from latensor.estimation.base import LatentEstimator, component_order
from latensor.estimation.mixture_inference import MixtureInference
from latensor.estimation.model import Answer
from latensor.exceptions import InvalidInputError
from latensor.models.mixtures.gaussian_certificate import (
    GaussianMixtureCertificate,
    smallest_divergence,
    smallest_gain,
)
from latensor.models.mixtures.gaussian_given import covariances_of
from latensor.moments.batch import Batch, Kind
from latensor.refinement.families.covariances import (
    FULL,
    TIED,
    as_matrices,
    cholesky,
    inverse_factors,
    n_entries,
    of_components,
)
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.sources.shards import Source


class GaussianEstimator(MixtureInference, DensityMixin, LatentEstimator):  # type: ignore[misc]
    """Base of the Gaussian mixtures: all that follows from weights, means and covariances.

    A subclass gives `_covariance_type`, a name or a property.
    """

    _covariance_type: Any = FULL
    _min_samples: ClassVar[int] = 2
    _fitted_names: ClassVar[frozenset[str]] = frozenset(
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

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[Any, Any]:
        """Samples (n, d) drawn from the mixture and the component (n,) of each.

        In the order of the components, as scikit-learn's.

        Parameters
        ----------
        n_samples : int
        random_state : seed; by default that of the estimator
        """
        check_is_fitted(self)
        n_samples = check_positive_int(n_samples, "n_samples")
        rng = generator(self.random_state if random_state is None else random_state)
        family, state = self._standardized(self._state())
        rows, labels = family.sample(state, n_samples, rng)
        return rows.astype(self.means_.dtype), labels

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
        for name in sorted(self._fitted_names - {"n_components_", "certificate_"}):
            if hasattr(self, name):
                setattr(peer, name, getattr(self, name))
        peer.n_features_in_ = self.n_features_in_
        return peer

    @classmethod
    def from_sklearn(cls, peer: Any, **parameters: Any) -> Self:
        """A mixture with the parameters of a fitted scikit-learn GaussianMixture.

        Parameters
        ----------
        peer : GaussianMixture, its `covariance_type` one that this class has
        parameters : of this class, n_components and covariance_type excepted
        """
        if getattr(peer, "covariance_type", None) not in cls._covariance_types():
            known = " or ".join(map(repr, cls._covariance_types()))
            raise InvalidInputError(
                f"peer must be a GaussianMixture with covariance_type={known} for {cls.__name__}, "
                f"got {peer!r}"
            )
        check_is_fitted(peer)
        model: Self = cls._like(peer, parameters)
        model._check_parameters()
        model.n_features_in_ = peer.means_.shape[1]
        if hasattr(peer, "feature_names_in_"):
            model.feature_names_in_ = peer.feature_names_in_
        model._dtype = peer.means_.dtype
        state = MixtureState(peer.weights_, peer.means_, peer.covariances_)
        # A converted model gives samples the labels that the peer gives them.
        for name, value in model._parameters_of(state, np.arange(len(state.means))).items():
            setattr(model, name, value)
        for name in ("lower_bound_", "lower_bounds_", "n_iter_", "converged_"):
            if name in cls._fitted_names and hasattr(peer, name):
                setattr(model, name, getattr(peer, name))
        return model

    @classmethod
    def _covariance_types(cls) -> tuple[str, ...]:
        """The shapes of covariances that this class has."""
        return (cls._covariance_type,)

    @classmethod
    def _like(cls, peer: Any, parameters: dict[str, Any]) -> Self:
        """An estimator with the settings of a peer."""
        return cls(n_components=peer.n_components, **parameters)

    def _order(self, state: MixtureState) -> Array:
        """The order (k,) in which users meet the components."""
        return np.asarray(component_order(state.weights, state.means))

    def _parameters_of(self, state: MixtureState, order: Array | None = None) -> dict[str, Any]:
        """The attributes of a state in the features, components in an order or their fixed one."""
        kind, kept = self._covariance_type, self._dtype
        largest, numbers = float(np.abs(state.covariances).max()), np.finfo(kept)
        if not float(numbers.tiny) <= largest <= float(numbers.max):
            raise InvalidInputError(
                f"the covariances of X are no finite numbers of {np.dtype(kept).name} above 0 (up "
                f"to {largest:.3g}): give X in a {'smaller' if largest > 1 else 'larger'} unit"
            )
        order = self._order(state) if order is None else order
        covariances = state.covariances if kind == TIED else state.covariances[order]
        if kind in (FULL, TIED):
            roots = inverse_factors(cholesky(covariances))
            precisions = roots @ np.swapaxes(roots, -1, -2)
        else:
            roots, precisions = 1 / np.sqrt(covariances), 1 / covariances
        return {
            "weights_": state.weights[order].astype(kept),
            "means_": np.ascontiguousarray(state.means[order], dtype=kept),
            "covariances_": covariances.astype(kept),
            "precisions_": precisions.astype(kept),
            "precisions_cholesky_": roots.astype(kept),
            "n_components_": len(order),
        }

    def _optimum_certificate(
        self, answer: Answer[Any], outer: MixtureState, weight: float, notes: tuple[str, ...] = ()
    ) -> GaussianMixtureCertificate:
        """What there is to say about an optimum of the likelihood, whatever it was started from."""
        evidence, kind, unknown = answer.evidence, self._covariance_type, float("nan")
        count, width = outer.means.shape
        each = of_components(kind, outer.covariances, count, width)
        n_rows, (ahead, moved) = weight / evidence["copies"], evidence["ahead"]
        return GaussianMixtureCertificate(
            n_components=count,
            n_features=width,
            method=f"{answer.start} + EM",
            off_diagonal=getattr(evidence["found"], "off_diagonal", unknown),
            condition=getattr(evidence["found"], "condition", unknown),
            gap=getattr(evidence["found"], "gap", unknown),
            separation=smallest_divergence(outer.means, each),
            spread=evidence.get("spread", unknown),
            gain=n_rows * smallest_gain(outer.weights, outer.means, outer.covariances, kind),
            asked=component_worth(self._n_free(count), self._n_free(count - 1), n_rows),
            ahead=ahead / np.sqrt(evidence["copies"]),
            moved=moved,
            is_same=evidence["is_same"],
            n_moves=answer.n_moves,
            constant_features=evidence["constant"],
            notes=notes,
            covariance_type=kind,
            rows_per_feature=evidence["rows_per_feature"],
            collapsed=evidence["collapsed"],
            missing=evidence["missing"],
            n_patterns=evidence["n_patterns"],
            n_observed=evidence["n_observed"],
            converged=answer.converged,
            misfit=evidence.get("misfit", UNKNOWN_FIT),
            n_reproduced=evidence.get("n_reproduced", -1),
        )

    def _state(self) -> MixtureState:
        """The fitted parameters in double precision."""
        check_is_fitted(self)
        weights = np.asarray(self.weights_, dtype=np.float64)
        covariances = getattr(self, "covariances_", None)
        if covariances is None:
            covariances = covariances_of(self._covariance_type, self.precisions_)
        parts = weights / weights.sum(), self.means_, covariances
        return MixtureState(*(np.asarray(part, dtype=np.float64) for part in parts))

    def _standardized(
        self, outer: MixtureState, missing: bool = False
    ) -> tuple[GaussianFamily, MixtureState]:
        """The family in which parameters in the features are standardized, and they in it."""
        kind, (count, width) = self._covariance_type, outer.means.shape
        mean = outer.weights @ outer.means
        gaps = outer.means - mean
        covariance = (gaps.T * outer.weights) @ gaps
        if kind in (FULL, TIED):
            matrices = as_matrices(kind, outer.covariances, count, width)
            covariance += np.tensordot(outer.weights, matrices, axes=1)
        else:
            covariance[np.diag_indices(width)] += outer.weights @ outer.covariances
        family = GaussianFamily.of(kind, mean, covariance, 0.0, missing=missing)
        return family, family.inside(outer)

    def _for_densities(self) -> MixtureState:
        """The parameters by which samples are judged."""
        return self._state()

    def _joint_logs(self, X: object) -> tuple[Array, Any]:
        array, samples = self._read_new(X)
        missing = bool(np.isnan(samples).any())
        family, state = self._standardized(self._for_densities(), missing)
        units = Batch((samples,), np.ones(len(samples)), np.arange(len(samples), dtype=np.uint64))
        logs = LocalEngine(self._n_jobs()).map(
            Source.of(Kind.ROWS, units), lambda b: family.log_density(state, family.prepare(b))
        )
        return array, np.concatenate(list(logs))

    def _n_variances(self, count: int) -> int:
        """Free numbers in the covariances of so many components."""
        return n_entries(self._covariance_type, count, int(self.n_features_in_))

    def _n_free(self, count: int) -> int:
        """Free parameters of so many components."""
        return count - 1 + count * int(self.n_features_in_) + self._n_variances(count)

    def _n_parameters(self) -> int:
        return self._n_free(int(self.n_components_))
