"""What is asked of a fitted mixture: the component of a sample, and how likely samples are."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.estimation.samples import in_library_of
from latensor.refinement.responsibilities import normalize_rows


class DensityInference:
    """Likelihoods of samples.

    A subclass gives `_log_likelihoods(X)`, samples in the library of the answers and the
    log-likelihood (n,) of each, and `_n_parameters()`.
    """

    def score_samples(self, X: object) -> Array:
        """The log-likelihood (n,) of every sample."""
        array, values = self._log_likelihoods(X)
        return in_library_of(values, array)

    def score(self, X: object, y: object = None) -> float:
        """The average log-likelihood of the samples."""
        return float(self._log_likelihoods(X)[1].mean())

    def bic(self, X: object) -> float:
        """Schwarz's criterion: -2 log-likelihood + parameters x log n; lower is better."""
        each = self._log_likelihoods(X)[1]
        return float(-2 * each.sum() + self._n_parameters() * np.log(len(each)))

    def aic(self, X: object) -> float:
        """Akaike's criterion: -2 log-likelihood + 2 parameters; lower is better."""
        each = self._log_likelihoods(X)[1]
        return float(-2 * each.sum() + 2 * self._n_parameters())

    def _log_likelihoods(self, X: object) -> tuple[Array, Any]:
        raise NotImplementedError(f"{type(self).__name__} must give its log-likelihoods")

    def _n_parameters(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must count its parameters")


class MixtureInference(DensityInference):
    """Predictions and likelihoods of a mixture.

    A subclass gives `_joint_logs(X)`, samples in the library of the answers and the log of the
    joint density (n, k) of every sample and component, and `_n_parameters()`.
    """

    def predict(self, X: object) -> Array:
        """The most probable component of every sample, (n,) integers of NumPy."""
        return np.argmax(self._joint_logs(X)[1], axis=1)

    def predict_proba(self, X: object) -> Array:
        """The probability (n, k) of every component given the sample."""
        array, logs = self._joint_logs(X)
        normalize_rows(logs)
        return in_library_of(logs, array)

    def fit_predict(self, X: object, y: object = None, sample_weight: object = None) -> Array:
        """Learn the mixture and give the most probable component (n,) of every sample."""
        fitted: MixtureInference = self.fit(X, y, sample_weight)  # type: ignore[attr-defined]
        return fitted.predict(X)

    def _log_likelihoods(self, X: object) -> tuple[Array, Any]:
        array, logs = self._joint_logs(X)
        return array, normalize_rows(logs)

    def _joint_logs(self, X: object) -> tuple[Array, Any]:
        raise NotImplementedError(f"{type(self).__name__} must give its densities")
