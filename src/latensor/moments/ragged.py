"""Sequences of different lengths as one array of rows: what a batch of sequences holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of sequences, one after the other; indexed by sequence.

    A long sequence can be cut into pieces that are units of their own. Each then has some of the
    rows before and after it at its ends: they tell in which state it begins and how it goes on,
    and are counted in the pieces that they belong to.

    Attributes
    ----------
    rows : (n,) symbols or (n, p) points
    lengths : (s,) int64, rows of every unit, those at the ends included
    lead, tail : (s,) int64, the rows at both ends that are counted elsewhere
    """

    rows: Array
    lengths: Array
    lead: Array
    tail: Array

    @classmethod
    def of(cls, rows: Array, lengths: Array) -> Ragged:
        """Whole sequences."""
        lengths = np.asarray(lengths, dtype=np.int64)
        none = np.zeros(len(lengths), dtype=np.int64)
        return cls(rows, lengths, none, none)

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def begins(self) -> Array:
        """(s,) the first row of every unit."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def sizes(self) -> Array:
        """(s,) rows that are counted in every unit."""
        return self.lengths - self.lead - self.tail

    @property
    def is_whole(self) -> bool:
        """Whether no unit is a piece of a longer sequence."""
        return not (self.lead.any() or self.tail.any())

    def counted(self) -> Array:
        """(n,) bool, whether a row is counted here rather than in a neighbouring piece."""
        place = np.arange(len(self.rows)) - np.repeat(self.begins, self.lengths)
        ends = self.lengths - self.tail
        return (place >= np.repeat(self.lead, self.lengths)) & (
            place < np.repeat(ends, self.lengths)
        )

    def row_weights(self, weights: Array) -> Array:
        """(n,) how often every row counts, of how often (s,) every unit does."""
        each = np.repeat(weights, self.lengths)
        return each if self.is_whole else each * self.counted()

    def __getitem__(self, chosen: Any) -> Ragged:
        if isinstance(chosen, slice) and chosen.step in (None, 1):
            first, last, _ = chosen.indices(len(self))
            edges = np.append(self.begins, len(self.rows))
            rows = self.rows[edges[first] : edges[max(last, first)]]
        else:
            chosen = np.arange(len(self))[chosen]
            sizes = self.lengths[chosen]
            places = np.repeat(self.begins[chosen] - np.cumsum(sizes) + sizes, sizes)
            rows = self.rows[places + np.arange(len(places))]
        return Ragged(rows, self.lengths[chosen], self.lead[chosen], self.tail[chosen])

    def copy(self) -> Ragged:
        """The same in memory of its own."""
        return Ragged(self.rows.copy(), self.lengths.copy(), self.lead.copy(), self.tail.copy())

    @staticmethod
    def stacked(parts: Sequence[Ragged]) -> Ragged:
        """The units of several, one after the other."""
        return Ragged(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("rows", "lengths", "lead", "tail")
            )
        )

    def cut(self, most: Array, margin: int) -> tuple[Ragged, Array]:
        """Pieces of equal length, at most most[i] rows of unit i, and the unit (m,) of each.

        Parameters
        ----------
        most : (s,) or int, rows that are counted in a piece
        margin : int, rows of the sequence before and after a piece that it sees
        """
        sizes = self.sizes
        counts = np.maximum(-(-sizes // np.maximum(most, 1)), 1)
        owners = np.repeat(np.arange(len(self)), counts)
        number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        # Where the counted rows of every piece begin and end within its unit.
        first = self.lead[owners] + number * sizes[owners] // counts[owners]
        last = self.lead[owners] + (number + 1) * sizes[owners] // counts[owners]
        low = np.maximum(first - margin, 0)
        high = np.minimum(last + margin, self.lengths[owners])
        # The ends of a unit keep all that they see.
        low = np.where(number == 0, 0, low)
        high = np.where(number == counts[owners] - 1, self.lengths[owners], high)
        lengths = high - low
        starts = self.begins[owners] + low
        places = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        rows = self.rows[places + np.arange(len(places))]
        return Ragged(rows, lengths, first - low, high - last), owners
