"""How often symbols follow each other in sequences, at several distances, as mergeable sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from latensor.moments.batch import Batch
from latensor.moments.ragged import Ragged
from latensor.moments.sums import Folded, Sums
from latensor.value_files import storable

# Distances that a window forgetting a tenth of itself a step reaches, more widely spaced as the
# weights fall off.
LAGS = (1, 2, 3, 5, 8, 13, 21)
# Beyond so many symbols the tables are sparse.
_DENSE_SYMBOLS = 256


@dataclass(frozen=True)
class Pairs:
    """Counts of symbols and of pairs of them.

    Attributes
    ----------
    n_rows, n_sequences : float
    counts : (d,) how often every symbol occurs
    firsts : (d,) how often a sequence begins with it
    tables : for every distance the (d, d) counts of a symbol (row) and of the one that follows it
        at this distance; arrays, or CSR above 256 symbols
    n_missing : float, rows that were not, or not wholly, observed
    """

    n_rows: float
    n_sequences: float
    counts: Any
    firsts: Any
    tables: Mapping[int, Any]
    n_missing: float = 0.0


@storable
@dataclass(frozen=True, eq=False)
class PairSums(Sums):
    """Counts of symbols 0..d-1 and of pairs of them at given distances.

    Attributes
    ----------
    code : picklable function of rows to symbols (n,), which has `n_symbols`
    lags : distances of pairs
    """

    # A leaf of sequences at once: tables of many symbols are added up less often.
    joins_blocks: ClassVar[bool] = True
    code: Any
    lags: tuple[int, ...] = LAGS

    def summed(self, batch: Batch) -> dict[str, Any]:
        units, n_symbols = batch.rows, self.code.n_symbols
        symbols, weights = self.code(units.rows), batch.weights
        each = units.row_weights(weights)
        begins = units.lead == 0
        firsts = symbols[units.begins[begins]]
        return {
            "n_rows": float(each.sum()),
            "n_sequences": float(weights[begins].sum()),
            "n_missing": float(each @ self.code.missing(units.rows)),
            "counts": np.bincount(symbols, each, minlength=n_symbols),
            "firsts": np.bincount(firsts, weights[begins], minlength=n_symbols),
            "tables": {
                lag: count_pairs(symbols, units, weights, lag, n_symbols) for lag in self.lags
            },
        }

    def finalize(self) -> Pairs:
        seen = self.seen()
        return Pairs(**{name: seen[name] for name in Pairs.__dataclass_fields__})


def count_pairs(symbols: Any, units: Ragged, weights: Any, lag: int, n_symbols: int) -> Any:
    """How often (d, d) a symbol is followed by another `lag` rows later, within sequences.

    A pair is counted in the piece of a sequence that its second row belongs to.

    Parameters
    ----------
    symbols : (n,) integers 0..d-1
    units : the sequences that they stand in
    weights : (s,) how often every unit counts
    lag : int
    n_symbols : int; beyond 256 the table is sparse
    """
    begins = units.begins + np.maximum(units.lead - lag, 0)
    ends = units.begins + units.lengths - units.tail
    if n_symbols <= _DENSE_SYMBOLS:
        from latensor.moments.sequences import _kernels

        found = np.zeros((n_symbols, n_symbols))
        _kernels.count_pairs(symbols, begins, ends, weights, lag, found)
        return found
    numbers = np.maximum(ends - lag - begins, 0)
    rows = np.repeat(begins - np.cumsum(numbers) + numbers, numbers) + np.arange(numbers.sum())
    codes = symbols[rows].astype(np.int64) * n_symbols + symbols[rows + lag]
    distinct, place = np.unique(codes, return_inverse=True)
    totals = np.bincount(place, np.repeat(weights, numbers), minlength=len(distinct))
    entries = (distinct // n_symbols, distinct % n_symbols)
    return scipy.sparse.csr_array((totals, entries), shape=(n_symbols, n_symbols))


@dataclass(frozen=True, eq=False)
class LargestSymbol(Folded):
    """The largest symbol of all: how many kinds there are where nobody says so."""

    largest: int = -1

    def empty(self) -> LargestSymbol:
        return LargestSymbol()

    def update(self, batch: Batch) -> LargestSymbol:
        return LargestSymbol(max(self.largest, int(batch.rows.rows.max())))

    def merge(self, other: LargestSymbol) -> LargestSymbol:
        return LargestSymbol(max(self.largest, other.largest))

    def scaled(self, factor: float) -> LargestSymbol:
        return self

    def message(self) -> int:
        return self.largest

    def received(self, message: int) -> LargestSymbol:
        return LargestSymbol(message)

    def finalize(self) -> int:
        """The largest symbol."""
        return self.largest
