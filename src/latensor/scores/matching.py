"""Score functions estimated from samples, by score matching in a kernel exponential family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.spatial.distance import pdist

from latensor.arrays import Array, RandomState, generator
from latensor.exceptions import InvalidInputError
from latensor.scores.base import Scores, hermite, placed, read_numbers
from latensor.value_files import storable

# Bandwidths as fractions of the median distance of two samples, and ridges as fractions of the
# mean curvature: both are chosen by the held-out loss.
_BANDWIDTHS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
_RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
# Fraction of the samples that are centres at most. They are left out of the loss: bumps at samples
# that are judged by themselves look better than they are.
_CENTRES = 0.2
# Eigenvalues of the covariance below this fraction of the largest are collinear columns.
_COLLINEAR = 1e-10


@storable
@dataclass(frozen=True, eq=False)
class KernelScores(Scores):
    """Score functions of log p = -|z|^2 / 2 + sum_c theta_c exp(-|z - c|^2 / 2 h^2) + constant.

    Attributes
    ----------
    mean : (d,), z = (x - mean) @ whitener
    whitener : (d, d)
    centres : (m, d), the points c
    coefficients : (m,), theta; all zero where the samples show nothing but a Gaussian
    bandwidth : float, h
    loss : float, held-out score matching loss, that of the Gaussian alone being 0
    """

    mean: Any
    whitener: Any
    centres: Any
    coefficients: Any
    bandwidth: float
    loss: float

    @property
    def n_features(self) -> int:
        return len(self.mean)

    def log_density(self, X: object) -> Array:
        """The logarithm of the density (n,), up to a constant."""
        z = (self._read(X)[1] - self.mean) @ self.whitener
        return np.asarray(self._kernels(z).sum(axis=1) - 0.5 * (z**2).sum(axis=1))

    def _kernels(self, z: Array) -> Array:
        """theta_c k(z, c) (n, m)."""
        return np.asarray(_kernel(z, self.centres, self.bandwidth) * self.coefficients)

    def _projected(self, rows: Array, order: int, basis: Array) -> Array:
        z = (rows - self.mean) @ self.whitener
        turned = self.whitener.T @ basis
        kernels, h2 = self._kernels(z), self.bandwidth**2
        r = turned.shape[1]
        flat, at = z @ turned, self.centres @ turned
        # Derivatives of the logarithm: those of k are Hermite polynomials in (z - c) / h^2.
        first = -flat - (flat * kernels.sum(axis=1)[:, None] - kernels @ at) / h2
        if order == 1:
            return np.asarray(-first)
        gram = turned.T @ turned
        second = np.zeros((len(z), r, r)) - gram
        third = np.zeros((len(z), r, r, r))
        for c, weight in zip(at, kernels.T, strict=True):
            gaps = (flat - c) / h2
            second += hermite(gaps, gram / h2, 2) * weight[:, None, None]
            if order == 3:
                third -= hermite(gaps, gram / h2, 3) * weight[:, None, None, None]
        pair = first[:, :, None] * first[:, None, :]
        if order == 2:
            return np.asarray(pair + second)
        return -(pair[:, :, :, None] * first[:, None, None, :] + placed(first, second) + third)


def score_matching(
    X: object, *, n_centres: int = 100, random_state: RandomState = 0
) -> KernelScores:
    """Estimate score functions from samples (Hyvarinen 2005; Sriperumbudur et al. 2013).

    The log density is that of a Gaussian with the mean and covariance of the samples plus Gaussian
    bumps at some of them; the mean squared error of its gradient is quadratic in their heights, and
    known up to a constant without the true density: one linear system. Bandwidth and ridge are
    those of the least loss on the other half of the samples; where none is below that of the
    Gaussian alone, the Gaussian is what is returned.

    First derivatives are estimated much better than third ones, and few features better than many.

    Parameters
    ----------
    X : (n, d)
    n_centres : int, bumps
    random_state : seed of the choice of centres and halves
    """
    rows = np.asarray(read_numbers(X, "X"), dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 4:
        raise InvalidInputError(f"X must be at least 4 rows (n, d), got shape {rows.shape}")
    if n_centres < 1:
        raise InvalidInputError(f"n_centres={n_centres} must be at least 1")
    mean = rows.mean(axis=0)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(rows.T)))
    if values[0] <= _COLLINEAR * values[-1]:
        raise InvalidInputError(
            f"X varies in {int((values > _COLLINEAR * values[-1]).sum())} of {len(values)} "
            "directions: leave out features that are combinations of others"
        )
    whitener = (vectors / np.sqrt(values)) @ vectors.T
    z = (rows - mean) @ whitener
    rng = generator(random_state)
    z = z[rng.permutation(len(z))]
    count = min(n_centres, max(1, int(_CENTRES * len(z))))
    centres, z = z[:count], z[count:]
    scale = float(np.median(pdist(z[:500])))
    half = len(z) // 2
    best: tuple[float, float, float] | None = None
    for fraction in _BANDWIDTHS:
        h = fraction * scale
        parts = [_quadratic(part, centres, h) for part in (z[:half], z[half:])]
        for ridge in _RIDGES:
            losses = []
            for kept, left in (parts, parts[::-1]):
                theta = _solved(kept, ridge)
                losses.append(0.5 * theta @ left[0] @ theta + theta @ left[1])
            loss = float(np.mean(losses))
            if best is None or loss < best[0]:
                best = loss, h, ridge
    assert best is not None
    loss, h, ridge = best
    theta = _solved(_quadratic(z, centres, h), ridge) if loss < 0 else np.zeros(len(centres))
    return KernelScores(mean, whitener, centres, theta, h, min(loss, 0.0))


def _kernel(z: Array, centres: Array, h: float) -> Array:
    squares = (z**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * z @ centres.T
    return np.exp(-0.5 * np.maximum(squares, 0) / h**2)


def _quadratic(z: Array, centres: Array, h: float) -> tuple[Array, Array]:
    """G and b of the loss theta'G theta / 2 + b'theta, means over rows.

    With phi_c = k(z, c): G = E[grad phi_c . grad phi_c'], b = E[-z . grad phi_c + laplacian phi_c].
    """
    phi = _kernel(z, centres, h)
    along = phi * (z @ centres.T)
    squares = (z**2).sum(axis=1)
    cross = along.T @ phi
    gram = (
        (phi * squares[:, None]).T @ phi - cross - cross.T + (phi.T @ phi) * (centres @ centres.T)
    )
    outward = (phi * squares[:, None] - along).sum(axis=0) / h**2
    distances = phi * squares[:, None] - 2 * along + phi * (centres**2).sum(axis=1)
    laplacian = distances.sum(axis=0) / h**4 - z.shape[1] * phi.sum(axis=0) / h**2
    return gram / (h**4 * len(z)), (outward + laplacian) / len(z)


def _solved(quadratic: tuple[Array, Array], ridge: float) -> Array:
    gram, linear = quadratic
    strength = ridge * float(np.trace(gram)) / len(gram)
    factor = scipy.linalg.cho_factor(gram + strength * np.eye(len(gram)))
    return np.asarray(-scipy.linalg.cho_solve(factor, linear))
