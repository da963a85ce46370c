"""Moments of the past, the present and the future of a sequence, as mergeable sums (monograph 4.3).

Given the hidden state of a row, what was before it, its own symbol and what comes after it are
independent: three views. The past is seen through averages of features F (d, r) of the symbols
that forget at a rate g a step, p_t = sum_s g^(s-1) F[x_(t-s)] (g = 0: the row before alone), the
future likewise; the present by its symbol. Nothing of size d x d x d is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread, run_tasks
from latensor.exceptions import InvalidInputError

DECAYS = (0.0, 0.5, 0.9)
# Rows worked on together; fixed, so that the number of threads changes no bit.
_RANGE = 16_384
# Sums held at once, and entries of all of them: more would cost more to add up than they save.
_MAX_PARTS, _MAX_ENTRIES = 8, 20_000_000
# A window forgets to below this share of the last digit.
_FORGOTTEN = 1e-17


@dataclass(frozen=True)
class Windows:
    """Sums over all inner rows, those with a row before and one after in their sequence.

    Attributes
    ----------
    counts : (d,) by the symbol of the row
    past, future : (d, q) sums of the windows before and after, by symbol; q = r times the decays
    products : (d, q, q) sums of past (x) future, by symbol
    observed : (g,) sums of further quantities of the row
    observed_past, observed_future : (g, q) sums of their products with the windows
    """

    counts: Any
    past: Any
    future: Any
    products: Any
    observed: Any
    observed_past: Any
    observed_future: Any

    @property
    def weight(self) -> float:
        """The number of inner rows."""
        return float(self.counts.sum())


class WindowAccumulator:
    """Sums of past, present and future along given features, from whole sequences.

    Parameters
    ----------
    features : (d, r) array F
    decays : (m,) rates at which windows forget
    n_observables : int, further quantities of every row that are averaged with the windows
    n_threads : int
    """

    def __init__(
        self,
        features: Any,
        decays: tuple[float, ...] = DECAYS,
        n_observables: int = 0,
        n_threads: int = 1,
    ) -> None:
        self.features = np.ascontiguousarray(features, dtype=np.float64)
        self.decays, self.n_observables, self.n_threads = decays, n_observables, n_threads
        self._sums = self._zeros()

    def _zeros(self) -> tuple[Any, ...]:
        d, r = self.features.shape
        q, g = r * len(self.decays), self.n_observables
        shapes = ((d,), (d, q), (d, q), (d, q, q), (g,), (g, q), (g, q))
        return tuple(np.zeros(shape) for shape in shapes)

    def update(
        self, symbols: Any, lengths: Any, observables: Any = None, weights: Any = None
    ) -> Self:
        """Add sequences.

        Parameters
        ----------
        symbols : (n,) integers 0..d-1, sequence after sequence
        lengths : (s,) their lengths, which sum to n
        observables : (n, g) array, None where there are none
        weights : (s,) or None; a weight of 2 is the same as giving the sequence twice
        """
        symbols, lengths = np.asarray(symbols), np.asarray(lengths, dtype=np.int64)
        n = len(symbols)
        if not n:
            return self
        begins = np.cumsum(lengths) - lengths
        position = np.arange(n) - np.repeat(begins, lengths)
        remaining = np.repeat(lengths, lengths) - 1 - position
        numbers = np.ones(len(lengths)) if weights is None else np.asarray(weights, np.float64)
        each = np.repeat(numbers, lengths)
        edges = np.array([*range(0, n, _RANGE), n])
        size = max(self._sums[3].size, 1)
        count = min(_MAX_PARTS, len(edges) - 1, max(_MAX_ENTRIES // size, 1))
        parts = np.array_split(np.arange(len(edges) - 1), count)
        sums = [self._zeros() for _ in parts]

        def add(part: int) -> None:
            for i in parts[part]:
                self._add(
                    symbols,
                    position,
                    remaining,
                    each,
                    observables,
                    int(edges[i]),
                    int(edges[i + 1]),
                    sums[part],
                )

        with one_blas_thread():
            run_tasks(add, [(part,) for part in range(len(parts))], self.n_threads)
        for part_sums in sums:
            self._sums = tuple(a + b for a, b in zip(self._sums, part_sums, strict=True))
        return self

    def _add(
        self,
        symbols: Any,
        position: Any,
        remaining: Any,
        weights: Any,
        observables: Any,
        first: int,
        last: int,
        sums: tuple[Any, ...],
    ) -> None:
        from latensor.moments.sequences import _kernels

        width = self.features.shape[1] * len(self.decays)
        past, future = np.empty((last - first, width)), np.empty((last - first, width))
        slowest = max(max(self.decays), 1e-9)
        reach = int(np.ceil(np.log(_FORGOTTEN) / np.log(slowest)))
        decays = np.array(self.decays)
        _kernels.windows(
            symbols, position, remaining, self.features, decays, first, last, reach, past, future
        )
        _kernels.add_products(
            symbols, position, remaining, weights, first, last, past, future, *sums[:4]
        )
        if observables is not None:
            inner = (position[first:last] > 0) & (remaining[first:last] > 0)
            rows = observables[first:last][inner] * weights[first:last][inner, None]
            sums[4][:] += rows.sum(axis=0)
            sums[5][:] += rows.T @ past[inner]
            sums[6][:] += rows.T @ future[inner]

    def merge(self, other: WindowAccumulator) -> Self:
        """Add the sequences that another accumulator of the same features has seen."""
        same = (
            other.features.shape == self.features.shape
            and (other.features == self.features).all()
            and other.decays == self.decays
            and other.n_observables == self.n_observables
        )
        if not same:
            raise InvalidInputError(
                "cannot merge windows along different features: the features are fixed by the "
                "first batch; give the second worker those of the first with spawn()"
            )
        self._sums = tuple(a + b for a, b in zip(self._sums, other._sums, strict=True))
        return self

    def spawn(self) -> WindowAccumulator:
        """An empty accumulator along the same features."""
        return WindowAccumulator(self.features, self.decays, self.n_observables, self.n_threads)

    def finalize(self) -> Windows:
        """The sums so far."""
        return Windows(*(array.copy() for array in self._sums))
