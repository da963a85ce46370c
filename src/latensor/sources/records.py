"""Which columns of records are meant: rows, counts, texts, sequences, targets, views, weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.sources.counts import canonical
from latensor.sources.tokens import TOKEN_PATTERN, Tokenizer
from latensor.sources.words import WordChoice


@dataclass(frozen=True, eq=False)
class Lists:
    """A column of lists: entries `values[offsets[i]:offsets[i + 1]]` belong to record i."""

    offsets: Any
    values: Any

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Layout:
    """Which columns are meant, by name; all numeric ones by default.

    Attributes
    ----------
    columns : numeric columns, or one column of lists or vectors
    text : column of running text
    words, counts : columns of lists: the numbers of the words of a document, and how often each
        occurs (once by default); of a network the neighbours of a node, and the weights of edges
    n_features : int, the number of different words, or of nodes
    vocabulary : the words, for texts those that are counted
    sequence : column that names the sequence of a row; rows of a sequence stand together
    target : columns of the second view of CCA
    views : columns of every view
    weight : column of weights
    labels : columns that say when a document is from, or what it belongs to
    tokenizer, choice : how texts become words, and which are kept
    """

    columns: tuple[str, ...] | None = None
    text: str | None = None
    words: str | None = None
    counts: str | None = None
    n_features: int | None = None
    vocabulary: tuple[str, ...] | None = None
    sequence: str | None = None
    target: tuple[str, ...] | None = None
    views: tuple[tuple[str, ...], ...] | None = None
    weight: str | None = None
    labels: tuple[str, ...] | None = None
    tokenizer: Tokenizer = field(default_factory=Tokenizer, compare=False)
    choice: WordChoice = field(default_factory=WordChoice)

    @classmethod
    def of(
        cls,
        *,
        columns: object = None,
        target: object = None,
        views: Sequence[object] | None = None,
        labels: object = None,
        vocabulary: Sequence[str] | None = None,
        lowercase: bool = True,
        token_pattern: str = TOKEN_PATTERN,
        min_df: float = 1,
        max_df: float = 1.0,
        stop_words: object = None,
        max_features: int | None = None,
        **names: Any,
    ) -> Layout:
        """A layout as callers name it: one column or several."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(names) - known)
        if unknown:
            raise TypeError(f"unexpected argument {unknown[0]!r}")
        return cls(
            columns=_names(columns, "columns"),
            target=_names(target, "target"),
            views=None if views is None else tuple(_names(v, "views") or () for v in views),
            labels=_names(labels, "labels"),
            vocabulary=None if vocabulary is None else tuple(vocabulary),
            tokenizer=Tokenizer(token_pattern, lowercase),
            choice=WordChoice(min_df, max_df, max_features, stop_words),
            **names,
        )

    @property
    def names_nothing(self) -> bool:
        """Whether no column was named, so that pieces are taken as they are."""
        named = (self.columns, self.text, self.words, self.sequence, self.target, self.views)
        return all(name is None for name in named) and self.weight is None

    @property
    def needed(self) -> list[str] | None:
        """The columns to read, None for all."""
        if self.columns is None and self.text is None and self.words is None and not self.views:
            return None
        parts = [self.columns, self.target, *(self.views or ()), self.labels]
        found = [name for part in parts for name in part or ()]
        single = (self.text, self.words, self.counts, self.sequence, self.weight)
        return list(dict.fromkeys([*found, *(name for name in single if name is not None)]))


def _names(given: object, argument: str) -> tuple[str, ...] | None:
    if given is None or isinstance(given, str):
        return None if given is None else (given,)
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise InvalidInputError(f"{argument}={given!r} must be the name of a column, or a list")
    return tuple(given)


def pieces_as(piece: Any, kind: Kind, layout: Layout) -> Iterator[Any]:
    """A piece of a partition as batches that the input of a model of a kind reads."""
    is_list, is_sparse = isinstance(piece, list), scipy.sparse.issparse(piece)
    if is_list and (kind is not Kind.VIEWS or (piece and isinstance(piece[0], list | tuple))):
        yield from _items_as(piece, kind, layout)
    elif (isinstance(piece, Mapping) and not is_sparse) or not layout.names_nothing:
        yield _columns_as(columns_of(piece), kind, layout)
    elif kind is Kind.DOCUMENTS and _is_text_series(piece):
        yield list(piece)
    elif kind is Kind.ROWS and getattr(piece, "ndim", 0) == 1:
        yield np.asarray(piece).reshape(-1, 1)
    else:
        yield piece


def columns_of(piece: Any) -> Mapping[str, Any]:
    """The columns of a piece by name: a mapping, or a frame."""
    if isinstance(piece, Mapping):
        return piece
    names = getattr(piece, "columns", None)
    if names is None:
        raise InvalidInputError(
            f"a partition is a {type(piece).__name__} without columns, but columns were named: "
            "give frames, or name none"
        )
    return {str(name): _column(piece[name]) for name in names}


def _column(series: Any) -> Any:
    values = series.to_numpy() if hasattr(series, "to_numpy") else np.asarray(series)
    first = next((v for v in values if v is not None), None) if values.dtype == object else None
    if isinstance(first, list | tuple | np.ndarray):
        return lists_of(values)
    return values


def lists_of(values: Any) -> Lists:
    """A column of Python lists or arrays; None stands for an empty one."""
    parts = [np.asarray(() if v is None else v) for v in values]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    filled = [part for part in parts if len(part)]
    return Lists(offsets, np.concatenate(filled) if filled else np.zeros(0))


def _is_text_series(piece: Any) -> bool:
    return getattr(piece, "ndim", 0) == 1 and getattr(piece, "dtype", None) is not None


# ---------------------------------------------------------------------- records
def _columns_as(columns: Mapping[str, Any], kind: Kind, layout: Layout) -> Any:
    weights = () if layout.weight is None else (_numbers(columns, layout.weight),)
    if kind is Kind.DOCUMENTS:
        if layout.text is not None:
            batch = _texts(columns, layout.text)
        elif layout.words is not None:
            batch = _counted(columns, layout, np.float32)
        else:
            batch = _matrix(columns, _numeric(columns, layout), layout)
        return (batch, *weights) if weights else batch
    if kind is Kind.VIEWS:
        if layout.views is None:
            raise InvalidInputError("views were not named: give views=[[...], [...], [...]]")
        found = [_matrix(columns, names, layout) for names in layout.views]
        return (found, *weights) if weights else found
    if kind is Kind.SEQUENCES and layout.sequence is None:
        names = _numeric(columns, layout)
        if len(names) == 1 and isinstance(_get(columns, names[0]), Lists):
            return _listed_sequences(columns[names[0]], *weights)
    if kind is Kind.GRAPH and layout.words is not None:
        rows = _counted(columns, layout, np.float64)
    else:
        rows = _matrix(columns, _numeric(columns, layout), layout)
    if kind is Kind.TARGETED:
        if layout.target is None:
            raise InvalidInputError("target was not named: give target=[...]")
        return (rows, _matrix(columns, layout.target, layout), *weights)
    if kind is Kind.SEQUENCES:
        return _sequences(rows, columns, layout)
    return (rows, *weights) if weights else rows


def _get(columns: Mapping[str, Any], name: str) -> Any:
    if name not in columns:
        shown = ", ".join(map(repr, list(columns)[:20]))
        raise InvalidInputError(f"there is no column {name!r}; there are {shown}")
    return columns[name]


def _numeric(columns: Mapping[str, Any], layout: Layout) -> tuple[str, ...]:
    if layout.columns is not None:
        return layout.columns
    left_out = {layout.weight, layout.sequence, *(layout.target or ())}
    return tuple(name for name in columns if name not in left_out)


def _numbers(columns: Mapping[str, Any], name: str) -> Any:
    values = np.asarray(_get(columns, name))
    if values.dtype.kind == "O":
        with contextlib.suppress(TypeError, ValueError):
            values = values.astype(np.float64)
    if values.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"column {name!r} holds {values.dtype if values.dtype != object else 'text'}, not "
            "numbers: name the numeric columns with columns=[...], or a column of text with text="
        )
    return values


def _matrix(columns: Mapping[str, Any], names: Sequence[str], layout: Layout) -> Any:
    """Rows (n, d): one column of lists or vectors, or several of numbers."""
    if len(names) == 1:
        column = _get(columns, names[0])
        if scipy.sparse.issparse(column) or (isinstance(column, np.ndarray) and column.ndim == 2):
            return column
        if isinstance(column, Lists):
            return _of_lists(column, names[0])
    if not names:
        raise InvalidInputError("no column is left to be read: name them with columns=[...]")
    for name in names:
        if isinstance(_get(columns, name), Lists):
            raise InvalidInputError(f"column {name!r} holds lists: give columns={name!r} alone")
    found = [_numbers(columns, name) for name in names]
    dtype = np.float32 if all(c.dtype == np.float32 for c in found) else np.float64
    rows = np.empty((len(found[0]), len(found)), dtype)
    for number, column in enumerate(found):
        rows[:, number] = column
    return rows


def joined_columns(pieces: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Pieces of one table as one piece."""
    if len(pieces) == 1:
        return pieces[0]
    return {name: _joined([piece[name] for piece in pieces]) for name in pieces[0]}


def _joined(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], Lists):
        ends = np.cumsum([0, *(int(c.offsets[-1]) for c in columns)])
        offsets = [c.offsets[1:] + end for c, end in zip(columns, ends, strict=False)]
        return Lists(
            np.concatenate([columns[0].offsets[:1], *offsets]), _joined([c.values for c in columns])
        )
    if scipy.sparse.issparse(columns[0]):
        return scipy.sparse.vstack(columns, format="csr")
    return np.concatenate(columns)


def _of_lists(column: Lists, name: str) -> Any:
    sizes = np.diff(column.offsets)
    if len(sizes) and (sizes != sizes[0]).any():
        raise InvalidInputError(
            f"column {name!r} holds lists of {sizes.min()} to {sizes.max()} numbers: all need the "
            "same length"
        )
    values = np.asarray(column.values)
    if values.dtype.kind not in "fiub":
        raise InvalidInputError(f"column {name!r} holds lists of {values.dtype}, not of numbers")
    return values[column.offsets[0] : column.offsets[-1]].reshape(len(sizes), -1)


def _texts(columns: Mapping[str, Any], name: str) -> list[str]:
    values = list(_get(columns, name))
    for value in values:
        if value is not None and not isinstance(value, str):
            raise InvalidInputError(
                f"column {name!r} holds {value!r:.40}, which is no text but a "
                f"{type(value).__name__}"
            )
    return ["" if value is None else value for value in values]


def _counted(columns: Mapping[str, Any], layout: Layout, dtype: Any) -> Any:
    assert layout.words is not None
    words = _get(columns, layout.words)
    counts = None if layout.counts is None else _get(columns, layout.counts)
    for name, column in ((layout.words, words), (layout.counts, counts)):
        if column is not None and not isinstance(column, Lists):
            raise InvalidInputError(f"column {name!r} must hold one list of numbers per record")
    width = layout.n_features
    if width is None:
        raise InvalidInputError(
            "n_features was not given: how many different words (of a network, nodes) are there?"
        )
    numbers = np.asarray(words.values)
    if len(numbers) and (numbers.dtype.kind not in "iu" or numbers.min() < 0):
        raise InvalidInputError(f"column {layout.words!r} must number words from 0 on")
    if len(numbers) and numbers.max() >= width:
        raise InvalidInputError(
            f"column {layout.words!r} holds word {numbers.max()}, but n_features={width}"
        )
    first, last = int(words.offsets[0]), int(words.offsets[-1])
    values = np.ones(last - first, dtype)
    if counts is not None:
        if not np.array_equal(np.diff(counts.offsets), np.diff(words.offsets)):
            raise InvalidInputError(
                f"the lists of {layout.words!r} and {layout.counts!r} differ in length"
            )
        begin, end = int(counts.offsets[0]), int(counts.offsets[-1])
        values = np.asarray(counts.values[begin:end]).astype(dtype)
    entries = numbers[first:last].astype(np.int32)
    return canonical(values, entries, words.offsets - words.offsets[0], width)


def _listed_sequences(column: Lists, *weights: Any) -> Any:
    """Sequences that are lists of symbols or numbers, or of lists of numbers, one a record."""
    lengths = np.diff(column.offsets)
    chosen, (first, last) = lengths > 0, (int(column.offsets[0]), int(column.offsets[-1]))
    values = column.values
    if isinstance(values, Lists):
        rows = _of_lists(values, "of a sequence")[first:last]
    else:
        rows = np.asarray(values)[first:last].reshape(last - first, -1)
    return (rows, lengths[chosen], *(weight[chosen] for weight in weights))


def _sequences(rows: Any, columns: Mapping[str, Any], layout: Layout) -> Any:
    if layout.sequence is None:
        return rows
    names = np.asarray(_get(columns, layout.sequence))
    if not len(names):
        return rows
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    if len(set(names[first].tolist())) < len(first):
        raise InvalidInputError(
            f"the rows of a sequence do not stand together: sort by {layout.sequence!r}"
        )
    lengths = np.diff(np.append(first, len(names)))
    if layout.weight is None:
        return rows, lengths
    return rows, lengths, _numbers(columns, layout.weight)[first]


# ---------------------------------------------------------------------- items
# Sequences, rows or documents of a list that are put together into one batch.
_TOGETHER = 4096


def _items_as(items: list[Any], kind: Kind, layout: Layout) -> Iterator[Any]:
    """The items of a bag: rows, texts, counts by word, sequences, records; or whole batches."""
    for begin in range(0, len(items), _TOGETHER):
        part = items[begin : begin + _TOGETHER]
        first = part[0]
        if isinstance(first, Mapping) and not layout.names_nothing:
            yield _columns_as(records_of(part), kind, layout)
        elif kind is Kind.DOCUMENTS and isinstance(first, str):
            _check_texts(part)
            yield part
        elif kind is Kind.DOCUMENTS and isinstance(first, Mapping):
            yield Records(part)
        elif kind is Kind.SEQUENCES and not isinstance(first, tuple):
            sequences = [np.asarray(item) for item in part]
            sequences = [item for item in sequences if len(item)]
            if sequences:
                yield np.concatenate(sequences), np.array([len(item) for item in sequences])
        elif _is_batch(first, kind):
            yield from part
        else:
            yield _stacked_rows(part)


class Records(list[Any]):
    """Documents as mappings of words to counts, one each."""


def records_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Records of a list as columns by name."""
    names = list(dict.fromkeys(name for record in records for name in record))
    columns: dict[str, Any] = {}
    for name in names:
        values = [record.get(name) for record in records]
        first = next((v for v in values if v is not None), None)
        if isinstance(first, list | tuple | np.ndarray):
            columns[name] = lists_of(values)
        else:
            columns[name] = as_column(values)
    return columns


def as_column(values: list[Any]) -> Any:
    """Numbers as an array, whatever else as objects."""
    if all(isinstance(v, bool | int | float | np.number) for v in values):
        return np.array(values)
    return np.array(values, dtype=object)


def _check_texts(items: list[Any]) -> None:
    for item in items:
        if not isinstance(item, str):
            raise InvalidInputError(f"a document is {item!r:.40}, not a text as those before it")


def _is_batch(item: Any, kind: Kind) -> bool:
    if isinstance(item, list | tuple):
        return kind in (Kind.VIEWS, Kind.TARGETED, Kind.SEQUENCES) or (
            len(item) == 2 and getattr(item[0], "ndim", 0) == 2
        )
    return getattr(item, "ndim", 0) == 2


def _stacked_rows(items: list[Any]) -> Any:
    if any(isinstance(item, str) for item in items):
        raise InvalidInputError("X holds text where rows of numbers are expected")
    if scipy.sparse.issparse(items[0]):
        return scipy.sparse.vstack(items, format="csr")
    try:
        rows = np.asarray(items)
    except ValueError as error:
        raise InvalidInputError(f"rows of X differ in length: {error}") from error
    return rows if rows.ndim == 2 else rows.reshape(len(items), -1)
