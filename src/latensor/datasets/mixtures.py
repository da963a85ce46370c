"""Planted mixtures: samples with the parameters and the components that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.exceptions import InvalidInputError


@dataclass(frozen=True)
class MixtureSample:
    """Samples of a Gaussian mixture and their truth.

    Attributes
    ----------
    samples : (n, d)
    labels : (n,) integers, the component of every sample
    weights : (k,)
    means : (k, d)
    variances : (k,) spherical or (k, d) diagonal
    """

    samples: Any
    labels: Any
    weights: Any
    means: Any
    variances: Any

    def draw(self, n_samples: int, random_state: RandomState = None) -> tuple[Any, Any]:
        """More samples (n, d) of the same mixture, and their components (n,)."""
        rng = generator(random_state)
        return _draw(rng, n_samples, self.weights, self.means, self.variances)


def make_spherical_mixture(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    separation: float = 4.0,
    variance: str = "differing",
    affine_rank: int | None = None,
    random_state: RandomState = None,
) -> MixtureSample:
    """Spherical Gaussian clusters at random places, to test and compare what finds them.

    Means are drawn from a Gaussian and scaled so that the two closest are `separation` apart;
    weights are drawn between 0.5 and 1.5 of their mean.

    Parameters
    ----------
    n_samples, n_features, n_components : int, samples n, dimension d and clusters k
    separation : float, distance of the two closest means in mean standard deviations
    variance : "differing" (standard deviations between 0.7 and 1.3) or "common" (1)
    affine_rank : int, the dimension of the affine space that holds the means; None for as large
        as it can be
    random_state : seed
    """
    rng = generator(random_state)
    n_samples, d, k = _sizes(n_samples, n_features, n_components)
    means = _means(rng, k, d, separation, affine_rank)
    if variance not in ("differing", "common"):
        raise InvalidInputError(f"variance={variance!r} must be 'differing' or 'common'")
    deviations = rng.uniform(0.7, 1.3, k) if variance == "differing" else np.ones(k)
    return _planted(rng, n_samples, means, deviations**2)


def make_diagonal_mixture(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    separation: float = 4.0,
    random_state: RandomState = None,
) -> MixtureSample:
    """Gaussian clusters with independent features, to test and compare what finds them.

    As `make_spherical_mixture`, but every feature of every cluster has a standard deviation of its
    own, between 0.5 and 1.5.

    Parameters
    ----------
    n_samples, n_features, n_components : int, samples n, dimension d and clusters k
    separation : float, distance of the two closest means in mean standard deviations
    random_state : seed
    """
    rng = generator(random_state)
    n_samples, d, k = _sizes(n_samples, n_features, n_components)
    means = _means(rng, k, d, separation, None)
    return _planted(rng, n_samples, means, rng.uniform(0.5, 1.5, (k, d)) ** 2)


@dataclass(frozen=True)
class MultiViewSample:
    """Samples of a mixture seen in several views, and their truth.

    Attributes
    ----------
    views : list of (n, d_t) arrays
    labels : (n,) integers
    weights : (k,)
    means : list of (k, d_t) arrays, the conditional means of every view
    """

    views: list[Any]
    labels: Any
    weights: Any
    means: list[Any]


def make_multi_view(
    n_samples: int,
    n_features: tuple[int, ...],
    n_components: int,
    *,
    kind: str = "gaussian",
    separation: float = 4.0,
    random_state: RandomState = None,
) -> MultiViewSample:
    """Views that are independent given the component, to test what finds it.

    Parameters
    ----------
    n_samples : int
    n_features : the width of every view, three or more
    n_components : int
    kind : "gaussian" (views with correlated noise of unit size) or "categorical" (one-hot rows,
        whose probabilities are drawn from a Dirichlet distribution)
    separation : float, distance of the two closest means of a Gaussian view in standard deviations
    random_state : seed
    """
    rng = generator(random_state)
    widths = tuple(check_positive_int(d, "n_features") for d in n_features)
    if len(widths) < 3:
        raise InvalidInputError(f"n_features={n_features!r} must name three views or more")
    n_samples, _, k = _sizes(n_samples, widths[0], n_components)
    if kind not in ("gaussian", "categorical"):
        raise InvalidInputError(f"kind={kind!r} must be 'gaussian' or 'categorical'")
    weights = _weights(rng, k)
    # The truth is drawn first: a seed means the same mixture whatever the number of samples.
    means = [
        _means(rng, k, width, separation, None)
        if kind == "gaussian"
        else rng.dirichlet(np.full(width, 0.5), k)
        for width in widths
    ]
    mixings = [
        np.linalg.qr(rng.standard_normal((width, width)))[0] * rng.uniform(0.5, 1.5, width)
        for width in widths
    ]
    labels = rng.choice(k, n_samples, p=weights)
    views = []
    for width, centers, mixing in zip(widths, means, mixings, strict=True):
        if kind == "gaussian":
            noise = rng.standard_normal((n_samples, width)) @ mixing.T
            views.append(centers[labels] + noise)
        else:
            bounds = np.cumsum(centers, axis=1)[labels]
            symbols = (rng.random(n_samples)[:, None] > bounds).sum(axis=1)
            views.append(np.eye(width)[np.minimum(symbols, width - 1)])
    return MultiViewSample(views, labels, weights, means)


def _sizes(n_samples: int, n_features: int, n_components: int) -> tuple[int, int, int]:
    return (
        check_positive_int(n_samples, "n_samples"),
        check_positive_int(n_features, "n_features"),
        check_positive_int(n_components, "n_components"),
    )


def _weights(rng: np.random.Generator, count: int) -> Any:
    weights = rng.uniform(0.5, 1.5, count)
    return weights / weights.sum()


def _means(
    rng: np.random.Generator, count: int, width: int, separation: float, affine_rank: int | None
) -> Any:
    if not separation > 0:
        raise InvalidInputError(f"separation={separation!r} must be positive")
    if affine_rank is None:
        means = rng.standard_normal((count, width))
    else:
        rank = check_positive_int(affine_rank, "affine_rank")
        if rank > width:
            raise InvalidInputError(f"affine_rank={rank} exceeds n_features={width}")
        frame = np.linalg.qr(rng.standard_normal((width, rank)))[0]
        means = rng.standard_normal((count, rank)) @ frame.T
    if count == 1:
        return means
    gaps = means[:, None] - means[None]
    distances = np.sqrt((gaps**2).sum(axis=2))[np.triu_indices(count, 1)]
    return means * (separation / distances.min())


def _planted(rng: np.random.Generator, n_samples: int, means: Any, variances: Any) -> MixtureSample:
    weights = _weights(rng, len(means))
    samples, labels = _draw(rng, n_samples, weights, means, variances)
    return MixtureSample(samples, labels, weights, means, variances)


def _draw(
    rng: np.random.Generator, n_samples: int, weights: Any, means: Any, variances: Any
) -> tuple[Any, Any]:
    labels = rng.choice(len(weights), n_samples, p=weights)
    deviations = np.sqrt(variances).reshape(len(weights), -1)
    noise = rng.standard_normal((n_samples, means.shape[1]))
    return means[labels] + deviations[labels] * noise, labels
