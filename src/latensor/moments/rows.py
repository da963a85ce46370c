"""A fixed number of rows that stand for a stream, the same however it is cut and merged.

Every row gets a number computed from its own entries, and the rows with the smallest numbers are
kept. Equal rows have equal numbers and are kept once, with the sum of their weights: any order,
any split and any merge gives the same sample, and a weight of 2 is the same as a row given twice.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from latensor.exceptions import InvalidInputError

# Rows hashed at a time: the temporaries stay in the cache.
_BLOCK = 4096


class RowSample:
    """The rows with the smallest hash, at most `limit` of them, with their weights.

    Whether a row is kept does not depend on its weight, so that sums over the sample, times
    `weight` over the kept weight, are unbiased for sums over the stream up to the choice of
    distinct rows.

    Attributes
    ----------
    samples : (m, d) float64 array, in the order of their hashes
    weights : (m,) float64 array
    weight : float, of all rows seen
    count : int, rows seen
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.weight = 0.0
        self.samples: Any = None
        self.weights: Any = np.empty(0)
        self._hashes: Any = np.empty(0, dtype=np.uint64)

    def update(self, batch: Any, weights: Any = None) -> Self:
        """Add rows (n, d) of a dense host array; a weight of 2 is the same as a row twice."""
        rows = np.asarray(batch)
        numbers = np.ones(rows.shape[0]) if weights is None else np.asarray(weights, dtype=float)
        self.count += rows.shape[0]
        self.weight += float(numbers.sum())
        hashes = row_hashes(rows)
        kept = np.flatnonzero(numbers > 0)
        if len(self._hashes) == self.limit:
            kept = kept[hashes[kept] <= self._hashes[-1]]
        self._add(rows[kept], numbers[kept], hashes[kept])
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows that another sample of the same limit has seen."""
        if not isinstance(other, RowSample) or other.limit != self.limit:
            raise InvalidInputError(
                f"cannot merge {other!r} into a RowSample of {self.limit} rows: "
                "both need the same limit"
            )
        if other.samples is not None:
            self.count += other.count
            self.weight += other.weight
            self._add(other.samples, other.weights, other._hashes)
        return self

    def spawn(self) -> RowSample:
        """An empty sample of the same limit."""
        return RowSample(self.limit)

    def _add(self, rows: Any, weights: Any, hashes: Any) -> None:
        if self.samples is None:
            self.samples = np.empty((0, rows.shape[1]))
        hashes = np.concatenate([self._hashes, hashes])
        distinct, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        totals = np.bincount(
            group, weights=np.concatenate([self.weights, weights]), minlength=len(distinct)
        )
        kept = first[: self.limit]
        known = len(self._hashes)
        chosen = np.empty((len(kept), self.samples.shape[1]))
        old = kept < known
        chosen[old] = self.samples[kept[old]]
        chosen[~old] = rows[kept[~old] - known]
        self.samples, self.weights = chosen, totals[: self.limit]
        self._hashes = distinct[: self.limit]


def row_hashes(rows: Any) -> Any:
    """A number (n,) in 0 .. 2^64 - 1 for every row (n, d), a function of its entries alone."""
    keys = np.random.default_rng(0x6C6174656E736F72).integers(
        0, 2**63, size=rows.shape[1], dtype=np.uint64
    )
    keys = keys * np.uint64(2) + np.uint64(1)
    result = np.empty(rows.shape[0], dtype=np.uint64)
    for start in range(0, rows.shape[0], _BLOCK):
        # Adding zero turns the negative zero into the positive one: equal rows, equal bits.
        bits = (rows[start : start + _BLOCK].astype(np.float64) + 0.0).view(np.uint64)
        bits ^= bits >> np.uint64(32)
        bits *= keys
        bits ^= bits >> np.uint64(29)
        bits *= np.uint64(0xBF58476D1CE4E5B9)
        bits ^= bits >> np.uint64(32)
        total = bits.sum(axis=1, dtype=np.uint64)
        total ^= total >> np.uint64(30)
        total *= np.uint64(0x94D049BB133111EB)
        result[start : start + _BLOCK] = total ^ (total >> np.uint64(31))
    return result
