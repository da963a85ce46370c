"""Independent components read off the fourth cumulant (monograph 4.3).

For x = A h + z, with independent h of variance one and Gaussian z, the fourth cumulant is
sum_j kappa_j a_j^(x)4, kappa_j the excess kurtosis of h_j: the noise does not enter. Where the
covariance tells signal from noise, the signal is whitened and a rotation diagonalizes the cumulant
(JADE); where it does not, the cumulant alone is fitted by k terms that need not be orthogonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh

from latensor.arrays.threads import one_blas_thread
from latensor.decomposition.algorithms.joint_diagonalization import diagonal_of, diagonalize
from latensor.decomposition.optimize.iteration import StoppingRule
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.shared import descend_shared, shared_fit
from latensor.exceptions import InvalidInputError
from latensor.models.ica.scores import MOST_SAMPLES
from latensor.models.ica.signal_space import (
    SignalSpace,
    Spectrum,
    assumed_space,
    diagonal,
    isotropic,
    signal_space,
    signed,
    spectrum,
    whitened,
)
from latensor.moments.fourth import FourthMoment, turned
from latensor.moments.second import Covariance
from latensor.value_files import storable

# Measured on samples of 1,000 to 100,000, 5 and 10 sources: terms of a smaller kurtosis, in
# standard errors, and terms more alike than this cosine (the larger part of both then cancels, as
# where one source has no kurtosis), gave worse sources than taking noise for none.
_CLEAR_KURTOSIS = 8.0
_ALIKE = 0.75
# Squared cosines of the fitted terms over what sampling gives; noise-free data stayed below 2.1.
_NOISE_SHOWS = 2.5
# Cumulant outside of the k leading directions over what sampling leaves there: 0.9 to 1.7 for k
# planted sources under noise; more shows further sources.
_MORE_SOURCES = 3.0
_MOST_FITTED = 32
_FIT_STEPS = 100
# Above so many products of two scores, the leading ones are found without all the others.
_LARGE = 300


@storable
@dataclass(frozen=True)
class Unmixing:
    """What the cumulant says about the sources.

    Attributes
    ----------
    noise_kind : "none", "isotropic", "diagonal" or "unknown"
    unmixing : (k, d), U: the sources are U (x - E x)
    mixing : (d, k), A, with U A = I
    whitening : (k, d), of which the rows of U are combinations
    noise : (k, k), covariance of the noise in the sources; NaN on the diagonal where unknown
    kurtosis, kurtosis_error : (k,), excess kurtosis and its standard error
    off_diagonal : float, fraction of the cumulant that the components do not explain
    p_value : float, of this kind of noise; NaN where nothing could refute it
    space : SignalSpace of the rotation, None where the cumulant was fitted without one
    rotation : (k, k), of the whitened signal to the sources, or None
    core : (k, k, k, k), the cumulant of the whitened scores
    """

    noise_kind: str
    unmixing: Any
    mixing: Any
    whitening: Any
    noise: Any
    kurtosis: Any
    kurtosis_error: Any
    off_diagonal: float
    p_value: float
    space: SignalSpace | None
    rotation: Any
    core: Any


def read_off(
    moment: FourthMoment,
    seen: Spectrum,
    count: int,
    noisy: bool,
    rng: np.random.Generator,
    algorithm: str | Callable[..., Any] = "auto",
    dependence: float = 1.0,
) -> Unmixing:
    """Unmix k sources.

    Parameters
    ----------
    moment : FourthMoment
    seen : Spectrum, of its covariance
    count : int, k
    noisy : bool, whether sensors have Gaussian noise
    rng : draws the start of the joint diagonalization
    algorithm : "auto" for joint diagonalization, or one of `latensor.decomposition`, called with
        (tensor, rank, rng)
    dependence : float, samples that tell as much of the signal as one independent one
    """
    known = Covariance(moment.count, moment.weight, moment.mean, moment.covariance)
    if not noisy:
        return by_rotation(moment, whitened(seen, count, "none"), rng, algorithm)
    space = signal_space(known, seen, count)
    if space.kind != "unknown":
        return by_rotation(moment, space, rng, algorithm)
    found = None
    if count <= _MOST_FITTED:
        found = by_fit(moment, count, rng, algorithm, dependence)
    if found is not None:
        return found
    return by_rotation(moment, assumed_space(known, seen, space), rng, algorithm)


def by_rotation(
    moment: FourthMoment,
    space: SignalSpace,
    rng: np.random.Generator,
    algorithm: str | Callable[..., Any] = "auto",
) -> Unmixing:
    """Whiten the signal, and turn it so that its cumulant becomes diagonal."""
    space = space.within(moment.basis)
    core = moment.along(space.projection)
    rotation, off_diagonal = _rotation(core, rng, algorithm)
    noise = space.noise
    empty = Unmixing(
        space.kind, None, None, space.projection.T, noise, None, None, off_diagonal, space.p_value,
        space, None, core,
    )  # fmt: skip
    return turned_to(empty, rotation, moment.fourth_weight)


def turned_to(found: Unmixing, rotation: Any, weight: float) -> Unmixing:
    """The components of another rotation (k, k) of the same whitened signal, or nearly one."""
    assert found.space is not None
    with one_blas_thread():
        lift = np.linalg.solve(rotation, found.space.lift.T).T
    noise = rotation.T @ found.space.noise @ rotation
    return replace(
        found,
        unmixing=(found.space.projection @ rotation).T,
        mixing=lift,
        noise=noise,
        kurtosis=diagonal_of(found.core, rotation),
        kurtosis_error=np.sqrt(24 / weight) * (1 + np.diag(noise)) ** 2,
        rotation=rotation,
    )


def by_fit(
    moment: FourthMoment,
    count: int,
    rng: np.random.Generator,
    algorithm: str | Callable[..., Any] = "auto",
    dependence: float = 1.0,
) -> Unmixing | None:
    """Fit the cumulant alone; None where it is too noisy for that.

    In coordinates in which signal and noise together are white, the k leading directions of the
    cumulant hold the signal. Its terms c_j are orthogonal there only without noise: if they are,
    a rotation is enough, and more exact.
    """
    basis = moment.basis
    with one_blas_thread():
        inside = basis.T @ moment.covariance @ basis
        values, vectors = np.linalg.eigh(inside)
        vectors = signed(vectors)
        kept = values > len(values) * np.finfo(float).eps * values[-1]
        scale = np.sqrt(values[kept])
        projection = basis @ (vectors[:, kept] / scale)
        lift = moment.covariance @ projection
        core = moment.along(projection)
        if len(scale) > count:
            flat = core.reshape(len(scale), -1)
            leading = signed(np.linalg.eigh(flat @ flat.T)[1][:, ::-1][:, :count])
            whole, core = core, turned(core, leading)
            if _rest(whole, core, moment.fourth_weight) > _MORE_SOURCES:
                return None
            projection, lift = projection @ leading, lift @ leading
        if core.shape[0] < count:
            return None
        rotation, _ = _rotation(core, rng, algorithm)
        problem = DenseProblem(core)
        total = problem.squared_norm
        rule = StoppingRule(1e-12, _FIT_STEPS, floor=1e-30 * total)
        fit, _ = descend_shared(problem, shared_fit(problem, rotation.T), rule)
    norms = np.linalg.norm(fit.rows, axis=1)
    weight = min(moment.fourth_weight / dependence, MOST_SAMPLES)
    if not norms.min() ** 4 >= _CLEAR_KURTOSIS * np.sqrt(24 / weight):
        return None
    terms = fit.rows.T / norms
    if np.abs(terms.T @ terms - np.eye(count)).max() > _ALIKE:
        return None
    if count == 1 or noise_evidence(terms, norms**4, weight) < _NOISE_SHOWS:
        no_noise = np.zeros(len(moment.mean))
        space = SignalSpace("none", projection, lift, no_noise, float("nan"))
        return by_rotation(moment, space, rng, algorithm)
    fraction = fit.loss / total if total > 0 else 0.0
    return fitted(moment, projection, lift @ terms, core, fraction)


def _rest(whole: Any, core: Any, weight: float) -> float:
    """The energy of a cumulant of white samples outside of its core, over that of sampling.

    Of Gaussian samples, d (d + 1) (d + 2) (d + 3) / n is expected in all.
    """
    size = whole.shape[0]
    expected: float = size * (size + 1) * (size + 2) * (size + 3) / min(weight, MOST_SAMPLES)
    rest = float(np.vdot(whole, whole) - np.vdot(core, core))
    return rest / expected


def noise_evidence(terms: Any, kurtosis: Any, weight: float) -> float:
    """How far fitted unit terms (k, k) are from orthogonal, over what sampling gives: about 1.

    An angle of term i is taken to be known to a variance of 10 + (6 + 9 |kappa_i|) / kappa_i^2
    over n. Laplacian sources would need 3 in place of 10; tails as heavy as those of Student's
    distribution with 5 degrees of freedom need 10, or noise is seen where there is none.
    """
    first, second = np.triu_indices(len(kurtosis), 1)
    variances = (6 + 9 * kurtosis + 10 * kurtosis**2) / kurtosis**2 / weight
    cosines = (terms.T @ terms)[first, second]
    return float((cosines**2 / (variances[first] + variances[second])).mean())


def fitted(
    moment: FourthMoment, projection: Any, directions: Any, core: Any, off_diagonal: float
) -> Unmixing:
    """Components from the directions (d, k) of the mixing matrix, under noise of unknown size.

    U = (A'C^-1 A)^-1 A'C^-1 is the unmixing of least variance, whatever the noise; the columns of
    A are scaled so that U (x - E x) has variance one.
    """
    with one_blas_thread():
        inverse = np.linalg.pinv(moment.covariance, hermitian=True)
        weighted = inverse @ directions
        inner = np.linalg.inv(directions.T @ weighted)
        scale = np.sqrt(np.diag(inner))
        unmixing = (weighted @ inner / scale).T
        mixing = directions * scale
        noise = unmixing @ moment.covariance @ unmixing.T
    np.fill_diagonal(noise, np.nan)
    kurtosis = diagonal_of(moment.cumulant, moment.basis.T @ unmixing.T)
    error = np.full(len(kurtosis), np.sqrt(24 / moment.fourth_weight))
    return Unmixing(
        "unknown", unmixing, mixing, projection.T, noise, kurtosis, error, off_diagonal,
        float("nan"), None, None, core,
    )  # fmt: skip


def _rotation(
    core: Any, rng: np.random.Generator, algorithm: str | Callable[..., Any]
) -> tuple[Any, float]:
    """Orthonormal columns (k, k) that diagonalize a cumulant, and the fraction of it they leave."""
    size = core.shape[0]
    if size == 1:
        return np.ones((1, 1)), 0.0
    with one_blas_thread():
        if isinstance(algorithm, str):
            vectors = diagonalize(_eigenmatrices(core), rng).vectors
        else:
            factor = np.asarray(algorithm(core, size, rng).tensor.factors[0], dtype=np.float64)
            if not np.isfinite(factor).all():
                raise InvalidInputError("algorithm returned components that are not finite numbers")
            norms = np.linalg.norm(factor, axis=0)
            left, _, right = np.linalg.svd(factor / np.where(norms > 0, norms, 1.0))
            vectors = left @ right
        total = float(np.vdot(core, core))
        explained = float((diagonal_of(core, vectors) ** 2).sum())
    return vectors, 1 - explained / total if total > 0 else 0.0


def _eigenmatrices(core: Any) -> Any:
    """The k leading eigenmatrices (k, k, k) of a cumulant as a map of matrices, with their size.

    For exact moments they hold all of it: k^2 slices would add nothing but noise.
    """
    size = core.shape[0]
    left, right = np.triu_indices(size)
    # In an orthonormal basis of symmetric matrices the map is symmetric.
    scale = np.where(left == right, 1.0, np.sqrt(2.0))
    matrix = core[left, right][:, left, right] * np.outer(scale, scale)
    if len(scale) > _LARGE:
        values, vectors = eigsh(matrix, size, which="LM", v0=np.ones(len(scale)))
    else:
        values, vectors = np.linalg.eigh(matrix)
        largest = np.argsort(-np.abs(values), kind="stable")[:size]
        values, vectors = values[largest], vectors[:, largest]
    slices = np.empty((size, size, size))
    slices[left, right] = slices[right, left] = signed(vectors) * values / scale[:, None]
    return slices


def read_off_of_kind(
    moment: FourthMoment, count: int, kind: str, rng: np.random.Generator, algorithm: Any
) -> Unmixing | None:
    """Sources under a known kind of noise; None where the cumulant does not show them."""
    seen = spectrum(moment.covariance)
    if seen.rank < count:
        return None
    if kind == "isotropic":
        return by_rotation(moment, isotropic(seen, count, moment.weight), rng, algorithm)
    if kind == "diagonal":
        space = diagonal(moment.covariance, count, moment.weight)
        return by_rotation(moment, space, rng, algorithm)
    if kind == "none" and seen.rank == count:
        return by_rotation(moment, whitened(seen, count, kind), rng, algorithm)
    found = by_fit(moment, count, rng, algorithm)
    return found if found is not None and found.noise_kind == kind else None
