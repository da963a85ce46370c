"""Where the signal of noisy sensors lives: C = A A' + noise, taken apart (monograph 4.3).

For d sensors and k < d sources the covariance shows noise of equal size in all sensors by its
d - k equal smallest eigenvalues, and noise of differing sizes by factor analysis, wherever
(d - k)^2 > d + k. Both can be refuted by the same covariance; then nothing but the fourth
cumulant, which no Gaussian noise enters, is left to go by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc

from latensor.arrays.threads import one_blas_thread
from latensor.estimation.factor_analysis import factor_analysis
from latensor.models.ica.scores import MOST_SAMPLES
from latensor.moments.second import Covariance
from latensor.value_files import storable

# A noise model is given up when noise like it would fit so badly once in a thousand times.
_REFUTED = 1e-3
# The smallest fraction of a sensor's variance that is noise: less is an improper solution.
_LEAST_NOISE = 1e-6


@storable
@dataclass(frozen=True)
class SignalSpace:
    """Coordinates in which the signal is white.

    Attributes
    ----------
    kind : "none" (no noise), "isotropic", "diagonal", or "unknown", where the covariance shows no
        noise and `projection` whitens signal and noise together
    projection : (d, k), W: the scores are y = W'(x - E x), and W'L = I
    lift : (d, k), L: the covariance of the signal is L L'
    sensor_noise : (d,), noise variance of every sensor
    p_value : float, of noise of this kind; NaN where nothing could refute it
    """

    kind: str
    projection: Any
    lift: Any
    sensor_noise: Any
    p_value: float

    @property
    def noise(self) -> Any:
        """The covariance (k, k) of the noise in the scores, in units of the signal's."""
        return (self.projection.T * self.sensor_noise) @ self.projection

    def within(self, basis: Any) -> SignalSpace:
        """The same with scores that use nothing but the coordinates B'x of a basis (d, r).

        With noise S they are the most exact unbiased ones,
        (A'S^-1 A)^-1 A'S^-1 B'x for A = B'L and S the noise of B'x.
        """
        inside = basis @ (basis.T @ self.projection)
        if np.allclose(inside, self.projection, rtol=1e-12, atol=1e-14 * np.abs(inside).max()):
            return self
        seen = basis.T @ self.lift
        with one_blas_thread():
            if self.sensor_noise.any():
                noise = (basis.T * self.sensor_noise) @ basis
                weighted = np.linalg.solve(noise, seen)
                scores = np.linalg.solve(seen.T @ weighted, weighted.T)
            else:
                scores = np.linalg.pinv(seen)
        projection = basis @ scores.T
        return replace(self, projection=projection)


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a covariance, decreasing, the directions, and how many are not zero."""

    values: Any
    vectors: Any
    rank: int


def spectrum(covariance: Any, precision: float = 0.0) -> Spectrum:
    """The spectrum of a covariance (d, d) whose entries are known to a relative `precision`."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh(covariance)
    values, vectors = np.maximum(values[::-1], 0.0), signed(vectors[:, ::-1])
    floor = max(len(values) * np.finfo(float).eps, precision) * values[0]
    return Spectrum(values, vectors, int((values > floor).sum()))


def signed(vectors: Any) -> Any:
    """Columns with their entry of largest magnitude positive, whatever signs LAPACK gave them."""
    largest = np.argmax(np.abs(vectors), axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return np.ascontiguousarray(vectors * signs)


def whitened(known: Spectrum, count: int, kind: str) -> SignalSpace:
    """The leading directions, signal and noise together brought to variance one."""
    scale = np.sqrt(known.values[:count])
    directions = known.vectors[:, :count]
    no_noise = np.zeros(len(known.values))
    return SignalSpace(kind, directions / scale, directions * scale, no_noise, float("nan"))


def isotropic(known: Spectrum, count: int, weight: float) -> SignalSpace:
    """Noise of equal variance in all sensors: the mean of the eigenvalues after the first k."""
    rest = known.values[count : known.rank]
    n_features, width = len(known.values), len(rest)
    variance = float(rest.sum()) / (n_features - count)
    signal = np.sqrt(np.maximum(known.values[:count] - variance, 1e-3 * known.values[:count]))
    directions = known.vectors[:, :count]
    freedom = (width + 2) * (width - 1) // 2
    p_value = float("nan")
    if freedom > 0 and known.rank == n_features:
        distance = width * np.log(rest.mean()) - float(np.log(rest).sum())
        p_value = float(chdtrc(freedom, min(weight, MOST_SAMPLES) * max(distance, 0.0)))
    noise = np.full(n_features, variance)
    return SignalSpace("isotropic", directions / signal, directions * signal, noise, p_value)


def separable(n_features: int, count: int) -> bool:
    """Whether a covariance determines k factors and the noise of every one of d sensors.

    At equality, as for 3 factors of 6 sensors, two different answers may fit exactly.
    """
    return (n_features - count) ** 2 > n_features + count and n_features > count


def diagonal(covariance: Any, count: int, weight: float) -> SignalSpace:
    """Noise of differing variances, by maximum likelihood factor analysis."""
    scale = np.sqrt(np.diag(covariance))
    found = factor_analysis(covariance / np.outer(scale, scale), count, _LEAST_NOISE)
    size, scale = len(scale), scale[:, None]
    noise = scale[:, 0] ** 2 * found.uniqueness
    freedom = ((size - count) ** 2 - size - count) // 2
    p_value = float("nan")
    if freedom > 0:
        effective = min(weight, MOST_SAMPLES) - 1 - (2 * size + 5) / 6 - 2 * count / 3
        p_value = float(chdtrc(freedom, max(effective, 1.0) * max(found.misfit, 0.0)))
    return SignalSpace("diagonal", found.scores / scale, found.loadings * scale, noise, p_value)


def signal_space(known: Covariance, seen: Spectrum, count: int) -> SignalSpace:
    """The signal of k sources under Gaussian noise, by the simplest noise that is not refuted.

    `kind` is "unknown" where all are, or could not be: the projection then whitens signal and
    noise together, and `p_value` is that of the best model that was refuted.
    """
    n_features = len(seen.values)
    if seen.rank <= count:
        return whitened(seen, count, "none" if seen.rank < n_features else "unknown")
    found = isotropic(seen, count, known.weight)
    p_value = found.p_value
    if p_value > _REFUTED:
        return found
    if seen.rank == n_features and separable(n_features, count):
        found = diagonal(known.covariance, count, known.weight)
        if found.p_value > _REFUTED:
            return found
        p_value = max(found.p_value, p_value)
    return replace(whitened(seen, count, "unknown"), p_value=p_value)


def assumed_space(known: Covariance, seen: Spectrum, space: SignalSpace) -> SignalSpace:
    """What is left of an "unknown" space: noise of equal size if nothing refutes it, or none."""
    count = space.projection.shape[1]
    if np.isnan(space.p_value) and seen.rank > count:
        return isotropic(seen, count, known.weight)
    return replace(space, kind="none")


def count_sources(known: Covariance, seen: Spectrum) -> int:
    """The fewest sources whose noise the covariance does not refute; all directions otherwise."""
    for count in range(1, seen.rank):
        if signal_space(known, seen, count).kind in ("isotropic", "diagonal"):
            return count
    return max(seen.rank, 1)
