"""Three views of one sample: groups of features, or of directions, independent given the component.

The monograph's route for product mixtures (a random partition of the features) and for spherical
Gaussians (a random rotation, then a partition), 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.estimation.homogeneous import EXACT, HomogeneousMixture, read_homogeneous, symmetrized
from latensor.exceptions import InvalidInputError
from latensor.models.views.three_views import ViewMaps, view_maps
from latensor.moments.third import ThirdMoment

_PARTITIONS = 40
# Features up to which a stream keeps the whole third moment, for views chosen later.
MOST_STREAMED = 128

Algorithm = str | Callable[..., Any]


def best_partition(correlation: Any, rank: int, rng: np.random.Generator) -> Any:
    """The view (d,) of every feature, of 40 random partitions into three the best conditioned.

    All cross-covariances are blocks of one matrix, so that trying a partition costs no data; the
    best has the largest smallest singular value of rank k - 1 among its three pairs.
    """
    n_features = len(correlation)
    best, chosen = -1.0, None
    with one_blas_thread():
        for _ in range(_PARTITIONS):
            labels = rng.permutation(np.arange(n_features) % 3)
            members = [np.flatnonzero(labels == t) for t in range(3)]
            smallest = min(
                _smallest(correlation[np.ix_(members[t], members[s])], rank)
                for t, s in ((0, 1), (0, 2), (1, 2))
            )
            if smallest > best:
                best, chosen = smallest, labels
    return chosen


def _smallest(block: Any, rank: int) -> float:
    return float(np.linalg.svd(block, compute_uv=False)[rank - 1]) if rank else 0.0


def rotation(n_features: int, rng: np.random.Generator) -> list[Any]:
    """Three random orthonormal frames (d, d_t) that together span R^d."""
    turned = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0]
    return [np.ascontiguousarray(turned[:, t::3]) for t in range(3)]


def check_streamed(n_features: int) -> None:
    """Refuse to stream views of more features than the third moment can be kept whole for."""
    if n_features > MOST_STREAMED:
        raise InvalidInputError(
            f"method='views' streams at most {MOST_STREAMED} features, X has {n_features}: "
            "use fit, or method='moments'"
        )


def frames_of(partition: Any) -> list[Any]:
    """The coordinates of every view as columns (d, d_t) of the identity."""
    identity = np.eye(len(partition))
    return [identity[:, partition == t] for t in range(3)]


@dataclass(frozen=True)
class ViewReadOff:
    """Components read off three views of one sample.

    Attributes
    ----------
    mixture : HomogeneousMixture
    means : (k, d), conditional means around the mean
    maps : three (d, k-1) matrices, y_t = A_t'(x - E x)
    condition : float
    gap : float, smallest singular value over the largest that noise gives
    """

    mixture: HomogeneousMixture
    means: Any
    maps: tuple[Any, ...]
    condition: float
    gap: float


def maps_between(
    covariance: Any, frames: list[Any], rank: int, weight: float
) -> tuple[list[Any], ViewMaps]:
    """The maps (d, k-1) of three views given by orthonormal frames (d, d_t), and their spectrum."""
    cross = {(t, s): frames[t].T @ covariance @ frames[s] for t, s in ((0, 1), (0, 2), (1, 2))}
    found = view_maps(cross, rank, exact=weight > EXACT)
    return [frame @ each for frame, each in zip(frames, found.maps, strict=True)], found


def read_views(
    moment: ThirdMoment,
    frames: list[Any],
    rank: int,
    rng: np.random.Generator,
    algorithm: Algorithm = "auto",
    scale: Any = None,
) -> ViewReadOff:
    """Weights and conditional means from three views of the features (monograph 4.3).

    Parameters
    ----------
    moment : the central moments; its basis spans the maps
    frames : three (d, d_t) matrices of orthonormal columns: independent given the component
    rank : int, one less than the number of components
    rng : draws the start of the decomposition
    algorithm : of `read_homogeneous`
    scale : (d,), units of the features in which views and means are taken; None for 1
    """
    unit = np.ones(len(moment.mean)) if scale is None else scale
    covariance = moment.covariance / np.outer(unit, unit)
    maps, found = maps_between(covariance, frames, rank, moment.weight)
    third = moment.between(*(each / unit[:, None] for each in maps))
    mixture = read_homogeneous(symmetrized(third), rng, algorithm)
    means = np.zeros((rank + 1, len(unit)))
    for t, frame in enumerate(frames):
        others = sum(maps[s] for s in range(3) if s != t) / 2
        means += mixture.mean_of(0.0, frame.T @ covariance @ others) @ frame.T
    noise = np.sqrt(max(frame.shape[1] for frame in frames) / moment.weight)
    typical = float(np.trace(covariance)) / len(unit)
    gap = float(found.values[:, -1].min()) / (2 * noise * typical) if rank and typical else np.inf
    return ViewReadOff(mixture, means, tuple(maps), found.condition, gap)
