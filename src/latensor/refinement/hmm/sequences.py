"""Rows of one or many sequences, cut into ranges that threads can work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.moments.ragged import Ragged

# Rows of a range. Fixed: the sums of ranges are added in their order, so that the number of
# threads changes no bit. Long enough that the seams of a long sequence cost little.
_RANGE = 16_384
# The rows of a lane at least.
_SHORTEST_LANE = 64


@dataclass(frozen=True, eq=False)
class Sequences:
    """Where sequences begin among rows, and the ranges of rows that are worked on together.

    Attributes
    ----------
    lengths : (s,) int64
    begins : (s,) int64, the first row of each
    is_start : (n,) bool, whether a row is the first of a sequence, or of what is seen of it
    is_cut : (n,) bool, whether it is the first only of what is seen: nothing is known of its state
    ranges : first and last row (exclusive) of every range; short sequences are never cut
    range_weights : (ranges,) how often the rows of every range count; 0 where rows are only seen
    """

    lengths: Any
    begins: Any
    is_start: Any
    is_cut: Any
    ranges: tuple[tuple[int, int], ...]
    range_weights: Any

    @classmethod
    def of(cls, lengths: Any, size: int = _RANGE, weights: Any = None) -> Self:
        """The ranges of whole sequences of given lengths.

        Parameters
        ----------
        lengths : (s,) positive integers
        size : int, rows of a range
        weights : (s,) how often every sequence counts, or None
        """
        lengths = np.asarray(lengths, dtype=np.int64)
        whole = Ragged.of(np.empty(int(lengths.sum())), lengths)
        return cls.within(whole, np.ones(len(lengths)) if weights is None else weights, size)

    @classmethod
    def within(cls, units: Ragged, weights: Any, size: int = _RANGE) -> Self:
        """The ranges of a batch: about `size` rows each, as few seams as can be.

        Parameters
        ----------
        units : sequences, or pieces of them with rows at their ends that are only seen
        weights : (s,) how often every unit counts
        size : int, rows of a range
        """
        begins, lengths = units.begins, units.lengths
        n_rows = len(units.rows)
        is_start, is_cut = np.zeros(n_rows, dtype=np.bool_), np.zeros(n_rows, dtype=np.bool_)
        is_start[begins] = True
        is_cut[begins[units.lead > 0]] = True
        ranges: list[tuple[int, int]] = []
        kept: list[float] = []
        first, weight = 0, 0.0

        def close(last: int) -> None:
            nonlocal first
            ranges.append((first, last))
            kept.append(weight)
            first = last

        for begin, end, each in _segments(units, np.asarray(weights, dtype=np.float64)):
            if begin > first and (each != weight or end - first >= size):
                close(begin)
            weight = each
            while end - first > 2 * size:
                close(first + size)
        if n_rows > first:
            close(n_rows)
        return cls(lengths, begins, is_start, is_cut, tuple(ranges), np.array(kept))

    @property
    def n_rows(self) -> int:
        """All rows of all sequences."""
        return len(self.is_start)

    @property
    def weight(self) -> float:
        """All rows, each counted as often as its sequence."""
        return float(sum(w * (b - a) for w, (a, b) in zip(self.weights, self.ranges, strict=True)))

    @property
    def weights(self) -> list[float]:
        """How often the rows of every range count."""
        return [float(w) for w in self.range_weights]

    @property
    def row_weights(self) -> Any:
        """(n,) how often every row counts; None for once."""
        if (self.range_weights == 1).all():
            return None
        return np.repeat(self.range_weights, [b - a for a, b in self.ranges])

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
        if len(parts) == 1:
            return parts[0] * self.range_weights[0]
        return np.tensordot(self.range_weights, parts, axes=1)

    @property
    def ends(self) -> Any:
        """(s,) int64, the row after the last of each sequence."""
        return self.begins + self.lengths


def _segments(units: Ragged, weights: Any) -> list[tuple[int, int, float]]:
    """Rows of one weight each: of every unit those at its ends, which count nothing, and the rest.

    Neighbouring whole units stay apart: a range may end between them.
    """
    begins, ends = units.begins, units.begins + units.lengths
    if units.is_whole:
        return list(zip(begins.tolist(), ends.tolist(), weights.tolist(), strict=True))
    inner, outer = begins + units.lead, ends - units.tail
    found = []
    for a, b, c, d, weight in zip(
        begins.tolist(), inner.tolist(), outer.tolist(), ends.tolist(), weights.tolist(),
        strict=True,
    ):  # fmt: skip
        parts = ((a, b, 0.0), (b, c, weight), (c, d, 0.0))
        found += [part for part in parts if part[1] > part[0]]
    return found
