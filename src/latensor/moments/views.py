"""Means, cross-covariances and third cross moments of several views, as mergeable sums.

Third moments are kept between three views, along a fixed frame of each and around fixed centers,
and brought to the means at the end, which is exact, since means and cross-covariances are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays.threads import one_blas_thread
from latensor.exceptions import InvalidInputError
from latensor.moments.batches import (
    cross_scatter,
    only_rounding,
    refuse_overflow,
    total_weight,
    weighted_mean,
)

# Views of up to so many features keep all their directions in a stream.
_WHOLE = 32
_ROWS_PER_DIRECTION = 20
_FEWEST_ROWS = 1000


@dataclass(frozen=True)
class ViewMoments:
    """Central moments of views x_1, x_2, ... of the same samples.

    Attributes
    ----------
    count : int
    weight : float
    means : list of (d_t,)
    variances : list of (d_t,)
    cross : (t, s) -> (d_t, d_s) cross-covariance, t < s
    core : the three views of the third moment
    frames : three (d_t, q_t) matrices F_t
    third : (q_1, q_2, q_3), E (F_1'x_1) (x) (F_2'x_2) (x) (F_3'x_3)
    squares : (t, s) -> (d_t, q_s), E (x_t)_i^2 F_s'x_s for every view t and core view s != t
    """

    count: int
    weight: float
    means: list[Any]
    variances: list[Any]
    cross: dict[tuple[int, int], Any]
    core: tuple[int, int, int]
    frames: list[Any]
    third: Any
    squares: dict[tuple[int, int], Any]

    def between(self, t: int, s: int) -> Any:
        """The cross-covariance (d_t, d_s) of two views."""
        return self.cross[t, s] if t < s else self.cross[s, t].T


class ViewCovariances:
    """Means, variances and cross-covariances of several views."""

    def __init__(self) -> None:
        self.count = 0
        self.weight = 0.0
        self.means: list[Any] = []
        self.scatters: dict[tuple[int, int], Any] = {}
        self.squares: list[Any] = []

    def update(self, views: list[Any], weights: Any = None) -> Self:
        """Add samples: one (n, d_t) array or sparse matrix per view."""
        n_rows = views[0].shape[0]
        # An overflow is told by `_add`.
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            means = [weighted_mean(view, weights) for view in views]
            scatters = {
                (t, s): cross_scatter(views[t], means[t], views[s], means[s], weights)
                for t, s in combinations(range(len(views)), 2)
            }
            squares = [
                _square_sums(view, mean, weights) for view, mean in zip(views, means, strict=True)
            ]
        return self._add(n_rows, total_weight(n_rows, weights), means, scatters, squares)

    def merge(self, other: ViewCovariances) -> Self:
        """Add the samples of another accumulator of the same views."""
        if other.means:
            self._add(other.count, other.weight, other.means, other.scatters, other.squares)
        return self

    def _add(
        self,
        count: int,
        weight: float,
        means: list[Any],
        scatters: dict[tuple[int, int], Any],
        squares: list[Any],
    ) -> Self:
        for sums in (*scatters.values(), *squares):
            refuse_overflow(sums, "second")
        if not self.means:
            self.means, self.scatters, self.squares = list(means), dict(scatters), list(squares)
        else:
            total = self.weight + weight
            share = self.weight * weight / total
            shifts = [new - old for new, old in zip(means, self.means, strict=True)]
            self.scatters = {
                (t, s): known + scatters[t, s] + share * np.outer(shifts[t], shifts[s])
                for (t, s), known in self.scatters.items()
            }
            self.squares = [
                known + new + share * shift**2
                for known, new, shift in zip(self.squares, squares, shifts, strict=True)
            ]
            self.means = [
                old + weight / total * shift for old, shift in zip(self.means, shifts, strict=True)
            ]
        self.count += count
        self.weight += weight
        return self

    def scaled(self, factor: float) -> ViewCovariances:
        """The same with every sample counted `factor` times."""
        result = ViewCovariances()
        result.count, result.weight = round(factor * self.count), factor * self.weight
        result.means = list(self.means)
        result.scatters = {pair: factor * scatter for pair, scatter in self.scatters.items()}
        result.squares = [factor * square for square in self.squares]
        return result

    @property
    def cross(self) -> dict[tuple[int, int], Any]:
        """The cross-covariances."""
        return {pair: scatter / self.weight for pair, scatter in self.scatters.items()}

    @property
    def variances(self) -> list[Any]:
        """The variances of all features, zero where they do not vary."""
        found = [square / self.weight for square in self.squares]
        return [
            np.where(only_rounding(mean, variances, self.count), 0.0, variances)
            for mean, variances in zip(self.means, found, strict=True)
        ]


def _square_sums(view: Any, mean: Any, weights: Any) -> Any:
    """The sum (d,) of w (x - mean)^2."""
    if scipy.sparse.issparse(view):
        ones = np.ones(view.shape[0]) if weights is None else weights
        raw = np.asarray(view.multiply(view).T @ ones, dtype=np.float64)
        return np.maximum(raw - ones.sum() * mean**2, 0.0)
    centered = view - mean
    return (centered**2 if weights is None else centered**2 * weights[:, None]).sum(axis=0)


class ViewMomentAccumulator:
    """Sums for `ViewMoments`.

    Parameters
    ----------
    core : the three views of the third moment
    frames : three (d_t, q_t) matrices
    centers : (d_t,) per view, what is subtracted before the third powers
    """

    def __init__(self, core: tuple[int, int, int], frames: list[Any], centers: list[Any]) -> None:
        self.core, self.frames, self.centers = core, frames, centers
        self.covariances = ViewCovariances()
        self._third: Any = None
        self._squares: dict[tuple[int, int], Any] = {}

    def update(self, views: list[Any], weights: Any = None) -> Self:
        """Add samples: one (n, d_t) array or sparse matrix per view."""
        self.covariances.update(views, weights)
        return self.update_third(views, weights)

    def update_third(self, views: list[Any], weights: Any = None) -> Self:
        """Add samples to the third moment only, whose covariances are known already."""
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            scores = {}
            for t, frame in zip(self.core, self.frames, strict=True):
                scores[t] = np.asarray(views[t] @ frame) - self.centers[t] @ frame
            first, second, third = (scores[t] for t in self.core)
            weighted = first if weights is None else first * weights[:, None]
            q1, q2, q3 = (frame.shape[1] for frame in self.frames)
            total = np.zeros((q1, q2 * q3))
            for a in range(0, len(first), 2048):
                block = slice(a, a + 2048)
                pairs = second[block][:, :, None] * third[block][:, None, :]
                total += weighted[block].T @ pairs.reshape(len(pairs), -1)
            squares = {}
            for t in range(len(views)):
                for s in self.core:
                    if s != t:
                        squares[t, s] = _square_products(
                            views[t], self.centers[t], scores[s], weights
                        )
        self._take(total.reshape(q1, q2, q3), squares)
        return self

    def _take(self, third: Any, squares: dict[tuple[int, int], Any]) -> None:
        for sums in (third, *squares.values()):
            refuse_overflow(sums, "third")
        if self._third is None:
            self._third, self._squares = third, squares
        else:
            self._third = self._third + third
            self._squares = {pair: known + squares[pair] for pair, known in self._squares.items()}

    def merge(self, other: Self) -> Self:
        """Add the samples that another accumulator with the same frames has seen."""
        same = isinstance(other, ViewMomentAccumulator) and all(
            a.shape == b.shape and np.array_equal(a, b)
            for a, b in zip(
                [*self.frames, *self.centers], [*other.frames, *other.centers], strict=False
            )
        )
        if not same:
            raise InvalidInputError(
                "the two models keep their third moment along different directions, chosen from "
                "their first samples: start the second worker with spawn() of the first"
            )
        self.covariances.merge(other.covariances)
        if other._third is not None:
            self._take(other._third, other._squares)
        return self

    def scaled(self, factor: float) -> ViewMomentAccumulator:
        """The same with every sample counted `factor` times: for a bootstrap."""
        result = self.spawn()
        result.covariances = self.covariances.scaled(factor)
        squares = {pair: factor * square for pair, square in self._squares.items()}
        result._take(factor * self._third, squares)
        return result

    def spawn(self) -> ViewMomentAccumulator:
        """An empty accumulator with the same frames."""
        return ViewMomentAccumulator(self.core, self.frames, self.centers)

    def finalize(self) -> ViewMoments:
        """The central moments of all samples so far."""
        known = self.covariances
        cross, variances = known.cross, known.variances
        gaps = [mean - center for mean, center in zip(known.means, self.centers, strict=True)]
        frames = dict(zip(self.core, self.frames, strict=True))
        shifts = {t: frames[t].T @ gaps[t] for t in self.core}

        def between(t: int, s: int) -> Any:
            return cross[t, s] if t < s else cross[s, t].T

        one, two, three = self.core
        third = self._third / known.weight
        third = third - np.einsum("i,j,l->ijl", shifts[one], shifts[two], shifts[three])
        for alone, (t, s), pattern in (
            (one, (two, three), "i,jl->ijl"),
            (two, (one, three), "j,il->ijl"),
            (three, (one, two), "l,ij->ijl"),
        ):
            inner = frames[t].T @ between(t, s) @ frames[s]
            third = third - np.einsum(pattern, shifts[alone], inner)
        squares = {}
        for (t, s), total in self._squares.items():
            gap, shift = gaps[t], shifts[s]
            linear = 2 * gap[:, None] * (between(t, s) @ frames[s])
            squares[t, s] = total / known.weight - linear - np.outer(variances[t] + gap**2, shift)
        return ViewMoments(
            known.count,
            known.weight,
            list(known.means),
            variances,
            cross,
            self.core,
            self.frames,
            third,
            squares,
        )


def _square_products(view: Any, center: Any, scores: Any, weights: Any) -> Any:
    """The sum (d_t, q) of w (x - c)^2 y'."""
    weighted = scores if weights is None else scores * weights[:, None]
    if scipy.sparse.issparse(view):
        powers = np.asarray(view.multiply(view).T @ weighted)
        return (
            powers
            - 2 * center[:, None] * np.asarray(view.T @ weighted)
            + np.outer(center**2, weighted.sum(axis=0))
        )
    return ((view - center) ** 2).T @ weighted


class StreamedViewMoments:
    """A `ViewMomentAccumulator` whose frames the first samples choose.

    Batches are held until there are enough rows for the leading directions of every view against
    the others; views of few features keep all their directions.

    Parameters
    ----------
    rank : int, directions kept per view
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._waiting: list[tuple[list[Any], Any]] = []
        self._chosen: ViewMomentAccumulator | None = None

    def update(self, views: list[Any], weights: Any = None) -> Self:
        """Add samples: one (n, d_t) array or sparse matrix per view."""
        if self._chosen is not None:
            self._chosen.update(views, weights)
        else:
            self._waiting.append((views, weights))
            enough = max(_FEWEST_ROWS, _ROWS_PER_DIRECTION * self.rank)
            if sum(batch[0].shape[0] for batch, _ in self._waiting) >= enough:
                self._choose()
        return self

    def _choose(self) -> ViewMomentAccumulator:
        if self._chosen is None:
            known = ViewCovariances()
            for views, weights in self._waiting:
                known.update(views, weights)
            core = best_core(known, self.rank)
            frames = [leading_directions(known, core, t, self.rank) for t in core]
            sparse = [scipy.sparse.issparse(view) for view in self._waiting[0][0]]
            centers = [
                np.zeros_like(mean) if thin else mean.copy()
                for mean, thin in zip(known.means, sparse, strict=True)
            ]
            self._chosen = ViewMomentAccumulator(core, frames, centers)
            waiting, self._waiting = self._waiting, []
            for views, weights in waiting:
                self._chosen.update(views, weights)
        return self._chosen

    def merge(self, other: Self) -> Self:
        """Add the samples that another accumulator with the same frames has seen."""
        if not isinstance(other, StreamedViewMoments):
            raise InvalidInputError(
                f"cannot merge a {type(other).__name__} into a {type(self).__name__}"
            )
        if other._chosen is not None:
            if self._chosen is None:
                self._chosen = other._chosen.spawn()
                waiting, self._waiting = self._waiting, []
                for views, weights in waiting:
                    self._chosen.update(views, weights)
            self._chosen.merge(other._chosen)
        for views, weights in other._waiting:
            self.update(views, weights)
        return self

    def spawn(self) -> StreamedViewMoments:
        """An empty accumulator with the same frames."""
        twin = StreamedViewMoments(self.rank)
        twin._chosen = self._choose().spawn()
        return twin

    def fix(self, accumulator: ViewMomentAccumulator) -> Self:
        """Go on from an accumulator whose frames are chosen."""
        self._chosen = accumulator
        return self

    @property
    def covariances(self) -> ViewCovariances:
        """Means and cross-covariances of all samples so far."""
        return self._choose().covariances

    def finalize(self) -> ViewMoments:
        """The central moments of all samples so far."""
        return self._choose().finalize()


def standardized(known: ViewCovariances) -> tuple[list[Any], dict[tuple[int, int], Any]]:
    """Deviations (d_t,) of the features (1 where they do not vary), and the cross-correlations."""
    scales = [np.sqrt(np.where(v > 0, v, 1.0)) for v in known.variances]
    correlations = {
        (t, s): matrix / np.outer(scales[t], scales[s]) for (t, s), matrix in known.cross.items()
    }
    return scales, correlations


def best_core(known: ViewCovariances, rank: int) -> tuple[int, int, int]:
    """The three views whose cross-correlations are best conditioned at a rank."""
    choices = list(combinations(range(len(known.means)), 3))
    if len(choices) == 1:
        return choices[0]
    correlations = standardized(known)[1]
    smallest = {}
    with one_blas_thread():
        for pair, matrix in correlations.items():
            values = np.linalg.svd(matrix, compute_uv=False)
            smallest[pair] = float(values[min(rank, len(values)) - 1])
    return max(choices, key=lambda core: min(smallest[p] for p in combinations(core, 2)))


def leading_directions(
    known: ViewCovariances, core: tuple[int, int, int], view: int, rank: int
) -> Any:
    """The directions (d_t, q) of a view that correlate most with the other two of three."""
    width = len(known.means[view])
    if width <= max(_WHOLE, rank):
        return np.eye(width)
    scales, correlations = standardized(known)
    blocks = [
        correlations[view, s] if view < s else correlations[s, view].T for s in core if s != view
    ]
    with one_blas_thread():
        left = np.linalg.svd(np.hstack(blocks), full_matrices=False)[0][:, :rank]
        return np.linalg.qr(left / scales[view][:, None])[0]
