"""What is asked of unmixed sources besides themselves: scikit-learn's own object."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latensor.estimation.base import LatentEstimator, component_order
from latensor.exceptions import InvalidInputError


class UnmixingInference(LatentEstimator):
    """Base of `ICA`."""

    # Rows that a stream keeps for its refinement.
    _row_limit: ClassVar[int] = 20_000

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
