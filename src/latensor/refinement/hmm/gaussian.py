"""Gaussian emissions of a hidden Markov model, with covariances of four kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg

from latensor.arrays.threads import run_tasks
from latensor.refinement.hmm.chain import Expectation, Likelihoods
from latensor.refinement.hmm.incomplete import IncompletePoints
from latensor.refinement.hmm.sequences import Sequences
from latensor.value_files import storable

_LOG_2PI = float(np.log(2 * np.pi))
# The expected number of rows below which a state keeps the mean and covariance it had.
_FEWEST = 1e-8


@storable
@dataclass(frozen=True, eq=False)
class PointDesign:
    """How points are given to the emissions: minus a centre (p,), over a scale (p,).

    Far from the origin a square would lose the digits that tell states apart.
    """

    center: Any
    scale: Any

    def __call__(self, points: Any) -> Any:
        """(n, p) standardized, C-contiguous; IncompletePoints where entries are missing."""
        standard = np.ascontiguousarray((points - self.center) / self.scale)
        return IncompletePoints.of(standard) if np.isnan(standard).any() else standard


@storable
@dataclass(frozen=True)
class GaussianEmission:
    """Rows in R^p with a mean and a covariance that depend on the state.

    Attributes
    ----------
    means : (k, p)
    covariances : (k,) "spherical", (k, p) "diag", (k, p, p) "full", (p, p) "tied"
    kind : str, which of them
    floor : float or (p,), added to every variance; one number for "spherical"
    """

    means: Any
    covariances: Any
    kind: str
    floor: Any = 0.0

    @property
    def design(self) -> PointDesign:
        """How points in the coordinates of these emissions become what the rest takes."""
        p = self.means.shape[1]
        return PointDesign(np.zeros(p), np.ones(p))

    def lowest(self) -> Any:
        """The floor in the shape in which it meets variances."""
        floor = np.asarray(self.floor, dtype=np.float64)
        return float(floor.min()) if self.kind == "spherical" else floor

    def likelihoods(self, rows: Any, sequences: Sequences, n_threads: int = 1) -> Likelihoods:
        """How likely every row (n, p) is in every state, relative to its likeliest."""
        from latensor.refinement.hmm import _kernels

        if isinstance(rows, IncompletePoints):
            logs = (
                rows.diagonal_logs(self.means, self.variances())
                if self.is_diagonal
                else rows.full_logs(self.means, self.matrices())
            )
            top = logs.max(axis=1)
            return Likelihoods(np.arange(len(top)), np.exp(logs - top[:, None]), top)
        k, p = self.means.shape
        n = rows.shape[0]
        table, top = np.empty((n, k)), np.empty(n)
        if self.is_diagonal:
            variances = self.variances()
            scales = 1 / np.sqrt(variances)
            constants = np.log(scales).sum(axis=1) - 0.5 * p * _LOG_2PI
            kernel: Any = _kernels.diagonal_likelihoods
            settings: tuple[Any, ...] = (rows, self.means, scales, constants)
        else:
            factors = self._inverse_factors()
            shifts = np.einsum("jab,jb->ja", factors, self.means)
            logs = np.log(np.einsum("jaa->ja", factors)).sum(axis=1)
            kernel = _kernels.gaussian_likelihoods
            settings = (rows, factors, shifts, logs - 0.5 * p * _LOG_2PI)
        run_tasks(kernel, [(*settings, a, b, table, top) for a, b in sequences.ranges], n_threads)
        return Likelihoods(np.arange(n), table, top)

    def sums(self, rows: Any, found: Expectation) -> dict[str, Any]:
        """Expected sums of the rows (k, p) and of their squares or products, by state."""
        posteriors = found.weighted()
        if isinstance(rows, IncompletePoints):
            firsts, seconds = (
                rows.diagonal_sums(posteriors, self.means, self.variances())
                if self.is_diagonal
                else rows.full_sums(posteriors, self.means, self.matrices())
            )
        elif self.is_diagonal:
            firsts, seconds = posteriors.T @ rows, posteriors.T @ (rows * rows)
        else:
            firsts = posteriors.T @ rows
            seconds = np.stack([(rows * column[:, None]).T @ rows for column in posteriors.T])
        return {"firsts": firsts, "seconds": seconds}

    def maximized(self, sums: dict[str, Any], updates: str = "mc") -> Self:
        """The means and covariances, or one of both, that make the rows likeliest."""
        p = self.means.shape[1]
        counts, firsts = sums["totals"], sums["firsts"]
        seen = counts > _FEWEST
        safe = np.where(seen, counts, 1.0)
        means, found = self.means, self.covariances
        centers = firsts / safe[:, None]
        if "m" in updates:
            means = np.where(seen[:, None], centers, self.means)
        if "c" not in updates:
            return type(self)(means, found, self.kind, self.floor)
        if self.is_diagonal:
            seconds = sums["seconds"] / safe[:, None]
            variances = np.maximum(seconds - 2 * means * centers + means**2, 0.0)
            if self.kind == "spherical":
                variances = variances.mean(axis=1)
                found = np.where(seen, variances + self.lowest(), self.covariances)
            else:
                found = np.where(seen[:, None], variances + self.lowest(), self.covariances)
            return type(self)(means, found, self.kind, self.floor)
        across = np.einsum("ja,jb->jab", means, centers)
        scatter = sums["seconds"] / safe[:, None, None] - across - across.transpose(0, 2, 1)
        scatter = scatter + np.einsum("ja,jb->jab", means, means)
        scatter = (scatter + scatter.transpose(0, 2, 1)) / 2
        if self.kind == "tied":
            fractions = np.where(seen, counts, 0.0) / max(float(counts[seen].sum()), _FEWEST)
            found = np.einsum("j,jab->ab", fractions, scatter) + self.lowest() * np.eye(p)
            found = positive(found[None], np.min(self.floor))[0]
        else:
            found = positive(scatter + self.lowest() * np.eye(p), np.min(self.floor))
            found = np.where(seen[:, None, None], found, self.covariances)
        return type(self)(means, found, self.kind, self.floor)

    def complete(self, sums: dict[str, Any]) -> float:
        """The log-likelihood of rows whose states are known as well as `sums` says."""
        counts, firsts, seconds = sums["totals"], sums["firsts"], sums["seconds"]
        means, p = self.means, self.means.shape[1]
        if self.is_diagonal:
            variances = self.variances()
            squares = seconds - 2 * means * firsts + counts[:, None] * means**2
            logs = np.log(variances).sum(axis=1) + p * _LOG_2PI
            return -0.5 * float((squares / variances).sum() + counts @ logs)
        factors = self._inverse_factors()
        across = np.einsum("ja,jb->jab", means, firsts)
        scatter = seconds - across - across.transpose(0, 2, 1)
        scatter = scatter + counts[:, None, None] * np.einsum("ja,jb->jab", means, means)
        logs = -2 * np.log(np.einsum("jaa->ja", factors)).sum(axis=1) + p * _LOG_2PI
        traces = np.einsum("jab,jbc,jac->", factors, scatter, factors, optimize=True)
        return -0.5 * float(traces + counts @ logs)

    @property
    def is_diagonal(self) -> bool:
        """Whether entries are independent given the state."""
        return self.kind in ("spherical", "diag")

    def variances(self) -> Any:
        """The variances (k, p) along the coordinates, for "spherical" and "diag"."""
        if self.kind == "spherical":
            return np.repeat(self.covariances[:, None], self.means.shape[1], axis=1)
        return self.covariances

    def matrices(self) -> Any:
        """The covariances as (k, p, p) matrices, whatever their kind."""
        k, p = self.means.shape
        if self.kind == "full":
            return self.covariances.copy()
        if self.kind == "tied":
            return np.repeat(self.covariances[None], k, axis=0)
        return np.einsum("ja,ab->jab", self.variances(), np.eye(p))

    def packed(self) -> Any:
        """Means and covariances as free numbers, in which steps can be extrapolated."""
        if self.is_diagonal:
            return np.concatenate([self.means.ravel(), np.log(self.covariances).ravel() / 2])
        factors = self._factors()
        p = self.means.shape[1]
        rows, columns = np.tril_indices(p)
        entries = factors[:, rows, columns].copy()
        entries[:, rows == columns] = np.log(entries[:, rows == columns])
        return np.concatenate([self.means.ravel(), entries.ravel()])

    def unpacked(self, vector: Any) -> Self:
        """Means and covariances from what `packed` returned, changed."""
        k, p = self.means.shape
        means, rest = vector[: k * p].reshape(k, p), vector[k * p :]
        if self.is_diagonal:
            found = np.exp(np.clip(2 * rest, -600.0, 600.0)).reshape(self.covariances.shape)
            found = np.maximum(found, self.lowest())
            return type(self)(means, found, self.kind, self.floor)
        rows, columns = np.tril_indices(p)
        entries = rest.reshape(-1, len(rows)).copy()
        on = rows == columns
        entries[:, on] = np.exp(np.minimum(entries[:, on], 300.0))
        factors = np.zeros((len(entries), p, p))
        factors[:, rows, columns] = entries
        found = positive(factors @ factors.transpose(0, 2, 1), np.min(self.floor))
        return type(self)(means, found[0] if self.kind == "tied" else found, self.kind, self.floor)

    def reordered(self, order: Any) -> Self:
        """The same emissions, states in another order."""
        found = self.covariances if self.kind == "tied" else self.covariances[order]
        return type(self)(self.means[order], found, self.kind, self.floor)

    @property
    def n_parameters(self) -> int:
        """How many numbers are free."""
        k, p = self.means.shape
        triangle = p * (p + 1) // 2
        free = {"spherical": k, "diag": k * p, "full": k * triangle, "tied": triangle}
        return int(k * p + free[self.kind])

    def _factors(self) -> Any:
        """Lower Cholesky factors (k, p, p), or (1, p, p) for "tied"."""
        found = self.covariances[None] if self.kind == "tied" else self.covariances
        return np.linalg.cholesky(found)

    def _inverse_factors(self) -> Any:
        k, p = self.means.shape
        inverse = np.stack(
            [
                scipy.linalg.solve_triangular(factor, np.eye(p), lower=True)
                for factor in self._factors()
            ]
        )
        return np.ascontiguousarray(np.broadcast_to(inverse, (k, p, p)))


def positive(matrices: Any, floor: float) -> Any:
    """Symmetric matrices (m, p, p) with no eigenvalue below a floor or below rounding."""
    values, vectors = np.linalg.eigh(matrices)
    largest = np.maximum(values.max(axis=1, keepdims=True), np.finfo(float).tiny)
    lowest = np.maximum(floor, 1e-14 * largest)
    if (values >= lowest).all():
        return matrices
    return np.einsum("mab,mb,mcb->mac", vectors, np.maximum(values, lowest), vectors)
