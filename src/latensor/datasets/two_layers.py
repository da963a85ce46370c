"""Planted networks with one hidden layer: rows, targets and the weights behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.exceptions import InvalidInputError

_ACTIVATIONS = {
    "sigmoid": expit,
    "tanh": np.tanh,
    "relu": lambda u: np.maximum(u, 0.0),
    "softplus": lambda u: np.logaddexp(0.0, u),
}


@dataclass(frozen=True)
class NetworkSample:
    """Rows and targets of a network with one hidden layer, and their truth.

    Attributes
    ----------
    X : (n, d)
    y : (n,), or (n, q) for several outputs
    components : (k, d), weights of the hidden units
    hidden_intercept : (k,)
    output : (k, q)
    mean : (n, q), the outputs without noise
    """

    X: Any
    y: Any
    components: Any
    hidden_intercept: Any
    output: Any
    mean: Any


def make_network(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    activation: str = "sigmoid",
    n_outputs: int = 1,
    noise: float = 0.1,
    scale: float = 3.0,
    bias: float = 1.0,
    target: str = "real",
    random_state: RandomState = None,
) -> NetworkSample:
    """A regression on hidden units, to test and compare what finds them.

    Features are standard Gaussian; weights of hidden units are random directions of length `scale`,
    their biases between -`bias` and `bias` times the scale over 3, output weights between 0.5
    and 1.5 with random signs.

    Parameters
    ----------
    n_samples, n_features, n_components : int, samples n, features d and hidden units k
    activation : "sigmoid", "tanh", "relu" or "softplus"
    n_outputs : int, q
    noise : float, standard deviation of the noise as a fraction of that of the outputs
    scale, bias : float
    target : "real", or "binary": zeros and ones whose log odds are the outputs, centred
    random_state : seed
    """
    rng = generator(random_state)
    n = check_positive_int(n_samples, "n_samples")
    d = check_positive_int(n_features, "n_features")
    k = check_positive_int(n_components, "n_components")
    q = check_positive_int(n_outputs, "n_outputs")
    if activation not in _ACTIVATIONS:
        raise InvalidInputError(f"activation={activation!r} must be one of {list(_ACTIVATIONS)}")
    if target not in ("real", "binary"):
        raise InvalidInputError(f"target={target!r} must be 'real' or 'binary'")
    if not noise >= 0:
        raise InvalidInputError(f"noise={noise!r} must not be negative")
    components = rng.standard_normal((k, d))
    components *= scale / np.linalg.norm(components, axis=1, keepdims=True)
    biases = bias * scale / 3 * rng.uniform(-1, 1, k)
    output = rng.uniform(0.5, 1.5, (k, q)) * rng.choice([-1.0, 1.0], (k, q))
    X = rng.standard_normal((n, d))
    mean = _ACTIVATIONS[activation](X @ components.T + biases) @ output
    if target == "binary":
        odds = 4 * (mean - mean.mean(axis=0))
        y = (rng.random(odds.shape) < expit(odds)).astype(np.float64)
    else:
        y = mean + noise * mean.std(axis=0) * rng.standard_normal(mean.shape)
    return NetworkSample(X, y[:, 0] if q == 1 else y, components, biases, output, mean)
