"""Columns of numbers from the files that people have: .npy, .npz, Parquet, and CSV (`fit_csv`)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from latensor.cli.files import read_input
from latensor.cli.refusal import Refusal

NAMED = 8
_KINDS = ".csv or .tsv (also .gz), .npy, .npz or .parquet"


class Table(Protocol):
    """A file of columns.

    Its columns are called `names`, by their numbers where they have no names.
    """

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called."""
        ...

    def numbers(self, columns: Sequence[int], missing: bool = False) -> Any:
        """Columns as (n, c) numbers; text is refused by the name of its column.

        So are infinite values and, unless they are welcome as `missing`, NaN.
        """
        ...

    def words(self, column: int) -> Any:
        """A column (n,) as it is: numbers or text."""
        ...

    def code(self, columns: Sequence[int], words: bool = False) -> str:
        """The Python expression that reads these columns."""
        ...


def read_table(path: Path, header: bool | None, array: str | None) -> Table:
    """A file of columns, by the ending of its name.

    Parameters
    ----------
    header : whether the first line of a CSV file names its columns; None to tell from the lines
    array : which array of an .npz file; None for the only one with two axes
    """
    kind = kind_of(path)
    if array is not None and kind != ".npz":
        raise Refusal(f"--array={array} needs an .npz file, {path} is {kind}")
    if kind == ".csv":
        # It needs the words that are defined here.
        from latensor.cli.fit_csv import SeparatedTable

        return SeparatedTable(path, header)
    if header is not None:
        raise Refusal(f"--header and --no-header are for CSV files, {path} is {kind}")
    if kind == ".parquet":
        return ParquetTable(path)
    found = read_input(path, array)
    if found.is_sparse:
        raise Refusal(f"{path} holds a sparse matrix: save it dense, as an array of rows")
    return ArrayTable(path, found.array, as_rows(found.tensor, str(path)))


def kind_of(path: Path) -> str:
    """The kind of a file by its name: ".csv", ".npy", ".npz" or ".parquet"."""
    if path.is_dir():
        raise Refusal(f"{path} is a folder: give a file")
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        return ".csv"
    for kind in (".npy", ".npz", ".parquet"):
        if path.name.lower().endswith(kind):
            return kind
    raise Refusal(f"{path}: unknown kind of file, expected {_KINDS}")


def find_columns(table: Table, text: str, option: str) -> list[int]:
    """The columns that an option lists: names or numbers from 0, and FIRST-LAST, between commas."""
    chosen: list[int] = []
    for word in (part.strip() for part in text.split(",")):
        chosen += _found(table, word, f"{option}={text}")
    twice = sorted({table.names[c] for c in chosen if chosen.count(c) > 1})
    if twice:
        raise Refusal(f"{option}={text} names {', '.join(twice)} twice")
    return chosen


def _found(table: Table, word: str, given: str) -> list[int]:
    if table.names.count(word) == 1:
        return [table.names.index(word)]
    if table.names.count(word) > 1:
        raise Refusal(f"{given}: {table.path} has several columns {word!r}: give its number")
    if word.isdecimal() and int(word) < len(table.names):
        return [int(word)]
    for cut in (found.start() for found in re.finditer("-", word)):
        ends = (word[:cut].strip(), word[cut + 1 :].strip())
        if all(end in table.names or end.isdecimal() for end in ends):
            first, last = (_found(table, end, given)[0] for end in ends)
            if first <= last:
                return list(range(first, last + 1))
    raise Refusal(
        f"{given}: {table.path} has no column {word!r}, only {listed(table.names)}"
        f"{nearest(word, table.names)}"
    )


def nearest(word: str, known: Sequence[str]) -> str:
    """A question that names what was probably meant, or nothing."""
    close = difflib.get_close_matches(word.lower(), [name.lower() for name in known], 1, 0.6)
    meant = [name for name in known if name.lower() in close]
    return f"; did you mean {meant[0]}?" if meant else ""


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """Names between commas, the first few of many."""
    more = f", ... ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def as_rows(array: Any, name: str) -> Any:
    """An array with an axis of rows and one of columns; further axes are laid side by side."""
    if array.dtype.kind not in "biuf":
        raise Refusal(f"{name} holds {array.dtype} values: expected real numbers")
    return array.reshape(len(array), -1)


def refuse_missing(
    values: Any,
    names: Sequence[str],
    path: Path,
    first_line: int | None,
    missing: bool = False,
) -> None:
    """Name the first value (n, c) that is missing or infinite, by row, line and column.

    Parameters
    ----------
    missing : bool, whether NaN is welcome, as a value that was not observed
    """
    if values.dtype.kind != "f" or np.isfinite(values.sum(dtype=np.float64)):
        return
    bad = np.isinf(values) if missing else ~np.isfinite(values)
    if not bad.any():
        return
    row, column = (int(i[0]) for i in np.nonzero(bad))
    line = "" if first_line is None else f" (line {row + first_line})"
    raise Refusal(
        f"{path}: {int(bad.sum())} of {values.size} values are {'' if missing else 'NaN or '}"
        "infinite, the first in row "
        f"{row}{line}, column {names[column]!r}: fill them or leave those rows out"
    )


@dataclass(frozen=True)
class ArrayTable:
    """The columns of an array (n, c) in an .npy or .npz file."""

    path: Path
    array: str | None
    rows: Any

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The numbers of the columns."""
        return tuple(str(j) for j in range(self.rows.shape[1]))

    def numbers(self, columns: Sequence[int], missing: bool = False) -> Any:
        """Columns as (n, c) numbers."""
        whole = len(columns) == len(self.names) and list(columns) == sorted(columns)
        kept = self.rows if whole else self.rows[:, list(columns)]
        refuse_missing(kept, [self.names[c] for c in columns], self.path, None, missing)
        return kept

    def words(self, column: int) -> Any:
        """A column (n,) as it is."""
        return self.rows[:, column]

    def code(self, columns: Sequence[int], words: bool = False) -> str:
        """The Python expression that reads these columns."""
        text = f"np.load({str(self.path)!r})"
        text += "" if self.array is None else f"[{self.array!r}]"
        text = f"{text}.reshape({len(self.rows)}, -1)"
        if words:
            return f"{text}[:, {columns[0]}]"
        return text if len(columns) == len(self.names) else f"{text}[:, {list(columns)}]"


class TransposedTable:
    """A table on its side: its rows are the columns, named by the first one where that is text."""

    def __init__(self, table: Table) -> None:
        self.path = table.path
        first = table.words(0)
        named = first.dtype.kind not in "biuf"
        inner = list(range(int(named), len(table.names)))
        if not inner:
            raise Refusal(f"{table.path} holds no numbers beside the names in its only column")
        self._rows = table.numbers(inner, missing=True).T
        self._code = f"{table.code(inner)}.T"
        labels = first.tolist() if named else range(self._rows.shape[1])
        self.names = tuple(str(label) for label in labels)

    def numbers(self, columns: Sequence[int], missing: bool = False) -> Any:
        """Columns as (n, c) numbers."""
        kept = np.ascontiguousarray(self._rows[:, list(columns)])
        refuse_missing(kept, [self.names[c] for c in columns], self.path, None, missing)
        return kept

    def words(self, column: int) -> Any:
        """A column (n,) as it is."""
        return self._rows[:, column]

    def code(self, columns: Sequence[int], words: bool = False) -> str:
        """The Python expression that reads these columns."""
        if words:
            return f"{self._code}[:, {columns[0]}]"
        whole = len(columns) == len(self.names)
        return self._code if whole else f"{self._code}[:, {list(columns)}]"


class ParquetTable:
    """The columns of a Parquet file; needs pyarrow."""

    def __init__(self, path: Path) -> None:
        try:
            arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError as error:
            raise Refusal(
                f"{path}: reading Parquet needs pyarrow (pip install pyarrow); or save it as .csv"
            ) from error
        self.path = path
        try:
            self._file = parquet.ParquetFile(path)
        except arrow.ArrowException as error:
            raise Refusal(f"{path} is damaged or no Parquet file: {error}") from error
        self.names: tuple[str, ...] = tuple(str(n) for n in self._file.schema_arrow.names)
        if not self.names or not self._file.metadata.num_rows:
            raise Refusal(f"{path} is empty: it holds no rows")

    def _column(self, column: int) -> Any:
        name = self.names[column]
        values = self._file.read(columns=[name]).column(0).to_numpy()
        return values if values.dtype.kind != "O" else values.astype(str)

    def numbers(self, columns: Sequence[int], missing: bool = False) -> Any:
        """Columns as (n, c) numbers; text is refused by the name of its column."""
        parts = [self._column(c) for c in columns]
        text = [self.names[c] for c, part in zip(columns, parts, strict=True)
                if part.dtype.kind not in "biuf"]  # fmt: skip
        if text:
            left = [self.names[c] for c in columns if self.names[c] not in text]
            choose = f" {','.join(left)}" if 0 < len(left) <= NAMED else ""
            raise Refusal(
                f"{self.path}: {listed([repr(name) for name in text])} holds no numbers: choose "
                f"columns of numbers by --columns{choose}"
            )
        values = np.column_stack(parts).astype(np.float64)
        refuse_missing(values, [self.names[c] for c in columns], self.path, None, missing)
        return values

    def words(self, column: int) -> Any:
        """A column (n,) as it is: numbers or text."""
        return self._column(column)

    def code(self, columns: Sequence[int], words: bool = False) -> str:
        """The Python expression that reads these columns."""
        names = [self.names[c] for c in columns]
        text = f"pandas.read_parquet({str(self.path)!r})"
        if words:
            return f"{text}[{names[0]!r}].to_numpy()"
        return f"{text}[{names}].to_numpy(float)"
