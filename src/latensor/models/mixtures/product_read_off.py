"""Product mixtures read off three moments: features independent given the component.

Standardized features z have the covariance C = L L' + Psi, Psi diagonal, L (d, k-1) holding the
conditional means: factor analysis gives both, and y = A'z with A = Psi^-1 L (L' Psi^-1 L)^-1 has
the whitened conditional means. Entries of the third moment with a repeated index hold the unknown
spread of the features; they are replaced by what the model says, and the two steps, reading off
and refilling, are repeated without another pass over the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.estimation.factor_analysis import Factors, factor_analysis
from latensor.estimation.homogeneous import HomogeneousMixture, read_homogeneous
from latensor.models.mixtures.feature_views import frames_of, read_views
from latensor.models.mixtures.spherical_read_off import spectral_gap
from latensor.moments.third import ThirdMoment
from latensor.refinement.families.gaussian_densities import MixtureState

_REFILL_TOL = 1e-12
_REFILL_ROUNDS = 100
_MEMORY = 6
# Off-diagonal fraction below which no second start of the completion is tried.
_CONVERGED = 0.02
_LEAST_UNIQUENESS = 0.005
# Within variances further than this from their mean are noise of the read-off.
_VARIANCE_RANGE = (0.05, 20.0)

Algorithm = str | Callable[..., Any]


@dataclass(frozen=True)
class ProductReadOff:
    """What the moments say about a product mixture.

    Attributes
    ----------
    state : MixtureState, conditional means and variances (k, d) in the features
    uniqueness : (d,), the mean variance of every feature given the component
    off_diagonal : float, of the joint diagonalization
    condition : float, of the whitening
    gap : float, smallest spread of the means over the largest that noise gives
    coherence : float, d / (k-1) times the largest squared row norm of the means' orthonormal
        basis: between 1 (all features tell alike) and d / (k-1) (one feature tells alone)
    """

    state: MixtureState
    uniqueness: Any
    off_diagonal: float
    condition: float
    gap: float
    coherence: float


def identified(n_components: int, n_features: int) -> bool:
    """Whether d features determine k components: a rank k - 1 beside an unknown diagonal.

    (d - r)^2 >= d + r for r = k - 1, and d >= 2 r + 1, so that a feature taken out leaves two sets
    of r that each hold the means.
    """
    rank = n_components - 1
    return n_features >= 2 * rank + 1 and (n_features - rank) ** 2 >= n_features + rank


def views_identified(n_components: int, n_features: int) -> bool:
    """Whether three views of d features can each hold the means of k components."""
    return n_features >= 3 * (n_components - 1) and n_features >= 3


def scales(covariance: Any) -> Any:
    """Deviations (d,) of the features, 1 for those that do not vary."""
    variances = np.diag(covariance)
    return np.sqrt(np.where(variances > 0, variances, 1.0))


def factors_of(correlation: Any, rank: int) -> Factors:
    """The factors of standardized features."""
    return factor_analysis(correlation, rank, _LEAST_UNIQUENESS)


def read_off(
    moment: ThirdMoment,
    n_components: int,
    rng: np.random.Generator,
    algorithm: Algorithm = "auto",
    tol: float = _REFILL_TOL,
) -> ProductReadOff:
    """Weights, conditional means and variances of k components, by completion.

    Parameters
    ----------
    moment : the central moments, with `square_third`
    n_components : int, `identified`
    rng : draws the start of the decomposition
    algorithm : of `read_homogeneous`
    tol : float, what a round of the completion may still move
    """
    scale = scales(moment.covariance)
    correlation = moment.covariance / np.outer(scale, scale)
    squares = moment.square_third / np.outer(scale**2, scale)
    rank = n_components - 1
    factors = factors_of(correlation, rank)
    raw = moment.along(factors.scores / scale[:, None])[0]
    best: HomogeneousMixture | None = None
    # Variances that do not depend on the component leave the repeated entries as they are.
    for modelled in (squares, np.zeros_like(squares)):
        found = _complete(raw, squares, modelled, factors, tol, rng, algorithm)
        if best is None or found.off_diagonal < best.off_diagonal:
            best = found
        if best.off_diagonal < _CONVERGED:
            break
    assert best is not None
    return _assemble(moment, scale, squares, factors, best)


def _complete(
    raw: Any,
    squares: Any,
    modelled: Any,
    factors: Factors,
    tol: float,
    rng: np.random.Generator,
    algorithm: Algorithm,
) -> HomogeneousMixture:
    """Read off and refill the repeated entries until nothing moves.

    The rounds are a fixed point iteration, mixed by Anderson's method: the last few are combined
    so that what they would still move cancels as far as it can.
    """
    mixture: HomogeneousMixture | None = None
    points: list[Any] = []
    moves: list[Any] = []
    for _ in range(_REFILL_ROUNDS if raw.shape[0] else 1):
        third = raw - _repeated(squares - modelled, factors.scores)
        start = None if mixture is None else mixture.vectors
        mixture = read_homogeneous(third, rng, algorithm, start)
        means = mixture.points @ factors.loadings.T
        updated = (means**2 * mixture.weights[:, None]).T @ means
        move = updated - modelled
        if float(np.abs(move).max()) < tol * max(float(np.abs(updated).max()), 1.0):
            break
        points, moves = [*points, updated][-_MEMORY:], [*moves, move][-_MEMORY:]
        modelled = _mixed(points, moves)
    assert mixture is not None
    return mixture


def _mixed(points: list[Any], moves: list[Any]) -> Any:
    """The combination of points (weights sum to 1) whose moves cancel best."""
    if len(points) < 2:
        return points[-1]
    last = moves[-1].ravel()
    differences = np.stack([last - move.ravel() for move in moves[:-1]], axis=1)
    fractions = np.linalg.lstsq(differences, last, rcond=1e-8)[0]
    return points[-1] - sum(
        fraction * (points[-1] - point)
        for fraction, point in zip(fractions, points[:-1], strict=True)
    )


def _repeated(surplus: Any, scores: Any) -> Any:
    """The part of E y (x) y (x) y that comes from entries E z_i z_i z_l, in all three places."""
    product = np.einsum("ip,iq,ir->pqr", scores, scores, surplus @ scores, optimize=True)
    everywhere = product + product.transpose(0, 2, 1) + product.transpose(2, 0, 1)
    # Where i = l the three places are one.
    cubes = np.diag(surplus)
    once = np.einsum("i,ip,iq,ir->pqr", cubes, scores, scores, scores, optimize=True)
    return everywhere - 2 * once


def _assemble(
    moment: ThirdMoment, scale: Any, squares: Any, factors: Factors, mixture: HomogeneousMixture
) -> ProductReadOff:
    means = mixture.points @ factors.loadings.T
    variances = _variances(means, mixture.weights, squares, factors.uniqueness)
    state = MixtureState(mixture.weights, moment.mean + means * scale, variances * scale**2)
    rank = factors.loadings.shape[1]
    values = (factors.loadings**2).sum(axis=0)
    correlation = moment.covariance / np.outer(scale, scale)
    gap = spectral_gap(np.linalg.eigvalsh(correlation)[::-1], rank, moment.weight)
    return ProductReadOff(
        state,
        factors.uniqueness * scale**2,
        mixture.off_diagonal,
        float(np.sqrt(values.max() / max(values.min(), 1e-300))) if rank else 1.0,
        gap,
        coherence(means, rank),
    )


def coherence(means: Any, rank: int) -> float:
    """How unevenly the features tell the components (k, d) apart: d / r max_i |P e_i|^2.

    P projects on the span of the centered means, r its dimension: 1 where all features tell
    alike, d / r where some tell alone. Random views need it small (monograph 4.3).
    """
    if rank == 0:
        return 1.0
    frame = np.linalg.svd(means, full_matrices=False)[2][:rank]
    return float((frame**2).sum(axis=0).max() * means.shape[1] / rank)


def _variances(means: Any, weights: Any, squares: Any, uniqueness: Any) -> Any:
    """Variances (k, d) given the component, by least squares on E z_i^2 z_l for all l but i.

    With s_ji the variance of feature i in component j: E z_i^2 z_l - sum_j w_j mu_ji^2 mu_jl =
    sum_j w_j s_ji mu_jl, and the mean sum_j w_j s_ji is the uniqueness of the feature.
    """
    count, n_features = means.shape
    surplus = squares - (means**2 * weights[:, None]).T @ means
    design = np.vstack([np.ones(count), means.T]) * weights
    result = np.empty((count, n_features))
    with one_blas_thread():
        for i in range(n_features):
            target = np.concatenate([[uniqueness[i]], surplus[i]])
            kept = np.arange(n_features + 1) != i + 1
            result[:, i] = np.linalg.lstsq(design[kept], target[kept], rcond=1e-10)[0]
    low, high = _VARIANCE_RANGE
    return np.clip(result, low * uniqueness, high * uniqueness)


def read_partition(
    moment: ThirdMoment,
    partition: Any,
    n_components: int,
    rng: np.random.Generator,
    algorithm: Algorithm = "auto",
) -> ProductReadOff:
    """A product mixture from a partition of its features into three views (monograph 4.3).

    Parameters
    ----------
    moment : the central moments, with `square_third`; its basis spans the maps of the views
    partition : (d,), the view of every feature, 0, 1 or 2
    n_components : int, `views_identified`
    rng : draws the start of the decomposition
    algorithm : of `read_homogeneous`
    """
    scale = scales(moment.covariance)
    rank = n_components - 1
    found = read_views(moment, frames_of(partition), rank, rng, algorithm, scale)
    squares = moment.square_third / np.outer(scale**2, scale)
    weights, means = found.mixture.weights, found.means
    uniqueness = np.maximum(1 - weights @ means**2, _LEAST_UNIQUENESS)
    variances = _variances(means, weights, squares, uniqueness)
    state = MixtureState(weights, moment.mean + means * scale, variances * scale**2)
    return ProductReadOff(
        state,
        uniqueness * scale**2,
        found.mixture.off_diagonal,
        found.condition,
        found.gap,
        coherence(means, rank),
    )
