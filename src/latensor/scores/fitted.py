"""Score functions of what was fitted to the input: a mixture of ours, or a Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import resolve, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.exceptions import InvalidInputError
from latensor.scores.gaussian import GaussianScores, MixtureScores


def of_gaussian(X: object) -> GaussianScores:
    """Score functions of the Gaussian with the mean and covariance of samples (n, d)."""
    rows = resolve(X=X)[1]["X"]
    if rows.ndim != 2 or rows.shape[0] < 2:
        raise InvalidInputError(f"X must be at least 2 rows (n, d), got shape {tuple(rows.shape)}")
    refuse_nonfinite(rows, "X")
    host = np.asarray(to_host(rows), dtype=np.float64)
    return GaussianScores(host.mean(axis=0), np.atleast_2d(np.cov(host.T)))


def of_mixture(model: Any) -> MixtureScores:
    """Score functions of a fitted mixture of Gaussians, of latensor or scikit-learn.

    Parameters
    ----------
    model : fitted, with `weights_`, `means_` and `covariances_` of any type: full (k, d, d), tied
        (d, d), diagonal (k, d) or spherical (k,)
    """
    if not all(hasattr(model, name) for name in ("weights_", "means_", "covariances_")):
        raise InvalidInputError(
            f"model must be a fitted mixture of Gaussians, with weights_, means_ and covariances_; "
            f"{type(model).__name__} has not all of them"
        )
    weights, means = (np.asarray(getattr(model, f"{n}_"), float) for n in ("weights", "means"))
    k, d = means.shape
    return MixtureScores(
        weights, means, _matrices(model, np.asarray(model.covariances_, float), k, d)
    )


def _matrices(model: Any, given: Any, k: int, d: int) -> Any:
    kind = getattr(model, "covariance_type", None)
    if given.ndim == 3:
        return given
    if given.ndim == 1:
        return given[:, None, None] * np.eye(d)
    is_tied = kind == "tied" if isinstance(kind, str) else given.shape != (k, d)
    if is_tied:
        return np.broadcast_to(given, (k, d, d)).copy()
    return given[:, :, None] * np.eye(d)
