"""Rows of a Gaussian mixture in the coordinates of its family: densities and sums, by blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.moments.batch import Batch
from latensor.refinement.families.covariances import (
    DIAG,
    FULL,
    LOG_TWO_PI,
    SPHERICAL,
    TIED,
    as_diagonals,
    as_matrices,
    cholesky,
    inverse_factors,
    triangle,
)
from latensor.refinement.families.missing import Conditionals, Patterns
from latensor.value_files import storable

# Rows worked on at a time: products and responsibilities stay in the cache.
_BLOCK = 2048
# In whitened coordinates the linear form of the density loses 16 digits over this; below, the
# quadratic form is summed itself.
_NARROW = 1e-10
# Responsibilities below this change no digit of a sum of rows.
_NEGLIGIBLE = 1e-14


@storable
@dataclass(frozen=True, eq=False)
class MixtureState:
    """The parameters of a Gaussian mixture, in the coordinates of its family.

    Attributes
    ----------
    weights : (k,)
    means : (k, d)
    covariances : (k, d, d) full, (d, d) tied, (k, d) diag, (k,) spherical
    """

    weights: Any
    means: Any
    covariances: Any


@dataclass(frozen=True, eq=False)
class Points(Batch):
    """Rows in the coordinates of a family, with what every pass over them needs.

    Attributes
    ----------
    parts : (rows,), zero where unobserved
    products : (n, m), features in which log densities are linear, the last of them 1; None where
        they are not used
    observed : (n, d) zeros and ones for diag and spherical, None where all entries are
    patterns : which entries are observed for full and tied, None where all are
    order : (n,), where each row stood before those of one pattern were brought together
    volumes : (n,), log |T| of the observed entries; None where all are observed
    """

    products: Any = None
    observed: Any = None
    patterns: Patterns | None = None
    order: Any = None
    volumes: Any = None

    def take(self, chosen: Any) -> Points:
        """Some of the rows; a slice or increasing indices."""

        def of(part: Any) -> Any:
            return None if part is None else part[chosen]

        patterns = self.patterns
        if patterns is not None:
            patterns = replace(patterns, index=patterns.index[chosen])
        return Points(
            (self.rows[chosen],),
            self.weights[chosen],
            self.keys[chosen],
            of(self.products),
            of(self.observed),
            patterns,
            of(self.order),
            of(self.volumes),
        )


def products_of(kind: str, inner: Any) -> Any:
    """Features of rows y (n, d) in which log densities are linear.

    (y, y_a y_b for a <= b, 1) for full covariances, (y, y_a^2, 1) for diagonal ones, and
    (y, |y|^2, 1) for spherical ones.
    """
    n_rows, width = inner.shape
    if kind != FULL:
        result = np.empty((n_rows, 2 * width + 1 if kind == DIAG else width + 2))
        result[:, :width], result[:, -1] = inner, 1.0
        if kind == DIAG:
            np.multiply(inner, inner, out=result[:, width:-1])
        else:
            np.einsum("ij,ij->i", inner, inner, out=result[:, width])
        return result
    result = np.empty((n_rows, (width + 1) * (width + 2) // 2))
    result[:, :width] = inner
    place = width
    for a in range(width):
        size = width - a
        np.multiply(inner[:, a, None], inner[:, a:], out=result[:, place : place + size])
        place += size
    result[:, -1] = 1.0
    return result


class Densities:
    """The joint log densities of a state, and the sums that responsibilities give.

    Parameters
    ----------
    covariance_type : "full", "tied", "diag" or "spherical"
    state : MixtureState
    """

    def __init__(self, covariance_type: str, state: MixtureState) -> None:
        self.kind, self.state = covariance_type, state
        self.width = state.means.shape[1]
        self.count = len(state.weights)
        self.logs = np.log(state.weights)
        if self.kind in (FULL, TIED):
            self.lower = cholesky(state.covariances)
            logs = 2 * np.log(np.diagonal(self.lower, axis1=-2, axis2=-1)).sum(axis=-1)
            self.constants = self.logs - (self.width * LOG_TWO_PI + logs) / 2
            self.inverse = inverse_factors(self.lower)
            self.narrow = bool(np.diagonal(self.lower, axis1=-2, axis2=-1).min() ** 2 < _NARROW)
            self._joined: Any = None
        else:
            self.variances = as_diagonals(self.kind, state.covariances, self.width)
            self.narrow = bool(state.covariances.min() < _NARROW)
        self._natural: Any = None

    def blocks(self, points: Points) -> Iterator[Points]:
        """Rows few enough to work on at a time."""
        if points.patterns is not None:
            for chosen, rows in points.patterns.ranges(self.count):
                part = points.take(rows)
                assert part.patterns is not None
                inner = Patterns(part.patterns.masks[chosen], part.patterns.index - chosen.start)
                yield replace(part, patterns=inner)
            return
        if len(points) <= _BLOCK:
            yield points
            return
        for start in range(0, len(points), _BLOCK):
            yield points.take(slice(start, start + _BLOCK))

    def joint(self, points: Points) -> tuple[Any, Any]:
        """Log w_j + log p(y | j) (n, k), and what `sums` can use again."""
        if self.kind in (DIAG, SPHERICAL) and (self.narrow or points.products is None):
            return self._diagonal(points), None
        if points.patterns is not None:
            matrices = np.ascontiguousarray(
                as_matrices(self.kind, self.state.covariances, self.count, self.width)
            )
            conditionals = Conditionals.of(points.patterns.masks, matrices)
            logs = conditionals.log_densities(points.rows, points.patterns.index, self.state.means)
            return logs + self.logs, (conditionals, matrices)
        if self.kind == TIED:
            rows = points.rows @ self.inverse
            means = self.state.means @ self.inverse
            logs = rows @ means.T
            logs += self.constants - np.einsum("ij,ij->i", means, means) / 2
            logs -= np.einsum("ij,ij->i", rows, rows)[:, None] / 2
            return logs, None
        if points.products is not None and not self.narrow:
            return points.products @ self.natural, None
        return self._full(points.rows), None

    @property
    def natural(self) -> Any:
        """The coefficients (m, k) of the joint log densities in the products of a row."""
        if self._natural is None and self.kind != FULL:
            precisions, means = 1 / self.variances, self.state.means
            entries = LOG_TWO_PI + np.log(self.variances) + means**2 * precisions
            halves = -precisions.T[:1] / 2 if self.kind == SPHERICAL else -precisions.T / 2
            constants = self.logs - entries.sum(axis=1) / 2
            self._natural = np.vstack([(means * precisions).T, halves, constants])
        elif self._natural is None:
            precisions = self.inverse @ np.swapaxes(self.inverse, 1, 2)
            slopes = (precisions @ self.state.means[:, :, None])[:, :, 0]
            rows, columns = triangle(self.width)
            halves = np.where(rows == columns, -0.5, -1.0)
            squares = np.einsum("ij,ij->i", slopes, self.state.means)
            self._natural = np.vstack(
                [slopes.T, (precisions[:, rows, columns] * halves).T, self.constants - squares / 2]
            )
        return self._natural

    def _full(self, rows: Any) -> Any:
        if self._joined is None:
            joined = np.ascontiguousarray(np.moveaxis(self.inverse, 0, 1)).reshape(self.width, -1)
            shifts = np.einsum("ja,jab->jb", self.state.means, self.inverse).ravel()
            self._joined = joined, shifts
        joined, shifts = self._joined
        inner = (rows @ joined - shifts).reshape(len(rows), self.count, self.width)
        logs = np.einsum("njb,njb->nj", inner, inner)
        logs *= -0.5
        logs += self.constants
        return logs

    def _diagonal(self, points: Points) -> Any:
        means, precisions = self.state.means, 1 / self.variances
        entries = -(LOG_TWO_PI + np.log(self.variances)) / 2
        if self.narrow:
            logs = np.empty((len(points), self.count))
            for j, (mean, precision) in enumerate(zip(means, precisions, strict=True)):
                squares = (points.rows - mean) ** 2
                squares = squares if points.observed is None else squares * points.observed
                logs[:, j] = squares @ (-precision / 2)
        else:
            logs = points.rows @ (means * precisions).T - (points.rows**2) @ (precisions / 2).T
            entries -= means**2 * precisions / 2
        if points.observed is None:
            logs += entries.sum(axis=1)
        else:
            logs += points.observed @ entries.T
        logs += self.logs
        return logs

    def sums(self, points: Points, fractions: Any, context: Any) -> dict[str, Any]:
        """The sums of the maximization from responsibilities times weights (n, k)."""
        if points.products is not None:
            return {"products": fractions.T @ points.products}
        rows, counts = points.rows, fractions.sum(axis=0)
        if self.kind in (DIAG, SPHERICAL):
            first = fractions.T @ rows
            if points.observed is None:
                observed = np.broadcast_to(counts[:, None], first.shape)
            else:
                observed = fractions.T @ points.observed
            if self.kind == DIAG:
                second = fractions.T @ rows**2
            else:
                second = fractions.T @ np.einsum("ij,ij->i", rows, rows)
            return {"count": counts, "first": first, "second": second, "observed": observed}
        if points.patterns is not None:
            conditionals, matrices = context
            first, second = conditionals.sums(
                rows, points.patterns.index, self.state.means, matrices, fractions
            )
            second = second.sum(axis=0) if self.kind == TIED else second
            return {"count": counts, "first": first, "second": second}
        if self.kind == TIED:
            second = (rows * points.weights[:, None]).T @ rows
            return {"count": counts, "first": fractions.T @ rows, "second": second}
        second = np.empty((self.count, self.width, self.width))
        for j in range(self.count):
            fraction = fractions[:, j]
            owned = np.flatnonzero(fraction > _NEGLIGIBLE)
            if 2 * len(owned) < len(rows):
                chosen = rows[owned]
                second[j] = (chosen * fraction[owned, None]).T @ chosen
            else:
                second[j] = (rows * fraction[:, None]).T @ rows
        return {"count": counts, "first": fractions.T @ rows, "second": second}

    def unfolded(self, found: dict[str, Any]) -> dict[str, Any]:
        """The sums of several blocks by their names, those of products unfolded."""
        if "products" not in found:
            return found
        sums, width = found.pop("products"), self.width
        if self.kind != FULL:
            first, counts = sums[:, :width], sums[:, -1]
            second = sums[:, width:-1] if self.kind == DIAG else sums[:, width]
            observed = np.repeat(counts[:, None], width, axis=1)
            return {
                **found,
                "count": counts,
                "first": first,
                "second": second,
                "observed": observed,
            }
        second = np.empty((self.count, width, width))
        rows, columns = triangle(width)
        second[:, rows, columns] = sums[:, width:-1]
        second[:, columns, rows] = sums[:, width:-1]
        return {**found, "count": sums[:, -1], "first": sums[:, :width], "second": second}
