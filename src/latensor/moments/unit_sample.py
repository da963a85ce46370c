"""Units of a fixed extent that stand for all of them, drawn in one pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch, mixed
from latensor.moments.sums import Folded, Tree
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class Sample(Folded):
    """The units with the smallest mixed numbers, of at most `limit` rows: a monoid, though no sum.

    A unit is one row, but of sequences, which count by their length; one unit is always kept.

    Units come in the order of their mixed numbers, so that the first m of them are a sample too.

    Attributes
    ----------
    limit : int
    seed : int
    below : float, where the number of units is known, the fraction of mixed numbers that can be
        among the smallest: spares the others the sorting
    kept : Batch or None
    count : int, units seen
    weight : float, of the units seen
    """

    limit: int
    seed: int
    below: float = 1.0
    kept: Batch | None = None
    count: int = 0
    weight: float = 0.0

    @classmethod
    def expecting(cls, limit: int, seed: int, count: float) -> Sample:
        """A sample out of `count` units, with a margin of six standard deviations; inf: unknown."""
        wanted = limit + 6 * np.sqrt(limit) + 36
        return cls(limit, seed, float(wanted / count) if wanted < count < np.inf else 1.0)

    @property
    def units(self) -> Batch:
        """The units kept."""
        assert self.kept is not None
        return self.kept

    @property
    def is_everything(self) -> bool:
        """Whether no unit was left out."""
        return self.kept is not None and len(self.kept) == self.count

    def in_order(self) -> Batch:
        """The units kept, in the order of their numbers."""
        return self.units.take(np.argsort(self.units.keys, kind="stable"))

    def first(self, limit: int) -> Batch:
        """A smaller sample, out of this one."""
        return self.units.take(slice(0, _within(self.units.sizes, limit)))

    def limited(self, limit: int) -> Sample:
        """What a sample of at most `limit` units would have kept."""
        if limit >= self.limit:
            return self
        kept = None if self.kept is None else self.first(limit)
        return replace(self, limit=limit, kept=kept)

    def empty(self) -> Sample:
        return Sample(self.limit, self.seed, self.below)

    def update(self, batch: Batch) -> Sample:
        numbers = mixed(batch.keys, self.seed)
        chosen = np.arange(len(batch))
        if self.below < 1:
            chosen = np.flatnonzero(numbers < np.uint64(int(self.below * 2.0**64)))
        chosen = chosen[np.argsort(numbers[chosen], kind="stable")]
        chosen = chosen[: _within(batch.sizes[chosen], self.limit)]
        return self._with(batch.take(chosen), len(batch), batch.weight)

    def merge(self, other: Sample) -> Sample:
        if other.kept is None:
            return self
        return self._with(other.kept, other.count, other.weight)

    def _with(self, more: Batch, count: int, weight: float) -> Sample:
        kept = more
        if self.kept is not None:
            kept = Batch.joined([self.kept, more])
            order = np.argsort(mixed(kept.keys, self.seed), kind="stable")
            kept = kept.take(order[: _within(kept.sizes[order], self.limit)])
        return replace(self, kept=kept, count=self.count + count, weight=self.weight + weight)

    def scaled(self, factor: float) -> Sample:
        return self

    def message(self) -> Tree:
        return self.kept, self.count, self.weight

    def received(self, message: Tree) -> Sample:
        return replace(self, kept=message[0], count=message[1], weight=message[2])


def _within(sizes: Array, limit: int) -> int:
    """How many of the first units have an extent of at most `limit`; at least one."""
    return max(int(np.searchsorted(np.cumsum(sizes), limit, side="right")), 1)
