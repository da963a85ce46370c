"""All moments of sequences that a hidden Markov model is read off, as one mergeable sum."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from latensor.estimation.hmm.cells import Cells
from latensor.estimation.hmm.subspace import SymbolSubspace, find_subspace
from latensor.exceptions import InvalidInputError
from latensor.moments.sequences import DECAYS, PairAccumulator, WindowAccumulator


class SequenceStream:
    """Pairs of symbols, and windows along the features that the first sequences have fixed.

    Parameters
    ----------
    n_symbols : int
    cells : how points become symbols; None where rows are symbols
    products : bool, whether second moments of points are all products, not only squares
    n_threads : int
    decays : rates at which windows forget, 0 (neighbouring rows) first
    """

    def __init__(
        self,
        n_symbols: int,
        cells: Cells | None,
        products: bool,
        n_threads: int,
        decays: tuple[float, ...] = DECAYS,
    ) -> None:
        self.cells, self.products, self.n_threads = cells, products, n_threads
        self.decays = decays
        self.pairs = PairAccumulator(n_symbols, n_threads=n_threads)
        self.windows: WindowAccumulator | None = None
        self.subspace: SymbolSubspace | None = None
        self._is_current = False

    @property
    def n_symbols(self) -> int:
        """Kinds of symbols, or cells."""
        return self.pairs.n_symbols

    @property
    def n_components(self) -> int:
        """The number of states that the features were chosen for."""
        assert self.subspace is not None
        return int(self.subspace.features.shape[1]) + 1

    def start(self, rows: Any, lengths: Any, n_components: int | None, weights: Any = None) -> Self:
        """Fix the features by the first sequences, and add these.

        Parameters
        ----------
        rows : symbols (n,) or standardized points (n, p)
        lengths : (s,)
        n_components : int, states; None for as many as stand out of the noise
        weights : (s,) how often every sequence counts, or None
        """
        self.count(rows, lengths, weights).fix(n_components)
        return self.look(rows, lengths, weights)

    def count(self, rows: Any, lengths: Any, weights: Any = None) -> Self:
        """Add sequences to the pairs only: the first pass over a source."""
        self._is_current = False
        self.pairs.update(self._symbols(rows), lengths, weights)
        return self

    def fix(self, n_components: int | None) -> Self:
        """Fix the features by all pairs so far."""
        rank = None if n_components is None else n_components - 1
        self.subspace = find_subspace(self.pairs.finalize(), rank)
        self._is_current = True
        self.windows = WindowAccumulator(
            self.subspace.features,
            self.decays,
            n_observables=self._n_observables(),
            n_threads=self.n_threads,
        )
        return self

    def look(self, rows: Any, lengths: Any, weights: Any = None) -> Self:
        """Add sequences, whose pairs are known, to the windows: the second pass."""
        assert self.windows is not None
        self.windows.update(self._symbols(rows), lengths, self._observables(rows), weights)
        return self

    def update(self, rows: Any, lengths: Any, weights: Any = None) -> Self:
        """Add sequences, along the features that are fixed."""
        return self.count(rows, lengths, weights).look(rows, lengths, weights)

    def merge(self, other: SequenceStream) -> Self:
        """Add the sequences of another stream with the same cells and features."""
        assert self.windows is not None
        assert other.windows is not None
        mine, theirs = self.cells, other.cells
        if mine is not None and theirs is not None:
            same = mine.centers.shape == theirs.centers.shape and all(
                (getattr(mine, name) == getattr(theirs, name)).all()
                for name in ("center", "scale", "centers")
            )
            if not same:
                raise InvalidInputError(
                    "cannot merge points coded by different cells: the cells are fixed by the "
                    "first batch; give the second worker those of the first with spawn()"
                )
        # Windows refuse what does not fit before anything is added.
        self.windows.merge(other.windows)
        self._is_current = False
        self.pairs.merge(other.pairs)
        return self

    def strength(self, n_components: int) -> float:
        """How far so many states stand out of the noise of all pairs so far; see SymbolSubspace."""
        assert self.subspace is not None
        if self._is_current:
            return self.subspace.strength(n_components)
        return find_subspace(self.pairs.finalize(), n_components - 1).strength(n_components)

    def spawn(self) -> SequenceStream:
        """An empty stream with the same cells and features."""
        fresh = SequenceStream(
            self.n_symbols, self.cells, self.products, self.n_threads, self.decays
        )
        assert self.windows is not None
        fresh.windows, fresh.subspace = self.windows.spawn(), self.subspace
        return fresh

    def _symbols(self, rows: Any) -> Any:
        return rows if self.cells is None else self.cells.code(rows)

    def _n_observables(self) -> int:
        if self.cells is None:
            return 0
        p = int(self.cells.centers.shape[1])
        return p + p * (p + 1) // 2 if self.products else 2 * p

    def _observables(self, rows: Any) -> Any:
        if self.cells is None:
            return None
        if not self.products:
            return np.hstack([rows, rows**2])
        first, second = np.triu_indices(rows.shape[1])
        return np.hstack([rows, rows[:, first] * rows[:, second]])
