"""Points coded as the nearest of a few centres, so that they can be counted like symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread

# Points that the centres are found on, and rounds of moving them.
_POINTS = 20_000
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
    """

    center: Any
    scale: Any
    centers: Any

    @classmethod
    def of(cls, points: Any, count: int, same_scale: bool, rng: np.random.Generator) -> Self:
        """Cells of points (n, p): quantiles on a line, k-means centres otherwise.

        Parameters
        ----------
        points : (n, p)
        count : int, cells wanted; fewer where there are fewer different points
        same_scale : bool, whether all coordinates are divided by the same number
        rng : chooses the points that centres are found on
        """
        center = points.mean(axis=0)
        deviation = points.std(axis=0)
        if same_scale:
            deviation = np.full_like(deviation, np.sqrt((deviation**2).mean()))
        scale = np.where(deviation > 0, deviation, 1.0)
        chosen = points
        if len(points) > _POINTS:
            chosen = points[np.sort(rng.choice(len(points), _POINTS, replace=False))]
        standard = (chosen - center) / scale
        if points.shape[1] == 1:
            levels = (np.arange(count) + 0.5) / count
            centers = np.unique(np.quantile(standard[:, 0], levels))[:, None]
        else:
            centers = _k_means(standard, count, rng)
        return cls(center, scale, centers)

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


def _k_means(points: Any, count: int, rng: np.random.Generator) -> Any:
    """Centres (m, p) by a few rounds of Lloyd's from a k-means++ start."""
    squares = (points**2).sum(axis=1)
    centers = [points[rng.integers(len(points))]]
    distances = ((points - centers[0]) ** 2).sum(axis=1)
    while len(centers) < count and distances.sum() > 0:
        # Where chance would stop short of the last point, take it.
        place = np.searchsorted(np.cumsum(distances), rng.random() * distances.sum())
        centers.append(points[min(int(place), len(points) - 1)])
        gap = squares - 2 * points @ centers[-1] + centers[-1] @ centers[-1]
        distances = np.minimum(distances, np.maximum(gap, 0.0))
        distances[distances < 1e-12 * (1 + squares)] = 0.0
    found = np.array(centers)
    for _ in range(_ROUNDS):
        cells = _nearest(points, found)[0]
        numbers = np.bincount(cells, minlength=len(found))
        sums = np.stack(
            [np.bincount(cells, weights=column, minlength=len(found)) for column in points.T],
            axis=1,
        )
        found = np.where(numbers[:, None] > 0, sums / np.maximum(numbers, 1)[:, None], found)
    return found
