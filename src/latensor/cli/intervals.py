"""Dates and groups of documents for `latensor topics`: columns beside the text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.cli.column_span import MOST_GROUPS, ColumnSpan, DateScale, GroupScale, NumberScale
from latensor.cli.refusal import Refusal
from latensor.exceptions import InvalidInputError
from latensor.models.topics.intervals import EQUAL_BINS, Calendar, EqualBins, Intervals
from latensor.sources import read_column

if TYPE_CHECKING:
    from latensor.cli.corpus import Reading

Scale = DateScale | NumberScale | GroupScale


def label_columns(reading: Reading) -> list[tuple[str, str, str]]:
    """The columns that --date and --group name: kind, option and name of each."""
    given = (("time", "--date", reading.date), ("group", "--group", reading.group))
    return [(kind, option, name) for kind, option, name in given if name is not None]


def read_intervals(reading: Reading) -> tuple[dict[tuple[str, str], Intervals], list[str]]:
    """What --date and --group say of the documents, and how many they say nothing of, in words."""
    found: dict[tuple[str, str], Intervals] = {}
    columns = label_columns(reading)
    spans = []
    for kind, option, name in columns:
        texts = _texts(reading, option, name)
        spans.append(ColumnSpan().seen(texts))
        scale = scale_of(kind, f"{option}={name}", spans[-1])
        found[kind, name] = Intervals(scale.labels, scale.places(texts))
    return found, missing(columns, spans)


def missing(columns: Iterable[tuple[str, str, str]], spans: Iterable[ColumnSpan]) -> list[str]:
    """How many documents columns say nothing of, in words."""
    return [
        f"{span.n_unknown:,} documents have no {name}: they are not in that figure"
        for (_, _, name), span in zip(columns, spans, strict=True)
        if span.n_unknown
    ]


def scale_of(kind: str, given: str, span: ColumnSpan) -> Scale:
    """The intervals or groups of a column whose values are known as far as `span` tells.

    Parameters
    ----------
    kind : "time" or "group"
    given : str, the option as it was typed
    """
    if not span.n_known:
        raise Refusal(f"{given} is empty in all {span.n_unknown:,} documents")
    if kind == "group":
        if span.values is None:
            raise Refusal(
                f"{given} has more than {MOST_GROUPS} different values in "
                f"{span.n_known + span.n_unknown:,} documents, too many for groups: give a column "
                "with fewer"
            )
        return GroupScale(sorted(span.values))
    if span.no_date is None:
        low, high = (np.datetime64(end, "s") for end in span.dates)
        return DateScale(Calendar.between(low, high))
    if span.no_number is None:
        if not np.isfinite(span.numbers).all():
            raise Refusal(f"{given} holds numbers that are too large")
        return NumberScale(EqualBins(span.numbers[0], span.numbers[1], EQUAL_BINS))
    raise Refusal(
        f"{given} holds {span.no_date[:40]!r}, which is no date: write 2026-11-17, "
        "2026-11-17T09:30, 2026-11 or 2026, or numbers"
    )


def _texts(reading: Reading, option: str, name: str) -> Any:
    """A column as texts."""
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
    return np.array(texts, dtype=object)


def column_of(reading: Reading, name: str | None) -> str | int | None:
    """A column by name or, in a table without header line, by number."""
    if name is None or not name.isdecimal():
        return name
    suffixes = {suffix.lower() for suffix in reading.file.suffixes}
    is_table = reading.format == "csv" or (not reading.format and suffixes & {".csv", ".tsv"})
    headed = reading.text_column is None or not reading.text_column.isdecimal()
    return int(name) if is_table and not headed else name
