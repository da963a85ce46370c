"""The monograph's perturbation bounds for orthogonal and whitened tensors (3.5, 3.6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.diagnostics.components import Components


@dataclass(frozen=True)
class PerturbationBounds:
    """How far components can be off, by the theorems on the robust power method.

    Attributes
    ----------
    noise : float, spectral norm of the error tensor that the bounds assume (after whitening,
        where `whitened`)
    estimated : bool, whether it was estimated from the residual rather than given
    vectors : (rank,) tuple, bound on the error of each unit vector; after whitening on that of
        the vector scaled by the root of its second-moment weight
    values : float, bound on the error of every weight (whitened: of lambda / mu^3/2, with the
        second-moment weight mu)
    ratio : float, noise * dimension / smallest weight; the theorem asks that it be below a
        universal constant whose size it leaves open
    informative : bool, whether the bound on every vector is below its length, so that it says
        something
    whitened : bool
    """

    noise: float
    estimated: bool
    vectors: tuple[float, ...]
    values: float
    ratio: float
    informative: bool
    whitened: bool


def orthogonality_defect(components: Components) -> float:
    """The largest cosine between two columns of the shared factor."""
    gram = np.abs(components.grams[0])
    np.fill_diagonal(gram, 0.0)
    return float(gram.max())


def orthogonal_bounds(
    components: Components, noise: float, estimated: bool
) -> PerturbationBounds | None:
    """Vectors within 8 eps / lambda and weights within 5 eps of the truth (theorem of 3.5).

    For a symmetric tensor of order 3 with orthonormal components whose error tensor has spectral
    norm eps. None where the components are not orthonormal up to twice that error.
    """
    weights = components.magnitudes
    vectors = 8.0 * noise / weights
    defect = orthogonality_defect(components)
    if defect > max(1e-8, 2.0 * float(vectors.max())):
        return None
    ratio = noise * components.shape[0] / float(weights.min())
    return PerturbationBounds(
        noise,
        estimated,
        tuple(float(v) for v in vectors),
        5.0 * noise,
        ratio,
        bool(vectors.max() < 1.0),
        False,
    )


def whitened_bounds(
    components: Components,
    second_moment: Any,
    noise: float,
    second_moment_noise: float | None,
    estimated: bool,
) -> PerturbationBounds | None:
    """The same after whitening by a second moment M = sum_j mu_j a_j a_j' (theorem of 3.6).

    With s the smallest non-zero eigenvalue of M and an error of M of norm eps_M <= s / 4, the
    whitened tensor, of weights L_j = lambda_j mu_j^-3/2, is off by at most
    eps_W = eps (4 / 3s)^3/2 + L_max ((1 + 3 eps_M / s)^3 - 1), which is the proof with its
    constants kept. Then |mu_j^1/2 a_j - estimate| <= 9 |M|^1/2 eps_W / L_j and L_j is known to
    5 eps_W. None where M lacks a component's direction or eps_M is too large.
    """
    factor = components.factors[0]
    inverse = np.linalg.pinv(factor)
    mu = np.real(np.diag(inverse @ second_moment @ inverse.conj().T))
    if second_moment_noise is None:
        misfit = second_moment - (factor * mu) @ factor.conj().T
        second_moment_noise = float(np.linalg.norm(misfit, 2))
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(second_moment)))[::-1]
    if components.rank > len(eigenvalues):
        return None
    smallest = float(eigenvalues[components.rank - 1])
    if mu.min() <= 0 or smallest <= 0 or second_moment_noise > smallest / 4:
        return None
    values = components.magnitudes * mu**-1.5
    growth = 1.0 + 3.0 * second_moment_noise / smallest
    whitened_noise = noise * (4.0 / (3.0 * smallest)) ** 1.5
    whitened_noise += float(values.max()) * (growth**3 - 1.0)
    vectors = 9.0 * math.sqrt(float(eigenvalues[0])) * whitened_noise / values
    ratio = whitened_noise * components.rank / float(values.min())
    return PerturbationBounds(
        whitened_noise,
        estimated,
        tuple(float(v) for v in vectors),
        5.0 * whitened_noise,
        ratio,
        bool(np.all(vectors < np.sqrt(mu))),
        True,
    )
