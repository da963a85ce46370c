"""What is asked of unmixed sources besides themselves: intervals, and scikit-learn's own object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import generator
from latensor.estimation.ica_read_off import Unmixing, by_fit, by_rotation, read_off
from latensor.estimation.ica_signal import Spectrum, diagonal, isotropic, spectrum, whitened
from latensor.estimation.intervals import (
    Estimates,
    ParameterInterval,
    ResampledModel,
    random_groups,
)
from latensor.estimation.moment_model import component_order
from latensor.exceptions import InvalidInputError
from latensor.moments.fourth import FourthMoment, GroupedFourthMoments
from latensor.moments.second import Covariance, CovarianceAccumulator


class UnmixingAnswers(ResampledModel):
    """Base of `ICA`, which gives `_spectrum` and `_basis_of` (its directions)."""

    noise: str | None
    algorithm: Any
    # Samples that tell as much as one independent one; those of a stream are taken for such.
    _lost: float = 1.0
    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {"kurtosis": (-2.0, np.inf)}

    def _spectrum(self, known: Covariance) -> Spectrum:
        raise NotImplementedError(f"{type(self).__name__} must give the spectrum")

    def _basis_of(self, known: Covariance, seen: Spectrum, count: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must give its directions")

    def _estimates(self) -> Estimates:
        return {
            "mixing": np.asarray(self.mixing_, dtype=np.float64).T,
            "components": np.asarray(self.components_, dtype=np.float64),
            "kurtosis": np.asarray(self.kurtosis_, dtype=np.float64),
        }

    def _presented(self, found: dict[str, ParameterInterval]) -> dict[str, ParameterInterval]:
        mixing = found["mixing"]
        return {**found, "mixing": ParameterInterval(mixing.low.T, mixing.high.T)}

    def _resampler(self, samples: Any, n_groups: int) -> Callable[[Any], Estimates | None]:
        """What is read off the cumulant of random groups of samples.

        The kind of noise is that of all samples: a covariance of resampled groups strays further
        from any noise than that of samples does, and would refute them all.
        """
        count, rng = int(self.n_components_), generator(self.random_state)
        known = CovarianceAccumulator().update(samples).finalize(host=True)
        basis = self._basis_of(known, self._spectrum(known), count)
        groups = random_groups(len(samples), n_groups, generator(self.random_state))
        moments = GroupedFourthMoments(samples, groups, n_groups, basis, known.mean)
        fitted = self._estimates()

        noisy, seen = self.noise is not None, self._spectrum(known)
        whole = moments.resampled(np.ones(n_groups))
        kind = read_off(whole, seen, count, noisy, rng, self.algorithm, self._lost).noise_kind

        def read(multiplicities: Any) -> Estimates | None:
            found = _of_kind(moments.resampled(multiplicities), count, kind, rng, self.algorithm)
            return None if found is None else _aligned(found, fitted)

        return read

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn FastICA with this unmixing: `transform` gives the same sources."""
        from sklearn.decomposition import FastICA

        check_is_fitted(self)
        peer = FastICA(self.n_components_, random_state=self.random_state)
        for name in ("components_", "mixing_", "mean_", "whitening_", "n_iter_", "n_features_in_"):
            setattr(peer, name, getattr(self, name))
        if hasattr(self, "feature_names_in_"):
            peer.feature_names_in_ = self.feature_names_in_
        peer._unmixing = self.components_
        return peer

    @classmethod
    def from_sklearn(cls, peer: Any, **parameters: Any) -> Self:
        """A fitted model with the unmixing of a fitted scikit-learn FastICA.

        Its sources come in the order and with the signs of this class; noise and kurtosis, which
        FastICA does not know, are NaN.

        Parameters
        ----------
        peer : FastICA with whitening, so that there is a mean to subtract
        parameters : of this class, n_components excepted
        """
        missing = [n for n in ("components_", "mixing_", "mean_") if not hasattr(peer, n)]
        if missing:
            raise InvalidInputError(
                f"peer must be a fitted FastICA with whitening, got {type(peer).__name__} without "
                f"{', '.join(missing)}"
            )
        mixing = np.asarray(peer.mixing_)
        model: Self = cls(n_components=mixing.shape[1], **parameters)
        model._check_parameters()
        model.n_features_in_ = mixing.shape[0]
        if hasattr(peer, "feature_names_in_"):
            model.feature_names_in_ = peer.feature_names_in_
        model._dtype = mixing.dtype
        largest = np.argmax(np.abs(mixing), axis=0)
        signs = np.where(mixing[largest, np.arange(mixing.shape[1])] < 0, -1.0, 1.0)
        order = component_order(np.linalg.norm(mixing, axis=0), (mixing * signs).T)
        model.mixing_ = np.ascontiguousarray((mixing * signs)[:, order], dtype=mixing.dtype)
        model.components_ = np.ascontiguousarray(
            (np.asarray(peer.components_) * signs[:, None])[order], dtype=mixing.dtype
        )
        model.mean_ = np.asarray(peer.mean_)
        model.whitening_ = np.asarray(getattr(peer, "whitening_", peer.components_))
        model.noise_variance_ = np.full(len(order), np.nan)
        model.kurtosis_ = np.full(len(order), np.nan)
        model.n_components_, model.n_iter_ = len(order), peer.n_iter_
        return model


def _of_kind(
    moment: FourthMoment, count: int, kind: str, rng: np.random.Generator, algorithm: Any
) -> Unmixing | None:
    """Sources under a known kind of noise; None where the cumulant does not show them."""
    seen = spectrum(moment.covariance)
    if seen.rank < count:
        return None
    if kind == "isotropic":
        return by_rotation(moment, isotropic(seen, count, moment.weight), rng, algorithm)
    if kind == "diagonal":
        space = diagonal(moment.covariance, count, moment.weight)
        return by_rotation(moment, space, rng, algorithm)
    if kind == "none" and seen.rank == count:
        return by_rotation(moment, whitened(seen, count, kind), rng, algorithm)
    found = by_fit(moment, count, rng, algorithm)
    return found if found is not None and found.noise_kind == kind else None


def _aligned(found: Unmixing, fitted: Estimates) -> dict[str, Any]:
    """Sources in the order of the fitted ones and with their signs, by the directions of mixing."""
    known, rows = fitted["mixing"], found.mixing.T
    cosines = (known / np.linalg.norm(known, axis=1, keepdims=True)) @ (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
    ).T
    places, order = linear_sum_assignment(-np.abs(cosines))
    signs = np.where(cosines[places, order] < 0, -1.0, 1.0)[:, None]
    return {
        "mixing": signs * rows[order],
        "components": signs * found.unmixing[order],
        "kurtosis": found.kurtosis[order],
    }
