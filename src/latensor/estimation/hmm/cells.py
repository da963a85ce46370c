"""Points coded as the nearest of a few centres, so that they can be counted like symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.batches import only_rounding

# Points that the centres are found on, and rounds of moving them.
POINTS = 20_000
_ROUNDS = 10
_BLOCK = 16_384


@dataclass(frozen=True)
class Cells:
    """Standardized points and the cells that they fall into.

    Attributes
    ----------
    center : (p,) subtracted from points
    scale : (p,) what they are then divided by
    centers : (m, p) of the cells, standardized; sorted for p = 1
    constant : coordinates in which the points do not vary
    """

    center: Any
    scale: Any
    centers: Any
    constant: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        points: Any,
        count: int,
        same_scale: bool,
        rng: np.random.Generator,
        weights: Any = None,
    ) -> Self:
        """Cells of points (n, p): quantiles on a line, k-means centres otherwise.

        Parameters
        ----------
        points : (n, p)
        count : int, cells wanted; fewer where there are fewer different points
        same_scale : bool, whether all coordinates are divided by the same number
        rng : chooses the points that centres are found on
        weights : (n,) how often every point counts, or None
        """
        if weights is None:
            center, deviation = points.mean(axis=0), points.std(axis=0)
        else:
            center = weights @ points / weights.sum()
            deviation = np.sqrt(weights @ (points - center) ** 2 / weights.sum())
        chosen = points
        if len(points) > POINTS:
            rows = np.sort(rng.choice(len(points), POINTS, replace=False))
            chosen, weights = points[rows], None if weights is None else weights[rows]
        return cls.around(center, deviation, chosen, count, same_scale, rng, weights)

    @classmethod
    def around(
        cls,
        center: Any,
        deviation: Any,
        points: Any,
        count: int,
        same_scale: bool,
        rng: np.random.Generator,
        weights: Any = None,
    ) -> Self:
        """Cells of some points (n, p) that stand for many of a known center and deviation (p,)."""
        constant = only_rounding(center, deviation**2, len(points))
        deviation = np.where(constant, 0.0, deviation)
        if same_scale:
            deviation = np.full_like(deviation, np.sqrt((deviation**2).mean()))
        scale = np.where(deviation > 0, deviation, 1.0)
        standard = (points - center) / scale
        if points.shape[1] == 1:
            levels = (np.arange(count) + 0.5) / count
            centers = np.unique(_quantiles(standard[:, 0], levels, weights))[:, None]
        else:
            centers = _k_means(standard, count, rng, weights)
        return cls(center, scale, centers, tuple(int(i) for i in np.flatnonzero(constant)))

    def standardize(self, points: Any) -> Any:
        """The points (n, p) minus the center, over the scale; C-contiguous float64."""
        return np.ascontiguousarray((points - self.center) / self.scale)

    def code(self, standard: Any) -> Any:
        """The cell (n,) int64 of every standardized point."""
        if self.centers.shape[1] == 1:
            line = self.centers[:, 0]
            return np.searchsorted((line[:-1] + line[1:]) / 2, standard[:, 0]).astype(np.int64)
        return _nearest(standard, self.centers)[0]


def _nearest(points: Any, centers: Any) -> tuple[Any, Any]:
    """The nearest centre (n,) of every point and its squared distance, without |x|^2."""
    found = np.empty(len(points), dtype=np.int64)
    distances = np.empty(len(points))
    norms = (centers**2).sum(axis=1)
    with one_blas_thread():
        for first in range(0, len(points), _BLOCK):
            part = slice(first, first + _BLOCK)
            scores = norms - 2 * points[part] @ centers.T
            found[part] = scores.argmin(axis=1)
            distances[part] = scores.min(axis=1)
    return found, distances


def _quantiles(values: Any, levels: Any, weights: Any) -> Any:
    """Quantiles of numbers (n,), as NumPy's of each number repeated as often as it counts."""
    if weights is None:
        return np.quantile(values, levels)
    order = np.argsort(values, kind="stable")
    ordered, reached = values[order], np.cumsum(weights[order])
    place = levels * max(float(reached[-1]) - 1, 0.0)
    below = np.floor(place)

    def at(number: Any) -> Any:
        return ordered[np.minimum(np.searchsorted(reached, number, side="right"), len(order) - 1)]

    return at(below) + (place - below) * (at(below + 1) - at(below))


def _k_means(points: Any, count: int, rng: np.random.Generator, weights: Any = None) -> Any:
    """Centres (m, p) by a few rounds of Lloyd's from a k-means++ start."""
    squares = (points**2).sum(axis=1)
    masses = np.ones(len(points)) if weights is None else weights
    centers = [points[rng.integers(len(points))]]
    distances = ((points - centers[0]) ** 2).sum(axis=1)
    while len(centers) < count and distances.sum() > 0:
        # Where chance would stop short of the last point, take it.
        chances = np.cumsum(masses * distances)
        place = np.searchsorted(chances, rng.random() * (masses * distances).sum())
        centers.append(points[min(int(place), len(points) - 1)])
        gap = squares - 2 * points @ centers[-1] + centers[-1] @ centers[-1]
        distances = np.minimum(distances, np.maximum(gap, 0.0))
        distances[distances < 1e-12 * (1 + squares)] = 0.0
    found = np.array(centers)
    for _ in range(_ROUNDS):
        cells = _nearest(points, found)[0]
        numbers = np.bincount(cells, masses, minlength=len(found))
        sums = np.stack(
            [np.bincount(cells, masses * column, minlength=len(found)) for column in points.T],
            axis=1,
        )
        safe = np.where(numbers > 0, numbers, 1.0)
        found = np.where(numbers[:, None] > 0, sums / safe[:, None], found)
    return found
