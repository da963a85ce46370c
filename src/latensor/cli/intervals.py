"""Dates and groups of documents for `latensor topics`: columns beside the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.cli.refusal import Refusal
from latensor.exceptions import InvalidInputError
from latensor.models.topics.exploration import Intervals, binned, grouped
from latensor.sources import read_column

if TYPE_CHECKING:
    from latensor.cli.corpus import Reading

# More groups than this are names of documents, not groups.
_MOST_GROUPS = 200
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_YEAR = re.compile(r"[12]\d{3}")
# A date, with or without a time of the day and a zone, which does not matter for intervals.
_DATED = re.compile(
    r"(\d{4}-\d{2}(?:-\d{2})?(?:[T ]\d{2}:\d{2}(?::\d{2})?)?)(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?"
)


def read_intervals(reading: Reading) -> tuple[dict[tuple[str, str], Intervals], list[str]]:
    """What --date and --group say of the documents, and how many they say nothing of, in words."""
    found: dict[tuple[str, str], Intervals] = {}
    missing: list[str] = []
    for kind, option, name in (
        ("time", "--date", reading.date),
        ("group", "--group", reading.group),
    ):
        if name is None:
            continue
        values, known = _values(reading, option, name)
        given = f"{option}={name}"
        found[kind, name] = (
            _dates(values, known, given) if kind == "time" else _groups(values, known, given)
        )
        without = int((~known).sum())
        if without:
            missing.append(f"{without:,} documents have no {name}: they are not in that figure")
    return found, missing


def _values(reading: Reading, option: str, name: str) -> tuple[Any, Any]:
    """A column as texts, and which of them are there."""
    if reading.file.is_dir():
        raise Refusal(f"{option}={name} needs a table (CSV, JSON lines, Parquet), not a folder")
    column = column_of(reading, name)
    assert column is not None
    try:
        texts = read_column(reading.file, column, format=reading.format)
    except InvalidInputError as error:
        told = str(error)
        raise Refusal(
            re.sub(
                r"\bcolumn=\S+",
                f"{option}={name}",
                re.sub(r"with column\b", f"with {option}", told),
            )
        ) from None
    values = np.array([text.strip() for text in texts], dtype=object)
    known = np.array(
        [text.lower() not in ("", "nan", "nat", "null", "none") for text in values], bool
    )
    if not known.any():
        raise Refusal(f"{option}={name} is empty in all {len(values):,} documents")
    return values, known


def _groups(values: Any, known: Any, given: str) -> Intervals:
    count = len(set(values[known]))
    if count > _MOST_GROUPS:
        raise Refusal(
            f"{given} has {count:,} different values in {len(values):,} documents, and "
            f"{_MOST_GROUPS} at most make groups: give a column with fewer"
        )
    return grouped(values.astype(str), known)


def _dates(values: Any, known: Any, given: str) -> Intervals:
    texts = values[known].tolist()
    filled = np.zeros(len(values), "datetime64[s]")
    if all(_YEAR.fullmatch(text) for text in texts):
        filled[known] = np.array(texts, dtype="datetime64[Y]")
    elif all(_NUMBER.fullmatch(text) for text in texts):
        numbers = np.zeros(len(values))
        numbers[known] = [float(text) for text in texts]
        if not np.isfinite(numbers).all():
            raise Refusal(f"{given} holds numbers that are too large")
        return _rounded(binned(numbers, "calendar", known))
    else:
        filled[known] = [_date(text, given) for text in texts]
    return binned(filled, "calendar", known)


def _rounded(intervals: Intervals) -> Intervals:
    return Intervals([f"{label:.4g}" for label in intervals.labels], intervals.numbers)


def _date(text: str, given: str) -> Any:
    match = _DATED.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        return np.datetime64(match[1].replace(" ", "T"), "s")
    except ValueError:
        raise Refusal(
            f"{given} holds {text[:40]!r}, which is no date: write 2026-11-17, 2026-11-17T09:30, "
            "2026-11 or 2026, or numbers"
        ) from None


def column_of(reading: Reading, name: str | None) -> str | int | None:
    """A column by name or, in a table without header line, by number."""
    if name is None or not name.isdecimal():
        return name
    suffixes = {suffix.lower() for suffix in reading.file.suffixes}
    is_table = reading.format == "csv" or (not reading.format and suffixes & {".csv", ".tsv"})
    headed = reading.text_column is None or not reading.text_column.isdecimal()
    return int(name) if is_table and not headed else name
