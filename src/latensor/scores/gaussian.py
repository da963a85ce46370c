"""Score functions of a Gaussian and of mixtures of Gaussians, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from scipy.special import logsumexp

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.scores.base import Scores, hermite, summed_hermite
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class MixtureScores(Scores):
    """Score functions of a mixture of Gaussians: S_m(x) = sum_j P(j | x) S_m(x | j).

    Attributes
    ----------
    weights : (k,)
    means : (k, d)
    covariances : (k, d, d)
    """

    weights: Any
    means: Any
    covariances: Any

    def __post_init__(self) -> None:
        for name in ("weights", "means", "covariances"):
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if not np.isfinite(value).all():
                raise InvalidInputError(f"{name} holds NaN or infinity: give finite numbers")
            object.__setattr__(self, name, value)
        k, d = len(self.weights), self.means.shape[-1]
        if self.means.shape != (k, d) or self.covariances.shape != (k, d, d):
            raise InvalidInputError(
                f"weights {self.weights.shape}, means {self.means.shape} and covariances "
                f"{self.covariances.shape} must be (k,), (k, d) and (k, d, d)"
            )
        if (self.weights < 0).any() or not self.weights.sum() > 0:
            raise InvalidInputError("weights must be at least 0, and one of them above")

    @property
    def n_features(self) -> int:
        return int(self.means.shape[1])

    @cached_property
    def _precisions(self) -> tuple[Array, Array]:
        """The precision matrices (k, d, d), and log w_j - log |covariance_j| / 2 (k,)."""
        d = self.n_features
        inverses, logs = np.empty_like(self.covariances), np.empty(len(self.weights))
        for j, covariance in enumerate(self.covariances):
            try:
                factor = scipy.linalg.cho_factor(covariance, lower=True)
            except np.linalg.LinAlgError as error:
                raise InvalidInputError(
                    f"covariance {j} is not positive definite: leave out features that are "
                    "combinations of others"
                ) from error
            inverses[j] = scipy.linalg.cho_solve(factor, np.eye(d))
            logs[j] = -np.log(np.diag(factor[0])).sum()
        with np.errstate(divide="ignore"):
            return inverses, logs + np.log(self.weights / self.weights.sum())

    def _components(self, rows: Array) -> tuple[Array, Array]:
        """First scores (k, n, d) of the components, and log w_j p_j(x) (n, k)."""
        inverses, logs = self._precisions
        gaps = rows[None] - self.means[:, None]
        first = gaps @ inverses
        distances = np.einsum("jnd,jnd->nj", gaps, first)
        shift = 0.5 * self.n_features * np.log(2 * np.pi)
        return first, logs - 0.5 * distances - shift

    def log_density(self, X: object) -> Array:
        """The logarithm of the density (n,)."""
        return np.asarray(logsumexp(self._components(self._read(X)[1])[1], axis=1))

    def _responsible(self, rows: Array) -> tuple[Array, Array]:
        first, logs = self._components(rows)
        return first, np.exp(logs - logsumexp(logs, axis=1, keepdims=True))

    def _projected(self, rows: Array, order: int, basis: Array) -> Array:
        first, fractions = self._responsible(rows)
        total = np.zeros((len(rows), *([basis.shape[1]] * order)))
        for scores, precision, fraction in zip(
            first, self._precisions[0], fractions.T, strict=True
        ):
            found = hermite(scores @ basis, basis.T @ precision @ basis, order)
            total += found * fraction.reshape(-1, *([1] * order))
        return total

    def _contracted(self, rows: Array, vectors: list[Array]) -> Array:
        first, fractions = self._responsible(rows)
        total = np.zeros_like(rows)
        for a, precision, fraction in zip(first, self._precisions[0], fractions.T, strict=True):
            along = [a @ v for v in vectors]
            turned = [precision @ v for v in vectors]
            found = np.prod(along, axis=0)[:, None] * a
            if len(vectors) == 1:
                found -= turned[0]
            else:
                found -= np.outer(along[1], turned[0]) + np.outer(along[0], turned[1])
                found -= a * float(vectors[0] @ turned[1])
            total += found * fraction[:, None]
        return total

    def summed(self, rows: Array, response: Array, order: int, basis: Array) -> Array:
        first, fractions = self._responsible(rows)
        parts = [
            summed_hermite(a @ basis, response * fraction[:, None], order, basis.T @ p @ basis)
            for a, p, fraction in zip(first, self._precisions[0], fractions.T, strict=True)
        ]
        return np.asarray(sum(parts))


class GaussianScores(MixtureScores):
    """Score functions of a Gaussian: with a = P (x - mean), P the inverse covariance,

    S_1 = a, S_2 = a (x) a - P, S_3 = a (x) a (x) a minus the three placements of a (x) P: Hermite
    polynomials.

    Parameters
    ----------
    mean : (d,)
    covariance : (d, d)
    """

    def __init__(self, mean: object, covariance: object) -> None:
        centre, spread = np.asarray(mean, dtype=np.float64), np.asarray(covariance)
        if centre.ndim != 1 or spread.shape != (len(centre), len(centre)):
            raise InvalidInputError(
                f"mean {centre.shape} and covariance {spread.shape} must be (d,) and (d, d)"
            )
        super().__init__(np.ones(1), centre[None], spread[None])

    @property
    def mean(self) -> Array:
        """(d,)."""
        return self.means[0]

    @property
    def covariance(self) -> Array:
        """(d, d)."""
        return self.covariances[0]


storable(name="GaussianScores", fields=("mean", "covariance"))(GaussianScores)
