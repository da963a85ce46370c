"""Gaussian mixtures with full, tied, diagonal or spherical covariances, entries missing or not.

The family works in coordinates y = (x - centre) T, T whitening all data (full, tied) or scaling
them (diag, spherical, and wherever entries are missing). Expectation maximization commutes with
such a map; only rounding and starting values depend on it. NaN stands for an unobserved entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.refinement.families.covariances import (
    DIAG,
    FULL,
    SPHERICAL,
    TIED,
    as_diagonals,
    as_matrices,
    cholesky,
    inverse_factors,
    log_determinants,
)
from latensor.refinement.families.missing import Conditionals, Patterns

_LOG_TWO_PI = float(np.log(2 * np.pi))
# Rows worked on at a time: features and responsibilities stay in the cache.
_BLOCK = 1024
# Up to so many features their products are cheaper than Cholesky factors, even made anew in every
# pass; where they are held, as long as there are d / 5 components (recipe: microseconds per row).
_PRODUCTS_ANEW = 10
_COMPONENTS_PER_FEATURE = 0.2
# Bytes of products that are held.
_MOST_HELD = 200_000_000
# In whitened coordinates the linear form of the density loses 16 digits over this; below, the
# quadratic form is summed itself.
_NARROW = 1e-10
# A component never loses all its weight: it could not come back.
_SMALLEST_WEIGHT = 1e-10
# Responsibilities below this change no digit of a sum of rows.
_NEGLIGIBLE = 1e-14
# Logarithms of deviations move at most this far from the last step when it is extrapolated.
_LONGEST_STEP = 1.5


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
class Points:
    """Rows in the coordinates of a family, with what every pass over them needs.

    Attributes
    ----------
    rows : (n, d), zero where unobserved
    weights : (n,)
    products : (n, m), (y, y_a y_b for a <= b, 1) of every row; None where they are not used
    observed : (n, d) zeros and ones for diag and spherical, None where all entries are
    patterns : which entries are observed for full and tied, None where all are
    """

    rows: Any
    weights: Any
    products: Any = None
    observed: Any = None
    patterns: Patterns | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Any) -> Points:
        """Some of the rows."""

        def of(part: Any) -> Any:
            return None if part is None else part[chosen]

        patterns = self.patterns
        if patterns is not None:
            patterns = replace(patterns, index=patterns.index[chosen])
        return Points(
            self.rows[chosen], self.weights[chosen], of(self.products), of(self.observed), patterns
        )


@dataclass(frozen=True, eq=False)
class GaussianFamily:
    """Mixtures of N(mu_j, S_j), S_j of one of four shapes.

    Attributes
    ----------
    covariance_type : "full", "tied", "diag" or "spherical"
    centre : (d,)
    transform : T, (d, d) or its diagonal (d,)
    floor : what is added to covariances in these coordinates: (d, d) full and tied, (d,) diag,
        a number for spherical
    """

    covariance_type: str
    centre: Any
    transform: Any
    floor: Any

    @staticmethod
    def of(
        covariance_type: str, mean: Any, covariance: Any, reg_covar: float, missing: bool = False
    ) -> GaussianFamily:
        """The family in coordinates in which data of this mean and covariance are standardized.

        `reg_covar` is in the units of the data: T' (reg_covar I) T in these coordinates.

        Parameters
        ----------
        mean, covariance : (d,), (d, d) of all rows; of the covariance only the diagonal is used
            for diag and spherical, and where entries are missing
        reg_covar : float, added to all variances
        missing : bool, whether entries may be unobserved
        """
        eps = np.finfo(float).eps
        width = len(mean)
        variances = np.maximum(np.diag(covariance), 0.0)
        least = max(float(reg_covar), eps * float(variances.max(initial=0.0)), 1e-280)
        # Rounding of E y^2 - (E y)^2, in coordinates where E y^2 is 1.
        rounding = 16 * eps
        if covariance_type == SPHERICAL:
            scale = 1 / np.sqrt(max(float(variances.mean()), least))
            floor = max(reg_covar * scale**2, rounding)
            return GaussianFamily(covariance_type, mean, np.full(width, scale), floor)
        if covariance_type == DIAG or missing:
            # Each feature has a unit of its own: one that varies little is not rounding of others.
            own = np.maximum(variances, max(float(reg_covar), 1e-280))
            scales = 1 / np.sqrt(own)
            floors = np.maximum(reg_covar * scales**2, rounding)
            floor = floors if covariance_type == DIAG else np.diag(floors)
            return GaussianFamily(covariance_type, mean, scales, floor)
        units = np.sqrt(np.maximum(variances, max(float(reg_covar), 1e-280)))
        values, vectors = np.linalg.eigh(covariance / units / units[:, None])
        values = np.maximum(values, max(width * eps, 1e-280))
        transform = vectors / np.sqrt(values) / units[:, None]
        floor = reg_covar * transform.T @ transform + rounding * np.eye(width)
        return GaussianFamily(covariance_type, mean, transform, floor)

    @property
    def width(self) -> int:
        """The number of features d."""
        return len(self.centre)

    @property
    def log_volume(self) -> float:
        """log |T|, which turns densities of y into densities of x."""
        if self.transform.ndim == 1:
            return float(np.log(np.abs(self.transform)).sum())
        return float(np.linalg.slogdet(self.transform)[1])

    # ------------------------------------------------------------------ coordinates
    def points(self, rows: Any, weights: Any, count: int, hold: bool = False) -> Points:
        """Rows (n, d), NaN where unobserved, as passes with `count` components use them.

        The order of rows with unobserved entries changes for full and tied covariances.

        Parameters
        ----------
        hold : bool, whether the rows will be passed over many times
        """
        return self._points(rows, weights, count, hold)[0]

    def _points(self, rows: Any, weights: Any, count: int, hold: bool) -> tuple[Points, Any]:
        width = self.width
        gaps = np.asarray(rows, dtype=np.float64) - self.centre
        missing = np.isnan(gaps)
        if missing.any():
            gaps[missing] = 0.0
            return self._incomplete(gaps, weights, ~missing)
        inner = gaps * self.transform if self.transform.ndim == 1 else gaps @ self.transform
        products = None
        if self.covariance_type == FULL:
            size = width + width * (width + 1) // 2 + 1
            worthwhile = width <= _PRODUCTS_ANEW or (
                hold
                and count >= _COMPONENTS_PER_FEATURE * width
                and 8 * size * len(inner) <= _MOST_HELD
            )
            products = _products(inner) if worthwhile else None
        return Points(inner, weights, products), None

    def _incomplete(self, gaps: Any, weights: Any, observed: Any) -> tuple[Points, Any]:
        if self.transform.ndim == 2:
            raise ValueError("a family that whitens cannot see rows with unobserved entries")
        inner = gaps * self.transform
        if self.covariance_type in (DIAG, SPHERICAL):
            return Points(inner, weights, observed=observed.astype(np.float64)), None
        order, patterns = Patterns.of(observed)
        return Points(inner[order], weights[order], patterns=patterns), order

    def inside(self, state: MixtureState) -> MixtureState:
        """A state of the features in these coordinates."""
        means, transform = state.means - self.centre, self.transform
        if transform.ndim == 2:
            inner = transform.T @ state.covariances @ transform
            return MixtureState(state.weights, means @ transform, inner)
        factors = self._squared_units(transform)
        return MixtureState(state.weights, means * transform, state.covariances * factors)

    def outside(self, state: MixtureState) -> MixtureState:
        """A state of these coordinates in the features."""
        if self.transform.ndim == 2:
            back = np.linalg.inv(self.transform)
            outer = back.T @ state.covariances @ back
            outer = (outer + np.swapaxes(outer, -1, -2)) / 2
            return MixtureState(state.weights, state.means @ back + self.centre, outer)
        units = 1 / self.transform
        outer = state.covariances * self._squared_units(units)
        return MixtureState(state.weights, state.means * units + self.centre, outer)

    def _squared_units(self, units: Any) -> Any:
        if self.covariance_type == SPHERICAL:
            return units[0] ** 2
        return units**2 if self.covariance_type == DIAG else units[:, None] * units

    # ------------------------------------------------------------------ expectation
    def expect(self, state: MixtureState, batch: Any) -> dict[str, Any]:
        """Sums of the expectation step over a batch, `batch.parts[0]` its rows."""
        points = self.points(batch.parts[0], batch.weights, len(state.weights))
        return self.expect_points(state, points)

    def expect_points(self, state: MixtureState, points: Points) -> dict[str, Any]:
        """The sums over rows that are in these coordinates already."""
        from latensor.refinement.gaussian_kernels._kernels import normalize_rows

        densities = _Densities(self, state)
        total: dict[str, Any] | None = None
        for block in densities.blocks(points):
            shares, context = densities.joint(block)
            value = normalize_rows(shares, block.weights)
            found = densities.sums(block, shares, context)
            found["log_likelihood"] = np.float64(value)
            found["weight"] = block.weights.sum()
            total = found if total is None else {n: total[n] + found[n] for n in found}
        assert total is not None
        total["log_likelihood"] = total["log_likelihood"] + total["weight"] * self.log_volume
        return total

    def joint_points(self, state: MixtureState, points: Points) -> Any:
        """log w_j + log p(y | j) (n, k) in these coordinates, log |T| left out."""
        densities = _Densities(self, state)
        return np.concatenate([densities.joint(block)[0] for block in densities.blocks(points)])

    def sums_points(self, state: MixtureState, points: Points, shares: Any) -> dict[str, Any]:
        """The sums for given responsibilities times weights (n, k), without likelihood."""
        densities = _Densities(self, state)
        total: dict[str, Any] | None = None
        start = 0
        for block in densities.blocks(points):
            stop = start + len(block)
            context = densities.joint(block)[1] if block.patterns is not None else None
            found = densities.sums(block, shares[start:stop], context)
            total = found if total is None else {n: total[n] + found[n] for n in found}
            start = stop
        assert total is not None
        return total

    def log_density(self, state: MixtureState, batch: Any) -> Any:
        """log w_j + log p(x | j) (n, k) of the rows of a batch."""
        rows = batch.parts[0]
        result = np.empty((len(rows), len(state.weights)))
        for part in self._parts(rows):
            points, order = self._points(
                rows[part], np.ones(len(rows[part])), len(state.weights), False
            )
            logs = self.joint_points(state, points) + self.log_volume
            if order is None:
                result[part] = logs
            else:
                result[part[order]] = logs
        return result

    def _parts(self, rows: Any) -> list[Any]:
        """Rows that can be worked on together: complete ones, and those with unobserved entries."""
        incomplete = np.isnan(rows).any(axis=1)
        if not incomplete.any():
            size = 16 * _BLOCK
            return [slice(a, a + size) for a in range(0, len(rows), size)]
        parts = [np.flatnonzero(~incomplete), np.flatnonzero(incomplete)]
        return [part for part in parts if len(part)]

    def impute(self, state: MixtureState, rows: Any) -> Any:
        """Rows (n, d) with unobserved entries replaced by their conditional means."""
        result = np.array(rows, dtype=np.float64)
        places = np.flatnonzero(np.isnan(result).any(axis=1))
        if not len(places):
            return result
        units = self.transform
        count = len(state.weights)
        # A component that does not see an entry completes it by its own regression: as full.
        full = replace(self, covariance_type=FULL)
        matrices = np.ascontiguousarray(
            as_matrices(self.covariance_type, state.covariances, count, self.width)
        )
        known = MixtureState(state.weights, state.means, matrices)
        points, order = full._points(result[places], np.ones(len(places)), count, False)
        assert points.patterns is not None
        for chosen, block in points.patterns.ranges(count):
            conditionals = Conditionals.of(points.patterns.masks[chosen], matrices)
            for low in range(block.start, block.stop, _BLOCK):
                part = slice(low, min(low + _BLOCK, block.stop))
                index = points.patterns.index[part] - chosen.start
                logs = conditionals.log_densities(points.rows[part], index, known.means)
                logs += np.log(known.weights)
                shares = np.exp(logs - logs.max(axis=1, keepdims=True))
                shares /= shares.sum(axis=1, keepdims=True)
                completed = conditionals.completed(
                    points.rows[part], index, known.means, matrices
                )
                inner = np.einsum("nj,nja->na", shares, completed)
                target = places[order[part]]
                outer = inner / units + self.centre
                result[target] = np.where(np.isnan(result[target]), outer, result[target])
        return result

    # ------------------------------------------------------------------ maximization
    def maximize(self, sums: dict[str, Any], state: MixtureState) -> MixtureState:
        """The parameters that the sums maximize; a component without rows stays as it is."""
        counts = np.asarray(sums["count"])
        total = max(float(counts.sum()), np.finfo(float).tiny)
        empty = counts <= _SMALLEST_WEIGHT * total
        counts = np.maximum(counts, _SMALLEST_WEIGHT * total)
        weights = counts / counts.sum()
        kind, first, second = self.covariance_type, sums["first"], sums["second"]
        if kind in (FULL, TIED):
            means = np.where(empty[:, None], state.means, first / counts[:, None])
        else:
            seen = np.maximum(sums["observed"], _SMALLEST_WEIGHT * total)
            unseen = sums["observed"] <= _SMALLEST_WEIGHT * total
            means = np.where(unseen, state.means, first / seen)
        if kind == FULL:
            scatter = second / counts[:, None, None] - means[:, :, None] * means[:, None, :]
            scatter = (scatter + np.swapaxes(scatter, 1, 2)) / 2 + self.floor
            covariances = np.where(empty[:, None, None], state.covariances, scatter)
        elif kind == TIED:
            scatter = (second - (means.T * np.where(empty, 0.0, counts)) @ means) / total
            covariances = (scatter + scatter.T) / 2 + self.floor
        elif kind == DIAG:
            scatter = np.maximum(second / seen - means**2, 0.0) + self.floor
            covariances = np.where(unseen, state.covariances, scatter)
        else:
            scatter = second - (sums["observed"] * means**2).sum(axis=1)
            scatter = np.maximum(scatter, 0.0) / seen.sum(axis=1) + self.floor
            covariances = np.where(unseen.all(axis=1), state.covariances, scatter)
        return MixtureState(weights, means, covariances)

    def complete(self, sums: dict[str, Any], state: MixtureState) -> float:
        """The complete-data log-likelihood at given sums: what `maximize` maximizes."""
        kind, width, means = self.covariance_type, self.width, state.means
        counts, first, second = sums["count"], sums["first"], sums["second"]
        value = float(counts @ np.log(state.weights) + counts.sum() * self.log_volume)
        if kind in (FULL, TIED):
            crossed = first[:, :, None] * means[:, None, :]
            squares = counts[:, None, None] * means[:, :, None] * means[:, None, :]
            scatter = squares - crossed - np.swapaxes(crossed, 1, 2)
            logs = width * _LOG_TWO_PI + log_determinants(kind, state.covariances, width)
            if kind == FULL:
                solved = np.linalg.solve(state.covariances, second + scatter)
                return value - float(counts @ logs + np.einsum("jaa->", solved)) / 2
            solved = np.linalg.solve(state.covariances, second + scatter.sum(axis=0))
            return value - float(counts.sum() * logs + np.trace(solved)) / 2
        observed = sums["observed"]
        variances = as_diagonals(kind, state.covariances, width)
        value -= float((observed * (_LOG_TWO_PI + np.log(variances))).sum()) / 2
        if kind == DIAG:
            scatter = second - 2 * means * first + observed * means**2
            return value - float((scatter / variances).sum()) / 2
        scatter = second + (observed * means**2 - 2 * means * first).sum(axis=1)
        return value - float((scatter / state.covariances).sum()) / 2

    # ------------------------------------------------------------------ coordinates of states
    def pack(self, state: MixtureState) -> Any:
        """The parameters as one vector of unbounded numbers, means in deviations of the data.

        Covariances S = L L' become log diag(L), and L diag(L)^-1 below the diagonal.
        """
        head = [np.log(state.weights), state.means.ravel()]
        if self.covariance_type in (FULL, TIED):
            lower = np.atleast_3d(cholesky(state.covariances).T).T
            diagonal = np.diagonal(lower, axis1=1, axis2=2)
            rows, columns = np.tril_indices(self.width, -1)
            inner = (lower / diagonal[:, None, :])[:, rows, columns]
            return np.concatenate([*head, np.log(diagonal).ravel(), inner.ravel()])
        return np.concatenate([*head, np.log(state.covariances).ravel() / 2])

    def unpack(self, vector: Any, like: MixtureState) -> MixtureState:
        """The parameters of such a vector; deviations stay within a factor of those of `like`."""
        count, width = like.means.shape
        last = count + count * width
        weights = np.exp(vector[:count] - vector[:count].max())
        weights = np.maximum(weights / weights.sum(), _SMALLEST_WEIGHT)
        weights /= weights.sum()
        means = vector[count:last].reshape(count, width)
        if self.covariance_type not in (FULL, TIED):
            known = np.log(like.covariances) / 2
            logs = vector[last:].reshape(like.covariances.shape)
            logs = np.clip(logs, known - _LONGEST_STEP, known + _LONGEST_STEP)
            return MixtureState(weights, means, np.maximum(np.exp(2 * logs), self.floor))
        matrices = 1 if self.covariance_type == TIED else count
        rows, columns = np.tril_indices(width, -1)
        known = np.log(np.diagonal(cholesky(like.covariances), axis1=-2, axis2=-1))
        known = known.reshape(matrices, width)
        middle = last + matrices * width
        logs = vector[last:middle].reshape(matrices, width)
        diagonal = np.exp(np.clip(logs, known - _LONGEST_STEP, known + _LONGEST_STEP))
        lower = np.zeros((matrices, width, width))
        lower[:, rows, columns] = vector[middle:].reshape(matrices, -1)
        lower[:, np.arange(width), np.arange(width)] = 1.0
        lower *= diagonal[:, None, :]
        covariances = lower @ np.swapaxes(lower, 1, 2)
        tied = self.covariance_type == TIED
        return MixtureState(weights, means, covariances[0] if tied else covariances)

    def sample(self, state: MixtureState, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
        """Rows (n, d) in the features and their components (n,), in the order of components."""
        outer = self.outside(state)
        labels = np.repeat(np.arange(len(outer.weights)), rng.multinomial(n, outer.weights))
        noise = rng.standard_normal((n, self.width))
        if self.covariance_type in (FULL, TIED):
            lower = np.broadcast_to(
                cholesky(outer.covariances), (len(outer.weights), self.width, self.width)
            )
            for j in range(len(outer.weights)):
                noise[labels == j] = noise[labels == j] @ lower[j].T
        else:
            variances = as_diagonals(self.covariance_type, outer.covariances, self.width)
            noise *= np.sqrt(variances)[labels]
        return outer.means[labels] + noise, labels


def _products(inner: Any) -> Any:
    n_rows, width = inner.shape
    rows, columns = np.triu_indices(width)
    result = np.empty((n_rows, width + len(rows) + 1))
    result[:, :width] = inner
    place = width
    for a in range(width):
        size = width - a
        np.multiply(inner[:, a, None], inner[:, a:], out=result[:, place : place + size])
        place += size
    result[:, -1] = 1.0
    return result


class _Densities:
    """The joint log densities of a state and the sums that responsibilities give, by blocks."""

    def __init__(self, family: GaussianFamily, state: MixtureState) -> None:
        self.kind, self.width, self.state = family.covariance_type, family.width, state
        self.count = len(state.weights)
        self.logs = np.log(state.weights)
        if self.kind in (FULL, TIED):
            self.lower = cholesky(state.covariances)
            logs = 2 * np.log(np.diagonal(self.lower, axis1=-2, axis2=-1)).sum(axis=-1)
            self.constants = self.logs - (self.width * _LOG_TWO_PI + logs) / 2
            self.inverse = inverse_factors(self.lower)
            self.narrow = bool(
                np.diagonal(self.lower, axis1=-2, axis2=-1).min() ** 2 < _NARROW
            )
            self._natural: Any = None
            self._joined: Any = None
        else:
            self.variances = as_diagonals(self.kind, state.covariances, self.width)

    def blocks(self, points: Points) -> Any:
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
        """log w_j + log p(y | j) (n, k), and what `sums` can use again."""
        if self.kind in (DIAG, SPHERICAL):
            return self._diagonal(points), None
        if points.patterns is not None:
            matrices = np.ascontiguousarray(
                as_matrices(self.kind, self.state.covariances, self.count, self.width)
            )
            conditionals = Conditionals.of(points.patterns.masks, matrices)
            logs = conditionals.log_densities(
                points.rows, points.patterns.index, self.state.means
            )
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
        if self._natural is None:
            precisions = self.inverse @ np.swapaxes(self.inverse, 1, 2)
            slopes = (precisions @ self.state.means[:, :, None])[:, :, 0]
            rows, columns = np.triu_indices(self.width)
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
        logs = points.rows @ (means * precisions).T
        if self.kind == SPHERICAL:
            norms = np.einsum("ij,ij->i", points.rows, points.rows)
            logs -= norms[:, None] * (precisions[:, 0] / 2)
        else:
            logs -= (points.rows**2) @ (precisions / 2).T
        entries = -(_LOG_TWO_PI + np.log(self.variances) + means**2 * precisions) / 2
        if points.observed is None:
            logs += entries.sum(axis=1)
        else:
            logs += points.observed @ entries.T
        logs += self.logs
        return logs

    def sums(self, points: Points, shares: Any, context: Any) -> dict[str, Any]:
        """The sums of the maximization from responsibilities times weights (n, k)."""
        rows, counts = points.rows, shares.sum(axis=0)
        if self.kind in (DIAG, SPHERICAL):
            first = shares.T @ rows
            if points.observed is None:
                observed = np.broadcast_to(counts[:, None], first.shape)
            else:
                observed = shares.T @ points.observed
            if self.kind == DIAG:
                second = shares.T @ rows**2
            else:
                second = shares.T @ np.einsum("ij,ij->i", rows, rows)
            return {"count": counts, "first": first, "second": second, "observed": observed}
        if points.patterns is not None:
            conditionals, matrices = context
            first, second = conditionals.sums(
                rows, points.patterns.index, self.state.means, matrices, shares
            )
            second = second.sum(axis=0) if self.kind == TIED else second
            return {"count": counts, "first": first, "second": second}
        if self.kind == TIED:
            second = (rows * points.weights[:, None]).T @ rows
            return {"count": counts, "first": shares.T @ rows, "second": second}
        if points.products is not None:
            return self._unfolded(shares.T @ points.products)
        second = np.empty((self.count, self.width, self.width))
        for j in range(self.count):
            share = shares[:, j]
            owned = np.flatnonzero(share > _NEGLIGIBLE)
            if 2 * len(owned) < len(rows):
                chosen = rows[owned]
                second[j] = (chosen * share[owned, None]).T @ chosen
            else:
                second[j] = (rows * share[:, None]).T @ rows
        return {"count": counts, "first": shares.T @ rows, "second": second}

    def _unfolded(self, sums: Any) -> dict[str, Any]:
        width = self.width
        second = np.empty((self.count, width, width))
        rows, columns = np.triu_indices(width)
        second[:, rows, columns] = sums[:, width:-1]
        second[:, columns, rows] = sums[:, width:-1]
        return {"count": sums[:, -1], "first": sums[:, :width], "second": second}
