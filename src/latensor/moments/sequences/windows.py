"""Moments of the past, the present and the future of a sequence, as mergeable sums (monograph 4.3).

Given the hidden state of a row, what was before it, its own symbol and what comes after it are
independent: three views. The past is seen through averages of features F (d, r) of the symbols
that forget at a rate g a step, p_t = sum_s g^(s-1) F[x_(t-s)] (g = 0: the row before alone), the
future likewise; the present by its symbol. Nothing of size d x d x d is formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.moments.batch import Batch
from latensor.moments.sums import Sums
from latensor.value_files import storable

DECAYS = (0.0, 0.5, 0.9)
# Rows whose windows are held at once.
_RANGE = 16_384
# A window forgets to below this fraction of the last digit.
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


@storable
@dataclass(frozen=True, eq=False)
class WindowSums(Sums):
    """Sums of past, present and future along given features.

    Attributes
    ----------
    code : picklable function of rows to symbols (n,), which also has `observables`: further
        quantities (n, g) of every row that are averaged with the windows, or None
    features : (d, r) array F
    decays : rates at which windows forget
    """

    joins_blocks: ClassVar[bool] = True
    code: Any
    features: Any
    decays: tuple[float, ...] = DECAYS

    def summed(self, batch: Batch) -> dict[str, Any]:
        from latensor.moments.sequences import _kernels

        units = batch.rows
        symbols, observables = self.code(units.rows), self.code.observables(units.rows)
        position = np.arange(len(symbols)) - np.repeat(units.begins, units.lengths)
        remaining = np.repeat(units.lengths, units.lengths) - 1 - position
        weights = units.row_weights(batch.weights)
        d, r = self.features.shape
        q, g = r * len(self.decays), 0 if observables is None else observables.shape[1]
        shapes = ((d,), (d, q), (d, q), (d, q, q), (g,), (g, q), (g, q))
        names = tuple(Windows.__dataclass_fields__)
        sums = {name: np.zeros(shape) for name, shape in zip(names, shapes, strict=True)}
        slowest = max(*self.decays, 1e-9)
        reach = int(np.ceil(np.log(_FORGOTTEN) / np.log(slowest)))
        features = np.ascontiguousarray(self.features, dtype=np.float64)
        for first in range(0, len(symbols), _RANGE):
            last = min(first + _RANGE, len(symbols))
            past, future = np.empty((last - first, q)), np.empty((last - first, q))
            places = (symbols, position, remaining)
            _kernels.windows(
                *places, features, np.array(self.decays), first, last, reach, past, future
            )
            _kernels.add_products(
                *places, weights, first, last, past, future, *(sums[name] for name in names[:4])
            )
            if observables is None:
                continue
            inner = (position[first:last] > 0) & (remaining[first:last] > 0)
            rows = observables[first:last][inner] * weights[first:last][inner, None]
            sums["observed"] += rows.sum(axis=0)
            sums["observed_past"] += rows.T @ past[inner]
            sums["observed_future"] += rows.T @ future[inner]
        return sums

    def finalize(self) -> Windows:
        return Windows(**self.seen())
