"""Points coded as the nearest of a few centres, so that they can be counted like symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.batches import only_rounding
from latensor.refinement.mixture_starts import kmeans
from latensor.value_files import storable

# Points that the centres are found on, and rounds of moving them.
POINTS = 20_000
_ROUNDS = 10
_BLOCK = 16_384


@storable(name="Cells")
@dataclass(frozen=True, eq=False)
class Quantization:
    """Standardized points and the cells that they fall into: how points are counted.

    A point that was not, or not wholly, observed is taken for what was seen last.

    Attributes
    ----------
    center : (p,) subtracted from points
    scale : (p,) what they are then divided by
    centers : (m, p) of the cells, standardized
    constant : coordinates in which the points do not vary
    products : bool, whether second moments of points are all products, not only squares
    """

    center: Any
    scale: Any
    centers: Any
    constant: tuple[int, ...] = ()
    products: bool = False

    @property
    def n_symbols(self) -> int:
        """The number of cells."""
        return len(self.centers)

    def __call__(self, points: Any) -> Any:
        """The cell (n,) int64 of every point (n, p)."""
        return self.code(self.standardize(points))

    def observables(self, points: Any) -> Any:
        """The standardized points (n, g) and their squares, or all their products."""
        rows = self.standardize(points)
        if not self.products:
            return np.hstack([rows, rows**2])
        first, second = np.triu_indices(rows.shape[1])
        return np.hstack([rows, rows[:, first] * rows[:, second]])

    def missing(self, points: Any) -> Any:
        """(n,) bool, whether an entry of a point was not observed."""
        return np.isnan(points).any(axis=1)

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
        products: bool = False,
    ) -> Self:
        """Cells of points (n, p) that stand for many of a known center and standard deviation (p,).

        Around the centres of k-means.

        Parameters
        ----------
        center, deviation : (p,)
        points : (n, p)
        count : int, cells wanted; fewer where there are fewer different points
        same_scale : bool, whether all coordinates are divided by the same number
        rng : chooses the points that centres are found on
        weights : (n,) how often every point counts, or None
        products : bool, of `Quantization`
        """
        if len(points) > POINTS:
            rows = np.sort(rng.choice(len(points), POINTS, replace=False))
            points, weights = points[rows], None if weights is None else weights[rows]
        constant = only_rounding(center, deviation**2, len(points))
        deviation = np.where(constant, 0.0, deviation)
        if same_scale:
            deviation = np.full_like(deviation, np.sqrt((deviation**2).mean()))
        scale = np.where(deviation > 0, deviation, 1.0)
        standard = filled((points - center) / scale)
        centers = _centres(standard, count, rng, weights)
        unvarying = tuple(int(i) for i in np.flatnonzero(constant))
        return cls(center, scale, centers, unvarying, products)

    def standardize(self, points: Any) -> Any:
        """The points (n, p) minus the center, over the scale; C-contiguous float64."""
        return np.ascontiguousarray(filled((points - self.center) / self.scale))

    def code(self, standard: Any) -> Any:
        """The cell (n,) int64 of every standardized point."""
        return _nearest(standard, self.centers)


@storable
@dataclass(frozen=True)
class SymbolCode:
    """Symbols 0..d-1 as they are; one that was not observed (-1) as the one seen last."""

    n_symbols: int

    def __call__(self, symbols: Any) -> Any:
        """(n,) int64, none of them missing."""
        missing = symbols < 0
        if not missing.any():
            return symbols
        seen = np.maximum.accumulate(np.where(missing, 0, np.arange(len(symbols))))
        return np.maximum(symbols[seen], 0)

    def observables(self, symbols: Any) -> None:
        """Nothing: a symbol is all that there is."""
        return

    def missing(self, symbols: Any) -> Any:
        """(n,) bool, whether a symbol was not observed."""
        return symbols < 0


def filled(points: Any) -> Any:
    """Points (n, p) with what was seen last in place of what is missing; zero before anything."""
    missing = np.isnan(points)
    if not missing.any():
        return points
    seen = np.where(missing, 0, np.arange(len(points))[:, None])
    np.maximum.accumulate(seen, axis=0, out=seen)
    return np.nan_to_num(np.take_along_axis(points, seen, axis=0), nan=0.0)


def _nearest(points: Any, centers: Any) -> Any:
    """The nearest centre (n,) of every point."""
    found = np.empty(len(points), dtype=np.int64)
    norms = (centers**2).sum(axis=1)
    with one_blas_thread():
        for first in range(0, len(points), _BLOCK):
            part = slice(first, first + _BLOCK)
            found[part] = (norms - 2 * points[part] @ centers.T).argmin(axis=1)
    return found


def _centres(points: Any, count: int, rng: np.random.Generator, weights: Any = None) -> Any:
    """Centres (m, p) of k-means; fewer where there are fewer different points."""
    masses = np.ones(len(points)) if weights is None else weights
    labels = kmeans(points, masses, min(count, len(points)), rng, _ROUNDS)
    labels = np.unique(labels, return_inverse=True)[1]
    sums = np.stack([np.bincount(labels, masses * column) for column in points.T], axis=1)
    return sums / np.bincount(labels, masses)[:, None]
