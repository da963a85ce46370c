"""Points of which some entries were not observed: their likelihoods and expected moments.

Given the state, with o the entries observed and m the missing ones, x_o has the density
N(mu_o, S_oo), and x_m the mean mu_m + B (x_o - mu_o), B = S_mo S_oo^-1, and the covariance
S_mm - B S_om. A row of which nothing was observed is as likely in every state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg

_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, eq=False)
class IncompletePoints:
    """Rows with missing entries.

    Attributes
    ----------
    rows : (n, p), zero where nothing was observed
    observed : (n, p) bool
    patterns : for every set of entries that were observed together, the (p,) bool mask and the
        rows that have it
    """

    rows: Any
    observed: Any
    patterns: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(cls, rows: Any) -> Self:
        """Rows in which NaN stands for what is missing."""
        observed = ~np.isnan(rows)
        masks, owner = np.unique(observed, axis=0, return_inverse=True)
        order = np.argsort(owner.ravel(), kind="stable")
        edges = np.searchsorted(owner.ravel()[order], np.arange(len(masks) + 1))
        patterns = tuple((mask, order[edges[i] : edges[i + 1]]) for i, mask in enumerate(masks))
        return cls(np.where(observed, rows, 0.0), observed, patterns)

    def diagonal_logs(self, means: Any, variances: Any) -> Any:
        """Log densities (n, k) for variances (k, p)."""
        logs = np.empty((len(self.rows), len(means)))
        for j, (mean, variance) in enumerate(zip(means, variances, strict=True)):
            squares = np.where(self.observed, self.rows - mean, 0.0) ** 2 @ (1 / variance)
            logs[:, j] = -0.5 * (squares + self.observed @ (np.log(variance) + _LOG_2PI))
        return logs

    def full_logs(self, means: Any, matrices: Any) -> Any:
        """Log densities (n, k) for covariances (k, p, p)."""
        logs = np.zeros((len(self.rows), len(means)))
        for mask, rows in self.patterns:
            if not mask.any():
                continue
            points = self.rows[np.ix_(rows, mask)]
            for j, (mean, matrix) in enumerate(zip(means, matrices, strict=True)):
                factor = np.linalg.cholesky(matrix[np.ix_(mask, mask)])
                whitened = scipy.linalg.solve_triangular(
                    factor, (points - mean[mask]).T, lower=True
                )
                determinant = 2 * np.log(np.diag(factor)).sum() + mask.sum() * _LOG_2PI
                logs[rows, j] = -0.5 * ((whitened**2).sum(axis=0) + determinant)
        return logs

    def diagonal_sums(self, posteriors: Any, means: Any, variances: Any) -> tuple[Any, Any]:
        """Expected sums (k, p) of the entries and of their squares."""
        missing = posteriors.T @ ~self.observed
        firsts = posteriors.T @ self.rows + missing * means
        seconds = posteriors.T @ self.rows**2 + missing * (means**2 + variances)
        return firsts, seconds

    def full_sums(self, posteriors: Any, means: Any, matrices: Any) -> tuple[Any, Any]:
        """Expected sums (k, p) of the entries and (k, p, p) of their products."""
        k, p = means.shape
        firsts, seconds = np.zeros((k, p)), np.zeros((k, p, p))
        for mask, rows in self.patterns:
            points, fractions = self.rows[np.ix_(rows, mask)], posteriors[rows]
            for j, (mean, matrix) in enumerate(zip(means, matrices, strict=True)):
                # E x = lift x_o + shift, with the covariance `rest` of what is missing.
                lift, shift, rest = np.zeros((p, int(mask.sum()))), np.zeros(p), np.zeros((p, p))
                lift[mask] = np.eye(int(mask.sum()))
                across = matrix[np.ix_(~mask, mask)]
                gain = np.linalg.solve(matrix[np.ix_(mask, mask)], across.T).T
                lift[~mask], shift[~mask] = gain, mean[~mask] - gain @ mean[mask]
                rest[np.ix_(~mask, ~mask)] = matrix[np.ix_(~mask, ~mask)] - gain @ across.T
                weights = fractions[:, j]
                total, first = weights.sum(), lift @ (weights @ points)
                second = lift @ ((points * weights[:, None]).T @ points) @ lift.T
                firsts[j] += first + total * shift
                seconds[j] += (
                    second
                    + np.outer(first, shift)
                    + np.outer(shift, first)
                    + total * (np.outer(shift, shift) + rest)
                )
        return firsts, seconds
