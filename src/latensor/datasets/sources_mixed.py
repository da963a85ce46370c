"""Planted sources under noise, and two Gaussians on a line: samples with their truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.datasets.mixtures import MixtureSample
from latensor.exceptions import InvalidInputError

# Sources of mean zero and variance one, above and below the kurtosis of a Gaussian.
_DRAWN: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "laplace": lambda rng, n: rng.laplace(0.0, np.sqrt(0.5), n),
    "uniform": lambda rng, n: rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), n),
    "exponential": lambda rng, n: rng.exponential(1.0, n) - 1.0,
    "binary": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "student": lambda rng, n: rng.standard_t(5, n) / np.sqrt(5 / 3),
    "gaussian": lambda rng, n: rng.standard_normal(n),
}
_KINDS = ("isotropic", "diagonal", "full")


@dataclass(frozen=True)
class ICASample:
    """Mixed sources x = A h + z + mean, and their truth.

    Attributes
    ----------
    samples : (n, d)
    sources : (n, k), h, of mean zero and variance one
    mixing : (d, k), A
    mean : (d,)
    noise_covariance : (d, d), of z
    """

    samples: Any
    sources: Any
    mixing: Any
    mean: Any
    noise_covariance: Any


def make_ica(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    sources: str | Sequence[str] = ("laplace", "uniform"),
    noise: float = 0.0,
    noise_kind: str = "isotropic",
    random_state: RandomState = None,
) -> ICASample:
    """Independent sources under a random mixture and Gaussian noise, to test what unmixes them.

    The mixing matrix is drawn from a Gaussian, its columns scaled to length sqrt(d / k): the
    variance of the signal is then one in the average sensor.

    Parameters
    ----------
    n_samples, n_features, n_components : int, samples n, sensors d and sources k <= d
    sources : "laplace", "uniform", "exponential", "binary", "student" (5 degrees of freedom) or
        "gaussian", or several of them, dealt out in turn
    noise : float, root mean square of the noise of a sensor, in units of the signal's
    noise_kind : "isotropic", "diagonal" (standard deviations differ by up to a factor of 5) or
        "full" (a random covariance)
    random_state : seed
    """
    rng = generator(random_state)
    n_samples = check_positive_int(n_samples, "n_samples")
    n_features = check_positive_int(n_features, "n_features")
    n_components = check_positive_int(n_components, "n_components")
    if n_components > n_features:
        raise InvalidInputError(
            f"n_components={n_components} sources need at least as many sensors, "
            f"n_features={n_features} were asked for"
        )
    names = (sources,) if isinstance(sources, str) else tuple(sources)
    for name in names or ("",):
        if name not in _DRAWN:
            listed = ", ".join(repr(known) for known in _DRAWN)
            raise InvalidInputError(f"sources={sources!r} must be one or several of {listed}")
    if not noise >= 0:
        raise InvalidInputError(f"noise={noise!r} must be a number of at least 0")
    mixing = rng.standard_normal((n_features, n_components))
    mixing *= np.sqrt(n_features / n_components) / np.linalg.norm(mixing, axis=0)
    mean = rng.standard_normal(n_features)
    root = noise * _noise_root(rng, n_features, noise_kind)
    drawn = [_DRAWN[names[j % len(names)]](rng, n_samples) for j in range(n_components)]
    hidden = np.column_stack(drawn)
    samples = mean + hidden @ mixing.T
    if noise > 0:
        samples += rng.standard_normal((n_samples, n_features)) @ root.T
    return ICASample(samples, hidden, mixing, mean, root @ root.T)


def _noise_root(rng: np.random.Generator, size: int, kind: str) -> Any:
    """A square root (d, d) of a noise covariance whose mean variance is one."""
    if kind == "isotropic":
        return np.eye(size)
    if kind == "diagonal":
        root = np.diag(rng.uniform(0.3, 1.5, size))
    elif kind == "full":
        root = rng.standard_normal((size, size))
    else:
        listed = ", ".join(repr(known) for known in _KINDS)
        raise InvalidInputError(f"noise_kind={kind!r} must be one of {listed}")
    return root / np.sqrt((root**2).sum() / size)


def make_pearson(
    n_samples: int,
    *,
    separation: float = 2.0,
    weight: float | None = None,
    ratio: float | None = None,
    random_state: RandomState = None,
) -> MixtureSample:
    """Two Gaussians on a line, as in Pearson's crabs, to test what takes them apart.

    Parameters
    ----------
    n_samples : int
    separation : float, distance of the means in units of the mean standard deviation, which is 1
    weight : float, fraction of the first component; None draws it between 0.3 and 0.7
    ratio : float, standard deviation of the first over that of the second; None draws it between
        0.5 and 2
    random_state : seed
    """
    rng = generator(random_state)
    n_samples = check_positive_int(n_samples, "n_samples")
    fraction = rng.uniform(0.3, 0.7) if weight is None else float(weight)
    quotient = 2.0 ** rng.uniform(-1, 1) if ratio is None else float(ratio)
    for name, value, good in (
        ("separation", separation, separation >= 0),
        ("weight", weight, 0 < fraction < 1),
        ("ratio", ratio, quotient > 0),
    ):
        if not good:
            raise InvalidInputError(
                f"{name}={value!r} is out of range: weight lies between 0 and 1, ratio is "
                "positive, separation not negative"
            )
    weights = np.array([fraction, 1 - fraction])
    deviations = 2 * np.array([quotient, 1.0]) / (quotient + 1)
    means = rng.standard_normal() + separation * np.array([[-0.5], [0.5]])
    labels = (rng.random(n_samples) >= fraction).astype(np.intp)
    samples = means[labels] + deviations[labels, None] * rng.standard_normal((n_samples, 1))
    return MixtureSample(samples, labels, weights, means, deviations**2)
