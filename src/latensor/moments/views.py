"""Means, cross-covariances and third cross moments of several views, as plain sums.

Third moments are kept between three views, along a fixed frame of each and around fixed centres,
and brought to the means at the end, which is exact, since means and cross-covariances are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.arrays.threads import one_blas_thread
from latensor.moments.batch import Batch
from latensor.moments.batches import only_rounding, refuse_overflow
from latensor.moments.sums import Sums
from latensor.value_files import storable

# Views of up to so many features keep all their directions in a stream.
_WHOLE = 32

Core = tuple[int, int, int]
Pairs = dict[tuple[int, int], Any]


@dataclass(frozen=True)
class ViewCovariances:
    """Means, variances and cross-covariances of views x_1, x_2, ... of the same samples.

    Attributes
    ----------
    count : int
    weight : float
    means : list of (d_t,)
    variances : list of (d_t,), zero where a feature does not vary
    cross : (t, s) -> (d_t, d_s) cross-covariance, t < s
    """

    count: int
    weight: float
    means: list[Any]
    variances: list[Any]
    cross: Pairs

    def between(self, t: int, s: int) -> Any:
        """The cross-covariance (d_t, d_s) of two views."""
        return self.cross[t, s] if t < s else self.cross[s, t].T


@dataclass(frozen=True)
class ViewMoments:
    """Central third moments of views, beside their covariances.

    Attributes
    ----------
    known : ViewCovariances
    core : the three views of the third moment
    frames : three (d_t, q_t) matrices F_t
    third : (q_1, q_2, q_3), E (F_1'x_1) (x) (F_2'x_2) (x) (F_3'x_3)
    squares : (t, s) -> (d_t, q_s), E (x_t)_i^2 F_s'x_s for every view t and core view s != t
    """

    known: ViewCovariances
    core: Core
    frames: list[Any]
    third: Any
    squares: Pairs


@storable
@dataclass(frozen=True, eq=False)
class ViewCovarianceSums(Sums):
    """Sums for `ViewCovariances`.

    Attributes
    ----------
    centres : (d_t,) per view, what is subtracted from every row; zero for sparse views
    """

    centres: tuple[Array, ...]

    def summed(self, batch: Batch) -> dict[str, Any]:
        # An overflow is told by `finalize`.
        with np.errstate(over="ignore", invalid="ignore"):
            views = _centred(batch, self.centres)
            weighted = [_weighted(view, batch.weights) for view in views]
            cross = {
                f"{t} {s}": _dense(weighted[t].T @ views[s])
                for t, s in combinations(range(len(views)), 2)
            }
            firsts = {str(t): _column_sums(view) for t, view in enumerate(weighted)}
            squares = {
                str(t): _column_sums(_product(a, b))
                for t, (a, b) in enumerate(zip(weighted, views, strict=True))
            }
        return {
            "count": len(batch),
            "weight": batch.weight,
            "first": firsts,
            "square": squares,
            "cross": cross,
        }

    def finalize(self) -> ViewCovariances:
        sums = self.seen()
        weight, count = float(sums["weight"]), int(sums["count"])
        for total in (*sums["cross"].values(), *sums["square"].values()):
            refuse_overflow(total, "second")
        views = range(len(self.centres))
        gaps = [sums["first"][str(t)] / weight for t in views]
        means = [centre + gap for centre, gap in zip(self.centres, gaps, strict=True)]
        variances = []
        for t in views:
            found = sums["square"][str(t)] / weight - gaps[t] ** 2
            constant = only_rounding(means[t], found, count)
            variances.append(np.where(constant, 0.0, found))
        cross = {
            (t, s): sums["cross"][f"{t} {s}"] / weight - np.outer(gaps[t], gaps[s])
            for t, s in combinations(views, 2)
        }
        return ViewCovariances(count, weight, means, variances, cross)

    def recentred(self, centres: tuple[Array, ...]) -> ViewCovarianceSums:
        """The same sums seen from other centres."""
        sums = self.seen()
        weight, views = sums["weight"], range(len(centres))
        moves = [old - new for old, new in zip(self.centres, centres, strict=True)]
        firsts = [sums["first"][str(t)] for t in views]
        moved = {
            **sums,
            "first": {str(t): firsts[t] + weight * moves[t] for t in views},
            "square": {
                str(t): sums["square"][str(t)] + moves[t] * (2 * firsts[t] + weight * moves[t])
                for t in views
            },
            "cross": {
                f"{t} {s}": sums["cross"][f"{t} {s}"]
                + np.outer(firsts[t], moves[s])
                + np.outer(moves[t], firsts[s] + weight * moves[s])
                for t, s in combinations(views, 2)
            },
        }
        return replace(self, centres=centres, sums=moved)


@storable
@dataclass(frozen=True, eq=False)
class ViewThirdSums(Sums):
    """Sums of third products of three views along frames, and of squares times these.

    Attributes
    ----------
    centres : (d_t,) per view
    core : the three views of the third moment
    frames : three (d_t, q_t) matrices
    """

    centres: tuple[Array, ...]
    core: Core
    frames: tuple[Array, ...]

    def summed(self, batch: Batch) -> dict[str, Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = {}
            for t, frame in zip(self.core, self.frames, strict=True):
                scores[t] = np.asarray(batch.parts[t] @ frame) - self.centres[t] @ frame
            first, second, third = (scores[t] for t in self.core)
            weighted = first * batch.weights[:, None]
            pairs = second[:, :, None] * third[:, None, :]
            total = weighted.T @ pairs.reshape(len(pairs), -1)
            squares = {}
            for t, view in enumerate(batch.parts):
                others = [s for s in self.core if s != t]
                joined = np.hstack([scores[s] for s in others]) * batch.weights[:, None]
                found = _square_products(view, self.centres[t], joined)
                edges = np.cumsum([scores[s].shape[1] for s in others])[:-1]
                for s, part in zip(others, np.split(found, edges, axis=1), strict=True):
                    squares[f"{t} {s}"] = part
        shape = tuple(frame.shape[1] for frame in self.frames)
        return {"third": total.reshape(shape), "squares": squares}

    def central(self, known: ViewCovariances) -> ViewMoments:
        """The central moments, once means and cross-covariances of the same rows are known."""
        sums = self.seen()
        for total in (sums["third"], *sums["squares"].values()):
            refuse_overflow(total, "third")
        gaps = [mean - centre for mean, centre in zip(known.means, self.centres, strict=True)]
        frames = dict(zip(self.core, self.frames, strict=True))
        shifts = {t: frames[t].T @ gaps[t] for t in self.core}
        one, two, three = self.core
        third = sums["third"] / known.weight
        third = third - np.einsum("i,j,l->ijl", shifts[one], shifts[two], shifts[three])
        for alone, (t, s), pattern in (
            (one, (two, three), "i,jl->ijl"),
            (two, (one, three), "j,il->ijl"),
            (three, (one, two), "l,ij->ijl"),
        ):
            inner = frames[t].T @ known.between(t, s) @ frames[s]
            third = third - np.einsum(pattern, shifts[alone], inner)
        squares = {}
        for pair, total in sums["squares"].items():
            t, s = map(int, pair.split())
            gap, shift = gaps[t], shifts[s]
            linear = 2 * gap[:, None] * (known.between(t, s) @ frames[s])
            moved = np.outer(known.variances[t] + gap**2, shift)
            squares[t, s] = total / known.weight - linear - moved
        return ViewMoments(known, self.core, list(self.frames), third, squares)


def centres_of(batch: Batch) -> tuple[Array, ...]:
    """The means (d_t,) of a first block, around which sums are taken; zero for sparse views."""
    found = []
    for view in batch.parts:
        mean = np.zeros(view.shape[1])
        if not scipy.sparse.issparse(view):
            with np.errstate(over="ignore", invalid="ignore"):
                mean = batch.weights @ view.astype(np.float64) / batch.weight
        found.append(mean if np.isfinite(mean).all() else np.zeros(view.shape[1]))
    return tuple(found)


def _centred(batch: Batch, centres: tuple[Array, ...]) -> list[Any]:
    return [
        view.astype(np.float64) if scipy.sparse.issparse(view) else view.astype(np.float64) - centre
        for view, centre in zip(batch.parts, centres, strict=True)
    ]


def _weighted(view: Any, weights: Array) -> Any:
    if scipy.sparse.issparse(view):
        return scipy.sparse.csr_array(view.multiply(weights[:, None]))
    return view * weights[:, None]


def _product(one: Any, other: Any) -> Any:
    return one.multiply(other) if scipy.sparse.issparse(one) else one * other


def _column_sums(view: Any) -> Array:
    return np.asarray(view.sum(axis=0), dtype=np.float64).ravel()


def _dense(matrix: Any) -> Array:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)


def _square_products(view: Any, centre: Array, weighted: Array) -> Array:
    """The sum (d_t, q) of (x - c)^2 y', y already weighted."""
    if scipy.sparse.issparse(view):
        powers = np.asarray(view.multiply(view).T @ weighted)
        linear = 2 * centre[:, None] * np.asarray(view.T @ weighted)
        return powers - linear + np.outer(centre**2, weighted.sum(axis=0))
    squares = view.astype(np.float64) - centre
    squares *= squares
    return np.asarray(squares.T @ weighted)


def standardized(known: ViewCovariances) -> tuple[list[Any], Pairs]:
    """Deviations (d_t,) of the features (1 where they do not vary), and the cross-correlations."""
    scales = [np.sqrt(np.where(v > 0, v, 1.0)) for v in known.variances]
    correlations = {
        (t, s): matrix / np.outer(scales[t], scales[s]) for (t, s), matrix in known.cross.items()
    }
    return scales, correlations


def best_core(known: ViewCovariances, rank: int) -> Core:
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


def leading_directions(known: ViewCovariances, core: Core, view: int, rank: int) -> Any:
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
