"""Documents in intervals of time and in groups, and the fractions of the topics in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int
from latensor.exceptions import InvalidInputError
from latensor.moments.sums import plus

# Intervals of the calendar that fit into a figure, and what they may be, from short to long: unit,
# number of them, and the offset from 1970 that makes weeks begin on Monday and centuries with 00.
_MOST_INTERVALS = 24
# Intervals of numbers, which have no calendar.
EQUAL_BINS = 10
_UNITS = (
    ("D", 1, 0),
    ("D", 7, 3),
    ("M", 1, 0),
    ("M", 3, 0),
    *(("Y", years, 1970) for years in (1, 2, 5, 10, 20, 50, 100, 1000)),
)


@dataclass(frozen=True, eq=False)
class TopicFractions:
    """Fractions of the topics in groups of documents.

    Attributes
    ----------
    labels : list, what the groups are called: the values given, or the begin of every interval
    fractions : (g, k), the fraction of every topic in the words of a group; NaN where it has no
        words
    errors : (g, k), standard errors of the fractions, from how documents of a group differ; NaN
        where a group has fewer than two documents
    n_documents : (g,) ints, documents of every group
    """

    labels: list[Any]
    fractions: Any
    errors: Any
    n_documents: Any

    def tables(self) -> tuple[Any, Any, Any]:
        """Fractions, their errors, and the documents of every group."""
        return self.fractions, self.errors, self.n_documents

    def to_frame(self) -> Any:
        """The fractions as a pandas DataFrame, a row for every group."""
        import pandas

        columns = [f"topic {j}" for j in range(self.fractions.shape[1])]
        return pandas.DataFrame(self.fractions, index=self.labels, columns=columns)


@dataclass(frozen=True, eq=False)
class Intervals:
    """Which group or interval every document belongs to.

    Attributes
    ----------
    labels : list, what they are called
    numbers : (n,) ints, the place of each document in `labels`; -1 for none
    """

    labels: list[Any]
    numbers: Any


def grouped(groups: Any, known: Any = None) -> Intervals:
    """Groups by name.

    Parameters
    ----------
    groups : (n,) array
    known : (n,) bools, False for documents that belong to none; None for all
    """
    known = np.ones(len(groups), bool) if known is None else known
    labels, numbers = np.unique(groups[known], return_inverse=True)
    places = np.full(len(groups), -1)
    places[known] = numbers.ravel()
    return Intervals(labels.tolist(), places)


def binned(times: Any, n_bins: int | str) -> Intervals:
    """Intervals of time: of equal length, or of the calendar.

    Parameters
    ----------
    times : (n,) array of numbers, dates or texts of dates
    n_bins : int or "calendar"
    """
    calendar = n_bins == "calendar"
    count = EQUAL_BINS if calendar else check_positive_int(n_bins, "n_bins")
    column = times
    dated = column.dtype.kind not in "biuf"
    if dated:
        try:
            column = column.astype("datetime64[s]")
        except (TypeError, ValueError):
            raise InvalidInputError(
                f"times holds {_undated(column)!r}: give numbers or dates as 2026-11-17"
            ) from None
        if np.isnat(column).any():
            raise InvalidInputError("times has documents without a date: leave them out")
    if not np.isfinite(column.astype(np.float64)).all():
        raise InvalidInputError("times holds NaN or infinity: leave those documents out")
    low, high = column.min(), column.max()
    equal = EqualBins(low, high, count if high > low else 1)
    scale = Calendar.between(low, high) if dated and calendar else equal
    return Intervals(scale.labels, scale.places(column))


def _undated(column: Any) -> str:
    """The first value that is no date."""
    for value in column.tolist():
        try:
            np.datetime64(value)
        except (TypeError, ValueError):
            return str(value)
    return str(column[0])


@dataclass(frozen=True)
class Calendar:
    """Days, weeks, months, ... from a first to a last one.

    Attributes
    ----------
    unit, step, offset : of NumPy's dates, how many of them, and where they begin
    first, last : int, the numbers of the intervals
    """

    unit: str
    step: int
    offset: int
    first: int
    last: int

    @classmethod
    def between(cls, low: Any, high: Any) -> Calendar:
        """The shortest intervals of which at most `_MOST_INTERVALS` hold two dates."""
        for unit, step, offset in _UNITS:
            first, last = (int(_counted(date, unit, step, offset)) for date in (low, high))
            if last - first < _MOST_INTERVALS:
                break
        return cls(unit, step, offset, first, last)

    @property
    def labels(self) -> list[str]:
        """The first day of every interval, as far as it matters."""
        begins = np.arange(self.first, self.last + 1) * self.step - self.offset
        return begins.astype(f"datetime64[{self.unit}]").astype(str).tolist()

    def places(self, dates: Any) -> Any:
        """The interval (n,) of every date."""
        return _counted(dates, self.unit, self.step, self.offset) - self.first


def _counted(dates: Any, unit: str, step: int, offset: int) -> Any:
    return (dates.astype(f"datetime64[{unit}]").astype(np.int64) + offset) // step


@dataclass(frozen=True)
class EqualBins:
    """Intervals of equal length between two numbers or dates.

    Attributes
    ----------
    low, high : numbers or dates
    count : int
    """

    low: Any
    high: Any
    count: int

    @property
    def labels(self) -> list[Any]:
        """Where the intervals begin."""
        begins = self._edges[:-1]
        return (begins.astype("datetime64[s]") if self._dated else begins).tolist()  # type: ignore[no-any-return]

    def places(self, values: Any) -> Any:
        """The interval (n,) of every value."""
        found = np.searchsorted(self._edges, values.astype(np.float64), side="right")
        return np.clip(found - 1, 0, self.count - 1)

    @property
    def _dated(self) -> bool:
        return isinstance(self.low, np.datetime64)

    @property
    def _edges(self) -> Any:
        low, high = (np.asarray(end).astype(np.float64) for end in (self.low, self.high))
        return np.linspace(low, high, self.count + 1)


def fraction_sums(numbers: Any, mixtures: Any, lengths: Any, count: int) -> dict[str, Any]:
    """What documents add to the sums from which the fractions of the topics in groups follow.

    Parameters
    ----------
    numbers : (n,) ints, the group of every document; -1 for none
    mixtures, lengths : (n, k) and (n,), the topics and the number of words
    count : int, groups
    """
    inside = numbers >= 0
    numbers = numbers[inside]
    mixtures = np.asarray(mixtures, dtype=np.float64)[inside]
    lengths = np.asarray(lengths, dtype=np.float64)[inside]
    squares = lengths**2

    def by_group(values: Any) -> Any:
        found = np.zeros((count, values.shape[1]))
        np.add.at(found, numbers, values)
        return found

    return {
        "documents": np.bincount(numbers, minlength=count),
        "words": np.bincount(numbers, lengths, count),
        "squares": np.bincount(numbers, squares, count),
        # With the topics: words, squares, squares of the words of one.
        "totals": by_group(mixtures * lengths[:, None]),
        "cross": by_group(mixtures * squares[:, None]),
        "own": by_group(mixtures**2 * squares[:, None]),
    }


def fractions_of(sums: dict[str, Any], labels: list[Any]) -> TopicFractions:
    """The fractions of the topics in groups, and their standard errors."""
    words, sizes = sums["words"][:, None], sums["documents"]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = sums["totals"] / words
        # The error of a ratio of sums, from what every document adds to it: the sum of
        # n_i^2 (h_i - f)^2, multiplied out.
        off = sums["own"] - 2 * found * sums["cross"] + found**2 * sums["squares"][:, None]
        grown = (sizes / np.maximum(sizes - 1, 0))[:, None]
        errors = np.sqrt(np.maximum(off, 0.0) * grown) / words
    errors[sizes < 2] = np.nan
    return TopicFractions(labels, found, errors, sizes)


class FractionSums:
    """The sums of `fraction_sums`, batch by batch.

    Parameters
    ----------
    intervals : Intervals, of all documents in their order
    k : int, topics
    """

    def __init__(self, intervals: Intervals, k: int) -> None:
        self._intervals, self._at = intervals, 0
        none = np.zeros(0, np.int64)
        self._sums = fraction_sums(none, np.zeros((0, k)), none, len(intervals.labels))

    def add(self, mixtures: Any, lengths: Any) -> None:
        """More documents: their mixtures (n, k) and words (n,)."""
        numbers = self._intervals.numbers[self._at : self._at + len(lengths)]
        self._at += len(lengths)
        if len(numbers) == len(lengths):
            count = len(self._intervals.labels)
            self._sums = plus(self._sums, fraction_sums(numbers, mixtures, lengths, count))

    def finish(self) -> TopicFractions:
        """The fractions, and their standard errors."""
        expected = len(self._intervals.numbers)
        if self._at != expected:
            raise InvalidInputError(
                f"groups or times holds {expected} values for {self._at} documents: give "
                "one per document"
            )
        return fractions_of(self._sums, self._intervals.labels)
