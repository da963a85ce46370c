"""What a column of dates or groups holds, batch by batch: what workers learn and are told of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.models.topics.intervals import Calendar, EqualBins

# More groups than this are names of documents, not groups.
MOST_GROUPS = 200
_UNKNOWN = ("", "nan", "nat", "null", "none")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_YEAR = re.compile(r"([12]\d{3})")
# A date, with or without a time of the day and a zone, which does not matter for intervals.
_DATED = re.compile(
    r"(\d{4}-\d{2}(?:-\d{2})?(?:[T ]\d{2}:\d{2}(?::\d{2})?)?)(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?"
)


def known(texts: Any) -> Any:
    """Texts (n,) without blanks around them, None for those that say nothing."""
    stripped = [text.strip() for text in texts]
    return np.array([None if t.lower() in _UNKNOWN else t for t in stripped], dtype=object)


def as_date(text: str) -> np.datetime64 | None:
    """A date to the second, or None."""
    match = _YEAR.fullmatch(text) or _DATED.fullmatch(text)
    try:
        return None if match is None else np.datetime64(match[1].replace(" ", "T"), "s")
    except ValueError:
        return None


def as_number(text: str) -> float | None:
    """A number, or None."""
    return float(text) if _NUMBER.fullmatch(text) else None


@dataclass(frozen=True)
class ColumnSpan:
    """What the values of a column are, and between which they lie.

    Attributes
    ----------
    n_known, n_unknown : int, documents with and without a value
    values : the different ones, None where they are more than `MOST_GROUPS`
    no_date, no_number : the first value that is none, or None where all are
    dates, numbers : the smallest and the largest of those that are; dates in seconds since 1970
    """

    n_known: int = 0
    n_unknown: int = 0
    values: frozenset[str] | None = frozenset()
    no_date: str | None = None
    no_number: str | None = None
    dates: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()

    def seen(self, texts: Any) -> ColumnSpan:
        """With more values (n,)."""
        found = known(texts)
        different = dict.fromkeys(text for text in found if text is not None)
        dates = {text: as_date(text) for text in different}
        numbers = {text: as_number(text) for text in different}
        n_known = sum(text is not None for text in found)
        return self.merge(
            ColumnSpan(
                n_known,
                len(found) - n_known,
                frozenset(different),
                next((text for text, date in dates.items() if date is None), None),
                next((text for text, number in numbers.items() if number is None), None),
                _ends([int(d.astype(np.int64)) for d in dates.values() if d is not None]),
                _ends([n for n in numbers.values() if n is not None]),
            )
        )

    def merge(self, other: ColumnSpan) -> ColumnSpan:
        """With what was seen elsewhere."""
        values = None
        if self.values is not None and other.values is not None:
            values = self.values | other.values
        return ColumnSpan(
            self.n_known + other.n_known,
            self.n_unknown + other.n_unknown,
            None if values is None or len(values) > MOST_GROUPS else values,
            other.no_date if self.no_date is None else self.no_date,
            other.no_number if self.no_number is None else self.no_number,
            _ends(self.dates + other.dates),
            _ends(self.numbers + other.numbers),
        )


def _ends(values: Any) -> Any:
    return (min(values), max(values)) if len(values) else ()


@dataclass(frozen=True)
class GroupScale:
    """Groups by name."""

    labels: list[str]

    def places(self, texts: Any) -> Any:
        """The group (n,) of every document; -1 for none."""
        numbers = {label: i for i, label in enumerate(self.labels)}
        return np.array([numbers.get(text, -1) for text in known(texts)], np.int64)


@dataclass(frozen=True)
class DateScale:
    """Intervals of the calendar."""

    calendar: Calendar

    @property
    def labels(self) -> list[str]:
        """Where they begin."""
        return self.calendar.labels

    def places(self, texts: Any) -> Any:
        """The interval (n,) of every document; -1 for none."""
        found = known(texts)
        places = np.full(len(found), -1)
        dated = np.array([text is not None for text in found], bool)
        dates = np.array([as_date(text) for text in found[dated]], "datetime64[s]")
        places[dated] = self.calendar.places(dates)
        return places


@dataclass(frozen=True)
class NumberScale:
    """Intervals of numbers."""

    bins: EqualBins

    @property
    def labels(self) -> list[str]:
        """Where they begin."""
        return [f"{label:.4g}" for label in self.bins.labels]

    def places(self, texts: Any) -> Any:
        """The interval (n,) of every document; -1 for none."""
        found = known(texts)
        places = np.full(len(found), -1)
        counted = np.array([text is not None for text in found], bool)
        places[counted] = self.bins.places(np.array([float(t) for t in found[counted]]))
        return places
