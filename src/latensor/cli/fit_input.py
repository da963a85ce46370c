"""What a model is fitted to: rows, symbols, sequences, views or pairs, out of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from latensor.array_files import ArrayArchive
from latensor.cli.fit_tables import (
    Table,
    TransposedTable,
    as_rows,
    find_columns,
    kind_of,
    listed,
    read_table,
)
from latensor.cli.refusal import Refusal

# Names that a line of the description can bear.
_NAMED = 6


@dataclass(frozen=True)
class Reading:
    """Which file to read and what of it, as typed.

    Attributes
    ----------
    file : Path
    columns, views, lengths, weights, target, array : str or None
    kinds : str or None, "gaussian" or "categorical" per view, between commas
    header : bool or None
    transpose : bool, whether what the model calls columns stands in rows
    """

    file: Path
    columns: str | None = None
    views: str | None = None
    lengths: str | None = None
    weights: str | None = None
    target: str | None = None
    array: str | None = None
    kinds: str | None = None
    header: bool | None = None
    transpose: bool = False


@dataclass(frozen=True, eq=False)
class Data:
    """What `fit` is called with.

    Attributes
    ----------
    arguments : tuple, what comes first: X, or X and lengths, or a list of views, or x and y
    n_rows : int
    shape : str, what was read in a few words
    names : tuple of str, of the features (those of all views, one after the other) or symbols
    lengths : (s,) integers or None
    sequences : (s,) what the sequences are called, or None
    sample_weight : (n,) or None
    code : lines of Python that read the same
    call : str, the arguments of `fit` in that Python
    """

    arguments: tuple[Any, ...]
    n_rows: int
    shape: str
    names: tuple[str, ...]
    code: tuple[str, ...]
    call: str
    lengths: Any = None
    sequences: Any = None
    sample_weight: Any = None

    @property
    def keywords(self) -> dict[str, Any]:
        """The named arguments of `fit`."""
        return {} if self.sample_weight is None else {"sample_weight": self.sample_weight}


def read_rows(reading: Reading) -> Data:
    """Rows (n, d) of numbers."""
    table, columns = _chosen(reading)
    return _of_rows(reading, table, columns)


def read_incomplete(reading: Reading) -> Data:
    """Rows (n, d) of numbers; NaN, NA and empty fields were not observed."""
    table, columns = _chosen(reading)
    return _of_rows(reading, table, columns, missing=True)


def read_line(reading: Reading) -> Data:
    """Rows (n, 1): numbers on a line."""
    table, columns = _chosen(reading)
    return _of_rows(reading, table, _one(table, columns, "numbers"))


def read_points(reading: Reading) -> Data:
    """Rows (n, p) of numbers in sequences; NaN, NA and empty fields were not observed."""
    table, columns = _chosen(reading)
    return _with_lengths(reading, table, _of_rows(reading, table, columns, missing=True))


def read_targets(reading: Reading) -> Data:
    """Rows (n, d) of numbers, and the column (n,) that they explain."""
    if reading.target is None:
        raise Refusal("--target is missing: say which column the others explain")
    if kind_of(reading.file) == ".npz":
        table, columns = _chosen(reading)
        data = _of_rows(reading, table, columns)
        y = member(reading.file, reading.target, "--target").ravel()
        code = f"np.load({str(reading.file)!r})[{reading.target!r}]"
    else:
        table, columns = _chosen(reading)
        column = _column(table, reading.target, "--target")
        columns = [c for c in columns if c not in column]
        if not columns:
            raise Refusal(f"{reading.file} has no columns besides {reading.target}")
        data = _of_rows(reading, table, columns)
        y, code = table.numbers(column)[:, 0], f"{table.code(column)}[:, 0]"
    if len(y) != data.n_rows:
        raise Refusal(
            f"--target={reading.target} has {len(y)} entries, but there are {data.n_rows} rows"
        )
    return replace(
        data,
        arguments=(data.arguments[0], y),
        shape=f"{data.shape}, target {reading.target}",
        code=(*data.code, f"y = {code}"),
        call="X, y",
    )


def read_symbols(reading: Reading) -> Data:
    """Symbols (n,) in sequences; text is numbered in alphabetical order."""
    table, columns = _chosen(reading)
    (column,) = _one(table, columns, "symbols")
    symbols, names, code = numbered(table, column)
    kinds = f"{len(names)} kinds: {listed(names)}" if names else f"0 to {symbols.max():.0f}"
    named = "" if table.names[column].isdecimal() else f" in column {table.names[column]}"
    shape = f"{len(symbols):,} symbols{named}, {kinds}"
    data = Data((symbols,), len(symbols), shape, names, ("import numpy as np", f"X = {code}"), "X")
    return _with_lengths(reading, table, data)


def whole_table(reading: Reading) -> tuple[Table, list[int]]:
    """The table of a file, and the columns that are meant."""
    return _chosen(reading)


def _chosen(reading: Reading) -> tuple[Table, list[int]]:
    """The table of a file, and its columns but those that name sequences or weights."""
    array = reading.array
    if kind_of(reading.file) == ".npz" and array is None:
        array = _only_array(reading)
    table = read_table(reading.file, reading.header, array)
    if reading.transpose:
        table = TransposedTable(table)
    if reading.columns is not None:
        return table, find_columns(table, reading.columns, "--columns")
    apart: set[int] = set()
    if kind_of(reading.file) != ".npz":
        for option, name in (("--lengths", reading.lengths), ("--weights", reading.weights)):
            if name is not None:
                apart.update(_column(table, name, option))
    left = [c for c in range(len(table.names)) if c not in apart]
    if not left:
        raise Refusal(f"{reading.file} has no columns besides {listed(table.names)}")
    return table, left


def _column(table: Table, name: str, option: str) -> list[int]:
    found = find_columns(table, name, option)
    if len(found) > 1:
        raise Refusal(f"{option}={name} names {len(found)} columns: give one")
    return found


def _one(table: Table, columns: list[int], what: str) -> list[int]:
    if len(columns) > 1:
        names = listed([table.names[c] for c in columns])
        raise Refusal(
            f"{table.path} has {len(columns)} columns ({names}), one of {what} is needed: choose "
            "it by --columns"
        )
    return columns


def archive(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file."""
    with ArrayArchive(path) as found:
        return {name: found[name] for name in found.names}


def _only_array(reading: Reading) -> str | None:
    """The array with most axes besides lengths and weights; None where there is none."""
    arrays = {
        name: array
        for name, array in archive(reading.file).items()
        if name not in (reading.lengths, reading.weights, reading.target)
        and array.dtype.kind in "biuf"
        and array.ndim
    }
    most = max((array.ndim for array in arrays.values()), default=0)
    leading = [name for name, array in arrays.items() if array.ndim == most]
    if len(leading) > 1:
        found = listed([f"{name} {arrays[name].shape}" for name in leading])
        raise Refusal(f"{reading.file} holds {found}: say by --array which of them holds the rows")
    return leading[0] if leading else None


def _of_rows(reading: Reading, table: Table, columns: list[int], missing: bool = False) -> Data:
    rows = table.numbers(columns, missing)
    names = tuple(table.names[c] for c in columns)
    width = "1 column" if len(columns) == 1 else f"{len(columns)} columns"
    described = "" if all(name.isdecimal() for name in names) else f" ({listed(names, _NAMED)})"
    unobserved = int(np.isnan(rows).sum()) if rows.dtype.kind == "f" else 0
    if unobserved:
        described += f", {unobserved:,} values not observed"
    if len(columns) > len(rows) and not reading.transpose:
        described += "; with --transpose rows and columns change places"
    data = Data(
        (rows,),
        len(rows),
        f"{len(rows):,} rows of {width}{described}",
        names,
        ("import numpy as np", f"X = {table.code(columns)}"),
        "X",
    )
    in_archive = kind_of(reading.file) == ".npz"
    return with_weights(reading, None if in_archive else table, data)


def with_weights(reading: Reading, table: Table | None, data: Data) -> Data:
    """The data with how often each row counts, from a column or, in an archive, an array."""
    name = reading.weights
    if name is None:
        return data
    if table is None:
        found = as_rows(member(reading.file, name, "--weights"), f"--weights={name}")
        values = found.astype(np.float64).ravel()
        code = f"np.load({str(reading.file)!r})[{name!r}]"
    else:
        column = _column(table, name, "--weights")
        values, code = table.numbers(column)[:, 0], f"{table.code(column)}[:, 0]"
    given = f"--weights={name}"
    if len(values) != data.n_rows:
        raise Refusal(f"{given} has {len(values)} entries, expected one for {data.n_rows} rows")
    if not (values >= 0).all() or not values.any():
        raise Refusal(f"{given} must hold numbers from 0 on, not all of them 0")
    return replace(
        data,
        code=(*data.code, f"weights = {code}"),
        call=f"{data.call}, sample_weight=weights",
        sample_weight=values,
    )


def member(path: Path, name: str, option: str) -> Any:
    """An array of an .npz file that an option names."""
    arrays = archive(path)
    if name not in arrays:
        raise Refusal(f"{option}={name}: {path} holds {listed(list(arrays)) or 'no arrays'}")
    return arrays[name]


def numbered(table: Table, column: int) -> tuple[Any, tuple[str, ...], str]:
    """Symbols (n,), what they are called where they are text, and the Python that reads them."""
    values = table.words(column)
    if values.dtype.kind in "biuf":
        # NaN is neither.
        bad = np.flatnonzero(~((values >= 0) & (values == np.floor(values))))
        if len(bad):
            raise Refusal(
                f"{table.path}: column {table.names[column]!r} holds {values[bad[0]]:g} in row "
                f"{bad[0]}: symbols are text, or whole numbers from 0; for measurements fit "
                "gaussian-hmm"
            )
        return values, (), f"{table.code([column])}[:, 0]"
    empty = np.flatnonzero(values == "")
    if len(empty):
        raise Refusal(
            f"{table.path}: column {table.names[column]!r} is empty in row {empty[0]}: fill it or "
            "leave that row out"
        )
    names, numbers = np.unique(values, return_inverse=True)
    code = f"np.unique({table.code([column], words=True)}, return_inverse=True)[1]"
    return numbers.astype(np.int64), tuple(str(name) for name in names), code


def _with_lengths(reading: Reading, table: Table, data: Data) -> Data:
    """The data with the lengths of its sequences, from a column that names them or an array."""
    name = reading.lengths
    if name is None:
        return data
    given = f"--lengths={name}"
    if kind_of(reading.file) == ".npz":
        values = member(reading.file, name, "--lengths").ravel()
        code = f"np.load({str(reading.file)!r})[{name!r}]"
        if len(values) != data.n_rows:
            lengths = _checked(values, data.n_rows, given)
            return _joined(data, lengths, None, (f"lengths = {code}",))
    else:
        (column,) = _column(table, name, "--lengths")
        values, code = table.words(column), table.code([column], words=True)
    blank = ~np.isfinite(values) if values.dtype.kind == "f" else values == ""
    if np.any(blank):
        raise Refusal(f"{given}: row {int(np.argmax(blank))} is blank, it belongs to no sequence")
    begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    sequences = values[begins]
    known: set[object] = set()
    for begin, sequence in zip(begins.tolist(), sequences.tolist(), strict=True):
        if sequence in known:
            raise Refusal(
                f"{given}: sequence {_shown(sequence)} begins again in row {begin}: rows of a "
                "sequence must stand together, in their order"
            )
        known.add(sequence)
    lines = (
        f"names = {code}",
        "lengths = np.diff(np.flatnonzero(np.r_[True, names[1:] != names[:-1], True]))",
    )
    lengths = np.diff(np.append(begins, len(values)))
    return _joined(data, lengths, [_shown(s) for s in sequences.tolist()], lines)


def _shown(value: Any) -> str:
    """What a sequence is called: a whole number without its point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _checked(values: Any, n_rows: int, given: str) -> Any:
    if values.dtype.kind not in "iuf" or (values < 1).any() or (values != np.floor(values)).any():
        raise Refusal(f"{given} must hold lengths, whole numbers of at least 1")
    if int(values.sum()) != n_rows:
        raise Refusal(
            f"{given} does not add up: {len(values)} lengths sum to {int(values.sum())}, but there "
            f"are {n_rows} rows"
        )
    return values.astype(np.int64)


def _joined(data: Data, lengths: Any, sequences: Any, lines: Sequence[str]) -> Data:
    count = "1 sequence" if len(lengths) == 1 else f"{len(lengths):,} sequences"
    longest, shortest = int(lengths.max()), int(lengths.min())
    span = f"{shortest}" if longest == shortest else f"{shortest} to {longest}"
    return replace(
        data,
        arguments=(data.arguments[0], lengths),
        shape=f"{data.shape}, {count} of {span} rows",
        code=(*data.code, *lines),
        call=f"{data.call}, lengths",
        lengths=lengths,
        sequences=sequences,
    )


Reader = Callable[[Reading], Data]
