"""Gaussian mixtures with spherical or diagonal covariances as families for the polish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.value_files import storable

_LOG_TWO_PI = float(np.log(2 * np.pi))
# A component never loses all its weight: it could not come back.
_SMALLEST_WEIGHT = 1e-10


@storable
@dataclass(frozen=True)
class GaussianState:
    """The parameters of a Gaussian mixture in the coordinates of its family.

    Attributes
    ----------
    weights : (k,)
    means : (k, r)
    variances : (k,) spherical, (k, r) diagonal
    """

    weights: Any
    means: Any
    variances: Any


def _shares(counts: Any) -> Any:
    counts = np.maximum(counts, _SMALLEST_WEIGHT * counts.sum())
    return counts / counts.sum()


@storable
@dataclass(frozen=True)
class SphericalFamily:
    """Mixtures of N(mu_j, s_j I) in R^d, seen in r coordinates y and the norm of x.

    For means in the span of the coordinates |x - mu|^2 = |x|^2 - 2 y' nu + |nu|^2, with |x| the
    norm in all d dimensions: the likelihood is exact at the cost of r of them. The features of a
    sample are (y, |x|^2, 1), of x minus `center`.

    Attributes
    ----------
    center : (d,)
    basis : (d, r) orthonormal columns, None for all of R^d
    common : bool, whether all components share one variance
    floor : float, added to every variance
    unit : float, a typical deviation: what the means are measured in when steps are extrapolated
    """

    center: Any
    basis: Any
    common: bool
    floor: float
    unit: float

    @property
    def dimension(self) -> int:
        """The number of features d."""
        return len(self.center)

    @property
    def width(self) -> int:
        """The number of coordinates r."""
        return self.dimension if self.basis is None else int(self.basis.shape[1])

    def features(self, rows: Any) -> Any:
        """(y, |x|^2, 1) of rows (n, d)."""
        centered = rows.astype(np.float64) - self.center
        width = self.width
        result = np.empty((len(rows), width + 2))
        result[:, :width] = centered if self.basis is None else centered @ self.basis
        np.einsum("ij,ij->i", centered, centered, out=result[:, width])
        result[:, width + 1] = 1.0
        return result

    def inside(self, state: GaussianState) -> GaussianState:
        """A state of the features in these coordinates; means are projected on the basis."""
        means = state.means - self.center
        means = means if self.basis is None else means @ self.basis
        return GaussianState(state.weights, means, state.variances + 0.0)

    def outside(self, state: GaussianState) -> GaussianState:
        """A state of these coordinates in the features."""
        means = state.means if self.basis is None else state.means @ self.basis.T
        return GaussianState(state.weights, means + self.center, state.variances)

    def natural(self, state: GaussianState) -> Any:
        """The coefficients (r + 2, k) of the joint log densities."""
        precisions = 1 / state.variances
        squares = np.einsum("ij,ij->i", state.means, state.means)
        constants = (
            np.log(state.weights)
            - self.dimension / 2 * (_LOG_TWO_PI + np.log(state.variances))
            - squares * precisions / 2
        )
        return np.vstack([state.means.T * precisions, -precisions / 2, constants])

    def maximize(self, sums: Any) -> GaussianState:
        """Means and variances from the sums (k, r + 2)."""
        counts = np.maximum(sums[:, -1], _SMALLEST_WEIGHT * sums[:, -1].sum())
        means = sums[:, :-2] / counts[:, None]
        scatter = np.maximum(sums[:, -2] / counts - np.einsum("ij,ij->i", means, means), 0.0)
        if self.common:
            scatter = np.full(len(counts), counts @ scatter / counts.sum())
        return GaussianState(_shares(counts), means, scatter / self.dimension + self.floor)

    def coordinates(self, state: GaussianState) -> Any:
        """Logarithms of weights and variances, and the means in units of deviation."""
        return _as_vector(state, self.unit)

    def from_coordinates(self, vector: Any, like: GaussianState) -> GaussianState:
        """The parameters of such a vector; variances stay above the floor."""
        return _from_vector(vector, like, self.floor, self.unit, self.common)

    def starting(self, centers: Any, weights: Any, rows: Any) -> GaussianState:
        """A state around centers (k, r): the nearest one owns each of the features `rows`."""
        nearest, distances = _nearest(rows[:, :-2], centers)
        inside = np.einsum("ij,ij->i", rows[:, :-2], rows[:, :-2])
        total = weights.sum()
        variance = float(weights @ (distances + rows[:, -2] - inside)) / total / self.dimension
        count = len(centers)
        shares = np.bincount(nearest, weights=weights, minlength=count) + total / (10 * count)
        spread = np.full(count, max(variance, 0.0) + self.floor)
        return GaussianState(shares / shares.sum(), np.array(centers), spread)

    def deviations(self, state: GaussianState) -> Any:
        """The standard deviation (k, 1) in every coordinate."""
        return np.sqrt(state.variances)[:, None]


@storable
@dataclass(frozen=True)
class DiagonalFamily:
    """Mixtures of N(mu_j, diag(s_j)) in R^d, in standardized coordinates y = (x - center) / scale.

    The features of a sample are (y, y^2, 1).

    Attributes
    ----------
    center, scale : (d,)
    floor : (d,) added to every variance, in standardized coordinates
    """

    center: Any
    scale: Any
    floor: Any

    @property
    def dimension(self) -> int:
        """The number of features d."""
        return len(self.center)

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return len(self.center)

    def features(self, rows: Any) -> Any:
        """(y, y^2, 1) of rows (n, d)."""
        width = self.dimension
        result = np.empty((len(rows), 2 * width + 1))
        inner = result[:, :width]
        np.subtract(rows, self.center, out=inner)
        inner /= self.scale
        np.multiply(inner, inner, out=result[:, width:-1])
        result[:, -1] = 1.0
        return result

    def inside(self, state: GaussianState) -> GaussianState:
        """A state of the features in standardized coordinates."""
        means = (state.means - self.center) / self.scale
        return GaussianState(state.weights, means, state.variances / self.scale**2)

    def outside(self, state: GaussianState) -> GaussianState:
        """A state of standardized coordinates in the features."""
        means = state.means * self.scale + self.center
        return GaussianState(state.weights, means, state.variances * self.scale**2)

    def natural(self, state: GaussianState) -> Any:
        """The coefficients (2 d + 1, k) of the joint log densities of x."""
        precisions = 1 / state.variances
        constants = (
            np.log(state.weights)
            - self.dimension / 2 * _LOG_TWO_PI
            - np.log(self.scale).sum()
            - (np.log(state.variances) + state.means**2 * precisions).sum(axis=1) / 2
        )
        return np.vstack([(state.means * precisions).T, -precisions.T / 2, constants])

    def maximize(self, sums: Any) -> GaussianState:
        """Means and variances from the sums (k, 2 d + 1)."""
        width = self.dimension
        counts = np.maximum(sums[:, -1], _SMALLEST_WEIGHT * sums[:, -1].sum())
        means = sums[:, :width] / counts[:, None]
        variances = np.maximum(sums[:, width:-1] / counts[:, None] - means**2, 0.0)
        return GaussianState(_shares(counts), means, variances + self.floor)

    def coordinates(self, state: GaussianState) -> Any:
        """Logarithms of weights and variances, and the means."""
        return _as_vector(state, 1.0)

    def from_coordinates(self, vector: Any, like: GaussianState) -> GaussianState:
        """The parameters of such a vector; variances stay above the floor."""
        return _from_vector(vector, like, self.floor, 1.0, False)

    def starting(self, centers: Any, weights: Any, rows: Any) -> GaussianState:
        """A state around centers (k, d): the nearest one owns each of the features `rows`."""
        width, count = self.dimension, len(centers)
        nearest, distances = _nearest(rows[:, :width], centers)
        total = weights.sum()
        shares = np.bincount(nearest, weights=weights, minlength=count) + total / (10 * count)
        variance = float(weights @ distances) / total / width
        spread = np.full((count, width), variance) + self.floor
        return GaussianState(shares / shares.sum(), np.array(centers), spread)

    def deviations(self, state: GaussianState) -> Any:
        """The standard deviation (k, d) in every coordinate."""
        return np.sqrt(state.variances)


GaussianFamily = SphericalFamily | DiagonalFamily


def _nearest(rows: Any, centers: Any) -> tuple[Any, Any]:
    """The nearest center of every row and the squared distance to it."""
    squares = np.einsum("ij,ij->i", centers, centers)
    distances = squares - 2 * rows @ centers.T
    nearest = np.argmin(distances, axis=1)
    least = distances[np.arange(len(rows)), nearest] + np.einsum("ij,ij->i", rows, rows)
    return nearest, np.maximum(least, 0.0)


def _as_vector(state: GaussianState, unit: float) -> Any:
    return np.concatenate(
        [
            np.log(state.weights),
            (state.means / unit).ravel(),
            np.log(state.variances).ravel(),
        ]
    )


def _from_vector(
    vector: Any, like: GaussianState, floor: Any, unit: float, common: bool
) -> GaussianState:
    count, width = like.means.shape
    last = count + count * width
    shares = np.exp(vector[:count] - vector[:count].max())
    means = vector[count:last].reshape(count, width) * unit
    # Far extrapolation of a small variance would overflow: it stays within a factor of e^3.
    known = np.log(like.variances)
    wanted = vector[last:].reshape(like.variances.shape)
    variances = np.exp(np.clip(wanted, known - 3, known + 3))
    if common:
        variances = np.full(count, float(shares @ variances / shares.sum()))
    return GaussianState(_shares(shares), means, np.maximum(variances, floor))
