"""Mean, covariance and third powers of rows as plain sums around a centre of the frame.

Plain addition is what scales, groups and merges exactly; around a centre near the mean it loses no
more digits than Chan's update (moving rows of variance one by 1e6 changes variances by 3e-13).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.batches import only_rounding, refuse_overflow, refuse_underflow
from latensor.moments.second import Covariance, CrossCovariance
from latensor.moments.sums import Sums, Tree, plus, symmetric_matrix, upper_triangle
from latensor.moments.third import ThirdMoment
from latensor.moments.third_sums import ThirdSums, displacement, third_sums
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class CovarianceSums(Sums):
    """Weight, mean and covariance of rows.

    Attributes
    ----------
    centre : (d,), what is subtracted from every row
    """

    centre: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            rows, weighted = centred(batch.rows, self.centre, batch.weights)
            first, second = products(rows, weighted, self.centre, batch.weights)
        refuse_overflow(second, "second")
        refuse_underflow(rows, self.centre, np.diagonal(second))
        return {"count": len(batch), "weight": batch.weight, "first": first, "second": second}

    def message(self) -> Tree:
        return packed(self.sums, "second")

    def received(self, message: Tree) -> Self:
        return replace(self, sums=unpacked(message, "second"))

    def merge(self, other: Self) -> Self:
        if other.sums is not None and not np.array_equal(self.centre, other.centre):
            if self.sums is None:
                return other.recentred(self.centre)
            return super().merge(other.recentred(self.centre))
        return replace(self, sums=plus(self.sums, other.sums))

    def finalize(self) -> Covariance:
        sums = self.seen()
        refuse_overflow(sums["second"], "second")
        weight, count = float(sums["weight"]), int(sums["count"])
        gap = sums["first"] / weight
        covariance = sums["second"] / weight - np.outer(gap, gap)
        mean = self.centre + gap
        # Scaled to variance one, what rounding leaves of a constant would look like a signal.
        constant = only_rounding(mean, np.diagonal(covariance), count)
        if constant.any():
            covariance = np.where(constant[:, None] | constant, 0.0, covariance)
        return Covariance(count, weight, mean, covariance)

    def recentred(self, centre: Array) -> Self:
        """The same sums seen from another centre."""
        sums = self.seen()
        move = self.centre - centre
        cross = np.outer(sums["first"], move)
        moved = {
            **sums,
            "first": sums["first"] + sums["weight"] * move,
            "second": sums["second"] + cross + cross.T + sums["weight"] * np.outer(move, move),
        }
        return replace(self, centre=centre, sums=moved)


@storable
@dataclass(frozen=True, eq=False)
class ThirdPowerSums(Sums):
    """Third powers of rows along a basis.

    Attributes
    ----------
    centre : (d,)
    basis : (d, r), orthonormal columns
    squares : bool, whether x_i^2 x_l is summed too
    """

    centre: Array
    basis: Array
    squares: bool = False

    def summed(self, batch: Batch) -> dict[str, Any]:
        found = third_sums(batch.rows, batch.weights, self.centre, self.basis, squares=self.squares)
        sums = {"third": found.third, "norm": found.norm_third}
        return {**sums, "squares": found.square_third} if self.squares else sums

    def central(self, known: Covariance) -> ThirdMoment:
        """The central moments, once mean and covariance of the same rows are known."""
        sums = self.seen()
        extra = displacement(known.mean - self.centre, known.covariance, self.basis, self.squares)
        found = ThirdSums(sums["third"], sums["norm"], sums.get("squares"))
        found = found.combined(1 / known.weight, extra, -1.0)
        return ThirdMoment(
            known.count,
            known.weight,
            known.mean,
            known.covariance,
            self.basis,
            found.third,
            found.norm_third,
            found.square_third,
        )


def packed(sums: Tree, *names: str) -> Tree:
    """Sums of which some are symmetric matrices, as they travel: the upper triangles of those."""
    if sums is None:
        return None
    return {**sums, **{name: upper_triangle(sums[name]) for name in names}}


def unpacked(sums: Tree, *names: str) -> Tree:
    """Sums that travelled, their symmetric matrices whole."""
    if sums is None:
        return None
    return {**sums, **{name: symmetric_matrix(sums[name]) for name in names}}


def centred(rows: Any, centre: Array, weights: Array) -> tuple[Any, Any]:
    """Rows minus a centre, without and with their weights; sparse rows stay as they are."""
    if scipy.sparse.issparse(rows):
        rows = rows.astype(np.float64)
        return rows, scipy.sparse.diags_array(weights) @ rows
    rows = rows.astype(np.float64) - centre
    return rows, rows * weights[:, None]


def products(rows: Any, weighted: Any, centre: Array, weights: Array) -> tuple[Array, Array]:
    """The sums of x - c and (x - c)(x - c)'.

    Sparse rows are never made dense: a column that is mostly zero has a variance above the square
    of its mean, so that subtracting the centre from the products loses no digits.
    """
    if not scipy.sparse.issparse(rows):
        return weighted.sum(axis=0), weighted.T @ rows
    plain = np.asarray(rows.T @ weights)
    second = np.asarray((weighted.T @ rows).todense())
    total = float(weights.sum())
    cross = np.outer(plain, centre)
    return plain - total * centre, second - cross - cross.T + total * np.outer(centre, centre)


def centre_of(batch: Batch) -> Array:
    """The mean (d,) of a first block, around which sums are taken."""
    return mean_of(batch.rows, batch.weights)


def mean_of(rows: Any, weights: Array) -> Array:
    """The weighted mean (d,) of rows, zero where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        centre = np.asarray(rows.T @ weights, dtype=np.float64) / weights.sum()
    return centre if np.isfinite(centre).all() else np.zeros(rows.shape[1])


@storable
@dataclass(frozen=True, eq=False)
class CrossCovarianceSums(Sums):
    """Weight, means and the three covariances of pairs of rows.

    Attributes
    ----------
    x_centre, y_centre : (d1,) and (d2,), what is subtracted from every row
    """

    x_centre: Array
    y_centre: Array

    def summed(self, batch: Batch) -> dict[str, Any]:
        (left, right), weights = batch.parts, batch.weights
        with np.errstate(over="ignore", invalid="ignore"):
            x, weighted_x = centred(left, self.x_centre, weights)
            y, weighted_y = centred(right, self.y_centre, weights)
            x_first, xx = products(x, weighted_x, self.x_centre, weights)
            y_first, yy = products(y, weighted_y, self.y_centre, weights)
            xy = weighted_x.T @ y
            xy = np.asarray(xy.todense() if scipy.sparse.issparse(xy) else xy)
            if scipy.sparse.issparse(x):
                # Of a sparse view the centre is subtracted from the products.
                plain_y = (
                    y_first + batch.weight * self.y_centre if scipy.sparse.issparse(y) else y_first
                )
                xy = xy - np.outer(self.x_centre, plain_y)
            if scipy.sparse.issparse(y):
                xy = xy - np.outer(x_first, self.y_centre)
        refuse_underflow(x, self.x_centre, np.diagonal(xx))
        refuse_underflow(y, self.y_centre, np.diagonal(yy), "y")
        return {
            "count": len(batch),
            "weight": batch.weight,
            "x": x_first,
            "y": y_first,
            "xx": xx,
            "yy": yy,
            "xy": xy,
        }

    def merge(self, other: Self) -> Self:
        if other.sums is None:
            return self
        same = np.array_equal(self.x_centre, other.x_centre) and np.array_equal(
            self.y_centre, other.y_centre
        )
        moved = other if same else other.recentred(self.x_centre, self.y_centre)
        return replace(self, sums=plus(self.sums, moved.sums))

    def message(self) -> Tree:
        return packed(self.sums, "xx", "yy")

    def received(self, message: Tree) -> Self:
        return replace(self, sums=unpacked(message, "xx", "yy"))

    def recentred(self, x_centre: Array, y_centre: Array) -> Self:
        """The same sums seen from other centres."""
        sums, moves = self.seen(), {"x": self.x_centre - x_centre, "y": self.y_centre - y_centre}
        weight = sums["weight"]
        moved = {**sums, **{v: sums[v] + weight * move for v, move in moves.items()}}
        for a, b in ("xx", "yy", "xy"):
            crossed = np.outer(sums[a], moves[b]) + np.outer(moves[a], sums[b])
            moved[a + b] = sums[a + b] + crossed + weight * np.outer(moves[a], moves[b])
        return replace(self, x_centre=x_centre, y_centre=y_centre, sums=moved)

    def finalize(self) -> CrossCovariance:
        sums = self.seen()
        weight = float(sums["weight"])
        gaps = {"x": sums["x"] / weight, "y": sums["y"] / weight}
        found = {}
        for (a, b), name in (("xx", "X"), ("yy", "y"), ("xy", "X and y")):
            refuse_overflow(sums[a + b], "second", name)
            found[a + b] = sums[a + b] / weight - np.outer(gaps[a], gaps[b])
        return CrossCovariance(
            int(sums["count"]),
            weight,
            self.x_centre + gaps["x"],
            self.y_centre + gaps["y"],
            found["xx"],
            found["yy"],
            found["xy"],
        )
