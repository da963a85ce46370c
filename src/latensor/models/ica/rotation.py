"""Refinement of independent components: rotations that make the scores as independent as can be.

For scores y = h + e of independent sources h of variance one and Gaussian noise e of covariance N,
E[g(y_i) y_j] = N_ij E[g'(y_i)] for any function g (Stein's identity): an equation that holds at
the true rotation, whatever the noise. With functions f_m, t_m = E[f_m(y) y] - v E[f_m'(y)],
v = E[y^2], and B the covariance of the f_m after their linear part is taken off, the combination
g = sum_m (B^-1 t)_m f_m gives the most exact such equation; its information is I = t'B^-1 t, zero
for a Gaussian. It is taken less its linear part E[g(y) y] y / v, which tells nothing, but would
add what scores lack of being white. A rotation by q in the plane of i and j changes the difference
of the equations of i and j by q (I_i + I_j), which is Newton's step.

A rotation makes the scores exactly as white as their covariance says, although independent sources
are so only up to 1 / sqrt(n). At the best rotation that is let go (`models.ica.pairs`).

For i != j, N_ij is the covariance of the scores themselves, since sources have none. So the same
equations, one by one, determine the unmixing under noise of any unknown covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from latensor.arrays.threads import one_blas_thread
from latensor.models.ica.scores import N_FUNCTIONS, RIDGE
from latensor.models.ica.sums import Pass, ScoreCovariance, TurnMeans, TurnSums

_LONGEST_TURN = 0.5
# Sources that still turn further than this have not converged.
_NEARLY = 0.1
# Steps of Newton's method leave about their square: less than this fraction of the standard error
# of every angle is nothing to the moves that follow.
_NEGLIGIBLE = 0.1


def gaussian_bound(count: int) -> float:
    """Information, in all samples, up to which the most telling of k sources may be Gaussian.

    By chance a Gaussian source shows 3 + 4 + 6 + 8 = 21 on average, of functions led by Hermite
    polynomials of degree 2, 3, 5 and 7; the search for a rotation adds about 20 for every other
    source (largest of 12 runs on Gaussian samples, k from 1 to 30).
    """
    return 75.0 + 20.0 * count


@dataclass(frozen=True)
class Refined:
    """Where the refinement has arrived.

    Attributes
    ----------
    unmixing : (k, k), columns: a rotation, or the sources themselves where noise is unknown
    information : (k,), I of every source, per sample: zero for a Gaussian
    n_iter : int, passes over the scores
    converged : bool
    nearly : bool, whether the last step was so short that `refine_pairs` can do the rest
    """

    unmixing: Any
    information: Any
    n_iter: int
    converged: bool
    nearly: bool


def refine_rotation(
    scores: Pass, noise: Any, rotation: Any, *, max_iter: int, to_the_end: bool = False
) -> Refined:
    """Turn the scores until they are independent but for the noise.

    Parameters
    ----------
    scores : passes over (n, k), whitened: signal of covariance I plus noise
    noise : (k, k), covariance of the noise in the scores
    rotation : (k, k), where to start
    max_iter : int, passes over the scores
    to_the_end : bool, whether to go on until steps are negligible, as nothing will follow
    """
    converged, nearly, n_iter = False, False, 0
    information = np.zeros(rotation.shape[1])
    while n_iter < max_iter and not converged:
        sums = scores(TurnSums(rotation)).finalize()
        weight = sums.weight
        turn, information = newton_turn(sums, rotation.T @ noise @ rotation)
        n_iter += 1
        precision = np.sqrt(weight * (information[:, None] + information))
        rest = np.abs(turn) if to_the_end else turn**2
        converged = bool((rest * precision).max(initial=0.0) < _NEGLIGIBLE)
        nearly = float(np.abs(turn).max(initial=0.0)) < _NEARLY
        with one_blas_thread():
            left, _, right = np.linalg.svd(rotation @ scipy.linalg.expm(turn))
        rotation = left @ right
    return Refined(rotation, information, n_iter, converged, nearly)


def refine_unconstrained(scores: Pass, *, max_iter: int) -> Refined:
    """Unmix scores that are nearly unmixed, under Gaussian noise of any covariance.

    Parameters
    ----------
    scores : passes over (n, k), each nearly one source
    max_iter : int, passes over the scores
    """
    weight, _, covariance, _ = scores(ScoreCovariance()).finalize()
    unmixing = np.diag(1 / np.sqrt(np.diag(covariance)))
    converged, nearly, n_iter = False, False, 0
    information = np.zeros(len(unmixing))
    while n_iter < max_iter and not converged:
        move, information = newton_move(scores(TurnSums(unmixing)).finalize())
        n_iter += 1
        precision = np.sqrt(weight * information)[:, None]
        longest = float(np.abs(move).max(initial=0.0))
        converged = bool((move**2 * precision).max(initial=0.0) < _NEGLIGIBLE)
        nearly = longest < _NEARLY
        moved = unmixing + unmixing @ move
        unmixing = moved / np.sqrt(np.einsum("ij,ik,kj->j", moved, covariance, moved))
    return Refined(unmixing, information, n_iter, converged, nearly)


def newton_move(sums: TurnMeans) -> tuple[Any, Any]:
    """The next move (k, k), y_j += sum_i y_i E_ij, and the information (k,).

    Functions are taken less E[f'(y)] y, which is what the unknown noise leaves of them.
    """
    equations, information = _equations(sums, sums.second, sums.slopes)
    return _shortened(-equations / _above_zero(information)[:, None]), information


def newton_turn(sums: TurnMeans, noise: Any) -> tuple[Any, Any]:
    """The antisymmetric generator (k, k) of the next rotation, and the information (k,)."""
    linear = np.einsum("mii->mi", sums.cross) / sums.squares
    equations, information = _equations(sums, noise, linear)
    pairs = _above_zero(information[:, None] + information)
    return _shortened((equations.T - equations) / pairs), information


def _equations(sums: TurnMeans, noise: Any, lines: Any) -> tuple[Any, Any]:
    """E[g(y_i) y_j] - N_ij E[g'(y_i)] for all pairs (k, k), and I (k,), of the best g.

    Of functions less lines c y (M, k): g = sum_m (B^-1 t)_m (f_m - c_m y).
    """
    linear = np.einsum("mii->mi", sums.cross)
    tangents = linear - sums.squares * sums.slopes
    crossed = lines[:, None] * linear
    spread = (
        sums.products
        - sums.means[:, None] * sums.means
        - crossed
        - crossed.transpose(1, 0, 2)
        + lines[:, None] * lines * sums.squares
    )
    spread += RIDGE * np.eye(N_FUNCTIONS)[:, :, None] * np.einsum("mmi->mi", sums.products)
    best = np.linalg.solve(spread.transpose(2, 0, 1), tangents.T[:, :, None])[:, :, 0]
    corrected = sums.cross - noise * sums.slopes[:, :, None]
    corrected -= lines[:, :, None] * (sums.second - noise)
    information = np.maximum(np.einsum("im,mi->i", best, tangents), 0.0)
    return np.einsum("im,mij->ij", best, corrected), information


def _above_zero(information: Any) -> Any:
    return np.maximum(information, np.finfo(float).tiny)


def _shortened(move: Any) -> Any:
    """A move (k, k) between different sources, none of them too long."""
    np.fill_diagonal(move, 0.0)
    return move * min(1.0, _LONGEST_TURN / max(float(np.abs(move).max(initial=0.0)), 1e-300))
