"""What is summed over sites: joint tables of two and of three leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.models.trees._kernels import add_triples
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class PairTables(Sums):
    """Joint tables of all pairs of leaves, by one product of indicators.

    Attributes
    ----------
    n_symbols : int, d
    """

    n_symbols: int

    def summed(self, batch: Batch) -> dict[str, Any]:
        codes = batch.rows
        d = self.n_symbols
        if codes.max(initial=-1) >= d:
            raise InvalidInputError(
                f"X holds symbol {int(codes.max())}, but the first batches had 0 to {d - 1}: give "
                "n_symbols"
            )
        shown = (codes[:, :, None] == np.arange(d, dtype=codes.dtype)).reshape(len(codes), -1)
        if len(codes) < 2**24 and np.ptp(batch.weights) == 0:
            # Counts up to 2^24 are exact in single precision, and one half of a square is enough.
            halves = shown.astype(np.float32)
            tables = (halves.T @ halves).astype(np.float64) * batch.weights[0]
        else:
            indicators = shown.astype(np.float64)
            tables = (indicators * batch.weights[:, None]).T @ indicators
        return {"weight": batch.weight, "tables": tables}

    def finalize(self) -> PairProbabilities:
        """Tables (n, n, d, d) of probabilities, each of the sites that both leaves have."""
        seen = self.seen()
        d = self.n_symbols
        n = len(seen["tables"]) // d
        tables = seen["tables"].reshape(n, d, n, d).transpose(0, 2, 1, 3)
        totals = tables.sum(axis=(2, 3))
        return PairProbabilities(
            tables / np.maximum(totals, np.finfo(float).tiny)[:, :, None, None],
            totals,
            float(seen["weight"]),
        )


@dataclass(frozen=True, eq=False)
class PairProbabilities:
    """Joint probabilities of all pairs of leaves.

    Attributes
    ----------
    tables : (n, n, d, d), P(x_i = a, x_j = b)
    totals : (n, n), sites that both leaves have
    weight : float, sites
    """

    tables: Any
    totals: Any
    weight: float

    @property
    def marginals(self) -> Array:
        """(n, d), the symbols of every leaf."""
        return np.einsum("iiaa->ia", self.tables)


@storable
@dataclass(frozen=True, eq=False)
class TripleTables(Sums):
    """Joint tables of three groups of leaves around every hidden node.

    Attributes
    ----------
    leaves : (h, 3, m) int64, the leaves of the groups, -1 for none
    n_symbols : int, d
    """

    joins_blocks: ClassVar[bool] = True
    leaves: Any
    n_symbols: int

    def summed(self, batch: Batch) -> dict[str, Any]:
        count, _, m = self.leaves.shape
        size = m * self.n_symbols
        counts = np.zeros((count, size, size, size))
        codes = np.ascontiguousarray(batch.rows)
        add_triples(codes, batch.weights, self.leaves, self.n_symbols, counts)
        return {"weight": batch.weight, "counts": counts}

    def finalize(self) -> Array:
        """(h, m d, m d, m d) probabilities, each triple of leaves of the sites that all have."""
        counts = self.seen()["counts"]
        h, m, d = len(counts), self.leaves.shape[2], self.n_symbols
        blocks = counts.reshape(h, m, d, m, d, m, d)
        totals = blocks.sum(axis=(2, 4, 6), keepdims=True)
        return (blocks / np.maximum(totals, np.finfo(float).tiny)).reshape(counts.shape)
