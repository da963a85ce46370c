"""The polish of independent components: rotations that make the scores as independent as can be.

For scores y = h + e of independent sources h of variance one and Gaussian noise e of covariance N,
E[g(y_i) y_j] = N_ij E[g'(y_i)] for any function g (Stein's identity): an equation that holds at
the true rotation, whatever the noise. With functions f_m, t_m = E[f_m(y) y] - v E[f_m'(y)],
v = E[y^2], and B the covariance of the f_m after their linear part is taken off, the combination
g = sum_m (B^-1 t)_m f_m gives the most exact such equation; its information is I = t'B^-1 t, zero
for a Gaussian. It is taken less its linear part E[g(y) y] y / v, which tells nothing, but would
add what scores lack of being white. A rotation by q in the plane of i and j changes the difference
of the equations of i and j by q (I_i + I_j), which is Newton's step.

A rotation makes the scores exactly as white as their covariance says, although independent sources
are so only up to 1 / sqrt(n). At the best rotation that is let go: a share a of y_j is taken out of
y_i, and b of y_i out of y_j, by least squares over the two equations and E[y_i y_j] = N_ij, each in
units of its error. For the true densities that is the step of maximum likelihood.

For i != j, N_ij is the covariance of the scores themselves, since sources have none. So the same
equations, one by one, determine the unmixing under noise of any unknown covariance, and, with
sensors in place of y_j, the columns of the mixing matrix: E[g(y_j) x] - E[g'(y_j)] Cov(x, y_j).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.stats import chi2

from latensor.arrays.threads import one_blas_thread, run_tasks

N_FUNCTIONS = 4
# Two sources with less information than this in all samples are not turned into each other: about
# what one Gaussian source shows by chance.
_FLAT = 20.0
_BLOCK = 2048
_PARTS = 16
_LONGEST_TURN = 0.5
# Rotations that still turn further than this are not let go.
_NEARLY = 0.1
_STRAIGHT = 3.0
# A step below this share of the standard error of every angle changes nothing that matters.
_NEGLIGIBLE = 0.01
# Keeps functions that coincide on few values apart.
_RIDGE = 1e-4


def gaussian_bound(count: int) -> float:
    """Information, in all samples, up to which the most telling of k sources may be Gaussian.

    By chance a Gaussian source shows 3 + 4 + 6 + 8 = 21 on average, of functions led by Hermite
    polynomials of degree 2, 3, 5 and 7; the search for a rotation adds about 20 for every other
    source (largest of 12 runs on Gaussian samples, k from 1 to 30).
    """
    return 75.0 + 20.0 * count


@dataclass(frozen=True)
class Polished:
    """Where the polish has arrived.

    Attributes
    ----------
    rotation : (k, k), orthonormal columns
    unmixing : (k, k), columns of length one near those of the rotation, without its bond
    information : (k,), I of every source, per sample: zero for a Gaussian
    noise_p_value : float, how often the equations of independent sources under this noise are
        solved as badly; NaN where the rotation has not settled
    n_iter : int, passes over the scores
    converged : bool
    """

    rotation: Any
    unmixing: Any
    information: Any
    noise_p_value: float
    n_iter: int
    converged: bool


def polish(
    scores: Any,
    weights: Any,
    noise: Any,
    rotation: Any,
    *,
    max_iter: int,
    n_threads: int = 1,
) -> Polished:
    """Turn the scores until they are independent but for the noise.

    Parameters
    ----------
    scores : (n, k), whitened: signal of covariance I plus noise
    weights : (n,) or None
    noise : (k, k), covariance of the noise in the scores
    rotation : (k, k), where to start
    max_iter : int, passes over the scores
    n_threads : int, changes nothing but the time
    """
    weight = float(len(scores)) if weights is None else float(weights.sum())
    converged, n_iter = False, 0
    information = np.zeros(rotation.shape[1])
    unmixing, evidence = rotation, float("nan")
    while n_iter < max_iter and not converged:
        sums = _sums(scores, weights, rotation, n_threads)
        turned_noise = rotation.T @ noise @ rotation
        turn, information = newton_turn(sums, turned_noise, weight)
        n_iter += 1
        precision = np.sqrt(weight * (information[:, None] + information))
        converged = bool((np.abs(turn) * precision).max(initial=0.0) < _NEGLIGIBLE)
        nearly = float(np.abs(turn).max(initial=0.0)) < _NEARLY
        if nearly and (converged or n_iter == max_iter):
            move = released_move(sums, turned_noise, weight)
            evidence = misfit_p_value(sums, turned_noise, weight)
            unmixing = rotation + rotation @ move
            unmixing = unmixing / np.linalg.norm(unmixing, axis=0)
        with one_blas_thread():
            left, _, right = np.linalg.svd(rotation @ scipy.linalg.expm(turn))
        rotation = left @ right
        if not nearly:
            unmixing = rotation
    return Polished(rotation, unmixing, information, evidence, n_iter, converged)


@dataclass(frozen=True)
class Freed:
    """Where the polish without any knowledge of the noise has arrived.

    Attributes
    ----------
    unmixing : (k, k), columns that turn the scores into sources of variance one, noise included
    mixing : (d, k), what every sensor sees of each of these sources
    noise_p_value : float, how often sources without noise are as correlated as these
    information, n_iter, converged : as in `Polished`
    """

    unmixing: Any
    mixing: Any
    noise_p_value: float
    information: Any
    n_iter: int
    converged: bool


def polish_freely(
    scores: Any, sensors: Any, weights: Any, *, max_iter: int, n_threads: int = 1
) -> Freed:
    """Unmix scores that are nearly unmixed, under Gaussian noise of any covariance.

    Parameters
    ----------
    scores : (n, k), each nearly one source
    sensors : (n, d)
    weights : (n,) or None
    max_iter : int, passes over the scores
    n_threads : int, changes nothing but the time
    """
    weight = float(len(scores)) if weights is None else float(weights.sum())
    with one_blas_thread():
        scores = scores - np.average(scores, axis=0, weights=weights)
        sensors = sensors - np.average(sensors, axis=0, weights=weights)
        weighted = scores if weights is None else scores * weights[:, None]
        covariance = weighted.T @ scores / weight
        cross_covariance = weighted.T @ sensors / weight
    unmixing = np.diag(1 / np.sqrt(np.diag(covariance)))
    converged, n_iter = False, 0
    information = np.zeros(len(unmixing))
    coefficients = np.zeros((len(unmixing), N_FUNCTIONS))
    slopes = np.zeros((N_FUNCTIONS, len(unmixing)))
    while n_iter < max_iter and not converged:
        sums = _sums(scores, weights, unmixing, n_threads)
        move, information, coefficients = newton_move(sums)
        slopes = sums.slopes
        n_iter += 1
        precision = np.sqrt(weight * information)[:, None]
        converged = bool((np.abs(move) * precision).max(initial=0.0) < _NEGLIGIBLE)
        if not converged:
            moved = unmixing + unmixing @ move
            unmixing = moved / np.sqrt(np.einsum("ij,ik,kj->j", moved, covariance, moved))
    # E[g(y_j) x] over all rows: one more pass, block by block.
    seen = np.zeros((sensors.shape[1], len(unmixing)))
    with one_blas_thread():
        for a in range(0, len(scores), _BLOCK):
            values, _ = functions(scores[a : a + _BLOCK] @ unmixing)
            combined = np.einsum("jm,mij->ij", coefficients, values)
            if weights is not None:
                combined *= weights[a : a + _BLOCK, None]
            seen += sensors[a : a + _BLOCK].T @ combined
        slope = np.einsum("jm,mj->j", coefficients, slopes)
        mixing = seen / weight - (cross_covariance.T @ unmixing) * slope
    mixing /= np.maximum(information, np.finfo(float).tiny)
    evidence = noise_p_value(unmixing.T @ covariance @ unmixing, information, weight)
    return Freed(unmixing, mixing, evidence, information, n_iter, converged)


def noise_p_value(correlation: Any, information: Any, weight: float) -> float:
    """How often sources without noise are as correlated as these, unmixed under any noise.

    The correlation of two has then the variance (1 / I_i + 1 / I_j - 1) / n: the error of each of
    the two shares is that of its equation, 1 / (n I), and both have the sampling error of the
    correlation itself in them.

    Parameters
    ----------
    correlation : (k, k), of the sources that `polish_freely` gives
    information : (k,), theirs
    weight : float, samples n
    """
    first, second = np.triu_indices(len(information), 1)
    if len(first) == 0:
        return float("nan")
    inverse = 1 / np.maximum(information, np.finfo(float).tiny)
    variances = np.maximum(inverse[first] + inverse[second] - 1, 1.0) / weight
    return float(chi2.sf((correlation[first, second] ** 2 / variances).sum(), len(first)))


def newton_move(sums: _Sums) -> tuple[Any, Any, Any]:
    """The next move (k, k), y_j += sum_i y_i E_ij; the information (k,); the combinations (k, M).

    Functions are taken less E[f'(y)] y, which is what the unknown noise leaves of them.
    """
    linear = np.einsum("mii->mi", sums.cross)
    tangents = linear - sums.squares * sums.slopes
    mixed = sums.slopes[:, None] * linear
    spread = (
        sums.products
        - sums.means[:, None] * sums.means
        - mixed
        - mixed.transpose(1, 0, 2)
        + sums.slopes[:, None] * sums.slopes * sums.squares
    )
    coefficients, information = _best_combination(spread, tangents, sums)
    corrected = sums.cross - sums.second * sums.slopes[:, :, None]
    equations = np.einsum("im,mij->ij", coefficients, corrected)
    move = -equations / np.maximum(information, np.finfo(float).tiny)[:, None]
    np.fill_diagonal(move, 0.0)
    longest = float(np.abs(move).max(initial=0.0))
    return move * min(1.0, _LONGEST_TURN / max(longest, 1e-300)), information, coefficients


def _best_combination(spread: Any, tangents: Any, sums: _Sums) -> tuple[Any, Any]:
    """B^-1 t (k, M) and I = t'B^-1 t (k,) of every source."""
    squares = np.einsum("mmi->mi", sums.products)
    spread = spread + _RIDGE * np.eye(N_FUNCTIONS)[:, :, None] * squares
    coefficients = np.linalg.solve(spread.transpose(2, 0, 1), tangents.T[:, :, None])[:, :, 0]
    return coefficients, np.maximum(np.einsum("im,mi->i", coefficients, tangents), 0.0)


@dataclass(frozen=True)
class _Sums:
    """Expectations over the turned scores y, with functions f_m, m = 1, ..., M.

    y is centered where it is a factor. cross : (M, k, k), of f_m(y_i) y_j; products : (M, M, k),
    of f_m f_l; means, slopes : (M, k), of f_m and f_m'; second : (k, k), of y_i y_j.
    """

    cross: Any
    products: Any
    means: Any
    slopes: Any
    second: Any

    @property
    def squares(self) -> Any:
        """The expectations (k,) of y^2."""
        return np.diag(self.second)


def newton_turn(sums: _Sums, noise: Any, weight: float) -> tuple[Any, Any]:
    """The antisymmetric generator (k, k) of the next rotation, and the information (k,).

    Two sources that are Gaussian as far as the samples tell are not turned into each other.
    """
    equations, information = _equations(sums, noise)
    pairs = information[:, None] + information
    turn = -(equations - equations.T) / np.maximum(pairs, np.finfo(float).tiny)
    gaussian = weight * information < _FLAT
    turn[np.ix_(gaussian, gaussian)] = 0.0
    np.fill_diagonal(turn, 0.0)
    longest = float(np.abs(turn).max(initial=0.0))
    return turn * min(1.0, _LONGEST_TURN / max(longest, 1e-300)), information


def released_move(sums: _Sums, noise: Any, weight: float) -> Any:
    """The move (k, k), y_j += sum_i y_i E_ij, that solves all equations of each pair best.

    With v = E[y^2] and J = I / v the share a of y_j in y_i and b of y_i in y_j solve
    (J_i + 1) a + b = c - e_ij and a + (J_j + 1) b = c - e_ji, where c = E[y_i y_j] - N_ij and e
    are the equations, whose errors are I_i v_j, I_j v_i and, of c, v_i v_j over n.
    """
    equations, information = _equations(sums, noise)
    shares = information / sums.squares
    excess = sums.second - noise
    determinant = shares[:, None] + shares + np.outer(shares, shares)
    found = shares * (excess - equations) + equations.T - equations
    found /= np.maximum(determinant, np.finfo(float).tiny)
    gaussian = np.ix_(*(2 * [weight * information < _FLAT]))
    found[gaussian] = excess[gaussian] / 2
    np.fill_diagonal(found, 0.0)
    return -found.T


def misfit_p_value(sums: _Sums, noise: Any, weight: float) -> float:
    """How often independent sources under this noise solve the three equations of a pair as badly.

    Whatever a and b are, e_ij / J_i + e_ji / J_j + c, in the terms of `released_move`, has mean
    zero and variance v_j v_i^2 / I_i + v_i v_j^2 / I_j + v_i v_j over n.
    """
    equations, information = _equations(sums, noise)
    first, second = np.triu_indices(len(information), 1)
    if len(first) == 0:
        return float("nan")
    squares = sums.squares
    inverse = squares / np.maximum(information, np.finfo(float).tiny)
    scaled = equations * inverse[:, None]
    rest = (scaled + scaled.T + sums.second - noise)[first, second]
    widths = np.outer(squares, squares) * (inverse[:, None] + inverse + 1)
    return float(chi2.sf((weight * rest**2 / widths[first, second]).sum(), len(first)))


def _equations(sums: _Sums, noise: Any) -> tuple[Any, Any]:
    """E[g(y_i) y_j] - N_ij E[g'(y_i)] for all pairs (k, k), g without its linear part; I (k,)."""
    linear = np.einsum("mii->mi", sums.cross)
    tangents = linear - sums.squares * sums.slopes
    spread = (
        sums.products - sums.means[:, None] * sums.means - linear[:, None] * linear / sums.squares
    )
    coefficients, information = _best_combination(spread, tangents, sums)
    corrected = sums.cross - noise * sums.slopes[:, :, None]
    corrected -= (linear / sums.squares)[:, :, None] * (sums.second - noise)
    return np.einsum("im,mij->ij", coefficients, corrected), information


def functions(scores: Any) -> tuple[Any, Any]:
    """The functions f_m (M, n, k) of scores and their derivatives, (M, n, k)."""
    values = np.empty((N_FUNCTIONS, *scores.shape))
    slopes = np.empty_like(values)
    squares = scores * scores
    np.tanh(scores, out=values[0])
    slopes[0] = 1 - values[0] ** 2
    bell = np.exp(-squares / 2)
    values[1] = scores * bell
    slopes[1] = (1 - squares) * bell
    # y^3 and y^2, straight lines from where a few large scores would rule their means.
    inner = np.clip(scores, -_STRAIGHT, _STRAIGHT)
    outer = scores - inner
    squares = inner * inner
    values[2] = squares * (inner + 3 * outer)
    slopes[2] = 3 * squares
    values[3] = inner * (inner + 2 * outer)
    slopes[3] = 2 * inner
    return values, slopes


def _sums(scores: Any, weights: Any, rotation: Any, n_threads: int) -> _Sums:
    n_rows, width = len(scores), rotation.shape[1]
    size = max(1, -(-n_rows // (_PARTS * _BLOCK))) * _BLOCK
    ranges = [(a, min(a + size, n_rows)) for a in range(0, n_rows, size)]
    count = len(ranges)
    cross = np.zeros((count, N_FUNCTIONS, width, width))
    products = np.zeros((count, N_FUNCTIONS, N_FUNCTIONS, width))
    means, slopes = np.zeros((2, count, N_FUNCTIONS, width))
    second, first = np.zeros((count, width, width)), np.zeros((count, width))
    total = np.zeros(count)

    def part(index: int, start: int, stop: int) -> None:
        for a in range(start, stop, _BLOCK):
            b = min(a + _BLOCK, stop)
            turned = scores[a:b] @ rotation
            values, derivatives = functions(turned)
            shares = np.ones(b - a) if weights is None else weights[a:b]
            weighted = values if weights is None else values * shares[:, None]
            total[index] += shares.sum()
            first[index] += shares @ turned
            second[index] += (turned * shares[:, None]).T @ turned
            means[index] += weighted.sum(axis=1)
            slopes[index] += shares @ derivatives
            for m in range(N_FUNCTIONS):
                cross[index, m] += weighted[m].T @ turned
                for other in range(m + 1):
                    sums = np.einsum("ij,ij->j", weighted[m], values[other])
                    products[index, m, other] += sums
                    if other != m:
                        products[index, other, m] += sums

    with one_blas_thread():
        run_tasks(part, [(i, a, b) for i, (a, b) in enumerate(ranges)], n_threads)
    weight = total.sum()
    sums = [part.sum(axis=0) / weight for part in (cross, products, means, slopes, second, first)]
    # Rows that stand for more of them have a mean of their own.
    sums[0] -= sums[2][:, :, None] * sums[5]
    sums[4] -= np.outer(sums[5], sums[5])
    return _Sums(*sums[:5])
