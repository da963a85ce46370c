"""Rows of one or many sequences, cut into ranges that threads can work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

# Rows of a range. Fixed: the sums of ranges are added in their order, so that the number of
# threads changes no bit. Long enough that the seams of a long sequence cost little.
_RANGE = 16_384


@dataclass(frozen=True)
class Sequences:
    """Where sequences begin among rows, and the ranges of rows that are worked on together.

    Attributes
    ----------
    lengths : (s,) int64
    begins : (s,) int64, the first row of each
    is_start : (n,) bool, whether a row is the first of a sequence
    ranges : first and last row (exclusive) of every range; short sequences are never cut
    """

    lengths: Any
    begins: Any
    is_start: Any
    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, lengths: Any, size: int = _RANGE) -> Self:
        """The ranges of sequences of given lengths: about `size` rows each, as few seams as can be.

        Parameters
        ----------
        lengths : (s,) positive integers
        size : int, rows of a range
        """
        lengths = np.asarray(lengths, dtype=np.int64)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        is_start = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.bool_)
        is_start[begins] = True
        ranges: list[tuple[int, int]] = []
        first = 0
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if end - first >= size and begin > first:
                ranges.append((first, begin))
                first = begin
            while end - first > 2 * size:
                ranges.append((first, first + size))
                first += size
        if len(is_start) > first:
            ranges.append((first, len(is_start)))
        return cls(lengths, begins, is_start, tuple(ranges))

    @property
    def n_rows(self) -> int:
        """All rows of all sequences."""
        return len(self.is_start)

    @property
    def ends(self) -> Any:
        """(s,) int64, the row after the last of each sequence."""
        return self.begins + self.lengths
