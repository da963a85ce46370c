"""Gaussian emissions of a hidden Markov model, with covariances of four kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg

from latensor.arrays.threads import one_blas_thread, run_tasks
from latensor.refinement.hmm.chain import Expectation, Likelihoods
from latensor.refinement.hmm.sequences import Sequences

_LOG_2PI = float(np.log(2 * np.pi))
# How far, in deviations of a state, its two halves are moved apart.
_APART = 0.8
# Neighbours that are known this well before anything is seen tell nothing.
_LEAST_SPREAD = 1e-3
# The expected number of rows below which a state keeps the mean and covariance it had.
_FEWEST = 1e-8


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

    def lowest(self) -> Any:
        """The floor in the shape in which it meets variances."""
        floor = np.asarray(self.floor, dtype=np.float64)
        return float(floor.min()) if self.kind == "spherical" else floor

    def likelihoods(self, rows: Any, sequences: Sequences, n_threads: int) -> Likelihoods:
        """How likely every row (n, p) is in every state, relative to its likeliest."""
        from latensor.refinement.hmm import _kernels

        k, p = self.means.shape
        n = rows.shape[0]
        table, top = np.empty((n, k)), np.empty(n)
        if self.kind in ("spherical", "diag"):
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
        return Likelihoods(np.arange(n), table, float(top.sum()), top)

    def maximized(self, rows: Any, found: Expectation, n_threads: int) -> Self:
        """The means and covariances that make the rows likeliest, given their states."""
        k, p = self.means.shape
        sequences, posteriors = found.sequences, found.posteriors
        n_ranges = len(sequences.ranges)
        firsts = np.zeros((n_ranges, k, p))
        diagonal = self.kind in ("spherical", "diag")
        seconds = np.zeros((n_ranges, k, p) if diagonal else (n_ranges, k, p, p))

        def add(i: int, first: int, last: int) -> None:
            shares, block = posteriors[first:last], rows[first:last]
            firsts[i] = shares.T @ block
            if diagonal:
                seconds[i] = shares.T @ (block * block)
            else:
                for j in range(k):
                    seconds[i, j] = (block * shares[:, j : j + 1]).T @ block

        with one_blas_thread():
            run_tasks(add, [(i, a, b) for i, (a, b) in enumerate(sequences.ranges)], n_threads)
        return self.from_sums(found.totals, sequences.total(firsts), sequences.total(seconds))

    def from_sums(self, counts: Any, firsts: Any, seconds: Any) -> Self:
        """Means and covariances from weighted sums of the rows and of their squares.

        Parameters
        ----------
        counts : (k,)
        firsts : (k, p)
        seconds : (k, p) for "spherical" and "diag", (k, p, p) for "full" and "tied"
        """
        p = self.means.shape[1]
        seen = counts > _FEWEST
        safe = np.where(seen, counts, 1.0)
        means = np.where(seen[:, None], firsts / safe[:, None], self.means)
        if self.kind in ("spherical", "diag"):
            variances = np.maximum(seconds / safe[:, None] - means**2, 0.0)
            if self.kind == "spherical":
                variances = variances.mean(axis=1)
                found = np.where(seen, variances + self.lowest(), self.covariances)
            else:
                found = np.where(seen[:, None], variances + self.lowest(), self.covariances)
            return type(self)(means, found, self.kind, self.floor)
        scatter = seconds / safe[:, None, None] - np.einsum("ja,jb->jab", means, means)
        scatter = (scatter + scatter.transpose(0, 2, 1)) / 2
        if self.kind == "tied":
            shares = np.where(seen, counts, 0.0) / max(float(counts[seen].sum()), _FEWEST)
            found = np.einsum("j,jab->ab", shares, scatter) + self.lowest() * np.eye(p)
            found = positive(found[None], np.min(self.floor))[0]
        else:
            found = positive(scatter + self.lowest() * np.eye(p), np.min(self.floor))
            found = np.where(seen[:, None, None], found, self.covariances)
        return type(self)(means, found, self.kind, self.floor)

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
        if self.kind in ("spherical", "diag"):
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
        if self.kind in ("spherical", "diag"):
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

    def pooled(self, first: int, second: int, share: float) -> Self:
        """Two states with the mean and covariance of both together, of which one has `share`."""
        pair, shares = [first, second], np.array([share, 1 - share])
        means = self.means.copy()
        means[pair] = center = shares @ self.means[pair]
        if self.kind == "tied":
            return type(self)(means, self.covariances, self.kind, self.floor)
        apart = self.means[pair] - center
        found = self.covariances.copy()
        if self.kind == "full":
            between = np.einsum("j,ja,jb->ab", shares, apart, apart)
        else:
            between = shares @ apart**2
            between = between.mean() if self.kind == "spherical" else between
        found[pair] = np.tensordot(shares, self.covariances[pair], axes=1) + between
        return type(self)(means, found, self.kind, self.floor)

    def parted(self, state: int, place: int, direction: Any) -> Self:
        """A state in two halves, the second at `place`, apart along a unit direction (p,).

        The direction is in units of the deviations of the state; together the halves have its
        covariance.
        """
        means = self.means.copy()
        factors = np.linalg.cholesky(self.matrices()[state])
        shift = _APART * factors @ direction
        means[state], means[place] = self.means[state] + shift, self.means[state] - shift
        if self.kind == "tied":
            return type(self)(means, self.covariances, self.kind, self.floor)
        found = self.covariances.copy()
        if self.kind == "full":
            within = found[state] - np.outer(shift, shift)
            within = positive(within[None], np.min(self.floor))[0]
        elif self.kind == "diag":
            within = np.maximum(found[state] - shift**2, self.lowest())
        else:
            within = max(found[state] - float((shift**2).mean()), self.lowest())
        found[state] = found[place] = within
        return type(self)(means, found, self.kind, self.floor)

    def directions(self, rows: Any, posteriors: Any, beside: Any) -> list[tuple[Any, Any]]:
        """Along what every state may be split: by how far it is wider than it should be, and by
        how much its rows tell about their neighbours.

        Parameters
        ----------
        rows : (n, p)
        posteriors : (n, k), times how often a row counts
        beside : (n, g), what is known of the states of neighbouring rows

        Returns
        -------
        For each of the two ways the scores (k,) and unit directions (k, p) in units of deviations.
        """
        k, p = self.means.shape
        if self.kind in ("full", "tied"):
            whiteners = self._inverse_factors()
        else:
            whiteners = np.einsum("ja,ab->jab", 1 / np.sqrt(self.variances()), np.eye(p))
        width, telling = np.zeros(k), np.zeros(k)
        wide, told = np.zeros((k, p)), np.zeros((k, p))
        with one_blas_thread():
            for j in range(k):
                shares = posteriors[:, j]
                total = max(float(shares.sum()), _FEWEST)
                standard = (rows - self.means[j]) @ whiteners[j].T
                weighted = standard * shares[:, None]
                values, vectors = np.linalg.eigh(weighted.T @ standard / total)
                width[j], wide[j] = total * (values[-1] - 1), vectors[:, -1]
                telling[j], told[j] = most_telling(weighted, shares, beside)
        return [(width, wide), (telling, told)]

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


def most_telling(weighted: Any, shares: Any, beside: Any) -> tuple[float, Any]:
    """The direction of rows that says most about their neighbours, and how much it says.

    Parameters
    ----------
    weighted : (n, p) standard rows of a state, times how much each belongs to it
    shares : (n,), these weights
    beside : (n, g), what is known of the neighbours

    Returns
    -------
    float, a multiple of the squared correlation; (p,), of length one
    """
    total = max(float(shares.sum()), _FEWEST)
    means = shares @ beside / total
    spread = np.sqrt(np.maximum(shares @ beside**2 / total - means**2, 0.0) + _LEAST_SPREAD)
    cross = (weighted.T @ beside - np.outer(weighted.sum(axis=0), means)) / (total * spread)
    left, values, _ = np.linalg.svd(cross, full_matrices=False)
    return total * float(values[0]) ** 2, left[:, 0]


def positive(matrices: Any, floor: float) -> Any:
    """Symmetric matrices (m, p, p) with no eigenvalue below a floor or below rounding."""
    values, vectors = np.linalg.eigh(matrices)
    largest = np.maximum(values.max(axis=1, keepdims=True), np.finfo(float).tiny)
    lowest = np.maximum(floor, 1e-14 * largest)
    if (values >= lowest).all():
        return matrices
    return np.einsum("mab,mb,mcb->mac", vectors, np.maximum(values, lowest), vectors)
