"""Gaussians of which some entries are unobserved: exact densities and expected sums by pattern.

For the observed entries o and the unobserved ones m of a row, with K = S_oo^-1 in the places of
the observed entries and zero elsewhere, and u = x_o - mu_o likewise:

    density    N(x_o; mu_o, S_oo)
    E x        = mu + A u,  A = S K        (A u = x_o - mu_o on o: those entries are known)
    Cov x      = V = S - A S               (zero on o)

so the sums of a component over the rows of a pattern are those of r, r u and r u u'.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.refinement.families.covariances import LOG_TWO_PI, cholesky, inverse_factors

# Numbers in the matrices (patterns, k, d, d) that are made at a time.
_MOST_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class Patterns:
    """Which entries of rows are observed, rows of one pattern together.

    Attributes
    ----------
    masks : (P, d) booleans, True where observed
    index : (n,) integers in increasing order, the pattern of every row
    """

    masks: Any
    index: Any

    @staticmethod
    def of(observed: Any) -> tuple[Any, Patterns]:
        """An order (n,) of the rows that brings equal patterns together, and the patterns.

        Parameters
        ----------
        observed : (n, d) booleans
        """
        packed = np.packbits(observed, axis=1)
        _, first, index = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        index = np.asarray(index).reshape(-1)
        order = np.argsort(index, kind="stable")
        return order, Patterns(observed[first], index[order])

    def ranges(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Patterns and rows by ranges small enough to work on, for `count` components."""
        width = self.masks.shape[1]
        size = max(1, _MOST_NUMBERS // (count * width * width))
        for start in range(0, len(self.masks), size):
            stop = min(start + size, len(self.masks))
            low, high = np.searchsorted(self.index, [start, stop])
            yield slice(start, stop), slice(int(low), int(high))


@dataclass(frozen=True, eq=False)
class Conditionals:
    """What some patterns say about the unobserved entries, at the parameters of a mixture.

    Attributes
    ----------
    observed : (P, d) integers, the observed entries of each pattern first
    counts : (P,) integers, how many they are
    precisions : (P, k, d, d), K
    log_determinants : (P, k), log |S_oo|
    """

    observed: Any
    counts: Any
    precisions: Any
    log_determinants: Any

    @staticmethod
    def of(masks: Any, covariances: Any) -> Conditionals:
        """For patterns (P, d) and covariances (k, d, d)."""
        both = (masks[:, :, None] & masks[:, None, :])[:, None]
        apart = (~masks)[:, None, :, None] * np.eye(masks.shape[1])
        filled = covariances[None] * both + apart
        lower = cholesky(filled)
        logs = 2 * np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(axis=-1)
        roots = inverse_factors(lower)
        precisions = (roots @ np.swapaxes(roots, -1, -2)) * both
        order = np.argsort(~masks, axis=1, kind="stable")
        return Conditionals(order, masks.sum(axis=1), np.ascontiguousarray(precisions), logs)

    def log_densities(self, points: Any, index: Any, means: Any) -> Any:
        """Log N(x_o; mu_jo, S_joo) (n, k) of rows (n, d) with patterns `index`."""
        from latensor.refinement.families._kernels import squared_distances

        result = np.empty((len(points), len(means)))
        squared_distances(points, index, self.observed, self.counts, means, self.precisions, result)
        constants = -(self.counts[:, None] * LOG_TWO_PI + self.log_determinants) / 2
        result *= -0.5
        result += constants[index]
        return result

    def sums(
        self, points: Any, index: Any, means: Any, covariances: Any, responsibilities: Any
    ) -> tuple[Any, Any]:
        """Sum r E x (k, d) and sum r E x x' (k, d, d)."""
        from latensor.refinement.families._kernels import pattern_sums

        n_patterns, (count, width) = len(self.counts), means.shape
        zeroth = np.zeros((n_patterns, count))
        first = np.zeros((n_patterns, count, width))
        second = np.zeros((n_patterns, count, width, width))
        pattern_sums(
            points,
            index,
            self.observed,
            self.counts,
            means,
            responsibilities,
            zeroth,
            first,
            second,
        )
        transposed = np.swapaxes(second, -1, -2)
        diagonal = np.einsum("pjaa->pja", second)
        second = second + transposed
        np.einsum("pjaa->pja", second)[...] -= diagonal
        maps = covariances[None] @ self.precisions
        moved = np.einsum("pjab,pjb->ja", maps, first, optimize=True)
        masses = zeroth.sum(axis=0)
        products = (maps @ second @ np.swapaxes(maps, -1, -2)).sum(axis=0)
        left = masses[:, None, None] * covariances
        left = left - np.einsum("pj,pjab->jab", zeroth, maps, optimize=True) @ covariances
        crossed = means[:, :, None] * moved[:, None, :]
        total = products + (left + np.swapaxes(left, -1, -2)) / 2
        total += crossed + np.swapaxes(crossed, -1, -2)
        total += masses[:, None, None] * means[:, :, None] * means[:, None, :]
        return masses[:, None] * means + moved, total

    def completed(self, points: Any, index: Any, means: Any, covariances: Any) -> Any:
        """E[x | x_o, j] (n, k, d) of every row and component."""
        masks = np.zeros((len(self.counts), points.shape[1]), dtype=bool)
        for p, (entries, size) in enumerate(zip(self.observed, self.counts, strict=True)):
            masks[p, entries[:size]] = True
        gaps = (points[:, None, :] - means[None]) * masks[index][:, None, :]
        maps = covariances[None] @ self.precisions
        return means[None] + np.einsum("njab,njb->nja", maps[index], gaps, optimize=True)
