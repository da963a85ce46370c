"""How often symbols follow each other in sequences, at several distances, as mergeable sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from latensor.arrays.threads import run_tasks
from latensor.exceptions import InvalidInputError

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
    """

    n_rows: float
    n_sequences: float
    counts: Any
    firsts: Any
    tables: Mapping[int, Any]


class PairAccumulator:
    """Counts of symbols 0..d-1 and of pairs of them at given distances, from whole sequences.

    Parameters
    ----------
    n_symbols : int
    lags : distances of pairs
    n_threads : int
    """

    def __init__(self, n_symbols: int, lags: tuple[int, ...] = LAGS, n_threads: int = 1) -> None:
        self.n_symbols, self.lags, self.n_threads = n_symbols, lags, n_threads
        self._rows = 0.0
        self._sequences = 0.0
        self._counts = np.zeros(n_symbols)
        self._firsts = np.zeros(n_symbols)
        self._tables = {lag: self._new_table() for lag in lags}

    def _new_table(self) -> Any:
        shape = (self.n_symbols, self.n_symbols)
        if self.n_symbols > _DENSE_SYMBOLS:
            return scipy.sparse.csr_array(shape, dtype=np.float64)
        return np.zeros(shape)

    def update(self, symbols: Any, lengths: Any, weights: Any = None) -> Self:
        """Add sequences.

        Parameters
        ----------
        symbols : (n,) integers 0..d-1, sequence after sequence
        lengths : (s,) their lengths, which sum to n
        weights : (s,) or None; a weight of 2 is the same as giving the sequence twice
        """
        symbols, lengths = np.asarray(symbols), np.asarray(lengths, dtype=np.int64)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        numbers = np.ones(len(lengths)) if weights is None else np.asarray(weights, np.float64)
        each = None if weights is None else np.repeat(numbers, lengths)
        self._rows += float(numbers @ lengths)
        self._sequences += float(numbers.sum())
        self._counts += np.bincount(symbols, each, minlength=self.n_symbols)
        self._firsts += np.bincount(symbols[begins], numbers, minlength=self.n_symbols)

        def add(lag: int) -> None:
            found = self._count(symbols, begins, ends, numbers, lag)
            self._tables[lag] = self._tables[lag] + found

        run_tasks(add, [(lag,) for lag in self.lags], self.n_threads)
        return self

    def _count(self, symbols: Any, begins: Any, ends: Any, numbers: Any, lag: int) -> Any:
        if self.n_symbols <= _DENSE_SYMBOLS:
            from latensor.moments.sequences._kernels import count_pairs

            found = np.zeros((self.n_symbols, self.n_symbols))
            count_pairs(symbols, begins, ends, numbers, lag, found)
            return found
        inside = np.ones(len(symbols), dtype=bool)
        for back in range(1, lag + 1):
            inside[np.maximum(ends - back, begins)] = False
        rows = np.flatnonzero(inside)
        codes = symbols[rows].astype(np.int64) * self.n_symbols + symbols[rows + lag]
        distinct, place = np.unique(codes, return_inverse=True)
        each = np.repeat(numbers, ends - begins)[rows]
        totals = np.bincount(place, each, minlength=len(distinct))
        entries = (distinct // self.n_symbols, distinct % self.n_symbols)
        shape = (self.n_symbols, self.n_symbols)
        return scipy.sparse.csr_array((totals, entries), shape=shape)

    def merge(self, other: PairAccumulator) -> Self:
        """Add the sequences that another accumulator of the same symbols has seen."""
        if other.n_symbols != self.n_symbols or other.lags != self.lags:
            raise InvalidInputError(
                f"cannot merge pairs of {other.n_symbols} symbols at distances {other.lags} into "
                f"pairs of {self.n_symbols} symbols at distances {self.lags}"
            )
        self._rows += other._rows
        self._sequences += other._sequences
        self._counts = self._counts + other._counts
        self._firsts = self._firsts + other._firsts
        self._tables = {lag: self._tables[lag] + other._tables[lag] for lag in self.lags}
        return self

    def spawn(self) -> PairAccumulator:
        """An empty accumulator of the same symbols and distances."""
        return PairAccumulator(self.n_symbols, self.lags, self.n_threads)

    def finalize(self) -> Pairs:
        """The counts so far."""
        return Pairs(
            float(self._rows),
            float(self._sequences),
            self._counts.copy(),
            self._firsts.copy(),
            {lag: table.copy() for lag, table in self._tables.items()},
        )
