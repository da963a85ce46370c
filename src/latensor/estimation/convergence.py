"""The warning of estimators that stopped early: that of latensor and that of scikit-learn."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning as PeerWarning

from latensor.exceptions import ConvergenceWarning, warn_caller


class EstimatorConvergenceWarning(ConvergenceWarning, PeerWarning):  # type: ignore[misc]
    """A fit stopped before it met its tolerance: filters of either library catch it."""


def warn_unconverged(message: str) -> None:
    """Warn the caller of an estimator that its fit stopped early."""
    warn_caller(message, EstimatorConvergenceWarning)
