"""A positive definite combination of the slices of a symmetric tensor.

For T = sum_j w_j a_j^(x)p every combination of slices is M(c) = sum_j m_j(c) a_j a_j'. Where the
a_j are independent some c makes all m_j positive, and the set of these c is convex; but a random c
lies in it with probability 2^-k only. The ascent of log det(M(c) + t I), with t lowered to zero,
leads into this set and to its middle, where the whitening that M gives is well conditioned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_STEPS = 500
_BALANCING_STEPS = 40
_HALVINGS = 30
_SMALLEST_MARGIN = 1e-4
# Eigenvalues below this fraction of the largest are not taken for positive.
_DEFINITE = 1e-13


def definite_combination(slices: Any, n_draws: int, rng: np.random.Generator) -> tuple[Any, bool]:
    """A (k, k) combination of (k, k, m) slices, definite and well conditioned where one is found.

    Parameters
    ----------
    slices : host array (k, k, m), symmetric in its first two modes
    n_draws : int, random combinations to begin with; the one with the largest ratio of smallest
        to largest eigenvalue is the start, the one best conditioned in magnitude the answer
        where no definite combination is found
    rng : draws them

    Returns
    -------
    the combination, and whether it is positive definite
    """
    scale = float(np.sqrt(np.vdot(slices, slices) / slices.shape[0]))
    if scale == 0.0:
        return np.zeros(slices.shape[:2]), False
    units = slices / scale
    draws = rng.standard_normal((n_draws, slices.shape[2]))
    draws /= np.linalg.norm(draws, axis=1, keepdims=True)
    draws = np.concatenate([draws, -draws])
    spectra = np.array([np.linalg.eigvalsh(units @ draw) for draw in draws])
    magnitudes = np.sort(np.abs(spectra), axis=1)
    nearest = int(np.argmax(spectra[:, 0] / magnitudes[:, -1]))
    reached = _ascend(units, draws[nearest])
    spectrum = np.linalg.eigvalsh(units @ reached)
    if spectrum[0] > _DEFINITE * spectrum[-1]:
        return scale * (units @ reached), True
    conditioned = int(np.argmax(magnitudes[:, 0] / magnitudes[:, -1]))
    return scale * (units @ draws[conditioned]), False


def _ascend(slices: Any, combination: Any) -> Any:
    """Unit coefficients of a definite combination, or the closest to one that was found."""
    identity = np.eye(slices.shape[0])
    balancing, margin = 0, 0.5
    for _ in range(_STEPS):
        matrix = slices @ combination
        lowest = float(np.linalg.eigvalsh(matrix)[0])
        if lowest > 0:
            balancing += 1
            if balancing > _BALANCING_STEPS:
                break
        lift = 0.0 if lowest > 0 else -(1.0 + margin) * lowest + 1e-12
        ahead = _step(slices, combination, matrix + lift * identity, lift)
        if ahead is not None:
            combination = ahead
        elif lift == 0.0 or margin < _SMALLEST_MARGIN:
            break
        else:  # the middle at this lift is reached: lower the lift
            margin /= 4
    return combination


def _step(slices: Any, combination: Any, lifted: Any, lift: float) -> Any:
    """A Newton step of log det(M(c) + lift I) on the unit sphere, shortened until it ascends."""
    inverse = np.linalg.inv(lifted)
    turned = np.tensordot(inverse, slices, axes=(1, 0))
    gradient = np.einsum("aai->i", turned)
    curvature = np.einsum("abi,baj->ij", turned, turned, optimize=True)
    # On the sphere, of radius one: curvature of the constraint is the radial slope.
    radial = float(gradient @ combination)
    slope = gradient - radial * combination
    hessian = curvature + max(radial, 0.0) * np.eye(combination.size)
    move = np.linalg.lstsq(hessian, slope, rcond=1e-12)[0]
    move -= (move @ combination) * combination
    start = np.linalg.slogdet(lifted)[1]
    shift = lift * np.eye(slices.shape[0])
    length = 1.0
    for _ in range(_HALVINGS):
        ahead = combination + length * move
        ahead /= np.linalg.norm(ahead)
        matrix = slices @ ahead + shift
        try:
            factor = np.linalg.cholesky((matrix + matrix.T) / 2)
        except np.linalg.LinAlgError:
            length /= 2
            continue
        if 2.0 * np.log(factor.diagonal()).sum() > start + 1e-12 * abs(start):
            return ahead
        length /= 2
    return None
