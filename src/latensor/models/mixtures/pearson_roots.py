"""Two Gaussians on a line from six moments, as Pearson did it in 1894 (monograph 1.1).

In units in which x has mean 0 and variance 1, let X3 = m3, X4 = m4 - 3 and X5 = m5 - 10 m3 be its
third to fifth cumulants. With a = -mu_1 mu_2 > 0, b = mu_1 + mu_2 and u = a b,

    D(a) u = N(a),   2 u^2 - 4 X3 u + q(a) = 0,
    N = -2 X3^3 + 6 X3 X4 a - 3 X5 a^2 - 8 X3 a^3,   D = 4 X3^2 - 3 X4 a - 2 a^3,
    q = -X3^2 + 3 X4 a + 6 a^3,

and 2 N^2 - 4 X3 N D + q D^2 is Pearson's polynomial of degree nine in a. Every positive root gives
the means by the roots of mu^2 - b mu - a, and var_i = 1 - a + mu_i (X3 / a - b) / 3. Of several
admissible ones the sixth moment chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
from numpy.polynomial import polynomial

from latensor.moments.univariate import SixMoments
from latensor.refinement.families.gaussian_densities import MixtureState

_NEWTON_STEPS = 20
_LEAST_VARIANCE = 1e-6
_LEAST_WEIGHT = 1e-6
# Moments that agree to this, in units of their spread under a Gaussian, are met.
_MET = 1e-6


@dataclass(frozen=True)
class Root:
    """A mixture of two Gaussians that answers the moments.

    Attributes
    ----------
    state : MixtureState, means of shape (2, 1)
    exact : bool, whether it meets the first five moments
    misfit : float, distance of its third to sixth moments to those of the samples: each difference
        in units of its spread under a Gaussian, root of p!
    """

    state: MixtureState
    exact: bool
    misfit: float


def mixture_moments(weights: Any, means: Any, variances: Any, order: int) -> Any:
    """The moments of order 0, ..., `order` around zero of Gaussians on a line, (order + 1,)."""
    each = np.ones((order + 1, len(weights)))
    each[1:2] = means
    for p in range(2, order + 1):
        each[p] = means * each[p - 1] + (p - 1) * variances * each[p - 2]
    return each @ weights


def solve(moments: SixMoments) -> tuple[Root, ...]:
    """All mixtures that the moments allow for, the best first.

    Those that meet five moments come first, by how well they meet the sixth; after them what is
    near: the real parts of complex roots, and two Gaussians of equal means.
    """
    scale = float(np.sqrt(moments.central[2]))
    standard = moments.central / scale ** np.arange(7)
    found = []
    for weights, means, variances in _candidates(standard):
        refined = _newton_refined(weights, means, variances, standard)
        found += [each for each in (refined, (weights, means, variances)) if each is not None]
    roots: list[Root] = []
    for weights, means, variances in found:
        gaps = _gaps(weights, means, variances, standard)
        deviation = scale * moments.unit
        state = MixtureState(
            weights, moments.mean + deviation * means[:, None], deviation**2 * variances
        )
        root = Root(state, bool(np.abs(gaps[:3]).max() < _MET), float(np.linalg.norm(gaps)))
        if not any(_same(root, known, deviation) for known in roots):
            roots.append(root)
    return tuple(sorted(roots, key=lambda root: (not root.exact, root.misfit)))


def _same(one: Root, other: Root, scale: float) -> bool:
    means = np.abs(np.sort(one.state.means[:, 0]) - np.sort(other.state.means[:, 0]))
    weights = np.abs(np.sort(one.state.weights) - np.sort(other.state.weights))
    deviations = np.abs(
        np.sort(np.sqrt(one.state.covariances)) - np.sort(np.sqrt(other.state.covariances))
    )
    return bool(max(means.max() / scale, weights.max(), deviations.max() / scale) < 1e-5)


def _gaps(weights: Any, means: Any, variances: Any, standard: Any) -> Any:
    """Differences of the third to sixth moments, over the root of p!."""
    model = mixture_moments(weights, means, variances, 6)
    spreads = np.sqrt([factorial(p) for p in range(3, 7)])
    return (model[3:] - standard[3:]) / spreads


def _candidates(standard: Any) -> list[tuple[Any, Any, Any]]:
    """Weights, means and variances of every root, in standard units."""
    third, fourth = standard[3], standard[4] - 3
    fifth = standard[5] - 10 * standard[3]
    upper = np.array([-2 * third**3, 6 * third * fourth, -3 * fifth, -8 * third])
    lower = np.array([4 * third**2, -3 * fourth, 0.0, -2.0])
    level = np.array([-(third**2), 3 * fourth, 0.0, 6.0])
    ninth = np.convolve(np.convolve(lower, lower), level)
    ninth[:7] += 2 * np.convolve(upper, upper)
    ninth[:7] -= 4 * third * np.convolve(upper, lower)
    found = [_equal_means(standard)]
    for root in polynomial.polyroots(ninth):
        # Of two conjugate roots one is enough; noise lifts a double root off the real line.
        if root.real <= 1e-8 or root.imag < -1e-12:
            continue
        product = float(root.real)
        inside = max(16 * third**2 - 8 * float(polynomial.polyval(product, level)), 0.0)
        for sign in (1.0, -1.0):
            total = (4 * third + sign * np.sqrt(inside)) / 4 / product
            found.append(_from_means(product, float(total), third))
    return [each for each in found if each is not None]


def _from_means(product: float, total: float, third: float) -> tuple[Any, Any, Any] | None:
    """The mixture with -mu_1 mu_2 and mu_1 + mu_2; None if a variance is not positive."""
    slope = (third / product - total) / 3
    half = np.sqrt(total**2 + 4 * product)
    means = np.array([total - half, total + half]) / 2
    weights = np.array([means[1], -means[0]]) / half
    variances = 1 - product + means * slope
    return _admissible(weights, means, variances)


def _equal_means(standard: Any) -> tuple[Any, Any, Any] | None:
    """The mixture of two variances v around one mean: E v^p = m_2p / (2p - 1)!!, two atoms."""
    second, third = standard[4] / 3, standard[6] / 15
    spread = second - 1
    if spread <= 1e-10:
        return None
    # Atoms of the two-point measure with moments 1, 1, second, third.
    total = (third - second) / spread
    product = (third - second**2) / spread
    inside = total**2 - 4 * product
    if inside <= 0:
        return None
    variances = (total + np.sqrt(inside) * np.array([-1.0, 1.0])) / 2
    weights = np.array([variances[1] - 1, 1 - variances[0]]) / (variances[1] - variances[0])
    return _admissible(weights, np.zeros(2), variances)


def _admissible(weights: Any, means: Any, variances: Any) -> tuple[Any, Any, Any] | None:
    good = (
        np.isfinite(means).all()
        and weights.min() > _LEAST_WEIGHT
        and variances.min() > _LEAST_VARIANCE
    )
    return (weights, means, variances) if good else None


def _newton_refined(
    weights: Any, means: Any, variances: Any, standard: Any
) -> tuple[Any, Any, Any] | None:
    """The same mixture after Newton's steps on five moment equations; None if they lead away.

    The roots of a polynomial of degree nine are less exact than the moments are.
    """
    point = np.concatenate([weights[:1], means, variances])
    best, least = None, np.inf
    for _ in range(_NEWTON_STEPS):
        fractions = np.array([point[0], 1 - point[0]])
        if not 0 < point[0] < 1 or point[3:].min() <= 0:
            break
        gaps = mixture_moments(fractions, point[1:3], point[3:], 5)[1:] - standard[1:6]
        size = float(np.abs(gaps).max())
        if size >= least:
            break
        best, least = point, size
        slopes = _slopes(fractions, point[1:3], point[3:])
        point = point - np.linalg.lstsq(slopes, gaps, rcond=1e-14)[0]
    if best is None or least > 1e-7:
        return None
    return _admissible(np.array([best[0], 1 - best[0]]), best[1:3], best[3:])


def _slopes(weights: Any, means: Any, variances: Any) -> Any:
    """The derivatives (5, 5) of moments 1 to 5 by w_1, mu_1, mu_2, var_1, var_2."""
    each = np.ones((6, 2))
    each[1] = means
    for p in range(2, 6):
        each[p] = means * each[p - 1] + (p - 1) * variances * each[p - 2]
    orders = np.arange(1, 6)[:, None]
    by_mean = orders * each[:5]
    by_variance = np.zeros((5, 2))
    by_variance[1:] = orders[1:] * (orders[1:] - 1) / 2 * each[:4]
    return np.column_stack([each[1:, 0] - each[1:, 1], by_mean * weights, by_variance * weights])


def sixth_error(root: Root, moments: SixMoments) -> float:
    """How far the sixth central moment is from the mixture's, in standard errors."""
    state = root.state
    means = (state.means[:, 0] - moments.mean) / moments.unit
    model = mixture_moments(state.weights, means, state.covariances / moments.unit**2, 12)
    spread = np.sqrt(max(model[12] - model[6] ** 2, 0.0) / moments.weight)
    return float(abs(moments.central[6] - model[6]) / spread) if spread > 0 else float("inf")
