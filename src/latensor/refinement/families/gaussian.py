"""Gaussian mixtures with full, tied, diagonal or spherical covariances, entries missing or not.

The family works in coordinates y = (x - centre) T, T whitening all data (full, tied) or scaling
them (diag, spherical, and wherever entries are missing). Expectation maximization commutes with
such a map; only rounding and starting values depend on it. NaN stands for an unobserved entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
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
    log_determinants,
    smallest_variances,
    triangle,
)
from latensor.refinement.families.gaussian_densities import (
    Densities,
    MixtureState,
    Points,
    products_of,
)
from latensor.refinement.families.missing import Patterns
from latensor.refinement.family import Family
from latensor.refinement.responsibilities import normalize_rows
from latensor.value_files import storable

# Up to so many features their products are cheaper than Cholesky factors (0.9 against 1.7
# microseconds per row at d 20, k 10; 3.8 against 1.9 at d 50, k 5).
_FEW_FEATURES = 20
# A component never loses all its weight: it could not come back.
_SMALLEST_WEIGHT = 1e-10
# Logarithms of standard deviations move at most this far from the last step when it is
# extrapolated.
_LONGEST_STEP = 1.5
# Variances whose inverses and products are numbers too.
_SMALLEST_VARIANCE = 1e-280
# A component is collapsed if its smallest variance is this part of that of all rows while it has
# fewer than 5 rows per feature.
_COLLAPSED, _ROWS_PER_FEATURE = 1e-4, 5
# Rows completed at a time.
_BLOCK = 1024
_EPS = float(np.finfo(float).eps)
# Rounding of E y^2 - (E y)^2, in coordinates where E y^2 is 1.
_ROUNDING = 16 * _EPS


@storable
@dataclass(frozen=True, eq=False)
class GaussianFamily(Family[MixtureState]):
    """Mixtures of N(mu_j, S_j), S_j of one of four shapes.

    Attributes
    ----------
    covariance_type : "full", "tied", "diag" or "spherical"
    centre : (d,)
    transform : T, (d, d) or its diagonal (d,)
    floor : what is added to covariances in these coordinates: (d, d) full and tied, (d,) diag,
        a number for spherical
    products : bool, whether full covariances work on the products of the entries of a row
    common : bool, whether all spherical components share one variance
    """

    covariance_type: str
    centre: Any
    transform: Any
    floor: Any
    products: bool = False
    common: bool = False

    @staticmethod
    def of(
        covariance_type: str,
        mean: Any,
        covariance: Any,
        reg_covar: float,
        *,
        missing: bool = False,
        common: bool = False,
    ) -> GaussianFamily:
        """The family in coordinates in which data of this mean and covariance are standardized.

        `reg_covar` is in the squared units of the data, but no more than that fraction of the
        variance v of a feature, so that small units are fitted as well as large ones:
        T' diag(reg_covar min(1, v)) T in these coordinates.

        Parameters
        ----------
        mean, covariance : (d,), (d, d) of all rows; of the covariance only the diagonal is used
            for diag and spherical, and where entries are missing
        reg_covar : float, added to all variances
        missing : bool, whether entries may be unobserved
        common : bool, whether all spherical components share one variance
        """
        width = len(mean)
        products = covariance_type == FULL and width <= _FEW_FEATURES
        variances = np.maximum(np.diag(covariance), 0.0)
        # What equal entries vary by.
        rounding = np.maximum((16 * _EPS * np.asarray(mean)) ** 2, _SMALLEST_VARIANCE)
        if covariance_type == SPHERICAL:
            unit = float(variances.mean())
            unit = unit if unit > float(rounding.mean()) else 1.0
            units = np.full(width, np.sqrt(unit))
            return GaussianFamily.scaled(covariance_type, mean, units, reg_covar, common=common)
        # Each feature has a unit of its own: one that varies little is not rounding of others.
        units = np.sqrt(np.where(variances > rounding, variances, 1.0))
        if covariance_type == DIAG or missing:
            return GaussianFamily.scaled(covariance_type, mean, units, reg_covar)
        values, vectors = np.linalg.eigh(covariance / units / units[:, None])
        turned = vectors / np.sqrt(np.maximum(values, width * _EPS))
        floors = (turned.T * _added(units, reg_covar)) @ turned + _ROUNDING * np.eye(width)
        return GaussianFamily(covariance_type, mean, turned / units[:, None], floors, products)

    @staticmethod
    def scaled(
        covariance_type: str, centre: Any, units: Any, reg_covar: float, *, common: bool = False
    ) -> GaussianFamily:
        """The family in coordinates that divide every feature by a unit (d,) of its own.

        Parameters
        ----------
        centre : (d,)
        reg_covar, common : as in `of`
        """
        floors: Any = np.maximum(_added(units, reg_covar), _ROUNDING)
        products = covariance_type == FULL and len(units) <= _FEW_FEATURES
        if covariance_type == SPHERICAL:
            floors = float(floors.min())
        elif covariance_type != DIAG:
            floors = np.diag(floors)
        return GaussianFamily(covariance_type, centre, 1 / units, floors, products, common)

    @property
    def width(self) -> int:
        """The number of features d."""
        return len(self.centre)

    @property
    def log_volume(self) -> float:
        """Log |T|, which turns densities of y into densities of x."""
        if self.transform.ndim == 1:
            return float(np.log(np.abs(self.transform)).sum())
        return float(np.linalg.slogdet(self.transform)[1])

    # ------------------------------------------------------------------ coordinates
    def prepare(self, batch: Batch) -> Points:
        """Rows in these coordinates; those of one pattern of unobserved entries come together."""
        gaps = np.asarray(batch.rows, dtype=np.float64) - self.centre
        missing = np.isnan(gaps)
        if missing.any():
            gaps[missing] = 0.0
            return self._incomplete(gaps, batch, ~missing)
        inner = gaps * self.transform if self.transform.ndim == 1 else gaps @ self.transform
        return self._complete(inner, batch.weights, batch.keys)

    def points_at(self, inner: Any) -> Points:
        """Rows (n, d) that are given in these coordinates."""
        keys = np.arange(len(inner), dtype=np.uint64)
        return self._complete(inner, np.ones(len(inner)), keys)

    def _complete(self, inner: Any, weights: Any, keys: Any) -> Points:
        if not self.products and self.covariance_type in (FULL, TIED):
            return Points((inner,), weights, keys)
        products = products_of(self.covariance_type, inner)
        return Points((products[:, : self.width],), weights, keys, products)

    def _incomplete(self, gaps: Any, batch: Batch, observed: Any) -> Points:
        # Whitening mixes entries: unobserved ones are then left in the units of the features.
        scales = self.transform if self.transform.ndim == 1 else np.ones(self.width)
        inner = gaps * scales
        volumes = observed @ np.log(scales)
        if self.covariance_type in (DIAG, SPHERICAL):
            seen = observed.astype(np.float64)
            return Points((inner,), batch.weights, batch.keys, observed=seen, volumes=volumes)
        order, patterns = Patterns.of(observed)
        return Points(
            (inner[order],),
            batch.weights[order],
            batch.keys[order],
            patterns=patterns,
            order=order,
            volumes=volumes[order],
        )

    def inside(self, state: MixtureState) -> MixtureState:
        """A state of the features in these coordinates."""
        means, transform = state.means - self.centre, self.transform
        if transform.ndim == 2:
            inner = transform.T @ state.covariances @ transform
            inner = (inner + np.swapaxes(inner, -1, -2)) / 2
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
    def expect(self, state: MixtureState, prepared: Batch) -> dict[str, Any]:
        """Sums of the expectation step over prepared rows."""
        assert isinstance(prepared, Points)
        if prepared.patterns is not None and self.transform.ndim == 2:
            return self._expect_unwhitened(state, prepared)
        densities = Densities(self.covariance_type, state)
        total: dict[str, Any] | None = None
        for block in densities.blocks(prepared):
            fractions, context = densities.joint(block)
            value = block.weights @ normalize_rows(fractions, block.weights)
            found = densities.sums(block, fractions, context)
            found["log_likelihood"] = float(value)
            found["weight"] = block.weight
            total = found if total is None else {n: total[n] + found[n] for n in found}
        assert total is not None
        total["log_likelihood"] += float(prepared.weights @ self.volumes(prepared))
        return densities.unfolded(total)

    def volumes(self, points: Points) -> Array:
        """Log |T| (n,) of the observed entries, which turns densities of y into those of x."""
        if points.volumes is None:
            return np.full(len(points), self.log_volume)
        volumes: Array = points.volumes
        return volumes

    def _unwhitened(self, state: MixtureState) -> tuple[GaussianFamily, MixtureState]:
        """Family and state in the units of the features."""
        plain = replace(self, transform=np.ones(self.width))
        return plain, plain.inside(self.outside(state))

    def _expect_unwhitened(self, state: MixtureState, points: Points) -> dict[str, Any]:
        plain, outer = self._unwhitened(state)
        sums = plain.expect(outer, points)
        turned = self.transform.T @ sums["second"] @ self.transform
        return {**sums, "first": sums["first"] @ self.transform, "second": turned}

    def joint(self, state: MixtureState, points: Points) -> Any:
        """Log w_j + log p(y | j) (n, k) in these coordinates, log |T| left out."""
        densities = Densities(self.covariance_type, state)
        return np.concatenate([densities.joint(block)[0] for block in densities.blocks(points)])

    def sums(self, state: MixtureState, points: Points, fractions: Any) -> dict[str, Any]:
        """The sums for given responsibilities times weights (n, k), without likelihood."""
        densities = Densities(self.covariance_type, state)
        total: dict[str, Any] | None = None
        start = 0
        for block in densities.blocks(points):
            stop = start + len(block)
            context = densities.joint(block)[1] if block.patterns is not None else None
            found = densities.sums(block, fractions[start:stop], context)
            total = found if total is None else {n: total[n] + found[n] for n in found}
            start = stop
        assert total is not None
        return densities.unfolded(total)

    def log_density(self, state: MixtureState, prepared: Batch) -> Array:
        """Log w_j + log p(x | j) (n, k) of prepared rows, in their first order."""
        assert isinstance(prepared, Points)
        if prepared.patterns is not None and self.transform.ndim == 2:
            plain, outer = self._unwhitened(state)
            return plain.log_density(outer, prepared)
        logs = self.joint(state, prepared) + self.volumes(prepared)[:, None]
        if prepared.order is None:
            return logs
        result = np.empty_like(logs)
        result[prepared.order] = logs
        return result

    def impute(self, state: MixtureState, rows: Any) -> Any:
        """Rows (n, d) with unobserved entries replaced by their conditional means."""
        result = np.array(rows, dtype=np.float64)
        places = np.flatnonzero(np.isnan(result).any(axis=1))
        if not len(places):
            return result
        # A component that does not see an entry completes it by its own regression: as full.
        full = replace(self, covariance_type=FULL)
        matrices = np.ascontiguousarray(
            as_matrices(self.covariance_type, state.covariances, len(state.weights), self.width)
        )
        densities = Densities(FULL, MixtureState(state.weights, state.means, matrices))
        keys = np.arange(len(places), dtype=np.uint64)
        points = full.prepare(Batch((result[places],), np.ones(len(places)), keys))
        for block in densities.blocks(points):
            fractions, (conditionals, _) = densities.joint(block)
            normalize_rows(fractions)
            for low in range(0, len(block), _BLOCK):
                part = block.take(slice(low, low + _BLOCK))
                assert part.patterns is not None
                index = part.patterns.index
                completed = conditionals.completed(part.rows, index, state.means, matrices)
                inner = np.einsum("nj,nja->na", fractions[low : low + _BLOCK], completed)
                outer, target = inner / self.transform + self.centre, places[part.order]
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
            if self.common:
                scatter = np.full(len(counts), max(float(scatter.sum()), 0.0) / seen.sum())
            else:
                scatter = np.maximum(scatter, 0.0) / seen.sum(axis=1)
            covariances = np.where(unseen.all(axis=1), state.covariances, scatter + self.floor)
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
            logs = width * LOG_TWO_PI + log_determinants(kind, state.covariances, width)
            if kind == FULL:
                solved = np.linalg.solve(state.covariances, second + scatter)
                return value - float(counts @ logs + np.einsum("jaa->", solved)) / 2
            solved = np.linalg.solve(state.covariances, second + scatter.sum(axis=0))
            return value - float(counts.sum() * logs + np.trace(solved)) / 2
        observed = sums["observed"]
        variances = as_diagonals(kind, state.covariances, width)
        value -= float((observed * (LOG_TWO_PI + np.log(variances))).sum()) / 2
        if kind == DIAG:
            scatter = second - 2 * means * first + observed * means**2
            return value - float((scatter / variances).sum()) / 2
        scatter = second + (observed * means**2 - 2 * means * first).sum(axis=1)
        return value - float((scatter / state.covariances).sum()) / 2

    def collapsed(self, state: MixtureState, weight: float) -> Array:
        """Which components (k,) have shrunk onto fewer rows than determine a covariance."""
        if self.covariance_type == TIED:
            return np.zeros(len(state.weights), dtype=bool)
        narrow = smallest_variances(self.covariance_type, state.covariances) < _COLLAPSED
        few = state.weights * weight < _ROWS_PER_FEATURE * self.width
        return np.asarray(narrow & few)

    # ------------------------------------------------------------------ coordinates of states
    def pack(self, state: MixtureState) -> Any:
        """The parameters as one unbounded vector, means in standard deviations of the data.

        Covariances S = L L' become log diag(L), and L diag(L)^-1 below the diagonal.
        """
        head = [np.log(state.weights), state.means.ravel()]
        if self.covariance_type in (FULL, TIED):
            lower = np.atleast_3d(cholesky(state.covariances).T).T
            diagonal = np.diagonal(lower, axis1=1, axis2=2)
            rows, columns = triangle(self.width, below=True)
            inner = (lower / diagonal[:, None, :])[:, rows, columns]
            return np.concatenate([*head, np.log(diagonal).ravel(), inner.ravel()])
        return np.concatenate([*head, np.log(state.covariances).ravel() / 2])

    def unpack(self, vector: Any, like: MixtureState) -> MixtureState:
        """The parameters of such a vector; scales stay within a factor of those of `like`."""
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
            logs = np.full(count, weights @ logs) if self.common else logs
            return MixtureState(weights, means, np.maximum(np.exp(2 * logs), self.floor))
        matrices = 1 if self.covariance_type == TIED else count
        rows, columns = triangle(width, below=True)
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


def _added(units: Any, reg_covar: float) -> Any:
    """What is added to the variances of features over their units (d,)."""
    return reg_covar * np.minimum(1 / units, 1.0) ** 2
