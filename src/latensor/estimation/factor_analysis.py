"""A covariance taken apart into a few factors and noise of its own in every feature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from latensor.arrays.threads import one_blas_thread

_MOST_STEPS = 300
_SCORING_STEPS = 30


@dataclass(frozen=True)
class Factors:
    """C = L L' + Psi of standardized features.

    Attributes
    ----------
    loadings : (d, r)
    uniqueness : (d,), the diagonal of Psi
    scores : (d, r), A with A'L = I and A' Psi A diagonal
    misfit : float, sum of t - 1 - log t over the eigenvalues t of Psi^-1/2 C Psi^-1/2 left out
    """

    loadings: Any
    uniqueness: Any
    scores: Any
    misfit: float


def factor_analysis(correlation: Any, rank: int, least: float) -> Factors:
    """Loadings and uniquenesses (d,) of a correlation matrix, by maximum likelihood.

    With the uniquenesses P, the loadings are L = P^1/2 U (t - 1)^1/2 for the leading eigenpairs
    (t, U) of P^-1/2 C P^-1/2, and the others measure the misfit sum (t - 1 - log t), which is
    minimized over P: by quasi-Newton steps, then by Fisher scoring to full precision.

    Parameters
    ----------
    correlation : (d, d), zero for features that do not vary
    rank : int, factors
    least : float, no uniqueness is smaller
    """
    size = len(correlation)

    def parts(logs: Any) -> tuple[float, Any, Any, Any]:
        root = np.exp(logs / 2)
        values, vectors = np.linalg.eigh(correlation / np.outer(root, root))
        rest = np.maximum(values[: size - rank], 1e-300)
        within = vectors[:, : size - rank]
        # The gradient in log P: the diagonal of (I - t) over the directions left out.
        return (
            float((rest - 1 - np.log(rest)).sum()),
            (within**2) @ (1 - rest),
            within,
            (
                root,
                values,
                vectors,
            ),
        )

    with one_blas_thread():
        inverse = np.maximum(np.diag(np.linalg.pinv(correlation)), 1.0)
        start = np.clip((1 - 0.5 * rank / size) / inverse, max(0.005, least), 1.0)
        lowest = float(np.log(least))
        found = scipy.optimize.minimize(
            lambda logs: parts(logs)[:2],
            np.log(start),
            jac=True,
            method="L-BFGS-B",
            bounds=[(lowest, 0.0)] * size,
            options={"maxiter": _MOST_STEPS, "ftol": 1e-14, "gtol": 1e-9},
        )
        logs, misfit = _scored(parts, found.x, lowest)
        root, values, vectors = parts(logs)[3]
    leading = np.maximum(values[::-1][:rank] - 1, 1e-6)
    loadings = root[:, None] * vectors[:, ::-1][:, :rank] * np.sqrt(leading)
    # L'P^-1 L is diagonal by construction: the scores need no solve.
    return Factors(loadings, root**2, loadings / root[:, None] ** 2 / leading, misfit)


def _scored(parts: Any, logs: Any, lowest: float) -> tuple[Any, float]:
    """Steps of Fisher scoring to full precision, as long as they lower the gradient."""
    misfit, gradient, within, _ = parts(logs)
    for _ in range(_SCORING_STEPS):
        free = (logs > lowest + 1e-9) | (gradient < 0)
        curvature = ((within @ within.T) ** 2)[np.ix_(free, free)]
        ridge = 1e-12 * np.trace(curvature) * np.eye(len(curvature))
        step = np.zeros_like(logs)
        step[free] = np.linalg.solve(curvature + ridge, gradient[free])
        moved = np.clip(logs - np.clip(step, -1, 1), lowest, 0.0)
        new_misfit, new_gradient, new_within, _ = parts(moved)
        if np.linalg.norm(new_gradient[free]) >= np.linalg.norm(gradient[free]):
            break
        logs, misfit, gradient, within = moved, new_misfit, new_gradient, new_within
    return logs, misfit
