"""Planted mixtures of regressions: rows, targets and the component behind each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.exceptions import InvalidInputError


@dataclass(frozen=True)
class RegressionSample:
    """Rows and targets of a mixture of regressions, and their truth.

    Attributes
    ----------
    X : (n, d)
    y : (n,)
    labels : (n,) integers, the component of every row
    weights : (k,)
    coef : (k, d)
    intercept : (k,)
    noise : float, the standard deviation of y around its component; 0 for "logit" and "log"
    """

    X: Any
    y: Any
    labels: Any
    weights: Any
    coef: Any
    intercept: Any
    noise: float


def make_regressions(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    noise: float = 0.1,
    intercept: float = 0.0,
    link: str = "identity",
    scale: float = 1.0,
    random_state: RandomState = None,
) -> RegressionSample:
    """Several regressions in one sample, to test and compare what tells them apart.

    Features are standard Gaussian, coefficients random directions of length `scale`, weights
    between 0.5 and 1.5 of their mean.

    Parameters
    ----------
    n_samples, n_features, n_components : int, samples n, features d and regressions k
    noise : float, standard deviation around the regression, for link="identity"
    intercept : float, standard deviation of the intercepts
    link : "identity", "logit" (targets 0 and 1) or "log" (counts)
    scale : float, length of the coefficients
    random_state : seed
    """
    rng = generator(random_state)
    n = check_positive_int(n_samples, "n_samples")
    d = check_positive_int(n_features, "n_features")
    k = check_positive_int(n_components, "n_components")
    if link not in ("identity", "logit", "log"):
        raise InvalidInputError(f"link={link!r} must be 'identity', 'logit' or 'log'")
    if not noise >= 0:
        raise InvalidInputError(f"noise={noise!r} must not be negative")
    coef = rng.standard_normal((k, d))
    coef *= scale / np.linalg.norm(coef, axis=1, keepdims=True)
    constants = intercept * rng.standard_normal(k)
    weights = rng.uniform(0.5, 1.5, k)
    weights /= weights.sum()
    labels = rng.choice(k, n, p=weights)
    X = rng.standard_normal((n, d))
    eta = (X * coef[labels]).sum(axis=1) + constants[labels]
    means = eta
    if link == "logit":
        means = 1 / (1 + np.exp(-eta))
    elif link == "log":
        means = np.exp(np.minimum(eta, 30.0))
    y = draw_targets(rng, means, np.full(n, noise), link)
    return RegressionSample(
        X, y, labels, weights, coef, constants, noise if link == "identity" else 0.0
    )


def draw_targets(rng: np.random.Generator, means: Any, deviations: Any, link: str) -> Any:
    """Targets (n,) with given means."""
    if link == "identity":
        return means + deviations * rng.standard_normal(len(means))
    if link == "logit":
        return (rng.random(len(means)) < means).astype(np.float64)
    return rng.poisson(means).astype(np.float64)
