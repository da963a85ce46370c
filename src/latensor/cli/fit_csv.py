"""CSV and TSV files as columns, and where in them something is not a number."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from latensor.cli.fit_tables import NAMED, listed, refuse_missing
from latensor.cli.refusal import Refusal

_DELIMITERS = ",\t;|"
# Records by which a line of names is told from a row.
_LOOKED_AT = 200
_GZIP = b"\x1f\x8b"
_DAMAGED = (csv.Error, EOFError, zlib.error, gzip.BadGzipFile)


# What tables say of a value that was not observed, besides NaN.
_NOT_OBSERVED = frozenset({"", "na", "n/a", "null", "none"})


class SeparatedTable:
    """The columns of a CSV or TSV file, plain or compressed by gzip.

    What separates fields is told from the first line. It names the columns if one of its fields
    is no number while the field below it is, or if all are text that does not return below.
    """

    def __init__(self, path: Path, header: bool | None) -> None:
        self.path = path
        found = self._first_records(1, ",")
        if not found:
            raise Refusal(f"{path} is empty: it holds no rows")
        line = ",".join(found[0][1])
        self._delimiter = max(_DELIMITERS, key=line.count)
        found = self._first_records(_LOOKED_AT, self._delimiter)
        first = [record for _, record in found]
        self._has_header = _is_header(first) if header is None else header
        self._skipped = found[0][0] if self._has_header else 0
        fields = [field.strip() for field in first[0]]
        if self._has_header:
            self.names = tuple(field or str(j) for j, field in enumerate(fields))
        else:
            self.names = tuple(str(j) for j in range(len(fields)))
        if self._has_header and len(first) < 2:
            raise Refusal(
                f"{path} holds one line, {listed(self.names)}, and no rows: if these are numbers "
                "to fit, give --no-header"
            )

    def _first_records(self, count: int, delimiter: str) -> list[tuple[int, list[str]]]:
        return list(islice(self._records(delimiter), count))

    def _records(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """The records that are not blank, each with the number of its line."""
        try:
            with self._opened() as stream:
                reader = csv.reader(stream, delimiter=delimiter)
                for record in reader:
                    if any(field.strip() for field in record):
                        yield reader.line_num, record
        except UnicodeDecodeError as error:
            raise Refusal(f"{self.path} is not UTF-8 text: {error.reason}") from error
        except _DAMAGED as error:
            raise Refusal(f"{self.path} is damaged or no CSV file: {error}") from error

    def _opened(self) -> Any:
        with open(self.path, "rb") as raw:
            packed = raw.read(2) == _GZIP
        opener: Any = gzip.open if packed else open
        return opener(self.path, "rt", encoding="utf-8-sig", newline="")

    def _load(self, columns: Sequence[int], kind: Any, converters: Any = None) -> Any:
        """What `np.loadtxt` makes of these columns, as `code` says."""
        options = {**self._options(columns), "converters": converters}
        try:
            with self._opened() as stream:
                return np.loadtxt(stream, ndmin=2, dtype=kind, **options)
        except _DAMAGED as error:
            raise Refusal(f"{self.path} is damaged or truncated: {error}") from error
        except UnicodeDecodeError as error:
            raise Refusal(f"{self.path} is not UTF-8 text: {error.reason}") from error

    def _options(self, columns: Sequence[int]) -> dict[str, Any]:
        whole = list(columns) == list(range(len(self.names)))
        return {
            "delimiter": self._delimiter,
            "skiprows": self._skipped,
            "usecols": None if whole else list(columns),
            "quotechar": '"',
            "comments": None,
        }

    def numbers(self, columns: Sequence[int], missing: bool = False) -> Any:
        """Columns as (n, c) numbers; text is refused by the name of its column."""
        try:
            values = self._load(columns, np.float64, _number_or_missing if missing else None)
        except ValueError as error:
            self._refuse(columns, missing)
            raise Refusal(f"{self.path}: {error}") from error
        names = [self.names[c] for c in columns]
        refuse_missing(values, names, self.path, self._skipped + 1, missing)
        return values

    def words(self, column: int) -> Any:
        """A column (n,) as it is: numbers where all are, text otherwise."""
        for kind in (np.float64, np.str_):
            try:
                found = self._load([column], kind)[:, 0]
            except ValueError as error:
                failure = error
                continue
            return found if kind is np.float64 else np.char.strip(found)
        self._refuse([column])
        raise Refusal(f"{self.path}: {failure}")

    def _refuse(self, columns: Sequence[int], missing: bool = False) -> None:
        """Find what could not be read, and say where it stands."""
        text: dict[int, str] = {}
        for row, (line, record) in enumerate(self._records(self._delimiter)):
            if row == 0 and self._has_header:
                continue
            if len(record) != len(self.names):
                raise Refusal(
                    f"{self.path}: line {line} has {len(record)} fields, the first line has "
                    f"{len(self.names)}"
                )
            bad = [c for c in columns if not _is_number(record[c])]
            if missing:
                bad = [c for c in bad if not _is_missing(record[c])]
            if bad and row == int(self._has_header):
                text = {c: record[c].strip() for c in bad}
                empty = [c for c in bad if not text[c]]
                if not empty:
                    break
                bad = empty
            if bad:
                field = record[bad[0]].strip()
                found = f"holds {field!r}" if field else "is empty"
                raise Refusal(
                    f"{self.path}: line {line}, column {self.names[bad[0]]!r} {found}: expected a "
                    "number; fill it, or leave out the row or, by --columns, the column"
                )
        if text:
            named = listed([repr(self.names[c]) for c in text])
            left = [self.names[c] for c in columns if c not in text]
            choose = (
                f": choose columns of numbers by --columns {','.join(left)}"
                if left
                else ": write numbers"
            )
            if len(left) > NAMED:
                choose = ": choose columns of numbers by --columns"
            several = "columns" if len(text) > 1 else "column"
            hold = "hold" if len(text) > 1 else "holds"
            example = next(iter(text.values()))
            hint = "; decimals need a point" if _is_number(example.replace(",", ".")) else ""
            raise Refusal(
                f"{self.path}: {several} {named} {hold} text ({example!r} in the first row)"
                f"{choose}{hint}"
            )

    def code(self, columns: Sequence[int], words: bool = False) -> str:
        """The Python expression that reads these columns."""
        options = {name: value for name, value in self._options(columns).items() if value != 0}
        parts = [repr(str(self.path)), *(f"{name}={value!r}" for name, value in options.items())]
        kind = ", dtype=str)[:, 0]" if words else ")"
        return f"np.loadtxt({', '.join(parts)}, ndmin=2{kind}"


def _is_missing(field: str) -> bool:
    return field.strip().lower() in _NOT_OBSERVED


def _number_or_missing(field: str) -> float:
    return np.nan if _is_missing(field) else float(field)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_header(records: list[list[str]]) -> bool:
    top = [field.strip() for field in records[0]]
    below = [[field.strip() for field in record] for record in records[1:]]
    if not any(_is_number(field) for field in top):
        # Symbols without a line of names: the first comes again.
        returning = [
            any(place < len(record) and record[place] == field for record in below)
            for place, field in enumerate(top)
        ]
        return not all(returning)
    return bool(below) and any(
        not _is_missing(field) and not _is_number(field) and _is_number(under)
        for field, under in zip(top, below[0], strict=False)
    )
