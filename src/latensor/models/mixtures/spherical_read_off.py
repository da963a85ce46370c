"""Spherical Gaussian mixtures read off three moments (monograph 4.2.1, in homogeneous form).

With the covariance C = sum_j w_j (mu_j - m)(mu_j - m)' + s I, s = sum_j w_j s_j, its d - k + 1
smallest eigenvalues are s, and in coordinates y that whiten C - s I the third moment is
sum_j w_j y_j^(x)3 + sym3(b, diag(1/g)), b = sum_j w_j s_j y_j. For a common variance b = 0; else
b is the mean of y times the squared norm of x in the d - k + 1 directions without signal, over
their number: the average of the monograph's M1 over all its choices of a direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from latensor.arrays.threads import one_blas_thread
from latensor.estimation.homogeneous import HomogeneousMixture, read_homogeneous
from latensor.exceptions import InvalidInputError
from latensor.models.mixtures.feature_views import read_views
from latensor.moments.batch import Batch
from latensor.moments.third import ThirdMoment
from latensor.moments.third_sums import symmetric_product
from latensor.refinement.families.gaussian_densities import MixtureState

# Variances further than this from their mean are noise of the read-off.
_VARIANCE_RANGE = (0.2, 5.0)
# The 99th percentile of the largest eigenvalue of noise, in its standard deviations (Tracy and
# Widom).
_TAIL = 2.02
# Points of the search for a variance that no eigenvalue shows.
_GRID = 40
_NARROWEST = 1e-6

Algorithm = str | Callable[..., Any]


@dataclass(frozen=True)
class SphericalReadOff:
    """What the moments say about a spherical mixture.

    Attributes
    ----------
    state : MixtureState, in the features
    basis : (d, k - 1), the directions in which the means vary
    variance : float, the mean variance of a component
    off_diagonal : float, of the joint diagonalization
    condition : float, of the whitening
    gap : float, smallest spread of the means over the largest that noise gives
    """

    state: MixtureState
    basis: Any
    variance: float
    off_diagonal: float
    condition: float
    gap: float

    def above(self, floor: float) -> SphericalReadOff:
        """The same with variances of at least `floor`."""
        state = self.state
        raised = MixtureState(state.weights, state.means, np.maximum(state.covariances, floor))
        return replace(self, state=raised, variance=max(self.variance, floor))


def spectrum(covariance: Any) -> tuple[Any, Any]:
    """Eigenvalues in decreasing order, not negative, and eigenvectors as columns."""
    with one_blas_thread():
        values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])


def identified(n_components: int, n_features: int, common: bool) -> bool:
    """Whether three moments determine the mixture, affinely independent means granted.

    k <= d always; k = d + 1 for a common variance, which then no eigenvalue shows, but which the
    third moment does from two dimensions on.
    """
    if n_components <= n_features:
        return True
    return n_components == n_features + 1 and common and n_features >= 2


def check_spread(head: Batch) -> None:
    """Refuse weights one of which leaves no digit to the samples beside it.

    For samples that vary while their covariance is zero.
    """
    largest = int(np.argmax(head.weights))
    rest = float(np.delete(head.weights, largest).sum())
    if 0 < rest < np.finfo(float).eps * float(head.weights[largest]):
        raise InvalidInputError(
            f"sample_weight[{largest}] is {head.weights[largest]:.3g}, beside which the "
            f"{len(head) - 1} other samples (together {rest:.3g}) are lost in rounding: give "
            "weights that are alike to 15 digits"
        )


def smallest_variance(reg_covar: float, covariance: Any) -> float:
    """The least variance of a component: `reg_covar`, at most that fraction of the data's."""
    total = float(np.trace(covariance)) / len(covariance)
    return max(reg_covar * min(1.0, total), np.finfo(float).eps * total) or 1e-100


def read_off(
    moment: ThirdMoment,
    n_components: int,
    common: bool,
    rng: np.random.Generator,
    algorithm: Algorithm = "auto",
) -> SphericalReadOff:
    """Weights, means and variances of k <= d + 1 components from three moments.

    Parameters
    ----------
    moment : the central moments
    n_components : int, `identified`
    common : bool, whether all components share one variance
    rng : draws the start of the decomposition
    algorithm : of `read_homogeneous`
    """
    values, vectors = spectrum(moment.covariance)
    n_features, rank = len(values), n_components - 1
    if n_components <= n_features:
        noise = float(values[rank:].mean())
        third, slope = _whitened(moment, values, vectors, rank, noise, common)
        mixture = read_homogeneous(third, rng, algorithm)
    else:
        noise, mixture = _search_variance(moment, values, vectors, rng, algorithm)
        slope = np.zeros(rank)
    signal = _signal(values, rank, noise, moment.weight)
    scale = np.sqrt(signal)
    state = _state(moment, mixture, vectors[:, :rank] * scale, noise, slope)
    gap = spectral_gap(values, rank, moment.weight, noise if rank == n_features else None)
    condition = float(scale[0] / scale[-1]) if rank else 1.0
    return SphericalReadOff(state, vectors[:, :rank], noise, mixture.off_diagonal, condition, gap)


def noise_edge(dimension: int, weight: float) -> float:
    """How far above its variance the covariance of pure noise reaches, in 99 of 100 cases.

    The largest eigenvalue lies around (sqrt n + sqrt d)^2 / n, with a standard deviation of
    (sqrt n + sqrt d)(1 / sqrt n + 1 / sqrt d)^(1/3) / n (Johnstone).
    """
    root, side = np.sqrt(weight), np.sqrt(dimension)
    deviation = (root + side) * (1 / root + 1 / side) ** (1 / 3) / weight
    return float((root + side) ** 2 / weight - 1 + _TAIL * deviation)


def spectral_gap(values: Any, rank: int, weight: float, variance: float | None = None) -> float:
    """The last of `rank` eigenvalues above the noise, over the largest that noise gives.

    If it were noise, it would belong to those after it, whose mean is the variance; where there
    are none after it, the third moment has shown the `variance`. Rounding is below any noise: 0.
    """
    if rank == 0:
        return np.inf
    if values[rank - 1] <= len(values) * np.finfo(np.float64).eps * values[0]:
        return 0.0
    noise = float(values[rank - 1 :].mean()) if variance is None else variance
    edge = noise_edge(len(values) - rank + 1, weight) * noise
    if variance is not None:
        # It has noise of its own: with one component too many the ratio came to 1.03.
        edge *= 2
    return float(values[rank - 1] - noise) / edge if edge > 0 else np.inf


def read_rotation(
    moment: ThirdMoment,
    frames: list[Any],
    n_components: int,
    common: bool,
    rng: np.random.Generator,
    algorithm: Algorithm = "auto",
) -> SphericalReadOff:
    """A spherical mixture from a rotation into three views (monograph 4.3).

    The variances follow from E |x - m|^2 y_t = sum_j w_j y_j (|mu_j - m|^2 + (d + 2) s_j).

    Parameters
    ----------
    moment : the central moments; its basis spans the maps of the views
    frames : three (d, d_t) matrices of orthonormal columns that together span R^d
    n_components, common, rng, algorithm : as for `read_off`
    """
    rank, n_features = n_components - 1, len(moment.mean)
    found = read_views(moment, frames, rank, rng, algorithm)
    mixture, shifted = found.mixture, found.means
    squares = (shifted**2).sum(axis=1)
    total = float(np.trace(moment.covariance))
    noise = max((total - mixture.weights @ squares) / n_features, 1e-6 * total / n_features)
    slope = np.zeros(rank)
    if not common:
        norms = sum(each.T @ moment.basis @ moment.norm_third for each in found.maps) / 3
        slope = (norms - (mixture.weights * squares) @ mixture.points) / (n_features + 2)
    low, high = _VARIANCE_RANGE
    variances = np.clip(noise + mixture.points @ slope, low * noise, high * noise)
    state = MixtureState(mixture.weights, moment.mean + shifted, variances)
    basis = spectrum(moment.covariance)[1][:, :rank]
    return SphericalReadOff(state, basis, noise, mixture.off_diagonal, found.condition, found.gap)


def _signal(values: Any, rank: int, noise: float, weight: float) -> Any:
    """Eigenvalues of the means' covariance, kept above the noise of the estimate."""
    floor = noise * np.sqrt(len(values) / weight)
    smallest = max(floor, 1e-14 * float(values[0]), np.finfo(float).tiny)
    return np.maximum(values[:rank] - noise, smallest)


def _whitened(
    moment: ThirdMoment, values: Any, vectors: Any, rank: int, noise: float, common: bool
) -> tuple[Any, Any]:
    """The third moment of the whitened means, and b."""
    signal = _signal(values, rank, noise, moment.weight)
    directions = vectors[:, :rank] / np.sqrt(signal)
    third, norm_third = moment.along(directions)
    slope = np.zeros(rank)
    rest = len(values) - rank
    if not common and rest:
        slope = (norm_third - np.einsum("a,aai->i", signal, third)) / rest
        third = third - symmetric_product(slope, np.diag(1 / signal))
    return third, slope


def _state(
    moment: ThirdMoment, mixture: HomogeneousMixture, lift: Any, noise: float, slope: Any
) -> MixtureState:
    means = moment.mean + mixture.points @ lift.T
    low, high = _VARIANCE_RANGE
    smallest = max(noise, np.finfo(float).tiny)
    variances = np.clip(noise + mixture.points @ slope, low * smallest, high * smallest)
    return MixtureState(mixture.weights, means, variances)


def _search_variance(
    moment: ThirdMoment, values: Any, vectors: Any, rng: np.random.Generator, algorithm: Algorithm
) -> tuple[float, HomogeneousMixture]:
    """The variance at which d + 1 whitened means come out orthogonal, and the components.

    The third moment of a common variance needs no correction; only the whitening depends on the
    variance, and at the right one the off-diagonal fraction of the third moment vanishes.
    """
    rank = len(values)
    seed = int(rng.integers(2**63))

    def mixture_at(noise: float) -> HomogeneousMixture:
        third = _whitened(moment, values, vectors, rank, noise, True)[0]
        return read_homogeneous(third, np.random.default_rng(seed), algorithm)

    def loss(place: float) -> float:
        return float(np.sqrt(mixture_at(smallest - np.exp(place)).off_diagonal))

    # Where the whitening degenerates, at 0, one entry outgrows all others and the fraction vanishes
    # as well: a minimum inside is the right one.
    smallest = float(values[-1])
    # Below the noise of the eigenvalues no signal is told from another.
    narrowest = max(_NARROWEST, float(np.sqrt(rank / moment.weight)))
    grid = np.log(smallest) + np.linspace(np.log(min(narrowest, 0.5)), np.log(0.999), _GRID)
    losses = np.array([loss(place) for place in grid])
    inside = np.flatnonzero((losses[1:-1] <= losses[:-2]) & (losses[1:-1] <= losses[2:])) + 1
    best = inside[np.argmin(losses[inside])] if len(inside) else int(np.argmin(losses))
    place = float(grid[best])
    if 0 < best < _GRID - 1 and losses[best] < min(losses[best - 1], losses[best + 1]):
        # A kink: golden sections, to rounding.
        bracket = tuple(grid[best - 1 : best + 2])
        place = minimize_scalar(loss, bracket, method="golden", options={"xtol": 1e-14}).x
    noise = smallest - float(np.exp(place))
    return noise, mixture_at(noise)
