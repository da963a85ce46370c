"""Rows of one or many sequences, cut into ranges that threads can work on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

# Rows of a range. Fixed: the sums of ranges are added in their order, so that the number of
# threads changes no bit. Long enough that the seams of a long sequence cost little.
_RANGE = 16_384
# The rows of a lane at least.
_SHORTEST_LANE = 64


@dataclass(frozen=True)
class Sequences:
    """Where sequences begin among rows, and the ranges of rows that are worked on together.

    Attributes
    ----------
    lengths : (s,) int64
    begins : (s,) int64, the first row of each
    is_start : (n,) bool, whether a row is the first of a sequence
    ranges : first and last row (exclusive) of every range; short sequences are never cut
    weights : (s,) how often every sequence counts, the same for all of a range; None for once
    """

    lengths: Any
    begins: Any
    is_start: Any
    ranges: tuple[tuple[int, int], ...]
    weights: Any = None

    @classmethod
    def of(cls, lengths: Any, size: int = _RANGE, weights: Any = None) -> Self:
        """The ranges of sequences of given lengths: about `size` rows each, as few seams as can be.

        Parameters
        ----------
        lengths : (s,) positive integers
        size : int, rows of a range
        weights : (s,) or None
        """
        lengths = np.asarray(lengths, dtype=np.int64)
        ends = np.cumsum(lengths)
        begins = ends - lengths
        is_start = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.bool_)
        is_start[begins] = True
        changes = np.zeros(len(lengths), dtype=np.bool_)
        if weights is not None:
            weights = np.asarray(weights, dtype=np.float64)
            changes[1:] = np.diff(weights) != 0
        ranges: list[tuple[int, int]] = []
        first = 0
        for begin, end, change in zip(
            begins.tolist(), ends.tolist(), changes.tolist(), strict=True
        ):
            if (change or end - first >= size) and begin > first:
                ranges.append((first, begin))
                first = begin
            while end - first > 2 * size:
                ranges.append((first, first + size))
                first += size
        if len(is_start) > first:
            ranges.append((first, len(is_start)))
        return cls(lengths, begins, is_start, tuple(ranges), weights)

    @property
    def n_rows(self) -> int:
        """All rows of all sequences."""
        return len(self.is_start)

    @property
    def weight(self) -> float:
        """All rows, each counted as often as its sequence."""
        return float(self.n_rows if self.weights is None else self.weights @ self.lengths)

    @property
    def row_weights(self) -> Any:
        """(n,) how often every row counts; None for once."""
        return None if self.weights is None else np.repeat(self.weights, self.lengths)

    @cached_property
    def range_weights(self) -> Any:
        """(ranges,) how often the rows of every range count."""
        if self.weights is None:
            return np.ones(len(self.ranges))
        owners = np.searchsorted(self.begins, [a for a, _ in self.ranges], side="right") - 1
        return self.weights[owners]

    def lanes(self, most: int) -> list[tuple[int, int]]:
        """For every range the rows of a lane and how many lanes, at most so many, it is cut into.

        Together they have room for all rows of the range, and none is empty.
        """
        counts = [min(most, max((b - a) // _SHORTEST_LANE, 1)) for a, b in self.ranges]
        return [
            (-(-(b - a) // count), count) for (a, b), count in zip(self.ranges, counts, strict=True)
        ]

    def total(self, parts: Any) -> Any:
        """The sum of what the ranges gave (ranges, ...), each counted as often as it should."""
        if self.weights is None:
            return parts[0] if len(parts) == 1 else parts.sum(axis=0)
        return np.tensordot(self.range_weights, parts, axes=1)

    @property
    def ends(self) -> Any:
        """(s,) int64, the row after the last of each sequence."""
        return self.begins + self.lengths
