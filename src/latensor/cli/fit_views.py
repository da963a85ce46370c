"""Views of the same rows out of a file: arrays of an archive, or groups of columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from latensor.cli.fit_input import Data, Reading, archive, member, numbered, with_weights
from latensor.cli.fit_tables import as_rows, find_columns, kind_of, listed, read_table
from latensor.cli.refusal import Refusal

# What a view is called, the view itself, what its columns are called, and the Python that reads it.
_Part = tuple[str, Any, list[str], str]
_PAIR, _THREE = "--views a,b:c,d", "--views a,b:c,d:e,f"


def read_views(reading: Reading) -> Data:
    """Three or more views of the same rows, in a list."""
    data = _read(reading, _THREE)
    if len(data.arguments) < 3:
        raise Refusal(
            f"{reading.file} gives {len(data.arguments)} views, three or more are needed: {_THREE}"
        )
    call, comma, more = data.call.partition(", sample_weight")
    return replace(data, arguments=(list(data.arguments),), call=f"[{call}]{comma}{more}")


def read_pair(reading: Reading) -> Data:
    """Two views of the same rows."""
    data = _read(reading, _PAIR)
    if len(data.arguments) != 2:
        raise Refusal(f"{reading.file} gives {len(data.arguments)} views, two are needed: {_PAIR}")
    return data


def _read(reading: Reading, example: str) -> Data:
    """Views as the arguments of the data; `example` is what to type where none are named."""
    in_archive = kind_of(reading.file) == ".npz"
    parts = _arrays_of(reading) if in_archive else _groups_of(reading, example)
    kinds = [] if reading.kinds is None else [k.strip() for k in reading.kinds.split(",")]
    views, names, code = [], [], ["import numpy as np"]
    for place, (title, view, columns, text) in enumerate(parts):
        if view.ndim == 2 and view.shape[1] == 1 and kinds[place : place + 1] == ["categorical"]:
            view, text = _whole(view, title or columns[0]), f"{text}[:, 0].astype(int)"
            columns = []
        if view.ndim == 1:
            columns = columns or [str(symbol) for symbol in range(int(view.max()) + 1)]
        views.append(view)
        names += [f"{title}.{column}" if title else column for column in columns]
        code.append(f"view_{place} = {text}")
    counts = [str(len(view)) for view in views]
    if len(set(counts)) > 1:
        raise Refusal(
            f"the views of {reading.file} have {', '.join(counts)} rows: all need the same rows"
        )
    sizes = [str(view.shape[1]) if view.ndim == 2 else "1 (symbols)" for view in views]
    data = Data(
        tuple(views),
        len(views[0]),
        f"{len(views[0]):,} rows in {len(views)} views of {', '.join(sizes)} columns",
        tuple(names),
        tuple(code),
        ", ".join(f"view_{place}" for place in range(len(views))),
    )
    table = None
    if reading.weights is not None and not in_archive:
        table = read_table(reading.file, reading.header, None)
    return with_weights(reading, table, data)


def _whole(view: Any, title: str) -> Any:
    """One column (n, 1) as symbols (n,)."""
    if (view < 0).any() or (view != np.floor(view)).any():
        raise Refusal(f"view {title} is categorical: its symbols must be whole numbers from 0 on")
    return view[:, 0].astype(np.int64)


def _arrays_of(reading: Reading) -> list[_Part]:
    """Views that are arrays of an archive: those that --views names, or all with two axes."""
    path = reading.file
    if reading.views is None:
        arrays = archive(path)
        names = [n for n, a in arrays.items() if a.ndim >= 2 and a.dtype.kind in "biuf"]
        if len(names) < 2:
            raise Refusal(
                f"{path} holds {listed(list(arrays))}: every view must be an array (n, d)"
            )
    else:
        names = [name.strip() for name in reading.views.split(":")]
        _refuse_twice(names, path)
    parts: list[_Part] = []
    for name in names:
        array = member(path, name, "--views")
        text = f"np.load({str(path)!r})[{name!r}]"
        if array.ndim == 1 and array.dtype.kind in "iu":
            parts.append((name, array, [], text))
            continue
        view = as_rows(array, f"array {name} of {path}")
        text = text if array.ndim == 2 else f"{text}.reshape({len(array)}, -1)"
        parts.append((name, view, [str(j) for j in range(view.shape[1])], text))
    return parts


def _groups_of(reading: Reading, example: str) -> list[_Part]:
    """Views that are groups of columns, of which one column of text is one of symbols."""
    table = read_table(reading.file, reading.header, None)
    if reading.views is None:
        raise Refusal(
            f"--views is missing: name the columns of every view, as {example}; "
            f"{reading.file} has {listed(table.names)}"
        )
    parts: list[_Part] = []
    groups = [find_columns(table, group, "--views") for group in reading.views.split(":")]
    _refuse_twice([table.names[column] for group in groups for column in group], reading.file)
    for columns in groups:
        if len(columns) == 1 and table.words(columns[0]).dtype.kind not in "biuf":
            symbols, names, code = numbered(table, columns[0])
            parts.append((table.names[columns[0]], symbols, list(names), code))
        else:
            named = [table.names[c] for c in columns]
            parts.append(("", table.numbers(columns), named, table.code(columns)))
    return parts


def _refuse_twice(names: list[str], file: Any) -> None:
    """Views that share a column are not independent, whatever the component."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Refusal(
            f"--views names {listed(twice)} of {file} more than once: views may share nothing"
        )
